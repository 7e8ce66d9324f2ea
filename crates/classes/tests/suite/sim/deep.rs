//! Random stacks three deep that contain arrays and partitions between the other classes.
//!
//! Every level is one of mirror, stripe, concat, a partition, or an array (Intel's or DDF; RAID0,
//! RAID1 or RAID5), and at least one of the three is of the last two. Partitions of the providers
//! below are the members of the level above; so are volumes of arrays.

use reactor::SeededRandom;
use serde_json::{Value, json};

use super::plan::{Made, Plan, names, with};
use super::run::DISK;

/// Bytes of a provider that a partition table takes, and a bit more.
const TABLE: u64 = 40 << 10;
/// Bytes that DDF takes of a disk.
const DDF: u64 = 32 << 20;
/// Bytes of each member that a log of partial parity needs, and a bit more.
const LOG: u64 = 1500 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Plain(&'static str),
    /// A scheme, and the suffix of a partition's name after the provider's.
    Part(&'static str, &'static str),
    /// A format, and a level.
    Array(&'static str, &'static str),
}

use Level::{Array, Part, Plain};

const LEVELS: [Level; 14] = [
    Plain("mirror"),
    Plain("mirror"),
    Plain("mirror"),
    Plain("stripe"),
    Plain("concat"),
    Part("gpt", "p1"),
    Part("mbr", "s1"),
    Part("bsd", "a"),
    Array("Intel", "RAID0"),
    Array("Intel", "RAID1"),
    Array("Intel", "RAID5"),
    Array("DDF", "RAID0"),
    Array("DDF", "RAID1"),
    Array("DDF", "RAID5"),
];

impl Level {
    fn class(self) -> &'static str {
        match self {
            Plain(class) => class,
            Part(..) => "part",
            Array(..) => "raid",
        }
    }

    /// Members of each.
    fn width(self) -> usize {
        match self {
            Part(..) => 1,
            Array(_, "RAID5") => 3,
            _ => 2,
        }
    }

    fn with(self, random: &mut SeededRandom) -> Value {
        match self {
            Plain(class) => with(class, random),
            Part(scheme, suffix) => json!({ "scheme": scheme, "suffix": suffix }),
            Array(format, level) => {
                let mut with = json!({
                    "format": format, "level": level, "strip": 1024 << random.below(3),
                    "assume_same": random.chance(500),
                });
                if format == "DDF" {
                    with["order"] = json!(["linux", "big", "little"][random.below(3) as usize]);
                    with["size"] = json!(DISK / 8 * 7);
                }
                with
            }
        }
    }
}

/// Whether these levels, from the bottom up, make a stack: with one that the other tests do not
/// have, not too many disks, tables only on providers that may have one, and no copies of volumes
/// as large as DDF's metadata requires.
fn is_a_stack(levels: &[Level; 3]) -> bool {
    let count = |is: fn(&Level) -> bool| levels.iter().filter(|l| is(l)).count();
    let parity = count(|l| matches!(l, Array(_, "RAID5")));
    let plain = count(|l| matches!(l, Plain(_)));
    let nested = |pair: &[Level]| matches!(pair, [Part(..), Part(..)]);
    let slices = |pair: &[Level]| matches!(pair, [Part("mbr", _), Part("bsd", _)]);
    let mut pairs = levels.windows(2);
    let small = |l: &Level| !matches!(l, Part(..) | Plain("stripe" | "concat"));
    let ddf = levels.iter().rposition(|l| matches!(l, Array("DDF", _)));
    plain < 3
        && parity < 2
        && pairs.all(|pair| !nested(pair) || slices(pair))
        && ddf.is_none_or(|at| !levels[..at].iter().any(small))
}

impl Plan {
    /// Three deep, with arrays and partitions.
    pub fn deep(random: &mut SeededRandom) -> Plan {
        let mut pick = || LEVELS[random.below(LEVELS.len() as u64) as usize];
        let levels = loop {
            let levels = [pick(), pick(), pick()];
            if is_a_stack(&levels) {
                break levels;
            }
        };
        let has = |is: fn(&&Level) -> bool| levels.iter().filter(is).count() as u64;
        let ddf = has(|l| matches!(l, Array("DDF", _))).min(1);
        let disks = levels.iter().map(|l| l.width()).product();
        let mut plan = Plan {
            disks,
            spares: usize::from(levels[0] == Plain("mirror")),
            disk_bytes: DISK + TABLE * has(|l| matches!(l, Part(..))) + DDF * ddf,
            deep: true,
            ..Plan::default()
        };
        let mut below = names(disks);
        for (at, level) in levels.into_iter().enumerate() {
            let mut next = Vec::new();
            for (i, members) in below.chunks(level.width()).enumerate() {
                let name = if at == 2 { "top".into() } else { format!("l{at}n{i}") };
                let (class, members) = (level.class(), members.to_vec());
                let made = Made { class, name, members, with: level.with(random) };
                next.push(made.provider());
                plan.made.push(made);
            }
            below = next;
        }
        plan.top = below.remove(0);
        plan
    }

    /// Three deep, with parity, and with power cuts at any time: either a log of partial parity is
    /// kept, or the array is the top. On top of an array without a log, a torn row may contain a
    /// label.
    pub fn harsh(random: &mut SeededRandom) -> Plan {
        loop {
            let plan = Plan::deep(random);
            let parity = |m: &Made| m.with["level"] == "RAID5";
            let Some(made) = plan.made.iter().find(|m| parity(m)) else { continue };
            let (is_top, intel) =
                (parity(&plan.made[plan.made.len() - 1]), made.with["format"] == "Intel");
            let logs = intel && (!is_top || random.chance(400));
            if !logs && !is_top {
                continue;
            }
            let mut plan = Plan { harsh: true, ..plan };
            if logs {
                // Records of three arrays, one within the other, want more than one log spares.
                let nested = plan.made.iter().all(|made| made.class == "raid");
                plan.disk_bytes += LOG * if nested { 2 } else { 1 };
                for made in &mut plan.made {
                    if parity(made) {
                        made.with["consistency"] = json!("ppl");
                        made.with["size"] = json!(DISK / 2);
                    } else if let Some(size) = made.with["size"].as_u64() {
                        made.with["size"] = json!(size + LOG);
                    }
                }
            }
            return plan;
        }
    }

    /// The array on top, if it has parity and no log.
    pub fn torn_top(&self) -> Option<&Made> {
        let top = self.made.last()?;
        (top.with["level"] == "RAID5" && top.with["consistency"] != "ppl").then_some(top)
    }

    /// The arrays, with how many of their members may be away.
    pub fn arrays(&self) -> impl Iterator<Item = (&Made, usize)> {
        let arrays = self.made.iter().filter(|m| m.class == "raid");
        arrays.map(|m| (m, usize::from(m.with["level"] != "RAID0")))
    }

    /// Those that can do without a member, if a disk is under one of them. Under which one is not
    /// known for ever, because a spare is used where it is needed.
    pub fn arrays_over<'a>(&'a self, disk: &'a str) -> impl Iterator<Item = &'a Made> {
        let redundant = || self.arrays().filter(|(_, away)| *away > 0).map(|(made, _)| made);
        let over = |made: &Made| self.leaves(&made.provider()).iter().any(|leaf| leaf == disk);
        let any = redundant().any(over);
        redundant().filter(move |_| any)
    }

    pub fn has_parity(&self) -> bool {
        self.arrays().any(|(made, _)| made.with["level"] == "RAID5")
    }

    /// One is called otherwise than was planned; and with it partitions of it.
    pub fn rename(&mut self, at: usize, name: String) {
        let was = self.made[at].provider();
        self.made[at].name = name;
        let now = self.made[at].provider();
        let members = self.made.iter_mut().flat_map(|m| &mut m.members);
        for name in members.chain([&mut self.top]) {
            let rest = name.strip_prefix(&was);
            if let Some(rest) = rest.filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            {
                *name = format!("{now}{rest}");
            }
        }
    }
}

impl Made {
    /// The provider's name in the layers above.
    pub fn provider(&self) -> String {
        match self.class {
            "part" => self.members[0].clone() + self.with["suffix"].as_str().unwrap_or_default(),
            _ => format!("{}/{}", self.class, self.name),
        }
    }

    /// The array of a volume.
    pub fn set(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}
