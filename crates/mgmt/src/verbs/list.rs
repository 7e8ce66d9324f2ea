//! list: disks, geoms, providers, targets, LUNs, each with why it is there.

use super::entry::CommandVerb;
use super::index::Index;
use crate::api::{
    BusState, ConnectionsState, DeviceState, DiskMode, Error, GeomState, Health, Kind,
    ListenerState, Result, SCHEMA_VERSION, SystemState,
};
use crate::config::units::short;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of the listed objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListKind {
    /// Disks, geoms and targets.
    #[default]
    All,
    /// Disks, the bottom of the graph.
    Disks,
    /// Geoms.
    Geoms,
    /// Providers, the classes that claimed them, and why the others are unclaimed.
    Providers,
    /// Targets.
    Targets,
    /// LUNs of all groups.
    Luns,
    /// LUNs that are attached as block devices of this machine, or wait for it.
    Attached,
    /// Connections of each driver, and why they were closed.
    Connections,
    /// Listeners of the API over TCP and of metrics, and the callers that each admits.
    Listeners,
}

/// Parameters of `list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListParams {
    /// Kind of objects to list.
    pub what: ListKind,
    /// List only objects with this name, class or kind [default: all objects]
    pub name: Option<String>,
}

/// One table.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Listing {
    /// Title of the table.
    pub title: String,
    /// Names of the columns; a leading `>` marks a column of numbers.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// Answer of `list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Full state of the requested objects: disks, geoms (for providers too), targets (for LUNs
    /// too), attached LUNs, connections, listeners, or all of these.
    pub state: SystemState,
    /// The same data as tables.
    pub listings: Vec<Listing>,
}

fn listing(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Listing {
    let columns = columns.iter().map(|c| (*c).to_owned()).collect();
    Listing { title: title.to_owned(), columns, rows }
}

fn disks(state: &SystemState) -> Listing {
    let row = |d: &crate::api::DiskState| {
        let mode = match d.mode {
            DiskMode::Direct => "direct",
            DiskMode::Buffered => "buffered",
            DiskMode::None => "-",
        };
        let spins = match d.rotational {
            Some(true) => "disk",
            Some(false) => "flash",
            None => "-",
        };
        vec![
            d.name.clone(),
            d.kind.clone(),
            short(d.size_bytes),
            d.percent_full().map_or("-".to_owned(), |percent| format!("{percent}%")),
            d.sector_bytes.to_string(),
            d.health.label().to_owned(),
            mode.to_owned(),
            spins.to_owned(),
            if d.discard { "yes" } else { "no" }.to_owned(),
            text::or_dash(&d.serial),
            text::or_dash(d.path.as_deref().unwrap_or("")),
            match (d.health_why.as_str(), d.mode_why.as_str()) {
                ("", "") => "configured".to_owned(),
                ("", why) => format!("configured; {why}"),
                (why, _) => why.to_owned(),
            },
        ]
    };
    let columns = [
        "disk", "kind", ">size", ">full", ">sector", "health", "mode", "medium", "discard",
        "serial", "path", "why",
    ];
    let mut rows: Vec<Vec<String>> = state.disks.iter().map(row).collect();
    rows.extend(state.bus_disks().map(|(bus, device)| bus_disk(state, bus, device)));
    listing("disks", &columns, rows)
}

/// The row of a disk that a bus found.
fn bus_disk(state: &SystemState, bus: &BusState, device: &DeviceState) -> Vec<String> {
    let mut providers = state.geoms.iter().flat_map(|g| &g.providers);
    let provider = providers.find(|p| p.name == device.name);
    let gone = device.lost || provider.is_none();
    let (health, why) = match gone {
        true => (Health::Failed, "its bus does not reach it".to_owned()),
        false => (Health::Ok, format!("found on {}: {}", bus.name, device.device)),
    };
    let dash = || "-".to_owned();
    vec![
        device.name.clone(),
        "bus".to_owned(),
        short(provider.map_or(0, |p| p.size_bytes)),
        dash(),
        provider.map_or(0, |p| p.sector_bytes).to_string(),
        health.label().to_owned(),
        dash(),
        dash(),
        dash(),
        dash(),
        format!("scbus{} target {} lun {}", bus.number, device.target, device.lun),
        why,
    ]
}

/// Reason of a geom's health, or else of its existence, with the rebuilds that run.
fn why(geom: &GeomState) -> String {
    let own = if geom.health_why.is_empty() { &geom.why } else { &geom.health_why };
    let copies = geom.rebuilds.iter().map(|copy| format!("{}: {}", copy.part, copy.words()));
    std::iter::once(own.clone()).chain(copies).collect::<Vec<_>>().join("; ")
}

fn geoms(state: &SystemState) -> Listing {
    let row = |g: &GeomState| {
        let below: Vec<&str> = g.consumers.iter().filter_map(|c| c.provider.as_deref()).collect();
        let above: Vec<&str> = g.providers.iter().map(|p| p.name.as_str()).collect();
        vec![
            g.name.clone(),
            g.class.clone(),
            g.rank.to_string(),
            g.health.label().to_owned(),
            text::or_dash(&g.state),
            text::or_dash(&below.join(" ")),
            text::or_dash(&above.join(" ")),
            text::or_dash(&why(g)),
        ]
    };
    let columns = ["geom", "class", ">rank", "health", "state", "consumes", "offers", "why"];
    listing("geoms", &columns, state.geoms.iter().map(row).collect())
}

/// Classes of the geoms that use a provider.
fn using_classes<'s>(index: &Index<'s>, provider: &str) -> Vec<&'s str> {
    let mut by: Vec<&str> = index.users_of(provider).iter().map(|g| g.class.as_str()).collect();
    by.dedup();
    by
}

fn providers(state: &SystemState) -> Listing {
    let index = Index::new(state);
    let mut rows = Vec::new();
    for geom in &state.geoms {
        rows.extend(geom.providers.iter().map(|p| {
            vec![
                p.name.clone(),
                geom.class.clone(),
                short(p.size_bytes),
                p.size_bytes.to_string(),
                p.sector_bytes.to_string(),
                p.access_counts(),
                text::or_dash(p.error.as_deref().unwrap_or("")),
                text::or_dash(&using_classes(&index, &p.name).join(" ")),
            ]
        }));
    }
    let columns =
        ["provider", "class", ">size", ">bytes", ">sector", "mode", "error", "claimed by"];
    listing("providers", &columns, rows)
}

/// Longest reason in a list of everything, in characters; `list providers NAME` shows all of it.
const REASON_CHARS_MAX: usize = 90;

/// Findings of tasting on unclaimed providers: those that only LUNs use, or the one called `name`.
fn unclaimed_providers(state: &SystemState, name: Option<&str>) -> Listing {
    let index = Index::new(state);
    let mut rows = Vec::new();
    for p in state.geoms.iter().flat_map(|g| &g.providers) {
        let by = using_classes(&index, &p.name);
        let is_listed = name.map_or(by.iter().all(|c| *c == "lun"), |n| n == p.name);
        for not in p.why_not.iter().filter(|w| is_listed && !by.contains(&w.class.as_str())) {
            let why = match not.why.char_indices().nth(REASON_CHARS_MAX) {
                Some((end, _)) if name.is_none() => {
                    format!("{}...", not.why.get(..end).unwrap_or(""))
                }
                _ => not.why.clone(),
            };
            rows.push(vec![p.name.clone(), not.class.clone(), why]);
        }
    }
    listing("provider left alone", &["left alone", "by class", "why"], rows)
}

fn targets(state: &SystemState) -> Listing {
    let row = |t: &crate::api::TargetState| {
        vec![
            t.name.clone(),
            t.driver.clone(),
            t.portals.join(" "),
            t.health.label().to_owned(),
            t.groups.len().to_string(),
            t.sessions.len().to_string(),
            text::or_dash(&t.port_group),
            if t.health_why.is_empty() { "configured".to_owned() } else { t.health_why.clone() },
        ]
    };
    let columns = ["target", "driver", "portals", "health", ">groups", ">sessions", "ports", "why"];
    listing("targets", &columns, state.targets.iter().map(row).collect())
}

fn luns(state: &SystemState) -> Listing {
    let mut rows = Vec::new();
    for target in &state.targets {
        for group in &target.groups {
            rows.extend(group.luns.iter().map(|l| {
                vec![
                    l.lun.to_string(),
                    l.provider.clone(),
                    if l.read_only { "ro" } else { "rw" }.to_owned(),
                    target.name.clone(),
                    group.name.clone(),
                    text::or_dash(&l.serial),
                    text::or_dash(&l.naa),
                    "configured".to_owned(),
                ]
            }));
            rows.extend(group.awaited.iter().map(|l| {
                let (lun, provider) = (l.lun.to_string(), l.provider.clone());
                let (target, group) = (target.name.clone(), group.name.clone());
                let why = format!("awaited: there is no {provider} yet");
                let none = || "-".to_owned();
                vec![lun, provider, none(), target, group, none(), none(), why]
            }));
        }
    }
    let columns = [">lun", "provider", "mode", "target", "group", "serial", "naa", "why"];
    listing("luns", &columns, rows)
}

/// Connections of each driver.
fn connections(state: &SystemState) -> Listing {
    let row = |c: &ConnectionsState| {
        let closed = c.closed.iter().filter(|(_, number)| **number > 0);
        let closed: Vec<String> = closed.map(|(why, number)| format!("{why} {number}")).collect();
        vec![
            c.driver.clone(),
            c.open.to_string(),
            c.waiting.to_string(),
            c.accepted.to_string(),
            c.refused.to_string(),
            c.warned.to_string(),
            text::or_dash(&closed.join(", ")),
        ]
    };
    let columns =
        ["driver", ">open", ">waiting", ">accepted", ">refused", ">with warning", "closed"];
    listing("connections", &columns, state.connections.iter().map(row).collect())
}

fn listeners(state: &SystemState) -> Listing {
    let days = |days: u64| text::count(usize::try_from(days).unwrap_or(usize::MAX), "day");
    let row = |l: &ListenerState| {
        vec![
            l.name.clone(),
            l.address.clone(),
            if l.tls { "yes" } else { "no" }.to_owned(),
            l.certificate_days().map_or_else(|| "-".to_owned(), days),
            match (l.open, l.why.is_empty()) {
                (true, _) => "open".to_owned(),
                (false, true) => "not open yet".to_owned(),
                (false, false) => format!("not open: {}", l.why),
            },
            l.admits.clone(),
        ]
    };
    let columns = ["listener", "address", "TLS", "certificate", "state", "admits"];
    listing("listeners", &columns, state.listeners.iter().map(row).collect())
}

/// LUNs that are block devices of this machine.
pub(super) fn attached(all: &[crate::api::AttachedState]) -> Listing {
    let row = |a: &crate::api::AttachedState| {
        let is_attached = !a.device.is_empty();
        vec![
            a.lun.to_string(),
            text::or_dash(&a.unit),
            a.target.clone(),
            text::or_dash(&a.device),
            if is_attached { short(a.size_bytes) } else { "-".to_owned() },
            if a.read_only { "ro" } else { "rw" }.to_owned(),
            match (is_attached, a.users.is_empty()) {
                (true, true) => "no process".to_owned(),
                _ => text::or_dash(&a.users.join(", ")),
            },
            if a.why.is_empty() { "attached".to_owned() } else { a.why.clone() },
        ]
    };
    let columns = [">lun", "unit", "target", "device", ">size", "mode", "used by", "why"];
    listing("attached", &columns, all.iter().map(row).collect())
}

/// The part of the state that was requested: of many thousand units all of it is many megabytes.
fn select_state(mut state: SystemState, what: ListKind) -> SystemState {
    let all = what == ListKind::All;
    if !all && what != ListKind::Disks {
        state.disks.clear();
    }
    if !all && !matches!(what, ListKind::Geoms | ListKind::Providers) {
        state.geoms.clear();
    }
    if !all && !matches!(what, ListKind::Targets | ListKind::Luns) {
        state.targets.clear();
    }
    if !all && what != ListKind::Attached {
        state.attached.clear();
    }
    if !all && what != ListKind::Connections {
        state.connections.clear();
    }
    if !all && what != ListKind::Listeners {
        state.listeners.clear();
    }
    state
}

/// Rows in which a cell is the name; also such whose first words hold it as a list.
fn filter_rows(mut listing: Listing, name: &Option<String>) -> Listing {
    if let Some(name) = name {
        let has = |cell: &String| cell == name || cell.split(' ').any(|word| word == name);
        listing.rows.retain(|row| row.iter().any(has));
    }
    listing
}

impl Verb<Control> for ListParams {
    const NAME: &'static str = "list";
    const DOC: &'static str = "List disks, geoms, providers, targets or LUNs";
    const DETAIL: &'static str = "With --json the answer holds the full state of the requested \
        objects, with every counter and the facts of every class; `list` alone gives the whole \
        state.";
    const POSITIONAL: &'static [&'static str] = &["what", "name"];
    const EXAMPLE: &'static str = "list";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["list providers d0", "list geoms part", "list connections", "list listeners"];
    type Answer = ListAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<ListAnswer> {
        let state = control.state()?;
        let name = self.name.as_deref();
        let listings = match self.what {
            ListKind::All => {
                vec![
                    disks(&state),
                    geoms(&state),
                    unclaimed_providers(&state, None),
                    targets(&state),
                ]
            }
            ListKind::Disks => vec![disks(&state)],
            ListKind::Geoms => vec![geoms(&state)],
            ListKind::Providers => vec![providers(&state), unclaimed_providers(&state, name)],
            ListKind::Targets => vec![targets(&state)],
            ListKind::Attached => vec![attached(&state.attached)],
            ListKind::Connections => vec![connections(&state)],
            ListKind::Listeners => vec![listeners(&state)],
            ListKind::Luns => vec![luns(&state)],
        };
        let listings: Vec<_> = listings.into_iter().map(|l| filter_rows(l, &self.name)).collect();
        if let Some(name) = self.name.filter(|_| listings.iter().all(|l| l.rows.is_empty())) {
            return Err(Error::new(Kind::NotFound, "list", "no object has that name").at(name));
        }
        let state = select_state(state, self.what);
        Ok(ListAnswer { schema_version: SCHEMA_VERSION, state, listings })
    }
}

impl CommandVerb<Control> for ListParams {
    fn table(answer: &ListAnswer) -> String {
        let tables = answer.listings.iter().map(|l| {
            let columns: Vec<&str> = l.columns.iter().map(String::as_str).collect();
            if l.rows.is_empty() {
                format!("no {}\n", l.title)
            } else {
                text::table(&columns, &l.rows)
            }
        });
        tables.collect::<Vec<_>>().join("\n")
    }
}
