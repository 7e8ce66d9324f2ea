//! Arrays and partitions within stacks: how they are made, what they can do without, and when they
//! are in order.
//!
//! Of an array that can do without a member one is lost, or fails, only while it is whole and no
//! other disk below it fails: with two nobody promises anything. Where parity is, the power does
//! not go meanwhile; but in harsh stories it does. Then what was acknowledged is there if the array
//! keeps a log, and never has to be forced; without one the array is the top, may have to be, and
//! in each row that was being written one sector may be anything: what the missing member held.

use bio::Errno;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};
use super::plan::{Made, Plan};
use super::run::{Story, talk};

impl Story<'_> {
    /// Labels a stack from the bottom up; what arrays are called is known then only.
    pub(super) fn label_all(&mut self, life: &mut Life) {
        let mut plan: Plan = self.plan.clone();
        for at in 0..plan.made.len() {
            let made = plan.made[at].clone();
            let name = label(life, &made);
            let done =
                name.unwrap_or_else(|e| panic!("label {}: {e}\n{}", made.name, life.story()));
            plan.rename(at, done);
        }
        self.plan = self.labelled.get_or_init(|| plan);
    }

    /// Whether each array over a disk could do without it. In harsh times not while another below
    /// the same array is out, for that may not have been dealt with yet.
    pub(super) fn arrays_are_whole(&self, life: &Life, disk: &str) -> bool {
        let mut over = self.plan.arrays_over(disk);
        let seen = |made: &Made| life.array_members(made.set()) >= made.members.len();
        let out = |made: &Made| {
            let leaves = self.plan.leaves(&made.provider());
            self.plan.harsh && leaves.iter().any(|leaf| self.out.contains(leaf))
        };
        let whole = |made: &Made| life.array_is_whole(made.set()) && seen(made) && !out(made);
        over.all(|made| whole(made) && self.is_quiet(made, disk))
    }

    /// No other disk below an array fails anything.
    fn is_quiet(&self, array: &Made, disk: &str) -> bool {
        let leaves = self.plan.leaves(&array.provider());
        let others = leaves.iter().filter(|leaf| *leaf != disk && !self.out.contains(*leaf));
        others.filter_map(|leaf| self.disks.get(leaf)).all(|disk| disk.lock().is_well())
    }

    /// Whether a disk may fail something: see the module.
    pub(super) fn may_fail(&self, life: &Life, disk: &str) -> bool {
        self.arrays_are_whole(life, disk) && (!self.plan.deep || !life.is_leaving())
    }

    /// In harsh times: who failed something is out, or stays for good reason, before the next disk
    /// goes. With both at once parity is rightly in doubt, as if two had been lost.
    pub(super) fn hear_out(&mut self, life: &mut Life) {
        let failed = |disk: &Disk| std::mem::take(&mut disk.lock().failed);
        if self.plan.harsh && self.disks.values().filter(|disk| failed(disk)).count() > 0 {
            life.pass(200 * MS);
        }
    }

    /// Something is about to happen to a disk: where parity is over it, the power stays on.
    pub(super) fn disarm(&self, life: &Life, disk: &str) {
        if self.plan.harsh {
            return;
        }
        if self.plan.arrays_over(disk).any(|made| made.with["level"] == "RAID5") {
            life.fuse.set(u64::MAX);
        }
    }

    /// The power may go again, if all parity is there.
    pub(super) fn rearm(&mut self, life: &Life) {
        if life.fuse.get() < u64::MAX || !self.plan.has_parity() || !self.chance(40) {
            return;
        }
        let well = self.disks.values().all(|disk| disk.lock().is_well());
        let mut arrays = self.plan.arrays();
        if well && self.out.is_empty() && arrays.all(|(made, _)| life.array_is_whole(made.set())) {
            life.fuse.set(20 + self.random.below(6_000));
        }
    }

    /// The array on top is started by force if nothing else helps.
    pub(super) fn force(&mut self, life: &mut Life) {
        let Some(top) = self.plan.torn_top().filter(|_| self.plan.harsh) else { return };
        let state = life.show("raid", top.set(), "State");
        if !state.contains("its parity may be wrong") {
            return;
        }
        talk(|| format!("by force: {state}"));
        self.forced = true;
        let start = life.verb("raid", "start", top.set(), json!({ "force": true }));
        start.unwrap_or_else(|e| panic!("{e}\n{}", life.story()));
        self.tally.forced += 1;
    }

    /// What is there after a power cut.
    pub(super) fn find(&mut self, bytes: &[u8], life: &Life) {
        let forced = self.plan.torn_top().filter(|_| std::mem::take(&mut self.forced));
        let mut model = self.model.borrow_mut();
        let found = match forced {
            None => model.found(bytes).map(|()| 0),
            Some(top) => {
                let strip = top.with["strip"].as_u64().expect("a strip") / SECTOR;
                let row = strip * (top.members.len() as u64 - 1);
                model.found_with_holes(bytes, |at| at / row * strip + at % strip, 1)
            }
        };
        self.tally.holes += found.unwrap_or_else(|what| panic!("{what}\n{}", life.story()));
    }

    /// What was taken out of a mirror for good still holds all that stood on the mirror, tables and
    /// labels too: to those it looks like the whole. Who takes one out wipes it.
    pub(super) fn wipe(&mut self, life: &mut Life, name: &str) {
        let disk = self.disks[name].clone();
        life.pull(name, &disk, false);
        disk.put(0, &vec![0; disk.size() as usize]);
        life.plug_soon(name, &disk);
    }

    /// One who administers an array whose members are disks.
    pub(super) fn array_verb(&mut self, life: &mut Life, disk: &str) {
        let at = |m: &Made| m.members.iter().position(|n| self.plan.leaves(n)[0] == disk);
        let mut arrays = self.plan.arrays_over(disk);
        let Some((made, at)) = arrays.find_map(|m| Some((m, at(m)?))) else { return };
        let member = &made.members[at];
        let set = made.set();
        let (verb, with) = match self.random.below(4) {
            0 => ("configure", json!({ "sync_rate": 1 << 20 })),
            1 => ("configure", json!({ "sync_rate": 0 })),
            2 if self.out.is_empty() && self.arrays_are_whole(life, disk) => {
                ("fail", json!({ "members": [member] }))
            }
            _ => ("insert", json!({ "members": [member], "force": true })),
        };
        talk(|| format!("{verb} {set} {with}"));
        let done = life.verb("raid", verb, set, with);
        talk(|| format!("{verb} {set}: {done:?}"));
        self.tally.verbs += u64::from(done.is_ok());
    }

    /// Whether all arrays are in order; a member that failed is inserted anew now and then.
    pub(super) fn arrays_in_order(&self, life: &mut Life, turn: u32) -> bool {
        let mut all = true;
        for (made, away) in self.plan.arrays() {
            let state = life.show("raid", made.set(), "State");
            all &= away == 0 || state == "OPTIMAL" && life.array_is_whole(made.set());
            if away > 0 && state == "DEGRADED" && turn % 50 == 20 {
                // What was cleared and is not in again looks like the whole: see `wipe`.
                let fuse = life.fuse.replace(u64::MAX);
                // A spare of Intel's may have gone to another array of the same level.
                let level = |m: &Made| self.plan.leaves(&m.members[0]).len();
                let may = |m: &Made| m.name == made.name || turn > 500 && level(m) == level(made);
                let alike = self.plan.arrays().filter(|(m, away)| *away > 0 && may(m));
                for member in alike.flat_map(|(made, _)| &made.members) {
                    // There it is of use to nobody, and nobody else gets it.
                    let holder = self.plan.arrays().find(|(m, _)| life.is_spare(m.set(), member));
                    if let Some((holder, _)) = holder.filter(|(m, _)| m.name != made.name) {
                        let with = json!({ "members": [member] });
                        let done = life.verb("raid", "remove", holder.set(), with);
                        talk(|| format!("remove {member} from {}: {done:?}", holder.set()));
                    }
                    let cleared = life.verb("raid", "clear", "", json!({ "members": [member] }));
                    talk(|| format!("clear {member}: {cleared:?}"));
                    let with = json!({ "members": [member], "force": true });
                    let done = life.verb("raid", "insert", made.set(), with);
                    talk(|| format!("insert {member} into {}: {done:?}", made.set()));
                }
                life.fuse.set(fuse);
            }
        }
        all
    }

    /// All copies and all parity agree.
    pub(super) fn verify_arrays(&mut self, life: &mut Life) {
        for (made, _) in self.plan.arrays().filter(|(_, away)| *away > 0) {
            let set = made.set();
            let begun = life.verb("raid", "verify", set, json!({ "rate": 0 }));
            begun.unwrap_or_else(|e| panic!("verify {set}: {e}\n{}", life.story()));
            let line = |life: &Life| life.show("raid", set, "Verify");
            for _ in 0..500 {
                if !line(life).contains('%') {
                    break;
                }
                life.pass(5 * MS);
            }
            let said = line(life);
            assert_eq!(said, "done; 0 sectors differ, 0 cannot be read", "{}", life.story());
            self.tally.verified += 1;
        }
    }
}

/// Makes one of a stack; what it is called.
fn label(life: &mut Life, made: &Made) -> Result<String, geom::Error> {
    let mut with = made.with.clone();
    if made.class == "part" {
        let on = &made.members[0];
        let kind = if with["scheme"] == "bsd" { "freebsd-ufs" } else { "linux-data" };
        let kind = if with["scheme"] == "mbr" { "freebsd" } else { kind };
        life.verb("part", "create", on, json!({ "scheme": with["scheme"] }))?;
        life.verb("part", "add", on, json!({ "kind": kind }))?;
        return match life.has(&made.provider()) {
            true => Ok(made.name.clone()),
            false => Err(geom::Error::new(Errno::NoEnt, format!("no {}", made.provider()))),
        };
    }
    with["members"] = json!(made.members);
    let answer = life.verb(made.class, "label", &made.name, with)?;
    Ok(match answer["array"].as_str() {
        Some(array) => format!("{array}/{}", made.name),
        None => made.name.clone(),
    })
}
