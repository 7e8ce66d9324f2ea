//! The journal and the progress of long work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has to read an event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A state changed.
    #[default]
    Info,
    /// Degraded but serving.
    Warn,
    /// A person must act.
    Error,
}

/// One line of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Event {
    /// Grows by one with every event of this daemon; the first is 1.
    pub id: u64,
    /// Since the daemon's start, in nanoseconds.
    pub at_ns: u64,
    /// Who has to read it.
    pub level: Level,
    /// The thing it is about: a disk, geom, provider, target, session; empty for the daemon.
    pub about: String,
    /// What happened, one sentence.
    pub text: String,
}

/// What `done` and `total` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressUnit {
    /// Steps of a plan.
    #[default]
    Steps,
    /// Bytes.
    Bytes,
}

/// How far a verb is. `done` never shrinks and never passes `total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProgressLine {
    /// What is being done.
    pub what: String,
    /// How much of it is done.
    pub done: u64,
    /// How much there is; 0 when not known.
    pub total: u64,
    /// What is counted.
    pub unit: ProgressUnit,
    /// The command that ends it, when it goes on though nobody waits for it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<String>,
}
