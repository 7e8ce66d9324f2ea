//! Orphan, spoil and close in every order, against requests of two cores.
//!
//! The acts of a scene are done in each of their orders, and in each every run is made that differs
//! in up to so many choices from the undisturbed one. The choices are: whose turn it is, whether
//! the control thread is held up, whether a disk takes long, whether time passes between two acts.
//! See `reactor::sim::Orders`; `ASHLAR_INTERRUPTIONS=N` sets more.

use std::collections::BTreeSet;

use bio::{Errno, Flags, Op};
use geom::{Access, ConsumerId, Edge, Event, ProviderId};
use reactor::sim::Orders;

use crate::common::{Lab, Leaf, MS, Manner, Mode, SECOND, SECTOR, User};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// A request of the reader's, on this core.
    Read(usize),
    /// The disk is opened for writing, which spoils the layer below the reader.
    Spoil,
    /// The reader and the watcher leave.
    Close,
    /// The disk is lost, and its consumers are orphaned.
    Lose,
    /// The layer is withered.
    Wither,
}

/// A consumer of the disk until it is written.
const WATCHES: Manner = Manner { spoils: true, resizes: false, stays: false };

/// A reader on a slow layer that can be spoiled, on a disk; beside the layer a watcher.
struct Scene {
    lab: Lab,
    leaf: std::sync::Arc<Leaf>,
    disk: ProviderId,
    layer: ProviderId,
    reader: ConsumerId,
    watcher: ConsumerId,
    edge: Edge,
    /// The log at the time when the reader and the watcher left.
    left: Option<Vec<String>>,
    tags: Vec<u64>,
}

impl Scene {
    fn new() -> Scene {
        let mut lab = Lab::with_cores(1, 2);
        let leaf = Leaf::new(1 << 20);
        let disk = lab.disk("d0", &leaf);
        let layer = lab.pass_through("slow", disk, "waits spoils");
        let reader = lab.user("reader", layer, Manner::default());
        lab.open(reader, Access::READ).expect("open");
        let watcher = lab.user("watcher", disk, WATCHES);
        lab.open(watcher, Access::READ).expect("open");
        lab.logged();
        let edge = lab.edge(reader);
        Scene { lab, leaf, disk, layer, reader, watcher, edge, left: None, tags: Vec::new() }
    }

    fn act(&mut self, act: Act) {
        let t = &mut self.lab.control.topology;
        match act {
            Act::Read(core) => {
                let slow = self.lab.world.choose(2, false) == 1;
                self.leaf.set(Mode::After(if slow { MS } else { 2_000 }));
                let (edge, at) = (self.edge, core as u64 * SECTOR);
                self.tags.push(self.lab.send_on(core, edge, Op::Read, at, SECTOR, Flags::NONE));
            }
            Act::Spoil => {
                let (log, manner) = (self.lab.log.clone(), Manner::default());
                // It may be lost already.
                if let Ok(writer) = User::create(t, "writer", self.disk, manner, log) {
                    let _ = t.access(writer, Access::WRITE);
                }
            }
            Act::Close => {
                t.leave(self.reader);
                t.leave(self.watcher);
                self.left = Some(self.lab.log.lock().expect("log").clone());
            }
            Act::Lose => t.post(Event::Lost(self.disk, Errno::NxIo)),
            Act::Wither => {
                if let Some(geom) = t.geom_of(self.layer) {
                    t.wither_geom(geom, Errno::Io);
                }
            }
        }
    }

    /// All requests have ended, once, and only the expected objects are left.
    fn check(&mut self, acts: &[Act]) {
        self.lab.pass(2 * SECOND);
        self.lab.control.topology.check();
        for tag in &self.tags {
            let ended = self.lab.ended(*tag).unwrap_or_else(|| panic!("request {tag} never ends"));
            let gone = ended.status.is_err();
            let why = acts.iter().any(|a| !matches!(a, Act::Read(_)));
            assert!(why || !gone, "{:?}", ended.status);
        }
        let log = self.lab.logged();
        for who in ["reader ", "watcher ", "writer "] {
            let notices = |log: &[String]| log.iter().filter(|l| l.starts_with(who)).count();
            assert!(notices(&log) <= 1, "{who}was told more than once: {log:?}");
            if let Some(before) = self.left.as_ref().filter(|_| who != "writer ") {
                assert_eq!(notices(&log), notices(before), "{who}left and was told: {log:?}");
            }
        }
        let gone = acts.iter().any(|a| matches!(a, Act::Lose | Act::Spoil | Act::Wither));
        let views = self.lab.control.topology.view(0);
        let left = |class: &str| views.iter().filter(|g| g.class == class).count();
        assert_eq!(left("shim") == 0, gone, "the layer: {log:?}");
        assert_eq!(left("test"), 1, "the disk's geom outlives its provider");
        let lost = acts.contains(&Act::Lose);
        let writes = acts.contains(&Act::Spoil) && !lost;
        let reads = i32::from(!gone && self.left.is_none());
        let watches = i32::from(!lost && !writes && self.left.is_none());
        let opens = Access { r: reads + watches, ..Access::NONE };
        let opens = if writes { opens.plus(Access::WRITE) } else { opens };
        assert_eq!(*self.leaf.opens.lock().expect("opens"), opens, "{log:?}");
        self.lab.assert_empty();
    }
}

/// All orders of the acts, and of the events between them.
fn all_orders(what: &str, acts: &[Act], interruptions: usize, least: u64) {
    let asked = std::env::var("ASHLAR_INTERRUPTIONS").ok().and_then(|n| n.parse().ok());
    let mut orders = Orders::new(asked.unwrap_or(interruptions));
    let mut all_notices = BTreeSet::new();
    while orders.begin() {
        let mut scene = Scene::new();
        scene.lab.world.explore(orders);
        let mut left = acts.to_vec();
        let mut done = Vec::new();
        while !left.is_empty() {
            let act = left.remove(scene.lab.world.choose(left.len(), true));
            done.push(act);
            scene.act(act);
            if scene.lab.world.choose(2, false) == 1 {
                scene.lab.pass(60_000);
            }
        }
        let run = scene.lab.world.explored().expect("explored");
        all_notices.extend(scene.lab.log.lock().expect("log").iter().cloned());
        scene.check(&done);
        orders = run;
    }
    println!("{what}: all {} runs; told: {all_notices:?}", orders.runs());
    assert!(orders.runs() >= least || asked.is_some(), "{what}: {} runs", orders.runs());
}

#[test]
fn spoil_and_close_are_safe_in_every_order() {
    all_orders("spoil, close", &[Act::Read(0), Act::Read(1), Act::Spoil, Act::Close], 3, 4_000);
}

#[test]
fn disk_loss_and_close_are_safe_in_every_order() {
    all_orders("lose, close", &[Act::Read(0), Act::Read(1), Act::Lose, Act::Close], 3, 4_000);
}

#[test]
fn disk_loss_and_spoil_are_safe_in_every_order() {
    all_orders("lose, spoil", &[Act::Read(0), Act::Read(1), Act::Lose, Act::Spoil], 3, 4_000);
}

#[test]
fn wither_disk_loss_spoil_and_close_are_safe_in_every_order() {
    let acts = [Act::Read(1), Act::Lose, Act::Spoil, Act::Close, Act::Wither];
    all_orders("everything", &acts, 2, 6_000);
}
