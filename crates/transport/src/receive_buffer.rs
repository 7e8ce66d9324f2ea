//! Receive buffer of one connection.
//!
//! ```text
//!   buffer:  | consumed, or lent | start .. end: arrived | free |
//! ```
//! A connection begins with one page. A peer that fills it gets a larger buffer, and a page again
//! when it sends little: ten thousand idle connections hold a page each.
//!
//! Large data is received straight into its place, and the bytes that follow it into the buffer by
//! the same receive. While large data follows large data, at most a page of it is received with its
//! header and copied.
//!
//! Invariants
//!  R1  Nothing is received into a buffer while a part of it is lent. The bytes behind that part
//!      move to another buffer, which was allocated before the first part was lent.
//!  R2  A connection has at most [`LENT_MAX`] buffers that are lent and that it does not receive
//!      into. All connections of a core together have at most half of their pool. A slow disk holds
//!      no more of it. Everything beyond is copied.
//!  R3  The receive buffers of one connection hold at most [`RECEIVE_BYTES_MAX`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Pool, Seg, Segs};
use reactor::Stream;

use crate::reason::CommonReason;
use crate::stream::Incoming;
use crate::tls::Tls;

/// Size of the buffer of a busy connection, bytes.
pub const BUSY_BYTES: usize = 64 * 1024;

/// Short receives in a row after which a busy connection's buffer is made small again.
const SHORT_MAX: u32 = 8;

/// Missing data that is received straight into its place, bytes; less is cheaper to receive
/// together with the bytes that follow it.
const DIRECT_MIN: usize = 8 * 1024;

/// Full buffers of one connection that are lent (R2).
const LENT_MAX: usize = 4;

/// Bytes of the receive buffers of one connection (R3): the one in use, the spare, the lent ones,
/// and one for encrypted bytes.
pub const RECEIVE_BYTES_MAX: usize = (LENT_MAX + 3) * BUSY_BYTES;

/// Buffers of one connection besides the one in use.
#[derive(Default)]
struct Lent {
    /// Parts of them are lent.
    full: Vec<Buf>,
    /// The next buffer in use (R1).
    spare: Option<Buf>,
    /// Parts of the buffer in use were lent: the spare is needed.
    needs_spare: bool,
}

/// Signals between the parts of a connection.
#[derive(Default)]
pub struct Signals {
    /// Something was received since the last tick.
    pub(crate) received: Cell<bool>,
    /// Reader and writer are polled once more.
    pub(crate) repoll: Cell<bool>,
    /// The peer has been silent for long: it needs no large buffer for its next bytes.
    pub idle: Cell<bool>,
    lent: RefCell<Lent>,
}

impl Signals {
    /// Once a watch period: frees buffers that are no longer lent. Returns whether something was
    /// received since the last tick.
    pub(crate) fn tick(&self) -> bool {
        let received = self.received.take();
        let mut lent = self.lent.borrow_mut();
        lent.full.retain(Buf::is_shared);
        if !received && !lent.needs_spare {
            lent.spare = None;
        }
        received
    }
}

/// See the module.
pub struct ReceiveBuffer {
    incoming: Incoming,
    pool: Pool,
    signals: Rc<Signals>,
    buf: Option<Buf>,
    start: usize,
    end: usize,
    filled: bool,
    short: u32,
    /// The last data was large and was received straight into its place.
    large: bool,
    /// Destination of data that is received straight into its place; empty between calls.
    rest: Segs,
}

/// A page of it at most.
fn first_page(room: Seg) -> Seg {
    room.slice(0, room.len().min(PAGE_BYTES)).unwrap_or(room)
}

/// True when a large buffer leaves enough for others, which need a page each.
fn fits_large_buffer(pool: &Pool) -> bool {
    let usage = pool.usage();
    usage.used_bytes.saturating_add(BUSY_BYTES) <= usage.limit_bytes / 2
}

impl ReceiveBuffer {
    /// Empty.
    pub(crate) fn new(stream: Stream, pool: Pool, signals: Rc<Signals>) -> ReceiveBuffer {
        ReceiveBuffer {
            incoming: Incoming::from(stream),
            pool,
            signals,
            buf: None,
            start: 0,
            end: 0,
            filled: false,
            short: 0,
            large: false,
            rest: Segs::new(),
        }
    }

    /// Decrypts from now on, and continues until keys are agreed on.
    pub(crate) async fn secure(&mut self, tls: Rc<Tls>) -> Result<(), CommonReason> {
        self.incoming.secure(tls, self.pool.clone());
        loop {
            let shaken = self.incoming.handshake_step().await;
            // TLS has something to send, an alert for instance.
            self.signals.repoll.set(true);
            if !shaken? {
                return Ok(());
            }
        }
    }

    /// Lets the writer start its send before the next receive starts. More bytes arrive while the
    /// kernel copies the sent ones, and one receive takes all of them.
    async fn writer_first(&self) {
        let mut first = true;
        poll_fn(|_| match std::mem::take(&mut first) {
            true => {
                self.signals.repoll.set(true);
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Bytes that have arrived.
    pub fn arrived(&self) -> usize {
        self.end - self.start
    }

    fn view(&self, len: usize) -> Option<Seg> {
        let len = len.min(self.arrived());
        self.buf.as_ref().and_then(|b| b.seg(self.start, len))
    }

    /// Lends `f` the first arrived bytes, at most `len` of them.
    pub fn peek<R>(&self, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        match &self.buf {
            Some(buf) => buf.with(self.start, len.min(self.arrived()), f),
            None => f(&[]),
        }
    }

    /// Consumes arrived bytes.
    pub fn consume(&mut self, len: usize) {
        self.start += len.min(self.arrived());
    }

    fn capacity(&self) -> usize {
        self.buf.as_ref().map_or(0, Buf::capacity)
    }

    /// Continues in another buffer.
    fn move_to(&mut self, next: Buf) -> Option<Buf> {
        let left = self.arrived();
        if let (Some(from), Some(to)) = (self.view(left), next.seg(0, left)) {
            from.with(|b| to.copy_from(0, b));
        }
        (self.start, self.end) = (0, left);
        (self.filled, self.short) = (false, 0);
        self.buf.replace(next)
    }

    /// Leaves a buffer of which parts are lent (R1).
    fn leave_lent(&mut self) -> Result<(), CommonReason> {
        let spare = {
            let mut lent = self.signals.lent.borrow_mut();
            lent.needs_spare = false;
            lent.spare.take()
        };
        let next = spare.or_else(|| self.pool.get(BUSY_BYTES)).ok_or(CommonReason::NoMemory)?;
        let (filled, short) = (self.filled, self.short);
        if let Some(full) = self.move_to(next) {
            self.signals.lent.borrow_mut().full.push(full);
        }
        (self.filled, self.short) = (filled, short);
        Ok(())
    }

    /// Makes space at the end of the buffer, for at least `need` bytes from `start` in all.
    fn reserve_space(&mut self, need: usize) -> Result<Seg, CommonReason> {
        if self.buf.as_ref().is_some_and(Buf::is_shared) {
            self.leave_lent()?;
        } else {
            self.signals.lent.borrow_mut().needs_spare = false;
        }
        let capacity = self.capacity();
        let wanted = match capacity {
            0 => PAGE_BYTES,
            c if self.filled && c < BUSY_BYTES && fits_large_buffer(&self.pool) => BUSY_BYTES,
            c if self.short >= SHORT_MAX && c > PAGE_BYTES => PAGE_BYTES,
            c => c,
        };
        let fits = self.arrived() <= wanted && need <= wanted;
        if wanted != capacity && fits {
            // Without memory for another buffer the present one stays in use.
            if let Some(next) = self.pool.get(wanted) {
                self.move_to(next);
                if wanted < capacity {
                    self.signals.lent.borrow_mut().spare = None;
                }
            }
        }
        let buf = self.buf.as_ref().ok_or(CommonReason::NoMemory)?;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if buf.capacity() - self.start < need || buf.capacity() == self.end {
            if let Some(all) = buf.seg(0, self.end) {
                let (start, end) = (self.start, self.end);
                all.with_mut(|b| b.copy_within(start..end, 0));
            }
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = buf.capacity().saturating_sub(self.end);
        buf.seg(self.end, room).filter(|s| !s.is_empty()).ok_or(CommonReason::NoMemory)
    }

    /// Waits until `need` bytes have arrived; at most a page.
    pub async fn fill(&mut self, need: usize) -> Result<(), CommonReason> {
        while self.arrived() < need {
            self.writer_first().await;
            let whole = self.reserve_space(need)?;
            let room = if self.large { first_page(whole) } else { whole };
            let n = self.incoming.receive(&room).await?;
            if n == 0 {
                let clean = self.start == self.end;
                return Err(if clean { CommonReason::PeerClosed } else { CommonReason::Truncated });
            }
            self.signals.received.set(true);
            self.filled = n == room.len() && !self.large;
            self.short = match (self.signals.idle.take(), n < PAGE_BYTES / 2) {
                (true, _) => SHORT_MAX,
                (false, true) => self.short.saturating_add(1),
                (false, false) => 0,
            };
            self.end += n;
        }
        Ok(())
    }

    /// Reads bytes `done..keep` of `into`; those before are there already.
    pub async fn read_into(
        &mut self,
        into: &Segs,
        mut done: usize,
        keep: usize,
    ) -> Result<(), CommonReason> {
        let mut first = true;
        loop {
            let n = self.peek(keep.saturating_sub(done), |b| into.copy_from(done, b));
            self.start += n;
            done += n;
            let straight =
                keep.saturating_sub(done) >= DIRECT_MIN && self.incoming.plain().is_some();
            if std::mem::take(&mut first) {
                self.large = straight;
            }
            match (done >= keep, straight) {
                (true, _) => return Ok(()),
                (_, true) => done += self.receive_straight(into, done, keep).await?,
                (_, false) => self.fill(1).await?,
            }
        }
    }

    /// Receives bytes `done..keep` straight into their place, and the bytes that follow them into
    /// the buffer, which is empty. Returns how many of them were received.
    async fn receive_straight(
        &mut self,
        into: &Segs,
        done: usize,
        keep: usize,
    ) -> Result<usize, CommonReason> {
        let missing = keep - done;
        let tail = first_page(self.reserve_space(1)?);
        self.rest.clear();
        if !into.slice_into(done, missing, &mut self.rest) {
            return Err(CommonReason::NoMemory);
        }
        self.rest.push(tail);
        let received = match self.incoming.plain() {
            Some(stream) => stream.recv_spread(&self.rest).await,
            None => Ok(0),
        };
        self.rest.clear();
        let n = received.map_err(|e| CommonReason::lost(&e))?;
        if n == 0 {
            return Err(CommonReason::Truncated);
        }
        self.signals.received.set(true);
        let got = n.min(missing);
        self.end += n - got;
        if missing - got < DIRECT_MIN {
            return Ok(got);
        }
        // The data arrives in pieces: the rest is one receive.
        if !into.slice_into(done + got, missing - got, &mut self.rest) {
            return Err(CommonReason::NoMemory);
        }
        let received = match self.incoming.plain() {
            Some(stream) => stream.recv_exact(&self.rest).await,
            None => Ok(()),
        };
        self.rest.clear();
        received.map_err(|e| CommonReason::lost(&e))?;
        Ok(missing)
    }

    /// The next bytes are expected to be few.
    pub fn expect_small(&mut self) {
        self.large = false;
    }

    /// Lends `len` bytes to `into` without a copy, if nearly all of them have arrived and R2
    /// permits it; false when they have to be read in another way.
    pub async fn lend(&mut self, len: usize, into: &mut Segs) -> Result<bool, CommonReason> {
        let missing = len.saturating_sub(self.arrived());
        if self.capacity() < BUSY_BYTES || missing >= DIRECT_MIN || len > BUSY_BYTES / 2 {
            return Ok(false);
        }
        self.large = false;
        self.fill(len).await?;
        if self.capacity() < BUSY_BYTES || !self.may_lend() {
            return Ok(false);
        }
        let Some(part) = self.view(len) else { return Ok(false) };
        into.push(part);
        self.start += len;
        Ok(true)
    }

    /// R2
    fn may_lend(&self) -> bool {
        let mut lent = self.signals.lent.borrow_mut();
        let mut at = 0;
        while let Some(buf) = lent.full.get(at) {
            if buf.is_shared() {
                at += 1;
            } else {
                let back = lent.full.swap_remove(at);
                lent.spare.get_or_insert(back);
            }
        }
        if lent.full.len() >= LENT_MAX {
            return false;
        }
        if lent.spare.is_none() && fits_large_buffer(&self.pool) {
            lent.spare = self.pool.get(BUSY_BYTES);
        }
        lent.needs_spare |= lent.spare.is_some();
        lent.spare.is_some()
    }

    /// Drops bytes; `look` sees them before.
    pub async fn skip(
        &mut self,
        mut left: u64,
        mut look: impl FnMut(&[u8]),
    ) -> Result<(), CommonReason> {
        while left > 0 {
            self.fill(1).await?;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(self.arrived());
            self.peek(n, &mut look);
            self.start += n;
            left -= n as u64;
        }
        Ok(())
    }
}
