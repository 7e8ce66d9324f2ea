//! Disks that grow while the daemon is down, or just before a power cut, so that labels are left
//! behind. The labels are moved to the new ends, one after the other: by the daemon, which has
//! recorded the old ends, or by `relocate` before it starts. The power may fail on the way. All
//! properties of the run before hold afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bio::Errno;
use reactor::SeededRandom;
use serde_json::{Value, json};

use super::disk::Disk;
use super::known_sizes::Kept;
use super::life::{Life, PowerCut};
use super::raids;
use super::rising::{labelled, left_behind};
use super::run::{self, DISK, GROWTH, talk};

/// Turns within which the power fails while a label is moved.
const TURNS: u64 = 80;

/// Runs `relocate` on a daemon that has never seen the disk and has only this one, until no power
/// cut interrupts it. Returns its answer. The daemon of the run sees the disk then.
fn follow(
    random: &mut SeededRandom,
    kept: &Kept,
    (class, name, disk): (&str, &str, &Disk),
    with: &Value,
) -> Result<Value, geom::Error> {
    loop {
        let mut life = Life::new(random.next_u64(), 1);
        life.plug(name, disk);
        life.settle();
        if random.chance(500) {
            life.fuse.set(random.below(TURNS));
        }
        let done = catch_unwind(AssertUnwindSafe(|| {
            let done = life.verb(class, "relocate", "", with.clone());
            if done.as_ref().is_err_and(|e| e.kind == Errno::Perm) {
                stop_all(&mut life);
                return life.verb(class, "relocate", "", with.clone());
            }
            done
        }));
        drop(life);
        talk(|| format!("follow {name} {with}: {}", if done.is_ok() { "done" } else { "cut" }));
        match done {
            Ok(done) => {
                disk.power_cut();
                see(kept, name, disk);
                return done;
            }
            Err(why) if why.is::<PowerCut>() => disk.power_cut(),
            Err(why) => resume_unwind(why),
        }
    }
}

/// Only this disk is there, and nothing happens.
fn see(kept: &Kept, name: &str, disk: &Disk) {
    let mut life = Life::new(0, 1);
    life.go_on_from(kept);
    life.plug(name, disk);
    life.settle();
    drop(life);
    disk.power_cut();
}

/// Without its label a disk of a mirror looks like the whole, and classes take half of its content.
fn stop_all(life: &mut Life) {
    for class in ["raid", "concat", "stripe", "mirror"] {
        for geom in life.geoms(class) {
            let done = life.verb(class, "stop", &geom.name, json!({ "force": true }));
            talk(|| format!("stop {class} {}: {done:?}", geom.name));
        }
    }
}

impl run::Simulation<'_> {
    /// Labels that were left behind are moved.
    pub(super) fn migrate_labels(&mut self) {
        if self.plan.paths || !(self.plan.follows || self.plan.rises) {
            return;
        }
        for (name, disk) in self.disks.clone() {
            let may = self.plan.follows && disk.size() < 2 * DISK && self.plan.grows(&name);
            if may && labelled(&disk, disk.size()).is_some() && self.random.chance(200) {
                disk.grow(GROWTH);
            }
            // Elsewhere the last sectors contain user data.
            if self.plan.rises && self.plan.labels(&name).is_none() {
                continue;
            }
            let mut was = disk.size();
            while was > self.plan.disk_bytes && labelled(&disk, was).is_none() {
                was -= GROWTH;
            }
            let Some(class) = labelled(&disk, was).filter(|_| was < disk.size()) else { continue };
            if self.dice.chance(500) {
                continue;
            }
            let with = left_behind(&name, was);
            let done = follow(&mut self.random, &self.kept, (&class, &name, &disk), &with);
            let at_its_end = |e: &geom::Error| e.message.contains("at its end");
            assert!(done.as_ref().err().is_none_or(at_its_end), "{name}: {done:?}");
            assert_eq!(labelled(&disk, disk.size()), Some(class), "{name}");
            self.totals.followed += 1;
        }
    }
}

/// Whether the record of an array is at a disk's end, and whole.
fn is_recorded(name: &str, disk: &Disk) -> bool {
    let mut life = Life::new(0, 1);
    life.plug(name, disk);
    life.settle();
    let dump = life.verb("raid", "dump", "", json!({ "members": [name] }));
    drop(life);
    disk.power_cut();
    dump.is_ok_and(|answer| !answer.to_string().contains("torn"))
}

impl raids::RaidSimulation {
    /// Records of arrays that were left behind are moved.
    pub(super) fn migrate_records(&mut self) {
        let Some(mut dice) = self.grows.take() else { return };
        for (name, disk) in self.disks.clone() {
            if !dice.chance(250) || !is_recorded(&name, &disk) {
                continue;
            }
            let was = disk.size();
            disk.grow(GROWTH);
            if dice.chance(500) {
                continue;
            }
            let with = left_behind(&name, was);
            let done = follow(&mut dice, &self.kept, ("raid", &name, &disk), &with);
            let at_its_end = |e: &geom::Error| e.message.contains("at its end");
            assert!(done.as_ref().err().is_none_or(at_its_end), "{name}: {done:?}");
            self.totals.followed += 1;
        }
        self.grows = Some(dice);
    }
}
