//! Memory of in-memory disks: blocks of one size, cut out of large pages.
//!
//! A request at a random place of such a disk pays more for finding the memory than for copying
//! 4 KiB of it. A block of the common allocator begins in the middle of a page, and every small
//! page is another miss. Here blocks are at page boundaries in regions that the kernel backs on
//! request by one large page each.
//!
//! Invariants
//!  A1  A block has one owner, from `take` until it is dropped.
//!  A2  A region stays while a block of it is out, and returns to the system when none is.
//!  A3  A block's bytes are zero when it is taken.
//!  A4  The lowest region that has space gives the next block: few regions stay for few blocks.

use crate::sync::Mutex;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a block: a multiple of the page size.
pub const BLOCK_BYTES: usize = 16 * 1024;

/// Bytes of a region: a large page.
const REGION_BYTES: usize = 2 << 20;

/// Blocks of a region, a bit each in a word of so many bits.
const BLOCKS: u32 = (REGION_BYTES / BLOCK_BYTES) as u32;
const _: () = assert!(BLOCKS == u128::BITS);

struct Region {
    base: NonNull<u8>,
    /// Blocks that are out, a bit each.
    out: u128,
    /// Blocks that were out once: their bytes are not known (A3).
    used: u128,
}

// SAFETY: a region is an address and two words; its bytes are reached through blocks only, each of
// which has one owner (A1).
unsafe impl Send for Region {}

#[derive(Default)]
struct Regions {
    /// None: a number that is free.
    all: Vec<Option<Region>>,
    free: Vec<u32>,
    /// Those that have space.
    with_space: BTreeSet<u32>,
}

/// Hands out blocks. Clones share the memory, on all threads.
#[derive(Clone, Default)]
pub struct Arena(Arc<Mutex<Regions>>);

/// Memory of [`BLOCK_BYTES`] bytes.
pub struct Block {
    bytes: NonNull<u8>,
    region: u32,
    home: Arena,
}

// SAFETY: a block owns its bytes alone (A1), as a `Box<[u8]>` does.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block is only read.
unsafe impl Sync for Block {}

impl Arena {
    /// A block of zeroes; None when the system has no memory for it.
    pub fn take(&self) -> Option<Block> {
        let mut regions = self.0.lock();
        let number = match regions.with_space.first() {
            Some(number) => *number,
            None => regions.grow()?,
        };
        let region = regions.all.get_mut(number as usize)?.as_mut()?;
        let place = region.out.trailing_ones();
        let bit = 1u128.checked_shl(place)?;
        let old = region.used & bit != 0;
        region.out |= bit;
        region.used |= bit;
        // SAFETY: `place` is less than BLOCKS, so the block is inside the region.
        let bytes = unsafe { region.base.add(place as usize * BLOCK_BYTES) };
        if region.out == u128::MAX {
            regions.with_space.remove(&number);
        }
        drop(regions);
        let mut block = Block { bytes, region: number, home: self.clone() };
        if old {
            block.fill(0);
        }
        Some(block)
    }

    /// Bytes taken from the system.
    pub fn held_bytes(&self) -> u64 {
        let regions = self.0.lock();
        (regions.all.len() - regions.free.len()) as u64 * REGION_BYTES as u64
    }
}

impl Regions {
    /// One more region; its number.
    fn grow(&mut self) -> Option<u32> {
        let region = Region { base: map()?, out: 0, used: 0 };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.all.len()).ok()?;
                self.all.push(None);
                number
            }
        };
        *self.all.get_mut(number as usize)? = Some(region);
        self.with_space.insert(number);
        Some(number)
    }
}

/// A region's memory, aligned to its size.
fn map() -> Option<NonNull<u8>> {
    let (twice, access) = (2 * REGION_BYTES, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), twice, access, MapFlags::PRIVATE).ok()? };
    let head = start.cast::<u8>().align_offset(REGION_BYTES);
    let base = start.cast::<u8>().wrapping_add(head);
    let behind = base.wrapping_add(REGION_BYTES);
    // SAFETY: both parts are of the mapping just made, page-aligned, and nothing is in them.
    unsafe {
        if head > 0 {
            munmap(start, head).ok()?;
        }
        if head < REGION_BYTES {
            munmap(behind.cast(), REGION_BYTES - head).ok()?;
        }
        // Without large pages it works as well, slower.
        let _ = madvise(base.cast(), REGION_BYTES, Advice::LinuxHugepage);
    }
    NonNull::new(base)
}

impl Drop for Regions {
    fn drop(&mut self) {
        for region in self.all.drain(..).flatten() {
            // SAFETY: a block holds its arena, so none is out (A2).
            let _ = unsafe { munmap(region.base.as_ptr().cast(), REGION_BYTES) };
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut guard = self.home.0.lock();
        let regions = &mut *guard;
        let Some(slot) = regions.all.get_mut(self.region as usize) else { return };
        let Some(region) = slot else { return };
        let at = (self.bytes.as_ptr() as usize - region.base.as_ptr() as usize) / BLOCK_BYTES;
        region.out &= !(1 << at);
        regions.with_space.insert(self.region);
        if region.out == 0
            && let Some(empty) = slot.take()
        {
            regions.with_space.remove(&self.region);
            regions.free.push(self.region);
            // SAFETY: no block of it is out (A2), and its number finds nothing any more.
            let _ = unsafe { munmap(empty.base.as_ptr().cast(), REGION_BYTES) };
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block's bytes are mapped while it lives (A2), and initialised (A3); they
        // change only through `&mut self` (A1).
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), BLOCK_BYTES) }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), BLOCK_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address of a block's first byte.
    fn address(block: &Block) -> usize {
        block.as_ptr() as usize
    }

    #[test]
    fn a1_blocks_do_not_overlap_and_are_aligned_to_their_size() {
        let arena = Arena::default();
        let mut all: Vec<Block> = (0..300).map(|_| arena.take().unwrap()).collect();
        for (n, block) in all.iter_mut().enumerate() {
            assert_eq!(address(block) % BLOCK_BYTES, 0);
            block.fill(n as u8);
        }
        assert!(all.iter().enumerate().all(|(n, b)| b.iter().all(|byte| *byte == n as u8)));
        assert_eq!(arena.held_bytes(), 3 * REGION_BYTES as u64);
    }

    #[test]
    fn a2_region_outlives_the_arena_until_its_last_block_is_freed() {
        let arena = Arena::default();
        let mut all: Vec<Block> = (0..2 * BLOCKS).map(|_| arena.take().unwrap()).collect();
        let mut last = all.swap_remove(0);
        drop(all);
        assert_eq!(arena.held_bytes(), REGION_BYTES as u64);
        let second = arena.clone();
        drop(arena);
        last.fill(9);
        assert!(last.iter().all(|b| *b == 9));
        drop(last);
        assert_eq!(second.held_bytes(), 0);
        assert!(second.take().is_some(), "its number serves again");
    }

    #[test]
    fn a3_reused_block_is_zeroed() {
        let arena = Arena::default();
        let (mut first, other) = (arena.take().unwrap(), arena.take().unwrap());
        first.fill(7);
        let was = address(&first);
        drop(first);
        let again = arena.take().unwrap();
        assert_eq!(address(&again), was);
        assert!(again.iter().all(|b| *b == 0));
        drop(other);
    }

    #[test]
    fn a4_low_regions_fill_first() {
        let arena = Arena::default();
        let mut all: Vec<Block> = (0..3 * BLOCKS).map(|_| arena.take().unwrap()).collect();
        let (low, high) = (address(&all[5]), address(&all[300]));
        drop(all.swap_remove(300));
        drop(all.swap_remove(5));
        assert_eq!(address(&arena.take().unwrap()), low);
        drop(all);
        assert_ne!(low, high);
    }

    #[test]
    fn arena_is_shared_between_threads() {
        let arena = Arena::default();
        std::thread::scope(|scope| {
            for n in 1..5u8 {
                let arena = &arena;
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for round in 0..400 {
                        let mut block = arena.take().unwrap();
                        assert!(block.iter().all(|b| *b == 0));
                        block.fill(n);
                        mine.push(block);
                        if round % 3 == 0 {
                            let gone = mine.swap_remove(round % mine.len());
                            assert!(gone.iter().all(|b| *b == n));
                        }
                    }
                });
            }
        });
        assert_eq!(arena.held_bytes(), 0);
    }
}
