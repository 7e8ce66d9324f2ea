//! Second looks: a magic number of two or four bytes alone is too likely to be chance.

use crate::probe::{Sectors, Stop, byte, le16, le32, span};

/// `len` bytes that begin `back` bytes before the magic number; empty when they are not there.
fn around(sectors: &Sectors, at: u64, back: u64, len: usize) -> Result<&[u8], Stop> {
    match at.checked_sub(back) {
        Some(from) => Ok(sectors.get(from, len)?.unwrap_or(&[])),
        None => Ok(&[]),
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    le16(bytes, at).swap_bytes()
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

pub(super) fn ext(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0x38, 512)?;
    let sizes = le32(block, 0) != 0 && le32(block, 4) != 0;
    Ok(sizes && le32(block, 24) <= 6 && le32(block, 76) <= 1)
}

pub(super) fn hfs_plus(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    Ok(matches!(be16(around(sectors, at, 0, 4)?, 2), 4 | 5))
}

pub(super) fn hfs(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let unit = be32(around(sectors, at, 0, 64)?, 0x14);
    Ok(unit != 0 && unit.is_multiple_of(512))
}

pub(super) fn nilfs(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 6, 256)?;
    Ok(le32(block, 0) == 2 && (64..=1024).contains(&le16(block, 8)))
}

pub(super) fn minix(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 16, 32)?;
    Ok(le16(block, 0) != 0 && le16(block, 8) != 0 && le16(block, 10) == 0)
}

pub(super) fn minix3(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 24, 48)?;
    Ok(le32(block, 0) != 0 && le16(block, 10) != 0 && le16(block, 12) == 0)
}

pub(super) fn lvm2(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    Ok(around(sectors, at, 24, 8)? == b"LABELONE")
}

pub(super) fn lvm1(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0, 32)?;
    Ok(matches!(le16(block, 2), 1 | 2) && le32(block, 4) == 0 && le32(block, 8) >= 512)
}

pub(super) fn md_090(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0, 16)?;
    Ok([le32(block, 4), be32(block, 4)].contains(&0) && (le32(block, 8) | be32(block, 8)) != 0)
}

pub(super) fn md_1(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    Ok(le32(around(sectors, at, 0, 16)?, 4) == 1)
}

pub(super) fn sun(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0x1fc, 512)?;
    let sum = block.chunks_exact(2).fold(0, |sum, word| sum ^ le16(word, 0));
    Ok(block.len() == 512 && sum == 0)
}

pub(super) fn apple(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let size = be16(around(sectors, at, 0, 4)?, 2);
    Ok(size.is_power_of_two() && (512..=4096).contains(&size))
}

pub(super) fn bsd(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0, 148)?;
    Ok(span(block, 0, 4) == span(block, 132, 4))
}

pub(super) fn ddf(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0, 512)?;
    // The kind of header and the text of its revision, "01.02.00".
    Ok(byte(block, 112) <= 2 && byte(block, 34) == b'.' && byte(block, 37) == b'.')
}

pub(super) fn jmicron(sectors: &Sectors, at: u64) -> Result<bool, Stop> {
    let block = around(sectors, at, 0, 128)?;
    let sum = block.chunks_exact(2).fold(0_u16, |sum, word| sum.wrapping_add(le16(word, 0)));
    Ok(block.len() == 128 && matches!(sum, 0 | 1))
}
