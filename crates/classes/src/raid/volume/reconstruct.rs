//! Reading of rows, and solving for unreadable data.

use bio::{Errno, Op, Segs, parity};

use super::map::Row;
use super::shared::Table;
use super::stripes::{Rows, Window};
use super::task_util::{
    MemberRequest, RequestContext, add, bit, blocks, copy, part, scale, send_all, sums,
};

/// Contents of a window, by slot; and memory that is still free.
pub(super) struct Contents {
    pub(super) by_slot: Vec<Option<Segs>>,
    pub(super) free: Vec<Segs>,
}

impl Contents {
    fn has(&self, slot: usize) -> bool {
        self.by_slot.get(slot).is_some_and(Option::is_some)
    }
}
impl Rows {
    /// Reads a window of some slots, with `spare` further blocks of memory (R3). The error is the
    /// slots that could not be read; their members are reported.
    pub(super) async fn fetch(
        &self,
        table: &Table,
        window: &Window,
        slots: &[usize],
        spare: usize,
    ) -> Result<Contents, u64> {
        let (contents, unread) = self.fetch_readable(table, window, slots, spare).await;
        for (slot, e) in &unread {
            self.shared.read_failed(*slot, *e, false);
        }
        let failed = slots.iter().filter(|slot| !contents.has(**slot));
        match failed.fold(0, |all, slot| all | bit(*slot)) {
            0 => Ok(contents),
            failed => Err(failed),
        }
    }

    /// The same; unreadable slots are absent from the contents, and returned with their errors.
    pub(super) async fn fetch_readable(
        &self,
        table: &Table,
        window: &Window,
        slots: &[usize],
        spare: usize,
    ) -> (Contents, Vec<(usize, Errno)>) {
        let len = Self::len(window);
        let mut free = blocks(&self.core, slots.len() + spare, len as usize).await;
        let mut by_slot: Vec<Option<Segs>> = Vec::new();
        by_slot.resize_with(self.shared.shape.members(), || None);
        let mut all = Vec::new();
        for slot in slots {
            let (Some(path), Some(block)) = (table.good(*slot), free.pop()) else { continue };
            let at = path.offset.saturating_add(self.member_at(window));
            let data = part(&block, 0, len);
            all.push(MemberRequest { slot: *slot, edge: path.edge, op: Op::Read, at, len, data });
            if let Some(place) = by_slot.get_mut(*slot) {
                *place = Some(block);
            }
        }
        let how = RequestContext { origin: self.context.origin, ..RequestContext::default() };
        let mut unread = Vec::new();
        for (slot, status) in send_all(&self.core, all, how).await {
            if let (Err(e), Some(place)) = (status, by_slot.get_mut(slot)) {
                free.extend(place.take());
                unread.push((slot, e));
            }
        }
        (Contents { by_slot, free }, unread)
    }

    /// Computes the data strips that were not read; false when too many are lost.
    pub(super) fn solve(&self, row: &Row, contents: &mut Contents) -> bool {
        let data = self.data(row);
        let unknown: Vec<usize> =
            data.iter().copied().filter(|slot| !contents.has(*slot)).collect();
        let known: Vec<usize> = data.iter().copied().filter(|slot| contents.has(*slot)).collect();
        let (p, q) = (Some(row.p), row.q);
        // The sum of a parity and the known data is the unknown data.
        let rest = |contents: &mut Contents, parity: Option<usize>| {
            let sum = contents.free.pop()?;
            let from = contents.by_slot.get(parity?)?.as_ref()?;
            copy(&sum, from);
            for slot in &known {
                let factor = if parity == q { Self::weight(*slot) } else { 1 };
                add(&sum, contents.by_slot.get(*slot)?.as_ref()?, factor);
            }
            Some(sum)
        };
        let has = |parity: Option<usize>, c: &Contents| parity.is_some_and(|slot| c.has(slot));
        let mut found = Vec::new();
        match unknown[..] {
            [] => return true,
            [one] if has(p, contents) => found.push((one, rest(contents, p))),
            [one] => {
                let sum = rest(contents, q);
                if let Some(sum) = &sum {
                    scale(sum, parity::inverse(Self::weight(one)));
                }
                found.push((one, sum));
            }
            [one, two] => {
                let (Some(both), Some(heavy)) = (rest(contents, p), rest(contents, q)) else {
                    return false;
                };
                let (w1, w2) = (Self::weight(one), Self::weight(two));
                // both = a + b, heavy = w1 a + w2 b: so heavy + w2 both = (w1 + w2) a.
                add(&heavy, &both, w2);
                scale(&heavy, parity::inverse(w1 ^ w2));
                add(&both, &heavy, 1);
                found.extend([(one, Some(heavy)), (two, Some(both))]);
            }
            _ => return false,
        }
        for (slot, block) in found {
            let (Some(place), Some(block)) = (contents.by_slot.get_mut(slot), block) else {
                return false;
            };
            *place = Some(block);
        }
        true
    }

    /// The correct content of a parity of the row; `None` when data or memory is missing.
    pub(super) fn sum(&self, row: &Row, contents: &mut Contents, slot: usize) -> Option<Segs> {
        let sum = contents.free.pop()?;
        let mut from = Vec::new();
        for slot in self.data(row) {
            from.push((contents.by_slot.get(slot)?.as_ref()?, slot));
        }
        match Some(slot) == row.q {
            true => sums(None, Some(&sum), &from),
            false => sums(Some(&sum), None, &from),
        }
        Some(sum)
    }
}
