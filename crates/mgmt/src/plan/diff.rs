//! Two configurations to the steps between them, in an order in which each step can be taken. LUNs
//! are withdrawn, targets and geoms removed from the top down; then buses, disks, geoms, targets
//! and LUNs are added from the bottom up.

use super::action::{Action, Step};
use super::depend::{DependencyGraph, bottom_up};
use super::disk_edits::{
    changes_in_place, edits_in_place, ids_of_kept_disks, is_awaited, renumbered_units,
};
use super::identity::{Identities, PredictedSerials};
use super::manual_changes::members;
use super::memory_disks::lost_contents;
use super::rename::{rename, renamed};
use super::risk::{RiskContext, risk};
use super::settings::{self, changes_in_use, differ_in_settings, same_settings};
use super::sizes::{SizeEdit, size_edit};
use crate::api::SystemState;
use crate::config::{
    AccessConfig, AluaConfig, ApiSections, Catalog, Config, DiskConfig, GeomConfig, TargetConfig,
    UnitConfig,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The steps from `running` to `desired`. Both must have passed `config::check`. `foreseen`: what
/// hosts would know disks by that are made.
pub fn plan(
    running: &Config,
    desired: &Config,
    (state, foreseen): (&SystemState, &PredictedSerials),
    catalog: &Catalog,
) -> Vec<Step> {
    let ground = DependencyGraph::new(state);
    let mut names = renamed(running, desired);
    // Of a disk that is awaited there is nothing yet that could have another name.
    names.retain(|(from, _)| !is_awaited(state, &from.name));
    let mut called = running.clone();
    names.iter().for_each(|(from, to)| rename(&mut called, &from.name, to));
    let identities = Identities::new(&called, desired, (state, &names), (foreseen, catalog));
    let scene = RiskContext { state, catalog, running: &called, desired, identities };
    let mut planner = Planner { now: running.clone(), steps: Vec::new(), context: scene };
    for (from, to) in names {
        let why = match planner.context.identities.current_serial(&to.name) {
            Some(serial) => format!("the same disk for hosts: serial number {serial}"),
            None => "it is the same disk".to_owned(),
        };
        planner.step(Action::RenameDisk { from, to }, why);
    }
    let running = &called;
    let gone = removals((running, desired), &ground, state, catalog);
    let mut other = changed_units(running, desired, &planner.context.identities);
    other.extend(renumbered_units(running, desired, state, &ground));
    planner.withdraw(running, desired, &gone, &other, &ground);
    planner.remove(running, desired, &gone, &ground);
    if running.daemon != desired.daemon {
        let why = changes(&running.daemon, &desired.daemon);
        let (from, to) = (running.daemon.clone(), desired.daemon.clone());
        planner.step(Action::Daemon { from, to }, why);
    }
    let (from, to) = (ApiSections::of(running), ApiSections::of(desired));
    if from != to {
        let clients = if from.api_client == to.api_client { "" } else { "[[api_client]] changes" };
        let why = [changes(&from.api, &to.api).as_str(), clients].join(", ");
        let why = why.trim_matches([',', ' ']).to_owned();
        planner.step(Action::Api { from: Box::new(from), to: Box::new(to) }, why);
    }
    if running.webhook != desired.webhook {
        let (from, to) = (running.webhook.clone(), desired.webhook.clone());
        planner.step(Action::Webhooks { from, to }, "[[webhook]] changes".to_owned());
    }
    planner.apply_units(running, desired);
    planner.edit_disks(running, desired, &gone);
    planner.create(running, desired, &gone, &ground);
    planner.drop_port_groups(desired);
    planner.grant(desired);
    planner.grow(desired, &gone);
    planner.steps
}

/// Buses, disks and geoms that are removed, and geoms that change instead.
#[derive(Default)]
struct Removals {
    /// Names with the reason.
    reasons: BTreeMap<String, String>,
    /// Geoms that change while they are used.
    changed: BTreeSet<String>,
    /// Disks of members that such geoms give up: they are removed after that.
    late: BTreeSet<String>,
    /// Providers that such geoms give up.
    dropped: BTreeSet<String>,
}

impl Removals {
    /// The removed or changed section below a provider that takes the provider with it.
    fn removed_below(&self, reference: &str, ground: &DependencyGraph) -> Option<&String> {
        // Of many thousand LUNs, each is looked up among as many removed disks.
        let owners = ground.owners(reference);
        let dropped = owners.iter().filter_map(|owner| self.dropped.get(*owner)).min();
        if dropped.is_some() {
            return dropped;
        }
        let kept = owners.iter().any(|owner| self.changed.contains(*owner));
        let gone = owners.iter().filter_map(|owner| self.reasons.get_key_value(*owner));
        gone.map(|(name, _)| name).filter(|name| !self.late.contains(*name) || !kept).min()
    }
}

/// Which buses, disks and geoms are removed.
fn removals(
    (running, desired): (&Config, &Config),
    ground: &DependencyGraph,
    state: &SystemState,
    catalog: &Catalog,
) -> Removals {
    let absent = "no longer in the configuration".to_owned();
    let mut gone = Removals::default();
    let wanted = disks_by_name(desired);
    for bus in &running.bus {
        match desired.bus(&bus.name) {
            None => gone.reasons.insert(bus.name.clone(), absent.clone()),
            Some(to) if !bus.can_become(to, catalog.live_keys(&bus.kind)) => {
                gone.reasons.insert(bus.name.clone(), changes(bus, to))
            }
            Some(_) => None,
        };
    }
    for disk in &running.disk {
        match wanted.get(disk.name.as_str()).copied() {
            None => gone.reasons.insert(disk.name.clone(), absent.clone()),
            Some(to) if to != disk && !changes_in_place(disk, to, (state, catalog), ground) => {
                gone.reasons.insert(disk.name.clone(), changes(disk, to))
            }
            Some(_) => None,
        };
    }
    for geom in bottom_up(running, ground) {
        let to = desired.geom(&geom.name);
        let scene = (running, desired, ground, (state, catalog));
        if let Some((to, late)) =
            to.and_then(|to| Some((to, in_place_change(geom, to, scene, &gone)?)))
        {
            gone.changed.insert(geom.name.clone());
            gone.late.extend(late);
            gone.dropped.extend(geom.dropped_disks(to).map(str::to_owned));
            continue;
        }
        let why = match to {
            None => Some(absent.clone()),
            Some(to) if !is_unchanged(geom, to, state, catalog) => Some(changes(geom, to)),
            Some(_) => {
                let below = geom.provider_names().find_map(|b| gone.removed_below(b, ground));
                below.map(|below| format!("{below} below it changes"))
            }
        };
        if let Some(why) = why {
            gone.reasons.insert(geom.name.clone(), why);
        }
    }
    gone
}

/// Whether a geom can change while it is used, with the disks that it releases and that are
/// removed. Not one that has not started, nor one whose new member is on a removed section or has
/// the image of a removed disk.
fn in_place_change(
    from: &GeomConfig,
    to: &GeomConfig,
    (running, desired, ground, (state, catalog)): (
        &Config,
        &Config,
        &DependencyGraph,
        (&SystemState, &Catalog),
    ),
    gone: &Removals,
) -> Option<Vec<String>> {
    let keeps_records = catalog.facts(&from.class).keeps_records;
    let alike = keeps_records && to.class == from.class && to.provider == from.provider
        || changes_in_use(from, to, state, catalog);
    if !alike
        || settings::running_geom(from, state).is_none()
        || is_unchanged(from, to, state, catalog)
    {
        return None;
    }
    if to.provider_names().any(|member| gone.removed_below(member, ground).is_some()) {
        return None;
    }
    let dropped: Vec<&String> =
        from.members.iter().filter(|member| !to.members.contains(member)).collect();
    let is_below = |name: &&String| dropped.iter().any(|member| ground.depends_on(member, name));
    let late: Vec<String> = gone.reasons.keys().filter(is_below).cloned().collect();
    let path = |disk: &DiskConfig| disk.params.get("path").cloned();
    let frees = |name: &String| {
        let Some(disk) = running.disk.iter().find(|d| d.name == *name) else { return false };
        let takes = |d: &DiskConfig| d.name == *name || path(d).is_some() && path(d) == path(disk);
        !desired.disk.iter().any(takes)
    };
    late.iter().all(frees).then_some(late)
}

/// Whether a geom stays as it is. The sections mean the same in other words, or the second names
/// the members that the geom has by now.
fn is_unchanged(
    from: &GeomConfig,
    to: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> bool {
    let named = GeomConfig { members: from.members.clone(), ..to.clone() };
    same_settings(from, to, state, catalog)
        || named == *from && members(from, state, catalog).is_some_and(|now| now == to.members)
}

/// The disks by name: there may be many thousands.
pub(super) fn disks_by_name(config: &Config) -> HashMap<&str, &DiskConfig> {
    config.disk.iter().map(|d| (d.name.as_str(), d)).collect()
}

struct Planner<'a> {
    /// The configuration after the steps so far.
    now: Config,
    steps: Vec<Step>,
    context: RiskContext<'a>,
}

impl Planner<'_> {
    fn step(&mut self, action: Action, why: impl Into<String>) {
        action.apply_to(&mut self.now);
        let judged = risk(&action, &self.context);
        let lost = lost_contents(&action, self.context.state, self.context.catalog);
        let why: Vec<String> = [Some(why.into()), lost].into_iter().flatten().collect();
        let step = Step::new(action, why.join("; "), judged.risk);
        self.steps.push(Step { hosts: judged.hosts, ..step });
    }

    /// Withdraws the LUNs that groups may not keep, because their providers are removed. The
    /// members of groups change at the end, in one step (`grant`). An initiator that moves to
    /// another group keeps the LUNs that both groups show it.
    fn withdraw(
        &mut self,
        running: &Config,
        desired: &Config,
        gone: &Removals,
        other: &BTreeSet<&str>,
        ground: &DependencyGraph,
    ) {
        // A geom that is made may open its members exclusively: LUNs on them are removed first. A
        // member that the new configuration exports as well keeps its LUNs.
        let comes =
            |g: &&GeomConfig| running.geom(&g.name).is_none() || gone.reasons.contains_key(&g.name);
        let mut taken: HashSet<&str> =
            desired.geom.iter().filter(comes).flat_map(GeomConfig::provider_names).collect();
        for geom in desired.geom.iter().filter(|g| gone.changed.contains(&g.name)) {
            let had = running.geom(&geom.name);
            let new =
                |member: &&str| had.is_none_or(|had| had.provider_names().all(|b| b != *member));
            taken.extend(geom.provider_names().filter(new));
        }
        for lun in desired.access.iter().flat_map(|a| a.luns.values()) {
            taken.remove(lun.provider.as_str());
        }
        for access in &running.access {
            let target = running.target(&access.target);
            let kept = desired.target(&access.target);
            let target_stays = match (target, kept) {
                (Some(a), Some(b)) => self.port_change(a, b).is_none(),
                _ => false,
            };
            if !target_stays {
                let why = "its target is removed";
                self.step(Action::RemoveAccess { access: access.clone() }, why);
                continue;
            }
            let mut less = access.clone();
            less.luns.retain(|_, lun| {
                let changes =
                    other.contains(lun.provider.as_str()) || taken.contains(lun.provider.as_str());
                !changes && gone.removed_below(&lun.provider, ground).is_none()
            });
            if less != *access {
                let why = "the provider of a LUN changes";
                self.step(Action::ModifyAccess { from: access.clone(), to: less }, why);
            }
        }
    }

    /// Why a target cannot become another while its port stays.
    fn port_change(&self, from: &TargetConfig, to: &TargetConfig) -> Option<&'static str> {
        if from.driver != to.driver {
            return Some("its driver changes");
        }
        let has = |id: u16| {
            from.port_id == Some(id)
                || self
                    .context
                    .state
                    .targets
                    .iter()
                    .any(|t| t.name == to.name && t.relative_port == id)
        };
        to.port_id.filter(|id| !has(*id)).map(|_| "its port_id changes")
    }

    /// Applies the settings of units whose LUNs are withdrawn, and adds port groups.
    fn apply_units(&mut self, running: &Config, desired: &Config) {
        if !same_elements(&running.unit, &desired.unit) {
            let (from, to) = (running.unit.clone(), desired.unit.clone());
            let why = unit_changes(&from, &to);
            self.step(Action::Units { from, to }, why);
        }
        // Removed ones may still have targets. Who gets the identifier of one of them (a group that
        // has a new name) has another until they are removed.
        let mut all = desired.alua.clone();
        let goes = |g: &&AluaConfig| !desired.alua.iter().any(|n| n.name == g.name);
        let going: Vec<AluaConfig> = running.alua.iter().filter(goes).cloned().collect();
        let mut taken: BTreeSet<u16> = all.iter().chain(&going).map(|g| g.id).collect();
        for group in all.iter_mut().filter(|n| going.iter().any(|g| g.id == n.id)) {
            if let Some(free) = (1..=u16::MAX).rev().find(|id| !taken.contains(id)) {
                taken.insert(free);
                group.id = free;
            }
        }
        all.extend(going);
        self.port_groups(all, "as configured");
    }

    /// Changes disks under their users. LUNs for whose hosts a new identity counts are withdrawn.
    fn edit_disks(&mut self, running: &Config, desired: &Config, gone: &Removals) {
        let known = (self.context.state, self.context.catalog);
        for (action, why) in edits_in_place(running, desired, &gone.reasons, known) {
            self.step(action, why);
        }
    }

    /// Port groups that no target has any more.
    fn drop_port_groups(&mut self, desired: &Config) {
        self.port_groups(desired.alua.clone(), "no target uses them any more");
    }

    fn port_groups(&mut self, to: Vec<AluaConfig>, why: &str) {
        let from = self.now.alua.clone();
        if !same_elements(&from, &to) {
            self.step(Action::PortGroups { from, to }, why);
        }
    }

    fn remove(
        &mut self,
        running: &Config,
        desired: &Config,
        gone: &Removals,
        ground: &DependencyGraph,
    ) {
        for target in &running.target {
            let why = match desired.target(&target.name) {
                None => "no longer in the configuration",
                Some(to) => match self.port_change(target, to) {
                    Some(why) => why,
                    None => continue,
                },
            };
            self.step(Action::RemoveTarget { target: target.clone() }, why);
        }
        for geom in bottom_up(running, ground).into_iter().rev() {
            if let Some(why) = gone.reasons.get(&geom.name) {
                self.step(Action::RemoveGeom { geom: geom.clone() }, why);
            }
        }
        for disk in running.disk.iter().rev() {
            if let Some(why) =
                gone.reasons.get(&disk.name).filter(|_| !gone.late.contains(&disk.name))
            {
                self.step(Action::RemoveDisk { disk: disk.clone() }, why);
            }
        }
        for bus in running.bus.iter().rev() {
            if let Some(why) = gone.reasons.get(&bus.name) {
                self.step(Action::RemoveBus { bus: bus.clone() }, why);
            }
        }
    }

    fn create(
        &mut self,
        running: &Config,
        desired: &Config,
        gone: &Removals,
        ground: &DependencyGraph,
    ) {
        let new = "in the configuration, not running".to_owned();
        for bus in &desired.bus {
            if let Some(from) = self.now.bus(&bus.name).filter(|from| *from != bus).cloned() {
                let why = changes(&from, bus);
                self.step(Action::ModifyBus { from, to: bus.clone() }, why);
            }
            if self.now.bus(&bus.name).is_none() {
                let why = gone.reasons.get(&bus.name).unwrap_or(&new).clone();
                self.step(Action::CreateBus { bus: bus.clone() }, why);
            }
        }
        let live: HashSet<String> = self.now.disk.iter().map(|d| d.name.clone()).collect();
        for disk in &desired.disk {
            if !live.contains(&disk.name) {
                let why = gone.reasons.get(&disk.name).unwrap_or(&new).clone();
                self.step(Action::CreateDisk { disk: disk.clone() }, why);
            }
        }
        for geom in bottom_up(desired, ground) {
            if self.now.geom(&geom.name).is_none() {
                let why = gone.reasons.get(&geom.name).unwrap_or(&new).clone();
                self.step(Action::CreateGeom { geom: geom.clone() }, why);
            }
            let from = self.now.geom(&geom.name).filter(|_| gone.changed.contains(&geom.name));
            if let Some(from) = from.filter(|from| self.is_reversible(from, geom)).cloned() {
                self.modify(from, geom);
            }
        }
        for disk in running.disk.iter().filter(|disk| gone.late.contains(&disk.name)) {
            let why = gone.reasons.get(&disk.name).cloned().unwrap_or_default();
            self.step(Action::RemoveDisk { disk: disk.clone() }, why);
        }
        for target in &desired.target {
            if let Some(from) = self.now.target(&target.name).filter(|t| *t != target).cloned() {
                let why = changes(&from, target);
                let (from, to) = (Box::new(from), Box::new(target.clone()));
                self.step(Action::ModifyTarget { from, to }, why);
            }
        }
        // Targets with a configured identifier get it before free identifiers are given to others.
        let (chosen, others) =
            desired.target.iter().partition::<Vec<_>, _>(|t| t.port_id.is_some());
        for target in chosen.into_iter().chain(others) {
            if self.now.target(&target.name).is_none() {
                let was = running.target(&target.name);
                let why = was.and_then(|was| self.port_change(was, target)).unwrap_or(&new);
                self.step(Action::CreateTarget { target: target.clone() }, why);
            }
        }
    }

    /// How two groups differ, and which LUNs are another disk for hosts than before the plan.
    fn access_changes(&self, from: &AccessConfig, to: &AccessConfig) -> String {
        let mut words = vec![group_changes(from, to)];
        let was = self.context.running.access(&to.target, &to.group);
        let was = was.map(|access| &access.luns);
        for (lun, is) in &to.luns {
            let Some(was) = was.and_then(|luns| luns.get(lun)) else { continue };
            let identities = &self.context.identities;
            if let Some(why) = identities.serial_conflict(was, is) {
                words.push(format!("LUN {lun} is another disk for hosts: {why}"));
            } else if let Some(serial) = identities.kept_serial(was, is) {
                words.push(format!("LUN {lun} is the same disk for hosts: serial number {serial}"));
            }
        }
        words.join(", ")
    }

    /// Whether a geom that gets the members of another section could get back those that it has.
    fn is_reversible(&self, from: &GeomConfig, to: &GeomConfig) -> bool {
        from.members == to.members || self.context.catalog.may_become(to, from)
    }

    fn modify(&mut self, mut from: GeomConfig, to: &GeomConfig) {
        let why = changes(&from, to);
        if differ_in_settings(&from, to, self.context.state, self.context.catalog) {
            // They are the members that it has by now.
            from.members.clone_from(&to.members);
        }
        self.step(Action::ModifyGeom { from, to: to.clone() }, why);
    }

    /// Last, because a geom that got a further member keeps it, and a grown file is not made
    /// smaller again, when a later step fails.
    fn grow(&mut self, desired: &Config, gone: &Removals) {
        let live = disks_by_name(&self.now);
        let pairs = desired.disk.iter().filter_map(|to| Some((*live.get(to.name.as_str())?, to)));
        let known = (self.context.state, self.context.catalog);
        let resizes = |from: &DiskConfig, to: &DiskConfig| {
            from != to && size_edit(from, to, known) == Some(SizeEdit::Resizes)
        };
        let grown = pairs.filter(|(from, to)| resizes(from, to));
        let grown: Vec<_> = grown.map(|(from, to)| (from.clone(), to.clone())).collect();
        for (from, to) in grown {
            let why = changes(&from, &to);
            self.step(Action::GrowDisk { from, to }, why);
        }
        // After the disks: the last member may grow only while it is the last.
        for geom in desired.geom.iter().filter(|geom| gone.changed.contains(&geom.name)) {
            let from = self.now.geom(&geom.name).filter(|from| *from != geom);
            if let Some(from) = from.filter(|from| !self.is_reversible(from, geom)).cloned() {
                self.modify(from, geom);
            }
        }
    }

    /// Changes the groups of each target to their desired state. Groups change one by one, or all
    /// in one step where initiators may move between them.
    fn grant(&mut self, desired: &Config) {
        for target in &desired.target {
            let of = |config: &Config| -> Vec<AccessConfig> {
                config.access.iter().filter(|a| a.target == target.name).cloned().collect()
            };
            let (from, to) = (of(&self.now), of(desired));
            let was = |a: &AccessConfig| from.iter().find(|f| f.same_group(a));
            let new: Vec<&AccessConfig> = to.iter().filter(|a| was(a).is_none()).collect();
            let changed: Vec<(&AccessConfig, &AccessConfig)> =
                to.iter().filter_map(|a| Some((was(a).filter(|w| *w != a)?, a))).collect();
            let stays = |a: &AccessConfig| to.iter().any(|t| t.same_group(a));
            let lost: Vec<&AccessConfig> = from.iter().filter(|a| !stays(a)).collect();
            let moves = changed.iter().filter(|(from, to)| !from.differs_in_luns_only(to)).count();
            let moves = moves + lost.len();
            if moves > 1 || moves == 1 && !new.is_empty() {
                let mut why: Vec<String> = lost.iter().map(|a| format!("-{}", a.group)).collect();
                why.extend(new.iter().map(|a| format!("+{}", a.group)));
                why.extend(
                    changed
                        .iter()
                        .map(|(f, t)| format!("{}: {}", t.group, self.access_changes(f, t))),
                );
                let (why, target) = (why.join("; "), target.name.clone());
                self.step(Action::Regroup { target, from: from.clone(), to: to.clone() }, why);
                continue;
            }
            for access in lost {
                let why = "no longer in the configuration";
                self.step(Action::RemoveAccess { access: access.clone() }, why);
            }
            for (from, to) in changed {
                let why = self.access_changes(from, to);
                self.step(Action::ModifyAccess { from: from.clone(), to: to.clone() }, why);
            }
            for access in new {
                let why = "in the configuration, not running";
                self.step(Action::CreateAccess { access: access.clone() }, why);
            }
        }
    }
}

/// Whether two short lists without repetitions have the same in them.
fn same_elements<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a == b || a.len() == b.len() && a.iter().all(|x| b.contains(x))
}

/// Providers whose units are shown in another way from now on, so that their LUNs have to be
/// withdrawn. Thresholds and the names of a unit change without that, and so does a serial number
/// that is written down as hosts see it.
fn changed_units<'c>(
    running: &'c Config,
    desired: &'c Config,
    identities: &Identities<'_>,
) -> BTreeSet<&'c str> {
    // A unit without a section equals a unit whose section has only defaults.
    let plain = |p: &str| UnitConfig { provider: p.to_owned(), ..UnitConfig::default() };
    let by_name = |c: &'c Config, other: &Config| -> HashMap<&'c str, UnitConfig> {
        let bare = |u: &UnitConfig| UnitConfig {
            thresholds: None,
            vendor: None,
            product: None,
            revision: None,
            sanitize: false,
            write_same_to_end: false,
            ..u.clone()
        };
        let mut all: HashMap<&str, UnitConfig> =
            c.unit.iter().map(|u| (u.provider.as_str(), bare(u))).collect();
        // A LUN may have the serial number instead of its unit.
        for lun in c.access.iter().flat_map(|a| a.luns.values()) {
            let Some(serial) = &lun.serial else { continue };
            let unit = all.entry(&lun.provider).or_insert_with(|| plain(&lun.provider));
            unit.serial.get_or_insert_with(|| serial.clone());
        }
        for (disk, ids) in ids_of_kept_disks(c, other) {
            let unit = all.entry(disk).or_insert_with(|| plain(disk));
            let own = [&mut unit.serial, &mut unit.naa, &mut unit.uuid, &mut unit.eui64];
            for (own, id) in own.into_iter().zip(ids).filter(|(own, _)| own.is_none()) {
                *own = id.map(str::to_owned);
            }
        }
        all
    };
    let (was, is) = (by_name(running, desired), by_name(desired, running));
    let of = |all: &HashMap<&str, UnitConfig>, p: &str| all.get(p).cloned().unwrap_or(plain(p));
    let differs = |p: &&str| {
        let (before, mut after) = (of(&was, p), of(&is, p));
        if before.serial.is_none() && after.serial.as_deref() == identities.current_serial(p) {
            after.serial = None;
        }
        before != after
    };
    was.keys().chain(is.keys()).copied().filter(differs).collect()
}

/// How two groups differ, in a few words.
fn group_changes(from: &AccessConfig, to: &AccessConfig) -> String {
    let mut words = Vec::new();
    let new = to.initiators.iter().filter(|p| !from.initiators.contains(p));
    words.extend(new.map(|p| format!("+{p}")));
    let old = from.initiators.iter().filter(|p| !to.initiators.contains(p));
    words.extend(old.map(|p| format!("-{p}")));
    if from.portals != to.portals {
        let show = |p: &[String]| if p.is_empty() { "any".to_owned() } else { p.join(" ") };
        words.push(format!("portals {} -> {}", show(&from.portals), show(&to.portals)));
    }
    if from.addressing != to.addressing {
        words.push("another way to write LUNs".to_owned());
    }
    if from.chap != to.chap || from.initiator_chap != to.initiator_chap {
        words.push("other CHAP accounts".to_owned());
    }
    for (key, was, is) in [
        ("read_only_reserves", from.read_only_reserves, to.read_only_reserves),
        ("cold_resets_target", from.cold_resets_target, to.cold_resets_target),
    ] {
        if was != is {
            words.push(format!("{key} {was} -> {is}"));
        }
    }
    for (lun, is) in &to.luns {
        match from.luns.get(lun) {
            None => words.push(format!("+LUN {lun} ({})", is.provider)),
            Some(was) if was != is => words.push(format!("LUN {lun}: {}", changes(was, is))),
            Some(_) => {}
        }
    }
    let lost = from.luns.iter().filter(|(lun, _)| !to.luns.contains_key(lun));
    words.extend(lost.map(|(lun, was)| format!("-LUN {lun} ({})", was.provider)));
    if words.is_empty() { "the order of its patterns changes".to_owned() } else { words.join(", ") }
}

/// How many units a reason names; the rest are counted.
const UNITS_SHOWN: usize = 3;

/// How the settings of units differ: `d0: protection default -> "type1"`.
fn unit_changes(from: &[UnitConfig], to: &[UnitConfig]) -> String {
    let by_name = |all: &[UnitConfig]| -> BTreeMap<String, UnitConfig> {
        all.iter().map(|unit| (unit.provider.clone(), unit.clone())).collect()
    };
    let (from, to) = (by_name(from), by_name(to));
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let plain = |p: &String| UnitConfig { provider: p.clone(), ..UnitConfig::default() };
    let change = |name: &String| {
        let [was, is] =
            [&from, &to].map(|all| all.get(name).cloned().unwrap_or_else(|| plain(name)));
        let text = changes(&was, &is);
        (!text.is_empty()).then(|| format!("{name}: {text}"))
    };
    let mut all: Vec<String> = names.into_iter().filter_map(change).collect();
    if all.len() > UNITS_SHOWN {
        let more = format!("{} more", all.len() - UNITS_SHOWN);
        all.truncate(UNITS_SHOWN);
        all.push(more);
    }
    if all.is_empty() { "the sections set nothing".to_owned() } else { all.join("; ") }
}

/// Longest value shown in a reason, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// How two values of one struct differ: `size_bytes 1 -> 2, path "a" -> "b"`. Secrets are not
/// shown.
pub(super) fn changes<T: Serialize>(from: &T, to: &T) -> String {
    let json = |v: &T| serde_json::to_value(v).unwrap_or(Value::Null);
    let (from, to) = (json(from), json(to));
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else {
        return "it changes".to_owned();
    };
    let show = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "default".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(SHOWN_CHARS_MAX) {
                Some((end, _)) => format!("{}...", text.get(..end).unwrap_or("")),
                None => text,
            }
        }
    };
    let mut words = Vec::new();
    let keys: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    for key in keys {
        let (was, is) = (from.get(key), to.get(key));
        if was == is {
            continue;
        }
        let has_secret = |value: &Value| value.to_string().contains("\"secret\":");
        let is_secret = key.contains("chap") || key.contains("secret");
        if is_secret || [was, is].into_iter().flatten().any(has_secret) {
            words.push(format!("{key} changes"));
        } else {
            words.push(format!("{key} {} -> {}", show(was), show(is)));
        }
    }
    words.join(", ")
}
