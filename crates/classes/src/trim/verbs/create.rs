//! The verb `create`: a provider with a queue above another provider.

use geom::{At, Class, Create as Request, Deserialize, Error, JsonSchema, Verb};

use super::insert::{InsertAnswer, InsertParams};
use crate::members::provider_access;
use crate::trim::class::TrimClass;

/// Create a provider with a TRIM queue above another
///
/// Users of the provider below continue to use it. The new provider reports that deleted bytes do
/// not read as zeroes, unless --zeroes keep is given.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Create(InsertParams);

impl Verb<TrimClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "trim create d0";
    type Answer = InsertAnswer;

    fn run(self, (class, control): At<'_, TrimClass>) -> Result<InsertAnswer, Error> {
        let (InsertParams { name: on, given, .. }, name) = (&self.0, self.0.called());
        let below = provider_access::find(control, on)?;
        let params = serde_json::to_value(&given.params).unwrap_or_default();
        let request = Request { name: &name, members: &[below], params: &params };
        control.call(|t| class.create(t, &request))?;
        Ok(InsertAnswer { message: format!("{name} is there"), provider: name })
    }
}
