//! Details of objects that are no nodes of the graph: targets, access groups, initiators, cores,
//! buses, listeners and webhooks.
//!
//! The graph beside such a detail has the nodes that belong to the object.

use super::detail::{Detail, own_events, properties};
use super::export_actions;
use super::tables::{Cell, Table};
use crate::api::{
    BusState, CoreState, Denied, Event, GroupState, Health, ListenerState, LunState, SessionState,
    SystemState, TargetState, WebhookState,
};
use crate::config::units::short_ns;
use crate::object_id::{
    bus_id, core_id, group_id, initiator_id, listener_id, lun_id, session_id, target_id, webhook_id,
};
use crate::text::{or_dash, shell_word, utc};
use crate::verbs::access::{self, AccessCheckParams};
use std::collections::HashSet;

/// A detail, and the identifiers of the nodes that belong to its object.
type Found = (Detail, HashSet<String>);

/// A detail of an object that is well.
fn detail(id: String, title: String, tables: Vec<Table>, commands: Vec<String>) -> Detail {
    Detail { id, title, tables, commands, ..Detail::default() }
}

/// Sessions as links, each with its addresses.
fn sessions<'s>(all: impl Iterator<Item = (&'s TargetState, &'s SessionState)>) -> Table {
    let rows = all.map(|(target, session)| {
        vec![
            Cell::link(&session.initiator, session_id(target, session)),
            Cell::text(&session.address),
            Cell::text(or_dash(&session.portal)),
            Cell::link(&target.name, target_id(&target.name)),
            Cell::text(or_dash(session.group.as_deref().unwrap_or(""))),
            Cell::text(session.luns_total.to_string()),
            Cell::text(session.commands_outstanding.to_string()),
        ]
    });
    let columns = ["initiator", "address", "portal", "target", "group", ">LUNs", ">outstanding"];
    Table::new(("own-sessions", "Sessions of the object", "No session."), &columns, rows)
}

fn lun_nodes(target: &TargetState, group: &GroupState) -> Vec<String> {
    let present = group.luns.iter().map(|lun| lun.lun);
    let numbers = present.chain(group.awaited.iter().map(|lun| lun.lun));
    numbers.map(|number| lun_id(&target.name, &group.name, number)).collect()
}

fn target(target: &TargetState) -> Found {
    let own = properties([
        ("driver", target.driver.clone()),
        ("portals", target.portals.join(", ")),
        ("port group", target.port_group.clone()),
        ("relative port", target.relative_port.to_string()),
    ]);
    let groups = target.groups.iter().map(|group| {
        vec![
            Cell::link(&group.name, group_id(&target.name, &group.name)),
            Cell::text(or_dash(&group.initiators.join(", "))),
            Cell::text((group.luns.len() + group.awaited.len()).to_string()),
        ]
    });
    let heading = ("own-groups", "Access groups", "No access group.");
    let groups = Table::new(heading, &["group", "initiators", ">LUNs"], groups);
    let tables = vec![own, groups, sessions(target.sessions.iter().map(|s| (target, s)))];
    let word = shell_word(&target.name);
    let commands = vec![
        "ashlar list targets".to_owned(),
        format!("ashlar sessions --target {word}"),
        format!("ashlar graph --down {word}"),
    ];
    let luns = target.groups.iter().flat_map(|group| lun_nodes(target, group));
    let nodes = luns.chain(target.sessions.iter().map(|s| session_id(target, s))).collect();
    let (id, title) = (target_id(&target.name), format!("target {}", target.name));
    let why = target.health_why.clone();
    (Detail { health: target.health, why, ..detail(id, title, tables, commands) }, nodes)
}

fn group(target: &TargetState, group: &GroupState) -> Found {
    let own = properties([
        ("target", target.name.clone()),
        ("initiators", group.initiators.join(", ")),
        ("portals", group.portals.join(", ")),
        ("addressing", group.addressing.clone()),
    ]);
    let own = own.linked(&[("target", target_id(&target.name))]);
    let link = |number: u64, provider: &str, mode: &str| {
        let id = lun_id(&target.name, &group.name, number);
        vec![Cell::link(provider, id), Cell::text(number.to_string()), Cell::text(mode)]
    };
    let mode = |lun: &LunState| if lun.read_only { "ro" } else { "rw" };
    let present = group.luns.iter().map(|lun| link(lun.lun, &lun.provider, mode(lun)));
    let missing = group.awaited.iter().map(|lun| link(lun.lun, &lun.provider, "missing"));
    let heading = ("own-luns", "LUNs of the group", "No LUN.");
    let luns = Table::new(heading, &["provider", ">LUN", "mode"], present.chain(missing));
    let is_own = |s: &&SessionState| s.group.as_ref() == Some(&group.name);
    let in_group = || target.sessions.iter().filter(is_own);
    let tables = vec![own, luns, sessions(in_group().map(|s| (target, s)))];
    let (of, name) = (shell_word(&target.name), shell_word(&group.name));
    let commands = vec![
        format!("ashlar sessions --target {of} --group {name}"),
        "ashlar list luns".to_owned(),
    ];
    let nodes = lun_nodes(target, group).into_iter();
    let nodes = nodes.chain(in_group().map(|s| session_id(target, s))).collect();
    let is_lost = !group.awaited.is_empty();
    let health = if is_lost { Health::Degraded } else { Health::Ok };
    let why = if is_lost { "the providers of some LUNs are missing" } else { "" }.to_owned();
    let (id, title) = (group_id(&target.name, &group.name), format!("group {}", group.name));
    (Detail { health, why, ..detail(id, title, tables, commands) }, nodes)
}

/// The LUNs that an initiator gets, as `access check` lists them.
fn granted(state: &SystemState, initiator: &str) -> Table {
    let params = AccessCheckParams { initiator: initiator.to_owned(), ..Default::default() };
    // Only a portal makes the call fail, and there is none.
    let rows = access::check(state, params).map_or(Vec::new(), |found| access::rows(&found));
    let rows = rows.into_iter().map(|row| row.into_iter().map(Cell::text).collect::<Vec<_>>());
    Table::new(("granted", "LUNs by access group", "No LUN."), &access::COLUMNS, rows)
}

fn initiator(state: &SystemState, name: &str) -> Option<Found> {
    let is_own = |(_, session): &(&TargetState, &SessionState)| session.initiator == name;
    let own = || state.sessions().filter(is_own);
    let denied: Vec<&Denied> = state.denied.iter().filter(|d| d.initiator == name).collect();
    let mut patterns = state.targets.iter().flat_map(|t| &t.groups).flat_map(|g| &g.initiators);
    if own().next().is_none() && denied.is_empty() && !patterns.any(|pattern| pattern == name) {
        return None;
    }
    let refused = denied.iter().rev().map(|d| {
        vec![
            Cell::text(&d.address),
            Cell::text(or_dash(&d.target)),
            Cell::text(d.times.to_string()),
            Cell::text(d.why.lines().next().unwrap_or("")),
        ]
    });
    let heading = ("own-denied", "Refused logins of the initiator", "No login was refused.");
    let refused = Table::new(heading, &["address", "target", ">times", "why"], refused);
    let tables = vec![sessions(own()), granted(state, name), refused];
    let word = shell_word(name);
    let commands =
        vec![format!("ashlar access check {word}"), format!("ashlar tree --down {word}")];
    let nodes = own().map(|(target, session)| session_id(target, session)).collect();
    let title = format!("initiator {name}");
    Some((detail(initiator_id(name), title, tables, commands), nodes))
}

fn core(number: usize, core: &CoreState) -> Found {
    let own = properties([
        ("CPU time", short_ns(core.busy_ns)),
        ("events by", core.port_kind.clone()),
        ("because", core.why.clone()),
    ]);
    let id = core_id(number);
    let commands = vec![format!("ashlar rates {id}"), "ashlar top".to_owned()];
    (detail(id, format!("core {number}"), vec![own], commands), HashSet::new())
}

fn bus(bus: &BusState) -> Found {
    let own = properties([
        ("number", bus.number.to_string()),
        ("configured", if bus.configured { "yes" } else { "no" }.to_owned()),
        ("scan", if bus.asking { "runs" } else { "" }.to_owned()),
    ]);
    let problems = bus.troubles.iter().map(|trouble| {
        vec![Cell::health(trouble.health), Cell::text(&trouble.why), Cell::text(&trouble.action)]
    });
    let heading = ("problems", "Problems", "None.");
    let problems = Table::new(heading, &["health", "problem", "next"], problems);
    let disk = |name: &str| format!("disk:{name}");
    let devices = bus.devices.iter().map(|device| {
        let name = match device.name.is_empty() {
            true => Cell::text("-"),
            false => Cell::link(&device.name, disk(&device.name)),
        };
        let error = device.last_error.as_ref().map_or("", |error| error.what.as_str());
        vec![
            Cell::text(format!("{}:{}", device.target, device.lun)),
            name,
            Cell::text(&device.device),
            Cell::text(if device.lost { "lost" } else { "present" }),
            Cell::text(or_dash(error)),
        ]
    });
    let heading = ("devices", "Devices", "No device.");
    let columns = ["target:LUN", "disk", "device", "state", "last error"];
    let tables = vec![own, problems, Table::new(heading, &columns, devices)];
    let commands = vec!["ashlar list disks".to_owned(), "ashlar cam devlist".to_owned()];
    let named = bus.devices.iter().filter(|device| !device.name.is_empty());
    let nodes = named.map(|device| disk(&device.name)).collect();
    let why = bus.troubles.first().map_or_else(String::new, |trouble| trouble.why.clone());
    let found = detail(bus_id(&bus.name), format!("bus {}", bus.name), tables, commands);
    (Detail { health: bus.health, why, ..found }, nodes)
}

fn listener(listener: &ListenerState) -> Found {
    let days = listener.certificate_days().map(|days| format!("{days} days left"));
    let own = properties([
        ("address", listener.address.clone()),
        ("encryption", if listener.tls { "TLS" } else { "none" }.to_owned()),
        ("admits", listener.admits.clone()),
        ("tokens and clients", listener.callers.map_or(String::new(), |n| n.to_string())),
        ("certificate", days.unwrap_or_default()),
    ]);
    let warning = listener.warning().map_or("", |warning| warning.why);
    let (health, why) = match (listener.open, warning) {
        (false, _) => (Health::Failed, listener.why.clone()),
        (true, "") => (Health::Ok, String::new()),
        (true, why) => (Health::Degraded, why.to_owned()),
    };
    let id = listener_id(&listener.name, &listener.address);
    let commands = vec!["ashlar list listeners".to_owned(), "ashlar doctor listeners".to_owned()];
    let found = detail(id, format!("listener {}", listener.place()), vec![own], commands);
    (Detail { health, why, ..found }, HashSet::new())
}

fn webhook(webhook: &WebhookState) -> Found {
    let time = |at: u64| if at == 0 { String::new() } else { utc(at) };
    let own = properties([
        ("server", webhook.server.clone()),
        ("delivered events", webhook.delivered.to_string()),
        ("failed attempts", webhook.failures.to_string()),
        ("waiting events", webhook.waiting.to_string()),
        ("dropped events", webhook.dropped.to_string()),
        ("last delivery", time(webhook.delivered_at)),
        ("last failure", time(webhook.failed_at)),
    ]);
    let (id, title) = (webhook_id(&webhook.name), format!("webhook {}", webhook.name));
    let commands = vec!["ashlar status".to_owned(), "ashlar journal".to_owned()];
    let health = if webhook.failure.is_empty() { Health::Ok } else { Health::Degraded };
    let why = webhook.failure.clone();
    (Detail { health, why, ..detail(id, title, vec![own], commands) }, HashSet::new())
}

/// The object with that identifier, without its events, and its name in them.
fn found<'s>(state: &'s SystemState, id: &'s str) -> Option<(Found, &'s str)> {
    if let Some(name) = id.strip_prefix("initiator:") {
        return Some((initiator(state, name)?, name));
    }
    for of in &state.targets {
        if target_id(&of.name) == id {
            let (own, nodes) = target(of);
            let actions = export_actions::of_target(state, of);
            return Some(((Detail { actions, ..own }, nodes), of.name.as_str()));
        }
        if let Some(own) = of.groups.iter().find(|g| group_id(&of.name, &g.name) == id) {
            return Some((group(of, own), own.name.as_str()));
        }
    }
    if let Some(one) = state.buses.iter().find(|bus| bus_id(&bus.name) == id) {
        return Some((bus(one), one.name.as_str()));
    }
    let mut cores = state.daemon.cores.iter().enumerate();
    if let Some((number, one)) = cores.find(|(number, _)| core_id(*number) == id) {
        return Some((core(number, one), id));
    }
    let mut listeners = state.listeners.iter();
    if let Some(one) = listeners.find(|l| listener_id(&l.name, &l.address) == id) {
        return Some((listener(one), one.address.as_str()));
    }
    let one = state.webhooks.iter().find(|one| webhook_id(&one.name) == id)?;
    Some((webhook(one), one.name.as_str()))
}

/// The detail of the object with that identifier, and the identifiers of its nodes.
pub fn find(state: &SystemState, journal: &[Event], id: &str) -> Option<Found> {
    let ((mut detail, nodes), name) = found(state, id)?;
    detail.tables.push(own_events(journal, name, state.daemon.uptime_ns));
    Some((detail, nodes))
}

/// Targets, buses, listeners and webhooks, each as a link to its detail.
pub fn list(state: &SystemState, lower: &str) -> Table {
    let row = |(detail, _): Found, kind: &str, name: &str| {
        let (health, why) = (Cell::health(detail.health), Cell::text(or_dash(&detail.why)));
        vec![Cell::text(kind), Cell::link(name, detail.id), health, why]
    };
    let targets = state.targets.iter().map(|one| row(target(one), "target", &one.name));
    let buses = state.buses.iter().map(|one| row(bus(one), "bus", &one.name));
    let listeners = state.listeners.iter().map(|one| row(listener(one), "listener", &one.place()));
    let webhooks = state.webhooks.iter().map(|one| row(webhook(one), "webhook", &one.name));
    let rows = targets.chain(buses).chain(listeners).chain(webhooks);
    let rows = rows.filter(|row| row.iter().any(|cell| cell.text.to_lowercase().contains(lower)));
    let heading = ("objects", "Targets, buses, listeners and webhooks", "None matches.");
    Table::new(heading, &["kind", "name", "health", "why"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DeviceState;

    fn state() -> SystemState {
        let session = SessionState {
            initiator: "iqn.h:one".to_owned(),
            address: "10.0.0.7:4000".to_owned(),
            group: Some("hosts".to_owned()),
            ..SessionState::default()
        };
        let group = GroupState {
            name: "hosts".to_owned(),
            initiators: vec!["iqn.h:*".to_owned(), "iqn.h:two".to_owned()],
            luns: vec![LunState { lun: 3, provider: "m0".to_owned(), ..LunState::default() }],
            ..GroupState::default()
        };
        let target = TargetState {
            name: "iqn.a:t".to_owned(),
            groups: vec![group],
            sessions: vec![session],
            ..TargetState::default()
        };
        let device = DeviceState { name: "da0".to_owned(), ..DeviceState::default() };
        let bus =
            BusState { name: "hba0".to_owned(), devices: vec![device], ..BusState::default() };
        let listener = ListenerState {
            name: "api".to_owned(),
            address: "127.0.0.1:7320".to_owned(),
            authenticated: true,
            why: "the address is in use".to_owned(),
            ..ListenerState::default()
        };
        let webhook = WebhookState {
            name: "pager".to_owned(),
            failure: "refused".to_owned(),
            ..WebhookState::default()
        };
        let mut state = SystemState {
            targets: vec![target],
            buses: vec![bus],
            listeners: vec![listener],
            webhooks: vec![webhook],
            ..SystemState::default()
        };
        state.daemon.cores = vec![CoreState::default()];
        state
    }

    #[test]
    fn every_object_has_a_detail_with_its_health_and_its_nodes() {
        let state = state();
        let session = "session:iqn.a:t/iqn.h:one/10.0.0.7:4000";
        let lun = "lun:iqn.a:t/hosts/3";
        for (id, title, health, nodes) in [
            ("target:iqn.a:t", "target iqn.a:t", Health::Ok, &[lun, session][..]),
            ("group:iqn.a:t/hosts", "group hosts", Health::Ok, &[lun, session]),
            ("initiator:iqn.h:one", "initiator iqn.h:one", Health::Ok, &[session]),
            ("initiator:iqn.h:two", "initiator iqn.h:two", Health::Ok, &[]),
            ("core:0", "core 0", Health::Ok, &[]),
            ("bus:hba0", "bus hba0", Health::Ok, &["disk:da0"]),
            ("webhook:pager", "webhook pager", Health::Degraded, &[]),
        ] {
            let (detail, own) = find(&state, &[], id).expect(id);
            assert_eq!((detail.id.as_str(), detail.title.as_str()), (id, title));
            assert_eq!(detail.health, health, "{id}");
            let nodes: HashSet<String> = nodes.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(own, nodes, "{id}");
            assert!(!detail.commands.is_empty() && !detail.tables.is_empty(), "{id}");
        }
        let (api, _) = find(&state, &[], "listener:api/127.0.0.1:7320").expect("the listener");
        assert_eq!((api.health, api.why.as_str()), (Health::Failed, "the address is in use"));
        for id in ["initiator:iqn.h:three", "target:x", "group:iqn.a:t/x", "core:1", "bus:", ""] {
            assert!(find(&state, &[], id).is_none(), "{id}");
        }
    }

    #[test]
    fn every_row_of_the_list_leads_to_a_detail() {
        let state = state();
        let table = list(&state, "");
        assert_eq!(table.total, 4);
        for row in &table.rows {
            let id = row[1].at.as_deref().expect("a link");
            assert!(find(&state, &[], id).is_some(), "{id}");
        }
        assert_eq!(list(&state, "hba").total, 1);
    }

    #[test]
    fn detail_has_the_events_of_its_object() {
        let event = |about: &str| Event { about: about.to_owned(), ..Event::default() };
        let journal = [event("target iqn.a:t"), event("target iqn.a:u")];
        let (detail, _) = find(&state(), &journal, "target:iqn.a:t").expect("the target");
        let own = detail.tables.iter().find(|table| table.id == "own-events").expect("events");
        assert_eq!(own.total, 1);
    }
}
