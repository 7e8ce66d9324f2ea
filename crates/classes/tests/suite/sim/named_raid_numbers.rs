//! Records of arrays whose order is known by their number alone. Other implementations use
//! numbers alone, so an array that continues gets a higher number than all that were seen.

use std::collections::BTreeMap;

use bio::{Errno, Op};
use geom::{Access, Measure};
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};
use super::named_raid::{MEMBER, NEW, Rig, SECONDS};

const FORMATS: [&str; 2] = ["Intel", "DDF"];

/// The bytes of each disk behind the members' part: its records.
type Records = BTreeMap<String, Vec<u8>>;

fn records(rig: &Rig) -> Records {
    let of = |disk: &Disk| disk.bytes(MEMBER, (disk.size() - MEMBER) as usize);
    rig.disks.iter().map(|(name, disk)| (name.clone(), of(disk))).collect()
}

/// A disk's number, as its record has it.
fn number(rig: &mut Rig, name: &str) -> u64 {
    let answer = rig.life.verb("raid", "dump", "", json!({ "members": [name] })).expect("a record");
    answer["records"][0]["generation"].as_u64().expect("a number")
}

/// The number of the array that runs.
fn running(rig: &Rig) -> u64 {
    rig.life.show("raid", &rig.set, "Generation").parse().expect("a number")
}

/// It is written, and clean again: its records are some numbers further.
fn advance_records(rig: &mut Rig) {
    for _ in 0..3 {
        rig.dirty();
        rig.life.pass(SECONDS);
    }
}

fn write_all(rig: &mut Rig) {
    for at in (0..rig.bytes).step_by(SECTOR as usize) {
        rig.life.write(rig.edge, at, vec![NEW; SECTOR as usize]).expect("written");
    }
    rig.life.flush(rig.edge).expect("flushed");
    rig.life.pass(SECONDS);
}

fn all_new(rig: &mut Rig, what: &str) {
    let all = rig.sectors();
    assert!(all.iter().all(|s| *s == Ok(Some(NEW))), "{what}: {all:?}");
}

/// All disks, one after the other, in a new world.
fn plugged(rig: &mut Rig, order: &[&str]) {
    rig.life = Life::new(2, 2);
    rig.disks.values().for_each(Disk::power_cut);
    for name in order {
        rig.life.plug(name, &rig.disks[*name]);
        rig.life.pass(10 * MS);
    }
    rig.life.pass(2 * SECONDS);
}

/// Two pairs. A disk that is being filled is removed; then one of the other pair, and that is
/// written. The record of the first knows that it lacks something itself, and calls the second
/// good. Only its number shows that it is not the last one.
#[test]
fn a_disk_lost_during_its_rebuild_does_not_vouch_for_a_later_loss() {
    for format in FORMATS {
        for order in [["d1", "d3", "d0", "d2"], ["d3", "d1", "d2", "d0"], ["d0", "d1", "d2", "d3"]]
        {
            let mut rig = Rig::of(format, "RAID10", 4);
            rig.life.pass(SECONDS);
            rig.pull("d1");
            rig.dirty();
            rig.life.pass(SECONDS);
            {
                let mut filled = rig.disks["d1"].lock();
                (filled.holds, filled.holds_below) = (Some(Op::Write), MEMBER);
            }
            rig.life.plug_soon("d1", &rig.disks["d1"].clone());
            rig.life.pass(SECONDS);
            let subdisks = rig.life.show("raid", &rig.set, "Subdisks");
            assert!(subdisks.contains("d1 (REBUILD)"), "{subdisks}");
            let measures = rig.life.measures("raid", &rig.set);
            let [Measure::Rebuild(copy)] = measures.as_slice() else {
                panic!("{measures:?}");
            };
            assert!(copy.part == rig.volume && copy.done_bytes < copy.size_bytes, "{measures:?}");
            assert_eq!(copy.sources, ["d0", "d2", "d3"]);
            rig.pull("d1");
            rig.pull("d3");
            write_all(&mut rig);
            plugged(&mut rig, &order);
            rig.edge = rig.life.open(&rig.volume, Access::WRITE).expect("open").1;
            rig.in_order();
            // Each pair by the disk that was away.
            rig.pull("d0");
            rig.pull("d2");
            all_new(&mut rig, &format!("{format} {order:?}"));
        }
    }
}

/// Two pairs, and each half of them was used without the other, one of them longer. Neither starts
/// unasked or by force; the half that is chosen is used, in any order of arrival.
#[test]
fn a_start_of_two_halves_uses_the_one_that_is_kept() {
    const HALVES: [[&str; 2]; 2] = [["d0", "d2"], ["d1", "d3"]];
    for (format, longer) in FORMATS.into_iter().flat_map(|f| [(f, 0), (f, 1)]) {
        for order in [["d0", "d1", "d2", "d3"], ["d3", "d2", "d1", "d0"]] {
            let mut rig = Rig::of(format, "RAID10", 4);
            rig.life.pass(SECONDS);
            let all = rig.disks.clone();
            for half in [longer, 1 - longer] {
                rig.disks = HALVES[half].map(|name| (name.to_owned(), all[name].clone())).into();
                rig.reboot();
                if half == longer {
                    write_all(&mut rig);
                    advance_records(&mut rig);
                }
                rig.dirty();
                rig.life.pass(SECONDS);
            }
            rig.disks = all;
            plugged(&mut rig, &order);
            let state = rig.life.show("raid", &rig.set, "State");
            assert!(state.contains("used without each other"), "{format} {order:?}: {state}");
            let force = json!({ "force": true });
            let refused = rig.life.verb("raid", "start", &rig.set, force).expect_err("by force");
            assert!(refused.message.contains("Choose the half to keep"), "{refused}");
            let keep = json!({ "keep": HALVES[longer][1] });
            rig.life.verb("raid", "start", &rig.set, keep).expect("the half that is kept");
            rig.edge = rig.life.open(&rig.volume, Access::WRITE).expect("open").1;
            let held = rig.life.read(rig.edge, 0, SECTOR as usize).expect("read");
            assert!(held.iter().all(|b| *b == NEW), "{format} {longer} {order:?}");
        }
    }
}

/// The record of a disk is ahead by number: the others' were not written when the power failed. The
/// array started without it; it arrives, and cannot be written. It is out, and the records that
/// contain that have a higher number than its own.
#[test]
fn a_running_array_numbers_its_records_above_a_late_disk() {
    for format in FORMATS {
        let mut rig = Rig::of(format, "RAID1", 2);
        rig.life.pass(SECONDS);
        let before = records(&rig);
        advance_records(&mut rig);
        rig.disks["d0"].put(MEMBER, &before["d0"]);
        let late = rig.disks.remove("d1").expect("a disk");
        late.power_cut();
        rig.reboot();
        rig.life.plug("d1", &late);
        let ahead = {
            late.lock().faults.push((Op::Write, 100, Errno::Io));
            number(&mut rig, "d1")
        };
        rig.life.pass(SECONDS);
        assert_eq!(rig.life.show("raid", &rig.set, "State"), "DEGRADED", "{format}");
        assert!(running(&rig) > ahead, "{format}: {} and {ahead}", running(&rig));
    }
}

/// The same, but it was left out before: it is present at the start, and is not trusted, regardless
/// of its number. Either it is filled; or it cannot be written, and then the members that continue
/// without it have a higher number.
#[test]
fn a_dropped_disk_with_a_higher_number_is_not_trusted() {
    for (format, fails) in FORMATS.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let mut rig = Rig::of(format, "RAID1", 2);
        rig.life.pass(SECONDS);
        let before = records(&rig);
        advance_records(&mut rig);
        let after = records(&rig);
        for (name, bytes) in &before {
            rig.disks[name].put(MEMBER, bytes);
        }
        let other = rig.disks.remove("d1").expect("a disk");
        other.power_cut();
        rig.reboot();
        write_all(&mut rig);
        other.put(MEMBER, &after["d1"]);
        rig.disks.insert("d1".into(), other.clone());
        rig.life = Life::new(2, 2);
        rig.disks.values().for_each(Disk::power_cut);
        if fails {
            other.lock().faults.push((Op::Write, 100, Errno::Io));
        }
        ["d1", "d0"].iter().for_each(|name| rig.life.plug(name, &rig.disks[*name]));
        let ahead = number(&mut rig, "d1");
        rig.life.pass(2 * SECONDS);
        assert!(running(&rig) > ahead, "{format}: {} and {ahead}", running(&rig));
        if fails {
            assert_eq!(rig.life.show("raid", &rig.set, "State"), "DEGRADED", "{format}");
        } else {
            rig.in_order();
            rig.pull("d0");
        }
        rig.edge = rig.life.open(&rig.volume, Access::WRITE).expect("open").1;
        all_new(&mut rig, format);
    }
}
