//! `create`: paths that are named by hand.

use geom::{Class, Create as Request, Deserialize, Error, GraphControl, JsonSchema, Verb};
use serde_json::{Value, json};

use super::mode;
use crate::members::{provider_access, verb_util};
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::shared_args::Members;

/// Join paths without a label, until the daemon ends
///
/// It is not checked that the paths lead to the same disk.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
    /// Name of the multipath geom, without the class
    name: String,
    members: Members,
    /// Active/Active: all requests use all good paths
    #[schemars(extend("x-short" = "A"))]
    active: bool,
    /// Active/Passive: all requests use the active path; the default
    #[schemars(extend("x-short" = "P"))]
    passive: bool,
    /// Active/Read: reads use all good paths, other requests the active path
    #[schemars(extend("x-short" = "R"))]
    read: bool,
}

impl Verb<MultipathClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "multipath create data d0 d1";
    type Answer = Value;

    fn run(self, class: &MultipathClass, control: &mut GraphControl) -> Result<Value, Error> {
        let (name, names) = (self.name.as_str(), &self.members.0);
        verb_util::check_name(name)?;
        let members: Result<Vec<_>, Error> =
            names.iter().map(|member| provider_access::find(control, member)).collect();
        let members = members?;
        let mode = mode(self.active, self.passive, self.read)?.unwrap_or_default();
        let params = json!({ "mode": mode.key() });
        control.call(|t| class.create(t, &Request { name, members: &members, params: &params }))?;
        verb_util::wait_for_provider(control, NAME, name, names)
    }
}
