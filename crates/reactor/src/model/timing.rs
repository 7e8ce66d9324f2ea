//! The timing of a modelled disk.

use crate::model::DiskOp;
use crate::random::SeededRandom;

/// How long operations take, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// Between two bounds, for any operation; any number at once.
    Between {
        /// At least, in ns.
        min_ns: u64,
        /// At most, in ns.
        max_ns: u64,
    },
    /// One arm over turning platters: seek, wait for the sector, transfer. One at a time.
    Spinning {
        /// Seek to the next track, in ns; a seek over the whole disk takes `seek_ns_max`.
        seek_ns_min: u64,
        /// Seek over the whole disk, in ns.
        seek_ns_max: u64,
        /// One turn of the platter, in ns (7200 rpm: 8,333,333).
        turn_ns: u64,
        /// Bytes under the head in one turn.
        track_bytes: u64,
    },
    /// Flash: a time for each operation and one for each 4 KiB; discards are dear. Any number at
    /// once.
    Flash {
        read_ns: u64,
        write_ns: u64,
        flush_ns: u64,
        discard_ns: u64,
        /// For each 4 KiB moved, in ns.
        page_ns: u64,
    },
}

impl Default for Timing {
    /// 20 us to 200 us: a flash disk with a queue.
    fn default() -> Self {
        Timing::Between { min_ns: 20_000, max_ns: 200_000 }
    }
}

impl Timing {
    /// A disk of 7200 turns a minute.
    pub const SPINNING_7200: Timing = Timing::Spinning {
        seek_ns_min: 800_000,
        seek_ns_max: 15_000_000,
        turn_ns: 8_333_333,
        track_bytes: 1_500_000,
    };

    /// A SATA flash disk on which a discard is thirty times as dear as a write.
    pub const FLASH_SATA: Timing = Timing::Flash {
        read_ns: 80_000,
        write_ns: 60_000,
        flush_ns: 500_000,
        discard_ns: 1_800_000,
        page_ns: 8_000,
    };

    pub(super) fn is_serial(self) -> bool {
        matches!(self, Timing::Spinning { .. })
    }

    /// Cost of one operation begun at `now` with the head at `head`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn cost(
        self,
        now: u64,
        op: DiskOp,
        head: u64,
        offset: u64,
        len: u64,
        size: u64,
        random: &mut SeededRandom,
    ) -> u64 {
        match self {
            Timing::Between { min_ns, max_ns } => {
                min_ns + random.below(max_ns.saturating_sub(min_ns).saturating_add(1))
            }
            Timing::Spinning { seek_ns_min, seek_ns_max, turn_ns, track_bytes } => {
                let (turn, track) = (turn_ns.max(1), track_bytes.max(1));
                if op == DiskOp::Flush {
                    return turn;
                }
                let seek = seek_ns(head, offset, size, track, seek_ns_min, seek_ns_max);
                // Where the platter will be when the arm has arrived, and where it should be.
                let angle = now.saturating_add(seek) % turn;
                let wanted = scale(offset % track, turn, track);
                let wait = (wanted + turn - angle) % turn;
                let wait = if seek == 0 && head == offset { 0 } else { wait };
                seek.saturating_add(wait).saturating_add(scale(len, turn, track))
            }
            Timing::Flash { read_ns, write_ns, flush_ns, discard_ns, page_ns } => {
                let pages = len.div_ceil(4096).saturating_mul(page_ns);
                match op {
                    DiskOp::Read => read_ns.saturating_add(pages),
                    DiskOp::Write => write_ns.saturating_add(pages),
                    DiskOp::Flush => flush_ns,
                    DiskOp::Discard | DiskOp::Zero => discard_ns,
                }
            }
        }
    }
}

/// `a * b / c` without overflow.
fn scale(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

/// Arms speed up and brake: the time grows with the root of the distance.
fn seek_ns(head: u64, to: u64, size: u64, track: u64, min: u64, max: u64) -> u64 {
    let distance = head.abs_diff(to);
    if head / track == to / track {
        return 0;
    }
    let part = (distance as f64 / size.max(1) as f64).min(1.0).sqrt();
    min.saturating_add((max.saturating_sub(min) as f64 * part) as u64)
}

#[cfg(test)]
mod tests {
    use testkit::Seeds;

    use super::*;

    fn cost(t: Timing, now: u64, head: u64, offset: u64) -> u64 {
        let mut random = SeededRandom::new(0);
        t.cost(now, DiskOp::Read, head, offset, 4096, 1 << 40, &mut random)
    }

    #[test]
    fn spinning_disk_seeks_only_for_distant_offsets() {
        let t = Timing::SPINNING_7200;
        let near = cost(t, 0, 8192, 8192);
        assert!(near < 100_000, "sequential: transfer only, {near}");
        let far: u64 = (0..100).map(|i| cost(t, i * 997_331, 0, 1 << 39)).sum();
        let far = far / 100;
        assert!((12_000_000..18_000_000).contains(&far), "seek and half a turn: {far}");
    }

    #[test]
    fn cost_is_within_its_bounds() {
        let t = Timing::Between { min_ns: 5, max_ns: 9 };
        for seed in Seeds::of(100) {
            let mut random = SeededRandom::new(seed);
            let mut hit = [false; 16];
            for _ in 0..200 {
                hit[t.cost(0, DiskOp::Flush, 0, 0, 0, 0, &mut random) as usize] = true;
            }
            let all: Vec<usize> = (0..16).filter(|&i| hit[i]).collect();
            assert_eq!(all, [5, 6, 7, 8, 9]);
        }
    }
}
