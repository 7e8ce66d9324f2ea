//! Plans of stacks of classes: the labels, and the members of each.

use reactor::SeededRandom;
use serde_json::{Value, json};

use super::run::DISK;

/// One geom of a stack.
#[derive(Clone, Debug)]
pub struct Made {
    pub class: &'static str,
    pub name: String,
    pub members: Vec<String>,
    pub with: Value,
}

/// A stack.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub made: Vec<Made>,
    pub top: String,
    /// Disks that the stack is made of; further ones are spares.
    pub disks: usize,
    pub spares: usize,
    /// A partition is made on the top.
    pub part: bool,
    /// Two paths lead to each disk.
    pub paths: bool,
    /// More happens: disks grow, some take no DELETE, members are compared, the power fails just
    /// when a mirror reports that it is clean.
    pub rich: bool,
    /// Users do not wait for each other's writes of the same sectors.
    pub crowded: bool,
    /// Disks grow also while the power is off, and `relocate` moves the labels that stayed.
    pub follows: bool,
    /// The mirror on top is made smaller, too, when it is not open.
    pub shrinks: bool,
    /// Disks grow at the bottom, and the layers above are made larger: see `rising`.
    pub rises: bool,
    /// The cores run between an event and the graph that it changes.
    pub overtaken: bool,
    /// The power fails also while a member of an array with parity is away: see `stacked`.
    pub harsh: bool,
    pub disk_bytes: u64,
    /// With arrays and partitions between the other classes: see `deep`.
    pub deep: bool,
}

pub(super) fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("d{i}")).collect()
}

/// The name of a disk by its second path.
fn second(disk: &str) -> String {
    format!("{disk}b")
}

/// Parameters of a class, by chance.
pub(super) fn with(class: &str, random: &mut SeededRandom) -> Value {
    let balances = ["load", "round-robin", "split", "prefer", "none"];
    match class {
        "mirror" => json!({
            "balance": balances[random.below(5) as usize],
            "slice": 1024,
            "assume_same": random.chance(500),
        }),
        "stripe" => json!({ "strip": 1024 << random.below(3) }),
        _ => json!({}),
    }
}

impl Plan {
    pub fn of(class: &'static str, disks: usize, random: &mut SeededRandom) -> Plan {
        let with = with(class, random);
        let made = Made { class, name: "top".into(), members: names(disks), with };
        let spares = if class == "mirror" { 1 } else { 0 };
        Plan {
            made: vec![made],
            top: format!("{class}/top"),
            disks,
            spares,
            disk_bytes: DISK,
            ..Plan::default()
        }
    }

    /// `below` on pairs of disks, `above` on those.
    pub fn two(
        above: &'static str,
        below: &'static str,
        width: usize,
        random: &mut SeededRandom,
    ) -> Plan {
        let mut plan = Plan {
            made: Vec::new(),
            top: format!("{above}/top"),
            disks: 2 * width,
            spares: usize::from(below == "mirror"),
            part: random.chance(250),
            disk_bytes: DISK,
            ..Plan::default()
        };
        let disks = names(plan.disks);
        for (i, pair) in disks.chunks(2).enumerate() {
            let (name, members) = (format!("{}{i}", &below[..1]), pair.to_vec());
            plan.made.push(Made { class: below, name, members, with: with(below, random) });
        }
        let members = plan.made.iter().map(|m| format!("{below}/{}", m.name)).collect();
        plan.made.push(Made {
            class: above,
            name: "top".into(),
            members,
            with: with(above, random),
        });
        plan
    }

    /// Three classes deep, by chance.
    pub fn three(random: &mut SeededRandom) -> Plan {
        let all = ["mirror", "stripe", "concat"];
        let mut pick = || all[random.below(3) as usize];
        let (bottom, middle, top) = (pick(), pick(), pick());
        let mut plan = Plan {
            made: Vec::new(),
            top: format!("{top}/top"),
            disks: 8,
            spares: usize::from(bottom == "mirror"),
            part: random.chance(250),
            disk_bytes: DISK,
            ..Plan::default()
        };
        let mut below = names(8);
        for (level, class) in [bottom, middle, top].into_iter().enumerate() {
            let mut next = Vec::new();
            for (i, pair) in below.chunks(2).enumerate() {
                let name = if level == 2 { "top".into() } else { format!("l{level}n{i}") };
                next.push(format!("{class}/{name}"));
                let (members, with) = (pair.to_vec(), with(class, random));
                plan.made.push(Made { class, name, members, with });
            }
            below = next;
        }
        plan
    }

    /// A mirror on disks each of which is reached by two paths.
    pub fn over_paths(disks: usize, random: &mut SeededRandom) -> Plan {
        let mut plan = Plan::of("mirror", disks, random);
        let mut above = plan.made.remove(0);
        for (i, member) in above.members.iter_mut().enumerate() {
            let name = format!("x{i}");
            let paths = vec![member.clone(), second(member)];
            *member = format!("multipath/{name}");
            let with = [json!({}), json!({ "active": true }), json!({ "read": true })];
            let with = with[random.below(3) as usize].clone();
            plan.made.push(Made { class: "multipath", name, members: paths, with });
        }
        plan.made.push(above);
        Plan { paths: true, spares: 0, ..plan }.rich(random)
    }

    /// More happens.
    pub fn rich(mut self, random: &mut SeededRandom) -> Plan {
        for made in self.made.iter_mut().filter(|m| m.class == "mirror") {
            if random.chance(500) {
                made.with["region"] = json!(4096);
            }
        }
        Plan { rich: true, ..self }
    }

    /// The names under which a disk is plugged in.
    pub fn names_of(&self, disk: &str) -> Vec<String> {
        let mut names = vec![disk.to_owned()];
        names.extend(self.paths.then(|| second(disk)));
        names
    }

    /// The concat to which a disk may be appended: no layer above it has a label of its own at its
    /// end.
    pub fn appends(&self) -> Option<&Made> {
        let top = self.made.last()?;
        (self.rich && top.class == "concat" && !self.part).then_some(top)
    }

    /// Whether a disk may grow: the provider on it does not grow with it, or has nothing above. A
    /// label of a provider that grew while it was not read would not be found again.
    pub fn grows(&self, disk: &str) -> bool {
        let below = |m: &&Made| m.members.iter().any(|name| name == disk);
        let holder = self.made.iter().find(below);
        self.made.len() == 1 || self.paths || holder.is_some_and(|m| m.class == "mirror")
    }

    /// Whether the users' provider is a mirror that may be made larger: no layer above it has a
    /// label of its own.
    pub fn resizes(&self) -> bool {
        let top = self.made.last().is_some_and(|m| m.class == "mirror");
        self.rich && top && !self.part && (self.made.len() == 1 || self.paths)
    }

    /// The disks under a provider.
    pub fn leaves(&self, provider: &str) -> Vec<String> {
        let made = self.made.iter().find(|m| provider == m.provider());
        match made {
            Some(made) => made.members.iter().flat_map(|m| self.leaves(m)).collect(),
            None => vec![provider.to_owned()],
        }
    }

    /// The provider that users open.
    pub fn volume(&self) -> String {
        format!("{}{}", self.top, if self.part { "p1" } else { "" })
    }

    pub fn mirrors(&self) -> impl Iterator<Item = &Made> {
        self.made.iter().filter(|m| m.class == "mirror")
    }

    /// Mirrors whose members are disks.
    pub fn low_mirrors(&self) -> Vec<&Made> {
        let is_disk = |name: &String| self.made.iter().all(|m| m.provider() != *name);
        self.mirrors().filter(|m| m.members.iter().all(is_disk)).collect()
    }
}
