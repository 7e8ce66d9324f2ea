//! Fair shares of a slow disk, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::registry::LatencyReading;
use engine::{
    CloseReason, Command, CommandState, ItNexus, Login, Next, Response, TaskAttribute, TmFunction,
    TmOutcome, Transport, WINDOW_MIN,
};
use geom::bucket_of;
use testkit::clock::MS;

use crate::world::*;

/// Commands that the disk serves at once, and the time of each.
const SERVERS: usize = 8;
const SERVICE_NS: u64 = 4 * MS;

/// An initiator that keeps as many commands open as it is let, reading anywhere.
struct Reader {
    session: RefCell<Option<Rc<ItNexus>>>,
    me: Weak<Reader>,
    world: reactor::sim::World,
    /// Commands that it would have open, and its pause after each, ns.
    depth: u32,
    /// Keeps to the session's window.
    obeys: bool,
    open: Cell<u32>,
    tag: Cell<u32>,
    sent: RefCell<Vec<(u32, u64)>>,
    /// Times of all commands, ns, with when they ended.
    times: RefCell<Vec<(u64, u64)>>,
    bad: Cell<u32>,
    stop: Cell<bool>,
    windows: RefCell<Vec<u32>>,
}

impl Reader {
    fn login(w: &World, core: usize, name: &str, depth: u32, obeys: bool) -> Rc<Reader> {
        let reader = Rc::new_cyclic(|me| Reader {
            session: RefCell::default(),
            me: me.clone(),
            world: w.sim.clone(),
            depth,
            obeys,
            open: Cell::new(0),
            tag: Cell::new(0),
            sent: RefCell::default(),
            times: RefCell::default(),
            bad: Cell::new(0),
            stop: Cell::new(false),
            windows: RefCell::default(),
        });
        let engine = &w.engines[core];
        let login = Login {
            target: engine.find_target("iscsi", TARGET).unwrap(),
            initiator: name.into(),
            port_id: vec![core as u8],
            transport_id: Vec::new(),
            portal: "10.0.0.1:3260".parse().unwrap(),
            from: "10.0.0.2:1000".parse().unwrap(),
            reinstates: false,
            labels: Vec::new(),
        };
        let session = engine.login(login, reader.clone()).unwrap();
        *reader.session.borrow_mut() = Some(session);
        // Reports the reset.
        reader.send(&TUR, 0);
        assert_eq!(reader.bad.replace(0), 1);
        reader.times.borrow_mut().clear();
        reader
    }

    fn session(&self) -> Rc<ItNexus> {
        self.session.borrow().clone().unwrap()
    }

    fn send(&self, cdb: &[u8], expect_in: u32) -> u32 {
        let tag = self.tag.get();
        self.tag.set(tag + 1);
        self.open.set(self.open.get() + 1);
        self.sent.borrow_mut().push((tag, self.world.now()));
        let command = Command {
            tag,
            lun: lun_field(0),
            cdb,
            attribute: TaskAttribute::Simple,
            expect_in,
            expect_out: 0,
        };
        assert_eq!(self.session().command(&command), Next::Started);
        tag
    }

    /// Sends as many commands as the window allows.
    fn fill(&self) {
        while !self.stop.get() {
            let window = self.session().depth_hint();
            self.windows.borrow_mut().push(window);
            let most = if self.obeys { self.depth.min(window) } else { self.depth };
            if self.open.get() >= most {
                return;
            }
            let lba = u64::from(self.tag.get()) * 8 % 1000;
            self.send(&read16(lba, 8), 4096);
        }
    }

    /// Times of those that ended from `from` to `to`, ns.
    fn times(&self, from: u64, to: u64) -> Vec<u64> {
        let times = self.times.borrow();
        times.iter().filter(|(end, _)| (from..to).contains(end)).map(|t| t.1).collect()
    }
}

impl Transport for Reader {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let at = self.sent.borrow().iter().position(|s| s.0 == tag).unwrap();
        let (_, since) = self.sent.borrow_mut().swap_remove(at);
        let now = self.world.now();
        self.times.borrow_mut().push((now, now - since));
        self.open.set(self.open.get() - 1);
        self.bad.set(self.bad.get() + u32::from(response.status != 0));
        if self.depth > 1 && response.status == 0 {
            // Later: the answer is not yet over.
            let me = self.me.upgrade().unwrap();
            let reactor = self.session().engine().core().reactor().clone();
            drop(reactor.spawn("again", async move { me.fill() }));
        }
    }

    fn discard(&self, tag: u32) {
        self.sent.borrow_mut().retain(|s| s.0 != tag);
        self.open.set(self.open.get() - 1);
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}
    fn close(&self, _: CloseReason) {}
    fn ended(&self) {}
}

fn slow_world(seed: u64) -> World {
    let w = World::simple(seed, 4096);
    w.disks[0].1.set_pace(SERVERS, SERVICE_NS);
    w
}

/// Sends one read each 30 ms.
fn sip(light: &Rc<Reader>) {
    let (light, reactor) = (light.clone(), light.session().engine().core().reactor().clone());
    drop(reactor.clone().spawn("sip", async move {
        while !light.stop.get() {
            reactor.sleep(30 * MS).await;
            if light.open.get() == 0 {
                light.send(&read16(0, 8), 4096);
            }
        }
    }));
}

fn end(w: &World, readers: &[&Rc<Reader>]) {
    readers.iter().for_each(|r| r.stop.set(true));
    w.run_for(3000 * MS);
    for r in readers {
        assert_eq!((r.bad.get(), r.open.get()), (0, 0), "no TASK SET FULL, nothing left");
        r.session().close();
        r.session.take();
    }
    w.check_empty();
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / (times.len() as u64).max(1)
}

#[test]
fn session_has_histograms_of_the_latency_of_its_own_commands() {
    let w = slow_world(9);
    let (own, other) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let tags = [
        own.send(0, &read16(0, 8), 4096, &[]),
        own.send(0, &write16(8, 1), 0, &[1; 512]),
        other.send(0, &TUR, 0, &[]),
    ];
    w.run_for(100 * MS);
    for (host, tag) in [&own, &own, &other].into_iter().zip(tags) {
        host.answer(tag).expect("an answer").good();
    }
    let sessions = w.registry.sessions();
    let facts = |name: &str| sessions.iter().find(|s| s.initiator == name).expect("a session");
    for latency in [facts("i1").read_latency(), facts("i1").write_latency()] {
        assert_eq!(latency.buckets.iter().sum::<u64>(), 1, "{latency:?}");
        assert_eq!(latency.buckets[geom::bucket_of(latency.sum_ns)], 1, "{latency:?}");
        assert!(latency.sum_ns >= SERVICE_NS / 2, "{latency:?}");
    }
    for latency in [facts("i2").read_latency(), facts("i2").write_latency()] {
        assert_eq!((latency.buckets.iter().sum::<u64>(), latency.sum_ns), (0, 0));
    }
}

#[test]
fn a_light_nexus_has_low_latency_beside_a_heavy_one() {
    for (heavy_core, obeys) in [(0, true), (0, false), (1, true), (1, false)] {
        let w = slow_world(1);
        let light = Reader::login(&w, 0, "i-light", 1, true);
        let heavy = Reader::login(&w, heavy_core, "i-heavy", 128, obeys);
        sip(&light);
        heavy.fill();
        w.run_for(4000 * MS);
        let from = w.sim.now();
        w.run_for(6000 * MS);
        let times = light.times(from, w.sim.now());
        // Unloaded it takes 4 ms; behind 128 others it would take 64 ms.
        let (average, worst) = (mean(&times), *times.iter().max().unwrap());
        assert!(times.len() > 100);
        assert!(average <= 2 * SERVICE_NS, "core {heavy_core}: {average} {worst}");
        assert!(worst <= 3 * SERVICE_NS, "core {heavy_core}: {average} {worst}");
        let flow = w.registry.device("d0").unwrap().flow();
        assert!(flow.limit.is_some_and(|l| l <= 12), "{flow:?}");
        assert!((SERVICE_NS..3 * SERVICE_NS / 2).contains(&flow.latency_ns), "{flow:?}");
        end(&w, &[&light, &heavy]);
    }
}

#[test]
fn a_lone_nexus_gets_the_full_rate_of_the_disk() {
    for obeys in [true, false] {
        let w = slow_world(2);
        let lone = Reader::login(&w, 0, "i-lone", 128, obeys);
        let from = w.sim.now();
        lone.fill();
        w.run_for(20_000 * MS);
        let most = 20_000 * MS / SERVICE_NS * SERVERS as u64;
        let done = lone.times(from, w.sim.now()).len() as u64;
        assert!(done * 100 >= most * 95, "{done} of {most}, from the first command on");
        assert!(w.registry.device("d0").unwrap().flow().limit.is_some());
        end(&w, &[&lone]);
    }
}

#[test]
fn heavy_nexuses_get_equal_shares() {
    // One keeps sixteen times as many commands open as another, and they may be on two cores.
    for cores in [[0, 0, 0], [0, 1, 0], [0, 1, 1]] {
        let w = slow_world(3);
        let all: Vec<Rc<Reader>> = [(0, 128), (1, 32), (2, 16)]
            .iter()
            .map(|(i, depth)| Reader::login(&w, cores[*i], &format!("i{i}"), *depth, false))
            .collect();
        all.iter().for_each(|r| r.fill());
        w.run_for(5000 * MS);
        let from = w.sim.now();
        w.run_for(10_000 * MS);
        let done: Vec<u64> = all.iter().map(|r| r.times(from, w.sim.now()).len() as u64).collect();
        let sum: u64 = done.iter().sum();
        let most = 10_000 * MS / SERVICE_NS * SERVERS as u64;
        assert!(sum * 100 >= most * 95, "{cores:?}: {done:?} of {most}");
        for n in &done {
            assert!(n * 3 * 100 >= sum * 90 && n * 3 * 100 <= sum * 110, "{cores:?}: {done:?}");
        }
        end(&w, &all.iter().collect::<Vec<_>>());
    }
}

#[test]
fn the_window_follows_the_share_and_grows_again() {
    let w = slow_world(4);
    let (a, b) = (Reader::login(&w, 0, "i1", 128, true), Reader::login(&w, 0, "i2", 128, true));
    a.fill();
    b.fill();
    w.run_for(6000 * MS);
    let seen = a.windows.borrow().clone();
    assert_eq!(seen[0], 128);
    assert!(seen.iter().all(|n| (WINDOW_MIN..=128).contains(n)));
    let two = a.session().depth_hint();
    assert!(two <= 12, "half of the limit and a few: {two}");
    let held = a.session().facts().held_back();
    assert_eq!((held.window, held.share), (two, Some(two - 4)));
    b.stop.set(true);
    w.run_for(1000 * MS);
    let alone = a.session().depth_hint();
    assert!(alone > two, "{alone} after {two}");
    // A disk that becomes fast is not limited any more.
    w.disks[0].1.set_pace(SERVERS, MS / 20);
    w.run_for(1500 * MS);
    assert_eq!(a.session().depth_hint(), 128);
    assert_eq!(a.session().facts().held_back().share, None);
    end(&w, &[&a, &b]);
}

#[test]
fn a_fast_disk_has_no_limit() {
    let w = World::simple(5, 4096);
    let r = Reader::login(&w, 0, "i1", 1, true);
    for _ in 0..2000 {
        r.send(&read16(0, 8), 4096);
    }
    assert_eq!(w.registry.device("d0").unwrap().flow().limit, None);
    assert_eq!(r.session().depth_hint(), 128);
    end(&w, &[&r]);
}

fn queued(r: &Reader) -> usize {
    let now = r.world.now();
    let all = r.session().facts().commands(now);
    all.iter().filter(|c| c.state == CommandState::Queued).count()
}

#[test]
fn queued_commands_are_aborted_at_once() {
    let w = slow_world(6);
    let (a, b) = (Reader::login(&w, 0, "i1", 100, false), Reader::login(&w, 1, "i2", 100, false));
    a.fill();
    b.fill();
    w.run_for(5000 * MS);
    let (mine, others) = (queued(&a), queued(&b));
    assert!(mine > 80 && others > 80, "{mine} {others}");
    let held = a.session().facts().held_back();
    assert_eq!(held.queued as usize, mine);
    assert_eq!(held.device, Some(w.registry.device("d0").unwrap().number()));
    // One command: removed at once.
    let waits = a.session().facts().commands(0);
    let one = waits.iter().find(|c| c.state == CommandState::Queued).unwrap().tag;
    let open = a.open.get();
    a.session().task_management(9999, TmFunction::AbortTask, lun_field(0), Some(one));
    assert_eq!((a.open.get(), queued(&a)), (open - 1, mine - 1));
    // All of both: only those below are waited for.
    a.stop.set(true);
    b.stop.set(true);
    a.session().task_management(9998, TmFunction::LunReset, lun_field(0), None);
    assert_eq!(queued(&a), 0);
    w.turn();
    assert_eq!(queued(&b), 0);
    w.run_for(4 * SERVICE_NS);
    assert_eq!((a.open.get(), b.open.get()), (0, 0));
    assert_eq!(a.session().facts().held_back().queued, 0);
    end(&w, &[&a, &b]);
}

#[test]
fn session_counts_latencies_of_reads_and_writes_alone() {
    let w = World::simple(7, 64);
    let h = w.calm(0, "i1", &[0]);
    w.disks[0].1.set_pace(1, 5 * MS);
    let count = |of: &LatencyReading| of.buckets.iter().sum::<u64>();
    let facts = h.session.facts();
    let (reads, writes) = (facts.read_latency(), facts.write_latency());
    assert_eq!((count(&reads), count(&writes)), (0, 0));
    let commands = [h.send(0, &read16(0, 1), 512, &[]), h.send(0, &write16(1, 1), 0, &[1; 512])];
    w.run_for(50 * MS);
    for tag in commands {
        w.answer(&h, tag).good();
    }
    // TEST UNIT READY does not use the medium.
    w.run(&h, 0, &TUR, 0, &[]).good();
    let (reads, writes) = (facts.read_latency(), facts.write_latency());
    assert_eq!((count(&reads), count(&writes)), (1, 1));
    for of in [reads, writes] {
        let used = of.buckets.iter().position(|n| *n > 0).unwrap();
        assert_eq!(used, bucket_of(of.sum_ns));
        assert!((5 * MS..50 * MS).contains(&of.sum_ns), "{}", of.sum_ns);
    }
}
