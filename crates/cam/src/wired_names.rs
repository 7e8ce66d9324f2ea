//! Disk names that survive a restart. A disk that is referred to by its name elsewhere gets the
//! same name again, in any order of discovery. The daemon knows which references exist and where
//! they are stored.
//!
//! Invariants
//!  K1  A name that is kept for a disk is given to no other disk, whether that disk is present or
//!      not.
//!  K2  Names from the configuration of a bus ([`crate::Names`]) take precedence.
//!  K3  With several paths to one disk, each path gets its own name again. Only a path without a
//!      name takes a name that another path has left.

use std::collections::{BTreeMap, BTreeSet};

use bio::sync::{Mutex, MutexGuard};

/// Holder of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The bus on which it was.
    pub bus: String,
    /// Identity of the disk: [`crate::Facts::identity`].
    pub identity: String,
}

/// See the module.
#[derive(Default)]
pub struct WiredNames {
    holders: Mutex<BTreeMap<String, Holder>>,
    configured: Mutex<BTreeSet<String>>,
}

impl WiredNames {
    fn list(&self) -> MutexGuard<'_, BTreeMap<String, Holder>> {
        self.holders.lock()
    }

    /// Keeps these names and no others, for disks that are found from now on.
    pub fn set(&self, names: BTreeMap<String, Holder>) {
        *self.list() = names;
    }

    /// Sets the names that the configuration calls disks by: their users expect no other disk.
    pub fn set_configured(&self, names: BTreeSet<String>) {
        *self.configured.lock() = names;
    }

    /// Whether the configuration calls a disk by a name.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.lock().contains(name)
    }

    /// The names, and for whom they are kept.
    pub fn all(&self) -> BTreeMap<String, Holder> {
        self.list().clone()
    }

    /// For whom a name is kept.
    pub fn holder(&self, name: &str) -> Option<Holder> {
        self.list().get(name).cloned()
    }

    /// Names kept for a disk, those of its own way first (K3).
    pub(crate) fn names_of(&self, bus: &str, identity: &str) -> Vec<String> {
        let list = self.list();
        let its = list.iter().filter(|(_, holder)| holder.identity == identity);
        let (own, others): (Vec<_>, Vec<_>) = its.partition(|(_, holder)| holder.bus == bus);
        own.into_iter().chain(others).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a name is kept for a disk (K1).
    pub fn has(&self, name: &str) -> bool {
        self.list().contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k3_a_path_prefers_its_own_name_over_names_left_by_others() {
        let holder = |bus: &str| Holder { bus: bus.into(), identity: "disk".into() };
        let kept = WiredNames::default();
        kept.set(BTreeMap::from([("da0".into(), holder("a")), ("da1".into(), holder("b"))]));
        assert_eq!(kept.names_of("a", "disk"), ["da0", "da1"]);
        assert_eq!(kept.names_of("b", "disk"), ["da1", "da0"]);
        assert_eq!(kept.names_of("c", "disk"), ["da0", "da1"]);
        assert!(kept.names_of("a", "other").is_empty());
        assert!(kept.has("da1") && !kept.has("da2"));
        assert_eq!(kept.holder("da1"), Some(holder("b")));
    }
}
