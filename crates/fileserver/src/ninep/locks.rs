//! Files that one fid at a time may have open (DMEXCL).

use std::cell::RefCell;
use std::collections::HashMap;

/// A lock that was not used so long may be taken over, ns.
pub const EXPIRE_NS: u64 = 300_000_000_000;
/// Files locked at once.
const LOCKS_MAX: usize = 10_000;

#[derive(Clone, Copy)]
struct Lock {
    owner: (u64, u32),
    used_ns: u64,
}

/// See the module. Owners are connections and fids.
#[derive(Default)]
pub struct Locks(RefCell<HashMap<u64, Lock>>);

impl Locks {
    /// Takes a lock; false when another has it.
    pub fn take(&self, ino: u64, owner: (u64, u32), now: u64) -> bool {
        let mut locks = self.0.borrow_mut();
        let free = locks.get(&ino).is_none_or(|l| now.saturating_sub(l.used_ns) >= EXPIRE_NS);
        if free && (locks.len() < LOCKS_MAX || locks.contains_key(&ino)) {
            locks.insert(ino, Lock { owner, used_ns: now });
            return true;
        }
        false
    }

    /// Uses a lock; false when another took it over meanwhile.
    pub fn touch(&self, ino: u64, owner: (u64, u32), now: u64) -> bool {
        match self.0.borrow_mut().get_mut(&ino) {
            Some(l) if l.owner == owner => {
                l.used_ns = now;
                true
            }
            _ => false,
        }
    }

    /// Gives it back.
    pub fn leave(&self, ino: u64, owner: (u64, u32)) {
        let mut locks = self.0.borrow_mut();
        if locks.get(&ino).is_some_and(|l| l.owner == owner) {
            locks.remove(&ino);
        }
    }
}
