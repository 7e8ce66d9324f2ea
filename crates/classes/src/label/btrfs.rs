//! Btrfs: the first superblock at 64 KiB (UUID +32, its own place +48, magic +64, name +299).
//! Every device of a file system has the same name and UUID; the first one tasted is named.

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, le64, span};

/// Byte offset of the superblock.
const AT: u64 = 64 << 10;
const LEN: usize = 4096;

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    let block = super::magic(sectors, AT, LEN, (64, b"_BHRfS_M"), "Btrfs superblock")?;
    if le64(block, 48) != AT {
        return Err(ProbeStop::no(Reason::Value, AT + 48, "place recorded by Btrfs"));
    }
    Ok(Volume::of_media(sectors, span(block, 299, 256), super::uuid(span(block, 32, 16))))
}
