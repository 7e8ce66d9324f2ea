//! Addresses: given upwards, never twice to what a dump holds.
//!
//! Invariants
//!  A1  An address below `frozen` is never given.
//!  A2  Addresses between `frozen` and `next` are in use or in the free list, not both.

use crate::fault::Addr;

/// See the module.
#[derive(Debug, Default)]
pub struct Space {
    /// Below: dumps.
    pub frozen: Addr,
    /// From here on: never given.
    pub next: Addr,
    free: Vec<Addr>,
}

/// Where an address came from, to give it back in an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// From the free list.
    Again(Addr),
    /// The next one.
    New(Addr),
}

impl Given {
    /// The address.
    pub fn addr(self) -> Addr {
        match self {
            Given::Again(a) | Given::New(a) => a,
        }
    }
}

impl Space {
    /// As a point has it; `used` are the addresses from `frozen` on that hold something.
    pub fn new(frozen: Addr, next: Addr, used: impl Iterator<Item = Addr>) -> Space {
        let mut taken: Vec<Addr> = used.filter(|a| (frozen..next).contains(a)).collect();
        taken.sort_unstable();
        let mut free = Vec::new();
        let mut at = frozen;
        for a in taken {
            free.extend(at..a);
            at = a + 1;
        }
        free.extend(at..next);
        free.reverse();
        Space { frozen, next, free }
    }

    /// An address; lowest first of those that are free again.
    pub fn give(&mut self) -> Given {
        match self.free.pop() {
            Some(a) => Given::Again(a),
            None => {
                self.next += 1;
                Given::New(self.next - 1)
            }
        }
    }

    /// Takes the last gift back: in the opposite order of the gifts.
    pub fn ungive(&mut self, given: Given) {
        match given {
            Given::Again(a) => self.free.push(a),
            Given::New(a) => self.next = a,
        }
    }

    /// An address that nothing uses any more.
    pub fn put(&mut self, addr: Addr) {
        if addr >= self.frozen {
            self.free.push(addr);
        }
    }

    /// A dump holds all addresses up to now; new ones begin at `from`.
    pub fn freeze(&mut self, from: Addr) {
        self.free.clear();
        self.frozen = from;
        self.next = from;
    }

    /// Addresses that no dump holds and that are not free.
    pub fn used(&self) -> Vec<Addr> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let mut free = free.into_iter().peekable();
        (self.frozen..self.next).filter(|a| free.next_if_eq(a).is_none()).collect()
    }

    /// Addresses free again.
    pub fn free(&self) -> usize {
        self.free.len()
    }
}
