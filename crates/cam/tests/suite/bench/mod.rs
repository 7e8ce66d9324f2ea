//! Test bench: a device alone and a scripted SIM; the clock advances only on request.
#![allow(dead_code)] // each test binary uses its part

use cam::recovery::Policy;
use cam::{
    CamStatus, Ccb, CcbId, Command, Device, Effect, Ended, Event, Flags, Outcome, Owner, Priority,
    Queueing, Shape,
};

/// The pseudo operation code of a reset.
pub const RESET: u8 = 0xff;
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0];

pub fn write() -> Ccb {
    Ccb {
        command: Command::scsi(&WRITE),
        flags: Flags::OUT,
        priority: Priority::Normal,
        timeout_ms: 60_000,
        retries: 4,
        end_ns: u64::MAX,
        length: 512,
        owner: Owner::Task(0),
    }
}

/// A device, and a SIM that answers at once by a script; `None`: it does not answer.
pub struct Bench {
    pub device: Device,
    pub now: u64,
    pub script: Vec<Option<Outcome>>,
    pub sent: Vec<u8>,
    /// Which CCBs those were.
    pub began: Vec<CcbId>,
    pub held: Vec<CcbId>,
    pub events: Vec<(Event, bool)>,
    pub ended: Vec<(CcbId, Ended)>,
    pub aborts: usize,
    pub resets: usize,
    pub obeys: bool,
}

pub const SHAPE: Shape =
    Shape { queueing: Queueing::Tagged, openings_min: 2, openings_max: 8, policy: Policy::DISK };

pub fn bench(script: &[Option<Outcome>]) -> Bench {
    Bench {
        device: Device::new(SHAPE),
        now: 1_000_000_000,
        script: script.to_vec(),
        sent: Vec::new(),
        began: Vec::new(),
        held: Vec::new(),
        events: Vec::new(),
        ended: Vec::new(),
        aborts: 0,
        resets: 0,
        obeys: true,
    }
}

impl Bench {
    pub fn many(&mut self, n: usize) {
        for _ in 0..n {
            self.device.submit(write());
        }
    }

    /// Carries out all pending effects without waiting.
    pub fn settle(&mut self) {
        while let Some(effect) = self.device.take() {
            match effect {
                Effect::Start(id, owner) => {
                    let Some(ccb) = self.device.begin(id, owner, self.now) else { continue };
                    self.sent.push(ccb.command.cdb().first().copied().unwrap_or(RESET));
                    self.began.push(id);
                    let good = Some(Outcome::good(ccb.length));
                    let answer = if self.script.is_empty() { good } else { self.script.remove(0) };
                    match answer {
                        Some(outcome) => assert!(self.device.done(id, outcome, self.now)),
                        None => self.held.push(id),
                    }
                }
                Effect::Ended(id, _) => {
                    let ended = self.device.end(id).expect("it has ended");
                    assert!(self.device.end(id).is_none(), "D1");
                    self.ended.push((id, ended));
                }
                Effect::Abort(id) => {
                    self.aborts += 1;
                    if self.obeys {
                        self.held.retain(|held| *held != id);
                        self.device.done(id, Outcome::of(CamStatus::Aborted), self.now);
                    }
                }
                Effect::Reset => self.resets += 1,
                Effect::Event(event, whole) => self.events.push((event, whole)),
            }
        }
    }

    /// Until nothing is left to wait for.
    pub fn run(&mut self) {
        self.settle();
        while self.device.live() > 0 || self.device.is_reset() {
            self.now = self.device.due().expect("D6: something is waited for").max(self.now);
            self.device.expire(self.now);
            self.settle();
        }
        let (made, released) = self.device.freezes();
        assert_eq!(made, released, "freezes balance");
    }
}
