//! The verb `reset`: an end of the statistics of clients until now.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{chosen, with};
use crate::sched::class::SchedClass;

/// Reset the counters of schedulers
#[derive(Deserialize, JsonSchema)]
pub(super) struct Reset {
    /// Schedulers: DISK.sched. or DISK
    #[schemars(length(min = 1))]
    names: Vec<String>,
}

impl Verb<SchedClass> for Reset {
    const NAME: &'static str = "reset";
    const EXAMPLE: &'static str = "sched reset d0.sched.";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, SchedClass>) -> Result<MessageAnswer, Error> {
        for geom in chosen(control, &self.names)? {
            with(control, geom, |g| g.shared.reset())?;
        }
        Ok(MessageAnswer::new("counters reset"))
    }
}
