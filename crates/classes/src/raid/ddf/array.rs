//! Translation of levels, states and names between the format's numbers and the array's.
//!
//! What does not survive: how far a rebuild is, and that a verify is under way (the dirty flag
//! stays). RAID3, 5E, 5EE, parity on the first disk, and volumes over volumes other than RAID10
//! are refused by name.

use super::records::{Config, DiskEntry, VolumeEntry, disk_state, kind};
use crate::raid::Fault;
use crate::raid::model::{
    Array, Disk, DiskState, Layout, Level, MigrationKind, SubdiskState, Volume, VolumeState,
};

/// Bytes at the end of a disk for the metadata and its workspace: the usual reservation.
pub(super) const RESERVED: u64 = 32 << 20;

/// Bytes that volumes may use on a disk of `media` bytes: all but the last 32 MiB.
pub fn usable_bytes(media: u64) -> u64 {
    media.saturating_sub(RESERVED)
}

/// The other fields of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change<'a> {
    /// Seconds since 1980.
    pub time: u32,
    /// Volumes to be forgotten. Any other that the array does not know is kept as it is.
    pub deleted: &'a [[u8; 24]],
}

/// The level of a volume, from one of its basic volumes.
pub(super) fn level(config: &Config) -> Result<Level, Fault> {
    let (count, _, over) = config.secondary;
    let (level, qualifier) = config.level;
    let disks = config.elements.len();
    if count > 1 {
        // Striped over pairs; Linux calls the same "spanned".
        return match (level, disks, over) {
            (1, 2, 0 | 3) => Ok(Level::Raid10),
            _ => {
                let what = format!("is {over} over {count} of level {level} with {disks} disks");
                Err(Fault::value("DDF secondary level", what))
            }
        };
    }
    Ok(match (level, qualifier) {
        (0, 0) => Level::Raid0,
        (1, 0 | 1) => Level::Raid1,
        (0x11, 0) => Level::Raid1e,
        (0x0f, _) => Level::Single,
        (0x1f, _) => Level::Concat,
        (4, 1) => Level::Raid4,
        (5, 0) => Level::Raid5(Layout::RightAsymmetric),
        (5, 1) => Level::Raid5(Layout::RightSymmetric),
        (5, 2) => Level::Raid5(Layout::LeftAsymmetric),
        (5, 3) => Level::Raid5(Layout::LeftSymmetric),
        (6, 1) => Level::Raid6(Layout::RightAsymmetric),
        (6, 2) => Level::Raid6(Layout::LeftAsymmetric),
        (6, 3) => Level::Raid6(Layout::LeftSymmetric),
        _ => {
            let what = format!("is {level:#x} with qualifier {qualifier}: not known");
            return Err(Fault::value("DDF primary level", what));
        }
    })
}

/// Level, qualifier, disks of a basic volume, basic volumes.
pub(super) fn shape(volume: &Volume) -> Result<(u8, u8, usize, u8), Fault> {
    let disks = volume.members.len();
    let layout = |layout| match layout {
        Layout::RightAsymmetric => 0,
        Layout::RightSymmetric => 1,
        Layout::LeftAsymmetric => 2,
        Layout::LeftSymmetric => 3,
    };
    Ok(match volume.level {
        Level::Raid0 => (0, 0, disks, 1),
        Level::Raid1 => (1, u8::from(disks > 2), disks, 1),
        Level::Raid1e => (0x11, 0, disks, 1),
        Level::Raid10 => {
            let pairs = u8::try_from(disks / 2).ok().filter(|_| disks.is_multiple_of(2));
            let what = || Fault::value("members", format!("are {disks}, no pairs up to 255"));
            (1, 0, 2, pairs.ok_or_else(what)?)
        }
        Level::Single => (0x0f, 0, disks, 1),
        Level::Concat => (0x1f, 0, disks, 1),
        Level::Raid4 => (4, 1, disks, 1),
        Level::Raid5(order) => (5, layout(order), disks, 1),
        Level::Raid6(Layout::RightSymmetric) => {
            return Err(Fault::value("level", "RAID6 right-symmetric: DDF has no such"));
        }
        Level::Raid6(Layout::RightAsymmetric) => (6, 1, disks, 1),
        Level::Raid6(order) => (6, layout(order), disks, 1),
    })
}

pub(super) fn member_state(
    level: Level,
    disk: DiskState,
    entry: Option<&DiskEntry>,
    volume: &VolumeEntry,
) -> SubdiskState {
    match disk {
        DiskState::Missing => SubdiskState::None,
        DiskState::Failed | DiskState::Disabled => SubdiskState::Failed,
        _ if entry.is_some_and(|entry| entry.state & disk_state::REBUILD != 0) => {
            SubdiskState::Rebuild
        }
        _ if level.redundant() && volume.init & 3 != 2 => SubdiskState::Uninitialized,
        _ => SubdiskState::Active,
    }
}

/// A disk's entry, from its previous one.
pub(super) fn disk_entry(
    array: &Array,
    index: usize,
    disk: &Disk,
    old: Option<&DiskEntry>,
    sectors: u64,
) -> DiskEntry {
    let members = || {
        let all = array.volumes.iter().flat_map(|volume| &volume.members);
        all.filter(|member| member.disk == index)
    };
    let old_kind = old.map_or(kind::FORCED, |old| old.kind);
    let spare = old_kind & kind::CONFIG_SPARE;
    let mut bits = old_kind & !(kind::PARTICIPATING | kind::GLOBAL_SPARE | kind::CONFIG_SPARE);
    if members().next().is_some() {
        bits |= kind::PARTICIPATING;
    } else if disk.state == DiskState::Spare {
        bits |= if spare != 0 { spare } else { kind::GLOBAL_SPARE };
    }
    let filling = |state| matches!(state, SubdiskState::Rebuild | SubdiskState::New);
    let mut state = match disk.state {
        DiskState::Active | DiskState::Spare => disk_state::ONLINE,
        DiskState::Failed => disk_state::FAILED,
        DiskState::Missing => disk_state::MISSING,
        DiskState::Disabled => 0,
    };
    if state == disk_state::ONLINE && members().any(|member| filling(member.state)) {
        state |= disk_state::REBUILD;
    }
    state |= old.map_or(0, |old| old.state & disk_state::WARNINGS);
    let rest = old.map_or_else(path, |old| old.rest);
    DiskEntry { guid: disk.guid, reference: disk.reference, kind: bits, state, sectors, rest }
}

/// The path of a disk without a recorded path.
fn path() -> [u8; 24] {
    let mut path = [0xff; 24];
    path.iter_mut().take(18).for_each(|byte| *byte = 0);
    path
}

/// A volume's entry, from its previous one.
pub(super) fn volume_entry(
    volume: &Volume,
    number: u16,
    controller: u16,
    old: Option<&VolumeEntry>,
) -> Result<VolumeEntry, Fault> {
    let mut name = [0; 16];
    if volume.name.len() > name.len() {
        let what = format!("\"{}\" has more than 16 bytes", volume.name);
        return Err(Fault::value("volume name", what));
    }
    crate::probe::put(&mut name, 0, volume.name.as_bytes());
    let filling = |state| matches!(state, SubdiskState::Rebuild | SubdiskState::New);
    let lost = volume.members.iter().filter(|m| m.state <= SubdiskState::Rebuild).count();
    let left = volume.members.len() - lost;
    let state = match (volume.state(), volume.level) {
        (VolumeState::Broken, _) => 4,
        _ if lost == 0 => 0,
        (_, Level::Raid6(_)) if lost == 1 => 5,
        (_, Level::Raid1) if left > 1 => 5,
        _ => 1,
    };
    let copying = volume.members.iter().any(|member| filling(member.state));
    let starting = volume.migration.is_some_and(|m| m.kind == MigrationKind::Init);
    let init = match volume.uninitialized() && volume.level.redundant() {
        true if starting && !copying => 1,
        true => 0,
        false => 2,
    };
    let old_bits = old.map_or((0, 0), |old| (old.state & 0xe8, old.init & 0xfc));
    Ok(VolumeEntry {
        guid: volume.id,
        number: old.map_or(number, |old| old.number),
        kind: old.map_or(0, |old| old.kind),
        controller: old.map_or(controller, |old| old.controller),
        state: old_bits.0 | state | if volume.dirty { 0x10 } else { 0 },
        init: old_bits.1 | init,
        rest: old.map_or([0xff; 14], |old| old.rest),
        name,
    })
}
