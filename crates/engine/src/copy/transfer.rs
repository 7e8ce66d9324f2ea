//! Data transfer from unit to unit in chunks.
//!
//! Several chunks are under way at once ([`super::OUTSTANDING`]) unless source and destination
//! overlap. Then one chunk is copied at a time, from the end that is not overwritten before it is
//! read.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bio::Segs;
use wire::scsi::asc;

use super::OUTSTANDING;
use super::reach::CopyUnit;
use crate::job::Job;
use crate::status::Ending;
use crate::unit::copies::CHUNK_BYTES;
use crate::unit::copies::operations::Operation;

/// A move, in bytes of each medium. Ranges were checked against the capacities.
pub(super) struct BlockMove<'a> {
    pub job: &'a Job,
    pub operation: &'a Operation,
    pub source: &'a CopyUnit,
    pub destination: &'a CopyUnit,
    /// First byte at the source.
    pub from: u64,
    /// First byte at the destination.
    pub to: u64,
    /// Number of bytes.
    pub len: u64,
    /// The moved data is held for RECEIVE COPY DATA.
    pub hold: bool,
    /// Called after a chunk was read and before it is written.
    pub check_source: &'a dyn Fn() -> Result<(), Ending>,
}

/// Ending of a cancelled copy; its own initiator sees it only after COPY OPERATION ABORT.
pub(super) fn cancelled() -> Ending {
    Ending::check(asc::COPY_ABORTED)
}

/// Runs futures together until all have ended.
pub(super) async fn join_all(mut all: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl BlockMove<'_> {
    /// Moves all of it, or ends with the first error.
    pub async fn run(&self) -> Result<(), Ending> {
        if self.len == 0 {
            return Ok(());
        }
        let chunk = u64::from(CHUNK_BYTES);
        // Chunks end where a chunk of the destination's medium ends, so that inner ones are whole
        // blocks there.
        let lead = self.to % chunk;
        let chunks = lead.saturating_add(self.len).div_ceil(chunk);
        let backwards = self.overlaps() && self.to > self.from;
        // Held data must be in order too.
        let concurrent = if self.overlaps() || self.hold { 1 } else { OUTSTANDING };
        let next = Cell::new(0u64);
        let failed: RefCell<Option<(u64, Ending)>> = RefCell::new(None);
        let worker = || async {
            loop {
                let i = next.replace(next.get().saturating_add(1));
                if i >= chunks || failed.borrow().is_some() {
                    return;
                }
                let at = if backwards { chunks - 1 - i } else { i };
                let begin = (at * chunk).saturating_sub(lead);
                let end = ((at + 1) * chunk).saturating_sub(lead).min(self.len);
                if let Err(ending) = self.chunk(begin, end).await {
                    let mut failed = failed.borrow_mut();
                    if failed.as_ref().is_none_or(|(first, _)| i < *first) {
                        *failed = Some((i, ending));
                    }
                    return;
                }
            }
        };
        let workers: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
            (0..concurrent).map(|_| Box::pin(worker()) as Pin<Box<_>>).collect();
        join_all(workers).await;
        match failed.into_inner() {
            Some((_, ending)) => Err(ending),
            None => Ok(()),
        }
    }

    /// Whole blocks of the same unit that are read and written by the same move.
    fn overlaps(&self) -> bool {
        let unit = u64::from(self.source.device().block_bytes());
        let blocks = |at: u64| (at / unit, at.saturating_add(self.len).div_ceil(unit));
        let ((a, a_end), (b, b_end)) = (blocks(self.from), blocks(self.to));
        self.source.is_same_unit(self.destination) && a < b_end && b < a_end
    }

    async fn chunk(&self, begin: u64, end: u64) -> Result<(), Ending> {
        if self.operation.is_cancelled() {
            return Err(cancelled());
        }
        let len = end.saturating_sub(begin);
        let (from, to) = (self.from.saturating_add(begin), self.to.saturating_add(begin));
        let unit = u64::from(self.destination.device().block_bytes());
        let whole = to.is_multiple_of(unit) && len.is_multiple_of(unit);
        let first = to / unit;
        let blocks = to.saturating_add(len).div_ceil(unit).saturating_sub(first);
        let guard = self.job.exclusive(self.destination.device(), first, blocks).await?;
        let data = if whole {
            self.read(from, len).await?
        } else {
            self.patched(from, to, len, first, blocks).await?
        };
        if self.hold {
            let skip = usize::try_from(to - first * unit).unwrap_or(0);
            let held = usize::try_from(len).unwrap_or(0);
            let bytes = data.to_vec();
            self.operation.hold(bytes.get(skip..).and_then(|b| b.get(..held)).unwrap_or(&[]));
        }
        (self.check_source)()?;
        if self.operation.is_cancelled() {
            return Err(cancelled());
        }
        self.destination.medium.write(first, data, false).await?;
        drop(guard);
        self.operation.advance(len, blocks);
        Ok(())
    }

    /// `len` bytes of the source from byte `at` on.
    async fn read(&self, at: u64, len: u64) -> Result<Segs, Ending> {
        let unit = u64::from(self.source.device().block_bytes());
        let first = at / unit;
        let blocks = at.saturating_add(len).div_ceil(unit).saturating_sub(first);
        let count = u32::try_from(blocks).map_err(|_| Ending::check(asc::INTERNAL_FAILURE))?;
        let data = self.source.medium.read(first, count).await?;
        if at.is_multiple_of(unit) && blocks * unit == len {
            return Ok(data);
        }
        // Bytes from the middle of a block get buffers of their own: media want aligned memory.
        let skip = usize::try_from(at - first * unit).unwrap_or(usize::MAX);
        let want = usize::try_from(len).unwrap_or(usize::MAX);
        let bytes = data.to_vec();
        drop(data);
        let piece = bytes.get(skip..).and_then(|rest| rest.get(..want));
        let piece = piece.ok_or(Ending::check(asc::INTERNAL_FAILURE))?;
        let new = self.source.medium.buffers(want).await?;
        new.copy_from(0, piece);
        Ok(new)
    }

    /// The destination's blocks with the source's bytes in them: a part of the first and the last
    /// one stays as it is. The caller keeps others from these blocks.
    async fn patched(
        &self,
        from: u64,
        to: u64,
        len: u64,
        first: u64,
        blocks: u64,
    ) -> Result<Segs, Ending> {
        let unit = u64::from(self.destination.device().block_bytes());
        let count = u32::try_from(blocks).map_err(|_| Ending::check(asc::INTERNAL_FAILURE))?;
        let data = self.read(from, len).await?.to_vec();
        let old = self.destination.medium.read(first, count).await?;
        let skip = usize::try_from(to - first * unit).unwrap_or(usize::MAX);
        // The read buffers may be shared with a layer below: the new data gets buffers of its own.
        let mut bytes = old.to_vec();
        drop(old);
        bytes.iter_mut().skip(skip).zip(data).for_each(|(to, from)| *to = from);
        let new = self.destination.medium.buffers(bytes.len()).await?;
        new.copy_from(0, &bytes);
        Ok(new)
    }
}
