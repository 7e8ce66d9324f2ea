//! Arrays of ours as mdadm, blkid and wipefs see them. Each disk is a loop device.

use classes::raid::ddf::{self, Limits, Order, TargetDisk};
use classes::raid::imsm::{self, Names};
use classes::raid::{Array, DiskState, Level, Migration, MigrationKind, SubdiskState};
use std::path::Path;

use crate::raid_world::{
    self, DDF_LEVELS, DISK_BYTES, INTEL, INTEL_LEVELS, SNIA, volume, with_one_volume,
};
use crate::support::{Loop, Scratch, apply_to, run};

/// The output of `mdadm --examine`, line by line: key and value.
fn examine(device: &str) -> Vec<(String, String)> {
    let env = ["IMSM_NO_PLATFORM=1", "IMSM_DEVNAME_AS_SERIAL=1", "mdadm", "--examine", device];
    let text = run("env", &env);
    let pair = |line: &str| {
        let (key, value) = line.split_once(" : ")?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// The value of the first line with this key, up to a bracket.
fn value(examined: &[(String, String)], key: &str) -> String {
    let found = examined.iter().find(|(name, _)| name == key);
    let found = found.unwrap_or_else(|| panic!("no \"{key}\" in {examined:#?}"));
    found.1.split(" (").next().unwrap_or("").to_owned()
}

/// Write the first disk of an Intel array to `disk` and look at it.
fn intel(array: &mut Array, disk: &Loop, sector_size: u32) -> Vec<(String, String)> {
    array.disks[0].serial = imsm::serial_of(disk.name());
    assert_eq!(array.check(), Ok(()));
    let record = imsm::create(array, &Names { time: 1_700_000_000 }, sector_size).expect("record");
    let sectors = DISK_BYTES / u64::from(sector_size);
    let plan = imsm::plan(&record, sectors, sector_size).expect("a plan");
    apply_to(Path::new(disk.name()), &plan);
    let examined = examine(disk.name());
    assert!(value(&examined, "Checksum").ends_with(" correct"), "{examined:#?}");
    assert_eq!(value(&examined, "Orig Family"), "87654321");
    assert_eq!(value(&examined, "Generation"), "00000007");
    assert_eq!(value(&examined, "Disk00 Serial"), disk.name());
    examined
}

#[test]
fn mdadm_reads_every_level_of_intel() {
    let scratch = Scratch::new("raid-intel");
    for size in [512, 4096] {
        let image = scratch.image("disk", DISK_BYTES);
        let disk = Loop::disk(&image, size);
        for (level, members) in INTEL_LEVELS {
            let mut array = with_one_volume(INTEL, level, members);
            let examined = intel(&mut array, &disk, size);
            let volume = &array.volumes[0];
            let name = match level {
                Level::Single | Level::Raid0 => "0",
                Level::Raid1 => "1",
                Level::Raid1e | Level::Raid10 => "10",
                _ => "5",
            };
            assert_eq!(value(&examined, "RAID Level"), name, "{level:?}");
            assert_eq!(value(&examined, "Members"), members.to_string());
            assert_eq!(value(&examined, "Slots"), format!("[{}]", "U".repeat(members)));
            let unit = u64::from(size);
            assert_eq!(value(&examined, "Array Size"), (volume.bytes / unit).to_string());
            assert_eq!(value(&examined, "Per Dev Size"), ((16 << 20) / unit).to_string());
            assert_eq!(value(&examined, "Sector Offset"), ((1 << 20) / unit).to_string());
            assert_eq!(value(&examined, "Chunk Size"), "64 KiB");
            assert_eq!(value(&examined, "Migrate State"), "idle");
            assert_eq!(value(&examined, "Map State"), "normal");
            assert_eq!(value(&examined, "Dirty State"), "clean");
            assert_eq!(value(&examined, "Failed disk"), "none");
            let member = ("TYPE", "isw_raid_member");
            let seen = run("blkid", &["-p", "-o", "export", disk.name()]);
            assert!(seen.contains(&format!("{}={}", member.0, member.1)), "{seen}");
            assert!(run("wipefs", &[disk.name()]).contains(member.1));
        }
    }
}

#[test]
fn mdadm_reads_the_states_of_an_intel_array() {
    let scratch = Scratch::new("raid-intel-states");
    let image = scratch.image("disk", DISK_BYTES);
    let disk = Loop::disk(&image, 512);
    let raid5 = Level::Raid5(classes::raid::Layout::LeftAsymmetric);
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (raid5, 4)] {
        let mut array = with_one_volume(INTEL, level, members);
        array.volumes[0].dirty = true;
        array.disks[1].state = DiskState::Failed;
        array.volumes[0].members[1].state = SubdiskState::Failed;
        let examined = intel(&mut array, &disk, 512);
        assert_eq!(value(&examined, "Map State"), "degraded");
        assert_eq!(value(&examined, "Failed disk"), "1");
        assert_eq!(value(&examined, "Slots"), format!("[U_{}]", "U".repeat(members - 2)));
        assert_eq!(value(&examined, "Dirty State"), "dirty");
        let states: Vec<_> = examined.iter().filter(|(key, _)| key == "State").collect();
        assert!(states.iter().any(|(_, state)| state == "active failed"), "{examined:#?}");

        array.disks[1].state = DiskState::Active;
        let tasks = [
            (MigrationKind::Rebuild, SubdiskState::Rebuild, "rebuild", "normal <-- degraded"),
            (
                MigrationKind::Init,
                SubdiskState::Uninitialized,
                "initialize",
                "normal <-- uninitialized",
            ),
            (MigrationKind::Verify, SubdiskState::Active, "check", "normal <-- normal"),
            (MigrationKind::Repair, SubdiskState::Active, "repair", "normal <-- normal"),
        ];
        for (kind, state, task, map) in tasks {
            let done = 15 << 18;
            array.volumes[0].migration = Some(Migration { kind, done });
            array.volumes[0].members.iter_mut().for_each(|m| m.state = SubdiskState::Active);
            match kind {
                MigrationKind::Init => {
                    array.volumes[0].members.iter_mut().for_each(|m| m.state = state);
                }
                _ => array.volumes[0].members[1].state = state,
            }
            let examined = intel(&mut array, &disk, 512);
            assert_eq!(value(&examined, "Migrate State"), task, "{level:?}");
            assert_eq!(value(&examined, "Map State"), map, "{level:?} {task}");
            // Units, and sectors per unit: mdadm's own calculation.
            let at = examined.iter().find(|(key, _)| key == "Checkpoint").expect("a checkpoint");
            let (units, unit) = at.1.split_once(" (").expect("units");
            let unit: u64 = unit.trim_end_matches(')').parse().expect("a number");
            let units: u64 = units.trim().parse().expect("a number");
            assert_eq!(units, done / 512 / unit, "{level:?} {task}: {}", at.1);
        }
    }
}

#[test]
fn mdadm_reads_two_volumes_spares_and_long_records() {
    let scratch = Scratch::new("raid-intel-two");
    let image = scratch.image("disk", DISK_BYTES);
    let disk = Loop::disk(&image, 512);
    let mut array = with_one_volume(INTEL, Level::Raid10, 6);
    array.volumes.push(volume(2, Level::Raid0, 6, 64 << 20, 8 << 20, 131_072));
    array.disks[5].bad = vec![(70 << 20, 4096)];
    let examined = intel(&mut array, &disk, 512);
    assert_eq!(
        (value(&examined, "RAID Devices"), value(&examined, "MPB Sectors")),
        ("2".into(), "2".into())
    );
    let levels: Vec<_> = examined.iter().filter(|(key, _)| key == "RAID Level").collect();
    assert_eq!((levels[0].1.as_str(), levels[1].1.as_str()), ("10", "0"));
    assert_eq!(value(&examined, "Entry Count"), "1", "bad blocks");

    let mut spare = raid_world::disk(9);
    spare.serial = disk.name().to_owned();
    let record = imsm::spare(&spare, 512).expect("a record");
    apply_to(Path::new(disk.name()), &imsm::plan(&record, DISK_BYTES / 512, 512).expect("a plan"));
    let examined = examine(disk.name());
    assert!(value(&examined, "Checksum").ends_with(" correct"));
    assert_eq!(
        (value(&examined, "State"), value(&examined, "RAID Devices")),
        ("spare".into(), "0".into())
    );
}

#[test]
fn mdadm_reads_every_level_of_ddf() {
    let scratch = Scratch::new("raid-ddf");
    let image = scratch.image("disk", DISK_BYTES);
    let disk = Loop::disk(&image, 512);
    let place = TargetDisk {
        sector_size: 512,
        media_sectors: DISK_BYTES / 512,
        time: 1_300_000_000,
        controller: *b"ASHLAR  test controller ",
        limits: Limits::default(),
        order: Order::LINUX,
    };
    for (level, members) in DDF_LEVELS {
        let mut array = with_one_volume(SNIA, level, members);
        array.disks.iter_mut().for_each(|disk| disk.bytes = ddf::usable_bytes(DISK_BYTES));
        array.volumes[0].id = *b"ASHLAR  VOL 000000000001";
        assert_eq!(array.check(), Ok(()));
        let meta = ddf::create(&array, 1.min(members - 1), &place).expect("metadata");
        let plan = ddf::plan(&meta, place.media_sectors, 512, true).expect("a plan");
        apply_to(Path::new(disk.name()), &plan);
        let examined = examine(disk.name());
        assert_eq!(value(&examined, "Magic"), "de11de11");
        assert_eq!(value(&examined, "Version"), "01.02.00");
        assert_eq!(
            (value(&examined, "Seq"), value(&examined, "Redundant hdr")),
            ("00000007".into(), "yes".into())
        );
        assert_eq!(value(&examined, "state[0]"), "Optimal, Consistent");
        assert_eq!(value(&examined, "init state[0]"), "Fully Initialised");
        assert_eq!(value(&examined, "Name[0]"), "Volume1");
        let (name, disks) = match level {
            Level::Raid0 => ("RAID0", members),
            Level::Raid1 => ("RAID1", members),
            Level::Raid10 => ("RAID1", 2),
            Level::Raid1e => ("RAID1E", members),
            Level::Single => ("JBOD", members),
            Level::Concat => ("CONCAT", members),
            Level::Raid4 => ("RAID4", members),
            Level::Raid5(_) => ("RAID5", members),
            Level::Raid6(_) => ("RAID6", members),
        };
        assert_eq!(value(&examined, "Raid Level[0]"), name);
        assert_eq!(value(&examined, "Raid Devices[0]"), disks.to_string());
        let places: Vec<_> = (0..disks).map(|n| format!("{n}@1024K")).collect();
        let line = examined.iter().find(|(key, _)| key == "Raid Devices[0]").expect("devices");
        assert!(line.1.contains(&format!("({})", places.join(" "))), "{}", line.1);
        assert_eq!(value(&examined, "Chunk Size[0]"), "128 sectors");
        assert_eq!(value(&examined, "Device Size[0]"), "16384");
        assert_eq!(value(&examined, "Array Size[0]"), (array.volumes[0].bytes / 1024).to_string());
        if level == Level::Raid10 {
            assert_eq!(value(&examined, "Secondary Position[0]"), format!("0 of {}", members / 2));
            assert_eq!(value(&examined, "Secondary Level[0]"), "Striped");
        }
        let seen = run("blkid", &["-p", "-o", "export", disk.name()]);
        assert!(seen.contains("TYPE=ddf_raid_member"), "{seen}");
        assert!(run("wipefs", &[disk.name()]).contains("ddf_raid_member"));
    }
}
