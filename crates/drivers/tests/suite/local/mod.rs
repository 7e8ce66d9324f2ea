//! A unit as a file of a simulated kernel. It has reads of any bytes, writes, holes, flushes and
//! interruptions, over a disk that is slow and fails, with mounts that end in between. A model
//! predicts the contents of each sector.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};

use drivers::local::{Local, ServingState};
use drivers::{Driver, TargetSpec};
use reactor::sim::{self, Ended, World};
use reactor::{Reactor, SeededRandom};
use testkit::disk::Disk;
use wire::fuse::codes::{MAJOR, MINOR, errno, fallocate, opcode, whence};
use wire::fuse::{Header, REQUEST_HEAD};

use crate::common::plant::Plant;
use testkit::Seeds;

const SECTOR: usize = 512;
const SECTORS: usize = 256;
/// Mounts of one seed, and rounds of requests in each.
const MOUNTS: u32 = 3;
const ROUNDS: u32 = 25;
/// Longest wait for an answer, ns of the world.
const ANSWER_TIMEOUT_NS: u64 = 20_000_000_000;
const STEP_NS: u64 = 20_000;
const EIO: u32 = 5;

/// The operation of a request on its sectors.
#[derive(Clone, Debug)]
enum Does {
    /// Reads bytes, from `skip` bytes into the first sector on.
    Read { skip: usize, len: usize },
    /// Fills the sectors.
    Fill(u8),
    /// Nothing to them; these errors are answers too.
    Nothing { may: u32 },
}

#[derive(Clone, Debug)]
struct Asked {
    unique: u64,
    first: usize,
    count: usize,
    does: Does,
    interrupted: bool,
}

#[derive(Default)]
struct LoadCounters {
    over: bool,
    interrupted: u32,
    failed: u32,
    lost: u32,
}

struct Kernel {
    random: SeededRandom,
    reactor: Reactor,
    local: Arc<Local>,
    disk: Arc<Disk>,
    /// What each sector may hold.
    model: Vec<Vec<u8>>,
    unique: u64,
    counters: Rc<RefCell<LoadCounters>>,
}

fn message(code: u32, unique: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(REQUEST_HEAD + body.len()).unwrap();
    let mut out = Vec::new();
    Header { len, opcode: code, unique, node: 2, uid: 0, gid: 0, pid: 1 }.encode(&mut out);
    out.extend(body);
    out
}

fn io(offset: u64, size: u32) -> Vec<u8> {
    let mut body = 0u64.to_ne_bytes().to_vec();
    body.extend(offset.to_ne_bytes());
    body.extend(size.to_ne_bytes());
    body.extend([0; 20]);
    body
}

/// An answer: whose, the errno, what follows.
fn parse(reply: &[u8]) -> (u64, u32, &[u8]) {
    let word = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
    assert_eq!(word(0) as usize, reply.len(), "the length of a reply");
    let unique = u64::from_ne_bytes(reply[8..16].try_into().unwrap());
    (unique, word(4).wrapping_neg(), &reply[16..])
}

impl Kernel {
    fn name(&mut self) -> u64 {
        self.unique += 2;
        self.unique
    }

    async fn run(mut self) {
        for _ in 0..MOUNTS {
            self.mount().await;
        }
        self.counters.borrow_mut().over = true;
    }

    async fn mount(&mut self) {
        let (end, theirs) = sim::channel();
        let grant = self.local.find("here", 0).unwrap();
        let (life, (done, came)) = (Arc::<ServingState>::default(), sync_channel(1));
        self.local.serve(theirs, grant, life.clone(), done);
        loop {
            match came.try_recv() {
                Ok(how) => break how.unwrap(),
                Err(TryRecvError::Empty) => self.reactor.sleep(STEP_NS).await,
                Err(TryRecvError::Disconnected) => panic!("nobody serves it"),
            }
        }
        let (unique, mut init) = (self.name(), Vec::new());
        [MAJOR, MINOR, 131_072, u32::MAX].iter().for_each(|w| init.extend(w.to_ne_bytes()));
        end.request(message(opcode::INIT, unique, &init));
        let (of, error, body) = self.receive(&end).await;
        assert_eq!((of, error, &body[..4]), (unique, 0, &MAJOR.to_ne_bytes()[..]));
        let breaks = self.random.chance(600).then(|| self.random.below(u64::from(ROUNDS)) as u32);
        for round in 0..ROUNDS {
            let fails = if self.random.chance(300) { 150 } else { 0 };
            self.disk.set_failing(fails);
            if !self.round(&end, breaks == Some(round)).await {
                break;
            }
        }
        end.unmount();
        let until = self.reactor.now() + ANSWER_TIMEOUT_NS;
        while !(life.has_ended() && end.is_closed()) {
            assert!(self.reactor.now() < until, "it is served still");
            self.reactor.sleep(STEP_NS).await;
        }
    }

    async fn receive(&self, end: &sim::Kernel) -> (u64, u32, Vec<u8>) {
        let until = self.reactor.now() + ANSWER_TIMEOUT_NS;
        loop {
            if let Some(reply) = end.reply() {
                let (unique, error, body) = parse(&reply);
                return (unique, error, body.to_vec());
            }
            assert!(self.reactor.now() < until, "no answer");
            self.reactor.sleep(STEP_NS).await;
        }
    }

    /// A new request, for sectors that no other request uses.
    fn invent(&mut self, taken: &mut [bool]) -> Option<(Asked, Vec<u8>)> {
        let first = self.random.below(SECTORS as u64) as usize;
        let count = 1 + self.random.below((SECTORS - first).min(40) as u64) as usize;
        let range = first..first + count;
        if taken[range.clone()].iter().any(|t| *t) {
            return None;
        }
        taken[range.clone()].fill(true);
        let unique = self.name();
        let (at, len) = ((first * SECTOR) as u64, (count * SECTOR) as u64);
        let value = self.random.below(256) as u8;
        let (does, bytes) = match self.random.below(10) {
            0..4 => {
                // Any bytes of them.
                let skip = self.random.below(SECTOR as u64) as usize;
                let skip = if self.random.chance(500) { 0 } else { skip };
                let len = 1 + self.random.below((count * SECTOR - skip) as u64) as usize;
                let body = io(at + skip as u64, len as u32);
                (Does::Read { skip, len }, message(opcode::READ, unique, &body))
            }
            4..7 => {
                let mut body = io(at, len as u32);
                body.resize(body.len() + count * SECTOR, value);
                (Does::Fill(value), message(opcode::WRITE, unique, &body))
            }
            7 => {
                let hole = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
                let mode = if self.random.chance(500) { fallocate::ZERO_RANGE } else { hole };
                let mut body = 0u64.to_ne_bytes().to_vec();
                [at, len].iter().for_each(|w| body.extend(w.to_ne_bytes()));
                body.extend(mode.to_ne_bytes());
                body.extend([0; 4]);
                (Does::Fill(0), message(opcode::FALLOCATE, unique, &body))
            }
            8 => (Does::Nothing { may: 0 }, message(opcode::FSYNC, unique, &[0; 16])),
            _ => {
                let mut body = 0u64.to_ne_bytes().to_vec();
                body.extend(at.to_ne_bytes());
                let what = if self.random.chance(500) { whence::DATA } else { whence::HOLE };
                body.extend(what.to_ne_bytes());
                body.extend([0; 4]);
                (Does::Nothing { may: errno::NXIO }, message(opcode::LSEEK, unique, &body))
            }
        };
        if let Does::Fill(value) = does {
            self.model[range].iter_mut().for_each(|s| s.push(value));
        }
        Some((Asked { unique, first, count, does, interrupted: false }, bytes))
    }

    /// A few requests at once, and all their answers. With `breaks` the mount ends before the last:
    /// false.
    async fn round(&mut self, end: &sim::Kernel, breaks: bool) -> bool {
        let (mut taken, mut all) = (vec![false; SECTORS], Vec::new());
        for _ in 0..1 + self.random.below(8) {
            if let Some((request, bytes)) = self.invent(&mut taken) {
                all.push(request);
                end.request(bytes);
            }
            if self.random.chance(100) {
                let unique = self.name();
                end.request(message(opcode::FORGET, unique, &1u64.to_ne_bytes()));
            }
        }
        while !all.is_empty() {
            if self.random.chance(150) {
                let at = self.random.below(all.len() as u64) as usize;
                all[at].interrupted = true;
                let of = all[at].unique;
                end.request(message(opcode::INTERRUPT, of | 1, &of.to_ne_bytes()));
                self.reactor.sleep(self.random.below(200_000)).await;
            }
            if breaks && self.random.chance(300) {
                self.counters.borrow_mut().lost += all.len() as u32;
                return false;
            }
            let (unique, error, body) = self.receive(end).await;
            let place = all.iter().position(|a| a.unique == unique);
            let request = all.remove(place.expect("an answer nobody waits for"));
            self.learn(&request, error, &body);
        }
        true
    }

    fn learn(&mut self, request: &Asked, error: u32, body: &[u8]) {
        let mut tally = self.counters.borrow_mut();
        if error == errno::INTR {
            assert!(request.interrupted, "nobody interrupted {request:?}");
            tally.interrupted += 1;
            return;
        }
        if error == EIO {
            assert!(self.disk.is_failing(), "no disk failed: {request:?}");
            tally.failed += 1;
            return;
        }
        let sectors = request.first..request.first + request.count;
        match request.does {
            Does::Nothing { may } => assert!(error == 0 || error == may, "{error}: {request:?}"),
            Does::Fill(0) if error == errno::OPNOTSUPP => {
                // A unit without holes: nothing was done.
                self.model[sectors].iter_mut().for_each(|s| s.truncate(s.len() - 1));
            }
            Does::Fill(value) => {
                assert_eq!(error, 0, "{request:?}");
                self.model[sectors].iter_mut().for_each(|s| *s = vec![value]);
            }
            Does::Read { skip, len } => {
                assert_eq!((error, body.len()), (0, len), "{request:?}");
                let mut at = skip;
                let mut left = body;
                while !left.is_empty() {
                    let (part, rest) = left.split_at((SECTOR - at % SECTOR).min(left.len()));
                    let may = &mut self.model[request.first + at / SECTOR];
                    assert!(part.iter().all(|b| *b == part[0]), "a torn sector: {request:?}");
                    assert!(may.contains(&part[0]), "{} is none of {may:?}: {request:?}", part[0]);
                    *may = vec![part[0]];
                    (at, left) = (at + part.len(), rest);
                }
            }
        }
    }
}

/// Two cores, and the disk as LUN 0 of this machine.
fn machine(world: &World, disk: Arc<Disk>) -> (Plant, Arc<Local>) {
    let plant = Plant::new(world, SECTORS * SECTOR, disk);
    let local = Arc::new(Local::new(plant.registry.clone()));
    let spec = TargetSpec { name: "here".into(), ..TargetSpec::default() };
    let driver: Arc<dyn Driver> = local.clone();
    plant.add_target(&driver, spec, "local:here");
    (plant, local)
}

fn play(seed: u64) -> (u64, [u32; 3]) {
    let world = World::new(seed);
    let disk = Disk::slow((SECTORS * SECTOR) as u64);
    let (plant, local) = machine(&world, disk.clone());
    let outside = Reactor::simulated(&world, "kernel");
    let tally = Rc::<RefCell<LoadCounters>>::default();
    let kernel = Kernel {
        random: SeededRandom::new(seed ^ 0xF05E),
        reactor: outside.clone(),
        local: local.clone(),
        disk,
        model: vec![vec![0]; SECTORS],
        unique: 0,
        counters: tally.clone(),
    };
    drop(outside.spawn("kernel", kernel.run()));
    let ended = plant.run(&world, &outside, &mut || tally.borrow().over);
    assert_eq!(ended, Ended::Stopped, "seed {seed}");
    plant.end(&outside);
    let t = tally.borrow();
    (world.trace(), [t.interrupted, t.failed, t.lost])
}

/// V1 of local/serve.rs.
#[test]
fn data_is_correct_over_failures_and_interruptions() {
    let played = Seeds::of(20).each(play);
    let mut all = [0; 3];
    for (_, counts) in &played {
        all.iter_mut().zip(counts).for_each(|(a, c)| *a += c);
    }
    println!("interrupted, failed, lost: {all:?}");
    assert!(played.len() == 1 || all.iter().all(|n| *n > 0), "{all:?}");
}

#[test]
fn a_seed_plays_the_same_twice() {
    assert_eq!(play(5), play(5));
}
