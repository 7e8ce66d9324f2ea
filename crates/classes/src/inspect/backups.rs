//! Further copies of metadata, located through the content of the first one.

use super::scan::{Finding, FindingRole};
use super::signatures::{BCACHE, BCACHEFS, Depth};
use super::validate;
use crate::probe::{ProbeStop, Sectors, array, byte, le32, le64, span};

/// Copies of one superblock that are looked for; further ones are left.
const COPIES_MAX: u64 = 64;

/// Groups of ext2 to ext4 that have a copy of the superblock when not all have one: 1 and the
/// powers of 3, 5 and 7.
const SPARSE: [u64; 17] =
    [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729, 2187, 2401, 3125];

struct Copy {
    kind: &'static str,
    description: &'static str,
    class: &'static str,
    depth: Depth,
}

/// Takes in the magic number at `at` if it is there.
fn push_if_magic(
    sectors: &Sectors,
    at: Option<u64>,
    magic: &[u8],
    copy: &Copy,
    out: &mut Vec<Finding>,
) -> Result<(), ProbeStop> {
    let Some(at) = at else { return Ok(()) };
    if sectors.get(at, magic.len())? == Some(magic) {
        let len = u64::try_from(magic.len()).unwrap_or(0);
        let of = (copy.kind, copy.class);
        out.push(Finding::new(of, copy.description, (at, len), FindingRole::Backup, copy.depth));
    }
    Ok(())
}

fn be32(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, |b| u64::from(u32::from_be_bytes(b)))
}

/// The copies of the formats in `found` that are on the media.
pub(super) fn find(sectors: &Sectors, found: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let kinds: Vec<&str> = found.iter().map(|f| f.kind).collect();
    let has = |kind: &str| kinds.contains(&kind);
    let mut out = Vec::new();
    if has("ext") {
        ext(sectors, &mut out)?;
    }
    if has("xfs") {
        xfs(sectors, &mut out)?;
    }
    if has("btrfs") {
        let copy =
            Copy { kind: "btrfs", description: "Btrfs", class: "label", depth: Depth::Content };
        for at in [64_u64 << 20, 256 << 30, 1 << 50] {
            push_if_magic(sectors, Some(at + 0x40), b"_BHRfS_M", &copy, &mut out)?;
        }
    }
    if has("bitlocker") {
        bitlocker(sectors, &mut out)?;
    }
    if has("bcachefs") {
        bcachefs(sectors, &mut out)?;
    }
    for anchor in found.iter().filter(|f| f.kind == "ddf") {
        ddf(sectors, anchor.offset, &mut out)?;
    }
    zfs(sectors, &mut out)?;
    found.append(&mut out);
    Ok(())
}

fn ext(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let Some(block) = sectors.get(1024, 512)? else { return Ok(()) };
    let copy = Copy {
        kind: "ext",
        description: "ext2, ext3 or ext4",
        class: "label",
        depth: Depth::Content,
    };
    let unit = 1024_u64 << le32(block, 24).min(6);
    let (first, group) = (u64::from(le32(block, 20)), u64::from(le32(block, 32)));
    let id: [u8; 16] = array(block, 104).unwrap_or_default();
    for number in SPARSE {
        let base = group.checked_mul(number).and_then(|b| b.checked_add(first)?.checked_mul(unit));
        let Some(base) = base.filter(|base| *base >= 2048) else { continue };
        // Another file system's superblock may be there.
        let same = sectors.get(base, 512)?.is_some_and(|b| span(b, 104, 16) == id);
        if same {
            push_if_magic(sectors, base.checked_add(0x38), b"\x53\xef", &copy, out)?;
        }
    }
    Ok(())
}

fn xfs(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let Some(block) = sectors.get(0, 512)? else { return Ok(()) };
    let copy = Copy { kind: "xfs", description: "XFS", class: "label", depth: Depth::Content };
    let (unit, group, count) = (be32(block, 4), be32(block, 84), be32(block, 88));
    let step = unit.saturating_mul(group);
    for number in 1..count.min(COPIES_MAX) {
        push_if_magic(sectors, step.checked_mul(number).filter(|at| *at > 0), b"XFSB", &copy, out)?;
    }
    Ok(())
}

/// The metadata of BitLocker, three times.
fn bitlocker(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let Some(boot) = sectors.get(0, 512)? else { return Ok(()) };
    let (kind, what, class) = ("bitlocker", "BitLocker metadata", "linux");
    let copy = Copy { kind, description: what, class, depth: Depth::Container };
    for at in validate::bitlocker_metadata(boot).into_iter().filter(|at| *at != 0) {
        push_if_magic(sectors, Some(at), b"-FVE-FS-", &copy, out)?;
    }
    Ok(())
}

/// The superblock lists its copies, in units of 512 bytes; the list itself is in sector 7, too.
fn bcachefs(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    const HERE: u64 = 0x1000;
    let Some(block) = sectors.get(HERE, 752)? else { return Ok(()) };
    let copy =
        Copy { kind: "bcachefs", description: "bcachefs", class: "linux", depth: Depth::Container };
    let places = (264..752).step_by(8).take(usize::from(byte(block, 258)));
    let places = places.map(|at| le64(block, at).checked_mul(512)).filter(|at| *at != Some(HERE));
    let magics = places.map(|at| at.and_then(|at| at.checked_add(24)));
    for at in magics.chain([Some(7 * 512)]) {
        for magic in [BCACHE, BCACHEFS] {
            push_if_magic(sectors, at, magic, &copy, out)?;
        }
    }
    Ok(())
}

/// The anchor has the places of both headers: in sectors, or in units of 512 bytes.
fn ddf(sectors: &Sectors, at: u64, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let Some(anchor) = sectors.get(at, 512)? else { return Ok(()) };
    let Some(magic) = array::<4>(anchor, 0) else { return Ok(()) };
    let little = magic == [0x11, 0xde, 0x11, 0xde];
    for (place, what) in [(96, "DDF header, first"), (104, "DDF header, second")] {
        let bytes = array(anchor, place).unwrap_or([0xff; 8]);
        let number = if little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) };
        let copy = Copy { kind: "ddf", description: what, class: "raid", depth: Depth::Member };
        for unit in [u64::from(sectors.sector_size()), 512] {
            push_if_magic(
                sectors,
                number.checked_mul(unit).filter(|at| *at != 0),
                &magic,
                &copy,
                out,
            )?;
        }
    }
    Ok(())
}

/// Four labels of 256 KiB, two at each end; in each 128 uberblocks of 1 KiB or more.
fn zfs(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    const LABEL: u64 = 256 << 10;
    const MAGICS: [[u8; 8]; 2] =
        [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]];
    let len = sectors.media_len() / LABEL * LABEL;
    if len < LABEL * 4 {
        return Ok(());
    }
    let copy =
        Copy { kind: "zfs", description: "ZFS uberblock", class: "linux", depth: Depth::Content };
    for label in [0, LABEL, len - 2 * LABEL, len - LABEL] {
        let base = label + LABEL / 2;
        for slot in 0..128_u64 {
            let at = base + slot * 1024;
            let head: Option<[u8; 8]> = sectors.get(at, 8)?.and_then(|b| array(b, 0));
            if let Some(magic) = head.filter(|head| MAGICS.contains(head)) {
                push_if_magic(sectors, Some(at), &magic, &copy, out)?;
            }
        }
    }
    Ok(())
}
