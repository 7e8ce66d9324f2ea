//! Verbs as types: the parameters (a struct), the answer and the action.
//!
//! ```text
//!   struct Destroy { names, force }  --JsonSchema-->  help, man page, completion, check
//!        impl Verb<SchedClass>       --Deserialize->  run(self, (class, control)) -> Answer
//! ```
//! A place lists its verbs once, [`ListedVerb::of`] each. A class answers [`specs`] and [`call`] of
//! its list.

use std::any::TypeId;
use std::collections::BTreeMap;

use bio::Errno;
use bio::sync::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::place::{At, Place};
use super::{ArgKind, VerbSpec, arguments, read, schema_of};
use crate::class::Class;
use crate::control::GraphControl;
use crate::error::Error;

/// A verb that runs in the place `P`; the value holds its parameters.
///
/// The struct's own doc is its help: the first paragraph one sentence, without the point at its
/// end, further ones for the manual page. Each field has a sentence. An option that is left out is
/// `None`, false, an empty list, or its `#[serde(default)]`. Other fields than these are refused,
/// and numbers beyond their `#[schemars(range(min, max))]`.
pub trait Verb<P: Place>: DeserializeOwned + JsonSchema + 'static {
    /// The word typed.
    const NAME: &'static str;
    /// The first paragraph, where it is not the struct's own.
    const DOC: &'static str = "";
    /// The further ones, where they are not the struct's own; may be empty.
    const DETAIL: &'static str = "";
    /// Fields that are given by position, as far as there are such.
    const POSITIONAL: &'static [&'static str] = &["name", "names", "members"];
    /// A command line that works, without the program's name.
    const EXAMPLE: &'static str;
    /// Further ones.
    const MORE_EXAMPLES: &'static [&'static str] = &[];
    /// It writes on disks.
    const WRITES: bool = false;

    /// The answer. People see its field `message` or `text`.
    type Answer: Serialize + JsonSchema;

    /// Does it. A verb of a class may run conversations on a core. Errors are the verb's own: the
    /// refused value and its limit, or the failure.
    fn run(self, at: At<'_, P>) -> P::Done<Self::Answer>;
}

/// An answer of one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct MessageAnswer {
    /// The sentence.
    pub message: String,
}

impl MessageAnswer {
    pub fn new(message: impl Into<String>) -> MessageAnswer {
        MessageAnswer { message: message.into() }
    }
}

/// A verb without its types, as the list of its place has it.
pub struct ListedVerb<P: Place> {
    /// See [`Verb::NAME`].
    pub name: &'static str,
    /// Describes it; made once for each verb.
    pub spec: fn() -> VerbSpec,
    /// Runs it with these parameters; errors contain the string.
    pub run: fn(At<'_, P>, &str, &Value) -> P::Output,
}

/// A verb of the class `C` without its types.
pub type ClassVerb<C> = ListedVerb<C>;

impl<P: Place> ListedVerb<P> {
    /// The verb `V`.
    pub const fn of<V: Verb<P>>() -> ListedVerb<P> {
        ListedVerb { name: V::NAME, spec: spec_of::<P, V>, run: run::<P, V> }
    }
}

/// The description of a verb; made once for each verb.
fn spec_of<P: Place, V: Verb<P>>() -> VerbSpec {
    let schemas: (fn() -> Value, fn() -> Value) = (P::params_schema::<V>, schema_of::<V::Answer>);
    let own = from_schemas(schemas, V::NAME, V::POSITIONAL, V::EXAMPLE);
    let or = |given: &'static str, own| if given.is_empty() { own } else { given };
    let (doc, detail) = (or(V::DOC, own.doc), or(V::DETAIL, own.detail));
    VerbSpec { doc, detail, writes: V::WRITES, ..own }
}

/// The description of a verb that writes on no disk, from its parameters `P`, whose own doc is its
/// help, and its answer `A`. Made once for each verb.
pub fn describe<P: JsonSchema, A: JsonSchema>(
    name: &'static str,
    positional: &[&str],
    example: &'static str,
) -> VerbSpec {
    from_schemas((params_schema_of::<P>, schema_of::<A>), name, positional, example)
}

/// As [`describe`], from the schemas of the parameters and of the answer.
fn from_schemas(
    (params, answer): (fn() -> Value, fn() -> Value),
    name: &'static str,
    positional: &[&str],
    example: &'static str,
) -> VerbSpec {
    let schema = params();
    let own = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let mut own = own.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    let doc = own.next().unwrap_or_default().leak();
    let detail = own.collect::<Vec<_>>().join("\n\n").leak();
    let args = Vec::leak(arguments(&schema, positional));
    VerbSpec { name, doc, detail, args, example, writes: false, params, answer }
}

fn run<P: Place, V: Verb<P>>(at: At<'_, P>, of: &str, params: &Value) -> P::Output {
    P::execute(of, parse_params::<V>(of, params), at)
}

/// The answer of a verb, named by `of`, as JSON. Not inlined: verbs with one type of answer share
/// it.
///
/// # Errors
///
/// `Inval`: the answer has no form in JSON.
#[inline(never)]
pub fn to_json<A: Serialize>(of: &str, answer: &A) -> Result<Value, Error> {
    serde_json::to_value(answer).map_err(|e| Error::inval(format!("{of}: {e}")))
}

/// Parameters of a verb, named by `of`: as [`read`]. Omitted and unknown parameters and values
/// beyond their limits are treated as [`Verb`] describes.
///
/// # Errors
///
/// `Inval`: the key and the problem with it.
pub fn parse_params<P: DeserializeOwned + JsonSchema>(
    of: &str,
    params: &Value,
) -> Result<P, Error> {
    read(of, &complete(of, &schema_of::<P>(), params)?)
}

/// `params` with defaults for omitted switches and lists, checked against the schema. It is no part
/// of [`parse_params`], because that exists once for each type.
fn complete(of: &str, schema: &Value, params: &Value) -> Result<Value, Error> {
    if !params.is_object() && !params.is_null() {
        let what = format!("{of}: the parameters are no JSON object: send {{\"KEY\": VALUE}}");
        return Err(Error::inval(what));
    }
    let known = schema.get("properties").and_then(Value::as_object);
    let mut given = params.as_object().cloned().unwrap_or_default();
    if let Some(other) = given.keys().find(|key| known.is_none_or(|all| !all.contains_key(*key))) {
        let all: Vec<&str> = known.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        return Err(Error::inval(format!("{of} has no `{other}`; it takes {}", all.join(", "))));
    }
    check_limits(of, known, &given)?;
    for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        let Some(key) = key.as_str().filter(|key| !given.contains_key(*key)) else {
            continue;
        };
        let Some(nothing) = omitted(known.and_then(|known| known.get(key))) else { continue };
        given.insert(key.to_owned(), nothing);
    }
    Ok(Value::Object(given))
}

/// The value of an omitted field of that schema, if it is a switch or a list that may be empty.
fn omitted(about: Option<&Value>) -> Option<Value> {
    match about.and_then(|about| about.get("type")?.as_str())? {
        "boolean" => Some(Value::Bool(false)),
        "array" if about.is_some_and(|about| about.get("minItems").is_none()) => {
            Some(Value::Array(Vec::new()))
        }
        _ => None,
    }
}

/// The schema of parameters as [`parse_params`] reads them: switches and lists may be omitted.
pub fn params_schema_of<P: JsonSchema>() -> Value {
    with_omissible(schema_of::<P>())
}

fn with_omissible(mut schema: Value) -> Value {
    let known = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|key| omitted(key.as_str().and_then(|key| known.get(key))).is_none());
    }
    schema
}

/// Refuses numbers beyond the limits of the schema.
pub(super) fn check_limits(
    of: &str,
    fields: Option<&Map<String, Value>>,
    given: &Map<String, Value>,
) -> Result<(), Error> {
    let number = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    for (key, value) in given {
        let about = fields.and_then(|fields| fields.get(key));
        let limit = |name| about.and_then(|about| number(about.get(name)?));
        let Some((least, most)) = limit("minimum").zip(limit("maximum")) else { continue };
        if number(value).is_some_and(|n| !(least..=most).contains(&n)) {
            let what = format!("{of}: `{key}` is {value}: use {least} to {most}");
            return Err(Error::inval(what));
        }
    }
    Ok(())
}

/// The descriptions of the verbs of a place for a command line; made once.
pub fn specs<P: Place>(verbs: &[ListedVerb<P>]) -> &'static [VerbSpec] {
    described(TypeId::of::<P>(), &|| verbs.iter().map(|verb| (verb.spec)()).collect())
}

fn described(place: TypeId, build: &dyn Fn() -> Vec<VerbSpec>) -> &'static [VerbSpec] {
    static KNOWN: Mutex<BTreeMap<TypeId, &'static [VerbSpec]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock();
    known.entry(place).or_insert_with(|| &*Vec::leak(build()))
}

/// Carries out a verb. `on`, the object of the verb, is the field `provider`, else `name`. Without
/// these it is one more word of the first list by position that does not name members.
///
/// # Errors
///
/// `NotSup`, with the verbs that exist; `Inval`, with the field that is wrong; an error of the
/// verb.
pub fn call<C: Class>(
    verbs: &[ClassVerb<C>],
    class: &C,
    control: &mut GraphControl,
    (verb, on): (&str, &str),
    params: &Value,
) -> Result<Value, Error> {
    let (specs, of) = (specs(verbs), class.name());
    let at = find(of, specs, verb)?;
    let params = with_object(&specs[at], on, params);
    (verbs[at].run)((class, control), &format!("{of} {verb}"), &params)
}

/// The place of a verb in the list of its class.
fn find(class: &str, specs: &[VerbSpec], verb: &str) -> Result<usize, Error> {
    specs.iter().position(|spec| spec.name == verb).ok_or_else(|| {
        let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
        let what = format!("{class} has no verb {verb}; it has {}", names.join(", "));
        Error::new(Errno::NotSup, what)
    })
}

/// Parameters with the object of the verb, if there is one, in its field.
fn with_object(spec: &VerbSpec, on: &str, params: &Value) -> Value {
    let mut all = params.as_object().cloned().unwrap_or_default();
    if !on.is_empty() {
        set_object(&mut all, spec, on);
    }
    Value::Object(all)
}

/// Puts the object of the verb into its field.
fn set_object(all: &mut Map<String, Value>, spec: &VerbSpec, on: &str) {
    let has = |name: &str| spec.args.iter().any(|arg| arg.name == name);
    let is_list = |kind: ArgKind| matches!(kind, ArgKind::Names(_));
    let list = spec.args.iter().find(|arg| is_list(arg.kind) && arg.name != "members");
    match list {
        _ if has("provider") => {
            all.insert("provider".to_owned(), on.into());
        }
        Some(list) if !has("name") => {
            let words = all.entry(list.name).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(words) = words.as_array_mut() {
                words.push(on.into());
            }
        }
        _ => {
            all.insert("name".to_owned(), on.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Count things
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Count {
        /// What is counted
        name: String,
        /// Further ones
        more: Vec<String>,
        /// The sum alone
        quiet: bool,
        /// At most so many
        #[schemars(range(min = 1, max = 9))]
        most: Option<u8>,
    }

    struct Counter;

    impl Place for Counter {
        type At<'a> = &'a mut u32;
        type Done<A> = Result<A, String>;
        type Output = Result<Value, String>;

        fn execute<V: Verb<Counter>>(
            of: &str,
            verb: Result<V, Error>,
            sum: &mut u32,
        ) -> Result<Value, String> {
            let answer = verb.map_err(|e| e.message)?.run(sum)?;
            to_json(of, &answer).map_err(|e| e.message)
        }
    }

    impl Verb<Counter> for Count {
        const NAME: &'static str = "count";
        const EXAMPLE: &'static str = "count a";
        type Answer = MessageAnswer;

        fn run(self, sum: &mut u32) -> Result<MessageAnswer, String> {
            *sum += 1;
            Ok(MessageAnswer::new(format!("{} {sum}", self.name)))
        }
    }

    #[test]
    fn verb_reaches_the_objects_of_its_place() {
        let (verb, mut sum) = (ListedVerb::<Counter>::of::<Count>(), 4);
        let answer = (verb.run)(&mut sum, "x count", &json!({ "name": "a" }));
        assert_eq!((answer, sum), (Ok(json!({ "message": "a 5" })), 5));
        let refused = (verb.run)(&mut sum, "x count", &json!({ "least": 1 }));
        assert!(refused.is_err_and(|why| why.contains("has no `least`")) && sum == 5);
        let spec = (verb.spec)();
        assert_eq!((spec.name, spec.doc, spec.writes), ("count", "Count things", false));
        let args: Vec<&str> = spec.args.iter().map(|arg| arg.name).collect();
        assert_eq!(args, ["name", "more", "most", "quiet"]);
    }

    #[test]
    fn schema_of_parameters_requires_what_cannot_be_omitted() {
        assert_eq!(params_schema_of::<Count>()["required"], json!(["name"]));
    }

    #[test]
    fn omitted_options_are_off_and_unknown_ones_refused_by_name() {
        let count: Count = parse_params("x count", &json!({ "name": "a" })).expect("all there is");
        assert_eq!((count.name.as_str(), count.more.len(), count.quiet), ("a", 0, false));
        assert_eq!(count.most, None);
        for (params, word) in [
            (json!({}), "`name`"),
            (Value::Null, "`name`"),
            (json!(["a"]), "no JSON object"),
            (
                json!({ "name": "a", "least": 1 }),
                "has no `least`; it takes more, most, name, quiet",
            ),
            (json!({ "name": "a", "most": 10 }), "`most` is 10: use 1 to 9"),
            (json!({ "name": "a", "quiet": 1 }), "`quiet`"),
        ] {
            let message = parse_params::<Count>("x count", &params).expect_err("refused").message;
            assert!(
                message.starts_with("x count") && message.contains(word),
                "{params}: {message}"
            );
        }
    }
}
