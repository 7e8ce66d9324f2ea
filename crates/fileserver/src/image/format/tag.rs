//! The tag at the end of a block: its kind and its file.

use super::{BLOCK, PAYLOAD, put_u64, u16_at, u64_at};

/// Paths that are no file's.
pub mod path {
    /// Not looked at.
    pub const NONE: u64 = 0;
    /// The root.
    pub const ROOT: u64 = 1;
    /// Superblocks and the header.
    pub const SUPER: u64 = 2;
}

/// The kind of a block.
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

    /// The tag of the blocks below an indirect block, in a file whose blocks are `leaf`.
    pub fn below(self, leaf: Tag) -> Tag {
        match self.level() {
            0 | 1 => leaf,
            n => Tag::indirect(n - 1),
        }
    }
}

/// Writes the tag of a block at its end.
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

/// Checks the tag of a block; the error is the tag that was found. For `path::NONE` any path
/// matches.
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
