//! The `commit` and `undo` verbs: pending changes of a table.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{PartAnswer, answer, find};
use crate::part::class::PartClass;
use crate::part::commit::{commit, undo};
use crate::part::request::TableName;

// Without comments of their own, these two have the schema of the name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Commit(pub TableName);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Undo(pub TableName);

impl Verb<PartClass> for Commit {
    const NAME: &'static str = "commit";
    const DOC: &'static str = "Write the pending changes of a partition table";
    const DETAIL: &'static str = "A verb with --no-commit leaves its change pending: its \
        partitions exist, the disk is unchanged, and no other user may write the table. `part \
        show` lists the pending changes. A verb without --no-commit writes them together with its \
        own change. Pending changes are discarded when the daemon stops.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part commit ada0";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let name = self.0.geom;
        let geom = find(control, &name)?;
        commit(control, geom)?;
        Ok(answer(control, &name, format!("{name} committed"), Vec::new()))
    }
}

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
