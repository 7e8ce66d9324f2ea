//! Freezes of a queue, counted.
//!
//! Invariants
//!  Z1  Each freeze is released exactly once: it is a value that cannot be copied, made by the
//!      count that takes it back.
//!  Z2  The queue runs when none is out.

/// One freeze of one queue. Its holder returns it to [`Freezes::release`].
#[derive(Debug)]
#[must_use = "a freeze that is dropped is never released"]
pub struct Freeze(());

/// The freezes of one queue.
#[derive(Default, Debug)]
pub struct Freezes {
    issued: u64,
    released: u64,
}

impl Freezes {
    /// One more.
    pub fn freeze(&mut self) -> Freeze {
        self.issued += 1;
        Freeze(())
    }

    /// Takes one back.
    pub fn release(&mut self, freeze: Freeze) {
        let Freeze(()) = freeze;
        debug_assert!(self.released < self.issued, "Z1: the freeze of another queue");
        self.released += 1;
    }

    /// True while any is out.
    pub fn is_frozen(&self) -> bool {
        self.issued != self.released
    }

    /// Issued and released so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.issued, self.released)
    }
}
