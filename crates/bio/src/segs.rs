//! Ranges of pooled buffers, and lists of them.

use crate::buf::{Buf, Direction, Loan};
use crate::pool::Pool;

/// Some bytes of one buffer. Clones share the memory.
#[derive(Clone)]
pub struct Seg {
    buf: Buf,
    start: u32,
    len: u32,
}

impl Seg {
    pub(crate) fn new(buf: Buf, start: u32, len: u32) -> Seg {
        Seg { buf, start, len }
    }

    pub(crate) fn buf(&self) -> &Buf {
        &self.buf
    }

    pub(crate) fn start(&self) -> u32 {
        self.start
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there is no byte in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if there is another handle on its buffer, which may read it.
    pub fn is_shared(&self) -> bool {
        self.buf.is_shared()
    }

    /// True when the address of its first byte and its length are multiples of `unit`.
    pub fn is_aligned(&self, unit: usize) -> bool {
        (self.buf.address() + self.start as usize).is_multiple_of(unit)
            && self.len().is_multiple_of(unit)
    }

    /// `len` bytes from `start` of this range; `None` when they are not all inside.
    pub fn slice(&self, start: usize, len: usize) -> Option<Seg> {
        (start.checked_add(len)? <= self.len()).then(|| Seg {
            buf: self.buf.clone(),
            start: self.start + start as u32,
            len: len as u32,
        })
    }

    /// Looks at the bytes. Panics when the kernel is writing them (invariant B3): a bug of ours.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.buf.look(self.start, self.len, f)
    }

    /// Changes the bytes. Panics while there is another reader (B1) or the kernel writes (B3).
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.buf.edit(self.start, self.len, f)
    }

    /// Sets `len` bytes from `at` to zero, as far as they are inside. Bytes that are known to be
    /// zero are not written (invariant B5).
    #[inline]
    pub fn zero(&self, at: usize, len: usize) {
        let at = at.min(self.len());
        let len = len.min(self.len() - at);
        self.buf.zero(self.start + at as u32, len as u32);
    }

    /// Copies `from` to `at`; bytes that do not fit are not copied. Returns the bytes copied.
    pub fn copy_from(&self, at: usize, from: &[u8]) -> usize {
        self.with_mut(|to| match to.get_mut(at..) {
            Some(to) => {
                let n = to.len().min(from.len());
                to[..n].copy_from_slice(&from[..n]);
                n
            }
            None => 0,
        })
    }

    /// Copies from `at` into `to` as much as there is. Returns the bytes copied.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> usize {
        self.with(|from| match from.get(at..) {
            Some(from) => {
                let n = from.len().min(to.len());
                to[..n].copy_from_slice(&from[..n]);
                n
            }
            None => 0,
        })
    }

    /// Lends the bytes to the kernel.
    pub fn lend(&self, direction: Direction) -> Loan {
        self.clone().into_loan(direction)
    }

    /// The same with this handle, which needs no other one.
    #[inline]
    pub fn into_loan(self, direction: Direction) -> Loan {
        Loan::new(self, direction)
    }
}

/// A scatter list: the bytes of its segments, one after the other. Emptied lists keep their
/// capacity, so a list that lives in a recycled Bio does not allocate.
#[derive(Default)]
pub struct Segs {
    list: Vec<Seg>,
    len: usize,
}

impl From<Seg> for Segs {
    fn from(seg: Seg) -> Segs {
        let mut segs = Segs::new();
        segs.push(seg);
        segs
    }
}

impl FromIterator<Seg> for Segs {
    fn from_iter<I: IntoIterator<Item = Seg>>(list: I) -> Segs {
        let mut segs = Segs::new();
        list.into_iter().for_each(|seg| segs.push(seg));
        segs
    }
}

impl Segs {
    /// Nothing.
    pub const fn new() -> Segs {
        Segs { list: Vec::new(), len: 0 }
    }

    /// Buffers for `len` bytes; `None`, and nothing taken, when the pool is exhausted.
    pub fn alloc(pool: &Pool, len: usize) -> Option<Segs> {
        let mut segs = Segs::new();
        segs.grow(pool, len).then_some(segs)
    }

    /// Appends buffers for `len` more bytes; false, and nothing changed, when the pool is empty.
    #[must_use]
    pub fn grow(&mut self, pool: &Pool, len: usize) -> bool {
        let (count, was) = (self.list.len(), self.len);
        let mut left = len;
        while left > 0 {
            let Some(buf) = pool.get(left) else {
                self.list.truncate(count);
                self.len = was;
                return false;
            };
            let n = left.min(buf.capacity());
            self.push(Seg::new(buf, 0, n as u32));
            left -= n;
        }
        true
    }

    /// Appends a segment; an empty one is left out.
    #[inline]
    pub fn push(&mut self, seg: Seg) {
        if !seg.is_empty() {
            self.len += seg.len();
            self.list.push(seg);
        }
    }

    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all segments, keeps the capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
        self.len = 0;
    }

    /// Releases the bytes after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            let over = self.len - len;
            match self.list.last_mut() {
                Some(last) if last.len() > over => {
                    last.len -= over as u32;
                    self.len = len;
                }
                Some(last) => {
                    self.len -= last.len();
                    self.list.pop();
                }
                None => self.len = 0,
            }
        }
    }

    /// The segments in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Seg> {
        self.list.iter()
    }

    /// The segments in order.
    pub fn as_slice(&self) -> &[Seg] {
        &self.list
    }

    /// Appends to `out` the segments of `len` bytes from `start`; false, and nothing appended,
    /// when they are not all inside.
    #[must_use]
    pub fn slice_into(&self, start: usize, len: usize, out: &mut Segs) -> bool {
        match start.checked_add(len) {
            Some(end) if end <= self.len => {}
            _ => return false,
        }
        self.walk(start, len, |seg, at, n, _| {
            if let Some(piece) = seg.slice(at, n) {
                out.push(piece);
            }
        });
        true
    }

    /// Copies `from` to `at`; returns the bytes copied (fewer when the list ends first).
    pub fn copy_from(&self, at: usize, from: &[u8]) -> usize {
        self.walk(at, from.len(), |seg, s, n, done| {
            seg.copy_from(s, &from[done..done + n]);
        })
    }

    /// Copies from `at` into `to`; returns the bytes copied (fewer when the list ends first).
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> usize {
        let len = to.len();
        self.walk(at, len, |seg, s, n, done| {
            seg.copy_to(s, &mut to[done..done + n]);
        })
    }

    /// Sets `len` bytes from `at` to `byte`; returns the bytes set.
    pub fn fill(&self, at: usize, len: usize, byte: u8) -> usize {
        self.walk(at, len, |seg, s, n, _| match byte {
            0 => seg.zero(s, n),
            byte => seg.with_mut(|b| b[s..s + n].fill(byte)),
        })
    }

    /// All bytes in one vector: for control paths and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.copy_to(0, &mut out);
        out
    }

    /// Calls `f(segment, start in it, bytes, bytes done before)` for each piece of the range.
    fn walk(
        &self,
        start: usize,
        len: usize,
        mut f: impl FnMut(&Seg, usize, usize, usize),
    ) -> usize {
        let (mut skip, mut done) = (start, 0);
        for seg in &self.list {
            if skip >= seg.len() {
                skip -= seg.len();
                continue;
            }
            if done == len {
                break;
            }
            let n = (seg.len() - skip).min(len - done);
            f(seg, skip, n, done);
            done += n;
            skip = 0;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{PAGE_BYTES, PoolConfig};

    fn pool() -> Pool {
        Pool::new(PoolConfig::default())
    }

    #[test]
    fn any_slice_of_a_list_holds_the_same_bytes() {
        let pool = pool();
        let mut all = Segs::new();
        let bytes: Vec<u8> = (0..100u8).collect();
        let mut at = 0;
        for n in [1, 30, 9, 60] {
            let seg = pool.get(n).unwrap().seg(7, n).unwrap();
            seg.copy_from(0, &bytes[at..at + n]);
            all.push(seg);
            at += n;
        }
        for start in 0..=100 {
            for len in 0..=100 - start {
                let mut part = Segs::new();
                assert!(all.slice_into(start, len, &mut part));
                assert_eq!(part.to_vec(), bytes[start..start + len]);
            }
        }
        let mut part = Segs::new();
        assert!(!all.slice_into(50, 51, &mut part) && part.is_empty());
        assert!(!all.slice_into(usize::MAX, 2, &mut part));
    }

    #[test]
    fn truncation_keeps_the_head() {
        let pool = pool();
        for len in 0..20 {
            let mut all = Segs::new();
            for n in [3, 8, 9] {
                all.push(pool.get(n).unwrap().seg(0, n).unwrap());
            }
            let bytes: Vec<u8> = (0..20).collect();
            all.copy_from(0, &bytes);
            all.truncate(len);
            assert_eq!(all.to_vec(), bytes[..len]);
        }
    }

    #[test]
    fn allocation_of_a_list_is_all_or_nothing() {
        let pool = Pool::new(PoolConfig { limit_bytes: 192 * 1024 });
        assert!(Segs::alloc(&pool, 256 * 1024).is_none());
        assert_eq!(pool.usage().used_bytes, 0);
        let segs = Segs::alloc(&pool, 150 * 1024).unwrap();
        assert_eq!(segs.len(), 150 * 1024);
    }

    #[test]
    #[should_panic(expected = "B3")]
    fn b3_buffer_is_not_read_while_the_kernel_writes_it() {
        let seg = pool().get(1).unwrap().seg(0, 8).unwrap();
        let _loan = seg.lend(Direction::In);
        seg.with(|_| ());
    }

    #[test]
    fn b3_other_bytes_of_the_same_buffer_are_free() {
        let buf = pool().get(4096).unwrap();
        let [low, high] = [0, 2048].map(|at| buf.seg(at, 2048).unwrap());
        let loan = low.lend(Direction::In);
        high.with_mut(|bytes| bytes.fill(7));
        assert!(high.slice(0, 8).unwrap().with(|bytes| bytes == [7; 8]));
        let other = high.lend(Direction::In);
        assert!(refuses(|| buf.seg(2047, 2).unwrap().with(|_| ())));
        drop((loan, other));
        low.with(|_| ());
        high.with_mut(|_| ());
    }

    /// Whether it panics.
    fn refuses(what: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)).is_err()
    }

    #[test]
    fn b3_bytes_that_the_kernel_writes_are_lent_once() {
        let seg = pool().get(1).unwrap().seg(0, 8).unwrap();
        for (first, second) in [
            (Direction::In, Direction::In),
            (Direction::In, Direction::Out),
            (Direction::Out, Direction::In),
        ] {
            let loan = seg.lend(first);
            assert!(refuses(|| drop(seg.lend(second))), "{first:?}, then {second:?}");
            drop(loan);
            drop(seg.lend(second));
        }
        // Two disks may be written from the same bytes.
        let loans = [seg.lend(Direction::Out), seg.lend(Direction::Out)];
        seg.with(|_| ());
        drop(loans);
    }

    #[test]
    fn b3_bytes_that_the_kernel_reads_are_not_changed() {
        let seg = pool().get(1).unwrap().seg(0, 8).unwrap();
        let loans = [seg.lend(Direction::Out), seg.lend(Direction::Out)];
        let [first, last] = loans;
        drop(first);
        assert!(refuses(|| seg.with_mut(|_| ())));
        drop(last);
        assert_eq!(seg.copy_from(0, b"x"), 1);
    }

    #[test]
    fn b3_loans_of_one_buffer_end_in_any_order() {
        let buf = pool().get(4096).unwrap();
        let pieces: Vec<Seg> = (0..16).map(|n| buf.seg(n * 64, 64).unwrap()).collect();
        let way = |n: usize| if n % 5 == 1 { Direction::In } else { Direction::Out };
        // Odd steps visit each piece once: oldest first, newest first, mixed.
        for step in [1, 15, 5] {
            let lend = |(n, piece): (usize, &Seg)| Some(piece.lend(way(n)));
            let mut loans: Vec<_> = pieces.iter().enumerate().map(lend).collect();
            for ended in (0..16).map(|n| (n + 1) * step % 16) {
                loans[ended] = None;
                for (n, piece) in pieces.iter().enumerate() {
                    let read = loans[n].is_some() && way(n) == Direction::In;
                    assert_eq!(refuses(|| piece.with(|_| ())), read, "{step} {ended} {n}");
                    let changed = loans[n].is_some();
                    assert_eq!(refuses(|| piece.with_mut(|_| ())), changed, "{step} {ended} {n}");
                }
            }
        }
    }

    /// True when `zero` would write nothing: it does not meet a loan that forbids changes.
    fn is_known_zero(buf: &Buf, at: usize, len: usize) -> bool {
        let seg = buf.seg(at, len).unwrap();
        let loan = seg.lend(Direction::Out);
        let known = !refuses(|| seg.zero(0, len));
        drop(loan);
        known
    }

    #[test]
    fn b5_memory_that_is_zero_is_not_zeroed_again() {
        let pool = Pool::new(PoolConfig { limit_bytes: PAGE_BYTES });
        let page = || pool.get(PAGE_BYTES).unwrap();
        assert!(is_known_zero(&page(), 0, PAGE_BYTES), "it is fresh");
        page().seg(0, PAGE_BYTES).unwrap().with(|bytes| assert_eq!(bytes, [0; PAGE_BYTES]));
        drop(page().seg(0, PAGE_BYTES).unwrap().lend(Direction::Out));
        assert!(is_known_zero(&page(), 0, PAGE_BYTES), "it was only read and sent");
        page().with_mut(100, 1, |bytes| bytes.fill(1));
        let buf = page();
        assert!(is_known_zero(&buf, 0, 100));
        assert!(!is_known_zero(&buf, 0, 101) && !is_known_zero(&buf, 200, 8));
        let all = Segs::from(buf.seg(0, PAGE_BYTES).unwrap());
        assert_eq!(all.fill(0, PAGE_BYTES, 0), PAGE_BYTES);
        assert_eq!(all.to_vec(), [0; PAGE_BYTES]);
        assert!(is_known_zero(&buf, 0, PAGE_BYTES));
    }

    #[test]
    fn b5_bytes_that_the_kernel_may_have_written_are_zeroed() {
        let buf = pool().get(PAGE_BYTES).unwrap();
        drop(buf.seg(512, 512).unwrap().lend(Direction::In));
        assert!(is_known_zero(&buf, 0, 512) && !is_known_zero(&buf, 0, 513));
        assert!(!is_known_zero(&buf, 512, 512));
    }

    #[test]
    fn b5_zeroed_ranges_are_zero_after_any_changes() {
        let (buf, mut model) = (pool().get(PAGE_BYTES).unwrap(), [0u8; 256]);
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) % below) as usize
        };
        for step in 0..4000 {
            let at = random(256);
            let len = random(257 - at as u32);
            let byte = u8::from(random(3) == 0);
            model[at..at + len].fill(byte);
            match byte {
                0 => buf.seg(at, 256 - at).unwrap().zero(0, len),
                byte => buf.with_mut(at, len, |bytes| bytes.fill(byte)),
            }
            buf.with(0, 256, |bytes| assert_eq!(bytes, model, "step {step}"));
        }
    }

    #[test]
    fn b4_bytes_in_use_by_a_closure_are_not_lent_for_writing() {
        let seg = pool().get(1).unwrap().seg(0, 8).unwrap();
        assert!(refuses(|| seg.with(|_| drop(seg.lend(Direction::In)))));
        seg.with(|_| drop(seg.lend(Direction::Out)));
        for direction in [Direction::In, Direction::Out] {
            assert!(refuses(|| seg.with_mut(|_| drop(seg.lend(direction)))));
        }
        drop(seg.lend(Direction::In));
    }

    #[test]
    #[should_panic(expected = "B1")]
    fn b1_no_writer_beside_a_reader() {
        let seg = pool().get(1).unwrap().seg(0, 8).unwrap();
        let other = seg.clone();
        seg.with(|_| other.copy_from(0, b"x"));
    }

    /// B2, P2.
    #[test]
    fn a_loan_keeps_the_memory() {
        let pool = pool();
        let loan = pool.get(1).unwrap().seg(0, 8).unwrap().lend(Direction::Out);
        assert_eq!(pool.usage().used_bytes, 4096);
        drop(loan);
        assert_eq!(pool.usage().used_bytes, 0);
    }
}
