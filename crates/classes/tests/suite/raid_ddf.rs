//! SNIA DDF metadata: it reads back as written, damage is named, no power cut loses an array.

use classes::probe::{ProbeError, Reason, Sectors, Step};
use classes::raid::ddf::{self, Change, Copy, Limits, Meta, Order, TargetDisk};
use classes::raid::{Array, DiskState, Layout, Level, SubdiskState, VolumeState};
use testkit::Seeds;

use crate::raid_world::{self, DISK_BYTES, SNIA, ddf as any, with_one_volume};
use crate::support::{Image, Seed, power_cuts};

const LATER: Change = Change { time: 99, deleted: &[] };

fn place(sector_size: u32, order: Order) -> TargetDisk {
    TargetDisk {
        sector_size,
        media_sectors: DISK_BYTES / u64::from(sector_size),
        time: 12345,
        controller: *b"ASHLAR  test controller ",
        limits: Limits::default(),
        order,
    }
}

fn probe(image: &Image) -> Result<Meta, ProbeError> {
    let mut sectors = Sectors::new(image.sector_size, image.sectors * image.sector_size as u64);
    sectors.drive(|offset, len| Some(image.read(offset, len)), ddf::step)
}

fn written(meta: &Meta, sector_size: u32) -> Image {
    let mut image = Image::new(DISK_BYTES / u64::from(sector_size), sector_size);
    let plan = ddf::plan(meta, image.sectors, sector_size, true).expect("a plan");
    image.apply(&plan);
    image
}

fn metas(array: &Array, at: &TargetDisk) -> Vec<Meta> {
    let indices = (0..array.disks.len()).filter(|i| array.disks[*i].state != DiskState::Missing);
    indices.map(|index| ddf::create(array, index, at).expect("a disk's metadata")).collect()
}

#[test]
fn any_array_reads_back_as_it_was_written() {
    for seed in Seeds::of(60) {
        let order = [Order::BIG, Order::LITTLE, Order::LINUX][(seed % 3) as usize];
        let size = if seed % 4 == 0 { 4096 } else { 512 };
        let array = any(seed);
        assert_eq!(array.check(), Ok(()), "seed {seed}");
        let read: Vec<Meta> = metas(&array, &place(size, order))
            .iter()
            .map(|meta| {
                let found = probe(&written(meta, size)).expect("what was written");
                assert_eq!((&found.disks, &found.volumes), (&meta.disks, &meta.volumes));
                assert_eq!((&found.configs, &found.data), (&meta.configs, &meta.data));
                assert_eq!((found.source, found.header.order), (Copy::Primary, order));
                found
            })
            .collect();
        let seen = ddf::assemble(&read, size).expect("an array");
        assert_eq!(seen.array, array, "seed {seed}");
        assert_eq!((seen.stale, seen.unknown), (vec![], vec![]));
    }
}

#[test]
fn an_update_increments_the_sequence_and_keeps_unknown_fields() {
    let mut array = with_one_volume(SNIA, Level::Raid1, 2);
    array.volumes[0].id = *b"ASHLAR  VOL 000000000001";
    let at = place(512, Order::BIG);
    let mut meta = ddf::create(&array, 0, &at).expect("metadata");
    assert_eq!(meta.header.sequence, array.generation);
    meta.disks[1].rest = [3; 24];
    meta.disks[1].state |= 0x10;
    meta.volumes[0].rest = [4; 14];
    let mut other = meta.volumes[0].clone();
    other.guid = [b'o'; 24];
    meta.volumes.push(other);
    array.volumes[0].dirty = true;
    let next = ddf::update(&meta, &array, 0, &LATER, 512).expect("metadata");
    assert_eq!(next.header.sequence, meta.header.sequence + 1);
    assert_eq!((next.disks[1].rest, next.disks[1].state), ([3; 24], 0x11));
    assert_eq!((next.volumes[0].rest, next.volumes[0].state), ([4; 14], 0x10));
    assert_eq!(next.configs, meta.configs, "nothing new about where it lies");
    assert_eq!(next.volumes.len(), 2, "somebody else's volume");
    assert_eq!(
        ddf::assemble(std::slice::from_ref(&next), 512).expect("an array").unknown,
        [[b'o'; 24]]
    );
    let change = Change { deleted: &[[b'o'; 24]], ..LATER };
    assert_eq!(ddf::update(&next, &array, 0, &change, 512).expect("metadata").volumes.len(), 1);
    array.volumes[0].members[1].offset += 1 << 20;
    let moved = ddf::update(&next, &array, 0, &LATER, 512).expect("metadata");
    assert_eq!((moved.configs[0].sequence, moved.configs[0].time), (2, 99));
}

/// D3 of ddf/mod.rs.
#[test]
fn a_power_cut_always_leaves_one_complete_copy() {
    for source in [Copy::Primary, Copy::Secondary] {
        let mut array = with_one_volume(SNIA, Level::Raid10, 4);
        let at = place(512, Order::BIG);
        let old = ddf::create(&array, 2, &at).expect("metadata");
        let mut image = written(&old, 512);
        // The other copy is spoilt, so that this one is in force.
        let spoilt =
            if source == Copy::Primary { old.header.secondary } else { old.header.primary };
        image.put(spoilt + 1, &[0; 512]);
        let old = probe(&image).expect("the other copy");
        assert_eq!(old.source, source);
        array.volumes[0].dirty = true;
        let new = ddf::update(&old, &array, 2, &LATER, 512).expect("metadata");
        let plan = ddf::plan(&new, image.sectors, 512, false).expect("a plan");
        let (mut olds, mut news) = (0, 0);
        power_cuts(&image, &plan, 3, |image| {
            let seen = probe(image).expect("a whole copy");
            assert!(!seen.header.open);
            let content = |meta: &Meta| (meta.header.sequence, meta.volumes.clone());
            if content(&seen) == content(&old) {
                olds += 1;
            } else {
                assert_eq!(content(&seen), content(&new));
                news += 1;
            }
        });
        assert!(olds > 10 && news > 10, "{olds} {news}");
        image.apply(&plan);
        for copy in [new.header.primary, new.header.secondary] {
            let mut image = image.clone();
            image.put(copy, &[0; 512]);
            assert_eq!(probe(&image).expect("either copy").header.sequence, new.header.sequence);
        }
    }
}

/// D2 of ddf/mod.rs.
#[test]
fn damage_is_reported_and_the_other_copy_is_used() {
    let mut array = with_one_volume(SNIA, Level::Raid5(Layout::LeftSymmetric), 3);
    array.volumes[0].id = *b"ASHLAR  VOL 000000000001";
    let meta = ddf::create(&array, 0, &place(512, Order::BIG)).expect("metadata");
    let image = written(&meta, 512);
    let (one, two) = (meta.header.primary, meta.header.secondary);
    let fields = [
        (0, "DDF header"),
        (1, "DDF controller section"),
        (2, "DDF disk section"),
        (34, "DDF volume section"),
        (93, "DDF disk data"),
    ];
    for (offset, field) in fields {
        let mut image = image.clone();
        image.put(one + offset, &[0; 512]);
        let seen = probe(&image).expect("the other copy");
        assert_eq!(seen.source, Copy::Secondary, "{field}");
        image.put(two + offset, &[0; 512]);
        assert_eq!(probe(&image).expect_err("both are gone").field, field);
    }
    // A bit within each section.
    for (offset, field) in fields {
        let mut image = image.clone();
        for copy in [one, two] {
            let mut sector = image.read((copy + offset) * 512, 512);
            sector[200] ^= 1;
            image.put(copy + offset, &sector);
        }
        let why = probe(&image).expect_err("both are damaged");
        assert_eq!(why.reason, Reason::Checksum, "{field}");
        assert!(why.field.starts_with(field), "{field}: {}", why.field);
    }
    let mut gone = image.clone();
    gone.put(image.sectors - 1, &[0; 512]);
    assert_eq!(probe(&gone).expect_err("no anchor").reason, Reason::Signature);
    let mut erased = image.clone();
    erased.apply(&ddf::erase(&meta, image.sectors, 512));
    assert!(probe(&erased).is_err());
    for sectors in 0..2 {
        assert!(matches!(ddf::step(&Sectors::new(512, sectors * 512)), Step::No(_)));
    }
}

#[test]
fn contradictory_metadata_is_refused_with_the_field_name() {
    let array = with_one_volume(SNIA, Level::Raid1, 2);
    let at = place(512, Order::BIG);
    let all = metas(&array, &at);
    let fails = |all: &[Meta]| ddf::assemble(all, 512).expect_err("refused").field;
    assert_eq!(fails(&[]), "DDF array");
    assert_eq!(fails(&[all[0].clone(), all[0].clone()]), "DDF disk reference");
    let mut two = all.clone();
    two[1].volumes[0].state = 1;
    assert_eq!(fails(&two), "DDF sequence");
    let mut two = all.clone();
    two[0].configs[0].level = (3, 0);
    two[1].configs[0].level = (3, 0);
    assert_eq!(fails(&two), "DDF primary level");
    two.iter_mut().for_each(|meta| meta.configs[0].secondary = (2, 0, 1));
    assert_eq!(fails(&two), "DDF secondary level");
    let mut striped = metas(&with_one_volume(SNIA, Level::Raid0, 2), &at);
    striped.iter_mut().for_each(|meta| meta.configs[0].strip = 255);
    assert_eq!(fails(&striped), "DDF stripe size");
    // Copies have no strips: mdadm writes 255 there, and that stays.
    let mut two = all.clone();
    two.iter_mut().for_each(|meta| meta.configs[0].strip = 255);
    let found = ddf::assemble(&two, 512).expect("an array");
    assert_eq!(found.array.check(), Ok(()));
    let next = ddf::update(&two[0], &found.array, 0, &LATER, 512).expect("an update");
    assert_eq!(next.configs[0].strip, 255);
    let refused = |array: &Array| ddf::create(array, 0, &at).expect_err("refused").field;
    assert_eq!(refused(&with_one_volume(SNIA, Level::Raid6(Layout::RightSymmetric), 4)), "level");
    let mut many = with_one_volume(SNIA, Level::Raid0, 2);
    many.volumes = (1..20).map(|_| many.volumes[0].clone()).collect();
    assert_eq!(refused(&many), "DDF configurations");
    assert_eq!(refused(&with_one_volume(SNIA, Level::Raid0, 65)), "members");
    let mut small = at;
    small.media_sectors = 65536;
    assert_eq!(ddf::create(&array, 0, &small).expect_err("too small").field, "disk size");
}

/// D2 of ddf/mod.rs.
#[test]
fn the_newest_sequence_is_used_and_absent_disks_are_missing() {
    let mut array = with_one_volume(SNIA, Level::Raid10, 4);
    array.disks.push(raid_world::disk(4));
    array.disks[4].state = DiskState::Spare;
    let old = metas(&array, &place(512, Order::BIG));
    array.volumes[0].dirty = true;
    let update = |i: usize| ddf::update(&old[i], &array, i, &LATER, 512).expect("metadata");
    let given = [old[0].clone(), update(2), update(3), update(4)];
    let seen = ddf::assemble(&given, 512).expect("an array");
    assert_eq!((seen.stale, seen.places), (vec![0], vec![Some(0), Some(2), Some(3), Some(4)]));
    assert!(seen.array.volumes[0].dirty);
    assert_eq!(seen.array.disks[1].state, DiskState::Missing);
    assert_eq!(seen.array.disks[4].state, DiskState::Spare);
    assert_eq!(seen.array.volumes[0].state(), VolumeState::Degraded);
    // No remaining disk records the disks of the first pair.
    let seen = ddf::assemble(&given[1..3], 512).expect("an array");
    let states: Vec<_> = seen.array.volumes[0].members.iter().map(|m| m.state).collect();
    use SubdiskState::{Active, None};
    assert_eq!(states, [None, None, Active, Active]);
    assert_eq!(seen.array.volumes[0].state(), VolumeState::Broken);
}

#[test]
fn randomly_damaged_metadata_is_refused_or_parsed() {
    let bases: Vec<Image> = (0..6)
        .map(|seed| {
            let array = any(seed);
            written(&metas(&array, &place(512, Order::BIG))[0], 512)
        })
        .collect();
    for seed in Seeds::of(150) {
        let mut chance = Seed(seed);
        let mut image = bases[(seed % 6) as usize].clone();
        let held: Vec<u64> = image.held.keys().copied().collect();
        for _ in 0..1 + chance.below(3) {
            let sector = held[chance.below(held.len() as u64) as usize];
            let mut bytes = image.held[&sector].clone();
            let at = chance.below(512) as usize;
            bytes[at] = [0, 1, 0x7f, 0xff, chance.next() as u8][chance.below(5) as usize];
            // Headers with a right checksum reach the fields behind it.
            if sector >= held[0] && bytes[..4] == [0xde, 0x11, 0xde, 0x11] {
                bytes[4..8].fill(0xff);
                let crc = crc(&bytes);
                bytes[4..8].copy_from_slice(&crc.to_be_bytes());
            }
            image.put(sector, &bytes);
        }
        if let Ok(meta) = probe(&image)
            && let Ok(seen) = ddf::assemble(&[meta], 512)
        {
            let _ = seen.array.check().is_ok();
        }
    }
}

/// CRC-32 of the catalogue, in the plainest way.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}
