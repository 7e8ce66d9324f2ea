//! Verbs of a file server as types: a struct of parameters, an answer and an asynchronous function.
//!
//! The console and the command line have the same verbs; a [`Command`] is one without its types.

use std::fmt::Display;
use std::rc::Rc;

use geom::{
    ArgKind, ArgSpec, Error, Local, VerbSpec, arguments, params_schema_of, parse_params, schema_of,
    to_json,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::service::Host;

/// The first argument of every verb on the command line; a console has one file server.
const NAME: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "Name of the file server" };

/// A verb of a file server: the value holds the given parameters.
///
/// As [`geom::Verb`], but asynchronous, on the core of the file server.
pub(super) trait FsVerb: DeserializeOwned + JsonSchema + 'static {
    /// The word typed.
    const NAME: &'static str;
    /// One sentence, without the point at its end.
    const DOC: &'static str;
    /// More for the manual page; may be empty.
    const DETAIL: &'static str = "";
    /// Fields that are given by position.
    const POSITIONAL: &'static [&'static str] = &[];
    /// A command line that works, without the program's name.
    const EXAMPLE: &'static str;
    /// It writes on disks.
    const WRITES: bool = false;

    /// The answer. People see its `message` or `text`.
    type Answer: Serialize + JsonSchema;

    /// Does it; `number` is that of its answer, by which progress is reported.
    async fn run(self, host: &Rc<Host>, number: u64) -> Result<Self::Answer, Error>;

    /// An error about the given parameters.
    fn param_error(why: impl Display) -> Error {
        Error::inval(format!("{}: {why}", Self::NAME))
    }
}

/// Structs of what verbs answer, a line each.
macro_rules! answers {
    ($($(#[$about:meta])* $name:ident { $($(#[$how:meta])* $field:ident: $type:ty),+ $(,)? })+) => {
        $(
            $(#[$about])*
            #[derive(serde::Serialize, schemars::JsonSchema)]
            pub(super) struct $name { $($(#[$how])* pub(super) $field: $type),+ }
        )+
    };
}
pub(super) use answers;

answers! {
    /// An answer to read.
    Text {
        /// Result for people.
        text: String,
    }
    /// An answer about a switch.
    Switched {
        /// Result in one sentence.
        message: &'static str,
        /// State of the switch.
        on: bool,
    }
}

/// `on` or `off`, as people write it.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Switch {
    #[serde(alias = "yes", alias = "1")]
    On,
    #[serde(alias = "no", alias = "0")]
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        matches!(self, Switch::On)
    }
}

/// A verb without its types, as the list has it.
pub(super) struct Command {
    pub spec: fn() -> VerbSpec,
    /// Whether the parameters can be read.
    pub check: fn(&Value) -> Result<(), Error>,
    pub run: fn(Rc<Host>, u64, &Value) -> Local<'static, Result<Value, Error>>,
}

impl Command {
    /// The verb `V`.
    pub const fn of<V: FsVerb>() -> Command {
        Command {
            spec: spec::<V>,
            check: |params| own_params::<V>(params).map(drop),
            run: run::<V>,
        }
    }
}

fn spec<V: FsVerb>() -> VerbSpec {
    let schema = schema_of::<V>();
    let args: Vec<ArgSpec> = [NAME].into_iter().chain(arguments(&schema, V::POSITIONAL)).collect();
    VerbSpec {
        name: V::NAME,
        doc: V::DOC,
        detail: V::DETAIL,
        args: Vec::leak(args),
        example: V::EXAMPLE,
        writes: V::WRITES,
        params: params_schema::<V>,
        answer: schema_of::<V::Answer>,
    }
}

/// The parameters on the command line and in the API: the name of the file server is one.
fn params_schema<V: FsVerb>() -> Value {
    with_name(params_schema_of::<V>())
}

fn with_name(mut schema: Value) -> Value {
    schema["properties"][NAME.name] = json!({ "type": "string", "description": NAME.doc });
    if let Some(all) = schema["required"].as_array_mut() {
        all.push(NAME.name.into());
    } else {
        schema["required"] = json!([NAME.name]);
    }
    schema
}

fn own_params<V: FsVerb>(params: &Value) -> Result<V, Error> {
    parse_params(&format!("fs {}", V::NAME), params)
}

fn run<V: FsVerb>(
    host: Rc<Host>,
    number: u64,
    params: &Value,
) -> Local<'static, Result<Value, Error>> {
    let taken = own_params::<V>(params);
    Box::pin(async move {
        let answer = taken?.run(&host, number).await?;
        to_json(V::NAME, &answer)
    })
}
