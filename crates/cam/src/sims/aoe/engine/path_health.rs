//! Unusable paths to disks, for people.

use wire::aoe::{Address, Mac};

use super::{Engine, Wire};

/// A way to a disk that does not answer, or whose interface is down.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::sims::aoe) struct UnusablePath {
    pub address: Address,
    /// Index of the interface.
    pub link: usize,
    /// The target's address there.
    pub mac: Mac,
    /// No other way is good.
    pub is_last: bool,
}

impl Engine {
    /// As far as this core has found out.
    pub(in crate::sims::aoe) fn unusable_paths(&self, wire: &dyn Wire) -> Vec<UnusablePath> {
        let mut all = Vec::new();
        for t in self.targets.iter().filter(|t| self.rules.uses(t.address)) {
            let (good, ill): (Vec<_>, Vec<_>) = t
                .paths
                .iter()
                .filter(|path| path.is_same)
                .partition(|path| path.is_up && wire.sectors(path.link) > 0);
            let (address, is_last) = (t.address, good.is_empty());
            let ill = ill.into_iter();
            all.extend(ill.map(|p| UnusablePath { address, link: p.link, mac: p.mac, is_last }));
        }
        all
    }
}
