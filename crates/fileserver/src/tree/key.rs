//! Keys of the tree.

/// The kind of an item of the tree; the order of the numbers is the order in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A file's attributes; offset 0.
    Inode = 1,
    /// A directory's entries by the hash of their names.
    Name = 2,
    /// A directory's entries in the order of their making.
    Entry = 3,
    /// Addresses of a file's blocks, a run of them an item; offset is the run's number.
    Run = 4,
    /// Files without a name whose contents are still to be given back; offset is the inode's
    /// number.
    Orphan = 5,
    /// Files whose contents no dump gets, or are being moved; offset is the inode's number.
    Temporary = 6,
}

/// Bytes of a key on disk.
pub const KEY_BYTES: usize = 17;

/// A key: file, kind, offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The file's number.
    pub ino: u64,
    /// See [`Kind`]; kept as a byte, for keys read from a disk may have any.
    pub kind: u8,
    /// Meaning depends on the kind.
    pub offset: u64,
}

impl Key {
    /// A key.
    pub const fn new(ino: u64, kind: Kind, offset: u64) -> Key {
        Key { ino, kind: kind as u8, offset }
    }

    /// As on disk: big-endian, so that bytes compare as keys do.
    pub fn encode(&self) -> [u8; KEY_BYTES] {
        let mut out = [0; KEY_BYTES];
        out[..8].copy_from_slice(&self.ino.to_be_bytes());
        out[8] = self.kind;
        out[9..].copy_from_slice(&self.offset.to_be_bytes());
        out
    }

    /// From the disk.
    pub fn decode(b: &[u8; KEY_BYTES]) -> Key {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&b[at..at + 8]);
            u64::from_be_bytes(w)
        };
        Key { ino: word(0), kind: b[8], offset: word(9) }
    }

    /// The key right behind this one; `None` behind the last.
    pub fn next(&self) -> Option<Key> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Key { offset, ..*self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Key { ino: self.ino, kind, offset: 0 });
        }
        Some(Key { ino: self.ino.checked_add(1)?, kind: 0, offset: 0 })
    }
}
