//! Tests of the choice of records, the use of members and the written records, without any I/O.

use super::assemble::{Found, choose_record};
use super::members::{ALL, MemberSet};
use super::metadata::{MetadataState, PresentDisk};
use super::model::{
    Array, Disk, DiskState, Identity, Layout, Level, Member, Migration, MigrationKind,
    SubdiskState, Volume, VolumeState,
};
use super::volume::Role;
use super::{ddf, imsm};

fn array(level: Level, count: usize) -> Array {
    let disk = |number: usize| Disk {
        serial: format!("SERIAL-{number:06}"),
        reference: number as u32,
        guid: [0; 24],
        state: DiskState::Active,
        bytes: 64 << 20,
        bad: Vec::new(),
    };
    let member = |disk| Member { disk, offset: 0, bytes: 1 << 20, state: SubdiskState::Active };
    let mut id = [0; 24];
    id[0] = 1;
    Array {
        identity: Identity::Intel { family: 7, original: 7 },
        generation: 5,
        disks: (0..count).map(disk).collect(),
        volumes: vec![Volume {
            name: "v".into(),
            id,
            level,
            strip: 4096,
            bytes: level.capacity(4096, &vec![1 << 20; count]).expect("members enough"),
            members: (0..count).map(member).collect(),
            dirty: false,
            migration: None,
            log: None,
        }],
    }
}

const FIVE: Level = Level::Raid5(Layout::LeftAsymmetric);

/// A disk's record when these were left out, in a generation.
fn record_without(
    level: Level,
    count: usize,
    own: usize,
    without: &[usize],
    generation: u32,
) -> Found {
    let mut array = array(level, count);
    array.generation = generation;
    for out in without {
        array.disks[*out].state = DiskState::Missing;
        array.volumes[0].members[*out].state = SubdiskState::None;
    }
    record(&array, own)
}

/// A disk's record that describes an array.
fn record(array: &Array, own: usize) -> Found {
    let record = imsm::create(array, &imsm::Names::default(), 512).expect("a record");
    Found::Intel { serial: format!("SERIAL-{own:06}"), record: Box::new(record) }
}

fn judged(all: &[Found]) -> (usize, Vec<usize>) {
    let all: Vec<&Found> = all.iter().collect();
    let judged = choose_record(&all, 512, None).expect("somebody");
    (judged.winner, judged.split)
}

#[test]
fn surviving_disk_wins_regardless_of_generation() {
    let one = Level::Raid1;
    // 1 lived on without 0, which got ahead by number in a crash.
    let (a, b) = (record_without(one, 2, 0, &[], 9), record_without(one, 2, 1, &[0], 8));
    assert_eq!(judged(&[a.clone(), b.clone()]), (1, vec![]));
    assert_eq!(judged(&[b, a]), (0, vec![]), "in any order");
    // None was left out: the newest.
    assert_eq!(
        judged(&[record_without(one, 2, 0, &[], 4), record_without(one, 2, 1, &[], 5)]),
        (1, vec![])
    );
    // Each lived on without the other.
    let (winner, split) =
        judged(&[record_without(one, 2, 0, &[1], 8), record_without(one, 2, 1, &[0], 9)]);
    assert_eq!((winner, split), (1, vec![0]));
    // Two that were left out one after the other are no split.
    let all = [
        record_without(one, 3, 0, &[], 5),
        record_without(one, 3, 1, &[0], 7),
        record_without(one, 3, 2, &[0, 1], 8),
    ];
    assert_eq!(judged(&all), (2, vec![]));
    // An old record that leaves out one that is back since then: both are with the newest.
    let all = [
        record_without(one, 3, 0, &[2], 12),
        record_without(one, 3, 1, &[2], 12),
        record_without(one, 3, 2, &[0], 8),
    ];
    assert_eq!(judged(&all), (0, vec![]), "2 was with 1 when it left 0 out");
}

#[test]
fn torn_record_yields_to_other_records_unless_it_is_newer() {
    let torn = |own: usize, generation| Found::Torn {
        serial: format!("SERIAL-{own:06}"),
        left: imsm::Torn { set: 7, generation, first: Vec::new() },
    };
    let ahead = |all: &[Found]| {
        let all: Vec<&Found> = all.iter().collect();
        choose_record(&all, 512, None).map(|judged| (judged.winner, judged.split, judged.ahead))
    };
    let other = record_without(FIVE, 3, 0, &[], 8);
    for generation in [7, 8] {
        assert_eq!(ahead(&[torn(1, generation), other.clone()]), Some((1, vec![], vec![])));
    }
    assert_eq!(ahead(&[torn(1, 9), other.clone()]), Some((1, vec![], vec![0])));
    assert_eq!(ahead(&[torn(1, 9)]), None, "it does not speak for itself");
    let torn = torn(1, 8);
    assert!(!torn.excludes("SERIAL-000000", 512) && torn.wanted(512).is_empty());
    assert!(other.is_complete(&["SERIAL-000000".into(), torn.key(), "SERIAL-000002".into()], 512));
}

fn start(array: Array, here: &[usize]) -> MemberSet {
    let tags = (0..array.disks.len()).map(|i| here.contains(&i).then_some(i as u32 + 1));
    let tags = tags.collect();
    let mut set = MemberSet::start(array, tags);
    set.volume_status[0].up = set.can_start(0, "a").is_ok();
    set
}

#[test]
fn late_disk_is_trusted_if_nothing_was_written() {
    for (written, trusted) in [(false, true), (true, false)] {
        let mut set = start(array(FIVE, 3), &[0, 1]);
        assert!(set.volume_status[0].up);
        assert_eq!(set.state(0), VolumeState::Degraded);
        if written {
            set.array.volumes[0].dirty = true;
            set.recorded = set.record();
            assert_eq!(set.recorded.volumes[0].members[2].state, SubdiskState::None);
        }
        assert_eq!(set.arrive(2, 9, false), trusted);
        let role = set.role(0, 2).map(|(_, role)| role);
        assert_eq!(role, Some(if trusted { Role::Good } else { Role::Filling }));
        assert_eq!(set.pass_from(0), if trusted { None } else { Some(0) });
    }
}

/// A2: a volume that is written before the records record that a disk is missing.
#[test]
fn late_disk_is_rebuilt_if_the_volume_is_recorded_as_dirty() {
    for dirty in [false, true] {
        let mut set = start(array(FIVE, 3), &[0, 1]);
        set.recorded.volumes[0].dirty = dirty;
        assert_eq!(set.recorded.volumes[0].members[2].state, SubdiskState::Active);
        assert_eq!(set.arrive(2, 9, false), !dirty);
        let role = set.role(0, 2).map(|(_, role)| role);
        assert_eq!(role, Some(if dirty { Role::Filling } else { Role::Good }));
    }
}

#[test]
fn dirty_degraded_parity_volume_is_refused_unless_forced() {
    let mut torn = array(FIVE, 3);
    torn.volumes[0].dirty = true;
    assert!(start(torn.clone(), &[0, 1, 2]).volume_status[0].up, "whole: parity is made right");
    let mut set = start(torn, &[0, 2]);
    let why = set.can_start(0, "Intel-7").expect_err("refused");
    assert!(why.contains("raid start --force Intel-7"), "{why}");
    set.volume_status[0].forced = true;
    assert_eq!(set.can_start(0, "Intel-7"), Ok(()));
    let mut copies = array(Level::Raid1, 2);
    copies.volumes[0].dirty = true;
    assert!(start(copies, &[1]).volume_status[0].up, "a copy is whole in itself");
    assert!(!start(array(FIVE, 3), &[1]).volume_status[0].up, "too few");
}

#[test]
fn rebuild_resumes_at_its_position_unless_the_volume_is_dirty() {
    for (dirty, from) in [(false, 128 << 10), (true, 0)] {
        let mut array = array(Level::Raid1, 2);
        array.volumes[0].members[1].state = SubdiskState::Rebuild;
        let kind = MigrationKind::Rebuild;
        array.volumes[0].migration = Some(Migration { kind, done: 128 << 10 });
        array.volumes[0].dirty = dirty;
        let set = start(array, &[0, 1]);
        assert_eq!(set.pass_from(0), Some(from), "dirty {dirty}");
        assert_eq!(set.role(0, 1), Some((2, Role::Filling)));
        let record = set.record();
        assert_eq!(record.volumes[0].members[1].state, SubdiskState::Rebuild);
        assert_eq!(record.volumes[0].migration.map(|m| m.done), Some(from));
    }
}

/// A4 of raid/members.rs.
#[test]
fn unsynchronised_volume_stays_dirty_or_uninitialised_on_record() {
    let mut torn = array(FIVE, 3);
    torn.volumes[0].dirty = true;
    let mut set = start(torn, &[0, 1, 2]);
    set.array.volumes[0].dirty = false;
    assert!(set.record().volumes[0].dirty, "until the pass is over");
    set.passed(0);
    assert!(!set.record().volumes[0].dirty && set.volume_status[0].consistent_to == ALL);
    let mut raw = array(FIVE, 3);
    raw.volumes[0].members.iter_mut().for_each(|m| m.state = SubdiskState::Uninitialized);
    let mut set = start(raw, &[0, 1, 2]);
    assert_eq!(set.pass_from(0), Some(0));
    set.passed_to(0, 64 << 10);
    let record = set.record();
    assert_eq!(record.volumes[0].migration.map(|m| m.kind), Some(MigrationKind::Init));
    assert!(!record.volumes[0].dirty);
    set.passed(0);
    assert!(set.record().volumes[0].members.iter().all(|m| m.state == SubdiskState::Active));
}

#[test]
fn spare_replaces_a_failed_disk_which_is_removed_from_the_array() {
    let mut array = array(FIVE, 3);
    let spare = Disk {
        serial: "SPARE".into(),
        reference: 9,
        state: DiskState::Spare,
        ..array.disks[0].clone()
    };
    array.disks.push(spare);
    let mut set = start(array, &[0, 1, 2, 3]);
    assert!(!set.take_spares(), "nobody is missing");
    set.mark_absent(0, DiskState::Failed);
    assert!(set.take_spares());
    assert_eq!(set.array.disks.len(), 3);
    let members: Vec<&str> = set.array.volumes[0]
        .members
        .iter()
        .map(|m| set.array.disks[m.disk].serial.as_str())
        .collect();
    assert_eq!(members, ["SPARE", "SERIAL-000001", "SERIAL-000002"]);
    assert_eq!(set.role(0, 0), Some((4, Role::Filling)));
    assert_eq!(set.breaks(set.disk(2).expect("there")), [0], "while it is filled");
    set.passed(0);
    assert!(set.breaks(set.disk(2).expect("there")).is_empty());
}

#[test]
fn raid0_is_broken_without_a_disk_and_optimal_with_it_again() {
    let mut set = start(array(Level::Raid0, 2), &[0, 1]);
    set.mark_absent(1, DiskState::Missing);
    assert_eq!(set.state(0), VolumeState::Broken);
    set.volume_status[0].up = false;
    assert!(!set.take_spares());
    assert!(set.arrive(1, 8, false));
    assert_eq!(set.state(0), VolumeState::Optimal);
}

#[test]
fn disk_left_out_before_a_spare_replaced_it_is_no_split() {
    let one = Level::Raid1;
    // 0 and 1; then 2 took the place of 1, and 0 failed.
    let alone = record_without(one, 2, 1, &[], 4);
    let mut later = [array(one, 2), array(one, 2)];
    for (at, array) in later.iter_mut().enumerate() {
        array.disks[1].serial = "SERIAL-000002".into();
        array.generation = 14 + at as u32;
    }
    later[1].disks[0].state = DiskState::Failed;
    later[1].volumes[0].members[0].state = SubdiskState::Failed;
    let (zero, two) = (record(&later[0], 0), record(&later[1], 2));
    assert_eq!(judged(&[zero, alone.clone(), two.clone()]), (2, vec![]));
    // The disk that could decide is absent: neither knows the other, and neither is changed.
    assert_eq!(judged(&[alone, two]), (1, vec![]));
    // One that the newest has a place for would be filled anew.
    let mut other = array(one, 2);
    other.generation = 9;
    other.disks[0].serial = "SERIAL-000003".into();
    assert_eq!(judged(&[record(&other, 1), record_without(one, 2, 0, &[1], 10)]), (1, vec![0]));
}

#[test]
fn source_left_out_with_a_rebuild_on_record_is_no_split() {
    let mut filling = array(Level::Raid1, 2);
    filling.generation = 23;
    filling.volumes[0].members[1].state = SubdiskState::Rebuild;
    filling.volumes[0].migration = Some(Migration { kind: MigrationKind::Rebuild, done: 0 });
    let filled = record_without(Level::Raid1, 2, 1, &[0], 27);
    assert_eq!(judged(&[record(&filling, 0), filled]), (1, vec![]));
}

#[test]
fn disk_in_rebuild_may_have_the_newest_record() {
    // 0 could not be written since it left out 1, which is back, and 2 was torn after that.
    let mut filling = array(FIVE, 3);
    filling.generation = 15;
    filling.volumes[0].members[1].state = SubdiskState::Rebuild;
    filling.volumes[0].migration = Some(Migration { kind: MigrationKind::Rebuild, done: 0 });
    let left = imsm::Torn { set: 7, generation: 14, first: Vec::new() };
    let torn = Found::Torn { serial: "SERIAL-000002".into(), left };
    let all = [record_without(FIVE, 3, 0, &[1], 13), record(&filling, 1), torn];
    let all: Vec<&Found> = all.iter().collect();
    let judged = choose_record(&all, 512, None).expect("somebody");
    assert_eq!((judged.winner, judged.split, judged.ahead), (1, vec![], vec![]));
    // An older one of its kind was left behind.
    filling.generation = 12;
    let all = [record_without(FIVE, 3, 0, &[1], 13), record(&filling, 1)];
    assert_eq!(self::judged(&all), (0, vec![]));
}

#[test]
fn disk_in_rebuild_is_no_half_of_a_split() {
    // 2 was to take the place of 0, with 1 as its source, when the power failed. Then 0 and 1
    // continued, and 3 took the place of 1.
    let mut filling = array(Level::Raid1, 2);
    filling.generation = 9;
    filling.disks[0].serial = "SERIAL-000002".into();
    filling.volumes[0].members[0].state = SubdiskState::Rebuild;
    filling.volumes[0].migration = Some(Migration { kind: MigrationKind::Rebuild, done: 0 });
    let mut newest = array(Level::Raid1, 2);
    newest.generation = 27;
    newest.disks[1].serial = "SERIAL-000003".into();
    let new = [record(&newest, 0), record(&newest, 3)];
    // As if it had a place that the newest knows: all records mark it as incomplete.
    let mut known = filling.clone();
    known.disks[1].serial = "SERIAL-000000".into();
    known.disks[1].state = DiskState::Missing;
    for other in [record(&filling, 2), record(&known, 2)] {
        assert_eq!(judged(&[new[0].clone(), new[1].clone(), other]), (0, vec![]));
    }
    // It had been filled: a half of its own.
    known.volumes[0].members[0].state = SubdiskState::Active;
    known.volumes[0].members[1].state = SubdiskState::None;
    known.volumes[0].migration = None;
    assert_eq!(judged(&[new[0].clone(), new[1].clone(), record(&known, 2)]), (0, vec![2]));
}

#[test]
fn array_is_incomplete_without_its_disk_in_rebuild() {
    let mut filling = array(Level::Raid1, 2);
    filling.volumes[0].members[1].state = SubdiskState::Rebuild;
    filling.volumes[0].migration = Some(Migration { kind: MigrationKind::Rebuild, done: 0 });
    let found = record(&filling, 0);
    let keys = ["SERIAL-000000".to_owned(), "SERIAL-000001".to_owned()];
    assert!(found.excludes(&keys[1], 512), "it lacks something");
    assert!(!found.is_complete(&keys[..1], 512) && found.is_complete(&keys, 512));
    assert!(record_without(Level::Raid1, 2, 0, &[1], 5).is_complete(&keys[..1], 512), "it is gone");
}

/// The contents of the disks' records of a DDF array.
fn of_ddf(array: &Array) -> Vec<Found> {
    let place = ddf::TargetDisk {
        sector_size: 512,
        media_sectors: (100 << 20) / 512,
        time: 0,
        controller: [b'c'; 24],
        limits: ddf::Limits::default(),
        order: ddf::Order::default(),
    };
    let record = |at| ddf::create(array, at, &place).expect("a record");
    (0..array.disks.len()).map(|at| Found::Ddf(Box::new(record(at)))).collect()
}

/// DDF: two pairs; disk 4, new or a spare that DDF knew, takes the place of disk 3.
fn taken(known: bool) {
    let mut array = array(Level::Raid10, 4);
    array.identity = Identity::Ddf([b'x'; 24]);
    let spare = Disk { reference: 4, state: DiskState::Spare, ..array.disks[0].clone() };
    array.disks.extend(known.then(|| spare.clone()));
    for disk in &mut array.disks {
        disk.guid[0] = b'0' + disk.reference as u8;
    }
    let found = of_ddf(&array);
    let all: Vec<&Found> = found.iter().collect();
    let (mut array, mut metadata) = MetadataState::open(&all, 0, 512).expect("an array");
    if !known {
        array.disks.push(spare);
    }
    array.disks.remove(3);
    array.disks[3].state = DiskState::Active;
    let here =
        [0, 1, 2, 3].map(|index| PresentDisk { index, sectors: (100 << 20) / 512, moved: false });
    metadata.write(&mut array, &here, 5, 512, 0).expect("records");
    let MetadataState::Ddf { own, .. } = metadata else { panic!("another format") };
    // The other of the pair does not arrive, and the one that was replaced is first.
    let now = |key: &str| Found::Ddf(Box::new(own[key].clone()));
    let all = [found[3].clone(), now("00000000"), now("00000001"), now("00000004")];
    let all: Vec<&Found> = all.iter().collect();
    let (array, _) = MetadataState::open(&all, 1, 512).expect("an array");
    let volume = &array.volumes[0];
    let who: Vec<u32> = volume.members.iter().map(|m| array.disks[m.disk].reference).collect();
    assert_eq!(who, [0, 1, 2, 4], "known {known}");
}

#[test]
fn replacement_disk_outranks_the_disk_it_replaced() {
    taken(true);
    taken(false);
}

/// DDF: a disk was away while a volume's configuration advanced. When it is back, its configuration
/// gets the sequence number of the others. With a number of its own it could be older than the
/// configuration of a disk that left in between.
#[test]
fn returning_ddf_disk_gets_the_sequence_number_of_the_others() {
    let mut array = array(Level::Raid1, 3);
    array.identity = Identity::Ddf([b'x'; 24]);
    for disk in &mut array.disks {
        disk.guid[0] = b'0' + disk.reference as u8;
    }
    let mut found = of_ddf(&array);
    for one in [0, 2] {
        let Found::Ddf(meta) = &mut found[one] else { panic!("another format") };
        meta.configs.iter_mut().for_each(|config| config.sequence += 5);
    }
    let all: Vec<&Found> = found.iter().collect();
    let (mut array, mut metadata) = MetadataState::open(&all, 0, 512).expect("an array");
    let here =
        [0, 1, 2].map(|index| PresentDisk { index, sectors: (100 << 20) / 512, moved: false });
    metadata.write(&mut array, &here, 5, 512, 0).expect("records");
    let MetadataState::Ddf { own, .. } = metadata else { panic!("another format") };
    let numbers = own.values().map(|meta| meta.configs[0].sequence).collect::<Vec<_>>();
    let Found::Ddf(before) = &found[0] else { panic!("another format") };
    assert_eq!(numbers, [before.configs[0].sequence; 3]);
}
