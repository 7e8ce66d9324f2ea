//! Random arrays by seed, within the limits of each format.

use classes::raid::{
    Array, Disk, DiskState, Identity, Layout, Level, Member, Migration, MigrationKind,
    SubdiskState, Volume,
};

use crate::support::Seed;

/// A disk of [`DISK_BYTES`] with a serial number and GUID made from `number`.
pub fn disk(number: u32) -> Disk {
    let mut guid = *b"ASHLAR  DISK    00000000";
    guid[16..].copy_from_slice(format!("{number:08}").as_bytes());
    Disk {
        serial: format!("SERIAL-{number:06}"),
        reference: 0x1000 + number,
        guid,
        state: DiskState::Active,
        bytes: DISK_BYTES,
        bad: Vec::new(),
    }
}

/// Size of the disks that arrays are made of.
pub const DISK_BYTES: u64 = 128 << 20;

/// A volume of `level` at `offset` on disks 0 to `members`, as large as `len` on each allows.
pub fn volume(
    number: u16,
    level: Level,
    members: usize,
    offset: u64,
    len: u64,
    strip: u64,
) -> Volume {
    let lens = vec![len; members];
    let mut id = [0; 24];
    id[..2].copy_from_slice(&number.to_le_bytes());
    let member = |disk| Member { disk, offset, bytes: len, state: SubdiskState::Active };
    Volume {
        name: format!("Volume{number}"),
        id,
        level,
        strip,
        bytes: level.capacity(strip, &lens).expect("a volume of that many members"),
        members: (0..members).map(member).collect(),
        dirty: false,
        migration: None,
        log: None,
    }
}

pub fn with_one_volume(identity: Identity, level: Level, disks: usize) -> Array {
    Array {
        identity,
        generation: 7,
        disks: (0..disks as u32).map(disk).collect(),
        volumes: vec![volume(1, level, disks, 1 << 20, 16 << 20, 65536)],
    }
}

pub const INTEL: Identity = Identity::Intel { family: 0x1234_5678, original: 0x8765_4321 };

/// Levels of Intel with numbers of members that they have.
pub const INTEL_LEVELS: [(Level, usize); 9] = [
    (Level::Single, 1),
    (Level::Raid0, 2),
    (Level::Raid0, 5),
    (Level::Raid1, 2),
    (Level::Raid1e, 3),
    (Level::Raid10, 4),
    (Level::Raid10, 6),
    (Level::Raid5(Layout::LeftAsymmetric), 3),
    (Level::Raid5(Layout::LeftAsymmetric), 6),
];

/// Any array that Intel's format can record without loss.
pub fn intel(seed: u64) -> Array {
    let mut chance = Seed(seed);
    let (_, count) = INTEL_LEVELS[chance.below(9) as usize];
    let mut array = Array {
        identity: INTEL,
        generation: chance.next() as u32,
        disks: (0..count as u32).map(disk).collect(),
        volumes: Vec::new(),
    };
    for number in 1..=1 + chance.below(2) as u16 {
        let fits: Vec<Level> =
            INTEL_LEVELS.iter().filter(|(_, n)| *n == count).map(|(level, _)| *level).collect();
        let level = fits[chance.below(fits.len() as u64) as usize];
        let strip = 4096 << chance.below(7);
        let len = (1 + chance.below(12)) << 20;
        let mut volume = volume(number, level, count, u64::from(number) << 24, len, strip);
        volume.dirty = chance.below(2) == 0;
        array.volumes.push(volume);
    }
    // A disk with a state other than active has it for every volume.
    if level_redundant(&array) {
        let at = chance.below(count as u64) as usize;
        let state = [DiskState::Active, DiskState::Failed, DiskState::Missing, DiskState::Disabled];
        array.disks[at].state = state[chance.below(4) as usize];
        let out = match array.disks[at].state {
            DiskState::Missing => Some(SubdiskState::None),
            DiskState::Failed | DiskState::Disabled => Some(SubdiskState::Failed),
            _ => None,
        };
        for volume in &mut array.volumes {
            background(volume, &mut chance, at, out);
        }
    }
    for disk in &mut array.disks {
        disk.guid = [0; 24];
        if disk.state == DiskState::Missing {
            disk.reference = u32::MAX;
        }
        for n in 0..chance.below(3) {
            disk.bad.push((n << 20, 512 * (1 + chance.below(256))));
        }
    }
    array
}

fn level_redundant(array: &Array) -> bool {
    array.volumes.iter().all(|volume| volume.level.redundant())
}

/// Sets the background work of a redundant volume whose member `at` is in state `out` or, with
/// none, is present.
fn background(volume: &mut Volume, chance: &mut Seed, at: usize, out: Option<SubdiskState>) {
    // A multiple of every unit of the format.
    let done = chance.below(4) * (16 << 20) * 15;
    let mut set = |kind, state: SubdiskState, all: bool| {
        volume.migration = Some(Migration { kind, done });
        for (slot, member) in volume.members.iter_mut().enumerate() {
            if all || slot == at {
                member.state = state;
            }
        }
    };
    match (chance.below(7), out) {
        (0, None) => set(MigrationKind::Rebuild, SubdiskState::Rebuild, false),
        (1, None) => set(MigrationKind::Init, SubdiskState::Uninitialized, true),
        (2, None) => set(MigrationKind::Verify, SubdiskState::Resync, true),
        (3, None) => set(MigrationKind::Repair, SubdiskState::Resync, true),
        (4, None) => volume.members[at].state = SubdiskState::New,
        (5, None) => {
            volume.members.iter_mut().for_each(|m| m.state = SubdiskState::Uninitialized);
        }
        (2, Some(_)) => set(MigrationKind::Verify, SubdiskState::Active, false),
        _ => {}
    }
    if let Some(state) = out {
        volume.members[at].state = state;
    }
}

pub const SNIA: Identity = Identity::Ddf(*b"ASHLAR  SET 000000000001");

/// Levels of DDF with numbers of members that they have.
pub const DDF_LEVELS: [(Level, usize); 17] = [
    (Level::Single, 1),
    (Level::Raid0, 2),
    (Level::Concat, 3),
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid1e, 3),
    (Level::Raid1e, 4),
    (Level::Raid10, 4),
    (Level::Raid10, 6),
    (Level::Raid4, 3),
    (Level::Raid5(Layout::LeftAsymmetric), 4),
    (Level::Raid5(Layout::LeftSymmetric), 3),
    (Level::Raid5(Layout::RightAsymmetric), 4),
    (Level::Raid5(Layout::RightSymmetric), 3),
    (Level::Raid6(Layout::LeftAsymmetric), 4),
    (Level::Raid6(Layout::LeftSymmetric), 6),
    (Level::Raid6(Layout::RightAsymmetric), 4),
];

/// Any array that DDF can record without loss, all its disks but failed and missing ones there.
pub fn ddf(seed: u64) -> Array {
    let mut chance = Seed(seed);
    let (_, count) = DDF_LEVELS[chance.below(17) as usize];
    let mut array = Array {
        identity: SNIA,
        generation: 1 + chance.below(1 << 31) as u32,
        disks: (0..count as u32).map(disk).collect(),
        volumes: Vec::new(),
    };
    for number in 1..=1 + chance.below(4) as u16 {
        let fits: Vec<Level> =
            DDF_LEVELS.iter().filter(|(_, n)| *n == count).map(|(level, _)| *level).collect();
        let level = fits[chance.below(fits.len() as u64) as usize];
        let strip = 4096 << chance.below(8);
        let len = (1 + chance.below(12)) << 20;
        let mut volume = volume(number, level, count, u64::from(number) << 24, len, strip);
        volume.id = *b"ASHLAR  VOL 00000000000?";
        volume.id[23] = b'0' + number as u8;
        volume.dirty = chance.below(2) == 0;
        if level == Level::Concat {
            volume.members[1].bytes += 4096;
            volume.bytes += 4096;
        }
        array.volumes.push(volume);
    }
    if level_redundant(&array) {
        let at = chance.below(count as u64) as usize;
        let mut out = None;
        match chance.below(5) {
            0 => (array.disks[at].state, out) = (DiskState::Failed, Some(SubdiskState::Failed)),
            1 => (array.disks[at].state, out) = (DiskState::Disabled, Some(SubdiskState::Failed)),
            2 => out = Some(SubdiskState::Rebuild),
            _ => {}
        }
        for volume in &mut array.volumes {
            let raw = chance.below(3);
            if raw != 0 {
                volume.members.iter_mut().for_each(|m| m.state = SubdiskState::Uninitialized);
            }
            if raw == 2 {
                volume.migration = Some(Migration { kind: MigrationKind::Init, done: 0 });
            }
            if let Some(state) = out {
                volume.members[at].state = state;
            }
            if out == Some(SubdiskState::Rebuild) {
                volume.migration = Some(Migration { kind: MigrationKind::Rebuild, done: 0 });
            }
        }
    }
    if chance.below(2) == 0 {
        let spare = Disk { state: DiskState::Spare, ..disk(count as u32) };
        array.disks.push(spare);
    }
    for disk in &mut array.disks {
        disk.serial = String::from_utf8(disk.guid.to_vec()).expect("text");
    }
    array
}
