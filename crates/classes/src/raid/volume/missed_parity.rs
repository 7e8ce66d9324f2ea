//! Parity that a member failed to write and still has to receive. The member stays, because the
//! volume needs it, and only that parity describes the data of another, missing, member.
//!
//! ```text
//!   parity not taken --> owed --> its row is passed or written: paid --> forgotten
//!                             \-> the member is out: forgotten
//! ```
//!
//! Invariants
//!  O1  Owed parity of a row is written before the row is used or changed. Until then such requests
//!      end with EIO, as flushes do.
//!  O2  Debts are noted and paid by the holder of the row.
//!  O3  It is kept in memory. When that is lost, the volume is dirty (J8 of `geom`) and lacks a
//!      member (A3 of `members`), and is started by force alone.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use bio::Op;
use bio::sync::{Mutex, MutexGuard};
use geom::Edge;

use super::shared::{FailureEffect, Table};
use super::stripes::Rows;
use super::task_util::{MemberRequest, RequestContext, more, send_all};

/// Pieces of parity that may be owed before writes to rows end with EIO, each of a window at most.
/// Those that are under way may add theirs.
const OWED_MAX: usize = 256;

/// What one member is owed.
#[derive(Clone)]
struct MissedWrite {
    slot: usize,
    edge: Edge,
    /// Bytes of the members' parts, as rows are locked.
    at: u64,
    bytes: Vec<u8>,
}

impl MissedWrite {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes.len() as u64)
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.end()
    }

    /// Cuts off the part behind a place as a debt of its own.
    fn split(&mut self, at: u64) -> Option<MissedWrite> {
        let within = at.checked_sub(self.at).filter(|_| at < self.end())?;
        let bytes = self.bytes.split_off(within as usize);
        Some(MissedWrite { at, bytes, ..*self }).filter(|behind| !behind.bytes.is_empty())
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct MissedParity {
    all: Mutex<Vec<MissedWrite>>,
    count: AtomicUsize,
}

impl MissedParity {
    fn lock(&self) -> MutexGuard<'_, Vec<MissedWrite>> {
        self.all.lock()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<MissedWrite>)) {
        let mut all = self.lock();
        change(&mut all);
        all.retain(|debt| !debt.bytes.is_empty());
        self.count.store(all.len(), Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.load(Acquire) >= OWED_MAX
    }

    /// Notes bytes owed to a member; older debts in that range no longer count.
    pub(super) fn note(&self, slot: usize, edge: Edge, at: u64, bytes: Vec<u8>) {
        let debt = MissedWrite { slot, edge, at, bytes };
        self.remove_written(slot, &(at..debt.end()));
        self.change(|all| all.push(debt));
    }

    fn within(&self, range: &Range<u64>) -> Vec<MissedWrite> {
        let mut found = Vec::new();
        self.change(|all| {
            for at in [range.start, range.end] {
                let behind: Vec<MissedWrite> =
                    all.iter_mut().filter_map(|debt| debt.split(at)).collect();
                all.extend(behind);
            }
            found.extend(all.iter().filter(|debt| debt.overlaps(range)).cloned());
        });
        found
    }

    fn remove_written(&self, slot: usize, range: &Range<u64>) {
        if self.within(range).iter().any(|debt| debt.slot == slot) {
            self.change(|all| all.retain(|debt| debt.slot != slot || !debt.overlaps(range)));
        }
    }

    /// Members that are out, or others than they were, are owed nothing.
    pub(super) fn keep(&self, table: &Table) {
        if !self.is_empty() {
            let stays =
                |debt: &MissedWrite| table.path(debt.slot).is_some_and(|p| p.edge == debt.edge);
            self.change(|all| all.retain(stays));
        }
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        self.lock().iter().map(|debt| debt.at..debt.end()).collect()
    }
}

impl Rows {
    /// O1: pays the debts of a range of rows, which is held; false when this fails.
    pub(super) async fn settle(&self, range: &Range<u64>) -> bool {
        let owed = &self.shared.missed_parity;
        if owed.is_empty() {
            return true;
        }
        let table = self.shared.table(self.core.id());
        for debt in owed.within(range) {
            let MissedWrite { slot, edge, at, ref bytes } = debt;
            let path = table.path(slot).filter(|path| path.edge == edge);
            if let Some(path) = path {
                let len = bytes.len() as u64;
                let Some(data) = more(1, bytes.len()).await.pop() else { return false };
                data.copy_from(0, bytes);
                let at = path.offset.saturating_add(at);
                let requests = vec![MemberRequest { slot, edge, op: Op::Write, at, len, data }];
                for (slot, status) in
                    send_all(&self.core, requests, RequestContext::default()).await
                {
                    if let Err(e) = status {
                        self.shared.report_failure(slot, e, FailureEffect::Order);
                        return false;
                    }
                }
            }
            owed.remove_written(slot, &(debt.at..debt.end()));
        }
        true
    }

    /// Pays all that is owed; false when something of it cannot be paid.
    pub(super) async fn settle_all(&self) -> bool {
        if self.shared.missed_parity.is_empty() {
            return true;
        }
        for range in self.shared.missed_parity.ranges() {
            let held = self.shared.ranges.lock_task(range.clone(), true).await;
            let settled = self.settle(&range).await;
            self.shared.ranges.unlock(held);
            if !settled {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owed_parity_is_paid_in_part_and_the_newest_entry_wins() {
        let (owed, edge) = (MissedParity::default(), Edge(7));
        owed.note(1, edge, 100, (0..50).collect());
        owed.note(2, edge, 100, vec![9; 10]);
        owed.note(1, edge, 120, vec![7; 10]);
        let mut all = owed.within(&(110..125));
        all.sort_by_key(|debt| debt.at);
        let seen: Vec<_> = all.iter().map(|d| (d.slot, d.at, d.bytes.clone())).collect();
        assert_eq!(seen, [(1, 110, (10..20).collect::<Vec<u8>>()), (1, 120, vec![7; 5])]);
        owed.remove_written(1, &(110..125));
        let mut left: Vec<_> = owed.lock().iter().map(|d| (d.slot, d.at, d.end())).collect();
        left.sort_unstable();
        assert_eq!(left, [(1, 100, 110), (1, 125, 130), (1, 130, 150), (2, 100, 110)]);
        assert!(!owed.is_empty() && !owed.is_full());
        owed.keep(&Table::default());
        assert!(owed.is_empty());
    }
}
