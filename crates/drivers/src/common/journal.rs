//! Lines of the journal about peers, not too many.
//!
//! A port that is probed and an initiator that tries for ever say the same again and again: such a
//! line is said once a minute for each peer, with the number of times that it was not.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use reactor::Address;

/// Lines about misbehaviour in one watch period; further ones are counted.
const LINES_MAX: u32 = 20;

/// Watch periods in which a line about a peer is said once.
const QUIET_TURNS: u64 = 60;

/// Lines that are remembered; of further ones the bound of the watch period holds alone.
const REMEMBERED_MAX: usize = 1024;

/// Where the lines of a protocol go.
pub(crate) type Say = fn(fmt::Arguments<'_>);

/// A line that was said.
struct Said {
    /// It is forgotten in this watch period.
    until: u64,
    /// How often it was to be said since.
    more: u64,
    is_trouble: bool,
}

/// Whom a line is about.
pub(crate) struct About<'a> {
    /// Where the connection comes from.
    pub peer: &'a Address,
    /// What the peer is called; empty while that is not known.
    pub name: &'a str,
}

/// What one core may still say.
pub(crate) struct Journal {
    warn: Say,
    tell: Say,
    lines: Cell<u32>,
    unsaid: Cell<u64>,
    turns: Cell<u64>,
    /// By the peer's host and the line without the peer's port.
    said: RefCell<BTreeMap<(String, String), Said>>,
}

impl Journal {
    /// Nothing said yet. `warn` is for trouble, `tell` for the rest.
    pub fn new(warn: Say, tell: Say) -> Journal {
        Journal {
            warn,
            tell,
            lines: Cell::new(0),
            unsaid: Cell::new(0),
            turns: Cell::new(0),
            said: RefCell::default(),
        }
    }

    /// Says what is no single peer's doing, or counts it.
    pub fn complain(&self, what: fmt::Arguments<'_>) {
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            (self.warn)(what);
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
    }

    /// Says something that is not a peer's doing and is said once.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        (self.warn)(what);
    }

    /// Trouble with a peer.
    pub fn trouble(&self, about: About<'_>, what: fmt::Arguments<'_>) {
        self.line(&about, what, true);
    }

    /// What a peer does in good order.
    pub fn tell(&self, about: About<'_>, what: fmt::Arguments<'_>) {
        self.line(&about, what, false);
    }

    fn line(&self, about: &About<'_>, what: fmt::Arguments<'_>, is_trouble: bool) {
        let text = match about.name {
            "" => what.to_string(),
            name => format!("{name}: {what}"),
        };
        let key = (host(about.peer), text);
        let mut said = self.said.borrow_mut();
        if let Some(said) = said.get_mut(&key) {
            said.more += 1;
            return;
        }
        if said.len() < REMEMBERED_MAX {
            let until = self.turns.get() + QUIET_TURNS;
            said.insert(key, Said { until, more: 0, is_trouble });
        }
        drop(said);
        let peer = about.peer;
        match (is_trouble, about.name) {
            (true, "") => self.complain(format_args!("{peer}: {what}")),
            (true, name) => self.complain(format_args!("{name} ({peer}): {what}")),
            (false, "") => (self.tell)(format_args!("{peer}: {what}")),
            (false, name) => (self.tell)(format_args!("{name} ({peer}): {what}")),
        }
    }

    /// A watch period is over.
    pub fn turn(&self) {
        self.lines.set(0);
        let unsaid = self.unsaid.take();
        if unsaid > 0 {
            (self.warn)(format_args!("{unsaid} more lines about bad connections left out"));
        }
        let now = self.turns.get() + 1;
        self.turns.set(now);
        self.said.borrow_mut().retain(|(host, text), said| {
            if said.until > now {
                return true;
            }
            let say = if said.is_trouble { self.warn } else { self.tell };
            let more = std::mem::take(&mut said.more);
            if more > 0 {
                say(format_args!("{host}: {more} more times in a minute: {text}"));
            }
            // While it goes on it is said once a minute, in this form.
            said.until = now + QUIET_TURNS;
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
    fn a_flood_of_a_peer_is_one_line_a_minute_with_a_count() {
        let journal = Journal::new(keep, keep);
        let peer = |port: u16| Address::Inet(([10, 0, 0, 7], port).into());
        let probe = |port: u16| {
            let about = About { peer: &peer(port), name: "" };
            journal.trouble(about, format_args!("no PDU"));
        };
        (1..=500).for_each(probe);
        let other = Address::Inet(([10, 0, 0, 8], 1).into());
        journal.tell(About { peer: &other, name: "iqn.a" }, format_args!("logged in"));
        assert_eq!(lines(), ["10.0.0.7:1: no PDU", "iqn.a (10.0.0.8:1): logged in"]);
        (1..QUIET_TURNS).for_each(|_| journal.turn());
        assert!(lines().is_empty());
        journal.turn();
        assert_eq!(lines(), ["10.0.0.7: 499 more times in a minute: no PDU"]);
        // It goes on.
        probe(9);
        assert!(lines().is_empty());
        (0..QUIET_TURNS).for_each(|_| journal.turn());
        assert_eq!(lines(), ["10.0.0.7: 1 more times in a minute: no PDU"]);
        (0..QUIET_TURNS).for_each(|_| journal.turn());
        probe(10);
        assert_eq!(lines(), ["10.0.0.7:10: no PDU"], "after a quiet minute it is said at once");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let journal = Journal::new(keep_nothing, keep_nothing);
        let peer = Address::Inet(([10, 0, 0, 9], 1).into());
        for i in 0..2 * REMEMBERED_MAX {
            journal.trouble(About { peer: &peer, name: "" }, format_args!("tag {i}"));
        }
        assert_eq!(journal.said.borrow().len(), REMEMBERED_MAX);
        assert!(journal.unsaid.get() > REMEMBERED_MAX as u64);
    }

    fn keep_nothing(_: fmt::Arguments<'_>) {}
}
