//! Model test of the engine in a seeded simulation. Three initiators on two cores send random
//! commands to two disks that answer late, in any order, or with errors. A model predicts the
//! permitted answers and the possible contents of the media. `ASHLAR_SEEDS=1000` runs more seeds; a
//! failing one prints itself.
//!
//! Contents of the model
//!  * unit attentions: a queue for each initiator and LUN, reported in order, once each. Before the
//!    first command for a LUN it holds one condition, which covers all that arrive;
//!  * media: every write has a stamp. GOOD means that it is there once, a stamp whose command was
//!    aborted never arrives after the abort was answered or the command was discarded;
//!  * reads return, block by block, contents of the medium at some moment while they ran;
//!  * every command has one end, and an abort is answered when those it is about have ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bio::{Errno, Op};
use engine::{DataError, Next, TaskAttribute, TmFunction, TmOutcome};
use geom::Event;
use reactor::SeededRandom;
use testkit::Seeds;

use crate::world::*;

const STEPS: u64 = 600;
const SIZES: [u64; 3] = [48, 64, 96];
const DISKS: [&str; 2] = ["d0", "d1"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read { lba: u64, blocks: u64 },
    Write { lba: u64, blocks: u64, stamp: u64 },
}

#[derive(Clone, Debug)]
struct Sent {
    kind: Kind,
    disk: usize,
    at: u64,
    /// Sense that it must end with, for any outcome below.
    must: Option<(u8, u8, u8)>,
    /// It waits for this much data.
    wanted: Option<u32>,
    /// Task management may end it: silently, or with TASK ABORTED.
    aborted: Option<bool>,
    /// Data will not arrive: the command ends with this sense.
    spoiled: bool,
}

struct Manage {
    targets: Vec<(usize, u32)>,
}

struct Sim {
    w: World,
    random: SeededRandom,
    hosts: Vec<Host>,
    queues: Vec<[VecDeque<(u8, u8)>; 2]>,
    /// Which LUNs a host has used since it logged in.
    used: Vec<[bool; 2]>,
    sent: BTreeMap<(usize, u32), Sent>,
    tms: BTreeMap<(usize, u32), Manage>,
    size: [u64; 2],
    tas: [bool; 2],
    /// By disk and block: (step, stamp), oldest first.
    history: [Vec<Vec<(u64, u64)>>; 2],
    read_log: [usize; 2],
    /// Stamps that may still arrive.
    alive: BTreeSet<u64>,
    arrived: BTreeSet<u64>,
    /// Last step at which a disk was failing.
    failing: [u64; 2],
    stamps: u64,
    now: u64,
    ended: u64,
}

impl Sim {
    /// A condition reaches a nexus.
    fn push(&mut self, host: usize, disk: usize, attention: (u8, u8)) {
        let queue = &mut self.queues[host][disk];
        if !self.used[host][disk] {
            // A reset is more than a lost nexus; everything else is less than either.
            if attention == (0x29, 0) {
                *queue = VecDeque::from([attention]);
            }
        } else if !queue.contains(&attention) {
            queue.push_back(attention);
        }
    }

    fn new(seed: u64) -> Sim {
        let mut w = World::new(seed);
        for name in DISKS {
            w.disk(name, 64);
            w.export(name);
        }
        w.map(&[(0, "d0", false), (1, "d1", false)]);
        let hosts = (0..3).map(|i| w.host(i % 2, &format!("i{i}"))).collect();
        let fresh = || [VecDeque::from([(0x29, 0)]), VecDeque::from([(0x29, 0)])];
        let blocks = || vec![vec![(0, 0)]; 128];
        Sim {
            w,
            random: SeededRandom::new(seed),
            hosts,
            queues: (0..3).map(|_| fresh()).collect(),
            used: vec![[false; 2]; 3],
            sent: BTreeMap::new(),
            tms: BTreeMap::new(),
            size: [64; 2],
            tas: [false; 2],
            history: [blocks(), blocks()],
            read_log: [0; 2],
            alive: BTreeSet::new(),
            arrived: BTreeSet::new(),
            failing: [0; 2],
            stamps: 0,
            now: 1,
            ended: 0,
        }
    }

    fn pick(&mut self, n: u64) -> usize {
        self.random.below(n) as usize
    }

    fn step(&mut self) {
        self.now += 1;
        let (host, disk) = (self.pick(3), self.pick(2));
        match self.random.below(100) {
            0..24 => self.send_write(host, disk),
            24..42 => self.send_read(host, disk),
            42..50 => self.send_other(host, disk),
            50..70 => self.release(disk),
            70..74 => self.give_data(),
            74..78 => self.abort_one(host),
            78..80 => self.manage(host, disk, TmFunction::AbortTaskSet),
            80..82 => self.manage(host, disk, TmFunction::ClearTaskSet),
            82..83 => self.manage(host, disk, TmFunction::LunReset),
            83..86 => self.mode(host, disk),
            86..88 => self.resize(disk),
            88..91 => self.fail(disk),
            91..93 => self.hold(disk),
            93..94 => self.login_again(host),
            _ => self.w.turn(),
        }
        self.look();
    }

    /// Sense data that a command must get at once: a unit attention, or a range error.
    fn must(&mut self, host: usize, disk: usize, end: Option<u64>) -> Option<(u8, u8, u8)> {
        self.used[host][disk] = true;
        if let Some((asc, ascq)) = self.queues[host][disk].pop_front() {
            return Some((6, asc, ascq));
        }
        end.filter(|e| *e > self.size[disk]).map(|_| (5, 0x21, 0))
    }

    fn attribute(&mut self, host: usize) {
        let attribute = match self.random.below(12) {
            0 => TaskAttribute::Ordered,
            1 => TaskAttribute::HeadOfQueue,
            _ => TaskAttribute::Simple,
        };
        self.hosts[host].attribute.set(attribute);
    }

    fn note(&mut self, host: usize, tag: u32, kind: Kind, disk: usize, must: Option<(u8, u8, u8)>) {
        let at = self.now;
        let sent = Sent { kind, disk, at, must, wanted: None, aborted: None, spoiled: false };
        self.sent.insert((host, tag), sent);
    }

    fn send_write(&mut self, host: usize, disk: usize) {
        if self.hosts[host].session.outstanding() > 40 {
            return;
        }
        let (lba, blocks) = (self.random.below(98), self.random.below(4));
        let must = self.must(host, disk, Some(lba + blocks));
        self.stamps += 1;
        let stamp = self.stamps;
        self.attribute(host);
        let cdb = write16(lba, blocks as u32);
        let (tag, next) = self.hosts[host].begin(disk as u64, &cdb, 0, blocks as u32 * 512);
        self.note(host, tag, Kind::Write { lba, blocks, stamp }, disk, must);
        if let Next::Data { wanted } = next {
            assert_eq!(must, None, "no data is asked for when the end is known");
            self.alive.insert(stamp);
            self.sent.get_mut(&(host, tag)).unwrap().wanted = Some(wanted);
            if self.random.below(4) > 0 {
                self.give(host, tag);
            }
        }
    }

    fn give(&mut self, host: usize, tag: u32) {
        let sent = self.sent.get_mut(&(host, tag)).unwrap();
        let Kind::Write { stamp, .. } = sent.kind else { return };
        let wanted = sent.wanted.take().unwrap();
        if self.random.below(20) == 0 {
            sent.spoiled = true;
            return self.hosts[host].session.data_failed(tag, DataError::Digest);
        }
        let data: Vec<u8> = stamp.to_be_bytes().repeat(wanted as usize / 8);
        self.hosts[host].give(tag, &data);
    }

    fn give_data(&mut self) {
        let waiting: Vec<(usize, u32)> =
            self.sent.iter().filter(|(_, s)| s.wanted.is_some()).map(|(k, _)| *k).collect();
        if !waiting.is_empty() {
            let at = self.pick(waiting.len() as u64);
            self.give(waiting[at].0, waiting[at].1);
        }
    }

    fn send_read(&mut self, host: usize, disk: usize) {
        if self.hosts[host].session.outstanding() > 40 {
            return;
        }
        let (lba, blocks) = (self.random.below(98), self.random.below(4));
        let must = self.must(host, disk, Some(lba + blocks));
        self.attribute(host);
        let cdb = read16(lba, blocks as u32);
        let tag = self.hosts[host].send(disk as u64, &cdb, blocks as u32 * 512, &[]);
        self.note(host, tag, Kind::Read { lba, blocks }, disk, must);
    }

    /// TEST UNIT READY, INQUIRY or REQUEST SENSE, at the head of the queue: answered at once.
    fn send_other(&mut self, host: usize, disk: usize) {
        self.hosts[host].attribute.set(TaskAttribute::HeadOfQueue);
        self.used[host][disk] = true;
        let h = &self.hosts[host];
        match self.random.below(3) {
            0 => {
                let want = self.must(host, disk, None).unwrap_or_default();
                let a = self.w.run(&self.hosts[host], disk as u64, &TUR, 0, &[]);
                assert_eq!(a.asc(), want);
            }
            1 => {
                self.w.run(h, disk as u64, &[0x12, 0, 0, 0, 36, 0], 36, &[]).good();
            }
            _ => {
                let a = self.w.run(h, disk as u64, &[3, 0, 0, 0, 18, 0], 18, &[]).good();
                let want = self.queues[host][disk].pop_front().unwrap_or_default();
                assert_eq!((a.data[12], a.data[13]), want);
            }
        }
    }

    fn release(&mut self, disk: usize) {
        let d = self.w.disks[disk].1.clone();
        let held = d.state().held.len() as u64;
        if held > 0 {
            let at = self.pick(held);
            self.w.release(&d, at);
        }
    }

    fn mark(&mut self, by: usize, targets: &[(usize, u32)], tas: bool) {
        for key in targets {
            if let Some(sent) = self.sent.get_mut(key) {
                sent.wanted = None;
                sent.aborted.get_or_insert(tas && key.0 != by);
            }
        }
    }

    fn abort_one(&mut self, host: usize) {
        let own: Vec<(usize, u32)> = self.sent.keys().filter(|k| k.0 == host).copied().collect();
        if own.is_empty() {
            return;
        }
        let key = own[self.pick(own.len() as u64)];
        self.mark(host, &[key], false);
        let tm = self.hosts[host].manage(TmFunction::AbortTask, 0, Some(key.1));
        self.tms.insert((host, tm), Manage { targets: vec![key] });
    }

    fn manage(&mut self, host: usize, disk: usize, f: TmFunction) {
        let all = f != TmFunction::AbortTaskSet;
        // A command whose turn is on its way to another core may still end as if nothing were.
        self.w.turn();
        self.look();
        let targets: Vec<(usize, u32)> = self
            .sent
            .iter()
            .filter(|(k, s)| s.disk == disk && (all || k.0 == host))
            .map(|(k, _)| *k)
            .collect();
        let tas = self.tas[disk];
        self.mark(host, &targets, tas);
        self.used[host][disk] = true;
        for other in 0..3 {
            let lost = targets.iter().any(|t| t.0 == other);
            match f {
                TmFunction::LunReset => self.push(other, disk, (0x29, 0)),
                TmFunction::ClearTaskSet if lost && other != host && !tas => {
                    self.push(other, disk, (0x2F, 0));
                }
                _ => {}
            }
        }
        if f == TmFunction::LunReset {
            self.tas[disk] = false;
        }
        let tm = self.hosts[host].manage(f, disk as u64, None);
        self.tms.insert((host, tm), Manage { targets });
        self.w.turn();
    }

    fn mode(&mut self, host: usize, disk: usize) {
        self.hosts[host].attribute.set(TaskAttribute::HeadOfQueue);
        let tas = self.random.below(2) == 0;
        let (cdb, list) = control_page(false, false, tas);
        let want = self.must(host, disk, None);
        let a = self.w.run(&self.hosts[host], disk as u64, &cdb, 0, &list);
        assert_eq!(a.asc(), want.unwrap_or_default());
        if want.is_none() && tas != self.tas[disk] {
            self.tas[disk] = tas;
            for other in (0..3).filter(|o| *o != host) {
                self.push(other, disk, (0x2A, 1));
            }
        }
    }

    fn resize(&mut self, disk: usize) {
        let size = SIZES[self.pick(3)];
        let p = self.w.provider(DISKS[disk]);
        self.w.control.topology.post(Event::Resize(p, size * 512));
        self.w.settle();
        if size != self.size[disk] {
            self.size[disk] = size;
            (0..3).for_each(|h| self.push(h, disk, (0x2A, 9)));
        }
    }

    fn fail(&mut self, disk: usize) {
        let bad = self.random.below(98) * 512;
        let mut state = self.w.disks[disk].1.state();
        state.fail = match state.fail {
            Some(_) => None,
            None => Some((bad, Errno::Io)),
        };
        drop(state);
        self.failing[disk] = self.now;
    }

    fn hold(&mut self, disk: usize) {
        let mut state = self.w.disks[disk].1.state();
        state.hold = !state.hold;
    }

    /// The session ends, and the next one of the same port takes its place.
    fn login_again(&mut self, host: usize) {
        let own: Vec<(usize, u32)> = self.sent.keys().filter(|k| k.0 == host).copied().collect();
        self.mark(host, &own, false);
        self.hosts[host].session.close();
        for disk in 0..2 {
            let d = self.w.disks[disk].1.clone();
            self.w.release_all(&d);
        }
        self.w.turn();
        assert!(self.hosts[host].ended());
        self.look();
        assert!(!self.sent.keys().any(|k| k.0 == host), "nothing outlives its session");
        self.tms.retain(|k, _| k.0 != host);
        self.hosts[host] =
            Host::login(&self.w.engines[host % 2], &format!("i{host}"), true).unwrap();
        self.queues[host] = [VecDeque::from([(0x29, 7)]), VecDeque::from([(0x29, 7)])];
        self.used[host] = [false; 2];
    }

    /// Takes in the log of the disks and the answers to the initiators.
    fn look(&mut self) {
        for disk in 0..2 {
            let log = self.w.disks[disk].1.state().log[self.read_log[disk]..].to_vec();
            self.read_log[disk] += log.len();
            for done in log.iter().filter(|d| d.op == Op::Write) {
                let stamp = u64::from_be_bytes(done.data[..8].try_into().unwrap());
                assert!(self.alive.contains(&stamp), "a dead write arrives: {stamp}");
                assert!(self.arrived.insert(stamp), "a write arrives twice: {stamp}");
                for b in done.offset / 512..(done.offset + done.length) / 512 {
                    self.history[disk][b as usize].push((self.now, stamp));
                }
            }
            if self.w.disks[disk].1.state().fail.is_some() {
                self.failing[disk] = self.now;
            }
        }
        for host in 0..3 {
            let events = std::mem::take(&mut *self.hosts[host].fake.events.borrow_mut());
            for one in events {
                self.on_event(host, one);
            }
        }
    }

    fn on_event(&mut self, host: usize, event: HostEvent) {
        match event {
            HostEvent::Answer(a) => {
                let sent = self.sent.remove(&(host, a.tag)).expect("one end for each command");
                self.judge(&sent, &a);
                if let Kind::Write { stamp, .. } = sent.kind {
                    self.alive.remove(&stamp);
                }
                self.ended += 1;
            }
            HostEvent::Discard(tag) => {
                let sent = self.sent.remove(&(host, tag)).expect("one end for each command");
                assert_eq!(sent.aborted, Some(false), "only what was aborted is silent: {sent:?}");
                if let Kind::Write { stamp, .. } = sent.kind {
                    self.alive.remove(&stamp);
                }
            }
            HostEvent::Tm(tag, outcome) => {
                let tm = self.tms.remove(&(host, tag)).expect("one answer");
                assert_eq!(outcome, TmOutcome::Complete);
                for key in tm.targets {
                    // Answers that arrived before the abort's answer were processed before it.
                    let late = self.sent.contains_key(&key) && !self.has_ended(key);
                    assert!(!late, "{key:?} outlives its abort");
                }
            }
            HostEvent::Ended => {}
            HostEvent::Close(why) => panic!("nobody asked for {why:?}"),
        }
    }

    /// The end of another host's command is in its list and has not been taken in yet.
    fn has_ended(&self, key: (usize, u32)) -> bool {
        self.hosts[key.0].fake.events.borrow().iter().any(|h| match h {
            HostEvent::Answer(a) => a.tag == key.1,
            HostEvent::Discard(tag) => *tag == key.1,
            _ => false,
        })
    }

    fn judge(&self, sent: &Sent, a: &CommandResult) {
        if let Some(must) = sent.must {
            return assert_eq!(a.asc(), must, "{sent:?}");
        }
        if a.status == 0x40 || sent.aborted.is_some() {
            let ending = (sent.aborted, a.status);
            return assert_eq!(ending, (Some(true), 0x40), "only TASK ABORTED ends it: {sent:?}");
        }
        if sent.spoiled {
            return assert_eq!(a.asc(), (0xB, 0x47, 5));
        }
        let medium_error = matches!(a.asc(), (3, 0x11, 0) | (3, 0x0C, 0));
        if medium_error {
            return assert!(self.failing[sent.disk] >= sent.at, "{sent:?}");
        }
        // The medium may have shrunk while the command was on its way.
        if a.asc() == (5, 0x21, 0) {
            return;
        }
        assert_eq!((a.status, a.asc()), (0, (0, 0, 0)), "{sent:?}");
        match sent.kind {
            Kind::Write { blocks, stamp, .. } => {
                assert_eq!(self.arrived.contains(&stamp), blocks > 0, "{sent:?}");
            }
            Kind::Read { lba, blocks } => {
                assert_eq!(a.data.len() as u64, blocks * 512);
                for (i, block) in a.data.chunks(512).enumerate() {
                    let stamp = u64::from_be_bytes(block[..8].try_into().unwrap());
                    assert_eq!(block, stamp.to_be_bytes().repeat(64), "a block is whole");
                    self.check_moment(sent, lba + i as u64, stamp);
                }
            }
        }
    }

    /// The block held the stamp at some moment while the command ran.
    fn check_moment(&self, sent: &Sent, block: u64, stamp: u64) {
        let history = &self.history[sent.disk][block as usize];
        let held = history.iter().enumerate().any(|(i, (_, s))| {
            let until = history.get(i + 1).map_or(u64::MAX, |(step, _)| *step);
            *s == stamp && until >= sent.at
        });
        assert!(held, "block {block} never held {stamp} while {sent:?} ran");
    }

    fn finish(&mut self) {
        for disk in 0..2 {
            self.w.disks[disk].1.state().fail = None;
        }
        loop {
            self.now += 1;
            let waiting = self.sent.values().any(|s| s.wanted.is_some());
            if waiting {
                self.give_data();
            }
            for disk in 0..2 {
                let d = self.w.disks[disk].1.clone();
                self.w.release_all(&d);
            }
            self.w.turn();
            self.look();
            if !waiting {
                break;
            }
        }
        assert!(self.sent.is_empty(), "left behind: {:?}", self.sent);
        assert!(self.tms.is_empty(), "a function is not answered");
        self.w.check_empty();
        assert!(self.ended > STEPS / 8, "the run did something");
    }
}

/// N2 of nexus/mod.rs, C2 of command/mod.rs.
#[test]
fn answers_and_media_agree_with_the_model() {
    for seed in Seeds::of(12) {
        let run = std::panic::catch_unwind(|| {
            let mut sim = Sim::new(seed);
            for _ in 0..STEPS {
                sim.step();
            }
            sim.finish();
        });
        assert!(run.is_ok(), "seed {seed} fails");
    }
}
