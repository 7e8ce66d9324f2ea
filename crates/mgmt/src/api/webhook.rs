//! State of webhooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A webhook with its deliveries since the start of the daemon, or since its section was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WebhookState {
    /// Name of the webhook.
    pub name: String,
    /// Scheme, host and port of its server. The path of the URL may be a secret.
    pub server: String,
    /// Delivered events.
    pub delivered: u64,
    /// Failed attempts to deliver an event.
    pub failures: u64,
    /// Events that wait for their delivery.
    pub waiting: u64,
    /// Events that were not delivered: too many waited, the server refused them, or it did not
    /// accept them within a day.
    pub dropped: u64,
    /// Time of the last delivery, in seconds since 1970; 0 before the first.
    pub delivered_at: u64,
    /// Time of the last failure, in seconds since 1970; 0 before the first.
    pub failed_at: u64,
    /// Reason why the last attempt failed; empty if it succeeded.
    pub failure: String,
}
