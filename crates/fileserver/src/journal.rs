//! Log lines about clients that are turned away: each names the peer, and their number is limited.

use std::cell::{Cell, RefCell};
use std::fmt;

/// Lines between two turns; further ones are counted.
const LINES_MAX: u32 = 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Journal {
    /// Name of the file server.
    name: String,
    lines: Cell<u32>,
    unsaid: Cell<u64>,
    last: RefCell<Option<String>>,
}

impl Journal {
    pub fn new(name: &str) -> Journal {
        Journal { name: name.to_owned(), ..Journal::default() }
    }

    /// Logs that a client was turned away, or counts it.
    pub fn turned_away(&self, peer: &str, why: fmt::Arguments<'_>) {
        let text = format!("{peer}: {why}");
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            tracing::warn!(target: "fs", "{}: {text}", self.name);
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
        self.last.replace(Some(text));
    }

    /// The last of them since this was asked before.
    pub fn take_last(&self) -> Option<String> {
        self.last.take()
    }

    /// Once a second: lines may be written again.
    pub fn turn(&self) {
        self.lines.set(0);
        let unsaid = self.unsaid.take();
        if unsaid > 0 {
            tracing::warn!(target: "fs", "{}: {unsaid} more clients were turned away", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_over_the_limit_are_only_counted() {
        let journal = Journal::new("main");
        for i in 0..LINES_MAX + 5 {
            journal.turned_away("10.0.0.1", format_args!("number {i}"));
        }
        assert_eq!(journal.unsaid.get(), 5);
        assert_eq!(journal.take_last().as_deref(), Some("10.0.0.1: number 24"));
        journal.turn();
        assert_eq!((journal.unsaid.get(), journal.take_last()), (0, None));
    }
}
