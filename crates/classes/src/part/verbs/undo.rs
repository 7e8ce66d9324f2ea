//! The verb `undo`: pending changes of a table are discarded.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{PartAnswer, answer, find};
use crate::part::class::PartClass;
use crate::part::commit::undo;
use crate::part::request::TableName;

// Without a comment of its own, it has the schema of the name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Undo(pub TableName);

impl Verb<PartClass> for Undo {
    const NAME: &'static str = "undo";
    const DOC: &'static str = "Discard the pending changes of a partition table";
    const DETAIL: &'static str = "The table returns to the state on the disk. Refused while an \
        open partition would be removed, moved or shrunk. See `ashlar part commit`.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part undo ada0";
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let name = self.0.geom;
        let geom = find(control, &name)?;
        undo(control, geom)?;
        Ok(answer(control, &name, format!("{name} undone"), Vec::new()))
    }
}
