//! I/O commands (NVM command set 3).

use super::command::Command;
use super::page::{Page, field};
use crate::scsi::build::{unmap_descriptor, unmap_head};

/// Bytes of a range of Dataset Management.
pub const RANGE_LEN: usize = 16;

/// Most ranges of one Dataset Management.
pub const RANGES_MAX: usize = 256;

/// The blocks of a command, and how they are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// SLBA.
    pub lba: u64,
    /// NLB, counted from one.
    pub blocks: u32,
    pub fua: bool,
    /// DEAC of Write Zeroes: the blocks may be deallocated.
    pub deallocate: bool,
}

impl Extent {
    /// Of a command.
    pub fn of(command: &Command) -> Extent {
        let [_, _, dword, ..] = command.dwords;
        Extent {
            lba: command.long(),
            blocks: (dword & 0xffff) + 1,
            fua: dword & 1 << 30 != 0,
            deallocate: dword & 1 << 25 != 0,
        }
    }

    /// As dwords of a command; `blocks` is 1 to 65,536.
    pub fn dwords(&self) -> [u32; 6] {
        let [a, b, c, d, e, f, g, h] = self.lba.to_le_bytes();
        let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let flags = u32::from(self.fua) << 30 | u32::from(self.deallocate) << 25;
        [low, high, self.blocks.saturating_sub(1) & 0xffff | flags, 0, 0, 0]
    }

    /// They lie in a namespace of so many blocks.
    pub fn fits(&self, all: u64) -> bool {
        self.lba.checked_add(u64::from(self.blocks)).is_some_and(|end| end <= all)
    }
}

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub lba: u64,
    /// Blocks; 0 means none.
    pub blocks: u32,
}

impl Range {
    /// Reads whole ranges.
    pub fn decode_all(bytes: &[u8]) -> Vec<Range> {
        let (all, _) = bytes.as_chunks::<RANGE_LEN>();
        let read = |b: &[u8; RANGE_LEN]| Range {
            blocks: u32::from_le_bytes(field(b, 4)),
            lba: u64::from_le_bytes(field(b, 8)),
        };
        all.iter().map(read).collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(RANGE_LEN);
        page.u32(4, self.blocks).u64(8, self.lba);
        page.done()
    }
}

/// Ranges as parameter lists of UNMAP: one, when it takes no more blocks and descriptors than those
/// given; else as few as there have to be.
pub fn unmap_lists(ranges: &[Range], blocks_max: u32, descriptors_max: u16) -> Vec<Vec<u8>> {
    let most = blocks_max.max(1);
    let mut lists: Vec<Vec<Range>> = Vec::new();
    let mut room = (0u32, 0u16);
    for range in ranges {
        let (mut lba, mut left) = (range.lba, range.blocks);
        while left > 0 {
            if room.0 == 0 || room.1 == 0 || (room.0 < left && left <= most) {
                lists.push(Vec::new());
                room = (most, descriptors_max.max(1));
            }
            let now = left.min(room.0);
            if let Some(list) = lists.last_mut() {
                list.push(Range { lba, blocks: now });
            }
            room = (room.0 - now, room.1 - 1);
            (lba, left) = (lba.saturating_add(u64::from(now)), left - now);
        }
    }
    let bytes = |list: &Vec<Range>| {
        let count = u16::try_from(list.len()).unwrap_or(u16::MAX);
        let all = list.iter().flat_map(|r| unmap_descriptor(r.lba, r.blocks));
        unmap_head(count).into_iter().chain(all).collect()
    };
    lists.iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::UnmapList;

    fn runs(list: &[u8]) -> Vec<(u64, u32)> {
        UnmapList::parse(list).unwrap().iter().map(|r| (r.lba, r.blocks)).collect()
    }

    #[test]
    fn block_counts_are_zero_based() {
        let extent = Extent { lba: 1 << 40 | 5, blocks: 65_536, fua: true, deallocate: true };
        let command = Command { dwords: extent.dwords(), ..Command::default() };
        assert_eq!(Extent::of(&command), extent);
        assert_eq!(Extent::of(&Command::default()).blocks, 1);
        assert!(Extent { lba: 8, blocks: 2, ..extent }.fits(10));
        assert!(!Extent { lba: 9, blocks: 2, ..extent }.fits(10));
        assert!(!Extent { lba: u64::MAX, blocks: 2, ..extent }.fits(u64::MAX), "no wrap");
    }

    #[test]
    fn deallocate_ranges_are_split_at_the_unmap_limits() {
        let some = [
            Range { lba: 5, blocks: 10 },
            Range { lba: 100, blocks: 0 },
            Range { lba: 40, blocks: 20 },
        ];
        let bytes: Vec<u8> = some.iter().flat_map(Range::encode).collect();
        assert_eq!(Range::decode_all(&bytes), some);
        let one = unmap_lists(&some, 1000, 256);
        assert_eq!((one.len(), runs(&one[0])), (1, vec![(5, 10), (40, 20)]));
        let small = unmap_lists(&some, 16, 256);
        let all: Vec<_> = small.iter().map(|l| runs(l)).collect();
        assert_eq!(all, [vec![(5, 10), (40, 6)], vec![(46, 14)]]);
        assert_eq!(unmap_lists(&some, 1000, 1).len(), 2);
        assert_eq!(unmap_lists(&[], 1000, 1).len(), 0);
        let most = [Range { lba: 0, blocks: 1 }; RANGES_MAX];
        assert_eq!(unmap_lists(&most, 1000, 256).len(), 1);
    }
}
