//! token create: a new bearer token of the API over the network.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::auth::{Role, Scope, Token};
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `token create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreateParams {
    /// Name of the token.
    pub name: String,
    /// Role of the bearer.
    pub role: Role,
    /// The only target that the bearer may use [default: all]
    #[serde(default)]
    pub target: Option<String>,
    /// The only access group of that target that the bearer may use [default: all]
    #[serde(default)]
    pub group: Option<String>,
}

/// Answer of `token create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreateAnswer {
    /// The token.
    pub token: Token,
    /// Its text, which is shown only here.
    pub text: String,
}

impl Verb<Control> for TokenCreateParams {
    const NAME: &'static str = "token.create";
    const DOC: &'static str = "Create a token for the API over the network";
    const DETAIL: &'static str = "Prints the token once; the daemon stores only a salted hash. A \
        viewer reads state, metrics and events. An operator also plans, clears reservations, \
        ends sessions, sets access states and ejects media. An admin may do everything. With \
        --target, and --group, the bearer sees only this target or group, with the disks below its \
        LUNs. Of changes it may then end sessions, clear reservations of LUNs that no other target \
        or group has, and set access states of port groups of the target alone (operator), and \
        attach and detach LUNs of the target (admin).";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "token create monitoring --role viewer";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["token create backup --role viewer --target iqn.2026-11.org.example:store"];
    type Answer = TokenCreateAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<TokenCreateAnswer> {
        let scope = Scope { target: self.target, group: self.group };
        let new = control.tokens().create(&self.name, self.role, scope)?;
        Ok(TokenCreateAnswer { token: new.token, text: new.text })
    }
}

impl CommandVerb<Control> for TokenCreateParams {
    fn table(answer: &TokenCreateAnswer) -> String {
        format!("{}\n", answer.text)
    }
}
