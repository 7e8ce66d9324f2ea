//! Signatures whose place or bytes are not fixed: the external log of XFS and Atari's table.

use super::scan::{Finding, FindingRole};
use super::signatures::Depth;
use super::validate::be32;
use crate::probe::{ProbeStop, Sectors, byte, span};

/// Bytes at the start in which the log of XFS has a record, and of one read of them.
const LOG: u64 = 256 << 10;
const CHUNK: u64 = 64 << 10;

pub(super) fn find(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    xfs_log(sectors, out)?;
    atari(sectors, out)
}

/// Every record in front: whichever is left is taken for the log.
fn xfs_log(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let (kind, class, what) = ("xfslog", "linux", "external log of XFS, a record");
    let unit = u64::from(sectors.sector_size()).max(1);
    let mut standing = FindingRole::Main;
    let mut base = 0;
    while base < LOG.min(sectors.media_len()) {
        let size = CHUNK.max(unit).min(sectors.media_len() - base);
        let bytes = sectors.get(base, usize::try_from(size).unwrap_or(0))?.unwrap_or(&[]);
        for (block, at) in bytes.chunks(512).zip((base..).step_by(512)) {
            // A log inside a file system is that one's.
            if block.starts_with(b"XFSB") {
                return Ok(());
            }
            if log_record(block) {
                let place = (at, 4);
                out.push(Finding::new((kind, class), what, place, standing, Depth::Content));
                standing = FindingRole::Backup;
            }
        }
        base = base.saturating_add(size);
    }
    Ok(())
}

/// The header of a record: version 1 or 2, some bytes, one of three formats.
fn log_record(block: &[u8]) -> bool {
    let len = be32(block, 12);
    be32(block, 0) == 0xfeed_babe
        && (1..=3).contains(&be32(block, 8))
        && (1..=0x7fff_ffff).contains(&len)
        && (1..=3).contains(&be32(block, 300))
}

/// Byte offset of the first of the four entries, and bytes of one.
const ATARI: usize = 0x1c6;
const ENTRY: usize = 12;

/// Atari's table has no magic number: sizes must fit, and a used entry has a name of three.
fn atari(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let units = sectors.media_len() / 512;
    let Some(block) = sectors.get(0, 512)?.filter(|_| sectors.sector_size() == 512) else {
        return Ok(());
    };
    let size = be32(block, 0x1c2);
    if size < 2 || u64::from(size) > units || units > 0x7fff_ffff {
        return Ok(());
    }
    let within = |at: usize| {
        let (start, len) = (be32(block, at), be32(block, at + 4));
        start != 0 && len != 0 && start.checked_add(len).is_some_and(|end| end <= size)
    };
    let bad = span(block, 0x1f6, 8).iter().any(|b| *b != 0);
    if bad && !within(0x1f6) {
        return Ok(());
    }
    for at in (ATARI..).step_by(ENTRY).take(4) {
        let named = span(block, at + 1, 3).iter().all(u8::is_ascii_alphanumeric);
        if byte(block, at) & 1 != 0 && named && within(at + 4) {
            let (of, what) = (("atari", "other"), "Atari partition table");
            let offset = u64::try_from(at).unwrap_or(0);
            out.push(Finding::new(of, what, (offset, 4), FindingRole::Main, Depth::Table));
        }
    }
    Ok(())
}
