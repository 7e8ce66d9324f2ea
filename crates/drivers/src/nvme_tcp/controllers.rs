//! Targets and controllers, over all cores.
//!
//! Locks are held for look-ups at Connect, in discovery and at the end of a connection only.
//!
//! Invariants
//!  S1  A CNTLID belongs to one controller at a time.
//!  S2  A host whose connection is known to be lost is let in again only when the data that it sent
//!      over that connection can no longer reach the medium. Otherwise old data could overwrite its
//!      next writes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use bio::sync::{Mutex, MutexGuard};
use engine::Registry;

use super::controller::{Controller, Host};
use super::params::Checked;
use super::protocol::NvmeTcpGlobal;
use crate::targets::Targets;

/// Largest CNTLID; those above it are reserved.
pub(crate) const NUMBER_MAX: u16 = 0xffef;

#[derive(Default)]
struct SubsystemsState {
    controllers: BTreeMap<u16, Weak<Controller>>,
    last: u16,
    /// Connections of a host that have ended for us, and not at the medium.
    leaving: BTreeMap<Host, usize>,
}

/// NVMe's part of [`Shared`].
pub(crate) struct Subsystems {
    pub registry: Arc<Registry>,
    pub targets: Targets<Checked>,
    state: Mutex<SubsystemsState>,
}

impl Subsystems {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Subsystems {
        let (targets, state) = Default::default();
        Subsystems { registry, targets, state }
    }

    fn state(&self) -> MutexGuard<'_, SubsystemsState> {
        self.state.lock()
    }

    /// Makes a controller with a free number of these (S1); None when all are taken.
    pub fn add_controller(
        &self,
        numbers: RangeInclusive<u16>,
        make: impl FnOnce(u16) -> Arc<Controller>,
    ) -> Option<Arc<Controller>> {
        let mut state = self.state();
        for _ in numbers.clone() {
            let next = state.last.wrapping_add(1);
            state.last = if numbers.contains(&next) { next } else { *numbers.start() };
            let number = state.last;
            let used = state.controllers.get(&number).is_some_and(|c| c.strong_count() > 0);
            if !used {
                let created = make(number);
                state.controllers.insert(number, Arc::downgrade(&created));
                return Some(created);
            }
        }
        None
    }

    pub fn controller(&self, number: u16) -> Option<Arc<Controller>> {
        self.state().controllers.get(&number)?.upgrade()
    }

    /// A controller has ended.
    pub fn forget_controller(&self, number: u16) {
        self.state().controllers.remove(&number);
    }

    /// S2
    pub fn is_leaving(&self, host: &Host) -> bool {
        self.state().leaving.contains_key(host)
    }
}

/// A closed connection of a host, of which requests may still be in progress (S2), until it is
/// dropped.
pub(crate) struct Leaving {
    shared: Arc<NvmeTcpGlobal>,
    host: Host,
}

impl Leaving {
    /// For a connection that was just closed.
    pub fn new(shared: &Arc<NvmeTcpGlobal>, host: &Host) -> Leaving {
        *shared.own.state().leaving.entry(host.clone()).or_default() += 1;
        Leaving { shared: shared.clone(), host: host.clone() }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.shared.own.state();
        if let Some(count) = state.leaving.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                state.leaving.remove(&self.host);
            }
        }
    }
}
