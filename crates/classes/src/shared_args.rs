//! words: arguments and verbs that several classes with members share.

use geom::{Error, MessageAnswer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const LABEL: &str = "The last sector of each provider is overwritten, and existing \
    contents of a provider become inaccessible: a provider with contents is refused unless \
    --yes-destroy PROVIDER is given. Members are recognised by their labels under any name, unless \
    --hardcode is given.";

/// The content that a stopped geom hides, in classes whose members look like the whole
/// ([`crate::members::Stopped::fail_waiting`]).
pub(crate) const STOPPED_HIDES: &str = "While the geom is stopped, the contents of its members are \
    hidden: no table, label or volume is found on them, so that no member can be written without \
    the others. `clear` releases a member and makes its contents visible.";

/// Maximum rate of a rebuild in bytes per second, until the next start; 0: no limit. A running
/// rebuild has it at once
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-bytes" = true))]
pub(crate) struct SyncRate(pub(crate) u64);

/// Maximum rate of the comparison in bytes per second [default: the sync_rate of `configure`]
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-bytes" = true))]
pub(crate) struct VerifyRate(pub(crate) u64);

/// Wait until the rebuild has ended; exit code 3 if the geom is not complete then
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Wait(bool);

/// Answer of a verb that begins a rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct RebuildAnswer {
    /// Result in one sentence.
    message: String,
    /// The geom whose rebuilds the caller waits for, by `status --wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_for: Option<String>,
}

impl RebuildAnswer {
    /// A sentence about the geom `on`.
    pub(crate) fn new(message: String, on: &str, wait: Wait) -> RebuildAnswer {
        RebuildAnswer { message, wait_for: wait.0.then(|| on.to_owned()) }
    }
}

/// End the running comparison
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct EndRun(pub(crate) bool);

/// Skip the resync: the disks already have equal contents and correct parity, such as all zeroes
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct AssumeSynced(pub(crate) bool);

/// Providers, in order
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("minItems" = 1))]
pub(crate) struct Members(pub(crate) Vec<String>);

/// Store the providers' names: members are recognised only under these names
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-short" = "h"))]
pub(crate) struct Hardcode(pub(crate) bool);

/// Overwrite other data in the last sector, and metadata of this class
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("x-short" = "f"))]
pub(crate) struct Force(pub(crate) bool);

/// A verb about one object, or about each of several in their order. The first refusal ends it, and
/// the error lists the completed ones.
pub(crate) fn each(
    on: &str,
    names: &[String],
    mut one: impl FnMut(&str) -> Result<MessageAnswer, Error>,
) -> Result<MessageAnswer, Error> {
    if names.is_empty() {
        return one(on);
    }
    let mut messages: Vec<String> = Vec::new();
    for name in names {
        let done = one(name).map_err(|e| match messages.is_empty() {
            true => e,
            false => {
                Error::new(e.kind, format!("{}; before that: {}", e.message, messages.join(", ")))
            }
        })?;
        messages.push(done.message);
    }
    Ok(MessageAnswer::new(messages.join("\n")))
}
