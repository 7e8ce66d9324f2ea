//! Insert, change, take out: in every order against requests of two cores.
//!
//! Every run is made that differs in up to so many choices from the undisturbed one. The choices
//! are: whose turn it is, whether the control thread is held up, whether the disk takes long,
//! whether time passes between two acts. See `reactor::sim::Orders`; `ASHLAR_INTERRUPTIONS=N` sets
//! more.

use std::collections::BTreeMap;

use bio::{Flags, Op};
use reactor::model::Timing;
use reactor::sim::Orders;
use serde_json::{Value, json};

use super::lab::{Lab, pattern};
use super::leaf::BLOCK;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// A write of a core's block, and a read behind it.
    Use(usize),
    /// A flush that is a fence.
    Fence(usize),
    Insert,
    Change,
    Destroy,
}

struct Scene {
    lab: Lab,
    wrote: BTreeMap<usize, u64>,
    /// Reads, and the write that each is to find.
    reads: Vec<(usize, u64, u64)>,
    sent: usize,
}

impl Scene {
    fn new(algorithm: &str, inserted: bool) -> Scene {
        let timing = Timing::Between { min_ns: 3_000, max_ns: 3_000 };
        let mut lab = Lab::new(1, 2, 1 << 20, timing);
        if inserted {
            lab.insert(algorithm);
        }
        Scene { lab, wrote: BTreeMap::new(), reads: Vec::new(), sent: 0 }
    }

    fn act(&mut self, act: Act, algorithm: &str) {
        match act {
            Act::Use(core) => {
                let block = core as u64 * 10;
                let write = self.lab.send(core, Op::Write, block, 1, Flags::NONE, core as u32);
                self.wrote.insert(core, write);
                let read = self.lab.send(core, Op::Read, block, 1, Flags::NONE, core as u32);
                self.reads.push((core, read, write));
                self.sent += 2;
            }
            Act::Fence(core) => {
                self.lab.send(core, Op::Flush, 0, 0, Flags::ORDERED, core as u32);
                self.sent += 1;
            }
            Act::Insert => self.lab.insert(algorithm),
            Act::Change => {
                let done = self.lab.verb("configure", "d0", json!({ "algorithm": "fair" }));
                done.expect("configured");
            }
            Act::Destroy => {
                self.lab.verb("destroy", "d0.sched.", Value::Null).expect("taken out");
            }
        }
    }

    fn check(&mut self) {
        self.lab.drain();
        let all = self.lab.ends.all.borrow();
        assert_eq!(all.len(), self.sent, "each ends, once");
        assert!(all.values().all(|(status, _)| status.is_ok()));
        assert_eq!(self.lab.leaf.lock().fault, None);
        assert_eq!(self.lab.leaf.lock().seen, self.sent as u64, "each reached the disk once");
        for (core, read, write) in &self.reads {
            assert!(all[&(*core as u32, *read)].1 == pattern(*write, BLOCK), "read {read}");
        }
        drop(all);
        self.lab.control.topology.check();
        let (t, user) = (&self.lab.control.topology, self.lab.user);
        assert_eq!(t.below(user), t.find("d0"), "it stands on what has the name");
    }
}

/// Acts of an operator, in their order, among those of users in every order; `inserted`: with a
/// scheduler there from the start.
fn all_orders(
    (algorithm, inserted): (&str, bool),
    operator: &[Act],
    users: &[Act],
    (interruptions, least): (usize, u64),
) {
    let interruptions_override =
        std::env::var("ASHLAR_INTERRUPTIONS").ok().and_then(|n| n.parse().ok());
    let mut orders = Orders::new(interruptions_override.unwrap_or(interruptions));
    while orders.begin() {
        let mut scene = Scene::new(algorithm, inserted);
        scene.lab.world.explore(orders);
        let (mut operator, mut users) = (operator.to_vec(), users.to_vec());
        while !(operator.is_empty() && users.is_empty()) {
            let ways = users.len() + usize::from(!operator.is_empty());
            let way = scene.lab.world.choose(ways, true);
            let act = match users.get(way) {
                Some(_) => users.remove(way),
                None => operator.remove(0),
            };
            scene.act(act, algorithm);
            if scene.lab.world.choose(2, false) == 1 {
                scene.lab.pass(5_000);
            }
        }
        orders = scene.lab.world.explored().expect("the orders");
        scene.check();
    }
    println!("{algorithm} {operator:?} {users:?}: {} runs", orders.runs());
    assert!(orders.runs() >= least, "{} runs", orders.runs());
}

/// The number of interruptions, and the fewest runs that they make: two interruptions, which take
/// ten times as many runs, only where the algorithm that holds requests back and waits for idle
/// clients is inserted and removed.
const TWICE: (usize, u64) = (2, 5_000);
const ONCE: (usize, u64) = (1, 300);

#[test]
fn a_scheduler_is_inserted_and_removed_under_requests_of_two_cores() {
    use Act::*;
    for (algorithm, most) in [("rr", TWICE), ("as", ONCE), ("fifo", ONCE)] {
        let users = [Use(0), Use(1), Fence(0)];
        all_orders((algorithm, false), &[Insert, Destroy], &users, most);
    }
}

#[test]
fn an_algorithm_is_changed_and_removed_under_requests_of_two_cores() {
    use Act::*;
    for (algorithm, most) in [("rr", ONCE), ("deadline", ONCE)] {
        let users = [Use(0), Use(1), Fence(1)];
        all_orders((algorithm, true), &[Change, Destroy], &users, most);
    }
}
