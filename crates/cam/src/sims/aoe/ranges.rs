//! Sectors of a target that are being written, by all cores together.
//!
//! AoE has no order. A copy of a WRITE that was thought lost may reach the target long after the
//! answered one. It would put old data over newer. So sectors are not written again before every
//! copy of an earlier WRITE of them was answered, or is too old to exist (E2).

use bio::sync::{Mutex, MutexGuard};

/// A hold on some sectors, to be given back as often as it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hold(u64);

struct HeldRange {
    number: u64,
    first: u64,
    end: u64,
    /// The command itself, and copies that are out.
    copies: u32,
}

#[derive(Default)]
struct RangeTable {
    held: Vec<HeldRange>,
    next: u64,
}

/// Sectors of one target that are being written.
#[derive(Default)]
pub(super) struct Ranges(Mutex<RangeTable>);

impl Ranges {
    fn state(&self) -> MutexGuard<'_, RangeTable> {
        self.0.lock()
    }

    /// Takes the sectors from `first` to before `end`; `None` while another holder has one of them.
    pub(super) fn take(&self, first: u64, end: u64) -> Option<Hold> {
        let mut state = self.state();
        if state.held.iter().any(|held| held.first < end && first < held.end) {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.held.push(HeldRange { number, first, end, copies: 1 });
        Some(Hold(number))
    }

    /// A further copy is out.
    pub(super) fn copy(&self, hold: Hold) {
        let mut state = self.state();
        if let Some(held) = state.held.iter_mut().find(|held| held.number == hold.0) {
            held.copies += 1;
        }
    }

    /// One of them has returned, or never will.
    pub(super) fn release(&self, hold: Hold) {
        let mut state = self.state();
        let Some(at) = state.held.iter().position(|held| held.number == hold.0) else { return };
        let Some(held) = state.held.get_mut(at) else { return };
        held.copies -= 1;
        if held.copies == 0 {
            state.held.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn sectors_are_released_when_the_last_copy_of_the_frame_returns() {
        let ranges = Ranges::default();
        let first = ranges.take(8, 16).unwrap();
        assert!(ranges.take(15, 20).is_none() && ranges.take(0, 9).is_none());
        let beside = ranges.take(16, 24).unwrap();
        ranges.copy(first);
        ranges.release(first);
        assert!(ranges.take(8, 9).is_none(), "a copy is out");
        ranges.release(first);
        ranges.release(first);
        assert!(ranges.take(8, 16).is_some() && ranges.take(23, 24).is_none());
        ranges.release(beside);
    }
}
