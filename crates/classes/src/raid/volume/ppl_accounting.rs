//! Log entries of a row, made before it is written.
//!
//! ```text
//! strip 0     |      wwww|    the write's parts: strips that follow each other, of which the
//! strip 1     |wwwwwwwwww|    first and the last need not be whole
//! strip 2     |ww        |
//!              ^^              a span: strips 1 and 2
//!                ^^^^          strip 1
//!                    ^^^^      strips 0 and 1
//! ```
//!
//! A span's partial parity is the sum of the strips that it does not write. The new parity is the
//! sum of all strips, so it is the sum of the partial parity and the new data.
//!
//! Invariants
//!  E1  An entry describes consecutive strips. A write is cut at a strip whose member does not have
//!      everything, or whose loss is in no record yet. That strip is written separately and last.
//!      Of the others, each old or new, the log then makes parity from which its data can be
//!      computed. It becomes old or new alone.
//!  E2  Nothing is written while a member is lost and no record contains that. Its log, or its
//!      data, would be believed after a crash, and units for these rows may have been overwritten.

use std::ops::Range;

use bio::{Errno, Segs, parity};

use super::log::{Log, RowStop};
use super::shared::{FailureEffect, Table};
use super::stripes::{RowWrite, Rows, StripPart};
use crate::raid::imsm::ppl::Entry;

/// The same bytes of strips that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Span {
    /// Bytes within the strips.
    range: Range<u64>,
    /// The first, and how many.
    first: usize,
    count: usize,
}

/// The common spans of a write's parts (number of the data strip, bytes within it).
fn spans(parts: &[(usize, Range<u64>)]) -> Vec<Span> {
    let mut ends: Vec<u64> = parts.iter().flat_map(|(_, r)| [r.start, r.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut all = Vec::new();
    for (from, to) in ends.iter().zip(ends.iter().skip(1)) {
        let of = parts.iter().filter(|(_, r)| r.start <= *from && *to <= r.end);
        let (mut first, mut count) = (usize::MAX, 0);
        for (nth, _) in of {
            (first, count) = (first.min(*nth), count + 1);
        }
        if count > 0 {
            all.push(Span { range: *from..*to, first, count });
        }
    }
    all
}

/// `to += from[at..]`
fn add_part(to: &mut [u8], from: &Segs, at: u64) {
    let mut bytes = vec![0; to.len()];
    from.copy_to(usize::try_from(at).unwrap_or(usize::MAX), &mut bytes);
    parity::add(to, &bytes);
}

impl Rows {
    /// E1: the parts of a write that are written one after the other.
    pub(super) fn sequential_parts<'a>(&self, touched: &'a [StripPart]) -> Vec<&'a [StripPart]> {
        let table = self.shared.table(self.core.id());
        let lost = touched.iter().position(|touch| !table.is_good_on_record(touch.slot));
        let Some(at) = lost.filter(|_| self.shared.log().is_some()) else { return vec![touched] };
        let (before, rest) = touched.split_at(at);
        let (lost, after) = rest.split_at(1);
        [before, after, lost].into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// E1: whether a part would be cut because a member was lost since it was made. That can be
    /// between two tries of a row, or while a debt to that member was paid.
    pub(super) fn is_split_differently(&self, table: &Table, part: &[StripPart]) -> bool {
        let lost = || part.iter().any(|touch| !table.is_good_on_record(touch.slot));
        self.shared.log().is_some() && part.len() > 1 && lost()
    }

    /// L1, L6: the entries of a row, on the member that has its parity, before it is sent. Returns
    /// that member's slot: the row is to leave its log when it has ended.
    pub(super) async fn enter_log<'a>(
        &self,
        log: &'a Log,
        turn: &mut RowWrite<'a>,
    ) -> Result<Option<usize>, RowStop> {
        let unrecorded = turn.table.unrecorded;
        if unrecorded != 0
            && !self.shared.await_decision(unrecorded, (0, 0), FailureEffect::Order).await
        {
            return Err(RowStop::Error(Errno::Io));
        }
        let slot = turn.row.p;
        let sum = turn.new.iter().find(|(of, _)| *of == slot).map(|(_, sum)| sum);
        let sum = sum.filter(|_| turn.table.good(slot).is_some());
        let logged = match sum {
            Some(sum) => {
                let (entries, parity) = self.entries(turn, sum);
                log.enter(&self.core, &self.shared, slot, &entries, &parity).await?;
                Some(slot)
            }
            None => None,
        };
        turn.sending = Some(log.sending());
        if self.is_stale(turn) {
            turn.sending = None;
            logged.into_iter().for_each(|slot| log.leave(slot));
            return Err(RowStop::Stale);
        }
        Ok(logged)
    }

    /// L6: whether others are members now than those for whom a row was made.
    fn is_stale(&self, turn: &RowWrite<'_>) -> bool {
        let now = self.shared.table(self.core.id());
        let of = |table: &Table, slot| table.path(slot).map(|path| (path.edge, path.role));
        let slots = turn.touched.iter().map(|touch| touch.slot).chain([turn.row.p]);
        let mut other = slots.filter(|slot| of(&now, *slot) != of(turn.table, *slot));
        now.unrecorded & !turn.table.unrecorded != 0 || other.next().is_some()
    }

    fn entries(&self, turn: &RowWrite<'_>, sum: &Segs) -> (Vec<Entry>, Vec<u8>) {
        let (shape, sector) = (&self.shared.shape, self.shared.sector.max(1));
        let nth = |slot: usize| (0..shape.width()).find(|nth| turn.row.data(*nth) == slot);
        let parts: Vec<(usize, Range<u64>)> =
            turn.touched.iter().filter_map(|t| Some((nth(t.slot)?, t.range.clone()))).collect();
        let (mut entries, mut all) = (Vec::new(), Vec::new());
        for Span { range, first, count } in spans(&parts) {
            let len = range.end - range.start;
            let mut rest = Vec::new();
            if count < shape.width() {
                rest.resize(len as usize, 0);
                sum.copy_to((range.start - turn.window.range.start) as usize, &mut rest);
                for touch in turn.touched.iter().filter(|t| t.range.start <= range.start) {
                    if range.end <= touch.range.end {
                        add_part(&mut rest, &touch.new, range.start - touch.range.start);
                    }
                }
            }
            let row = turn.window.number.saturating_mul(shape.row_bytes());
            let strip = shape.strip.saturating_mul(first as u64);
            let at = row.saturating_add(strip).saturating_add(range.start) / sector;
            let data = u32::try_from(len.saturating_mul(count as u64)).unwrap_or(u32::MAX);
            entries.push(Entry::of(at, data, turn.row.p as u32, &rest));
            all.extend_from_slice(&rest);
        }
        (entries, all)
    }
}

#[cfg(test)]
mod tests {
    use super::{Span, spans};

    fn span(range: std::ops::Range<u64>, first: usize, count: usize) -> Span {
        Span { range, first, count }
    }

    #[test]
    fn a_write_is_cut_where_its_strips_change() {
        let parts = [(0, 6..10), (1, 0..10), (2, 0..2)];
        let cut = [span(0..2, 1, 2), span(2..6, 1, 1), span(6..10, 0, 2)];
        assert_eq!(spans(&parts), cut);
        assert_eq!(spans(&[(3, 5..7)]), [span(5..7, 3, 1)]);
        assert_eq!(spans(&[(0, 8..10), (1, 0..3)]), [span(0..3, 1, 1), span(8..10, 0, 1)]);
        assert_eq!(spans(&[(0, 0..9), (1, 0..9)]), [span(0..9, 0, 2)]);
        assert_eq!(spans(&[]), []);
    }
}
