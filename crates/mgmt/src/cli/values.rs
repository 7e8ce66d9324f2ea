//! Conversion of typed arguments to the JSON parameters of the verb.

use super::classes::ClassVerbs;
use crate::api::{Error, Kind, Result};
use crate::verbs::{Entry, find};
use clap::ArgMatches;
use geom::{ArgKind, ArgSpec};
use serde_json::{Map, Value};

/// The typed verb and its arguments. A class's verb is a call of `geom`.
pub fn typed_verb<'a>(
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

/// The parameters of a verb, which errors call `of`. Arguments that were not typed are left out, so
/// that their defaults hold.
///
/// # Errors
/// [`Kind::Usage`] for a text where a number is wanted.
pub fn params<'a>(
    of: &str,
    args: impl IntoIterator<Item = &'a ArgSpec>,
    matches: &ArgMatches,
) -> Result<Value> {
    let mut out = Map::new();
    for arg in args {
        let value = match arg.kind {
            ArgKind::Flag => matches.get_flag(arg.name).then_some(Value::Bool(true)),
            ArgKind::Names(_) | ArgKind::Consent | ArgKind::Texts => {
                let all = matches.get_many::<String>(arg.name).into_iter().flatten();
                let all: Vec<Value> = all.map(|v| Value::from(v.as_str())).collect();
                (!all.is_empty()).then_some(Value::Array(all))
            }
            _ => {
                let text = matches.get_one::<String>(arg.name);
                let value = text.map(|text| arg.value(text)).transpose();
                let at = || format!("--{}", arg.name.replace('_', "-"));
                value.map_err(|why| Error::new(Kind::Usage, of, why).at(at()))?
            }
        };
        out.extend(value.map(|v| (arg.name.to_owned(), v)));
    }
    Ok(Value::Object(out))
}
