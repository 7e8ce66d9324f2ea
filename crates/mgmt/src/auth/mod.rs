//! Callers of the API: their roles, the objects to which these are limited, and tokens.
//!
//! * [`permissions`]: the one place that decides whether a caller may make a call.
//! * [`Scope`]: the part of the daemon that a limited caller sees.
//! * [`TokenStore`]: bearer tokens, stored as salted hashes.
//! * [`WebSessions`]: sessions of browsers, which logged in with a token.
//!
//! Callers of the control socket are identified by peer credentials and have the role admin.

mod permissions;
mod scope;
mod tokens;
mod web_sessions;

pub use permissions::{Call, authorize, changes, is_reading_class_verb, takes_document};
pub use scope::Scope;
pub(crate) use tokens::is_same_secret;
pub use tokens::{Token, TokenStore};
pub use web_sessions::{SESSION_MAX, WebSessions};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rights of a caller. Ordered: the greater one includes the lesser.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads state, metrics and events.
    #[default]
    Viewer,
    /// Also plans, and operates objects without changing the configuration or data.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// The word in configuration and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

/// An identified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `uid 0`, `token ci` or `certificate laptop`.
    pub name: String,
    /// Role of the caller.
    pub role: Role,
    /// Objects to which the role is limited.
    pub scope: Scope,
}

impl Caller {
    /// A caller with all rights.
    pub fn admin(name: String) -> Caller {
        Caller { name, role: Role::Admin, scope: Scope::default() }
    }
}
