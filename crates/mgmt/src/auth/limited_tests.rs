//! Answers to a limited caller: none of its calls shows an object outside its scope.

use super::*;
use crate::api::{
    AttachedState, Denied, PortGroupState, SessionState, SlowRequest, SystemState, TargetState,
    TraceQuery, TraceState,
};
use crate::auth::Scope;
use crate::config::read;
use crate::fake::{FakePlant, catalog, control};
use crate::http::metrics::{self, Format};
use crate::page::{self, Query};
use crate::service::Control;
use crate::verbs::{Run, VERBS, find};
use serde_json::json;
use std::sync::Arc;
use testkit::Folder;

const CONFIG: &str = "
[[disk]]
name = 'own0'
kind = 'memory'
[[disk]]
name = 'foreign0'
kind = 'memory'
[[target]]
driver = 'iscsi'
name = 'iqn.a:own'
listen = ['127.0.0.1:1']
[[target]]
driver = 'iscsi'
name = 'iqn.a:foreign'
listen = ['127.0.0.1:2']
[[access]]
target = 'iqn.a:own'
group = 'g'
initiators = ['iqn.own:*']
luns = { 0 = 'own0' }
[[access]]
target = 'iqn.a:foreign'
group = 'foreign'
initiators = ['iqn.foreign:*']
luns = { 0 = 'foreign0' }
";

/// A daemon with two targets, each with a disk, a group and a session.
struct Site {
    control: Arc<Control>,
    plant: Arc<FakePlant>,
    _folder: Folder,
}

impl Site {
    fn new(name: &str) -> Site {
        let folder = Folder::new(name);
        let plant = Arc::new(FakePlant::new());
        let control = control(&plant, &folder);
        control.start(&read(CONFIG, "a.toml", &catalog()).expect("well-formed")).expect("started");
        let target = |name: &str, initiator: &str, group: &str, id: u64| TargetState {
            driver: "iscsi".to_owned(),
            name: name.to_owned(),
            sessions: vec![SessionState {
                id,
                initiator: initiator.to_owned(),
                group: Some(group.to_owned()),
                luns: vec![0],
                ..SessionState::default()
            }],
            ..TargetState::default()
        };
        let attached = |target: &str, unit: &str| AttachedState {
            target: target.to_owned(),
            unit: unit.to_owned(),
            ..AttachedState::default()
        };
        let ports = |name: &str, target: &str| PortGroupState {
            name: name.to_owned(),
            targets: vec![target.to_owned()],
            ..PortGroupState::default()
        };
        let denied = Denied { target: "iqn.a:foreign".to_owned(), ..Denied::default() };
        plant.set_extra(SystemState {
            targets: vec![
                target("iqn.a:own", "iqn.own:h", "g", 7),
                target("iqn.a:foreign", "iqn.foreign:h", "foreign", 8),
            ],
            denied: vec![denied],
            attached: vec![attached("iqn.a:own", "own0"), attached("iqn.a:foreign", "foreign0")],
            port_groups: vec![ports("own", "iqn.a:own"), ports("foreign", "iqn.a:foreign")],
            ..SystemState::default()
        });
        Site { control: Arc::new(control), plant, _folder: folder }
    }

    fn limited(&self, group: Option<&str>) -> Arc<Control> {
        let target = Some("iqn.a:own".to_owned());
        self.control.limited_to(&Scope { target, group: group.map(str::to_owned) })
    }
}

fn answer(control: &Control, verb: &str, params: Value) -> Result<String> {
    let Some(Run::Daemon(run)) = find(verb).map(|verb| verb.run) else {
        panic!("the daemon has no verb {verb}");
    };
    run(control, params, &mut |_| {})
}

/// Parameters of the verbs that need some.
fn params(verb: &str) -> Value {
    match verb {
        "access.check" => json!({ "initiator": "iqn.own:h" }),
        "access.who" => json!({ "lun": "own0" }),
        "rates" => json!({ "object": "own0" }),
        "sessions.end" => json!({ "id": "7", "yes": true }),
        _ => json!({}),
    }
}

#[test]
fn a10_no_verb_of_a_limited_caller_shows_objects_outside_its_scope() {
    for group in [None, Some("g")] {
        let site = Site::new(if group.is_some() { "limited-group" } else { "limited-target" });
        let control = site.limited(group);
        let is_limited_verb =
            |of: &&Permission| of.is_limited && !of.name.starts_with('/') && of.name != "alua.set";
        let verbs = PERMISSIONS.iter().filter(is_limited_verb);
        for of in verbs {
            let text = answer(&control, of.name, params(of.name)).expect(of.name);
            assert!(!text.contains("foreign"), "{}: {text}", of.name);
        }
        let all = answer(&site.control, "list", json!({})).expect("a list");
        assert!(all.contains("foreign0") && all.contains("iqn.foreign:h"), "{all}");
    }
}

#[test]
fn a10_routes_of_a_limited_caller_show_its_part() {
    let site = Site::new("limited-routes");
    let control = site.limited(Some("g"));
    let state = control.state().expect("a state");
    let figures = control.figures().expect("figures");
    let view = page::view(&control, Query::parse("")).expect("a view");
    let json = |value: serde_json::Result<String>| value.expect("JSON");
    for text in [
        json(serde_json::to_string(&state)),
        json(serde_json::to_string(&view)),
        page::render(&view),
        String::from_utf8(metrics::render(&figures, 1000, Format::Text)).expect("text"),
    ] {
        assert!(text.contains("own") && !text.contains("foreign"), "{text}");
    }
    assert!(control.journal(0, 10).is_empty(), "events about no object of the scope");
    assert_eq!(control.journal_part(0, 10), (Vec::new(), 3), "they are examined once");
    assert_eq!(control.journal_part(0, 1), (Vec::new(), 3), "whatever the limit is");
    assert_eq!(site.control.journal(0, 10).len(), 3);
}

#[test]
fn a2_session_outside_the_scope_cannot_be_ended() {
    let site = Site::new("limited-end");
    let control = site.limited(None);
    let end = |id: &str| answer(&control, "sessions.end", json!({ "id": id, "yes": true }));
    let error = end("8").expect_err("it is of another target");
    assert!(error.kind == Kind::NotFound && !error.to_string().contains("foreign"), "{error}");
    assert!(end("7").is_ok());
    assert_eq!(site.control.state().expect("a state").sessions().count(), 1);
}

#[test]
fn a2_objects_of_another_target_are_not_changed() {
    let site = Site::new("limited-change");
    let clear = |control: &Control, name: &str| {
        let params = json!({ "provider": name, "clear": true, "yes_clear": name });
        answer(control, "reservations", params)
    };
    let set = |control: &Control, group: &str| {
        answer(control, "alua.set", json!({ "group": group, "state": "standby" }))
    };
    let (target, group) = (site.limited(None), site.limited(Some("g")));
    assert!(clear(&target, "own0").is_ok() && clear(&group, "own0").is_ok());
    assert!(set(&target, "own").is_ok());
    assert_eq!(set(&group, "own").map_err(|e| e.kind), Err(Kind::Forbidden), "all its groups");
    let error = clear(&target, "foreign0").expect_err("of another target");
    assert!(error.kind == Kind::Forbidden && error.source.contains("iqn.a:own"), "{error}");
    let error = set(&target, "foreign").expect_err("of another target");
    assert_eq!(error.kind, Kind::NotFound, "it does not see the port group");
    assert!(clear(&site.control, "foreign0").is_ok() && set(&site.control, "foreign").is_ok());
}

#[test]
fn a13_values_without_keys_are_no_parameters_of_a_verb() {
    let site = Site::new("keyless");
    let verbs = VERBS.iter().filter(|verb| matches!(verb.run, Run::Daemon(_)));
    for verb in verbs {
        // A list gives a struct its fields by position: `export` its secrets, `reservations` the
        // unit that is cleared. A permission is decided by keys, which a list does not have.
        for params in [json!([true]), json!(["own0", true, "own0"]), json!([]), json!("x")] {
            let error = answer(&site.control, verb.name, params).expect_err(verb.name);
            let is_named = error.source.contains("no JSON object");
            assert!(error.kind == Kind::Usage && is_named, "{}: {error}", verb.name);
        }
    }
}

#[test]
fn a10_trace_shows_requests_of_the_target_alone() {
    let site = Site::new("limited-trace");
    let request = |id, user: &str, initiator: &str| SlowRequest {
        id,
        user: user.to_owned(),
        initiator: initiator.to_owned(),
        ..SlowRequest::default()
    };
    let own = request(1, "lun:own0", "iqn.own:h");
    let requests = vec![own.clone(), request(2, "lun:foreign0", "iqn.foreign:h")];
    site.plant.set_traced(TraceState { requests, ..TraceState::default() });
    let query = TraceQuery { after: Some(0), ..TraceQuery::default() };
    let traced = |control: &Control| control.slow_requests(&query).expect("a trace").requests;
    assert_eq!(traced(&site.limited(None)), [own]);
    assert_eq!(traced(&site.control).len(), 2);
}

#[test]
fn a10_rates_are_those_of_objects_that_the_caller_sees() {
    let site = Site::new("limited-rates");
    let rates = |name: &str| answer(&site.limited(None), "rates", json!({ "object": name }));
    assert!(rates("own0").is_ok());
    for name in ["foreign0", "disk:foreign0", "iqn.foreign:h"] {
        assert_eq!(rates(name).map_err(|e| e.kind), Err(Kind::NotFound), "{name}");
    }
}

#[test]
fn a10_attach_lists_the_luns_of_the_target_alone() {
    let site = Site::new("limited-attach");
    let params = json!({ "target": "iqn.a:own", "list": true });
    let text = answer(&site.limited(None), "attach", params.clone()).expect("a list");
    assert!(text.contains("own0") && !text.contains("foreign"), "{text}");
    assert!(answer(&site.control, "attach", params).expect("a list").contains("foreign0"));
}
