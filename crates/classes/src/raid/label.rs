//! New arrays and volumes: what is typed becomes an array, and records on its disks.

use bio::{Attr, Errno};
use geom::{Control, Error};
use serde_json::Value;

use super::book::Here;
use super::class::RaidClass;
use super::ddf::{self, Limits, Order, Place};
use super::found::{Found, SetId};
use super::geom::NAME;
use super::imsm;
use super::model::{
    Array, Disk, DiskState, Identity, Layout, Level, LogArea, Member, SubdiskState, Volume,
    VolumeState,
};
use super::verbs::{Request, perform, probe, up};
use crate::members::{hand, known};
use crate::write_plan::WritePlan;

/// Bytes that Intel leaves free at the end of a disk for its record; of small disks an eighth.
const INTEL_RESERVED: u64 = 2 << 20;
/// Strip if none is given, bytes.
const STRIP: u64 = 128 << 10;
/// Members of larger disks end on such a boundary, as firmware has them.
const ROUND: u64 = 1 << 20;
/// A slot without a disk.
const NONE: &str = "NONE";

/// Formats that can be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Intel,
    Ddf(Order),
}

fn format(request: &Request) -> Result<Format, Error> {
    let word = request.format.to_ascii_lowercase();
    let order = match request.order.as_deref() {
        None | Some("linux") => Order::LINUX,
        Some("big" | "BE") => Order::BIG,
        Some("little" | "LE") => Order::LITTLE,
        Some(other) => {
            return Err(Error::inval(format!("no order {other}; linux, big (BE), little (LE)")));
        }
    };
    match word.as_str() {
        "intel" | "imsm" if request.order.is_some() => {
            Err(Error::inval("--order is DDF's: Intel has but one"))
        }
        "intel" | "imsm" => Ok(Format::Intel),
        "ddf" | "snia" => Ok(Format::Ddf(order)),
        _ => Err(Error::inval(format!("no format {}; Intel, DDF", request.format))),
    }
}

/// The level that a word means, with the format's usual order of parity.
fn level(word: &str, intel: bool) -> Result<Level, Error> {
    let word = word.to_ascii_uppercase();
    let (name, order) = match word.split_once('-') {
        Some((name, order)) => (name, Some(order)),
        None => (word.as_str(), None),
    };
    let layout = match order {
        None if intel || name == "RAID6" => Layout::LeftAsymmetric,
        None => Layout::LeftSymmetric,
        Some("LA") => Layout::LeftAsymmetric,
        Some("LS") => Layout::LeftSymmetric,
        Some("RA") => Layout::RightAsymmetric,
        Some("RS") => Layout::RightSymmetric,
        Some(other) => {
            return Err(Error::inval(format!("no order of parity {other}; LA, LS, RA, RS")));
        }
    };
    match (name, order) {
        ("RAID5" | "5", _) => Ok(Level::Raid5(layout)),
        ("RAID6" | "6", _) => Ok(Level::Raid6(layout)),
        ("RAID0" | "0", None) => Ok(Level::Raid0),
        ("RAID1" | "1", None) => Ok(Level::Raid1),
        ("RAID1E" | "1E", None) => Ok(Level::Raid1e),
        ("RAID10" | "10", None) => Ok(Level::Raid10),
        ("RAID4" | "4", None) => Ok(Level::Raid4),
        ("CONCAT", None) => Ok(Level::Concat),
        ("SINGLE", None) => Ok(Level::Single),
        _ => Err(Error::inval(format!(
            "no level {word}; RAID0, RAID1, RAID1E, RAID10, RAID4, RAID5[-LA|-LS|-RA|-RS], \
             RAID6[-LA|-LS|-RA], CONCAT, SINGLE"
        ))),
    }
}

/// A member disk that was named.
struct Chosen {
    name: String,
    disk: Disk,
    sectors: u64,
}

/// A disk's own serial number, or its name.
pub(super) fn serial(control: &Control, name: &str) -> Result<String, Error> {
    let on = hand::find(control, name)?;
    let ident = match control.topology.attr(on, "GEOM::ident") {
        Some(Attr::Text(text)) if !text.is_empty() => text,
        _ => name.to_owned(),
    };
    Ok(imsm::serial_of(&ident))
}

/// A DDF disk's GUID.
pub(super) fn guid(number: u32) -> [u8; 24] {
    let mut guid = *b"ASHLAR  00000000        ";
    crate::probe::put(&mut guid, 8, format!("{number:08x}").as_bytes());
    guid
}

/// Bytes of a disk that volumes may use.
pub(super) fn usable(intel: bool, media: u64) -> u64 {
    match intel {
        true => media - INTEL_RESERVED.min(media / 8),
        false => ddf::usable_bytes(media),
    }
}

/// Whether a provider may be labelled: not in use, and nothing at its end that would be lost.
fn check(control: &mut Control, name: &str, force: bool) -> Result<(), Error> {
    hand::reading(control, NAME, name, |control, edge| {
        let (at, last) = hand::last(control, name, edge)?;
        let before = at.checked_sub(last.len() as u64);
        let before = match before {
            Some(before) => hand::read(control, name, edge, before, last.len())?,
            None => Vec::new(),
        };
        let empty = last.iter().chain(&before).all(|byte| *byte == 0);
        if force || empty || before.starts_with(imsm::SIGNATURE) {
            return Ok(());
        }
        let what = format!(
            "the last sectors of {name} hold something (`ashlar inspect {name}` says what); give \
             --force if it may be lost"
        );
        Err(Error::new(Errno::Exist, what))
    })?;
    // Open for writing, if only for a moment, is what labelling needs.
    hand::writing(control, NAME, name, |_, _| Ok(()), |_, _| Ok(()))
}

fn choose(
    control: &mut Control,
    request: &Request,
    intel: bool,
) -> Result<(Vec<Option<Chosen>>, u32), Error> {
    let (mut all, mut sector) = (Vec::new(), None);
    for (at, name) in request.members.iter().enumerate() {
        if name == NONE {
            all.push(None);
            continue;
        }
        if request.members.iter().take(at).any(|other| other == name) {
            return Err(Error::inval(format!("{name} is named twice")));
        }
        let on = hand::find(control, name)?;
        let (size, media) = hand::sizes(control, on);
        if *sector.get_or_insert(size) != size {
            let what = format!("{name} has sectors of {size} bytes, and another disk has not");
            return Err(Error::inval(what));
        }
        check(control, name, request.force)?;
        let number = known::new_id(control, name).wrapping_add(at as u32);
        let serial = serial(control, name)?;
        let twin = |c: &Chosen| intel && c.disk.serial == serial;
        if all.iter().flatten().any(twin) {
            let what = format!("{name} has the serial number \"{serial}\" of another disk");
            return Err(Error::inval(what));
        }
        let guid = guid(number);
        let disk = Disk {
            serial: if intel { serial } else { String::from_utf8_lossy(&guid).into_owned() },
            reference: if intel { at as u32 } else { number },
            guid: if intel { [0; 24] } else { guid },
            state: DiskState::Active,
            bytes: if intel { media } else { usable(false, media) },
            bad: Vec::new(),
        };
        let sectors = media / u64::from(size.max(1));
        all.push(Some(Chosen { name: name.clone(), disk, sectors }));
    }
    match sector {
        Some(sector) => Ok((all, sector)),
        None => Err(Error::inval("an array without a disk: name at least one")),
    }
}

/// A disk that is to come.
fn nobody(at: usize, like: &Disk, intel: bool) -> Disk {
    let number = 0xfff0_0000 | at as u32;
    let guid = guid(number);
    Disk {
        serial: if intel { format!("NONE{at}") } else { String::from_utf8_lossy(&guid).into() },
        reference: if intel { u32::MAX } else { number },
        guid: if intel { [0; 24] } else { guid },
        state: DiskState::Missing,
        ..like.clone()
    }
}

/// How a volume is to be.
struct Wish<'a> {
    name: &'a str,
    id: [u8; 24],
    level: Level,
    strip: u64,
    /// Bytes of each member, if said.
    size: Option<u64>,
    /// Its members hold the same already.
    same: bool,
    sector: u32,
    /// Bytes for a log of partial parity behind the data of each member; zero: none is kept.
    log: u64,
}

/// Bytes that a volume's log of partial parity takes of each disk.
fn log_bytes(request: &Request, intel: bool, level: Level) -> Result<u64, Error> {
    match request.consistency.as_deref() {
        None | Some("resync") => Ok(0),
        Some("ppl") if intel && matches!(level, Level::Raid5(_)) => Ok(imsm::ppl::AREA),
        Some("ppl") => Err(Error::inval(
            "a log of partial parity (ppl) is kept for Intel's RAID5, and nothing else",
        )),
        Some(other) => Err(Error::inval(format!("no consistency {other}; resync, ppl"))),
    }
}

/// A volume on disks of which each has room at a place.
fn volume(wish: &Wish<'_>, room: &[(u64, u64)], there: &[bool]) -> Result<Volume, Error> {
    let sector = u64::from(wish.sector.max(1));
    if !wish.strip.is_power_of_two() || wish.strip < sector || wish.strip > 1 << 30 {
        let what = format!("a strip of {} bytes: use a power of two, {sector} or more", wish.strip);
        return Err(Error::inval(what));
    }
    if wish.name.is_empty() || wish.name.len() > 15 || !wish.name.is_ascii() {
        return Err(Error::inval(format!("{:?} cannot be a name: 1 to 15 characters", wish.name)));
    }
    let least = room.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0).saturating_sub(wish.log);
    let each = wish.size.unwrap_or(least);
    if each > least {
        let what = format!("{each} bytes of each disk: the smallest has {least} to give");
        return Err(Error::inval(what));
    }
    let unit = if each >= 8 * ROUND { ROUND.max(wish.strip) } else { wish.strip };
    let each = each - each % unit;
    let each = if wish.level.has_strips() || each > 0 { each } else { least - least % sector };
    let lens: Vec<u64> = match wish.level {
        Level::Concat if wish.size.is_none() => {
            room.iter().map(|(_, bytes)| bytes - bytes % unit.min(wish.strip)).collect()
        }
        _ => vec![each; room.len()],
    };
    let bytes = wish.level.capacity(wish.strip, &lens).filter(|bytes| *bytes > 0);
    let Some(bytes) = bytes else {
        let (count, level) = (room.len(), super::show::level_word(wish.level));
        let takes = (1..10).filter(|n| wish.level.data_members(*n).is_some()).take(3);
        let takes: Vec<String> = takes.map(|n| n.to_string()).collect();
        return Err(Error::inval(match wish.level.data_members(count) {
            None => {
                format!("{count} disks make no {level}: it takes {} ... of them", takes.join(", "))
            }
            Some(_) => {
                format!(
                    "{count} disks with {each} bytes free are too small for strips of {}",
                    wish.strip
                )
            }
        }));
    };
    let raw = wish.level.redundant() && !wish.same;
    let member = |(disk, ((offset, _), bytes)): (usize, (&(u64, u64), &u64))| {
        let state = match there.get(disk) {
            Some(true) if raw => SubdiskState::Uninitialized,
            Some(true) => SubdiskState::Active,
            _ => SubdiskState::None,
        };
        Member { disk, offset: *offset, bytes: bytes + wish.log, state }
    };
    let end = lens.first().copied().unwrap_or(0);
    let end = end - end % wish.strip;
    let log = (wish.log > 0).then_some(LogArea { at: end, bytes: wish.log });
    let volume = Volume {
        name: wish.name.to_owned(),
        id: wish.id,
        level: wish.level,
        strip: wish.strip,
        bytes,
        members: room.iter().zip(&lens).enumerate().map(member).collect(),
        dirty: false,
        migration: None,
        log,
    };
    if volume.state() == VolumeState::Broken {
        return Err(Error::inval("too many NONE: nothing would hold all of the data"));
    }
    Ok(volume)
}

/// What each disk shall say.
fn plans(
    array: &Array,
    chosen: &[Option<Chosen>],
    format: Format,
    sector: u32,
) -> Result<Vec<(String, WritePlan)>, Error> {
    let refused = |fault: super::Fault| Error::inval(fault.to_string());
    let mut all = Vec::new();
    for (index, one) in chosen.iter().enumerate() {
        let Some(one) = one else { continue };
        let plan = match format {
            Format::Intel => {
                let record = imsm::create(array, &imsm::Names::default(), sector);
                imsm::plan(&record.map_err(refused)?, one.sectors, sector)
            }
            Format::Ddf(order) => {
                let place = Place {
                    sector_size: sector,
                    media_sectors: one.sectors,
                    time: 0,
                    controller: *b"ASHLAR  controller      ",
                    limits: Limits::default(),
                    order,
                };
                let meta = ddf::create(array, index, &place).map_err(refused)?;
                ddf::plan(&meta, one.sectors, sector, true)
            }
        };
        all.push((one.name.clone(), plan.map_err(refused)?));
    }
    Ok(all)
}

/// `label`: a new array with one volume.
pub(super) fn label(
    class: &RaidClass,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    let format = format(request)?;
    let intel = format == Format::Intel;
    let level = level(&request.level, intel)?;
    let (chosen, sector) = choose(control, request, intel)?;
    let like = chosen.iter().flatten().next().map(|c| c.disk.clone());
    let Some(like) = like else { return Err(Error::inval("every slot is NONE")) };
    let disks: Vec<Disk> = chosen
        .iter()
        .enumerate()
        .map(|(at, c)| c.as_ref().map_or_else(|| nobody(at, &like, intel), |c| c.disk.clone()))
        .collect();
    let there: Vec<bool> = chosen.iter().map(Option::is_some).collect();
    let room: Vec<(u64, u64)> = disks
        .iter()
        .map(|disk| (0, if intel { usable(true, disk.bytes) } else { disk.bytes }))
        .collect();
    let number = known::new_id(control, name);
    let identity = match format {
        Format::Intel => Identity::Intel { family: number, original: number },
        Format::Ddf(_) => Identity::Ddf(guid(number)),
    };
    let mut id = [0; 24];
    match format {
        Format::Intel => crate::probe::put(&mut id, 0, &1_u16.to_le_bytes()),
        Format::Ddf(_) => id = guid(number.wrapping_add(1)),
    }
    let strip = request.strip.unwrap_or(STRIP);
    let (size, same) = (request.size, request.assume_same);
    let log = log_bytes(request, intel, level)?;
    let wish = Wish { name, id, level, strip, size, same, sector, log };
    let volume = volume(&wish, &room, &there)?;
    let array = Array { identity, generation: 1, disks, volumes: vec![volume] };
    array.check().map_err(|fault| Error::inval(fault.to_string()))?;
    let plans = plans(&array, &chosen, format, sector)?;
    let set = match identity {
        Identity::Intel { original, .. } => SetId::Intel(original),
        Identity::Ddf(guid) => SetId::Ddf(guid),
    };
    class.stopped.start(&set.name());
    for (name, _) in &plans {
        erase(control, name)?;
    }
    for (name, plan) in plans {
        perform(control, &name, plan)?;
    }
    let members: Vec<String> = request.members.iter().filter(|m| *m != NONE).cloned().collect();
    up(control, &set.name(), name, &members)
}

/// Whatever record a disk has is cleared, so that it is not taken for what it was.
pub(super) fn erase(control: &mut Control, name: &str) -> Result<(), Error> {
    let on = hand::find(control, name)?;
    let (sector, media) = hand::sizes(control, on);
    let sectors = media / u64::from(sector.max(1));
    let plan = match probe(control, name) {
        Ok(Found::Ddf(meta)) => ddf::erase(&meta, sectors, sector),
        _ => imsm::erase(sectors, sector),
    };
    perform(control, name, plan)
}

/// `add`: a further volume on an array's disks, in what the others leave.
pub(super) fn add(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let name = request.label.as_str();
    let number = known::new_id(control, name);
    let set = super::verbs::with(control, on, |g, t, me| {
        let intel = matches!(g.id, SetId::Intel(_));
        let level = level(&request.level, intel)?;
        let not_up = || Error::new(Errno::NxIo, "the array has not started");
        let (Some(set), Some(book)) = (&g.set, &g.book) else { return Err(not_up()) };
        let used = |disk: usize| {
            let all = set.array.volumes.iter().flat_map(|v| &v.members);
            let ends = all.filter(|m| m.disk == disk).map(|m| m.offset.saturating_add(m.bytes));
            ends.max().unwrap_or(0)
        };
        let first = set.array.volumes.first().ok_or_else(not_up)?;
        if set.array.volumes.iter().any(|volume| volume.name == name) {
            return Err(Error::new(Errno::Exist, format!("a volume {name} is there already")));
        }
        let places: Vec<usize> = first.members.iter().map(|m| m.disk).collect();
        let start = places.iter().map(|disk| used(*disk)).max().unwrap_or(0);
        let round = if start >= 8 * ROUND { ROUND } else { request.strip.unwrap_or(STRIP) };
        let start = start.next_multiple_of(round.max(1));
        let room = |disk: &usize| {
            let bytes = set.array.disks.get(*disk).map_or(0, |d| d.bytes);
            let bytes = if intel { usable(true, bytes) } else { bytes };
            (start, bytes.saturating_sub(start))
        };
        let room: Vec<(u64, u64)> = places.iter().map(room).collect();
        let there: Vec<bool> =
            places.iter().map(|disk| set.here.get(*disk).copied().flatten().is_some()).collect();
        let mut id = [0; 24];
        match g.id {
            SetId::Intel(_) => {
                let last = set.array.volumes.iter().map(|v| {
                    let (number, _) = v.id.split_first_chunk::<2>().unwrap_or((&[0; 2], &[]));
                    u16::from_le_bytes(*number)
                });
                let next = last.max().unwrap_or(0).wrapping_add(1);
                crate::probe::put(&mut id, 0, &next.to_le_bytes());
            }
            SetId::Ddf(_) => id = guid(number),
        }
        let strip = request.strip.unwrap_or(STRIP);
        let (size, same, sector) = (request.size, request.assume_same, g.sector);
        let log = log_bytes(request, intel, level)?;
        let wish = Wish { name, id, level, strip, size, same, sector, log };
        let mut volume = volume(&wish, &room, &there)?;
        for (member, disk) in volume.members.iter_mut().zip(&places) {
            member.disk = *disk;
        }
        let mut trial = set.clone();
        trial.add_volume(volume.clone());
        let mut array = trial.record();
        array.check().map_err(|fault| Error::inval(fault.to_string()))?;
        // What the format cannot say is refused before anything changes.
        let here = |disk: &usize| Here { index: *disk, sectors: u64::MAX >> 16, moved: false };
        let here: Vec<Here> = places.iter().map(here).collect();
        let said = book.clone().write(&mut array, &here, g.above, g.sector);
        said.map_err(|fault| Error::inval(fault.to_string()))?;
        if let Some(set) = &mut g.set {
            set.add_volume(volume);
        }
        g.start_volumes(t, me);
        g.start_passes();
        g.push(t, me, super::geom::Job::Rewrite);
        Ok(g.id.name())
    })?;
    up(control, &set, name, &[])
}
