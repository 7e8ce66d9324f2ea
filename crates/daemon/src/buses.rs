//! Buses of `[[bus]]` and `ashlar cam attach`, and the disks that they find later.

use std::collections::BTreeMap;
use std::sync::Arc;

use cam::{Bus, CAM_CLASS, Names};
use geom::Severity;
use mgmt::api::{Error, Kind, Level, Result};
use mgmt::config::{BusConfig, TargetConfig, secret};
use mgmt::plan::FileSection;
use serde_json::{Map, Value, json};

use crate::control_loop::ControlLoop;
use crate::errors::from_geom;
use crate::exports::Files;
use crate::initiator;

/// How long the control thread waits for the disks of a bus, ns. Near ones answer sooner; slower
/// ones are taken in when they arrive, and [`crate::startup_wait`] waits for those that are needed.
const DISK_WAIT_NS: u64 = 300_000_000;

/// Opens a bus. Its answer is worth a note when there are no disks on it yet: they may appear
/// later.
pub fn create(control_loop: &mut ControlLoop, bus: &BusConfig) -> Result<Option<String>> {
    let files = Files::of_bus(bus);
    let done = open(control_loop, bus)?;
    control_loop.exports.files.set_own(FileSection::Bus(bus.name.clone()), files);
    let Some(done) = repeat_verb(control_loop, "attach", &bus.name, done)? else {
        let why = "discovery is still running; disks are added as they are found, and `ashlar \
                   status` shows problems";
        return Ok(Some(format!("{}: {why}", bus.name)));
    };
    let none = done["found"].as_array().is_none_or(Vec::is_empty);
    Ok(none.then(|| format!("{}: {}", bus.name, done["message"].as_str().unwrap_or(""))))
}

/// Opens the bus of a section or of `cam attach`; the answer is that of the class.
pub fn open(control_loop: &mut ControlLoop, bus: &BusConfig) -> Result<Value> {
    let mut params = bus.params.clone();
    resolve(&mut params)?;
    if initiator::is_needed_by(bus) {
        let name = control_loop.initiator.get().map_err(|e| e.at(bus.name.as_str()))?;
        params.insert("initiator".to_owned(), Value::String(name));
    }
    let published = control_loop.published.lock();
    control_loop.names.prepare_bus(&published.config);
    drop(published);
    let asked = json!({
        "kind": bus.kind, "params": params, "names": bus.names, "bounds": bounds(bus),
    });
    control_loop.call_verb(CAM_CLASS, "attach", &bus.name, &asked)
}

/// Reads the secrets of a bus again: its next login proves itself with them.
pub fn renew(control_loop: &mut ControlLoop, bus: &BusConfig) -> Result<()> {
    let (op, name) = ("read files anew", bus.name.as_str());
    let none = || Error::new(Kind::NotFound, op, "no such bus").at(name);
    let open = control_loop.cam.bus(name).ok_or_else(none)?;
    let files = Files::of_bus(bus);
    let mut params = bus.params.clone();
    resolve(&mut params)?;
    open.sim().update_params(&Value::Object(params)).map_err(|e| from_geom(op, name, e))?;
    control_loop.exports.files.set_own(FileSection::Bus(bus.name.clone()), files);
    Ok(())
}

/// Why a bus could not be opened, by its secrets and parameters. On a thread that may block.
pub fn check(bus: &BusConfig) -> Result<()> {
    let mut params = bus.params.clone();
    resolve(&mut params)?;
    // A local bus needs the registry of the daemon.
    let kinds = cam::sims::kinds();
    let Some(kind) = kinds.iter().find(|kind| kind.name() == bus.kind) else { return Ok(()) };
    let checked = kind.check(&bus.name, &Value::Object(params));
    checked.map_err(|e| from_geom("open bus", &bus.name, e))
}

/// How long requests to disks of a bus may take, if its section sets it.
fn bounds(bus: &BusConfig) -> Value {
    let numbers = [
        ("timeout_s", bus.timeout_s),
        ("retries", bus.retries.map(u32::from)),
        ("request_deadline_s", bus.request_deadline_s),
    ];
    let fields = numbers.into_iter().filter_map(|(key, n)| Some((key.to_owned(), n?.into())));
    Value::Object(fields.collect())
}

/// Changes the bounds, terms and names of a running bus.
pub fn modify(control_loop: &mut ControlLoop, bus: &BusConfig) -> Result<()> {
    let refuse = |why: String| Error::new(Kind::NotFound, "change bus", why).at(bus.name.as_str());
    let running =
        control_loop.cam.bus(&bus.name).ok_or_else(|| refuse("it is not running".into()))?;
    let bounds = serde_json::from_value(bounds(bus)).map_err(|e| refuse(e.to_string()))?;
    check_names(control_loop, bus, &running)?;
    renew(control_loop, bus)?;
    running.set_bounds(bounds);
    running.set_names(Names { by_name: bus.names.clone() });
    running.set_luns_max(u32::try_from(bus.luns_max()).unwrap_or(u32::MAX));
    Ok(())
}

/// Refuses names for disks of a running bus that other providers have.
fn check_names(control_loop: &ControlLoop, bus: &BusConfig, running: &Bus) -> Result<()> {
    let own = running.devices();
    let topology = &control_loop.control.topology;
    let is_taken = |name: &&String| {
        topology.find(name.as_str()).is_some() && !own.iter().any(|(.., disk)| disk == *name)
    };
    let Some(name) = bus.names.keys().find(is_taken) else { return Ok(()) };
    let why = format!("names: another provider is called `{name}`");
    let next = format!("Choose another name than `{name}` in `names` of bus {}.", bus.name);
    Err(Error::new(Kind::Exists, "change bus", why).at(bus.name.as_str()).next(next))
}

/// Repeats an unfinished verb for a moment, because later steps may need its result. None: it
/// continues in the background, and its finds are still taken in ([`look`]).
fn repeat_verb(
    control_loop: &mut ControlLoop,
    verb: &str,
    on: &str,
    mut done: Value,
) -> Result<Option<Value>> {
    let end = control_loop.control.now_ns().saturating_add(DISK_WAIT_NS);
    while let Some(so_far) = done.get("unfinished") {
        if control_loop.control.now_ns() >= end {
            return Ok(None);
        }
        let again = so_far["again"].clone();
        done = control_loop.call_verb(CAM_CLASS, verb, on, &again)?;
    }
    Ok(Some(done))
}

/// Closes a bus; one that is closed stays closed.
pub fn remove(control_loop: &mut ControlLoop, name: &str) -> Result<()> {
    control_loop.exports.files.forget(FileSection::Bus(name.to_owned()));
    match control_loop.cam.bus(name) {
        Some(_) => control_loop.call_verb(CAM_CLASS, "detach", name, &Value::Null).map(drop),
        None => Ok(()),
    }
}

/// A target's LUNs have changed: disks of local buses are added and removed before the command
/// ends, unless one of them takes its time.
pub fn rescan_target(control_loop: &mut ControlLoop, target: &TargetConfig) {
    for number in control_loop.exports.local_buses(target) {
        let only = json!({ "buses": [number.to_string()] });
        let asked = control_loop.call_verb(CAM_CLASS, "rescan", "", &only);
        match asked.and_then(|done| repeat_verb(control_loop, "rescan", "", done)) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let text = format!(
                    "bus {number}: LUN discovery is still running; LUNs are added as they are found"
                );
                control_loop.note(Level::Info, &target.name, text);
            }
            Err(e) => control_loop.note(Level::Error, &target.name, e.source),
        }
    }
}

/// Replaces the reference to a secret by the secret itself, for the SIM.
fn resolve(params: &mut Map<String, Value>) -> Result<()> {
    for value in params.values_mut().filter_map(Value::as_object_mut) {
        let Some(Value::String(place)) = value.get_mut("secret") else { continue };
        let bytes = secret::resolve(place)?;
        *place = String::from_utf8(bytes).map_err(|_| {
            let why = "not UTF-8, as the secret of a bus must be";
            Error::new(Kind::Secret, "read secret", why).at(place.as_str())
        })?;
    }
    Ok(())
}

/// The problems last noted, by bus or disk: the reason, its grade, and the advice.
pub type NotedTroubles = BTreeMap<String, BTreeMap<String, (Severity, String)>>;

/// Notes once which disks buses cannot reach any more, and which they can reach again.
pub fn note_troubles(control_loop: &mut ControlLoop) {
    let troubles = |bus: &Arc<Bus>| {
        let whys = bus.troubles().into_iter().map(|t| (t.why, (t.severity, t.action))).collect();
        (bus.sim().facts().name, whys)
    };
    let now: NotedTroubles = control_loop.cam.buses().iter().map(troubles).collect();
    note_changes(control_loop, &control_loop.noted_troubles, &now);
    control_loop.noted_troubles = now;
}

/// Notes new problems, and problems that have ended.
pub fn note_changes(control_loop: &ControlLoop, before: &NotedTroubles, now: &NotedTroubles) {
    let none = BTreeMap::new();
    for (about, whys) in now {
        let reported = before.get(about).unwrap_or(&none);
        for (why, (severity, action)) in whys.iter().filter(|(why, _)| !reported.contains_key(*why))
        {
            let level = if *severity == Severity::Good { Level::Info } else { Level::Warn };
            control_loop.note(level, about, format!("{why}. {action}"));
        }
        for why in reported.keys().filter(|why| !whys.contains_key(*why)) {
            control_loop.note(Level::Info, about, format!("no longer true: {why}"));
        }
    }
}

/// Updates the graph with the devices that buses found by themselves.
pub fn update_graph(control_loop: &mut ControlLoop) {
    let cam = control_loop.cam.clone();
    for (bus, done) in cam.take_update_results(&mut control_loop.control) {
        match done {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                control_loop.note(Level::Info, &bus, format!("found {}", names.join(", ")))
            }
            Err(e) => control_loop.note(Level::Error, &bus, e.message),
        }
    }
}

#[cfg(test)]
#[path = "bus_keys_tests.rs"]
mod keys;

#[cfg(test)]
mod tests {
    use mgmt::config;

    use super::*;
    use crate::catalog::catalog;

    #[test]
    fn bounds_of_a_section_become_the_bounds_of_its_bus() {
        let of = |keys: &str| {
            let text = format!("[[bus]]\nname = 'b'\nkind = 'virtual'\n{keys}");
            let read = config::read_arguments(&text, "test", &catalog()).expect("a good section");
            bounds(&read.bus[0])
        };
        assert_eq!(of(""), json!({}));
        let keys = "timeout_s = 7\nretries = 0\nrequest_deadline_s = 20\n";
        let bounds = json!({ "timeout_s": 7, "retries": 0, "request_deadline_s": 20 });
        assert_eq!(of(keys), bounds);
        let read: cam::Bounds = serde_json::from_value(bounds).expect("as the bus reads it");
        let own = cam::Bounds { timeout_s: Some(7), retries: 0, request_deadline_s: 20 };
        assert_eq!(read, own);
        let usual: cam::Bounds = serde_json::from_value(of("")).expect("as the bus reads it");
        assert_eq!(usual, cam::Bounds::default());
    }

    #[test]
    fn shown_defaults_of_bounds_are_those_of_a_bus() {
        let schema = geom::schema_of::<BusConfig>();
        let shown = |key: &str| schema["properties"][key]["default"].as_u64().expect(key);
        let usual = cam::Bounds::default();
        assert_eq!(usual.timeout_s, None);
        assert_eq!(shown("timeout_s") * 1000, u64::from(cam::RW_TIMEOUT_MS));
        assert_eq!(shown("retries"), u64::from(usual.retries));
        assert_eq!(shown("request_deadline_s"), u64::from(usual.request_deadline_s));
    }
}
