//! Changes of a verb in words: the steps of an `apply`, and former and present properties of the
//! geoms of a class and of other objects.

use super::objects::Objects;
use super::{is_secret, masked};
use crate::api::{GeomState, SystemState};
use crate::plan::Step;
use crate::service::Control;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Properties of objects, as of a geom: class, name and property, each with its value.
pub(super) type Properties = BTreeMap<String, String>;

/// Objects whose properties a verb changes.
enum Source {
    /// Geoms of the class that has the verb.
    Class(String),
    /// Other objects, read with the parameters of the verb.
    Objects(Objects, Value),
    /// None that is read: the answer of the verb has its steps.
    Answer,
}

/// Properties before a verb runs.
pub struct Former {
    source: Source,
    /// Absent if none is read, and if the state could not be read.
    properties: Option<Properties>,
}

/// The steps in an answer of `apply` and `undo`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Steps {
    dry_run: bool,
    steps: Vec<StepText>,
}

#[derive(Deserialize)]
struct StepText {
    what: String,
    why: String,
}

impl Former {
    /// Reads the properties that a verb with these parameters can change.
    pub fn of(control: &Control, verb: &str, params: &Value) -> Former {
        let class = match verb.split_once('.') {
            Some(("part", _)) => Some("part"),
            _ if verb == "geom" => params.get("class").and_then(Value::as_str),
            _ => None,
        };
        let source = match (class, Objects::of(verb)) {
            (Some(class), _) => Source::Class(class.to_owned()),
            (None, Some(objects)) => Source::Objects(objects, params.clone()),
            (None, None) => Source::Answer,
        };
        let properties = present(control, &source);
        Former { source, properties }
    }

    /// The changes of the verb, which has ended with this answer.
    pub fn changes(&self, control: &Control, answer: &str) -> Vec<String> {
        if let Source::Answer = self.source {
            let done: Steps = serde_json::from_str(answer).unwrap_or_default();
            let steps = done.steps.iter().filter(|_| !done.dry_run);
            return steps.map(|step| words(&step.what, &step.why)).collect();
        }
        match (&self.properties, present(control, &self.source)) {
            (Some(before), Some(after)) => differences(before, &after),
            _ => Vec::new(),
        }
    }
}

/// The steps of a plan that was carried out.
pub fn of_steps(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| words(&step.what, &step.why)).collect()
}

fn words(what: &str, why: &str) -> String {
    format!("{what}: {why}")
}

fn present(control: &Control, source: &Source) -> Option<Properties> {
    match source {
        Source::Class(class) => control.state().ok().map(|state| properties(&state, class)),
        Source::Objects(objects, params) => objects.read(control, params).ok(),
        Source::Answer => None,
    }
}

fn properties(state: &SystemState, class: &str) -> Properties {
    let mut out = Properties::new();
    for geom in state.geoms.iter().filter(|geom| geom.class == class) {
        add_geom(geom, &mut out);
    }
    out
}

fn add_geom(geom: &GeomState, out: &mut Properties) {
    let of = |property: &str| format!("{} {} {property}", geom.class, geom.name);
    out.insert(of("state"), geom.state.clone());
    for (key, value) in [&geom.config, &geom.settings].into_iter().flat_map(Map::iter) {
        let text = match value {
            _ if is_secret(key) => "***".to_owned(),
            Value::String(text) => text.clone(),
            other => masked(other).to_string(),
        };
        out.insert(of(key), text);
    }
    for transient in &geom.transients {
        out.insert(of(&transient.what), "until the next start".to_owned());
    }
    for member in &geom.consumers {
        let name = member.provider.as_deref().unwrap_or("none");
        out.insert(of(&format!("member {name}")), member.state.clone());
    }
    for provider in &geom.providers {
        let size = format!("{} bytes", provider.size_bytes);
        out.insert(of(&format!("provider {}", provider.name)), size);
    }
}

/// The properties that differ, each with its former and its present value.
pub(super) fn differences(before: &Properties, after: &Properties) -> Vec<String> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |of: &Properties, key: &String| {
        of.get(key).map(String::as_str).filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
    };
    let differing = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    differing.map(|key| format!("{key}: {} -> {}", value(before, key), value(after, key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ConsumerState;
    use crate::fake::{FakePlant, control, geom_state};
    use serde_json::json;
    use std::path::Path;
    use std::sync::Arc;

    fn mirror(rate: u64, members: &[(&str, &str)]) -> SystemState {
        let mut mirror = geom_state("mirror", "data", 2, &[], "mirror/data");
        mirror.settings.insert("sync_rate".to_owned(), rate.into());
        mirror.config.insert("Passphrase".to_owned(), format!("sesame{rate}").into());
        let account = json!({ "user": "u", "secret": format!("sesame{rate}") });
        mirror.config.insert("Account".to_owned(), account);
        let member = |(name, state): &(&str, &str)| ConsumerState {
            provider: Some((*name).to_owned()),
            state: (*state).to_owned(),
            ..ConsumerState::default()
        };
        mirror.consumers = members.iter().map(member).collect();
        let mut other = geom_state("nop", "slow", 2, &[], "slow");
        other.settings.insert("delay_ms".to_owned(), rate.into());
        SystemState { geoms: vec![mirror, other], ..SystemState::default() }
    }

    #[test]
    fn class_verb_is_recorded_with_former_and_present_values() {
        let plant = Arc::new(FakePlant::new());
        let control = control(&plant, Path::new("/nonexistent"));
        plant.set_extra(mirror(0, &[("d0", "ACTIVE"), ("d1", "ACTIVE")]));
        let former = Former::of(&control, "geom", &json!({ "class": "mirror" }));
        plant.set_extra(mirror(10, &[("d0", "ACTIVE"), ("d2", "NEW")]));
        let expected = [
            "mirror data member d1: ACTIVE -> -",
            "mirror data member d2: - -> NEW",
            "mirror data sync_rate: 0 -> 10",
        ];
        assert_eq!(former.changes(&control, "{}"), expected, "without another class or a secret");
    }

    #[test]
    fn steps_of_a_dry_run_are_no_changes() {
        let former = Former { source: Source::Answer, properties: None };
        let control = control(&Arc::new(FakePlant::new()), Path::new("/nonexistent"));
        let answer = |dry_run| {
            let step = json!({ "what": "change disk d0", "why": "path \"a\" -> \"b\"" });
            json!({ "dry_run": dry_run, "steps": [step] }).to_string()
        };
        let expected = ["change disk d0: path \"a\" -> \"b\""];
        assert_eq!(former.changes(&control, &answer(false)), expected);
        assert!(former.changes(&control, &answer(true)).is_empty());
        assert!(former.changes(&control, "{\"ended\":true}").is_empty());
    }
}
