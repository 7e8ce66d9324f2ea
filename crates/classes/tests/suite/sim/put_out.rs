//! Members that a mirror has put out, or does not take in, while disks and mirror grow. Their data
//! is old and their table is the mirror's too, and no class may ever take it from them.

use bio::{Errno, Op};
use serde_json::json;

use super::disk::SECTOR;
use super::life::MS;
use super::named::{Bench, DISK};
use super::rising::labelled;

const MORE: u64 = 24 << 10;

/// With a table on the mirror, so that every member seems to have one.
fn with_a_table(count: usize, extra: serde_json::Value) -> Bench {
    let mut bench = Bench::with(count, extra);
    for (verb, with) in
        [("create", json!({ "scheme": "bsd" })), ("add", json!({ "kind": "freebsd-ufs" }))]
    {
        bench.life.verb("part", verb, "mirror/m", with).expect("a table");
    }
    bench.life.pass(100 * MS);
    bench
}

fn grow(bench: &mut Bench, name: &str) {
    let bytes = bench.disks[name].grow(MORE);
    bench.life.resized(name, bytes);
    bench.life.pass(50 * MS);
}

/// The mirror grows with those that it has.
fn enlarge(bench: &mut Bench) {
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
    bench.life.pass(100 * MS);
}

/// Nothing is found on it, now and after a start in any order.
fn stays_hidden(bench: &mut Bench, name: &str, why: &str, case: &str) {
    let seen = |bench: &Bench, when: &str| {
        let story = bench.life.dump_state();
        assert!(!bench.life.has(&format!("{name}a")), "{case}: {when}\n{story}");
        assert!(story.contains(why), "{case}: {when}: not said: {why}\n{story}");
    };
    seen(bench, "as it grew");
    let disk = &bench.disks[name];
    assert_eq!(labelled(disk, disk.size()).as_deref(), Some("mirror"), "{case}");
    for order in [["d0", "d1", "d2"], ["d2", "d1", "d0"], ["d1", "d0", "d2"]] {
        bench.reboot(&order);
        bench.up();
        seen(bench, "after a start");
    }
}

#[test]
fn a_dropped_member_that_grows_with_the_mirror_stays_hidden() {
    let failed = |bench: &mut Bench| {
        bench.disks["d0"].lock().once = Some((Op::Write, Errno::Io));
        let (user, edge) = bench.life.open("mirror/m", geom::Access::WRITE).expect("open");
        bench.life.write(edge, 40 * SECTOR, vec![1; SECTOR as usize]).expect("written");
        bench.life.close(user);
        bench.life.pass(100 * MS);
    };
    let deactivated = |bench: &mut Bench| {
        let with = json!({ "members": ["d0"] });
        bench.life.verb("mirror", "deactivate", "m", with).expect("deactivated");
        bench.life.pass(100 * MS);
    };
    let ways: [(&str, &dyn Fn(&mut Bench), &str); 2] = [
        ("failed", &failed, "this member failed once"),
        ("deactivated", &deactivated, "deactivated: `ashlar mirror activate m d0`"),
    ];
    for (what, put_out, why) in ways {
        for extra in [json!({}), json!({ "region": 4096 })] {
            for order in [["d0", "d1", "d2"], ["d2", "d1", "d0"]] {
                let case = format!("{what} {extra} {order:?}");
                let mut bench = with_a_table(3, extra.clone());
                put_out(&mut bench);
                assert_eq!(bench.state("d0"), "-", "{case}");
                order.iter().for_each(|name| grow(&mut bench, name));
                enlarge(&mut bench);
                stays_hidden(&mut bench, "d0", why, &case);
            }
        }
    }
}

/// It may be started again only after its disks have grown.
#[test]
fn members_of_a_stopped_mirror_keep_their_records_when_they_grow() {
    let mut bench = with_a_table(2, json!({}));
    bench.life.verb("mirror", "stop", "m", json!({})).expect("stopped");
    for name in ["d0", "d1"] {
        grow(&mut bench, name);
        assert!(!bench.life.has(&format!("{name}a")), "{}", bench.life.dump_state());
    }
    bench.reboot(&["d0", "d1"]);
    bench.up();
    let states = ["d0", "d1"].map(|name| bench.state(name));
    assert_eq!(states, ["ACTIVE", "ACTIVE"], "{}", bench.life.dump_state());
}

/// It returned to a mirror that had grown meanwhile, and was too small.
#[test]
fn a_member_that_was_too_small_is_accepted_after_it_has_grown() {
    let mut bench = with_a_table(2, json!({}));
    bench.pull("d0");
    grow(&mut bench, "d1");
    enlarge(&mut bench);
    bench.plug("d0");
    assert!(bench.life.dump_state().contains("needs a sector more"), "{}", bench.life.dump_state());
    assert!(!bench.life.has("d0a"), "{}", bench.life.dump_state());
    grow(&mut bench, "d0");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    bench.reboot(&["d0", "d1"]);
    bench.up();
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    assert_eq!(bench.disks["d0"].bytes(DISK - SECTOR, 6), [0; 6], "no old record is left");
}

/// The stale member is not rebuilt unasked, and it grows.
#[test]
fn the_record_of_a_stale_member_moves_when_its_disk_grows() {
    let mut bench = with_a_table(2, json!({ "no_autosync": true }));
    bench.pull("d0");
    bench.fill(2, true);
    bench.plug("d0");
    // It is taken in soon after it was found.
    bench.life.pass(100 * MS);
    assert_eq!(bench.state("d0"), "STALE", "{}", bench.life.dump_state());
    grow(&mut bench, "d0");
    grow(&mut bench, "d1");
    assert_eq!(bench.state("d0"), "STALE", "{}", bench.life.dump_state());
    for order in [["d0", "d1"], ["d1", "d0"]] {
        bench.reboot(&order);
        bench.up();
        assert!(!bench.life.has("d0a"), "{}", bench.life.dump_state());
        assert_eq!(bench.state("d0"), "STALE", "{}", bench.life.dump_state());
    }
}

/// It was too small besides, grows within a mirror that has users, and other records are written
/// while it is taken in.
#[test]
fn the_record_of_a_stale_too_small_member_moves_when_its_disk_grows() {
    for late_us in (0..400).step_by(10) {
        let mut bench = with_a_table(2, json!({ "no_autosync": true }));
        bench.pull("d0");
        bench.fill(2, false);
        grow(&mut bench, "d1");
        enlarge(&mut bench);
        bench.plug("d0");
        let bytes = bench.disks["d0"].grow(MORE);
        bench.life.resized("d0", bytes);
        bench.life.pass(late_us * 1_000);
        let with = json!({ "balance": "load" });
        bench.life.verb("mirror", "configure", "m", with).expect("configured");
        bench.life.pass(500 * MS);
        assert_eq!(bench.state("d0"), "STALE", "{late_us}: {}", bench.life.dump_state());
        for order in [["d0", "d1"], ["d1", "d0"]] {
            bench.reboot(&order);
            bench.up();
            assert!(!bench.life.has("d0a"), "{late_us}: {}", bench.life.dump_state());
            assert_eq!(bench.state("d0"), "STALE", "{late_us}: {}", bench.life.dump_state());
        }
    }
}

/// It waits to be taken in, for a write is under way on another member, and that one is lost. The
/// records of that loss are written first, and its own is still to be moved. G6 of mirror/level.rs.
#[test]
fn the_record_of_a_stale_member_moves_after_other_record_writes() {
    let mut bench = with_a_table(3, json!({ "no_autosync": true }));
    bench.pull("d0");
    bench.fill(2, true);
    grow(&mut bench, "d1");
    grow(&mut bench, "d2");
    enlarge(&mut bench);
    bench.plug("d0");
    assert!(bench.life.dump_state().contains("needs a sector more"), "{}", bench.life.dump_state());
    let (_, edge) = bench.life.open("mirror/m", geom::Access::WRITE).expect("open");
    bench.life.write(edge, 40 * SECTOR, vec![3; SECTOR as usize]).expect("written");
    bench.disks["d2"].lock().holds = Some(Op::Write);
    let core = bench.life.cores[0].clone();
    bench.life.cores[0].reactor().spawn("user", async move {
        let _ = core.write(edge, 41 * SECTOR, &[3; SECTOR as usize]).await;
    });
    bench.life.pass(5 * MS);
    let bytes = bench.disks["d0"].grow(MORE);
    bench.life.resized("d0", bytes);
    bench.life.pass(5 * MS);
    bench.pull("d2");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d0"), "STALE", "{}", bench.life.dump_state());
    for order in [["d0", "d1"], ["d1", "d0"]] {
        bench.reboot(&order);
        bench.up();
        assert!(!bench.life.has("d0a"), "{}", bench.life.dump_state());
        assert_eq!(bench.state("d0"), "STALE", "{}", bench.life.dump_state());
    }
}

/// It is found first, grows while the mirror waits for the others, and their records mark it as
/// failed.
#[test]
fn a_member_that_grows_before_the_mirror_starts_without_it_stays_hidden() {
    let mut bench = with_a_table(3, json!({}));
    bench.disks["d0"].lock().once = Some((Op::Write, Errno::Io));
    bench.fill(2, true);
    assert_eq!(bench.state("d0"), "-", "{}", bench.life.dump_state());
    bench.reboot(&["d0"]);
    grow(&mut bench, "d0");
    bench.plug("d1");
    bench.plug("d2");
    bench.up();
    stays_hidden(&mut bench, "d0", "this member failed once", "before the start");
}

/// Its record cannot be moved. No class takes the disk all the same, the command to move the record
/// is printed, and the move is not retried for ever.
#[test]
fn a_dropped_disk_that_fails_the_move_of_its_record_stays_hidden() {
    let mut bench = with_a_table(2, json!({}));
    bench.disks["d0"].lock().once = Some((Op::Write, Errno::Io));
    bench.fill(2, true);
    assert_eq!(bench.state("d0"), "-", "{}", bench.life.dump_state());
    bench.disks["d0"].lock().faults = vec![(Op::Write, 100, Errno::Io)];
    grow(&mut bench, "d0");
    bench.life.pass(500 * MS);
    let typed = format!("`ashlar mirror relocate d0 --was {DISK}`");
    let story = bench.life.dump_state();
    assert!(!bench.life.has("d0a") && story.contains(&typed), "{story}");
    bench.disks["d0"].lock().heal();
    let with = json!({ "member": "d0", "was": DISK, "force": true });
    bench.life.verb("mirror", "relocate", "", with).expect("brought along");
    let disk = &bench.disks["d0"];
    assert_eq!(labelled(disk, disk.size()).as_deref(), Some("mirror"));
    let story = bench.life.dump_state();
    assert!(!bench.life.has("d0a") && !story.contains(&typed), "{story}");
}

/// The disk grew, and fails the writes of its record at the new end.
#[test]
fn a_member_that_fails_the_move_of_its_record_is_dropped_and_hidden() {
    for tries in [1, 2] {
        let mut bench = with_a_table(2, json!({}));
        bench.disks["d0"].lock().faults = vec![(Op::Write, 100, Errno::Io)];
        let bytes = bench.disks["d0"].grow(MORE);
        bench.life.resized("d0", bytes);
        // The second time it is well again when it is tasted as a new disk.
        bench.life.pass(if tries == 1 { 500 * MS } else { MS });
        if tries == 2 {
            let out = bench.life.until(1, |c| {
                let all = c.topology.view(0);
                let of = all.iter().filter(|g| g.class == "mirror").flat_map(|g| &g.consumers);
                of.filter(|c| c.provider.as_deref() == Some("d0")).count() == 0
            });
            assert!(out, "{}", bench.life.dump_state());
            bench.disks["d0"].lock().heal();
            bench.life.pass(500 * MS);
            let bytes = bench.disks["d0"].grow(MORE);
            bench.life.resized("d0", bytes);
            bench.life.pass(500 * MS);
            let disk = &bench.disks["d0"];
            assert_eq!(labelled(disk, disk.size()).as_deref(), Some("mirror"));
        }
        assert_eq!(bench.state("d0"), "-", "{}", bench.life.dump_state());
        assert!(!bench.life.has("d0a"), "{tries}: {}", bench.life.dump_state());
    }
}
