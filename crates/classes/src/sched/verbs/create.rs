//! The verb `create`: a scheduler with its own provider above a disk.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::insert::{InsertAnswer, InsertParams, place};
use crate::sched::class::SchedClass;

/// Create a scheduler above a disk, with its own provider
///
/// The disk stays unchanged; requests to DISK.sched. pass through the scheduler.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Create(InsertParams);

impl Verb<SchedClass> for Create {
    const NAME: &'static str = "create";
    const POSITIONAL: &'static [&'static str] = &["disks"];
    const EXAMPLE: &'static str = "sched create -a deadline d0";
    type Answer = InsertAnswer;

    fn run(self, (class, control): At<'_, SchedClass>) -> Result<InsertAnswer, Error> {
        place(class, control, self.0, false)
    }
}
