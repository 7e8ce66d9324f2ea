//! Definition of a verb: its name, help texts, parameter and answer structs, and action.

use crate::api::{Error, Exit, Kind, Result};
use crate::client::Client;
use crate::plant::Progress;
use crate::service::Control;
use crate::verbs::VERBS;
use crate::verbs::schema::{enum_names, follow_ref};
use geom::ArgSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::OnceLock;

/// Definition that every verb gives.
pub trait Verb: 'static {
    /// Its parameters. Fields become options; those in `POSITIONAL` become arguments.
    type Params: DeserializeOwned + Serialize + JsonSchema;
    /// Its answer.
    type Answer: DeserializeOwned + Serialize + JsonSchema;
    /// `status`, or `part.add` for a verb of a group.
    const NAME: &'static str;
    /// One sentence, without the point at its end.
    const DOC: &'static str;
    /// More for the manual page; may be empty.
    const DETAIL: &'static str = "";
    /// Command lines that work.
    const EXAMPLES: &'static [&'static str];
    /// Fields that are given by position.
    const POSITIONAL: &'static [&'static str] = &[];
    /// Keys whose values [`Verb::prepare`] reads from files or from standard input.
    const FROM_FILES: &'static [&'static str] = &[];
    /// Completes the parameters on the client's side: reads files, for the daemon has another
    /// working folder and perhaps other rights. A faulty file is refused here, daemon or no.
    ///
    /// # Errors
    /// Errors of the file system.
    fn prepare(_params: &mut Self::Params, _app: &crate::App) -> Result<()> {
        Ok(())
    }
    /// The answer for people, with a line end.
    fn table(answer: &Self::Answer) -> String;
    /// The exit code.
    fn exit(_answer: &Self::Answer) -> Exit {
        Exit::Done
    }
}

/// A verb that the daemon carries out.
pub trait DaemonVerb: Verb {
    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn run(
        control: &Control,
        params: Self::Params,
        progress: &mut Progress<'_>,
    ) -> Result<Self::Answer>;
}

/// Context of a verb that runs in the command itself.
pub struct Local<'a> {
    /// The way to the daemon.
    pub client: &'a Client,
    /// The binary it runs in.
    pub app: &'a crate::App,
    /// Whether JSON was asked for.
    pub json: bool,
    /// Where results go.
    pub out: &'a mut dyn std::io::Write,
}

/// A verb that runs in the command itself.
pub trait LocalVerb: Verb {
    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn run(local: &mut Local<'_>, params: Self::Params) -> Result<Self::Answer>;
}

/// Answers with the text of the JSON: the state of many thousand units is never in memory as a
/// tree.
type DaemonFn = fn(&Control, Value, &mut Progress<'_>) -> Result<String>;
type LocalFn = fn(&mut Local<'_>, Value) -> Result<Value>;

/// Where a verb runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In the daemon.
    Daemon(DaemonFn),
    /// In the command.
    Local(LocalFn),
}

/// A verb without its types, as the table holds it.
pub struct Entry {
    /// See [`Verb::NAME`].
    pub name: &'static str,
    /// See [`Verb::DOC`].
    pub doc: &'static str,
    /// See [`Verb::DETAIL`].
    pub detail: &'static str,
    /// See [`Verb::EXAMPLES`].
    pub examples: &'static [&'static str],
    /// See [`Verb::POSITIONAL`].
    pub positional: &'static [&'static str],
    /// See [`Verb::FROM_FILES`].
    pub from_files: &'static [&'static str],
    /// Schema of the parameters.
    pub params: fn() -> Value,
    /// Schema of the answer.
    pub answer: fn() -> Value,
    /// See [`Verb::prepare`].
    pub prepare: fn(Value, &crate::App) -> Result<Value>,
    /// See [`Verb::table`].
    pub table: fn(&Value) -> Result<String>,
    /// See [`Verb::exit`].
    pub exit: fn(&Value) -> Exit,
    /// Its action.
    pub run: Run,
}

/// A schema whose references are replaced by the schemas that they refer to.
fn inlined(mut schema: Value) -> Value {
    let root = schema.clone();
    for property in
        schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        let (_, property) = property;
        let inner = follow_ref(&root, property);
        let (words, mut all) = (enum_names(inner), inner.as_object().cloned().unwrap_or_default());
        all.extend(property.as_object().cloned().into_iter().flatten());
        if !words.is_empty() {
            all.insert("enum".into(), words.into());
        }
        if let Some(of) = inner.get("type") {
            all.insert("type".into(), of.clone());
        }
        *property = Value::Object(all);
    }
    schema
}

impl Entry {
    /// Its arguments, as those of a class's verb; made once.
    pub fn args(&self) -> &'static [ArgSpec] {
        static ALL: [OnceLock<Vec<ArgSpec>>; VERBS.len()] =
            [const { OnceLock::new() }; VERBS.len()];
        let at = VERBS.iter().position(|verb| verb.name == self.name);
        let made = at.and_then(|at| ALL.get(at));
        made.map_or(&[], |made| {
            let args = || geom::arguments(&inlined((self.params)()), self.positional);
            made.get_or_init(args).as_slice()
        })
    }

    const fn new<V: Verb>(run: Run) -> Entry {
        Entry {
            name: V::NAME,
            doc: V::DOC,
            detail: V::DETAIL,
            examples: V::EXAMPLES,
            positional: V::POSITIONAL,
            from_files: V::FROM_FILES,
            params: geom::schema_of::<V::Params>,
            answer: geom::schema_of::<V::Answer>,
            prepare: prepare::<V>,
            table: table::<V>,
            exit: exit::<V>,
            run,
        }
    }

    /// A verb of the daemon.
    pub const fn daemon<V: DaemonVerb>() -> Entry {
        Entry::new::<V>(Run::Daemon(run_daemon::<V>))
    }

    /// A verb of the command.
    pub const fn local<V: LocalVerb>() -> Entry {
        Entry::new::<V>(Run::Local(run_local::<V>))
    }

    /// The words typed: `part add`.
    pub fn words(&self) -> String {
        self.name.replace('.', " ")
    }
}

/// The parameters of a verb (A13): a struct is read from a list too, whose values have no keys.
fn params<V: Verb>(value: Value) -> Result<V::Params> {
    let value = if value.is_null() { Value::Object(Default::default()) } else { value };
    let op = || V::NAME.replace('.', " ");
    if !value.is_object() {
        let next = "Send the parameters as a JSON object: {\"KEY\": VALUE}.";
        return Err(Error::new(Kind::Usage, op(), "the parameters are no JSON object").next(next));
    }
    V::Params::deserialize(&value).map_err(|e| Error::new(Kind::Usage, op(), e))
}

fn answer<V: Verb>(value: &Value) -> Result<V::Answer> {
    let odd = |e| Error::new(Kind::Protocol, V::NAME.replace('.', " "), e);
    V::Answer::deserialize(value).map_err(odd)
}

fn to_json<T: Serialize>(value: &T, name: &str) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::new(Kind::Internal, name, e))
}

fn prepare<V: Verb>(value: Value, app: &crate::App) -> Result<Value> {
    let mut params = params::<V>(value)?;
    V::prepare(&mut params, app)?;
    to_json(&params, V::NAME)
}

fn table<V: Verb>(value: &Value) -> Result<String> {
    Ok(V::table(&answer::<V>(value)?))
}

fn exit<V: Verb>(value: &Value) -> Exit {
    answer::<V>(value).map_or(Exit::Failed, |a| V::exit(&a))
}

fn run_daemon<V: DaemonVerb>(
    control: &Control,
    value: Value,
    progress: &mut Progress<'_>,
) -> Result<String> {
    let answer = V::run(control, params::<V>(value)?, progress)?;
    serde_json::to_string(&answer).map_err(|e| Error::new(Kind::Internal, V::NAME, e))
}

fn run_local<V: LocalVerb>(local: &mut Local<'_>, value: Value) -> Result<Value> {
    to_json(&V::run(local, params::<V>(value)?)?, V::NAME)
}
