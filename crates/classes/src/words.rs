//! words: arguments and verbs that several classes with members share.

use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) const LABEL: &str = "The last sector of each provider is written. What it holds now, \
    and what stands on the provider, is lost to those who would look for it there: a provider \
    that holds something is refused unless --yes-destroy PROVIDER is given. Members are found \
    again wherever they are plugged in.";

pub(crate) const NAME: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "Its name, without the class" };

pub(crate) const NAMES: ArgSpec = ArgSpec {
    name: "names",
    short: None,
    kind: ArgKind::Names(1),
    doc: "Their names, without the class",
};

pub(crate) const PROVIDERS: ArgSpec =
    ArgSpec { name: "members", short: None, kind: ArgKind::Names(1), doc: "Providers, in order" };

pub(crate) const YES_DESTROY: ArgSpec = ArgSpec {
    name: "yes_destroy",
    short: None,
    kind: ArgKind::Consent,
    doc: "Name of a provider whose contents may be lost",
};

/// GEOM has no letter for it; `f` is that of other classes.
pub(crate) const FORCE: ArgSpec = ArgSpec {
    name: "force",
    short: Some('f'),
    kind: ArgKind::Flag,
    doc: "Though something is there, or open",
};

/// What is hidden of one that is stopped, of classes whose members look like the whole
/// ([`crate::members::Stopped::refuse`]).
pub(crate) const STOPPED_HIDES: &str = "Meanwhile what is on its members is hidden: no \
    table, label or volume is found there, so that none of them is written alone. `clear` gives a \
    member up, and what is on it shows.";

/// Bytes a second that a rebuild may do; 0: as fast as it goes. Until the next start
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-bytes" = true))]
pub(crate) struct SyncRate(pub(crate) u64);

/// Bytes a second that may be compared; absent: the sync_rate of `configure`
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-bytes" = true))]
pub(crate) struct VerifyRate(pub(crate) u64);

/// End the one that runs
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct EndIt(pub(crate) bool);

/// The disks hold the same, and right parity, already (all zeroes, say): nothing is synced
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Same(pub(crate) bool);

/// Providers, in order
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("minItems" = 1))]
pub(crate) struct Members(pub(crate) Vec<String>);

/// Store the providers' names: they are found nowhere else
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-short" = "h"))]
pub(crate) struct Hardcode(pub(crate) bool);

/// Though something is there, or open
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-short" = "f"))]
pub(crate) struct Force(pub(crate) bool);

pub(crate) const STOP: VerbSpec = VerbSpec {
    name: "stop",
    doc: "Take it apart; labels stay, so `start` brings it back",
    detail: "",
    args: &[NAMES, FORCE],
    example: "stop data",
    writes: false,
};

/// The same of classes whose members look like the whole ([`crate::members::stopped`]).
pub(crate) const STOP_HIDING: VerbSpec = VerbSpec {
    detail: "Meanwhile what is on its members is hidden: no table, label or volume is found there, \
             so nobody writes to one of them what the others do not have. `clear` gives a member \
             up, and what is on it shows.",
    ..STOP
};

pub(crate) const DESTROY: VerbSpec = VerbSpec {
    name: "destroy",
    doc: "The same as stop",
    detail: "",
    args: &[NAMES, FORCE],
    example: "destroy data",
    writes: false,
};

pub(crate) const CLEAR: VerbSpec = VerbSpec {
    name: "clear",
    doc: "Remove the class's labels from providers",
    detail: "Only labels of this class are removed; a provider without one is refused.",
    args: &[PROVIDERS],
    example: "clear d0 d1",
    writes: true,
};

pub(crate) const DUMP: VerbSpec = VerbSpec {
    name: "dump",
    doc: "Show what the labels on providers say",
    detail: "",
    args: &[PROVIDERS],
    example: "dump d0",
    writes: false,
};

/// What classes with copies or parity have in common: the same word for the same thing.
pub(crate) const SYNC_RATE: ArgSpec = ArgSpec {
    name: "sync_rate",
    short: None,
    kind: ArgKind::Bytes,
    doc: "Bytes a second that a rebuild may do; 0: as fast as it goes. Until the next start",
};

pub(crate) const VERIFY_RATE: ArgSpec = ArgSpec {
    name: "rate",
    short: None,
    kind: ArgKind::Bytes,
    doc: "Bytes a second that may be compared [default: the sync_rate of `configure`]",
};

pub(crate) const END: ArgSpec =
    ArgSpec { name: "end", short: None, kind: ArgKind::Flag, doc: "End the one that runs" };

pub(crate) const SAME: ArgSpec = ArgSpec {
    name: "assume_same",
    short: None,
    kind: ArgKind::Flag,
    doc: "The disks hold the same, and right parity, already (all zeroes, say): nothing is synced",
};

/// A verb about one, or about each of several in their order. The first refusal ends it, and says
/// what was done before.
pub(crate) fn each(
    on: &str,
    names: &[String],
    mut one: impl FnMut(&str) -> Result<Value, Error>,
) -> Result<Value, Error> {
    if names.is_empty() {
        return one(on);
    }
    let mut said: Vec<String> = Vec::new();
    for name in names {
        let done = one(name).map_err(|e| match said.is_empty() {
            true => e,
            false => Error::new(e.kind, format!("{}; before that: {}", e.what, said.join(", "))),
        })?;
        said.extend(done.get("message").and_then(Value::as_str).map(str::to_owned));
    }
    Ok(json!({ "message": said.join("\n") }))
}

/// A verb without more to say than its line.
pub(crate) const fn verb(
    name: &'static str,
    doc: &'static str,
    args: &'static [ArgSpec],
    example: &'static str,
    writes: bool,
) -> VerbSpec {
    VerbSpec { name, doc, detail: "", args, example, writes }
}
