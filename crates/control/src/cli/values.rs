//! What was typed, back to the JSON that the verb takes.

use super::build::kind;
use super::classes::ClassVerbs;
use crate::api::{Error, Kind, Result};
use crate::config::units;
use crate::verbs::schema::follow;
use crate::verbs::{Entry, find};
use clap::ArgMatches;
use serde_json::{Map, Value};

/// The verb that was typed and what stands behind it. A class's verb is a call of `geom`.
pub fn chosen<'a>(
    classes: &[ClassVerbs],
    matches: &'a ArgMatches,
) -> Option<(&'static Entry, &'a ArgMatches)> {
    let (name, of) = matches.subcommand()?;
    match of.subcommand() {
        Some((_, of)) if classes.iter().any(|c| c.name == name) => Some((find("geom")?, of)),
        Some((inner, of)) => Some((find(&format!("{name}.{inner}"))?, of)),
        None => Some((find(name)?, of)),
    }
}

/// The verb's parameters. What was not typed is left out, so that its default holds.
///
/// # Errors
/// [`Kind::Usage`] for a text where a number is wanted.
pub fn params(entry: &Entry, matches: &ArgMatches) -> Result<Value> {
    let schema = (entry.params)();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut out = Map::new();
    for (key, property) in properties.into_iter().flatten() {
        if property.get("x-hidden").is_some() {
            continue;
        }
        let inner = follow(&schema, property);
        match kind(inner) {
            "boolean" => {
                if matches.get_flag(key) {
                    out.insert(key.clone(), Value::Bool(true));
                }
            }
            "array" => {
                let all = matches.get_many::<String>(key).into_iter().flatten();
                let list: Vec<Value> = all.map(|v| Value::from(v.as_str())).collect();
                if !list.is_empty() {
                    out.insert(key.clone(), Value::Array(list));
                }
            }
            "integer" => {
                if let Some(text) = matches.get_one::<String>(key) {
                    let wrong = |e| {
                        let why = format!("`{text}` is not a number: {e}");
                        Error::new(Kind::Usage, entry.words(), why).at(format!("--{key}"))
                    };
                    let n = units::size(text).map_err(wrong)?;
                    out.insert(key.clone(), Value::from(n));
                }
            }
            _ => {
                if let Some(text) = matches.get_one::<String>(key) {
                    out.insert(key.clone(), Value::from(text.as_str()));
                }
            }
        }
    }
    Ok(Value::Object(out))
}
