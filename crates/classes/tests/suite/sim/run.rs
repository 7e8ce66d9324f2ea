//! The life of a stack, from its labelling through power cuts to the end.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::Attr;
use geom::{Access, ConsumerId, ProviderId};
use reactor::SeededRandom;
use serde_json::json;

use super::disk::{CLEANED, Disk, SECTOR, Watch};
use super::known_sizes::{Kept, was_carried};
use super::life::{Life, MS, PowerCut};
use super::model::Model;
use super::plan::Plan;
use super::users::Crowd;

pub(super) const DISK: u64 = 64 << 10;
/// Bytes by which a disk grows.
pub(super) const GROWTH: u64 = 8 << 10;
/// The disk that may be appended.
pub(super) const APPENDED: &str = "a0";

/// How much was done, so that a run which does nothing is seen.
#[derive(Default, Debug)]
pub struct Totals {
    pub lives: u64,
    pub power_cuts: u64,
    pub ops: u64,
    pub failed: u64,
    pub acked: u64,
    pub flushed: u64,
    pub lost: u64,
    pub verbs: u64,
    pub compared: u64,
    /// Mirrors that were made larger, and smaller.
    pub grown: u64,
    pub shrunk: u64,
    /// Arrays that were started by force, and sectors that had to be given up.
    pub forced: u64,
    pub holes: u64,
    /// Arrays that lacked a disk, and were clean though another had failed and stayed.
    pub cleaned: u64,
    /// Disks whose labels were moved after they had grown: by `relocate`, by the daemon.
    pub followed: u64,
    pub carried: u64,
    /// Arrays that were compared from end to end.
    pub verified: u64,
    /// Times that a mirror was read while it became smaller.
    pub reads: u64,
    /// Policies of consistency that were changed.
    pub policies: u64,
}

impl Totals {
    /// Adds the ended requests of a crowd, none of which may have had a wrong result.
    pub(super) fn listen(&mut self, life: &Life, crowd: &Crowd) {
        if let Some(what) = crowd.fault.borrow().as_ref() {
            panic!("{what}\n{}", life.dump_state());
        }
        self.ops += crowd.ended.replace(0);
        self.failed += crowd.failed.replace(0);
    }
}

pub(super) struct Simulation<'a> {
    pub(super) plan: &'a Plan,
    /// The plan with the names that arrays were given.
    pub(super) labelled: &'a OnceCell<Plan>,
    pub(super) random: SeededRandom,
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) model: Rc<RefCell<Model>>,
    /// By mirror: members that had everything when it was last seen.
    holders: BTreeMap<String, BTreeSet<String>>,
    pub(super) totals: Totals,
    /// Not plugged in.
    pub(super) out: BTreeSet<String>,
    /// The top provider; whether a disk lost its cache in this life; and whether the top provider
    /// was lost since the last check.
    top: Option<ProviderId>,
    pub(super) dark: bool,
    lost: bool,
    pub(super) user: Option<(ConsumerId, geom::Edge)>,
    /// The top provider was requested to become larger, or to have so many sectors: it may change
    /// from now on, until the result is known.
    pub(super) larger: bool,
    pub(super) smaller: Option<u64>,
    /// The array on top was started by force, and not all of it has been read since.
    pub(super) forced: bool,
    /// The user that has it open reads while it becomes smaller.
    pub(super) reads: bool,
    /// Of geoms that may grow: the sizes of each when no work ran, and those that were
    /// requested since, in bytes.
    pub(super) sizes: BTreeMap<String, u64>,
    pub(super) requested: BTreeMap<String, BTreeSet<u64>>,
    /// Where things ended.
    pub(super) kept: Kept,
    /// Chance for moving labels: a random generator of its own, so that other runs stay unchanged.
    pub(super) dice: SeededRandom,
}

pub fn run(plan: &Plan, seed: u64, lives: u64, tally: &mut Totals) {
    let mut random = SeededRandom::new(seed ^ 0x5eed_0000);
    let mut disks = BTreeMap::new();
    for i in 0..plan.disks + plan.spares {
        let disk = Disk::new(plan.disk_bytes, random.next_u64());
        if i >= plan.disks {
            disk.put(0, &vec![0xa5; (plan.disk_bytes - SECTOR) as usize]);
        }
        if plan.rich {
            disk.lock().deletes = random.chance(850);
            disk.lock().zeroes = random.chance(800);
        }
        disks.insert(format!("d{i}"), disk);
    }
    if plan.appends().is_some() {
        disks.insert(APPENDED.into(), Disk::new(DISK, random.next_u64()));
    }
    let labelled = OnceCell::new();
    let mut story = Simulation {
        plan,
        labelled: &labelled,
        random,
        disks,
        model: Rc::default(),
        holders: BTreeMap::new(),
        totals: std::mem::take(tally),
        out: BTreeSet::new(),
        top: None,
        dark: false,
        lost: false,
        user: None,
        larger: false,
        smaller: None,
        forced: false,
        reads: false,
        sizes: BTreeMap::new(),
        requested: BTreeMap::new(),
        kept: Kept::default(),
        dice: SeededRandom::new(seed ^ 0x0e4d),
    };
    let carried = Arc::new(AtomicU64::new(0));
    for number in 0..lives {
        let cores = 1 + story.random.below(3) as usize;
        let mut life = Life::new(story.random.next_u64(), cores);
        (story.user, story.reads) = (None, false);
        (story.top, story.dark, story.lost) = (None, false, false);
        life.go_on_from(&story.kept);
        if plan.overtaken {
            life.overtake(seed ^ number);
        }
        let brought = carried.clone();
        life.control.topology.set_listener(Box::new(move |remark| {
            talk(|| format!("  {}: {}", remark.name, remark.text));
            brought.fetch_add(u64::from(was_carried(remark)), Relaxed);
        }));
        let lived = catch_unwind(AssertUnwindSafe(|| story.live(&mut life, number)));
        match lived {
            Ok(()) => {}
            Err(why) if why.is::<PowerCut>() => {
                talk(|| "power cut".into());
                story.totals.power_cuts += 1;
            }
            Err(why) => {
                eprintln!("{plan:?}\nseed {seed} life {number}\n{}", life.dump_state());
                std::mem::forget(life);
                resume_unwind(why);
            }
        }
        story.look(&life);
        story.totals.lives += 1;
        CLEANED.set(Watch::Off);
        story.disks.values().for_each(Disk::power_cut);
        story.migrate_labels();
    }
    *tally = story.totals;
    let model = story.model.borrow();
    tally.acked += model.acked;
    tally.flushed += model.flushed;
    tally.carried += carried.load(Relaxed);
}

/// Prints a message if `SIM_TALK` is set.
pub(super) fn talk(what: impl FnOnce() -> String) {
    if std::env::var("SIM_TALK").is_ok() {
        eprintln!("{}", what());
    }
}

impl Simulation<'_> {
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.random.chance(percent * 10)
    }

    pub(super) fn pick(&mut self, from: &[String]) -> Option<String> {
        let at = self.random.below(from.len().max(1) as u64) as usize;
        from.get(at).cloned()
    }

    /// Checks whether the top provider is another one than before: then it was lost, and its users
    /// know. Data that only a member with a lost cache had may be lost with it, when the others
    /// failed at the same time.
    fn miss(&mut self, life: &Life) {
        let Some(top) = life.control.topology.find(&self.plan.top) else { return };
        let before = self.top.replace(top);
        if self.dark && before.is_some_and(|before| before != top) {
            self.lost = true;
            self.model.borrow_mut().top_restored();
        }
    }

    /// Notes the members that have everything now.
    pub(super) fn look(&mut self, life: &Life) {
        talk(|| {
            let line = |m: &super::plan::Made| {
                let say = |key| life.show("mirror", &m.name, key);
                let who: Vec<_> =
                    life.members(&m.name).into_iter().map(|(n, s, _)| n + " " + &s).collect();
                let refused = say("Refused");
                format!(
                    "  {} g{} s{} all {} {who:?} {refused}",
                    m.name,
                    say("GenID"),
                    say("SyncID"),
                    say("Components")
                )
            };
            self.plan.mirrors().map(line).collect::<Vec<_>>().join("\n")
        });
        if self.model.borrow().sectors() > 0 {
            self.learn_size(life);
        }
        for mirror in self.plan.mirrors() {
            let members = life.members(&mirror.name);
            let active: BTreeSet<String> = members
                .into_iter()
                .filter(|(_, state, _)| state == "ACTIVE")
                .map(|(name, ..)| name)
                .collect();
            if !active.is_empty() {
                self.holders.insert(mirror.name.clone(), active);
            }
        }
    }

    fn live(&mut self, life: &mut Life, number: u64) {
        if number == 0 {
            self.label(life);
        } else {
            if self.chance(75) {
                let most = if self.chance(25) { 1_500 } else { 12_000 };
                life.fuse.set(20 + self.random.below(most));
            }
            self.assemble(life);
            self.check(life, true);
        }
        if number == 0 {
            self.check(life, true);
            life.fuse.set(20 + self.random.below(12_000));
        }
        if self.plan.rich && number > 0 && self.chance(30) {
            CLEANED.set(Watch::Armed);
        }
        let crowd = Crowd::new(self.model.clone(), true);
        let troubles = 4 + self.random.below(24);
        for _ in 0..troubles {
            if self.plan.shrinks && crowd.running.get() == 0 && self.chance(20) {
                self.shrink(life);
            }
            if self.plan.rises && self.chance(15) {
                self.rise(life, &crowd);
            }
            self.start_users(life, &crowd);
            self.inject_fault(life);
            let ns = self.random.below(6 * MS);
            let failed = self.may_read(life).then(|| crowd.failed.get());
            life.pass(ns);
            self.look(life);
            self.listen_to_readers(life, &crowd, failed);
            self.totals.listen(life, &crowd);
            self.rearm(life);
        }
        self.rest(life, &crowd);
        self.check(life, false);
        self.compare(life);
        if self.plan.rich {
            self.verify(life);
        }
        self.verify_arrays(life);
        if self.chance(50) {
            // Now and then an orderly end.
            let top = self.plan.made.last().expect("a top");
            if !self.plan.part && top.class != "part" {
                let _ = life.verb(top.class, "stop", top.set(), json!({}));
            }
        }
    }

    fn label(&mut self, life: &mut Life) {
        let disks: Vec<(String, Disk)> =
            self.disks.iter().map(|(n, d)| (n.clone(), d.clone())).collect();
        for (name, _) in &disks {
            self.plug(life, name);
        }
        life.settle();
        self.label_all(life);
        if self.plan.part {
            let on = &self.plan.top;
            for (verb, with) in
                [("create", json!({ "scheme": "gpt" })), ("add", json!({ "kind": "linux-data" }))]
            {
                let done = life.verb("part", verb, on, with);
                done.unwrap_or_else(|e| panic!("part {verb}: {e}"));
            }
        }
        let volume = self.plan.volume();
        let on = life.control.topology.find(&volume).unwrap_or_else(|| panic!("no {volume}"));
        let size = life.control.topology.limits(on).expect("limits").media_bytes;
        *self.model.borrow_mut() = Model::new(size / SECTOR);
        self.model.borrow_mut().overlaps = self.plan.crowded;
        self.at_rest(life);
    }

    /// Disks that may arrive late or not at all: enough stays to have everything.
    fn absent(&mut self) -> BTreeSet<String> {
        let mut absent = BTreeSet::new();
        if self.chance(50) {
            return absent;
        }
        for mirror in self.plan.low_mirrors() {
            let Some(holders) = self.holders.get(&mirror.name) else { continue };
            // Of those that had everything, the newest by their records.
            let age = |name: &String| self.record(name).1;
            let newest = holders.iter().map(age).max();
            let good: Vec<String> =
                holders.iter().filter(|h| Some(age(h)) == newest && age(h).0).cloned().collect();
            if good.is_empty() {
                continue;
            }
            let stays = good[self.random.below(good.len() as u64) as usize].clone();
            for name in self.disks.keys() {
                let member = mirror.members.contains(name) || holders.contains(name);
                if member && *name != stays && self.random.chance(600) {
                    absent.insert(name.clone());
                }
            }
        }
        absent
    }

    /// The number of members in a disk's record, and the rank of that record.
    fn record(&self, name: &str) -> (u8, (bool, u32, u32)) {
        let disk = &self.disks[name];
        let record = disk.bytes(disk.labelled_end(GROWTH) - SECTOR, 120);
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four"));
        let flags = u64::from_le_bytes(record[87..95].try_into().expect("eight"));
        let good = &record[..12] == b"GEOM::MIRROR" && flags & 0xe == 0;
        (record[44], (good, word(45), word(49)))
    }

    /// Whether a disk's record speaks of no other member.
    fn is_alone(&self, name: &str) -> bool {
        self.record(name).0 == 1 && (!self.plan.deep || self.record(name).1.0)
    }

    fn assemble(&mut self, life: &mut Life) {
        let absent = self.absent();
        talk(|| format!("new life: absent {absent:?} holders {:?}", self.holders));
        let mut order: Vec<String> = self.disks.keys().cloned().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        // A member that left when it was the only one still takes itself for the only one. No
        // record that it could read contradicts this, so the newest is plugged in first.
        let alone = order.iter().any(|n| self.is_alone(n));
        if alone {
            order.sort_by_key(|n| std::cmp::Reverse(self.record(n).1));
        }
        self.out.clear();
        for name in order {
            if absent.contains(&name) {
                self.out.insert(name);
                continue;
            }
            self.plug(life, &name);
            if alone {
                life.settle();
            }
            if self.chance(30) {
                let ns = self.random.below(20 * MS);
                life.pass(ns);
            }
        }
        let volume = self.plan.volume();
        if !life.until(9, |c| c.topology.find(&volume).is_some()) {
            self.all_in(life);
        }
        if !life.until(9, |c| c.topology.find(&volume).is_some()) {
            self.force(life);
        }
        if !life.until(9, |c| c.topology.find(&volume).is_some()) {
            panic!("{volume} does not come up\n{}", life.dump_state());
        }
    }

    pub(super) fn all_in(&mut self, life: &mut Life) {
        let back = std::mem::take(&mut self.out);
        let all: Vec<String> = self.disks.keys().cloned().collect();
        for name in all.iter().filter(|n| self.plan.paths || back.contains(*n)) {
            self.plug(life, name);
        }
    }

    fn read_all(&mut self, life: &mut Life) -> Vec<u8> {
        let (volume, sectors) = (self.plan.volume(), self.model.borrow().sectors());
        let Some((user, edge)) = life.open(&volume, Access::READ) else {
            panic!("{volume} cannot be opened\n{}", life.dump_state());
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < sectors * SECTOR {
            let len = (sectors * SECTOR - bytes.len() as u64).min(8 * SECTOR);
            let read = life.read(edge, bytes.len() as u64, len as usize);
            let read =
                read.unwrap_or_else(|e| panic!("{volume}: {}\n{}", e.name(), life.dump_state()));
            assert_eq!(read.len() as u64, len, "a short read");
            bytes.extend(read);
        }
        life.close(user);
        bytes
    }

    /// Everything is as it may be.
    fn check(&mut self, life: &mut Life, anew: bool) {
        self.miss(life);
        let anew = anew || std::mem::take(&mut self.lost);
        self.learn_size(life);
        if self.plan.rises {
            self.learn_sizes(life);
        }
        let bytes = self.read_all(life);
        if anew {
            self.find(&bytes, life);
            // The content after a cut stays, whichever members return later.
            self.smaller = None;
        }
        let sectors = self.model.borrow().sectors();
        let mark = self.model.borrow().mark(0, sectors);
        let bytes = if anew { self.read_all(life) } else { bytes };
        let read = self.model.borrow_mut().read(&mark, &bytes);
        read.unwrap_or_else(|what| panic!("{what}"));
    }

    /// Starts users, if there are none and there is a provider to use.
    pub(super) fn start_users(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        if crowd.running.get() > 0 || self.chance(30) {
            return;
        }
        if let Some((user, _)) = self.user.take() {
            life.close(user);
        }
        self.reads = false;
        if !life.has(&self.plan.volume()) {
            return;
        }
        self.miss(life);
        self.user = life.open(&self.plan.volume(), Access::WRITE);
        let Some((_, edge)) = self.user else { return self.readers(life, crowd) };
        let on = life.control.topology.find(&self.plan.volume());
        let zeroes = on.and_then(|on| life.control.topology.attr(on, "GEOM::deletereadszero"));
        let sure = !self.plan.rich && !self.plan.deep;
        crowd.deletes.set(zeroes == Some(Attr::Int(1)) || sure);
        for _ in 0..1 + self.random.below(5) {
            let core = self.random.below(life.cores.len() as u64) as usize;
            let ops = 1 + self.random.below(30);
            crowd.start(&life.cores[core], edge, self.random.next_u64(), ops);
        }
    }

    /// All disks are plugged in, none fails, no user works any more, no member is rebuilt.
    fn rest(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        life.calm(&self.disks);
        self.all_in(life);
        if self.plan.deep {
            life.ask_again();
        }
        if !life.until(120, |_| crowd.running.get() == 0) {
            panic!("{} users never end\n{}", crowd.running.get(), life.dump_state());
        }
        self.totals.listen(life, crowd);
        if let Some((user, _)) = self.user.take() {
            life.close(user);
        }
        self.at_rest(life);
    }

    pub(super) fn at_rest(&mut self, life: &mut Life) {
        let volume = self.plan.volume();
        if !life.until(20, |c| c.topology.find(&volume).is_some()) {
            panic!("{volume} does not come back\n{}", life.dump_state());
        }
        life.settle();
        self.shrinks_on(life);
        let mut rested = false;
        for turn in 0..3_000 {
            let mirrors = self.plan.mirrors();
            let busy = mirrors
                .flat_map(|m| life.members(&m.name))
                .any(|(_, state, _)| state == "SYNCHRONIZING" || state == "NEW");
            let in_order = self.arrays_in_order(life, turn);
            let quiet = !busy && in_order;
            if quiet && rested {
                return life.settle();
            }
            // Marks are taken away meanwhile; and operations requested while a disk hung may take
            // effect only now.
            rested = quiet;
            life.pass(if quiet { 200 } else { 20 } * MS);
        }
        panic!("a rebuild never ends\n{}", life.dump_state());
    }

    /// Members of a mirror that have everything have the same.
    fn compare(&mut self, life: &mut Life) {
        for mirror in self.plan.mirrors() {
            let provider = format!("mirror/{}", mirror.name);
            let Some(on) = life.control.topology.find(&provider) else { continue };
            let size = life.control.topology.limits(on).expect("limits").media_bytes;
            let members = life.members(&mirror.name);
            let mut first: Option<(String, Vec<u8>)> = None;
            for (name, _, consumer) in members.into_iter().filter(|(_, s, _)| s == "ACTIVE") {
                let edge = life.control.topology.edge(consumer);
                let bytes = life.read(edge, 0, size as usize).expect("healed");
                let Some((other, same)) = &first else {
                    first = Some((name, bytes));
                    continue;
                };
                self.totals.compared += 1;
                let at = bytes.iter().zip(same).position(|(a, b)| a != b);
                if let Some(at) = at {
                    let n = at as u64 / SECTOR;
                    let from = (n * SECTOR) as usize;
                    panic!(
                        "{provider}: {name} and {other} differ at sector {n}: {:x?} {:x?}\n{}",
                        &bytes[from..from + 16],
                        &same[from..from + 16],
                        life.dump_state()
                    );
                }
            }
        }
    }
}
