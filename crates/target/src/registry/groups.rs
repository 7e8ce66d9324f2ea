//! Access groups and LUN maps: immutable values, replaced whole.

use std::sync::Arc;

use bio::Errno;
use geom::Error;
use wire::pattern::Pattern;

use crate::device::Device;

/// Largest LUN: what the flat addressing method holds. A larger one is refused.
pub const LUN_MAX: u64 = 16383;
/// Groups of one target; a further one is refused.
pub const GROUPS_MAX: usize = 1024;
/// Patterns of one group; a further one is refused.
pub const PATTERNS_MAX: usize = 4096;

/// One line of a LUN map as the configuration gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LunSpec {
    /// Number under which initiators see the unit.
    pub lun: u64,
    /// Name of the device.
    pub device: String,
    /// Writes are refused.
    pub read_only: bool,
}

/// An access group as the configuration gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSpec {
    /// Name, unique in its target.
    pub name: String,
    /// Patterns of initiator names.
    pub initiators: Vec<String>,
    /// What they see.
    pub luns: Vec<LunSpec>,
}

/// One entry of a LUN map.
#[derive(Clone)]
pub struct LunEntry {
    /// Number under which initiators see the unit.
    pub lun: u64,
    /// The unit.
    pub device: Arc<Device>,
    /// Writes are refused.
    pub read_only: bool,
}

/// What the members of one group see: entries by growing number.
#[derive(Default)]
pub struct LunMap {
    entries: Vec<LunEntry>,
}

impl LunMap {
    /// Entries by growing number.
    pub fn entries(&self) -> &[LunEntry] {
        &self.entries
    }
}

/// One access group.
pub struct Group {
    /// Name.
    pub name: String,
    /// Who belongs to it.
    pub patterns: Vec<Pattern>,
    /// What they see.
    pub luns: Arc<LunMap>,
}

/// All groups of one target.
#[derive(Default)]
pub struct Groups {
    groups: Vec<Group>,
}

impl Groups {
    /// The groups, in the order of the configuration.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of an initiator: at most one, because groups do not overlap.
    pub fn group_of(&self, initiator: &str) -> Option<&Group> {
        self.groups.iter().find(|g| g.patterns.iter().any(|p| p.matches(initiator)))
    }

    /// Checks and builds. `target` is for messages, `find` looks devices up by name.
    pub(super) fn build(
        target: &str,
        specs: &[GroupSpec],
        find: impl Fn(&str) -> Option<Arc<Device>>,
    ) -> Result<Groups, Error> {
        if specs.len() > GROUPS_MAX {
            let what = format!("{target}: more than {GROUPS_MAX} access groups");
            return Err(Error::new(Errno::NoSpc, what));
        }
        let mut groups: Vec<Group> = Vec::with_capacity(specs.len());
        for spec in specs {
            let group = build_group(target, spec, &find)?;
            if let Some(other) = groups.iter().find(|g| g.name == group.name) {
                let what = format!("{target}: two access groups are called {}", other.name);
                return Err(Error::new(Errno::Exist, what));
            }
            for other in &groups {
                refuse_overlap(target, other, &group)?;
            }
            groups.push(group);
        }
        Ok(Groups { groups })
    }
}

fn build_group(
    target: &str,
    spec: &GroupSpec,
    find: &impl Fn(&str) -> Option<Arc<Device>>,
) -> Result<Group, Error> {
    let at = format!("{target}, group {}", spec.name);
    if spec.initiators.len() > PATTERNS_MAX {
        let what = format!("{at}: more than {PATTERNS_MAX} initiators");
        return Err(Error::new(Errno::NoSpc, what));
    }
    let mut patterns = Vec::with_capacity(spec.initiators.len());
    for text in &spec.initiators {
        let Some(pattern) = Pattern::new(text) else {
            let what = format!("{at}: an initiator name is empty or too long");
            return Err(Error::new(Errno::Inval, what));
        };
        patterns.push(pattern);
    }
    let mut entries: Vec<LunEntry> = Vec::with_capacity(spec.luns.len());
    for line in &spec.luns {
        if line.lun > LUN_MAX {
            let what = format!("{at}: LUN {} is larger than {LUN_MAX}", line.lun);
            return Err(Error::new(Errno::Inval, what));
        }
        let Some(device) = find(&line.device) else {
            let what = format!("{at}: LUN {}: no device {}", line.lun, line.device);
            return Err(Error::new(Errno::NoEnt, what));
        };
        entries.push(LunEntry { lun: line.lun, device, read_only: line.read_only });
    }
    entries.sort_by_key(|e| e.lun);
    if let Some(pair) =
        entries.windows(2).find(|w| w.first().map(|e| e.lun) == w.get(1).map(|e| e.lun))
    {
        let lun = pair.first().map_or(0, |e| e.lun);
        return Err(Error::new(Errno::Exist, format!("{at}: LUN {lun} is given twice")));
    }
    Ok(Group { name: spec.name.clone(), patterns, luns: Arc::new(LunMap { entries }) })
}

fn refuse_overlap(target: &str, a: &Group, b: &Group) -> Result<(), Error> {
    for x in &a.patterns {
        if let Some(y) = b.patterns.iter().find(|y| x.overlaps(y)) {
            let what = format!(
                "{target}: an initiator could belong to group {} ({}) and to group {} ({}); \
                 make the patterns exclude each other",
                a.name,
                x.as_str(),
                b.name,
                y.as_str(),
            );
            return Err(Error::new(Errno::Exist, what));
        }
    }
    Ok(())
}
