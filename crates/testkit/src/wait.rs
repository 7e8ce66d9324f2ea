//! Wait for a condition that another thread or process makes true.

use std::time::{Duration, Instant};

/// Longest wait. Only a condition that never becomes true takes so long, on a slow machine as well.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until the condition is true; panics after a minute.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}
