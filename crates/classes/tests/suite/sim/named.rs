//! Data losses of gmirror (docs/reference/geom.md 5.2), each by name: on disks that outlive the
//! world they are in.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};

pub(super) const DISK: u64 = 64 << 10;

pub(super) struct Bench {
    pub(super) life: Life,
    pub(super) disks: BTreeMap<String, Disk>,
}

impl Bench {
    /// A mirror of so many disks, whole and clean.
    pub(super) fn of(count: usize) -> Bench {
        Bench::with(count, json!({}))
    }

    pub(super) fn with(count: usize, extra: serde_json::Value) -> Bench {
        let disks: BTreeMap<String, Disk> =
            (0..count).map(|i| (format!("d{i}"), Disk::new(DISK, i as u64))).collect();
        let mut life = Life::new(1, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let members: Vec<&String> = disks.keys().collect();
        let mut with = json!({ "members": members, "assume_same": true, "balance": "round-robin" });
        for (key, value) in extra.as_object().into_iter().flatten() {
            with[key] = value.clone();
        }
        life.verb("mirror", "label", "m", with).expect("labelled");
        Bench { life, disks }
    }

    /// The power fails; these return, in this order, and the world lives on for a while.
    pub(super) fn reboot(&mut self, order: &[&str]) {
        self.life = Life::new(2, 2);
        self.disks.values().for_each(Disk::power_cut);
        order.iter().for_each(|name| self.plug(name));
    }

    pub(super) fn plug(&mut self, name: &str) {
        self.life.plug(name, &self.disks[name]);
        self.life.pass(20 * MS);
    }

    pub(super) fn pull(&mut self, name: &str) {
        self.life.pull(name, &self.disks[name].clone(), false);
        self.life.pass(50 * MS);
    }

    /// Writes a sector everywhere, flushed, and leaves the mirror dirty (or cleans it).
    pub(super) fn fill(&mut self, value: u8, clean: bool) {
        let (user, edge) = self.life.open("mirror/m", Access::WRITE).expect("open");
        for at in 0..100 {
            let bytes = vec![value; SECTOR as usize];
            self.life.write(edge, at * SECTOR, bytes).expect("written");
        }
        self.life.flush(edge).expect("flushed");
        if clean {
            self.life.close(user);
            self.life.pass(100 * MS);
        }
    }

    /// Every sector from every member that may be read.
    pub(super) fn holds(&mut self, value: u8) {
        let (user, edge) = self.life.open("mirror/m", Access::READ).expect("open");
        for at in (0..100).flat_map(|at| [at; 3]) {
            let bytes = self.life.read(edge, at * SECTOR, SECTOR as usize).expect("read");
            assert!(bytes.iter().all(|b| *b == value), "sector {at}: {}", bytes[0]);
        }
        self.life.close(user);
    }

    pub(super) fn state(&self, disk: &str) -> String {
        let members = self.life.members("m");
        members.into_iter().find(|(name, ..)| name == disk).map_or("-".into(), |(_, s, _)| s)
    }

    pub(super) fn up(&mut self) {
        let up = self.life.until(8, |c| c.topology.find("mirror/m").is_some());
        assert!(up, "{}", self.life.dump_state());
        self.life.pass(500 * MS);
    }
}

/// A mirror of three was counted as complete although one of them was broken. The syncid did not
/// grow; a third, dirty member joined later without being rebuilt.
#[test]
fn r306743_a_broken_member_is_not_counted_for_a_missing_one() {
    let mut bench = Bench::of(3);
    bench.fill(1, true);
    bench.disks["d0"].lock().once = Some((Op::Write, Errno::Io));
    bench.fill(2, true);
    assert_eq!(bench.state("d0"), "-", "it failed");
    // The power fails in the middle of writes: d1 and d2 are dirty.
    bench.fill(2, false);
    bench.reboot(&["d0", "d1"]);
    bench.up();
    assert_eq!((bench.state("d0").as_str(), bench.state("d1").as_str()), ("-", "ACTIVE"));
    bench.fill(3, true);
    bench.plug("d2");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d2"), "ACTIVE", "rebuilt");
    bench.holds(3);
    // Alone it holds the data that was written while d0 and d1 were away.
    bench.reboot(&["d2"]);
    bench.up();
    bench.holds(3);
}

/// A mirror that was started by the timer took a late, dirty member with the same syncid in as
/// ACTIVE.
/// M5 of mirror/state/mod.rs, M7 of mirror/state/mod.rs.
#[test]
fn r317712_a_late_dirty_member_is_rebuilt_first() {
    let mut bench = Bench::of(2);
    bench.fill(1, false);
    // Not flushed on d1: the power cut leaves something else there.
    bench.reboot(&["d0"]);
    bench.up();
    bench.disks["d1"].put(5 * SECTOR, &[9; SECTOR as usize]);
    let before = bench.disks["d1"].lock().writes;
    bench.plug("d1");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d1"), "ACTIVE");
    assert!(bench.disks["d1"].lock().writes > before + 2, "it was copied to");
    bench.holds(1);
}

/// The stale member was tasted first, and the newer ones were refused because they did not match
/// its record.
/// M1 of mirror/state/mod.rs.
#[test]
fn r341665_a_stale_member_found_first_is_not_used() {
    for late in [false, true] {
        let mut bench = Bench::of(3);
        bench.fill(1, true);
        bench.pull("d0");
        bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
        bench.fill(2, true);
        bench.reboot(&["d0"]);
        if late {
            bench.life.pass(900 * MS);
        }
        bench.plug("d1");
        bench.plug("d2");
        bench.up();
        assert_eq!(bench.state("d1"), "ACTIVE", "{}", bench.life.dump_state());
        assert_eq!(bench.state("d2"), "ACTIVE");
        bench.holds(2);
        bench.pull("d1");
        bench.pull("d2");
        bench.life.pass(50 * MS);
        assert!(bench.disks["d0"].bytes(0, 512).iter().all(|b| *b == 2), "d0 was rebuilt");
    }
}

/// Of a mirror of mirrors one half is stale and whole, the other new and without a member. It waits
/// for that one, and the mirror above must wait for it.
#[test]
fn a_mirror_waits_for_the_newer_mirror_below_that_waits_for_a_member() {
    for stale_first in [true, false] {
        let disks: Vec<Disk> = (0..4).map(|i| Disk::new(DISK, i)).collect();
        let mut life = Life::new(3, 2);
        let plug = |life: &mut Life, i: usize| {
            life.plug(&format!("d{i}"), &disks[i]);
            life.pass(20 * MS);
        };
        (0..4).for_each(|i| plug(&mut life, i));
        for (name, members) in
            [("low0", ["d0", "d1"]), ("low1", ["d2", "d3"]), ("m", ["mirror/low0", "mirror/low1"])]
        {
            let with = json!({ "members": members, "assume_same": true });
            life.verb("mirror", "label", name, with).expect("labelled");
        }
        for i in [0, 1] {
            life.pull(&format!("d{i}"), &disks[i], false);
        }
        let (user, edge) = life.open("mirror/m", Access::WRITE).expect("open");
        life.write(edge, 0, vec![2; SECTOR as usize]).expect("written");
        life.close(user);
        life.pass(100 * MS);
        // Again, without d3.
        life = Life::new(4, 2);
        disks.iter().for_each(Disk::power_cut);
        let order = if stale_first { [0, 1, 2] } else { [2, 0, 1] };
        order.into_iter().for_each(|i| plug(&mut life, i));
        let up = life.until(20, |c| c.topology.find("mirror/m").is_some());
        assert!(up, "{}", life.dump_state());
        let (_, edge) = life.open("mirror/m", Access::READ).expect("open");
        let bytes = life.read(edge, 0, SECTOR as usize).expect("read");
        assert!(bytes.iter().all(|b| *b == 2), "{}", life.dump_state());
    }
}

/// With bitmaps a crash costs a copy of the regions being written, and no more; without, of all.
/// B1 of mirror/bitmap.rs, B3 of mirror/bitmap.rs, M2 of mirror/state/mod.rs,
/// M9 of mirror/state/mod.rs.
#[test]
fn after_a_crash_only_dirty_regions_are_copied() {
    let mut copied = Vec::new();
    for extra in [json!({ "region": 4096 }), json!({})] {
        let mut bench = Bench::with(2, extra);
        bench.fill(1, true);
        let (_, edge) = bench.life.open("mirror/m", Access::WRITE).expect("open");
        bench.life.write(edge, 40 * SECTOR, vec![1; SECTOR as usize]).expect("written");
        bench.reboot(&["d0", "d1"]);
        // The other member, which is not the master, differs where a write was under way.
        bench.disks["d0"].put(41 * SECTOR, &[9; SECTOR as usize]);
        let before = bench.disks["d0"].lock().writes;
        bench.up();
        bench.life.pass(500 * MS);
        assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
        copied.push(bench.disks["d0"].lock().writes - before);
        bench.holds(1);
        bench.pull("d1");
        bench.holds(1);
    }
    // Zeroes that the member has are not written, so the whole is less than all slabs.
    assert!(2 * copied[0] < copied[1], "{copied:?}");
}

/// A member that was away while others wrote is copied whole: bits are not kept for it.
#[test]
fn a_member_that_was_absent_is_copied_in_full_despite_bitmaps() {
    let mut bench = Bench::with(3, json!({ "region": 4096 }));
    bench.fill(1, true);
    bench.pull("d2");
    bench.fill(2, true);
    bench.fill(2, false);
    bench.reboot(&["d2", "d0", "d1"]);
    bench.up();
    bench.life.pass(500 * MS);
    bench.pull("d0");
    bench.pull("d1");
    assert_eq!(bench.state("d2"), "ACTIVE", "{}", bench.life.dump_state());
    bench.holds(2);
}

/// A member fails a write that only a member that has left by then has carried out. It stays, as
/// the last one; that is decided while the write is still under way elsewhere.
/// J4 of mirror/geom/mod.rs, L5 of mirror/layer.rs.
#[test]
fn a_write_done_only_by_a_removed_member_is_not_acknowledged() {
    let mut bench = Bench::of(3);
    bench.fill(1, false);
    let (_, edge) = bench.life.open("mirror/m", Access::WRITE).expect("open");
    let slow = ["d0", "d2"];
    slow.iter().for_each(|name| bench.disks[*name].lock().hangs = true);
    let status = Rc::new(Cell::new(None));
    let (own, report) = (bench.life.cores[0].clone(), status.clone());
    bench.life.cores[0].reactor().spawn("user", async move {
        report.set(Some(own.write(edge, 0, &[2; SECTOR as usize]).await));
    });
    bench.life.pass(MS);
    // d1 has done it; the others take only later requests.
    let [last, late] = slow.map(|name| bench.disks[name].release());
    assert!(status.get().is_none() && !last.is_empty() && !late.is_empty());
    bench.pull("d1");
    bench.pull("d2");
    assert_eq!(bench.state("d0"), "ACTIVE", "the last one");
    bench.disks["d0"].lock().once = Some((Op::Write, Errno::Io));
    bench.life.wake(last);
    bench.life.pass(50 * MS);
    assert_eq!(bench.state("d0"), "ACTIVE", "it stays");
    bench.life.wake(late);
    bench.life.pass(50 * MS);
    let ended = status.get().expect("it has ended");
    assert_eq!(bench.state("d0"), "ACTIVE", "it stays");
    let held = bench.life.read(edge, 0, SECTOR as usize).expect("read");
    assert_eq!(held[0], 1, "nobody who is left has it");
    assert_eq!(ended, Err(Errno::Io));
}

/// Its table is the mirror's too. If the mirror did not claim it, the disk would be partitioned
/// like the mirror. A geom on the mirror's partition could take the stale one (233699).
#[test]
fn a_member_that_a_verb_reads_during_its_taste_is_still_claimed() {
    let verbs = [
        ("activate", "m", json!({ "members": ["d1"] })),
        ("dump", "", json!({ "members": ["d1"] })),
    ];
    for (verb, on, with) in verbs {
        for late_us in (0..400).step_by(20) {
            let mut bench = Bench::of(2);
            for (verb, with) in
                [("create", json!({ "scheme": "bsd" })), ("add", json!({ "kind": "freebsd-ufs" }))]
            {
                bench.life.verb("part", verb, "mirror/m", with).expect("a table");
            }
            bench.pull("d1");
            bench.life.plug("d1", &bench.disks["d1"].clone());
            bench.life.pass(late_us * 1_000);
            let _ = bench.life.verb("mirror", verb, on, with.clone());
            bench.life.pass(100 * MS);
            let story = bench.life.dump_state();
            assert_eq!(bench.state("d1"), "ACTIVE", "{verb} after {late_us} us\n{story}");
            assert!(!bench.life.has("d1a"), "{verb} after {late_us} us\n{story}");
        }
    }
}
