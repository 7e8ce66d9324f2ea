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
        let words: Vec<&str> = match arg.kind {
            ArgKind::Flag => matches.get_flag(arg.name).then_some("").into_iter().collect(),
            _ => {
                let all = matches.get_many::<String>(arg.name).into_iter().flatten();
                all.map(String::as_str).collect()
            }
        };
        for word in words {
            let at = || format!("--{}", arg.name.replace('_', "-"));
            let added = arg.add(word, &mut out);
            added.map_err(|why| Error::new(Kind::Usage, of, why).at(at()))?;
        }
    }
    Ok(Value::Object(out))
}
