//! Metadata of an array to be written to each disk, and the plan of the writes.

use super::array::{Change, RESERVED, disk_entry, shape, volume_entry};
use super::codec::{Block, Order};
use super::header::{Copy, HEADER, Header, Limits, NONE, Section};
use super::meta::Meta;
use super::records::{CONTROLLER, Config, DiskData};
use crate::crc::crc32;
use crate::probe::Reason;
use crate::raid::Fault;
use crate::raid::fields::sectors_of;
use crate::raid::model::{Array, DiskState, Identity, Level, Volume};
use crate::write_plan::WritePlan;

/// Places of the primary and the secondary header, in bytes before the end of the disk.
const PRIMARY: u64 = 16 << 20;
const SECONDARY: u64 = 8 << 20;

/// The disk that a new [`Meta`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetDisk {
    pub sector_size: u32,
    pub media_sectors: u64,
    /// Seconds since 1980.
    pub time: u32,
    /// The GUID of the controller that makes this.
    pub controller: [u8; 24],
    /// Space to be reserved: the same on all disks of a set.
    pub limits: Limits,
    /// Byte order: that of the set.
    pub order: Order,
}

fn identity(array: &Array) -> Result<[u8; 24], Fault> {
    match array.identity {
        Identity::Ddf(guid) => Ok(guid),
        Identity::Intel { .. } => {
            Err(Fault::new(Reason::Foreign, "identity", "is not a DDF array's"))
        }
    }
}

/// The record of disk `index` of a new array, or of a disk new in one.
///
/// # Errors
/// A disk of 32 MiB or less, or an array that this format cannot describe.
pub fn create(array: &Array, index: usize, place: &TargetDisk) -> Result<Meta, Fault> {
    let (size, media) = (place.sector_size, place.media_sectors);
    let bytes = media.checked_mul(u64::from(size)).filter(|bytes| *bytes > RESERVED);
    let (Some(_), true) = (bytes, size >= 512) else {
        return Err(Fault::new(Reason::Media, "disk size", "leaves no space: DDF takes 32 MiB"));
    };
    let before = |bytes: u64| media - bytes / u64::from(size);
    let mut controller = Block::all_ones(place.order, size as usize);
    controller.put32(0, CONTROLLER);
    controller.put(8, &place.controller);
    controller.put(32, &[0; 8]);
    controller.put(40, b"Ashlar          ");
    let header = Header {
        order: place.order,
        guid: identity(array)?,
        revision: *b"01.02.00",
        sequence: array.generation.wrapping_sub(1),
        time: place.time,
        open: false,
        primary: before(PRIMARY),
        secondary: before(SECONDARY),
        workspace: (u32::try_from(PRIMARY / u64::from(size)).unwrap_or(0), before(RESERVED)),
        limits: place.limits,
        sections: sections(&place.limits, size),
        base: base(),
    };
    let Some(disk) = array.disks.get(index) else {
        return Err(Fault::value("disk index", format!("is {index}: no such disk")));
    };
    let mut rest = [b' '; 34];
    crate::probe::put(&mut rest, 0, &[1, 1]);
    let meta = Meta {
        header,
        source: Copy::Secondary,
        controller: controller.with_crc(),
        disks: Vec::new(),
        volumes: Vec::new(),
        configs: Vec::new(),
        vendor: Vec::new(),
        spare: None,
        data: DiskData { guid: disk.guid, reference: disk.reference, rest },
        bad: Vec::new(),
        bad_section: Vec::new(),
    };
    let change = Change { time: place.time, deleted: &[] };
    update(&meta, array, index, &change, size)
}

/// A header's bytes that have no meaning here: ones, and no foreign disk, no grouping.
fn base() -> Vec<u8> {
    let mut base = vec![0xff; HEADER];
    crate::probe::put(&mut base, 49, &[0, 0]);
    base
}

/// Sections one after the other behind the header.
fn sections(limits: &Limits, size: u32) -> [Section; 8] {
    let list = |entries: u16| ((u32::from(entries) + 1) * 64).div_ceil(size);
    let configs = (u32::from(limits.partitions) + 1) * u32::from(limits.record_sectors);
    let lengths = [1, list(limits.disks), list(limits.volumes), configs, 1, 0, 0, 0];
    let mut offset = 1;
    lengths.map(|length| {
        let section = Section { offset: if length == 0 { u32::MAX } else { offset }, length };
        offset += length;
        section
    })
}

/// The next record of disk `index` of `array` after `base`: one sequence later. `base` is the
/// record of that disk. If that is outdated, `base` is the newest one with the places of the disk's
/// own record ([`Meta::data`] and the header's sectors).
///
/// # Errors A part of the array that cannot be expressed, or too large for the space.
pub fn update(
    base: &Meta,
    array: &Array,
    index: usize,
    change: &Change<'_>,
    sector_size: u32,
) -> Result<Meta, Fault> {
    let mut meta = base.clone();
    meta.header.guid = identity(array)?;
    meta.header.sequence = base.header.sequence.wrapping_add(1);
    (meta.header.time, meta.header.open) = (change.time, false);
    meta.disks.clear();
    for (at, disk) in array.disks.iter().enumerate() {
        // A slot that names no disk.
        if disk.reference == u32::MAX {
            continue;
        }
        let sectors = sectors_of(disk.bytes, sector_size, "disk size")?;
        let old = base.disks.iter().find(|old| old.reference == disk.reference);
        meta.disks.push(disk_entry(array, at, disk, old, sectors));
    }
    let controller = crc32(&[crate::probe::span(&base.controller, 8, 24)]);
    let controller = u16::try_from(controller & 0xffff).unwrap_or(0);
    meta.volumes.retain(|old| {
        let known = array.volumes.iter().any(|volume| volume.id == old.guid);
        !known && !change.deleted.contains(&old.guid)
    });
    meta.configs.clear();
    for (at, volume) in array.volumes.iter().enumerate() {
        let number = u16::try_from(at).unwrap_or(u16::MAX);
        let old = base.volumes.iter().find(|old| old.guid == volume.id);
        let entry = volume_entry(volume, number, controller, old)?;
        meta.volumes.insert(at.min(meta.volumes.len()), entry);
        if let Some(config) = config(base, array, volume, index, change, sector_size)? {
            meta.configs.push(config);
        }
    }
    let spare = array.disks.get(index).is_some_and(|disk| disk.state == DiskState::Spare);
    meta.spare = meta.spare.filter(|_| spare);
    meta.sections(sector_size)?;
    Ok(meta)
}

/// The record of the basic volume that disk `index` is in; `None` when it is in none.
fn config(
    base: &Meta,
    array: &Array,
    volume: &Volume,
    index: usize,
    change: &Change<'_>,
    size: u32,
) -> Result<Option<Config>, Fault> {
    let (level, qualifier, disks, count) = shape(volume)?;
    let Some(slot) = volume.members.iter().position(|member| member.disk == index) else {
        return Ok(None);
    };
    let Some(one) = volume.members.get(slot) else { return Ok(None) };
    let other = |at: &crate::raid::model::Member| at.bytes != one.bytes;
    if volume.level != Level::Concat && volume.members.iter().any(other) {
        return Err(Fault::value("members", "differ in size, which DDF cannot record"));
    }
    let strip = volume.strip.checked_div(u64::from(size)).filter(|strip| strip.is_power_of_two());
    let strip = strip.and_then(|strip| u8::try_from(strip.trailing_zeros()).ok());
    let place = slot.checked_div(disks).unwrap_or(0);
    let mut elements = Vec::with_capacity(disks);
    for member in volume.members.iter().skip(place * disks).take(disks) {
        let reference = array.disks.get(member.disk).map_or(u32::MAX, |disk| disk.reference);
        let first = sectors_of(member.offset, size, "member offset")?;
        elements.push((reference, if reference == u32::MAX { NONE } else { first }));
    }
    let place = u8::try_from(place).unwrap_or(u8::MAX);
    let over = if count > 1 { 0 } else { u8::MAX };
    let same = |old: &&Config| old.guid == volume.id && old.secondary.1 == place;
    let old = base.configs.iter().find(same);
    let mut config = Config {
        guid: volume.id,
        time: old.map_or(change.time, |old| old.time),
        sequence: old.map_or(1, |old| old.sequence),
        strip: strip.ok_or_else(|| Fault::value("strip size", format!("is {}", volume.strip)))?,
        level: (level, qualifier),
        secondary: (count, place, over),
        sectors: sectors_of(one.bytes, size, "member size")?,
        volume: sectors_of(volume.bytes, size, "volume size")?,
        elements,
        base: old.map_or_else(fresh, |old| old.base.clone()),
    };
    if let Some(old) = old {
        // Another implementation's code for the same level is kept.
        config.secondary.2 = old.secondary.2;
        if !volume.level.has_strips() {
            config.strip = old.strip;
        }
        if config != *old {
            (config.time, config.sequence) = (change.time, old.sequence.wrapping_add(1));
        }
    }
    Ok(Some(config))
}

/// The first 512 bytes of a new record: ones, no cache, a medium rate.
fn fresh() -> Vec<u8> {
    let mut base = vec![0xff; 512];
    crate::probe::put(&mut base, 128, &[0; 8]);
    crate::probe::put(&mut base, 136, &[0x80]);
    base
}

/// The writes that put `meta` on its disk of `media_sectors` sectors (D3, D4). The anchor is
/// written only when `anchor` is set: for a disk that has none, or one that differs.
///
/// # Errors
/// The space is too small for it.
pub fn plan(
    meta: &Meta,
    media_sectors: u64,
    sector_size: u32,
    anchor: bool,
) -> Result<WritePlan, Fault> {
    let sections = meta.sections(sector_size)?;
    let unit = u64::from(sector_size);
    let full = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(sector_size as usize), 0);
        bytes
    };
    let order = match meta.source {
        Copy::Secondary => [Copy::Primary, Copy::Secondary],
        _ => [Copy::Secondary, Copy::Primary],
    };
    let mut plan = WritePlan::default();
    for copy in order {
        let Some(place) = meta.header.place(copy) else { continue };
        let fits = |(offset, bytes): &(u32, Vec<u8>)| {
            let sectors = u64::try_from(bytes.len()).unwrap_or(u64::MAX).div_ceil(unit);
            let end = place.checked_add(u64::from(*offset)).and_then(|at| at.checked_add(sectors));
            end.is_some_and(|end| end < media_sectors)
        };
        if !sections.iter().all(fits) {
            return Err(Fault::new(Reason::Beyond, "DDF sections", "do not fit on the disk"));
        }
        let sequence = meta.header.sequence.wrapping_sub(1);
        let open = Header { open: true, sequence, ..meta.header.clone() };
        plan.write(place * unit, full(open.encode(copy)));
        plan.flush();
        for (offset, bytes) in &sections {
            plan.write((place + u64::from(*offset)) * unit, full(bytes.clone()));
        }
        plan.flush();
        plan.write(place * unit, full(meta.header.encode(copy)));
        plan.flush();
    }
    if anchor {
        let Some(last) = media_sectors.checked_sub(1) else {
            return Err(Fault::new(Reason::Media, "DDF anchor", "does not fit on the disk"));
        };
        plan.write(last * unit, full(meta.header.encode(Copy::Anchor)));
        plan.flush();
    }
    Ok(plan)
}

/// The writes that take DDF off a disk: zeros over the anchor, then over both headers.
pub fn erase(meta: &Meta, media_sectors: u64, sector_size: u32) -> WritePlan {
    let mut plan = WritePlan::default();
    let last = media_sectors.saturating_sub(1);
    let places = [Some(last), meta.header.place(Copy::Primary), meta.header.place(Copy::Secondary)];
    for place in places.into_iter().flatten().filter(|place| *place <= last) {
        plan.write(place * u64::from(sector_size), vec![0; sector_size as usize]);
        plan.flush();
    }
    plan
}
