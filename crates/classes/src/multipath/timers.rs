//! Timers of a multipath device.
//!
//! ```text
//!   Check      a path is failed, or has a worse access state   --> look at those
//!   Again      a path is in transition                         --> look at it
//!   Failback   another path than the preferred one is active   --> return
//!   NoPath     no path is good, and requests wait              --> they end with ENXIO
//! ```
//!
//! A timer that was called off runs out all the same: it has another number than the one that
//! counts.

use geom::{GeomId, Topology};

use super::geom::MultipathGeom;
use super::paths::{PathEntry, PathState};
use super::shared::Message;
use super::tasks;

/// How long a path in transition is left alone, ns: regardless of the checker, because the
/// transition is expected to end.
const TRANSITION_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// To look at paths that are failed.
    Check,
    /// To look at paths in transition.
    Again,
    /// To return to the preferred path.
    Failback,
    /// Requests have waited long enough for a path.
    NoPath,
}

/// Timers that run, by number.
#[derive(Default)]
pub(super) struct Timers {
    last: u64,
    running: [Option<u64>; 4],
}

impl Timers {
    fn of(&mut self, timer: Timer) -> &mut Option<u64> {
        &mut self.running[timer as usize]
    }

    /// The number of one that did not run; the caller has it run.
    fn start(&mut self, timer: Timer) -> Option<u64> {
        if self.of(timer).is_some() {
            return None;
        }
        self.last += 1;
        *self.of(timer) = Some(self.last);
        Some(self.last)
    }

    fn cancel(&mut self, timer: Timer) {
        *self.of(timer) = None;
    }

    /// Whether it was the one that counts.
    fn is_current(&mut self, timer: Timer, number: u64) -> bool {
        self.of(timer).take_if(|running| *running == number).is_some()
    }
}

fn is_bad(one: &PathEntry) -> bool {
    one.state == PathState::Fail || one.rank > 0
}

fn is_in_transition(one: &PathEntry) -> bool {
    one.state == PathState::Transition
}

impl MultipathGeom {
    fn run(&mut self, timer: Timer, ns: u64) {
        if let Some(number) = self.timers.start(timer) {
            self.shared.post_after(ns, Message::Time(timer, number));
        }
    }

    /// After a change of the paths: those that are needed run, the others are called off.
    pub(super) fn update_timers(&mut self) {
        if self.paths.good() > 0 {
            self.expired = false;
            self.timers.cancel(Timer::NoPath);
        } else if self.queues() {
            self.run(Timer::NoPath, self.options.queue_ns);
        }
        // A path with a worse access state is idle, and a better state shows only in a check.
        match self.paths.all().iter().any(is_bad) && self.options.checker_ns > 0 {
            true => self.run(Timer::Check, self.options.checker_ns),
            false => self.timers.cancel(Timer::Check),
        }
        match self.paths.all().iter().any(is_in_transition) {
            true => self.run(Timer::Again, TRANSITION_NS),
            false => self.timers.cancel(Timer::Again),
        }
        let wanted = self.preferred().filter(|slot| self.paths.active() != Some(*slot));
        match (wanted, self.options.failback_ns) {
            (Some(slot), Some(0)) => {
                self.timers.cancel(Timer::Failback);
                self.paths.fail_back(slot);
            }
            (Some(_), Some(ns)) => self.run(Timer::Failback, ns),
            _ => self.timers.cancel(Timer::Failback),
        }
    }

    pub(super) fn timer_expired(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        timer: Timer,
        number: u64,
    ) {
        if !self.timers.is_current(timer, number) {
            return;
        }
        match timer {
            Timer::Check => self.check_paths(t, is_bad),
            Timer::Again => self.check_paths(t, is_in_transition),
            Timer::Failback => {
                if let Some(slot) = self.preferred() {
                    self.paths.fail_back(slot);
                }
            }
            Timer::NoPath => self.expired = true,
        }
        self.changed(t, me);
        if self.expired && self.paths.all().is_empty() {
            Self::take_apart(t, me, self);
        }
    }

    /// The slot of the path that is to be active when it can be: the one preferred by a verb, or
    /// else the first.
    fn preferred(&self) -> Option<usize> {
        let by_hand = self.preferred.as_deref();
        let one = match by_hand {
            Some(name) => self.paths.called(name),
            None => self.paths.all().first(),
        };
        one.filter(|p| p.state == PathState::Good && self.paths.is_best(p.slot)).map(|p| p.slot)
    }

    fn check_paths(&mut self, t: &Topology, which: fn(&PathEntry) -> bool) {
        let sector = self.identity.sector_bytes as usize;
        for one in self.paths.all().iter().filter(|one| which(one)) {
            let bit = 1u32.checked_shl(one.slot as u32).unwrap_or(0);
            let Some(consumer) = self.consumers.get(&one.slot) else { continue };
            // A path that hangs is not checked again before it has answered.
            if self.checking & bit == 0 {
                self.checking |= bit;
                tasks::check_path(&self.shared, t.edge(*consumer), sector, one.slot, one.round);
            }
        }
    }
}
