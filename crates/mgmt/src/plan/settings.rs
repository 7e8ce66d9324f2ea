//! Settings of geoms that can change while they are used: those that a section gives, and those
//! that a geom works with.

use serde_json::{Map, Value};

use super::manual_changes::members;
use crate::api::{GeomState, SystemState};
use crate::config::{Catalog, Config, GeomConfig};

/// The settings of a geom that are others than its section gives; null: the section needs no such
/// key.
pub fn settings(
    geom: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> Option<Map<String, Value>> {
    let live = running_geom(geom, state)?;
    let given = catalog.settings(geom);
    // A key of which only one of them speaks cannot be compared.
    let now = |(key, given): (&String, &Value)| {
        let now = live.settings.get(key)?;
        (now != given).then(|| (key.clone(), now.clone()))
    };
    let now: Map<String, Value> = given.iter().filter_map(now).collect();
    (!now.is_empty()).then_some(now)
}

/// The geom of a section, if it runs: it has providers, or settings that it works with.
pub(super) fn running_geom<'s>(geom: &GeomConfig, state: &'s SystemState) -> Option<&'s GeomState> {
    let is = |g: &&GeomState| g.class == geom.class && g.name == geom.name && !g.withering;
    let runs = |g: &&GeomState| !g.providers.is_empty() || !g.settings.is_empty();
    state.geoms.iter().find(is).filter(runs)
}

/// A value as TOML writes it on one line.
fn toml(value: &Value) -> String {
    let Value::Object(table) = value else { return value.to_string() };
    let is_bare = |key: &str| key.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c));
    let pair = |(key, value): (&String, &Value)| match is_bare(key) && !key.is_empty() {
        true => format!("{key} = {}", toml(value)),
        false => format!("{} = {}", Value::from(key.as_str()), toml(value)),
    };
    let pairs: Vec<String> = table.iter().map(pair).collect();
    if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
}

/// Settings as in a section.
pub(super) fn settings_text(settings: &Map<String, Value>) -> String {
    let word = |(key, value): (&String, &Value)| match value {
        Value::Null => format!("no {key}"),
        value => format!("{key} = {}", toml(value)),
    };
    settings.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The section has these settings from now on.
pub fn set_params(geom: &mut GeomConfig, settings: Map<String, Value>) {
    for (key, value) in settings {
        match value {
            Value::Null => drop(geom.params.remove(&key)),
            value => drop(geom.params.insert(key, value)),
        }
    }
}

/// Sets sections to the current settings of their geoms. Returns the changed sections as they were.
pub fn adopt_settings(
    config: &mut Config,
    state: &SystemState,
    catalog: &Catalog,
) -> Vec<GeomConfig> {
    let mut adopted = Vec::new();
    for geom in &mut config.geom {
        if let Some(now) = settings(geom, state, catalog) {
            adopted.push(geom.clone());
            set_params(geom, now);
        }
    }
    adopted
}

/// Whether two sections differ at most in members and in settings that can change while the geom
/// is used.
fn same_structure(from: &GeomConfig, to: &GeomConfig, catalog: &Catalog) -> bool {
    let rest = |geom: &GeomConfig, settings: &Map<String, Value>| {
        let mut params = geom.params.clone();
        params.retain(|key, _| !settings.contains_key(key));
        (geom.class.clone(), geom.provider.clone(), params)
    };
    let (was, is) = (catalog.settings(from), catalog.settings(to));
    // A section that its class refuses has none.
    was.is_empty() == is.is_empty() && rest(from, &was) == rest(to, &is)
}

/// Whether two sections differ at most in settings that can change while the geom is used, and in
/// that one names the members that the geom has by now.
pub(super) fn differ_in_settings(
    from: &GeomConfig,
    to: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> bool {
    let members =
        from.members == to.members || members(from, state, catalog).as_ref() == Some(&to.members);
    let known = !catalog.settings(from).is_empty();
    known && members && same_structure(from, to, catalog)
}

/// Whether the geom of a section becomes that of another one while it is used.
pub(super) fn changes_in_use(
    from: &GeomConfig,
    to: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> bool {
    differ_in_settings(from, to, state, catalog)
        || from.members != to.members
            && catalog.may_become(from, to)
            && same_structure(from, to, catalog)
}

/// Whether two sections mean the same in other words, such as a setting and its default.
pub(super) fn same_settings(
    from: &GeomConfig,
    to: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> bool {
    from == to
        || differ_in_settings(from, to, state, catalog)
            && catalog.settings(from) == catalog.settings(to)
}
