//! A mirror's rebuild, losses and decisions on failed writes against user I/O in every order, not
//! in sampled ones: its own code on two cores and a control thread (see `scene`).

use bio::{Errno, Op};
use reactor::sim::Orders;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::MS;
use super::scene::{QUICK_NS, Scene, all_orders};

/// Three slabs and the record's sector: the rebuilt data, in steps of 4 KiB.
const DISK: u64 = (12 << 10) + SECTOR;

/// Across the borders of slabs.
const USERS: &[(usize, u64, u64)] = &[(0, 5, 6), (1, 13, 6)];

/// A mirror of these disks, open; `d0` to `d2` are plugged in.
fn mirror(members: &[&str]) -> Scene {
    Scene::new(3, DISK, |life| {
        let with = json!({ "members": members, "assume_same": true, "balance": "round-robin" });
        life.verb("mirror", "label", "m", with).expect("labelled");
        "mirror/m".to_owned()
    })
}

impl Scene {
    fn state(&self, disk: &str) -> String {
        let members = self.life.members("m");
        members.into_iter().find(|(name, ..)| name == disk).map_or("-".into(), |(_, s, _)| s)
    }

    fn becomes(&mut self, disk: &str, state: &str) {
        for _ in 0..3_000 {
            if self.state(disk) == state {
                return;
            }
            self.life.pass(MS);
        }
        panic!("{disk} never becomes {state}\n{}", self.life.dump_state());
    }

    /// Without the disk all is there; with random choices again, the disk returns and is filled.
    fn replug_and_refill(&mut self, name: &str, disk: &Disk) -> Orders {
        let orders = self.over();
        self.holds(&["d0"]);
        self.life.plug_soon(name, disk);
        self.becomes(name, "ACTIVE");
        self.holds(&["d0", name]);
        orders
    }

    /// Checks that a reader finds the right data, and that these members have all of it.
    fn holds(&mut self, members: &[&str]) {
        let read = self.all();
        for name in members {
            assert!(self.disks[*name].bytes(0, read.len()) == read, "{name} differs");
        }
    }
}

/// L7 of mirror/layer.rs.
#[test]
fn members_agree_after_a_rebuild_during_writes() {
    all_orders("rebuild", 2, 5_000, |orders| {
        let mut scene = mirror(&["d0"]);
        scene.explore(orders);
        scene.users(USERS);
        scene.life.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
        scene.served();
        scene.becomes("d1", "ACTIVE");
        let orders = scene.over();
        scene.holds(&["d0", "d1"]);
        orders
    });
}

#[test]
fn a_member_pulled_during_writes_agrees_after_its_return() {
    all_orders("pulled", 3, 1_500, |orders| {
        let mut scene = mirror(&["d0", "d1"]);
        scene.explore(orders);
        scene.users(USERS);
        scene.life.pass(QUICK_NS);
        let disk = scene.disks["d1"].clone();
        scene.life.pull("d1", &disk, false);
        scene.served();
        scene.replug_and_refill("d1", &disk)
    });
}

/// V1 of mirror/shared.rs.
#[test]
fn a_member_that_fails_one_of_two_writes_is_dropped() {
    all_orders("failed", 2, 500, |orders| {
        let mut scene = mirror(&["d0", "d1"]);
        scene.explore(orders);
        scene.disks["d1"].lock().once = Some((Op::Write, Errno::Io));
        scene.users(USERS);
        scene.served();
        let orders = scene.over();
        // It was the one that marks the member dirty, or a write of data.
        scene.becomes("d1", "-");
        scene.holds(&["d0"]);
        orders
    });
}

#[test]
fn a_member_lost_during_its_rebuild_agrees_after_its_return() {
    all_orders("lost", 2, 4_000, |orders| {
        let mut scene = mirror(&["d0"]);
        scene.explore(orders);
        scene.users(USERS);
        scene.life.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
        scene.life.pass(10 * QUICK_NS);
        let disk = scene.disks["d1"].clone();
        scene.life.pull("d1", &disk, false);
        scene.served();
        scene.replug_and_refill("d1", &disk)
    });
}
