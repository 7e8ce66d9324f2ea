//! Buckets of the cache device: which blocks it has, and in which state.

use super::{PAYLOAD, put_u64, u16_at, u32_at, u64_at};
use crate::fault::Addr;

/// Buckets in a block, and entries in a bucket.
pub const BUCKETS: u64 = 10;
/// See [`BUCKETS`].
pub const ENTRIES: usize = (PAYLOAD - 10 * 8) / (12 * 10);
const BUCKET: usize = 4 + 12 * ENTRIES;

/// The highest age in a bucket is below it.
const AGE_MAX: u32 = 10_000;

/// Where the newest copy of a block is.
///
/// | state | cache | WORM | |
/// |---|---|---|---|
/// | none | - | perhaps | |
/// | dirty | newest | nothing | since the last dump |
/// | dump | newest | not yet | to be copied |
/// | read | the same | the same | |
/// | write | newer | a dump's version | |
/// | dump1 | newest | perhaps | a copy that failed |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockState {
    /// Not on the cache device.
    #[default]
    None,
    /// Never on the WORM.
    Dirty,
    /// To be copied to the WORM.
    Dump,
    /// On both.
    Read,
    /// Newer than the WORM's copy.
    Write,
    /// Its copy to the WORM failed.
    Dump1,
}

impl BlockState {
    /// From its number.
    pub fn of(n: u16) -> Option<BlockState> {
        use BlockState as S;
        [S::None, S::Dirty, S::Dump, S::Read, S::Write, S::Dump1].get(usize::from(n)).copied()
    }

    /// The block is on the cache device alone: it may not be evicted.
    pub fn is_pinned(self) -> bool {
        !matches!(self, BlockState::None | BlockState::Read)
    }
}

/// An entry of a bucket: what one block of the cache device holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// When it was looked at, beside the others of its bucket.
    pub age: u16,
    /// See [`BlockState`].
    pub state: BlockState,
    /// Address.
    pub addr: Addr,
}

/// A bucket in its block: the cached blocks of all addresses that are equal modulo the number of
/// buckets.
pub struct Bucket<'b>(&'b [u8]);

impl<'b> Bucket<'b> {
    /// That of row `row`.
    pub fn of(block: &'b [u8], row: u64) -> Bucket<'b> {
        let at = (row % BUCKETS) as usize * BUCKET;
        Bucket(&block[at..at + BUCKET])
    }

    /// An entry; none: its state is no state.
    pub fn entry(&self, column: usize) -> Option<Entry> {
        let at = 4 + 12 * column;
        let (b, state) = (self.0, BlockState::of(u16_at(self.0, at + 2))?);
        Some(Entry { age: u16_at(b, at), state, addr: u64_at(b, at + 4) })
    }

    /// Columns that have been given to an address once: their blocks stay after its removal.
    pub fn named(&self) -> impl Iterator<Item = usize> {
        self.entries().filter(|(_, e)| e.addr != 0).map(|(column, _)| column)
    }

    /// Every entry that reads.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry)> {
        (0..ENTRIES).filter_map(|c| Some((c, self.entry(c)?)))
    }

    /// Where an address is. Every block that is looked at is looked for here: entries of other
    /// addresses are passed over without being read.
    pub fn find(&self, addr: Addr) -> Option<(usize, Entry)> {
        let wanted = addr.to_le_bytes();
        let all = self.0[4..].chunks_exact(12).enumerate();
        let same = all.filter(|(_, e)| e[4..] == wanted).map(|(column, _)| column);
        let mut entries = same.filter_map(|column| Some((column, self.entry(column)?)));
        entries.find(|(_, e)| e.state != BlockState::None)
    }

    /// A place for another address: an empty one, else that of the oldest which is on the WORM
    /// too. None: all of it is pinned.
    pub fn victim_column(&self) -> Option<usize> {
        if self.entries().count() < ENTRIES {
            return None;
        }
        let empty = self.entries().filter(|(_, e)| e.state == BlockState::None).last();
        let oldest = || {
            let read = self.entries().filter(|(_, e)| e.state == BlockState::Read);
            read.min_by_key(|(_, e)| e.age)
        };
        empty.or_else(oldest).map(|(column, _)| column)
    }
}

/// Sets an entry of row `row`, which is the youngest of its bucket from now on.
pub fn set_entry(block: &mut [u8], row: u64, column: usize, state: BlockState, addr: Addr) {
    let at = (row % BUCKETS) as usize * BUCKET;
    let b = &mut block[at..at + BUCKET];
    let mut next = u32_at(b, 0);
    if next >= AGE_MAX {
        next = renumber(b);
    }
    b[..4].copy_from_slice(&(next + 1).to_le_bytes());
    let e = 4 + 12 * column;
    b[e..e + 2].copy_from_slice(&(next as u16).to_le_bytes());
    b[e + 2..e + 4].copy_from_slice(&(state as u16).to_le_bytes());
    put_u64(b, e + 4, addr);
}

/// Ages from 0 up, in the order that they had; the next one.
fn renumber(bucket: &mut [u8]) -> u32 {
    let mut order: Vec<usize> = (0..ENTRIES).collect();
    order.sort_by_key(|c| u16_at(bucket, 4 + 12 * c));
    for (age, column) in (0_u16..).zip(order) {
        let at = 4 + 12 * column;
        bucket[at..at + 2].copy_from_slice(&age.to_le_bytes());
    }
    ENTRIES as u32
}
