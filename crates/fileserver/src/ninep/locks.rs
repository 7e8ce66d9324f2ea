//! Files that one fid at a time may have open (DMEXCL).
//!
//! Invariants
//!  X1  A file has one owner at a time.
//!  X2  An owner that uses its file, or cannot for a dump is being taken, keeps it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use reactor::Reactor;

/// A lock that was not used so long may be taken over, ns.
pub const EXPIRE_NS: u64 = 300_000_000_000;
/// Files locked at once.
const LOCKS_MAX: usize = 10_000;

#[derive(Clone, Copy)]
struct Lock {
    owner: (u64, u32),
    used_ns: u64,
}

/// The clock that measures disuse: it is stopped while a dump is being taken.
#[derive(Clone, Copy, Default)]
struct Clock {
    /// Dumps being taken, and when the first of them began.
    dumps: u32,
    since_ns: u64,
    /// How long those before took.
    paused_ns: u64,
}

impl Clock {
    fn at(self, now: u64) -> u64 {
        let now = if self.dumps > 0 { self.since_ns } else { now };
        now.saturating_sub(self.paused_ns)
    }
}

/// See the module. Owners are connections and fids.
#[derive(Default)]
pub struct Locks {
    held: RefCell<HashMap<u64, Lock>>,
    clock: Cell<Clock>,
}

/// While it lives a dump is being taken.
pub struct ClockPause<'a> {
    locks: &'a Locks,
    reactor: &'a Reactor,
}

impl Drop for ClockPause<'_> {
    fn drop(&mut self) {
        let mut clock = self.locks.clock.get();
        clock.dumps -= 1;
        if clock.dumps == 0 {
            clock.paused_ns += self.reactor.now().saturating_sub(clock.since_ns);
        }
        self.locks.clock.set(clock);
    }
}

impl Locks {
    /// Disuse does not count until the guard is dropped (X2).
    pub fn pause_clock<'a>(&'a self, reactor: &'a Reactor) -> ClockPause<'a> {
        let mut clock = self.clock.get();
        if clock.dumps == 0 {
            clock.since_ns = reactor.now();
        }
        clock.dumps += 1;
        self.clock.set(clock);
        ClockPause { locks: self, reactor }
    }

    /// Takes a lock; false when another has it.
    pub fn take(&self, ino: u64, owner: (u64, u32), now: u64) -> bool {
        let mut locks = self.held.borrow_mut();
        let used_ns = self.clock.get().at(now);
        let free = locks.get(&ino).is_none_or(|l| used_ns.saturating_sub(l.used_ns) >= EXPIRE_NS);
        if free && (locks.len() < LOCKS_MAX || locks.contains_key(&ino)) {
            locks.insert(ino, Lock { owner, used_ns });
            return true;
        }
        false
    }

    /// Uses a lock; false when another took it over meanwhile.
    pub fn touch(&self, ino: u64, owner: (u64, u32), now: u64) -> bool {
        match self.held.borrow_mut().get_mut(&ino) {
            Some(l) if l.owner == owner => {
                l.used_ns = self.clock.get().at(now);
                true
            }
            _ => false,
        }
    }

    /// Gives it back.
    pub fn release(&self, ino: u64, owner: (u64, u32)) {
        let mut locks = self.held.borrow_mut();
        if locks.get(&ino).is_some_and(|l| l.owner == owner) {
            locks.remove(&ino);
        }
    }
}
