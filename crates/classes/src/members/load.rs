//! Choice of the member to read from, among several with the same content: the least busy one
//! (docs/reference/geom.md 2.2, "Reads").
//!
//! The measure is a running average of each member's requests in flight, `(queue * 256 + 7 * old) /
//! 8`, updated on every read. A member whose last read ended at the requested place is preferred.
//! Each core keeps its own averages: the load from other cores shows in response times, not in
//! shared counters.
//!
//! If a read begins where the member that was read last ended, and no average is less than its own,
//! no other member can be preferred. Their positions are not compared. A member that is idle
//! and was idle lately has the least possible average. The others are then not examined at all, and
//! their averages are not updated meanwhile.
//!
//! Invariants
//!  B1  One core is the only writer of this data: a plain load and a plain store change it, without
//!      atomic read-modify-write operations. Another thread would see it in the middle of a read,
//!      never torn.
//!  B2  A read that was counted in a slot ends there once, even if the slot has another member by
//!      then. So no queue falls below zero, and all are zero when no read is in flight.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use geom::Edge;

/// A read that begins within so many bytes of the last one's end is near.
const NEAR_BYTES: u64 = 1 << 20;
/// Slots that a word of bits names: more members than any class has.
const SLOTS: usize = u64::BITS as usize;
/// A read in flight, in a word of [`Load::busy`].
const READ: u64 = 1 << 32;
/// An eighth of the 256 that a read in flight is worth in averages, as a power of two.
const EIGHTH_SHIFT: u32 = 5;
/// What being exactly there is worth, and being near.
const THERE: u32 = 512;
const NEAR: u32 = 256;

/// A member: its load from reads of this core, and the edge to it.
#[derive(Default)]
#[repr(align(32))]
struct Load {
    last_end: AtomicU64,
    /// Reads in flight, and below them the average, of which a read in flight is worth 256: one
    /// word, because every read looks at both.
    busy: AtomicU64,
    /// Where its part of the disk begins, bytes.
    offset: AtomicU64,
    edge: AtomicU32,
}

impl Load {
    /// The priority of a read at byte `at` on this member: the least is taken.
    #[inline(always)]
    fn key(&self, at: u64) -> u32 {
        // Without branches: which member is near changes too often to be foreseen.
        let far = self.last_end.load(Relaxed).wrapping_sub(at);
        let elsewhere = u32::from(far != 0) * (THERE - NEAR);
        let far = u32::from(far.wrapping_add(NEAR_BYTES) > 2 * NEAR_BYTES) * NEAR;
        self.busy.load(Relaxed) as u32 + elsewhere + far
    }

    /// A read looks at it: its average.
    #[inline(always)]
    fn step(&self) -> u32 {
        let busy = self.busy.load(Relaxed);
        let (queue, average) = ((busy / READ) as u32, busy as u32);
        let average = (queue << EIGHTH_SHIFT) + (7 * average) / 8;
        self.busy.store(busy & !(READ - 1) | u64::from(average), Relaxed);
        average
    }

    #[inline(always)]
    fn begun(&self, end: u64) {
        self.busy.store(self.busy.load(Relaxed) + READ, Relaxed);
        self.last_end.store(end, Relaxed);
    }
}

fn slots(bits: u64) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let slot = (left != 0).then(|| left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        slot
    })
}

/// The loads of the members in some slots, and the edges to them.
pub(crate) struct Loads {
    slots: [Load; SLOTS],
    /// The slot that was taken last.
    last: AtomicU32,
}

impl Default for Loads {
    fn default() -> Loads {
        let slots = std::array::from_fn(|_| Load::default());
        Loads { slots, last: AtomicU32::new(0) }
    }
}

impl Loads {
    /// The members that there are from now on: slots, consumers, and where their parts of the
    /// disks begin, bytes. Answers their slots (a bit a slot).
    pub(crate) fn lead(&self, members: impl Iterator<Item = (usize, Edge, u64)>) -> u64 {
        let mut all = 0;
        for (slot, edge, offset) in members {
            let Some(load) = self.slots.get(slot) else { continue };
            load.edge.store(edge.0, Relaxed);
            load.offset.store(offset, Relaxed);
            all |= 1 << slot;
        }
        all
    }

    /// The edge to a slot's member, and the offset there.
    #[inline(always)]
    pub(crate) fn way(&self, slot: usize) -> (Edge, u64) {
        let load = &self.slots[slot % SLOTS];
        (Edge(load.edge.load(Relaxed)), load.offset.load(Relaxed))
    }

    /// A read that ends at byte `end` of the member was given to a slot.
    #[inline]
    pub(crate) fn begun(&self, slot: usize, end: u64) {
        if let Some(load) = self.slots.get(slot) {
            load.begun(end);
        }
    }

    /// One has ended (B2).
    #[inline(always)]
    pub(crate) fn ended(&self, slot: usize) {
        let busy = &self.slots[slot % SLOTS].busy;
        let was = busy.load(Relaxed);
        debug_assert!(was >= READ, "B2: a read has ended that was not begun");
        busy.store(was.wrapping_sub(READ), Relaxed);
    }

    /// The least busy of some slots (a bit a slot, one at least), whose members have the byte at
    /// the same place: [`Loads::least_busy`] and [`Loads::begun`] in one, for a read from `at` to
    /// `end`.
    #[inline(always)]
    pub(crate) fn take(&self, among: u64, at: u64, end: u64) -> usize {
        let last = self.last.load(Relaxed) as usize % SLOTS;
        let slot = &self.slots[last];
        if among >> last & 1 == 1 && slot.last_end.load(Relaxed) == at {
            let idle = slot.busy.load(Relaxed) == 0;
            if idle || self.step(among) == slot.busy.load(Relaxed) as u32 {
                slot.begun(end);
                return last;
            }
        } else {
            self.step(among);
        }
        self.look(among, at, end)
    }

    /// A read looks at some slots: the least of their averages.
    #[inline(always)]
    fn step(&self, among: u64) -> u32 {
        slots(among).fold(u32::MAX, |least, slot| least.min(self.slots[slot].step()))
    }

    /// The rest of [`Loads::take`]: a tie selects the later one.
    #[inline(never)]
    fn look(&self, among: u64, at: u64, end: u64) -> usize {
        let key = |slot: usize| u64::from(self.slots[slot].key(at)) * SLOTS as u64;
        let keys = slots(among).map(|slot| key(slot) + (SLOTS - 1 - slot) as u64);
        let taken = !keys.min().unwrap_or(0) as usize % SLOTS;
        self.slots[taken].begun(end);
        self.last.store(taken as u32, Relaxed);
        taken
    }

    /// The path that a read takes, out of these: each with its slot and the byte on the member.
    #[inline]
    pub(crate) fn least_busy<W>(
        &self,
        ways: impl Iterator<Item = (usize, W, u64)>,
    ) -> Option<(usize, W, u64)> {
        let mut best: Option<((usize, W, u64), u32)> = None;
        for way in ways {
            let Some(load) = self.slots.get(way.0) else { continue };
            load.step();
            let key = load.key(way.2);
            // A tie selects the later one.
            if best.as_ref().is_none_or(|(_, least)| key <= *least) {
                best = Some((way, key));
            }
        }
        best.map(|(way, _)| way)
    }

    /// For tests: a slot's requests in flight, its average, and the end of its last read.
    #[cfg(test)]
    pub(super) fn peek(&self, slot: usize) -> (u32, u32, u64) {
        let load = &self.slots[slot];
        let busy = load.busy.load(Relaxed);
        ((busy / READ) as u32, busy as u32, load.last_end.load(Relaxed))
    }
}
