//! Additional checks of the records of firmware RAID, whose magic numbers are short.

use super::validate::{around, be32};
use crate::probe::{ProbeStop, Sectors, byte, le16, span};

pub(super) fn ddf(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 512)?;
    // The kind of header and the text of its revision, "01.02.00".
    Ok(byte(block, 112) <= 2 && byte(block, 34) == b'.' && byte(block, 37) == b'.')
}

/// The sum of 64 words is 0 or 1, and the level is one of six.
pub(super) fn jmicron(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 128)?;
    let sum = words(block);
    Ok(block.len() == 128 && matches!(sum, 0 | 1) && byte(block, 0x30) <= 5)
}

/// A second magic number, "DPTM", 256 bytes behind the first.
pub(super) fn adaptec(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    Ok(be32(around(sectors, at, 0, 512)?, 256) == u32::from_be_bytes(*b"DPTM"))
}

/// The version, the sum of 50 bytes, and an array of some size.
pub(super) fn via(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 51)?;
    let sum = span(block, 0, 50).iter().fold(0_u8, |sum, b| sum.wrapping_add(*b));
    let array = span(block, 3, 47).iter().any(|b| *b != 0);
    Ok(block.len() == 51 && byte(block, 2) <= 2 && array && sum == byte(block, 50))
}

/// The words up to the checksum and the checksum are zero together; there are eight disks at most.
pub(super) fn silicon(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0x60, 512)?;
    let sum = words(span(block, 0, 0x13e)).wrapping_add(le16(block, 0x13e));
    Ok(block.len() == 512 && byte(block, 0x116) < 8 && sum == 0)
}

/// There are eight disks at most.
pub(super) fn highpoint(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    Ok(block.len() == 64 && byte(block, 0x12) < 8)
}

fn words(bytes: &[u8]) -> u16 {
    bytes.chunks_exact(2).fold(0, |sum: u16, word| sum.wrapping_add(le16(word, 0)))
}
