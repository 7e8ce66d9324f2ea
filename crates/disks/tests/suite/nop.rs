//! The class nop: its injected faults, their frequency, and its insertion and removal under load.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, End, Errno, Op, Segs};
use classes::nop::Nop;
use geom::{Access, Class, Core, Create, Edge, Error, GeomId, Sink, filter_class};
use reactor::{PortChoice, SeededRandom};
use serde_json::{Value, json};
use testkit::Seeds;

use crate::world::{self, Ended, World, boundaries, exercise, range};

fn class() -> Arc<dyn Class> {
    filter_class::<Nop>()
}

fn nop(w: &mut World, name: &str, on: &str, params: Value) -> Result<GeomId, Error> {
    let below = w.control.topology.find(on).unwrap();
    w.control.call(|t| class().create(t, &Create { name, members: &[below], params: &params }))
}

fn configure(w: &mut World, name: &str, params: Value) -> Result<Value, Error> {
    class().verb(&mut w.control, "configure", name, &params)
}

fn counter(w: &World, name: &str, line: &str) -> u64 {
    let view = w.control.topology.view(0);
    let geom = view.iter().find(|g| g.class == "nop" && g.name == name).unwrap();
    geom.show.iter().find(|(n, _)| *n == line).unwrap().1.parse().unwrap()
}

/// A nop called `n0` over a memory disk of 2 MiB.
fn over_memory(w: &mut World, params: Value) -> Edge {
    w.disk("memory", "m0", json!({ "size": 2 << 20 })).unwrap();
    nop(w, "n0", "m0", params).unwrap();
    w.open("n0")
}

#[test]
fn nop_without_faults_is_transparent() {
    let mut w = World::simulated(1);
    w.disk("memory", "m0", json!({ "size": 2 << 20 })).unwrap();
    nop(&mut w, "n0", "m0", json!({ "offset": 8192, "size": 1 << 20 })).unwrap();
    let model = exercise(&mut w, "n0", 1, 300);
    boundaries(&mut w, "n0");
    let edge = w.user("m0", Access::READ).unwrap().1;
    assert!(w.read(edge, 8192, 1 << 20).unwrap() == model, "moved by the offset");
    let p = w.control.topology.find("n0").unwrap();
    let ident = w.control.topology.attr(p, "GEOM::ident");
    let below = w.control.topology.find("m0").unwrap();
    assert!(ident.is_some() && ident == w.control.topology.attr(below, "GEOM::ident"));
}

/// N2 of classes/src/nop.rs.
#[test]
fn errors_are_injected_at_the_configured_rate() {
    let mut w = World::simulated(2);
    let params = json!({
        "read_fail_percent": 25, "write_fail_percent": 5, "error": "ENXIO", "physpath": "enc@1",
    });
    let edge = over_memory(&mut w, params);
    let reads = (0..1000).filter(|_| w.read(edge, 0, 512) == Err(Errno::NxIo)).count();
    let writes = (0..1000).filter(|_| w.write(edge, 0, &[1; 512]) == Err(Errno::NxIo)).count();
    assert!((190..310).contains(&reads), "{reads} of 1000 at 25 %");
    assert!((20..90).contains(&writes), "{writes} of 1000 at 5 %");
    assert!((0..50).all(|_| w.plain(edge, Op::Flush, 0, 0).is_ok()), "N2");
    assert!((0..50).all(|_| w.plain(edge, Op::Delete, 0, 512).is_ok()), "N2");
    assert_eq!(counter(&w, "n0", "failed") as usize, reads + writes);
    assert_eq!((counter(&w, "n0", "reads"), counter(&w, "n0", "flushes")), (1000, 50));
    assert_eq!(counter(&w, "n0", "written bytes"), 512_000);
    class().verb(&mut w.control, "reset", "n0", &Value::Null).unwrap();
    assert_eq!(counter(&w, "n0", "failed") + counter(&w, "n0", "deletes"), 0);
    configure(&mut w, "n0", json!({ "read_fail_percent": 0 })).unwrap();
    assert!((0..100).all(|_| w.read(edge, 0, 512).is_ok()));
    configure(&mut w, "n0", json!({ "write_fail_percent": 100, "error": "eio" })).unwrap();
    assert!((0..100).all(|_| w.write(edge, 0, &[1; 512]) == Err(Errno::Io)));
    let p = w.control.topology.find("n0").unwrap();
    let path = w.control.topology.attr(p, "GEOM::physpath");
    assert_eq!(path, Some(bio::Attr::Text("enc@1".into())));
}

#[test]
fn all_requests_fail_after_count_until_fail() {
    let mut w = World::simulated(3);
    let edge = over_memory(&mut w, json!({ "count_until_fail": 5, "write_fail_percent": 100 }));
    let ends: Vec<bool> = (0..8)
        .map(|i| {
            if i % 2 == 0 {
                w.read(edge, 0, 512).is_ok()
            } else {
                w.write(edge, 0, &[1; 512]).is_ok()
            }
        })
        .collect();
    assert_eq!(ends, [true, true, true, true, true, false, false, false]);
}

/// N1 of classes/src/nop.rs, F1 of geom/src/filter.rs.
#[test]
fn delayed_requests_are_reordered_and_take_the_configured_time() {
    let mut w = World::simulated(4);
    let edge = over_memory(&mut w, json!({ "read_delay_percent": 50, "delay_ms": 20 }));
    let ended = Ended::default();
    for n in 0..400 {
        let data = Segs::alloc(w.core.pool(), 512).unwrap();
        w.start(edge, n, &ended, |bio| range(bio, Op::Read, n as u64 * 512, 512, data));
    }
    let at_once = ended.list().len();
    assert!((150..250).contains(&at_once), "{at_once} of 400 at once");
    let start = w.reactor.now();
    w.until("the rest", |_| ended.list().len() == 400);
    let took = w.reactor.now() - start;
    assert!((19_000_000..25_000_000).contains(&took), "{took} ns");
    let order: Vec<u64> = ended.list().iter().map(|(n, _)| *n).collect();
    assert!(!order.is_sorted(), "later ones overtook delayed ones");
    assert_eq!(counter(&w, "n0", "delayed") as usize, 400 - at_once);
    let mut all = order;
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..400), "N1: each ended once");
}

#[test]
fn deletes_fail_as_configured_without_counting_until_fail() {
    let mut w = World::simulated(9);
    let edge = over_memory(&mut w, json!({ "delete_fail_percent": 30, "count_until_fail": 2 }));
    let delete = |w: &mut World, n: u64| {
        let ended = Ended::default();
        w.start(edge, n as usize, &ended, |bio| {
            range(bio, Op::Delete, n * 512, 512, Segs::default())
        });
        let begun = w.reactor.now();
        w.until("the delete", |_| ended.list().len() == 1);
        (ended.list()[0].1, w.reactor.now() - begun)
    };
    let failed = (0..500).filter(|n| delete(&mut w, *n).0 == Err(Errno::Io)).count();
    assert!((100..200).contains(&failed), "{failed} of 500");
    assert!(w.read(edge, 0, 512).is_ok() && w.read(edge, 0, 512).is_ok(), "deletes count not");
    assert_eq!(w.read(edge, 0, 512), Err(Errno::Io));
    let late = json!({
        "delete_fail_percent": 0, "delete_delay_percent": 100, "delay_ms": 20,
        "read_fail_percent": 0, "write_fail_percent": 0,
    });
    configure(&mut w, "n0", late).unwrap();
    let (status, took) = delete(&mut w, 1);
    assert!(status.is_ok() && took >= 19_000_000, "{status:?} after {took} ns");
}

#[test]
fn size_and_sector_overrides_are_validated() {
    let mut w = World::simulated(5);
    w.disk("memory", "m0", json!({ "size": 1 << 20 })).unwrap();
    for wrong in [
        json!({ "sector_size": 768 }),
        json!({ "offset": 100 }),
        json!({ "size": 0 }),
        json!({ "offset": 1 << 20 }),
        json!({ "size": (1 << 20) + 512 }),
        json!({ "offset": 512, "size": 1 << 20 }),
        json!({ "read_fail_percent": 101 }),
        json!({ "error": "EWHAT" }),
        json!({ "error": "ENOMEM" }),
        json!({ "stripe_offset": 512 }),
        json!({ "sice": 1 }),
    ] {
        let e = nop(&mut w, "n0", "m0", wrong.clone()).unwrap_err();
        assert_eq!(e.kind, Errno::Inval, "{wrong}");
        assert!(w.control.topology.find("n0").is_none());
    }
    let params = json!({ "sector_size": 4096, "offset": 4096, "stripe_size": 65536 });
    nop(&mut w, "n0", "m0", params).unwrap();
    let p = w.control.topology.find("n0").unwrap();
    let limits = w.control.topology.limits(p).unwrap();
    assert_eq!((limits.media_bytes, limits.sector_bytes), ((1 << 20) - 4096, 4096));
    assert_eq!(w.control.topology.stripe(p), (65536, 0));
    assert_eq!(w.control.topology.physical_sector(p), 512, "that of the memory disk");
    // Another serial number replaces the attributes of the disk.
    disks::set_serial(&mut w.control.topology, "m0", Some("other")).unwrap();
    assert_eq!(w.control.topology.physical_sector(p), 512);
    let edge = w.open("n0");
    assert_eq!(w.read(edge, 0, 512), Err(Errno::Inval));
    assert_eq!(w.read(edge, 4096, 4096), Ok(vec![0; 4096]));
}

#[test]
fn forced_destroy_of_an_open_nop_orphans_its_consumers() {
    let mut w = World::simulated(6);
    let edge = over_memory(&mut w, json!({ "write_delay_percent": 100, "delay_ms": 50 }));
    let geom = w.control.topology.find_geom("nop", "n0").unwrap();
    let refused = w.control.call(|t| class().destroy(t, geom, false)).unwrap_err();
    assert_eq!(refused.kind, Errno::Busy);
    let ended = Ended::default();
    let data = Segs::alloc(w.core.pool(), 512).unwrap();
    w.start(edge, 1, &ended, |bio| range(bio, Op::Write, 0, 512, data));
    w.control.call(|t| class().destroy(t, geom, true)).unwrap();
    w.until("the end of what was under way", |_| ended.list().len() == 1);
    assert!(w.control.topology.find("n0").is_none());
    assert_eq!(w.read(edge, 0, 512), Err(Errno::NxIo));
    let edge = w.open("m0");
    assert!(w.read(edge, 0, 512).is_ok(), "the disk below is well");
    w.control.topology.check();
}

#[test]
fn nop_follows_a_resized_disk_unless_its_size_is_fixed() {
    let folder = world::Folder::new();
    let path = folder.path("a.img");
    let mut w = World::new(PortChoice::Poll);
    w.disk("file", "f0", json!({ "path": path, "create": true, "size": 65536 })).unwrap();
    nop(&mut w, "follows", "f0", json!({ "offset": 4096 })).unwrap();
    nop(&mut w, "fixed", "f0", json!({ "size": 65536 })).unwrap();
    let size = |w: &World, name: &str| {
        let t = &w.control.topology;
        t.find(name).and_then(|p| t.limits(p)).map(|l| l.media_bytes)
    };
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(131_072).unwrap();
    w.verb("resize", "f0", json!({})).unwrap();
    assert_eq!((size(&w, "follows"), size(&w, "fixed")), (Some(126_976), Some(65536)));
    file.set_len(32768).unwrap();
    w.verb("resize", "f0", json!({})).unwrap();
    assert_eq!((size(&w, "follows"), size(&w, "fixed")), (Some(28672), None));
}

/// Notes the offset and length with which a request returns.
struct RangeRecorder(Cell<(u64, u64)>);

impl Sink for RangeRecorder {
    fn done(&self, _: u64, bio: &mut Bio, _: &Core) {
        assert_eq!(bio.status, Ok(()));
        self.0.set((bio.offset, bio.completed));
    }
}

/// F2 of geom/src/filter.rs.
#[test]
fn completed_request_has_its_original_offset() {
    let mut w = World::simulated(11);
    let params = json!({ "offset": 65536, "read_delay_percent": 100, "delay_ms": 1 });
    let edge = over_memory(&mut w, params);
    let place = Rc::new(RangeRecorder(Cell::new((0, 0))));
    let sink = w.core.add_sink(place.clone());
    for (op, wait) in [(Op::Delete, false), (Op::WriteZeroes, false), (Op::Read, true)] {
        place.0.set((0, 0));
        let data = match op {
            Op::Read => Segs::alloc(w.core.pool(), 1024).unwrap(),
            _ => Segs::new(),
        };
        w.core.submit(edge, End::Sink { sink, tag: 0 }, |bio| range(bio, op, 4096, 1024, data));
        assert_eq!(place.0.get() == (0, 0), wait);
        w.until("its end", |_| place.0.get() != (0, 0));
        assert_eq!(place.0.get(), (4096, 1024));
    }
}

/// A task that writes all the time, several writes to one block at once. Writes to one block have
/// to end in the order of their start, and the last one has to be found.
struct Load {
    edge: Edge,
    sink: Cell<u32>,
    stop: Cell<bool>,
    state: RefCell<Writes>,
}

struct Writes {
    random: SeededRandom,
    /// Number of the newest write, by block.
    newest: Vec<u8>,
    /// Numbers of writes under way, by block, oldest first.
    open: Vec<VecDeque<u64>>,
    started: u64,
    ended: u64,
}

const BLOCKS: usize = 16;

impl Sink for Load {
    fn done(&self, tag: u64, bio: &mut Bio, _: &Core) {
        assert_eq!(bio.status, Ok(()));
        let mut state = self.state.borrow_mut();
        let block = bio.offset as usize / 4096;
        let oldest = state.open[block].pop_front();
        assert_eq!(oldest, Some(tag), "block {block}: in order and once");
        state.ended += 1;
    }
}

impl Load {
    fn start(w: &mut World, edge: Edge, seed: u64) -> Rc<Load> {
        let writes = Writes {
            random: SeededRandom::new(seed),
            newest: vec![0; BLOCKS],
            open: vec![VecDeque::new(); BLOCKS],
            started: 0,
            ended: 0,
        };
        let (sink, stop) = (Cell::new(0), Cell::new(false));
        let load = Rc::new(Load { edge, sink, stop, state: RefCell::new(writes) });
        load.sink.set(w.core.add_sink(load.clone()));
        let (own, core) = (load.clone(), w.core.clone());
        w.reactor.spawn("load", async move {
            while !own.stop.get() {
                own.write(&core);
                let pause = own.state.borrow_mut().random.below(1_000_000);
                core.reactor().sleep(pause).await;
            }
        });
        load
    }

    fn write(&self, core: &Core) {
        let mut state = self.state.borrow_mut();
        if state.started - state.ended >= 200 {
            return;
        }
        let block = state.random.below(BLOCKS as u64) as usize;
        let Some(data) = Segs::alloc(core.pool(), 4096) else { return };
        state.newest[block] = state.newest[block].wrapping_add(1);
        data.fill(0, 4096, state.newest[block]);
        let tag = state.started;
        state.started += 1;
        state.open[block].push_back(tag);
        drop(state);
        let end = End::Sink { sink: self.sink.get(), tag };
        core.submit(self.edge, end, |bio| range(bio, Op::Write, block as u64 * 4096, 4096, data));
    }

    fn under_way(&self) -> u64 {
        let state = self.state.borrow();
        state.started - state.ended
    }
}

/// Returns how many writes were started while layers were being put in or taken out.
fn insert_and_remove(mut w: World, seed: u64) -> u64 {
    let edge = w.open("d0");
    let load = Load::start(&mut w, edge, seed);
    let below = w.control.topology.find("d0").unwrap();
    let mut meanwhile = 0;
    for round in 0..10 {
        w.until("a load", |_| load.under_way() > 0 || load.state.borrow().started > 20);
        let name = format!("shim{round}");
        let create = Create { name: &name, members: &[], params: &Value::Null };
        let before = load.state.borrow().started;
        let geom = w.control.insert("nop", below, &create).unwrap();
        meanwhile += load.state.borrow().started - before;
        w.until("use of the layer", |w| counter(w, &name, "writes") > 10);
        let before = load.state.borrow().started;
        w.control.remove(geom).unwrap();
        meanwhile += load.state.borrow().started - before;
        assert!(w.control.topology.find(&name).is_none());
        w.control.topology.check();
    }
    load.stop.set(true);
    w.until("the last writes", |_| load.under_way() == 0);
    for (block, byte) in load.state.borrow().newest.iter().enumerate() {
        let found = w.read(edge, block as u64 * 4096, 4096).unwrap();
        assert!(found.iter().all(|b| b == byte), "seed {seed}, block {block}");
    }
    meanwhile
}

#[test]
fn n3_insertion_and_removal_under_load_lose_no_request() {
    let (mut meanwhile, seeds) = (0, Seeds::of(10));
    for seed in seeds.clone() {
        // A disk that serves one after the other, so that an order is there to be kept.
        let mut w = World::simulated(seed);
        let params = json!({ "size": 1 << 20, "latency": "spinning", "seed": seed });
        w.disk("model", "d0", params).unwrap();
        meanwhile += insert_and_remove(w, seed);
    }
    let seen = meanwhile > 1000 || !seeds.are_enough();
    assert!(seen, "{meanwhile} writes met a closed gate or a moving graph");
}

#[test]
fn n3_insertion_and_removal_also_work_in_real_time() {
    for port in [PortChoice::Uring, PortChoice::Poll] {
        let mut w = World::new(port);
        w.disk("memory", "d0", json!({ "size": 1 << 20 })).unwrap();
        insert_and_remove(w, 77);
    }
}

#[test]
fn nop_that_changes_the_size_cannot_be_inserted() {
    let mut w = World::simulated(8);
    w.disk("memory", "d0", json!({ "size": 1 << 20 })).unwrap();
    let edge = w.open("d0");
    let below = w.control.topology.find("d0").unwrap();
    let params = json!({ "size": 4096 });
    let create = Create { name: "shim", members: &[], params: &params };
    let refused = w.control.insert("nop", below, &create).unwrap_err();
    assert_eq!(refused.kind, Errno::Inval);
    assert!(w.control.topology.find("shim").is_none());
    assert_eq!(w.write(edge, 8192, &[1; 512]), Ok(()));
}
