//! One turn of the loop: do prepared work, gather completions, report them, fire timers, run tasks.
//!
//! Operations that tasks and receivers submit in a turn reach the kernel with the one call that
//! begins the next turn, which also gathers completions.

use std::task::Waker;

use bio::Errno;

use crate::backend::{Port, Wait};
use crate::ops::{End, OpState, Settled, Token};
use crate::reactor::{Kernel, Reactor};
use crate::timers::Alarm;

/// Timers fired in one turn; later ones wait for the next, behind completions.
pub const TIMERS_PER_TURN: usize = 1024;

/// A turn that worked longer than this carried a batch, ns: the price of a wake is spread over it.
/// So the next wait sleeps at once. Spinning pays for lone requests only.
pub const LIGHT_TURN_NS: u64 = 5_000;

/// How long a turn may wait for something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// Not at all.
    Peek,
    /// Until this reading of the reactor's clock, in ns.
    Until(u64),
    Forever,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnReport {
    /// Completions and timers reported to the receiver.
    pub reported: usize,
    pub polls: usize,
    /// True when it slept.
    pub parked: bool,
    /// True when another thread had requested this turn (a mailbox has something).
    pub notified: bool,
}

impl TurnReport {
    /// True when nothing happened.
    pub fn is_idle(&self) -> bool {
        self.reported == 0 && self.polls == 0 && !self.notified
    }
}

#[derive(Default)]
pub(crate) struct Scratch {
    completions: Vec<(Token, Result<u64, Errno>)>,
    wakes: Vec<Waker>,
}

fn to_result(raw: i64) -> Result<u64, Errno> {
    match u64::try_from(raw) {
        Ok(n) => Ok(n),
        Err(_) => Err(Errno::from_posix(i32::try_from(-raw).unwrap_or(i32::MAX))),
    }
}

impl Reactor {
    /// One turn: does prepared work, submits queued operations, gathers completions, reports each
    /// of them and each timer that fired to `done`, and runs tasks. If there is nothing else to do,
    /// it waits for the first completion as long as `wait_for` allows. `done` may start operations,
    /// timers and tasks; it must not take a turn. In a simulated world no turn waits: the world
    /// moves the clock.
    pub fn turn(
        &self,
        wait_for: WaitFor,
        done: &mut dyn FnMut(Token, Result<u64, Errno>),
    ) -> TurnReport {
        let inner = &*self.inner;
        inner.prepared.run();
        let mut turned = TurnReport {
            notified: inner.remote.collect(inner.tasks.queue()),
            ..TurnReport::default()
        };
        let waits = wait_for != WaitFor::Peek && inner.world.is_none();
        if turned.notified || self.has_work() || !waits {
            self.gather(Wait::Peek);
        } else {
            turned.parked = self.wait(wait_for);
            turned.notified = inner.remote.collect(inner.tasks.queue());
        }
        inner.now.set(self.fresh_now());
        let mut scratch = inner.scratch.take();
        self.settle(&mut scratch);
        scratch.completions.extend(inner.instant.borrow_mut().drain(..));
        self.fire(&mut scratch);
        scratch.wakes.drain(..).for_each(Waker::wake);
        turned.reported = scratch.completions.len();
        for (token, result) in scratch.completions.drain(..) {
            done(token, result);
        }
        *inner.scratch.borrow_mut() = scratch;
        turned.polls = inner.tasks.run();
        turned
    }

    /// True when there is something to do without asking the kernel.
    pub(crate) fn has_work(&self) -> bool {
        let inner = &*self.inner;
        let due = inner.timers.borrow().next_due();
        !inner.prepared.is_empty()
            || !inner.tasks.is_idle()
            || !inner.instant.borrow().is_empty()
            || due.is_some_and(|due| due <= inner.now.get())
    }

    /// Spins for a while, then sleeps; true when it slept.
    fn wait(&self, wait_for: WaitFor) -> bool {
        let inner = &*self.inner;
        let due = inner.timers.borrow().next_due();
        let end = match wait_for {
            WaitFor::Until(t) => Some(due.map_or(t, |due| due.min(t))),
            _ => due,
        };
        if inner.spin_ns > 0 {
            let now = self.fresh_now();
            let light = now.saturating_sub(inner.now.get()) < LIGHT_TURN_NS;
            if light && self.spin(now, end) {
                return false;
            }
        }
        // The one place where a second reading of the clock pays: a sleep follows.
        let limit = match end.map(|end| end.saturating_sub(self.fresh_now())) {
            Some(0) => {
                self.gather(Wait::Peek);
                return false;
            }
            limit => limit,
        };
        if !inner.remote.park() {
            self.gather(Wait::Peek);
            return false;
        }
        self.gather(Wait::Park(limit));
        true
    }

    /// Looks for work for at most `spin_ns`; true when there is some.
    fn spin(&self, now: u64, end: Option<u64>) -> bool {
        let inner = &*self.inner;
        let stop = now.saturating_add(inner.spin_ns);
        let stop = end.map_or(stop, |e| e.min(stop));
        loop {
            self.gather(Wait::Peek);
            if !inner.kernel.borrow().reaped.is_empty() || inner.remote.is_notified() {
                return true;
            }
            if self.fresh_now() >= stop {
                return end == Some(stop);
            }
            std::hint::spin_loop();
        }
    }

    fn gather(&self, wait: Wait) {
        let mut kernel = self.inner.kernel.borrow_mut();
        let Kernel { slots, port, reaped } = &mut *kernel;
        port.gather(slots, wait, reaped);
    }

    /// Continues partial operations, and frees or reports those that ended.
    fn settle(&self, scratch: &mut Scratch) {
        let mut kernel = self.inner.kernel.borrow_mut();
        let Kernel { slots, port, reaped } = &mut *kernel;
        for (id, result) in reaped.drain(..) {
            let Some(slot) = slots.get(id) else { continue };
            if let Settled::Again = slot.settle(result) {
                Port::start(port, slots, id);
                continue;
            }
            let OpState::Done(result) = slot.state else {
                continue;
            };
            match &mut slot.end {
                End::NoReceiver => slots.free(id),
                End::Token(token) => {
                    scratch.completions.push((*token, to_result(result)));
                    slots.free(id);
                }
                // The memory is ours again; the slot waits for the future to fetch the result.
                End::Future(waker) => {
                    slot.loans.clear();
                    scratch.wakes.extend(waker.take());
                }
            }
        }
    }

    fn fire(&self, scratch: &mut Scratch) {
        let mut timers = self.inner.timers.borrow_mut();
        let now = self.inner.now.get();
        for _ in 0..TIMERS_PER_TURN {
            match timers.pop_due(now) {
                Some(Alarm::Token(token)) => scratch.completions.push((token, Ok(0))),
                Some(Alarm::Wake(waker)) => scratch.wakes.push(waker),
                None => break,
            }
        }
    }
}
