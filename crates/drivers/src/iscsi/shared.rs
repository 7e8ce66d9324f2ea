//! What all cores of the driver share: targets, and who owns which session.
//!
//! Locks are held for look-ups at login only.
//!
//! Invariants
//!  S1  A session key (initiator, target, ISID) has one owner at a time; the next one gets it
//!      after the old session's last command can no longer touch the medium.
//!  S2  A TSIH is not 0 and belongs to one session at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use bio::sync::{Mutex, MutexGuard};
use engine::Registry;

use super::params::Checked;
use crate::common::cores::Post;
use crate::common::entrance::Strain;
use crate::targets::Targets;

/// Logins that wait for the end of one session; the oldest is forgotten, and times out by itself.
const WAITERS_MAX: usize = 64;

/// What names a session (RFC 7143 section 4.4.3.1, without the portal group: there is one).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub initiator: String,
    /// None in discovery.
    pub target: String,
    pub isid: [u8; 6],
}

/// What cores tell each other.
pub(crate) enum Order {
    /// End a connection's session: another one takes its place.
    Reinstated {
        /// The connection's number.
        connection: u64,
    },
}

struct Owner {
    core: u32,
    connection: u64,
    told: bool,
    waiters: Vec<Waker>,
}

#[derive(Default)]
struct State {
    owners: BTreeMap<Key, Owner>,
    tsihs: BTreeSet<u16>,
    last_tsih: u16,
}

/// What all cores share.
pub(crate) struct Shared {
    pub registry: Arc<Registry>,
    /// Connections of one core; a further one is reset.
    pub connections_max: usize,
    /// StatSN of the first answer on a connection.
    pub first_stat_sn: u32,
    pub targets: Targets<Checked>,
    pub post: Post<Order>,
    pub strain: Strain,
    connections: AtomicU64,
    state: Mutex<State>,
}

impl Shared {
    /// Without targets.
    pub fn new(registry: Arc<Registry>, connections_max: usize, first_stat_sn: u32) -> Arc<Shared> {
        let (targets, post, strain, connections, state) = Default::default();
        Arc::new(Shared {
            registry,
            connections_max,
            first_stat_sn,
            targets,
            post,
            strain,
            connections,
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A number for a connection; never given twice.
    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A free TSIH (S2); None when all are taken.
    pub fn take_tsih(self: &Arc<Self>) -> Option<Tsih> {
        let mut state = self.state();
        for _ in 0..u16::MAX {
            state.last_tsih = state.last_tsih.wrapping_add(1).max(1);
            let number = state.last_tsih;
            if state.tsihs.insert(number) {
                return Some(Tsih { shared: self.clone(), number });
            }
        }
        None
    }

    /// True when a TSIH belongs to a session.
    pub fn knows_tsih(&self, tsih: u16) -> bool {
        self.state().tsihs.contains(&tsih)
    }

    /// True when somebody has this session.
    pub fn is_owned(&self, key: &Key) -> bool {
        self.state().owners.contains_key(key)
    }

    /// Tries to own a session. When somebody else does, that one is told to end, and `waker` is
    /// woken when it has.
    pub fn claim(
        self: &Arc<Self>,
        key: &Key,
        core: u32,
        connection: u64,
        waker: &Waker,
    ) -> Option<Claim> {
        let mut state = self.state();
        let Some(owner) = state.owners.get_mut(key) else {
            let owner = Owner { core, connection, told: false, waiters: Vec::new() };
            state.owners.insert(key.clone(), owner);
            return Some(Claim { shared: self.clone(), key: key.clone() });
        };
        if !owner.waiters.iter().any(|w| w.will_wake(waker)) {
            if owner.waiters.len() >= WAITERS_MAX {
                owner.waiters.remove(0);
            }
            owner.waiters.push(waker.clone());
        }
        let (core, connection) = (owner.core, owner.connection);
        if !std::mem::replace(&mut owner.told, true)
            && !self.post.tell(core, Order::Reinstated { connection })
            && let Some(owner) = state.owners.get_mut(key)
        {
            // Its mailbox is full: the next one who asks tries again.
            owner.told = false;
        }
        None
    }
}

/// Owns a TSIH; gives it back when dropped.
pub(crate) struct Tsih {
    shared: Arc<Shared>,
    pub number: u16,
}

impl Drop for Tsih {
    fn drop(&mut self) {
        self.shared.state().tsihs.remove(&self.number);
    }
}

/// Owns a session (S1); gives it up when dropped.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    key: Key,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let owner = self.shared.state().owners.remove(&self.key);
        for waiter in owner.into_iter().flat_map(|o| o.waiters) {
            waiter.wake();
        }
    }
}
