//! The format: blocks of 16 KiB as 9front's cwfs64x keeps them, every integer little-endian.
//!
//! ```text
//!   block   payload 16372 | pad 2 | tag 2 | path 8
//!   cache   .. | header 2 | buckets from 3, ten a block | cached blocks | slack
//!   worm    .. | superblock 2 | root 3 | root of dumps 4 | next superblock 5 ...
//!   plain   .. | superblock 2 | root 3 ...
//! ```
//! `path` is the number of the file that a block belongs to, or one of a few constants. Nothing is
//! summed: tag and path are all that a block says of itself.

use crate::fault::Addr;

/// Bytes of a block.
pub const BLOCK: usize = 16 << 10;
/// Bytes of it that are its owner's; offsets in files count in these.
pub const PAYLOAD: usize = BLOCK - 12;
/// Bytes of a name with the zero behind it.
pub const NAME: usize = 144;
/// Bytes of a directory's entry, and how many are in a block.
pub const DENTRY: usize = NAME + 116;
/// See [`DENTRY`].
pub const DENTRIES: usize = PAYLOAD / DENTRY;
/// Addresses in an indirect block.
pub const POINTERS: usize = PAYLOAD / 8;
/// Blocks that an entry names itself, and levels of indirect ones.
pub const DIRECT: usize = 6;
/// See [`DIRECT`].
pub const LEVELS: usize = 4;
/// Addresses in a node of the free list.
pub const FREES: usize = (PAYLOAD - 64 - 8) / 8;
/// Buckets in a block, and entries in a bucket.
pub const BUCKETS: u64 = 10;
/// See [`BUCKETS`].
pub const ENTRIES: usize = (PAYLOAD - 10 * 8) / (12 * 10);
const BUCKET: usize = 4 + 12 * ENTRIES;

/// Where the cache device's header is, and every superblock chain begins.
pub const FIRST: Addr = 2;
/// The highest age in a bucket is below it.
const AGE_MAX: u32 = 10_000;

/// Paths that are no file's.
pub mod path {
    /// Not looked at.
    pub const NONE: u64 = 0;
    /// The root.
    pub const ROOT: u64 = 1;
    /// Superblocks and the header.
    pub const SUPER: u64 = 2;
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Tag {
    /// Superblock.
    Super = 1,
    /// Contents of a file.
    File = 5,
    /// A further node of the free list.
    Free = 6,
    /// Ten buckets of the cache.
    Buckets = 7,
    /// Bits of a fake WORM.
    Virgin = 8,
    /// Header of a cache device.
    Cache = 9,
    /// Entries of a directory.
    Dir = 11,
    /// Addresses of blocks, and of such blocks.
    Ind1 = 12,
    /// See `Ind1`.
    Ind2 = 13,
    /// See `Ind1`.
    Ind3 = 14,
    /// See `Ind1`.
    Ind4 = 15,
}

impl Tag {
    /// That of an indirect block, level 1 to 4.
    pub fn indirect(level: usize) -> Tag {
        match level {
            0 | 1 => Tag::Ind1,
            2 => Tag::Ind2,
            3 => Tag::Ind3,
            _ => Tag::Ind4,
        }
    }

    /// The level of an indirect block; of any other 0.
    pub fn level(self) -> usize {
        let all = [Tag::Ind1, Tag::Ind2, Tag::Ind3, Tag::Ind4];
        all.iter().position(|t| *t == self).map_or(0, |i| i + 1)
    }

    /// What an indirect block leads to, in a file whose blocks are `leaf`.
    pub fn below(self, leaf: Tag) -> Tag {
        match self.level() {
            0 | 1 => leaf,
            n => Tag::indirect(n - 1),
        }
    }
}

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

/// Writes what a block is at its end.
pub fn set_tag(b: &mut [u8], tag: Tag, path: u64) {
    b[PAYLOAD..PAYLOAD + 2].fill(0);
    b[PAYLOAD + 2..PAYLOAD + 4].copy_from_slice(&(tag as u16).to_le_bytes());
    put_u64(b, PAYLOAD + 4, path);
}

/// The tag of a block, as a number.
pub fn tag_of(b: &[u8]) -> u16 {
    u16_at(b, PAYLOAD + 2)
}

/// The block is one that a cache device keeps of a file system, whichever.
pub fn is_kept(b: &[u8]) -> bool {
    use Tag as T;
    let all = [T::Super, T::File, T::Free, T::Dir, T::Ind1, T::Ind2, T::Ind3, T::Ind4];
    b.len() == BLOCK && all.iter().any(|tag| tag_of(b) == *tag as u16)
}

/// The block is what it should be; else it says what it is. Of `path::NONE` any path will do.
pub fn check_tag(b: &[u8], tag: Tag, path: u64) -> Result<(), String> {
    if b.len() != BLOCK {
        return Err(format!("{} bytes", b.len()));
    }
    let (is, of) = (tag_of(b), u64_at(b, PAYLOAD + 4));
    if is == tag as u16 && (path == path::NONE || of == path) {
        return Ok(());
    }
    let whose = if path == path::NONE { String::new() } else { format!(" of {path}") };
    Err(format!("tag {is} of {of} where {tag:?}{whose} should be"))
}

/// Bits of an entry's mode beside the permissions.
pub mod mode {
    /// The entry is in use.
    pub const ALLOC: u16 = 0x8000;
    /// A directory.
    pub const DIR: u16 = 0x4000;
    /// Writes go to the end.
    pub const APPEND: u16 = 0x2000;
    /// One opener at a time.
    pub const EXCL: u16 = 0x1000;
    /// Not in dumps.
    pub const TMP: u16 = 0x0800;
}

/// No file is as large, bytes.
pub const SIZE_END: u64 = 1 << 62;

/// Set in the number of a directory in its entry, and nowhere else.
const DIR_BIT: u64 = 1 << 31;

/// An entry of a directory: all that is known of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dentry {
    /// Its name.
    pub name: Vec<u8>,
    /// Owner.
    pub uid: i16,
    /// Group.
    pub gid: i16,
    /// See [`mode`].
    pub mode: u16,
    /// Who changed it last.
    pub muid: i16,
    /// Its number, as blocks have it in their tags.
    pub path: u64,
    /// Moves with each change.
    pub version: u32,
    /// Bytes; of a directory 0.
    pub size: u64,
    /// Blocks.
    pub direct: [Addr; DIRECT],
    /// Roots of indirect ones, by level.
    pub indirect: [Addr; LEVELS],
    /// When it was read, s since 1970.
    pub atime: u32,
    /// When it was changed.
    pub mtime: u32,
}

impl Dentry {
    /// The entry is in use.
    pub fn is_used(&self) -> bool {
        self.mode & mode::ALLOC != 0
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.mode & mode::DIR != 0
    }

    /// Tag of its blocks.
    pub fn tag(&self) -> Tag {
        if self.is_dir() { Tag::Dir } else { Tag::File }
    }

    /// That of slot `slot` of a block of a directory.
    pub fn read(block: &[u8], slot: usize) -> Dentry {
        let b = &block[slot * DENTRY..(slot + 1) * DENTRY];
        let end = b[..NAME].iter().position(|c| *c == 0).unwrap_or(NAME);
        let mut d = Dentry {
            name: b[..end].to_vec(),
            uid: u16_at(b, NAME) as i16,
            gid: u16_at(b, NAME + 2) as i16,
            mode: u16_at(b, NAME + 4),
            muid: u16_at(b, NAME + 6) as i16,
            path: u64_at(b, NAME + 8),
            version: u32_at(b, NAME + 16),
            size: u64_at(b, NAME + 20),
            atime: u32_at(b, DENTRY - 8),
            mtime: u32_at(b, DENTRY - 4),
            ..Dentry::default()
        };
        if d.is_dir() {
            d.path ^= DIR_BIT;
        }
        let mut at = NAME + 28;
        for a in d.direct.iter_mut().chain(&mut d.indirect) {
            *a = u64_at(b, at);
            at += 8;
        }
        d
    }

    /// Written to slot `slot`; a name that is too long is cut.
    pub fn write(&self, block: &mut [u8], slot: usize) {
        let b = &mut block[slot * DENTRY..(slot + 1) * DENTRY];
        b.fill(0);
        let n = self.name.len().min(NAME - 1);
        b[..n].copy_from_slice(&self.name[..n]);
        b[NAME..NAME + 2].copy_from_slice(&self.uid.to_le_bytes());
        b[NAME + 2..NAME + 4].copy_from_slice(&self.gid.to_le_bytes());
        b[NAME + 4..NAME + 6].copy_from_slice(&self.mode.to_le_bytes());
        b[NAME + 6..NAME + 8].copy_from_slice(&self.muid.to_le_bytes());
        put_u64(b, NAME + 8, if self.is_dir() { self.path ^ DIR_BIT } else { self.path });
        b[NAME + 16..NAME + 20].copy_from_slice(&self.version.to_le_bytes());
        put_u64(b, NAME + 20, self.size);
        let mut at = NAME + 28;
        for a in self.direct.iter().chain(&self.indirect) {
            put_u64(b, at, *a);
            at += 8;
        }
        b[DENTRY - 8..DENTRY - 4].copy_from_slice(&self.atime.to_le_bytes());
        b[DENTRY - 4..].copy_from_slice(&self.mtime.to_le_bytes());
    }

    /// What cannot be of an entry that is in use; none: it is sound.
    pub fn wrong(&self) -> Option<&'static str> {
        let ctl = |c: &u8| *c < 0x20 || *c == b'/';
        match () {
            () if self.name.is_empty() => Some("it has no name"),
            () if self.name.len() >= NAME => Some("its name has no end"),
            () if self.name != b"/" && self.name.iter().any(ctl) => {
                Some("its name has characters that none has")
            }
            () if self.size >= SIZE_END => Some("its size is out of range"),
            () if self.path == 0 => Some("it has no number"),
            () => None,
        }
    }
}

/// The superblock: what is free, and where everything begins. Read and written in its block.
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

/// All of a node goes to another block.
pub fn copy_frees(from: &[u8], to: &mut [u8]) {
    to[..SUPER].copy_from_slice(&from[..SUPER]);
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

    /// What cannot be on a cache device of so many blocks; none: it is sound.
    pub fn wrong(&self, blocks: u64) -> Option<&'static str> {
        let h = self;
        let map_end = h.maddr.checked_add(h.msize.div_ceil(BUCKETS));
        let end = h.caddr.checked_add(h.csize);
        match () {
            () if h.msize == 0 || h.maddr <= FIRST => Some("it has no buckets"),
            () if h.csize != h.msize.saturating_mul(ENTRIES as u64) => {
                Some("its sizes contradict each other")
            }
            () if map_end.is_none_or(|e| e > h.caddr) => Some("its parts overlap"),
            () if end.is_none_or(|e| e > blocks) => Some("the device is smaller than it says"),
            () if h.fsize >= 1 << 61 || h.wsize >= 1 << 61 => Some("its sizes are out of range"),
            () if [h.sb, h.root, h.dumps].iter().any(|a| *a < FIRST || *a >= h.fsize) => {
                Some("its roots are out of range")
            }
            () => None,
        }
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

/// Where the newest copy of a block is.
///
/// | state | cache | WORM | |
/// |---|---|---|---|
/// | none | - | perhaps | |
/// | dirty | newest | nothing | since the last dump |
/// | dump | newest | not yet | to be copied |
/// | read | the same | the same | |
/// | write | newer | what a dump has | |
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
    /// Newer than what the WORM has.
    Write,
    /// What could not be copied.
    Dump1,
}

impl BlockState {
    /// From its number.
    pub fn of(n: u16) -> Option<BlockState> {
        use BlockState as S;
        [S::None, S::Dirty, S::Dump, S::Read, S::Write, S::Dump1].get(usize::from(n)).copied()
    }

    /// What is on the cache device alone: it may not go from there.
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

    /// Columns that have been given to an address once: their blocks stay when that has gone.
    pub fn named(&self) -> impl Iterator<Item = usize> {
        self.entries().filter(|(_, e)| e.addr != 0).map(|(column, _)| column)
    }

    /// Every entry that reads.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry)> {
        (0..ENTRIES).filter_map(|c| Some((c, self.entry(c)?)))
    }

    /// Where an address is.
    pub fn find(&self, addr: Addr) -> Option<(usize, Entry)> {
        self.entries().find(|(_, e)| e.state != BlockState::None && e.addr == addr)
    }

    /// A place for another address: an empty one, else that of the oldest which is on the WORM
    /// too. None: all of it is pinned.
    pub fn place(&self) -> Option<usize> {
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

/// How the blocks of the cache device belong to entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// All of a bucket, then the next: addresses that follow each other are far apart.
    #[default]
    Rows,
    /// The first of all buckets, then the second: they are neighbours.
    Columns,
}

impl Header {
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

/// A fake WORM on `blocks` blocks: how many of them are left to use. Behind them a bit for each
/// says that it was written.
pub fn once_size(blocks: u64) -> u64 {
    blocks.saturating_sub(blocks / (PAYLOAD as u64 * 8) + 1)
}

/// The other way round: on how many blocks a fake WORM of which so many can be used is.
pub fn once_raw(usable: u64) -> u64 {
    let mut raw = usable.saturating_add(1);
    while once_size(raw) < usable {
        raw += usable - once_size(raw);
    }
    raw
}

/// Where the bit of a block is: block, byte, mask.
pub fn once_bit(blocks: u64, addr: Addr) -> (Addr, usize, u8) {
    let per = PAYLOAD as u64 * 8;
    let bit = addr % per;
    (once_size(blocks) + addr / per, (bit / 8) as usize, 1 << (bit % 8))
}
