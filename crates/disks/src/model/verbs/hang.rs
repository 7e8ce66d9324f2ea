//! `hang`: a simulated disk that answers nothing.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::with_model;
use crate::class::DiskClass;

/// Make a simulated disk hang
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Hang {
    /// Name of the disk
    name: String,
}

impl Verb<DiskClass> for Hang {
    const NAME: &'static str = "hang";
    const EXAMPLE: &'static str = "disk hang d0";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<MessageAnswer, Error> {
        with_model(control, &self.name, |state| {
            state.hangs = true;
            Ok(MessageAnswer::new("requests hang until release or power-cut"))
        })
    }
}
