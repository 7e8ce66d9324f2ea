//! BSD disklabel: one sector with up to twenty partitions, usually inside an MBR partition.
//!
//! ```text
//! sector 1: 0 4 magic | 40 4 bytes a sector | 44 4 sectors a track | 48 4 tracks | 52 4 cylinders
//!           56 4 sectors a cylinder | 60 4 sectors | 72 2 rpm | 74 2 interleave | 132 4 magic
//!           136 2 checksum | 138 2 partitions | 140 4 boot area | 148 16 each partition
//! partition 0 4 sectors | 4 4 start | 8 4 fragment | 12 1 type | 13 1 fragments | 14 2 cylinders
//! ```
//! Invariants
//!  B1  The table is one sector, so that every change of it is atomic (plan.rs, W4).
//!  B2  Partition c (index 3) is the whole: never a provider, and starts in old labels count from
//!      where the disk begins. Its own start is taken off all others, and put on when written.
//!  B3  The checksum is written and not looked at: labels with a wrong one are about.

use std::collections::BTreeSet;

use super::bootcode;
use super::error::{PartError, PartErrorKind};
use super::mbr::{TRACK, last_usable};
use super::table::{Entry, Media, SchemeData, Table};
use super::types::{Guid, Kind};
use crate::probe::{Allowed, ProbeStop, Reason, Sectors, byte, le16, le32, put, span};
use crate::write_plan::WritePlan;

const MAGIC: u32 = 0x8256_4557;
const ENTRIES_AT: usize = 148;
const ENTRY: usize = 16;
/// Partitions that a label may be made with.
const COUNT: std::ops::RangeInclusive<u32> = 8..=20;
/// Least slots of a label that is made.
pub(crate) const SLOTS_MIN: u32 = *COUNT.start();
/// Index of the partition that is the whole.
pub(crate) const WHOLE: u32 = 3;
/// Bytes at the start where boot code and the label are: partitions are put behind it.
const BOOT_BYTES: u64 = 8192;
const HEADS: u64 = 255;
/// Bytes of the first stage, and of the place that a label has in its sector.
const FIRST_STAGE: usize = 512;
/// Types of file systems that leave the boot area alone: UFS, ZFS.
const ROOMY: [u8; 2] = [7, 27];

/// Parts of a label besides its entries: the original sector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BsdData {
    pub(crate) sector: Vec<u8>,
    /// Boot code to be written, as in its file: from the first byte on, without the content of
    /// sector 1. Empty to keep the present code.
    pub(crate) code: Vec<u8>,
}

fn at(index: u32) -> usize {
    ENTRIES_AT + (index as usize).saturating_sub(1) * ENTRY
}

fn base(sector: &[u8]) -> u64 {
    u64::from(le32(sector, at(WHOLE) + 4))
}

/// The first usable sector of a label whose first partition begins at `lowest`.
pub(crate) fn first(media: &Media, lowest: Option<u64>) -> u64 {
    let boot = BOOT_BYTES.div_ceil(u64::from(media.sector_size).max(1));
    if lowest.is_some_and(|lowest| lowest < boot) { 0 } else { boot }
}

/// Look for a label.
pub(crate) fn probe(sectors: &Sectors) -> Result<Table, ProbeStop> {
    const FIELD: &str = "BSD disklabel";
    let size = sectors.sector_size();
    let place = u64::from(size);
    if !(512..=4096).contains(&size) {
        return Err(ProbeStop::no(Reason::Media, 0, FIELD));
    }
    let sector = sectors.need(place, size as usize, FIELD)?;
    if le32(sector, 0) != MAGIC || le32(sector, 132) != MAGIC {
        return Err(ProbeStop::no(Reason::Signature, place, FIELD));
    }
    let bad = |at, field, value, low, high| {
        Err(ProbeStop::value(place + at, field, value, Allowed::Range(low, high)))
    };
    if le32(sector, 40) != size {
        let (found, size) = (le32(sector, 40).into(), size.into());
        return bad(40, "sector size of the BSD disklabel", found, size, size);
    }
    let (track, tracks) = (u64::from(le32(sector, 44)), u64::from(le32(sector, 48)));
    let cylinder = u64::from(le32(sector, 56));
    if track == 0 || tracks == 0 || cylinder != track.saturating_mul(tracks) {
        let (field, sectors) = ("sectors of a cylinder of the BSD disklabel", track * tracks);
        return bad(56, field, cylinder, sectors.max(1), sectors);
    }
    let count = u32::from(le16(sector, 138));
    // Linux's fdisk writes labels of four.
    if !(WHOLE..=*COUNT.end()).contains(&count) {
        let (low, high) = (WHOLE.into(), (*COUNT.end()).into());
        return bad(138, "number of partitions of the BSD disklabel", count.into(), low, high);
    }
    let media = Media::plain(sectors.media_sectors(), size);
    let base = base(sector);
    let mut entries = Vec::new();
    for index in (1..=count).filter(|index| *index != WHOLE) {
        let (len, start) = (le32(sector, at(index)), u64::from(le32(sector, at(index) + 4)));
        // What begins before the whole is not this label's.
        let Some(start) = start.checked_sub(base).filter(|_| len != 0) else { continue };
        let end = start.saturating_add(u64::from(len)).saturating_sub(1);
        if end >= media.sectors {
            return Err(ProbeStop::no(
                Reason::Beyond,
                media.offset(start),
                "partition of the label",
            ));
        }
        entries.push(Entry {
            index,
            start,
            end,
            data: start,
            kind: Kind::Bsd(byte(sector, at(index) + 12)),
            guid: Guid::ZERO,
            attributes: 0,
            name: Vec::new(),
            tail: Vec::new(),
        });
    }
    Ok(Table {
        media,
        first: first(&media, entries.iter().map(|entry: &Entry| entry.start).min()),
        last: last_usable(media.sectors),
        entries,
        capacity: count,
        damage: Vec::new(),
        scheme_data: SchemeData::Bsd(BsdData { sector: sector.to_vec(), code: Vec::new() }),
    })
}

/// An empty label.
pub(crate) fn create(media: Media, count: Option<u32>) -> Result<Table, PartError> {
    const OP: &str = "create";
    let count = count.unwrap_or(*COUNT.start());
    if !COUNT.contains(&count) {
        let at = format!("{count} entries; 8 to 20 are possible");
        return Err(PartError::new(PartErrorKind::BadValue, OP, at));
    }
    let (first, last) = (first(&media, None), last_usable(media.sectors));
    if !(512..=4096).contains(&media.sector_size) || last <= first {
        let at = format!("{} sectors of {} bytes", media.sectors, media.sector_size);
        return Err(PartError::new(PartErrorKind::BadMedia, OP, at));
    }
    let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let mut sector = vec![0; media.sector_size as usize];
    let cylinders = (media.sectors / (TRACK * HEADS)).max(1);
    for (at, value) in [
        (0, u64::from(MAGIC)),
        (40, u64::from(media.sector_size)),
        (44, TRACK),
        (48, HEADS),
        (52, cylinders),
        (56, TRACK * HEADS),
        (60, media.sectors),
        (132, u64::from(MAGIC)),
        (140, BOOT_BYTES),
        (at(WHOLE), media.sectors),
    ] {
        put(&mut sector, at, &word(value));
    }
    put(&mut sector, 72, &3600_u16.to_le_bytes());
    put(&mut sector, 74, &1_u16.to_le_bytes());
    put(&mut sector, 138, &word(u64::from(count))[..2]);
    sum(&mut sector, count);
    Ok(Table {
        media,
        first,
        last,
        entries: Vec::new(),
        capacity: count,
        damage: Vec::new(),
        scheme_data: SchemeData::Bsd(BsdData { sector, code: Vec::new() }),
    })
}

/// B3: all words through the last entry add up, by exclusive or, to zero.
fn sum(sector: &mut [u8], count: u32) {
    put(sector, 136, &[0; 2]);
    let words = span(sector, 0, ENTRIES_AT + count as usize * ENTRY).chunks_exact(2);
    let sum = words.fold(0, |sum, word| sum ^ le16(word, 0));
    put(sector, 136, &sum.to_le_bytes());
}

/// The sector as it must be.
pub(crate) fn encode(table: &Table, body: &BsdData) -> Result<Vec<u8>, PartError> {
    let mut sector = body.sector.clone();
    sector.resize(table.media.sector_size as usize, 0);
    let base = base(&sector);
    for index in (1..=table.capacity).filter(|index| *index != WHOLE) {
        let place = at(index);
        let Some(entry) = table.entries.iter().find(|entry| entry.index == index) else {
            // An entry before the whole partition never belonged to this table.
            if u64::from(le32(&sector, place + 4)) >= base {
                put(&mut sector, place, &[0; ENTRY]);
            }
            continue;
        };
        let far = || PartError::new(PartErrorKind::OutOfRange, "commit", format!("index {index}"));
        let start = entry.start.checked_add(base).and_then(|n| u32::try_from(n).ok());
        let start = start.ok_or_else(far)?;
        let len = u32::try_from(entry.data_sectors()).map_err(|_| far())?;
        let Kind::Bsd(kind) = entry.kind else { return Err(far()) };
        let same = (le32(&sector, place), le32(&sector, place + 4), byte(&sector, place + 12));
        if same != (len, start, kind) {
            put(&mut sector, place, &[0; ENTRY]);
            put(&mut sector, place, &len.to_le_bytes());
            put(&mut sector, place + 4, &start.to_le_bytes());
            put(&mut sector, place + 12, &[kind]);
        }
    }
    sum(&mut sector, table.capacity);
    Ok(sector)
}

/// Whether this code fits into the boot area. A file system that leaves the area alone may begin in
/// it, unless it is in use; anything else may not.
pub(crate) fn code_fits(
    table: &Table,
    code: &[u8],
    written: &BTreeSet<u32>,
) -> Result<(), PartError> {
    let len = u64::try_from(code.len()).unwrap_or(u64::MAX);
    if len > BOOT_BYTES {
        let at = format!("bootcode of {len} bytes, at most {BOOT_BYTES} are possible");
        return Err(bootcode::bad(at));
    }
    bootcode::signed(code)?;
    let area = if code.len() > FIRST_STAGE { BOOT_BYTES } else { FIRST_STAGE as u64 };
    if table.media.offset(table.media.sectors) < area {
        return Err(PartError::new(PartErrorKind::BadMedia, "bootcode", "boot area of 8192 bytes"));
    }
    for entry in table.entries.iter().filter(|entry| table.media.offset(entry.start) < area) {
        let refuse = |kind| {
            let at = format!("index {}, which begins in the boot area", entry.index);
            Err(PartError::new(kind, "bootcode", at))
        };
        match entry.kind {
            _ if written.contains(&entry.index) => return refuse(PartErrorKind::Busy),
            Kind::Bsd(kind) if ROOMY.contains(&kind) => {}
            _ => return refuse(PartErrorKind::Overlap),
        }
    }
    Ok(())
}

/// Code of at most 512 bytes is a first stage, and the second stays; longer code is both, to the
/// end of the area.
pub(crate) fn put_code(body: &mut BsdData, code: &[u8], sector_size: u32) {
    let sector = sector_size as usize;
    body.code = code.to_vec();
    if code.len() > FIRST_STAGE {
        body.code.resize(BOOT_BYTES as usize, 0);
        // The part behind the label in the label's sector.
        let behind = sector.saturating_add(FIRST_STAGE)..sector.saturating_mul(2);
        put(&mut body.sector, FIRST_STAGE, body.code.get(behind).unwrap_or(&[]));
    }
    body.code.resize(body.code.len().next_multiple_of(sector.max(1)), 0);
}

/// B1. New boot code: the second stage is written first, so that a new first stage never precedes
/// an incomplete second. The first stage and the label follow.
pub(crate) fn plan(table: &Table, body: &BsdData) -> Result<WritePlan, PartError> {
    let mut plan = WritePlan::default();
    let sector = table.media.sector_size as usize;
    if let Some(second) = body.code.get(sector.saturating_mul(2)..).filter(|c| !c.is_empty()) {
        plan.write(table.media.offset(2), second.to_vec());
        plan.flush();
    }
    if let Some(first) = body.code.get(..sector) {
        plan.write(0, first.to_vec());
    }
    plan.write(table.media.offset(1), encode(table, body)?);
    plan.flush();
    Ok(plan)
}

/// Zeros over the sector.
pub(crate) fn destroy(media: &Media) -> WritePlan {
    let mut plan = WritePlan::default();
    plan.write(media.offset(1), vec![0; media.sector_size as usize]);
    plan.flush();
    plan
}
