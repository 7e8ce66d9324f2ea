//! Rate-limited log lines about peers.
//!
//! A port scan or an initiator that retries for ever causes the same line again and again. Such a
//! line is logged once a minute for each peer, with the number of repetitions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use reactor::Address;

/// Lines about misbehaviour in one watch period; further ones are counted.
const LINES_MAX: u32 = 20;

/// Watch periods in which a line about a peer is logged once.
const QUIET_PERIODS: u64 = 60;

/// Lines that are remembered; further ones are limited by [`LINES_MAX`] alone.
const REMEMBERED_MAX: usize = 1024;

/// Writes a line to the log of a protocol.
pub type LogFn = fn(fmt::Arguments<'_>);

/// A line that was logged.
struct Logged {
    /// The watch period in which it is forgotten.
    until: u64,
    /// Repetitions since.
    more: u64,
    is_trouble: bool,
}

/// The peer that a line is about.
pub struct LogSubject<'a> {
    /// Its address.
    pub peer: &'a Address,
    /// Its name in the protocol; empty while that is not known.
    pub name: &'a str,
}

/// The log of one core.
pub struct PeerLog {
    warn: LogFn,
    info: LogFn,
    lines: Cell<u32>,
    suppressed: Cell<u64>,
    periods: Cell<u64>,
    /// By the peer's host and the line without the peer's port.
    logged: RefCell<BTreeMap<(String, String), Logged>>,
}

impl PeerLog {
    /// Empty. `warn` is for misbehaviour, `info` for the rest.
    pub fn new(warn: LogFn, info: LogFn) -> PeerLog {
        PeerLog {
            warn,
            info,
            lines: Cell::new(0),
            suppressed: Cell::new(0),
            periods: Cell::new(0),
            logged: RefCell::default(),
        }
    }

    /// Logs a warning that is not about one peer, or counts it.
    pub fn warn(&self, what: fmt::Arguments<'_>) {
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            (self.warn)(what);
        } else {
            self.suppressed.set(self.suppressed.get() + 1);
        }
    }

    /// Logs a warning that the caller does not repeat.
    pub fn warn_once(&self, what: fmt::Arguments<'_>) {
        (self.warn)(what);
    }

    /// Logs the misbehaviour of a peer.
    pub fn warn_about(&self, about: LogSubject<'_>, what: fmt::Arguments<'_>) {
        self.log_line(&about, what, true);
    }

    /// Logs an orderly event of a peer.
    pub fn info_about(&self, about: LogSubject<'_>, what: fmt::Arguments<'_>) {
        self.log_line(&about, what, false);
    }

    fn log_line(&self, about: &LogSubject<'_>, what: fmt::Arguments<'_>, is_trouble: bool) {
        let text = match about.name {
            "" => what.to_string(),
            name => format!("{name}: {what}"),
        };
        let key = (host(about.peer), text);
        let mut logged = self.logged.borrow_mut();
        if let Some(line) = logged.get_mut(&key) {
            line.more += 1;
            return;
        }
        if logged.len() < REMEMBERED_MAX {
            let until = self.periods.get() + QUIET_PERIODS;
            logged.insert(key, Logged { until, more: 0, is_trouble });
        }
        drop(logged);
        let peer = about.peer;
        match (is_trouble, about.name) {
            (true, "") => self.warn(format_args!("{peer}: {what}")),
            (true, name) => self.warn(format_args!("{name} ({peer}): {what}")),
            (false, "") => (self.info)(format_args!("{peer}: {what}")),
            (false, name) => (self.info)(format_args!("{name} ({peer}): {what}")),
        }
    }

    /// Ends a watch period.
    pub fn end_period(&self) {
        self.lines.set(0);
        let suppressed = self.suppressed.take();
        if suppressed > 0 {
            (self.warn)(format_args!("{suppressed} more lines about bad connections left out"));
        }
        let now = self.periods.get() + 1;
        self.periods.set(now);
        self.logged.borrow_mut().retain(|(host, text), line| {
            if line.until > now {
                return true;
            }
            let log = if line.is_trouble { self.warn } else { self.info };
            let more = std::mem::take(&mut line.more);
            if more > 0 {
                log(format_args!("{host}: {more} more times in a minute: {text}"));
            }
            // While it is repeated, this form is logged once a minute.
            line.until = now + QUIET_PERIODS;
            more > 0
        });
    }
}

/// A peer without its port, which is another with each connection.
fn host(peer: &Address) -> String {
    match peer {
        Address::Inet(at) => at.ip().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bio::sync::Mutex;

    use super::*;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn keep(what: fmt::Arguments<'_>) {
        LINES.lock().push(what.to_string());
    }

    fn lines() -> Vec<String> {
        std::mem::take(&mut *LINES.lock())
    }

    #[test]
    fn flood_of_a_peer_is_one_line_a_minute_with_a_count() {
        let log = PeerLog::new(keep, keep);
        let peer = |port: u16| Address::Inet(([10, 0, 0, 7], port).into());
        let probe = |port: u16| {
            let about = LogSubject { peer: &peer(port), name: "" };
            log.warn_about(about, format_args!("no PDU"));
        };
        (1..=500).for_each(probe);
        let other = Address::Inet(([10, 0, 0, 8], 1).into());
        log.info_about(LogSubject { peer: &other, name: "iqn.a" }, format_args!("logged in"));
        assert_eq!(lines(), ["10.0.0.7:1: no PDU", "iqn.a (10.0.0.8:1): logged in"]);
        (1..QUIET_PERIODS).for_each(|_| log.end_period());
        assert!(lines().is_empty());
        log.end_period();
        assert_eq!(lines(), ["10.0.0.7: 499 more times in a minute: no PDU"]);
        // The probes continue.
        probe(9);
        assert!(lines().is_empty());
        (0..QUIET_PERIODS).for_each(|_| log.end_period());
        assert_eq!(lines(), ["10.0.0.7: 1 more times in a minute: no PDU"]);
        (0..QUIET_PERIODS).for_each(|_| log.end_period());
        probe(10);
        assert_eq!(
            lines(),
            ["10.0.0.7:10: no PDU"],
            "after a quiet minute a line is logged at once"
        );
    }

    #[test]
    fn remembered_lines_are_bounded() {
        let log = PeerLog::new(keep_nothing, keep_nothing);
        let peer = Address::Inet(([10, 0, 0, 9], 1).into());
        for i in 0..2 * REMEMBERED_MAX {
            log.warn_about(LogSubject { peer: &peer, name: "" }, format_args!("tag {i}"));
        }
        assert_eq!(log.logged.borrow().len(), REMEMBERED_MAX);
        assert!(log.suppressed.get() > REMEMBERED_MAX as u64);
    }

    fn keep_nothing(_: fmt::Arguments<'_>) {}
}
