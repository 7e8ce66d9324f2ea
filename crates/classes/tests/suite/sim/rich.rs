//! Rarer events: disks grow, mirrors grow and shrink, members are compared, paths are lost.

use std::rc::Rc;

use bio::Errno;
use geom::Access;
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};
use super::run::{APPENDED, DISK, GROWTH, Simulation, talk};
use super::users::Crowd;

/// Most sectors by which a mirror becomes smaller at once.
pub(super) const LESS: u64 = 24;

impl Simulation<'_> {
    pub(super) fn rich_trouble(&mut self, life: &mut Life, name: &str, disk: &Disk) {
        match self.random.below(6) {
            0 | 1 => self.begin_verify(life),
            2 if self.plan.resizes() && self.chance(60) => self.resize(life),
            2 => self.grow(life, name, disk),
            3 if self.plan.appends().is_some() => self.append(life),
            3 => self.keep_bits(life),
            _ if self.plan.paths => self.paths(life, name),
            _ => {}
        }
    }

    fn grow(&mut self, life: &mut Life, name: &str, disk: &Disk) {
        if disk.size() >= 2 * DISK || self.out.contains(name) || !self.plan.grows(name) {
            return;
        }
        if self.plan.paths {
            // Its record is written by a conversation, which all wait for: no disk hangs.
            life.calm(&self.disks);
        }
        let bytes = disk.grow(GROWTH);
        talk(|| format!("{name} has {bytes} bytes now"));
        for path in self.plan.names_of(name) {
            life.resized(&path, bytes);
        }
        if self.plan.paths {
            // It may try another path first. One that is no member has none.
            let second = bytes - 2 * SECTOR;
            let mut looks = 0;
            while looks < 40 && !disk.bytes(second, 6).starts_with(b"GEOM::") {
                life.pass(5 * MS);
                looks += 1;
            }
        }
    }

    /// The mirror that users have is made larger, if its members are.
    fn resize(&mut self, life: &mut Life) {
        if self.chance(60) {
            let all = self.disks.clone();
            all.iter().for_each(|(name, disk)| self.grow(life, name, disk));
            life.pass(MS);
        }
        // It may have become smaller meanwhile, as requested before.
        self.learn_size(life);
        let top = &self.plan.made.last().expect("a top").name;
        self.larger = true;
        let done = life.verb("mirror", "resize", top, json!({}));
        talk(|| format!("resize: {done:?}"));
        self.totals.verbs += u64::from(done.is_ok());
    }

    /// The mirror that users have, and have closed, is made smaller.
    pub(super) fn shrink(&mut self, life: &mut Life) {
        let known = self.model.borrow().sectors();
        let to = known - 1 - self.random.below(LESS);
        // One whose records are still to be written is waited for.
        if to * SECTOR < DISK / 2 || self.smaller.is_some() {
            return;
        }
        if let Some((user, _)) = self.user.take() {
            life.close(user);
        }
        let top = &self.plan.made.last().expect("a top").name;
        self.smaller = Some(to);
        let done = life.verb("mirror", "resize", top, json!({ "size": to * SECTOR }));
        talk(|| format!("to {to} sectors: {done:?}"));
        match done {
            // Its records were not all written: it continues with that.
            Ok(answer) if answer["message"].as_str().is_some_and(|m| m.contains("becomes")) => {}
            Ok(_) => {
                self.totals.shrunk += 1;
                self.model.borrow_mut().shrink(to);
                (self.smaller, self.larger) = (None, false);
                self.learn_size(life);
            }
            // A member hangs: it continues when that does.
            Err(e) if e.kind == Errno::TimedOut => {}
            Err(_) => self.smaller = None,
        }
    }

    /// While the mirror becomes smaller it cannot be opened for writing: readers open it.
    pub(super) fn readers(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        if !self.plan.shrinks {
            return;
        }
        self.user = life.open(&self.plan.volume(), Access::READ);
        let Some((_, edge)) = self.user else { return };
        self.reads = true;
        for _ in 0..1 + self.random.below(3) {
            let core = self.random.below(life.cores.len() as u64) as usize;
            crowd.start_reading(&life.cores[core], edge, self.random.next_u64());
        }
    }

    /// Whether readers of a mirror that becomes smaller must succeed: it has its old size, and no
    /// disk fails, hangs or is away.
    pub(super) fn may_read(&mut self, life: &Life) -> bool {
        let t = &life.control.topology;
        let on = t.find(&self.plan.volume()).filter(|on| t.error_of(*on).is_none());
        let size = on.and_then(|on| t.limits(on)).map_or(0, |l| l.media_bytes);
        let quiet = |disk: &Disk| disk.lock().is_well();
        self.reads &= self.user.is_some();
        self.reads
            && self.out.is_empty()
            && size == self.model.borrow().sectors() * SECTOR
            && self.disks.values().all(quiet)
    }

    /// Checks that no reader was refused.
    pub(super) fn listen_to_readers(&mut self, life: &Life, crowd: &Crowd, failed: Option<u64>) {
        let Some(failed) = failed.filter(|_| self.may_read(life)) else { return };
        self.totals.reads += u64::from(crowd.ended.get() > 0);
        assert_eq!(crowd.failed.get(), failed, "a reader was refused\n{}", life.dump_state());
    }

    /// A shrink whose records could not be written continues when they can be.
    pub(super) fn shrinks_on(&mut self, life: &mut Life) {
        for _ in 0..500 {
            if self.smaller.is_none() || self.model.borrow().sectors() == 0 {
                return;
            }
            life.pass(20 * MS);
            self.learn_size(life);
        }
    }

    /// The users' provider has its old size, or a size that was requested.
    pub(super) fn learn_size(&mut self, life: &Life) {
        if !self.plan.resizes() {
            return;
        }
        let t = &life.control.topology;
        let on = t.find(&self.plan.volume()).filter(|on| t.error_of(*on).is_none());
        let Some(limits) = on.and_then(|on| t.limits(on)) else { return };
        let (sectors, known) = (limits.media_bytes / SECTOR, self.model.borrow().sectors());
        let is_expected = self.larger || self.smaller == Some(sectors) || sectors == known;
        let less = sectors < known && self.smaller != Some(sectors);
        assert!(is_expected && !less, "{known} sectors became {sectors}\n{}", life.dump_state());
        if sectors < known {
            // Its users were orphaned.
            self.reads = false;
            (self.smaller, self.larger) = (None, false);
            self.model.borrow_mut().shrink(sectors);
        }
        if sectors > known {
            self.totals.grown += 1;
            self.model.borrow_mut().grow_by_unknown(sectors);
        }
    }

    fn begin_verify(&mut self, life: &mut Life) {
        let all: Vec<String> = self.plan.mirrors().map(|m| m.name.clone()).collect();
        let Some(mirror) = self.pick(&all) else { return };
        let with = [json!({}), json!({ "repair": true }), json!({ "end": true })];
        let with = with[self.random.below(3) as usize].clone();
        let done = life.verb("mirror", "verify", &mirror, with.clone());
        self.totals.verbs += u64::from(done.is_ok());
        talk(|| format!("verify {mirror} {with}: {done:?}"));
    }

    fn keep_bits(&mut self, life: &mut Life) {
        let all: Vec<String> = self.plan.mirrors().map(|m| m.name.clone()).collect();
        let Some(mirror) = self.pick(&all) else { return };
        let on = self.chance(60);
        let with = if on {
            json!({ "bitmap": true, "region": 4096 })
        } else {
            json!({ "no_bitmap": true })
        };
        let done = life.verb("mirror", "configure", &mirror, with.clone());
        self.totals.verbs += u64::from(done.is_ok());
        talk(|| format!("configure {mirror} {with}: {done:?}"));
    }

    fn append(&mut self, life: &mut Life) {
        let Some(concat) = self.plan.appends() else { return };
        let with = json!({ "member": APPENDED });
        let done = life.verb("concat", "append", &concat.name, with);
        self.totals.verbs += u64::from(done.is_ok());
        talk(|| format!("append: {done:?}"));
    }

    /// A path is lost, or returns.
    fn paths(&mut self, life: &mut Life, name: &str) {
        if self.out.contains(name) {
            return;
        }
        let names = self.plan.names_of(name);
        let at = self.random.below(2) as usize;
        let other = life.has(&names[1 - at]) && !life.is_lost(&names[1 - at]);
        let all_good = !life.geoms("multipath").iter().any(|g| g.consumers.len() < 2);
        if other && all_good && self.chance(60) {
            talk(|| format!("path {} goes", names[at]));
            life.pull_path(&names[at]);
        } else {
            self.plug(life, name);
        }
    }

    /// Compares the members by the mirrors' own `verify`.
    pub(super) fn verify(&mut self, life: &mut Life) {
        for mirror in self.plan.mirrors() {
            let active = life.members(&mirror.name).into_iter().filter(|(_, s, _)| s == "ACTIVE");
            if active.count() < 2 {
                continue;
            }
            let _ = life.verb("mirror", "verify", &mirror.name, json!({ "end": true }));
            let begun = life.verb("mirror", "verify", &mirror.name, json!({}));
            begun.unwrap_or_else(|e| panic!("verify {}: {e}", mirror.name));
            let mut line = String::new();
            for _ in 0..500 {
                life.pass(5 * MS);
                line = life.show("mirror", &mirror.name, "Verify");
                if !line.contains('%') {
                    break;
                }
            }
            assert_eq!(line, "done; 0 sectors differ, 0 cannot be read", "{}", life.dump_state());
            self.totals.compared += 1;
        }
    }
}
