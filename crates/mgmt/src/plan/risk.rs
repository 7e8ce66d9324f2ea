//! Risk of a change for the connected hosts, and the list of those hosts.

use super::action::{Action, Risk, newly_protected};
use super::depend::name_depends_on;
use super::file_server::{cut_clients, geom_clients};
use super::identity::Identities;
use super::logins::is_locked_out;
use super::memory_disks::lost_contents;
use super::mirror_edits::leaves_one_copy;
use super::renew::FileSection;
use crate::api::{DeviceState, ProviderState, SessionState, SystemState, TargetState};
use crate::config::{
    AccessConfig, AluaConfig, AluaState, BusConfig, Catalog, Config, LunConfig, TargetConfig,
};
use crate::plant::StaleFiles;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::str::FromStr;
use wire::aoe::Address;
use wire::portal::{LocalAddress, PortalRule, any_matches};

/// The data by which the risk of a change is judged.
pub struct RiskContext<'a> {
    /// The running state, with the connected sessions.
    pub state: &'a SystemState,
    /// Which disks forget.
    pub catalog: &'a Catalog,
    /// The configuration before the whole plan, as hosts see it now.
    pub running: &'a Config,
    /// The configuration after it.
    pub desired: &'a Config,
    /// The identities by which hosts know disks.
    pub identities: Identities<'a>,
}

/// The risk of one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRisk {
    /// How dangerous it is.
    pub risk: Risk,
    /// Initiators that it concerns, by name, each once; empty when no initiator notices it.
    pub hosts: Vec<String>,
}

impl HostRisk {
    fn of(risk: Risk) -> HostRisk {
        HostRisk { risk, hosts: Vec::new() }
    }

    /// Disruptive for these; safe when there are none.
    fn for_sessions<'s>(hosts: impl Iterator<Item = &'s SessionState>) -> HostRisk {
        HostRisk::default().or_for(hosts.map(|s| s.initiator.clone()).collect())
    }

    /// The same, and disruptive if there are such hosts.
    fn or_for(self, mut hosts: Vec<String>) -> HostRisk {
        hosts.sort();
        hosts.dedup();
        let risk = if hosts.is_empty() { Risk::Safe } else { Risk::Disruptive };
        HostRisk { risk: self.risk.max(risk), hosts }
    }
}

/// The risk of one change, given what runs.
pub fn risk(action: &Action, scene: &RiskContext<'_>) -> HostRisk {
    let (state, catalog) = (scene.state, scene.catalog);
    let disruptive = |yes: bool| HostRisk::of(if yes { Risk::Disruptive } else { Risk::Safe });
    match action {
        Action::Daemon { .. }
        | Action::Api { .. }
        | Action::Webhooks { .. }
        | Action::CreateBus { .. }
        | Action::CreateDisk { .. }
        | Action::GrowDisk { .. }
        | Action::ModifyDisk { .. }
        // An NBD client that comes again gets it by the name that it knows.
        | Action::RenameDisk { .. }
        | Action::CreateGeom { .. }
        | Action::CreateTarget { .. }
        | Action::Renew { .. } => HostRisk::default(),
        Action::IdentifyDisk { from, .. } => {
            HostRisk::for_sessions(users_of_luns(scene, |lun| {
                name_depends_on(&lun.provider, &from.name)
                    && scene.identities.serial_conflict(lun, lun).is_some()
            }))
        }
        Action::ModifyBus { from, to } => bus_edit_risk(scene, from, to),
        Action::ModifyGeom { from, to } => {
            let dropped: Vec<&str> =
                from.dropped_disks(to).filter(|disk| provider_is_open(state, disk)).collect();
            if dropped.iter().any(|name| to.disks().any(|(disk, _)| disk == *name)) {
                // Its users would continue with another file.
                return HostRisk::of(Risk::Destroys);
            }
            let risk = disruptive(!dropped.is_empty() || leaves_one_copy(from, to, state, catalog));
            risk.or_for(cut_clients(from, to, state))
        }
        Action::Units { from, to } => match newly_protected(from, to).next() {
            Some(_) => HostRisk::of(Risk::Destroys),
            None => HostRisk::default(),
        },
        Action::PortGroups { from, to } => {
            let loses = |g: &AluaConfig| {
                let was = from.iter().find(|f| f.name == g.name).map(|f| f.state);
                was != Some(g.state) && !is_active(g.state)
            };
            let is_in = |(target, _): &(&TargetState, &SessionState)| {
                let name = scene.running.target(&target.name).map_or(DEFAULT_PORTS, port_group);
                to.iter().any(|g| g.name == name && loses(g))
            };
            let hosts = state.sessions().filter(is_in);
            HostRisk::for_sessions(hosts.map(|(_, session)| session))
        }
        Action::RemoveBus { .. } | Action::RemoveDisk { .. }
            if lost_contents(action, state, catalog).is_some() =>
        {
            HostRisk::of(Risk::Destroys)
        }
        Action::RemoveBus { bus } => {
            let buses = state.buses.iter().filter(|b| b.name == bus.name);
            let mut devices = buses.flat_map(|b| &b.devices);
            disruptive(devices.any(|device| geom_is_open(state, &device.name)))
        }
        Action::RemoveDisk { disk } => disruptive(geom_is_open(state, &disk.name)),
        Action::RemoveGeom { geom } => {
            let clients = geom_clients(state, &geom.name).map(|client| client.name.clone());
            disruptive(geom_is_open(state, &geom.name)).or_for(clients.collect())
        }
        Action::RemoveTarget { target } => HostRisk::for_sessions(sessions(state, &target.name)),
        Action::ModifyTarget { from, to } => {
            let lost = |s: &&SessionState| {
                is_listening(&s.portal, &from.listen) && !is_listening(&s.portal, &to.listen)
            };
            let fails = |s: &&SessionState| {
                let group = s.group.as_deref().and_then(|g| scene.running.access(&to.name, g));
                group.is_some_and(|group| is_locked_out(s, [(from, group), (to, group)]))
            };
            let is_parked = |g: &AluaConfig| g.name == port_group(to) && !is_active(g.state);
            let loses_access =
                port_group(from) != port_group(to) && scene.desired.alua.iter().any(is_parked);
            let hosts = sessions(state, &to.name);
            HostRisk::for_sessions(hosts.filter(|s| loses_access || lost(s) || fails(s)))
        }
        Action::CreateAccess { access } => regroup_risk(scene, &[], std::slice::from_ref(access)),
        Action::RemoveAccess { access } => regroup_risk(scene, std::slice::from_ref(access), &[]),
        Action::ModifyAccess { from, to } => {
            regroup_risk(scene, std::slice::from_ref(from), std::slice::from_ref(to))
        }
        Action::Regroup { from, to, .. } => regroup_risk(scene, from, to),
    }
}

/// Sessions that are shown LUNs of a kind.
fn users_of_luns<'s>(
    scene: &'s RiskContext<'_>,
    is_concerned: impl Fn(&LunConfig) -> bool,
) -> impl Iterator<Item = &'s SessionState> {
    let uses = move |(target, session): &(&TargetState, &SessionState)| {
        let group = session.group.as_deref();
        let group = group.and_then(|g| scene.running.access(&target.name, g));
        group.is_some_and(|group| group.luns.values().any(&is_concerned))
    };
    scene.state.sessions().filter(uses).map(|(_, session)| session)
}

/// The entries of a list that a bus has as a parameter.
fn listed<T: Ord + FromStr>(bus: &BusConfig, key: &str) -> BTreeSet<T> {
    let all = bus.params.get(key).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|entry| entry.as_str()?.parse().ok()).collect()
}

/// Entries of a list that an edit of a bus removes.
fn unlisted<T: Ord + FromStr>(from: &BusConfig, to: &BusConfig, key: &str) -> Vec<T> {
    let kept: BTreeSet<T> = listed(to, key);
    listed::<T>(from, key).into_iter().filter(|entry| !kept.contains(entry)).collect()
}

/// Whether an edit of a bus that keeps running takes a device away: it is behind a removed portal,
/// or is no listed target. A removed interface may be the only one that leads to it, and the state
/// does not name the node of a device.
fn loses(from: &BusConfig, to: &BusConfig) -> impl Fn(&DeviceState) -> bool {
    let removed = unlisted::<SocketAddr>(from, to, "portals").into_iter();
    let portals: Vec<String> = removed.map(|portal| format!(",{portal},")).collect();
    let targets = listed::<Address>(to, "targets");
    let is_any = ["interfaces", "devices"]
        .into_iter()
        .any(|key| !unlisted::<String>(from, to, key).is_empty());
    let renamed = renames(from, to);
    move |device| {
        let is_listed = |at: Address| targets.is_empty() || targets.contains(&at);
        is_any
            || renamed(device)
            || portals.iter().any(|at| device.location.contains(at.as_str()))
            || device.location.parse::<Address>().is_ok_and(|at| !is_listed(at))
    }
}

/// Whether an edit of a bus gives a device another name. The state has no serial numbers: a new
/// name for one may be that of any device that had no name in the configuration.
fn renames(from: &BusConfig, to: &BusConfig) -> impl Fn(&DeviceState) -> bool {
    let is_number = |word: &str| word.parse::<u64>().is_ok();
    let is_place = move |value: &str| {
        value.split_once(':').is_some_and(|(target, lun)| is_number(target) && is_number(lun))
    };
    let is_new = |(name, value): &(&String, &String)| from.names.get(*name) != Some(*value);
    let new: Vec<(&String, &String)> = to.names.iter().filter(is_new).collect();
    move |device| {
        let place = format!("{}:{}", device.target, device.lun);
        let had = from.names.get(&device.name);
        let is_of = |value: &String| match had {
            Some(had) => value == had,
            None => !is_place(value),
        };
        let is_given = |value: &String| *value == place || is_of(value);
        !device.name.is_empty()
            && new.iter().any(|(name, value)| **name != device.name && is_given(value))
    }
}

/// The risk of an edit of a bus that keeps running for the users of its disks.
fn bus_edit_risk(scene: &RiskContext<'_>, from: &BusConfig, to: &BusConfig) -> HostRisk {
    let loses = loses(from, to);
    let is_lost = |device: &&DeviceState| loses(device);
    let buses = scene.state.buses.iter().filter(|bus| bus.name == from.name);
    let lost: Vec<&str> =
        buses.flat_map(|bus| &bus.devices).filter(is_lost).map(|d| d.name.as_str()).collect();
    let is_used = lost.iter().any(|disk| geom_is_open(scene.state, disk));
    let is_on_lost = |lun: &LunConfig| lost.iter().any(|disk| name_depends_on(&lun.provider, disk));
    let hosts = users_of_luns(scene, is_on_lost).map(|session| session.initiator.clone());
    let risk = if is_used { Risk::Disruptive } else { Risk::Safe };
    HostRisk::of(risk).or_for(hosts.collect())
}

/// The risk of reading files again: clients with TLS whose CA is dropped fail at their next login.
/// Which CA signed the certificate of a session is not known: it counts as the dropped one.
pub(super) fn renewal_risk(stale: &StaleFiles, state: &SystemState) -> HostRisk {
    match &stale.of {
        _ if !stale.drops_client_ca => HostRisk::default(),
        FileSection::Target(name) => {
            HostRisk::for_sessions(sessions(state, name).filter(|s| s.tls.is_some()))
        }
        FileSection::Fs(name) => {
            let clients = geom_clients(state, name).filter(|client| client.key.ends_with("_tls"));
            HostRisk::default().or_for(clients.map(|client| client.name.clone()).collect())
        }
        FileSection::Api | FileSection::Bus(_) | FileSection::Disk(_) | FileSection::Webhook(_) => {
            HostRisk::default()
        }
    }
}

/// The port group of targets without a configured one.
const DEFAULT_PORTS: &str = "default";

fn port_group(target: &TargetConfig) -> &str {
    target.port_group.as_deref().unwrap_or(DEFAULT_PORTS)
}

fn is_active(state: AluaState) -> bool {
    matches!(state, AluaState::Optimized | AluaState::NonOptimized)
}

/// Whether anything that the geom offers is open.
pub(super) fn geom_is_open(state: &SystemState, geom: &str) -> bool {
    let mut providers = state.geoms.iter().filter(|g| g.name == geom).flat_map(|g| &g.providers);
    providers.any(is_open)
}

fn provider_is_open(state: &SystemState, name: &str) -> bool {
    state.provider(name).is_some_and(|(_, provider)| is_open(provider))
}

fn is_open(provider: &ProviderState) -> bool {
    provider.r > 0 || provider.w > 0 || provider.e > 0
}

fn sessions<'s>(state: &'s SystemState, target: &str) -> impl Iterator<Item = &'s SessionState> {
    state.targets.iter().filter(move |t| t.name == target).flat_map(|t| &t.sessions)
}

/// Whether an address of ours, which a session uses, is one of those that are listened at.
pub(super) fn is_listening(portal: &str, listen: &[String]) -> bool {
    let same = |at: &String| {
        let (Ok(at), Ok(portal)) = (at.parse::<SocketAddr>(), portal.parse::<SocketAddr>()) else {
            return at == portal;
        };
        let ip = portal.ip().to_canonical();
        // `[::]` receives IPv4, too.
        let any = at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4());
        at.port() == portal.port() && (at.ip() == ip || any)
    };
    listen.iter().any(same)
}

/// Whether a group admits a session that is there.
fn admits(access: &AccessConfig, session: &SessionState) -> bool {
    let rules: Vec<PortalRule> = access.portals.iter().filter_map(|r| PortalRule::new(r)).collect();
    let named = access.initiators.iter().any(|p| wire::pattern::matches(p, &session.initiator));
    // Its portal is not known of every session: only its name counts then.
    named && LocalAddress::parse(&session.portal).is_none_or(|at| any_matches(&rules, at))
}

/// What hosts meet whose LUNs become those of a group.
enum LunChange {
    /// Another disk is behind a number.
    OtherDisk,
    /// A LUN is removed, or is shown in another way.
    Lost,
    None,
}

impl LunChange {
    /// Of the sessions in the group that `was`, which has that target and name, when they are under
    /// `after`.
    fn between(
        scene: &RiskContext<'_>,
        (target, group): (&str, &str),
        was: Option<&AccessConfig>,
        after: &AccessConfig,
    ) -> LunChange {
        // A LUN may have been withdrawn by a step before this one: hosts have not seen that yet.
        let now = scene.running.access(target, group);
        let is_another = |(lun, was): (&u64, &LunConfig)| {
            let is = after.luns.get(lun);
            is.is_some_and(|is| scene.identities.serial_conflict(was, is).is_some())
        };
        if now.is_some_and(|now| now.luns.iter().any(is_another)) {
            return LunChange::OtherDisk;
        }
        let goes = |(lun, is): (&u64, &LunConfig)| after.luns.get(lun) != Some(is);
        if was.is_some_and(|was| was.luns.iter().any(goes)) {
            return LunChange::Lost;
        }
        LunChange::None
    }
}

/// The groups `from` of a target become `to`: who loses a LUN, or finds another disk behind one.
fn regroup_risk(scene: &RiskContext<'_>, from: &[AccessConfig], to: &[AccessConfig]) -> HostRisk {
    let Some(target) = from.iter().chain(to).map(|a| a.target.as_str()).next() else {
        return HostRisk::default();
    };
    let locks_out = |session: &SessionState, after: &AccessConfig| {
        let before = session.group.as_deref().and_then(|g| scene.running.access(target, g));
        let at = scene.running.target(target);
        at.zip(before)
            .is_some_and(|(at, before)| is_locked_out(session, [(at, before), (at, after)]))
    };
    // How the LUNs of one group become those of another: many sessions are in one group.
    let mut changes: HashMap<(&str, usize), LunChange> = HashMap::new();
    let (mut lose, mut swapped) = (Vec::new(), Vec::new());
    for session in sessions(scene.state, target) {
        let group = session.group.as_deref().unwrap_or_default();
        let was = from.iter().find(|a| a.group == group);
        let Some((at, after)) = to.iter().enumerate().find(|(_, a)| admits(a, session)) else {
            lose.extend(was.map(|_| session));
            continue;
        };
        let change = || LunChange::between(scene, (target, group), was, after);
        match changes.entry((group, at)).or_insert_with(change) {
            LunChange::OtherDisk => swapped.push(session),
            LunChange::Lost => lose.push(session),
            LunChange::None if locks_out(session, after) => lose.push(session),
            LunChange::None => {}
        }
    }
    let risk = if swapped.is_empty() { None } else { Some(Risk::Destroys) };
    let judged = HostRisk::for_sessions(if risk.is_some() { swapped } else { lose }.into_iter());
    HostRisk { risk: risk.unwrap_or(judged.risk), ..judged }
}
