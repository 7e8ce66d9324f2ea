//! Arrays and partitions within stacks: how they are made, which members they can do without, and
//! when they are in order.
//!
//! An array that can do without a member loses one, or has one fail, only while it is whole and no
//! other disk below it fails. With two faults nothing is promised. With parity, the power does not
//! fail meanwhile, except in harsh runs. There acknowledged data survives if the array keeps a log,
//! and the array never has to be forced. An array without a log is the top and may have to be
//! forced. In each row that was being written one of its sectors may hold anything: the missing
//! member's.

use bio::Errno;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};
use super::plan::{Made, Plan};
use super::run::{Simulation, talk};

impl Simulation<'_> {
    /// Labels a stack from the bottom up; the names of arrays are known only then.
    pub(super) fn label_all(&mut self, life: &mut Life) {
        let mut plan: Plan = self.plan.clone();
        for at in 0..plan.made.len() {
            let made = plan.made[at].clone();
            let name = label(life, &made);
            let done =
                name.unwrap_or_else(|e| panic!("label {}: {e}\n{}", made.name, life.dump_state()));
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

    /// In harsh times: a disk that failed a request is out, or stays for good reason, before the
    /// next disk is lost. With both at once parity is rightly in doubt, as if two had been lost.
    pub(super) fn settle_failures(&mut self, life: &mut Life) {
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

    /// The power may fail again, if all parity is there.
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
        if !state.contains("parity may be wrong") {
            return;
        }
        talk(|| format!("by force: {state}"));
        self.forced = true;
        let start = life.verb("raid", "start", top.set(), json!({ "force": true }));
        start.unwrap_or_else(|e| panic!("{e}\n{}", life.dump_state()));
        self.totals.forced += 1;
    }

    /// Checks the content after a power cut.
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
        self.totals.holes += found.unwrap_or_else(|what| panic!("{what}\n{}", life.dump_state()));
    }

    /// A disk that was removed from a mirror for good still has the mirror's tables and labels. So
    /// to those classes it looks like the whole. It is wiped after its removal.
    pub(super) fn wipe(&mut self, life: &mut Life, name: &str) {
        let disk = self.disks[name].clone();
        life.pull(name, &disk, false);
        disk.put(0, &vec![0; disk.size() as usize]);
        life.plug_soon(name, &disk);
    }

    /// Runs a random verb on an array whose members are disks.
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
        self.totals.verbs += u64::from(done.is_ok());
    }

    /// Whether all arrays are in order; a member that failed is inserted anew now and then.
    pub(super) fn arrays_in_order(&self, life: &mut Life, turn: u32) -> bool {
        let mut all = true;
        for (made, away) in self.plan.arrays() {
            let state = life.show("raid", made.set(), "State");
            all &= away == 0 || state == "OPTIMAL" && life.array_is_whole(made.set());
            if away > 0 && state == "DEGRADED" && turn % 50 == 20 {
                // A member that was cleared and is not inserted again looks like the whole: see
                // `wipe`.
                let fuse = life.fuse.replace(u64::MAX);
                // A spare of Intel's may have been assigned to another array of the same level.
                let level = |m: &Made| self.plan.leaves(&m.members[0]).len();
                let may = |m: &Made| m.name == made.name || turn > 500 && level(m) == level(made);
                let alike = self.plan.arrays().filter(|(m, away)| *away > 0 && may(m));
                for member in alike.flat_map(|(made, _)| &made.members) {
                    // There it is of no use, and no other array gets it.
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
            begun.unwrap_or_else(|e| panic!("verify {set}: {e}\n{}", life.dump_state()));
            let line = |life: &Life| life.show("raid", set, "Verify");
            for _ in 0..500 {
                if !line(life).contains('%') {
                    break;
                }
                life.pass(5 * MS);
            }
            let answer = line(life);
            assert_eq!(answer, "done; 0 sectors differ, 0 cannot be read", "{}", life.dump_state());
            self.totals.verified += 1;
        }
    }
}

/// Makes one geom of a stack; returns its name.
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
