//! Common parts of tests in every order: two cores and a control thread, disks whose requests may
//! take long, two users, and the search through all orders.
//!
//! Choices: the next one of the ready cores, whether the control thread is held up, whether a
//! disk's request takes long. All runs with at most so many deviations from the undisturbed run are
//! made (`reactor::sim::Orders`); `ASHLAR_INTERRUPTIONS=N` sets another number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::Op;
use geom::{Access, Edge};
use reactor::sim::Orders;

use super::disk::{Disk, LATENCY, SECTOR};
use super::life::Life;
use super::model::Model;
use super::users::Crowd;

/// A request of a disk: usually, and when it is held up, ns.
pub const QUICK_NS: u64 = 2_000;
const HELD_UP_NS: u64 = 400_000;

/// Something on disks in one run, open.
pub struct Scene {
    pub life: Life,
    pub disks: BTreeMap<String, Disk>,
    pub crowd: Rc<Crowd>,
    edge: Edge,
}

impl Drop for Scene {
    fn drop(&mut self) {
        LATENCY.with(|l| l.borrow_mut().take());
    }
}

impl Scene {
    /// `count` disks `d0`, `d1` ... of so many bytes; `label` makes a provider of them, and returns
    /// its name.
    pub fn new(count: u64, bytes: u64, label: impl FnOnce(&mut Life) -> String) -> Scene {
        let disk = |i: u64| (format!("d{i}"), Disk::new(bytes, i));
        let disks: BTreeMap<String, Disk> = (0..count).map(disk).collect();
        let mut life = Life::new(1, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let provider = label(&mut life);
        let (_, edge) = life.open(&provider, Access::WRITE).expect("open");
        let on = life.control.topology.find(&provider).expect("a provider");
        let size = life.control.topology.limits(on).expect("limits").media_bytes;
        let model = Rc::new(RefCell::new(Model::new(size / SECTOR)));
        let crowd = Crowd::new(model, false);
        Scene { life, disks, crowd, edge }
    }

    /// From here on the choices determine the order.
    pub fn explore(&self, orders: Orders) {
        self.life.world.explore(orders);
        let world = self.life.world.clone();
        let latency = move || if world.choose(2, false) == 0 { QUICK_NS } else { HELD_UP_NS };
        LATENCY.with(|l| *l.borrow_mut() = Some(Box::new(latency)));
    }

    /// Users that write concurrently, and read their data back: core, first sector, sectors.
    pub fn users(&self, all: &[(usize, u64, u64)]) {
        for (core, first, count) in all.iter().copied() {
            let (crowd, own) = (self.crowd.clone(), self.life.cores[core].clone());
            let edge = self.edge;
            crowd.running.set(crowd.running.get() + 1);
            self.life.cores[core].reactor().spawn("user", async move {
                crowd.write(&own, edge, first, count, Op::Write, false).await;
                crowd.read(&own, edge, first, count).await;
                crowd.flush(&own, edge).await;
                crowd.running.set(crowd.running.get() - 1);
            });
        }
    }

    /// The users have ended, well.
    pub fn served(&mut self) {
        let crowd = self.crowd.clone();
        let ended = self.life.until(60, move |_| crowd.running.get() == 0);
        assert!(ended, "a request never ends\n{}", self.life.dump_state());
        assert_eq!(*self.crowd.fault.borrow(), None, "{}", self.life.dump_state());
        assert_eq!(self.crowd.failed.get(), 0, "a request failed, and a good member was there");
    }

    /// Back to chance; gives the orders for the next run.
    pub fn over(&self) -> Orders {
        LATENCY.with(|l| l.borrow_mut().take());
        self.life.world.explored().expect("it was explored")
    }

    /// All of it, as a reader finds it: and it is right.
    pub fn all(&mut self) -> Vec<u8> {
        let bytes = self.crowd.model.borrow().sectors() * SECTOR;
        let read = self.life.read(self.edge, 0, bytes as usize).expect("read");
        let mark = self.crowd.model.borrow_mut().look(0, bytes / SECTOR);
        assert_eq!(self.crowd.model.borrow_mut().read(&mark, &read), Ok(()));
        self.crowd.model.borrow_mut().looked();
        read
    }
}

/// Runs a scene in all orders; there are at least `least`.
pub fn all_orders(what: &str, interruptions: usize, least: u64, scene: impl Fn(Orders) -> Orders) {
    let interruptions_override =
        std::env::var("ASHLAR_INTERRUPTIONS").ok().and_then(|n| n.parse().ok());
    let mut orders = Orders::new(interruptions_override.unwrap_or(interruptions));
    while orders.begin() {
        orders = scene(orders);
    }
    println!("{what}: all {} runs", orders.runs());
    assert!(
        orders.runs() >= least || interruptions_override.is_some(),
        "{what}: {} runs",
        orders.runs()
    );
}
