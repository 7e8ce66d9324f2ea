//! What all cores of the driver share: targets and listening Unix sockets.
//!
//! Locks are held for look-ups in handshakes only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::Errno;
use geom::Error;
use reactor::{Address, Parcel};
use target::Registry;

use super::params::Checked;
use crate::common::entrance::Strain;

/// A listening Unix socket between cores.
struct Door {
    /// The socket, for the next core; None while one looks at it.
    parcel: Option<Parcel>,
    /// Cores that listen.
    cores: usize,
}

#[derive(Default)]
struct State {
    targets: BTreeMap<String, Arc<Checked>>,
    doors: BTreeMap<String, Door>,
    connections: u64,
}

/// What all cores share.
pub(crate) struct Shared {
    pub registry: Arc<Registry>,
    /// Connections of one core; a further one is reset.
    pub connections_max: usize,
    pub strain: Strain,
    state: Mutex<State>,
}

impl Shared {
    /// Without targets.
    pub fn new(registry: Arc<Registry>, connections_max: usize) -> Arc<Shared> {
        let (strain, state) = Default::default();
        Arc::new(Shared { registry, connections_max, strain, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes or replaces a target. Refused when another target at one of its addresses has another
    /// mind about TLS.
    pub fn set_target(&self, mut target: Checked) -> Result<(), Error> {
        let mut state = self.state();
        let at_same = |other: &&Arc<Checked>| {
            other.spec.name != target.spec.name
                && other.spec.listen.iter().any(|at| target.spec.listen.contains(at))
        };
        let differs = |other: &&Arc<Checked>| other.door() != target.door();
        if let Some(other) = state.targets.values().filter(at_same).find(differs) {
            let what = format!(
                "nbd target {}: target {} listens at the same address with other TLS parameters",
                target.spec.name, other.spec.name
            );
            return Err(Error::new(Errno::Inval, what));
        }
        if let Some(old) = state.targets.get(&target.spec.name) {
            target.connections = old.connections.clone();
        }
        state.targets.insert(target.spec.name.clone(), Arc::new(target));
        Ok(())
    }

    /// Forgets a target.
    pub fn remove_target(&self, name: &str) {
        self.state().targets.remove(name);
    }

    /// The targets of a portal, by name.
    pub fn targets_at(&self, portal: &Address) -> Vec<Arc<Checked>> {
        let state = self.state();
        state.targets.values().filter(|t| t.spec.listen.contains(portal)).cloned().collect()
    }

    /// A number for a connection; never given twice.
    pub fn next_connection(&self) -> u64 {
        let mut state = self.state();
        state.connections += 1;
        state.connections
    }

    /// The listening socket of a path, if a core has opened it; to be put back by `put_door`.
    pub fn take_door(&self, path: &str) -> Option<Parcel> {
        self.state().doors.get_mut(path).and_then(|door| door.parcel.take())
    }

    /// A core listens at the path; `parcel` is for the next one.
    pub fn put_door(&self, path: &str, parcel: Parcel) {
        let mut state = self.state();
        let door = state.doors.entry(path.to_owned()).or_insert(Door { parcel: None, cores: 0 });
        door.parcel = Some(parcel);
        door.cores += 1;
    }

    /// A core listens no more; true when it was the last one.
    pub fn leave_door(&self, path: &str) -> bool {
        let mut state = self.state();
        let Some(door) = state.doors.get_mut(path) else { return false };
        door.cores = door.cores.saturating_sub(1);
        let last = door.cores == 0;
        if last {
            state.doors.remove(path);
        }
        last
    }
}
