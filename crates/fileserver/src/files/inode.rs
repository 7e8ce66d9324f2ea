//! A file's attributes, and its entry in a directory, as items of the tree.

use crate::volume::seal::{Decoder, Encoder};

/// The type of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Contents are bytes.
    #[default]
    File,
    /// Contents are entries.
    Dir,
}

/// Attributes that are on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Writes are appended.
    pub const APPEND: Flags = Flags(1);
    /// One opener at a time.
    pub const EXCL: Flags = Flags(2);
    /// Not in dumps.
    pub const TMP: Flags = Flags(4);
    /// So still, but not for long: new blocks are where dumps find them.
    pub(super) const LEAVING: Flags = Flags(8);

    /// True when all of `other` are on.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Without those of `other`.
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// A file's attributes. Users are numbers here; the layer above maps them to names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// The type.
    pub kind: Kind,
    /// Append-only and the like.
    pub flags: Flags,
    /// Permission bits, 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// User of the last change.
    pub muid: u32,
    /// Names it has.
    pub links: u32,
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// Moves up with every change of contents, over all files.
    pub version: u64,
    /// When contents changed, ns since 1970.
    pub mtime_ns: u64,
    /// When it was read, as far as a client reports it.
    pub atime_ns: u64,
    /// When anything of it changed.
    pub ctime_ns: u64,
    /// Its directory, and the cookie of its entry there.
    pub parent: u64,
    /// See `parent`.
    pub parent_cookie: u64,
    /// Entries of a directory, and the cookie of the next one.
    pub entries: u64,
    /// See `entries`.
    pub cookie: u64,
    /// Blocks that it lost and that are still to be given back: from, to.
    pub garbage: (u64, u64),
}

impl Inode {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        let kind = match self.kind {
            Kind::File => 0,
            Kind::Dir => 1,
        };
        out.u16(kind).u16(u16::from(self.flags.0)).u32(self.mode);
        out.u32(self.uid).u32(self.gid).u32(self.muid).u32(self.links);
        out.u64(self.size).u64(self.version);
        out.u64(self.mtime_ns).u64(self.atime_ns).u64(self.ctime_ns);
        out.u64(self.parent).u64(self.parent_cookie).u64(self.entries).u64(self.cookie);
        if self.garbage.0 < self.garbage.1 {
            out.u64(self.garbage.0).u64(self.garbage.1);
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Inode> {
        let mut t = Decoder(bytes);
        let kind = match t.u16() {
            0 => Kind::File,
            1 => Kind::Dir,
            _ => return None,
        };
        let mut i = Inode { kind, flags: Flags(t.u16() as u8), mode: t.u32(), ..Inode::default() };
        (i.uid, i.gid, i.muid, i.links) = (t.u32(), t.u32(), t.u32(), t.u32());
        (i.size, i.version) = (t.u64(), t.u64());
        (i.mtime_ns, i.atime_ns, i.ctime_ns) = (t.u64(), t.u64(), t.u64());
        if t.0.len() < 32 {
            return None;
        }
        (i.parent, i.parent_cookie) = (t.u64(), t.u64());
        (i.entries, i.cookie) = (t.u64(), t.u64());
        if !t.is_empty() {
            i.garbage = (t.u64(), t.u64());
        }
        Some(i)
    }
}

/// An entry as the hash of its name finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub cookie: u64,
    pub ino: u64,
    pub name: Vec<u8>,
}

/// Entries whose names have one hash.
pub(super) fn encode_names(names: &[Named]) -> Vec<u8> {
    let mut out = Encoder::default();
    for n in names {
        out.u64(n.cookie).u64(n.ino).u16(n.name.len() as u16);
        out.0.extend_from_slice(&n.name);
    }
    out.0
}

pub(super) fn decode_names(bytes: &[u8]) -> Vec<Named> {
    let mut t = Decoder(bytes);
    let mut out = Vec::new();
    while !t.is_empty() {
        let (cookie, ino, len) = (t.u64(), t.u64(), t.u16());
        out.push(Named { cookie, ino, name: t.bytes(usize::from(len)).to_vec() });
    }
    out
}

/// An entry in the order of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place: ascending, never used twice.
    pub cookie: u64,
    /// The file.
    pub ino: u64,
    /// Its name.
    pub name: Vec<u8>,
}

pub(super) fn encode_entry(ino: u64, name: &[u8]) -> Vec<u8> {
    let mut out = Encoder::default();
    out.u64(ino);
    out.0.extend_from_slice(name);
    out.0
}

pub(super) fn decode_entry(cookie: u64, bytes: &[u8]) -> Entry {
    let mut t = Decoder(bytes);
    Entry { cookie, ino: t.u64(), name: t.0.to_vec() }
}

/// Hash of a name, with a secret of the volume so that clients cannot choose a value.
pub(super) fn hash(salt: u64, name: &[u8]) -> u64 {
    let mix = |x: u64| {
        let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    };
    let mut h = mix(salt ^ name.len() as u64);
    for some in name.chunks(8) {
        let mut word = [0; 8];
        word[..some.len()].copy_from_slice(some);
        h = mix(h ^ u64::from_le_bytes(word)).wrapping_add(salt);
    }
    h
}
