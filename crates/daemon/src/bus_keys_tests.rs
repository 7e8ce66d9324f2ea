//! Every key of `[[bus]]`, of each kind. An edit of it leaves the disks of a running bus alone, or
//! the plan names the host that loses its disk.

use std::collections::BTreeSet;

use mgmt::api::{
    BusState, DeviceState, GeomState, ProviderState, SessionState, SystemState, TargetState,
};
use mgmt::config::{self, BusConfig, Config};
use mgmt::plan::{Action, PredictedSerials, Risk, plan};

use crate::catalog::catalog;

const TARGET: &str = "iqn.2026-11.test.ashlar:t";
const HOST: &str = "iqn.2026-11.test.ashlar:host";

/// An edit of a running bus is taken over, or the bus is opened anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BusEdit {
    Live,
    Anew,
}
use BusEdit::{Anew, Live};

/// Keys of all kinds: before and after the edit.
const OWN: &[(&str, &str, &str, BusEdit)] = &[
    ("name", "name = 'b'", "name = 'c'", Anew),
    ("kind", "", "", Anew),
    ("names", "", "names = { da7 = '1:0' }", Live),
    ("timeout_s", "", "timeout_s = 7", Live),
    ("retries", "retries = 3", "retries = 0", Live),
    ("request_deadline_s", "request_deadline_s = 9", "", Live),
];

/// Keys of one kind.
const KEYS: &[(&str, &str, &str, &str, BusEdit)] = &[
    ("iscsi", "portals", "portals = ['10.0.0.1:1']", "portals = ['[::2]:1', '10.0.0.1:1']", Live),
    ("iscsi", "target", "target = 'iqn.2026-11.t:a'", "target = 'iqn.2026-11.t:b'", Anew),
    ("iscsi", "initiator", "", "initiator = 'iqn.2026-11.t:i'", Anew),
    ("iscsi", "chap", "", "chap = { user = 'u', secret = 'abcdefghijkl' }", Live),
    ("iscsi", "mutual", "mutual = { user = 'u', secret = 'abcdefghijkm' }", "", Live),
    ("iscsi", "chap_algorithms", "", "chap_algorithms = ['md5']", Live),
    ("iscsi", "header_digest", "", "header_digest = 'require'", Live),
    ("iscsi", "data_digest", "data_digest = 'off'", "data_digest = 'allow'", Live),
    ("iscsi", "deadline_s", "deadline_s = 20", "deadline_s = 5", Live),
    ("iscsi", "luns_max", "luns_max = 100", "luns_max = 1", Live),
    ("aoe", "interfaces", "interfaces = ['e0']", "interfaces = ['e0', 'e1']", Live),
    ("aoe", "targets", "", "targets = ['1.1']", Live),
    ("aoe", "window", "", "window = 3", Live),
    ("aoe", "deadline_s", "", "deadline_s = 3", Live),
    ("aoe", "frame_life_ms", "", "frame_life_ms = 300", Live),
    ("aoe", "ask_s", "", "ask_s = 3", Live),
    ("sg", "devices", "devices = ['/dev/sg0']", "devices = ['/dev/sg0', '/dev/sg1']", Live),
    ("local", "target", "target = 'a'", "target = 'b'", Anew),
    ("local", "driver", "", "driver = 'nbd'", Anew),
    ("local", "initiator", "", "initiator = 'local:x'", Anew),
    ("virtual", "transport", "", "transport = 'sata'", Anew),
    ("virtual", "disks", "", "disks = 2", Anew),
    ("virtual", "size", "", "size = 4096", Anew),
    ("virtual", "vendor", "", "vendor = 'v'", Anew),
    ("virtual", "model", "", "model = 'm'", Anew),
    ("virtual", "revision", "", "revision = 'r'", Anew),
    ("virtual", "enclosure", "", "enclosure = 9", Anew),
    ("virtual", "multiplier", "", "multiplier = true", Anew),
    ("virtual", "drives", "", "drives = 1", Anew),
];

/// The required keys of a section of a kind, besides the edited key.
fn needs(kind: &str, key: &str) -> String {
    let first = |(k, name, from, _, _): &&(&str, &str, &'static str, &str, BusEdit)| {
        *k == kind
            && *name != key
            && ["portals", "target", "interfaces", "devices"].contains(name)
            && !from.is_empty()
    };
    KEYS.iter().filter(first).map(|(_, _, from, _, _)| format!("{from}\n")).collect()
}

fn config(kind: &str, key: &str, edited: &str) -> Config {
    let name = if key == "name" { "" } else { "name = 'b'\n" };
    let text = format!(
        "[[bus]]\n{name}kind = '{kind}'\n{}{edited}\n[[target]]\nname = '{TARGET}'\n\
         driver = 'iscsi'\nlisten = ['10.0.0.9:3260']\n[[access]]\ntarget = '{TARGET}'\n\
         group = 'all'\ninitiators = ['*']\nluns = {{ 0 = 'da0' }}\n",
        needs(kind, key)
    );
    config::read_arguments(&text, "test", &catalog()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A host has `da0` of the bus at LUN 0.
fn state() -> SystemState {
    let session = SessionState {
        initiator: HOST.into(),
        portal: "10.0.0.9:3260".into(),
        group: Some("all".into()),
        ..SessionState::default()
    };
    let target = TargetState {
        driver: "iscsi".into(),
        name: TARGET.into(),
        sessions: vec![session],
        ..TargetState::default()
    };
    let location = "iqn.2026-11.t:a,10.0.0.1:1,0".into();
    let device = DeviceState { name: "da0".into(), location, ..DeviceState::default() };
    let bus = BusState { name: "b".into(), devices: vec![device], ..BusState::default() };
    let provider = ProviderState { name: "da0".into(), r: 1, w: 1, ..ProviderState::default() };
    let geom = GeomState {
        class: "cam".into(),
        name: "da0".into(),
        rank: 1,
        providers: vec![provider],
        ..GeomState::default()
    };
    SystemState {
        buses: vec![bus],
        geoms: vec![geom],
        targets: vec![target],
        ..SystemState::default()
    }
}

fn judge(kind: &str, key: &str, (from, to): (&Config, &Config), how: BusEdit) {
    let steps = plan(from, to, (&state(), &PredictedSerials::new()), &catalog());
    if how == Live {
        let is_change = matches!(steps[0].action, Action::ModifyBus { .. });
        let is_safe = (steps.len(), steps[0].risk) == (1, Risk::Safe);
        assert!(is_change && is_safe, "{kind} {key}: {steps:?}");
        return;
    }
    let goes = |step: &mgmt::plan::Step| matches!(step.action, Action::RemoveBus { .. });
    let words = format!("disruptive: {HOST}");
    let names = steps.iter().any(|step| step.risk_text() == words);
    assert!(steps.iter().any(goes) && names, "{kind} {key}: {steps:?}");
}

#[test]
fn removed_portal_is_disruptive_for_the_hosts_of_its_disks() {
    let both = config("iscsi", "portals", "portals = ['10.0.0.1:1', '10.0.0.2:1']");
    let risk = |kept: &str| {
        let to = config("iscsi", "portals", &format!("portals = ['{kept}']"));
        let steps = plan(&both, &to, (&state(), &PredictedSerials::new()), &catalog());
        let is_change = matches!(steps[0].action, Action::ModifyBus { .. });
        assert!(is_change && steps.len() == 1, "{steps:?}");
        steps[0].risk_text()
    };
    assert_eq!(risk("10.0.0.1:1"), "safe");
    assert_eq!(risk("10.0.0.2:1"), format!("disruptive: {HOST}"));
}

#[test]
fn removed_target_interface_or_device_disrupts_hosts_of_its_disks() {
    let of = |key: &str, list: &str| {
        let kind = if key == "devices" { "sg" } else { "aoe" };
        config(kind, key, &format!("{key} = [{list}]"))
    };
    let risk = |key: &str, from: &str, to: &str| {
        let mut state = state();
        state.buses[0].devices[0].location = "e7.1".into();
        let (from, to) = (of(key, from), of(key, to));
        let steps = plan(&from, &to, (&state, &PredictedSerials::new()), &catalog());
        let is_change = matches!(steps[0].action, Action::ModifyBus { .. });
        assert!(is_change && steps.len() == 1, "{steps:?}");
        steps[0].risk_text()
    };
    let disruptive = format!("disruptive: {HOST}");
    assert_eq!(risk("targets", "'7.1', '7.2'", "'7.1'"), "safe");
    assert_eq!(risk("targets", "'7.1', '7.2'", "'7.2'"), disruptive);
    assert_eq!(risk("targets", "", "'e7.1'"), "safe");
    assert_eq!(risk("targets", "", "'7.2'"), disruptive);
    assert_eq!(risk("targets", "'7.1'", ""), "safe");
    assert_eq!(risk("interfaces", "'e0'", "'e1', 'e0'"), "safe");
    assert_eq!(risk("interfaces", "'e0', 'e1'", "'e0'"), disruptive);
    assert_eq!(risk("devices", "'/dev/sg0', '/dev/sg1'", "'/dev/sg0'"), disruptive);
}

#[test]
fn edit_of_names_disrupts_hosts_of_disks_that_get_another_name() {
    let risk = |from: &str, to: &str| {
        let of = |names: &str| config("virtual", "names", &format!("names = {{ {names} }}"));
        let (from, to) = (of(from), of(to));
        let steps = plan(&from, &to, (&state(), &PredictedSerials::new()), &catalog());
        let is_change = matches!(steps[0].action, Action::ModifyBus { .. });
        assert!(is_change && steps.len() == 1, "{steps:?}");
        steps[0].risk_text()
    };
    let disruptive = format!("disruptive: {HOST}");
    assert_eq!(risk("", "root = '0:0'"), disruptive);
    assert_eq!(risk("", "root = '0:1'"), "safe");
    assert_eq!(risk("", "da0 = '0:0'"), "safe");
    assert_eq!(risk("da0 = '0:0'", ""), "safe");
    assert_eq!(risk("", "root = 'SERIAL'"), disruptive);
    assert_eq!(risk("da0 = '0:0'", "da0 = '0:0', root = 'SERIAL'"), "safe");
    assert_eq!(risk("da0 = 'SERIAL'", "root = 'SERIAL'"), disruptive);
}

#[test]
fn bus_key_changes_keep_the_disks_or_report_the_affected_host() {
    for entry in &catalog().buses {
        let kind = entry.name.as_str();
        for (key, from, to, how) in OWN {
            let other = if *key == "kind" { "virtual" } else { kind };
            if (*key, kind) == ("kind", "virtual") {
                continue;
            }
            let pair = (config(kind, key, from), config(other, key, to));
            judge(kind, key, (&pair.0, &pair.1), *how);
        }
        for (_, key, from, to, how) in KEYS.iter().filter(|(k, ..)| *k == kind) {
            let pair = (config(kind, key, from), config(kind, key, to));
            judge(kind, key, (&pair.0, &pair.1), *how);
        }
    }
}

/// A key that is new has to be judged here.
#[test]
fn every_key_of_the_bus_schemas_is_in_the_table() {
    for entry in &catalog().buses {
        let properties = entry.schema["properties"].as_object().expect("the keys of a kind");
        let schema: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        let own = KEYS.iter().filter(|(kind, ..)| *kind == entry.name);
        let table: BTreeSet<&str> = own.map(|(_, key, ..)| *key).collect();
        assert_eq!(schema, table, "{}", entry.name);
    }
    // A key that is new for all kinds does not compile here.
    let BusConfig { name: _, kind: _, names: _, timeout_s, retries, request_deadline_s, params } =
        BusConfig::default();
    assert_eq!((timeout_s, retries, request_deadline_s, params.len()), (None, None, None, 0));
    assert_eq!(OWN.len(), 6);
}
