//! Test world: two simulated cores, a control side, a disk that answers on request of the test, and
//! initiators that record their answers.
#![allow(dead_code)] // each test binary uses its part

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::{Bio, Errno, Flags, Op, Origin, Pool, Segs, Ticket};
use engine::lun::{OpenSpec, open_device};
use engine::{
    CloseReason, Command, Engine, GroupSpec, ItNexus, Login, LunSpec, Next, ProtectionSpec,
    Registry, Residual, Response, TaskAttribute, TmFunction, TmOutcome, Transport,
};
use geom::{Core, Flow, GraphControl, Layer, ProviderId};
use reactor::{WaitFor, sim};
use testkit::cores;
use testkit::disk::Provider;
use wire::scsi::{Asc, ProtectionType, Sense};

/// LUN, device, read-only.
pub type Lun<'a> = (u64, &'a str, bool);

pub const BLOCK: usize = 512;
pub const TARGET: &str = "iqn.2024-01.test:t";

/// The requests that the disk carried out, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub op: Op,
    pub offset: u64,
    pub length: u64,
    pub fua: bool,
    pub data: Vec<u8>,
}

#[derive(Default)]
pub struct DiskState {
    pub bytes: Vec<u8>,
    /// Contents that surely survive a power cut.
    pub durable: Vec<u8>,
    /// Requests are kept until they are released.
    pub hold: bool,
    pub held: Vec<(u32, Ticket, Op)>,
    pub log: Vec<Done>,
    /// Whose the requests were, in order.
    pub origins: Vec<Origin>,
    /// Every request that touches this byte ends with this error.
    pub fail: Option<(u64, Errno)>,
    /// Returns the position of that byte, too.
    pub reports_bad_byte: bool,
    /// Requests are served by so many at once, each for so long: when each of them is free, ns.
    pub servers: Vec<u64>,
    pub service_ns: u64,
    /// And so much longer for each KiB that it moves.
    pub kib_ns: u64,
}

/// A disk in memory that answers at once, or on request of the test.
#[derive(Default)]
pub struct TestDisk(Mutex<DiskState>);

impl TestDisk {
    pub fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on requests take their time.
    pub fn set_pace(&self, servers: usize, service_ns: u64) {
        let mut s = self.state();
        (s.servers, s.service_ns) = (vec![0; servers], service_ns);
    }

    /// The same, and bytes take their time too.
    pub fn set_pace_of_bytes(&self, servers: usize, service_ns: u64, kib_ns: u64) {
        self.set_pace(servers, service_ns);
        self.state().kib_ns = kib_ns;
    }

    fn perform(&self, bio: &mut Bio) -> Flow {
        let mut s = self.state();
        let (at, end) = (bio.offset as usize, (bio.offset + bio.length) as usize);
        if let Some((bad, error)) = s.fail
            && (bio.op == Op::Flush || (bio.offset..bio.offset + bio.length).contains(&bad))
        {
            bio.value = s.reports_bad_byte.then(|| bio::Attr::Int(bad - bio.offset));
            return Flow::Done(Err(error));
        }
        let mut data = Vec::new();
        match bio.op {
            Op::Read => {
                bio.data.copy_from(0, &s.bytes[at..end]);
            }
            Op::Write => {
                data = bio.data.to_vec();
                s.bytes[at..end].copy_from_slice(&data);
            }
            Op::Delete | Op::WriteZeroes => s.bytes[at..end].fill(0),
            Op::Flush | Op::GetAttr => {}
            Op::Map => {
                // A block of zeroes takes no space.
                let hole = |b: &[u8]| b.iter().all(|b| *b == 0);
                let blocks = s.bytes[at..end].chunks(BLOCK);
                let first = hole(&s.bytes[at..at + BLOCK]);
                bio.completed = (blocks.take_while(|b| hole(b) == first).count() * BLOCK) as u64;
                bio.value = Some(bio::Attr::Int(if first { bio::HOLE } else { bio::MAPPED }));
                return Flow::Done(Ok(()));
            }
        }
        let fua = bio.flags.has(Flags::FUA);
        if bio.op == Op::Flush {
            s.durable = s.bytes.clone();
        } else if fua && bio.op.needs_write() {
            let DiskState { bytes, durable, .. } = &mut *s;
            durable[at..end].copy_from_slice(&bytes[at..end]);
        }
        s.log.push(Done { op: bio.op, offset: bio.offset, length: bio.length, fua, data });
        Flow::Done(Ok(()))
    }
}

impl Layer for TestDisk {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let mut s = self.state();
        s.origins.push(bio.origin);
        if s.hold {
            s.held.push((core.id(), bio.ticket(), bio.op));
            return Flow::Wait;
        }
        let moved = if bio.op.has_data() { bio.length } else { 0 };
        let service_ns = s.service_ns + moved * s.kib_ns / 1024;
        if let Some(free) = s.servers.iter_mut().min() {
            *free = core.now().max(*free) + service_ns;
            core.wake(bio.ticket(), *free - core.now());
            return Flow::Wait;
        }
        drop(s);
        self.perform(bio)
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, _: &Core) -> Flow {
        self.perform(bio)
    }
}

pub struct World {
    pub sim: sim::World,
    pub cores: Vec<Rc<Core>>,
    pub control: GraphControl,
    pub registry: Arc<Registry>,
    pub engines: Vec<Rc<Engine>>,
    pub disks: Vec<(String, Arc<TestDisk>)>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World::with_pool(seed, 16 << 20)
    }

    pub fn with_pool(seed: u64, limit_bytes: usize) -> World {
        let sim = sim::World::new(seed);
        let (cores, mailers, inbox) = cores::start(&sim, 2, limit_bytes);
        let turning = cores.clone();
        let clock = sim.clone();
        let control = GraphControl::new(
            mailers,
            inbox,
            Box::new(move |_, _| turning.iter().for_each(|c| c.turn(WaitFor::Peek))),
            Box::new(move || clock.now()),
        );
        let registry = Registry::new();
        let engines = cores.iter().map(|c| Engine::new(c.clone(), registry.clone())).collect();
        registry.set_target("iscsi", TARGET).unwrap();
        World { sim, cores, control, registry, engines, disks: Vec::new() }
    }

    /// A world with one disk of `blocks` blocks at LUN 0 of all initiators.
    pub fn simple(seed: u64, blocks: u64) -> World {
        let mut world = World::new(seed);
        world.disk("d0", blocks);
        world.export("d0");
        world.map(&[(0, "d0", false)]);
        world
    }

    /// The same with protection information of a type, over a provider of `blocks` blocks.
    pub fn protected(seed: u64, blocks: u64, kind: u8) -> World {
        let mut world = World::new(seed);
        world.disk("d0", blocks);
        let kind = ProtectionType::from_number(kind).unwrap();
        let protection = ProtectionSpec::Type(kind);
        let spec = OpenSpec { protection, ..OpenSpec::default() };
        open_device(&mut world.control, &world.registry, "d0", &spec).unwrap();
        world.map(&[(0, "d0", false)]);
        world.settle();
        (0..200).for_each(|_| world.turn());
        world
    }

    pub fn disk(&mut self, name: &str, blocks: u64) -> Arc<TestDisk> {
        self.disk_of(name, blocks, BLOCK)
    }

    pub fn disk_of(&mut self, name: &str, blocks: u64, sector: usize) -> Arc<TestDisk> {
        self.disk_keeping(name, blocks, sector, u64::MAX)
    }

    /// A disk that keeps or loses so many bytes as a whole at a power cut.
    pub fn disk_keeping(
        &mut self,
        name: &str,
        blocks: u64,
        sector: usize,
        whole: u64,
    ) -> Arc<TestDisk> {
        let disk = Arc::new(TestDisk::default());
        disk.state().bytes = vec![0; (blocks * 2) as usize * sector];
        let blank = disk.state().bytes.clone();
        disk.state().durable = blank;
        let attrs =
            [("GEOM::candelete", bio::Attr::Int(1)), ("DISK::atomic", bio::Attr::Int(whole))];
        let provider = Provider::new(name, blocks * sector as u64).sector(sector as u32);
        testkit::disk::add(&mut self.control, provider.with_attrs(&attrs), disk.clone());
        self.disks.push((name.into(), disk.clone()));
        disk
    }

    pub fn export(&mut self, name: &str) {
        let spec = engine::lun::OpenSpec::default();
        engine::lun::open_device(&mut self.control, &self.registry, name, &spec).unwrap();
    }

    /// Maps these LUNs for all initiators.
    pub fn map(&self, luns: &[(u64, &str, bool)]) {
        self.groups(&[("all", &["*"], luns)]);
    }

    pub fn groups(&self, groups: &[(&str, &[&str], &[Lun<'_>])]) {
        let specs: Vec<GroupSpec> = groups
            .iter()
            .map(|(name, initiators, luns)| GroupSpec {
                name: name.to_string(),
                initiators: initiators.iter().map(|s| s.to_string()).collect(),
                luns: luns
                    .iter()
                    .map(|(lun, device, read_only)| LunSpec {
                        lun: *lun,
                        device: device.to_string(),
                        read_only: *read_only,
                    })
                    .collect(),
                ..GroupSpec::default()
            })
            .collect();
        self.registry.set_groups("iscsi", TARGET, &specs).unwrap();
    }

    pub fn provider(&self, name: &str) -> ProviderId {
        self.control.topology.find(name).unwrap()
    }

    /// An initiator on a core, with a reset still to be reported.
    pub fn host(&self, core: usize, name: &str) -> Host {
        Host::login(&self.engines[core], name, false).unwrap()
    }

    /// An initiator to which every LUN has reported the reset.
    pub fn calm(&self, core: usize, name: &str, luns: &[u64]) -> Host {
        let host = self.host(core, name);
        for lun in luns {
            assert_eq!(self.run(&host, *lun, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        }
        host
    }

    /// The same at LUN 0 while another nexus has it by RESERVE.
    pub fn calm_under_reserve(&self, core: usize, name: &str) -> Host {
        let host = self.host(core, name);
        assert_eq!(self.run(&host, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        assert_eq!(self.run(&host, 0, &TUR, 0, &[]).status, 0x18);
        host
    }

    /// Turns until nothing moves that is not held.
    pub fn settle(&mut self) {
        for _ in 0..6 {
            self.turn();
            self.control.pump();
        }
    }

    pub fn turn(&self) {
        for _ in 0..3 {
            self.cores.iter().for_each(|c| c.turn(WaitFor::Peek));
        }
    }

    /// Runs the cores for at most so much time.
    fn run_cores(&self, ns: u64) -> sim::Ended {
        let limits = sim::Limits { ns, steps: 50_000_000 };
        self.sim.run(&mut cores::actors(&self.cores), limits, &mut || false)
    }

    /// So much time passes.
    pub fn pass(&self, ns: u64) {
        // A task waits for the end of the period, so that virtual time advances.
        let core = self.cores[0].clone();
        drop(self.cores[0].reactor().spawn("time", async move { core.reactor().sleep(ns).await }));
        assert_eq!(self.run_cores(ns), sim::Ended::TimeUp);
    }

    /// At most so much time passes: less if there is no more work.
    pub fn run_for(&self, ns: u64) {
        let ended = self.run_cores(ns);
        assert!(matches!(ended, sim::Ended::TimeUp | sim::Ended::Quiet), "{ended:?}");
    }

    /// Sends and waits for the answer.
    pub fn run(
        &self,
        host: &Host,
        lun: u64,
        cdb: &[u8],
        expect_in: u32,
        data: &[u8],
    ) -> CommandResult {
        let tag = host.send(lun, cdb, expect_in, data);
        self.answer(host, tag)
    }

    pub fn answer(&self, host: &Host, tag: u32) -> CommandResult {
        for _ in 0..50 {
            if let Some(answer) = host.answer(tag) {
                return answer;
            }
            self.turn();
        }
        panic!("command {tag} is not answered; heard: {:?}", host.fake.events.borrow());
    }

    /// Releases one held request of a disk; false when there is none at `index`.
    pub fn release(&self, disk: &TestDisk, index: usize) -> bool {
        let mut s = disk.state();
        if index >= s.held.len() {
            return false;
        }
        let (core, id, _) = s.held.remove(index);
        drop(s);
        self.cores[core as usize].wake(id, 0);
        self.turn();
        true
    }

    pub fn release_all(&self, disk: &TestDisk) {
        disk.state().hold = false;
        while self.release(disk, 0) {}
        self.turn();
    }

    /// Nothing is left behind.
    pub fn check_empty(&self) {
        for core in &self.cores {
            assert_eq!(core.live(), 0, "no request is left");
            assert_eq!(core.pool().usage().used_bytes, 0, "no buffer is left");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.cores.iter().for_each(|c| drop(c.reactor().shutdown()));
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandResult {
    pub tag: u32,
    pub status: u8,
    pub sense: Vec<u8>,
    pub data: Vec<u8>,
    pub residual: Residual,
}

impl CommandResult {
    /// Key, code, qualifier; zeroes without sense.
    pub fn asc(&self) -> (u8, u8, u8) {
        match Sense::decode(&self.sense) {
            Ok(Sense { code: Asc { key, asc, ascq }, .. }) => (key as u8, asc, ascq),
            Err(_) => (0, 0, 0),
        }
    }

    pub fn sense(&self) -> Sense {
        Sense::decode(&self.sense).unwrap()
    }

    pub fn good(self) -> CommandResult {
        assert_eq!((self.status, self.asc()), (0, (0, 0, 0)), "{self:?}");
        self
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostEvent {
    Answer(CommandResult),
    Discard(u32),
    Tm(u32, TmOutcome),
    Close(CloseReason),
    Ended,
}

#[derive(Default)]
pub struct Fake {
    pub events: RefCell<Vec<HostEvent>>,
    /// The peer does not read: data sent to it stay here.
    pub deaf: Cell<bool>,
    pub unsent: RefCell<Vec<Segs>>,
}

impl Transport for Fake {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let data = response.data.to_vec();
        if self.deaf.get() {
            self.unsent.borrow_mut().push(std::mem::take(response.data));
        }
        self.events.borrow_mut().push(HostEvent::Answer(CommandResult {
            tag,
            status: response.status,
            sense: response.sense.to_vec(),
            data,
            residual: response.residual,
        }));
    }

    fn discard(&self, tag: u32) {
        self.events.borrow_mut().push(HostEvent::Discard(tag));
    }

    fn unsent(&self) -> usize {
        self.unsent.borrow().iter().map(Segs::len).sum()
    }

    fn task_management_done(&self, tag: u32, outcome: TmOutcome) {
        self.events.borrow_mut().push(HostEvent::Tm(tag, outcome));
    }

    fn close(&self, reason: CloseReason) {
        self.events.borrow_mut().push(HostEvent::Close(reason));
    }

    fn ended(&self) {
        self.events.borrow_mut().push(HostEvent::Ended);
    }
}

pub struct Host {
    pub session: Rc<ItNexus>,
    pub fake: Rc<Fake>,
    pool: Pool,
    tags: Cell<u32>,
    pub attribute: Cell<TaskAttribute>,
}

pub const TUR: [u8; 6] = [0; 6];

pub fn lun_field(lun: u64) -> [u8; 8] {
    wire::scsi::Lun::new(lun as u32).unwrap().encode()
}

/// The TransportID of a port that was not used before.
fn new_port(name: &str) -> Vec<u8> {
    static PORTS: AtomicU32 = AtomicU32::new(0);
    let [a, b, c, d] = PORTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let named = wire::scsi::TransportId::iscsi_port(name, [0x80, 0, a, b, c, d]);
    named.map_or_else(Vec::new, |id| id.bytes().to_vec())
}

impl Host {
    pub fn login(
        engine: &Rc<Engine>,
        name: &str,
        reinstates: bool,
    ) -> Result<Host, engine::Refused> {
        Host::login_with(engine, name, &new_port(name), reinstates)
    }

    /// As the initiator port of that TransportID.
    pub fn login_as(
        engine: &Rc<Engine>,
        name: &str,
        transport_id: &[u8],
    ) -> Result<Host, engine::Refused> {
        Host::login_with(engine, name, transport_id, false)
    }

    fn login_with(
        engine: &Rc<Engine>,
        name: &str,
        transport_id: &[u8],
        reinstates: bool,
    ) -> Result<Host, engine::Refused> {
        let fake = Rc::new(Fake::default());
        let at: SocketAddr = "127.0.0.1:3260".parse().unwrap();
        let login = Login {
            target: engine.find_target("iscsi", TARGET).unwrap(),
            initiator: name.into(),
            port_id: transport_id.to_vec(),
            transport_id: transport_id.to_vec(),
            portal: at.into(),
            from: at.into(),
            reinstates,
            labels: Vec::new(),
        };
        let session = engine.login(login, fake.clone())?;
        Ok(Host {
            session,
            fake,
            pool: engine.core().pool().clone(),
            tags: Cell::new(1),
            attribute: Cell::new(TaskAttribute::Simple),
        })
    }

    pub fn tag(&self) -> u32 {
        self.tags.replace(self.tags.get() + 1)
    }

    /// Hands a command in, and its write data when that is requested.
    pub fn send(&self, lun: u64, cdb: &[u8], expect_in: u32, data: &[u8]) -> u32 {
        let (tag, next) = self.begin(lun, cdb, expect_in, data.len() as u32);
        if let Next::Data { wanted } = next {
            self.give(tag, &data[..wanted as usize]);
        }
        tag
    }

    pub fn begin(&self, lun: u64, cdb: &[u8], expect_in: u32, expect_out: u32) -> (u32, Next) {
        let tag = self.tag();
        let next = self.session.command(&Command {
            tag,
            lun: lun_field(lun),
            cdb,
            attribute: self.attribute.get(),
            expect_in,
            expect_out,
        });
        (tag, next)
    }

    pub fn give(&self, tag: u32, data: &[u8]) {
        let mut segs = Segs::alloc(&self.pool, data.len()).unwrap();
        segs.copy_from(0, data);
        self.session.data(tag, &mut segs);
    }

    pub fn manage(&self, f: TmFunction, lun: u64, of: Option<u32>) -> u32 {
        let tag = self.tag();
        self.session.task_management(tag, f, lun_field(lun), of);
        tag
    }

    /// Takes the answer of a command out of the received messages.
    pub fn answer(&self, tag: u32) -> Option<CommandResult> {
        let mut events = self.fake.events.borrow_mut();
        let at = events.iter().position(|h| matches!(h, HostEvent::Answer(a) if a.tag == tag))?;
        match events.remove(at) {
            HostEvent::Answer(a) => Some(a),
            _ => None,
        }
    }

    /// Takes the outcome of a task management function out of the received messages.
    pub fn outcome(&self, tag: u32) -> Option<TmOutcome> {
        let mut events = self.fake.events.borrow_mut();
        let at = events.iter().position(|h| matches!(h, HostEvent::Tm(t, _) if *t == tag))?;
        match events.remove(at) {
            HostEvent::Tm(_, outcome) => Some(outcome),
            _ => None,
        }
    }

    pub fn discarded(&self, tag: u32) -> bool {
        self.fake.events.borrow().contains(&HostEvent::Discard(tag))
    }

    pub fn ended(&self) -> bool {
        self.fake.events.borrow().contains(&HostEvent::Ended)
    }
}

pub fn read16(lba: u64, blocks: u32) -> [u8; 16] {
    cdb16(0x88, lba, blocks)
}

pub fn write16(lba: u64, blocks: u32) -> [u8; 16] {
    cdb16(0x8A, lba, blocks)
}

pub fn cdb16(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// A MODE SELECT(6) that sets the control page's D_SENSE, SWP and TAS.
pub fn control_page(d_sense: bool, swp: bool, tas: bool) -> ([u8; 6], Vec<u8>) {
    let bit = |on: bool, b: u8| if on { b } else { 0 };
    let mut list = vec![0, 0, 0, 0, 0x0A, 10, 0x02 | bit(d_sense, 4), 0x10, bit(swp, 8)];
    list.extend([bit(tas, 0x40), 0, 0, 0, 0, 0, 0]);
    ([0x15, 0x10, 0, 0, list.len() as u8, 0], list)
}

/// A MODE SELECT(6) that sets WCE.
pub fn caching_page(wce: bool) -> ([u8; 6], Vec<u8>) {
    let mut list = vec![0, 0, 0, 0, 0x08, 18, if wce { 4 } else { 0 }];
    list.resize(24, 0);
    ([0x15, 0x10, 0, 0, list.len() as u8, 0], list)
}
