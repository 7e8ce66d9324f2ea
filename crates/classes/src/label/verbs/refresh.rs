//! The `refresh` verb: tastes a provider again.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::{LabelAnswer, find};
use crate::label::class::LabelClass;

/// Search a provider for labels again
#[derive(Deserialize, JsonSchema)]
pub(super) struct Refresh {
    /// Provider to search
    provider: String,
}

impl Verb<LabelClass> for Refresh {
    const NAME: &'static str = "refresh";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "label refresh d0";
    type Answer = LabelAnswer;

    fn run(self, (_, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        let on = find(control, &self.provider)?;
        control.call(|topology| {
            topology.retaste(on);
            Ok(())
        })?;
        Ok(LabelAnswer::new(&self.provider, format!("{} refreshed", self.provider)))
    }
}
