//! Index of the slots of the cache device by address: a map in parts that grow one by one.
//!
//! A map that grows is copied in one go while clients wait. The parts have a bounded size, and each
//! grows at another number of entries, so that few of them are copied at a time.

use std::hash::Hasher;

use super::table::{AddrHasher, AddrMap};
use crate::fault::Addr;

/// Entries of a part, in the mean, when all slots are in use.
const PART: usize = 4096;
/// Parts, at most.
const PARTS_MAX: usize = 1 << 16;

/// See the module.
pub struct AddrIndex {
    /// A power of two of them.
    parts: Vec<AddrMap<u32>>,
}

impl AddrIndex {
    /// For so many slots.
    pub fn new(slots: usize) -> AddrIndex {
        let parts = (slots / PART).next_power_of_two().min(PARTS_MAX);
        AddrIndex { parts: vec![AddrMap::default(); parts] }
    }

    /// Which part an address is in: bits of its hash that place no entry within a part.
    fn part(&self, addr: Addr) -> usize {
        let mut hash = AddrHasher::default();
        hash.write_u64(addr);
        (hash.finish() >> 24) as usize & (self.parts.len() - 1)
    }

    /// Slot of an address.
    pub fn get(&self, addr: Addr) -> Option<u32> {
        self.parts[self.part(addr)].get(&addr).copied()
    }

    /// Sets the slot of an address; returns the previous one.
    pub fn insert(&mut self, addr: Addr, slot: u32) -> Option<u32> {
        let (i, all) = (self.part(addr), self.parts.len());
        let part = &mut self.parts[i];
        // The last part grows when it is half full, the first when it is full.
        let room = part.capacity();
        if part.len() + room / 2 * i / all >= room {
            part.reserve(room + 1 - part.len());
        }
        part.insert(addr, slot)
    }

    /// Removes an address; returns its slot.
    pub fn remove(&mut self, addr: Addr) -> Option<u32> {
        let i = self.part(addr);
        self.parts[i].remove(&addr)
    }

    /// Every address.
    pub fn addresses(&self) -> impl Iterator<Item = Addr> + Clone + '_ {
        self.parts.iter().flat_map(|part| part.keys().copied())
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(AddrMap::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_copies_few_entries_at_a_time_when_it_grows() {
        const ALL: Addr = 600_000;
        let mut index = AddrIndex::new(1 << 20);
        let (mut copied, mut most) = (0, 0);
        for addr in 0..ALL {
            let part = index.part(addr);
            let (len, room) = (index.parts[part].len(), index.parts[part].capacity());
            assert_eq!(index.insert(addr, addr as u32), None);
            copied += if index.parts[part].capacity() == room { 0 } else { len };
            if addr % 256 == 255 {
                most = most.max(std::mem::take(&mut copied));
            }
        }
        assert!(most <= 8 * PART, "{most} entries were copied for 256 new ones");
        assert!((0..ALL).all(|addr| index.get(addr) == Some(addr as u32)));
        assert_eq!((index.insert(7, 1), index.remove(7), index.get(7)), (Some(7), Some(1), None));
        assert_eq!(index.addresses().count() as Addr, ALL - 1);
        index.clear();
        assert_eq!((index.addresses().count(), index.get(8)), (0, None));
    }
}
