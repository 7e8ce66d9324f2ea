//! Map by address, for slots of the cache device and frames of the block cache: in parts that grow
//! one by one.
//!
//! A map that grows is copied in one turn while clients wait. The parts have a bounded size, and
//! each grows at another number of entries, so that few of them are copied at a time.

use std::hash::Hasher;

use super::table::{AddrHasher, AddrMap};
use crate::fault::Addr;

/// Entries of a part, in the mean, when the map has as many as it was made for.
const PART: usize = 4096;
/// Parts, at most.
const PARTS_MAX: usize = 1 << 16;

/// See the module.
pub struct AddrIndex<T> {
    /// A power of two of them.
    parts: Vec<AddrMap<T>>,
    len: usize,
}

impl<T> AddrIndex<T> {
    /// For so many entries.
    pub fn new(entries: usize) -> AddrIndex<T> {
        let parts = (entries / PART).next_power_of_two().min(PARTS_MAX);
        AddrIndex { parts: (0..parts).map(|_| AddrMap::default()).collect(), len: 0 }
    }

    /// Which part an address is in: bits of its hash that place no entry within a part.
    fn part(&self, addr: Addr) -> usize {
        let mut hash = AddrHasher::default();
        hash.write_u64(addr);
        (hash.finish() >> 24) as usize & (self.parts.len() - 1)
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry of an address.
    pub fn get(&self, addr: Addr) -> Option<&T> {
        self.parts[self.part(addr)].get(&addr)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, addr: Addr) -> Option<&mut T> {
        let i = self.part(addr);
        self.parts[i].get_mut(&addr)
    }

    /// Sets the entry of an address; returns the previous one.
    pub fn insert(&mut self, addr: Addr, entry: T) -> Option<T> {
        let (i, all) = (self.part(addr), self.parts.len());
        let part = &mut self.parts[i];
        // The last part grows when it is half full, the first when it is full.
        let capacity = part.capacity();
        if part.len() + capacity / 2 * i / all >= capacity {
            part.reserve(capacity + 1 - part.len());
        }
        let before = part.insert(addr, entry);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes an address; returns its entry.
    pub fn remove(&mut self, addr: Addr) -> Option<T> {
        let i = self.part(addr);
        let gone = self.parts[i].remove(&addr)?;
        self.len -= 1;
        Some(gone)
    }

    /// Every address.
    pub fn addresses(&self) -> impl Iterator<Item = Addr> + Clone + '_ {
        self.parts.iter().flat_map(|part| part.keys().copied())
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(AddrMap::clear);
        self.len = 0;
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
            let (len, capacity) = (index.parts[part].len(), index.parts[part].capacity());
            assert_eq!(index.insert(addr, addr as u32), None);
            copied += if index.parts[part].capacity() == capacity { 0 } else { len };
            if addr % 256 == 255 {
                most = most.max(std::mem::take(&mut copied));
            }
        }
        assert!(most <= 8 * PART, "{most} entries were copied for 256 new ones");
        assert!((0..ALL).all(|addr| index.get(addr) == Some(&(addr as u32))));
        assert_eq!(index.len() as Addr, ALL);
        assert_eq!((index.insert(7, 1), index.remove(7), index.get(7)), (Some(7), Some(1), None));
        assert_eq!(index.remove(7), None);
        assert_eq!((index.addresses().count(), index.len()), (ALL as usize - 1, ALL as usize - 1));
        index.clear();
        assert_eq!((index.addresses().count(), index.len(), index.get(8)), (0, 0, None));
    }
}
