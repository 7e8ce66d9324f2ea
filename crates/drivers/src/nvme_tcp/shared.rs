//! What all cores of the driver share: targets and controllers.
//!
//! Locks are held for look-ups at Connect, in discovery and at the end of a connection only.
//!
//! Invariants
//!  S1  A CNTLID belongs to one controller at a time.
//!  S2  A host whose connection we know to be lost is let in again when what it had sent over it
//!      can no longer touch the medium: its next writes would be overwritten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bio::Errno;
use geom::Error;
use reactor::{Address, Mailer};
use target::Registry;

use super::controller::{Controller, Host};
use super::params::Checked;
use crate::common::entrance::Strain;

/// Largest CNTLID; those above it are reserved.
const NUMBER_MAX: u16 = 0xffef;

/// What cores tell each other.
pub(crate) enum Order {
    /// End a queue's connection: its association is over.
    End {
        /// The connection's number.
        connection: u64,
    },
    /// Abort a command of a queue.
    Abort {
        /// The connection's number.
        connection: u64,
        /// CID of the command.
        command: u16,
        /// Who asks: core, connection, CID of the Abort.
        asker: (u32, u64, u16),
    },
    /// What came of an Abort.
    Aborted {
        /// Who asked.
        connection: u64,
        /// CID of the Abort.
        id: u16,
        /// The command was aborted.
        done: bool,
    },
}

#[derive(Default)]
struct State {
    targets: BTreeMap<String, Arc<Checked>>,
    controllers: BTreeMap<u16, Weak<Controller>>,
    last: u16,
    cores: Vec<(u32, Mailer<Order>)>,
    /// Where portals really are, once they are open: port 0 becomes a number.
    portals: BTreeMap<Address, Address>,
    /// Connections of a host that have ended for us, and not at the medium.
    leaving: BTreeMap<Host, usize>,
    connections: u64,
}

/// What all cores share.
pub(crate) struct Shared {
    pub registry: Arc<Registry>,
    pub strain: Strain,
    state: Mutex<State>,
}

impl Shared {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Arc<Shared> {
        let (strain, state) = Default::default();
        Arc::new(Shared { registry, strain, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes or replaces a target. Refused when another target at one of its addresses has another
    /// mind about digests: they are agreed on before the target is known.
    pub fn set_target(&self, mut target: Checked) -> Result<(), Error> {
        let mut state = self.state();
        let at_same = |other: &&Arc<Checked>| {
            other.spec.name != target.spec.name
                && other.spec.listen.iter().any(|at| target.spec.listen.contains(at))
        };
        let differs = |other: &&Arc<Checked>| other.digests() != target.digests();
        if let Some(other) = state.targets.values().filter(at_same).find(differs) {
            let what = format!(
                "nvme_tcp target {}: target {} listens at the same address with other digests",
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

    /// A target of a portal by its name.
    pub fn target_at(&self, portal: &Address, name: &str) -> Option<Arc<Checked>> {
        let target = self.state().targets.get(name).cloned();
        target.filter(|t| t.spec.listen.contains(portal))
    }

    /// The targets of a portal, by name.
    pub fn targets_at(&self, portal: &Address) -> Vec<Arc<Checked>> {
        let state = self.state();
        state.targets.values().filter(|t| t.spec.listen.contains(portal)).cloned().collect()
    }

    /// Every target, by name.
    pub fn targets(&self) -> Vec<Arc<Checked>> {
        self.state().targets.values().cloned().collect()
    }

    /// A portal is open.
    pub fn portal_opened(&self, at: Address, local: Address) {
        self.state().portals.insert(at, local);
    }

    /// The real address of a portal that is open.
    pub fn portal(&self, at: &Address) -> Option<Address> {
        self.state().portals.get(at).cloned()
    }

    /// A core has come.
    pub fn add_core(&self, core: u32, mailer: Mailer<Order>) {
        let mut state = self.state();
        state.cores.retain(|(c, _)| *c != core);
        state.cores.push((core, mailer));
    }

    /// Tells a core something; false when it does not listen any more.
    pub fn tell(&self, core: u32, order: Order) -> bool {
        let mailer = self.state().cores.iter().find(|(c, _)| *c == core).map(|(_, m)| m.clone());
        mailer.is_some_and(|m| m.send(order).is_ok())
    }

    /// A number for a connection; never given twice.
    pub fn next_connection(&self) -> u64 {
        let mut state = self.state();
        state.connections += 1;
        state.connections
    }

    /// Makes a controller with a free number (S1); None when all are taken.
    pub fn add_controller(
        self: &Arc<Self>,
        make: impl FnOnce(u16) -> Arc<Controller>,
    ) -> Option<Arc<Controller>> {
        let mut state = self.state();
        for _ in 0..NUMBER_MAX {
            state.last = state.last % NUMBER_MAX + 1;
            let number = state.last;
            let used = state.controllers.get(&number).is_some_and(|c| c.strong_count() > 0);
            if !used {
                let made = make(number);
                state.controllers.insert(number, Arc::downgrade(&made));
                return Some(made);
            }
        }
        None
    }

    /// A controller by its number.
    pub fn controller(&self, number: u16) -> Option<Arc<Controller>> {
        self.state().controllers.get(&number)?.upgrade()
    }

    /// A controller has ended.
    pub fn forget_controller(&self, number: u16) {
        self.state().controllers.remove(&number);
    }

    /// A connection of a host has ended; what it had sent may still be under way (S2).
    pub fn leaves(self: &Arc<Self>, host: &Host) -> Leaving {
        *self.state().leaving.entry(host.clone()).or_default() += 1;
        Leaving { shared: self.clone(), host: host.clone() }
    }

    /// S2
    pub fn is_leaving(&self, host: &Host) -> bool {
        self.state().leaving.contains_key(host)
    }
}

/// See [`Shared::leaves`]; over when dropped.
pub(crate) struct Leaving {
    shared: Arc<Shared>,
    host: Host,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(count) = state.leaving.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                state.leaving.remove(&self.host);
            }
        }
    }
}
