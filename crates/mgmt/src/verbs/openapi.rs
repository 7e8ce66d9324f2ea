//! openapi: the OpenAPI document of the API, from which generators make clients.

use super::entry::{Local, LocalVerb, Verb};
use crate::api::Result;
use crate::http::openapi;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// See the module.
pub struct Openapi;

/// Parameters of `openapi`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OpenapiParams {}

/// Answer of `openapi`: the document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OpenapiAnswer(Value);

impl Verb for Openapi {
    type Params = OpenapiParams;
    type Answer = OpenapiAnswer;
    const NAME: &'static str = "openapi";
    const DOC: &'static str = "Print the OpenAPI document of the API";
    const DETAIL: &'static str = "The document is that of this version of the program; a daemon \
        serves its own at /openapi.json. It is JSON with and without --json. \
        `contrib/python/generate` makes a client for Python of it.";
    const EXAMPLES: &'static [&'static str] = &["ashlar openapi > openapi.json"];

    fn table(answer: &OpenapiAnswer) -> String {
        format!("{:#}\n", answer.0)
    }
}

impl LocalVerb for Openapi {
    fn run(local: &mut Local<'_>, _params: OpenapiParams) -> Result<OpenapiAnswer> {
        Ok(OpenapiAnswer(openapi::document(&(local.app.catalog)().class_verbs())))
    }
}
