//! Slow requests through a stack of classes in simulated time: limit over stripe over two disks of
//! different speed.

use std::sync::{Arc, Mutex};

use bio::{Bio, Errno, Flags, Op, Origin};
use geom::{Core, Create, Flow, Layer, ProviderId, SlowRequests};
use serde_json::{Value, json};
use testkit::disk::{Disk, Provider};

use crate::sched::lab::Lab;
use crate::sched::leaf::{BLOCK, FLASH, MS};

/// A disk that notes when it received and ended its requests.
struct Clocked {
    disk: Arc<Disk>,
    delay_ns: u64,
    starts: Mutex<Vec<u64>>,
    ends: Mutex<Vec<u64>>,
}

impl Clocked {
    fn new(delay_ns: u64) -> Arc<Clocked> {
        let (starts, ends) = (Mutex::default(), Mutex::default());
        Arc::new(Clocked { disk: Disk::new(1 << 20), delay_ns, starts, ends })
    }

    fn forget(&self) {
        self.starts.lock().expect("notes").clear();
        self.ends.lock().expect("notes").clear();
    }

    /// When a request was received and ended, by its number.
    fn times(&self, number: usize) -> (u64, u64) {
        let at = |notes: &Mutex<Vec<u64>>| notes.lock().expect("notes")[number];
        (at(&self.starts), at(&self.ends))
    }
}

impl Layer for Clocked {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        self.starts.lock().expect("notes").push(core.now());
        core.wake(bio.ticket(), self.delay_ns);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.ends.lock().expect("notes").push(core.now());
        self.disk.start(bio, core)
    }
}

/// Makes a geom; its provider.
fn make(lab: &mut Lab, class: &str, name: &str, on: &[ProviderId], params: Value) -> ProviderId {
    let made = lab.control.call(|t| {
        let class = t.class(class).expect("loaded");
        class.create(t, &Create { name, members: on, params: &params })
    });
    let geom = made.unwrap_or_else(|e| panic!("{class} {name}: {e}"));
    lab.control.topology.providers_of(geom)[0]
}

#[test]
fn slow_request_has_the_exact_times_of_every_layer() {
    let mut lab = Lab::new(1, 1, 1 << 20, FLASH);
    let (fast, slow) = (Clocked::new(4 * MS), Clocked::new(8 * MS));
    let members = [("a", &fast), ("b", &slow)].map(|(name, disk)| {
        testkit::disk::add(&mut lab.control, Provider::new(name, 1 << 20), disk.clone())
    });
    let stripe = make(&mut lab, "stripe", "st", &members, json!({ "strip": BLOCK }));
    let params = json!({ "iops": 100, "burst_ms": 0 });
    let limit = make(&mut lab, "limit", "l0", &[stripe], params);
    let name = lab.control.topology.provider_name(limit).to_owned();
    lab.user = lab.user_of("top", &name);
    // Requests of tasting do not count against the limit any more.
    lab.pass(200 * MS);
    fast.forget();
    slow.forget();
    let core = lab.cores[0].clone();
    assert_eq!(core.slow_requests(12 * MS, 1000 * MS), SlowRequests::default());
    let sent_ns = core.now();
    // The limit lets the first pass at once, and holds the second for 10 ms.
    lab.send(0, Op::Read, 0, 2, Flags::NONE, 7);
    lab.send(0, Op::Read, 0, 2, Flags::NONE, 8);
    lab.drain();
    let found = core.slow_requests(12 * MS, 1000 * MS);
    assert_eq!(found.missed, 0);
    // The first waits for the next step of simulated time, and may be slow as well.
    let second = found.requests.iter().find(|request| request.parts[0].origin == Origin(8));
    let parts = &second.unwrap_or_else(|| panic!("{found:?}")).parts;
    let geom = |edge| lab.control.topology.edge_names(edge).map(|names| names.geom.1);
    let geoms: Vec<_> = parts.iter().filter_map(|part| geom(part.edge)).collect();
    assert_eq!(geoms, ["l0", "st", "b", "a"]);
    let times: Vec<(u64, u64)> = parts.iter().map(|part| (part.start_ns, part.end_ns)).collect();
    let (a, b) = (fast.times(1), slow.times(1));
    assert_eq!(times, [(sent_ns, b.1), b, b, a], "all are those that the disks saw");
    assert!(b.0 - sent_ns >= 10 * MS && b.1 - b.0 >= 8 * MS, "{b:?}");
    assert!(parts.iter().all(|part| part.origin == Origin(8) && part.status.is_ok()));
    let lengths: Vec<u64> = parts.iter().map(|part| part.length).collect();
    assert_eq!(lengths, [2 * BLOCK, 2 * BLOCK, BLOCK, BLOCK]);
    let piece_of: Vec<_> = parts.iter().map(|part| part.parent).collect();
    let whole = Some(parts[0].request);
    assert_eq!(piece_of, [None, None, whole, whole]);
}
