//! Effect of an edit of each key of `ashlar.toml` on running hosts, for the reference.
//!
//! Functions of the plan decide wherever they can: [`BusConfig::can_become`], [`ID_KEYS`] and the
//! settings of classes. Kinds, classes and drivers list their other keys ([`Entry::edits`]); those
//! of sections are listed here.

use super::disk_edits::{ID_KEYS, TLS_SWITCH};
use crate::config::{BusConfig, Catalog, DaemonConfig, Entry, GeomConfig};
use serde_json::{Map, Value};

/// Word of a key's schema whose value is the effect.
pub(crate) const CHANGE: &str = "x-change";

const AT_START: &str = "at the next start";
const LIVE: &str = "live";
const NEW_LOGINS: &str = "new logins only";
const LUN_AGAIN: &str = "LUN removed and added";
const OTHER_DISK: &str = "LUN removed and added: another disk for hosts";
const BUS_AGAIN: &str = "bus removed and added, with all above it";
const DISK_AGAIN: &str = "disk removed and added, with all above it";
const DATA_LOST: &str = "removed and added, with all above it: its data is lost";
const GEOM_AGAIN: &str = "geom removed and added, with all above it";
const LISTENER: &str = "live; sessions continue, a removed address accepts no logins";
const TARGET_AGAIN: &str = "target removed and added: sessions end";
const MEMBERSHIP: &str = "live; an initiator that no group names any more loses its LUNs";

/// The effect of a key of a section; `None`: no section has it.
fn section_change(section: &str, key: &str) -> Option<&'static str> {
    Some(match (section, key) {
        ("daemon", key) if DaemonConfig::LIVE_KEYS.contains(&key) => LIVE,
        ("daemon", _) => AT_START,
        ("api" | "api_client" | "webhook", _) => LIVE,
        ("bus", "kind" | "name") => BUS_AGAIN,
        ("bus", "names") => "live; only a disk that gets another name is removed and added",
        ("bus", _) => bus_change(&[], key),
        ("disk", "kind") => DISK_AGAIN,
        ("disk", "name") => "live for a disk with a path; otherwise disk removed and added",
        ("geom", "class" | "name" | "provider") => GEOM_AGAIN,
        ("geom", "members") => {
            "mirror: live; concat: live for a further member; other classes: geom removed and added"
        }
        ("target", "driver" | "name" | "port_id") => TARGET_AGAIN,
        ("target", "listen") => LISTENER,
        ("target", "port_group") => LIVE,
        ("target", "chap" | "mutual_chap" | "discovery_chap") => NEW_LOGINS,
        ("target", "header_digest" | "data_digest") => NEW_LOGINS,
        ("access", "target") => "group removed and added: its initiators lose their LUNs",
        ("access", "group") => "live; LUNs of the former group and the new one are kept",
        ("access", "initiators" | "portals") => MEMBERSHIP,
        ("access", "chap" | "initiator_chap") => NEW_LOGINS,
        ("access", "luns") => "live; only LUNs that differ are removed, added or changed",
        ("access", "addressing" | "cold_resets_target" | "read_only_reserves") => LIVE,
        ("unit", "provider") => LUN_AGAIN,
        ("unit", key) => unit_change(key)?,
        ("alua", "state") => "live; paths in an inactive state stop",
        ("alua", "explicit" | "id" | "name" | "preferred") => LIVE,
        ("lun", "mode") => "live; disruptive for hosts that use the LUN",
        ("lun", "provider") => "live; destroys if hosts use the LUN and find another disk there",
        ("lun", "serial") => OTHER_DISK,
        _ => return None,
    })
}

/// The effect of a key of `[[unit]]`, as `changed_units` withdraws LUNs.
fn unit_change(key: &str) -> Option<&'static str> {
    Some(match key {
        "sanitize" | "write_same_to_end" | "thresholds" | "vendor" | "product" | "revision" => LIVE,
        "serial" => OTHER_DISK,
        "protection" => "LUN removed and added; new protection destroys data",
        "handler" | "naa" | "uuid" | "eui64" | "read_only" | "removable" | "write_cache" => {
            LUN_AGAIN
        }
        _ => return None,
    })
}

/// The effect of a key of a bus whose kind takes over `live_keys` while it runs.
fn bus_change(live_keys: &[&str], key: &str) -> &'static str {
    let bare = BusConfig::default();
    let mut edited = bare.clone();
    match key {
        "timeout_s" => edited.timeout_s = Some(1),
        "retries" => edited.retries = Some(1),
        "request_deadline_s" => edited.request_deadline_s = Some(1),
        key => drop(edited.params.insert(key.to_owned(), Value::Null)),
    }
    if bare.can_become(&edited, live_keys) { LIVE } else { BUS_AGAIN }
}

/// The effect of a key of a kind, class or driver.
fn kind_change(section: &str, entry: &Entry, key: &str, catalog: &Catalog) -> &'static str {
    let listed = entry.edits.iter().find(|(of, _)| [key, "*"].contains(of));
    let listed = listed.map(|(_, effect)| *effect);
    match section {
        "bus" => match bus_change(entry.live_keys, key) {
            BUS_AGAIN if entry.volatile => DATA_LOST,
            LIVE => match key {
                "portals" => "live; the disks behind a removed portal are lost",
                "targets" => "live; the disks of a removed target are lost",
                "interfaces" => "live; disks that only a removed interface leads to are lost",
                "devices" => "live; the disk of a removed device is lost",
                _ => LIVE,
            },
            change => change,
        },
        "disk" => match key {
            "serial" => OTHER_DISK,
            key if ID_KEYS.contains(&key) => LUN_AGAIN,
            key if entry.live_keys.contains(&key) => match key {
                TLS_SWITCH => "next connection; disk removed and added to switch TLS on or off",
                key if key.starts_with("tls_") => "next connection",
                _ => LIVE,
            },
            _ => listed.unwrap_or(if entry.volatile { DATA_LOST } else { DISK_AGAIN }),
        },
        "geom" => {
            let section = GeomConfig {
                class: entry.name.clone(),
                name: String::new(),
                provider: None,
                members: Vec::new(),
                params: Map::new(),
            };
            let is_setting = catalog.settings(&section).contains_key(key);
            if is_setting { listed.unwrap_or(LIVE) } else { GEOM_AGAIN }
        }
        _ => listed.unwrap_or(NEW_LOGINS),
    }
}

/// Writes the effect of each key into a schema whose keys are its own or those of the first form
/// that has some.
fn annotate(schema: &mut Value, change: impl Fn(&str) -> Option<&'static str>) {
    let place = match schema.get("properties") {
        Some(_) => Some("/properties".to_owned()),
        None => {
            let forms = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
            let mut forms = forms.filter_map(|form| form.get("$ref")?.as_str()?.strip_prefix('#'));
            forms.next().map(|form| format!("{form}/properties"))
        }
    };
    let Some(place) = place else { return };
    let keys = schema.pointer_mut(&place).and_then(Value::as_object_mut);
    for (key, property) in keys.into_iter().flatten() {
        if let (Some(property), Some(change)) = (property.as_object_mut(), change(key)) {
            property.insert(CHANGE.to_owned(), change.into());
        }
    }
}

/// The schema of a section with the effect of an edit of each key.
pub(crate) fn section_schema(section: &str, mut schema: Value) -> Value {
    annotate(&mut schema, |key| section_change(section, key));
    schema
}

/// The schema of a kind, class or driver with the effect of an edit of each key.
pub(crate) fn kind_schema(section: &str, entry: &Entry, catalog: &Catalog) -> Value {
    let mut schema = entry.schema.clone();
    annotate(&mut schema, |key| Some(kind_change(section, entry, key, catalog)));
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::SystemState;
    use crate::config::{Config, UnitConfig, read};
    use crate::fake::catalog;
    use crate::plan::{Action, PredictedSerials, plan};
    use crate::verbs::schema::{rows, sections};

    /// The effects of a schema, by key.
    fn changes(schema: &Value) -> Vec<(String, String)> {
        rows(schema).into_iter().map(|row| (row[0].clone(), row[3].clone())).collect()
    }

    #[test]
    fn every_key_of_every_section_and_kind_has_its_effect() {
        for section in sections() {
            let schema = section.schema.expect("a schema");
            let all = changes(&schema);
            assert!(!all.is_empty(), "{}", section.name);
            for (key, change) in all {
                assert!(!change.is_empty(), "{}: {key} has no effect written", section.name);
            }
        }
        let catalog = catalog();
        for (section, entry) in catalog.all() {
            for (key, change) in changes(&kind_schema(section, entry, &catalog)) {
                assert!(!change.is_empty(), "{section} {}: {key}", entry.name);
            }
        }
    }

    #[test]
    fn effect_of_unit_keys_is_that_of_the_plan() {
        let text = "[[disk]]\nname='d0'\nkind='file'\npath='/a'\n\
                    [[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:t'\nlisten=['127.0.0.1:0']\n\
                    [[access]]\ntarget='iqn.2026-11.test:t'\ngroup='g'\ninitiators=['*']\n\
                    luns={ 0='d0' }\n";
        let from = read(text, "a.toml", &catalog()).expect("well-formed");
        let edits: [(&str, fn(&mut UnitConfig)); 12] = [
            ("serial", |unit| unit.serial = Some("S1".into())),
            ("naa", |unit| unit.naa = Some("5000000000000001".into())),
            ("uuid", |unit| unit.uuid = Some("12345678-1234-1234-1234-123456789abc".into())),
            ("eui64", |unit| unit.eui64 = Some("0123456789abcdef".into())),
            ("read_only", |unit| unit.read_only = true),
            ("removable", |unit| unit.removable = true),
            ("write_cache", |unit| unit.write_cache = Some(false)),
            ("sanitize", |unit| unit.sanitize = true),
            ("write_same_to_end", |unit| unit.write_same_to_end = true),
            ("thresholds", |unit| unit.thresholds = Some(vec![50])),
            ("vendor", |unit| unit.vendor = Some("ACME".into())),
            ("product", |unit| unit.product = Some("disk".into())),
        ];
        for (key, edit) in edits {
            let mut unit = UnitConfig { provider: "d0".into(), ..UnitConfig::default() };
            edit(&mut unit);
            let to = Config { unit: vec![unit], ..from.clone() };
            let known = (&SystemState::default(), &PredictedSerials::new());
            let steps = plan(&from, &to, known, &catalog());
            let withdraws = |s: &crate::plan::Step| matches!(s.action, Action::ModifyAccess { .. });
            let is_live = unit_change(key) == Some(LIVE);
            assert_eq!(steps.iter().any(withdraws), !is_live, "{key}");
        }
    }

    #[test]
    fn effects_of_kinds_are_those_of_the_plan() {
        assert_eq!(bus_change(&["window"], "window"), LIVE);
        assert_eq!(bus_change(&["window"], "interfaces"), BUS_AGAIN);
        assert_eq!(section_change("bus", "retries"), Some(LIVE));
        assert_eq!(section_change("bus", "nothing"), Some(BUS_AGAIN));
        assert_eq!(section_change("unit", "nothing"), None);
        let catalog = catalog();
        let memory = catalog.disks.iter().find(|e| e.name == "memory").expect("a kind");
        assert_eq!(kind_change("disk", memory, "size_bytes", &catalog), DATA_LOST);
        assert_eq!(kind_change("disk", memory, "naa", &catalog), LUN_AGAIN);
    }
}
