//! Log lines about clients that are turned away: each names the peer, and their number is limited.
//! One line a minute is logged about each peer, with the texts and the number of further ones.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;

use transport::RepeatedLines;

/// Lines between two turns; further ones are counted.
const LINES_MAX: u32 = 20;

/// See the module.
pub(crate) struct RefusalLog {
    /// Name of the file server.
    name: String,
    lines: Cell<u32>,
    suppressed: Cell<u64>,
    repeated: RepeatedLines,
    last: RefCell<Option<String>>,
}

impl RefusalLog {
    pub fn new(name: &str) -> RefusalLog {
        RefusalLog {
            name: name.to_owned(),
            lines: Cell::new(0),
            suppressed: Cell::new(0),
            repeated: RepeatedLines::default(),
            last: RefCell::new(None),
        }
    }

    /// Logs that a client was turned away, or counts it.
    pub fn log_refused(&self, peer: &str, why: fmt::Arguments<'_>) {
        let text = format!("{peer}: {why}");
        let host = host(peer);
        if self.repeated.admit(host.clone(), why.to_string(), true) {
            let lines = self.lines.get();
            self.lines.set(lines.saturating_add(1));
            if lines < LINES_MAX {
                self.log_line(&host, format_args!("{text}"));
            } else {
                self.suppressed.set(self.suppressed.get() + 1);
            }
        }
        self.last.replace(Some(text));
    }

    /// The last of them since the last call.
    pub fn take_last(&self) -> Option<String> {
        self.last.take()
    }

    /// Once a second: lines may be written again.
    pub fn reset_limit(&self, now_ns: u64) {
        self.lines.set(0);
        let unsaid = self.suppressed.take();
        if unsaid > 0 {
            tracing::warn!(target: "fs", "{}: {unsaid} more clients rejected", self.name);
        }
        self.repeated.expire(now_ns, |host, _, line| self.log_line(host, line));
    }

    fn log_line(&self, host: &str, line: fmt::Arguments<'_>) {
        let name = self.name.as_str();
        tracing::warn!(target: "fs", object = name, kind = "peer", peer = host, "{name}: {line}");
    }
}

/// A stop loses no collected lines.
impl Drop for RefusalLog {
    fn drop(&mut self) {
        self.repeated.flush(|host, _, line| self.log_line(host, line));
    }
}

/// A peer without its port, which is another with each connection.
fn host(peer: &str) -> String {
    let inet = peer.parse::<SocketAddr>();
    inet.map_or_else(|_| peer.to_owned(), |at| at.ip().to_canonical().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_over_the_limit_are_only_counted() {
        let journal = RefusalLog::new("main");
        for i in 0..LINES_MAX + 5 {
            journal.log_refused(&format!("10.0.0.{i}:9"), format_args!("refused"));
        }
        assert_eq!(journal.suppressed.get(), 5);
        assert_eq!(journal.take_last().as_deref(), Some("10.0.0.24:9: refused"));
        journal.reset_limit(1);
        assert_eq!((journal.suppressed.get(), journal.take_last()), (0, None));
    }

    #[test]
    fn flood_of_one_client_is_one_line() {
        let journal = RefusalLog::new("main");
        for port in 1..=500 {
            journal.log_refused(&format!("10.0.0.1:{port}"), format_args!("refused: {port}"));
        }
        assert_eq!((journal.lines.get(), journal.suppressed.get()), (1, 0));
        assert_eq!(journal.take_last().as_deref(), Some("10.0.0.1:500: refused: 500"));
        journal.log_refused("unix:/run/fs", format_args!("refused"));
        assert_eq!(journal.lines.get(), 2, "another peer");
    }
}
