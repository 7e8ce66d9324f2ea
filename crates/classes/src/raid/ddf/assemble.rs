//! Assembly of one array from the metadata of its disks.

use super::array::{level, member_state};
use super::header::NONE;
use super::meta::Meta;
use super::records::{Config, VolumeEntry, disk_state as state, kind};
use crate::probe::Reason;
use crate::raid::Fault;
use crate::raid::fields::{bytes_of, text};
use crate::raid::model::{
    Array, Disk, DiskState, Identity, Level, Member, Migration, MigrationKind, SubdiskState, Volume,
};

/// Volumes with a state of "deleted" are passed over.
const DELETED: u8 = 2;
/// Strip size, bytes, of a volume that has no strips and records none.
const STRIP: u64 = 65536;

/// What several disks add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The array in force. Disks that were not given are missing.
    pub array: Array,
    /// Index into [`Array::disks`] of each disk given; `None`: it is not of this set.
    pub places: Vec<Option<usize>>,
    /// The disks whose records are older: to be written anew.
    pub stale: Vec<usize>,
    /// Volumes that are listed, with no disk here that describes them. [`super::update`] keeps
    /// them.
    pub unknown: Vec<[u8; 24]>,
}

/// Combine the records of disks with sectors of `sector_size` bytes. The highest sequence is
/// in force; disks with another GUID in their headers have no place in the set.
///
/// # Errors
/// Nothing given, a reference that two disks have, one sequence with two contents, or a level
/// that is not understood.
pub fn assemble(found: &[Meta], sector_size: u32) -> Result<Assembled, Fault> {
    let Some(newest) = found.iter().max_by_key(|meta| meta.header.sequence) else {
        return Err(Fault::new(Reason::Signature, "DDF array", "is on none of these disks"));
    };
    let ours = |meta: &Meta| meta.header.guid == newest.header.guid;
    let (mut places, mut stale) = (Vec::with_capacity(found.len()), Vec::new());
    for (at, meta) in found.iter().enumerate() {
        let same = |other: &Meta| ours(other) && other.data.reference == meta.data.reference;
        if ours(meta) && found.iter().take(at).any(same) {
            let what = format!("{:08x} is that of two disks", meta.data.reference);
            return Err(Fault::new(Reason::Integrity, "DDF disk reference", what));
        }
        let known = newest.disks.iter().position(|disk| disk.reference == meta.data.reference);
        let known = known.filter(|_| ours(meta));
        places.push(known);
        if known.is_some() && meta.header.sequence != newest.header.sequence {
            stale.push(at);
        } else if known.is_some()
            && (&meta.disks, &meta.volumes) != (&newest.disks, &newest.volumes)
        {
            let what = format!("{} has two records that differ", meta.header.sequence);
            return Err(Fault::new(Reason::Integrity, "DDF sequence", what));
        }
    }
    let mut disks = disks(newest, found, &places, sector_size)?;
    let current: Vec<&Meta> = found.iter().filter(|meta| ours(meta)).collect();
    let (mut volumes, mut unknown) = (Vec::new(), Vec::new());
    for entry in newest.volumes.iter().filter(|entry| entry.state & 7 != DELETED) {
        match configs(&current, entry) {
            all if all.is_empty() => unknown.push(entry.guid),
            all => volumes.push(volume(&current, newest, entry, &all, &mut disks, sector_size)?),
        }
    }
    let identity = Identity::Ddf(newest.header.guid);
    let generation = newest.header.sequence;
    Ok(Assembled { array: Array { identity, generation, disks, volumes }, places, stale, unknown })
}

fn disks(
    newest: &Meta,
    found: &[Meta],
    places: &[Option<usize>],
    size: u32,
) -> Result<Vec<Disk>, Fault> {
    let mut all = Vec::with_capacity(newest.disks.len());
    for (index, entry) in newest.disks.iter().enumerate() {
        let position = places.iter().position(|place| *place == Some(index));
        let spare = entry.kind & (kind::GLOBAL_SPARE | kind::CONFIG_SPARE) != 0;
        let spare = spare && entry.kind & kind::PARTICIPATING == 0;
        let state = match entry.state {
            bits if bits & state::FAILED != 0 => DiskState::Failed,
            bits if bits & state::MISSING != 0 || position.is_none() => DiskState::Missing,
            bits if bits & state::ONLINE == 0 => DiskState::Disabled,
            _ if spare => DiskState::Spare,
            _ => DiskState::Active,
        };
        let mut bad = Vec::new();
        let log = position.and_then(|at| found.get(at)).map_or(&[][..], |meta| &meta.bad);
        for entry in log {
            let first = bytes_of(entry.first, size, "bad block")?;
            bad.push((first, bytes_of(entry.count.into(), size, "bad blocks")?));
        }
        all.push(Disk {
            serial: text(&entry.guid),
            reference: entry.reference,
            guid: entry.guid,
            state,
            bytes: bytes_of(entry.sectors, size, "DDF disk size")?,
            bad,
        });
    }
    Ok(all)
}

/// The newest record of each basic volume of a volume.
fn configs<'a>(current: &[&'a Meta], entry: &VolumeEntry) -> Vec<&'a Config> {
    let mut all: Vec<&Config> = Vec::new();
    for meta in current {
        for config in meta.configs.iter().filter(|config| config.guid == entry.guid) {
            let same = |old: &&mut &Config| old.secondary.1 == config.secondary.1;
            match all.iter_mut().find(same) {
                Some(old) if old.sequence >= config.sequence => {}
                Some(old) => *old = config,
                None => all.push(config),
            }
        }
    }
    all
}

fn volume(
    current: &[&Meta],
    newest: &Meta,
    entry: &VolumeEntry,
    all: &[&Config],
    disks: &mut Vec<Disk>,
    size: u32,
) -> Result<Volume, Fault> {
    let Some(one) = all.first().copied() else {
        return Err(Fault::value("DDF configuration", "is missing"));
    };
    let shape = |c: &Config| (c.level, c.secondary.0, c.secondary.2, c.strip, c.elements.len());
    if all.iter().any(|config| shape(config) != shape(one)) {
        let what = "differ within one volume";
        return Err(Fault::new(Reason::Integrity, "DDF configurations", what));
    }
    let level = level(one)?;
    let mut members = Vec::new();
    for place in 0..one.secondary.0 {
        let found = all.iter().find(|config| config.secondary.1 == place);
        for at in 0..one.elements.len() {
            let element = found.and_then(|config| config.elements.get(at).copied());
            let (reference, first) = element.unwrap_or((u32::MAX, NONE));
            let known = disks.iter().position(|disk| disk.reference == reference);
            let known = known.filter(|_| reference != u32::MAX);
            let disk = known.unwrap_or_else(|| {
                disks.push(empty_slot_disk());
                disks.len() - 1
            });
            let first = if first == NONE { 0 } else { first };
            let state = disks.get(disk).map_or(DiskState::Missing, |disk| disk.state);
            // A disk that the newest calls a spare was about to take the place: it has nothing yet.
            let taking = state == DiskState::Spare;
            if let Some(disk) = disks.get_mut(disk).filter(|_| taking) {
                disk.state = DiskState::Active;
            }
            let entry_of = newest.disks.iter().find(|disk| disk.reference == reference);
            members.push(Member {
                disk,
                offset: bytes_of(first, size, "DDF start")?,
                bytes: bytes_of(one.sectors, size, "DDF block count")?,
                state: match taking && level.redundant() {
                    true => SubdiskState::New,
                    false => member_state(level, state, entry_of, entry),
                },
            });
        }
    }
    let rebuild = members.iter().any(|member| member.state == SubdiskState::Rebuild);
    let kind = match entry.init & 3 {
        _ if rebuild => Some(MigrationKind::Rebuild),
        1 if level.redundant() => Some(MigrationKind::Init),
        _ => None,
    };
    let strip = u64::from(size).checked_shl(one.strip.into());
    // mdadm leaves 255 where there are no strips.
    let strip = strip.filter(|strip| *strip <= 1 << 40);
    let strip = strip.or((!level.has_strips()).then_some(STRIP));
    Ok(Volume {
        name: text(&entry.name),
        id: entry.guid,
        level,
        strip: strip.ok_or_else(|| Fault::value("DDF stripe size", format!("is {}", one.strip)))?,
        bytes: bytes_of(one.volume, size, "DDF volume size")?,
        members: lengths(level, members, current, entry, disks, size)?,
        dirty: entry.state & 0x10 != 0,
        migration: kind.map(|kind| Migration { kind, done: 0 }),
        log: None,
    })
}

/// A slot that names no disk.
fn empty_slot_disk() -> Disk {
    Disk {
        serial: String::new(),
        reference: u32::MAX,
        guid: [0xff; 24],
        state: DiskState::Missing,
        bytes: 0,
        bad: Vec::new(),
    }
}

/// Members of a concatenation have lengths of their own, each recorded on its own disk.
fn lengths(
    level: Level,
    mut members: Vec<Member>,
    current: &[&Meta],
    entry: &VolumeEntry,
    disks: &[Disk],
    size: u32,
) -> Result<Vec<Member>, Fault> {
    if level != Level::Concat {
        return Ok(members);
    }
    for meta in current {
        let owner = disks.iter().position(|disk| disk.reference == meta.data.reference);
        for config in meta.configs.iter().filter(|config| config.guid == entry.guid) {
            let length = bytes_of(config.sectors, size, "DDF block count")?;
            for member in members.iter_mut().filter(|member| Some(member.disk) == owner) {
                member.bytes = length;
            }
        }
    }
    Ok(members)
}
