//! `heal`: a simulated disk without faults.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::with_model;
use crate::class::DiskClass;

/// Remove the faults of a simulated disk
///
/// Ends the effects of `fail`, `delay` and `lie`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Heal {
    /// Name of the disk
    name: String,
}

impl Verb<DiskClass> for Heal {
    const NAME: &'static str = "heal";
    const EXAMPLE: &'static str = "disk heal d0";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<MessageAnswer, Error> {
        with_model(control, &self.name, |state| {
            state.disk.clear_faults();
            state.disk.set_ignores_flushes(false);
            state.rates.clear();
            state.extra_ns = 0;
            Ok(MessageAnswer::new("healed"))
        })
    }
}
