//! What has arrived on one connection and was not looked at yet.
//!
//! ```text
//!   buffer:  | taken, or lent | start .. end: arrived | room |
//! ```
//! A connection begins with one page. A peer that fills it gets a larger buffer, and a smaller one
//! again when it sends little: ten thousand idle connections hold a page each.
//!
//! Large data goes straight into its place, and what follows it into the buffer by the same
//! receive. While large data follows large data, no more than a page of it is received with its
//! header and copied.
//!
//! Invariants
//!  I1  While somebody holds a part of a buffer nothing is received into it: what is behind that
//!      part moves to another one, which was there before the first part was lent.
//!  I2  A connection has at most [`LENT_MAX`] buffers that others look at and that it does not
//!      receive into, and all connections of a core together no more than half of their pool: a
//!      slow disk holds no more of it. What is beyond is copied.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Pool, Seg, Segs};
use reactor::Stream;

use super::cause::Cause;

/// Size of the buffer of a busy connection, bytes.
pub(crate) const BUSY_BYTES: usize = 64 * 1024;

/// Short receives in a row after which a busy connection's buffer is made small again.
const SHORT_MAX: u32 = 8;

/// Data still to come from which it is received straight into its place, bytes; less than that is
/// cheaper to receive with what follows it.
const DIRECT_MIN: usize = 8 * 1024;

/// Full buffers of one connection that others look at (I2).
const LENT_MAX: usize = 4;

/// Buffers of one connection besides the one that it receives into.
#[derive(Default)]
struct Lent {
    /// Others look at parts of them.
    full: Vec<Buf>,
    /// For what follows (I1).
    spare: Option<Buf>,
    /// Parts of the buffer in use were lent: the spare is needed.
    owed: bool,
}

/// What the parts of a connection tell each other.
#[derive(Default)]
pub(crate) struct Signals {
    /// Something arrived since the last look.
    pub heard: Cell<bool>,
    /// Reader and writer are to be polled once more.
    pub dirty: Cell<bool>,
    /// The peer has been silent for long: it needs no large buffer when it speaks again.
    pub quiet: Cell<bool>,
    lent: RefCell<Lent>,
}

impl Signals {
    /// Once a watch period: buffers that came back are let go. Answers whether something arrived
    /// since the last time.
    pub fn look(&self) -> bool {
        let heard = self.heard.take();
        let mut lent = self.lent.borrow_mut();
        lent.full.retain(Buf::is_shared);
        if !heard && !lent.owed {
            lent.spare = None;
        }
        heard
    }
}

/// Where an inbox's bytes come from.
pub(crate) trait Source {
    /// How it fails.
    type Error: From<Cause>;
    /// Receives what comes first; 0 at the end of the stream.
    async fn receive(&mut self, room: &Seg) -> Result<usize, Self::Error>;
    /// The stream, when its bytes are what the peer means.
    fn plain(&self) -> Option<&Stream>;
}

/// Receives for one connection.
pub(crate) struct Inbox<S> {
    pub source: S,
    pool: Pool,
    signals: Rc<Signals>,
    buf: Option<Buf>,
    start: usize,
    end: usize,
    filled: bool,
    short: u32,
    /// The last data was large, and was received straight into its place.
    large: bool,
    /// Where data goes that is received straight into its place; empty between calls.
    rest: Segs,
}

/// A page of it at most.
fn first_page(room: Seg) -> Seg {
    room.slice(0, room.len().min(PAGE_BYTES)).unwrap_or(room)
}

/// True when a large buffer leaves enough to others, who want a page each.
fn is_roomy(pool: &Pool) -> bool {
    let usage = pool.usage();
    usage.used_bytes.saturating_add(BUSY_BYTES) <= usage.limit_bytes / 2
}

impl<S: Source> Inbox<S> {
    /// Nothing arrived yet.
    pub fn new(source: S, pool: Pool, signals: Rc<Signals>) -> Inbox<S> {
        Inbox {
            source,
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

    /// A large buffer, apart from the inbox's own.
    pub fn large(&self) -> Result<Buf, Cause> {
        self.pool.get(BUSY_BYTES).ok_or(Cause::NoMemory)
    }

    /// Reader and writer are to be polled once more.
    pub fn stir(&self) {
        self.signals.dirty.set(true);
    }

    /// Lets the writer start its send before the next receive starts: while the kernel copies what
    /// is sent more arrives, and one receive takes it all.
    async fn writer_first(&self) {
        let mut first = true;
        poll_fn(|_| match std::mem::take(&mut first) {
            true => {
                self.signals.dirty.set(true);
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Bytes that are here.
    pub fn arrived(&self) -> usize {
        self.end - self.start
    }

    fn view(&self, len: usize) -> Option<Seg> {
        let len = len.min(self.arrived());
        self.buf.as_ref().and_then(|b| b.seg(self.start, len))
    }

    /// Looks at the first bytes that are here, `len` of them at most.
    pub fn with<R>(&self, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        match self.view(len) {
            Some(seg) => seg.with(f),
            None => f(&[]),
        }
    }

    /// Takes bytes that were looked at.
    pub fn take(&mut self, len: usize) {
        self.start += len.min(self.arrived());
    }

    fn capacity(&self) -> usize {
        self.buf.as_ref().map_or(0, Buf::capacity)
    }

    /// Goes on in another buffer.
    fn move_to(&mut self, next: Buf) -> Option<Buf> {
        let left = self.arrived();
        if let (Some(from), Some(to)) = (self.view(left), next.seg(0, left)) {
            from.with(|b| to.copy_from(0, b));
        }
        (self.start, self.end) = (0, left);
        (self.filled, self.short) = (false, 0);
        self.buf.replace(next)
    }

    /// Parts of the buffer are with others: they keep it (I1).
    fn part(&mut self) -> Result<(), Cause> {
        let spare = {
            let mut lent = self.signals.lent.borrow_mut();
            lent.owed = false;
            lent.spare.take()
        };
        let next = spare.or_else(|| self.pool.get(BUSY_BYTES)).ok_or(Cause::NoMemory)?;
        let (filled, short) = (self.filled, self.short);
        if let Some(full) = self.move_to(next) {
            self.signals.lent.borrow_mut().full.push(full);
        }
        (self.filled, self.short) = (filled, short);
        Ok(())
    }

    /// Makes room at the end of the buffer, for at least `need` bytes from `start` in all.
    fn make_room(&mut self, need: usize) -> Result<Seg, Cause> {
        if self.buf.as_ref().is_some_and(Buf::is_shared) {
            self.part()?;
        } else {
            self.signals.lent.borrow_mut().owed = false;
        }
        let capacity = self.capacity();
        let wanted = match capacity {
            0 => PAGE_BYTES,
            c if self.filled && c < BUSY_BYTES && is_roomy(&self.pool) => BUSY_BYTES,
            c if self.short >= SHORT_MAX && c > PAGE_BYTES => PAGE_BYTES,
            c => c,
        };
        let fits = self.arrived() <= wanted && need <= wanted;
        if wanted != capacity && fits {
            // Without memory for another buffer the present one goes on serving.
            if let Some(next) = self.pool.get(wanted) {
                self.move_to(next);
                if wanted < capacity {
                    self.signals.lent.borrow_mut().spare = None;
                }
            }
        }
        let buf = self.buf.as_ref().ok_or(Cause::NoMemory)?;
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
        buf.seg(self.end, room).filter(|s| !s.is_empty()).ok_or(Cause::NoMemory)
    }

    /// Waits until `need` bytes are here; at most a page's worth may be asked for.
    pub async fn fill(&mut self, need: usize) -> Result<(), S::Error> {
        while self.arrived() < need {
            self.writer_first().await;
            let whole = self.make_room(need)?;
            let room = if self.large { first_page(whole) } else { whole };
            let n = self.source.receive(&room).await?;
            if n == 0 {
                let clean = self.start == self.end;
                return Err(if clean { Cause::PeerClosed } else { Cause::Cut }.into());
            }
            self.signals.heard.set(true);
            self.filled = n == room.len() && !self.large;
            self.short = match (self.signals.quiet.take(), n < PAGE_BYTES / 2) {
                (true, _) => SHORT_MAX,
                (false, true) => self.short.saturating_add(1),
                (false, false) => 0,
            };
            self.end += n;
        }
        Ok(())
    }

    /// Takes bytes `done..keep` of what `into` holds; what came before is there already.
    pub async fn read_into(
        &mut self,
        into: &Segs,
        mut done: usize,
        keep: usize,
    ) -> Result<(), S::Error> {
        let mut first = true;
        loop {
            let n = self.with(keep.saturating_sub(done), |b| into.copy_from(done, b));
            self.start += n;
            done += n;
            let straight = keep.saturating_sub(done) >= DIRECT_MIN && self.source.plain().is_some();
            if std::mem::take(&mut first) {
                self.large = straight;
            }
            match (done >= keep, straight) {
                (true, _) => return Ok(()),
                (_, true) => done += self.straight(into, done, keep).await?,
                (_, false) => self.fill(1).await?,
            }
        }
    }

    /// Receives bytes `done..keep` straight into their place, and what follows them into the
    /// buffer, which is empty; answers how many of them.
    async fn straight(&mut self, into: &Segs, done: usize, keep: usize) -> Result<usize, S::Error> {
        let missing = keep - done;
        let tail = first_page(self.make_room(1)?);
        self.rest.clear();
        if !into.slice_into(done, missing, &mut self.rest) {
            return Err(Cause::NoMemory.into());
        }
        self.rest.push(tail);
        let received = match self.source.plain() {
            Some(stream) => stream.recv_spread(&self.rest).await,
            None => Ok(0),
        };
        self.rest.clear();
        let n = received.map_err(|e| Cause::lost(&e))?;
        if n == 0 {
            return Err(Cause::Cut.into());
        }
        self.signals.heard.set(true);
        let got = n.min(missing);
        self.end += n - got;
        if missing - got < DIRECT_MIN {
            return Ok(got);
        }
        // It comes in pieces: the rest is one receive.
        if !into.slice_into(done + got, missing - got, &mut self.rest) {
            return Err(Cause::NoMemory.into());
        }
        let received = match self.source.plain() {
            Some(stream) => stream.recv_exact(&self.rest).await,
            None => Ok(()),
        };
        self.rest.clear();
        received.map_err(|e| Cause::lost(&e))?;
        Ok(missing)
    }

    /// What follows is expected to be small.
    pub fn expect_small(&mut self) {
        self.large = false;
    }

    /// Takes `len` bytes where they are, without a copy, if they are here or nearly and nothing
    /// speaks against it (I2); false when they are to be read some other way.
    pub async fn lend(&mut self, len: usize, into: &mut Segs) -> Result<bool, S::Error> {
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

    /// I2
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
        if lent.spare.is_none() && is_roomy(&self.pool) {
            lent.spare = self.pool.get(BUSY_BYTES);
        }
        lent.owed |= lent.spare.is_some();
        lent.spare.is_some()
    }

    /// Takes bytes and drops them; `look` sees them before.
    pub async fn skip(
        &mut self,
        mut left: u64,
        mut look: impl FnMut(&[u8]),
    ) -> Result<(), S::Error> {
        while left > 0 {
            self.fill(1).await?;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(self.arrived());
            self.with(n, &mut look);
            self.start += n;
            left -= n as u64;
        }
        Ok(())
    }
}
