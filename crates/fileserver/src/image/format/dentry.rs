//! Entries of directories: all that is known of a file.

use super::{PAYLOAD, Tag, put_u64, u16_at, u32_at, u64_at};
use crate::fault::Addr;

/// Bytes of a name with the zero behind it.
pub const NAME: usize = 144;
/// Bytes of a directory's entry, and how many are in a block.
pub const DENTRY: usize = NAME + 116;
/// See [`DENTRY`].
pub const DENTRIES: usize = PAYLOAD / DENTRY;
/// Blocks that an entry names itself, and levels of indirect ones.
pub const DIRECT: usize = 6;
/// See [`DIRECT`].
pub const LEVELS: usize = 4;

/// Bits of an entry's mode beside the permissions.
pub mod mode {
    /// The entry is in use.
    pub const ALLOC: u16 = 0x8000;
    /// A directory.
    pub const DIR: u16 = 0x4000;
    /// Writes are appended.
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
    /// User of the last change.
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

    /// The value that is impossible for an entry in use; `None`: it is sound.
    pub fn invalid_field(&self) -> Option<&'static str> {
        let ctl = |c: &u8| *c < 0x20 || *c == b'/';
        match () {
            () if self.name.is_empty() => Some("it has no name"),
            () if self.name.len() >= NAME => Some("its name has no end"),
            () if self.name != b"/" && self.name.iter().any(ctl) => {
                Some("its name has invalid characters")
            }
            () if self.size >= SIZE_END => Some("its size is out of range"),
            () if self.path == 0 => Some("it has no number"),
            () => None,
        }
    }
}
