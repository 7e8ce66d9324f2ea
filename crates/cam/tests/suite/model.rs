//! Model test of a device over a hostile SIM, in seeded worlds. Every CCB ends exactly once,
//! freezes balance, nothing hangs, acknowledged writes persist, and order is kept where it was
//! requested.
//!
//! More of them: see `testkit::seeds`.

use std::collections::BTreeMap;

use bio::Errno;
use cam::recovery::Policy;
use cam::{
    ABORT_GRACE_NS, CamStatus, Ccb, CcbId, Command, Device, Effect, Flags, Outcome, Owner,
    Priority, Queueing, RESET_GRACE_NS, ResetId, Shape,
};
use reactor::SeededRandom;
use testkit::Seeds;
use wire::scsi::{Asc, Key, Sense, Status};

const BLOCKS: u64 = 8;
const SEEDS: u64 = 1000;

fn sense(key: u8, asc: u8, ascq: u8) -> Outcome {
    let key = Key::from_code(key).unwrap_or(Key::NoSense);
    Outcome::check(Sense::new(Asc::new(key, asc, ascq)))
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Write(u64, u64),
    Read(u64),
}

struct Asked {
    operation: Operation,
    hasty: bool,
    ordered: bool,
    sent: u64,
    /// Values that a read may find. For a write: values that are replaced for good once it is
    /// acknowledged, from writes of others that ended before it was sent.
    values: Vec<u64>,
    began: bool,
    /// D12
    end_ns: u64,
}

/// With the SIM: when it answers, and which request it is.
struct Held {
    id: CcbId,
    at: u64,
    outcome: Option<Outcome>,
    serial: u64,
    carried_out: Option<u64>,
    is_recovery: bool,
}

struct World {
    seed: u64,
    random: SeededRandom,
    device: Device,
    now: u64,
    medium: Vec<u64>,
    /// Values that each block may have: the last acknowledged one and all unacknowledged ones.
    may: Vec<Vec<u64>>,
    requests: BTreeMap<u64, Asked>,
    serials: BTreeMap<CcbId, u64>,
    held: Vec<Held>,
    ended: u64,
    next: u64,
    deaf: bool,
    stopped: bool,
    /// Resets beside the queue, and by when each is over.
    resets: Vec<(ResetId, u64)>,
    depth: usize,
    last: Vec<CcbId>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = SeededRandom::new(seed);
        let openings_max = 1 + random.below(12) as u32;
        let policy = Policy { retry_busy: random.below(2) == 0, ..Policy::DISK };
        let queueing = if random.below(4) == 0 { Queueing::Untagged } else { Queueing::Tagged };
        World {
            seed,
            device: Device::new(Shape { queueing, openings_min: 1, openings_max, policy }),
            depth: 1 + random.below(8) as usize,
            stopped: random.below(4) == 0,
            random,
            now: 1,
            medium: vec![0; BLOCKS as usize],
            may: vec![vec![0]; BLOCKS as usize],
            requests: BTreeMap::new(),
            serials: BTreeMap::new(),
            held: Vec::new(),
            ended: 0,
            next: 0,
            deaf: false,
            resets: Vec::new(),
            last: Vec::new(),
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn submit(&mut self) {
        self.next += 1;
        let (serial, block) = (self.next, self.random.below(BLOCKS));
        let what =
            if self.chance(60) { Operation::Write(block, serial) } else { Operation::Read(block) };
        let ordered = self.chance(5);
        let (op, mut flags) = match what {
            Operation::Write(..) => (0x2a, Flags::OUT),
            Operation::Read(_) => (0x28, Flags::IN),
        };
        if ordered {
            flags = flags | Flags::ORDERED;
        }
        if self.chance(10) {
            flags = flags | Flags::NO_FREEZE;
        }
        // Multipath's, while it has another way.
        let hasty = self.chance(30);
        if hasty {
            flags = flags | Flags::FAIL_FAST;
        }
        let end_ns = match self.chance(20) {
            true => self.now + self.random.below(3_000) * 1_000_000,
            false => u64::MAX,
        };
        let ccb = Ccb {
            command: Command::scsi(&[op, 0, 0, 0, 0, block as u8, 0, 0, 1, 0]),
            flags,
            priority: Priority::Normal,
            timeout_ms: 1 + self.random.below(2000) as u32,
            retries: self.random.below(6) as u8,
            end_ns,
            length: 512,
            owner: Owner::Task(serial as u32),
        };
        if let Operation::Write(block, value) = what {
            // From now on a read may find the value, and reads in flight may too.
            self.may[block as usize].push(value);
            for request in self.requests.values_mut() {
                if request.operation == Operation::Read(block) {
                    request.values.push(value);
                }
            }
        }
        let values = match what {
            Operation::Read(block) => self.may[block as usize].clone(),
            Operation::Write(block, _) => {
                let mut over = self.may[block as usize].clone();
                over.retain(|v| *v != serial && !self.requests.contains_key(v));
                over
            }
        };
        let request =
            Asked { operation: what, hasty, ordered, sent: serial, values, began: false, end_ns };
        self.requests.insert(serial, request);
        let id = self.device.submit(ccb);
        assert!(self.serials.insert(id, serial).is_none(), "an id is in use once");
    }

    /// The answer of the SIM to a command, and its time.
    fn answer(&mut self, id: CcbId, ccb: Ccb, serial: u64) -> Held {
        let op = ccb.command.cdb()[0];
        let at = self.now + self.random.below(3_000_000);
        let mut held = Held {
            id,
            at,
            outcome: None,
            serial,
            carried_out: None,
            is_recovery: op == 0 || op == 0x1b,
        };
        let good = Outcome::good(ccb.length);
        if self.held.len() >= self.depth && self.chance(80) {
            held.outcome = Some(Outcome::scsi(Status::TaskSetFull));
            return held;
        }
        if op == 0x1b {
            self.stopped = self.chance(20);
            held.outcome = Some(if self.stopped { sense(2, 4, 1) } else { good });
            return held;
        }
        if self.stopped {
            let becoming = op == 0 && self.chance(30);
            self.stopped = !becoming;
            let ascq = 1 + self.random.below(2) as u8;
            held.outcome = Some(if becoming { good } else { sense(2, 4, ascq) });
            return held;
        }
        match self.random.below(if self.deaf { 4 } else { 100 }) {
            0..=3 => {}
            4..=9 => held.outcome = Some(self.failure()),
            // It did it, and reports a failure.
            10..=12 => {
                self.carry_out(&mut held);
                held.outcome = Some(self.failure());
            }
            _ => {
                self.carry_out(&mut held);
                held.outcome = Some(good);
            }
        }
        held
    }

    fn failure(&mut self) -> Outcome {
        let rows = [
            sense(6, 0x29, 0),
            sense(6, 0x2a, 9),
            sense(2, 0x04, 0x0a),
            sense(2, 0x04, 0x0b),
            sense(3, 0x31, 0),
            sense(0xb, 0x47, 5),
            Outcome::scsi(Status::Busy),
            Outcome::scsi(Status::TaskSetFull),
            Outcome::of(CamStatus::Parity),
            Outcome::of(CamStatus::BusReset),
            Outcome::of(CamStatus::Requeue),
            Outcome::of(CamStatus::Busy),
            Outcome::of(CamStatus::SelectionTimeout),
            Outcome::of(CamStatus::AutosenseFailed),
            Outcome { sense: cam::SenseData::new(&[0x7e; 9]), ..sense(2, 0, 0) },
        ];
        rows[self.random.below(rows.len() as u64) as usize]
    }

    fn carry_out(&mut self, held: &mut Held) {
        if held.is_recovery {
            return;
        }
        match self.requests[&held.serial].operation {
            Operation::Write(block, value) => self.medium[block as usize] = value,
            Operation::Read(block) => held.carried_out = Some(self.medium[block as usize]),
        }
    }

    fn begin(&mut self, id: CcbId, owner: Owner) {
        let Some(ccb) = self.device.begin(id, owner, self.now) else { return };
        let seed = self.seed;
        let open = self.resets.iter().any(|(_, due)| *due > self.now);
        assert!(!open, "seed {seed}: D9, sent into a reset");
        let serial = self.serials[&id];
        let cure = matches!(ccb.command.cdb()[0], 0 | 0x1b);
        if !cure {
            // D5, as the device sees it.
            let own = &self.requests[&serial];
            for other in self.requests.values().filter(|o| o.sent != serial) {
                let fenced = (own.ordered || other.ordered) && other.sent < serial;
                assert!(!fenced, "seed {seed}: {serial} began before {} ended", other.sent);
            }
            assert!(self.now < own.end_ns, "seed {seed}: D12, {serial} began after its end");
            self.requests.get_mut(&serial).unwrap().began = true;
        }
        if self.device.shape().queueing == Queueing::Untagged {
            assert!(self.held.is_empty(), "seed {seed}: D8, {serial} is not alone");
        }
        let held = self.answer(id, ccb, serial);
        self.held.push(held);
    }

    fn end(&mut self, id: CcbId) {
        let seed = self.seed;
        let Some(ended) = self.device.end(id) else { panic!("seed {seed}: it has not ended") };
        assert!(self.device.end(id).is_none(), "seed {seed}: D1");
        let serial = self.serials.remove(&id).expect("D1: it was asked for");
        let request = self.requests.remove(&serial).expect("D1: it ends once");
        self.ended += 1;
        self.last.push(id);
        let most_ns = request.end_ns.saturating_add(ABORT_GRACE_NS + RESET_GRACE_NS);
        assert!(self.now <= most_ns, "seed {seed}: D12, {serial} ended late");
        match (request.operation, ended.result) {
            (Operation::Write(block, _), Ok(n)) => {
                assert_eq!(n, 512);
                assert!(request.began, "seed {seed}: acknowledged and never sent");
                self.may[block as usize].retain(|v| !request.values.contains(v));
            }
            (_, Err(Errno::Again)) => assert!(request.hasty, "seed {seed}: it waits"),
            (_, Err(Errno::Inval | Errno::RoFs)) => panic!("seed {seed}: {ended:?}"),
            _ => {}
        }
    }

    fn effects(&mut self) {
        while let Some(effect) = self.device.take() {
            match effect {
                Effect::Start(id, owner) => self.begin(id, owner),
                Effect::Ended(id, _) => self.end(id),
                Effect::Abort(id) if self.chance(70) => {
                    if let Some(held) = self.held.iter_mut().find(|h| h.id == id) {
                        (held.at, held.outcome) = (self.now, Some(Outcome::of(CamStatus::Aborted)));
                    }
                }
                Effect::Abort(_) => {}
                Effect::Reset if self.chance(90) => {
                    for held in &mut self.held {
                        held.outcome = Some(Outcome::of(CamStatus::ResetSent));
                        held.at = self.now;
                    }
                }
                Effect::Reset | Effect::Event(..) => {}
            }
        }
    }

    /// The next thing that happens.
    fn step(&mut self) {
        let due = self.held.iter().filter(|h| h.outcome.is_some()).map(|h| h.at).min();
        let next = due.into_iter().chain(self.device.due()).min();
        let Some(next) = next else { panic!("seed {}: it hangs", self.seed) };
        self.now = self.now.max(next);
        self.device.expire(self.now);
        self.effects();
        while let Some(at) = self.held.iter().position(|h| h.outcome.is_some() && h.at <= self.now)
        {
            let held = self.held.swap_remove(at);
            let outcome = held.outcome.unwrap();
            if let (Some(found), CamStatus::Complete) = (held.carried_out, outcome.status) {
                self.check(&held, found);
            }
            self.device.done(held.id, outcome, self.now);
            if self.chance(3) {
                assert!(!self.device.done(held.id, outcome, self.now), "D2");
            }
            self.effects();
        }
    }

    /// An outside reset of the device; the commands that the SIM holds return gradually.
    fn reset_beside(&mut self) {
        let most_ns = self.random.below(2_000_000_000);
        let id = self.device.reset_begins(most_ns, self.now);
        self.resets.push((id, self.now + most_ns));
        for held in &mut self.held {
            held.at = self.now + self.random.below(3_000_000);
            held.outcome = Some(Outcome::of(CamStatus::BusReset));
        }
    }

    fn check(&self, held: &Held, found: u64) {
        // A command that was given up (lost) meanwhile has no owner any more.
        let Some(request) = self.requests.get(&held.serial) else { return };
        let fine = request.values.contains(&found);
        let allowed = &request.values;
        assert!(fine, "seed {}: a read found {found}, not of {allowed:?}", self.seed);
    }

    fn run(mut self) -> (u64, u64, bool) {
        let rounds = 40 + self.random.below(60);
        for _ in 0..rounds {
            for _ in 0..self.random.below(6) {
                self.submit();
                self.effects();
            }
            if self.chance(3) {
                self.reset_beside();
            }
            if self.chance(30)
                && let Some((id, _)) = self.resets.pop()
            {
                let settle_ns = self.random.below(50_000_000);
                self.device.reset_ends(id, settle_ns);
            }
            if self.chance(1) {
                self.deaf = self.random.below(3) == 0;
            }
            if self.chance(5)
                && let Some((id, _)) = self.serials.iter().next()
            {
                let id = *id;
                self.device.abort(id, self.now);
                self.effects();
            }
            if !self.requests.is_empty() {
                self.step();
            }
        }
        let mut steps = 0;
        while !self.requests.is_empty() {
            self.step();
            steps += 1;
            assert!(steps < 2_000_000, "seed {}: no end", self.seed);
        }
        while self.device.is_reset() {
            self.step();
        }
        let (made, released) = self.device.freezes();
        assert_eq!(made, released, "seed {}: freezes", self.seed);
        assert_eq!((self.device.live(), self.ended), (0, self.next), "seed {}: D1", self.seed);
        let counts = self.device.counts();
        assert_eq!((counts.submitted, counts.ended), (self.next, self.next));
        (counts.retries, made, self.device.is_lost())
    }
}

/// D1 of device/mod.rs, D4 of device/mod.rs, D6 of device/mod.rs, Z1 of freeze.rs, Z2 of freeze.rs.
#[test]
fn random_devices_agree_with_the_model() {
    let all = Seeds::of(SEEDS);
    let (mut retries, mut freezes, mut lost, seeds) = (0, 0, 0, all.count());
    for seed in all.clone() {
        let (r, f, l) = World::new(seed).run();
        (retries, freezes, lost) = (retries + r, freezes + f, lost + u64::from(l));
    }
    if !all.are_enough() {
        return;
    }
    // The worlds are not all alike.
    assert!(retries > 10 * seeds && freezes > 10 * seeds, "{retries} retries, {freezes} freezes");
    assert!(lost > seeds / 100 && lost < seeds * 9 / 10, "{lost} of {seeds} were lost");
}
