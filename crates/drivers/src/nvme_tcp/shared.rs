//! What all cores of the driver share: targets and controllers.
//!
//! Locks are held for look-ups at Connect, in discovery and at the end of a connection only.
//!
//! Invariants
//!  S1  A CNTLID belongs to one controller at a time.
//!  S2  A host whose connection we know to be lost is let in again when what it had sent over it
//!      can no longer touch the medium: its next writes would be overwritten.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bio::sync::{Mutex, MutexGuard};
use engine::Registry;

use super::controller::{Controller, Host};
use super::params::Checked;
use crate::common::cores::Post;
use crate::common::entrance::Strain;
use crate::targets::Targets;

/// Largest CNTLID; those above it are reserved.
pub(crate) const NUMBER_MAX: u16 = 0xffef;

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
    controllers: BTreeMap<u16, Weak<Controller>>,
    last: u16,
    /// Connections of a host that have ended for us, and not at the medium.
    leaving: BTreeMap<Host, usize>,
}

/// What all cores share.
pub(crate) struct Shared {
    pub registry: Arc<Registry>,
    pub targets: Targets<Checked>,
    pub post: Post<Order>,
    pub strain: Strain,
    connections: AtomicU64,
    state: Mutex<State>,
}

impl Shared {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Arc<Shared> {
        let (targets, post, strain, connections, state) = Default::default();
        Arc::new(Shared { registry, targets, post, strain, connections, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A number for a connection; never given twice.
    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes a controller with a free number of these (S1); None when all are taken.
    pub fn add_controller(
        self: &Arc<Self>,
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
