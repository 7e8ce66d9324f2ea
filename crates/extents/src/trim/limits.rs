//! Limits of a device's trim command, and the policy for sending it.

use std::ops::Range;

/// Limits of one command to the device, in the queue's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Smallest piece that the device gives up as a whole.
    pub granule: u64,
    /// Start of the first granule of the device, counted from the queue's zero.
    pub offset: u64,
    /// Ranges in one command; more become another command.
    pub ranges: usize,
    /// Units in one range; a longer one is cut.
    pub range_max: u64,
    /// Units in one command, all ranges together.
    pub command_max: u64,
}

impl Limits {
    /// ATA DATA SET MANAGEMENT with one block of payload, in bytes: 64 entries of 65,535 sectors.
    pub const ATA: Limits = Limits {
        granule: 4096,
        offset: 0,
        ranges: 64,
        range_max: 65_535 * 512,
        command_max: 64 * 65_535 * 512,
    };

    /// With numbers that can be worked with: nothing is zero, and a granule fits in a command.
    pub fn sane(self) -> Limits {
        let granule = self.granule.max(1);
        let range_max = (self.range_max / granule).max(1).saturating_mul(granule);
        let command_max = (self.command_max / granule).max(1).saturating_mul(granule);
        let ranges = self.ranges.max(1);
        Limits { granule, offset: self.offset % granule, ranges, range_max, command_max }
    }

    /// The whole granules inside a range, if there is one.
    pub fn inside(&self, range: &Range<u64>) -> Option<Range<u64>> {
        // Positions counted from the first granule; the units before it are no whole granule.
        let from = range.start.max(self.offset) - self.offset;
        let to = range.end.checked_sub(self.offset)?;
        let start = from.checked_next_multiple_of(self.granule)?;
        let end = to / self.granule * self.granule;
        (start < end).then(|| start + self.offset..end + self.offset)
    }
}

/// Policy of a queue. Times in ns, lengths in the queue's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// A range that is shorter after merging waits for its neighbours.
    pub short: u64,
    /// A batch is worth sending when it has this many ranges.
    pub batch_ranges: usize,
    /// ... or when nothing was freed for so long; ten times this is the longest that a batch that
    /// still grows is held back.
    pub quiet_ns: u64,
    /// A range that is still short when nothing has become of it for so long is stale.
    pub expire_ns: u64,
    /// Ranges that wait. Of more, the shortest become stale.
    pub queued_max: usize,
    /// Stale ranges that are remembered. Of more, the shortest are forgotten, and stay as they are
    /// on the device until they are written or freed again.
    pub stale_max: usize,
    /// Number of tries of a command before its ranges are stale.
    pub tries: u8,
    /// Time without commands after a command that failed.
    pub retry_ns: u64,
    /// Longest time for which a command with an unknown outcome may still be carried out.
    pub doubt_ns: u64,
}

impl Policy {
    /// For ranges in bytes.
    pub const BYTES: Policy = Policy {
        short: 96 << 10,
        batch_ranges: 64,
        quiet_ns: 1_000_000_000,
        expire_ns: 60_000_000_000,
        queued_max: 65_536,
        stale_max: 65_536,
        tries: 3,
        retry_ns: 1_000_000_000,
        doubt_ns: 60_000_000_000,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_only_whole_granules_inside_a_range_count_at_any_offset() {
        for granule in 1..5u64 {
            for offset in 0..granule {
                let limits =
                    Limits { granule, offset, ranges: 1, range_max: 99, command_max: 99 }.sane();
                for start in 0..14u64 {
                    for end in start..14 {
                        let whole = |at: u64| at % granule == offset % granule;
                        let fits: Vec<u64> = (start..end)
                            .filter(|at| whole(*at) && *at >= offset && at + granule <= end)
                            .collect();
                        let expected = fits.first().zip(fits.last());
                        let expected = expected.map(|(a, b)| *a..b + granule);
                        assert_eq!(limits.inside(&(start..end)), expected, "{limits:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn limits_are_whole_granules_and_never_zero() {
        let ata = Limits::ATA.sane();
        assert_eq!(ata.range_max % 4096, 0);
        assert!(ata.range_max <= 65_535 * 512 && ata.range_max > 65_520 * 512);
        let none = Limits { granule: 0, offset: 7, ranges: 0, range_max: 0, command_max: 0 };
        let none = none.sane();
        assert_eq!((none.granule, none.offset, none.ranges), (1, 0, 1));
        assert_eq!((none.range_max, none.command_max), (1, 1));
        assert_eq!(Limits { granule: 8, ..none }.inside(&(u64::MAX - 3..u64::MAX)), None);
    }
}
