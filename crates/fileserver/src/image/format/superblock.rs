//! The superblock, and the nodes of the free list, the first of which is in it.

use super::{PAYLOAD, put_u64, u64_at};
use crate::fault::Addr;

/// Addresses in a node of the free list.
pub const FREES: usize = (PAYLOAD - 64 - 8) / 8;

/// The superblock: the free addresses and the first blocks of all trees. Read and written in its
/// block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Super {
    /// First address of the file system.
    pub fstart: Addr,
    /// Behind its last one.
    pub fsize: Addr,
    /// Addresses on the free list.
    pub tfree: u64,
    /// The last number that was given to a file.
    pub qidgen: u64,
    /// Root of the tree.
    pub root: Addr,
    /// Root of the dumps.
    pub dumps: Addr,
    /// The superblock before it.
    pub last: Addr,
    /// Where the next one will be.
    pub next: Addr,
}

const SUPER: usize = 8 + 8 * FREES;

impl Super {
    /// From its block.
    pub fn read(b: &[u8]) -> Super {
        let w = |i: usize| u64_at(b, SUPER + 8 * i);
        Super {
            fstart: w(0),
            fsize: w(1),
            tfree: w(2),
            qidgen: w(3),
            root: w(4),
            dumps: w(5),
            last: w(6),
            next: w(7),
        }
    }

    /// To its block; the free list there stays.
    pub fn write(&self, b: &mut [u8]) {
        let all = [
            self.fstart,
            self.fsize,
            self.tfree,
            self.qidgen,
            self.root,
            self.dumps,
            self.last,
            self.next,
        ];
        for (i, w) in all.into_iter().enumerate() {
            put_u64(b, SUPER + 8 * i, w);
        }
    }
}

/// How many addresses a node of the free list has; the first of them leads to the next node.
pub fn frees(b: &[u8]) -> Option<usize> {
    usize::try_from(u64_at(b, 0)).ok().filter(|n| *n <= FREES)
}

/// Sets that.
pub fn set_frees(b: &mut [u8], n: usize) {
    put_u64(b, 0, n as u64);
}

/// An address of it.
pub fn free(b: &[u8], i: usize) -> Addr {
    u64_at(b, 8 + 8 * i)
}

/// Sets one.
pub fn set_free(b: &mut [u8], i: usize, a: Addr) {
    put_u64(b, 8 + 8 * i, a);
}

/// Moves all of a node to another block.
pub fn copy_frees(from: &[u8], to: &mut [u8]) {
    to[..SUPER].copy_from_slice(&from[..SUPER]);
}
