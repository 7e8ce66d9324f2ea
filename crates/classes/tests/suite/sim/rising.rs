//! Growth of the disks at the bottom of a stack while it is in use. The layers above are made
//! larger as far as each class promises: stripes and the last part of a concat by themselves,
//! mirrors and partitions on request, arrays never. Users above do not notice. The power fails at
//! any step, and labels that were left behind are found at the old ends of their providers.
//!
//! Proven of sizes, whenever no work is under way:
//!  * a provider that grows by itself is as large as its members make it;
//!  * every other one has its old size, or one that was requested since;
//!  * so data that was once readable is never lost again.

use std::rc::Rc;

use serde_json::{Value, json};

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};
use super::plan::{Made, Plan};
use super::run::{GROWTH, Simulation, talk};
use super::users::Crowd;

/// A disk grows so often at most.
const TIMES: u64 = 3;

impl Plan {
    /// Whether a provider may grow: not if something in a concat would that is not the last.
    fn may_rise(&self, provider: &str) -> bool {
        let holds = |m: &&Made| m.members.iter().any(|name| name == provider);
        match self.made.iter().find(holds) {
            Some(m) if m.class == "concat" && m.members.last().is_none_or(|l| l != provider) => {
                false
            }
            Some(m) if m.grows_by_itself() => self.may_rise(&m.provider()),
            _ => true,
        }
    }

    /// The class that has its label at the end of a disk.
    pub(super) fn labels(&self, disk: &str) -> Option<&'static str> {
        let holder = self.made.iter().find(|m| m.members.iter().any(|name| name == disk));
        holder.map(|m| m.class).filter(|class| *class != "part")
    }
}

impl Made {
    fn grows_by_itself(&self) -> bool {
        matches!(self.class, "stripe" | "concat")
    }
}

fn size(life: &Life, name: &str) -> Option<u64> {
    let t = &life.control.topology;
    let on = t.find(name).filter(|on| t.error_of(*on).is_none())?;
    Some(t.limits(on)?.media_bytes)
}

/// The size that its members give a stripe or concat.
fn made_of(life: &Life, made: &Made) -> Option<u64> {
    let gives = |name: &String| Some(size(life, name)? - SECTOR);
    let each = made.members.iter().map(gives).collect::<Option<Vec<u64>>>()?;
    Some(match made.with["strip"].as_u64() {
        Some(strip) => each.iter().min()? / strip * strip * each.len() as u64,
        None => each.iter().sum(),
    })
}

/// Whether a provider is a member of something of that class.
fn is_used(life: &Life, class: &str, provider: &str) -> bool {
    let consumers = life.geoms(class).into_iter().flat_map(|g| g.consumers);
    consumers.filter_map(|c| c.provider).any(|name| name == provider)
}

impl Simulation<'_> {
    /// Everything is at rest: sizes are as promised, and the users' provider may have become
    /// larger.
    pub(super) fn learn_sizes(&mut self, life: &Life) {
        for made in &self.plan.made {
            let name = made.provider();
            let Some(is) = size(life, &name) else { continue };
            let was = self.sizes.insert(name.clone(), is);
            let requested = self.requested.remove(&name).unwrap_or_default();
            let promised = match made.grows_by_itself() {
                true => made_of(life, made).is_none_or(|bytes| bytes == is),
                false => was.is_none_or(|was| was == is) || requested.contains(&is),
            };
            let what =
                || format!("{name}: {was:?} became {is}, of {requested:?}\n{}", life.dump_state());
            assert!(promised, "{}", what());
        }
        let Some(bytes) = size(life, &self.plan.volume()) else { return };
        let (sectors, known) = (bytes / SECTOR, self.model.borrow().sectors());
        assert!(sectors >= known, "{known} sectors became {sectors}\n{}", life.dump_state());
        if sectors > known {
            self.totals.grown += 1;
            self.model.borrow_mut().grow_by_unknown(sectors);
        }
    }

    /// All that the plan speaks of is there, and in order.
    fn all_here(&self, life: &Life) -> bool {
        let mirror = |m: &Made| {
            let members = life.members(&m.name);
            members.len() >= m.members.len() && members.iter().all(|(_, s, _)| s == "ACTIVE")
        };
        let array = |m: &Made| {
            life.array_is_whole(m.set()) && life.array_members(m.set()) >= m.members.len()
        };
        self.out.is_empty()
            && self.plan.mirrors().all(mirror)
            && self.plan.arrays().all(|(m, _)| array(m))
            && life.has(&self.plan.volume())
    }

    /// Disks grow, and the layers above with them, beside their users.
    pub(super) fn rise(&mut self, life: &mut Life, crowd: &Rc<Crowd>) {
        life.calm(&self.disks);
        self.all_in(life);
        life.ask_again();
        for mirror in self.plan.mirrors() {
            // One that only fails, and is there no more, would have to grow too.
            let _ = life.verb("mirror", "forget", &mirror.name, json!({}));
        }
        self.at_rest(life);
        if !self.all_here(life) {
            return;
        }
        self.learn_sizes(life);
        self.totals.listen(life, crowd);
        if self.chance(60) {
            life.fuse.set(self.random.below(2_500));
        }
        self.start_users(life, crowd);
        for (name, disk) in self.disks.clone() {
            let most = self.plan.disk_bytes + TIMES * GROWTH;
            // A disk that was put out for good grows, too: its content is old (216423).
            if disk.size() < most && self.plan.may_rise(&name) && self.chance(85) {
                let bytes = disk.grow(GROWTH);
                talk(|| format!("{name} has {bytes} bytes now"));
                life.resized(&name, bytes);
                life.pass(self.random.below(MS));
            }
        }
        for made in self.plan.made.clone() {
            if self.plan.may_rise(&made.provider()) && self.chance(75) {
                self.enlarge(life, &made);
            }
            self.start_users(life, crowd);
            life.pass(self.random.below(2 * MS));
        }
        life.pass(200 * MS);
        life.settle();
        assert!(self.all_here(life), "something went as others grew\n{}", life.dump_state());
        self.learn_sizes(life);
        for (name, disk) in &self.disks {
            let Some(class) = self.plan.labels(name).filter(|c| is_used(life, c, name)) else {
                continue;
            };
            let label = labelled(disk, disk.size());
            assert_eq!(label.as_deref(), Some(class), "{name}\n{}", life.dump_state());
        }
        assert_eq!(crowd.failed.get(), 0, "users noticed\n{}", life.dump_state());
    }

    /// Enlarges a mirror or a partition to the space that it has.
    fn enlarge(&mut self, life: &mut Life, made: &Made) {
        let on = &made.members[0];
        match made.class {
            "mirror" => {
                let members = life.members(&made.name);
                let least = members.iter().filter_map(|(m, ..)| size(life, m)).min();
                self.ask(made, least.map(|bytes| bytes - SECTOR));
                let done = life.verb("mirror", "resize", &made.name, json!({}));
                talk(|| format!("resize {}: {done:?}", made.name));
                done.unwrap_or_else(|e| panic!("resize {}: {e}\n{}", made.name, life.dump_state()));
            }
            "part" => {
                let entry = |life: &mut Life| {
                    let answer = life.verb("part", "show", on, json!({})).expect("a table");
                    (answer["tables"][0]["modified"] == true, answer["tables"][0].clone())
                };
                let (modified, _) = entry(life);
                let _ = life.verb("part", "recover", on, json!({}));
                if modified {
                    let done = life.verb("part", "commit", on, json!({}));
                    done.unwrap_or_else(|e| panic!("commit {on}: {e}\n{}", life.dump_state()));
                }
                // Each request is without a number: the free space of the table is used.
                let most = size(life, on).unwrap_or_default();
                let is = size(life, &made.provider()).unwrap_or_default();
                for bytes in (is..=most).step_by(SECTOR as usize) {
                    self.ask(made, Some(bytes));
                }
                let done = life.verb("part", "resize", on, json!({ "index": 1 }));
                talk(|| format!("part resize {on}: {done:?}"));
                done.unwrap_or_else(|e| panic!("resize of {on}: {e}\n{}", life.dump_state()));
            }
            _ => {}
        }
    }

    fn ask(&mut self, made: &Made, bytes: Option<u64>) {
        self.requested.entry(made.provider()).or_default().extend(bytes);
    }
}

/// The class whose label, or record, ends at a byte of a disk.
pub(super) fn labelled(disk: &Disk, end: u64) -> Option<String> {
    let bytes = disk.bytes(end - 2 * SECTOR, 2 * SECTOR as usize);
    let (intel, last) = bytes.split_at(SECTOR as usize);
    let ddf = [[0xde, 0x11, 0xde, 0x11], [0x11, 0xde, 0x11, 0xde]];
    if intel.starts_with(b"Intel Raid ISM Cfg Sig. ") || ddf.iter().any(|m| last.starts_with(m)) {
        return Some("raid".into());
    }
    let name = last.strip_prefix(b"GEOM::")?.split(|b| *b == 0).next()?;
    Some(String::from_utf8_lossy(name).to_lowercase())
}

/// The parameters for `relocate`.
pub(super) fn left_behind(name: &str, was: u64) -> Value {
    json!({ "member": name, "was": was, "force": true })
}

#[test]
fn array_disks_that_grow_at_once_have_their_records_at_the_new_ends() {
    for (format, bytes) in [("Intel", 96 << 10), ("DDF", (32 << 20) + (96 << 10))] {
        let disks = ["d0", "d1", "d2"].map(|name| (name, Disk::new(bytes, 1)));
        let mut life = Life::new(1, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let with = json!({
            "format": format, "level": "RAID5", "members": ["d0", "d1", "d2"], "size": 64 << 10,
            "assume_same": true, "strip": 4096,
        });
        life.verb("raid", "label", "v", with).expect("labelled");
        for ns in [0, 20_000, 150_000, MS] {
            for (name, disk) in &disks {
                let bytes = disk.grow(GROWTH);
                life.resized(name, bytes);
                life.pass(ns);
            }
            life.pass(200 * MS);
            life.settle();
            for (name, disk) in &disks {
                let label = labelled(disk, disk.size());
                assert_eq!(
                    label.as_deref(),
                    Some("raid"),
                    "{format}: {name}, {ns} ns\n{}",
                    life.dump_state()
                );
            }
        }
    }
}
