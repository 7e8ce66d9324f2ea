//! Owners of session keys and TSIHs, over all cores.
//!
//! The lock is held for look-ups at login only.
//!
//! Invariants
//!  S1  A session key (initiator, target, ISID) has one owner at a time. The next one gets it after
//!      the old session's last command can no longer touch the medium.
//!  S2  A TSIH is not 0 and belongs to one session at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use bio::sync::{Mutex, MutexGuard};

/// Logins that wait for the end of one session; the oldest is forgotten, and times out by itself.
const WAITERS_MAX: usize = 64;

/// Key of a session (RFC 7143 section 4.4.3.1, without the portal group: there is one).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionKey {
    pub initiator: String,
    /// None in discovery.
    pub target: String,
    pub isid: [u8; 6],
}

struct Owner {
    core: u32,
    connection: u64,
    /// It was sent the order to end.
    end_requested: bool,
    waiters: Vec<Waker>,
}

#[derive(Default)]
struct OwnersState {
    owners: BTreeMap<SessionKey, Owner>,
    tsihs: BTreeSet<u16>,
    last_tsih: u16,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Owners(Mutex<OwnersState>);

impl Owners {
    fn state(&self) -> MutexGuard<'_, OwnersState> {
        self.0.lock()
    }

    /// A free TSIH (S2); None when all are taken.
    pub fn take_tsih(self: &Arc<Self>) -> Option<Tsih> {
        let mut state = self.state();
        for _ in 0..u16::MAX {
            state.last_tsih = state.last_tsih.wrapping_add(1).max(1);
            let number = state.last_tsih;
            if state.tsihs.insert(number) {
                return Some(Tsih { owners: self.clone(), number });
            }
        }
        None
    }

    /// True when a TSIH belongs to a session.
    pub fn has_tsih(&self, tsih: u16) -> bool {
        self.state().tsihs.contains(&tsih)
    }

    pub fn is_owned(&self, key: &SessionKey) -> bool {
        self.state().owners.contains_key(key)
    }

    /// Tries to own a session. The present owner, if there is one, is ordered to end by `end`, with
    /// its core and connection, which answers whether the order was sent. `waker` is woken when it
    /// has ended.
    pub fn claim(
        self: &Arc<Self>,
        key: &SessionKey,
        (core, connection): (u32, u64),
        waker: &Waker,
        end: impl FnOnce(u32, u64) -> bool,
    ) -> Option<Claim> {
        let mut state = self.state();
        let Some(owner) = state.owners.get_mut(key) else {
            let owner = Owner { core, connection, end_requested: false, waiters: Vec::new() };
            state.owners.insert(key.clone(), owner);
            return Some(Claim { owners: self.clone(), key: key.clone() });
        };
        if !owner.waiters.iter().any(|w| w.will_wake(waker)) {
            if owner.waiters.len() >= WAITERS_MAX {
                owner.waiters.remove(0);
            }
            owner.waiters.push(waker.clone());
        }
        let (core, connection) = (owner.core, owner.connection);
        if !std::mem::replace(&mut owner.end_requested, true)
            && !end(core, connection)
            && let Some(owner) = state.owners.get_mut(key)
        {
            // Its mailbox is full: the next login tries again.
            owner.end_requested = false;
        }
        None
    }
}

/// Owns a TSIH; gives it back when dropped.
pub(crate) struct Tsih {
    owners: Arc<Owners>,
    pub number: u16,
}

impl Drop for Tsih {
    fn drop(&mut self) {
        self.owners.state().tsihs.remove(&self.number);
    }
}

/// Owns a session (S1); gives it up when dropped.
pub(crate) struct Claim {
    owners: Arc<Owners>,
    key: SessionKey,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let owner = self.owners.state().owners.remove(&self.key);
        for waiter in owner.into_iter().flat_map(|o| o.waiters) {
            waiter.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_tsih_is_not_zero_and_belongs_to_one_session_at_a_time() {
        let owners = Arc::new(Owners::default());
        let all: Vec<Tsih> = std::iter::from_fn(|| owners.take_tsih()).collect();
        let numbers: BTreeSet<u16> = all.iter().map(|tsih| tsih.number).collect();
        assert_eq!((all.len(), numbers.len()), (65_535, 65_535));
        assert!(!numbers.contains(&0) && owners.has_tsih(1));
        drop(all);
        assert!(!owners.has_tsih(1), "it is free again");
        assert!(owners.take_tsih().is_some());
    }
}
