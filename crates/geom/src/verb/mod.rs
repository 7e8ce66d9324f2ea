//! Descriptions of verbs: enough for a command line, a manual page, completions and a check of
//! parameters, and no more. The verb itself gets one JSON object, a key an argument.
//!
//! A verb is one struct, its parameters ([`Verb`]), wherever it runs ([`Place`]); the rest here is
//! made from that.

mod args;
mod deferred;
mod params;
mod place;
mod schema;
mod typed;

use serde_json::{Map, Value};

use crate::units;

pub use args::{Bytes, Consent, arguments};
pub use deferred::{Deferred, Unfinished};
pub use params::{Change, ClassParams, Given, read};
pub use place::{At, Place};
pub use schema::schema_of;
pub use typed::{
    ClassVerb, ListedVerb, MessageAnswer, Verb, call, describe, params_schema_of, parse_params,
    specs, to_json,
};

/// A verb, as the man page of its class has it: `mirror label [-b balance] NAME PROVIDER...`.
#[derive(Clone, Copy, Debug)]
pub struct VerbSpec {
    /// The word typed.
    pub name: &'static str,
    /// One sentence, without the point at its end.
    pub doc: &'static str,
    /// More for the manual page; may be empty.
    pub detail: &'static str,
    /// Its arguments: those by position first, in their order, then options.
    pub args: &'static [ArgSpec],
    /// A command line that works, without the program's name and, if shared, the class's.
    pub example: &'static str,
    /// Writes on disks; without `--force`-like words, its refusals name the data that would be
    /// lost.
    pub writes: bool,
    /// Schema of its parameters.
    pub params: fn() -> Value,
    /// Schema of its answer.
    pub answer: fn() -> Value,
}

impl VerbSpec {
    /// The providers that the verb would write to, regardless of their content; none for a verb
    /// that requests no consent.
    pub fn overwritten_providers<'p>(&self, params: &'p Value) -> Vec<&'p str> {
        if !self.args.iter().any(|arg| arg.kind == ArgKind::Consent) {
            return Vec::new();
        }
        let one = params.get("member").into_iter();
        let all = params.get("members").and_then(Value::as_array).into_iter().flatten();
        one.chain(all).filter_map(Value::as_str).collect()
    }

    /// Reports a required list with too few words, and an example to type: the verb would do
    /// nothing and report success. `on`, the object of the verb, may be the first word of any list
    /// but that of members.
    pub fn missing_words(&self, class: &str, on: &str, params: &Value) -> Option<String> {
        self.args.iter().find_map(|arg| {
            let ArgKind::Names(least) = arg.kind else { return None };
            let given = params.get(arg.name).and_then(Value::as_array).map_or(0, Vec::len);
            let given = given + usize::from(arg.name != "members" && !on.is_empty());
            (given < usize::from(least)).then(|| {
                let (name, verb) = (arg.name, self.name);
                // An example contains the class only where several classes share it.
                let example = self.example.strip_prefix(class).unwrap_or(self.example).trim_start();
                format!(
                    "{class} {verb}: `{name}` has {given} words and needs {least} ({}): for \
                     example `ashlar {class} {example}`",
                    arg.doc
                )
            })
        })
    }
}

/// One argument of a verb.
#[derive(Clone, Copy, Debug)]
pub struct ArgSpec {
    /// Key in the parameters, and the long option: lower case, words joined by `_`.
    pub name: &'static str,
    /// The letter of the option in GEOM's man page.
    pub short: Option<char>,
    pub kind: ArgKind,
    /// One sentence with unit and default.
    pub doc: &'static str,
}

impl ArgSpec {
    /// Adds a word that was typed for it to the parameters of a verb. A flag has no word.
    ///
    /// # Errors
    ///
    /// The word, and why it is no number.
    pub fn add(&self, text: &str, params: &mut Map<String, Value>) -> Result<(), String> {
        let value = match self.kind {
            ArgKind::Flag => Value::Bool(true),
            ArgKind::Number | ArgKind::Bytes => {
                let number = units::size(text);
                number.map_err(|e| format!("`{text}` is not a number: {e}"))?.into()
            }
            ArgKind::Names(_) | ArgKind::Texts | ArgKind::Consent => {
                let all = params.entry(self.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Some(all) = all.as_array_mut() {
                    all.push(text.into());
                }
                return Ok(());
            }
            _ => Value::from(text),
        };
        params.insert(self.name.to_owned(), value);
        Ok(())
    }
}

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgKind {
    /// By position, one word that must be given: a string.
    Name,
    /// By position, one word that may be left out: a string.
    OptionalName,
    /// By position, at least this many words: an array of strings.
    Names(u8),
    /// An option without a value: a boolean.
    Flag,
    /// An option with a text.
    Text,
    /// An option that may be given several times: an array of strings.
    Texts,
    /// An option with one of these words.
    Choice(&'static [&'static str]),
    /// An option that may be given several times, each with the name of a provider whose contents
    /// may be lost: an array of strings. A verb that has it writes where users' data may be. The
    /// providers in its `members` and `member` are looked at before it is called.
    Consent,
    /// An option with a number.
    Number,
    /// An option with a number of bytes; units are allowed: a number.
    Bytes,
}

impl ArgKind {
    /// Whether it is given by position, not as an option.
    pub fn is_positional(self) -> bool {
        matches!(self, ArgKind::Name | ArgKind::OptionalName | ArgKind::Names(_))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{ArgKind, ArgSpec, MessageAnswer, VerbSpec, schema_of};

    const CLEAR: VerbSpec = VerbSpec {
        name: "clear",
        doc: "Clear records",
        detail: "",
        args: &[ArgSpec {
            name: "members",
            short: None,
            kind: ArgKind::Names(1),
            doc: "Providers, in order",
        }],
        example: "clear d0",
        writes: true,
        params: schema_of::<Value>,
        answer: schema_of::<MessageAnswer>,
    };
    const STOP: VerbSpec = VerbSpec {
        name: "stop",
        args: &[ArgSpec { name: "names", ..CLEAR.args[0] }],
        example: "mirror stop m",
        ..CLEAR
    };

    #[test]
    fn words_of_an_argument_become_its_parameter() {
        let mut params = Map::new();
        for (name, kind, text) in [
            ("force", ArgKind::Flag, "-f"),
            ("size", ArgKind::Bytes, "4k"),
            ("to", ArgKind::Text, "4k"),
            ("also", ArgKind::Texts, "a"),
            ("also", ArgKind::Texts, "b"),
        ] {
            let arg = ArgSpec { name, kind, ..CLEAR.args[0] };
            assert_eq!(arg.add(text, &mut params), Ok(()));
        }
        let expected = json!({ "force": true, "size": 4096, "to": "4k", "also": ["a", "b"] });
        assert_eq!(Value::Object(params.clone()), expected);
        let rate = ArgSpec { name: "rate", kind: ArgKind::Number, ..CLEAR.args[0] };
        let refused = rate.add("fast", &mut params).expect_err("it is no number");
        assert!(refused.starts_with("`fast` is not a number: "), "{refused}");
        assert_eq!(Value::Object(params), expected);
    }

    #[test]
    fn missing_names_are_reported_with_an_example() {
        let message =
            CLEAR.missing_words("mirror", "", &json!({ "members": [] })).expect("none is named");
        assert_eq!(
            message,
            "mirror clear: `members` has 0 words and needs 1 (Providers, in order): for example \
             `ashlar mirror clear d0`"
        );
        assert!(CLEAR.missing_words("mirror", "m", &json!({})).is_some());
        assert_eq!(CLEAR.missing_words("mirror", "", &json!({ "members": ["d0"] })), None);
        let message = STOP.missing_words("mirror", "", &json!({})).expect("none is named");
        assert!(message.contains("`ashlar mirror stop m`"), "{message}");
        assert_eq!(STOP.missing_words("mirror", "m", &json!({})), None);
    }
}
