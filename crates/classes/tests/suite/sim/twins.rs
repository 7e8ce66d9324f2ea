//! Two disks with one number: a member, and a copy of it. The data on the copy may be old, and its
//! record looks as good as the member's.

use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::MS;
use super::named::{Bench, DISK};
use super::named_raid::{NEW, Rig, SECONDS};

/// A whole and clean mirror, filled with 1, and a copy of `d0` of that time that is not plugged in.
fn with_a_copy(extra: serde_json::Value) -> Bench {
    let mut bench = Bench::with(2, extra);
    bench.fill(1, true);
    let copy = Disk::new(DISK, 9);
    copy.put(0, &bench.disks["d0"].bytes(0, DISK as usize));
    bench.disks.insert("copy".into(), copy);
    bench
}

/// The mirror's content that only the copy has.
fn on_the_copy(bench: &Bench) -> u8 {
    let bytes = bench.disks["copy"].bytes(0, 100 * SECTOR as usize);
    assert!(bytes.iter().all(|b| *b == bytes[0]), "of one time");
    bytes[0]
}

#[test]
fn a_refused_copy_is_rebuilt_after_the_loss_of_the_member() {
    for (extra, before) in [
        (json!({}), true),
        (json!({}), false),
        (json!({ "region": 4096 }), true),
        (json!({ "region": 4096 }), false),
    ] {
        let mut bench = with_a_copy(extra);
        if before {
            bench.plug("copy");
            assert!(bench.life.dump_state().contains("or a copy"), "{}", bench.life.dump_state());
        }
        bench.fill(2, true);
        if !before {
            bench.plug("copy");
        }
        assert_eq!(bench.state("copy"), "-", "{}", bench.life.dump_state());
        bench.pull("d0");
        bench.life.pass(500 * MS);
        assert_eq!(bench.state("copy"), "ACTIVE", "{}", bench.life.dump_state());
        assert_eq!(on_the_copy(&bench), 2, "{}", bench.life.dump_state());
        bench.holds(2);
    }
}

/// The copy has not been seen before.
#[test]
fn a_copy_that_arrives_after_the_loss_of_the_member_is_rebuilt() {
    let mut bench = with_a_copy(json!({}));
    bench.fill(2, true);
    bench.pull("d0");
    bench.plug("copy");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("copy"), "ACTIVE", "{}", bench.life.dump_state());
    assert_eq!(on_the_copy(&bench), 2, "{}", bench.life.dump_state());
    // The member itself, which missed nothing, is trusted.
    let mut bench = with_a_copy(json!({}));
    bench.fill(2, true);
    bench.pull("d0");
    let before = bench.disks["d0"].lock().writes;
    bench.plug("d0");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    assert!(bench.disks["d0"].lock().writes < before + 5, "it was not copied to");
}

/// The copy was seen while the mirror ran: from then on its record is the older one.
#[test]
fn a_refused_copy_is_distinguished_from_the_member_at_the_next_start() {
    let orders: [&[&str]; 5] = [
        &["copy", "d0", "d1"],
        &["copy", "d1", "d0"],
        &["d1", "copy", "d0"],
        &["d0", "copy", "d1"],
        &["copy", "d0"],
    ];
    for order in orders {
        let mut bench = with_a_copy(json!({}));
        bench.plug("copy");
        bench.fill(2, true);
        bench.reboot(order);
        bench.up();
        bench.life.pass(500 * MS);
        assert_eq!(bench.state("d0"), "ACTIVE", "{order:?}\n{}", bench.life.dump_state());
        assert_eq!(bench.state("copy"), "-", "{order:?}\n{}", bench.life.dump_state());
        bench.holds(2);
    }
    // Without the member it is one that is old.
    for order in [["copy", "d1"], ["d1", "copy"]] {
        let mut bench = with_a_copy(json!({}));
        bench.plug("copy");
        bench.fill(2, true);
        bench.reboot(&order);
        bench.up();
        bench.life.pass(500 * MS);
        bench.holds(2);
        assert_eq!(on_the_copy(&bench), 2, "{}", bench.life.dump_state());
    }
}

/// Which of two that look alike is the member a start cannot know. The other is the older one from
/// then on, and the refused one is reported.
#[test]
fn of_two_identical_disks_one_is_refused_and_rebuilt_before_use() {
    let mut bench = with_a_copy(json!({}));
    bench.reboot(&["d0", "copy", "d1"]);
    bench.up();
    assert!(bench.life.dump_state().contains("or a copy"), "{}", bench.life.dump_state());
    bench.fill(2, true);
    bench.pull("d0");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("copy"), "ACTIVE", "{}", bench.life.dump_state());
    assert_eq!(on_the_copy(&bench), 2, "{}", bench.life.dump_state());
    // It is the older one at the next start too.
    let mut bench = with_a_copy(json!({}));
    bench.reboot(&["d0", "copy", "d1"]);
    bench.up();
    bench.fill(2, true);
    bench.reboot(&["copy", "d0", "d1"]);
    bench.up();
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    bench.holds(2);
}

/// The request has a reason: the same disk by another name is no copy.
#[test]
fn the_same_disk_under_another_name_is_used_without_a_rebuild() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let same = bench.disks["d0"].clone();
    bench.life.plug("path", &same);
    bench.life.pass(50 * MS);
    bench.fill(2, true);
    let before = same.lock().writes;
    bench.life.pull_path("d0");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("path"), "ACTIVE", "{}", bench.life.dump_state());
    assert!(same.lock().writes < before + 5, "it was not copied to");
    bench.holds(2);
}

/// An array's record grows with each loss, so an earlier copy has the older record.
#[test]
fn a_copy_of_an_array_disk_is_rebuilt_before_use() {
    for before in [true, false] {
        let mut rig = Rig::of("DDF", "RAID1", 2);
        rig.life.pass(SECONDS);
        let bytes = rig.disks["d0"].size();
        let copy = Disk::new(bytes, 9);
        copy.put(0, &rig.disks["d0"].bytes(0, bytes as usize));
        if before {
            rig.life.plug("copy", &copy);
            rig.life.pass(50 * MS);
            assert!(rig.life.dump_state().contains("or a copy"), "{}", rig.life.dump_state());
        }
        for at in (0..rig.bytes).step_by(SECTOR as usize) {
            rig.life.write(rig.edge, at, vec![NEW; SECTOR as usize]).expect("written");
        }
        rig.life.flush(rig.edge).expect("flushed");
        rig.life.pass(SECONDS);
        rig.pull("d0");
        if !before {
            rig.life.plug("copy", &copy);
        }
        rig.life.pass(SECONDS);
        rig.in_order();
        rig.pull("d1");
        rig.holds(0..rig.bytes, NEW, false);
        let all = rig.sectors();
        assert!(all.iter().all(|found| *found == Ok(Some(NEW))), "{}", rig.life.dump_state());
    }
}
