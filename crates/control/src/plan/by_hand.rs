//! What was changed by hand and is not in the configuration: layers that were slipped in, which
//! are gone at the next start, and members that a mirror got or lost.

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
    inserted(state).into_iter().chain(config.geom.iter().filter_map(members)).collect()
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
}
