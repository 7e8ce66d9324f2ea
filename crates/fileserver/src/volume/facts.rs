//! The state of a volume, for reports.

use schemars::JsonSchema;
use serde::Serialize;

use super::Volume;
use super::copy::Report;
use super::state::WORM_FIRST;
use crate::fault::Addr;

/// Counts of blocks, unless another unit is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "VolumeFacts")]
pub struct Facts {
    /// Which volume it is.
    pub volume: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Workers that read ahead; 0: nothing is read ahead.
    pub ahead_workers: u64,
    /// Read-ahead distance of a sequential reader, bytes.
    pub ahead_bytes: u64,
    /// Blocks that were read ahead.
    pub ahead_loaded: u64,
    /// Blocks that were not read ahead because the queue was full.
    pub ahead_dropped: u64,
    /// Size of the block cache, blocks.
    pub memory: u64,
    /// Blocks in memory that no commit has written yet.
    pub dirty: u64,
    /// Lookups of blocks that were found in memory.
    pub hits: u64,
    /// Lookups of blocks that were not in memory.
    pub misses: u64,
    /// Slots of the cache device, a block each.
    pub slots: u64,
    /// Slots in use.
    pub slots_used: u64,
    /// Slots that can still take a changed block.
    pub slots_left: u64,
    /// Blocks of the smallest device of the WORM; 0 without one.
    pub worm: u64,
    /// Next address to be allocated.
    pub next: Addr,
    /// Addresses below this one belong to dumps.
    pub frozen: Addr,
    /// Blocks of the live tree that the next dump will contain.
    pub live: u64,
    /// Blocks of the live tree that no dump will contain.
    pub scratch: u64,
    /// Dumps that are committed.
    pub dumps: u64,
    /// Address of the last dump's superblock; 0: none.
    pub sb_last: Addr,
    /// Address of the next dump's superblock; 0: unknown.
    pub sb_next: Addr,
    /// Which owner of the WORM this server is.
    pub epoch: u32,
    /// Blocks of dumps whose copy on the cache device was bad.
    pub bad_slots: u64,
    /// Blocks that a device of the WORM had wrong, and that were repaired from another device.
    pub mended: u64,
    /// Records of the journal so far.
    pub commits: u64,
    /// Why nothing may be changed any more.
    pub refused: Option<String>,
}

impl Facts {
    /// Most of the cache device holds what no dump takes away.
    pub fn is_temporary(&self) -> bool {
        self.scratch > self.slots / 2
    }
}

/// A part in percent, rounded down; of nothing there is none.
pub fn percent(part: u64, all: u64) -> u64 {
    part.saturating_mul(100).checked_div(all).unwrap_or(0)
}

impl Volume {
    /// How it is doing.
    pub fn facts(&self) -> Facts {
        let ahead = self.read_ahead();
        let s = self.0.state.borrow();
        let (live, scratch) = s.space.counts();
        let last = s.dumps.iter().rev().find(|d| d.number <= s.dumped);
        Facts {
            volume: s.layout.volume,
            block: s.block() as u64,
            ahead_workers: ahead.workers.into(),
            ahead_bytes: ahead.bytes,
            ahead_loaded: self.0.ahead.loaded.get(),
            ahead_dropped: self.0.ahead.dropped.get(),
            memory: s.frames.limit() as u64,
            dirty: s.frames.dirty() as u64,
            hits: s.frames.hits,
            misses: s.frames.misses,
            slots: s.layout.slots.1,
            slots_used: s.layout.slots.1.saturating_sub(s.table.free() as u64),
            slots_left: s.slots_left() as u64,
            worm: s.members.iter().map(|l| l.blocks).min().unwrap_or(0),
            next: s.space.next(),
            frozen: s.space.frozen(),
            live,
            scratch,
            dumps: s.dumps.iter().filter(|d| d.number <= s.dumped).count() as u64,
            sb_last: last.map_or(0, |d| d.sb),
            sb_next: s.sb,
            epoch: s.epoch,
            bad_slots: s.bad_slots,
            mended: s.repaired,
            commits: s.seq,
            refused: s.refused.as_ref().map(ToString::to_string),
        }
    }

    /// How the legs are doing; see [`Report`].
    pub fn members(&self) -> Vec<Report> {
        let state = self.0.state.borrow();
        let last = state.dumps.iter().rev().find(|d| d.number <= state.dumped);
        let mut reports = self.0.reports.borrow().clone();
        let (now, paces) = ((self.0.clock)(), self.0.read_stats.borrow());
        let (partial, end) = (self.0.partial.borrow(), last.map_or(0, |d| d.next));
        let legs = state.members.iter().zip(&*partial).zip(&*paces);
        for (r, ((leg, partial), pace)) in reports.iter_mut().zip(legs) {
            // The state keeps the progress of the right device, which may be reconnected.
            let (done, lacks_from) = match r.is_of_other_contents() {
                true => (0, WORM_FIRST),
                // Only the superblock ends a dump.
                false => (leg.done, leg.done.max((*partial).min(end.saturating_sub(1)))),
            };
            let lacks = state.dumps.partition_point(|d| d.next <= done);
            let lacks = state.dumps.get(lacks).filter(|d| d.number <= state.dumped);
            r.lag_ns = lacks.map_or(0, |d| now.saturating_sub(d.time_ns));
            r.read_ns = pace.usual_ns;
            r.done = done;
            r.behind = end.saturating_sub(lacks_from);
        }
        reports
    }
}
