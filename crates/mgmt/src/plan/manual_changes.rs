//! Changes by hand that are not in the configuration. They are layers and geoms that verbs made,
//! which the next start drops, and members and settings that a geom got or lost.

use serde_json::{Map, Value};

use super::created_geoms::{created_section, is_created};
use super::settings::{settings, settings_text};
use crate::api::{BusState, GeomState, SystemState};
use crate::config::{Catalog, Config, GeomConfig};

/// How the reason of a geom begins that a verb slipped in.
const INSERTED_PREFIX: &str = "inserted over ";

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualChange {
    /// Class and name of the geom, or the bus.
    pub object: String,
    /// The difference.
    pub why: String,
    /// The line to write, or the command to type.
    pub fix: String,
}

/// Where a difference is.
pub(super) fn geom_label(geom: &GeomState) -> String {
    format!("{} {}", geom.class, geom.name)
}

/// Settings that are not those of a section without keys, as an addition to a sentence.
fn changed_settings(geom: &GeomState, catalog: &Catalog) -> String {
    let bare = section(geom, Map::new());
    let usual = catalog.settings(&bare);
    let differs = |(key, value): &(&String, &Value)| usual.get(*key) != Some(*value);
    let own = geom.settings.iter().filter(differs);
    let own: Map<String, Value> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    if own.is_empty() { String::new() } else { format!(" with {}", settings_text(&own)) }
}

/// A section for a geom that has none.
pub(super) fn section(geom: &GeomState, params: Map<String, Value>) -> GeomConfig {
    let below = geom.consumers.iter().rev().filter_map(|c| c.provider.clone());
    GeomConfig {
        class: geom.class.clone(),
        name: geom.name.clone(),
        provider: None,
        members: below.collect(),
        params,
    }
}

/// Layers, geoms and buses that verbs made and the next start does not make.
pub fn inserted(state: &SystemState, catalog: &Catalog) -> Vec<ManualChange> {
    let inserted =
        state.geoms.iter().filter(|g| !g.withering && g.why.starts_with(INSERTED_PREFIX));
    let layer = |g: &GeomState| ManualChange {
        object: geom_label(g),
        why: format!("{}: not in the configuration, so removed at the next start", g.why),
        fix: format!(
            "To restore it, repeat that command after the start{}.",
            changed_settings(g, catalog)
        ),
    };
    let created = |g: &GeomState| {
        let members = section(g, Map::new()).members.join(", ");
        let class = &g.class;
        ManualChange {
            object: geom_label(g),
            why: format!("{}: not in the configuration, so removed at the next start", g.why),
            fix: match created_section(g, catalog) {
                Ok(_) => "To keep it, add its section, which `ashlar export` prints, to \
                          ashlar.toml, and run `ashlar apply`."
                    .to_owned(),
                Err(_) => format!(
                    "To keep it, write a [[geom]] section (`ashlar schema {class}`) on \
                     {members}{}, remove this geom, and run `ashlar apply`.",
                    changed_settings(g, catalog)
                ),
            },
        }
    };
    let attached = |bus: &BusState| ManualChange {
        object: format!("bus {}", bus.name),
        why: "attached by hand: not in the configuration, so removed at the next start".to_owned(),
        fix: format!(
            "To keep it, write a [[bus]] section in ashlar.toml, run `ashlar cam detach {}`, then \
             `ashlar apply`.",
            bus.name
        ),
    };
    let by_verbs = state.geoms.iter().filter(|g| is_created(g)).map(created);
    let geoms = inserted.map(layer).chain(by_verbs);
    geoms.chain(state.buses.iter().filter(|bus| !bus.configured).map(attached)).collect()
}

/// All differences.
pub fn manual_changes(
    config: &Config,
    state: &SystemState,
    catalog: &Catalog,
) -> Vec<ManualChange> {
    let members = |geom: &GeomConfig| {
        let lasts = catalog.facts(&geom.class).member_edits_last?;
        let now = members(geom, state, catalog)?;
        let list = now.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        Some(ManualChange {
            object: format!("{} {}", geom.class, geom.name),
            why: format!("members are {}, {lasts}", now.join(", ")),
            fix: format!("In ashlar.toml: members = [{list}]."),
        })
    };
    let settings = |geom: &GeomConfig| {
        let now = settings(geom, state, catalog)?;
        let then = catalog.settings(geom).into_iter().filter(|(key, _)| now.contains_key(key));
        Some(ManualChange {
            object: format!("{} {}", geom.class, geom.name),
            why: format!(
                "changed by hand: runs with {}, and from the next start with {}",
                settings_text(&now),
                settings_text(&then.collect())
            ),
            fix: format!(
                "To keep that, in ashlar.toml: {}. To undo it: `ashlar apply`.",
                settings_text(&now)
            ),
        })
    };
    let transients = |geom: &GeomState| {
        let at = geom_label(geom);
        let found = geom.transients.iter().map(move |transient| ManualChange {
            object: at.clone(),
            why: format!("until the next start: {}", transient.what),
            fix: format!("To undo it: `{}`.", transient.undo),
        });
        found.collect::<Vec<_>>()
    };
    let geoms = config.geom.iter();
    let geoms = geoms.flat_map(|geom| members(geom).into_iter().chain(settings(geom)));
    let all = inserted(state, catalog).into_iter().chain(geoms);
    all.chain(state.geoms.iter().filter(|g| !g.withering).flat_map(transients)).collect()
}

/// The members that a geom has, when they are others than the configuration names. One that is away
/// is a member still. `None` for a class whose verbs change no members.
pub fn members(geom: &GeomConfig, state: &SystemState, catalog: &Catalog) -> Option<Vec<String>> {
    catalog.facts(&geom.class).member_edits_last?;
    let live = state.geoms.iter().find(|g| g.class == geom.class && g.name == geom.name)?;
    let has = |name: &str| live.consumers.iter().any(|c| c.provider.as_deref() == Some(name));
    let exists = |name: &str| state.provider(name).is_some();
    // One that was deactivated, or has failed, counts until it is forgotten.
    let counts = live.config.get("Components").and_then(|all| all.as_str()?.parse::<usize>().ok());
    let is_short = counts.is_some_and(|all| all > live.consumers.len());
    let kept = geom.members.iter().filter(|name| has(name) || !exists(name) || is_short);
    let came = live.consumers.iter().rev().filter_map(|c| c.provider.as_ref());
    let came = came.filter(|name| !geom.members.contains(name));
    let now: Vec<String> = kept.chain(came).cloned().collect();
    (now != geom.members).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConsumerState, ProviderState, TransientState};
    use crate::fake::catalog;

    #[test]
    fn added_and_removed_members_and_inserted_layers_are_reported() {
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
        let state = |members: &[&str]| SystemState {
            geoms: ["d0", "d1", "d2"].map(disk).into_iter().chain([mirror(members)]).collect(),
            ..SystemState::default()
        };
        let geom = |members: &[&str]| GeomConfig {
            class: "mirror".into(),
            name: "m".into(),
            provider: None,
            members: members.iter().map(|name| (*name).to_owned()).collect(),
            params: serde_json::Map::new(),
        };
        let catalog = catalog();
        let now =
            |configured: &[&str], has: &[&str]| members(&geom(configured), &state(has), &catalog);
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
        let found = manual_changes(&config, &layered, &catalog);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].why.contains("removed at the next start"), "{found:?}");
        assert_eq!(found[1].fix, "In ashlar.toml: members = [\"d0\"].");
    }

    #[test]
    fn settings_absent_from_the_section_are_reported() {
        let mirror = |settings: &[(&str, Value)]| GeomState {
            class: "mirror".into(),
            name: "m".into(),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
            providers: vec![ProviderState { name: "mirror/m".into(), ..Default::default() }],
            ..Default::default()
        };
        let now = mirror(&[("balance", "prefer".into()), ("slice", 4096.into())]);
        let state = SystemState { geoms: vec![now], ..SystemState::default() };
        let geom = |params: &[(&str, Value)]| GeomConfig {
            class: "mirror".into(),
            name: "m".into(),
            provider: None,
            members: Vec::new(),
            params: params.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        };
        assert_eq!(settings(&geom(&[("balance", "prefer".into())]), &state, &catalog()), None);
        let config = Config { geom: vec![geom(&[])], ..Config::default() };
        let found = manual_changes(&config, &state, &catalog());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].why.ends_with("from the next start with balance = \"load\""), "{found:?}");
        let fix = "To keep that, in ashlar.toml: balance = \"prefer\". To undo it: `ashlar apply`.";
        assert_eq!(found[0].fix, fix);
    }

    #[test]
    fn geoms_and_buses_created_by_verbs_are_reported_with_transients() {
        let slow = TransientState { what: "it is slow".into(), undo: "ashlar fast".into() };
        let created = GeomState {
            class: "mirror".into(),
            name: "h".into(),
            why: geom::MADE_BY_VERB.into(),
            settings: [("slice".to_owned(), Value::from(8192))].into_iter().collect(),
            transients: vec![slow],
            ..Default::default()
        };
        let known = GeomState { configured: true, transients: Vec::new(), ..created.clone() };
        let bus = BusState { name: "v9".into(), ..Default::default() };
        let state =
            SystemState { geoms: vec![created, known], buses: vec![bus], ..SystemState::default() };
        let found = manual_changes(&Config::default(), &state, &catalog());
        let at: Vec<&str> = found.iter().map(|t| t.object.as_str()).collect();
        assert_eq!(at, ["mirror h", "bus v9", "mirror h"]);
        assert!(found[0].fix.contains(" with slice = 8192, "), "{found:?}");
        assert!(found[2].why.ends_with("it is slow") && found[2].fix.contains("`ashlar fast`"));
    }
}
