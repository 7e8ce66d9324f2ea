//! Which of several members that hold the same is read: the least busy (geom.md 2.2, "Reads").
//!
//! A running average of what each member has in flight, `(queue * 256 + 7 * old) / 8`, looked at on
//! every read; a member that was last at the place asked for is preferred. Each core keeps its own:
//! what the others do is seen in how long answers take, not in shared counters.

/// A read that begins within so many bytes of the last one's end is near.
const NEAR_BYTES: u64 = 1 << 20;
/// Slots that a word of bits names.
const SLOTS: usize = u64::BITS as usize;
/// What being exactly there, or near, is worth.
const THERE: u32 = 512;
const NEAR: u32 = 256;

/// How busy a member has been with reads of this core.
#[derive(Clone, Copy, Default)]
struct Load {
    queue: u32,
    average: u32,
    last_end: u64,
}

impl Load {
    /// Looked at for a read at byte `at`: the least is the least busy.
    #[inline(always)]
    fn look(&mut self, at: u64) -> i64 {
        self.average = (self.queue * 256 + 7 * self.average) / 8;
        // Without branches: which member is near changes too often to be foreseen.
        let far = self.last_end.wrapping_sub(at);
        let near = u32::from(far.wrapping_add(NEAR_BYTES) <= 2 * NEAR_BYTES);
        let bonus = near * NEAR + u32::from(far == 0) * (THERE - NEAR);
        i64::from(self.average) - i64::from(bonus)
    }
}

/// How busy the members in some slots have been.
#[derive(Default)]
pub(crate) struct Loads(Vec<Load>);

impl Loads {
    /// There are so many slots from now on.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.0.resize(slots, Load::default());
    }

    /// A read that ends at byte `end` of the member was given to a slot.
    #[inline]
    pub(crate) fn begun(&mut self, slot: usize, end: u64) {
        if let Some(load) = self.0.get_mut(slot) {
            load.queue += 1;
            load.last_end = end;
        }
    }

    /// One has ended.
    #[inline]
    pub(crate) fn ended(&mut self, slot: usize) {
        if let Some(load) = self.0.get_mut(slot) {
            load.queue = load.queue.saturating_sub(1);
        }
    }

    /// The least busy of some slots (a bit a slot), whose members have the byte at the same place:
    /// [`Loads::least_busy`] and [`Loads::begun`] in one, for a read from `at` to `end`.
    #[inline(always)]
    pub(crate) fn take(&mut self, among: u64, at: u64, end: u64) -> Option<usize> {
        let mut least = i64::MAX;
        for (slot, load) in self.0.iter_mut().take(SLOTS).enumerate() {
            if among >> slot & 1 == 1 {
                // Ties go to the later one, as above.
                least = least.min(load.look(at) * SLOTS as i64 - slot as i64);
            }
        }
        let taken = least.wrapping_neg() as usize % SLOTS;
        let load = self.0.get_mut(taken).filter(|_| least != i64::MAX)?;
        load.queue += 1;
        load.last_end = end;
        Some(taken)
    }

    /// The way that a read takes, of these: each with its slot and the byte of the member.
    #[inline]
    pub(crate) fn least_busy<W>(
        &mut self,
        ways: impl Iterator<Item = (usize, W, u64)>,
    ) -> Option<(usize, W, u64)> {
        let mut best: Option<((usize, W, u64), i64)> = None;
        for way in ways {
            let Some(load) = self.0.get_mut(way.0) else { continue };
            let key = load.look(way.2);
            // Ties go to the later one.
            if best.as_ref().is_none_or(|(_, least)| key <= *least) {
                best = Some((way, key));
            }
        }
        best.map(|(way, _)| way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_on_where_they_were_until_that_member_is_busier() {
        let mut loads = Loads::default();
        loads.resize(2);
        let far = 1 << 30;
        let least = |loads: &mut Loads, slots: std::ops::Range<usize>| {
            let way = loads.least_busy(slots.map(|slot| (slot, (), far)));
            way.map(|(slot, ..)| slot)
        };
        loads.begun(0, far);
        loads.ended(0);
        assert_eq!(least(&mut loads, 0..2), Some(0), "it is there");
        for _ in 0..4 {
            loads.begun(0, far);
        }
        let asked: Vec<_> = (0..40).filter_map(|_| least(&mut loads, 0..2)).collect();
        assert_eq!(asked.last(), Some(&1), "the other has nothing to do");
        (0..4).for_each(|_| loads.ended(0));
        let asked: Vec<_> = (0..40).filter_map(|_| least(&mut loads, 0..2)).collect();
        assert_eq!(asked.last(), Some(&0));
        assert_eq!(least(&mut loads, 1..2), Some(1), "of those that may be asked");
        assert_eq!(least(&mut loads, 2..3), None);
    }

    #[test]
    fn one_that_is_taken_is_the_least_busy_and_counted() {
        let (mut one, mut two) = (Loads::default(), Loads::default());
        (one.resize(4), two.resize(4));
        let mut random = 7u64;
        for n in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (among, at) = (random >> 40 & 0x1f, (random >> 48) % 9 << 18);
            let slots = (0..5usize).filter(|slot| among >> slot & 1 == 1);
            let way = one.least_busy(slots.map(|slot| (slot, (), at))).map(|(slot, ..)| slot);
            if let Some(slot) = way {
                one.begun(slot, at + 4096);
            }
            assert_eq!(two.take(among, at, at + 4096), way, "read {n}");
            let ends = (random >> 20) as usize % 6;
            (one.ended(ends), two.ended(ends));
        }
        let of = |loads: &Loads| loads.0.iter().map(|l| (l.queue, l.last_end)).collect::<Vec<_>>();
        assert_eq!(of(&one), of(&two));
    }
}
