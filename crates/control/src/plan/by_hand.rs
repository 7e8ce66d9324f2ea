//! What was changed by hand and is not in the configuration: layers that were slipped in, which
//! are gone at the next start, and members and settings that a mirror got or lost.

use serde_json::{Map, Value};

use crate::api::{GeomState, State};
use crate::config::{Config, GeomConfig};

/// The class whose members are found by their records; what the configuration names are those that
/// it had when it was made.
pub(super) const BY_RECORD: &str = "mirror";

/// How the reason of a geom begins that a verb slipped in.
const INSERTED: &str = "inserted over ";

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// Class and name of the geom.
    pub at: String,
    /// What is so.
    pub why: String,
    /// What to write or type.
    pub fix: String,
}

/// Layers that were slipped in.
pub fn inserted(state: &State) -> Vec<ByHand> {
    let inserted = state.geoms.iter().filter(|g| !g.withering && g.why.starts_with(INSERTED));
    let layer = |g: &GeomState| ByHand {
        at: format!("{} {}", g.class, g.name),
        why: format!("{}: it is in no configuration, and gone at the next start", g.why),
        fix: format!(
            "To have it then, type that again after the start; `ashlar {} list {}` shows its \
             settings.",
            g.class, g.name
        ),
    };
    inserted.map(layer).collect()
}

/// All differences.
pub fn by_hand(config: &Config, state: &State) -> Vec<ByHand> {
    let members = |geom: &GeomConfig| {
        let now = members(geom, state)?;
        let list = now.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        Some(ByHand {
            at: format!("{} {}", geom.class, geom.name),
            why: format!("its members are {}, by its records", now.join(", ")),
            fix: format!("In ashlar.toml: members = [{list}]."),
        })
    };
    let settings = |geom: &GeomConfig| {
        let now = settings(geom, state)?;
        let list = now.iter().map(|(key, value)| format!("{key} = {value}"));
        let list = list.collect::<Vec<_>>().join(", ");
        Some(ByHand {
            at: format!("{} {}", geom.class, geom.name),
            why: format!("it works with {list}, until the next start, by `mirror configure`"),
            fix: format!("To keep that, in ashlar.toml: {list}."),
        })
    };
    let geoms = config.geom.iter();
    let geoms = geoms.flat_map(|geom| members(geom).into_iter().chain(settings(geom)));
    inserted(state).into_iter().chain(geoms).collect()
}

/// The settings of a geom that are others than its section says, as a section says them.
pub fn settings(geom: &GeomConfig, state: &State) -> Option<Map<String, Value>> {
    let runs = |g: &&GeomState| g.class == geom.class && g.name == geom.name && !g.withering;
    let here = state.geoms.iter().find(runs).filter(|g| !g.providers.is_empty())?;
    if geom.class != BY_RECORD {
        return None;
    }
    let fact = |key: &str| here.config.get(key)?.as_str();
    let (slice, flags) = (fact("Slice")?.parse::<u64>().ok()?, fact("Flags")?);
    let all: [(&str, Value, Value); 4] = [
        ("balance", fact("Balance")?.into(), "load".into()),
        ("slice", slice.into(), 4096.into()),
        ("no_failsync", flags.contains("NOFAILSYNC").into(), false.into()),
        ("no_autosync", flags.contains("NOAUTOSYNC").into(), false.into()),
    ];
    let differs = |(key, now, default): &(&str, Value, Value)| {
        geom.params.get(*key).unwrap_or(default) != now
    };
    let now = all.into_iter().filter(differs).map(|(key, now, _)| (key.to_owned(), now));
    let now: Map<String, Value> = now.collect();
    (!now.is_empty()).then_some(now)
}

/// The members that a geom has, when they are others than the configuration names. One that is away
/// is a member still.
pub fn members(geom: &GeomConfig, state: &State) -> Option<Vec<String>> {
    if geom.class != BY_RECORD {
        return None;
    }
    let here = state.geoms.iter().find(|g| g.class == geom.class && g.name == geom.name)?;
    let has = |name: &str| here.consumers.iter().any(|c| c.provider.as_deref() == Some(name));
    let is_there = |name: &str| state.provider(name).is_some();
    let kept = geom.members.iter().filter(|name| has(name) || !is_there(name));
    let came = here.consumers.iter().rev().filter_map(|c| c.provider.as_ref());
    let came = came.filter(|name| !geom.members.contains(name));
    let now: Vec<String> = kept.chain(came).cloned().collect();
    (now != geom.members).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConsumerState, ProviderState};

    #[test]
    fn members_that_came_and_went_and_layers_are_told() {
        let provider = |name: &str| ProviderState { name: name.into(), ..Default::default() };
        let disk = |name: &str| GeomState {
            class: "disk".into(),
            name: name.into(),
            providers: vec![provider(name)],
            ..Default::default()
        };
        let on = |name: &str| ConsumerState { provider: Some(name.into()), ..Default::default() };
        let mirror = |members: &[&str]| GeomState {
            class: "mirror".into(),
            name: "m".into(),
            consumers: members.iter().map(|name| on(name)).collect(),
            ..Default::default()
        };
        let state = |members: &[&str]| State {
            geoms: ["d0", "d1", "d2"].map(disk).into_iter().chain([mirror(members)]).collect(),
            ..State::default()
        };
        let geom = |members: &[&str]| GeomConfig {
            class: "mirror".into(),
            name: "m".into(),
            provider: None,
            members: members.iter().map(|name| (*name).to_owned()).collect(),
            params: serde_json::Map::new(),
        };
        let now = |configured: &[&str], has: &[&str]| members(&geom(configured), &state(has));
        assert_eq!(now(&["d0", "d1"], &["d1", "d0"]), None);
        assert_eq!(now(&["d0", "d9"], &["d0"]), None, "one is away");
        let both = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
        assert_eq!(now(&["d0"], &["d2", "d0"]), both("d0", "d2"));
        assert_eq!(now(&["d0", "d1"], &["d2", "d0"]), both("d0", "d2"), "one went");
        let mut layered = state(&["d0"]);
        layered.geoms.push(GeomState {
            class: "sched".into(),
            name: "d0.sched.".into(),
            why: "inserted over d0 by `sched insert`".into(),
            ..Default::default()
        });
        let config = Config { geom: vec![geom(&["d0", "d1"])], ..Config::default() };
        let told = by_hand(&config, &layered);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].why.contains("gone at the next start"), "{told:?}");
        assert_eq!(told[1].fix, "In ashlar.toml: members = [\"d0\"].");
    }

    #[test]
    fn settings_of_a_mirror_that_its_section_does_not_say_are_told() {
        let facts = [("Balance", "prefer"), ("Slice", "4096"), ("Flags", "NOAUTOSYNC, NOFAILSYNC")];
        let facts = facts.map(|(key, value)| (key.to_owned(), Value::from(value)));
        let mirror = GeomState {
            class: "mirror".into(),
            name: "m".into(),
            config: facts.into_iter().collect(),
            providers: vec![ProviderState { name: "mirror/m".into(), ..Default::default() }],
            ..Default::default()
        };
        let state = State { geoms: vec![mirror], ..State::default() };
        let geom = |params: &[(&str, Value)]| GeomConfig {
            class: "mirror".into(),
            name: "m".into(),
            provider: None,
            members: Vec::new(),
            params: params.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        };
        let (on, prefer) = (Value::from(true), Value::from("prefer"));
        let same = [("balance", prefer), ("no_failsync", on.clone()), ("no_autosync", on.clone())];
        assert_eq!(settings(&geom(&same), &state), None);
        let config = Config { geom: vec![geom(&[("no_failsync", on)])], ..Config::default() };
        let told = by_hand(&config, &state);
        assert_eq!(told.len(), 1, "{told:?}");
        let fix = "To keep that, in ashlar.toml: balance = \"prefer\", no_autosync = true.";
        assert_eq!(told[0].fix, fix);
    }
}
