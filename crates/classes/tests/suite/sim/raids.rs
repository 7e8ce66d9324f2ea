//! Arrays in the same world: users, disks that fail, leave, return and are replaced, rebuilds,
//! power cuts. Acknowledged and flushed data is never lost. After every pass the array can do
//! without each disk. A disk that missed writes is never trusted.
//!
//! There are three kinds of runs. In the first two, of Intel's format and of DDF, no power cut
//! occurs while a volume with parity lacks a disk. In the third it does, and such a volume reports
//! that it is to be forced. The missing disk's data in rows being written is unknown. Flushed data
//! is right in all rows that were not being written, and in these on all disks that are present. A
//! disk may also fail all writes beside one that is lost: then both are needed.
//!
//! Volumes with a log of partial parity are treated as harshly. Then nothing is forced, and all
//! data is right, unless a needed disk failed a request: then the disks record that parity is in
//! doubt.

mod looks;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bio::{Errno, Op};
use classes::Waiting;
use classes::raid::{RaidClass, Tunables};
use geom::{Access, Class, ConsumerId};
use reactor::SeededRandom;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::known_sizes::{Kept, was_carried};
use super::life::{Life, MS, PowerCut};
use super::model::Model;
use super::run::{Totals, talk};
use super::users::Crowd;

/// Bytes of each disk without those that DDF takes.
const DISK: u64 = 96 << 10;
const DDF: u64 = 32 << 20;

/// The class with its timers made quick.
pub fn class(waiting: Arc<Waiting>) -> Arc<dyn Class> {
    let tunables = Tunables {
        start_ns: 4_000_000_000,
        idle_ns: 20_000_000,
        slab_bytes: 4096,
        save_every_ns: 3_000_000,
        ..Tunables::default()
    };
    Arc::new(RaidClass::tuned(tunables, waiting))
}

/// Bytes of each disk that a log of partial parity needs, and a bit more.
const LOG: u64 = 1200 << 10;

/// The subject of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Intel,
    Ddf,
    /// Of either format.
    Harsh,
    /// Of either format: users do not wait for each other's writes of the same sectors.
    Crowded,
    /// As harsh, with a log of partial parity.
    Logged,
}

/// Levels, disks, and how many of these may be away.
type Levels = &'static [(&'static str, usize, usize)];

const INTEL_LEVELS: Levels = &[
    ("RAID1", 2, 1),
    ("RAID1E", 3, 1),
    ("RAID10", 4, 1),
    ("RAID5", 3, 1),
    ("RAID5", 4, 1),
    ("RAID0", 3, 0),
    ("SINGLE", 1, 0),
    ("RAID5", 5, 1),
];

const LOGGED_LEVELS: Levels = &[("RAID5", 3, 1), ("RAID5", 4, 1), ("RAID5", 5, 1)];

const DDF_LEVELS: Levels = &[
    ("RAID1", 2, 1),
    ("RAID1", 3, 2),
    ("RAID1E", 3, 1),
    ("RAID10", 4, 1),
    ("RAID4", 3, 1),
    ("RAID5-LS", 3, 1),
    ("RAID5-RA", 4, 1),
    ("RAID6-LA", 4, 2),
    ("RAID6-LS", 5, 2),
    ("CONCAT", 2, 0),
];

pub(super) struct RaidSimulation {
    kind: Kind,
    ddf: bool,
    /// Parity has become doubtful since the volume was in order last, and the disks may report it
    /// still though all was made right since. A volume that lacks a disk may have to be forced.
    doubt: Arc<AtomicBool>,
    /// In this life a disk failed a request, and had to stay.
    stayed: Arc<AtomicBool>,
    random: SeededRandom,
    level: &'static str,
    count: usize,
    away: usize,
    strip: u64,
    set: String,
    volume: String,
    pub(super) disks: BTreeMap<String, Disk>,
    model: Rc<RefCell<Model>>,
    out: Vec<String>,
    user: Option<ConsumerId>,
    /// It was started by force, and not all of it has been read since. The power may fail before,
    /// and a rebuild may have ended by then.
    forced: bool,
    /// In some runs copies and parity are compared. A random generator of its own keeps the other
    /// runs unchanged.
    verifies: Option<SeededRandom>,
    /// In some with a log it is kept no longer, and again: dice of their own, too.
    policies: Option<SeededRandom>,
    /// It is unknown whether a log is kept: a crash may leave parity in doubt.
    resyncs: bool,
    /// In some disks grow while the power is off: dice of their own, too.
    pub(super) grows: Option<SeededRandom>,
    /// Where disks ended.
    pub(super) kept: Kept,
    pub(super) totals: Totals,
}

pub fn run(kind: Kind, seed: u64, lives: u64, tally: &mut Totals) {
    run_with(kind, seed, lives, None, tally);
}

/// One seed, with disks that grow while the power is off.
pub fn run_growing(kind: Kind, seed: u64, lives: u64, tally: &mut Totals) {
    run_with(kind, seed, lives, Some(SeededRandom::new(seed ^ 0x6402)), tally);
}

fn run_with(kind: Kind, seed: u64, lives: u64, grows: Option<SeededRandom>, tally: &mut Totals) {
    let mut random = SeededRandom::new(seed ^ 0x7a1d);
    let ddf =
        kind == Kind::Ddf || matches!(kind, Kind::Harsh | Kind::Crowded) && random.chance(400);
    let levels = match kind {
        Kind::Logged => LOGGED_LEVELS,
        _ if ddf => DDF_LEVELS,
        _ => INTEL_LEVELS,
    };
    let (level, count, away) = levels[random.below(levels.len() as u64) as usize];
    let bytes = match kind {
        Kind::Logged => DISK + LOG,
        _ if ddf => DISK + DDF,
        _ => DISK,
    };
    let disks = (0..count + away.min(1))
        .map(|i| (format!("d{i}"), Disk::new(bytes, random.next_u64())))
        .collect::<BTreeMap<String, Disk>>();
    if let Some(disk) = disks.get("d0").filter(|_| seed % 4 == 1) {
        // These disks write zeroes on a request to zero.
        Disk::lock(disk).zeroes = false;
    }
    let mut story = RaidSimulation {
        kind,
        ddf,
        doubt: Arc::default(),
        stayed: Arc::default(),
        random,
        level,
        count,
        away,
        strip: 0,
        set: String::new(),
        volume: String::new(),
        disks,
        model: Rc::default(),
        out: Vec::new(),
        user: None,
        forced: false,
        verifies: [0, 2].contains(&(seed % 5)).then(|| SeededRandom::new(seed ^ 0x5c2b)),
        policies: (kind == Kind::Logged && seed % 5 == 1).then(|| SeededRandom::new(seed ^ 0x91c4)),
        resyncs: false,
        grows,
        kept: Kept::default(),
        totals: std::mem::take(tally),
    };
    let carried = Arc::new(AtomicU64::new(0));
    for number in 0..lives {
        let cores = 1 + story.random.below(3) as usize;
        let mut life = Life::new(story.random.next_u64(), cores);
        life.go_on_from(&story.kept);
        (story.user, story.out) = (None, Vec::new());
        let doubt = story.doubt.clone();
        story.stayed = Arc::default();
        let stayed = story.stayed.clone();
        let brought = carried.clone();
        life.control.topology.set_listener(Box::new(move |remark| {
            talk(|| format!("  {}: {}", remark.name, remark.text));
            brought.fetch_add(u64::from(was_carried(remark)), SeqCst);
            // A disk that failed a request had to stay: its part of the request is unknown.
            let stays = remark.text.contains("but stays: ");
            doubt.fetch_or(stays, SeqCst);
            stayed.fetch_or(stays, SeqCst);
        }));
        match catch_unwind(AssertUnwindSafe(|| story.live(&mut life, number))) {
            Ok(()) => {}
            Err(why) if why.is::<PowerCut>() => {
                let line = |key| life.show("raid", &story.set, key);
                let keys = ["State", "Generation", "Volume", "Subdisks"];
                let doubts = ["parity may be wrong", "a crash causes a resync"];
                let is_doubtful = doubts.iter().any(|doubt| line("Volume").contains(doubt));
                story.doubt.fetch_or(is_doubtful, SeqCst);
                talk(|| format!("power cut: {}", keys.map(line).join("; ")));
                story.totals.power_cuts += 1;
            }
            Err(why) => {
                eprintln!(
                    "{kind:?} {level} of {count}, seed {seed} life {number}\n{}",
                    life.dump_state()
                );
                std::mem::forget(life);
                resume_unwind(why);
            }
        }
        story.totals.lives += 1;
        story.disks.values().for_each(Disk::power_cut);
        story.migrate_records();
    }
    *tally = story.totals;
    let model = story.model.borrow();
    tally.acked += model.acked;
    tally.flushed += model.flushed;
    tally.carried += carried.load(SeqCst);
}

impl RaidSimulation {
    fn live(&mut self, life: &mut Life, number: u64) {
        if number == 0 {
            self.label(life);
        } else {
            if self.random.chance(750) {
                life.fuse.set(200 + self.random.below(8_000));
            }
            self.assemble(life);
            self.find(life);
            self.check(life);
        }
        let crowd = Crowd::new(self.model.clone(), true);
        for _ in 0..3 + self.random.below(10) {
            self.start_users(life, &crowd);
            self.inject_fault(life);
            self.compare(life);
            self.change_policy(life);
            let ns = self.random.below(6 * MS);
            life.pass(ns);
            self.totals.listen(life, &crowd);
            self.agrees(life);
        }
        self.rest(life, &crowd);
        self.check(life);
        self.verify(life);
        self.without_each(life);
        if self.random.chance(500) {
            let _ = life.verb("raid", "stop", &self.set, json!({}));
        } else {
            self.arm(life);
            self.start_users(life, &crowd);
            life.pass(20 * MS);
            self.totals.listen(life, &crowd);
        }
    }

    fn label(&mut self, life: &mut Life) {
        for (name, disk) in &self.disks {
            life.plug(name, disk);
        }
        life.settle();
        let members: Vec<String> = (0..self.count).map(|i| format!("d{i}")).collect();
        self.strip = 1024 << self.random.below(3);
        let mut with = json!({
            "format": if self.ddf { "DDF" } else { "Intel" },
            "level": self.level, "members": members, "strip": self.strip,
            "assume_same": self.random.chance(500),
        });
        if self.kind == Kind::Logged {
            (with["consistency"], with["size"]) = (json!("ppl"), json!(DISK / 8 * 7));
        }
        if self.ddf {
            with["order"] = json!(["linux", "big", "little"][self.random.below(3) as usize]);
        }
        let answer = life.verb("raid", "label", "data", with).expect("labelled");
        self.set = answer["array"].as_str().expect("a name").to_owned();
        self.volume = format!("raid/{}/data", self.set);
        let on = life.control.topology.find(&self.volume).expect("the volume");
        let size = life.control.topology.limits(on).expect("limits").media_bytes;
        *self.model.borrow_mut() = Model::new(size / SECTOR);
        self.model.borrow_mut().overlaps = self.kind == Kind::Crowded;
        if self.away > 0 && self.random.chance(300) {
            let spare = format!("d{}", self.count);
            let with = json!({ "members": [spare], "force": true });
            life.verb("raid", "insert", &self.set, with).expect("a spare");
        }
        self.orderly(life);
        self.arm(life);
    }

    fn is_harsh(&self) -> bool {
        matches!(self.kind, Kind::Harsh | Kind::Logged)
    }

    fn parity(&self) -> bool {
        ["RAID4", "RAID5", "RAID6"].iter().any(|level| self.level.starts_with(level))
    }

    /// The power may fail from now on.
    fn arm(&mut self, life: &mut Life) {
        let may = self.is_harsh() || !self.parity() || self.is_whole(life);
        if may && self.random.chance(600) {
            life.fuse.set(20 + self.random.below(6_000));
        }
    }

    /// Everything is plugged in, and the volume starts, by force if it must be.
    fn assemble(&mut self, life: &mut Life) {
        let mut order: Vec<String> = self.disks.keys().cloned().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        for name in order {
            life.plug(&name, &self.disks[&name]);
            if self.random.chance(300) {
                let ns = self.random.below(20 * MS);
                life.pass(ns);
            }
        }
        if life.until(20, |c| c.topology.find(&self.volume).is_some()) {
            return;
        }
        let says = self.state(life).contains("parity may be wrong");
        assert!(
            says && self.is_harsh()
                && self.parity()
                && (self.kind != Kind::Logged || self.may_doubt()),
            "{} does not come up\n{}",
            self.volume,
            life.dump_state()
        );
        talk(|| "by force".into());
        self.forced = true;
        let start = life.verb("raid", "start", &self.set, json!({ "force": true }));
        start.unwrap_or_else(|e| panic!("{e}\n{}", life.dump_state()));
        self.totals.forced += 1;
    }

    /// Whether parity may be in doubt. That is so if it was recorded, or if the power failed before
    /// it could be, because two disks failed or were lost since the volume was in order.
    fn may_doubt(&self) -> bool {
        let failed = self.disks.values().filter(|disk| disk.lock().failed);
        self.doubt.load(SeqCst) || self.resyncs || failed.count() >= 2
    }

    fn start_users(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        if crowd.running.get() > 0 || self.random.chance(200) {
            return;
        }
        if let Some(user) = self.user.take() {
            life.close(user);
        }
        let Some((user, edge)) = life.open(&self.volume, Access::WRITE) else { return };
        self.user = Some(user);
        for _ in 0..1 + self.random.below(5) {
            let core = self.random.below(life.cores.len() as u64) as usize;
            let ops = 1 + self.random.below(30);
            crowd.start(&life.cores[core], edge, self.random.next_u64(), ops);
        }
    }

    fn inject_fault(&mut self, life: &mut Life) {
        if self.away == 0 {
            return;
        }
        if self.parity() && !self.is_harsh() {
            // See the module.
            life.fuse.set(u64::MAX);
        }
        let all: Vec<String> = self.disks.keys().cloned().collect();
        let name = all[self.random.below(all.len() as u64) as usize].clone();
        let disk = self.disks[&name].clone();
        match self.random.below(if self.is_harsh() { 12 } else { 10 }) {
            0..3 => self.lose(life, &name, &disk),
            3..5 => {
                if let Some(name) = self.out.pop() {
                    talk(|| format!("back {name}"));
                    life.plug_soon(&name, &self.disks[&name]);
                }
            }
            5..7 => {
                if !self.is_whole(life) {
                    return;
                }
                let ops = [Op::Read, Op::Write, Op::Flush, Op::WriteZeroes];
                let op = ops[self.random.below(4) as usize];
                talk(|| format!("once {name} {op:?}"));
                disk.lock().once = Some((op, Errno::Io));
            }
            7 => life.calm(&self.disks),
            10.. if !self.out.is_empty() && !self.out.contains(&name) && self.is_sound() => {
                talk(|| format!("{name} fails all writes"));
                let faults = [Op::Write, Op::WriteZeroes].map(|op| (op, 100, Errno::Io));
                disk.lock().faults.extend(faults);
            }
            10.. => {}
            _ => {
                let (verb, with) = match self.random.below(4) {
                    0 => ("configure", json!({ "sync_rate": 1 << 20 })),
                    1 => ("configure", json!({ "sync_rate": 0 })),
                    2 if self.is_whole(life) && self.out.is_empty() => {
                        ("fail", json!({ "members": [name] }))
                    }
                    _ => ("insert", json!({ "members": [name], "force": true })),
                };
                talk(|| format!("{verb} {with}"));
                let done = life.verb("raid", verb, &self.set, with);
                talk(|| format!("{verb}: {done:?}"));
                self.totals.verbs += u64::from(done.is_ok());
            }
        }
    }

    fn lose(&mut self, life: &mut Life, name: &str, disk: &Disk) {
        if self.out.len() >= self.away || self.out.iter().any(|out| out == name) {
            return;
        }
        life.calm(&self.disks);
        if !(self.is_whole(life) && self.all_seen(life) || self.is_even(life)) {
            return;
        }
        let dark = self.random.chance(500);
        talk(|| format!("pull {name} dark {dark}"));
        life.pull(name, disk, dark);
        disk.lock().failed = true;
        self.out.push(name.to_owned());
        self.totals.lost += 1;
    }

    /// Everything is plugged in, nothing fails, and the volume has all of its members.
    fn rest(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        life.calm(&self.disks);
        if !life.until(120, |_| crowd.running.get() == 0) {
            panic!("{} users never end\n{}", crowd.running.get(), life.dump_state());
        }
        self.totals.listen(life, crowd);
        if let Some(user) = self.user.take() {
            life.close(user);
        }
        self.check_clean(life);
        while let Some(name) = self.out.pop() {
            life.plug_soon(&name, &self.disks[&name]);
        }
        self.orderly(life);
    }

    /// Copies and parity are compared, beside other work; or no longer.
    fn compare(&mut self, life: &mut Life) {
        let Some(dice) = &mut self.verifies else { return };
        if !dice.chance(400) {
            return;
        }
        let with = json!({
            "repair": dice.chance(500), "end": dice.chance(200), "rate": dice.below(3) << 20,
        });
        talk(|| format!("verify {with}"));
        // One that is not in order is refused.
        let done = life.verb("raid", "verify", &self.set, with);
        talk(|| format!("verify: {done:?}"));
        self.totals.verbs += u64::from(done.is_ok());
    }

    /// A log is kept no longer, or again, beside other work.
    fn change_policy(&mut self, life: &mut Life) {
        let Some(dice) = &mut self.policies else { return };
        if !dice.chance(250) {
            return;
        }
        let keep = dice.chance(600);
        let with = json!({ "policy": if keep { "ppl" } else { "resync" } });
        talk(|| format!("consistency {with}"));
        // The power may fail before its completion is reported.
        self.resyncs = true;
        let done = life.verb("raid", "consistency", &self.set, with);
        talk(|| format!("consistency: {done:?}"));
        self.totals.policies += u64::from(done.is_ok());
        self.resyncs = !(keep && done.is_ok());
    }
}
