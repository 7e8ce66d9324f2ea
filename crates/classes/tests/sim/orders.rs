//! Rebuild, loss and verdicts against user I/O in every order, not in sampled ones: the mirror's
//! own code on two cores and a control thread.
//!
//! Choices: whose turn it is among the cores that are ready, whether the control thread is held up,
//! whether a disk's request takes long. All runs with at most so many deviations from the
//! undisturbed run are made (`reactor::sim::Orders`); `ASHLAR_INTERRUPTIONS=N` asks for more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::{Errno, Op};
use geom::{Access, Edge};
use reactor::sim::Orders;
use serde_json::json;

use super::disk::{Disk, LATENCY, SECTOR};
use super::life::{Life, MS};
use super::model::Model;
use super::users::Crowd;

/// Three slabs and the record's sector: what is rebuilt, in steps of 4 KiB.
const DISK: u64 = (12 << 10) + SECTOR;
/// A request of a disk: usually, and when it is held up, ns.
const QUICK_NS: u64 = 2_000;
const HELD_UP_NS: u64 = 400_000;

/// A mirror in one run.
struct Scene {
    life: Life,
    disks: BTreeMap<String, Disk>,
    crowd: Rc<Crowd>,
    edge: Edge,
}

impl Drop for Scene {
    fn drop(&mut self) {
        LATENCY.with(|l| l.borrow_mut().take());
    }
}

impl Scene {
    /// A mirror of these disks, open; `d0` to `d2` are plugged in.
    fn new(members: &[&str]) -> Scene {
        let disk = |i: u64| (format!("d{i}"), Disk::new(DISK, i));
        let disks: BTreeMap<String, Disk> = (0..3).map(disk).collect();
        let mut life = Life::new(1, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let with = json!({ "members": members, "assume_same": true, "balance": "round-robin" });
        life.verb("mirror", "label", "m", with).expect("labelled");
        let (_, edge) = life.open("mirror/m", Access::WRITE).expect("open");
        let on = life.control.topology.find("mirror/m").expect("a mirror");
        let size = life.control.topology.limits(on).expect("limits").media_bytes;
        let crowd = Rc::new(Crowd {
            model: Rc::new(RefCell::new(Model::new(size / SECTOR))),
            running: Cell::new(0),
            fault: RefCell::new(None),
            ended: Cell::new(0),
            failed: Cell::new(0),
            deletes: Cell::new(false),
        });
        Scene { life, disks, crowd, edge }
    }

    /// From here on the choices say what happens.
    fn explore(&self, orders: Orders) {
        self.life.world.explore(orders);
        let world = self.life.world.clone();
        let latency = move || if world.choose(2, false) == 0 { QUICK_NS } else { HELD_UP_NS };
        LATENCY.with(|l| *l.borrow_mut() = Some(Box::new(latency)));
    }

    /// Two who write beside each other, across the borders of slabs, and read what they wrote.
    fn users(&self) {
        for (core, first) in [(0, 5), (1, 13)] {
            let (crowd, own) = (self.crowd.clone(), self.life.cores[core].clone());
            let edge = self.edge;
            crowd.running.set(crowd.running.get() + 1);
            self.life.cores[core].reactor().spawn("user", async move {
                crowd.write(&own, edge, first, 6, Op::Write, false).await;
                crowd.read(&own, edge, first, 6).await;
                crowd.flush(&own, edge).await;
                crowd.running.set(crowd.running.get() - 1);
            });
        }
    }

    fn state(&self, disk: &str) -> String {
        let members = self.life.members("m");
        members.into_iter().find(|(name, ..)| name == disk).map_or("-".into(), |(_, s, _)| s)
    }

    /// The users have ended, well.
    fn served(&mut self) {
        let crowd = self.crowd.clone();
        let ended = self.life.until(60, move |_| crowd.running.get() == 0);
        assert!(ended, "a request never ends\n{}", self.life.story());
        assert_eq!(*self.crowd.fault.borrow(), None);
        assert_eq!(self.crowd.failed.get(), 0, "a request failed, and a good member was there");
    }

    /// Back to chance; gives the orders for the next run.
    fn over(&self) -> Orders {
        LATENCY.with(|l| l.borrow_mut().take());
        self.life.world.explored().expect("it was explored")
    }

    fn becomes(&mut self, disk: &str, state: &str) {
        for _ in 0..3_000 {
            if self.state(disk) == state {
                return;
            }
            self.life.pass(MS);
        }
        panic!("{disk} never becomes {state}\n{}", self.life.story());
    }

    /// Without the disk all is there; back to chance, the disk comes again and is filled.
    fn comes_back(&mut self, name: &str, disk: &Disk) -> Orders {
        let orders = self.over();
        self.holds(&["d0"]);
        self.life.plug_soon(name, disk);
        self.becomes(name, "ACTIVE");
        self.holds(&["d0", name]);
        orders
    }

    /// What a reader finds is right, and these members have it all.
    fn holds(&mut self, members: &[&str]) {
        let bytes = self.crowd.model.borrow().sectors() * SECTOR;
        let read = self.life.read(self.edge, 0, bytes as usize).expect("read");
        let mark = self.crowd.model.borrow_mut().look(0, bytes / SECTOR);
        assert_eq!(self.crowd.model.borrow_mut().read(&mark, &read), Ok(()));
        self.crowd.model.borrow_mut().looked();
        for name in members {
            assert!(self.disks[*name].bytes(0, bytes as usize) == read, "{name} differs");
        }
    }
}

/// Runs a scene in all orders; there are at least `least`.
fn all_orders(what: &str, interruptions: usize, least: u64, scene: impl Fn(Orders) -> Orders) {
    let asked = std::env::var("ASHLAR_INTERRUPTIONS").ok().and_then(|n| n.parse().ok());
    let mut orders = Orders::new(asked.unwrap_or(interruptions));
    while orders.begin() {
        orders = scene(orders);
    }
    println!("{what}: all {} runs", orders.runs());
    assert!(orders.runs() >= least || asked.is_some(), "{what}: {} runs", orders.runs());
}

#[test]
fn a_rebuild_against_writes() {
    all_orders("rebuild", 2, 5_000, |orders| {
        let mut scene = Scene::new(&["d0"]);
        scene.explore(orders);
        scene.users();
        scene.life.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
        scene.served();
        scene.becomes("d1", "ACTIVE");
        let orders = scene.over();
        scene.holds(&["d0", "d1"]);
        orders
    });
}

#[test]
fn a_member_that_is_pulled_during_writes() {
    all_orders("pulled", 3, 1_500, |orders| {
        let mut scene = Scene::new(&["d0", "d1"]);
        scene.explore(orders);
        scene.users();
        scene.life.pass(QUICK_NS);
        let disk = scene.disks["d1"].clone();
        scene.life.pull("d1", &disk, false);
        scene.served();
        scene.comes_back("d1", &disk)
    });
}

#[test]
fn a_member_that_fails_a_write_of_two() {
    all_orders("failed", 2, 500, |orders| {
        let mut scene = Scene::new(&["d0", "d1"]);
        scene.explore(orders);
        scene.disks["d1"].lock().once = Some((Op::Write, Errno::Io));
        scene.users();
        scene.served();
        let orders = scene.over();
        // It was the one that marks the member dirty, or a write of data.
        scene.becomes("d1", "-");
        scene.holds(&["d0"]);
        orders
    });
}

#[test]
fn a_member_that_is_lost_during_its_rebuild() {
    all_orders("lost", 2, 4_000, |orders| {
        let mut scene = Scene::new(&["d0"]);
        scene.explore(orders);
        scene.users();
        scene.life.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
        scene.life.pass(10 * QUICK_NS);
        let disk = scene.disks["d1"].clone();
        scene.life.pull("d1", &disk, false);
        scene.served();
        scene.comes_back("d1", &disk)
    });
}
