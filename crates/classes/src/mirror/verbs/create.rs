//! `create`: a mirror without records.

use geom::{At, Class, Consent, Create as Request, Deserialize, Error, JsonSchema, Verb};

use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;
use crate::mirror::settings::MirrorParams;
use crate::shared_args::Members;

/// Create a mirror without metadata, until the daemon stops
#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
    /// Name of the mirror, without the class
    name: String,
    members: Members,
    #[serde(flatten)]
    params: MirrorParams,
    // The guard has looked at it before, and `force` is set.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    #[serde(rename = "force")]
    #[schemars(extend("x-hidden" = true))]
    _force: bool,
}

impl Verb<MirrorClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "mirror create data d0 d1";
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, MirrorClass>) -> Result<ProviderAnswer, Error> {
        let (name, names) = (self.name.as_str(), &self.members.0);
        verb_util::check_name(name)?;
        let members: Result<Vec<_>, Error> =
            names.iter().map(|member| provider_access::find(control, member)).collect();
        let members = members?;
        let params = serde_json::to_value(&self.params).unwrap_or_default();
        control.call(|t| class.create(t, &Request { name, members: &members, params: &params }))?;
        verb_util::wait_for_provider(control, NAME, name, names)
    }
}
