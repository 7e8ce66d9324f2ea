//! ext2, ext3, ext4: the superblock at byte 1024 (magic +56, revision +76, UUID +104, name +120).

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, le32, span};

/// Byte offset of the superblock.
const AT: u64 = 1024;
const LEN: usize = 1024;

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    let block = super::magic(sectors, AT, LEN, (56, &[0x53, 0xef]), "ext2 superblock")?;
    // The block size is 1 KiB to 64 KiB; a file system has inodes and blocks.
    if le32(block, 24) > 6 || le32(block, 0) == 0 || le32(block, 4) == 0 {
        return Err(ProbeStop::no(Reason::Value, AT, "ext2 superblock"));
    }
    if le32(block, 76) == 0 {
        return Err(ProbeStop::no(Reason::Unnamed, AT + 76, "ext2 superblock of revision 0"));
    }
    let label = span(block, 120, 16);
    // Some give the mount point as name.
    let label = label.strip_prefix(b"/").unwrap_or(label);
    Ok(Volume::of_media(sectors, label, super::uuid(span(block, 104, 16))))
}
