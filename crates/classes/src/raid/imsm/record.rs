//! The record of an Intel array, byte for byte (docs/reference/geom.md 2.14, "Intel IMSM layout").
//!
//! ```text
//! 0 24 signature | 24 6 version | 32 4 checksum | 36 4 size | 40 4 family | 44 4 generation
//! 48 4 error log | 52 4 attributes | 56 1 disks | 57 1 volumes | 58 1 error log position
//! 60 4 cache | 64 4 original family | 68 4 power cycles | 72 4 bad-block log | 76 2 created
//! 80 8 time | 88 128 filler (`written` uses 16) | 216 48 x disks | volumes | bad-block log
//! ```
//!
//! Little-endian throughout. Sizes and places are in sectors of the disk: [`Record`] keeps them as
//! they are. Fields without a meaning here are kept in `rest` fields and written back unchanged.

use super::super::fault::Fault;
use super::codec::Cursor;
use super::written;
use crate::probe::{Reason, le32};

/// Signature at byte 0.
pub const SIGNATURE: &[u8; 24] = b"Intel Raid ISM Cfg Sig. ";
/// Largest record, bytes; a larger one is refused.
pub const RECORD_BYTES_MAX: usize = 65_536;
/// Bytes before the first disk.
pub const HEADER: usize = 216;
/// Volumes on one set of disks; more are refused, as every reader does.
pub const VOLUMES_MAX: usize = 2;
/// The newest version that is read.
pub const NEWEST: &[u8; 6] = b"1.3.00";
/// First word of a bad-block log.
pub(super) const BAD_BLOCKS: u32 = 0xabad_b10c;
/// Entries of a bad-block log; more are refused.
pub const BAD_BLOCKS_MAX: usize = 254;

/// Attributes (header 52).
pub mod attribute {
    /// Volumes of RAID0.
    pub const RAID0: u32 = 1;
    /// Volumes of RAID1.
    pub const RAID1: u32 = 2;
    /// Volumes of RAID10.
    pub const RAID10: u32 = 4;
    pub const RAID1E: u32 = 8;
    /// Volumes of RAID5.
    pub const RAID5: u32 = 0x10;
    /// Clone and migrate.
    pub const CNG: u32 = 0x20;
    /// Strips of 256 KiB and more.
    pub const LARGE_STRIP: u32 = 0x40;
    /// RAID10 of more than four disks.
    pub const RAID10_WIDE: u32 = 0x80;
    /// Disks of more than 2 TiB.
    pub const LARGE_DISK: u32 = 0x0400_0000;
    pub const BAD_BLOCKS: u32 = 0x0800_0000;
    /// Volumes of more than 2 TiB.
    pub const LARGE_VOLUME: u32 = 0x2000_0000;
    /// Port multipliers; means nothing any more.
    pub const PM: u32 = 0x4000_0000;
    /// The checksum is to be verified.
    pub const CHECKSUM: u32 = 0x8000_0000;
    /// All that is understood here; a record with another one is refused.
    pub const KNOWN: u32 = RAID0
        | RAID1
        | RAID10
        | RAID1E
        | RAID5
        | LARGE_STRIP
        | RAID10_WIDE
        | LARGE_DISK
        | BAD_BLOCKS
        | LARGE_VOLUME
        | PM
        | CHECKSUM;
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskRecord {
    /// Serial number, filled up with zeros.
    pub serial: [u8; 16],
    pub sectors: u64,
    /// SCSI id; all ones when the disk is missing.
    pub id: u32,
    /// 1 spare, 2 assigned, 4 failed, 8 online, 0x80 disabled.
    pub flags: u32,
    /// Configuration that owns the disk.
    pub owner: u32,
    /// Bytes 36 to 47: free in the format; `outranked` uses the last 8.
    pub rest: [u8; 12],
}

/// Places of a volume: the present one and, while it migrates, the former one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Map {
    /// First sector on each member.
    pub first: u64,
    pub sectors: u64,
    pub stripes: u64,
    pub strip: u16,
    /// 0 ready, 1 uninitialised, 2 degraded, 3 failed.
    pub status: u8,
    /// 0, 1, 5 or 10.
    pub level: u8,
    /// Copies.
    pub domains: u8,
    /// Slot that failed; 255 none.
    pub failed: u8,
    /// Always 1 in what others write.
    pub ddf: u8,
    /// Bytes 32 to 47.
    pub rest: [u8; 16],
    /// Of each slot: index of the disk, and whether it must be rebuilt.
    pub slots: Vec<(u32, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeRecord {
    /// Name, filled up with zeros.
    pub name: [u8; 16],
    pub sectors: u64,
    /// Status bits (24): 4 and 8 are set for every volume in use.
    pub status: u32,
    /// Bytes 28 to 39: reserved sectors, priority, sub-volumes, tid, CNG, cache policy.
    pub policy: [u8; 12],
    /// Number that makes the volume's id unique in its set.
    pub number: u16,
    /// Bytes 42 to 73: caching, write-hole policy.
    pub rest: [u8; 32],
    /// Bytes 74 to 79.
    pub more: [u8; 6],
    /// How far the migration is, units.
    pub unit: u64,
    /// Which checkpoint (84).
    pub checkpoint: u32,
    /// Whether it migrates, and how: 0 init, 1 rebuild, 2 verify, 3 general, 4 state, 5 repair.
    pub migration: Option<u8>,
    /// Bit 0: dirty.
    pub dirty: u8,
    /// Fast-sync state (91).
    pub fs_state: u8,
    /// Mismatches found by verify.
    pub verify_errors: u16,
    pub bad_blocks: u16,
    /// Bytes 100 to 111.
    pub tail: [u8; 12],
    /// The map in force: while migrating, the one wanted.
    pub map: Map,
    /// While migrating, the map of the source.
    pub from: Option<Map>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBlocks {
    pub disk: u8,
    pub first: u64,
    /// Sectors, 1 to 256.
    pub count: u16,
}

/// The whole content of one disk's record of its array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Version text as read; [`Record::encode`] writes the version that the used features need.
    pub version: [u8; 6],
    pub family: u32,
    /// Counts up with each write.
    pub generation: u32,
    pub error_log: u32,
    /// Attributes; see [`attribute`].
    pub attributes: u32,
    pub error_position: u8,
    /// Cache, MiB.
    pub cache: u32,
    /// Family as it was at first.
    pub original: u32,
    /// Power cycles.
    pub cycles: u32,
    /// Volumes ever made: the last number given out.
    pub created: u16,
    /// When the set was made, seconds since 1970; 0 unknown.
    pub time: u64,
    /// When this record was written, seconds since 1970; 0 unknown.
    pub written_s: u64,
    pub disks: Vec<DiskRecord>,
    pub volumes: Vec<VolumeRecord>,
    pub bad: Vec<BadBlocks>,
}

/// Sum of the words of `bytes`, without the checksum's own.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks::<4>().0.iter().enumerate().filter(|(at, _)| *at != 8);
    words.fold(0, |sum: u32, (_, word)| sum.wrapping_add(u32::from_le_bytes(*word)))
}

/// The size in the first sector of a record, bytes.
///
/// # Errors
/// No signature, or a size out of range.
pub(super) fn size(sector: &[u8]) -> Result<usize, Fault> {
    if !sector.starts_with(SIGNATURE) {
        return Err(Fault::new(Reason::Signature, "Intel RAID signature", "is not there"));
    }
    let size = usize::try_from(le32(sector, 36)).unwrap_or(usize::MAX);
    if !(HEADER..=RECORD_BYTES_MAX).contains(&size) {
        return Err(Fault::value("Intel record size", format!("is {size}")));
    }
    Ok(size)
}

impl Record {
    /// What all records of one set of disks have in common: the family as it was at first.
    pub fn set(&self) -> u32 {
        if self.original == 0 { self.family } else { self.original }
    }

    /// Read a record: `bytes` as long as its size field, or longer.
    ///
    /// # Errors
    /// The first field that is wrong: too short, a checksum, a newer version, an unknown
    /// attribute, a count or size that does not fit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let size = size(bytes)?;
        let Some(bytes) = bytes.get(..size) else {
            return Err(Fault::value(
                "Intel record size",
                format!("is {size}: more than there is"),
            ));
        };
        let recorded_sum = le32(bytes, 32);
        if checksum(bytes) != recorded_sum {
            let what = format!("is {:08x} instead of {recorded_sum:08x}", checksum(bytes));
            return Err(Fault::new(Reason::Checksum, "Intel record checksum", what));
        }
        let mut from = Cursor::new(bytes, 24);
        let mut record = Record { version: from.array("version")?, ..Record::default() };
        if record.version > *NEWEST {
            let text = String::from_utf8_lossy(&record.version).into_owned();
            let what = format!("{text} is newer than 1.3.00");
            return Err(Fault::new(Reason::Newer, "Intel version", what));
        }
        from.skip(10, "header")?;
        record.family = from.u32("family")?;
        record.generation = from.u32("generation")?;
        record.error_log = from.u32("error log size")?;
        record.attributes = from.u32("attributes")?;
        let (disks, volumes) = (from.u8("total disks")?, from.u8("total volumes")?);
        record.error_position = from.u8("error log position")?;
        from.skip(1, "header")?;
        record.cache = from.u32("cache size")?;
        record.original = from.u32("original family")?;
        record.cycles = from.u32("power cycles")?;
        let bad = from.u32("bad-block log size")?;
        record.created = from.u16("volumes created")?;
        from.skip(2, "header")?;
        record.time = from.u64("creation time")?;
        record.written_s = written::decode(&from.array("header")?, record.generation);
        let unknown = record.attributes & !attribute::KNOWN;
        if unknown != 0 {
            let what = format!("{unknown:08x} are not known: something newer made this");
            return Err(Fault::new(Reason::Newer, "Intel attributes", what));
        }
        if usize::from(volumes) > VOLUMES_MAX {
            return Err(Fault::value(
                "Intel total volumes",
                format!("is {volumes}; 2 is the most"),
            ));
        }
        for _ in 0..disks {
            record.disks.push(disk(&mut from)?);
        }
        for _ in 0..volumes {
            record.volumes.push(volume(&mut from, record.disks.len())?);
        }
        if bad != 0 {
            record.bad = bad_blocks(&mut from, bad, record.disks.len())?;
        }
        Ok(record)
    }
}

fn join_words(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn disk(from: &mut Cursor<'_>) -> Result<DiskRecord, Fault> {
    let serial = from.array("disk serial")?;
    let low = from.u32("disk sectors")?;
    let id = from.u32("disk id")?;
    let flags = from.u32("disk flags")?;
    let owner = from.u32("disk owner")?;
    let sectors = join_words(low, from.u32("disk sectors")?);
    Ok(DiskRecord { serial, sectors, id, flags, owner, rest: from.array("disk record")? })
}

fn map(from: &mut Cursor<'_>, disks: usize) -> Result<Map, Fault> {
    let low = [from.u32("map offset")?, from.u32("map sectors")?, from.u32("map stripes")?];
    let strip = from.u16("strip sectors")?;
    let (status, level) = (from.u8("map status")?, from.u8("map type")?);
    let (members, domains) = (from.u8("map disks")?, from.u8("map domains")?);
    let (failed, ddf) = (from.u8("failed disk")?, from.u8("map ddf")?);
    let high = [from.u32("map offset")?, from.u32("map sectors")?, from.u32("map stripes")?];
    let rest = from.array("map")?;
    let mut slots = Vec::with_capacity(usize::from(members));
    for slot in 0..members {
        let word = from.u32("disk index")?;
        let index = word & 0x00ff_ffff;
        if usize::try_from(index).is_ok_and(|index| index >= disks) {
            let what = format!("is {index} in slot {slot}, with {disks} disks");
            return Err(Fault::value("Intel disk index", what));
        }
        slots.push((index, word & 0x0100_0000 != 0));
    }
    let [first, sectors, stripes] = [0, 1, 2].map(|at: usize| {
        let of = |words: &[u32; 3]| words.get(at).copied().unwrap_or(0);
        join_words(of(&low), of(&high))
    });
    Ok(Map { first, sectors, stripes, strip, status, level, domains, failed, ddf, rest, slots })
}

fn volume(from: &mut Cursor<'_>, disks: usize) -> Result<VolumeRecord, Fault> {
    let mut volume = VolumeRecord { name: from.array("volume name")?, ..Default::default() };
    volume.sectors = from.u64("volume sectors")?;
    volume.status = from.u32("volume state")?;
    volume.policy = from.array("volume policy")?;
    volume.number = from.u16("volume number")?;
    volume.rest = from.array("volume record")?;
    volume.more = from.array("volume record")?;
    let low = from.u32("migration unit")?;
    volume.checkpoint = from.u32("checkpoint")?;
    let (state, kind) = (from.u8("migration state")?, from.u8("migration type")?);
    volume.dirty = from.u8("dirty")?;
    volume.fs_state = from.u8("fs state")?;
    volume.verify_errors = from.u16("verify errors")?;
    volume.bad_blocks = from.u16("bad blocks")?;
    volume.unit = join_words(low, from.u32("migration unit")?);
    volume.tail = from.array("volume record")?;
    volume.migration = (state != 0).then_some(kind);
    volume.map = map(from, disks)?;
    if volume.migration.is_some() {
        volume.from = Some(map(from, disks)?);
    }
    Ok(volume)
}

fn bad_blocks(from: &mut Cursor<'_>, size: u32, disks: usize) -> Result<Vec<BadBlocks>, Fault> {
    const FIELD: &str = "Intel bad-block log";
    let (word, count) = (from.u32(FIELD)?, from.u32(FIELD)?);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if word != BAD_BLOCKS || count > BAD_BLOCKS_MAX {
        return Err(Fault::value(FIELD, "does not start as one"));
    }
    if usize::try_from(size).ok() != Some(8 + 8 * count) {
        return Err(Fault::value(FIELD, format!("has {count} entries in {size} bytes")));
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let (count, disk) = (u16::from(from.u8(FIELD)?) + 1, from.u8(FIELD)?);
        let (low, high) = (from.u32(FIELD)?, u32::from(from.u16(FIELD)?));
        if usize::from(disk) >= disks {
            return Err(Fault::value(FIELD, format!("names disk {disk} of {disks}")));
        }
        all.push(BadBlocks { disk, first: join_words(low, high), count });
    }
    Ok(all)
}
