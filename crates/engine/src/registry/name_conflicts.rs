//! Counts of sessions that several hosts with one initiator name take from each other. Each new
//! session of one host ends that of the other, for ever, and both only look slow. The counts make
//! the conflict visible.
//!
//! Invariants
//!  R1  A single move of a session to another address does not count, because a host may have two
//!      paths. Only repeated moves are reported.
//!  R2  An entry without a move for [`QUIET_NS`] is removed.
//!  R3  At most [`CONFLICTS_MAX`] names are remembered, and [`HOSTS_MAX`] addresses of each.

use std::collections::BTreeMap;

/// Names that are remembered; the one that was seen first gives way.
const CONFLICTS_MAX: usize = 256;
/// Addresses of one name that are remembered.
const HOSTS_MAX: usize = 4;
/// Moves from one address to another before they are reported.
const MOVES_MIN: u32 = 3;
/// How long it is remembered, ns.
const QUIET_NS: u64 = 600_000_000_000;

/// A session that several addresses take from each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameConflict {
    pub driver: String,
    pub target: String,
    /// The name that they all give.
    pub initiator: String,
    /// Where they are, in the order of arrival.
    pub hosts: Vec<String>,
    /// How often the session has moved from one of them to another.
    pub moves: u32,
    /// When it did last, ns of the cores' clock.
    pub at_ns: u64,
}

impl NameConflict {
    /// Whether it is worth telling (R1, R2).
    pub fn is_reportable(&self, now: u64) -> bool {
        self.moves >= MOVES_MIN && now.saturating_sub(self.at_ns) < QUIET_NS
    }
}

/// Driver, target, name and port of an initiator: equal keys are one session.
pub(super) type Key = (String, String, String, Vec<u8>);

/// See the module.
#[derive(Default)]
pub(super) struct NameConflicts(BTreeMap<Key, NameConflict>);

impl NameConflicts {
    /// A session from a host has taken the place of its former one.
    pub(super) fn reinstated(&mut self, key: Key, host: String, now: u64) {
        self.0.retain(|_, rivals| now.saturating_sub(rivals.at_ns) < QUIET_NS);
        if self.0.len() >= CONFLICTS_MAX && !self.0.contains_key(&key) {
            let oldest = self.0.iter().min_by_key(|(_, rivals)| rivals.at_ns);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| self.0.remove(&key));
        }
        let (driver, target, initiator, _) = key.clone();
        let new =
            NameConflict { driver, target, initiator, hosts: Vec::new(), moves: 0, at_ns: now };
        let rivals = self.0.entry(key).or_insert(new);
        // The last of them has the session.
        if rivals.hosts.last() == Some(&host) {
            return;
        }
        let is_first = rivals.hosts.is_empty();
        rivals.hosts.retain(|other| *other != host);
        if rivals.hosts.len() >= HOSTS_MAX {
            rivals.hosts.remove(0);
        }
        rivals.hosts.push(host);
        rivals.at_ns = now;
        rivals.moves += u32::from(!is_first);
    }

    /// All that are remembered.
    pub(super) fn all(&self) -> impl Iterator<Item = &NameConflict> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(initiator: &str) -> Key {
        ("iscsi".into(), "iqn.t".into(), initiator.into(), vec![0; 6])
    }

    /// R1, R2.
    #[test]
    fn hosts_that_repeatedly_take_over_one_session_are_reported() {
        let mut conflicts = NameConflicts::default();
        let mut comes = |host: &str, at_ns: u64| {
            conflicts.reinstated(key("iqn.a"), host.to_owned(), at_ns);
            let news = conflicts.all().filter(|rivals| rivals.is_reportable(at_ns));
            news.cloned().collect::<Vec<_>>()
        };
        for at in 0..10 {
            assert_eq!(comes("10.0.0.1", at), [], "a host that logs in again");
        }
        assert_eq!(comes("10.0.0.2", 10), [], "R1: another way of it, perhaps");
        assert_eq!(comes("10.0.0.1", 11), []);
        let found = comes("10.0.0.2", 12);
        assert_eq!(found[0].hosts, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!((found.len(), found[0].moves, found[0].at_ns), (1, 3, 12));
        assert_eq!(comes("10.0.0.2", 13).len(), 1);
        assert_eq!(comes("10.0.0.2", 12 + QUIET_NS), [], "R2");
    }

    #[test]
    fn the_number_of_remembered_names_is_bounded() {
        let mut conflicts = NameConflicts::default();
        for n in 0..2 * CONFLICTS_MAX as u64 {
            conflicts.reinstated(key(&format!("iqn.{n}")), "10.0.0.1".to_owned(), n);
        }
        assert_eq!(conflicts.0.len(), CONFLICTS_MAX);
    }
}
