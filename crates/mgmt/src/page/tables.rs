//! Lists of the page as tables: rebuilds, LUNs, access, sessions, refused logins, other objects,
//! events and cores.

use super::objects;
use super::search::{is_session, is_unit};
use crate::api::{
    CoreState, Event, GeomState, GroupState, Health, LunState, PendingLunState, RateSample,
    RebuildState, SessionState, SystemState, TargetState,
};
use crate::config::units::{short, short_ns};
use crate::object_id::{core_id, geom_id, group_id, initiator_id, lun_id, session_id, target_id};
use crate::text::{or_dash, shell_word};
use crate::verbs::index::{ExportedLun, Index};
use crate::verbs::sessions_end::check_session_end;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Rows of a table, at most; the table shows how many there are.
const ROWS_MAX: usize = 200;

/// LUNs that a row of a group lists, at most.
const LUNS_SHOWN_MAX: usize = 16;

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ViewCell")]
pub struct Cell {
    /// The text.
    pub text: String,
    /// Identifier of the object that the text names; absent if it has no detail page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Progress to draw beside the text, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Health to mark the text with; absent if the text is no health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Changes that buttons in the cell make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<CellAction>,
}

/// A verb that a button carries out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ViewAction")]
pub struct CellAction {
    /// Text of the button.
    pub label: String,
    /// Class of the verb; empty for a verb of the API itself.
    pub class: String,
    /// The verb.
    pub verb: String,
    /// Name of the geom; empty for a verb of the API itself.
    pub name: String,
    /// Further parameters of the verb.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub value: Map<String, Value>,
    /// Parameter of the verb whose value the reader types; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Label of the input, with the unit; absent without an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Flag of the verb by which the reader confirms it, after a refusal that names the risk;
    /// absent: every refusal is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// The typed value is the only one of a list.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_list: bool,
    /// Consequence that the reader confirms before the verb is sent; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The command line that does the same.
    pub command: String,
}

impl CellAction {
    /// Name of the verb of the API, and its parameters without the typed one.
    pub(super) fn call(&self) -> (String, Value) {
        let mut value = self.value.clone();
        if self.class.is_empty() {
            return (self.verb.clone(), Value::Object(value));
        }
        value.insert("name".to_owned(), Value::from(self.name.clone()));
        let params = json!({ "class": self.class, "verb": self.verb, "value": value });
        ("geom".to_owned(), params)
    }

    /// A verb without further parameters.
    pub(super) fn verb(label: &str, geom: &GeomState, verb: &str) -> CellAction {
        CellAction {
            label: label.to_owned(),
            class: geom.class.clone(),
            verb: verb.to_owned(),
            name: geom.name.clone(),
            command: format!("ashlar {} {verb} {}", geom.class, shell_word(&geom.name)),
            ..CellAction::default()
        }
    }

    /// The changes to a rebuild: pause or resume, and its highest rate if its class limits it.
    pub(super) fn of_rebuild(geom: &GeomState, copy: &RebuildState) -> Vec<CellAction> {
        let label = if copy.paused { "Resume" } else { "Pause" };
        let (verb, what) = copy.switching();
        let switch = CellAction {
            value: what.map(|what| ("what".to_owned(), Value::from(what))).into_iter().collect(),
            command: copy.switch_command(&geom.class, &geom.name),
            ..CellAction::verb(label, geom, verb)
        };
        match what {
            Some(_) => vec![switch],
            None => vec![switch, CellAction::limit(geom)],
        }
    }

    /// The end of a session; `None` if its driver has no logins.
    pub(super) fn end_session(target: &TargetState, session: &SessionState) -> Option<CellAction> {
        check_session_end(target, session).ok()?;
        let id = session.id.to_string();
        Some(CellAction {
            label: "End".to_owned(),
            verb: "sessions.end".to_owned(),
            confirm: Some("yes".to_owned()),
            command: format!("ashlar sessions end {id}"),
            value: [("id".to_owned(), Value::from(id))].into_iter().collect(),
            ..CellAction::default()
        })
    }

    /// Sets the highest rate of rebuilds.
    fn limit(geom: &GeomState) -> CellAction {
        let name = shell_word(&geom.name);
        CellAction {
            input: Some("sync_rate".to_owned()),
            unit: Some("bytes per second".to_owned()),
            command: format!("ashlar {} configure --sync-rate BYTES {name}", geom.class),
            ..CellAction::verb("Limit", geom, "configure")
        }
    }
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// The name of an object.
    pub fn link(text: &str, at: String) -> Cell {
        Cell { text: text.to_owned(), at: Some(at), ..Cell::default() }
    }

    /// A health, as its word.
    pub fn health(health: Health) -> Cell {
        Cell { health: Some(health), ..Cell::text(health.label()) }
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ViewTable")]
pub struct Table {
    /// Identifier of the table in the document.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Text that is shown instead of a table without rows.
    pub empty: String,
    /// Names of the columns; a name with `>` in front is that of a column of numbers.
    pub columns: Vec<String>,
    /// Rows, at most 200.
    pub rows: Vec<Vec<Cell>>,
    /// Number of all rows.
    pub total: usize,
}

impl Table {
    /// A table of these rows.
    pub fn new(
        (id, title, empty): (&str, &str, &str),
        columns: &[&str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Table {
        let mut out = Table {
            id: id.to_owned(),
            title: title.to_owned(),
            empty: empty.to_owned(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            ..Table::default()
        };
        rows.into_iter().for_each(|row| out.push(row));
        out
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: Vec<Cell>) {
        self.total += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(row);
        }
    }

    /// The table of names and values with links from the values of these names.
    pub(super) fn linked(mut self, links: &[(&str, String)]) -> Table {
        for row in &mut self.rows {
            if let [name, value] = row.as_mut_slice()
                && let Some((_, id)) = links.iter().find(|(key, _)| *key == name.text)
            {
                value.at = Some(id.clone());
            }
        }
        self
    }
}

/// Whether a row has the searched text, in lower case.
fn has(row: &[Cell], lower: &str) -> bool {
    row.iter().any(|cell| cell.text.to_lowercase().contains(lower))
}

/// Rows of the objects that match a search, where there may be many objects. Without a text every
/// object matches, and objects over the limit of a table are only counted.
struct Matches<'l> {
    lower: &'l str,
    rows: Vec<Vec<Cell>>,
    total: usize,
}

impl<'l> Matches<'l> {
    fn new(lower: &'l str) -> Matches<'l> {
        Matches { lower, rows: Vec::new(), total: 0 }
    }

    /// Adds an object if its row or an identifier that the row does not show has the text.
    fn add(&mut self, row: impl FnOnce() -> Vec<Cell>, is_identified: impl FnOnce() -> bool) {
        let is_full = self.rows.len() >= ROWS_MAX;
        if self.lower.is_empty() && is_full {
            self.total += 1;
            return;
        }
        let row = row();
        if has(&row, self.lower) || is_identified() {
            self.total += 1;
            if !is_full {
                self.rows.push(row);
            }
        }
    }

    fn into_table(self, heading: (&str, &str, &str), columns: &[&str]) -> Table {
        Table { total: self.total, ..Table::new(heading, columns, self.rows) }
    }
}

fn target_cell(target: &TargetState) -> Cell {
    Cell::link(&target.name, target_id(&target.name))
}

fn group_cell(target: &TargetState, group: &str) -> Cell {
    Cell::link(group, group_id(&target.name, group))
}

fn lun_row(index: &Index<'_>, (target, group, lun): ExportedLun<'_>) -> Vec<Cell> {
    let size = index.provider(&lun.provider).map_or(0, |(_, p)| p.size_bytes);
    let latency = match lun.latency_ns {
        0 => "-".to_owned(),
        ns => short_ns(ns),
    };
    let sessions = index.sessions((target, group, lun)).len();
    vec![
        Cell::link(&lun.provider, lun_id(&target.name, &group.name, lun.lun)),
        Cell::text(lun.lun.to_string()),
        Cell::health(index.lun_health((target, group, lun))),
        Cell::text(short(size)),
        Cell::text(if lun.read_only { "ro" } else { "rw" }),
        group_cell(target, &group.name),
        target_cell(target),
        Cell::text(sessions.to_string()),
        Cell::text(latency),
    ]
}

fn pending_lun_row(target: &TargetState, group: &GroupState, lost: &PendingLunState) -> Vec<Cell> {
    let mut row = vec![
        Cell::link(&lost.provider, lun_id(&target.name, &group.name, lost.lun)),
        Cell::text(lost.lun.to_string()),
        Cell::health(Health::Failed),
    ];
    row.extend(["-", "-"].map(Cell::text));
    row.extend([group_cell(target, &group.name), target_cell(target)]);
    row.extend(["0", "-"].map(Cell::text));
    row
}

fn luns(state: &SystemState, lower: &str) -> Table {
    let index = Index::new(state);
    let mut found = Matches::new(lower);
    for target in &state.targets {
        for group in &target.groups {
            for lun in &group.luns {
                found.add(|| lun_row(&index, (target, group, lun)), || is_unit(lun, lower));
            }
            for lost in &group.awaited {
                found.add(|| pending_lun_row(target, group, lost), || false);
            }
        }
    }
    let columns =
        ["provider", ">LUN", "health", ">size", "mode", "group", "target", ">sessions", ">latency"];
    found.into_table(("luns", "LUNs", "No LUN matches."), &columns)
}

fn session_row(target: &TargetState, s: &SessionState, now_ns: u64) -> Vec<Cell> {
    let oldest = match s.commands_outstanding {
        0 => "-".to_owned(),
        _ => short_ns(s.oldest_command_ns),
    };
    let actions = CellAction::end_session(target, s).into_iter().collect();
    vec![
        Cell::link(&s.initiator, session_id(target, s)),
        Cell::text(&s.address),
        Cell::text(or_dash(&s.portal)),
        target_cell(target),
        s.group.as_deref().map_or(Cell::text("-"), |group| group_cell(target, group)),
        Cell::text(s.luns_total.to_string()),
        Cell::text(or_dash(&s.auth)),
        Cell::text(s.commands_outstanding.to_string()),
        Cell::text(oldest),
        Cell::text(short_ns(now_ns.saturating_sub(s.since_ns))),
        Cell { actions, ..Cell::default() },
    ]
}

fn sessions(state: &SystemState, lower: &str) -> Table {
    let now = state.daemon.uptime_ns;
    let mut found = Matches::new(lower);
    for (target, s) in state.sessions() {
        found.add(|| session_row(target, s, now), || is_session(s, lower));
    }
    let columns = [
        "initiator",
        "address",
        "portal",
        "target",
        "group",
        ">LUNs",
        "auth",
        ">outstanding",
        ">oldest",
        ">age",
        "change",
    ];
    found.into_table(("sessions", "Sessions", "No session matches."), &columns)
}

/// Rebuilds and resyncs, with the changes that a reader can make to them.
fn rebuilds(state: &SystemState) -> Table {
    let row = |geom: &GeomState, copy: &RebuildState| {
        let paused = if copy.paused { ", paused" } else { "" };
        let progress = Cell::text(format!("{}%{paused}", copy.percent));
        let rate = |bytes: Option<u64>| bytes.map(|bytes| format!("{}/s", short(bytes)));
        let actions = CellAction::of_rebuild(geom, copy);
        vec![
            Cell::link(&geom.name, geom_id(geom)),
            Cell::text(&geom.class),
            Cell::text(&copy.part),
            Cell::text(or_dash(&copy.sources.join(", "))),
            Cell { percent: u8::try_from(copy.percent).ok(), ..progress },
            Cell::text(or_dash(&rate(copy.rate_bytes).unwrap_or_default())),
            Cell::text(or_dash(&copy.left_text().unwrap_or_default())),
            Cell::text(rate(copy.limit_bytes).unwrap_or_else(|| "none".to_owned())),
            Cell { actions, ..Cell::default() },
        ]
    };
    let rows = state.geoms.iter().flat_map(|g| g.rebuilds.iter().map(move |copy| row(g, copy)));
    let columns =
        ["geom", "class", "part", "sources", "progress", ">rate", ">left", ">limit", "change"];
    Table::new(("rebuilds", "Rebuilds", "No rebuild is running."), &columns, rows)
}

fn denied(state: &SystemState, lower: &str) -> Table {
    let rows = state.denied.iter().rev().map(|d| {
        vec![
            Cell::link(&d.initiator, initiator_id(&d.initiator)),
            Cell::text(&d.address),
            Cell::text(or_dash(&d.target)),
            Cell::text(d.times.to_string()),
            Cell::text(d.why.lines().next().unwrap_or("")),
            Cell::text(or_dash(&d.expected)),
            Cell::text(format!("ashlar access check {}", shell_word(&d.initiator))),
        ]
    });
    let rows = rows.filter(|row| has(row, lower));
    let columns = ["initiator", "address", "target", ">times", "why", "expected", "see"];
    Table::new(("denied", "Refused logins", "No login was refused."), &columns, rows)
}

/// Groups of each target: the LUNs that initiators get before any of them logs in.
fn access(state: &SystemState, lower: &str) -> Table {
    let row = |target: &TargetState, group: &GroupState| {
        let lun = |lun: &LunState| {
            format!("{} = {}{}", lun.lun, lun.provider, if lun.read_only { " ro" } else { "" })
        };
        let mut luns: Vec<String> = group.luns.iter().take(LUNS_SHOWN_MAX).map(lun).collect();
        if group.luns.len() > LUNS_SHOWN_MAX {
            luns.push(format!("... ({})", group.luns.len()));
        }
        let portals = match group.portals.is_empty() {
            true => "any".to_owned(),
            false => group.portals.join(", "),
        };
        vec![
            target_cell(target),
            group_cell(target, &group.name),
            Cell::text(or_dash(&group.initiators.join(", "))),
            Cell::text(portals),
            Cell::text(or_dash(&luns.join(", "))),
        ]
    };
    let groups = state.targets.iter().flat_map(|t| t.groups.iter().map(move |g| row(t, g)));
    let rows = groups.filter(|row| has(row, lower));
    let columns = ["target", "group", "initiators", "portals", "LUNs"];
    Table::new(("access", "Access", "No group matches."), &columns, rows)
}

/// Events, newest first.
pub fn events(events: &[Event], now_ns: u64) -> Table {
    let rows = events.iter().rev().map(|event| {
        let health = match event.level {
            crate::api::Level::Info => Health::Ok,
            crate::api::Level::Warn => Health::Degraded,
            crate::api::Level::Error => Health::Failed,
        };
        vec![
            Cell::text(event.id.to_string()),
            Cell::text(format!("{} ago", short_ns(now_ns.saturating_sub(event.at_ns)))),
            Cell { health: Some(health), ..Cell::text(or_dash(&event.about)) },
            Cell::text(&event.text),
        ]
    });
    Table::new(("events", "Events", "No events."), &[">id", ">time", "object", "event"], rows)
}

/// The cores, with their load in the last sample that `latest` has of each.
pub fn cores(state: &SystemState, latest: impl Fn(&str) -> Option<RateSample>) -> Table {
    let row = |(number, core): (usize, &CoreState)| {
        let id = core_id(number);
        let load = latest(&id).map(|sample| sample.busy_percent());
        vec![
            Cell::link(&id, id.clone()),
            Cell {
                percent: load.map(|percent| percent.round() as u8),
                ..Cell::text(load.map_or("-".to_owned(), |percent| format!("{percent:.0}%")))
            },
            Cell::text(short_ns(core.busy_ns)),
            Cell::text(&core.port_kind),
            Cell::text(or_dash(&core.why)),
        ]
    };
    let rows = state.daemon.cores.iter().enumerate().map(row);
    let columns = ["core", "load", ">CPU time", "events by", "because"];
    Table::new(("cores", "Cores", "No cores."), &columns, rows)
}

/// The lists of a state. Rows without the searched text are left out.
pub fn lists(state: &SystemState, find: &str) -> Vec<Table> {
    let lower = find.to_lowercase();
    vec![
        rebuilds(state),
        luns(state, &lower),
        access(state, &lower),
        sessions(state, &lower),
        denied(state, &lower),
        objects::list(state, &lower),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::SessionEnd;

    #[test]
    fn rebuild_offers_the_verb_that_changes_its_state() {
        let copy = |part: &str, paused: bool| RebuildState {
            part: part.to_owned(),
            percent: 37,
            rate_bytes: Some(120 << 20).filter(|_| !paused),
            left_seconds: Some(184).filter(|_| !paused),
            paused,
            ..RebuildState::default()
        };
        let geom = |paused| GeomState {
            class: "mirror".to_owned(),
            name: "m0".to_owned(),
            rebuilds: vec![copy("d1", paused)],
            ..GeomState::default()
        };
        let state = SystemState { geoms: vec![geom(false), geom(true)], ..SystemState::default() };
        let table = rebuilds(&state);
        let texts = |row: &Vec<Cell>| row.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
        let [running, paused] = table.rows.as_slice() else { panic!("{table:?}") };
        let expected = ["m0", "mirror", "d1", "-", "37%", "120M/s", "3m04s", "none", ""];
        assert_eq!(texts(running), expected);
        assert_eq!(texts(paused)[4..7], ["37%, paused", "-", "-"]);
        for (row, verb) in [(running, "pause"), (paused, "resume")] {
            let [action, limit] = row[8].actions.as_slice() else { panic!("{row:?}") };
            assert_eq!(action.command, format!("ashlar mirror {verb} m0"));
            assert_eq!((action.verb.as_str(), action.name.as_str()), (verb, "m0"));
            assert_eq!(limit.input.as_deref(), Some("sync_rate"));
        }
    }

    #[test]
    fn copy_of_a_file_server_is_paused_by_its_switch() {
        let copy = |paused: bool| RebuildState {
            switch: Some("copying".to_owned()),
            paused,
            ..RebuildState::default()
        };
        let geom = GeomState {
            class: "fs".to_owned(),
            name: "main".to_owned(),
            rebuilds: vec![copy(false), copy(true)],
            ..GeomState::default()
        };
        let table = rebuilds(&SystemState { geoms: vec![geom], ..SystemState::default() });
        for (row, label, what) in [(0, "Pause", "off"), (1, "Resume", "on")] {
            let [action] = table.rows[row][8].actions.as_slice() else { panic!("{table:?}") };
            assert_eq!((action.label.as_str(), action.verb.as_str()), (label, "copying"));
            assert_eq!(action.value.get("what"), Some(&Value::from(what)));
            assert_eq!(action.command, format!("ashlar fs copying main {what}"));
        }
    }

    #[test]
    fn session_has_a_button_that_ends_it_if_its_driver_has_logins() {
        let session = |id: u64, isid: &str| SessionState {
            id,
            isid: isid.to_owned(),
            ..SessionState::default()
        };
        let target = |driver: &str, sessions| TargetState {
            driver: driver.to_owned(),
            sessions,
            ..TargetState::default()
        };
        let iscsi = target("iscsi", vec![session(7, "00023d000001")]);
        let session_end = SessionEnd::AccessGroup;
        let aoe = TargetState { session_end, ..target("aoe", vec![session(8, "")]) };
        let targets = vec![iscsi, aoe];
        let state = SystemState { targets, ..SystemState::default() };
        let table = sessions(&state, "");
        let [own, of_aoe] = table.rows.as_slice() else { panic!("{table:?}") };
        let [action] = own[10].actions.as_slice() else { panic!("{own:?}") };
        assert_eq!((action.class.as_str(), action.verb.as_str()), ("", "sessions.end"));
        assert_eq!(action.value.get("id"), Some(&Value::from("7")));
        assert_eq!(action.command, "ashlar sessions end 7");
        assert_eq!(action.confirm.as_deref(), Some("yes"));
        assert_eq!(of_aoe[10].actions, []);
        assert_eq!(sessions(&state, "23d000001").total, 1, "an ISID is not shown, but found");
    }

    #[test]
    fn core_has_the_load_of_the_last_sample() {
        let core = CoreState { busy_ns: 3_000_000_000, ..CoreState::default() };
        let mut state = SystemState::default();
        state.daemon.cores = vec![core.clone(), core];
        let sample = RateSample { span_ns: 10, busy_ns: 4, ..RateSample::default() };
        let table = cores(&state, |id| (id == "core:1").then(|| sample.clone()));
        let load = |row: usize| (table.rows[row][1].text.as_str(), table.rows[row][1].percent);
        assert_eq!((load(0), load(1)), (("-", None), ("40%", Some(40))));
    }

    #[test]
    fn rows_over_the_limit_are_counted_but_not_made() {
        let made = std::cell::Cell::new(0);
        let of = |lower: &str| {
            made.set(0);
            let mut found = Matches::new(lower);
            for n in 0..ROWS_MAX + 5 {
                let row = || {
                    made.set(made.get() + 1);
                    vec![Cell::text(format!("d{n}"))]
                };
                found.add(row, || n == 0);
            }
            let table = found.into_table(("t", "T", "none"), &["n"]);
            (table.rows.len(), table.total, made.get())
        };
        assert_eq!(of(""), (ROWS_MAX, ROWS_MAX + 5, ROWS_MAX));
        assert_eq!(of("d"), (ROWS_MAX, ROWS_MAX + 5, ROWS_MAX + 5));
        assert_eq!(of("d204"), (2, 2, ROWS_MAX + 5), "d0 by its identifier, and d204");
    }

    #[test]
    fn tables_say_how_many_rows_they_leave_out() {
        let rows = (0..ROWS_MAX + 5).map(|n| vec![Cell::text(n.to_string())]);
        let table = Table::new(("t", "T", "none"), &["n"], rows);
        assert_eq!((table.rows.len(), table.total), (ROWS_MAX, ROWS_MAX + 5));
    }
}
