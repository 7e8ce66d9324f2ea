//! First use of the daemon without prior knowledge, with a daemon in this process.

use daemon::Daemon;
use mgmt::api::{Error, Kind, PartAnswer};
use mgmt::config::{DaemonConfig, DiskConfig, GeomConfig, Port};
use mgmt::plan::{Action, Risk, Step};
use mgmt::{Outcome, Plant};
use serde_json::{Map, Value, json};

fn start() -> Daemon {
    let config = DaemonConfig { cores: Some(1), port: Port::Poll, ..DaemonConfig::default() };
    Daemon::start(&config).expect("a daemon")
}

fn params(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn disk(name: &str, kind: &str, of: Value) -> Action {
    let disk = DiskConfig { name: name.into(), kind: kind.into(), params: params(of) };
    Action::CreateDisk { disk }
}

fn carry(daemon: &Daemon, action: &Action) -> mgmt::api::Result<Outcome> {
    daemon.carry_out(action, &mut |_| {})
}

#[test]
fn part_show_reports_a_disk_without_a_partition_table() {
    let daemon = start();
    for name in ["m0", "m1"] {
        carry(&daemon, &disk(name, "memory", json!({ "size": 16 << 20 }))).expect("a disk");
    }
    let show = |geoms: &[&str]| {
        let answer = daemon.verb("part", "show", &json!({ "geoms": geoms }), &mut |_| {})?;
        Ok::<PartAnswer, Error>(serde_json::from_value(answer).expect("an answer"))
    };
    let none = show(&["m0"]).expect("no table is no error");
    assert!(none.tables.is_empty());
    assert!(none.warnings[0].starts_with("m0: no partition table: "), "{:?}", none.warnings);
    let create = json!({ "provider": "m1", "scheme": "gpt" });
    daemon.verb("part", "create", &create, &mut |_| {}).expect("a table");
    let both = show(&["m0", "m1"]).expect("one has a table");
    assert_eq!((both.tables.len(), both.warnings.len()), (1, 1));
    assert_eq!(show(&[]).expect("all").tables.len(), 1);
    assert_eq!(show(&["m9"]).expect_err("no such provider").kind, Kind::NotFound);
    let events = daemon.journal(0, 100);
    assert!(events.iter().any(|e| e.text == "part create: m1 created"), "{events:?}");
}

#[test]
fn configured_geoms_are_marked_and_refusals_have_a_next_command() {
    let daemon = start();
    carry(&daemon, &disk("m0", "memory", json!({ "size": 16 << 20 }))).expect("a disk");
    let geom = GeomConfig {
        name: "n0".into(),
        class: "nop".into(),
        provider: Some("m0".into()),
        members: Vec::new(),
        params: Map::new(),
    };
    carry(&daemon, &Action::CreateGeom { geom }).expect("a geom");
    let state = daemon.state().expect("a state");
    let nop = state.geoms.iter().find(|g| g.class == "nop").expect("it is there");
    assert_eq!((nop.why.as_str(), nop.configured), ("configured", true));
    let (_, provider) = state.provider("n0").expect("its provider");
    assert!(provider.why_not.iter().any(|w| w.class == "part"), "{:?}", provider.why_not);
    assert_eq!(state.daemon.cores.len(), 1);

    let lost = disk("x", "file", json!({ "path": "/nonexistent/x", "create": true, "size": 4096 }));
    let error = carry(&daemon, &lost).expect_err("no such folder");
    let next = error.next.unwrap_or_default();
    assert!(next.contains("doctor"), "{next}");
    let absent = disk("y", "file", json!({ "path": "/nonexistent/y" }));
    let step = Step::new(absent, "test", Risk::Safe);
    assert_eq!(daemon.check(&step, &[]).expect_err("no such file").kind, Kind::NotFound);
}

#[test]
fn stopped_daemon_has_no_state_instead_of_an_empty_one() {
    let daemon = start();
    carry(&daemon, &disk("m0", "memory", json!({ "size": 16 << 20 }))).expect("a disk");
    assert!(daemon.state().expect("a state").provider("m0").is_some());
    daemon.stop();
    assert_eq!(daemon.state().expect_err("stopped").kind, Kind::Stopping);
}

#[test]
fn geom_below_an_inserted_layer_is_refused() {
    let daemon = start();
    carry(&daemon, &disk("m0", "memory", json!({ "size": 16 << 20 }))).expect("a disk");
    let verb = |verb: &str, params: Value| daemon.verb("sched", verb, &params, &mut |_| {});
    verb("insert", json!({ "disks": ["m0"] })).expect("slipped in");
    let nop = |name: &str, on: &str| Action::CreateGeom {
        geom: GeomConfig {
            name: name.into(),
            class: "nop".into(),
            provider: Some(on.into()),
            members: Vec::new(),
            params: Map::new(),
        },
    };
    let under = nop("n0", "m0.sched.");
    let error = carry(&daemon, &under).expect_err("it is gone at the next start");
    assert_eq!((error.kind, error.at.as_str()), (Kind::Busy, "m0.sched."));
    assert!(error.next.clone().unwrap_or_default().contains("Write `m0`"), "{error:?}");
    let step = |action: Action| Step::new(action, "test", Risk::Safe);
    let comes = [step(disk("m9", "memory", json!({ "size": 1 << 20 })))];
    for before in [&[][..], &comes] {
        assert_eq!(daemon.check(&step(under.clone()), before).expect_err("too").kind, Kind::Busy);
    }
    carry(&daemon, &nop("n0", "m0")).expect("above the scheduler");
    let on = |daemon: &Daemon| {
        let state = daemon.state().expect("a state");
        let geom = state.geoms.iter().find(|g| g.name == "n0").expect("there");
        let provider = geom.consumers[0].provider.clone().expect("attached");
        let below = state.provider(&provider).map(|(g, _)| g.class.clone());
        (provider, below.expect("there"))
    };
    assert_eq!(on(&daemon), ("m0".to_owned(), "sched".to_owned()));
    verb("destroy", json!({ "names": ["m0.sched."] })).expect("taken out");
    assert_eq!(on(&daemon), ("m0".to_owned(), "disk".to_owned()));
}

#[test]
fn an_image_file_grows_in_place_and_never_shrinks() {
    let daemon = start();
    let path = std::env::temp_dir().join(format!("ashlar-grow-{}.img", std::process::id()));
    let of = json!({ "path": path, "create": true, "size": 1 << 20 });
    carry(&daemon, &disk("f0", "file", of)).expect("a disk");
    let resize = |size: u64| {
        daemon.verb("disk", "resize", &json!({ "name": "f0", "size": size }), &mut |_| {})
    };
    let grown = resize(2 << 20).expect("larger");
    assert_eq!((&grown["was"], &grown["size"]), (&json!(1 << 20), &json!(2 << 20)));
    let size = daemon.state().expect("a state").provider("f0").map(|(_, p)| p.size_bytes);
    assert_eq!(size, Some(2 << 20), "those above see it");
    assert!(resize(1 << 20).is_err(), "that would lose data");
    let config = |size: u64| DiskConfig {
        name: "f0".into(),
        kind: "file".into(),
        params: params(json!({ "path": path, "create": true, "size": size })),
    };
    let grow = Action::GrowDisk { from: config(2 << 20), to: config(3 << 20) };
    carry(&daemon, &grow).expect("larger");
    assert_eq!(carry(&daemon, &grow.inverse()).expect_err("smaller").kind, Kind::Usage);
    let size = daemon.state().expect("a state").provider("f0").map(|(_, p)| p.size_bytes);
    assert_eq!(size, Some(3 << 20));
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 3 << 20);
    drop(daemon);
    std::fs::remove_file(&path).expect("scratch");
}
