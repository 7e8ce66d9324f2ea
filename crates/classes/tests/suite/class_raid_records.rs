//! Records of arrays when disks grow, and the data that Linux keeps beside a volume.

use classes::raid::imsm::{self, Record};
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::raids::{self, DDF, INTEL, Raid};
use crate::world::Disk;

/// Byte of a volume's record that selects the protection of the write hole, in
/// `VolumeRecord::rest`.
const POLICY: usize = 8;
const PPL: u8 = 3;

fn grow(raid: &mut Raid, disk: usize, by: usize) {
    let media = raid.disks[disk].clone();
    let len = media.bytes().len() + by;
    raid.world.grow(&format!("d{disk}"), &media, len);
    raid.settle();
}

#[test]
fn an_array_whose_disks_grow_is_found_again() {
    for (format, level, count) in raids::REDUNDANT {
        for by in [512, 1 << 20] {
            let mut raid = Raid::label(format, level, *count, json!({ "strip": 8192 }));
            raid.write(0, &noise(1, raid.size()));
            for disk in 0..*count {
                grow(&mut raid, disk, by);
            }
            raid.write(0, &noise(2, 8192));
            raid.stop();
            let mut again = raid.reborn();
            assert_eq!(again.state(), "OPTIMAL", "{format} {level} by {by}");
            assert!(again.read_all() == raid.model, "{format} {level} by {by}");
            assert_eq!(again.size() as u64, raid.model.len() as u64, "no larger by itself");
        }
    }
}

#[test]
fn a_disk_that_grew_during_writes_and_left_is_rebuilt_on_return() {
    for (format, level) in [(INTEL, "RAID5"), (DDF, "RAID5-LS")] {
        let mut raid = Raid::label(format, level, 3, json!({ "strip": 8192 }));
        let open = raid.open(Access::WRITE);
        raid.world.write(&open, 0, &noise(3, 512)).expect("written");
        raid.model[..512].copy_from_slice(&noise(3, 512));
        grow(&mut raid, 1, 8192);
        raid.world.close(open);
        raid.lose(1);
        raid.write(8192, &noise(4, 65536));
        raid.back(1);
        raid.complete();
        raid.lose(0);
        assert!(raid.read_all() == raid.model, "{format}");
    }
}

#[test]
fn intel_records_contain_the_new_size_of_a_grown_disk() {
    let mut raid = Raid::label(INTEL, "RAID5", 3, json!({ "strip": 8192 }));
    grow(&mut raid, 2, 1 << 20);
    let record = record(&raid.disks[0]);
    let serial = |i: usize| String::from_utf8_lossy(&record.disks[i].serial).into_owned();
    assert!(serial(2).starts_with("serial-d2"));
    assert_eq!(record.disks[2].sectors, (4 << 20) / 512);
    assert_eq!(record.disks[1].sectors, (3 << 20) / 512);
}

/// The record of a disk with sectors of 512 bytes: its remaining sectors precede the anchor.
fn record(disk: &Disk) -> Record {
    let bytes = disk.bytes();
    let anchor = bytes.len() - 1024;
    let mut all = bytes[anchor..anchor + 512].to_vec();
    let size = u32::from_le_bytes(all[36..40].try_into().expect("four")) as usize;
    let more = size.div_ceil(512).saturating_sub(1) * 512;
    all.extend_from_slice(&bytes[anchor - more..anchor]);
    Record::decode(&all).expect("a record")
}

fn policies(raid: &Raid) -> Vec<u8> {
    raid.disks.iter().map(|disk| record(disk).volumes[0].rest[POLICY]).collect()
}

/// An array of which the records show a log kept by Linux.
fn logged(level: &str, count: usize) -> Raid {
    let mut raid = Raid::label(INTEL, level, count, json!({ "strip": 8192 }));
    raid.write(0, &noise(5, raid.size()));
    raid.stop();
    forge(&raid.disks, |record| record.volumes[0].rest[POLICY] = PPL);
    raid.reborn()
}

/// Changes the records of disks behind the array's back.
fn forge(disks: &[Disk], change: impl Fn(&mut Record)) {
    for disk in disks {
        let mut record = record(disk);
        change(&mut record);
        let plan = imsm::plan(&record, disk.bytes().len() as u64 / 512, 512).expect("it fits");
        for step in plan.steps() {
            if let classes::write_plan::WriteStep::Write { offset, bytes } = step {
                disk.put(*offset as usize, bytes);
            }
        }
    }
}

#[test]
fn a_linux_log_that_is_not_kept_is_marked_off_while_dirty() {
    let mut raid = logged("RAID5", 3);
    assert_eq!(policies(&raid), [PPL; 3]);
    let line = raid.show("Volume");
    assert!(line.contains("partial parity log (PPL) of Linux (not used here)"), "{line}");
    for _ in 0..2 {
        let open = raid.open(Access::WRITE);
        raid.world.write(&open, 0, &noise(6, 8192)).expect("written");
        raid.model[..8192].copy_from_slice(&noise(6, 8192));
        assert_eq!(policies(&raid), [0; 3], "nobody may believe it");
        let line = raid.show("Volume");
        assert!(line.contains("(off while it is dirty)"), "{line}");
        raid.world.close(open);
        raid.settle();
        assert_eq!(policies(&raid), [PPL; 3], "clean: it may be used again");
    }
    // With a disk missing it is the same.
    raid.lose(1);
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &noise(7, 8192)).expect("written");
    assert_eq!([0, 2].map(|at| record(&raid.disks[at]).volumes[0].rest[POLICY]), [0; 2]);
    raid.world.close(open);
}

#[test]
fn an_unread_linux_log_is_mentioned_when_parity_may_be_wrong() {
    let mut raid = logged("RAID5", 3);
    raid.stop();
    forge(&raid.disks, |record| record.volumes[0].dirty |= 1);
    // With all disks there parity is made anew from the data, and the log may be kept again.
    let mut all = raid.reborn();
    all.complete();
    assert_eq!(policies(&all), [PPL; 3]);
    all.lose(2);
    assert!(all.read_all() == raid.model);
    all.write(0, &noise(8, 8192));
    all.stop();
    // Linux leaves it dirty without that disk.
    forge(&raid.disks[..2], |record| record.volumes[0].dirty |= 1);
    let two = raid.reborn_with(&[0, 1]);
    let state = two.state();
    assert!(state.contains("parity may be wrong"), "{state}");
    assert!(state.contains("Linux may know"), "{state}");
    let answer = [0, 1].map(|at| record(&raid.disks[at]).volumes[0].rest[POLICY]);
    assert_eq!(answer, [PPL; 2], "nothing was written: Linux can still read it");
}

#[test]
fn writes_to_a_volume_without_redundancy_write_no_record() {
    for (format, level, count) in [(INTEL, "SINGLE", 1), (INTEL, "RAID0", 2), (DDF, "CONCAT", 2)] {
        let mut raid = Raid::label(format, level, count, json!({ "size": 1 << 20 }));
        if level == "SINGLE" {
            // Two volumes on one disk: a record of several sectors, and no other member that has a
            // copy.
            let more = json!({ "label": "more", "level": "SINGLE" });
            raid.world.verb("raid", "add", &raid.set, more).expect("added");
        }
        let before = raid.record(0)["generation"].clone();
        for round in 0..3 {
            raid.write(0, &noise(9 + round, raid.size()));
        }
        assert_eq!(raid.record(0)["generation"], before, "{format} {level}");
        let mut again = raid.reborn();
        assert!(again.read_all() == raid.model, "{format} {level}");
    }
}

/// A stop while a volume is open and was just written.
#[test]
fn records_are_clean_after_rest_of_complete_and_degraded_volumes() {
    for (format, level, count) in raids::REDUNDANT {
        for degraded in [false, true] {
            let what = format!("{format} {level}, degraded {degraded}");
            let mut raid = Raid::label(format, level, *count, json!({ "strip": 8192 }));
            let mut left: Vec<usize> = (0..*count).collect();
            if degraded {
                raid.lose(*count - 1);
                left.pop();
            }
            let open = raid.open(Access::WRITE);
            raid.world.write(&open, 0, &noise(5, 65536)).expect("written");
            raid.model[..65536].copy_from_slice(&noise(5, 65536));
            let late = raid.world.control.clean_records(geom::CLEAN_RECORDS_DEADLINE, |_, _| true);
            assert_eq!(late, [""; 0], "{what}");
            let mut again = raid.reborn_with(&left);
            again.settle();
            let line = again.show("Volume");
            assert!(!["synchronised", "dirty"].iter().any(|word| line.contains(word)), "{line}");
            assert_eq!(again.state(), if degraded { "DEGRADED" } else { "OPTIMAL" }, "{what}");
            assert!(again.read_all() == raid.model, "{what}");
            raid.world.close(open);
        }
    }
}

/// The content of a disk is put back as it was at an earlier, clean stop.
/// A6 of raid/members.rs.
#[test]
fn a_member_restored_from_an_older_copy_is_rebuilt() {
    for (format, level, count) in raids::REDUNDANT {
        let what = format!("{format} {level}");
        let mut raid = Raid::label(format, level, *count, json!({ "strip": 8192 }));
        raid.write(0, &noise(6, raid.size()));
        raid.stop();
        let old = raid.disks[0].bytes();
        let mut raid = raid.reborn();
        raid.complete();
        raid.write(0, &noise(7, raid.size()));
        raid.stop();
        raid.disks[0].0.lock().expect("media").bytes = old;
        let mut again = raid.reborn();
        assert!(again.read_all() == raid.model, "{what}: before it is rebuilt");
        again.complete();
        again.lose(*count - 1);
        assert!(again.read_all() == raid.model, "{what}: rebuilt");
    }
}
