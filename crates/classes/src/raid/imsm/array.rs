//! Translation of a record to an array and back.
//!
//! What does not survive: a stale subdisk is written as a new one; RAID1E of an even number of
//! members is RAID10. Levels with parity on a fixed member, two parities, or one after the other
//! have no place in the format.

use super::migration::unit_blocks;
use super::record::{BadBlocks, DiskRecord, Map, Record, VolumeRecord};
use super::write_hole_policy;
use crate::probe::{Reason, put};
use crate::raid::Fault;
use crate::raid::fields::{bytes_of, sectors_of, text};
use crate::raid::model::{
    Array, Disk, DiskState, Identity, Layout, Level, Member, Migration, MigrationKind,
    SubdiskState, Volume,
};
use crate::raid::show::level_str;

const SPARE: u32 = 1;
const ASSIGNED: u32 = 2;
const FAILED: u32 = 4;
const ONLINE: u32 = 8;
const DISABLED: u32 = 0x80;
/// Id of a disk that is not there.
const NOWHERE: u32 = u32::MAX;
/// Suffix of the serial number of a disk that failed or is missing.
const GONE: &str = ":0";
/// Status of a volume in use: reads and writes coalesce.
const STATUS: u32 = 0xc;

/// Content of a new record besides the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names {
    /// Seconds since 1970; 0 when not known.
    pub time: u64,
}

/// A disk's serial number as the format keeps it: printable, `:` made `;`, the last 16 bytes.
pub fn serial_of(serial: &str) -> String {
    let kept: Vec<char> = serial
        .chars()
        .filter(char::is_ascii_graphic)
        .map(|c| if c == ':' { ';' } else { c })
        .collect();
    kept.iter().skip(kept.len().saturating_sub(16)).collect()
}

/// The serial number in a disk's entry, without the mark of a disk that was removed.
pub(super) fn key_of(disk: &DiskRecord) -> String {
    let serial = text(&disk.serial);
    serial.strip_suffix(GONE).map_or_else(|| serial.clone(), str::to_owned)
}

fn fixed<const N: usize>(text: &str, field: &'static str) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    match text.len() <= N {
        true => put(&mut bytes, 0, text.as_bytes()),
        false => return Err(Fault::value(field, format!("\"{text}\" has more than {N} bytes"))),
    }
    Ok(bytes)
}

impl Record {
    /// The array that this record describes, for disks with sectors of `sector_size` bytes.
    ///
    /// # Errors
    /// A level, a migration or a size that is not understood. Contradictions between fields are
    /// found by [`Array::check`].
    pub fn array(&self, sector_size: u32) -> Result<Array, Fault> {
        let mut disks = Vec::with_capacity(self.disks.len());
        for (index, record) in self.disks.iter().enumerate() {
            disks.push(self.disk(index, record, sector_size)?);
        }
        let volumes: Result<_, _> =
            self.volumes.iter().map(|record| volume(record, &disks, sector_size)).collect();
        let identity = Identity::Intel { family: self.family, original: self.original };
        Ok(Array { identity, generation: self.generation, disks, volumes: volumes? })
    }

    /// True when this is the record that a spare disk carries.
    pub fn is_spare(&self) -> bool {
        let spare = |disk: &DiskRecord| disk.flags & SPARE != 0;
        self.volumes.is_empty() && self.disks.len() == 1 && self.disks.iter().all(spare)
    }

    fn disk(&self, index: usize, record: &DiskRecord, size: u32) -> Result<Disk, Fault> {
        let serial = text(&record.serial);
        let state = match record.flags {
            _ if record.id == NOWHERE => DiskState::Missing,
            flags if flags & FAILED != 0 => DiskState::Failed,
            flags if flags & DISABLED != 0 => DiskState::Disabled,
            flags if flags & SPARE != 0 => DiskState::Spare,
            _ => DiskState::Active,
        };
        let gone = matches!(state, DiskState::Missing | DiskState::Failed);
        let serial = match serial.strip_suffix(GONE) {
            Some(rest) if gone => rest.to_owned(),
            _ => serial,
        };
        let mut bad = Vec::new();
        for entry in self.bad.iter().filter(|entry| usize::from(entry.disk) == index) {
            let first = bytes_of(entry.first, size, "bad block")?;
            bad.push((first, bytes_of(entry.count.into(), size, "bad blocks")?));
        }
        let bytes = bytes_of(record.sectors, size, "disk sectors")?;
        Ok(Disk { serial, reference: record.id, guid: [0; 24], state, bytes, bad })
    }
}

fn level(map: &Map) -> Result<Level, Fault> {
    let (members, domains) = (map.slots.len(), usize::from(map.domains));
    match map.level {
        0 if members == 1 => Ok(Level::Single),
        0 => Ok(Level::Raid0),
        1 if members == 2 || domains == members => Ok(Level::Raid1),
        1 | 10 if domains != 2 => {
            Err(Fault::value("Intel map domains", format!("is {domains} of {members} disks")))
        }
        1 | 10 if members.is_multiple_of(2) => Ok(Level::Raid10),
        1 => Ok(Level::Raid1e),
        5 => Ok(Level::Raid5(Layout::LeftAsymmetric)),
        other => Err(Fault::value("Intel map type", format!("is {other}: not known"))),
    }
}

fn volume(record: &VolumeRecord, disks: &[Disk], size: u32) -> Result<Volume, Fault> {
    let (map, from) = (&record.map, record.from.as_ref().unwrap_or(&record.map));
    if from.slots.len() != map.slots.len() || from.level != map.level || from.first != map.first {
        let what = "changes the volume's shape: only the software that began it can finish it";
        return Err(Fault::value("Intel migration", what));
    }
    let kind = match record.migration {
        None => None,
        Some(0) => Some(MigrationKind::Init),
        Some(1) => Some(MigrationKind::Rebuild),
        Some(2) => Some(MigrationKind::Verify),
        Some(5) => Some(MigrationKind::Repair),
        Some(other) => {
            let what = format!("is {other}: only the software that began it can finish it");
            return Err(Fault::value("Intel migration type", what));
        }
    };
    let unit = bytes_of(unit_blocks(record.migration.unwrap_or(0), map, from, size), size, "unit")?;
    let done = record.unit.checked_mul(unit);
    let migration = match (kind, done) {
        (Some(kind), Some(done)) => Some(Migration { kind, done }),
        (None, _) => None,
        _ => return Err(Fault::value("Intel migration unit", format!("is {}", record.unit))),
    };
    let mut members = Vec::with_capacity(map.slots.len());
    for (slot, was) in map.slots.iter().zip(&from.slots) {
        let disk = usize::try_from(slot.0).unwrap_or(usize::MAX);
        let offset = bytes_of(map.first, size, "map offset")?;
        let bytes = bytes_of(map.sectors, size, "map sectors")?;
        let state = disks.get(disk).map_or(DiskState::Missing, |disk| disk.state);
        let raw = map.status == 1 && kind.is_none();
        let state = match (state, slot.1, was.1, kind) {
            (DiskState::Missing, ..) => SubdiskState::None,
            (DiskState::Failed | DiskState::Disabled, ..) => SubdiskState::Failed,
            (_, true, ..) => SubdiskState::New,
            (_, _, true, Some(MigrationKind::Verify | MigrationKind::Repair)) => {
                SubdiskState::Resync
            }
            (_, _, true, Some(_)) => SubdiskState::Rebuild,
            (.., Some(MigrationKind::Init)) if from.status == 1 => SubdiskState::Uninitialized,
            _ if raw => SubdiskState::Uninitialized,
            _ => SubdiskState::Active,
        };
        members.push(Member { disk, offset, bytes, state });
    }
    let mut id = [0; 24];
    put(&mut id, 0, &record.number.to_le_bytes());
    let mut volume = Volume {
        name: text(&record.name),
        id,
        level: level(map)?,
        strip: bytes_of(map.strip.into(), size, "strip sectors")?,
        bytes: bytes_of(record.sectors, size, "volume sectors")?,
        members,
        dirty: record.dirty & 1 != 0,
        migration,
        log: None,
    };
    volume.log = write_hole_policy::log(record, &volume);
    Ok(volume)
}

/// The first record of a new array. Every member disk gets the same one.
///
/// # Errors
/// The array has a property that this format cannot describe.
pub fn create(array: &Array, names: &Names, sector_size: u32) -> Result<Record, Fault> {
    let created = u16::try_from(array.volumes.len()).unwrap_or(u16::MAX);
    let base = Record { time: names.time, created, cycles: 1, ..Record::default() };
    translate(array, &base, array.generation, sector_size)
}

/// The record that follows `base` when the array has become `array`: one generation later.
///
/// # Errors
/// The array has a property that this format cannot describe.
pub fn update(base: &Record, array: &Array, sector_size: u32) -> Result<Record, Fault> {
    translate(array, base, base.generation.wrapping_add(1), sector_size)
}

/// The record that a spare disk carries: its own, and no other disk's.
///
/// # Errors
/// The disk has a property that this format cannot describe.
pub fn spare(disk: &Disk, sector_size: u32) -> Result<Record, Fault> {
    let disk = Disk { state: DiskState::Spare, ..disk.clone() };
    let disks = vec![put_disk(&disk, None, sector_size)?];
    let mut record = Record { disks, generation: 1, cycles: 1, ..Record::default() };
    record.family = super::record::checksum(&record.encode()?);
    Record::decode(&record.encode()?)
}

fn translate(array: &Array, base: &Record, generation: u32, size: u32) -> Result<Record, Fault> {
    let Identity::Intel { family, original } = array.identity else {
        return Err(Fault::new(Reason::Foreign, "identity", "is not an Intel array's"));
    };
    let mut record = Record { family, original, generation, ..base.clone() };
    (record.disks, record.volumes, record.bad) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::with_capacity(array.disks.len());
    for disk in &array.disks {
        places.push((disk.state != DiskState::Spare).then_some(record.disks.len()));
        if disk.state == DiskState::Spare {
            continue;
        }
        let index = u8::try_from(record.disks.len()).unwrap_or(u8::MAX);
        for (first, length) in &disk.bad {
            put_bad(&mut record.bad, index, *first, *length, size)?;
        }
        let same = |old: &&DiskRecord| text(&old.serial).trim_end_matches(GONE) == disk.serial;
        let old = base.disks.iter().find(same);
        record.disks.push(put_disk(disk, old, size)?);
    }
    for (at, volume) in array.volumes.iter().enumerate() {
        let (number, _) = volume.id.split_first_chunk::<2>().unwrap_or((&[0; 2], &[]));
        let number = u16::from_le_bytes(*number);
        let old = base.volumes.iter().find(|old| old.number == number);
        let old = old.filter(|_| number != 0).or_else(|| base.volumes.get(at)).cloned();
        let mut old = old.unwrap_or_else(|| VolumeRecord { status: STATUS, ..Default::default() });
        old.number = number;
        record.created = record.created.max(number);
        record.volumes.push(put_volume(volume, old, array, &places, size)?);
    }
    // What encoding decides (version, attributes) is as it will be read.
    Record::decode(&record.encode()?)
}

fn put_disk(disk: &Disk, old: Option<&DiskRecord>, size: u32) -> Result<DiskRecord, Fault> {
    let gone = matches!(disk.state, DiskState::Missing | DiskState::Failed);
    let serial_text = if gone { format!("{}{GONE}", disk.serial) } else { disk.serial.clone() };
    let serial = serial_tail(&serial_text);
    let flags = match disk.state {
        DiskState::Active => ASSIGNED | ONLINE,
        DiskState::Spare => SPARE,
        DiskState::Failed | DiskState::Missing => ASSIGNED | FAILED,
        DiskState::Disabled => ASSIGNED | DISABLED,
    };
    Ok(DiskRecord {
        serial: fixed(serial, "disk serial")?,
        sectors: sectors_of(disk.bytes, size, "disk sectors")?,
        id: if disk.state == DiskState::Missing { NOWHERE } else { disk.reference },
        flags,
        owner: old.map_or(0, |old| old.owner),
        rest: old.map_or([0; 12], |old| old.rest),
    })
}

/// The last 16 bytes: the space in the format.
fn serial_tail(serial: &str) -> &str {
    let from = serial.len().saturating_sub(16);
    (from..=serial.len()).find_map(|at| serial.get(at..)).unwrap_or("")
}

fn put_bad(
    all: &mut Vec<BadBlocks>,
    disk: u8,
    first: u64,
    len: u64,
    size: u32,
) -> Result<(), Fault> {
    let mut first = sectors_of(first, size, "bad block")?;
    let mut left = sectors_of(len, size, "bad blocks")?;
    while left > 0 {
        let count = u16::try_from(left.min(256)).unwrap_or(256);
        all.push(BadBlocks { disk, first, count });
        if all.len() > super::record::BAD_BLOCKS_MAX {
            return Err(Fault::value("Intel bad-block log", "is full: replace the disk"));
        }
        (first, left) = (first.saturating_add(256), left.saturating_sub(256));
    }
    Ok(())
}

fn put_volume(
    volume: &Volume,
    old: VolumeRecord,
    array: &Array,
    places: &[Option<usize>],
    size: u32,
) -> Result<VolumeRecord, Fault> {
    let (level, domains) = match volume.level {
        Level::Raid0 | Level::Single => (0, Some(1)),
        Level::Raid1 => (1, u8::try_from(volume.members.len()).ok()),
        Level::Raid1e | Level::Raid10 => (1, Some(2)),
        Level::Raid5(Layout::LeftAsymmetric) => (5, Some(1)),
        other => {
            let what = format!(
                "{}: Intel's format has RAID0, RAID1, RAID1E, RAID10 and RAID5-LA; DDF has more",
                level_str(other)
            );
            return Err(Fault::value("level", what));
        }
    };
    let domains = domains.ok_or_else(|| Fault::value("members", "are more than 255"))?;
    let Some(one) = volume.members.first() else {
        return Err(Fault::value("members", "are none"));
    };
    let placed = |member: &Member| (member.offset, member.bytes);
    if volume.members.iter().any(|member| placed(member) != placed(one)) {
        let what = "differ in offset or size, which Intel's format cannot record";
        return Err(Fault::value("members", what));
    }
    let strip = sectors_of(volume.strip, size, "strip size")?;
    let sectors = sectors_of(volume.bytes, size, "volume size")?;
    let width = volume.level.data_members(volume.members.len()).unwrap_or(1).max(1);
    let rows = sectors.checked_div(width * strip).unwrap_or(0) / u64::from(domains);
    let mut map = Map {
        first: sectors_of(one.offset, size, "member offset")?,
        sectors: sectors_of(one.bytes, size, "member size")?,
        stripes: rows,
        strip: u16::try_from(strip)
            .map_err(|_| Fault::value("strip size", format!("is {}", volume.strip)))?,
        level,
        domains,
        ddf: 1,
        failed: u8::MAX,
        rest: old.map.rest,
        ..Map::default()
    };
    let mut from = map.clone();
    for member in &volume.members {
        let Some(index) = places.get(member.disk).copied().flatten() else {
            return Err(Fault::value("member", "is on a spare disk, or on none"));
        };
        let disk = array.disks.get(member.disk).map(|disk| disk.state);
        let out = disk != Some(DiskState::Active) || member.state <= SubdiskState::New;
        let out = out || member.state == SubdiskState::Stale;
        let moving = matches!(member.state, SubdiskState::Rebuild | SubdiskState::Resync);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let idle = volume.migration.is_none() && moving;
        map.slots.push((index, out || idle));
        from.slots.push((index, out || moving));
    }
    status(volume, &mut map, &mut from);
    let kind = volume.migration.map(|migration| match migration.kind {
        MigrationKind::Init => 0,
        MigrationKind::Rebuild => 1,
        MigrationKind::Verify => 2,
        MigrationKind::Repair => 5,
    });
    let unit = unit_blocks(kind.unwrap_or(0), &map, &from, size).saturating_mul(u64::from(size));
    let done = volume.migration.map_or(0, |migration| migration.done);
    Ok(VolumeRecord {
        name: fixed(&volume.name, "volume name")?,
        sectors,
        unit: done.checked_div(unit).unwrap_or(0),
        migration: kind,
        dirty: old.dirty & !1 | u8::from(volume.dirty),
        rest: write_hole_policy::next(old.rest, volume),
        from: kind.map(|_| from),
        map,
        ..old
    })
}

/// Fills in the derived fields of the maps: status, and the first slot that is not in order.
fn status(volume: &Volume, map: &mut Map, from: &mut Map) {
    let first = |map: &Map| map.slots.iter().position(|slot| slot.1);
    let broken = volume.state() == crate::raid::model::VolumeState::Broken;
    for map in [&mut *map, &mut *from] {
        let out = first(map);
        map.failed = out.and_then(|slot| u8::try_from(slot).ok()).unwrap_or(u8::MAX);
        map.status = match out {
            _ if broken => 3,
            Some(_) => 2,
            None => 0,
        };
    }
    let raw = volume.uninitialized() && !broken;
    match volume.migration.map(|migration| migration.kind) {
        None if raw => map.status = 1,
        Some(MigrationKind::Init) if raw => from.status = 1,
        Some(MigrationKind::Verify | MigrationKind::Repair) => from.status = map.status,
        _ => {}
    }
}
