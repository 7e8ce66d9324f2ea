//! Places for frames at a target, which all cores share. A core that is alone has all of them, and
//! a core that starts later gets its part.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(super) struct Pool {
    taken: AtomicU32,
    /// Cores, by bit, that have less than their part and found no place.
    hungry: AtomicU64,
}

/// A core that wants a place.
#[derive(Clone, Copy)]
pub(super) struct Guest {
    pub core: usize,
    /// Places that it has.
    pub own: u32,
    /// Its part of all.
    pub part: u32,
}

/// Result of the request for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Taken,
    /// It has its part: it goes on when one of its own frames is answered.
    Later,
    /// It is owed one, and is to look again soon.
    Owed,
}

impl Guest {
    fn bit(self) -> u64 {
        1 << (self.core % super::flight::CORES_MAX)
    }
}

impl Pool {
    /// Takes one of `most` places. While a core is owed a place, no core that is not owed one takes
    /// any.
    pub(super) fn take(&self, guest: Guest, most: u32) -> Place {
        let is_owed = guest.own < guest.part;
        let hungry = self.hungry.load(Ordering::Acquire);
        let others_first = hungry & guest.bit() == 0 && hungry != 0;
        let more = |taken| (taken < most).then_some(taken + 1);
        if !others_first
            && self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
        {
            return Place::Taken;
        }
        if !is_owed {
            return Place::Later;
        }
        self.hungry.fetch_or(guest.bit(), Ordering::AcqRel);
        Place::Owed
    }

    /// A core that was owed one has enough, or wants no more.
    pub(super) fn is_content(&self, guest: Guest) {
        self.hungry.fetch_and(!guest.bit(), Ordering::AcqRel);
    }

    /// A frame is not waited for any more.
    pub(super) fn give_back(&self) {
        let less = |taken: u32| taken.checked_sub(1);
        let _none = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_core_takes_all_places_and_yields_a_share_to_others() {
        let pool = Pool::default();
        let of = |core, own| Guest { core, own, part: 2 };
        (0..4).for_each(|own| assert_eq!(pool.take(of(0, own), 4), Place::Taken));
        assert_eq!(pool.take(of(0, 4), 4), Place::Later, "no more than there are");
        assert_eq!(pool.take(of(1, 0), 4), Place::Owed);
        pool.give_back();
        assert_eq!(pool.take(of(0, 3), 4), Place::Later, "somebody is owed one");
        assert_eq!(pool.take(of(1, 0), 4), Place::Taken);
        assert_eq!(pool.take(of(1, 1), 4), Place::Owed, "it has one of two");
        pool.give_back();
        assert_eq!(pool.take(of(0, 2), 4), Place::Later);
        pool.is_content(of(1, 1));
        assert_eq!(pool.take(of(0, 2), 4), Place::Taken);
        pool.give_back();
        (0..9).for_each(|_| pool.give_back());
        (0..4).for_each(|own| assert_eq!(pool.take(of(1, own), 4), Place::Taken));
        assert_eq!(pool.take(of(1, 4), 4), Place::Later);
    }
}
