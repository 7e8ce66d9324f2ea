//! Faults of disks while users work: disks are lost and return, fail and hang, and verbs change the
//! geoms above them.

use bio::{Errno, Op};
use serde_json::json;

use super::disk::Disk;
use super::life::Life;
use super::run::{APPENDED, Simulation, talk};

impl Simulation<'_> {
    /// May this disk be removed without loss of data?
    pub(super) fn can_go(&self, life: &Life, disk: &str) -> bool {
        let volume = life.has(&self.plan.volume());
        let mut covered = false;
        for mirror in self.plan.mirrors() {
            let members = life.members(&mirror.name);
            let under = |name: &String| self.plan.leaves(name).iter().any(|l| l == disk);
            if !members.iter().any(|(name, ..)| under(name)) {
                continue;
            }
            let other = members.iter().any(|(name, state, _)| !under(name) && state == "ACTIVE");
            if !other {
                return false;
            }
            covered = true;
        }
        if self.plan.arrays_over(disk).next().is_some() {
            covered = self.arrays_are_whole(life, disk);
            if !covered {
                return false;
            }
        }
        covered && volume && !(self.plan.deep && life.is_leaving())
    }

    pub(super) fn inject_fault(&mut self, life: &mut Life) {
        let all: Vec<String> = self.disks.keys().cloned().collect();
        let Some(name) = self.pick(&all) else { return };
        let disk = self.disks[&name].clone();
        self.disarm(life, &name);
        if self.plan.rich && self.chance(20) {
            return self.rich_trouble(life, &name, &disk);
        }
        match self.random.below(100) {
            0..14 => self.lose(life, &name, &disk),
            14..26 => {
                let out: Vec<String> = self.out.iter().cloned().collect();
                if let Some(name) = self.pick(&out) {
                    self.out.remove(&name);
                    self.plug(life, &name);
                }
            }
            26..36 => {
                let (op, error) = self.error();
                if !self.may_fail(life, &name) {
                    return;
                }
                talk(|| format!("once {name} {op:?} {error:?}"));
                disk.lock().once = Some((op, error));
            }
            36..42 => {
                let (op, error) = self.error();
                let percent = 1 + self.random.below(100);
                if !self.may_fail(life, &name) {
                    return;
                }
                talk(|| format!("{percent}% {name} {op:?} {error:?}"));
                disk.lock().faults.push((op, percent, error));
            }
            42..52 => life.calm(&self.disks),
            52..58 => disk.lock().hangs = true,
            58..64 => life.wake(disk.release()),
            _ if self.plan.arrays_over(&name).next().is_some() && self.chance(50) => {
                self.array_verb(life, &name);
            }
            _ => self.verb(life, &name),
        }
    }

    /// A disk is plugged in by every path that it is not.
    pub(super) fn plug(&self, life: &mut Life, name: &str) {
        for path in self.plan.names_of(name) {
            let there = self.plan.paths && life.has(&path) && !life.is_lost(&path);
            match life.has(&path) {
                _ if there => {}
                true => life.plug_soon(&path, &self.disks[name]),
                false => life.plug(&path, &self.disks[name]),
            }
        }
    }

    pub(super) fn error(&mut self) -> (Op, Errno) {
        let op = [Op::Read, Op::Write, Op::Flush][self.random.below(3) as usize];
        (op, if self.chance(70) { Errno::Io } else { Errno::NxIo })
    }

    pub(super) fn lose(&mut self, life: &mut Life, name: &str, disk: &Disk) {
        if self.out.contains(name) {
            return;
        }
        life.calm(&self.disks);
        self.settle_failures(life);
        self.look(life);
        if !self.can_go(life, name) {
            return;
        }
        let dark = self.chance(50);
        self.dark |= dark;
        talk(|| format!("pull {name} dark {dark}"));
        for path in self.plan.names_of(name) {
            life.pull(&path, disk, dark);
        }
        self.out.insert(name.to_owned());
        self.totals.lost += 1;
        if self.chance(30) {
            // And back at once.
            self.plug(life, name);
            self.out.remove(name);
        }
    }

    pub(super) fn verb(&mut self, life: &mut Life, disk: &str) {
        let low: Vec<String> = self.plan.low_mirrors().iter().map(|m| m.name.clone()).collect();
        let Some(mirror) = self.pick(&low) else { return };
        let members = life.members(&mirror);
        let is_member = members.iter().any(|(name, ..)| name == disk);
        let (verb, with) = match self.random.below(12) {
            0 | 1 if is_member => ("deactivate", json!({ "members": [disk] })),
            2 | 3 if is_member => ("rebuild", json!({ "members": [disk] })),
            4 if is_member => ("remove", json!({ "members": [disk] })),
            0..4 if !is_member => ("activate", json!({ "members": [disk] })),
            4..8 if !is_member && !self.out.contains(disk) => {
                if members.len() >= 3 {
                    return;
                }
                let _ = life.verb("mirror", "forget", &mirror, json!({}));
                ("insert", json!({ "members": [disk], "force": true }))
            }
            8 => ("configure", json!({ "balance": "round-robin" })),
            9 => ("configure", json!({ "sync_rate": 1 << 20 })),
            10 => ("forget", json!({})),
            _ => ("configure", json!({ "balance": "load", "sync_rate": 0 })),
        };
        if verb == "insert" && (disk == APPENDED || !self.is_free(life, disk)) {
            return;
        }
        talk(|| format!("{verb} {mirror} {with}"));
        let done = life.verb("mirror", verb, &mirror, with.clone());
        self.totals.verbs += u64::from(done.is_ok());
        talk(|| format!("{verb} {mirror} {with}: {done:?}"));
        if self.plan.deep && verb == "remove" && done.is_ok() {
            self.wipe(life, disk);
        }
    }

    /// Whether the disk has no mirror above it.
    pub(super) fn is_free(&self, life: &Life, disk: &str) -> bool {
        self.plan.mirrors().all(|m| {
            let planned = m.members.iter().any(|n| n == disk);
            let held = life.members(&m.name).iter().any(|(n, ..)| n == disk);
            !held && (!planned || self.plan.made.len() == 1)
        })
    }
}
