//! A volume's state in memory: what operations work on, between two waits.

use super::frames::Frames;
use super::layout::Layout;
use super::point::{Dump, Point};
use super::space::Space;
use super::table::{Slot, Table};
use crate::fault::{Addr, Fault};

/// Numbers of files and of changes that may be given before the next commit. Those up to it count
/// as given after a loss of power.
pub const BATCH: u64 = 1 << 20;
/// Addresses of a WORM before the first superblock: its label and the fence.
pub const WORM_FIRST: Addr = 2 + super::fence::FENCE_ENTRIES as Addr;

/// A device of the WORM, as operations see it.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Everything below is on it for good.
    pub done: Addr,
    /// Blocks that fit.
    pub blocks: u64,
}

/// See the module.
pub struct VolumeState {
    /// The layout of the cache device.
    pub layout: Layout,
    /// Blocks in memory.
    pub frames: Frames,
    /// Blocks on the cache device.
    pub table: Table,
    /// Addresses.
    pub space: Space,
    /// The tree that is written.
    pub root: Addr,
    /// The next file's number, and how far numbers may increase before a commit.
    pub ino: u64,
    /// See `ino`.
    pub ino_limit: u64,
    /// Count of changes, and how far it may increase before a commit.
    pub change: u64,
    /// See `change`.
    pub change_limit: u64,
    /// Every dump, in the order of their numbers.
    pub dumps: Vec<Dump>,
    /// Where the next dump's superblock will be; 0 without a WORM.
    pub sb: Addr,
    /// CRC32C of the last dump's superblock.
    pub chain: u32,
    /// Which owner this is.
    pub epoch: u32,
    /// Devices of the WORM; none for a plain file system.
    pub members: Vec<Member>,
    /// Addresses that were given up since the last commit began.
    pub dropped: Vec<Addr>,
    /// Slots that were emptied and are to be in the next record.
    pub emptied: Vec<u32>,
    /// Slots that got a block of the WORM since the last record.
    pub fills: Vec<(u32, Slot)>,
    /// The last record, and the last one that moved the journal's tail.
    pub seq: u64,
    /// See `seq`.
    pub checkpoint: u64,
    /// The point of the last record.
    pub written: Point,
    /// A dump that was taken and is not committed yet.
    pub pending: Option<Dump>,
    /// The point has to be written again with any other change.
    pub moved: bool,
    /// Blocks that operations will want soon.
    pub wanted: Vec<Addr>,
    /// Blocks that a sequential reader will request.
    pub later: Vec<Addr>,
    /// Number of the last dump that is committed.
    pub dumped: u32,
    /// The WORM is as fast as the cache device: its blocks are not kept there.
    pub fastworm: bool,
    /// Blocks of the WORM whose copy on the cache device was bad.
    pub bad_slots: u64,
    /// Blocks that a leg had wrong and got again from another.
    pub repaired: u64,
    /// Why nothing may be changed any more.
    pub refused: Option<Fault>,
    /// Until when (the reactor's clock) this server is known to own the WORM.
    pub lease_until: u64,
    /// Wall clock at the beginning of the operation, ns since 1970.
    pub now_ns: u64,
    /// The reactor's clock, ns.
    pub tick: u64,
}

impl VolumeState {
    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.layout.block as usize
    }

    /// Everything below is on some device of the WORM.
    pub fn copied(&self) -> Addr {
        self.members.iter().map(|l| l.done).max().unwrap_or(0)
    }

    /// Addresses from here on do not fit the WORM.
    pub fn space_end(&self) -> Addr {
        // The checksums and the superblock of the next dump need space too.
        let blocks = self.members.iter().map(|l| l.blocks).min().unwrap_or(u64::MAX / 4);
        let sums = blocks / self.sums_per_block() as u64 + 4;
        blocks.saturating_sub(sums)
    }

    /// Checksums in a block of them.
    pub fn sums_per_block(&self) -> usize {
        (self.block() - super::seal::SEAL) / 4
    }

    /// Slots that further dirty blocks may have: free, less those that are spoken for.
    pub fn slots_left(&self) -> usize {
        self.slots_for_dump().saturating_sub(self.kept())
    }

    /// The same for an operation that gives blocks back. After a dump it needs slots itself,
    /// because the blocks that it changes are copied first. Only the removal of temporary files
    /// empties a cache device that is full of them.
    pub fn slots_to_give_back(&self) -> usize {
        self.slots_for_dump().saturating_sub(self.kept_for_dump())
    }

    /// Slots kept free for such operations.
    fn kept_to_give_back(&self) -> usize {
        (self.table.len() / 16).min(REMOVAL)
    }

    /// Slots kept free for a dump.
    fn kept_for_dump(&self) -> usize {
        self.next_dump_blocks() + SPARE
    }

    /// Free slots that only the operations that they are kept for may use.
    pub fn kept(&self) -> usize {
        self.kept_for_dump() + self.kept_to_give_back()
    }

    /// Slots that a dump to be taken may have for its superblock and checksums.
    pub fn slots_for_dump(&self) -> usize {
        self.table.free().saturating_sub(self.frames.dirty() + self.dump_blocks())
    }

    /// Blocks that the next dump would add if it were taken now. They are kept free: a cache device
    /// that is full of changes is emptied by a dump and by nothing else.
    fn next_dump_blocks(&self) -> usize {
        if self.members.is_empty() {
            return 0;
        }
        let blocks = self.space.next().saturating_sub(self.sb);
        blocks.div_ceil(self.sums_per_block() as u64) as usize + 2
    }

    /// Blocks that the dump to be committed adds.
    pub fn dump_blocks(&self) -> usize {
        self.pending.map_or(0, |d| (d.next - d.end) as usize + 1)
    }

    /// The point of the next record.
    pub fn point(&self) -> Point {
        Point {
            root: self.root,
            next: self.space.next(),
            frozen: self.space.frozen(),
            sb: self.sb,
            ino: self.ino + BATCH,
            change: self.change + BATCH,
            epoch: self.epoch,
            last: self.dumps.last().copied().unwrap_or_default(),
            chain: self.chain,
            members: self.members.iter().map(|l| l.done).collect(),
        }
    }
}

/// Most slots that one removal takes: the way to each of some items, down a tree of four levels.
const REMOVAL: usize = 32;
/// Slots kept free so that a dump's superblock and checksums find space.
const SPARE: usize = 8;
