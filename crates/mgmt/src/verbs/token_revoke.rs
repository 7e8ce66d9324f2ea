//! token revoke: the end of a token of the API over the network.

use super::entry::CommandVerb;
use super::token_list::{TokensAnswer, table};
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `token revoke`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenRevokeParams {
    /// Name of the token.
    pub name: String,
}

impl Verb<Control> for TokenRevokeParams {
    const NAME: &'static str = "token.revoke";
    const DOC: &'static str = "Revoke a token of the API";
    const DETAIL: &'static str = "The bearer is refused from the next request on. Requests that \
        have begun run to their end; a stream of events ends.";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "token revoke monitoring";
    type Answer = TokensAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<TokensAnswer> {
        control.tokens().revoke(&self.name)?;
        Ok(TokensAnswer { tokens: control.tokens().list()? })
    }
}

impl CommandVerb<Control> for TokenRevokeParams {
    fn table(answer: &TokensAnswer) -> String {
        table(answer)
    }
}
