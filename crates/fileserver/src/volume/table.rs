//! The table of the cache device: which address each slot holds.
//!
//! Invariants
//!  S1  An address is in one slot at most.
//!  S2  A slot is written only when the table on the device shows it as empty. One that is taken
//!      out is free again after the next record of the journal.
//!
//! It is kept whole in memory, 12 bytes a slot and an index from addresses. On the device it is
//! stored as pages, each with two places that are written in turn. Changes since a page was written
//! are in the journal.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::addr_index::AddrIndex;
use super::layout::{ENTRY, Layout};
use super::seal::{self, Decoder, Encoder};
use crate::fault::Addr;

const MAGIC: [u8; 4] = *b"ASHT";

/// Hashes addresses, which are numbers without malice.
#[derive(Default)]
pub struct AddrHasher(u64);

impl std::hash::Hasher for AddrHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let x = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }
}

/// A map by address.
pub type AddrMap<T> = HashMap<Addr, T, BuildHasherDefault<AddrHasher>>;

/// The contents of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Address; 0 for none.
    pub addr: Addr,
    /// CRC32C of the block.
    pub crc: u32,
}

/// See the module.
pub struct Table {
    slots: Vec<Slot>,
    by_addr: AddrIndex<u32>,
    /// Looked at since the last pass of the hand.
    hot: Vec<bool>,
    /// One bit a slot: may be written (S2).
    free: Vec<u64>,
    free_count: usize,
    cursor: usize,
    hand: usize,
    /// Pages that changed since they were written, with the side that is newest.
    changed: Vec<bool>,
    sides: Vec<u8>,
    /// Records up to this one are in the page, while the table is read in.
    page_seqs: Vec<u64>,
    per_page: usize,
}

impl Table {
    /// All slots free.
    pub fn new(l: &Layout) -> Table {
        let n = l.slots.1 as usize;
        let mut free = vec![u64::MAX; n.div_ceil(64)];
        if let Some(last) = free.last_mut()
            && !n.is_multiple_of(64)
        {
            *last = (1 << (n % 64)) - 1;
        }
        Table {
            slots: vec![Slot::default(); n],
            by_addr: AddrIndex::new(n),
            hot: vec![false; n],
            free,
            free_count: n,
            cursor: 0,
            hand: 0,
            changed: vec![false; l.pages.1 as usize],
            sides: vec![0; l.pages.1 as usize],
            page_seqs: vec![0; l.pages.1 as usize],
            per_page: l.per_page(),
        }
    }

    /// There are more slots, all of them free.
    pub fn grow(&mut self, l: &Layout) {
        let (before, now) = (self.slots.len(), l.slots.1 as usize);
        self.slots.resize(now, Slot::default());
        self.hot.resize(now, false);
        self.free.resize(now.div_ceil(64), 0);
        (before..now).for_each(|i| self.mark(i, true));
    }

    /// Slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Slots that may be written.
    pub fn free(&self) -> usize {
        self.free_count
    }

    /// Where an address is.
    pub fn find(&mut self, addr: Addr) -> Option<(u32, u32)> {
        let slot = *self.by_addr.get(addr)?;
        let i = slot as usize;
        *self.hot.get_mut(i)? = true;
        Some((slot, self.slots.get(i)?.crc))
    }

    /// Slot of an address; does not count as a look.
    pub fn slot(&self, addr: Addr) -> Option<u32> {
        self.by_addr.get(addr).copied()
    }

    /// Checksum of an address that is in a slot.
    pub fn crc(&self, addr: Addr) -> Option<u32> {
        self.slots.get(*self.by_addr.get(addr)? as usize).map(|s| s.crc)
    }

    /// Every address in a slot.
    pub fn addresses(&self) -> impl Iterator<Item = Addr> + Clone + '_ {
        self.by_addr.addresses()
    }

    /// Takes a run of free slots, at most `most` of them, behind the last run: blocks that are
    /// written together are stored together. `None` if none is free.
    pub fn take(&mut self, most: usize) -> Option<(u32, usize)> {
        let first = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
        let mut n = 0;
        while n < most && self.is_free(first + n) {
            self.mark(first + n, false);
            n += 1;
        }
        self.cursor = first + n;
        Some((first as u32, n))
    }

    fn next_free(&self, from: usize) -> Option<usize> {
        let (word, bit) = (from / 64, from % 64);
        let masked = self.free.get(word)? & (u64::MAX << bit);
        if masked != 0 {
            return Some(word * 64 + masked.trailing_zeros() as usize);
        }
        let rest = self.free.get(word + 1..)?;
        let i = rest.iter().position(|w| *w != 0)?;
        Some((word + 1 + i) * 64 + rest[i].trailing_zeros() as usize)
    }

    fn is_free(&self, i: usize) -> bool {
        self.free.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    fn mark(&mut self, i: usize, free: bool) {
        let Some(word) = self.free.get_mut(i / 64) else { return };
        let bit = 1_u64 << (i % 64);
        if free != (*word & bit != 0) {
            *word ^= bit;
            self.free_count = if free { self.free_count + 1 } else { self.free_count - 1 };
        }
    }

    /// Enters a block in a slot that was taken; the slot that held it before, if any, is to be
    /// released.
    pub fn set(&mut self, slot: u32, held: Slot) -> Option<u32> {
        let i = slot as usize;
        self.mark(i, false);
        if let Some(s) = self.slots.get_mut(i) {
            if s.addr != 0 && s.addr != held.addr {
                self.by_addr.remove(s.addr);
            }
            *s = held;
        }
        self.note(i);
        let old = self.by_addr.insert(held.addr, slot).filter(|old| *old != slot)?;
        if let Some(s) = self.slots.get_mut(old as usize) {
            *s = Slot::default();
        }
        self.note(old as usize);
        Some(old)
    }

    /// Takes an address out; its slot is to be released (S2).
    pub fn forget(&mut self, addr: Addr) -> Option<u32> {
        let slot = self.by_addr.remove(addr)?;
        if let Some(s) = self.slots.get_mut(slot as usize) {
            *s = Slot::default();
        }
        self.note(slot as usize);
        Some(slot)
    }

    /// A slot that was taken out may be written again: a record proves it.
    pub fn release(&mut self, slot: u32) {
        if self.slots.get(slot as usize).is_some_and(|s| s.addr == 0) {
            self.mark(slot as usize, true);
        }
    }

    /// Takes out up to `most` blocks that were not used lately, of those that `may` allows; returns
    /// their slots. The hand passes `looks` slots at most.
    pub fn evict(&mut self, most: usize, looks: usize, may: impl Fn(Addr) -> bool) -> Vec<u32> {
        let mut out = Vec::new();
        for _ in 0..looks {
            if out.len() == most {
                break;
            }
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let addr = self.slots[self.hand].addr;
            if addr == 0 || std::mem::take(&mut self.hot[self.hand]) || !may(addr) {
                continue;
            }
            out.extend(self.forget(addr));
        }
        out
    }

    fn note(&mut self, slot: usize) {
        if let Some(c) = self.changed.get_mut(slot / self.per_page) {
            *c = true;
        }
    }

    /// Pages to write so that the device has what memory has: number, and the place (0 or 1) of
    /// each. The caller writes and flushes them all, or none counts.
    pub fn changed_pages(&self) -> Vec<(usize, u8)> {
        let changed = self.changed.iter().enumerate().filter(|(_, c)| **c);
        changed.map(|(i, _)| (i, 1 - self.sides[i])).collect()
    }

    /// They have been written.
    pub fn pages_written(&mut self, pages: &[(usize, u8)]) {
        for (i, side) in pages {
            self.changed[*i] = false;
            self.sides[*i] = *side;
        }
    }

    /// A page as a block: the state after record `seq`.
    pub fn page(&self, l: &Layout, i: usize, seq: u64) -> Vec<u8> {
        let mut body = Encoder(Vec::with_capacity(self.per_page * ENTRY));
        let from = i * self.per_page;
        let to = (from + self.per_page).min(self.slots.len());
        for s in self.slots.get(from..to).unwrap_or(&[]) {
            body.u64(s.addr).u32(s.crc);
        }
        let mut out = vec![0; l.block as usize];
        let number = page_number(i, seq);
        seal::seal(&mut out, MAGIC, l.format_id, number, &body.0);
        out
    }

    /// Takes the newer of a page's two copies; its sequence. `None`: neither is good.
    pub fn load(&mut self, l: &Layout, i: usize, copies: [&[u8]; 2]) -> Option<u64> {
        let mut best: Option<(u64, u8, Vec<Slot>)> = None;
        for (side, bytes) in (0u8..).zip(copies) {
            let Ok(s) = seal::open(bytes, MAGIC) else { continue };
            let (index, seq) = split_number(s.number);
            let wanted = self.per_page.min(self.slots.len().saturating_sub(i * self.per_page));
            // One that was written before the device grew describes fewer.
            let had = s.body.len() / ENTRY;
            if s.volume != l.format_id || index != i as u64 || s.body.len() != had * ENTRY {
                continue;
            }
            if had > wanted {
                continue;
            }
            if best.as_ref().is_none_or(|(newest, ..)| seq > *newest) {
                let mut t = Decoder(s.body);
                let held = (0..had).map(|_| Slot { addr: t.u64(), crc: t.u32() }).collect();
                best = Some((seq, side, held));
            }
        }
        let (seq, side, held) = best?;
        self.sides[i] = side;
        for (to, held) in self.slots.iter_mut().skip(i * self.per_page).zip(held) {
            *to = held;
        }
        self.page_seqs[i] = seq;
        Some(seq)
    }

    /// While the table is read in: applies a record of the journal to a slot, unless its page is as
    /// new.
    pub fn replay(&mut self, seq: u64, slot: u32, held: Slot) {
        let i = slot as usize;
        let page = i / self.per_page;
        if self.page_seqs.get(page).is_some_and(|p| *p < seq)
            && let Some(s) = self.slots.get_mut(i)
        {
            *s = held;
            self.changed[page] = true;
        }
    }

    /// After the table was read in: makes the index and the free slots. Fails with an address that
    /// occurs twice.
    pub fn index(&mut self) -> Result<(), Addr> {
        self.by_addr.clear();
        for i in 0..self.slots.len() {
            let addr = self.slots[i].addr;
            self.mark(i, addr == 0);
            if addr != 0 && self.by_addr.insert(addr, i as u32).is_some() {
                return Err(addr);
            }
        }
        Ok(())
    }
}

/// Pages are numbered with their sequence: 40 bits of it, 24 of the index.
fn page_number(i: usize, seq: u64) -> u64 {
    (seq << 24) | (i as u64 & 0xff_ffff)
}

fn split_number(n: u64) -> (u64, u64) {
    (n & 0xff_ffff, n >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (Layout, Table) {
        let l = Layout::plan(2 << 20, 4096, (1, 2), [3; 16]).unwrap();
        let t = Table::new(&l);
        (l, t)
    }

    fn all_free(t: &mut Table) -> Vec<u32> {
        let mut out = Vec::new();
        while let Some((first, n)) = t.take(7) {
            out.extend(first..first + n as u32);
        }
        out
    }

    #[test]
    fn s2_emptied_slot_is_not_allocated_until_it_is_released() {
        let (_, mut t) = table();
        let (slot, n) = t.take(1).unwrap();
        assert_eq!(n, 1);
        assert_eq!(t.set(slot, Slot { addr: 70, crc: 1 }), None);
        assert_eq!(t.forget(70), Some(slot));
        let before = t.free();
        let given = all_free(&mut t);
        assert!(given.len() == before && !given.contains(&slot));
        t.release(slot);
        assert_eq!(all_free(&mut t), [slot]);
        // Evicted, it is the same.
        assert_eq!(t.set(slot, Slot { addr: 71, crc: 1 }), None);
        t.find(71);
        // The hand passes as many slots as are allowed, and the hot one twice.
        let all = t.len();
        assert_eq!(t.evict(1, all, |_| true), [0; 0]);
        assert_eq!(t.evict(1, all, |_| true), [slot]);
        assert_eq!(t.take(1), None);
    }

    #[test]
    fn s1_setting_a_moved_address_returns_its_old_slot() {
        let (_, mut t) = table();
        let (a, _) = t.take(1).unwrap();
        let (b, _) = t.take(1).unwrap();
        t.set(a, Slot { addr: 70, crc: 1 });
        assert_eq!(t.set(b, Slot { addr: 70, crc: 2 }), Some(a));
        assert_eq!((t.slot(70), t.crc(70), t.find(70)), (Some(b), Some(2), Some((b, 2))));
    }

    #[test]
    fn table_page_is_loaded_from_its_newer_copy() {
        let (l, mut t) = table();
        let (a, _) = t.take(1).unwrap();
        t.set(a, Slot { addr: 70, crc: 1 });
        let old = t.page(&l, 0, 5);
        t.set(a, Slot { addr: 80, crc: 2 });
        let new = t.page(&l, 0, 6);
        let blank = vec![0; 4096];
        for (copies, seq, addr) in
            [([&old, &new], 6, 80), ([&new, &old], 6, 80), ([&old, &blank], 5, 70)]
        {
            let mut again = Table::new(&l);
            assert_eq!(again.load(&l, 0, [&copies[0][..], &copies[1][..]]), Some(seq));
            again.index().unwrap();
            assert_eq!(again.slot(addr), Some(a));
            assert_eq!(again.free(), t.len() - 1);
        }
        assert_eq!(Table::new(&l).load(&l, 0, [&blank, &blank]), None);
        assert_eq!(Table::new(&l).load(&l, 1, [&old, &new]), None, "another page");
    }
}
