//! The journal and the progress of long work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of an event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A state changed.
    #[default]
    Info,
    /// An object is degraded, but serves requests.
    Warn,
    /// An operator must act.
    Error,
}

/// One entry of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Event {
    /// Number of the event. The first event of this daemon is 1; each event increases it by one.
    pub id: u64,
    /// Time since the start of the daemon, in nanoseconds.
    pub at_ns: u64,
    /// Severity of the event.
    pub level: Level,
    /// Object of the event: a disk, geom, provider, target or session; empty for the daemon.
    pub about: String,
    /// Description of the event, in one sentence.
    pub text: String,
}

/// Unit of `done` and `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressUnit {
    /// Steps of a plan.
    #[default]
    Steps,
    /// Bytes.
    Bytes,
}

/// Progress of a verb. `done` never decreases and never exceeds `total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProgressLine {
    /// Description of the work.
    pub what: String,
    /// Amount of completed work.
    pub done: u64,
    /// Total amount of work; 0 if unknown.
    pub total: u64,
    /// Unit of `done` and `total`.
    pub unit: ProgressUnit,
    /// The command that ends the work, if the work continues after its client has disconnected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<String>,
}
