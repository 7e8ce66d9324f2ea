//! The `scan` verb: reports the signatures on a provider.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use crate::inspect::answer::{InspectAnswer, answer};
use crate::inspect::class::{InspectClass, report};

/// Show labels, tables and file systems on a provider
#[derive(Deserialize, JsonSchema)]
pub(super) struct Scan {
    /// Provider to examine
    provider: String,
}

impl Verb<InspectClass> for Scan {
    const NAME: &'static str = "scan";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "inspect d0";
    type Answer = InspectAnswer;

    fn run(self, (_, control): At<'_, InspectClass>) -> Result<InspectAnswer, Error> {
        let report = report(control, &self.provider)?;
        answer(control, &self.provider, &report, &[])
    }
}
