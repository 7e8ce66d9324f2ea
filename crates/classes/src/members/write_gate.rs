//! Write gate: writes pass while it is open and wait while it is shut. The geom that shut it is
//! notified when the last write that had passed has ended.
//!
//! A mirror shuts it until every member is marked dirty, and again before the marks are taken
//! away. A rebuild shuts it for the moment in which writes begin to mind the copied ranges.
//!
//! ```text
//!            open()                                shut()
//!   SHUT ------------> OPEN            OPEN ---------------------> DRAINING
//!    ^                                                                |
//!    +------------ the last write inside has left: GateWord::Drained -+
//! ```
//!
//! Invariants
//!  G1  A write is inside (between an `enter` that answered [`GateEntry::Pass`] and its `leave`)
//!      only if the gate was open at some moment after the `enter` began.
//!  G2  `Drained` is sent once per `shut`, and no write is inside then.
//!  G3  Every write that was answered [`GateEntry::Wait`] is restarted by the next `open` after it
//!      waits.
//!  G4  While the gate is shut and a write waits, `WriteWaiting` has been sent once since the
//!      `shut`.
//!  G5  No write waits at a gate whose geom was removed.
//!
//! G1 and G2 hold because a write first counts itself and then looks at the phase, and a shut
//! first sets the phase and then reads the counts, all of it sequentially consistent. At least one
//! of the two sees the other. Each core counts on a cache line of its own; a write costs two
//! additions there and no lock.

use bio::Ticket;

use super::sync::{AtomicU8, AtomicU32, Mutex, MutexGuard, SeqCst};

const OPEN: u8 = 0;
const SHUT: u8 = 1;
/// Shut for ever: an arriving write is restarted at once, and finds that its geom is going.
const GONE: u8 = 2;

/// A message of the gate to its geom; see [`WriteGate::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GateNotice {
    /// A write waits, the first since the gate was shut.
    WriteWaiting,
    /// No write is inside, the gate having been shut.
    Drained,
}

/// The answer to a write that arrives at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GateEntry {
    /// Continue; call [`WriteGate::leave`] when it has ended.
    Pass,
    /// Answer `Flow::Wait`: the ticket is used when the gate opens. Then enter again.
    Wait,
}

/// Writes inside, of one core; on a cache line (and its neighbour) of its own.
#[repr(align(128))]
#[derive(Default)]
struct CoreSlot(AtomicU32);

#[derive(Default)]
struct GateQueue {
    waiting: Vec<(usize, Ticket)>,
    notified: bool,
    /// A shut that has not been answered by `Drained`.
    draining: bool,
}

/// See the module.
pub(crate) struct WriteGate {
    phase: AtomicU8,
    core_slots: Box<[CoreSlot]>,
    queue: Mutex<GateQueue>,
    notify: Box<dyn Fn(GateNotice) + Send + Sync>,
    restart: Box<dyn Fn(usize, Ticket) + Send + Sync>,
}

impl WriteGate {
    /// A gate that is shut, with no write inside, for `cores` cores. `tell` sends a message to the
    /// geom, and `restart` wakes a Bio on its core. Neither may call back into the gate.
    pub(crate) fn new(
        cores: usize,
        notify: impl Fn(GateNotice) + Send + Sync + 'static,
        restart: impl Fn(usize, Ticket) + Send + Sync + 'static,
    ) -> WriteGate {
        WriteGate {
            phase: AtomicU8::new(SHUT),
            core_slots: (0..cores.max(1)).map(|_| CoreSlot::default()).collect(),
            queue: Mutex::default(),
            notify: Box::new(notify),
            restart: Box::new(restart),
        }
    }

    fn queue(&self) -> MutexGuard<'_, GateQueue> {
        self.queue.lock()
    }

    fn core_counter(&self, core: usize) -> &AtomicU32 {
        // A core with a higher number shares a slot: only the sum of the slots matters.
        &self.core_slots.get(core).unwrap_or(&self.core_slots[0]).0
    }

    /// A write on `core` wants to pass; `ticket` is made only if it has to wait.
    #[inline]
    pub(crate) fn enter(&self, core: usize, ticket: impl FnOnce() -> Ticket) -> GateEntry {
        self.core_counter(core).fetch_add(1, SeqCst);
        if self.phase.load(SeqCst) == OPEN {
            return GateEntry::Pass;
        }
        self.enqueue(core, ticket)
    }

    #[cold]
    fn enqueue(&self, core: usize, ticket: impl FnOnce() -> Ticket) -> GateEntry {
        let knock = {
            let mut queue = self.queue();
            // The phase changes only under this lock.
            if self.phase.load(SeqCst) == OPEN {
                return GateEntry::Pass;
            }
            let ticket = ticket();
            if self.phase.load(SeqCst) == GONE {
                // G5
                drop(queue);
                self.leave(core);
                (self.restart)(core, ticket);
                return GateEntry::Wait;
            }
            queue.waiting.push((core, ticket));
            !std::mem::replace(&mut queue.notified, true)
        };
        self.leave(core);
        if knock {
            (self.notify)(GateNotice::WriteWaiting);
        }
        GateEntry::Wait
    }

    /// A write that had passed has ended.
    #[inline]
    pub(crate) fn leave(&self, core: usize) {
        self.core_counter(core).fetch_sub(1, SeqCst);
        if self.phase.load(SeqCst) == SHUT {
            self.notify_drained();
        }
    }

    fn is_empty(&self) -> bool {
        self.core_slots.iter().all(|core_slot| core_slot.0.load(SeqCst) == 0)
    }

    #[cold]
    fn notify_drained(&self) {
        let is_drained = {
            let mut queue = self.queue();
            let now = queue.draining && self.phase.load(SeqCst) == SHUT && self.is_empty();
            queue.draining &= !now;
            now
        };
        if is_drained {
            (self.notify)(GateNotice::Drained);
        }
    }

    /// No write passes from now on. `Drained` is sent when none is inside, perhaps at once. It is
    /// not sent again for a gate that is already shut and empty.
    pub(crate) fn shut(&self) {
        {
            let mut queue = self.queue();
            if self.phase.load(SeqCst) != OPEN {
                return;
            }
            self.phase.store(SHUT, SeqCst);
            queue.notified = false;
            queue.draining = true;
        }
        self.notify_drained();
    }

    /// Writes pass again, those that wait first.
    pub(crate) fn open(&self) {
        let waiting = {
            let mut queue = self.queue();
            if self.phase.load(SeqCst) == GONE {
                return;
            }
            self.phase.store(OPEN, SeqCst);
            queue.draining = false;
            queue.notified = false;
            std::mem::take(&mut queue.waiting)
        };
        for (core, ticket) in waiting {
            (self.restart)(core, ticket);
        }
    }

    /// True while writes pass.
    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(SeqCst) == OPEN
    }

    /// Writes inside now, of all cores; exact only while the gate is shut.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> u32 {
        self.core_slots.iter().map(|core_slot| core_slot.0.load(SeqCst)).sum()
    }

    /// Takes out the requests that wait at a gate that will not open again because its geom is
    /// removed. Later requests are restarted at once (G5).
    pub(crate) fn close(&self) -> Vec<(usize, Ticket)> {
        let mut queue = self.queue();
        self.phase.store(GONE, SeqCst);
        queue.draining = false;
        std::mem::take(&mut queue.waiting)
    }

    /// Restarts all waiting writes, so that they check the state of their geom. The next one to
    /// arrive sends `WriteWaiting`.
    pub(crate) fn restart_waiting(&self) {
        let waiting = {
            let mut queue = self.queue();
            queue.notified = false;
            std::mem::take(&mut queue.waiting)
        };
        for (core, ticket) in waiting {
            (self.restart)(core, ticket);
        }
    }
}
