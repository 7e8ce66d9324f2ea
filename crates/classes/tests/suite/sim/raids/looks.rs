//! Checks of an array in a run: its state, its content, and whether it can do without each disk.

use std::sync::atomic::Ordering::SeqCst;

use geom::Access;
use serde_json::json;

use super::RaidSimulation;
use crate::sim::disk::SECTOR;
use crate::sim::life::{Life, MS};

impl RaidSimulation {
    pub(super) fn state(&self, life: &Life) -> String {
        life.show("raid", &self.set, "State")
    }

    pub(super) fn is_whole(&self, life: &Life) -> bool {
        life.array_is_whole(&self.set)
    }

    /// Whether the array has seen all of its members: not one that was pulled, and is plugged in
    /// again before its loss was dealt with. With the next disk two would be lost at once.
    pub(super) fn all_seen(&self, life: &Life) -> bool {
        !Self::is_leaving(life) && life.array_members(&self.set) >= self.count
    }

    /// Whether the array has not released yet a disk that was pulled: its place stays until then.
    /// That disk may be plugged in again already, and is not one of the array's.
    pub(super) fn is_leaving(life: &Life) -> bool {
        life.control.topology.is_withering(Some("test"))
    }

    /// No disk fails requests.
    pub(super) fn is_sound(&self) -> bool {
        self.disks.values().all(|disk| disk.lock().faults.is_empty())
    }

    /// It lacks a disk, could do without another, and no work is under way in it.
    pub(super) fn is_even(&self, life: &Life) -> bool {
        let busy = ["rebuild", "REBUILD", "synchronised"];
        let line = |key| life.show("raid", &self.set, key);
        let lines = line("Volume") + &line("Subdisks");
        let away = lines.matches("(NONE)").count() + lines.matches("(FAILED)").count();
        // Lists are updated late: a pulled disk may still be in them, and one that is back, but not
        // in, is away.
        let seen = !self.out.iter().any(|name| lines.contains(&format!("{name} (")));
        seen && !Self::is_leaving(life)
            && away <= self.out.len()
            && away < self.away
            && self.state(life) == "DEGRADED"
            && !busy.iter().any(|word| lines.contains(word))
    }

    pub(super) fn read_all(&mut self, life: &mut Life) -> Vec<u8> {
        let sectors = self.model.borrow().sectors();
        let Some((user, edge)) = life.open(&self.volume, Access::READ) else {
            panic!("{} cannot be opened\n{}", self.volume, life.dump_state());
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < sectors * SECTOR {
            let len = (sectors * SECTOR - bytes.len() as u64).min(8 * SECTOR);
            let read = life.read(edge, bytes.len() as u64, len as usize);
            let read = read
                .unwrap_or_else(|e| panic!("{}: {}\n{}", self.volume, e.name(), life.dump_state()));
            assert_eq!(read.len() as u64, len, "a short read");
            bytes.extend(read);
        }
        life.close(user);
        bytes
    }

    /// Checks the content after a power cut.
    pub(super) fn find(&mut self, life: &mut Life) {
        let bytes = self.read_all(life);
        let forced = std::mem::take(&mut self.forced);
        let (strip, data) = (self.strip / SECTOR, (self.count - self.away.min(2)) as u64);
        let shared = |at: u64| at / (strip * data) * strip + at % strip;
        let most = if forced { self.away } else { 0 };
        let found = self.model.borrow_mut().found_with_holes(&bytes, shared, most);
        self.totals.holes += found.unwrap_or_else(|what| panic!("{what}\n{}", life.dump_state()));
    }

    pub(super) fn check(&mut self, life: &mut Life) {
        let bytes = self.read_all(life);
        let sectors = self.model.borrow().sectors();
        let mark = self.model.borrow().mark(0, sectors);
        let read = self.model.borrow_mut().read(&mark, &bytes);
        read.unwrap_or_else(|what| panic!("{what}\n{}", life.dump_state()));
    }

    /// J8 of `geom`: there are no more writes, and no disk fails. Debts are paid; a volume that
    /// lacks a disk, but whose parity is right, is clean.
    pub(super) fn check_clean(&mut self, life: &mut Life) {
        if self.out.is_empty() || !self.is_harsh() || !self.parity() {
            return;
        }
        life.pass(3_000 * MS);
        let line = life.show("raid", &self.set, "Volume");
        if self.state(life) != "DEGRADED" || line.contains("rebuild") {
            return;
        }
        let is_right = !line.contains("synchronised");
        assert!(!(is_right && line.contains(", dirty")), "{line}\n{}", life.dump_state());
        self.totals.cleaned += u64::from(is_right && self.stayed.load(SeqCst));
    }

    /// A comparison in order finds no difference.
    pub(super) fn agrees(&self, life: &Life) {
        let answer = life.show("raid", &self.set, "Verify");
        let agrees = answer.is_empty() || answer.contains("; 0 sectors differ");
        assert!(agrees, "{answer}\n{}", life.dump_state());
    }

    /// All of a volume in order agrees.
    pub(super) fn verify(&mut self, life: &mut Life) {
        if self.verifies.is_none() || self.away == 0 {
            return;
        }
        let _ = life.verb("raid", "verify", &self.set, json!({ "end": true }));
        let begun = life.verb("raid", "verify", &self.set, json!({ "rate": 0 }));
        begun.unwrap_or_else(|e| panic!("{e}\n{}", life.dump_state()));
        let set = self.set.clone();
        let ended = |c: &geom::GraphControl| {
            let view = c.topology.view(0);
            let of = view.iter().filter(|g| g.class == "raid" && g.name == set);
            let mut lines = of.flat_map(|g| &g.show).filter(|(key, _)| *key == "Verify");
            lines.all(|(_, line)| !line.contains('%'))
        };
        assert!(life.until(20, ended), "it never ends\n{}", life.dump_state());
        self.agrees(life);
        let answer = life.show("raid", &self.set, "Verify");
        assert_eq!(answer, "done; 0 sectors differ, 0 cannot be read", "{}", life.dump_state());
        self.totals.verified += 1;
    }

    /// All that failed is inserted anew; then all is waited for.
    pub(super) fn orderly(&mut self, life: &mut Life) {
        for turn in 0..3_000 {
            life.pass(20 * MS);
            life.settle();
            if self.state(life) == "OPTIMAL" {
                life.pass(200 * MS);
                life.settle();
            }
            // An operation requested while a disk hung may have taken effect only now.
            if self.state(life) == "OPTIMAL" {
                self.doubt.store(false, SeqCst);
                return self.disks.values().for_each(|disk| disk.lock().failed = false);
            }
            if self.state(life) == "DEGRADED" && turn % 50 == 20 {
                let names: Vec<String> = self.disks.keys().cloned().collect();
                for name in names {
                    let _ = life.verb("raid", "clear", "", json!({ "members": [name] }));
                    let with = json!({ "members": [name], "force": true });
                    let _ = life.verb("raid", "insert", &self.set, with);
                }
            }
        }
        panic!("it is never in order\n{}", life.dump_state());
    }

    /// Without any one disk everything is still there.
    pub(super) fn without_each(&mut self, life: &mut Life) {
        if self.away == 0 {
            return;
        }
        life.fuse.set(u64::MAX);
        let names: Vec<String> = self.disks.keys().cloned().collect();
        for name in names {
            if !life.has(&name) {
                continue;
            }
            life.pull(&name, &self.disks[&name].clone(), false);
            life.pass(MS);
            self.check(life);
            self.totals.compared += 1;
            life.plug_soon(&name, &self.disks[&name]);
            self.orderly(life);
        }
    }
}
