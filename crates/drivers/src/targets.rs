//! Targets of a driver, by name, and the addresses of its portals.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::sync::{Mutex, MutexGuard};
use geom::Error;
use reactor::Address;

use crate::driver::TargetSpec;

/// A target that a driver has checked.
pub(crate) trait Target: Send + Sync + Sized + 'static {
    const DRIVER: &'static str;

    /// JSON Schema of its parameters.
    fn schema() -> serde_json::Value;

    /// Checks a target; an error names the remedy.
    fn check(spec: TargetSpec) -> Result<Self, Error>;

    /// The target as configured.
    fn spec(&self) -> &TargetSpec;

    /// The parameters that differ from `other` although clients use them before they name a target:
    /// targets at one address must agree on them. None when they agree.
    fn conflicting_param(&self, other: &Self) -> Option<&'static str> {
        let _ = other;
        None
    }

    /// Replaces `old`, of which the connections stay.
    fn inherit_from(&mut self, old: &Self) {
        let _ = old;
    }
}

/// Refuses a parameter outside of its range: key, value, least, greatest.
pub(crate) fn check_ranges(ranges: &[(&str, u32, u32, u32)]) -> Result<(), String> {
    match ranges.iter().find(|(_, value, min, max)| !(*min..=*max).contains(value)) {
        Some((key, value, min, max)) => Err(format!("{key} = {value}: it must be {min} to {max}")),
        None => Ok(()),
    }
}

struct TargetsState<T> {
    all: BTreeMap<String, Arc<T>>,
    /// Addresses of open portals: port 0 has become a number.
    portals: BTreeMap<Address, Address>,
}

impl<T: Target> TargetsState<T> {
    /// Whether a target listens at a portal. The first core opens a portal of port 0 as it is
    /// configured, the other cores at the port that the first one got.
    fn listens_at(&self, target: &T, portal: &Address) -> bool {
        let is_portal = |at: &Address| at == portal || self.portals.get(at) == Some(portal);
        target.spec().listen.iter().any(is_portal)
    }
}

/// Targets of a driver, by name. The lock is held for look-ups only.
pub(crate) struct Targets<T>(Mutex<TargetsState<T>>);

impl<T> Default for Targets<T> {
    fn default() -> Targets<T> {
        Targets(Mutex::new(TargetsState { all: BTreeMap::new(), portals: BTreeMap::new() }))
    }
}

impl<T: Target> Targets<T> {
    fn state(&self) -> MutexGuard<'_, TargetsState<T>> {
        self.0.lock()
    }

    /// Makes or replaces a target. Refused when another target at one of its addresses disagrees.
    pub fn set(&self, mut target: T) -> Result<Arc<T>, Error> {
        let mut state = self.state();
        let name = &target.spec().name;
        let at_same = |other: &&Arc<T>| {
            other.spec().name != *name
                && other.spec().listen.iter().any(|at| target.spec().listen.contains(at))
        };
        let disagrees = |other: &Arc<T>| Some((target.conflicting_param(other)?, other.clone()));
        if let Some((what, other)) = state.all.values().filter(at_same).find_map(disagrees) {
            let (driver, other) = (T::DRIVER, &other.spec().name);
            let what = format!(
                "{driver} target {name}: target {other} listens at the same address with other \
                 {what}"
            );
            return Err(Error::inval(what));
        }
        let name = name.clone();
        if let Some(old) = state.all.get(&name) {
            target.inherit_from(old);
        }
        let target = Arc::new(target);
        state.all.insert(name, target.clone());
        Ok(target)
    }

    pub fn remove(&self, name: &str) {
        self.state().all.remove(name);
    }

    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.state().all.get(name).cloned()
    }

    pub fn get_at(&self, portal: &Address, name: &str) -> Option<Arc<T>> {
        let state = self.state();
        state.all.get(name).filter(|t| state.listens_at(t, portal)).cloned()
    }

    /// Every target, by name.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.state().all.values().cloned().collect()
    }

    pub fn at(&self, portal: &Address) -> Vec<Arc<T>> {
        let state = self.state();
        state.all.values().filter(|t| state.listens_at(t, portal)).cloned().collect()
    }

    /// The largest number that a target of a portal has, without a copy of them all.
    pub fn largest_at(&self, portal: &Address, number: impl Fn(&T) -> u32) -> Option<u32> {
        let state = self.state();
        state.all.values().filter(|t| state.listens_at(t, portal)).map(|t| number(t)).max()
    }

    pub fn portal_opened(&self, at: Address, local: Address) {
        self.state().portals.insert(at, local);
    }

    /// A portal is closed, by the address that it was opened with or its real one.
    pub fn portal_closed(&self, at: &Address) {
        self.state().portals.retain(|asked, local| asked != at && local != at);
    }

    /// The real address of a portal that is open.
    pub fn portal(&self, at: &Address) -> Option<Address> {
        self.state().portals.get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(TargetSpec);

    impl Target for Plain {
        const DRIVER: &'static str = "plain";

        fn schema() -> serde_json::Value {
            serde_json::Value::Null
        }

        fn check(spec: TargetSpec) -> Result<Plain, Error> {
            Ok(Plain(spec))
        }

        fn spec(&self) -> &TargetSpec {
            &self.0
        }
    }

    #[test]
    fn portal_of_port_0_is_found_by_its_real_port_too() {
        let [listen_at, real, other] = ["127.0.0.1:0", "127.0.0.1:4711", "127.0.0.1:4712"]
            .map(|at| at.parse::<Address>().unwrap());
        let targets = Targets::<Plain>::default();
        let listen = vec![listen_at.clone()];
        targets.set(Plain(TargetSpec { name: "t".into(), listen, ..Default::default() })).unwrap();
        targets.portal_opened(listen_at.clone(), real.clone());
        targets.portal_opened(real.clone(), real.clone());
        for (at, is_there) in [(&listen_at, true), (&real, true), (&other, false)] {
            assert_eq!(targets.largest_at(at, |_| 2), is_there.then_some(2), "{at}");
            assert_eq!(targets.get_at(at, "t").is_some(), is_there, "{at}");
            assert_eq!(targets.at(at).len(), usize::from(is_there), "{at}");
        }
    }

    #[test]
    fn closed_portal_of_port_0_is_forgotten() {
        let [asked, real, open] = ["127.0.0.1:0", "127.0.0.1:4711", "127.0.0.1:4712"]
            .map(|at| at.parse::<Address>().unwrap());
        let targets = Targets::<Plain>::default();
        targets.portal_opened(asked.clone(), real.clone());
        targets.portal_opened(real.clone(), real.clone());
        targets.portal_opened(open.clone(), open.clone());
        targets.portal_closed(&real);
        assert_eq!([&asked, &real].map(|at| targets.portal(at)), [None, None]);
        assert_eq!(targets.portal(&open), Some(open.clone()));
        targets.portal_closed(&open);
        assert!(targets.state().portals.is_empty());
    }
}
