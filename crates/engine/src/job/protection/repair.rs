//! Start of a protected unit: makes a new tail, or repairs the tail after a power cut.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Flags, Op, Segs};
use geom::Core;
use wire::scsi::{ProtectionType, TUPLE_LEN, Tuple, asc};

use super::growth::{TailRecord, report_old_header, save_new_tail};
use super::{get, memory, put};
use crate::job::Medium;
use crate::registry::Registry;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::MediumState;
use crate::unit::protection::{Header, Layout, Protection, flip, guards};

/// Bytes read or written at a time.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// Makes a unit ready on the core that this runs on, then calls `after`. `recalled` is the state
/// store's record of it ([`super::load_tail_record`]). A tail that cannot be read or that is
/// damaged leaves the medium corrupted: FORMAT UNIT makes a new one.
pub(crate) fn mount(
    core: &Rc<Core>,
    device: Arc<Device>,
    (registry, recalled): (Arc<Registry>, TailRecord),
    after: impl FnOnce() + 'static,
) {
    let medium = Medium::standalone(core, device.clone());
    drop(core.reactor().spawn("protection", async move {
        if let Some(protection) = device.protection() {
            let to = match protection.mount(&medium, recalled).await {
                Ok(None) => MediumState::Ready,
                Ok(Some(total)) => {
                    report_old_header(&registry, &device, total).await;
                    MediumState::FormatCorrupted
                }
                Err(_) => MediumState::FormatCorrupted,
            };
            device.refit();
            if to == MediumState::Ready {
                save_new_tail(&registry, &device, recalled).await;
            }
            let _ = device.condition().enter(&[MediumState::Starting], to);
        }
        after();
    }));
}

impl Protection {
    /// Answers the blocks of the provider that an old header speaks of: then nothing was written.
    async fn mount(&self, medium: &Medium, recalled: TailRecord) -> Result<Option<u64>, Ending> {
        self.regions.forget();
        let found = self.find(medium, recalled).await?;
        let Some((layout, kind)) = found else {
            if recalled == TailRecord::Nothing
                && let Some(total) = self.old_header(medium).await?
            {
                return Ok(Some(total));
            }
            // Data that was there before has no tuples and is not checked.
            self.clear_tuples(medium).await?;
            return self.finish(medium, self.first).await.map(|()| None);
        };
        self.set_layout(layout);
        self.set_kind(kind);
        let (at, len) = layout.map();
        let map = get(medium, at, len, memory(medium, len, true).await?).await?;
        if kind.is_none() || map.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let size = layout.region_blocks();
        for region in 0..layout.blocks.div_ceil(size) {
            let byte = map.get(usize::try_from(region / 8).unwrap_or(usize::MAX));
            if byte.is_some_and(|byte| byte & (1 << (region % 8)) != 0) {
                let first = region * size;
                self.repair(medium, first, size.min(layout.blocks - first), true).await?;
            }
        }
        medium.below(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await?;
        let map = memory(medium, layout.map().1, true).await?;
        self.save_map(medium, &[], map).await.map(|()| None)
    }

    /// The header, wherever it may be; `None` on a provider that has none.
    async fn find(
        &self,
        medium: &Medium,
        recalled: TailRecord,
    ) -> Result<Option<(Layout, Option<ProtectionType>)>, Ending> {
        let unit = self.layout().unit;
        for total in self.lengths(recalled) {
            let buffer = memory(medium, unit, true).await?;
            let at = total.saturating_sub(1).saturating_mul(unit);
            let block = get(medium, at, unit, buffer).await?;
            match Header::decode(&block, unit, total) {
                Header::Absent => {}
                Header::Bad => return Err(Ending::check(asc::INTERNAL_FAILURE)),
                Header::Format(layout, kind) => return Ok(Some((layout, kind))),
            }
        }
        Ok(None)
    }

    /// Before FORMAT UNIT or SANITIZE changes the first block, marks every region, so that an
    /// interrupted operation leaves no guard that is wrong. With `grows` the tail will be at the
    /// provider's end as it is now (D5).
    pub async fn begin_format(&self, medium: &Medium, grows: bool) -> Result<(), Ending> {
        // The task that removes marks then finds none.
        let _map = self.regions.lock_map().await;
        self.regions.forget();
        let all: Vec<u64> =
            (0..self.layout().blocks.div_ceil(self.layout().region_blocks())).collect();
        self.save_map(medium, &all, memory(medium, self.layout().map().1, true).await?).await?;
        if grows {
            self.set_layout(self.grown());
        }
        Ok(())
    }

    /// After it: no block is checked before it is written, and the type may be another.
    pub async fn end_format(
        &self,
        medium: &Medium,
        kind: Option<ProtectionType>,
    ) -> Result<(), Ending> {
        self.clear_tuples(medium).await?;
        self.finish(medium, kind).await
    }

    /// An empty map, then the header; durable when it ends.
    async fn finish(&self, medium: &Medium, kind: Option<ProtectionType>) -> Result<(), Ending> {
        self.save_map(medium, &[], memory(medium, self.layout().map().1, true).await?).await?;
        medium.below(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await?;
        let header = self.layout().encode(kind);
        let buffer = memory(medium, self.layout().unit, true).await?;
        put(medium, self.layout().header_at(), &header, true, buffer).await?;
        self.set_kind(kind);
        Ok(())
    }

    /// All tuples become zeroes on the medium.
    async fn clear_tuples(&self, medium: &Medium) -> Result<(), Ending> {
        let (at, _, _) = self.layout().tuples_of(0, 0);
        let all = self.layout().tuples_len();
        if medium.below(Op::WriteZeroes, at, all, Segs::new(), Flags::NONE).await.is_err() {
            let zeroes = vec![0; usize::try_from(PIECE_BYTES.min(all)).unwrap_or(0)];
            let mut done = 0;
            while done < all {
                let n = usize::try_from(PIECE_BYTES.min(all - done)).unwrap_or(0);
                let piece = zeroes.get(..n).unwrap_or(&zeroes);
                let buffer = memory(medium, piece.len() as u64, true).await?;
                put(medium, at + done, piece, false, buffer).await?;
                done += piece.len() as u64;
            }
        }
        medium.below(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await.map(drop)
    }

    /// Blocks whose guard is wrong get the guard of the stored data; their tags stay. The caller
    /// keeps other requests away meanwhile. Without `waits` it gives up when there is no memory.
    pub(super) async fn repair(
        &self,
        medium: &Medium,
        lba: u64,
        blocks: u64,
        waits: bool,
    ) -> Result<(), Ending> {
        let Some(kind) = self.kind() else { return Ok(()) };
        let unit = self.layout().unit;
        let step = (PIECE_BYTES / unit).max(1);
        let end = lba.saturating_add(blocks);
        let mut first = lba;
        while first < end {
            let n = (step - first % step).min(end - first);
            let (at, len, skip) = self.layout().tuples_of(first, n);
            let buffer = memory(medium, len, waits).await?;
            let mut tuples = get(medium, at, len, buffer).await?;
            let data = memory(medium, n * unit, waits).await?;
            let data = medium.below(Op::Read, first * unit, n * unit, data, Flags::NONE).await?;
            let mut changed = false;
            let ours = tuples.get_mut(skip..).unwrap_or_default();
            for (bytes, guard) in
                ours.as_chunks_mut::<TUPLE_LEN>().0.iter_mut().zip(guards(&data, unit))
            {
                flip(bytes);
                let tuple = Tuple::decode(bytes);
                if !tuple.is_escape(kind) && tuple.guard != guard {
                    *bytes = Tuple { guard, ..tuple }.encode();
                    changed = true;
                }
                flip(bytes);
            }
            if changed {
                let buffer = memory(medium, len, waits).await?;
                put(medium, at, &tuples, false, buffer).await?;
            }
            first += n;
        }
        Ok(())
    }
}
