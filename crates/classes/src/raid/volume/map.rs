//! Where the bytes of a volume lie: the geometry of every level, without any I/O.
//!
//! ```text
//! RAID0          RAID1E, 3 members   RAID5 left-asymmetric   RAID6, N restart (DDF)
//! 0 1 2          0 0 1               0 1 P                   0 1 P Q
//! 3 4 5          1 2 2               2 P 3                   2 P Q 3
//! 6 7 8          3 3 4               P 4 5                   P Q 4 5
//!                                                            Q 6 7 P
//! ```
//!
//! Numbers are strips; a column is a member, a line a row. A *unit* is a run of bytes that lies
//! whole on each member that has it: a strip, or all of it where there are no strips.

use crate::raid::model::{Layout, Level, Volume};

/// Members of a volume at most: what one word of bits can name.
pub(crate) const MEMBERS_MAX: usize = 64;

/// The geometry of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    /// Bytes of a strip.
    pub(crate) strip: u64,
    /// Bytes of the volume.
    pub(crate) bytes: u64,
    /// Bytes of each member.
    lens: Vec<u64>,
}

/// A part of a request that lies in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte, on the volume.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Bytes of the request before it.
    pub(crate) skip: u64,
}

/// Where some bytes are on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The member's slot.
    pub(crate) slot: usize,
    /// First byte, from the start of the member's part.
    pub(crate) at: u64,
}

/// What is where in a row of a level with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Slot of the first parity.
    pub(crate) p: usize,
    /// Slot of the second.
    pub(crate) q: Option<usize>,
    members: usize,
    /// Data goes on behind the parities and comes round.
    continues: bool,
}

impl Row {
    /// Slot of the row's data strip number `nth`.
    pub(crate) fn data(&self, nth: usize) -> usize {
        let n = self.members.max(1);
        let after = self.q.filter(|q| *q == (self.p + 1) % n).unwrap_or(self.p);
        if self.continues {
            return (after + 1 + nth) % n;
        }
        match self.q {
            None => nth + usize::from(nth >= self.p),
            // The second parity came round to slot 0.
            Some(q) if q < self.p => nth + 1,
            Some(_) if nth >= self.p => nth + 2,
            Some(_) => nth,
        }
    }
}

impl Shape {
    /// The geometry that metadata describes.
    pub(crate) fn of(volume: &Volume) -> Shape {
        let lens = volume.members.iter().map(|m| m.bytes).collect();
        Shape { level: volume.level, strip: volume.strip.max(1), bytes: volume.bytes, lens }
    }

    /// Members.
    pub(crate) fn members(&self) -> usize {
        self.lens.len()
    }

    /// Parities of a row: 0, 1 or 2.
    pub(crate) fn parities(&self) -> usize {
        match self.level {
            Level::Raid4 | Level::Raid5(_) => 1,
            Level::Raid6(_) => 2,
            _ => 0,
        }
    }

    /// Places that each byte is at.
    pub(crate) fn copies(&self) -> usize {
        match self.level {
            Level::Raid1 => self.members(),
            Level::Raid1e | Level::Raid10 => 2,
            _ => 1,
        }
    }

    /// Data strips of a row.
    pub(crate) fn width(&self) -> usize {
        match self.level {
            Level::Raid0 => self.members(),
            _ => self.members().saturating_sub(self.parities()).max(1),
        }
    }

    /// Volume bytes of a row of a level with parity.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.strip.saturating_mul(self.width() as u64)
    }

    /// Bytes to the end of the unit that holds byte `at`.
    fn run(&self, at: u64) -> u64 {
        match self.level {
            Level::Raid1 | Level::Single => self.bytes.saturating_sub(at),
            Level::Concat => {
                let mut end = 0_u64;
                for len in &self.lens {
                    end = end.saturating_add(*len);
                    if at < end {
                        return end - at;
                    }
                }
                0
            }
            _ => self.strip - at % self.strip,
        }
    }

    /// The parts of a request, in order.
    pub(crate) fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let mut skip = 0;
        std::iter::from_fn(move || {
            let at = offset.checked_add(skip)?;
            let len = self.run(at).min(length.checked_sub(skip)?);
            if len == 0 {
                return None;
            }
            let piece = Piece { at, len, skip };
            skip += len;
            Some(piece)
        })
    }

    /// Where byte `at` is; `copy` is below [`Shape::copies`].
    pub(crate) fn spot(&self, at: u64, copy: usize) -> Spot {
        let n = (self.members() as u64).max(1);
        let (strip, within) = (at / self.strip, at % self.strip);
        let in_row = |slot: u64, row: u64| Spot {
            slot: slot as usize,
            at: row.saturating_mul(self.strip).saturating_add(within),
        };
        match self.level {
            Level::Raid1 => Spot { slot: copy, at },
            Level::Single => Spot { slot: 0, at },
            Level::Concat => {
                let mut before = 0_u64;
                for (slot, len) in self.lens.iter().enumerate() {
                    if at.saturating_sub(before) < *len {
                        return Spot { slot, at: at.saturating_sub(before) };
                    }
                    before = before.saturating_add(*len);
                }
                Spot { slot: self.members(), at: 0 }
            }
            Level::Raid0 => in_row(strip % n, strip / n),
            Level::Raid1e | Level::Raid10 => {
                let place = strip.saturating_mul(2).saturating_add(copy as u64);
                in_row(place % n, place / n)
            }
            Level::Raid4 | Level::Raid5(_) | Level::Raid6(_) => {
                let width = self.width() as u64;
                let row = strip / width;
                in_row(self.row(row).data((strip % width) as usize) as u64, row)
            }
        }
    }

    /// What is where in a row; for levels with parity.
    pub(crate) fn row(&self, number: u64) -> Row {
        let members = self.members();
        let n = (members as u64).max(1);
        let last = n - 1;
        let (p, q, continues) = match self.level {
            Level::Raid5(Layout::LeftAsymmetric) => (last - number % n, None, false),
            Level::Raid5(Layout::LeftSymmetric) => (last - number % n, None, true),
            Level::Raid5(Layout::RightAsymmetric) => (number % n, None, false),
            Level::Raid5(Layout::RightSymmetric) => (number % n, None, true),
            // DDF: "rotating parity 0 with data restart" and "N with data restart"; Q follows P.
            Level::Raid6(Layout::RightAsymmetric) => {
                let p = number % n;
                (p, Some((p + 1) % n), false)
            }
            Level::Raid6(Layout::LeftAsymmetric) => {
                let p = last - (number % n + 1) % n;
                (p, Some((p + 1) % n), false)
            }
            // "N with data continuation": Q stands before P.
            Level::Raid6(Layout::LeftSymmetric) => {
                let p = last - number % n;
                (p, Some((p + last) % n), true)
            }
            Level::Raid6(Layout::RightSymmetric) => {
                let p = number % n;
                (p, Some((p + 1) % n), true)
            }
            _ => (last, None, false),
        };
        Row { p: p as usize, q: q.map(|q| q as usize), members, continues }
    }

    /// Bytes of each member that are done when the first `at` bytes of the volume are.
    pub(crate) fn to_member(&self, at: u64) -> u64 {
        let n = (self.members() as u64).max(1);
        let done = match self.level {
            Level::Raid1 | Level::Single | Level::Concat => return at,
            Level::Raid1e | Level::Raid10 => u128::from(at) * 2 / u128::from(n),
            _ => u128::from(at) / u128::from(self.width() as u64),
        };
        let done = u64::try_from(done).unwrap_or(u64::MAX);
        done - done % self.strip
    }

    /// The inverse, rounded down to whole strips and rows: safe to go on from.
    pub(crate) fn of_member(&self, done: u64) -> u64 {
        let n = self.members() as u64;
        let rows = done / self.strip;
        let strips = match self.level {
            Level::Raid1 | Level::Single | Level::Concat => return done.min(self.bytes),
            Level::Raid1e | Level::Raid10 => rows.saturating_mul(n) / 2,
            _ => rows.saturating_mul(self.width() as u64),
        };
        strips.saturating_mul(self.strip).min(self.bytes)
    }
}
