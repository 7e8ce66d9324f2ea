//! words: arguments and verbs that several classes with members share.

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) const LABEL: &str = "The last sector of each provider is written. What it holds now, \
    and what stands on the provider, is lost to those who would look for it there: a provider \
    that holds something is refused unless --yes-destroy PROVIDER is given. Members are found \
    again wherever they are plugged in.";

/// The content that a stopped geom hides, in classes whose members look like the whole
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

/// A verb about one object, or about each of several in their order. The first refusal ends it, and
/// the error lists the completed ones.
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
