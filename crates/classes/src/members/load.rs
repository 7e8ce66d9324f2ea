//! Which of several members that hold the same is read: the least busy (geom.md 2.2, "Reads").
//!
//! A running average of what each member has in flight, `(queue * 256 + 7 * old) / 8`, looked at on
//! every read; a member that was last at the place asked for is preferred. Each core keeps its own:
//! what the others do is seen in how long answers take, not in shared counters.

/// A read that begins within so many bytes of the last one's end is near.
const NEAR_BYTES: u64 = 1 << 20;
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

    /// The way that a read takes, of these: each with its slot and the byte of the member.
    #[inline]
    pub(crate) fn least_busy<W>(
        &mut self,
        ways: impl Iterator<Item = (usize, W, u64)>,
    ) -> Option<(usize, W, u64)> {
        let mut best: Option<((usize, W, u64), i64)> = None;
        for way in ways {
            let Some(load) = self.0.get_mut(way.0) else { continue };
            load.average = (load.queue * 256 + 7 * load.average) / 8;
            let bonus = match load.last_end.abs_diff(way.2) {
                0 => THERE,
                far if far <= NEAR_BYTES => NEAR,
                _ => 0,
            };
            let key = i64::from(load.average) - i64::from(bonus);
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
}
