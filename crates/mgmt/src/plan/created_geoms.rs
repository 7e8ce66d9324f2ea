//! Sections of geoms that verbs made, with which a start makes them again.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::depend::name_depends_on;
use super::manual_changes::{geom_label, section};
use super::settings::{same_settings, set_params};
use crate::api::{GeomState, SystemState};
use crate::config::{Catalog, ClassFacts, Config, GeomConfig};

/// The geoms that verbs made.
#[derive(Debug, Default)]
pub struct CreatedGeoms {
    /// Their sections, those below first.
    pub sections: Vec<GeomConfig>,
    /// Class and name of geoms without a section, and why they have none.
    pub undeclared: Vec<(String, String)>,
}

impl CreatedGeoms {
    /// Those of a state; `config` is the rest of the configuration.
    pub fn of(config: &Config, state: &SystemState, catalog: &Catalog) -> CreatedGeoms {
        let disks = config.disk.iter().map(|d| d.name.clone());
        let buses = config.bus.iter().map(|b| b.name.clone());
        let geoms = config.geom.iter().map(|g| g.name.clone());
        let mut names: HashSet<String> = disks.chain(buses).chain(geoms).collect();
        let mut lost: Vec<&str> = Vec::new();
        let mut found = CreatedGeoms::default();
        for geom in state.geoms.iter().filter(|geom| is_created(geom)) {
            let section = created_section(geom, catalog).and_then(|section| {
                let is_lost = |below: &&str| lost.iter().any(|one| name_depends_on(below, one));
                if let Some(below) = section.provider_names().find(is_lost) {
                    return Err(format!("no section makes {below} below it"));
                }
                match names.insert(section.name.clone()) {
                    true => Ok(section),
                    false => Err("another section has its name".to_owned()),
                }
            });
            match section {
                Ok(section) => found.sections.push(section),
                Err(why) => {
                    lost.extend(geom.providers.iter().map(|p| p.name.as_str()));
                    found.undeclared.push((geom_label(geom), why));
                }
            }
        }
        found
    }

    /// Whether a geom, by class and name, is one of those with a section.
    pub fn has_section(&self, object: &str) -> bool {
        self.sections.iter().any(|geom| object == format!("{} {}", geom.class, geom.name))
    }

    /// The reason why a geom has no section; `None` for one that has, or that no verb made.
    pub fn reason(&self, object: &str) -> Option<&str> {
        let found = self.undeclared.iter().find(|(of, _)| of == object);
        found.map(|(_, why)| why.as_str())
    }
}

/// Whether a verb made it, and no section.
pub(super) fn is_created(geom: &GeomState) -> bool {
    !geom.withering && !geom.configured && geom.why == geom::MADE_BY_VERB
}

/// The section of a geom that a verb made, or why it has none.
pub(super) fn created_section(geom: &GeomState, catalog: &Catalog) -> Result<GeomConfig, String> {
    let class = catalog.classes.iter().find(|e| e.name == geom.class && e.configurable);
    let Some(class) = class else { return Err("no section makes a geom of its class".to_owned()) };
    let facts = catalog.facts(&geom.class);
    if facts.keeps_records {
        let why = format!(
            "a declared {0} has records on its members (`ashlar {0} label` writes them)",
            geom.class
        );
        return Err(why);
    }
    if geom.providers.is_empty() || geom.consumers.iter().any(|c| c.provider.is_none()) {
        return Err("a provider below it is missing".to_owned());
    }
    let mut config = section(geom, fixed_params(geom, &class.schema, facts));
    if !facts.lists_members && config.members.len() == 1 {
        config.provider = config.members.pop();
    }
    set_params(&mut config, geom.settings.clone());
    Ok(config)
}

/// Keys that do not change while the geom is used, as it shows them.
fn fixed_params(geom: &GeomState, schema: &Value, facts: ClassFacts) -> Map<String, Value> {
    let keys = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let fixed = keys.filter(|(key, _)| !geom.settings.contains_key(*key));
    let param = |(key, schema): (&String, &Value)| {
        let other = facts.shown_as.iter().find(|(of, _)| of == key);
        let value = geom.config.get(other.map_or(key.as_str(), |(_, name)| *name))?;
        let text = value.as_str()?;
        let value = match is_text(schema) {
            true => Value::from(text),
            false => serde_json::from_str(text).ok()?,
        };
        Some((key.clone(), value))
    };
    fixed.filter_map(param).collect()
}

/// Whether a key has neither numbers nor truth values.
fn is_text(schema: &Value) -> bool {
    let is_other = |kind: &Value| {
        kind.as_str().is_some_and(|kind| ["boolean", "integer", "number"].contains(&kind))
    };
    match schema.get("type") {
        Some(Value::Array(kinds)) => !kinds.iter().any(is_other),
        Some(kind) => !is_other(kind),
        None => true,
    }
}

/// Adds to `base` the sections of geoms that verbs made and that `desired` has as they are: no step
/// makes them. The answer is these sections.
pub fn adopt_created(
    base: &mut Config,
    desired: &Config,
    state: &SystemState,
    catalog: &Catalog,
) -> Vec<GeomConfig> {
    let mut sections = CreatedGeoms::of(base, state, catalog).sections;
    sections.retain(|section| {
        let wanted = desired.geom(&section.name).filter(|wanted| wanted.class == section.class);
        wanted.is_some_and(|wanted| same_settings(section, wanted, state, catalog))
    });
    base.geom.extend(sections.iter().cloned());
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConsumerState, ProviderState};
    use crate::config::{Entry, FactsOf};
    use crate::fake::class_facts;
    use schemars::JsonSchema;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct StripParams {
        strip: u64,
        word: Option<String>,
    }

    fn geom_state(class: &str, name: &str, below: &[&str], values: &[(&str, &str)]) -> GeomState {
        let on = |name: &&str| ConsumerState {
            provider: Some((*name).to_owned()),
            ..ConsumerState::default()
        };
        let values = values.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text)));
        GeomState {
            class: class.into(),
            name: name.into(),
            why: geom::MADE_BY_VERB.into(),
            // The newest first, as a graph has them.
            consumers: below.iter().rev().map(on).collect(),
            providers: vec![ProviderState {
                name: format!("{class}/{name}"),
                ..ProviderState::default()
            }],
            config: values.collect(),
            ..GeomState::default()
        }
    }

    #[test]
    fn geoms_made_by_verbs_have_sections_or_a_reason() {
        let entry = |class: &str| Entry::of::<StripParams>(class, "A class.");
        let classes = ["stripe", "nop", "mirror"].map(entry).to_vec();
        let class_facts: Option<FactsOf> = Some(class_facts);
        let catalog = Catalog { classes, class_facts, ..Catalog::default() };
        let values = [("Stripesize", "8192"), ("word", "7"), ("State", "UP")];
        let geoms = vec![
            geom_state("stripe", "r", &["d1", "d0"], &values),
            geom_state("nop", "n", &["d2"], &[]),
            geom_state("mirror", "m", &["d3"], &[]),
            geom_state("nop", "above", &["mirror/m"], &[]),
            geom_state("nop", "r", &["d4"], &[]),
            geom_state("secret", "s", &["d5"], &[]),
        ];
        let state = SystemState { geoms, ..SystemState::default() };
        let found = CreatedGeoms::of(&Config::default(), &state, &catalog);
        let [stripe, nop] = &found.sections[..] else { panic!("{found:?}") };
        assert_eq!(stripe.members, ["d1", "d0"], "in their order");
        assert_eq!((&stripe.params["strip"], &stripe.params["word"]), (&8192.into(), &"7".into()));
        assert_eq!((nop.provider.as_deref(), nop.members.len()), (Some("d2"), 0));
        let why = |object: &str| found.reason(object).unwrap_or_default();
        assert!(why("mirror m").contains("`ashlar mirror label`"), "{found:?}");
        assert!(why("nop above").contains("mirror/m"), "{found:?}");
        assert!(why("nop r").contains("has its name"), "{found:?}");
        assert!(why("secret s").contains("its class"), "{found:?}");
        let desired = Config { geom: vec![stripe.clone()], ..Config::default() };
        let mut base = Config::default();
        assert_eq!(adopt_created(&mut base, &desired, &state, &catalog), desired.geom);
        assert_eq!(base.geom, desired.geom);
    }
}
