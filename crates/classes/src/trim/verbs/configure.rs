//! `configure`: how eagerly deletes are sent.

use geom::{At, Change, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::work_as;
use crate::trim::class::TrimClass;
use crate::trim::params::TrimParams;

/// Change the sending of queued deletes
///
/// Settings that are not given stay unchanged.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// The queue: the name of its provider, such as d0.trim
    name: String,
    #[serde(flatten)]
    change: Change<TrimParams>,
}

impl Verb<TrimClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "trim configure d0.trim --share 20";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, TrimClass>) -> Result<MessageAnswer, Error> {
        let Configure { name, change } = self;
        work_as(control, &name, |now| change.over(&format!("trim {name}"), now))?;
        Ok(MessageAnswer::new(format!("{name} configured")))
    }
}
