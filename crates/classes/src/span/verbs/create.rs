//! `create`: members that are named by hand.

use geom::{
    At, Class, Consent, Create as Request, Deserialize, Error, JsonSchema, ProviderId, Verb,
};

use super::Members;
use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::span::Span;
use crate::span::class::SpanClass;

/// Arguments of `create`.
#[derive(Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "S: Span")]
pub(crate) struct Create<S: Span> {
    /// Name of the geom, without the class
    name: String,
    members: Members<S>,
    #[serde(flatten)]
    params: S::Params,
    // The first write to the whole overwrites the data of its members. The guard has looked at it
    // before, and `force` is set.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    #[serde(rename = "force")]
    #[schemars(extend("x-hidden" = true))]
    _force: bool,
}

impl<S: Span> Verb<SpanClass<S>> for Create<S> {
    const NAME: &'static str = "create";
    const DOC: &'static str = S::CREATE_DOC;
    const EXAMPLE: &'static str = "create data d0 d1";
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, SpanClass<S>>) -> Result<ProviderAnswer, Error> {
        let (name, names) = (self.name.as_str(), &self.members.names);
        verb_util::check_name(name)?;
        let members: Result<Vec<ProviderId>, Error> =
            names.iter().map(|member| provider_access::find(control, member)).collect();
        let members = members?;
        let params = serde_json::to_value(&self.params).unwrap_or_default();
        control.call(|t| class.create(t, &Request { name, members: &members, params: &params }))?;
        verb_util::wait_for_provider(control, S::NAME, name, names)
    }
}
