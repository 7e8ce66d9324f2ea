//! The rendered page: complete without a script, and safe with names of any content.

use super::*;
use crate::api::{
    Denied, Error, GroupState, Health, Kind, LunCounters, LunState, PendingLunState, RebuildState,
    SessionState, TargetHealth, TargetState, TroubleState,
};
use crate::fake::{FakePlant, catalog, geom_state};
use crate::service::Archive;
use std::sync::Arc;

/// A name as a hostile initiator or medium may have it.
const EVIL: &str = "</title><script>alert(1)</script>\"'&\u{202e}\u{1b}[31m";

/// A group with these LUNs, numbered from 0.
fn group(name: &str, providers: impl Iterator<Item = String>) -> GroupState {
    let lun = |(n, provider)| LunState { lun: n, provider, ..LunState::default() };
    GroupState {
        name: name.to_owned(),
        luns: (0..).zip(providers).map(lun).collect(),
        ..GroupState::default()
    }
}

/// A mirror that rebuilds one of its two disks, with a LUN and a session.
fn state() -> SystemState {
    let mut state = SystemState::default();
    state.daemon.uptime_ns = 90_000_000_000;
    state.geoms = vec![
        geom_state("disk", "d0", 1, &[], "d0"),
        geom_state("disk", "d1", 1, &[], "d1"),
        geom_state("mirror", "m0", 2, &["d0", "d1"], "m0"),
        geom_state("lun", "m0", 3, &["m0"], "m0.lun"),
    ];
    state.geoms[2].health = Health::Degraded;
    state.geoms[2].troubles = vec![TroubleState {
        health: Health::Degraded,
        why: "d1 is being rebuilt, 37%".to_owned(),
        action: "Nothing: this ends by itself.".to_owned(),
    }];
    state.geoms[2].rebuilds = vec![RebuildState {
        part: "d1".to_owned(),
        sources: vec!["d0".to_owned()],
        percent: 37,
        rate_bytes: Some(120 << 20),
        left_seconds: Some(184),
        ..RebuildState::default()
    }];
    state.geoms[3].consumers[0].stats.in_flight = 5;
    let session = SessionState {
        initiator: EVIL.to_owned(),
        address: "10.0.0.1:4000".to_owned(),
        group: Some("hosts".to_owned()),
        luns: vec![0],
        luns_total: 1,
        ..SessionState::default()
    };
    state.targets = vec![TargetState {
        name: "iqn.a:t".to_owned(),
        groups: vec![group("hosts", ["m0".to_owned()].into_iter())],
        sessions: vec![session],
        ..TargetState::default()
    }];
    let (initiator, why) = (EVIL.to_owned(), EVIL.to_owned());
    state.denied = vec![Denied { initiator, why, ..Denied::default() }];
    state
}

fn control() -> Control {
    let archive = Archive::new(std::path::Path::new("/nonexistent"), 2);
    Control::new(Box::new(FakePlant::new()), catalog(), &Default::default(), archive)
}

fn view_at(query: &str) -> View {
    let (control, state) = (control(), state());
    let journal = control.plant().journal(0, usize::MAX);
    view_of(status_of(&control, &state), &state, &journal, Query::parse(query))
}

fn page_at(query: &str) -> String {
    render(&view_at(query))
}

#[test]
fn page_is_complete_without_a_script() {
    let text = page_at("");
    for part in [
        "<title>Ashlar: degraded</title>",
        "<span class=\"health degraded\">degraded</span>",
        "<strong>mirror m0</strong>",
        "d1 is being rebuilt, 37%",
        "Nothing: this ends by itself.",
        "<code>ashlar mirror list m0</code>",
        "<progress max=\"100\" value=\"37\">",
        "<td class=\"number\">120M/s</td>",
        "<td class=\"number\">3m04s</td>",
        "<code>ashlar mirror pause m0</code>",
        "<code>ashlar mirror configure --sync-rate BYTES m0</code>",
        "<svg viewBox=",
        "<a href=\"/?at=mirror%3Am0\" class=\"node degraded\"",
        "<h2 id=\"luns\">LUNs</h2>",
        "<td class=\"word\">0 = m0</td>",
        "<h2 id=\"sessions\">Sessions</h2>",
        "<h2 id=\"denied\">Refused logins</h2>",
        "event 3",
        "ashlar plan new.toml",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // The policy of the page allows neither.
    assert!(!text.contains(" style=") && !text.contains("<style"), "{text}");
    assert!(!text.contains(" onclick="), "{text}");
    let scripts: Vec<_> = text.matches("<script").collect();
    assert_eq!(scripts.len(), 1, "only that of the program");
}

#[test]
fn names_of_any_content_are_escaped() {
    for query in ["", "find=alert", "at=%3Cscript%3E", "find=%22%3E%3Cscript%3E"] {
        let text = page_at(query);
        assert!(!text.contains("<script>") && !text.contains("</title><script"), "{text}");
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
        assert_eq!(text.matches("</title>").count(), text.matches("<title").count(), "{text}");
    }
    assert!(page_at("").contains("&lt;script&gt;alert(1)"));
}

#[test]
fn selected_object_is_shown_in_detail_with_its_part_of_the_graph() {
    let text = page_at("at=mirror%3Am0");
    assert!(text.contains("<h2 id=\"detail\">mirror m0</h2>"), "{text}");
    assert!(text.contains("<code>ashlar tree --up m0</code>"), "{text}");
    assert!(text.contains("<h2 id=\"requests-0\">Requests of m0 since the start</h2>"), "{text}");
    let kinds = |query: &str| -> Vec<String> {
        view_at(query).graph.nodes.into_iter().map(|node| node.kind).collect()
    };
    let whole = ["disk", "disk", "mirror", "lun", "session"];
    assert_eq!(kinds("at=mirror%3Am0"), whole);
    assert_eq!(kinds("at=disk%3Ad1"), whole[1..]);
    assert_eq!(kinds("at=session%3Aiqn.a%3At/x"), whole, "it does not exist");
    assert!(kinds("find=no+such+name").is_empty());
    let text = page_at("at=disk%3Anone");
    assert!(text.contains("disk:none: no object has this identifier."), "{text}");
}

#[test]
fn initiator_is_followed_by_all_of_its_sessions() {
    let mut state = state();
    let second = SessionState {
        address: "10.0.0.2:4000".to_owned(),
        luns: Vec::new(),
        ..state.targets[0].sessions[0].clone()
    };
    let other = SessionState { initiator: "iqn.h:other".to_owned(), ..second.clone() };
    state.targets[0].sessions.extend([second, other]);
    let id = format!("session:iqn.a:t/{EVIL}/10.0.0.1:4000");
    for at in [id, format!("initiator:{EVIL}")] {
        let query = Query { at, ..Query::default() };
        let view = view_of(StatusAnswer::default(), &state, &[], query);
        let sessions = view.graph.nodes.iter().filter(|node| node.kind == "session").count();
        assert_eq!((sessions, view.graph.nodes.len()), (2, 6), "{:?}", view.graph.nodes);
    }
    let query = Query { at: "target:iqn.a:t".to_owned(), ..Query::default() };
    let view = view_of(StatusAnswer::default(), &state, &[], query);
    assert_eq!(view.graph.nodes.len(), 7);
    assert_eq!(view.detail.expect("the target").title, "target iqn.a:t");
}

#[test]
fn detail_of_a_session_has_its_requests_to_each_lun() {
    let mut state = state();
    let used = LunCounters { lun: 0, reads: 7, read_bytes: 3 << 20, ..LunCounters::default() };
    state.targets[0].sessions[0].lun_counters = vec![used];
    let at = format!("session:iqn.a:t/{EVIL}/10.0.0.1:4000");
    let view = view_of(StatusAnswer::default(), &state, &[], Query { at, ..Query::default() });
    let tables = view.detail.expect("the session").tables;
    let luns = tables.iter().find(|table| table.id == "own-luns").expect("its LUNs");
    let texts: Vec<&str> = luns.rows[0].iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(texts, ["0", "7", "3.0M", "0", "0B", "0"]);
    assert_eq!(luns.rows[0][0].at.as_deref(), Some("lun:iqn.a:t/hosts/0"));
}

#[test]
fn objects_of_tables_and_properties_lead_to_their_details() {
    let text = page_at("");
    for id in ["target%3Aiqn.a%3At", "group%3Aiqn.a%3At%2Fhosts", "initiator%3A%3C%2Ftitle"] {
        assert!(text.contains(&format!("<a href=\"/?at={id}")), "{id}: {text}");
    }
    let text = page_at("at=lun%3Aiqn.a%3At%2Fhosts%2F0");
    let (_, detail) = text.split_once("<article").expect("a detail");
    let (detail, _) = detail.split_once("</article").expect("its end");
    assert!(detail.contains("href=\"/?at=group%3Aiqn.a%3At%2Fhosts\">hosts</a>"), "{detail}");
}

#[test]
fn caller_sees_only_the_changes_that_its_role_permits() {
    let mut view = view_at("at=mirror%3Am0");
    let verbs = |view: &View| -> Vec<String> {
        let cells = view.tables.iter().flat_map(|table| table.rows.iter().flatten());
        let all = cells.flat_map(|cell| &cell.actions);
        let own = &view.detail.as_ref().expect("the mirror").actions;
        all.chain(own).map(|action| action.verb.clone()).collect()
    };
    let all = verbs(&view);
    assert!(all.contains(&"pause".to_owned()) && all.contains(&"insert".to_owned()), "{all:?}");
    view.retain_actions(|verb, params| verb != "geom" || params["verb"] == "pause");
    let left = verbs(&view);
    assert!(left.len() < all.len() && left.contains(&"pause".to_owned()), "{left:?}");
    assert!(!left.contains(&"insert".to_owned()), "{left:?}");
    view.retain_actions(|_, _| false);
    assert!(verbs(&view).is_empty());
}

#[test]
fn detail_of_a_lun_has_the_reason_of_its_health() {
    let mut state = state();
    let lost = PendingLunState { lun: 7, provider: "away".to_owned() };
    state.targets[0].groups[0].awaited = vec![lost];
    let at = |state: &SystemState, id: &str| {
        let query = Query { at: id.to_owned(), ..Query::default() };
        view_of(StatusAnswer::default(), state, &[], query).detail.expect("an object")
    };
    let lun = at(&state, "lun:iqn.a:t/hosts/0");
    assert_eq!((lun.health, lun.why.as_str()), (Health::Ok, ""));
    assert!(lun.commands.contains(&"ashlar reservations m0".to_owned()), "{:?}", lun.commands);
    let lost = at(&state, "lun:iqn.a:t/hosts/7");
    assert_eq!(lost.health, Health::Failed);
    assert!(lost.why.contains("provider away is missing"), "{}", lost.why);
    assert!(lost.tables.iter().any(|table| table.id == "properties"), "{lost:?}");
    state.targets[0].state = TargetHealth::Down;
    state.targets[0].health_why = "the port is taken".to_owned();
    let lun = at(&state, "lun:iqn.a:t/hosts/0");
    assert!(lun.health == Health::Failed && lun.why.contains("the port is taken"), "{}", lun.why);
}

#[test]
fn detail_has_the_events_of_an_object_whose_name_has_a_slash() {
    let mut state = state();
    state.geoms.push(geom_state("label", "label/l", 2, &["d0"], "label/l"));
    let event = |id: u64, about: &str| Event {
        id,
        about: about.to_owned(),
        text: format!("event of {about}"),
        ..Event::default()
    };
    let journal = [event(1, "label label/l"), event(2, "label label/xl"), event(3, "disk d0")];
    let query = Query { at: "label:label/l".to_owned(), ..Query::default() };
    let view = view_of(StatusAnswer::default(), &state, &journal, query);
    let tables = view.detail.expect("the label").tables;
    let own = tables.iter().find(|table| table.id == "own-events").expect("its events");
    assert_eq!(own.total, 1, "{own:?}");
}

#[test]
fn commands_quote_names_for_a_shell() {
    let text = page_at("");
    assert!(text.contains("ashlar access check &#39;&lt;/title&gt;"), "{text}");
    let mirror = view_at("at=mirror%3Am0").detail.expect("the mirror");
    assert!(mirror.commands.contains(&"ashlar mirror status m0".to_owned()), "{mirror:?}");
}

#[test]
fn edges_have_the_requests_in_flight_of_a_unit() {
    let graph = view_at("").graph;
    assert_eq!((graph.drawn, graph.total), (5, 5));
    let is_unit = |edge: &&Edge| graph.nodes[edge.from].kind == "mirror";
    let unit = graph.edges.iter().find(is_unit).expect("the edge of the LUN");
    assert_eq!(unit.counters.map(|counters| counters.in_flight), Some(5));
    assert!(graph.nodes.iter().all(|node| node.x < graph.width && node.y < graph.height));
}

#[test]
fn detail_has_the_last_hour_as_charts_and_as_a_table() {
    let plant = Arc::new(FakePlant::new());
    let archive = Archive::new(std::path::Path::new("/nonexistent"), 2);
    let control = Control::new(Box::new(plant.clone()), catalog(), &Default::default(), archive);
    let geoms = vec![geom_state("disk", "d0", 1, &[], "d0")];
    let mut state = SystemState { geoms, ..SystemState::default() };
    for (second, reads) in [(10, 0), (20, 500)] {
        state.daemon.uptime_ns = second * 1_000_000_000;
        state.geoms[0].providers[0].stats.read.ops = reads;
        plant.set_extra(state.clone());
        control.samples().record(&control.state().expect("a state"));
    }
    let view = view(&control, Query::parse("at=disk%3Ad0")).expect("a view");
    let text = render(&view);
    let label = "aria-label=\"Requests per second of the last hour: read at most 50.0, write";
    assert!(text.contains(label), "{text}");
    assert!(text.contains("<h2 id=\"hour\">Requests of the last hour</h2>"), "{text}");
    let json = serde_json::to_value(&view).expect("JSON");
    assert_eq!(json["detail"]["tables"][0]["rows"][0][1]["text"], "500");
    assert!(json["detail"].get("charts").is_none(), "{json}");
}

#[test]
fn view_of_a_daemon_has_its_newest_event() {
    let view = view(&control(), Query::default()).expect("a state");
    assert_eq!((view.last_event, view.schema_version), (3, SCHEMA_VERSION));
}

#[test]
fn caller_without_rights_gets_no_state() {
    let error = Error::new(Kind::Unauthenticated, "log in", EVIL);
    let text = forbidden(&error, Some("/"), true);
    assert!(!text.contains("<script>"), "{text}");
    assert!(text.contains("role=\"alert\"") && !text.contains("<svg"), "{text}");
    assert!(text.ends_with("</html>"), "{text}");
}

/// 4,096 disks and 16,384 LUNs: the page stays small enough to be drawn and read.
#[test]
fn page_of_many_disks_and_luns_is_bounded() {
    let mut state = SystemState::default();
    let names: Vec<String> = (0..4096).map(|n| format!("d{n}")).collect();
    state.geoms = names.iter().map(|name| geom_state("disk", name, 1, &[], name)).collect();
    let luns = (0..16_384).map(|n| format!("d{}", n % 4096));
    let groups = vec![group("g", luns)];
    state.targets = vec![TargetState { groups, ..TargetState::default() }];
    let view = view_of(StatusAnswer::default(), &state, &[], Query::default());
    assert!(view.graph.nodes.len() <= fold::NODES_MAX, "{}", view.graph.nodes.len());
    assert_eq!((view.graph.drawn, view.graph.total), (20_480, 20_480));
    let (html, json) = (render(&view), serde_json::to_string(&view).expect("JSON"));
    assert!(html.len() < 200_000 && json.len() < 200_000, "{} {}", html.len(), json.len());
    let text = render(&view);
    assert!(text.contains("<a href=\"/?unfold=fold%3A1%3Adisk\" class=\"node ok\">"), "{text}");
    let unfold = "fold:1:disk".to_owned();
    let query = Query { unfold, ..Query::default() };
    let open = view_of(StatusAnswer::default(), &state, &[], query);
    let parts = open.graph.nodes.iter().filter(|node| node.id.starts_with("fold:1:disk:"));
    assert_eq!(parts.clone().count(), 64);
    assert!(parts.clone().all(|node| node.members == 64), "4,096 disks");
    assert_eq!(open.graph.drawn, 20_480);
    let found = view_of(
        StatusAnswer::default(),
        &state,
        &[],
        Query { find: "d4095".into(), ..Query::default() },
    );
    assert_eq!(found.graph.nodes.len(), 5, "a disk and its four LUNs");
}

#[test]
fn schemas_of_the_view_have_names_of_their_own() {
    let document = crate::http::openapi::document(&[]);
    let schemas = &document["components"]["schemas"];
    assert!(schemas["Node"]["properties"]["children"].is_object(), "that of `tree`");
    assert!(schemas["ViewNode"]["properties"]["layer"].is_object(), "that of the page");
    let view = &document["paths"]["/v1/view"]["get"];
    assert!(view["responses"]["200"]["content"]["application/json"].is_object(), "{view}");
}
