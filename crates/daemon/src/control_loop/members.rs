//! Check of the members of a geom that a plan makes: what the geom's class would refuse.

use std::collections::BTreeSet;

use engine::lun;
use geom::{Class, Holder, ProviderId};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{AccessConfig, Config, GeomConfig};
use mgmt::plan::name_depends_on;

use super::ControlLoop;
use crate::errors::from_geom;
use crate::mailbox::PriorSteps;

/// The operation, for errors.
const OP: &str = "create geom";

/// Whether a name of a list is that of the provider, or of something below it.
fn is_on_any(disks: &[String], provider: &str) -> bool {
    disks.iter().any(|disk| name_depends_on(provider, disk))
}

/// The groups of access as earlier steps leave them.
fn groups_after(access: Vec<AccessConfig>, prior: &PriorSteps) -> Vec<AccessConfig> {
    let mut config = Config { access, ..Config::default() };
    prior.groups.iter().for_each(|action| action.apply_to(&mut config));
    config.access
}

impl ControlLoop {
    /// Why the class would refuse the members. `prior`: what earlier steps of the plan do.
    pub(super) fn check_members(&mut self, geom: &GeomConfig, prior: &PriorSteps) -> Result<()> {
        let class = self.class(&geom.class, OP)?;
        self.check_stopped_name(class.as_ref(), geom, prior)?;
        let mut here = Vec::new();
        for name in geom.provider_names() {
            self.check_member(geom, name, prior)?;
            if self.control.topology.find(name).is_some() && !prior.replaces(name) {
                here.push(name.to_owned());
            }
        }
        let checked = class.check_declare(&mut self.control, &here);
        checked.map_err(|e| from_geom(OP, &geom.name, e))
    }

    /// Refuses a member that the geom could not open, if its class opens members by itself.
    pub(super) fn check_member(
        &self,
        geom: &GeomConfig,
        name: &str,
        prior: &PriorSteps,
    ) -> Result<()> {
        if !self.class(&geom.class, OP)?.opens_members() {
            return Ok(());
        }
        let topology = &self.control.topology;
        let found = topology.find(name).filter(|_| !prior.replaces(name));
        let is_read_only = found.is_some_and(|on| topology.is_read_only(on));
        if is_read_only || is_on_any(&prior.read_only, name) {
            let why = format!("{name} is read-only, and a {} writes to it", geom.class);
            let next = format!(
                "Make {name} writable (`read_only` in its section), or name another member."
            );
            return Err(Error::new(Kind::Unsupported, OP, why).at(&geom.name).next(next));
        }
        match found {
            Some(on) => self.check_unused(geom, (name, on), prior),
            None => Ok(()),
        }
    }

    /// Refuses a member that another user keeps, which no earlier step of the plan removes.
    fn check_unused(
        &self,
        geom: &GeomConfig,
        (name, on): (&str, ProviderId),
        prior: &PriorSteps,
    ) -> Result<()> {
        let topology = &self.control.topology;
        if topology.holder_of(on, &|_| false).is_none() {
            return Ok(());
        }
        let access = groups_after(self.published.lock().config.access.clone(), prior);
        let luns = access.iter().flat_map(|group| group.luns.values());
        let exported: BTreeSet<&str> = luns.map(|lun| lun.provider.as_str()).collect();
        let is_leaving = |holder: &Holder| {
            let Holder { class, geom, provider, .. } = holder;
            let is_removed = |(c, g): &(String, String)| c == class && g == geom;
            let lets_go = |(c, g, member): &(String, String, String)| {
                c == class && g == geom && member == provider
            };
            let names = [geom.as_str(), provider.as_str()];
            let is_exported = names.iter().any(|name| exported.contains(name));
            prior.removed_geoms.iter().any(is_removed)
                || prior.released.iter().any(lets_go)
                || *class == lun::CLASS && !is_exported
        };
        let Some(holder) = topology.holder_of(on, &is_leaving) else { return Ok(()) };
        let (why, next) = describe(name, &holder, &access);
        Err(Error::new(Kind::Busy, OP, why).at(&geom.name).next(next))
    }

    /// Refuses a geom with the name of a stopped one that would be found by its records, on other
    /// members than those that are named. One that an earlier step removes is stopped then.
    fn check_stopped_name(
        &self,
        class: &dyn Class,
        geom: &GeomConfig,
        prior: &PriorSteps,
    ) -> Result<()> {
        if !class.keeps_records() {
            return Ok(());
        }
        let kind = &geom.class;
        let clear = format!("run `ashlar {kind} clear");
        let (mut members, state, first) = match prior.removes_geom(geom) {
            true => {
                let first = format!("apply its removal alone, then {clear}");
                (self.providers_of(kind, &geom.name), "removed", first)
            }
            false => (self.stopped_members(class, &geom.name), "stopped", clear),
        };
        members.retain(|name| !is_on_any(&prior.removed_disks, name));
        let is_member = |name: &str| members.iter().any(|member| member == name);
        if members.is_empty() || geom.provider_names().any(is_member) {
            return Ok(());
        }
        let why = format!(
            "a {state} {kind} of that name has records on {}, and `members` names none of them",
            members.join(", ")
        );
        let next = format!(
            "Name one of them, choose another name, or {first} {}` if the data of the {state} \
             {kind} may be lost.",
            members.join(" ")
        );
        Err(Error::new(Kind::Exists, OP, why).at(&geom.name).next(next))
    }

    /// Providers with records of a stopped geom.
    fn stopped_members(&self, class: &dyn Class, name: &str) -> Vec<String> {
        let mut stopped = class.stopped_geoms().into_iter();
        let Some((_, verdict)) = stopped.find(|(stopped, _)| stopped == name) else {
            return Vec::new();
        };
        let view = self.control.topology.view(self.control.now_ns());
        let is_member = |outcomes: &[(&'static str, String)]| {
            outcomes.iter().any(|(by, outcome)| *by == class.name() && outcome.contains(&verdict))
        };
        let providers = view.iter().flat_map(|geom| &geom.providers);
        let members = providers.filter(|provider| is_member(&provider.taste_outcomes));
        members.map(|provider| provider.name.clone()).collect()
    }
}

/// Who uses a member, and what to do about it.
fn describe(name: &str, holder: &Holder, access: &[AccessConfig]) -> (String, String) {
    let Holder { class, geom, command, .. } = holder;
    let of = |group: &AccessConfig| {
        let lun = group.luns.iter().find(|(_, lun)| lun.provider == *geom)?;
        Some((*lun.0, group.target.clone(), group.group.clone()))
    };
    if *class == lun::CLASS
        && let Some((lun, target, group)) = access.iter().find_map(of)
    {
        return (
            format!("{name} is in use: group {group} of {target} exports {geom} as LUN {lun}"),
            format!("Remove LUN {lun} from group {group} of {target}, or name another member."),
        );
    }
    let next = match command {
        Some(command) if command.starts_with("ashlar ") => {
            format!("Run `{command}` first, or name another member.")
        }
        Some(advice) => format!("First {advice}; or name another member."),
        None => format!("Close {class} {geom} first (`ashlar list` shows it)."),
    };
    (format!("{name} is in use by {class} {geom}"), next)
}
