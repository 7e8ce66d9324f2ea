//! Which member serves a read (geom.md 2.2, "Reads").
//!
//! `load` keeps a running average of what each member has in flight, `(queue * 256 + 7 * old) / 8`,
//! looked at on every read; a member that was last at the place asked for is preferred. Each core
//! keeps its own: what the others do is seen in how long answers take, not in shared counters.

use geom::Edge;

use super::metadata::Balance;
use super::shared::LaneState;

/// A read that begins within so many bytes of the last one's end is near.
const NEAR_BYTES: u64 = 1 << 20;
/// What being exactly there, or near, is worth.
const THERE: u32 = 512;
const NEAR: u32 = 256;

/// Into how many parts a read is split; `None` for one that is not.
pub(super) fn parts(lane: &LaneState, length: u64) -> Option<u64> {
    let table = &lane.table;
    if table.balance != Balance::Split || length <= table.slice {
        return None;
    }
    let members = table.active().count() as u64;
    (members > 1).then_some(members)
}

/// A member for a read at `offset`, none of `tried` (a bit a slot).
pub(super) fn choose(
    lane: &mut LaneState,
    offset: u64,
    length: u64,
    tried: u32,
) -> Option<(usize, Edge)> {
    let table = lane.table.clone();
    let mut free = table.active().filter(|(slot, _)| tried >> slot & 1 == 0);
    let slot = match table.balance {
        Balance::None => free.next()?.0,
        Balance::Prefer => {
            // Of equals the one found first.
            free.max_by_key(|(slot, p)| (p.priority, std::cmp::Reverse(*slot)))?.0
        }
        Balance::RoundRobin | Balance::Split => {
            let first = free.next()?.0;
            let after = std::iter::once(first).chain(free.map(|(slot, _)| slot));
            let slot = after.into_iter().find(|slot| *slot > lane.turn).unwrap_or(first);
            lane.turn = slot;
            slot
        }
        Balance::Load => least_busy(lane, free.map(|(slot, _)| slot), offset)?,
    };
    if let Some(load) = lane.loads.get_mut(slot) {
        load.queue += 1;
        load.last_end = offset.saturating_add(length);
    }
    let edge = table.paths.get(slot)?.as_ref()?.edge;
    Some((slot, edge))
}

fn least_busy(
    lane: &mut LaneState,
    slots: impl Iterator<Item = usize>,
    offset: u64,
) -> Option<usize> {
    let mut best: Option<(usize, i64)> = None;
    for slot in slots {
        let Some(load) = lane.loads.get_mut(slot) else { continue };
        load.average = (load.queue * 256 + 7 * load.average) / 8;
        let bonus = match load.last_end.abs_diff(offset) {
            0 => THERE,
            far if far <= NEAR_BYTES => NEAR,
            _ => 0,
        };
        let key = i64::from(load.average) - i64::from(bonus);
        // Ties go to the later one.
        if best.is_none_or(|(_, least)| key <= least) {
            best = Some((slot, key));
        }
    }
    best.map(|(slot, _)| slot)
}

/// A read that [`choose`] gave to a member has ended.
pub(super) fn ended(lane: &mut LaneState, slot: usize) {
    if let Some(load) = lane.loads.get_mut(slot) {
        load.queue = load.queue.saturating_sub(1);
    }
}
