//! Rebuild, losses and decisions on failed writes of arrays against user I/O in every order: RAID5,
//! whose rows are read, changed and written, and RAID10 (see `scene`).

use bio::{Errno, Op};
use reactor::sim::Orders;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::MS;
use super::scene::{QUICK_NS, Scene, all_orders};

/// Two rows and the record.
const DISK: u64 = 8 << 10;
const STRIP: u64 = 2 * SECTOR;
const MEMBER: u64 = 2 * STRIP;

/// A level, its disks, and the writers.
#[derive(Clone, Copy)]
struct Kind {
    level: &'static str,
    disks: u64,
    users: &'static [(usize, u64, u64)],
}

/// Both users change the first row, in strips of their own and in one that they share; one of them
/// continues in the second.
const RAID5: Kind = Kind { level: "RAID5", disks: 3, users: &[(0, 1, 2), (1, 3, 3)] };

/// The second of two pairs is written by both.
const RAID10: Kind = Kind { level: "RAID10", disks: 4, users: &[(0, 1, 2), (1, 3, 3)] };

const LOST_DISK: &str = "d1";

struct Array {
    scene: Scene,
    set: String,
    kind: Kind,
}

impl Array {
    /// An array in order, open.
    fn new(kind: Kind) -> Array {
        let mut set = String::new();
        let scene = Scene::new(kind.disks, DISK, |life| {
            let members: Vec<String> = (0..kind.disks).map(|i| format!("d{i}")).collect();
            let with = json!({
                "format": "Intel", "level": kind.level, "members": members, "strip": STRIP,
                "size": MEMBER, "assume_same": true,
            });
            let answer = life.verb("raid", "label", "data", with).expect("labelled");
            set = answer["array"].as_str().expect("a name").to_owned();
            answer["provider"].as_str().expect("a name").to_owned()
        });
        Array { scene, set, kind }
    }

    /// One whose disk was pulled, and that was written then.
    fn without_one(kind: Kind) -> (Array, Disk) {
        let mut array = Array::new(kind);
        let disk = array.pull();
        array.scene.users(&[(0, 0, 8)]);
        array.scene.served();
        array.scene.life.pass(50 * MS);
        (array, disk)
    }

    fn pull(&mut self) -> Disk {
        let disk = self.scene.disks[LOST_DISK].clone();
        self.scene.life.pull(LOST_DISK, &disk, false);
        disk
    }

    fn show(&self, key: &str) -> String {
        self.scene.life.show("raid", &self.set, key)
    }

    /// Nothing is missing, and no work is under way.
    fn in_order(&mut self) {
        for _ in 0..3_000 {
            let busy = ["rebuild", "synchronised", "dirty"];
            let line = self.show("Volume");
            if self.show("State") == "OPTIMAL" && !busy.iter().any(|word| line.contains(word)) {
                return;
            }
            self.scene.life.pass(10 * MS);
        }
        panic!("it is never in order\n{}", self.scene.life.dump_state());
    }

    /// Checks that a reader finds the right data; with `whole`, that parity and copies are right,
    /// too.
    fn holds(&mut self, whole: bool) {
        self.scene.all();
        if !whole {
            return;
        }
        let mut members = self.scene.disks.values().map(|disk| disk.bytes(0, MEMBER as usize));
        match self.kind.level {
            "RAID5" => {
                let mut sum = vec![0; MEMBER as usize];
                for bytes in members {
                    sum.iter_mut().zip(&bytes).for_each(|(sum, byte)| *sum ^= byte);
                }
                assert!(sum.iter().all(|byte| *byte == 0), "parity is wrong");
            }
            _ => {
                while let (Some(one), Some(other)) = (members.next(), members.next()) {
                    assert!(one == other, "copies differ");
                }
            }
        }
    }

    /// Without the disk all is there; with random choices again, the disk returns and is filled.
    fn replug_and_refill(&mut self, disk: &Disk) -> Orders {
        let orders = self.scene.over();
        self.holds(false);
        self.scene.life.plug_soon(LOST_DISK, disk);
        self.in_order();
        self.holds(true);
        orders
    }
}

fn rebuild_against_writes(kind: Kind, orders: Orders) -> Orders {
    let (mut array, disk) = Array::without_one(kind);
    array.scene.explore(orders);
    array.scene.life.plug_soon(LOST_DISK, &disk);
    array.scene.users(kind.users);
    array.scene.served();
    array.in_order();
    let orders = array.scene.over();
    array.holds(true);
    orders
}

fn pulled_during_writes(kind: Kind, orders: Orders) -> Orders {
    let mut array = Array::new(kind);
    array.scene.explore(orders);
    array.scene.users(kind.users);
    array.scene.life.pass(3 * QUICK_NS);
    let disk = array.pull();
    array.scene.served();
    array.replug_and_refill(&disk)
}

fn failed_write(kind: Kind, orders: Orders) -> Orders {
    let mut array = Array::new(kind);
    array.scene.explore(orders);
    array.scene.disks[LOST_DISK].lock().once = Some((Op::Write, Errno::Io));
    array.scene.users(kind.users);
    array.scene.served();
    let orders = array.scene.over();
    // A record's or a row's: either way it is not one of them any more.
    let out = |a: &Array| a.show("State") == "DEGRADED" && !a.show("Subdisks").contains(LOST_DISK);
    for _ in 0..3_000 {
        if out(&array) {
            break;
        }
        array.scene.life.pass(MS);
    }
    assert!(out(&array), "{LOST_DISK} stays\n{}", array.scene.life.dump_state());
    array.holds(false);
    orders
}

fn lost_during_its_rebuild(kind: Kind, orders: Orders) -> Orders {
    let (mut array, disk) = Array::without_one(kind);
    array.scene.explore(orders);
    array.scene.life.plug_soon(LOST_DISK, &disk);
    array.scene.users(kind.users);
    array.scene.life.pass(10 * QUICK_NS);
    array.pull();
    array.scene.served();
    array.replug_and_refill(&disk)
}

/// T2 of volume/shared.rs.
#[test]
fn raid5_members_agree_after_a_rebuild_during_writes() {
    all_orders("RAID5, rebuild", 2, 4_000, |orders| rebuild_against_writes(RAID5, orders));
}

#[test]
fn raid5_member_pulled_during_writes_agrees_after_its_return() {
    all_orders("RAID5, pulled", 2, 1_000, |orders| pulled_during_writes(RAID5, orders));
}

#[test]
fn raid5_member_that_fails_a_write_is_dropped() {
    all_orders("RAID5, failed", 2, 2_000, |orders| failed_write(RAID5, orders));
}

#[test]
fn raid5_member_lost_during_its_rebuild_agrees_after_its_return() {
    all_orders("RAID5, lost", 2, 800, |orders| lost_during_its_rebuild(RAID5, orders));
}

#[test]
fn raid10_members_agree_after_a_rebuild_during_writes() {
    all_orders("RAID10, rebuild", 1, 40, |orders| rebuild_against_writes(RAID10, orders));
}

#[test]
fn raid10_member_pulled_during_writes_agrees_after_its_return() {
    all_orders("RAID10, pulled", 1, 40, |orders| pulled_during_writes(RAID10, orders));
}

#[test]
fn raid10_member_that_fails_a_write_is_dropped() {
    all_orders("RAID10, failed", 1, 40, |orders| failed_write(RAID10, orders));
}

#[test]
fn raid10_member_lost_during_its_rebuild_agrees_after_its_return() {
    all_orders("RAID10, lost", 1, 40, |orders| lost_during_its_rebuild(RAID10, orders));
}
