//! WRITE ZEROES and DELETE on volumes with parity. Zeroed ranges read as zeroes, their neighbours
//! are unchanged, and parity matches both, with any members present and any abilities of the disks.

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};

const STRIP: usize = 8192;

/// Formats, levels and disks.
const PARITY: &[(&str, &str, usize)] =
    &[(INTEL, "RAID5", 3), (DDF, "RAID4", 4), (DDF, "RAID5-LS", 4), (DDF, "RAID6-LA", 5)];

/// The support of the disks for WRITE ZEROES and DELETE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disks {
    Zero,
    Cannot,
    /// The last one cannot.
    Mixed,
}

/// An array full of noise, on such disks.
fn array(format: &str, level: &str, count: usize, disks: Disks) -> Raid {
    let mut raid = Raid::label(format, level, count, json!({ "strip": STRIP }));
    raid.write(0, &noise(1, raid.size()));
    raid.stop();
    for (i, disk) in raid.disks.iter().enumerate() {
        let can = disks == Disks::Zero || disks == Disks::Mixed && i + 1 < count;
        disk.0.lock().expect("media").zeroes = can;
    }
    let mut raid = raid.reborn();
    raid.complete();
    raid
}

fn zero(raid: &mut Raid, op: Op, at: usize, len: usize) -> Result<(), Errno> {
    let open = raid.open(Access::WRITE);
    let done = raid.world.range(&open, op, at as u64, len as u64);
    if done.is_ok() {
        raid.model[at..at + len].fill(0);
    }
    raid.world.close(open);
    raid.world.control.settle().expect("at rest");
    done
}

/// Parts of rows, whole rows, both, a sector, and a range across all of these.
fn ranges(size: usize) -> Vec<(usize, usize)> {
    vec![
        (0, 512),
        (STRIP - 512, 1024),
        (5 * STRIP + 512, 11 * STRIP),
        (24 * STRIP, 12 * STRIP),
        (64 * STRIP - 1024, 12 * STRIP + 2048),
        (size - 3 * STRIP, 3 * STRIP),
    ]
}

#[test]
fn zeroed_ranges_read_as_zeroes_without_any_one_disk() {
    for (format, level, count) in PARITY {
        for disks in [Disks::Zero, Disks::Cannot, Disks::Mixed] {
            if disks == Disks::Mixed && *level != "RAID6-LA" {
                continue;
            }
            let mut raid = array(format, level, *count, disks);
            for (at, len) in ranges(raid.size()) {
                zero(&mut raid, Op::WriteZeroes, at, len).expect("zeroed");
                assert!(raid.read_all() == raid.model, "{level} {disks:?} {at} {len}");
            }
            for lost in 0..*count {
                raid.lose(lost);
                assert!(raid.read_all() == raid.model, "{level} {disks:?} without {lost}");
                raid.back(lost);
            }
        }
    }
}

/// Z3 of volume/zero.rs.
#[test]
fn ranges_zeroed_while_degraded_are_zero_after_the_rebuild() {
    for (format, level, count) in PARITY {
        let mut raid = array(format, level, *count, Disks::Zero);
        for lost in [0, count - 1] {
            raid.lose(lost);
            for (at, len) in ranges(raid.size()) {
                zero(&mut raid, Op::WriteZeroes, at, len).expect("zeroed");
                assert!(raid.read_all() == raid.model, "{level} without {lost}, {at} {len}");
            }
            raid.back(lost);
            raid.complete();
            raid.lose(1);
            assert!(raid.read_all() == raid.model, "{level} rebuilt");
            raid.back(1);
            raid.complete();
            raid.write(0, &noise(lost as u64 + 5, raid.size()));
        }
    }
}

#[test]
fn whole_rows_are_zeroed_by_disks_that_support_it() {
    let mut raid = array(INTEL, "RAID5", 3, Disks::Zero);
    let size = raid.size();
    let steps = |raid: &Raid| raid.disks[1].0.lock().expect("media").steps;
    let before = steps(&raid);
    zero(&mut raid, Op::WriteZeroes, 0, size).expect("zeroed");
    let whole = size / 2 / STRIP * STRIP;
    for disk in &raid.disks {
        assert_eq!(disk.0.lock().expect("media").zeroed, whole as u64);
    }
    // Beside a few long ones there are the records, before and behind.
    assert!(steps(&raid) - before < 24, "{}", steps(&raid) - before);
    assert!(raid.read_all() == raid.model);
}

#[test]
fn delete_is_supported_and_reads_as_zeroes_if_all_disks_do() {
    for (format, level, count) in PARITY {
        let mut raid = array(format, level, *count, Disks::Zero);
        let says = |raid: &Raid, name| raid.world.text(&raid.volume(), name).expect("an attribute");
        assert_eq!(says(&raid, "GEOM::candelete"), "1");
        assert_eq!(says(&raid, "GEOM::deletereadszero"), "1");
        for (at, len) in ranges(raid.size()) {
            zero(&mut raid, Op::Delete, at, len).expect("deleted");
        }
        assert!(raid.read_all() == raid.model, "{level}");
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{level} without a disk");
        zero(&mut raid, Op::Delete, 0, 6 * STRIP).expect("deleted without it");
        assert!(raid.read_all() == raid.model, "{level}");
    }
    for disks in [Disks::Cannot, Disks::Mixed] {
        let mut raid = array(INTEL, "RAID5", 3, disks);
        assert_eq!(raid.world.text(&raid.volume(), "GEOM::candelete").as_deref(), Some("0"));
        assert_eq!(zero(&mut raid, Op::Delete, 0, STRIP), Err(Errno::NotSup));
        assert!(raid.read_all() == raid.model);
    }
}

#[test]
fn a_disk_that_fails_to_zero_is_dropped_and_the_range_is_zero() {
    let mut raid = array(INTEL, "RAID5", 3, Disks::Zero);
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &raid.model[..512]).expect("marked");
    raid.disks[1].0.lock().expect("media").cut_at = Some(0);
    let len = 40 * STRIP;
    raid.world.range(&open, Op::WriteZeroes, 0, len as u64).expect("zeroed");
    raid.model[..len].fill(0);
    raid.world.close(open);
    raid.settle();
    assert_eq!(raid.state(), "DEGRADED");
    assert!(raid.read_all() == raid.model);
}

#[test]
fn copies_are_equal_although_some_disks_cannot_zero() {
    for (level, count) in [("RAID1", 2), ("RAID10", 4), ("RAID1E", 3)] {
        let mut raid = array(INTEL, level, count, Disks::Mixed);
        for (at, len) in ranges(raid.size()) {
            zero(&mut raid, Op::WriteZeroes, at, len).expect("zeroed");
        }
        assert!(raid.read_all() == raid.model, "{level}");
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{level} without a disk");
        raid.back(0);
        raid.lose(count - 1);
        assert!(raid.read_all() == raid.model, "{level} without the last");
        assert_eq!(raid.state(), "DEGRADED");
    }
}

#[test]
fn holes_of_members_are_holes_of_the_volume_strip_by_strip() {
    let arrays = [(INTEL, "RAID5", 3), (INTEL, "RAID10", 4), (DDF, "RAID6-LA", 5)];
    for (format, level, count) in arrays {
        let mut raid = array(format, level, count, Disks::Zero);
        zero(&mut raid, Op::WriteZeroes, 0, 24 * STRIP).expect("zeroed");
        let (size, strip) = (raid.size() as u64, STRIP as u64);
        let open = raid.open(Access::READ);
        assert_eq!(raid.world.map(&open, 0, size), Ok((true, strip)), "{level}");
        assert_eq!(raid.world.map(&open, 512, 1024), Ok((true, 1024)), "{level}");
        let noise = 24 * strip;
        assert_eq!(raid.world.map(&open, noise, size - noise), Ok((false, strip)), "{level}");
        raid.world.close(open);
    }
}
