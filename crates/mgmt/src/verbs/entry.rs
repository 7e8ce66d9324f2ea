//! Verbs as commands: places, forms of answers for people, and the table without types.

use crate::App;
use crate::api::{Error, Exit, Kind, Result};
use crate::client::Client;
use crate::plant::Progress;
use crate::service::Control;
use crate::verbs::VERBS;
use crate::verbs::schema::{enum_names, follow_ref};
use geom::{ArgSpec, At, ListedVerb, Place, Verb};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::OnceLock;

/// A verb of the API reaches the service and reports its progress.
impl Place for Control {
    type At<'a> = (&'a Control, &'a mut Progress<'a>);
    type Done<A> = Result<A>;
    type Output = Result<String>;

    fn execute<V: Verb<Control>>(op: &str, verb: Parsed<V>, at: At<'_, Control>) -> Self::Output {
        let answer = verb.map_err(|e| refused(op, e))?.run(at)?;
        serde_json::to_string(&answer).map_err(|e| Error::new(Kind::Internal, op, e))
    }
}

/// A verb that runs in the command itself reaches the client of the daemon and the output.
impl Place for App {
    type At<'a> = Local<'a>;
    type Done<A> = Result<A>;
    type Output = Result<Value>;

    fn execute<V: Verb<App>>(op: &str, verb: Parsed<V>, local: Local<'_>) -> Result<Value> {
        to_json(&verb.map_err(|e| refused(op, e))?.run(local)?, op)
    }
}

/// The parameters of a verb, or the reason that they are refused.
type Parsed<V> = std::result::Result<V, geom::Error>;

/// Context of a verb that runs in the command itself.
pub struct Local<'a> {
    /// The way to the daemon.
    pub client: &'a Client,
    /// The binary it runs in.
    pub app: &'a App,
    /// Whether JSON is requested.
    pub json: bool,
    /// Destination of results.
    pub out: &'a mut dyn std::io::Write,
}

/// A verb as a command: how its parameters are completed and how its answer is shown. Its name is
/// `status`, or `part.add` for a verb of a group.
pub trait CommandVerb<P: Place>: Verb<P, Answer: DeserializeOwned> + Serialize {
    /// Keys whose values [`CommandVerb::prepare`] reads from files or from standard input.
    const FROM_FILES: &'static [&'static str] = &[];
    /// Completes the parameters on the client's side: reads files, for the daemon has another
    /// working folder and perhaps other rights. A faulty file is refused here, daemon or no.
    ///
    /// # Errors
    /// Errors of the file system.
    fn prepare(&mut self, _app: &App) -> Result<()> {
        Ok(())
    }
    /// The answer for people, with a line end.
    fn table(answer: &Self::Answer) -> String;
    /// The exit code.
    fn exit(_answer: &Self::Answer) -> Exit {
        Exit::Done
    }
}

/// Answers with the text of the JSON: the state of many thousand units is never in memory as a
/// tree.
type DaemonFn = fn(&Control, Value, &mut Progress<'_>) -> Result<String>;
type LocalFn = fn(Local<'_>, Value) -> Result<Value>;

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
    /// See [`Verb::EXAMPLE`].
    pub example: &'static str,
    /// See [`Verb::MORE_EXAMPLES`].
    pub more_examples: &'static [&'static str],
    /// See [`Verb::POSITIONAL`].
    pub positional: &'static [&'static str],
    /// See [`CommandVerb::FROM_FILES`].
    pub from_files: &'static [&'static str],
    /// Schema of the parameters.
    pub params: fn() -> Value,
    /// Schema of the answer.
    pub answer: fn() -> Value,
    /// See [`CommandVerb::prepare`].
    pub prepare: fn(Value, &App) -> Result<Value>,
    /// See [`CommandVerb::table`].
    pub table: fn(&Value) -> Result<String>,
    /// See [`CommandVerb::exit`].
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

    const fn new<P: Place, V: CommandVerb<P>>(run: Run) -> Entry {
        Entry {
            name: V::NAME,
            doc: V::DOC,
            detail: V::DETAIL,
            example: V::EXAMPLE,
            more_examples: V::MORE_EXAMPLES,
            positional: V::POSITIONAL,
            from_files: V::FROM_FILES,
            params: geom::schema_of::<V>,
            answer: geom::schema_of::<V::Answer>,
            prepare: prepare::<P, V>,
            table: table::<P, V>,
            exit: exit::<P, V>,
            run,
        }
    }

    /// A verb of the daemon.
    pub const fn daemon<V: CommandVerb<Control>>() -> Entry {
        Entry::new::<Control, V>(Run::Daemon(run_daemon::<V>))
    }

    /// A verb of the command.
    pub const fn local<V: CommandVerb<App>>() -> Entry {
        Entry::new::<App, V>(Run::Local(run_local::<V>))
    }

    /// The words typed: `part add`.
    pub fn words(&self) -> String {
        self.name.replace('.', " ")
    }

    /// Command lines that work.
    pub fn examples(&self) -> Vec<String> {
        let all = std::iter::once(&self.example).chain(self.more_examples);
        all.map(|line| format!("ashlar {line}")).collect()
    }
}

/// The words of a verb in errors.
fn op<P: Place, V: Verb<P>>() -> String {
    V::NAME.replace('.', " ")
}

/// An error of parameters (A13): `geom` refuses a value without keys, because a struct is read from
/// a list too, and unknown keys, because a misspelt `if_generation` would protect from nothing.
fn refused(op: &str, error: geom::Error) -> Error {
    Error::new(Kind::Usage, op, error.message)
}

fn answer<P: Place, V: CommandVerb<P>>(value: &Value) -> Result<V::Answer> {
    let odd = |e| Error::new(Kind::Protocol, op::<P, V>(), e);
    V::Answer::deserialize(value).map_err(odd)
}

fn to_json<T: Serialize>(value: &T, name: &str) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::new(Kind::Internal, name, e))
}

fn prepare<P: Place, V: CommandVerb<P>>(value: Value, app: &App) -> Result<Value> {
    let op = op::<P, V>();
    let mut params = geom::parse_params::<V>(&op, &value).map_err(|e| refused(&op, e))?;
    params.prepare(app)?;
    to_json(&params, &op)
}

fn table<P: Place, V: CommandVerb<P>>(value: &Value) -> Result<String> {
    Ok(V::table(&answer::<P, V>(value)?))
}

fn exit<P: Place, V: CommandVerb<P>>(value: &Value) -> Exit {
    answer::<P, V>(value).map_or(Exit::Failed, |a| V::exit(&a))
}

fn run_daemon<V: CommandVerb<Control>>(
    control: &Control,
    value: Value,
    progress: &mut Progress<'_>,
) -> Result<String> {
    let report: &mut Progress<'_> = &mut |line| progress(line);
    (ListedVerb::<Control>::of::<V>().run)((control, report), &op::<Control, V>(), &value)
}

fn run_local<V: CommandVerb<App>>(local: Local<'_>, value: Value) -> Result<Value> {
    (ListedVerb::<App>::of::<V>().run)(local, &op::<App, V>(), &value)
}
