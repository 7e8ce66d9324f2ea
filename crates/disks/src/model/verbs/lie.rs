//! `lie`: a simulated disk that reports flushes without carrying them out.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::with_model;
use crate::class::DiskClass;

/// Make flushes of a simulated disk do nothing
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Lie {
    /// Name of the disk
    name: String,
    /// Flushes and durable writes succeed without being carried out; without it they are carried
    /// out again
    lies: bool,
}

impl Verb<DiskClass> for Lie {
    const NAME: &'static str = "lie";
    const EXAMPLE: &'static str = "disk lie d0 --lies";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<MessageAnswer, Error> {
        with_model(control, &self.name, |state| {
            state.disk.set_ignores_flushes(self.lies);
            Ok(MessageAnswer::new(match self.lies {
                true => "flushes succeed without being carried out",
                false => "flushes are carried out",
            }))
        })
    }
}
