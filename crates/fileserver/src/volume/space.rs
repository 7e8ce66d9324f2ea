//! Allocation of addresses: upwards, and addresses of a dump's blocks are never given again.
//!
//! Blocks that no dump is to get have addresses of their own, which are never below the line. They
//! are on the cache device alone, and end with the epoch in which they were given.
//!
//! ```text
//!   0 ... frozen ... next                1 << 63 | epoch << 32 | 0, 1, 2 ...
//!   |dumps|live tree|                    |scratch of this epoch ...
//! ```
//!
//! Invariants
//!  A1  An address below `frozen` is never given.
//!  A2  Addresses between `frozen` and `next`, and those of scratch that were given, are in use or
//!      in the free list of their kind, not both.
//!  A3  A scratch address is never given in two epochs: one that is left of an earlier epoch names
//!      nothing.

use crate::fault::Addr;

/// Addresses from here on are scratch.
const SCRATCH: Addr = 1 << 63;
/// How many of them an epoch has.
const PER_EPOCH: Addr = 1 << 32;

/// True of an address whose block no dump gets.
pub fn is_scratch(addr: Addr) -> bool {
    addr >= SCRATCH
}

/// Which of its epoch's it is.
pub fn scratch_index(addr: Addr) -> Addr {
    addr % PER_EPOCH
}

/// Addresses of one kind: from `first` on, those behind `next` never given.
#[derive(Debug, Default)]
struct AddrPool {
    first: Addr,
    next: Addr,
    free: Vec<Addr>,
}

impl AddrPool {
    /// `used` are those that hold something.
    fn new(first: Addr, next: Addr, mut used: Vec<Addr>) -> AddrPool {
        used.sort_unstable();
        let mut free = Vec::new();
        let mut at = first;
        for a in used {
            free.extend(at..a);
            at = a + 1;
        }
        free.extend(at..next);
        free.reverse();
        AddrPool { first, next, free }
    }

    fn used(&self) -> impl Iterator<Item = Addr> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let mut free = free.into_iter().peekable();
        (self.first..self.next).filter(move |a| free.next_if_eq(a).is_none())
    }

    fn count(&self) -> u64 {
        self.next - self.first - self.free.len() as u64
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Space {
    /// Its first address is the line: below are dumps.
    tree: AddrPool,
    scratch: AddrPool,
}

/// The source of an address, to give it back in an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatedAddr {
    /// From the free list.
    Reused(Addr),
    /// The next one.
    New(Addr),
}

impl AllocatedAddr {
    /// The address.
    pub fn addr(self) -> Addr {
        match self {
            AllocatedAddr::Reused(a) | AllocatedAddr::New(a) => a,
        }
    }
}

impl Space {
    /// As a point has it; `used` are the addresses that hold something.
    pub fn new(
        frozen: Addr,
        next: Addr,
        epoch: u32,
        used: impl Iterator<Item = Addr> + Clone,
    ) -> Space {
        let first = SCRATCH | (Addr::from(epoch) << 32);
        let mine = |a: &Addr| (first..first + PER_EPOCH).contains(a);
        let scratch: Vec<Addr> = used.clone().filter(mine).collect();
        let end = scratch.iter().max().map_or(first, |a| a + 1);
        let tree = used.filter(|a| (frozen..next).contains(a)).collect();
        Space {
            tree: AddrPool::new(frozen, next, tree),
            scratch: AddrPool::new(first, end, scratch),
        }
    }

    /// Below: dumps.
    pub fn frozen(&self) -> Addr {
        self.tree.first
    }

    /// From here on: never given, and no scratch.
    pub fn next(&self) -> Addr {
        self.tree.next
    }

    fn pool_of(&mut self, addr: Addr) -> &mut AddrPool {
        if is_scratch(addr) { &mut self.scratch } else { &mut self.tree }
    }

    /// An address that was given, in this epoch if it is scratch.
    pub fn was_allocated(&self, addr: Addr) -> bool {
        let s = &self.scratch;
        addr < self.tree.next || (s.first..s.next).contains(&addr)
    }

    /// An address; lowest first of those that are free again.
    pub fn allocate(&mut self, scratch: bool) -> AllocatedAddr {
        let pool = if scratch { &mut self.scratch } else { &mut self.tree };
        match pool.free.pop() {
            Some(a) => AllocatedAddr::Reused(a),
            None => {
                pool.next += 1;
                AllocatedAddr::New(pool.next - 1)
            }
        }
    }

    /// Takes the last gift back: in the opposite order of the gifts.
    pub fn undo_allocate(&mut self, given: AllocatedAddr) {
        let pool = self.pool_of(given.addr());
        match given {
            AllocatedAddr::Reused(a) => pool.free.push(a),
            AllocatedAddr::New(a) => pool.next = a,
        }
    }

    /// An address that nothing uses any more.
    pub fn release(&mut self, addr: Addr) {
        let pool = self.pool_of(addr);
        if addr >= pool.first {
            pool.free.push(addr);
        }
    }

    /// A dump holds all addresses up to now; new ones begin at `from`.
    pub fn freeze(&mut self, from: Addr) {
        self.tree = AddrPool { first: from, next: from, free: Vec::new() };
    }

    /// Addresses that no dump holds and that are not free.
    pub fn used(&self) -> impl Iterator<Item = Addr> {
        self.tree.used().chain(self.scratch.used())
    }

    /// How many of them a dump would hold if it were taken now, and how many of scratch.
    pub fn counts(&self) -> (u64, u64) {
        (self.tree.count(), self.scratch.count())
    }

    /// Addresses that a dump would hold, and that are free again.
    pub fn free(&self) -> usize {
        self.tree.free.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use reactor::SeededRandom;
    use testkit::Seeds;

    use super::*;

    /// A1, A2.
    #[test]
    fn address_is_in_use_or_free_and_that_of_a_dump_is_never_given() {
        for seed in Seeds::of(100) {
            let mut random = SeededRandom::new(seed);
            let mut space = Space::new(0, 0, 1, std::iter::empty());
            let mut used: BTreeSet<Addr> = BTreeSet::new();
            for _ in 0..500 {
                match random.below(20) {
                    0 => {
                        space.freeze(space.next());
                        used.retain(|addr| is_scratch(*addr));
                    }
                    1..8 => {
                        let some = used.iter().nth(random.below(8) as usize).copied();
                        if let Some(addr) = some {
                            used.remove(&addr);
                            space.release(addr);
                        }
                    }
                    n => {
                        let addr = space.allocate(n < 12).addr();
                        assert!(addr >= space.frozen(), "seed {seed}: {addr} is that of a dump");
                        assert!(used.insert(addr), "seed {seed}: {addr} is in use");
                    }
                }
                assert!(space.used().eq(used.iter().copied()), "seed {seed}");
            }
        }
    }

    /// A3.
    #[test]
    fn scratch_address_of_an_earlier_epoch_is_not_given_and_names_nothing() {
        let mut earlier = Space::new(0, 0, 1, std::iter::empty());
        let given: Vec<Addr> = (0..9).map(|_| earlier.allocate(true).addr()).collect();
        let mut later = Space::new(0, 0, 2, given.iter().copied());
        assert!((0..20).all(|_| !given.contains(&later.allocate(true).addr())));
        assert!(given.iter().all(|addr| !later.was_allocated(*addr)));
    }
}
