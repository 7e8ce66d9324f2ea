//! Detail of one object: health and reason, properties, counters, and the commands that concern it.

use super::actions;
use super::charts::Chart;
use super::export_actions;
use super::graph::{Graph, Node};
use super::tables::{Cell, CellAction, Table, events};
use crate::api::{
    DeviceState, Event, GeomState, GroupState, Health, LunCounters, LunState, OpStats,
    PendingLunState, SessionState, Stats, SystemState, TargetHealth, TargetState,
};
use crate::config::units::{exact, short, short_ns};
use crate::object_id::{bus_id, geom_id, group_id, initiator_id, lun_id, session_id, target_id};
use crate::text::{or_dash, shell_word};
use crate::verbs::index::Index;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// An object with everything that is known of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ViewDetail")]
pub struct Detail {
    /// Identifier of the object.
    pub id: String,
    /// Kind and name of the object.
    pub title: String,
    /// Health of the object.
    pub health: Health,
    /// Reason if the health is not ok; otherwise empty.
    pub why: String,
    /// Properties, problems, counters and events.
    pub tables: Vec<Table>,
    /// Commands that show or change the object.
    pub commands: Vec<String>,
    /// Changes that buttons make, each with its command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<CellAction>,
    /// The verb `rates` knows the object.
    pub has_rates: bool,
    /// Charts of the last hour, for the document; a script draws those of the verb `rates`.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

/// A table of names and values. Empty values are left out.
pub(super) fn properties<K: Into<String>>(pairs: impl IntoIterator<Item = (K, String)>) -> Table {
    let row = |(key, value): (K, String)| {
        (!value.is_empty()).then(|| vec![Cell::text(key), Cell::text(value)])
    };
    let rows: Vec<_> = pairs.into_iter().filter_map(row).collect();
    Table::new(("properties", "Properties", "No properties."), &["property", "value"], rows)
}

/// Counters of each kind of request since the start of the daemon. `number` is that of the table
/// among those of its object.
fn counters(stats: &Stats, number: usize, of: &str) -> Table {
    let time = |ns: Option<u64>| ns.map_or("-".to_owned(), short_ns);
    let row = |(kind, op): (&str, &OpStats)| {
        vec![
            Cell::text(kind),
            Cell::text(op.ops.to_string()),
            Cell::text(short(op.bytes)),
            Cell::text(op.errors.to_string()),
            Cell::text(time(op.latency.p50_ns())),
            Cell::text(time(op.latency.p99_ns())),
        ]
    };
    let columns = ["request", ">number", ">bytes", ">errors", ">p50", ">p99"];
    let (id, title) = (format!("requests-{number}"), format!("Requests of {of} since the start"));
    Table::new((&id, &title, "No requests."), &columns, stats.kinds().map(row))
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn geom_tables(geom: &GeomState) -> Vec<Table> {
    let named = |map: &serde_json::Map<String, Value>| -> Vec<(String, String)> {
        map.iter().map(|(key, value)| (key.clone(), value_text(value))).collect()
    };
    let own = [("class", &geom.class), ("state", &geom.state), ("exists because", &geom.why)];
    let own = own.map(|(key, value)| (key.to_owned(), value.clone()));
    let settings = geom.settings.iter().filter(|(_, value)| !value.is_null());
    let settings: serde_json::Map<String, Value> =
        settings.map(|(key, value)| (key.clone(), value.clone())).collect();
    let all = own.into_iter().chain(named(&geom.config)).chain(named(&settings));
    let problems = geom.troubles.iter().map(|trouble| {
        vec![Cell::health(trouble.health), Cell::text(&trouble.why), Cell::text(&trouble.action)]
    });
    let problem_columns = ["health", "problem", "next"];
    let providers = geom.providers.iter().map(|p| {
        vec![
            Cell::text(&p.name),
            Cell::text(exact(p.size_bytes)),
            Cell::text(p.sector_bytes.to_string()),
            Cell::text(p.access_counts()),
            Cell::text(p.stats.in_flight.to_string()),
            Cell::text(or_dash(p.error.as_deref().unwrap_or(""))),
        ]
    });
    let provider_columns = ["provider", ">size", ">sector", "access", ">in flight", "error"];
    let consumers = geom.consumers.iter().map(|c| {
        vec![
            Cell::text(or_dash(c.provider.as_deref().unwrap_or(""))),
            Cell::text(or_dash(&c.state)),
            Cell::text(format!("r{}w{}e{}", c.r, c.w, c.e)),
            Cell::text(c.stats.in_flight.to_string()),
            Cell::text(c.stats.errors().to_string()),
        ]
    });
    let consumer_columns = ["member", "state", "access", ">in flight", ">errors"];
    let none = "None.";
    let mut out = vec![
        properties(all),
        Table::new(("problems", "Problems", none), &problem_columns, problems),
        Table::new(("providers", "Providers", none), &provider_columns, providers),
        Table::new(("consumers", "Members", none), &consumer_columns, consumers),
    ];
    let providers = geom.providers.iter().enumerate();
    out.extend(providers.map(|(number, p)| counters(&p.stats, number, &p.name)));
    out
}

/// Targets and groups that properties name, with their details.
fn linked_to(table: Table, target: &str, group: &str) -> Table {
    table.linked(&[("target", target_id(target)), ("group", group_id(target, group))])
}

fn lun_table(target: &str, group: &str, lun: &LunState) -> Table {
    let reservation = lun.reservation.as_ref().map_or_else(String::new, |r| {
        let kind = r.kind.as_deref().unwrap_or("registrations only");
        format!("{kind}, {} registrants, generation {}", r.registrants.len(), r.generation)
    });
    let own = properties([
        ("provider", lun.provider.clone()),
        ("number", lun.lun.to_string()),
        ("mode", if lun.read_only { "read-only" } else { "read-write" }.to_owned()),
        ("group", group.to_owned()),
        ("target", target.to_owned()),
        ("serial", lun.serial.clone()),
        ("NAA", lun.naa.clone()),
        ("UUID", lun.uuid.clone()),
        ("EUI-64", lun.eui64.clone().unwrap_or_default()),
        ("latency", if lun.latency_ns == 0 { String::new() } else { short_ns(lun.latency_ns) }),
        ("limit", lun.limit.map_or_else(String::new, |limit| limit.to_string())),
        ("reservation", reservation),
    ]);
    linked_to(own, target, group)
}

fn session_table(target: &str, s: &SessionState, now_ns: u64) -> Table {
    let group = s.group.as_deref().unwrap_or_default();
    let own = properties([
        ("ID", s.id.to_string()),
        ("initiator", s.initiator.clone()),
        ("address", s.address.clone()),
        ("portal", s.portal.clone()),
        ("target", target.to_owned()),
        ("group", group.to_owned()),
        ("ISID", s.isid.clone()),
        ("host identifier", s.host_id.clone().unwrap_or_default()),
        ("age", short_ns(now_ns.saturating_sub(s.since_ns))),
        ("LUNs", s.luns_total.to_string()),
        ("authentication", s.auth.clone()),
        ("encryption", s.tls.clone().unwrap_or_default()),
        ("outstanding commands", s.commands_outstanding.to_string()),
        ("oldest command", short_ns(s.oldest_command_ns)),
        ("window", s.window.to_string()),
        ("waits because", s.held_back.clone().unwrap_or_default()),
    ]);
    linked_to(own, target, group).linked(&[("initiator", initiator_id(&s.initiator))])
}

/// Requests of a session to each of the LUNs that it has used.
fn lun_use(target: &str, session: &SessionState) -> Table {
    let group = session.group.as_deref().unwrap_or_default();
    let row = |of: &LunCounters| {
        vec![
            Cell::link(&of.lun.to_string(), lun_id(target, group, of.lun)),
            Cell::text(of.reads.to_string()),
            Cell::text(short(of.read_bytes)),
            Cell::text(of.writes.to_string()),
            Cell::text(short(of.write_bytes)),
            Cell::text(of.errors.to_string()),
        ]
    };
    let columns = [">LUN", ">reads", ">read", ">writes", ">written", ">errors"];
    let heading = ("own-luns", "Requests to each LUN", "No LUN was used.");
    Table::new(heading, &columns, session.lun_counters.iter().map(row))
}

fn geom_commands(geom: &GeomState) -> Vec<String> {
    let name = shell_word(&geom.name);
    let mut out = match geom.class.as_str() {
        "disk" => vec![format!("ashlar list disks {name}")],
        "part" => vec![format!("ashlar part show {name}")],
        class => ["list", "status"].map(|verb| format!("ashlar {class} {verb} {name}")).to_vec(),
    };
    if geom.is_serving.is_some() {
        out.push(format!("ashlar {} dumps {name}", geom.class));
    }
    out.push(format!("ashlar tree --up {name}"));
    if let [provider] = geom.providers.as_slice() {
        out.push(format!("ashlar access who {}", shell_word(&provider.name)));
    }
    // Actions that end a problem are beside it, in the table of problems.
    out.extend(geom.transients.iter().map(|t| t.undo.clone()));
    out
}

/// The LUN of a node that lacks its provider.
fn awaited_lun(target: &str, group: &GroupState, id: &str) -> Option<Contents> {
    let is_own = |lost: &&PendingLunState| lun_id(target, &group.name, lost.lun) == id;
    let PendingLunState { lun, provider } = group.awaited.iter().find(is_own)?;
    let table = properties([
        ("provider", provider.clone()),
        ("number", lun.to_string()),
        ("group", group.name.clone()),
        ("target", target.to_owned()),
    ]);
    let table = linked_to(table, target, &group.name);
    let why = format!("the provider {provider} is missing; the LUN appears when it is there");
    let who = format!("ashlar access who {}", shell_word(provider));
    Some((why, vec![table], vec!["ashlar doctor".to_owned(), who]))
}

/// The reason if a LUN is not healthy.
fn lun_why(state: &SystemState, target: &TargetState, lun: &LunState) -> String {
    if target.state == TargetHealth::Down {
        return format!("the target {} accepts no logins: {}", target.name, target.health_why);
    }
    match Index::new(state).provider(&lun.provider) {
        None => format!("the provider {} is missing", lun.provider),
        Some((_, provider)) => provider.error.clone().unwrap_or_default(),
    }
}

fn lun_commands(path: &str, provider: &str) -> Vec<String> {
    let (path, provider) = (shell_word(path), shell_word(provider));
    vec![
        "ashlar list luns".to_owned(),
        format!("ashlar access who {path}"),
        format!("ashlar reservations {provider}"),
        format!("ashlar tree --down {provider}"),
    ]
}

/// The reason if an object is not healthy, its tables and its commands.
type Contents = (String, Vec<Table>, Vec<String>);

/// Tables and commands of the object of a node.
fn contents(state: &SystemState, node: &Node) -> Contents {
    if let Some(geom) = state.geoms.iter().find(|g| geom_id(g) == node.id) {
        let mut tables = geom_tables(geom);
        let is_own = |device: &DeviceState| geom.class == "disk" && device.name == geom.name;
        if let Some((bus, _)) = state.bus_disks().find(|(_, device)| is_own(device)) {
            let link = vec![Cell::text("bus"), Cell::link(&bus.name, bus_id(&bus.name))];
            if let Some(own) = tables.first_mut() {
                own.push(link);
            }
        }
        return (geom.health_why.clone(), tables, geom_commands(geom));
    }
    for target in &state.targets {
        for group in &target.groups {
            let is_own = |lun: &&LunState| lun_id(&target.name, &group.name, lun.lun) == node.id;
            if let Some(lun) = group.luns.iter().find(is_own) {
                let tables = vec![lun_table(&target.name, &group.name, lun)];
                let path = format!("{}/{}/{}", target.name, group.name, lun.lun);
                let commands = lun_commands(&path, &lun.provider);
                return (lun_why(state, target, lun), tables, commands);
            }
            if let Some(awaited) = awaited_lun(&target.name, group, &node.id) {
                return awaited;
            }
        }
        if let Some(session) = target.sessions.iter().find(|s| session_id(target, s) == node.id) {
            let now = state.daemon.uptime_ns;
            let tables = vec![
                session_table(&target.name, session, now),
                counters(&session.stats, 0, &session.initiator),
                lun_use(&target.name, session),
            ];
            let initiator = shell_word(&session.initiator);
            let commands = vec![
                format!("ashlar sessions --target {}", shell_word(&target.name)),
                format!("ashlar access check {initiator}"),
                format!("ashlar tree --down {initiator}"),
            ];
            return (session.held_back.clone().unwrap_or_default(), tables, commands);
        }
    }
    (String::new(), Vec::new(), vec!["ashlar doctor".to_owned()])
}

/// Changes to the object of a node: to a geom and its rebuilds, to a LUN, or the end of a session.
fn changes(state: &SystemState, id: &str) -> Vec<CellAction> {
    if let Some(geom) = state.geoms.iter().find(|geom| geom_id(geom) == id) {
        let rebuilds = geom.rebuilds.iter().flat_map(|copy| CellAction::of_rebuild(geom, copy));
        return rebuilds.chain(actions::of_geom(geom)).collect();
    }
    for target in &state.targets {
        for group in &target.groups {
            let is_own = |lun: &&LunState| lun_id(&target.name, &group.name, lun.lun) == id;
            if let Some(lun) = group.luns.iter().find(is_own) {
                return export_actions::of_lun(state, target, lun);
            }
        }
    }
    let session = state.sessions().find(|(target, s)| session_id(target, s) == id);
    let end = session.and_then(|(target, s)| CellAction::end_session(target, s));
    end.into_iter().collect()
}

/// Whether an event is about an object of that name: `mirror m0`, `iqn.a:t/hosts`, `label label/l`.
fn is_about(event: &Event, name: &str) -> bool {
    let is_end = |head: &str| head.is_empty() || head.ends_with(['/', ' ']);
    event.about.split(['/', ' ']).any(|part| part == name)
        || event.about.strip_suffix(name).is_some_and(is_end)
}

/// The events about an object.
pub(super) fn own_events(journal: &[Event], name: &str, now_ns: u64) -> Table {
    let own = journal.iter().filter(|event| is_about(event, name));
    let own: Vec<Event> = own.cloned().collect();
    Table {
        id: "own-events".to_owned(),
        title: "Events of the object".to_owned(),
        ..events(&own, now_ns)
    }
}

/// The detail of the node with that identifier.
pub fn detail(state: &SystemState, graph: &Graph, journal: &[Event], id: &str) -> Option<Detail> {
    let node = graph.nodes.iter().find(|node| node.id == id)?;
    let (why, mut tables, commands) = contents(state, node);
    tables.push(own_events(journal, &node.name, state.daemon.uptime_ns));
    let title = format!("{} {}", node.kind, node.name);
    let (id, health, actions) = (node.id.clone(), node.health, changes(state, id));
    Some(Detail { id, title, health, why, tables, commands, actions, ..Detail::default() })
}
