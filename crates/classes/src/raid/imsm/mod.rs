//! Intel's metadata (IMSM, "Matrix Storage"): finding it, writing it, putting an array together.
//!
//! ```text
//! ... | rest of the record, in order | first sector of the record | last sector |
//!       only when it is longer         "anchor": media - 2 sectors  not ours
//! ```
//!
//! Invariants
//!  M1  There is one copy on each disk. The part before the anchor is flushed before the anchor is
//!      written. A record torn all the same fails its checksum, and its anchor is the old one (see
//!      [`PriorContent`]: the checksum is a mere sum). The records of the other disks give the
//!      state of that disk: see [`torn`]. Disks are written one after the other, so that no more
//!      than one is ever torn. The most outdated one is first, so that the torn one is never the
//!      newest. Without a record on another disk the description of the volumes is lost. This
//!      concerns an array of one disk (two volumes, or a migration; written only when one is added
//!      or deleted, or the disk grows). The second sector of the old record is in the place of the
//!      new one, and the format has no other place. The data of the volumes stays where it is; the
//!      message about the disk explains how to restore them.
//!  M2  A record that fits into a sector (one volume, not migrating, on up to two disks) cannot be
//!      torn.
//!  M3  The highest generation is in force; equal ones must have the same content.

mod array;
mod assemble;
mod codec;
mod encode;
mod migration;
mod outranked;
pub mod ppl;
mod prior_content;
mod record;
mod torn;
mod write_hole_policy;
mod written;

pub use array::{Names, create, serial_of, spare, update};
pub use assemble::{Assembled, assemble};
pub use prior_content::PriorContent;
pub use record::{
    BAD_BLOCKS_MAX, BadBlocks, DiskRecord, Map, RECORD_BYTES_MAX, Record, SIGNATURE, VOLUMES_MAX,
    VolumeRecord, attribute,
};
pub use torn::{Torn, torn};

use super::fault::Fault;
use crate::probe::{ProbeStop, Reason, Sectors, Step, le32};
use crate::write_plan::WritePlan;

/// Look for a record. Reads the anchor, and the sectors before it when the record is longer.
pub fn step(sectors: &Sectors) -> Step<Record> {
    probe(sectors).into()
}

/// The first sector of a record, and its place.
fn anchor(sectors: &Sectors) -> Result<(u64, &[u8]), ProbeStop> {
    const FIELD: &str = "Intel RAID anchor";
    let size = sectors.sector_size() as usize;
    let (unit, count) = (u64::from(sectors.sector_size()), sectors.media_sectors());
    if size < 512 || !size.is_power_of_two() || count < 3 {
        return Err(ProbeStop::no(Reason::Media, 0, FIELD));
    }
    let at = (count - 2) * unit;
    Ok((at, sectors.need(at, size, FIELD)?))
}

/// The part of a record of `bytes` bytes before its first sector, which is at byte `at`.
fn rest(sectors: &Sectors, at: u64, bytes: usize) -> Result<&[u8], ProbeStop> {
    let size = sectors.sector_size() as usize;
    let more = bytes.div_ceil(size).saturating_sub(1).saturating_mul(size);
    if more == 0 {
        return Ok(&[]);
    }
    let Some(before) = u64::try_from(more).ok().and_then(|more| at.checked_sub(more)) else {
        return Err(ProbeStop::no(Reason::Beyond, at, "Intel record size"));
    };
    sectors.need(before, more, "rest of the Intel record")
}

fn probe(sectors: &Sectors) -> Result<Record, ProbeStop> {
    let (at, anchor) = anchor(sectors)?;
    let refuse = |fault: &Fault| ProbeStop::No(fault.to_probe_error(at));
    let bytes = record::size(anchor).map_err(|fault| refuse(&fault))?;
    let mut all = anchor.to_vec();
    all.extend_from_slice(rest(sectors, at, bytes)?);
    Record::decode(&all).map_err(|fault| refuse(&fault))
}

/// The writes that put `record` on a disk of `media_sectors` sectors of `sector_size` bytes, where
/// nothing is that counts.
///
/// # Errors
/// The record cannot be encoded, or does not fit.
pub fn plan(record: &Record, media_sectors: u64, sector_size: u32) -> Result<WritePlan, Fault> {
    plan_over(record, None, media_sectors, sector_size)
}

/// The same, over existing content `over`.
///
/// # Errors
/// As [`plan`].
pub fn plan_over(
    record: &Record,
    over: Option<&PriorContent>,
    media_sectors: u64,
    sector_size: u32,
) -> Result<WritePlan, Fault> {
    let mut bytes = record.encode()?;
    let size = sector_size as usize;
    let start = media_sectors.checked_sub(2).map(|sectors| sectors * u64::from(sector_size));
    let (Some(at), true) = (start, size >= 512) else {
        return Err(Fault::new(Reason::Media, "Intel RAID anchor", "does not fit on the disk"));
    };
    bytes.resize(bytes.len().next_multiple_of(size), 0);
    let mut plan = WritePlan::default();
    if let Some(first) = over.and_then(|over| over.before(&bytes, size)) {
        plan.write(at, first);
        plan.flush();
    }
    let rest = bytes.split_off(size);
    if !rest.is_empty() {
        let before = u64::try_from(rest.len()).ok().and_then(|len| at.checked_sub(len));
        let Some(before) = before else {
            return Err(Fault::new(Reason::Media, "Intel record", "does not fit on the disk"));
        };
        plan.write(before, rest);
        plan.flush();
    }
    plan.write(at, bytes);
    plan.flush();
    Ok(plan)
}

/// The size of the disk, bytes, if the first sector `anchor` of a record at byte `at` was written
/// for the end of a disk that the record lists.
pub(crate) fn old_disk_size(anchor: &[u8], at: u64) -> Option<u64> {
    let unit = anchor.len() as u64;
    let was = at.checked_add(2 * unit)?;
    record::size(anchor).ok()?;
    let count = usize::from(*anchor.get(56)?);
    let entries = anchor.get(record::HEADER..)?.chunks_exact(torn::DISK).take(count);
    let sectors = |disk: &[u8]| u64::from(le32(disk, 16)) | u64::from(le32(disk, 32)) << 32;
    entries.into_iter().any(|disk| sectors(disk).checked_mul(unit) == Some(was)).then_some(was)
}

/// The write that takes the record off a disk: zeros over the anchor.
pub fn erase(media_sectors: u64, sector_size: u32) -> WritePlan {
    let mut plan = WritePlan::default();
    if let Some(at) = media_sectors.checked_sub(2) {
        plan.write(at * u64::from(sector_size), vec![0; sector_size as usize]);
        plan.flush();
    }
    plan
}
