//! What has arrived on one connection and was not looked at yet.
//!
//! ```text
//!   buffer:  | taken | start .. end: arrived | room |
//! ```
//! A connection begins with one page. A peer that fills it gets a larger buffer, and a smaller one
//! again when it sends little or is pinged: ten thousand idle connections hold a page each.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Pool, Seg, Segs};
use reactor::Stream;
use wire::iscsi::{BHS_LEN, Bhs, Crc32c, Frame, Framer, Need};

use super::ending::Ending;

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
    /// Something arrived since the last look.
    pub heard: Cell<bool>,
    /// Reader and writer are to be polled once more.
    pub dirty: Cell<bool>,
    /// The peer has been silent for long: it needs no large buffer when it speaks again.
    pub quiet: Cell<bool>,
}

/// Receives for one connection.
pub(crate) struct Inlet {
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
}

/// The additional headers of a PDU; empty for nearly all.
pub(crate) type Ahs = Vec<u8>;

impl Inlet {
    /// Nothing arrived yet.
    pub fn new(stream: Stream, pool: Pool, signals: Rc<Signals>) -> Inlet {
        Inlet {
            stream,
            pool,
            signals,
            buf: None,
            start: 0,
            end: 0,
            filled: false,
            short: 0,
            rest: Segs::new(),
        }
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

    fn arrived(&self) -> usize {
        self.end - self.start
    }

    fn view(&self, len: usize) -> Option<Seg> {
        let len = len.min(self.arrived());
        self.buf.as_ref().and_then(|b| b.seg(self.start, len))
    }

    /// True when a whole header may already be here.
    fn with<R>(&self, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        match self.view(len) {
            Some(seg) => seg.with(f),
            None => f(&[]),
        }
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

    /// Waits until `need` bytes are here; at most a page's worth may be asked for.
    pub async fn fill(&mut self, need: usize) -> Result<(), Ending> {
        while self.arrived() < need {
            self.writer_first().await;
            let room = self.make_room(need)?;
            let n = self.stream.recv(&room).await.map_err(|e| Ending::lost(&e))?;
            if n == 0 {
                let clean = self.start == self.end;
                return Err(if clean { Ending::PeerClosed } else { Ending::Cut });
            }
            self.signals.heard.set(true);
            self.filled = n == room.len();
            self.short = match (self.signals.quiet.take(), n < PAGE_BYTES / 2) {
                (true, _) => SHORT_MAX,
                (false, true) => self.short.saturating_add(1),
                (false, false) => 0,
            };
            self.end += n;
        }
        Ok(())
    }

    /// The next PDU's header, whole and verified; it is taken, what follows it is not.
    pub async fn header(&mut self, framer: &Framer) -> Result<(Frame, Bhs, Ahs), Ending> {
        let mut need = BHS_LEN;
        loop {
            self.fill(need).await?;
            let found = self.with(PAGE_BYTES, |bytes| {
                let need = framer.header(bytes)?;
                let ahs = match need {
                    Need::Header(f) if f.ahs_len > 0 => {
                        bytes.get(BHS_LEN..BHS_LEN + f.ahs_len).unwrap_or(&[]).to_vec()
                    }
                    _ => Ahs::new(),
                };
                let bhs = bytes.first_chunk::<BHS_LEN>().copied().unwrap_or([0; BHS_LEN]);
                Ok((need, bhs, ahs))
            });
            match found.map_err(Ending::Framing)? {
                (Need::Header(frame), bhs, ahs) => {
                    self.start += frame.header_len;
                    return Ok((frame, bhs, ahs));
                }
                (Need::Bytes(n), ..) => need = n,
            }
        }
    }

    /// Takes the bytes after a header: as many as fit go to `into`, further data is dropped.
    /// False when a data digest does not agree.
    pub async fn data(&mut self, frame: &Frame, into: &Segs) -> Result<bool, Ending> {
        let keep = into.len().min(frame.data_len);
        let mut crc = (frame.digest_len > 0).then(Crc32c::new);
        let mut done = self.copy(0, keep, into);
        while done < keep {
            if keep - done >= DIRECT_MIN {
                self.rest.clear();
                if !into.slice_into(done, keep - done, &mut self.rest) {
                    return Err(Ending::NoMemory);
                }
                let received = self.stream.recv_exact(&self.rest).await;
                self.rest.clear();
                received.map_err(|e| Ending::lost(&e))?;
                self.signals.heard.set(true);
                done = keep;
            } else {
                self.fill(1).await?;
                done += self.copy(done, keep, into);
            }
        }
        if let Some(crc) = &mut crc {
            let mut left = keep;
            for seg in into.iter() {
                let n = seg.len().min(left);
                seg.with(|b| crc.update(b.get(..n).unwrap_or(b)));
                left -= n;
            }
        }
        self.skip(frame.data_len - keep + frame.pad_len, crc.as_mut()).await?;
        let Some(crc) = crc else { return Ok(true) };
        self.fill(4).await?;
        let digest = self.with(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
        self.start += 4;
        Ok(crc.wire() == digest)
    }

    /// Copies what is here of bytes `done..keep` of a data segment; answers how many.
    fn copy(&mut self, done: usize, keep: usize, into: &Segs) -> usize {
        let n = self.with(keep.saturating_sub(done), |b| into.copy_from(done, b));
        self.start += n;
        n
    }

    async fn skip(&mut self, mut left: usize, mut crc: Option<&mut Crc32c>) -> Result<(), Ending> {
        while left > 0 {
            self.fill(1).await?;
            let n = left.min(self.arrived());
            if let Some(crc) = crc.as_deref_mut() {
                self.with(n, |b| crc.update(b));
            }
            self.start += n;
            left -= n;
        }
        Ok(())
    }

    /// Takes the bytes after a header into a vector; None when the data digest does not agree.
    /// The caller bounds `frame.data_len`.
    pub async fn text(&mut self, frame: &Frame) -> Result<Option<Vec<u8>>, Ending> {
        let mut out = Vec::with_capacity(frame.data_len);
        let mut crc = Crc32c::new();
        while out.len() < frame.data_len {
            self.fill(1).await?;
            let before = out.len();
            self.with(frame.data_len - before, |b| {
                crc.update(b);
                out.extend_from_slice(b);
            });
            self.start += out.len() - before;
        }
        self.skip(frame.pad_len, Some(&mut crc)).await?;
        if frame.digest_len == 0 {
            return Ok(Some(out));
        }
        self.fill(4).await?;
        let digest = self.with(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
        self.start += 4;
        Ok((crc.wire() == digest).then_some(out))
    }

    /// Takes and drops the bytes after a header.
    pub async fn drop_data(&mut self, frame: &Frame) -> Result<(), Ending> {
        self.skip(frame.tail_len(), None).await
    }
}
