//! Throttle of the background copies of a geom: a highest rate, in bytes a second, and a pause.
//!
//! Invariants
//!  T1  A change of the rate or of the pause takes effect within [`STEP_NS`], also for a copy that
//!      waits.
//!  T2  A copy that is not wanted any more ends its wait within [`STEP_NS`].
//!  T3  Rate and pause of a geom last until the next start of the daemon, also when it is stopped
//!      or lost with its disks meanwhile.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;
use geom::Core;

/// Longest time that a copy waits before it reads the throttle again, ns.
const STEP_NS: u64 = 100_000_000;

/// The settings of a geom that verbs change (T3).
#[derive(Default, Debug)]
pub(crate) struct Throttle {
    rate: AtomicU64,
    paused: AtomicBool,
    /// A section of the configuration has given the rate.
    declared: AtomicBool,
}

impl Throttle {
    /// Highest rate, bytes a second; zero: no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }

    /// Sets the rate that a section gives.
    pub(crate) fn declare_rate(&self, rate: u64) {
        self.set_rate(rate);
        self.declared.store(true, Relaxed);
    }

    /// Whether a section has given the rate.
    pub(crate) fn is_declared(&self) -> bool {
        self.declared.load(Relaxed)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Whether copies are limited or paused.
    fn is_set(&self) -> bool {
        self.rate() > 0 || self.is_paused()
    }

    /// Pauses copies or resumes them; returns whether they were paused before.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        self.paused.swap(paused, Relaxed)
    }
}

/// The throttles of the geoms of a class, by their names (T3).
#[derive(Default)]
pub(crate) struct Throttles(Mutex<BTreeMap<String, Arc<Throttle>>>);

impl Throttles {
    pub(crate) fn of(&self, geom: &str) -> Arc<Throttle> {
        let mut all = self.0.lock();
        // Names are read from disks: one without settings is kept only while its geom is there.
        all.retain(|_, throttle| throttle.is_set() || Arc::strong_count(throttle) > 1);
        all.entry(geom.to_owned()).or_default().clone()
    }

    /// A geom of this name is made anew, and has no settings.
    pub(crate) fn forget(&self, geom: &str) {
        self.0.lock().remove(geom);
    }
}

/// Waits until `bytes` more may be handled, at `rate` bytes a second (zero: no limit), which is
/// read again while it waits (T1). Returns the time up to which the rate is used. Without a rate
/// the copy is not wanted (T2).
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
