//! Checks of the values of a GPT header, and the range that partitions may use.
//!
//! sfdisk, sgdisk and Linux accept headers whose usable range reaches into the arrays of entries.
//! Such a table is read, and the range without the arrays is used.

use super::gpt::{Header, TABLE_BYTES_MAX};
use super::table::{Entry, Media};
use crate::probe::{Allowed, ProbeError, Reason};

/// A value of a header that cannot be right, and where it is in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadField {
    at: u64,
    field: &'static str,
    value: u64,
    allowed: Allowed,
}

impl BadField {
    fn range(at: u64, field: &'static str, value: u64, low: u64, high: u64) -> BadField {
        BadField { at, field, value, allowed: Allowed::Range(low, high) }
    }

    fn text(at: u64, field: &'static str, value: u64, text: &'static str) -> BadField {
        BadField { at, field, value, allowed: Allowed::Text(text) }
    }

    /// As the reason why there is no table, for a header that begins at this byte.
    pub(super) fn to_probe_error(self, header: u64) -> ProbeError {
        let at = header.saturating_add(self.at);
        ProbeError::new(Reason::Value, at, self.field).with(self.value, self.allowed)
    }

    /// Of a header with this length and revision, in a sector of `size` bytes.
    pub(super) fn of_frame(len: u64, revision: u64, size: u64) -> BadField {
        match len >= 92 && len <= size {
            true => {
                BadField::range(8, "revision of the GPT header", revision, 0x1_0000, 0xffff_ffff)
            }
            false => BadField::range(12, "length of the GPT header", len, 92, size),
        }
    }
}

/// Looks at the values of a header in sector `at`. True when they are those of a larger disk: the
/// second copy, or some usable sectors, were behind the end of this one.
pub(super) fn plausible(header: &Header, media: &Media, at: u64) -> Result<bool, BadField> {
    let end = media.sectors.saturating_sub(1);
    if header.own != at {
        return Err(BadField::range(24, "own sector of the GPT header", header.own, at, at));
    }
    if header.entry_size < 128 || !header.entry_size.is_multiple_of(8) {
        let (size, text) = (header.entry_size.into(), "a multiple of 8, at least 128");
        return Err(BadField::text(84, "bytes of a GPT entry", size, text));
    }
    let most = u64::try_from(TABLE_BYTES_MAX).unwrap_or(0) / u64::from(header.entry_size);
    if !(1..=most).contains(&u64::from(header.count)) {
        return Err(BadField::range(80, "number of GPT entries", header.count.into(), 1, most));
    }
    let length = header.table_sectors(media);
    let behind = end.saturating_sub(length);
    let over = (header.table..header.table.saturating_add(length)).contains(&at);
    if !(2..=behind).contains(&header.table) {
        return Err(BadField::range(
            72,
            "first sector of the GPT entries",
            header.table,
            2,
            behind,
        ));
    }
    if over {
        let text = "a place that does not cover the header";
        return Err(BadField::text(72, "first sector of the GPT entries", header.table, text));
    }
    if header.first == 0 || header.first > header.last.min(end) {
        let high = header.last.min(end);
        return Err(BadField::range(40, "first usable sector of the GPT", header.first, 1, high));
    }
    if header.alternate == at {
        let text = "another sector than the header's own";
        return Err(BadField::text(32, "sector of the other GPT header", at, text));
    }
    let larger = header.alternate > end || header.last > end;
    // Only the first copy is where it was when the end of the disk moves.
    if larger && at != 1 {
        return Err(match header.alternate > end {
            true => BadField::range(32, "sector of the other GPT header", header.alternate, 1, end),
            false => {
                BadField::range(48, "last usable sector of the GPT", header.last, header.first, end)
            }
        });
    }
    Ok(larger)
}

/// The range that partitions may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usable {
    pub(super) first: u64,
    pub(super) last: u64,
    /// A partition has sectors of the table itself: the range has them, too.
    pub(super) covered: bool,
}

/// The usable range of a header without the `reserved` ranges (first sector, the one behind), as
/// far as no partition is there.
pub(super) fn usable(
    header: &Header,
    entries: &[Entry],
    reserved: &[(u64, u64)],
    end: u64,
) -> Usable {
    let mut range = Usable { first: header.first, last: header.last.min(end), covered: false };
    let low = entries.iter().map(|entry| entry.start).min();
    let high = entries.iter().map(|entry| entry.end).max();
    for &(from, to) in reserved {
        if to <= range.first || from > range.last {
            continue;
        }
        let in_front = low.is_none_or(|low| low >= to);
        let behind = high.is_none_or(|high| high < from);
        let front = from.saturating_sub(range.first) <= range.last.saturating_sub(to);
        match (in_front, behind) {
            (true, true) if front => range.first = to,
            (_, true) => range.last = from.saturating_sub(1),
            (true, false) => range.first = to,
            (false, false) => range.covered = true,
        }
    }
    range
}
