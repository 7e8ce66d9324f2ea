//! A DELETE of several ranges on levels without parity: each member gets its part of the list as
//! one request. The rules for its locks and decisions are in [`super::tasks`].

use std::ops::Range;

use bio::{Errno, Status, append_range};

use super::map::{Shape, Spot};
use super::shared::Table;
use super::stripes::RowOutcome;
use super::task_util::{MemberDelete, bit, is_members_fault, send_deletes};
use super::tasks::RequestTask;

/// Calls `f` with every piece of the ranges: where its copies lie, and its length.
pub(super) fn spots(
    shape: &Shape,
    ranges: impl Iterator<Item = Range<u64>>,
    mut f: impl FnMut(&mut dyn Iterator<Item = Spot>, u64),
) {
    for range in ranges {
        for piece in shape.pieces(range.start, range.end.saturating_sub(range.start)) {
            f(&mut (0..shape.copies()).map(|nth| shape.spot(piece.at, nth)), piece.len);
        }
    }
}

impl RequestTask {
    /// W4, W5
    pub(super) async fn delete_list(&self) -> Status {
        let held = self.shared.ranges.lock_all_task(&self.ranges, true).await;
        let table = self.shared.table(self.core.id());
        let outcome = self.list_to_copies(&table).await;
        let status = self.conclude(outcome).await;
        self.shared.ranges.unlock(held);
        status
    }

    async fn list_to_copies(&self, table: &Table) -> RowOutcome {
        let mut outcome = RowOutcome { unrecorded: table.unrecorded, ..RowOutcome::default() };
        if table.all().any(|(_, path)| !path.deletes) {
            return RowOutcome { error: Some(Errno::NotSup), ..outcome };
        }
        let shape = &self.shared.shape;
        let mut lists = vec![Vec::new(); shape.members()];
        // Good members of each piece.
        let mut holders = Vec::new();
        spots(shape, self.ranges.iter().cloned(), |copies, len| {
            let mut good = 0;
            for spot in copies {
                let Some(path) = table.path(spot.slot) else { continue };
                let at = path.offset.saturating_add(spot.at);
                if let Some(list) = lists.get_mut(spot.slot) {
                    append_range(list, at..at.saturating_add(len));
                }
                good |= table.good(spot.slot).map_or(0, |_| bit(spot.slot));
            }
            if !holders.contains(&good) {
                holders.push(good);
            }
        });
        let all = lists.into_iter().enumerate().filter(|(_, ranges)| !ranges.is_empty());
        let all = all.filter_map(|(slot, ranges)| {
            Some(MemberDelete { slot, edge: table.path(slot)?.edge, ranges })
        });
        let ended = send_deletes(&self.core, all.collect(), self.context).await;
        let ok = ended.iter().filter(|(_, status)| status.is_ok());
        let ok = ok.fold(0, |all, (slot, _)| all | bit(*slot));
        for (slot, status) in ended {
            let spared = holders.iter().all(|good| good & ok != 0);
            match status {
                Ok(()) => {}
                Err(Errno::NxIo) => {
                    outcome.failed |= bit(slot);
                    outcome.gone |= bit(slot);
                }
                // W2
                Err(e) if is_members_fault(e) || spared => outcome.failed |= bit(slot),
                Err(e) => outcome.error = outcome.error.or(Some(e)),
            }
        }
        if holders.iter().any(|good| good & ok == 0) {
            // No good member has this.
            outcome.error = outcome.error.or(Some(Errno::Io));
        }
        outcome
    }
}
