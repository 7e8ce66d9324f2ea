//! Mirrors and arrays that wait for members, and for each other.
//!
//! The member of a mirror or array can be another one that waits for its own members and has no
//! provider until its timeout ends. Meanwhile the upper one must not start without it, with an
//! older member. It is not yet known which of two is the upper one: their records give only their
//! sizes and the members found so far. The classes share one list.
//!
//! Invariants
//!  W1  A geom whose time is up continues to wait while another one waits that may be below it. It
//!      also waits for a while after that one has started.
//!  W2  Of two geoms at most one may be below the other: there is always one that starts first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bio::sync::{Mutex, MutexGuard};
use geom::{ConsumerId, GeomId, Topology};

/// The order of two entries: the depth of the stack below, as far as it was found, and bytes. A
/// geom that is above another is higher or, as long as that is unknown, smaller.
type WaitOrder = (usize, Reverse<u64>);

struct Entry {
    order: WaitOrder,
    /// One that may be below it has started since its last check.
    below_started: bool,
}

/// See the module.
pub struct Waiting<K = GeomId>(Mutex<BTreeMap<K, Entry>>);

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Waiting(Mutex::default())
    }
}

impl<K: Ord> Waiting<K> {
    fn all(&self) -> MutexGuard<'_, BTreeMap<K, Entry>> {
        self.0.lock()
    }

    /// One waits, or something more was found of it.
    pub(crate) fn add(&self, geom: K, depth: usize, media_bytes: u64) {
        let place = (depth, Reverse(media_bytes));
        let new = Entry { order: place, below_started: false };
        self.all().entry(geom).or_insert(new).order = place;
    }

    /// Ends the wait of a geom: it starts, or it was removed.
    pub(crate) fn remove(&self, geom: K) {
        let mut all = self.all();
        let Some(gone) = all.remove(&geom) else { return };
        all.values_mut().for_each(|other| other.below_started |= gone.order < other.order);
    }

    /// Whether this one, whose time is up, waits on (W1).
    pub(crate) fn must_wait(&self, geom: K) -> bool {
        let mut all = self.all();
        let Some(own) = all.get_mut(&geom) else { return false };
        let (place, news) = (own.order, std::mem::take(&mut own.below_started));
        news || all.values().any(|other| other.order < place)
    }
}

/// Depth of the stack of geoms below these consumers.
pub(crate) fn depth(t: &Topology, consumers: impl Iterator<Item = ConsumerId>) -> usize {
    let mut level: Vec<ConsumerId> = consumers.collect();
    let mut depth = 0;
    // There are no cycles, and stacks have a limit.
    while !level.is_empty() {
        depth += 1;
        let geoms = level.iter().filter_map(|c| t.geom_of(t.below(*c)?));
        level = geoms.flat_map(|g| t.consumers_of(g).to_vec()).collect();
        level.sort_unstable();
        level.dedup();
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn w2_one_of_two_waiting_geoms_starts_first_and_equal_ones_both() {
        let (a, b, c) = ('a', 'b', 'c');
        let waiting: Waiting<char> = Waiting::default();
        waiting.add(a, 1, 1000);
        assert!(!waiting.must_wait(a), "alone");
        waiting.add(b, 1, 999);
        waiting.add(c, 2, 5000);
        assert!(!waiting.must_wait(a));
        assert!(waiting.must_wait(b), "it is smaller: it may stand on the other");
        assert!(waiting.must_wait(c), "it stands on something");
        waiting.remove(a);
        assert!(waiting.must_wait(b), "what has just started is looked at first");
        assert!(!waiting.must_wait(b));
        waiting.add(c, 1, 999);
        assert!(waiting.must_wait(c), "it has not heard of that one yet");
        assert!(!waiting.must_wait(b) && !waiting.must_wait(c), "alike: neither is on the other");
    }
}
