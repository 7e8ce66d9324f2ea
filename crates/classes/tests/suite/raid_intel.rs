//! Intel's metadata: it reads back as written, damage is named, no power cut loses an array.

use classes::probe::{ProbeError, Reason, Sectors, Step};
use classes::raid::imsm::{self, Names, PriorContent, Record, Torn};
use classes::raid::{Array, DiskState, Layout, Level, SubdiskState, VolumeState};
use testkit::Seeds;

use crate::raid_world::{self, DISK_BYTES, INTEL, INTEL_LEVELS, intel, volume, with_one_volume};
use crate::support::{Image, Seed, power_cuts};

const NAMES: Names = Names { time: 1_700_000_000 };

fn probe(image: &Image) -> Result<Record, ProbeError> {
    let mut sectors = Sectors::new(image.sector_size, image.sectors * image.sector_size as u64);
    sectors.drive(|offset, len| Some(image.read(offset, len)), imsm::step)
}

fn leftover(image: &Image, serial: &str) -> Result<Torn, ProbeError> {
    let mut sectors = Sectors::new(image.sector_size, image.sectors * image.sector_size as u64);
    sectors.drive(|offset, len| Some(image.read(offset, len)), |s| imsm::torn(s, serial))
}

fn blank(sector_size: u32) -> Image {
    Image::new(DISK_BYTES / u64::from(sector_size), sector_size)
}

/// The records of disks 0 to n, as `assemble` wants them.
fn found(array: &Array, record: &Record) -> Vec<(String, Record)> {
    let there = array.disks.iter().filter(|disk| disk.usable());
    there.map(|disk| (disk.serial.clone(), record.clone())).collect()
}

#[test]
fn any_array_reads_back_as_it_was_written() {
    for seed in Seeds::of(1000) {
        for size in [512, 4096] {
            let mut array = intel(seed);
            if size == 4096 {
                array.disks.iter_mut().for_each(|disk| disk.bad.clear());
            }
            assert_eq!(array.check(), Ok(()), "seed {seed}");
            let record = imsm::create(&array, &NAMES, size).expect("a record");
            let bytes = record.encode().expect("bytes");
            assert_eq!(Record::decode(&bytes).as_ref(), Ok(&record), "seed {seed}");
            assert_eq!(record.array(size).as_ref(), Ok(&array), "seed {seed}, sectors of {size}");
            let mut image = blank(size);
            let plan = imsm::plan(&record, image.sectors, size).expect("a plan");
            image.apply(&plan);
            assert_eq!(probe(&image), Ok(record), "seed {seed}");
        }
    }
}

#[test]
fn an_update_increments_the_generation_and_keeps_unknown_fields() {
    let array = with_one_volume(INTEL, Level::Raid1, 2);
    let mut record = imsm::create(&array, &NAMES, 512).expect("a record");
    record.cycles = 99;
    record.disks[1].rest = [7; 12];
    record.volumes[0].rest = [9; 32];
    record.volumes[0].dirty = 2;
    let mut after = array.clone();
    after.volumes[0].dirty = true;
    let next = imsm::update(&record, &after, 512).expect("a record");
    assert_eq!(next.generation, record.generation + 1);
    assert_eq!((next.cycles, next.time), (99, NAMES.time));
    // Except for other systems' protection against the write hole: the volume is dirty, and has
    // none.
    let mut rest = [9; 32];
    rest[8] = 0;
    assert_eq!((next.disks[1].rest, next.volumes[0].rest), ([7; 12], rest));
    let clean = imsm::update(&record, &array, 512).expect("fits");
    assert_eq!(clean.volumes[0].rest, [9; 32]);
    assert_eq!(next.volumes[0].dirty, 3);
}

#[test]
fn the_version_is_the_lowest_that_supports_the_array() {
    let version = |array: &Array| {
        let record = imsm::create(array, &NAMES, 512).expect("a record");
        String::from_utf8(record.version.to_vec()).expect("digits")
    };
    let levels = INTEL_LEVELS.map(|(level, disks)| version(&with_one_volume(INTEL, level, disks)));
    let expected =
        ["1.0.00", "1.0.00", "1.2.04", "1.1.00", "1.2.01", "1.2.01", "1.3.00", "1.2.02", "1.2.04"];
    assert_eq!(levels, expected);
    let mut two = with_one_volume(INTEL, Level::Raid0, 2);
    two.volumes.push(volume(2, Level::Raid1, 2, 64 << 20, 8 << 20, 65536));
    assert_eq!(version(&two), "1.2.00");
    let mut large = with_one_volume(INTEL, Level::Raid1, 2);
    large.disks.iter_mut().for_each(|disk| disk.bytes = 4 << 40);
    assert_eq!(version(&large), "1.3.00");
}

#[test]
fn failed_and_missing_disks_are_marked_in_the_record() {
    let mut array = with_one_volume(INTEL, Level::Raid10, 4);
    array.disks[1].state = DiskState::Failed;
    array.disks[2].state = DiskState::Missing;
    array.disks[2].serial = "0123456789ABCDEF".into();
    array.volumes[0].members[1].state = SubdiskState::Failed;
    array.volumes[0].members[2].state = SubdiskState::None;
    assert_eq!(array.volumes[0].state(), VolumeState::Degraded);
    let record = imsm::create(&array, &NAMES, 512).expect("a record");
    assert_eq!(&record.disks[1].serial, b"SERIAL-000001:0\0");
    assert_eq!((&record.disks[2].serial, record.disks[2].id), (b"23456789ABCDEF:0", u32::MAX));
    let map = &record.volumes[0].map;
    assert_eq!((map.status, map.failed), (2, 1));
    assert_eq!(map.slots, [(0, false), (1, true), (2, true), (3, false)]);
    array.volumes[0].members[0].state = SubdiskState::Failed;
    assert_eq!(array.volumes[0].state(), VolumeState::Broken);
}

#[test]
fn arrays_that_the_format_cannot_describe_are_refused() {
    let refused = |array: &Array| imsm::create(array, &NAMES, 512).expect_err("refused").field;
    assert_eq!(refused(&with_one_volume(INTEL, Level::Raid4, 3)), "level");
    assert_eq!(refused(&with_one_volume(INTEL, Level::Concat, 3)), "level");
    let mut array = with_one_volume(INTEL, Level::Raid0, 2);
    array.volumes[0].members[1].offset += 512;
    assert_eq!(refused(&array), "members");
    let mut array = with_one_volume(INTEL, Level::Raid0, 2);
    array.volumes[0].name = "longer than sixteen".into();
    assert_eq!(refused(&array), "volume name");
    let mut array = with_one_volume(INTEL, Level::Raid0, 2);
    array.volumes =
        (1..4).map(|n| volume(n, Level::Raid0, 2, u64::from(n) << 24, 1 << 20, 4096)).collect();
    assert_eq!(refused(&array), "Intel total volumes");
    let mut array = with_one_volume(INTEL, Level::Raid1, 2);
    array.disks[0].state = DiskState::Spare;
    assert_eq!(refused(&array), "member");
}

/// A good record with a word changed and the checksum made right again.
fn forged(at: usize, byte: u8) -> Result<Array, &'static str> {
    let record =
        imsm::create(&with_one_volume(INTEL, Level::Raid1, 2), &NAMES, 512).expect("a record");
    let mut bytes = record.encode().expect("bytes");
    bytes[at] = byte;
    let words = bytes.chunks_exact(4).enumerate().filter(|(n, _)| *n != 8);
    let sum = words.fold(0_u32, |sum, (_, word)| {
        sum.wrapping_add(u32::from_le_bytes(word.try_into().expect("a word")))
    });
    bytes[32..36].copy_from_slice(&sum.to_le_bytes());
    let array = Record::decode(&bytes).and_then(|record| record.array(512));
    array.and_then(|array| array.check().map(|()| array)).map_err(|fault| fault.field)
}

#[test]
fn contradictory_records_are_refused_with_the_field_name() {
    // The volume is at 216 + 2 * 48 = 312, its map at 424, the slots at 472.
    assert!(forged(200, 1).is_ok(), "filler");
    assert_eq!(forged(26, b'9'), Err("Intel version"));
    assert_eq!(forged(37, 0xff), Err("Intel record size"));
    assert_eq!(forged(55, 0x02), Err("Intel attributes"), "cache on flash");
    assert_eq!(forged(57, 3), Err("Intel total volumes"));
    assert_eq!(forged(56, 9), Err("disk flags"), "more disks than there is room for");
    assert_eq!(forged(72, 1), Err("Intel bad-block log"));
    assert_eq!(forged(312 + 89, 3).map(drop), Ok(()), "no migration");
    assert_eq!(forged(312 + 88, 1), Err("map offset"), "no second map");
    assert_eq!(forged(424 + 15, 7), Err("Intel map type"));
    assert_eq!(forged(424 + 12, 3), Err("strip size"));
    assert_eq!(forged(424 + 7, 1), Err("member size"), "beyond the disk");
    assert_eq!(forged(312 + 21, 1), Err("volume size"));
    assert_eq!(forged(472, 2), Err("Intel disk index"));
    assert_eq!(forged(472, 1), Err("disk index"), "one disk in two slots");
    let record =
        imsm::create(&with_one_volume(INTEL, Level::Raid1, 2), &NAMES, 512).expect("a record");
    let bytes = record.encode().expect("bytes");
    for len in 0..bytes.len() {
        let fault = Record::decode(&bytes[..len]).expect_err("too short");
        assert!(!fault.field.is_empty() && !fault.to_string().is_empty());
    }
    for at in 24..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        assert!(Record::decode(&bytes).is_err(), "byte {at} is covered");
    }
}

#[test]
fn volumes_that_overlap_are_refused() {
    let mut array = with_one_volume(INTEL, Level::Raid1, 2);
    array.volumes.push(volume(2, Level::Raid0, 2, 8 << 20, 8 << 20, 65536));
    let fault = array.check().expect_err("they overlap");
    assert_eq!((fault.reason, fault.field), (Reason::Integrity, "member offset"));
    assert_eq!(
        fault.to_string(),
        "member offset of volumes \"Volume1\" and \"Volume2\" overlaps on disk 0"
    );
}

/// M3 of imsm/mod.rs.
#[test]
fn the_newest_record_is_used_and_absent_disks_are_missing() {
    let array = with_one_volume(INTEL, Level::Raid5(classes::raid::Layout::LeftAsymmetric), 4);
    let old = imsm::create(&array, &NAMES, 512).expect("a record");
    let mut changed = array.clone();
    changed.volumes[0].dirty = true;
    let new = imsm::update(&old, &changed, 512).expect("a record");
    let mut all = found(&array, &new);
    all[2].1 = old.clone();
    all.remove(1);
    let spare = imsm::spare(&raid_world::disk(77), 512).expect("a spare's record");
    assert!(spare.is_spare() && &spare.version == b"1.0.00");
    all.push(("SERIAL-000077".into(), spare));
    let seen = imsm::assemble(&all, 512).expect("an array");
    assert_eq!((seen.record, seen.stale), (new, vec![1]));
    assert_eq!(seen.places, [Some(0), Some(2), Some(3), Some(4)]);
    assert!(seen.array.volumes[0].dirty);
    let states: Vec<_> = seen.array.disks.iter().map(|disk| disk.state).collect();
    use DiskState::{Active, Missing, Spare};
    assert_eq!(states, [Active, Missing, Active, Active, Spare]);
    assert_eq!(seen.array.volumes[0].state(), VolumeState::Degraded);
}

#[test]
fn copies_of_a_disk_and_split_brains_are_refused() {
    let array = with_one_volume(INTEL, Level::Raid1, 2);
    let record = imsm::create(&array, &NAMES, 512).expect("a record");
    let mut all = found(&array, &record);
    all[1].1.cycles += 1;
    assert_eq!(imsm::assemble(&all, 512).expect_err("two").field, "Intel generation");
    all[1] = all[0].clone();
    assert_eq!(imsm::assemble(&all, 512).expect_err("two").field, "disk serial");
    assert_eq!(imsm::assemble(&[], 512).expect_err("none").field, "Intel array");
}

/// M1 of imsm/mod.rs, M2 of imsm/mod.rs.
#[test]
fn no_power_cut_loses_the_array() {
    let mut array = with_one_volume(INTEL, Level::Raid10, 6);
    array.volumes.push(volume(2, Level::Raid10, 6, 64 << 20, 8 << 20, 65536));
    let old = imsm::create(&array, &NAMES, 512).expect("a record");
    assert!(old.encode().expect("bytes").len() > 512, "longer than a sector");
    let mut image = blank(512);
    image.apply(&imsm::plan(&old, image.sectors, 512).expect("a plan"));
    array.volumes[0].dirty = true;
    let new = imsm::update(&old, &array, 512).expect("a record");
    let plan = imsm::plan(&new, image.sectors, 512).expect("a plan");
    let mut torn = 0;
    let cuts = power_cuts(&image, &plan, 1, |image| {
        // Disk by disk: the others have the old record or the new one.
        let here = match probe(image) {
            Ok(record) => Some(record),
            Err(why) => {
                assert_eq!(why.reason, Reason::Checksum);
                torn += 1;
                let left = leftover(image, &array.disks[0].serial).expect("who it is");
                assert_eq!((left.set, left.generation), (old.set(), old.generation));
                assert!(leftover(image, "SOMEBODY").is_err(), "another disk's record");
                None
            }
        };
        for other in [&old, &new] {
            let mut all = found(&array, other);
            match &here {
                Some(record) => all[0].1 = record.clone(),
                None => drop(all.remove(0)),
            }
            let seen = imsm::assemble(&all, 512).expect("an array");
            assert!(seen.array.volumes.iter().all(|v| v.state() >= VolumeState::Degraded));
            let newest = here.as_ref().map_or(other.generation, |r| r.generation);
            assert_eq!(seen.record.generation, newest.max(other.generation));
        }
    });
    assert!(cuts >= 4 && torn > 0, "{cuts} cuts, {torn} torn");
    let mut small = blank(512);
    let single =
        imsm::create(&with_one_volume(INTEL, Level::Raid1, 2), &NAMES, 512).expect("a record");
    small.apply(&imsm::plan(&single, small.sectors, 512).expect("a plan"));
    let next =
        imsm::update(&single, &with_one_volume(INTEL, Level::Raid1, 2), 512).expect("a record");
    let plan = imsm::plan(&next, small.sectors, 512).expect("a plan");
    power_cuts(&small, &plan, 2, |image| {
        let seen = probe(image).expect("one sector is never torn");
        assert!(seen == single || seen == next);
    });
}

/// Records that a power cut may leave while one is written over another, that are neither.
fn thirds(image: &Image, two: [&Record; 2], over: Option<&PriorContent>, serial: &str) -> usize {
    let plan = imsm::plan_over(two[1], over, image.sectors, 512).expect("a plan");
    let mut thirds = 0;
    power_cuts(image, &plan, 3, |image| match probe(image) {
        Ok(record) if two.contains(&&record) => {}
        Ok(_) => thirds += 1,
        Err(why) => {
            assert_eq!(why.reason, Reason::Checksum);
            let left = leftover(image, serial).expect("who it is");
            assert_eq!(left.generation, two[0].generation);
        }
    });
    let mut after = image.clone();
    after.apply(&plan);
    assert_eq!(probe(&after).as_ref(), Ok(two[1]));
    thirds
}

#[test]
fn a_power_cut_never_leaves_a_mixed_record_with_a_valid_checksum() {
    let (mut found, mut careful) = (0, 0);
    for seed in Seeds::of(300) {
        let mut chance = Seed(seed);
        let disks = 3 + chance.below(12) as usize;
        let mut array = with_one_volume(INTEL, Level::Raid5(Layout::LeftAsymmetric), disks);
        let serial = array.disks[0].serial.clone();
        let old = imsm::create(&array, &NAMES, 512).expect("a record");
        let mut image = blank(512);
        image.apply(&imsm::plan(&old, image.sectors, 512).expect("a plan"));
        // A spare took a place: the disks behind the one that left have other numbers.
        let (one, two) = (chance.below(disks as u64) as usize, chance.below(disks as u64) as usize);
        let members = &mut array.volumes[0].members;
        (members[one].disk, members[two].disk) = (members[two].disk, members[one].disk);
        array.volumes[0].dirty = chance.below(2) == 0;
        let new = imsm::update(&old, &array, 512).expect("a record");
        let over = PriorContent::complete(&old).expect("it can be said");
        found += thirds(&image, [&old, &new], None, &serial);
        careful += usize::from(thirds(&image, [&old, &new], Some(&over), &serial) == 0);
        // One that is torn already, and of which only the first sector is known.
        let mut torn = image.clone();
        let sector = torn.read((torn.sectors - 3) * 512, 512);
        let half: Vec<u8> = sector.iter().map(|byte| byte ^ 0x11).collect();
        torn.put(torn.sectors - 3, &half);
        let PriorContent::Torn(first) = over.torn(512) else { panic!("torn") };
        let over = PriorContent::Torn(first);
        assert_eq!(thirds(&torn, [&old, &new], Some(&over), &serial), 0, "{seed}");
    }
    assert!(found > 0, "without care some are believed");
    assert_eq!(careful as u64, Seeds::of(300).count());
}

/// M2 of imsm/mod.rs.
#[test]
fn only_an_inconsistent_record_of_several_sectors_is_reported_as_torn() {
    let record =
        imsm::create(&with_one_volume(INTEL, Level::Raid1e, 3), &NAMES, 512).expect("a record");
    let mut whole = blank(512);
    whole.apply(&imsm::plan(&record, whole.sectors, 512).expect("a plan"));
    let (anchor, serial) = (whole.sectors - 2, "SERIAL-000000");
    let change = |image: &mut Image, at: usize, byte: u8| {
        let mut sector = image.held[&anchor].clone();
        sector[at] = byte;
        image.put(anchor, &sector);
    };
    assert!(leftover(&whole, serial).is_err(), "it is whole");
    let mut torn = whole.clone();
    torn.put(anchor - 1, &[0xee; 512]);
    assert_eq!(leftover(&torn, serial).map(|left| left.set), Ok(record.set()));
    let mut sectors = Sectors::new(512, torn.sectors * 512);
    let found = sectors.drive(
        |at, len| (at >= anchor * 512).then(|| torn.read(at, len)),
        |sectors| imsm::torn(sectors, serial),
    );
    assert_eq!(found.map(|left| left.generation), Ok(record.generation), "the rest is unreadable");
    // A version or attributes that are not known.
    for (at, byte) in [(24, b'9'), (54, 0xff)] {
        let mut newer = torn.clone();
        change(&mut newer, at, byte);
        assert!(leftover(&newer, serial).is_err(), "{at}");
    }
    // One sector is as it was written, or it is none of ours.
    let small =
        imsm::create(&with_one_volume(INTEL, Level::Raid1, 2), &NAMES, 512).expect("a record");
    let mut image = blank(512);
    image.apply(&imsm::plan(&small, image.sectors, 512).expect("a plan"));
    change(&mut image, 300, 1);
    assert_eq!(probe(&image).expect_err("damaged").reason, Reason::Checksum);
    assert!(leftover(&image, serial).is_err());
    assert!(small.encode().expect("bytes").len() <= 512, "M2");
    assert!(record.encode().expect("bytes").len() > 512);
}

#[test]
fn an_erased_record_is_not_found_and_too_small_disks_are_refused() {
    let record =
        imsm::create(&with_one_volume(INTEL, Level::Raid1, 2), &NAMES, 512).expect("a record");
    let mut image = blank(512);
    image.apply(&imsm::plan(&record, image.sectors, 512).expect("a plan"));
    image.apply(&imsm::erase(image.sectors, 512));
    assert_eq!(probe(&image).expect_err("gone").reason, Reason::Signature);
    assert!(imsm::plan(&record, 1, 512).is_err());
    for sectors in 0..3 {
        assert!(matches!(imsm::step(&Sectors::new(512, sectors * 512)), Step::No(_)));
    }
}

#[test]
fn any_bytes_after_the_signature_are_refused_or_parsed() {
    for seed in Seeds::of(1000) {
        let mut chance = Seed(seed);
        let record = imsm::create(&intel(seed), &NAMES, 512).expect("a record");
        let mut bytes = record.encode().expect("bytes");
        for _ in 0..1 + chance.below(4) {
            let at = 24 + chance.below(bytes.len() as u64 - 24) as usize;
            bytes[at] = [0, 1, 0x7f, 0xff, chance.next() as u8][chance.below(5) as usize];
        }
        let size = bytes.len() as u32;
        bytes[36..40].copy_from_slice(&size.to_le_bytes());
        let words = bytes.chunks_exact(4).enumerate().filter(|(n, _)| *n != 8);
        let sum = words.fold(0_u32, |sum, (_, word)| {
            sum.wrapping_add(u32::from_le_bytes(word.try_into().expect("a word")))
        });
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        if let Ok(read) = Record::decode(&bytes) {
            let again = read.encode().expect("what was read can be written");
            let second = Record::decode(&again).expect("and read");
            assert_eq!(second.volumes, read.volumes, "seed {seed}");
            if let Ok(array) = read.array(512) {
                let _ = array.check().is_ok();
            }
        }
    }
}
