//! Arguments of a command line from the schema of a struct of parameters.
//!
//! | schema | argument |
//! |---|---|
//! | named by `POSITIONAL`: a string | by position; may be left out where the field has a default |
//! | named by `POSITIONAL`: an array | by position, at least `minItems` words |
//! | a boolean | an option without a value; not given, it is false |
//! | `enum` | an option with one of these words |
//! | an integer | an option with a number; of [`Bytes`], with a unit |
//! | [`Consent`] | an option that may be given several times |
//! | an array | an option that may be given several times |
//! | any other | an option with a text |
//!
//! `x-short` is the letter of an option, `x-hidden` keeps a field from the command line. `default`,
//! or `x-first` of a [`super::Change`], is shown behind the description, and so are the limits of a
//! number that has both, and the words of an argument by position.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ArgKind, ArgSpec};
use crate::units;

/// Name of a provider whose contents may be lost
///
/// A verb with such a field writes where users' data may be: see [`ArgKind::Consent`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "Name of a provider whose contents may be lost")]
#[schemars(extend("x-consent" = true))]
pub struct Consent(pub Vec<String>);

/// A number of bytes, which may be typed with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "", extend("x-bytes" = true))]
pub struct Bytes(pub u64);

/// The arguments of a struct of parameters, from its schema: those by position first.
pub fn arguments(schema: &Value, positional: &[&str]) -> Vec<ArgSpec> {
    let fields = || schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let needed = |key: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|all| all.iter().any(|one| one == key))
    };
    let place = |name: &&str| {
        let (key, about) = fields().find(|(key, _)| key == name)?;
        let kind = match (types(about).contains(&"array"), needed(key)) {
            (true, _) => ArgKind::Names(least(about)),
            (false, true) => ArgKind::Name,
            (false, false) => ArgKind::OptionalName,
        };
        Some(argument(key, about, kind))
    };
    let named = |(key, about): &(&String, &Value)| {
        !positional.contains(&key.as_str()) && about.get("x-hidden").is_none()
    };
    let options = fields().filter(named).map(|(key, about)| argument(key, about, option(about)));
    positional.iter().filter_map(place).chain(options).collect()
}

/// The types of a field, without null: it may be absent.
fn types(about: &Value) -> Vec<&str> {
    let all = match about.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(some)) => some.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    all.into_iter().filter(|one| *one != "null").collect()
}

fn least(about: &Value) -> u8 {
    let least = about.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    u8::try_from(least).unwrap_or(u8::MAX)
}

fn option(about: &Value) -> ArgKind {
    let is = |mark: &str| about.get(mark).is_some();
    let words = about.get("enum").and_then(Value::as_array);
    if is("x-consent") {
        return ArgKind::Consent;
    }
    if let Some(words) = words {
        let words = words.iter().filter_map(Value::as_str).map(forever).collect::<Vec<_>>();
        return ArgKind::Choice(Vec::leak(words));
    }
    match types(about).first() {
        Some(&"integer" | &"number") if is("x-bytes") => ArgKind::Bytes,
        Some(&"integer" | &"number") => ArgKind::Number,
        Some(&"boolean") => ArgKind::Flag,
        Some(&"array") => ArgKind::Texts,
        _ => ArgKind::Text,
    }
}

fn argument(key: &str, about: &Value, kind: ArgKind) -> ArgSpec {
    let text = about.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = text.trim_end_matches('.').replace('\n', " ");
    let known = [("default", "default:"), ("x-first", "initial:")].into_iter();
    let initial = known.filter_map(|(key, word)| match about.get(key)? {
        Value::Null | Value::Bool(false) | Value::Array(_) | Value::Object(_) => None,
        Value::String(none) if none.is_empty() => None,
        Value::String(value) => Some(format!(" [{word} {value}]")),
        Value::Number(n) if about.get("x-bytes").is_some() => {
            Some(format!(" [{word} {}]", units::exact(n.as_u64().unwrap_or_default())))
        }
        other => Some(format!(" [{word} {other}]")),
    });
    let limits = about.get("minimum").zip(about.get("maximum"));
    let limits = limits.map(|(least, most)| match (least.as_u64(), most.as_u64()) {
        (Some(least), Some(most)) if about.get("x-bytes").is_some() => {
            format!(" [{} to {}]", units::exact(least), units::exact(most))
        }
        _ => format!(" [{least} to {most}]"),
    });
    // A command line shows the words of an option itself.
    let words = about.get("enum").and_then(Value::as_array).filter(|_| kind.is_positional());
    let words = words.map(|words| {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        format!(" [possible values: {}]", words.join(", "))
    });
    let doc = text + &initial.chain(limits).chain(words).collect::<String>();
    let short = about.get("x-short").and_then(Value::as_str).and_then(|word| word.chars().next());
    ArgSpec { name: forever(key), short, kind, doc: forever(&doc) }
}

/// Made once for each verb of a class.
fn forever(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::schema_of;

    /// What a verb takes.
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "its schema is looked at")]
    struct TestParams {
        /// Providers.
        #[schemars(length(min = 2))]
        members: Vec<String>,
        /// Its name
        name: String,
        /// Where it is put.
        #[serde(default)]
        place: Option<String>,
        #[serde(default)]
        yes_destroy: Consent,
        /// How much
        #[serde(default = "most")]
        size: Option<Bytes>,
        /// How often
        #[serde(default = "thrice")]
        #[schemars(range(min = 1, max = 9))]
        times: u32,
        /// Anyway
        #[schemars(extend("x-short" = "f"))]
        force: bool,
        #[serde(default)]
        #[schemars(extend("x-hidden" = true))]
        again: bool,
        /// How
        #[serde(default)]
        how: Option<TestMode>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[schemars(inline)]
    #[allow(dead_code, reason = "its schema is looked at")]
    enum TestMode {
        Fast,
        Slow,
    }

    fn most() -> Option<Bytes> {
        Some(Bytes(4096))
    }

    fn thrice() -> u32 {
        3
    }

    #[test]
    fn arguments_are_derived_from_the_parameter_schema() {
        let schema = schema_of::<TestParams>();
        let args = arguments(&schema, &["name", "place", "members"]);
        let brief: Vec<_> = args.iter().map(|a| (a.name, a.short, a.kind, a.doc)).collect();
        let expected = [
            ("name", None, ArgKind::Name, "Its name"),
            ("place", None, ArgKind::OptionalName, "Where it is put"),
            ("members", None, ArgKind::Names(2), "Providers"),
            ("force", Some('f'), ArgKind::Flag, "Anyway"),
            ("how", None, ArgKind::Choice(&["fast", "slow"]), "How"),
            ("size", None, ArgKind::Bytes, "How much [default: 4KiB]"),
            ("times", None, ArgKind::Number, "How often [default: 3] [1 to 9]"),
            (
                "yes_destroy",
                None,
                ArgKind::Consent,
                "Name of a provider whose contents may be lost",
            ),
        ];
        assert_eq!(brief, expected);
    }

    #[test]
    fn possible_values_of_a_positional_argument_are_part_of_its_description() {
        let schema = schema_of::<TestParams>();
        let args = arguments(&schema, &["how"]);
        let how = args.first().map(|arg| (arg.name, arg.kind, arg.doc));
        let doc = "How [possible values: fast, slow]";
        assert_eq!(how, Some(("how", ArgKind::OptionalName, doc)));
    }

    #[test]
    fn initial_value_of_a_changed_setting_is_part_of_its_description() {
        let rate = serde_json::json!({ "type": "integer", "description": "Rate", "x-first": 5 });
        let args = arguments(&serde_json::json!({ "properties": { "rate": rate } }), &[]);
        assert_eq!(args.first().map(|arg| arg.doc), Some("Rate [initial: 5]"));
    }
}
