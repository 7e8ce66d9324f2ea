//! Throttle of the background copies of a geom: a highest rate, in bytes a second, and a pause.
//!
//! Invariants
//!  T1  A change of the rate or of the pause takes effect within [`STEP_NS`], also for a copy that
//!      waits.
//!  T2  A copy that is not wanted any more ends its wait within [`STEP_NS`].

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use geom::Core;

/// Longest time that a copy waits before it reads the throttle again, ns.
const STEP_NS: u64 = 100_000_000;

/// The settings of a geom that verbs change, until the next start.
#[derive(Default, Debug)]
pub(crate) struct Throttle {
    rate: AtomicU64,
    paused: AtomicBool,
}

impl Throttle {
    /// Highest rate, bytes a second; zero: no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Sets the highest rate.
    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }

    /// Whether copies are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Pauses copies or resumes them; returns whether they were paused before.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        self.paused.swap(paused, Relaxed)
    }
}

/// Waits until `bytes` more may be handled, at `rate` bytes a second (zero: no limit), which is
/// read again while it waits (T1); returns the time up to which has been paid. Without a rate the
/// copy is not wanted (T2).
pub(crate) async fn wait_for_rate(
    core: &Rc<Core>,
    rate: impl Fn() -> Option<u64>,
    paid: u64,
    bytes: u64,
) -> u64 {
    let began = core.reactor().fresh_now();
    let cost = |rate: u64| (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
    // Unused rate is not accumulated.
    let from = match rate() {
        None | Some(0) => return began,
        Some(rate) => paid.max(began.saturating_sub(cost(rate))),
    };
    loop {
        let now = core.reactor().fresh_now();
        let until = match rate() {
            None | Some(0) => return now,
            Some(rate) => from.saturating_add(cost(rate)),
        };
        if until <= now {
            return until;
        }
        core.reactor().sleep((until - now).min(STEP_NS)).await;
    }
}

/// Waits while copies are paused and this one is wanted; true if it had to wait (T1).
pub(crate) async fn wait_while_paused(
    core: &Rc<Core>,
    throttle: &Throttle,
    is_wanted: impl Fn() -> bool,
) -> bool {
    let mut waited = false;
    while throttle.is_paused() && is_wanted() {
        core.reactor().sleep(STEP_NS).await;
        waited = true;
    }
    waited
}
