//! A disk on a bus of our own target, used on two cores at a time in seeded worlds. Below it a slow
//! disk fails, and beside it another nexus resets and reserves the unit. A model above it predicts
//! the contents of each sector. Sessions are kicked in the middle of things.

mod late;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, End, Errno, Op, Segs};
use cam::CamClass;
use drivers::bus::{self, LocalKind};
use engine::lun::{OpenSpec, open_device};
use engine::{
    CloseReason, Command, Engine, GroupSpec, ItNexus, Login, LunSpec, Next, Registry, Response,
    TaskAttribute, TmFunction, TmOutcome, Transport,
};
use geom::{Access, Class, Core, Edge, GraphControl, Sink};
use reactor::sim::{Limits, World};
use reactor::{Address, SeededRandom, Token};
use serde_json::json;

use testkit::cores;
use testkit::disk::Disk;

use crate::common::disk;
use testkit::Seeds;

const SECTOR: usize = 512;
const SECTORS: usize = 64;
const STEPS: u32 = 300;
const TARGET: &str = "iqn.2026-11.test:t";
/// Longest turn of the world, ns.
const TURN_NS: u64 = 2_000_000;
/// Nothing may take longer in the end, turns.
const TURNS_MAX: u32 = 200_000;

type Ending = (u64, Result<(), Errno>, Vec<u8>);

#[derive(Default)]
struct Endings(RefCell<Vec<Ending>>);

impl Sink for Endings {
    fn done(&self, tag: u64, bio: &mut Bio, _: &Core) {
        let bytes = if bio.op == Op::Read { bio.data.to_vec() } else { Vec::new() };
        self.0.borrow_mut().push((tag, bio.status, bytes));
    }
}

/// Another initiator's nexus, which counts its answers.
#[derive(Default)]
struct Remote {
    answers: Cell<u32>,
    good: Cell<u32>,
    functions: Cell<u32>,
}

impl Transport for Remote {
    fn respond(&self, _: u32, response: Response<'_>) {
        self.answers.set(self.answers.get() + 1);
        self.good.set(self.good.get() + u32::from(response.status == 0));
    }

    fn discard(&self, _: u32) {}

    fn task_management_done(&self, _: u32, outcome: TmOutcome) {
        assert_eq!(outcome, TmOutcome::Complete);
        self.functions.set(self.functions.get() + 1);
    }

    fn close(&self, _: CloseReason) {}

    fn ended(&self) {}
}

fn turn(world: &World, cores: &[Rc<Core>], most: u64) {
    // Without it the clock would not move when nothing is left to happen.
    for core in cores {
        core.reactor().after(most, Token::default());
    }
    let limits = Limits { ns: most, ..Limits::default() };
    world.run(&mut cores::actors(cores), limits, &mut || false);
}

/// A request in flight: its sectors, and the byte that it writes.
struct Asked {
    tag: u64,
    first: usize,
    count: usize,
    fill: Option<u8>,
}

struct Scene {
    world: World,
    cores: Vec<Rc<Core>>,
    engines: Vec<Rc<Engine>>,
    registry: Arc<Registry>,
    control: GraphControl,
    cam: Arc<CamClass>,
    disk: Arc<Disk>,
    endings: Rc<Endings>,
    sinks: Vec<u32>,
    edge: Edge,
    random: SeededRandom,
    /// What each sector may hold.
    model: Vec<Vec<u8>>,
    requests: Vec<Asked>,
    tags: u64,
    good: u32,
    failed: u32,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let world = World::new(seed);
        let (cores, mailers, inbox) = cores::start(&world, 2, 4 << 20);
        let (turning, of, clock) = (cores.clone(), world.clone(), world.clone());
        let mut control = GraphControl::new(
            mailers,
            inbox.clone(),
            Box::new(move |_, _| turn(&of, &turning, TURN_NS)),
            Box::new(move || clock.now()),
        );
        let registry = Registry::new();
        let engines: Vec<Rc<Engine>> =
            cores.iter().map(|c| Engine::new(c.clone(), registry.clone())).collect();
        engines.iter().for_each(bus::install);
        let bytes = (SECTORS * SECTOR) as u64;
        let disk = Disk::slow(bytes);
        disk::add(&mut control, "slow", bytes, disk.clone());
        open_device(&mut control, &registry, "slow", &OpenSpec::default()).unwrap();
        registry.set_target("iscsi", TARGET).unwrap();
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec!["*".into()],
            luns: vec![LunSpec { lun: 0, device: "slow".into(), read_only: false }],
            ..GroupSpec::default()
        };
        registry.set_groups("iscsi", TARGET, &[group]).unwrap();
        let kind = LocalKind::new(registry.clone());
        let cam = Arc::new(CamClass::new(inbox, vec![kind], 2));
        control.topology.load(cam.clone()).unwrap();
        let params = json!({ "kind": "local", "params": { "target": TARGET } });
        let answer = cam.verb(&mut control, "attach", "loop0", &params).unwrap();
        assert_eq!(answer["found"], json!(["da0"]), "{answer}");
        let (_, edge) = testkit::user::open(&mut control, "da0", Access::WRITE).unwrap();
        let endings = Rc::new(Endings::default());
        let sinks = cores.iter().map(|c| c.add_sink(endings.clone())).collect();
        Scene {
            random: SeededRandom::new(seed ^ 0x10ca1),
            model: vec![vec![0]; SECTORS],
            requests: Vec::new(),
            tags: 0,
            good: 0,
            failed: 0,
            world,
            cores,
            engines,
            registry,
            control,
            cam,
            disk,
            endings,
            sinks,
            edge,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn turn(&mut self, ns: u64) {
        turn(&self.world, &self.cores, ns);
        self.control.pump();
        let ended: Vec<Ending> = self.endings.0.take();
        ended.into_iter().for_each(|e| self.on_ended(e));
    }

    fn on_ended(&mut self, (tag, status, bytes): Ending) {
        let at = self.requests.iter().position(|a| a.tag == tag).expect("it ends once");
        let request = self.requests.swap_remove(at);
        match status {
            Ok(()) => self.good += 1,
            Err(_) => self.failed += 1,
        }
        for n in 0..request.count {
            let may = &mut self.model[request.first + n];
            match (request.fill, status) {
                (Some(fill), Ok(())) => *may = vec![fill],
                (Some(fill), Err(_)) => may.push(fill),
                (None, Ok(())) => {
                    let sector = &bytes[n * SECTOR..(n + 1) * SECTOR];
                    assert!(sector.iter().all(|b| *b == sector[0]), "a torn sector");
                    assert!(may.contains(&sector[0]), "{} of {may:?}", sector[0]);
                    *may = vec![sector[0]];
                }
                (None, Err(_)) => {}
            }
        }
    }

    fn ask(&mut self) {
        let count = 1 + self.below(8) as usize;
        let first = self.below((SECTORS - count) as u64) as usize;
        let meets = |a: &Asked| a.first < first + count && first < a.first + a.count;
        if self.requests.iter().any(meets) {
            return;
        }
        let writes = self.below(2) == 0;
        let fill = writes.then(|| self.random.below(255) as u8 + 1);
        self.submit(first, count, fill);
    }

    fn submit(&mut self, first: usize, count: usize, fill: Option<u8>) {
        let core = self.below(2) as usize;
        self.tags += 1;
        let tag = self.tags;
        let Some(data) = Segs::alloc(self.cores[core].pool(), count * SECTOR) else { return };
        // Read data must be that of the disk, not from the former contents of the buffer.
        data.fill(0, count * SECTOR, fill.unwrap_or(0xEE));
        self.requests.push(Asked { tag, first, count, fill });
        let end = End::Sink { sink: self.sinks[core], tag };
        self.cores[core].submit(self.edge, end, |bio| {
            bio.op = if fill.is_some() { Op::Write } else { Op::Read };
            bio.offset = (first * SECTOR) as u64;
            bio.length = (count * SECTOR) as u64;
            bio.data = data;
        });
    }

    fn until_idle(&mut self) {
        let mut turns = 0;
        while !self.requests.is_empty() {
            turns += 1;
            assert!(turns < TURNS_MAX, "{} requests hang", self.requests.len());
            self.turn(TURN_NS);
        }
    }

    /// Another initiator logs in on the second core.
    fn remote(&self) -> (Rc<ItNexus>, Rc<Remote>) {
        let remote = Rc::new(Remote::default());
        let port = "iqn.2024-01.test:remote";
        let id = wire::scsi::TransportId::iscsi_port(port, [1; 6]).unwrap();
        let login = Login {
            target: self.registry.target("iscsi", TARGET).unwrap(),
            initiator: port.into(),
            port_id: vec![1; 6],
            transport_id: id.bytes().to_vec(),
            portal: Address::Unix("test".into()),
            from: Address::Unix("test".into()),
            reinstates: false,
            labels: Vec::new(),
        };
        (self.engines[1].login(login, remote.clone()).unwrap(), remote)
    }
}

fn play(seed: u64) -> (u32, u32, u32) {
    let mut scene = Scene::new(seed);
    let (session, remote) = scene.remote();
    let mut tag = 0;
    let mut reserved = false;
    let mut send = |opcode: u8| {
        tag += 1;
        let cdb = [opcode, 0, 0, 0, 0, 0];
        let attribute = TaskAttribute::Simple;
        let (expect_in, expect_out) = (0, 0);
        let lun = [0; 8];
        let next =
            session.command(&Command { tag, lun, cdb: &cdb, attribute, expect_in, expect_out });
        assert_eq!(next, Next::Started);
    };
    // It reports the power on.
    send(0);
    let mut functions = 0;
    for _ in 0..STEPS {
        scene.disk.set_failing([0, 0, 0, 150][scene.random.below(4) as usize]);
        match scene.below(100) {
            0..4 => {
                functions += 1;
                session.task_management(functions, TmFunction::LunReset, [0; 8], None);
                reserved = false;
            }
            4..7 => {
                send(0x16);
                reserved = true;
            }
            7..12 if reserved => {
                send(0x17);
                reserved = false;
            }
            12..14 => {
                let mut mine = scene.registry.sessions().into_iter();
                let mine = mine.find(|s| s.initiator == "local:loop0");
                mine.into_iter().for_each(|s| assert!(scene.registry.kick(s.number)));
            }
            _ => scene.ask(),
        }
        let ns = scene.below(400_000) + 1;
        scene.turn(ns);
    }
    scene.disk.set_failing(0);
    // The first may end in an attention.
    for _ in 0..3 {
        send(0x17);
        scene.turn(TURN_NS);
    }
    scene.until_idle();
    // After all faults the disk works, on both cores, and holds the acknowledged data.
    let before = scene.good;
    for first in 0..SECTORS {
        scene.submit(first, 1, None);
        scene.until_idle();
    }
    assert_eq!(scene.good - before, SECTORS as u32, "the disk is well in the end");
    assert_eq!(remote.functions.get(), functions);
    let faces = scene.registry.sessions().iter().filter(|s| s.initiator == "local:loop0").count();
    assert_eq!(faces, 2, "one session a core");
    let out = (scene.good, scene.failed, remote.answers.get());
    scene.cores.iter().for_each(|core| drop(core.reactor().shutdown()));
    out
}

/// L4 of bus/mod.rs.
#[test]
fn local_disk_keeps_acknowledged_writes_while_others_use_the_unit() {
    let all = Seeds::of(40).each(play);
    let sum = |f: fn(&(u32, u32, u32)) -> u32| all.iter().map(f).sum::<u32>();
    let (good, failed) = (sum(|t| t.0), sum(|t| t.1));
    println!("{} seeds: {good} good, {failed} failed", all.len());
    assert!(good > 0 && sum(|t| t.2) > 0);
    if all.len() > 20 {
        assert!(failed > 0, "reservations of the other nexus were never met");
    }
}
