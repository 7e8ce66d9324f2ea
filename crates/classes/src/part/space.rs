//! Free space of a table, and alignment.

use super::table::{Media, Table};

/// A free range, both ends inclusive, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// First free sector.
    pub start: u64,
    /// Last free sector.
    pub end: u64,
}

/// Multiples that partitions keep to, with the provider's own offset taken into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// In sectors, at least 1.
    pub sectors: u64,
    /// What must be added to a sector number before it is divided.
    pub offset: u64,
}

impl Alignment {
    /// Multiples of `sectors` as seen from the whole disk.
    pub fn of(media: &Media, sectors: u64) -> Self {
        let offset = media.stripe_offset.checked_div(u64::from(media.sector_size)).unwrap_or(0);
        Self { sectors: sectors.max(1), offset }
    }

    /// The provider's stripe size if it is known and a multiple of the sector, else 1 sector.
    pub fn stripe(media: &Media) -> Self {
        let size = u64::from(media.sector_size).max(1);
        let stripe = media.stripe_size;
        Self::of(media, if stripe.is_multiple_of(size) { stripe / size } else { 1 })
    }

    /// The first aligned sector at or after `sector`; `None` beyond 2^64.
    pub fn up(self, sector: u64) -> Option<u64> {
        let shifted = sector.checked_add(self.offset)?;
        shifted.checked_next_multiple_of(self.sectors)?.checked_sub(self.offset)
    }

    /// The last aligned sector at or before `sector`; `None` below 0.
    pub fn down(self, sector: u64) -> Option<u64> {
        let shifted = sector.checked_add(self.offset)?;
        (shifted - shifted % self.sectors).checked_sub(self.offset)
    }
}

/// The free ranges between `first` and `last` of `table`, in order. Space of `skip` counts as
/// free.
pub fn gaps(table: &Table, skip: Option<u32>) -> Vec<Gap> {
    let mut used: Vec<(u64, u64)> = table
        .entries
        .iter()
        .filter(|entry| Some(entry.index) != skip)
        .map(|entry| (entry.start, entry.end))
        .collect();
    used.sort_unstable();
    let mut free = Vec::new();
    let mut next = table.first;
    for (start, end) in used {
        if start > next {
            free.push(Gap { start: next, end: start - 1 });
        }
        next = next.max(end.saturating_add(1));
    }
    if next <= table.last {
        free.push(Gap { start: next, end: table.last });
    }
    free
}

/// A wish for space: where known, else the first gap that serves.
#[derive(Debug, Clone, Copy)]
pub struct SpaceRequest {
    /// First sector, when the user gave one.
    pub start: Option<u64>,
    /// Length in sectors, when the user gave one.
    pub size: Option<u64>,
    /// Alignment of an automatic start and end.
    pub align: Alignment,
    /// Given values are aligned too.
    pub strict: bool,
}

/// The range that fulfils `wish` among `free`, both ends inclusive.
pub fn fit(free: &[Gap], wish: SpaceRequest) -> Option<Gap> {
    free.iter().find_map(|&gap| fit_gap(gap, wish))
}

fn fit_gap(gap: Gap, wish: SpaceRequest) -> Option<Gap> {
    let start = match wish.start {
        Some(start) if start < gap.start || start > gap.end => return None,
        Some(start) if wish.strict => wish.align.up(start)?,
        Some(start) => start,
        None => wish.align.up(gap.start)?,
    };
    let end = match wish.size {
        Some(size) if wish.strict => start.checked_add(size - size % wish.align.sectors)?,
        Some(size) => start.checked_add(size)?,
        None => match wish.align.down(gap.end.checked_add(1)?)? {
            end if end > start => end,
            // Less than one aligned unit: all of it, unless alignment was set.
            _ if wish.strict => return None,
            _ => gap.end.checked_add(1)?,
        },
    }
    .checked_sub(1)?;
    (start <= end && end <= gap.end).then_some(Gap { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: [Gap; 2] = [Gap { start: 34, end: 40 }, Gap { start: 100, end: 4999 }];

    fn check(
        start: Option<u64>,
        size: Option<u64>,
        align: u64,
        strict: bool,
        want: Option<(u64, u64)>,
    ) {
        let align = Alignment { sectors: align, offset: 0 };
        let got =
            fit(&FREE, SpaceRequest { start, size, align, strict }).map(|gap| (gap.start, gap.end));
        assert_eq!(got, want, "{start:?} {size:?} {align:?}");
    }

    #[test]
    fn first_suitable_gap_is_chosen() {
        check(None, None, 1, false, Some((34, 40)));
        check(None, Some(7), 1, false, Some((34, 40)));
        check(None, Some(8), 1, false, Some((100, 107)));
        check(None, None, 2048, true, Some((2048, 4095)));
        check(None, Some(2048), 2048, true, Some((2048, 4095)));
        check(None, Some(2049), 2048, true, Some((2048, 4095)));
        check(None, Some(2047), 2048, true, None);
        check(None, Some(4096), 2048, true, None);
        check(None, Some(2049), 2048, false, Some((2048, 4096)));
        check(Some(101), Some(10), 1, false, Some((101, 110)));
        check(Some(101), None, 8, false, Some((101, 4999)));
        check(Some(101), None, 8, true, Some((104, 4999)));
        check(Some(101), None, 4096, false, Some((101, 4095)));
        check(Some(50), Some(1), 1, false, None);
        check(Some(4999), Some(2), 1, false, None);
        check(None, Some(0), 1, false, None);
        check(None, Some(u64::MAX), 1, false, None);
    }

    #[test]
    fn alignment_includes_the_stripe_offset_of_the_provider() {
        let media =
            Media { sectors: 1000, sector_size: 512, stripe_size: 4096, stripe_offset: 512 };
        let align = Alignment::stripe(&media);
        assert_eq!((align.up(0), align.up(7), align.up(8)), (Some(7), Some(7), Some(15)));
        assert_eq!((align.down(0), align.down(14)), (None, Some(7)));
        let odd = Media { stripe_size: 1000, ..media };
        assert_eq!(Alignment::stripe(&odd).sectors, 1);
    }
}
