//! The cache device: its header, and how it is cut.

use super::{BUCKETS, ENTRIES, FIRST, put_u64, u32_at, u64_at};
use crate::fault::Addr;

/// How the blocks of the cache device belong to entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// All of a bucket, then the next: addresses that follow each other are far apart.
    #[default]
    Rows,
    /// The first of all buckets, then the second: they are neighbours.
    Columns,
}

/// Header of a cache device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// First block of the buckets.
    pub maddr: Addr,
    /// Buckets.
    pub msize: u64,
    /// First cached block, and how many there are.
    pub caddr: Addr,
    /// See `caddr`.
    pub csize: u64,
    /// Addresses given.
    pub fsize: Addr,
    /// Blocks of the WORM.
    pub wsize: u64,
    /// The highest one written.
    pub wmax: Addr,
    /// The superblock.
    pub sb: Addr,
    /// Root of the tree.
    pub root: Addr,
    /// Root of the dumps.
    pub dumps: Addr,
    /// A clock.
    pub toytime: u32,
    /// When it was last used, s since 1970.
    pub time: u32,
}

/// Bytes of a header: inside of one sector.
pub const HEADER: usize = 88;

impl Header {
    /// From its block.
    pub fn read(b: &[u8]) -> Header {
        let w = |i: usize| u64_at(b, 8 * i);
        Header {
            maddr: w(0),
            msize: w(1),
            caddr: w(2),
            csize: w(3),
            fsize: w(4),
            wsize: w(5),
            wmax: w(6),
            sb: w(7),
            root: w(8),
            dumps: w(9),
            toytime: u32_at(b, 80),
            time: u32_at(b, 84),
        }
    }

    /// To its block.
    pub fn write(&self, b: &mut [u8]) {
        let all = [
            self.maddr, self.msize, self.caddr, self.csize, self.fsize, self.wsize, self.wmax,
            self.sb, self.root, self.dumps,
        ];
        for (i, w) in all.into_iter().enumerate() {
            put_u64(b, 8 * i, w);
        }
        b[80..84].copy_from_slice(&self.toytime.to_le_bytes());
        b[84..88].copy_from_slice(&self.time.to_le_bytes());
    }

    /// For a cache device of so many blocks. None: it is too small.
    pub fn plan(blocks: u64, wsize: u64) -> Option<Header> {
        let per = ENTRIES as u64;
        let maddr = FIRST + 1;
        let left = u128::from(blocks.checked_sub(maddr + 1)?);
        let all = u128::from(per * BUCKETS);
        let csize = u64::try_from(left * all / (all + 1)).ok()?;
        let mut msize = (csize / per).checked_sub(5)?;
        while msize > 0 && !counts_as_prime(msize) {
            msize -= 1;
        }
        let caddr = maddr + msize.div_ceil(BUCKETS);
        (msize > 0).then_some(Header {
            maddr,
            msize,
            caddr,
            csize: msize * per,
            wsize,
            ..Header::default()
        })
    }

    /// The value that is impossible on a cache device of so many blocks; `None`: the header is
    /// sound.
    pub fn invalid_field(&self, blocks: u64) -> Option<&'static str> {
        let h = self;
        let map_end = h.maddr.checked_add(h.msize.div_ceil(BUCKETS));
        let end = h.caddr.checked_add(h.csize);
        match () {
            () if h.msize == 0 || h.maddr <= FIRST => Some("it has no buckets"),
            () if h.csize != h.msize.saturating_mul(ENTRIES as u64) => {
                Some("its sizes contradict each other")
            }
            () if map_end.is_none_or(|e| e > h.caddr) => Some("its parts overlap"),
            () if end.is_none_or(|e| e > blocks) => Some("the device is smaller than recorded"),
            () if h.fsize >= 1 << 61 || h.wsize >= 1 << 61 => Some("its sizes are out of range"),
            () if [h.sb, h.root, h.dumps].iter().any(|a| *a < FIRST || *a >= h.fsize) => {
                Some("its roots are out of range")
            }
            () => None,
        }
    }

    /// The block of the cache device for an entry.
    pub fn cached(&self, layout: Layout, row: u64, column: usize) -> Addr {
        let column = column as u64;
        self.caddr
            + match layout {
                Layout::Rows => row * ENTRIES as u64 + column,
                Layout::Columns => row + column * self.msize,
            }
    }

    /// The block with the bucket of a row.
    pub fn bucket_at(&self, row: u64) -> Addr {
        self.maddr + row / BUCKETS
    }

    /// Blocks behind the cached ones that no layout uses: first and how many.
    pub fn slack(&self, blocks: u64) -> (Addr, u64) {
        let first = self.caddr + self.csize;
        (first, blocks.saturating_sub(first))
    }
}

/// As the first file servers decide it: 2 and 3 do not count.
fn counts_as_prime(n: u64) -> bool {
    if n.is_multiple_of(2) {
        return false;
    }
    let mut i = 3;
    loop {
        if n.is_multiple_of(i) {
            return false;
        }
        if i * i >= n {
            return true;
        }
        i += 2;
    }
}
