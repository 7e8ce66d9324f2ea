//! Handles on pooled memory, and loans of it to the kernel.
//!
//! Invariants
//!  B1  A buffer's bytes are reached only through `with*`, `copy_*` and `zero`. There are never two
//!      writers, nor a writer beside a reader. A counter in the buffer's header checks this at run
//!      time.
//!  B2  Memory lent to the kernel stays allocated until the loan is dropped.
//!  B3  While the kernel may write bytes of a buffer, those bytes are neither looked at, changed,
//!      nor lent a second time. While it may read some, they are not changed. Others of the same
//!      buffer are free: pieces of one request may be from a file and from memory.
//!  B4  Nothing is lent for writing while a closure looks at the buffer, and nothing at all while
//!      one changes it.
//!  B5  The first `zeroes` bytes of a buffer are zero. A change of some of them, and a loan that
//!      the kernel may write, lowers the number first. Memory that was only read stays zero.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::pool::Inner;
use crate::segs::Seg;

/// Loans of one buffer that are usual at once, beside the first.
const LOANS: usize = 4;

/// Bytes of a buffer in the kernel's hands.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LoanedRange {
    start: u32,
    len: u32,
    direction: Direction,
}

impl LoanedRange {
    #[inline]
    fn meets(&self, start: u32, len: u32) -> bool {
        self.start < start + len && start < self.start + self.len
    }
}

/// Loans of one buffer. Nearly all buffers of data have one at a time. It is in the header, which
/// is used anyway, and the memory of the list is not touched.
struct Loans {
    first: Option<LoanedRange>,
    /// Mostly oldest first: those of a send begin and end in one order. A page of headers has one
    /// for each answer of the send.
    others: VecDeque<LoanedRange>,
}

impl Loans {
    #[inline]
    fn iter(&self) -> impl Iterator<Item = &LoanedRange> {
        self.first.iter().chain(&self.others)
    }

    #[inline]
    fn push(&mut self, loan: LoanedRange) {
        match self.first {
            None => self.first = Some(loan),
            Some(_) => self.others.push_back(loan),
        }
    }

    /// Removes a loan; false when it is not there.
    #[inline]
    fn remove(&mut self, loan: LoanedRange) -> bool {
        if self.first == Some(loan) {
            self.first = None;
            return true;
        }
        let at = self.others.iter().position(|l| *l == loan);
        at.is_some_and(|at| self.others.swap_remove_front(at).is_some())
    }
}

pub(crate) struct Header {
    bytes: NonNull<u8>,
    size: u32,
    class: u8,
    refs: Cell<u32>,
    lent: RefCell<Loans>,
    /// Loans into which the kernel may write; zero in a buffer that is only sent.
    lent_in: Cell<u32>,
    /// Closures now looking: positive readers, -1 a writer.
    looking: Cell<i32>,
    /// B5
    zeroes: Cell<u32>,
    home: Cell<Option<Rc<Inner>>>,
}

impl Header {
    /// For `size` bytes at `bytes`, all of them zero.
    pub(crate) fn new(bytes: NonNull<u8>, size: u32, class: u8) -> Header {
        Header {
            bytes,
            size,
            class,
            refs: Cell::new(0),
            // A request's pieces, mostly: with more at once it grows, once for this buffer.
            lent: RefCell::new(Loans { first: None, others: VecDeque::with_capacity(LOANS) }),
            lent_in: Cell::new(0),
            looking: Cell::new(0),
            zeroes: Cell::new(size),
            home: Cell::new(None),
        }
    }

    pub(crate) fn bytes(&self) -> NonNull<u8> {
        self.bytes
    }

    /// B3: the kernel does not write these bytes.
    #[inline]
    fn check_look(&self, start: u32, len: u32) {
        if self.lent_in.get() == 0 {
            return;
        }
        let lent = self.lent.borrow();
        let written = |l: &LoanedRange| l.direction == Direction::In && l.meets(start, len);
        assert!(!lent.iter().any(written), "B3: the kernel is writing this buffer");
    }

    /// B3: the kernel neither reads nor writes these bytes.
    #[inline]
    fn check_edit(&self, start: u32, len: u32) {
        let lent = self.lent.borrow();
        let taken = lent.iter().find(|l| l.meets(start, len));
        if let Some(taken) = taken {
            let does = if taken.direction == Direction::In { "writing" } else { "reading" };
            panic!("B3: the kernel is {does} this buffer");
        }
    }

    /// B5: bytes from `start` on may change.
    #[inline]
    fn note_change(&self, start: u32) {
        self.zeroes.set(self.zeroes.get().min(start));
    }

    /// B3, B4
    #[inline]
    fn lend(&self, loan: LoanedRange) {
        match loan.direction {
            Direction::In => {
                self.check_edit(loan.start, loan.len);
                assert!(self.looking.get() == 0, "B4: this buffer is being looked at or changed");
                self.lent_in.set(self.lent_in.get() + 1);
                self.note_change(loan.start);
            }
            Direction::Out => {
                self.check_look(loan.start, loan.len);
                assert!(self.looking.get() >= 0, "B4: this buffer is being changed");
            }
        }
        self.lent.borrow_mut().push(loan);
    }

    /// The kernel is done with a loan.
    #[inline]
    fn end_loan(&self, loan: LoanedRange) {
        let ended = self.lent.borrow_mut().remove(loan);
        if ended && loan.direction == Direction::In {
            self.lent_in.set(self.lent_in.get() - 1);
        }
    }

    pub(crate) fn class(&self) -> u8 {
        self.class
    }
}

/// A counted handle on one pooled buffer. Clones share the memory. Never leaves its thread.
pub struct Buf(NonNull<Header>);

impl Buf {
    pub(crate) fn adopt(header: NonNull<Header>, home: Rc<Inner>) -> Buf {
        let buf = Buf(header);
        buf.header().refs.set(1);
        buf.header().home.set(Some(home));
        buf
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: a header lives until its pool destroys it, which happens only when `refs` is
        // zero (P2, P3); this handle counts as one.
        unsafe { self.0.as_ref() }
    }

    /// Bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.header().size as usize
    }

    /// Where the memory is; a multiple of the page size.
    pub fn address(&self) -> usize {
        self.header().bytes.as_ptr() as usize
    }

    /// True if there is another handle on it or on a part of it, which may read it.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.header().refs.get() > 1
    }

    /// `len` bytes from `start`; `None` when they are not all inside.
    pub fn seg(&self, start: usize, len: usize) -> Option<Seg> {
        (start.checked_add(len)? <= self.capacity())
            .then(|| Seg::new(self.clone(), start as u32, len as u32))
    }

    /// Looks at `len` bytes from `start`, as [`Seg::with`] does. Panics when they are not all
    /// inside: a bug of ours.
    #[inline]
    pub fn with<R>(&self, start: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.check_range(start, len);
        self.look(start as u32, len as u32, f)
    }

    /// Changes `len` bytes from `start`, as [`Seg::with_mut`] does. Panics when they are not all
    /// inside: a bug of ours.
    #[inline]
    pub fn with_mut<R>(&self, start: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.check_range(start, len);
        self.edit(start as u32, len as u32, f)
    }

    #[inline]
    fn check_range(&self, start: usize, len: usize) {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.capacity()), "bytes outside of a buffer");
    }

    #[inline]
    pub(crate) fn look<R>(&self, start: u32, len: u32, f: impl FnOnce(&[u8]) -> R) -> R {
        let h = self.header();
        h.check_look(start, len);
        assert!(h.looking.get() >= 0, "B1: this buffer is being written");
        let _guard = Looking::enter(&h.looking, 1);
        // SAFETY: callers keep start + len <= size; the bytes are initialised (zeroed at first);
        // no writer exists until the guard is dropped (B1, B3).
        f(unsafe { std::slice::from_raw_parts(h.bytes.as_ptr().add(start as usize), len as usize) })
    }

    #[inline]
    pub(crate) fn edit<R>(&self, start: u32, len: u32, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let h = self.header();
        h.check_edit(start, len);
        assert!(h.looking.get() == 0, "B1: this buffer is being read");
        h.note_change(start);
        let _guard = Looking::enter(&h.looking, -1);
        // SAFETY: as in `look`; there is no other reader until the guard is dropped (B1, B3).
        f(unsafe {
            std::slice::from_raw_parts_mut(h.bytes.as_ptr().add(start as usize), len as usize)
        })
    }

    /// Sets `len` bytes from `start` to zero. Those that are known to be zero are not changed (B5).
    #[inline]
    pub(crate) fn zero(&self, start: u32, len: u32) {
        let (known, end) = (self.header().zeroes.get(), start + len);
        if end <= known {
            return;
        }
        let from = start.max(known);
        self.edit(from, end - from, |bytes| bytes.fill(0));
        if start <= known {
            self.header().zeroes.set(end);
        }
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Self {
        let refs = &self.header().refs;
        refs.set(refs.get().checked_add(1).expect("fewer handles than 2^32"));
        Buf(self.0)
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        let h = self.header();
        let refs = h.refs.get() - 1;
        h.refs.set(refs);
        if refs == 0 {
            let class = h.class;
            if let Some(home) = h.home.take() {
                home.release(self.0, class);
            }
        }
    }
}

struct Looking<'a>(&'a Cell<i32>, i32);

impl<'a> Looking<'a> {
    #[inline]
    fn enter(cell: &'a Cell<i32>, by: i32) -> Looking<'a> {
        cell.set(cell.get() + by);
        Looking(cell, by)
    }
}

impl Drop for Looking<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

/// Which way the kernel moves bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The kernel reads our memory (write to a disk, send).
    Out,
    /// The kernel writes our memory (read from a disk, receive).
    In,
}

/// Memory in the kernel's hands: keep it until the operation's completion was reaped.
pub struct Loan {
    seg: Seg,
    direction: Direction,
}

impl Loan {
    /// Panics when the bytes are in use otherwise (B3, B4): a bug of ours.
    pub(crate) fn new(seg: Seg, direction: Direction) -> Loan {
        seg.buf().header().lend(lent(&seg, direction));
        Loan { seg, direction }
    }

    /// First byte, for a system call. Valid until the loan is dropped.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        let h = self.seg.buf().header();
        // SAFETY: `Seg` keeps its range inside the buffer.
        unsafe { h.bytes.as_ptr().add(self.seg.start() as usize) }
    }

    /// Direction of its bytes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Bytes lent.
    #[inline]
    pub fn len(&self) -> usize {
        self.seg.len()
    }

    /// True when no byte was lent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range lent.
    pub fn seg(&self) -> &Seg {
        &self.seg
    }
}

fn lent(seg: &Seg, direction: Direction) -> LoanedRange {
    LoanedRange { start: seg.start(), len: seg.len() as u32, direction }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.seg.buf().header().end_loan(lent(&self.seg, self.direction));
    }
}

#[cfg(test)]
mod tests {
    use crate::pool::{Pool, PoolConfig};

    #[test]
    fn bytes_of_a_buffer_are_reached_without_another_handle() {
        let buf = Pool::new(PoolConfig::default()).get(16).unwrap();
        buf.with_mut(4, 3, |b| b.copy_from_slice(b"abc"));
        assert!(buf.with(3, 5, |b| b == b"\0abc\0"));
        assert!(!buf.is_shared());
    }

    #[test]
    #[should_panic(expected = "outside of a buffer")]
    fn bytes_outside_of_a_buffer_are_not_reached() {
        let buf = Pool::new(PoolConfig::default()).get(16).unwrap();
        buf.with(buf.capacity() - 1, 2, |_| ());
    }
}
