//! The verb `getactive`: the paths of requests.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::with;
use crate::multipath::class::MultipathClass;
use crate::multipath::paths::PathEntry;

/// Show the active path
#[derive(Deserialize, JsonSchema)]
pub(super) struct GetActive {
    /// Name of the multipath geom, without the class
    name: String,
}

/// The active paths.
#[derive(Serialize, JsonSchema)]
pub(super) struct GetActiveAnswer {
    /// Names of the active paths; `none` without one.
    message: String,
    /// Names of the active paths.
    active: Vec<String>,
}

impl Verb<MultipathClass> for GetActive {
    const NAME: &'static str = "getactive";
    const EXAMPLE: &'static str = "multipath getactive data";
    type Answer = GetActiveAnswer;

    /// All that requests go by: with Active/Active each path that is good and no worse than
    /// another; `none` where there are none, as gmultipath(8) says it.
    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<GetActiveAnswer, Error> {
        let on = self.name.as_str();
        let names: Vec<String> = with(control, on, |g, _, _| {
            let is_active =
                |p: &&PathEntry| g.paths.path_state_str(p.slot, g.identity.mode) == "ACTIVE";
            Ok(g.paths.all().iter().filter(is_active).map(|p| p.name.clone()).collect())
        })?;
        let message = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
        Ok(GetActiveAnswer { message, active: names })
    }
}
