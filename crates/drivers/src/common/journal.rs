//! Lines of the journal about bad peers, not too many.

use std::cell::Cell;
use std::fmt;

/// Lines about misbehaviour in one watch period; further ones are counted.
const LINES_MAX: u32 = 20;

/// Where the lines of a protocol go.
pub(crate) type Say = fn(fmt::Arguments<'_>);

/// What one core may still say in this watch period.
pub(crate) struct Journal {
    say: Say,
    lines: Cell<u32>,
    unsaid: Cell<u64>,
}

impl Journal {
    /// Nothing said yet.
    pub fn new(say: Say) -> Journal {
        Journal { say, lines: Cell::new(0), unsaid: Cell::new(0) }
    }

    /// Says something about a bad peer, or counts it: a flood of bad requests is no flood of lines.
    pub fn complain(&self, what: fmt::Arguments<'_>) {
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            (self.say)(what);
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
    }

    /// Says something that is not a peer's doing and is said once.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        (self.say)(what);
    }

    /// A watch period is over.
    pub fn turn(&self) {
        self.lines.set(0);
        let unsaid = self.unsaid.take();
        if unsaid > 0 {
            (self.say)(format_args!("{unsaid} more lines about bad connections left out"));
        }
    }
}
