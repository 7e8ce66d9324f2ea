//! `delay`: a simulated disk that is slower.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::with_model;
use crate::class::DiskClass;

/// Make the requests of a simulated disk take longer
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Delay {
    /// Name of the disk
    name: String,
    /// Added time in ms; 0 ends the delay
    #[schemars(range(min = 0, max = 3_600_000))]
    delay_ms: u32,
}

impl Verb<DiskClass> for Delay {
    const NAME: &'static str = "delay";
    const EXAMPLE: &'static str = "disk delay d0 --delay-ms 20";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<MessageAnswer, Error> {
        with_model(control, &self.name, |state| {
            state.extra_ns = u64::from(self.delay_ms) * 1_000_000;
            let ms = self.delay_ms;
            Ok(MessageAnswer::new(format!("every request now takes {ms} ms more")))
        })
    }
}
