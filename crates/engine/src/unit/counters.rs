//! Command counters of a logical unit, for LOG SENSE.
//!
//! Invariants
//!  C1  Counters of a nexus are written by the core of its session only, without atomic additions.
//!  C2  When a nexus ends, its counts move to the unit under the lock under which they are summed:
//!      none is lost, none is summed twice.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bio::sync::Mutex;
use wire::scsi::{ErrorCounts, LogCounts};

use crate::unit::unit_attention::ItlNexus;

/// Adds to a counter that has one writer.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Index into [`Counts`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Reads,
    Writes,
    Verifies,
    ReadBytes,
    WrittenBytes,
    VerifiedBytes,
    ReadErrors,
    WriteErrors,
    VerifyErrors,
    ReadNs,
    WriteNs,
}

const COUNTS: usize = 11;

pub(super) type Sums = [u64; COUNTS];

/// Counters of one nexus (C1).
#[derive(Default)]
pub(crate) struct Counts([AtomicU64; COUNTS]);

/// Effect of a finished command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessKind {
    Read,
    Write,
    Verify,
}

impl Counts {
    #[inline]
    fn add(&self, count: Count, by: u64) {
        if let Some(counter) = self.0.get(count as usize) {
            add(counter, by);
        }
    }

    /// A command has ended: bytes moved, ns taken, a medium error or none.
    #[inline]
    pub fn note(&self, did: AccessKind, bytes: u64, ns: u64, failed: bool) {
        let (commands, moved, errors, time) = match did {
            AccessKind::Read => {
                (Count::Reads, Count::ReadBytes, Count::ReadErrors, Some(Count::ReadNs))
            }
            AccessKind::Write => {
                (Count::Writes, Count::WrittenBytes, Count::WriteErrors, Some(Count::WriteNs))
            }
            AccessKind::Verify => {
                (Count::Verifies, Count::VerifiedBytes, Count::VerifyErrors, None)
            }
        };
        self.add(commands, 1);
        self.add(moved, bytes);
        if let Some(time) = time {
            self.add(time, ns);
        }
        if failed {
            self.add(errors, 1);
        }
    }

    pub(super) fn collect(&self, sums: &mut Sums) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(counter.load(Relaxed));
        }
    }

    fn clear(&self) {
        self.0.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Counters of the commands of one nexus since its session has used the unit, for lists; or those
/// of all nexuses of a LUN of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NexusCounts {
    /// The number under which the initiator sees the unit.
    pub lun: u64,
    /// Commands that read the medium.
    pub reads: u64,
    /// Commands that wrote the medium.
    pub writes: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// Commands that failed because of the medium.
    pub errors: u64,
}

impl NexusCounts {
    pub(crate) fn of(nexus: &ItlNexus) -> NexusCounts {
        let mut sums = Sums::default();
        nexus.counts().collect(&mut sums);
        NexusCounts::new(nexus.lun(), &sums)
    }

    /// The counters of a LUN.
    pub(super) fn new(lun: u64, sums: &Sums) -> NexusCounts {
        let of = |count: Count| sums.get(count as usize).copied().unwrap_or(0);
        let errors = [Count::ReadErrors, Count::WriteErrors, Count::VerifyErrors].map(of);
        NexusCounts {
            lun,
            reads: of(Count::Reads),
            writes: of(Count::Writes),
            read_bytes: of(Count::ReadBytes),
            written_bytes: of(Count::WrittenBytes),
            errors: errors.iter().fold(0, |sum, one| sum.wrapping_add(*one)),
        }
    }
}

#[derive(Default)]
struct Past {
    /// Of nexuses that have ended.
    ended: Sums,
    /// Counts that LOG SELECT has reset to zero.
    reset: Sums,
}

/// Counts of one unit.
#[derive(Default)]
pub(crate) struct History(Mutex<Past>);

impl History {
    fn past(&self) -> std::sync::MutexGuard<'_, Past> {
        self.0.lock()
    }

    /// A nexus has ended, or begins anew; on its core (C2).
    pub fn ended(&self, nexus: &ItlNexus) {
        let mut past = self.past();
        nexus.counts().collect(&mut past.ended);
        nexus.counts().clear();
    }

    /// Everything since the unit was made, or since it was reset. `nexuses` are those of now.
    fn sums(past: &Past, nexuses: &[Arc<ItlNexus>]) -> Sums {
        let mut sums = past.ended;
        nexuses.iter().for_each(|nexus| nexus.counts().collect(&mut sums));
        sums
    }

    /// All counters begin at zero again.
    pub fn reset(&self, nexuses: &[Arc<ItlNexus>]) {
        let mut past = self.past();
        past.reset = History::sums(&past, nexuses);
    }

    pub fn counts(&self, nexuses: &[Arc<ItlNexus>], block: u32, minutes: u32) -> LogCounts {
        let sums = {
            let past = self.past();
            let mut sums = History::sums(&past, nexuses);
            sums.iter_mut().zip(past.reset).for_each(|(sum, from)| *sum = sum.saturating_sub(from));
            sums
        };
        let of = |count: Count| sums.get(count as usize).copied().unwrap_or(0);
        let block = u64::from(block.max(1));
        let errors = |bytes, failed| ErrorCounts { bytes: of(bytes), uncorrected: of(failed) };
        LogCounts {
            writes: errors(Count::WrittenBytes, Count::WriteErrors),
            reads: errors(Count::ReadBytes, Count::ReadErrors),
            verifies: errors(Count::VerifiedBytes, Count::VerifyErrors),
            read_commands: of(Count::Reads),
            write_commands: of(Count::Writes),
            blocks_received: of(Count::WrittenBytes) / block,
            blocks_sent: of(Count::ReadBytes) / block,
            read_time_us: of(Count::ReadNs) / 1000,
            write_time_us: of(Count::WriteNs) / 1000,
            minutes,
            space: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_counts_survive_the_end_of_a_nexus_and_a_log_reset_clears_them() {
        let history = History::default();
        let (a, b) = (Arc::new(ItlNexus::default()), Arc::new(ItlNexus::default()));
        a.counts().note(AccessKind::Read, 1024, 3000, false);
        b.counts().note(AccessKind::Write, 512, 5000, true);
        b.counts().note(AccessKind::Verify, 512, 1, true);
        let all = [a.clone(), b.clone()];
        let before = history.counts(&all, 512, 1);
        assert_eq!((before.read_commands, before.blocks_sent, before.read_time_us), (1, 2, 3));
        assert_eq!(before.writes, ErrorCounts { bytes: 512, uncorrected: 1 });
        assert_eq!(before.verifies.uncorrected, 1);
        history.ended(&a);
        assert_eq!(history.counts(&all, 512, 1), before);
        assert_eq!(history.counts(&all[1..], 512, 1), before);
        history.reset(&all[1..]);
        assert_eq!(history.counts(&all[1..], 512, 0), LogCounts::default());
        b.counts().note(AccessKind::Write, 512, 0, false);
        history.ended(&b);
        assert_eq!(history.counts(&[], 512, 0).write_commands, 1);
    }
}
