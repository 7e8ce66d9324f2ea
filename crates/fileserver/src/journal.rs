//! Log lines about clients that are turned away: each names the peer, and their number is limited.

use std::cell::{Cell, RefCell};
use std::fmt;

/// Lines between two turns; further ones are counted.
const LINES_MAX: u32 = 20;

/// See the module.
#[derive(Default)]
pub(crate) struct RefusalLog {
    /// Name of the file server.
    name: String,
    lines: Cell<u32>,
    suppressed: Cell<u64>,
    last: RefCell<Option<String>>,
}

impl RefusalLog {
    pub fn new(name: &str) -> RefusalLog {
        RefusalLog { name: name.to_owned(), ..RefusalLog::default() }
    }

    /// Logs that a client was turned away, or counts it.
    pub fn log_refused(&self, peer: &str, why: fmt::Arguments<'_>) {
        let text = format!("{peer}: {why}");
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            tracing::warn!(target: "fs", "{}: {text}", self.name);
        } else {
            self.suppressed.set(self.suppressed.get() + 1);
        }
        self.last.replace(Some(text));
    }

    /// The last of them since this was asked before.
    pub fn take_last(&self) -> Option<String> {
        self.last.take()
    }

    /// Once a second: lines may be written again.
    pub fn reset_limit(&self) {
        self.lines.set(0);
        let unsaid = self.suppressed.take();
        if unsaid > 0 {
            tracing::warn!(target: "fs", "{}: {unsaid} more clients rejected", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_over_the_limit_are_only_counted() {
        let journal = RefusalLog::new("main");
        for i in 0..LINES_MAX + 5 {
            journal.log_refused("10.0.0.1", format_args!("number {i}"));
        }
        assert_eq!(journal.suppressed.get(), 5);
        assert_eq!(journal.take_last().as_deref(), Some("10.0.0.1: number 24"));
        journal.reset_limit();
        assert_eq!((journal.suppressed.get(), journal.take_last()), (0, None));
    }
}
