//! The place where verbs of a file server run: its core, where they may wait.
//!
//! The console and the command line have the same verbs.

use std::fmt::Display;
use std::rc::Rc;

use geom::{Error, Local, Place, Verb, params_schema_of, to_json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::service::Host;

/// The core of a file server. A verb runs there as a task.
pub(super) struct FileServer;

/// A verb that was called.
pub(super) struct Call {
    pub host: Rc<Host>,
    /// Number of the answer, by which progress is reported.
    pub number: u64,
}

/// A verb that runs, until it has the answer `A`.
pub(super) type Running<A> = Local<'static, Result<A, Error>>;

impl Place for FileServer {
    type At<'a> = Call;
    type Done<A> = Running<A>;
    type Output = Running<Value>;

    fn execute<V: Verb<FileServer>>(of: &str, verb: Result<V, Error>, call: Call) -> Self::Output {
        let (of, task) = (of.to_owned(), verb.map(|verb| verb.run(call)));
        Box::pin(async move { to_json(&of, &task?.await?) })
    }

    /// The name of the file server is a parameter on the command line and in the API: a console
    /// has one file server.
    fn params_schema<V: JsonSchema>() -> Value {
        let mut schema = params_schema_of::<V>();
        schema["properties"]["name"] =
            json!({ "type": "string", "description": "Name of the file server" });
        match schema["required"].as_array_mut() {
            Some(all) => all.push("name".into()),
            None => schema["required"] = json!(["name"]),
        }
        schema
    }
}

/// An error about the parameters of a verb.
pub(super) fn param_error<V: Verb<FileServer>>(why: impl Display) -> Error {
    Error::inval(format!("{}: {why}", V::NAME))
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
