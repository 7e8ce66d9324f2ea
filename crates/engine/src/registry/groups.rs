//! Access groups: their members, and the units that the members see.
//!
//! ```text
//!   Groups (of a target) --> Group: names, portals --> View --> LunMap
//!   session ------------------- generation compared ---^
//! ```
//! A session keeps the view of its group and reads one number of it for each command. A change of
//! the group's units replaces the map inside the view. When the groups themselves change, their
//! views are retired and sessions look up their group again.
//!
//! Invariant G1: a change of a view's contents stores the new value first and raises the generation
//! after it, so that a session which sees the new number sees the new value.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::Error;
use wire::pattern::Pattern;
use wire::portal::{LocalAddress, PortalRule, any_matches, any_overlaps};
use wire::scsi::Addressing;

use super::map::{LUN_MAX, LunEntry, LunMap};
use super::proof::GroupAuth;
use crate::unit::Device;

/// Groups of one target; a further one is refused.
pub const GROUPS_MAX: usize = 1024;
/// Patterns of one group; a further one is refused.
pub const PATTERNS_MAX: usize = 4096;
/// Portals of one group; a further one is refused.
pub const PORTALS_MAX: usize = 256;

/// One line of a LUN map as the configuration gives it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LunSpec {
    /// Number under which initiators see the unit.
    pub lun: u64,
    pub device: String,
    /// Writes are refused.
    pub read_only: bool,
}

/// An access group as the configuration gives it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GroupSpec {
    /// Name, unique in its target.
    pub name: String,
    pub initiators: Vec<String>,
    /// Rules for portals ([`PortalRule`]); empty means all.
    pub portals: Vec<String>,
    /// How REPORT LUNS writes the numbers.
    pub addressing: Addressing,
    /// Accounts with which they authenticate.
    pub auth: GroupAuth,
    /// Units that they see.
    pub luns: Vec<LunSpec>,
    /// Members that may not write a unit may reserve it and change its mode pages.
    pub read_only_reserves: bool,
    pub cold_resets_target: bool,
    /// Numbers whose units are configured and not there yet, with the names of these.
    pub awaited: Vec<(u64, String)>,
}

/// View of the members of one group, now and after changes.
pub(crate) struct LunMapView {
    generation: AtomicU64,
    /// The group was removed or has other members: its sessions look up their group.
    retired: AtomicBool,
    map: Mutex<Arc<LunMap>>,
}

impl LunMapView {
    fn new(map: Arc<LunMap>) -> LunMapView {
        // Zero is the generation of a session that has not looked yet.
        LunMapView {
            generation: AtomicU64::new(1),
            retired: AtomicBool::new(false),
            map: Mutex::new(map),
        }
    }

    fn lock_map(&self) -> MutexGuard<'_, Arc<LunMap>> {
        self.map.lock()
    }

    /// Grows with every change that a session must look at.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(crate) fn map(&self) -> Arc<LunMap> {
        self.lock_map().clone()
    }

    /// G1.
    pub(super) fn replace(&self, map: Arc<LunMap>) {
        *self.lock_map() = map;
        self.touch();
    }

    /// Sessions look again.
    pub(super) fn touch(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.touch();
    }
}

pub struct Group {
    pub name: String,
    /// Who belongs to it.
    pub patterns: Vec<Pattern>,
    /// The portals that they must use; empty means any.
    pub portals: Vec<PortalRule>,
    /// Accounts with which its members authenticate.
    pub auth: GroupAuth,
    pub(crate) view: Arc<LunMapView>,
}

impl Group {
    /// Units that its members see.
    pub fn luns(&self) -> Arc<LunMap> {
        self.view.map()
    }

    /// The pattern by which an initiator that logs in at a portal belongs to the group.
    pub fn admits(&self, initiator: &str, portal: LocalAddress<'_>) -> Option<&Pattern> {
        if !any_matches(&self.portals, portal) {
            return None;
        }
        self.patterns.iter().find(|p| p.matches(initiator))
    }
}

pub struct Groups {
    groups: Vec<Group>,
    /// View of initiators that belong to no group.
    pub(crate) ungrouped: Arc<LunMapView>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { groups: Vec::new(), ungrouped: Arc::new(LunMapView::new(Arc::default())) }
    }
}

impl Groups {
    /// The groups, in the order of the configuration.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| g.name == name)
    }

    /// The group of an initiator at a portal: at most one, because groups do not
    /// overlap.
    pub fn group_of(&self, initiator: &str, portal: LocalAddress<'_>) -> Option<&Group> {
        self.groups.iter().find(|g| g.admits(initiator, portal).is_some())
    }

    /// The units that the members of any group see, each once.
    pub(crate) fn devices(&self) -> Vec<Arc<Device>> {
        let mut all: Vec<Arc<Device>> = Vec::new();
        for group in &self.groups {
            all.extend(group.luns().iter().map(|e| e.device.clone()));
        }
        all.sort_by_key(|device| device.number());
        all.dedup_by_key(|device| device.number());
        all
    }

    /// Every session looks again, and when `retire` is set looks up its group.
    pub(super) fn touch(&self, retire: bool) {
        let all = self.groups.iter().map(|g| &g.view).chain([&self.ungrouped]);
        all.for_each(|v| if retire { v.retire() } else { v.touch() });
    }

    /// True when both have the same groups with the same members and accounts.
    pub(super) fn same_members(&self, other: &Groups) -> bool {
        let same = |a: &Group| {
            other.group(&a.name).is_some_and(|b| {
                a.patterns == b.patterns && a.portals == b.portals && a.auth == b.auth
            })
        };
        self.groups.len() == other.groups.len() && self.groups.iter().all(same)
    }

    /// Checks and builds. `target` is for messages, `find` looks devices up by name. Maps are made
    /// from those of `old`, so that a comparison sees few differences.
    pub(super) fn build(
        target: &str,
        specs: &[GroupSpec],
        old: &Groups,
        find: impl Fn(&str) -> Option<Arc<Device>>,
    ) -> Result<Groups, Error> {
        if specs.len() > GROUPS_MAX {
            let what = format!("{target}: more than {GROUPS_MAX} access groups");
            return Err(Error::new(Errno::NoSpc, what));
        }
        let mut groups: Vec<Group> = Vec::with_capacity(specs.len());
        for spec in specs {
            let was = old.group(&spec.name).map(Group::luns).unwrap_or_default();
            let group = build_group(target, spec, &was, &find)?;
            if groups.iter().any(|g| g.name == group.name) {
                let what = format!("{target}: two access groups are called {}", group.name);
                return Err(Error::new(Errno::Exist, what));
            }
            for other in &groups {
                refuse_overlap(target, other, &group)?;
            }
            groups.push(group);
        }
        Ok(Groups { groups, ..Groups::default() })
    }
}

fn build_group(
    target: &str,
    spec: &GroupSpec,
    was: &LunMap,
    find: &impl Fn(&str) -> Option<Arc<Device>>,
) -> Result<Group, Error> {
    let at = format!("{target}, group {}", spec.name);
    for (many, most, what) in [
        (spec.initiators.len(), PATTERNS_MAX, "initiators"),
        (spec.portals.len(), PORTALS_MAX, "portals"),
    ] {
        if many > most {
            return Err(Error::new(Errno::NoSpc, format!("{at}: more than {most} {what}")));
        }
    }
    let mut patterns = Vec::with_capacity(spec.initiators.len());
    for text in &spec.initiators {
        let Some(pattern) = Pattern::new(text) else {
            let what = format!("{at}: an initiator name is empty or too long");
            return Err(Error::inval(what));
        };
        patterns.push(pattern);
    }
    let mut portals = Vec::with_capacity(spec.portals.len());
    for text in &spec.portals {
        let Some(rule) = PortalRule::new(text) else {
            let what = format!(
                "{at}: {text:?} is no portal; write ADDRESS, ADDRESS:PORT, *:PORT or unix:PATH"
            );
            return Err(Error::inval(what));
        };
        portals.push(rule);
    }
    let map = build_map(&at, spec, was, find)?;
    let view = Arc::new(LunMapView::new(Arc::new(map)));
    Ok(Group { name: spec.name.clone(), patterns, portals, auth: spec.auth.clone(), view })
}

fn build_map(
    at: &str,
    spec: &GroupSpec,
    was: &LunMap,
    find: &impl Fn(&str) -> Option<Arc<Device>>,
) -> Result<LunMap, Error> {
    let mut lines: Vec<&LunSpec> = spec.luns.iter().collect();
    lines.sort_by_key(|l| l.lun);
    let twice = lines.windows(2).find_map(|w| match w {
        [a, b] if a.lun == b.lun => Some(a.lun),
        _ => None,
    });
    if let Some(lun) = twice {
        return Err(Error::new(Errno::Exist, format!("{at}: LUN {lun} is given twice")));
    }
    let mut map = was.with_addressing(spec.addressing);
    for line in &lines {
        let mut entry = resolve(at, line, find)?;
        let former = map.get(line.lun);
        if former.is_none_or(|e| !e.same(&entry)) {
            entry.succeed(former);
            map.set(line.lun, Some(Arc::new(entry)));
        }
    }
    if map.len() != lines.len() {
        let wanted = |lun: &u64| lines.binary_search_by_key(lun, |l| l.lun).is_ok();
        let gone: Vec<u64> = map.iter().map(|e| e.lun).filter(|l| !wanted(l)).collect();
        for lun in gone {
            map.set(lun, None);
        }
    }
    map.set_awaited(&spec.awaited);
    map.let_read_only_reserve(spec.read_only_reserves);
    map.let_cold_reset_target(spec.cold_resets_target);
    Ok(map)
}

pub(super) fn resolve(
    at: &str,
    line: &LunSpec,
    find: &impl Fn(&str) -> Option<Arc<Device>>,
) -> Result<LunEntry, Error> {
    if line.lun > LUN_MAX {
        let what = format!("{at}: LUN {} is larger than {LUN_MAX}", line.lun);
        return Err(Error::inval(what));
    }
    let Some(device) = find(&line.device) else {
        let what = format!("{at}: LUN {}: no device {}", line.lun, line.device);
        return Err(Error::new(Errno::NoEnt, what));
    };
    // Such a disk is not written: its hosts are as those of a LUN with mode `ro`.
    let read_only = line.read_only || device.spec().read_only && !device.spec().removable;
    Ok(LunEntry::new(line.lun, device, read_only))
}

fn refuse_overlap(target: &str, a: &Group, b: &Group) -> Result<(), Error> {
    if !any_overlaps(&a.portals, &b.portals) {
        return Ok(());
    }
    for x in &a.patterns {
        if let Some(y) = b.patterns.iter().find(|y| x.overlaps(y)) {
            let what = format!(
                "{target}: an initiator could belong to group {} ({}) and to group {} ({}); \
                 make the patterns or the portals exclude each other",
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
