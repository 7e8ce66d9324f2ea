//! What has arrived on one connection and was not looked at yet, decrypted.
//!
//! ```text
//!   buffer:  | taken | start .. end: arrived | room |
//! ```
//! A connection begins with one page. A peer that fills it gets a larger buffer, and a smaller one
//! again when it sends little: ten thousand idle connections hold a page each.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Pool, Seg, Segs};
use reactor::Stream;

use super::ending::Ending;
use super::tls::Secure;

/// Size of the buffer of a busy connection, bytes.
const BUSY_BYTES: usize = 64 * 1024;

/// Short receives in a row after which a busy connection's buffer is made small again.
const SHORT_MAX: u32 = 8;

/// Data still to come from which it is received straight into its place, bytes; less than that is
/// cheaper to receive with what follows it and copied.
const DIRECT_MIN: usize = 8 * 1024;

/// What the parts of a connection tell each other.
#[derive(Default)]
pub(crate) struct Signals {
    /// Reader and writer are to be polled once more.
    pub dirty: Cell<bool>,
}

/// Receives for one connection.
pub(crate) struct Inbox {
    stream: Stream,
    pool: Pool,
    signals: Rc<Signals>,
    buf: Option<Buf>,
    start: usize,
    end: usize,
    filled: bool,
    short: u32,
    /// Where data goes that is received straight into its place; empty between calls.
    rest: Segs,
    secure: Option<(Rc<Secure>, Cipher)>,
}

/// Encrypted bytes that were received and not fed yet.
struct Cipher {
    page: Buf,
    at: usize,
    end: usize,
}

impl Inbox {
    /// Nothing arrived yet.
    pub fn new(stream: Stream, pool: Pool, signals: Rc<Signals>) -> Inbox {
        Inbox {
            stream,
            pool,
            signals,
            buf: None,
            start: 0,
            end: 0,
            filled: false,
            short: 0,
            rest: Segs::new(),
            secure: None,
        }
    }

    /// From now on what arrives is encrypted.
    pub fn secure(&mut self, secure: Rc<Secure>) -> Result<(), Ending> {
        let page = self.pool.get(BUSY_BYTES).ok_or(Ending::NoMemory)?;
        self.secure = Some((secure, Cipher { page, at: 0, end: 0 }));
        Ok(())
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

    /// Makes room at the end of the buffer, for at least `need` bytes from `start` in all.
    fn make_room(&mut self, need: usize) -> Result<Seg, Ending> {
        let capacity = self.buf.as_ref().map_or(0, Buf::capacity);
        let wanted = match capacity {
            0 => PAGE_BYTES,
            c if self.filled && c < BUSY_BYTES => BUSY_BYTES,
            c if self.short >= SHORT_MAX && c > PAGE_BYTES => PAGE_BYTES,
            c => c,
        };
        let fits = self.arrived() <= wanted && need <= wanted;
        if wanted != capacity && fits {
            // Without memory for another buffer the present one goes on serving.
            if let Some(next) = self.pool.get(wanted) {
                let left = self.arrived();
                if let (Some(from), Some(to)) = (self.view(left), next.seg(0, left)) {
                    from.with(|b| to.copy_from(0, b));
                }
                (self.buf, self.start, self.end) = (Some(next), 0, left);
                (self.filled, self.short) = (false, 0);
            }
        }
        let buf = self.buf.as_ref().ok_or(Ending::NoMemory)?;
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
        buf.seg(self.end, room).filter(|s| !s.is_empty()).ok_or(Ending::NoMemory)
    }

    /// Receives what comes first; 0 at the end of the stream.
    async fn receive(&mut self, room: &Seg) -> Result<usize, Ending> {
        let Some((secure, cipher)) = &mut self.secure else {
            return self.stream.recv(room).await.map_err(|e| Ending::lost(&e));
        };
        loop {
            match secure.read(room) {
                Ok(0) => {}
                Err(Ending::PeerClosed) => return Ok(0),
                other => return other,
            }
            if cipher.at == cipher.end {
                let page = cipher.page.seg(0, BUSY_BYTES).ok_or(Ending::NoMemory)?;
                let n = self.stream.recv(&page).await.map_err(|e| Ending::lost(&e))?;
                if n == 0 {
                    return Ok(0);
                }
                (cipher.at, cipher.end) = (0, n);
            }
            let fresh = cipher.page.seg(cipher.at, cipher.end - cipher.at);
            let fed = fresh.map_or(Ok(0), |seg| seg.with(|b| secure.feed(b)));
            // It may have something to say, an alert for instance.
            self.signals.dirty.set(true);
            cipher.at += fed?;
        }
    }

    /// Goes on until keys are agreed on.
    pub async fn shake(&mut self) -> Result<(), Ending> {
        loop {
            let Some((secure, cipher)) = &mut self.secure else { return Ok(()) };
            if !secure.is_handshaking() {
                return Ok(());
            }
            let page = cipher.page.seg(0, BUSY_BYTES).ok_or(Ending::NoMemory)?;
            let n = self.stream.recv(&page).await.map_err(|e| Ending::lost(&e))?;
            if n == 0 {
                return Err(Ending::Cut);
            }
            (cipher.at, cipher.end) = (0, n);
            while cipher.at < cipher.end {
                let fresh = cipher.page.seg(cipher.at, cipher.end - cipher.at);
                let fed = fresh.map_or(Ok(0), |seg| seg.with(|b| secure.feed(b)));
                self.signals.dirty.set(true);
                match fed? {
                    // Full of what comes behind the handshake.
                    0 => break,
                    n => cipher.at += n,
                }
            }
        }
    }

    /// Waits until `need` bytes are here; at most a page's worth may be asked for.
    pub async fn fill(&mut self, need: usize) -> Result<(), Ending> {
        while self.arrived() < need {
            self.writer_first().await;
            let room = self.make_room(need)?;
            let n = self.receive(&room).await?;
            if n == 0 {
                let clean = self.start == self.end;
                return Err(if clean { Ending::PeerClosed } else { Ending::Cut });
            }
            self.filled = n == room.len();
            self.short = if n < PAGE_BYTES / 2 { self.short.saturating_add(1) } else { 0 };
            self.end += n;
        }
        Ok(())
    }

    /// Takes as many bytes as `into` holds.
    pub async fn data(&mut self, into: &Segs) -> Result<(), Ending> {
        let len = into.len();
        let mut done = 0;
        loop {
            let n = self.with(len - done, |b| into.copy_from(done, b));
            self.start += n;
            done += n;
            if done == len {
                return Ok(());
            }
            if len - done >= DIRECT_MIN && self.secure.is_none() {
                self.rest.clear();
                if !into.slice_into(done, len - done, &mut self.rest) {
                    return Err(Ending::NoMemory);
                }
                let received = self.stream.recv_exact(&self.rest).await;
                self.rest.clear();
                return received.map_err(|e| Ending::lost(&e));
            }
            self.fill(1).await?;
        }
    }

    /// Takes and drops bytes.
    pub async fn skip(&mut self, mut left: u64) -> Result<(), Ending> {
        while left > 0 {
            self.fill(1).await?;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(self.arrived());
            self.start += n;
            left -= n as u64;
        }
        Ok(())
    }
}
