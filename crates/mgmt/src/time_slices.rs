//! Slices of long work on a thread that may share its processor with a core.
//!
//! The scheduler lets a busy thread run for some milliseconds before a waiting one, and a request
//! waits as long. Work on many objects therefore offers the processor to other threads again and
//! again, but not more often. A busy core keeps it for as long as the scheduler allows.
//!
//! Invariants
//!  Z1  Between two offers, work has the processor at most for [`SLICE`] and the next
//!      [`CLOCK_PARTS`] parts.

use crate::api::SystemState;
use std::time::{Duration, Instant};

/// Time between two offers, so that a core waits for less than a millisecond.
const SLICE: Duration = Duration::from_micros(700);

/// Parts between two looks at the clock. A part takes a microsecond or two.
const CLOCK_PARTS: usize = 32;

/// The present slice of some work.
#[derive(Debug)]
pub struct TimeSlices {
    began: Instant,
    /// Parts since the last look at the clock.
    parts: usize,
}

impl Default for TimeSlices {
    fn default() -> Self {
        TimeSlices { began: Instant::now(), parts: 0 }
    }
}

impl TimeSlices {
    /// Counts parts; true at the end of a slice.
    fn is_over_after(&mut self, parts: usize, now: impl FnOnce() -> Instant) -> bool {
        self.parts = self.parts.saturating_add(parts);
        if self.parts < CLOCK_PARTS {
            return false;
        }
        self.parts = 0;
        now().saturating_duration_since(self.began) >= SLICE
    }

    /// Counts parts, and offers the processor at the end of a slice.
    pub fn spend(&mut self, parts: usize) {
        if self.is_over_after(parts, Instant::now) {
            std::thread::yield_now();
            self.began = Instant::now();
        }
    }

    /// Counts a part that takes longer than others.
    pub fn spend_long(&mut self) {
        self.spend(CLOCK_PARTS);
    }

    /// Drops a list in slices.
    fn drop_each<T>(&mut self, all: Vec<T>) {
        for one in all {
            drop(one);
            self.spend(1);
        }
    }
}

/// Drops a state in slices.
pub(crate) fn drop_state(state: SystemState) {
    let SystemState { disks, geoms, targets, .. } = state;
    let mut slices = TimeSlices::default();
    slices.drop_each(disks);
    slices.drop_each(geoms);
    for group in targets.into_iter().flat_map(|target| target.groups) {
        slices.drop_each(group.luns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z1_slice_is_over_after_its_time_and_some_parts() {
        let began = Instant::now();
        let mut slices = TimeSlices { began, parts: 0 };
        let mut is_over =
            |parts: usize, after: Duration| slices.is_over_after(parts, || began + after);
        assert!(!is_over(CLOCK_PARTS - 1, SLICE), "the clock is not read");
        assert!(is_over(1, SLICE));
        assert!(!is_over(CLOCK_PARTS, SLICE - Duration::from_nanos(1)));
        assert!(is_over(usize::MAX, SLICE));
        assert!(!is_over(1, SLICE), "parts are counted anew");
    }
}
