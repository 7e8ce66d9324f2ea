//! The Bios of one core.
//!
//! Invariants
//!  S1  A Bio is owned by exactly one place at a time: the slab (parked: it waits for a
//!      completion, a timer or children) or the one piece of code that took it out.
//!  S2  One wait, one wake: of all tickets ever made for a Bio the newest is good, once, and none
//!      while its children are under way.

use crate::request::{Bio, BioId, Ticket};

struct BioSlot {
    tenant: u32,
    parked: Option<Box<Bio>>,
    used: bool,
}

/// Bios of one core, recycled with their vectors' capacity.
#[derive(Default)]
pub struct Slab {
    slots: Vec<BioSlot>,
    free: Vec<u32>,
    #[allow(clippy::vec_box)] // A Box is moved in and out of places; a Bio is 800 bytes.
    spare: Vec<Box<Bio>>,
}

impl Slab {
    /// Empty.
    pub fn new() -> Slab {
        Slab::default()
    }

    /// A fresh Bio, owned by the caller until it parks or frees it.
    #[inline]
    pub fn alloc(&mut self) -> Box<Bio> {
        let index = match self.free.pop() {
            Some(i) => i,
            None => {
                let i = u32::try_from(self.slots.len()).expect("fewer than 2^32 Bios");
                self.slots.push(BioSlot { tenant: 0, parked: None, used: false });
                i
            }
        };
        let place = &mut self.slots[index as usize];
        place.used = true;
        let id = BioId { index, tenant: place.tenant };
        match self.spare.pop() {
            Some(mut bio) => {
                bio.renew(id);
                bio
            }
            None => Box::new(Bio::new(id)),
        }
    }

    /// Puts a Bio that waits back in its place.
    #[inline]
    pub fn park(&mut self, bio: Box<Bio>) {
        let place = &mut self.slots[bio.id().index as usize];
        debug_assert!(place.tenant == bio.id().tenant && place.parked.is_none(), "S1");
        place.parked = Some(bio);
    }

    /// Takes a parked Bio out. `None` if `id` has ended or the Bio is already taken.
    #[inline]
    pub fn take(&mut self, id: BioId) -> Option<Box<Bio>> {
        let place = self.slots.get_mut(id.index as usize)?;
        if place.tenant != id.tenant { None } else { place.parked.take() }
    }

    /// Takes a parked Bio out to continue it. `None` when the ticket is not good (any more).
    #[inline]
    pub fn wake(&mut self, ticket: Ticket) -> Option<Box<Bio>> {
        let place = self.slots.get_mut(ticket.id().index as usize)?;
        let bio = place.parked.take_if(|bio| bio.is_woken_by(ticket))?;
        // S2: used.
        let _ = bio.ticket();
        Some(bio)
    }

    /// Looks at a parked Bio.
    pub fn peek(&self, id: BioId) -> Option<&Bio> {
        let place = self.slots.get(id.index as usize)?;
        if place.tenant != id.tenant { None } else { place.parked.as_deref() }
    }

    /// Ends a Bio: its id is never valid again, its buffers return to their pools.
    #[inline]
    pub fn free(&mut self, mut bio: Box<Bio>) {
        let index = bio.id().index;
        let place = &mut self.slots[index as usize];
        debug_assert!(place.tenant == bio.id().tenant && place.parked.is_none(), "S1");
        place.tenant = place.tenant.wrapping_add(1);
        place.used = false;
        bio.data.clear();
        self.free.push(index);
        self.spare.push(bio);
    }

    /// Bios that have not ended.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Parked Bios, for diagnostics and for finding waiting requests.
    pub fn iter(&self) -> impl Iterator<Item = &Bio> {
        self.slots.iter().filter(|p| p.used).filter_map(|p| p.parked.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S1.
    #[test]
    fn a_stale_id_finds_nothing() {
        let mut slab = Slab::new();
        let bio = slab.alloc();
        let id = bio.id();
        slab.park(bio);
        let bio = slab.take(id).unwrap();
        assert!(slab.take(id).is_none(), "S1: it is out");
        slab.free(bio);
        let next = slab.alloc();
        assert_eq!(next.id().index, id.index, "places are reused");
        slab.park(next);
        assert!(slab.take(id).is_none(), "the old tenant's id is dead");
        assert_eq!(slab.live(), 1);
    }

    #[test]
    fn s2_a_ticket_wakes_once_and_only_the_newest_does() {
        let mut slab = Slab::new();
        let bio = slab.alloc();
        let (forgotten, good) = (bio.ticket(), bio.ticket());
        assert!(slab.wake(good).is_none(), "it does not wait yet");
        slab.park(bio);
        assert!(slab.wake(forgotten).is_none(), "a newer one was made");
        let mut bio = slab.wake(good).unwrap();
        bio.open_children = 1;
        let early = bio.ticket();
        slab.park(bio);
        assert!(slab.wake(good).is_none(), "it is used");
        assert!(slab.wake(early).is_none(), "children are under way");
        let bio = slab.take(early.id()).unwrap();
        let last = bio.ticket();
        slab.free(bio);
        let next = slab.alloc();
        slab.park(next);
        assert!(slab.wake(last).is_none(), "the place has another tenant");
    }

    #[test]
    fn ids_and_tickets_round_trip_through_words() {
        let mut slab = Slab::new();
        let a = slab.alloc();
        slab.free(a);
        let b = slab.alloc();
        assert_eq!(BioId::from_word(b.id().to_word()), b.id());
        let ticket = b.ticket();
        let (serial, word) = ticket.to_words();
        assert!(serial < 1 << 24 && Ticket::from_words(serial, word) == ticket);
    }
}
