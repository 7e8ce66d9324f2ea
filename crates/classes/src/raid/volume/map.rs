//! Geometry of a volume: the places of its bytes on every level, without any I/O.
//!
//! ```text
//! RAID0          RAID1E, 3 members   RAID5 left-asymmetric   RAID6, N restart (DDF)
//! 0 1 2          0 0 1               0 1 P                   0 1 P Q
//! 3 4 5          1 2 2               2 P 3                   2 P Q 3
//! 6 7 8          3 3 4               P 4 5                   P Q 4 5
//!                                                            Q 6 7 P
//! ```
//!
//! Numbers are strips; a column is a member, a line a row. A *unit* is a run of bytes that is
//! whole on each member that has it: a strip, or all of it where there are no strips.

use crate::members::Divisor;
use crate::raid::model::{Layout, Level, Volume};

/// Members of a volume at most: what one word of bits can name.
pub(crate) const MEMBERS_MAX: usize = 64;

/// The geometry of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) strip: u64,
    pub(crate) bytes: u64,
    /// Bytes of each member.
    lens: Vec<u64>,
    /// A strip, the data strips of a row and the members, to divide by.
    by_strip: Divisor,
    by_width: Divisor,
    by_members: Divisor,
    /// Empty where there are no strips.
    strip_table: StripTable,
}

/// A part of a request that is in one unit.
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
    pub(crate) slot: usize,
    /// First byte, from the start of the member's part.
    pub(crate) at: u64,
}

/// Where the first copies of strips are, until it repeats: one division finds a strip, regardless
/// of the level.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StripTable {
    /// Strips until it repeats, to divide by.
    strips: Divisor,
    /// Rows until it repeats.
    rows: u64,
    /// Slot and row of each strip.
    places: Box<[(u8, u8)]>,
}

/// The slots of a row of a level with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Slot of the first parity.
    pub(crate) p: usize,
    /// Slot of the second.
    pub(crate) q: Option<usize>,
    members: usize,
    /// Data continues behind the parities and wraps around.
    continues: bool,
}

impl Row {
    /// Slot of the row's data strip number `nth`.
    pub(crate) fn data(&self, nth: usize) -> usize {
        if self.continues {
            let n = self.members.max(1);
            let round = |slot: usize| if slot < n { slot } else { slot - n };
            let after = self.q.filter(|q| *q == round(self.p + 1)).unwrap_or(self.p);
            return round(after + 1 + nth);
        }
        match self.q {
            None => nth + usize::from(nth >= self.p),
            // The second parity wrapped around to slot 0.
            Some(q) if q < self.p => nth + 1,
            Some(_) if nth >= self.p => nth + 2,
            Some(_) => nth,
        }
    }
}

impl Shape {
    /// The geometry that metadata describes.
    pub(crate) fn of(volume: &Volume) -> Shape {
        let lens: Vec<u64> = volume.members.iter().map(|m| m.bytes).collect();
        let (level, strip, bytes) = (volume.level, volume.strip.max(1), volume.bytes);
        let [by_strip, by_members] = [strip, lens.len() as u64].map(Divisor::new);
        let by_width = Divisor::new(1);
        let rota = StripTable { strips: by_width, rows: 0, places: Box::default() };
        let mut shape =
            Shape { level, strip, bytes, lens, by_strip, by_width, by_members, strip_table: rota };
        shape.by_width = Divisor::new(shape.width() as u64);
        shape.strip_table = shape.build_strip_table();
        shape
    }

    fn build_strip_table(&self) -> StripTable {
        let n = self.members() as u64;
        let (strips, rows) = match self.level {
            Level::Raid1 | Level::Single | Level::Concat => (0, 0),
            Level::Raid0 => (n, 1),
            Level::Raid1e | Level::Raid10 => (n, 2),
            Level::Raid4 | Level::Raid5(_) | Level::Raid6(_) => (n * self.width() as u64, n),
        };
        let place = |strip: u64| {
            let (row, slot) = self.place(strip, 0);
            // Both are below the number of members.
            (slot as u8, row as u8)
        };
        StripTable { strips: Divisor::new(strips), rows, places: (0..strips).map(place).collect() }
    }

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
            _ => self.strip - self.by_strip.split(at).1,
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

    /// Where the first copy of some bytes is, if they lie in one unit.
    pub(crate) fn sole(&self, at: u64, len: u64) -> Option<Spot> {
        (len <= self.run(at)).then(|| self.spot(at, 0))
    }

    /// The same without a call, of nearly all bytes where there are strips; `None`: call
    /// [`Shape::sole`].
    #[inline(always)]
    pub(crate) fn sole_at_once(&self, at: u64, len: u64) -> Option<Spot> {
        let (strip, within) = self.by_strip.split_at_once(at)?;
        let (rounds, nth) = self.strip_table.strips.split_at_once(strip)?;
        let (slot, row) = *self.strip_table.places.get(nth as usize)?;
        let row = rounds * self.strip_table.rows + u64::from(row);
        // No member holds more than the volume: there is nothing to saturate.
        let at = row.wrapping_mul(self.strip).wrapping_add(within);
        (len <= self.strip - within).then_some(Spot { slot: slot.into(), at })
    }

    /// The slots (a bit a slot) that have all of some bytes at one and the same place, and that
    /// place, where each strip has two copies. `None` where these are at different places, or
    /// [`Shape::sole`] has to be called.
    #[inline(always)]
    pub(crate) fn alike(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let Spot { slot, at } = self.sole_at_once(at, len)?;
        // Else the second copy begins the next row.
        (slot + 1 < self.members()).then(|| (3u64.checked_shl(slot as u32).unwrap_or(0), at))
    }

    /// Where byte `at` is; `copy` is below [`Shape::copies`].
    pub(crate) fn spot(&self, at: u64, copy: usize) -> Spot {
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
            _ => {
                let (strip, within) = self.by_strip.split(at);
                self.in_strip(strip, within, copy)
            }
        }
    }

    /// Where byte `within` of strip number `strip` is.
    #[inline]
    fn in_strip(&self, strip: u64, within: u64, copy: usize) -> Spot {
        let (row, slot) = self.place(strip, copy);
        let at = row.saturating_mul(self.strip).saturating_add(within);
        Spot { slot: slot as usize, at }
    }

    /// Row and slot of a copy of strip number `strip`.
    fn place(&self, strip: u64, copy: usize) -> (u64, u64) {
        match self.level {
            Level::Raid1e | Level::Raid10 => {
                let place = strip.saturating_mul(2).saturating_add(copy as u64);
                self.by_members.split(place)
            }
            Level::Raid4 | Level::Raid5(_) | Level::Raid6(_) => {
                let (row, nth) = self.by_width.split(strip);
                (row, self.row(row).data(nth as usize) as u64)
            }
            _ => self.by_members.split(strip),
        }
    }

    /// The slots of a row; for levels with parity.
    pub(crate) fn row(&self, number: u64) -> Row {
        let members = self.members();
        let n = self.by_members.by();
        let (last, turn) = (n - 1, self.by_members.split(number).1);
        // The slot `by` further on; both are below `n`.
        let on = |slot: u64, by: u64| if slot + by < n { slot + by } else { slot + by - n };
        let (p, q, continues) = match self.level {
            Level::Raid5(Layout::LeftAsymmetric) => (last - turn, None, false),
            Level::Raid5(Layout::LeftSymmetric) => (last - turn, None, true),
            Level::Raid5(Layout::RightAsymmetric) => (turn, None, false),
            Level::Raid5(Layout::RightSymmetric) => (turn, None, true),
            // DDF: "rotating parity 0 with data restart" and "N with data restart"; Q follows P.
            Level::Raid6(Layout::RightAsymmetric) => (turn, Some(on(turn, 1)), false),
            Level::Raid6(Layout::LeftAsymmetric) => {
                let p = last - on(turn, 1);
                (p, Some(on(p, 1)), false)
            }
            // "N with data continuation": Q is before P.
            Level::Raid6(Layout::LeftSymmetric) => {
                let p = last - turn;
                (p, Some(on(p, last)), true)
            }
            Level::Raid6(Layout::RightSymmetric) => (turn, Some(on(turn, 1)), true),
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

    /// The inverse, rounded down to whole strips and rows: safe to continue from.
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
