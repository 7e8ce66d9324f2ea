//! The format: blocks of 16 KiB as 9front's cwfs64x keeps them, every integer little-endian.
//!
//! ```text
//!   block   payload 16372 | pad 2 | tag 2 | path 8
//!   cache   .. | header 2 | buckets from 3, ten a block | cached blocks | slack
//!   worm    .. | superblock 2 | root 3 | root of dumps 4 | next superblock 5 ...
//!   plain   .. | superblock 2 | root 3 ...
//! ```
//! `path` is the number of the file that a block belongs to, or one of a few constants. Nothing is
//! summed: tag and path are the only description of a block in it.

mod bucket;
mod dentry;
mod header;
mod once;
mod superblock;
mod tag;

pub use bucket::{BUCKETS, BlockState, Bucket, ENTRIES, Entry, set_entry};
pub use dentry::{DENTRIES, DENTRY, DIRECT, Dentry, LEVELS, NAME, SIZE_END, mode};
pub use header::{HEADER, Header, Layout};
pub use once::{once_bit, once_raw, once_size};
pub use superblock::{FREES, Super, copy_frees, free, frees, set_free, set_frees};
pub use tag::{Tag, check_tag, is_kept, path, set_tag, tag_of};

use crate::fault::Addr;

/// Bytes of a block.
pub const BLOCK: usize = 16 << 10;
/// Bytes of it that are its owner's; offsets in files count in these.
pub const PAYLOAD: usize = BLOCK - 12;
/// Addresses in an indirect block.
pub const POINTERS: usize = PAYLOAD / 8;

/// Where the cache device's header is, and every superblock chain begins.
pub const FIRST: Addr = 2;

fn u16_at(b: &[u8], at: usize) -> u16 {
    let mut w = [0; 2];
    w.copy_from_slice(&b[at..at + 2]);
    u16::from_le_bytes(w)
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    let mut w = [0; 4];
    w.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(w)
}

/// A word of eight bytes.
pub fn u64_at(b: &[u8], at: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(w)
}

/// The same, written.
pub fn put_u64(b: &mut [u8], at: usize, n: u64) {
    b[at..at + 8].copy_from_slice(&n.to_le_bytes());
}
