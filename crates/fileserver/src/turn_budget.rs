//! Work of a commit or a check between two turns of clients, counted in bytes.
//!
//! A turn after each small write makes a commit slow. Busy clients fill the block cache or the log
//! meanwhile, and wait for all of the commit.

use std::cell::Cell;

/// Bytes checksummed, or written at once, between two turns of clients. A device in memory takes
/// the core for all of one write.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// Parts of that size that follow each other when clients change blocks faster, at most.
const PARTS: usize = 8;
/// A write, or an item of a check, counts as so many bytes at least: a page of a table takes longer
/// than its copy.
const IO_BYTES: usize = 16 << 10;

/// See the module.
#[derive(Default)]
pub(crate) struct TurnBudget {
    /// Bytes of work since clients had their turn.
    done: Cell<usize>,
}

/// Bytes of work between two turns. `behind`: how many times its usual work a commit is behind; 0
/// for other work.
fn bytes_at_once(behind: usize) -> usize {
    PART_BYTES * behind.saturating_add(1).min(PARTS)
}

impl TurnBudget {
    /// Counts work; true when clients are to have their turn now.
    pub fn spend(&self, bytes: usize, behind: usize) -> bool {
        let done = self.done.get() + bytes.max(IO_BYTES);
        let is_due = done >= bytes_at_once(behind);
        self.done.set(if is_due { 0 } else { done });
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of work between two turns.
    fn pieces(bytes: usize, behind: usize) -> usize {
        let budget = TurnBudget::default();
        1 + (0..).take_while(|_| !budget.spend(bytes, behind)).count()
    }

    #[test]
    fn commit_does_more_at_a_time_only_when_clients_are_faster() {
        assert_eq!([0, 3].map(|behind| pieces(PART_BYTES, behind)), [1, 4]);
        assert_eq!(pieces(PART_BYTES, usize::MAX), PARTS);
        // Pages of the table, and blocks of scattered slots: a commit has thousands of them.
        assert_eq!([512, IO_BYTES].map(|bytes| pieces(bytes, 0)), [16; 2]);
        // A turn begins a new count.
        let budget = TurnBudget::default();
        assert!(!budget.spend(PART_BYTES / 2, 0) && budget.spend(PART_BYTES / 2, 0));
        assert!(!budget.spend(PART_BYTES / 2, 0));
    }
}
