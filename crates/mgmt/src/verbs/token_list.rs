//! token list: the tokens of the API over the network.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::auth::Token;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `token list`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenListParams {}

/// Answer of `token list` and `token revoke`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokensAnswer {
    /// Tokens that are valid, in order of creation.
    pub tokens: Vec<Token>,
}

pub(super) fn table(answer: &TokensAnswer) -> String {
    if answer.tokens.is_empty() {
        return "no tokens\n".to_owned();
    }
    let row = |t: &Token| {
        vec![
            t.name.clone(),
            t.role.label().to_owned(),
            t.scope.to_string(),
            text::utc(t.created_unix_s),
        ]
    };
    let rows: Vec<_> = answer.tokens.iter().map(row).collect();
    text::table(&["name", "role", "scope", "created"], &rows)
}

impl Verb<Control> for TokenListParams {
    const NAME: &'static str = "token.list";
    const DOC: &'static str = "List the tokens of the API";
    const EXAMPLE: &'static str = "token list";
    type Answer = TokensAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<TokensAnswer> {
        Ok(TokensAnswer { tokens: control.tokens().list()? })
    }
}

impl CommandVerb<Control> for TokenListParams {
    fn table(answer: &TokensAnswer) -> String {
        table(answer)
    }
}
