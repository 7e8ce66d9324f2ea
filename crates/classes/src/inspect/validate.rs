//! Additional checks of short magic numbers: two or four bytes alone are too likely to match by
//! chance.

use super::signatures::{BCACHE, BCACHEFS};
use crate::crc::{crc32, crc32c};
use crate::probe::{ProbeStop, Sectors, byte, le16, le32, le64, span};

/// `len` bytes that begin `back` bytes before the magic number; empty when they are not there.
pub(super) fn around(
    sectors: &Sectors,
    at: u64,
    back: u64,
    len: usize,
) -> Result<&[u8], ProbeStop> {
    match at.checked_sub(back) {
        Some(from) => Ok(sectors.get(from, len)?.unwrap_or(&[])),
        None => Ok(&[]),
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    le16(bytes, at).swap_bytes()
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

/// A block of a file server: its checksum covers the bytes behind it, up to its length.
pub(super) fn sealed(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    const HEAD: usize = 32;
    let head = around(sectors, at, 0, HEAD)?;
    let len = usize::try_from(le32(head, 24)).unwrap_or(usize::MAX);
    if len > 4096 - HEAD {
        return Ok(false);
    }
    let (sum, block) = (le32(head, 4), around(sectors, at, 0, HEAD + len)?);
    Ok(block.get(8..).is_some_and(|body| crc32c(&[body]) == sum))
}

pub(super) fn ext(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0x38, 512)?;
    let sizes = le32(block, 0) != 0 && le32(block, 4) != 0;
    Ok(sizes && ext_sane(block) && le32(block, 96) & JOURNAL_DEV == 0)
}

/// Incompatible feature of ext3 and ext4: the device holds a journal and no files.
const JOURNAL_DEV: u32 = 8;

fn ext_sane(block: &[u8]) -> bool {
    le32(block, 24) <= 6 && le32(block, 76) <= 1
}

/// A journal has blocks and no inodes.
pub(super) fn jbd(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0x38, 512)?;
    Ok(ext_sane(block) && le32(block, 4) != 0 && le32(block, 96) & JOURNAL_DEV != 0)
}

pub(super) fn hfs_plus(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    Ok(matches!(be16(around(sectors, at, 0, 4)?, 2), 4 | 5))
}

pub(super) fn hfs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let unit = be32(around(sectors, at, 0, 64)?, 0x14);
    Ok(unit != 0 && unit.is_multiple_of(512))
}

pub(super) fn nilfs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 6, 256)?;
    Ok(le32(block, 0) == 2 && (64..=1024).contains(&le16(block, 8)))
}

/// Blocks of a Minix bitmap hold so many bits.
const MINIX_BITS: u32 = 1024 * 8;

/// ext and EROFS may have any bytes where Minix has its magic number.
fn not_minix(sectors: &Sectors) -> Result<bool, ProbeStop> {
    let block = around(sectors, 0x400, 0, 64)?;
    Ok(span(block, 0x38, 2) == b"\x53\xef" || span(block, 0, 4) == b"\xe2\xe1\xf5\xe0")
}

/// Inodes, the blocks of their bitmap, the first zone with data and the size of a zone.
fn minix_sane(
    sectors: &Sectors,
    inodes: u32,
    map: u16,
    (first, zone): (u16, u16),
) -> Result<bool, ProbeStop> {
    let mapped = u32::from(map).saturating_mul(MINIX_BITS);
    let sane = inodes != 0 && mapped > inodes && first != 0 && zone == 0;
    Ok(sane && !not_minix(sectors)?)
}

pub(super) fn minix(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 16, 32)?;
    let rest = (le16(block, 8), le16(block, 10));
    minix_sane(sectors, le16(block, 0).into(), le16(block, 4), rest)
}

pub(super) fn minix_big(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 16, 32)?;
    let rest = (be16(block, 8), be16(block, 10));
    minix_sane(sectors, be16(block, 0).into(), be16(block, 4), rest)
}

pub(super) fn minix3(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 24, 48)?;
    let rest = (le16(block, 10), le16(block, 12));
    minix_sane(sectors, le32(block, 0), le16(block, 6), rest)
}

pub(super) fn minix3_big(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 24, 48)?;
    let rest = (be16(block, 10), be16(block, 12));
    minix_sane(sectors, be32(block, 0), be16(block, 6), rest)
}

/// Three magic numbers and the word for the byte order agree.
pub(super) fn befs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 32, 132)?;
    let words = [32, 36, 68, 112].map(|at| be32(block, at));
    const WANT: [u32; 4] = [0x4246_5331, 0x4249_4745, 0xdd12_1031, 0x15b6_830e];
    Ok(words == WANT || words.map(u32::swap_bytes) == WANT)
}

/// The data is behind the superblock and in front of the end.
pub(super) fn bfs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    let (start, end) = (le32(block, 4), le32(block, 8));
    Ok(start >= 512 && start.is_multiple_of(64) && start < end)
}

/// Behind the magic number is the size of a block: 512, 1024 or 2048 bytes.
pub(super) fn sysv(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 8)?;
    Ok([le32(block, 4), be32(block, 4)].iter().any(|kind| (1..=3).contains(kind)))
}

fn vxfs_sane(version: u32, unit: u32) -> bool {
    (1..=0xff).contains(&version) && unit.is_power_of_two() && (512..=65536).contains(&unit)
}

pub(super) fn vxfs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    Ok(vxfs_sane(le32(block, 4), le32(block, 32)))
}

pub(super) fn vxfs_big(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    Ok(vxfs_sane(be32(block, 4), be32(block, 32)))
}

/// The version of the format on the media.
pub(super) fn nss(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    Ok((1..=0xff).contains(&le16(block, 8)) && le16(block, 10) <= 0xff)
}

pub(super) fn mpool(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 66)?;
    Ok(block.len() == 66 && crc32c(&[span(block, 0, 62)]) == le32(block, 62))
}

/// Its checksum, taken with the field zero, is not inverted.
pub(super) fn zonefs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 4096)?;
    let sum = crc32(&[span(block, 0, 4), &[0; 4], span(block, 8, 4088)]);
    Ok(block.len() == 4096 && sum == !le32(block, 4))
}

/// The checksum over the block of 4096 bytes after it is not inverted.
pub(super) fn scoutfs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 4, 4096)?;
    Ok(block.len() == 4096 && crc32c(&[span(block, 4, 4092)]) == !le32(block, 0))
}

/// Version 1, and a checksum over the header of 512 bytes that starts with all ones and is not
/// inverted.
pub(super) fn core_storage(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 88, 512)?;
    let kind = le32(block, 4) == u32::MAX && le16(block, 8) == 1 && le32(block, 90) == 1;
    Ok(kind && crc32c(&[span(block, 8, 504)]) == !le32(block, 0))
}

/// A volume identifier of six printable EBCDIC characters.
pub(super) fn dasd(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    const KEY: usize = 4;
    let block = around(sectors, at, 0, 16)?;
    let id = if span(block, KEY, 4) == span(block, 0, 4) { 2 * KEY } else { KEY };
    let id = span(block, id, 6);
    Ok(id.len() == 6 && id.iter().all(|byte| (0x40..=0xf9).contains(byte)))
}

/// A superblock node, whose checksum is not inverted.
pub(super) fn ubifs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    const SUPERBLOCK: u8 = 6;
    let block = around(sectors, at, 0, 4096)?;
    let node = le32(block, 16) == 4096 && byte(block, 20) == SUPERBLOCK;
    Ok(node && crc32(&[span(block, 8, 4088)]) == !le32(block, 4))
}

/// The header of an erase block; its checksum is not inverted.
pub(super) fn ubi(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    Ok(block.len() == 64 && crc32(&[span(block, 0, 60)]) == !be32(block, 60))
}

/// Offsets of the three copies of BitLocker's metadata, as recorded in the boot sector.
pub(super) fn bitlocker_metadata(boot: &[u8]) -> [u64; 3] {
    match span(boot, 3, 8) {
        // A number of clusters: Vista keeps one place here, and the others in that copy.
        b"-FVE-FS-" if byte(boot, 1) == 0x52 => {
            let cluster = u64::from(le16(boot, 11)).saturating_mul(u64::from(byte(boot, 13)));
            [le64(boot, 56).saturating_mul(cluster), 0, 0]
        }
        b"-FVE-FS-" => [176, 184, 192].map(|at| le64(boot, at)),
        b"MSWIN4.1" => [440, 448, 456].map(|at| le64(boot, at)),
        _ => [0; 3],
    }
}

/// The metadata is where the boot sector names.
pub(super) fn bitlocker(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let [first, ..] = bitlocker_metadata(around(sectors, at, 0, 512)?);
    Ok(first != 0 && sectors.get(first, 8)? == Some(b"-FVE-FS-"))
}

/// The superblock contains its own place, and has a version of bcache.
pub(super) fn bcache(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    const NEWEST: u64 = 6;
    let block = around(sectors, at, 24, 512)?;
    Ok(le64(block, 8) == 8 && le64(block, 16) <= NEWEST)
}

/// bcachefs may have the magic number of bcache; its superblock continues in another way.
pub(super) fn bcachefs(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 24, 512)?;
    let magic = span(block, 240, 16);
    let place = le64(block, 104).checked_mul(512) == at.checked_sub(24);
    let member = byte(block, 122) < byte(block, 123);
    Ok(place && member && (magic == BCACHE || magic == BCACHEFS))
}

/// Bytes covered by a bit of the bitmap: 4096, more with later versions.
pub(super) fn drbd(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 60, 512)?;
    let bit = be32(block, 80);
    Ok(bit.is_power_of_two() && (4096..=1 << 20).contains(&bit))
}

/// A line of text: 32 digits behind the magic number.
pub(super) fn drbdmanage(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 64)?;
    let id = span(block, 11, 32);
    Ok(id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit) && byte(block, 43) == b'\n')
}

/// Version 2.11 or 2.12, and the disk's id in text.
pub(super) fn ldm(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 512)?;
    let id = span(block, 0x30, 36);
    let digit = |(place, b): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    let version = (be16(block, 12), be16(block, 14));
    let known = version.0 == 2 && matches!(version.1, 11 | 12);
    Ok(known && id.len() == 36 && id.iter().enumerate().all(digit))
}

pub(super) fn lvm2(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    Ok(around(sectors, at, 24, 8)? == b"LABELONE")
}

pub(super) fn lvm1(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 32)?;
    Ok(matches!(le16(block, 2), 1 | 2) && le32(block, 4) == 0 && le32(block, 8) >= 512)
}

pub(super) fn md_090(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 16)?;
    Ok([le32(block, 4), be32(block, 4)].contains(&0) && (le32(block, 8) | be32(block, 8)) != 0)
}

pub(super) fn md_1(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    Ok(le32(around(sectors, at, 0, 16)?, 4) == 1)
}

pub(super) fn sun(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0x1fc, 512)?;
    let sum = block.chunks_exact(2).fold(0, |sum, word| sum ^ le16(word, 0));
    Ok(block.len() == 512 && sum == 0)
}

pub(super) fn apple(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let size = be16(around(sectors, at, 0, 4)?, 2);
    Ok(size.is_power_of_two() && (512..=4096).contains(&size))
}

pub(super) fn bsd(sectors: &Sectors, at: u64) -> Result<bool, ProbeStop> {
    let block = around(sectors, at, 0, 148)?;
    Ok(span(block, 0, 4) == span(block, 132, 4))
}
