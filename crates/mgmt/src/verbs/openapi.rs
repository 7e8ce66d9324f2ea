//! openapi: the OpenAPI document of the API, from which generators make clients.

use super::entry::{CommandVerb, Local};
use crate::App;
use crate::api::Result;
use crate::http::openapi;
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Parameters of `openapi`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OpenapiParams {}

/// Answer of `openapi`: the document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OpenapiAnswer(Value);

impl Verb<App> for OpenapiParams {
    const NAME: &'static str = "openapi";
    const DOC: &'static str = "Print the OpenAPI document of the API";
    const DETAIL: &'static str = "The document is that of this version of the program; a daemon \
        serves its own at /openapi.json. It is JSON with and without --json. \
        `contrib/python/generate` makes a client for Python of it.";
    const EXAMPLE: &'static str = "openapi > openapi.json";
    type Answer = OpenapiAnswer;

    fn run(self, local: Local<'_>) -> Result<OpenapiAnswer> {
        Ok(OpenapiAnswer(openapi::document(&(local.app.catalog)().class_verbs())))
    }
}

impl CommandVerb<App> for OpenapiParams {
    fn table(answer: &OpenapiAnswer) -> String {
        format!("{:#}\n", answer.0)
    }
}
