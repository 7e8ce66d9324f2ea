//! Growth and shrinking of a mirror, with a power cut at each step. It has its old size or its new
//! one, and its members agree in all of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;

use super::disk::SECTOR;
use super::life::{MS, PowerCut};
use super::named::{Bench, DISK};

/// Bytes by which the disks grow: more than one slab.
const MORE: u64 = 10 << 10;

/// Two members that have grown by different bytes, their labels at their new ends.
fn grown(extra: serde_json::Value) -> Bench {
    let mut bench = Bench::with(2, extra);
    bench.fill(1, false);
    for (name, disk) in bench.disks.clone() {
        let bytes = disk.grow(MORE);
        bench.life.resized(&name, bytes);
    }
    bench.life.pass(20 * MS);
    bench
}

fn size(bench: &Bench) -> u64 {
    let t = &bench.life.control.topology;
    t.find("mirror/m").and_then(|on| t.limits(on)).expect("a mirror").media_bytes
}

/// Members hold the same in all of the mirror.
fn agree(bench: &Bench) {
    let size = size(bench) as usize;
    let (one, other) = (bench.disks["d0"].bytes(0, size), bench.disks["d1"].bytes(0, size));
    let differ = one.iter().zip(&other).position(|(a, b)| a != b);
    assert_eq!(differ.map(|at| at as u64 / SECTOR), None, "a sector differs of {size} bytes");
}

#[test]
fn added_space_is_equal_on_all_members_after_a_power_cut() {
    let sizes = [DISK - SECTOR, DISK + MORE - SECTOR].map(|n| n - n % SECTOR);
    for extra in [json!({}), json!({ "region": 8192 })] {
        let bitmap = if extra["region"].is_number() { SECTOR } else { 0 };
        let mut seen = [0, 0];
        for fuse in 0.. {
            let mut bench = grown(extra.clone());
            bench.life.fuse.set(fuse);
            let done = catch_unwind(AssertUnwindSafe(|| {
                bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
            }));
            let cut = match done {
                Ok(()) => false,
                Err(why) if why.is::<PowerCut>() => true,
                Err(why) => resume_unwind(why),
            };
            if !cut {
                bench.life.fuse.set(u64::MAX);
                assert_eq!(size(&bench) + bitmap, sizes[1]);
                agree(&bench);
            }
            let order = if fuse % 2 == 0 { ["d0", "d1"] } else { ["d1", "d0"] };
            bench.reboot(&order);
            bench.up();
            let which = sizes.iter().position(|s| *s == size(&bench) + bitmap).expect("a size");
            seen[which] += 1;
            assert!(cut || which == 1, "it was said to have grown");
            for name in order {
                assert_eq!(bench.state(name), "ACTIVE", "fuse {fuse}\n{}", bench.life.dump_state());
            }
            agree(&bench);
            bench.holds(1);
            if !cut {
                break;
            }
        }
        assert!(seen[0] > 10 && seen[1] > 3, "{seen:?}");
    }
}

#[test]
fn a_power_cut_during_a_shrink_leaves_the_old_or_the_new_size() {
    let sizes = [DISK - SECTOR, DISK - 20 * SECTOR];
    let mut seen = [0, 0];
    for fuse in 0.. {
        let mut bench = Bench::of(2);
        bench.fill(1, true);
        bench.life.fuse.set(fuse);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let size = json!({ "size": sizes[1] });
            bench.life.verb("mirror", "resize", "m", size).expect("resized");
        }));
        let cut = match done {
            Ok(()) => false,
            Err(why) if why.is::<PowerCut>() => true,
            Err(why) => resume_unwind(why),
        };
        let order = if fuse % 2 == 0 { ["d0", "d1"] } else { ["d1", "d0"] };
        bench.life.fuse.set(u64::MAX);
        bench.reboot(&order);
        bench.up();
        let which = sizes.iter().position(|s| *s == size(&bench)).expect("a size");
        seen[which] += 1;
        assert!(cut || which == 1, "it was said to be smaller");
        for name in order {
            assert_eq!(bench.state(name), "ACTIVE", "fuse {fuse}\n{}", bench.life.dump_state());
        }
        agree(&bench);
        bench.holds(1);
        if !cut {
            break;
        }
    }
    assert!(seen[0] > 3 && seen[1] > 1, "{seen:?}");
}

/// Records are in the last sectors of the members, not where the mirror ended. The records of a
/// mirror that is smaller than its members are found at the next start, and contain the newest
/// size.
#[test]
fn a_mirror_shrunk_repeatedly_keeps_its_size_at_the_next_start() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    for less in [20, 24, 25] {
        let wanted = DISK - less * SECTOR;
        bench.life.verb("mirror", "resize", "m", json!({ "size": wanted })).expect("resized");
        assert_eq!(size(&bench), wanted);
        bench.reboot(&["d0", "d1"]);
        bench.up();
        assert_eq!(size(&bench), wanted, "{}", bench.life.dump_state());
        for disk in bench.disks.values() {
            assert!(disk.bytes(DISK - SECTOR, 12).starts_with(b"GEOM::MIRROR"));
            let behind = disk.bytes(wanted, (DISK - wanted - SECTOR) as usize);
            let stray = behind.chunks(SECTOR as usize).position(|s| s.starts_with(b"GEOM::"));
            assert_eq!(stray, None, "a record where the mirror ended");
        }
        bench.holds(1);
    }
}

/// While the records of a mirror that is made smaller are written, and as long as one of them
/// cannot be, it has its old size for readers, all of it; writers wait.
#[test]
fn readers_see_the_old_size_until_the_records_have_the_smaller_one() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let (old, new) = (size(&bench), DISK - 20 * SECTOR);
    bench.disks["d1"].lock().holds = Some(Op::Write);
    let done = bench.life.verb("mirror", "resize", "m", json!({ "size": new }));
    assert_eq!(done.expect_err("a member hangs").kind, Errno::TimedOut);
    assert!(bench.life.open("mirror/m", Access::WRITE).is_none(), "a writer came");
    let (_, edge) = bench.life.open("mirror/m", Access::READ).expect("a reader comes");
    for _ in 0..4 {
        for at in (0..old).step_by(SECTOR as usize) {
            let read = bench.life.read(edge, at, SECTOR as usize);
            let read = read.map(|bytes| bytes.len());
            assert_eq!(read, Ok(512), "byte {at} of {old}\n{}", bench.life.dump_state());
        }
        bench.life.pass(MS);
    }
    let hung = bench.disks["d1"].release();
    bench.life.wake(hung);
    bench.life.pass(100 * MS);
    assert_eq!(size(&bench), new);
    // Users that do not support a size change were orphaned; new ones have the new size.
    assert_eq!(bench.life.read(edge, 0, 512), Err(Errno::NxIo));
    let (user, edge) = bench.life.open("mirror/m", Access::WRITE).expect("a writer comes");
    assert_eq!(bench.life.read(edge, new - SECTOR, 512).map(|b| b.len()), Ok(512));
    bench.life.close(user);
    agree(&bench);
}

/// G5 of `level`: records hang, so that a growth that is the same on all members waits to be
/// recorded. It is requested once more, to another size.
#[test]
fn added_space_is_equal_when_a_growth_is_requested_again() {
    let mut bench = grown(json!({}));
    let some = size(&bench) + 4 * SECTOR;
    let hangs = |bench: &mut Bench, verb: &str, with| {
        // It reports that it waits, or that it takes too long.
        let _late = bench.life.verb("mirror", verb, "m", with);
        assert!(size(bench) < some, "{verb}: a member hangs");
    };
    let goes_on = |bench: &mut Bench, disk: &str| {
        let hung = bench.disks[disk].release();
        bench.life.wake(hung);
        bench.life.pass(100 * MS);
    };
    bench.disks["d0"].lock().holds = Some(Op::Write);
    hangs(&mut bench, "resize", json!({ "size": some }));
    bench.disks["d1"].lock().holds = Some(Op::Write);
    hangs(&mut bench, "configure", json!({ "balance": "prefer" }));
    goes_on(&mut bench, "d0");
    hangs(&mut bench, "resize", json!({}));
    goes_on(&mut bench, "d1");
    let is_larger = |control: &geom::GraphControl| {
        let t = &control.topology;
        let limits = t.find("mirror/m").and_then(|on| t.limits(on));
        limits.is_some_and(|limits| limits.media_bytes > some)
    };
    assert!(bench.life.until(60, is_larger), "{}", bench.life.dump_state());
    agree(&bench);
}

/// A member that was away when the mirror became smaller does not make it large again.
#[test]
fn a_member_that_missed_a_shrink_does_not_undo_it() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    bench.pull("d1");
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    let size_now = DISK - 20 * SECTOR;
    bench.life.verb("mirror", "resize", "m", json!({ "size": size_now })).expect("resized");
    bench.reboot(&["d1", "d0"]);
    bench.up();
    assert_eq!(size(&bench), size_now, "{}", bench.life.dump_state());
    assert_eq!(bench.state("d1"), "ACTIVE", "{}", bench.life.dump_state());
    agree(&bench);
}

/// A member that was away when the mirror grew has none of the added data.
#[test]
fn a_member_that_arrives_during_or_after_a_growth_is_made_equal() {
    for late_ms in [0, 3, 40] {
        let mut bench = Bench::of(2);
        bench.fill(1, true);
        bench.pull("d1");
        bench.disks["d1"].grow(MORE);
        bench.disks["d1"].put(DISK + MORE - SECTOR, &bench.disks["d1"].bytes(DISK - SECTOR, 512));
        let bytes = bench.disks["d0"].grow(MORE);
        bench.life.resized("d0", bytes);
        bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
        bench.life.verb("mirror", "configure", "m", json!({ "sync_rate": 1 << 20 })).expect("slow");
        bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
        bench.life.pass(late_ms * MS);
        bench.life.plug("d1", &bench.disks["d1"].clone());
        let with = json!({ "members": ["d1"], "force": true });
        let _ = bench.life.verb("mirror", "insert", "m", with);
        bench.up();
        assert_eq!(bench.state("d1"), "ACTIVE", "{}", bench.life.dump_state());
        assert_eq!(size(&bench), DISK + MORE - SECTOR);
        agree(&bench);
    }
}

#[test]
fn a_failed_growth_reports_why_and_a_failing_member_is_dropped() {
    let mut bench = grown(json!({}));
    bench.disks["d1"].lock().once = Some((Op::Write, Errno::Io));
    bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
    bench.life.pass(50 * MS);
    assert_eq!(bench.state("d1"), "-", "it failed a write");
    assert_eq!(size(&bench), DISK + MORE - SECTOR);

    let mut bench = grown(json!({}));
    bench.pull("d1");
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.disks["d0"].lock().faults.push((Op::Read, 100, Errno::Io));
    let error = bench.life.verb("mirror", "resize", "m", json!({})).expect_err("unreadable");
    assert!(error.message.contains("can be read there"), "{}", error.message);
    assert_eq!(size(&bench), DISK - SECTOR);
    assert!(bench.life.show("mirror", "m", "Resize").contains("ended at 0%"));
    // Called again when it is in order, and ended by the size that it has.
    bench.disks["d0"].lock().heal();
    bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
    assert_eq!(size(&bench), DISK + MORE - SECTOR);
}

/// One that was away when the mirror grew, though nothing was written since, does not win by being
/// found first. The mirror does not become smaller again.
#[test]
fn a_member_that_missed_a_growth_does_not_undo_it() {
    let mut bench = grown(json!({}));
    bench.life.pass(500 * MS);
    bench.pull("d1");
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.life.verb("mirror", "resize", "m", json!({})).expect("resized");
    bench.reboot(&["d1", "d0"]);
    bench.up();
    assert_eq!(size(&bench), DISK + MORE - SECTOR, "{}", bench.life.dump_state());
    assert_eq!(bench.state("d1"), "ACTIVE", "{}", bench.life.dump_state());
    agree(&bench);
}

/// Cores that run between an event and the graph that it changes know a larger disk later than the
/// mirror does. A record written at once would be beyond the end that they know.
#[test]
fn a_growing_member_stays_active_before_the_cores_see_its_size() {
    for extra in [json!({}), json!({ "region": 8192 })] {
        let mut bench = Bench::with(2, extra);
        bench.life.overtake(1);
        bench.fill(1, false);
        for more in 1..=20 {
            for (name, disk) in bench.disks.clone() {
                let bytes = disk.grow(more * SECTOR);
                bench.life.resized(&name, bytes);
            }
            bench.life.pass(20 * MS);
            for name in ["d0", "d1"] {
                assert_eq!(bench.state(name), "ACTIVE", "{more}\n{}", bench.life.dump_state());
            }
        }
    }
}
