//! Allocations of a READ or WRITE by the AoE initiator, from the graph to a real interface and
//! back: none. A cable (veth) has the initiator at one end and a target at the other. Needs root. A
//! binary of its own, because its allocator counts.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bio::{Bio, CountingAlloc, End, Errno, Op, Pool, PoolConfig, Segs};
use cam::{CAM_CLASS, CamClass};
use geom::{Access, Core, Edge, GraphControl, Inbox, Sink};
use reactor::{Config, Reactor, WaitFor};
use serde_json::json;
use testkit::aoe::{Shelf, Ways};
use testkit::cable::Cable;

#[global_allocator]
static COUNTED: CountingAlloc = CountingAlloc;

/// Requests of a turn.
const REQUESTS: u64 = 3000;
/// Requests in flight.
const DEPTH: u64 = 24;
/// Allocations of a turn, at most: a hundredth of one a request, for what happens once a second.
const FEW: u64 = REQUESTS / 100;
/// Turns until one allocates nothing.
const TURNS_MAX: usize = 5;
/// Longer than anything here takes.
const HANG: Duration = Duration::from_secs(60);
/// Longest sleep of a core, ns.
const NAP_NS: u64 = 1_000_000;
/// Sectors of the disk.
const SECTORS: u64 = 4096;

fn core() -> (Rc<Core>, geom::GraphControl, Arc<Inbox>) {
    let reactor = Reactor::start(Config { name: "core".into(), ..Config::default() }).unwrap();
    let inbox = Arc::new(Inbox::default());
    let pool = Pool::new(PoolConfig { limit_bytes: 16 << 20 });
    let (core, mailer) = Core::new(0, reactor.clone(), pool, inbox.report());
    let turning = core.clone();
    let control = GraphControl::new(
        vec![mailer],
        inbox.clone(),
        Box::new(move |_, _| turning.turn(WaitFor::Peek)),
        Box::new(move || reactor.fresh_now()),
    );
    (core, control, inbox)
}

/// A turn that may sleep a little.
fn nap(core: &Rc<Core>) {
    core.turn(WaitFor::Until(core.reactor().fresh_now() + NAP_NS));
}

/// A target at an interface, on its own thread, so that its allocations are not counted here.
struct Target {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    fn start(interface: String) -> Target {
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let (tell, opened) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (core, _control, _) = core();
            let ways = Ways { buffers: 64, ..Ways::default() };
            let _shelf = Shelf::start(&core, &[&interface], SECTORS as usize, 1, ways);
            tell.send(()).unwrap();
            while !stop.load(Ordering::Acquire) {
                nap(&core);
            }
        });
        // It is rarely queried.
        opened.recv().unwrap();
        Target { over, thread: Some(thread) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[derive(Default)]
struct Ends {
    ended: Cell<u64>,
    failed: Cell<Option<Errno>>,
}

impl Sink for Ends {
    fn done(&self, _: u64, bio: &mut Bio, _: &Core) {
        self.ended.set(self.ended.get() + 1);
        self.failed.set(self.failed.get().or(bio.status.err()));
    }
}

struct Initiator {
    core: Rc<Core>,
    control: GraphControl,
    cam: Arc<CamClass>,
    edge: Edge,
    ends: Rc<Ends>,
    sink: u32,
}

impl Initiator {
    fn new(interface: &str) -> Initiator {
        let (core, mut control, inbox) = core();
        let cam = Arc::new(CamClass::new(inbox, cam::sims::kinds(), 1));
        control.topology.load(cam.clone()).unwrap();
        let params = json!({ "interfaces": [interface], "frame_life_ms": 100 });
        let params = json!({ "kind": "aoe", "params": params });
        let class = control.topology.class(CAM_CLASS).unwrap();
        class.verb(&mut control, "attach", "aoe0", &params).unwrap();
        let begun = Instant::now();
        while control.topology.find("ada0").is_none() {
            assert!(begun.elapsed() < HANG, "no disk was found");
            nap(&core);
            control.pump();
            cam.take_update_results(&mut control)
                .into_iter()
                .for_each(|(_, done)| drop(done.unwrap()));
        }
        let (_, edge) = testkit::user::open(&mut control, "ada0", Access::WRITE).unwrap();
        let ends = Rc::new(Ends::default());
        let sink = core.add_sink(ends.clone());
        Initiator { core, control, cam, edge, ends, sink }
    }

    /// Makes requests; how often this thread allocated.
    fn turn(&mut self, op: Op, buffers: &[Segs], requests: u64) -> u64 {
        self.ends.ended.set(0);
        let (begun, before, mut sent) = (Instant::now(), bio::allocations(), 0u64);
        while self.ends.ended.get() < requests {
            assert!(begun.elapsed() < HANG, "requests do not end");
            while sent < requests && sent - self.ends.ended.get() < DEPTH {
                let data = &buffers[(sent % DEPTH) as usize];
                let len = data.len() as u64;
                let end = End::Sink { sink: self.sink, tag: sent };
                self.core.submit(self.edge, end, |bio| {
                    (bio.op, bio.length) = (op, len);
                    // No two that overlap at once: those would wait for each other.
                    bio.offset = sent % DEPTH * 64 * 1024;
                    assert!(data.slice_into(0, len as usize, &mut bio.data));
                });
                sent += 1;
            }
            nap(&self.core);
            self.control.pump();
        }
        assert_eq!(self.ends.failed.get(), None);
        bio::allocations() - before
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let cable = Cable::create("9000");
    let [near, far] = &cable.ends;
    let _target = Target::start(far.clone());
    let mut initiator = Initiator::new(near);
    assert!(bio::allocations() > 0, "allocations are not counted");
    // One frame a request, and several.
    for len in [4096, 8704, 48 * 1024] {
        let buffers: Vec<Segs> = (0..DEPTH)
            .map(|_| {
                let data = Segs::alloc(initiator.core.pool(), len).unwrap();
                data.fill(0, len, 0x5A);
                data
            })
            .collect();
        for op in [Op::Write, Op::Read] {
            // Lists grow to their size; on a busy machine some grow late.
            let mut made = Vec::new();
            while made.len() < TURNS_MAX && made.last().is_none_or(|made| *made > FEW) {
                made.push(initiator.turn(op, &buffers, REQUESTS));
            }
            let enough = made.last().is_some_and(|made| *made <= FEW);
            assert!(enough, "{op:?} of {len}: {made:?} allocations in {REQUESTS} requests each");
        }
    }
    initiator.cam.shut_down();
    nap(&initiator.core);
}
