//! Places for frames at a target, which all cores share. A core that is alone has all of them, and
//! a core that starts later gets its part.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(super) struct TargetCredits {
    taken: AtomicU32,
    /// Cores, by bit, that have less than their part and found no place.
    waiting_cores: AtomicU64,
}

/// A core that wants a place.
#[derive(Clone, Copy)]
pub(super) struct CoreDemand {
    pub core: usize,
    /// Places that it has.
    pub held: u32,
    /// Its part of all.
    pub share: u32,
}

/// Result of the request for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TakeResult {
    Taken,
    /// It has its part: it continues when one of its own frames is answered.
    Later,
    /// It is owed one, and is to look again soon.
    Owed,
}

impl CoreDemand {
    fn bit(self) -> u64 {
        1 << (self.core % super::inflight::CORES_MAX)
    }
}

impl TargetCredits {
    /// Takes one of `most` places. While a core is owed a place, no core that is not owed one takes
    /// any.
    pub(super) fn take(&self, demand: CoreDemand, most: u32) -> TakeResult {
        let is_owed = demand.held < demand.share;
        let waiting = self.waiting_cores.load(Ordering::Acquire);
        let others_first = waiting & demand.bit() == 0 && waiting != 0;
        let more = |taken| (taken < most).then_some(taken + 1);
        if !others_first
            && self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
        {
            return TakeResult::Taken;
        }
        if !is_owed {
            return TakeResult::Later;
        }
        self.waiting_cores.fetch_or(demand.bit(), Ordering::AcqRel);
        TakeResult::Owed
    }

    /// A core that was owed one has enough, or wants no more.
    pub(super) fn demand_met(&self, demand: CoreDemand) {
        self.waiting_cores.fetch_and(!demand.bit(), Ordering::AcqRel);
    }

    /// A frame is not waited for any more.
    pub(super) fn release(&self) {
        let less = |taken: u32| taken.checked_sub(1);
        let _none = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_core_takes_all_places_and_yields_a_share_to_others() {
        let pool = TargetCredits::default();
        let of = |core, own| CoreDemand { core, held: own, share: 2 };
        (0..4).for_each(|own| assert_eq!(pool.take(of(0, own), 4), TakeResult::Taken));
        assert_eq!(pool.take(of(0, 4), 4), TakeResult::Later, "no more than there are");
        assert_eq!(pool.take(of(1, 0), 4), TakeResult::Owed);
        pool.release();
        assert_eq!(pool.take(of(0, 3), 4), TakeResult::Later, "somebody is owed one");
        assert_eq!(pool.take(of(1, 0), 4), TakeResult::Taken);
        assert_eq!(pool.take(of(1, 1), 4), TakeResult::Owed, "it has one of two");
        pool.release();
        assert_eq!(pool.take(of(0, 2), 4), TakeResult::Later);
        pool.demand_met(of(1, 1));
        assert_eq!(pool.take(of(0, 2), 4), TakeResult::Taken);
        pool.release();
        (0..9).for_each(|_| pool.release());
        (0..4).for_each(|own| assert_eq!(pool.take(of(1, own), 4), TakeResult::Taken));
        assert_eq!(pool.take(of(1, 4), 4), TakeResult::Later);
    }
}
