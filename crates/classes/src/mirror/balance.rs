//! Choice of the member that serves a read (docs/reference/geom.md 2.2, "Reads").

use geom::Edge;

use super::metadata::Balance;
use super::shared::{CoreState, Path, Table};
use crate::members::Loads;

/// Into how many parts a read is split; `None` for one that is not.
pub(super) fn parts(core_state: &CoreState, length: u64) -> Option<u64> {
    let table = &core_state.table;
    if table.balance != Balance::Split || length <= table.slice {
        return None;
    }
    let members = table.active().count() as u64;
    (members > 1).then_some(members)
}

/// Slots of which a read that was nowhere else takes the least busy (a bit a slot): all where the
/// load decides, the one where it is always the same, none where turns are taken.
pub(super) fn reads(table: &Table) -> u64 {
    let bit = |slot: usize| 1u64.checked_shl(slot as u32).unwrap_or(0);
    match table.balance {
        Balance::Load => table.active().fold(0, |bits, (slot, _)| bits | bit(slot)),
        Balance::None | Balance::Prefer => fixed(table.balance, table.active()).map_or(0, bit),
        Balance::RoundRobin | Balance::Split => 0,
    }
}

/// The first member, or of those with the highest priority the one found first.
fn fixed<'a>(balance: Balance, mut of: impl Iterator<Item = (usize, &'a Path)>) -> Option<usize> {
    let found = match balance {
        Balance::Prefer => of.max_by_key(|(slot, p)| (p.priority, std::cmp::Reverse(*slot))),
        _ => of.next(),
    };
    found.map(|(slot, _)| slot)
}

/// A member for a read at `offset`, none of `tried` (a bit a slot).
pub(super) fn choose(
    (core_state, loads): (&mut CoreState, &Loads),
    offset: u64,
    length: u64,
    tried: u32,
) -> Option<(usize, Edge)> {
    let CoreState { table, round_robin_slot: turn, .. } = core_state;
    let mut free = table.active().filter(|(slot, _)| tried >> slot & 1 == 0);
    let slot = match table.balance {
        Balance::Load => {
            let ways = free.map(|(slot, path)| (slot, path.edge, offset));
            let (slot, edge, _) = loads.least_busy(ways)?;
            loads.begun(slot, offset.saturating_add(length));
            return Some((slot, edge));
        }
        Balance::None | Balance::Prefer => fixed(table.balance, free)?,
        Balance::RoundRobin | Balance::Split => {
            let first = free.next()?.0;
            let after = std::iter::once(first).chain(free.map(|(slot, _)| slot));
            let slot = after.into_iter().find(|slot| *slot > *turn).unwrap_or(first);
            *turn = slot;
            slot
        }
    };
    loads.begun(slot, offset.saturating_add(length));
    let edge = table.paths.get(slot)?.as_ref()?.edge;
    Some((slot, edge))
}
