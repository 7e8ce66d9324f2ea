//! The state of an open image beside its blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::commit::Notes;
use super::format::{BLOCK, Dentry, HEADER, Header, Layout};
use crate::fault::{Addr, Fault};
use crate::files::Ino;
use crate::volume::frames::Frames;
use crate::volume::{Dump, Options, View};

/// Set in the place of a block of the WORM; without it a place is on the first device.
pub const WORM: Addr = 1 << 62;

/// The shape of the devices of an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Blocks of the first device: the cache, or all of a plain file system.
    pub first: u64,
    /// Blocks of the WORM that can be used; none for a plain file system.
    pub worm: Option<u64>,
    /// Blocks of the device that it is on.
    pub raw: u64,
    /// The WORM is a fake one: bits at its end record the blocks that were written.
    pub once: bool,
    /// How the cache device is laid out.
    pub layout: Layout,
    /// Blocks that are read from the WORM are not kept on the cache device.
    pub fastworm: bool,
    /// It was opened to be read only.
    pub read_only: bool,
    /// Blocks that one commit may change; none: nothing may be changed.
    pub log: Option<u64>,
}

/// The place of a file's entry: its directory, and the slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirSlot {
    /// The directory.
    pub dir: Ino,
    /// Counted over all of its blocks.
    pub slot: u64,
}

/// An entry's block, and its slot there.
pub type BlockSlot = (Addr, usize);

/// See the module.
pub struct ImageState {
    /// Blocks in memory, by their place on the devices.
    pub frames: Frames,
    /// See [`Shape`].
    pub shape: Shape,
    /// Header of the cache device, as the frame has it.
    pub header: Header,
    /// Entries of the buckets in each state.
    pub counts: [u64; 6],
    /// Entries that were looked up. In a tree: a hash table of many that grows takes the core for
    /// milliseconds.
    pub dir_slots: BTreeMap<(View, Ino), DirSlot>,
    /// Files without a name: they have keepers, or their blocks are still to be given back.
    pub unlinked: HashMap<Ino, Dentry>,
    /// Dumps, and the places of the entries of their roots.
    pub dumps: Vec<Dump>,
    /// See `dumps`.
    pub roots: Vec<BlockSlot>,
    /// Blocks that dumps took which were taken since it was opened, by their numbers.
    pub taken: HashMap<u32, u64>,
    /// Wall clock, ns since 1970.
    pub now_ns: u64,
    /// Blocks that an operation will want.
    pub wanted: Vec<Addr>,
    /// Blocks that a sequential reader will request.
    pub later: Vec<Addr>,
    /// Sizes that files are being cut to.
    pub cutting: HashMap<Ino, u64>,
    /// Why nothing may be changed any more.
    pub refused: Option<Fault>,
    /// Commits so far.
    pub seq: u64,
    /// The header as the device has it.
    pub written: [u8; HEADER],
    /// Blocks in state dump that could not be copied: the WORM has something else there.
    pub stuck: Vec<Addr>,
    /// Superblocks in state dump, in the order of their chain.
    pub supers: Vec<Addr>,
    /// While a frozen tree is walked: the addresses that were given since it was frozen. Every
    /// other dirty block belongs to that tree.
    pub since: Option<BTreeSet<Addr>>,
    /// Addresses that the live tree gave back while a frozen one may have had them.
    pub left: Vec<Addr>,
    /// Addresses that are free, and on no list as long as the superblock cannot be changed.
    pub spare: Vec<Addr>,
    /// The last node of further ones; 0: there is none.
    pub folded: Addr,
    /// The notes of the last commit's head.
    pub noted: Notes,
    /// The last number that was given to a file.
    pub qid: u64,
    /// How often a block was left in the live tree that a walk may not find, or that is a dump's
    /// too. And how many of those times all of the tree was looked through since.
    pub loose: u64,
    /// See `loose`.
    pub tidied: u64,
}

impl ImageState {
    /// The initial state for the devices.
    pub fn new(o: &Options, shape: Shape, header: Header, written: [u8; HEADER]) -> ImageState {
        ImageState {
            frames: Frames::new(o.memory, BLOCK),
            shape,
            header,
            counts: [0; 6],
            dir_slots: BTreeMap::new(),
            unlinked: HashMap::new(),
            dumps: Vec::new(),
            roots: Vec::new(),
            taken: HashMap::new(),
            now_ns: (o.clock)(),
            wanted: Vec::new(),
            later: Vec::new(),
            cutting: HashMap::new(),
            refused: None,
            seq: 0,
            written,
            stuck: Vec::new(),
            supers: Vec::new(),
            since: None,
            left: Vec::new(),
            spare: Vec::new(),
            folded: 0,
            noted: Notes::default(),
            qid: 0,
            loose: 1,
            tidied: 0,
        }
    }

    /// Every block that no dump has is dirty, and so are all blocks that lead to it (I6).
    pub fn is_tidy(&self) -> bool {
        self.loose == self.tidied
    }
}
