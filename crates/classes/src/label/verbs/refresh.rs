//! The `refresh` verb: tastes a provider again.

use geom::{Control, Deserialize, Error, JsonSchema, Verb};

use super::{Done, find};
use crate::label::class::LabelClass;

/// Look for labels on a provider again
#[derive(Deserialize, JsonSchema)]
pub(super) struct Refresh {
    /// The provider
    provider: String,
}

impl Verb<LabelClass> for Refresh {
    const NAME: &'static str = "refresh";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "label refresh d0";
    type Answer = Done;

    fn run(self, _: &LabelClass, control: &mut Control) -> Result<Done, Error> {
        let on = find(control, &self.provider)?;
        control.call(|topology| {
            topology.retaste(on);
            Ok(())
        })?;
        Ok(Done::new(&self.provider, format!("{} refreshed", self.provider)))
    }
}
