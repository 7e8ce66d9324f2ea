//! Scope of a role: the target and access group to which it is limited, and the part of a state,
//! configuration and journal that belongs to them.
//!
//! Invariants
//!  A10  A limited caller sees its target, or one group of it, with the sessions and LUNs, and the
//!       providers, geoms and disks on which these LUNs depend. Of a disk with several partitions,
//!       it sees those that its LUNs use.

use crate::api::{ConsumerState, Event, GeomState, GroupState, SystemState, TraceState};
use crate::config::{ApiConfig, Config};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Class of the geoms that are units of LUNs.
const UNIT_CLASS: &str = "lun";

/// The objects to which a role is limited; empty: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scope {
    /// The only target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The only access group of that target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, &self.group) {
            (Some(target), Some(group)) => write!(f, "{target}/{group}"),
            (Some(target), None) => f.write_str(target),
            _ => f.write_str("all"),
        }
    }
}

/// Providers of LUNs, and all providers below them.
fn used_providers(state: &SystemState) -> HashSet<String> {
    let mut owners: HashMap<&str, &GeomState> = HashMap::new();
    for geom in &state.geoms {
        owners.extend(geom.providers.iter().map(|provider| (provider.name.as_str(), geom)));
    }
    let mut open: Vec<&str> = Vec::new();
    for group in state.targets.iter().flat_map(|target| &target.groups) {
        open.extend(group.luns.iter().map(|lun| lun.provider.as_str()));
        open.extend(group.awaited.iter().map(|lun| lun.provider.as_str()));
    }
    let mut used = HashSet::new();
    while let Some(name) = open.pop() {
        if used.insert(name.to_owned())
            && let Some(geom) = owners.get(name)
        {
            open.extend(geom.consumers.iter().filter_map(|c| c.provider.as_deref()));
        }
    }
    used
}

impl Scope {
    /// Whether the role covers the whole daemon.
    pub fn is_whole(&self) -> bool {
        self.target.is_none() && self.group.is_none()
    }

    fn covers_target(&self, name: &str) -> bool {
        self.target.as_deref().is_none_or(|target| target == name)
    }

    fn covers_group(&self, name: Option<&str>) -> bool {
        self.group.is_none() || self.group.as_deref() == name
    }

    /// Whether the whole target of this name is covered.
    fn covers_all_of(&self, name: &str) -> bool {
        self.group.is_none() && self.covers_target(name)
    }

    /// Whether all LUNs on a provider are covered; `state` is the whole one.
    pub fn owns_unit(&self, state: &SystemState, provider: &str) -> bool {
        let groups = state.targets.iter().flat_map(|target| {
            target.groups.iter().map(move |group| (target.name.as_str(), group))
        });
        let mut users = groups.filter(|(_, group)| {
            let is_awaited = group.awaited.iter().any(|lun| lun.provider == provider);
            is_awaited || group.luns.iter().any(|lun| lun.provider == provider)
        });
        let covers = |(target, group): (&str, &GroupState)| {
            self.covers_target(target) && self.covers_group(Some(&group.name))
        };
        users.next().is_some_and(covers) && users.all(covers)
    }

    /// Whether all targets of a target port group are covered; `state` is the whole one.
    pub fn owns_port_group(&self, state: &SystemState, name: &str) -> bool {
        let group = state.port_groups.iter().find(|group| group.name == name);
        group.is_some_and(|group| {
            !group.targets.is_empty() && group.targets.iter().all(|t| self.covers_all_of(t))
        })
    }

    /// Leaves requests of other hosts, and of the daemon, out of a trace. `state` is the one that
    /// the scope has limited.
    pub fn limit_trace(&self, trace: &mut TraceState, state: &SystemState) {
        if self.is_whole() {
            return;
        }
        let groups = state.targets.iter().flat_map(|target| &target.groups);
        let units = groups.flat_map(|group| &group.luns);
        let units: HashSet<String> =
            units.map(|lun| format!("{UNIT_CLASS}:{}", lun.provider)).collect();
        let hosts: HashSet<&str> = state.sessions().map(|(_, s)| s.initiator.as_str()).collect();
        trace.requests.retain(|request| {
            units.contains(&request.user) && hosts.contains(request.initiator.as_str())
        });
    }

    /// Removes objects outside of the scope from a state.
    pub fn limit_state(&self, state: &mut SystemState) {
        if self.is_whole() {
            return;
        }
        self.limit_targets(state);
        let used = used_providers(state);
        let is_used = |name: &String| used.contains(name);
        let is_below_unit = |c: &ConsumerState| c.provider.as_ref().is_some_and(is_used);
        state.geoms.retain(|geom| match geom.class.as_str() {
            UNIT_CLASS => geom.consumers.iter().any(is_below_unit),
            _ => geom.providers.iter().any(|provider| is_used(&provider.name)),
        });
        for geom in state.geoms.iter_mut().filter(|geom| geom.class != UNIT_CLASS) {
            geom.providers.retain(|provider| is_used(&provider.name));
        }
        state.disks.retain(|disk| is_used(&disk.name));
        for bus in &mut state.buses {
            bus.devices.retain(|device| is_used(&device.name));
        }
        state.buses.retain(|bus| !bus.devices.is_empty());
        state.former_names.retain(|former| is_used(&former.provider));
        state.attached.retain(|lun| {
            self.covers_target(&lun.target) && (self.group.is_none() || is_used(&lun.unit))
        });
        state.connections.clear();
        state.listeners.clear();
        state.webhooks.clear();
        state.stopped.clear();
        state.daemon.metrics_listen = None;
        state.daemon.sandbox.clear();
        state.daemon.sandbox_problem = None;
        state.health = state.worst();
    }

    fn limit_targets(&self, state: &mut SystemState) {
        state.targets.retain(|target| self.covers_target(&target.name));
        for target in &mut state.targets {
            target.groups.retain(|group| self.covers_group(Some(&group.name)));
            target.sessions.retain(|session| self.covers_group(session.group.as_deref()));
        }
        // A refused login belongs to no group.
        state.denied.retain(|denied| self.covers_all_of(&denied.target));
        state.denied_total = state.denied.iter().map(|denied| denied.times).sum();
        state.rivals.retain(|rivals| self.covers_all_of(&rivals.target));
        let is_own =
            |at: &str| at.strip_prefix("target ").is_some_and(|target| self.covers_all_of(target));
        state.certificates.retain(|certificate| is_own(&certificate.at));
        state.changed_files.retain(|changed| is_own(&changed.at));
        for ports in &mut state.port_groups {
            ports.targets.retain(|target| self.covers_target(target));
        }
        state.port_groups.retain(|ports| !ports.targets.is_empty());
    }

    /// The events about objects of `state`, which the scope has limited. Events of a target concern
    /// all of its groups. A class names its geom as `mirror m0`, a change of a group as `TARGET/g`.
    pub fn limit_events(&self, events: &[Event], state: &SystemState) -> Vec<Event> {
        let of_geoms = state.geoms.iter().flat_map(|geom| {
            let providers = geom.providers.iter().map(|provider| provider.name.clone());
            providers.chain([geom.name.clone(), format!("{} {}", geom.class, geom.name)])
        });
        let of_targets = state.targets.iter().flat_map(|target| {
            let whole = self.group.is_none().then(|| target.name.clone());
            let of_group = move |group: &GroupState| format!("{}/{}", target.name, group.name);
            whole.into_iter().chain(target.groups.iter().map(of_group))
        });
        let of_disks = state.disks.iter().map(|disk| disk.name.clone());
        let names: HashSet<String> = of_geoms.chain(of_targets).chain(of_disks).collect();
        events.iter().filter(|event| names.contains(&event.about)).cloned().collect()
    }

    /// Removes sections outside of the scope from a configuration, by the state that it has
    /// limited.
    pub fn limit_config(&self, config: &mut Config, state: &SystemState) {
        let is_geom = |name: &str| state.geoms.iter().any(|geom| geom.name == name);
        config.target.retain(|target| self.covers_target(&target.name));
        config.access.retain(|access| {
            self.covers_target(&access.target) && self.covers_group(Some(&access.group))
        });
        config.disk.retain(|disk| state.disks.iter().any(|shown| shown.name == disk.name));
        config.geom.retain(|geom| is_geom(&geom.name));
        config.unit.retain(|unit| state.provider(&unit.provider).is_some());
        config.bus.retain(|bus| state.buses.iter().any(|shown| shown.name == bus.name));
        config.api = ApiConfig::default();
        config.api_client.clear();
        config.webhook.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        AttachedState, Denied, DiskState, LunState, PortGroupState, SessionState, SlowRequest,
        TargetState,
    };
    use crate::config::read;
    use crate::fake::{catalog, geom_state};

    fn scope(target: &str, group: Option<&str>) -> Scope {
        Scope { target: Some(target.to_owned()), group: group.map(str::to_owned) }
    }

    fn group(name: &str, provider: &str) -> GroupState {
        let lun = LunState { provider: provider.to_owned(), ..LunState::default() };
        GroupState { name: name.to_owned(), luns: vec![lun], ..GroupState::default() }
    }

    fn session(group: &str) -> SessionState {
        let (initiator, group) = (format!("host-{group}"), Some(group.to_owned()));
        SessionState { initiator, group, ..SessionState::default() }
    }

    /// `d0` has two partitions, of which groups `g` and `h` of target `t` have one each; `d1` is of
    /// another target.
    fn state() -> SystemState {
        let mut part = geom_state("part", "d0", 2, &["d0"], "d0p1");
        part.providers.extend(geom_state("part", "d0", 2, &["d0"], "d0p2").providers);
        let target = |name: &str, groups: Vec<GroupState>| TargetState {
            name: name.to_owned(),
            sessions: groups.iter().map(|g| session(&g.name)).collect(),
            groups,
            ..TargetState::default()
        };
        let disk = |name: &str| DiskState { name: name.to_owned(), ..DiskState::default() };
        let denied = |target: &str| Denied { target: target.to_owned(), ..Denied::default() };
        let attached = |target: &str, unit: &str| AttachedState {
            target: target.to_owned(),
            unit: unit.to_owned(),
            ..AttachedState::default()
        };
        SystemState {
            disks: vec![disk("d0"), disk("d1")],
            geoms: vec![
                geom_state("disk", "d0", 1, &[], "d0"),
                geom_state("disk", "d1", 1, &[], "d1"),
                part,
                geom_state("lun", "d0p1", 3, &["d0p1"], "d0p1.lun"),
                geom_state("lun", "d1", 3, &["d1"], "d1.lun"),
            ],
            targets: vec![
                target("t", vec![group("g", "d0p1"), group("h", "d0p2")]),
                target("u", vec![group("g", "d1")]),
            ],
            denied: vec![denied("t"), denied("u")],
            attached: vec![attached("t", "d0p1"), attached("t", "d0p2"), attached("u", "d1")],
            ..SystemState::default()
        }
    }

    fn limited(scope: &Scope) -> SystemState {
        let mut state = state();
        scope.limit_state(&mut state);
        state
    }

    fn providers(state: &SystemState) -> Vec<&str> {
        let all = state.geoms.iter().flat_map(|geom| &geom.providers);
        all.map(|provider| provider.name.as_str()).collect()
    }

    #[test]
    fn a10_state_of_a_target_has_its_groups_and_the_disks_below_them() {
        let (whole, state) = (state(), limited(&scope("t", None)));
        assert_eq!(providers(&state), ["d0", "d0p1", "d0p2", "d0p1.lun"]);
        assert_eq!(state.disks.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["d0"]);
        assert_eq!((state.targets.len(), state.sessions().count()), (1, 2));
        assert_eq!((state.denied.len(), state.attached.len()), (1, 2));
        assert!(limited(&scope("v", None)).geoms.is_empty(), "a target that does not exist");
        assert_eq!(limited(&Scope::default()), whole);
    }

    #[test]
    fn a10_state_of_a_group_has_no_partition_or_session_of_another_group() {
        let state = limited(&scope("t", Some("g")));
        assert_eq!(providers(&state), ["d0", "d0p1", "d0p1.lun"]);
        let hosts: Vec<&str> = state.sessions().map(|(_, s)| s.initiator.as_str()).collect();
        assert_eq!(hosts, ["host-g"]);
        assert!(state.denied.is_empty(), "a refused login belongs to no group");
        assert_eq!(state.attached.len(), 1);
    }

    #[test]
    fn a10_events_are_those_about_objects_that_the_caller_sees() {
        let event = |about: &str| Event { about: about.to_owned(), ..Event::default() };
        let events = ["", "t", "u", "d0", "d0p2", "d1"].map(event);
        let of_parts = ["part d0", "disk d1", "t/g", "t/h", "u/g", "t/d0"].map(event);
        let about = |of: &Scope, events: &[Event]| -> Vec<String> {
            let seen = of.limit_events(events, &limited(of));
            seen.into_iter().map(|event| event.about).collect()
        };
        let (target, group) = (scope("t", None), scope("t", Some("g")));
        assert_eq!(about(&target, &events), ["t", "d0", "d0p2"]);
        assert_eq!(about(&group, &events), ["d0"]);
        assert_eq!(about(&target, &of_parts), ["part d0", "t/g", "t/h"]);
        assert_eq!(about(&group, &of_parts), ["part d0", "t/g"]);
    }

    #[test]
    fn a2_object_that_another_target_or_group_uses_is_not_owned() {
        let mut state = state();
        let (target, group) = (scope("t", None), scope("t", Some("g")));
        assert!(target.owns_unit(&state, "d0p2") && !target.owns_unit(&state, "d1"));
        assert!(group.owns_unit(&state, "d0p1") && !group.owns_unit(&state, "d0p2"));
        assert!(!target.owns_unit(&state, "d9"), "there is none");
        state.targets[1].groups.push(self::group("shared", "d0p1"));
        assert!(!target.owns_unit(&state, "d0p1"), "it is a LUN of target u, too");
        let ports = |name: &str, targets: &[&str]| PortGroupState {
            name: name.to_owned(),
            targets: targets.iter().map(|t| (*t).to_owned()).collect(),
            ..PortGroupState::default()
        };
        state.port_groups =
            vec![ports("own", &["t"]), ports("all", &["t", "u"]), ports("none", &[])];
        let owned = |of: &Scope| {
            let names = ["own", "all", "none", "absent"];
            names.into_iter().filter(|name| of.owns_port_group(&state, name)).collect::<Vec<_>>()
        };
        assert_eq!(owned(&target), ["own"]);
        assert!(owned(&group).is_empty(), "it concerns all groups of the target");
    }

    #[test]
    fn a10_trace_has_requests_of_hosts_that_the_caller_sees() {
        let request = |user: &str, initiator: &str| SlowRequest {
            user: user.to_owned(),
            initiator: initiator.to_owned(),
            ..SlowRequest::default()
        };
        let own = ("lun:d0p1", "host-g");
        let all = [own, ("lun:d0p1", "host-u"), ("lun:d1", "host-g"), ("fs:a", "")];
        let of = scope("t", Some("g"));
        let requests = all.map(|(user, initiator)| request(user, initiator)).to_vec();
        let mut trace = TraceState { requests, ..TraceState::default() };
        of.limit_trace(&mut trace, &limited(&of));
        assert_eq!(trace.requests, [request("lun:d0p1", "host-g")]);
    }

    #[test]
    fn a10_configuration_of_a_target_has_no_webhooks() {
        let text = "[[webhook]]\nname = 'a'\nurl = 'https://alerts.example/secret'\n";
        let mut config = read(text, "/a.toml", &catalog()).expect("well-formed");
        let of = scope("t", None);
        of.limit_config(&mut config, &limited(&of));
        assert!(config.webhook.is_empty(), "a URL may have a secret");
    }
}
