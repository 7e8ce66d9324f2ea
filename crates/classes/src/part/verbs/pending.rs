//! The `commit` and `undo` verbs: pending changes of a table.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::{Edit, PartAnswer, answer, find};
use crate::part::class::PartClass;
use crate::part::commit::{commit, undo};
use crate::part::request::TableName;

/// The table to write.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Commit(Edit<TableName>);

/// The table whose changes are discarded.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Undo(Edit<TableName>);

impl Verb<PartClass> for Commit {
    const NAME: &'static str = "commit";
    const DOC: &'static str = "Write the pending changes of a partition table";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part commit ada0";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let name = self.0.of.geom;
        let geom = find(control, &name)?;
        commit(control, geom)?;
        Ok(answer(control, &name, format!("{name} committed"), Vec::new()))
    }
}

impl Verb<PartClass> for Undo {
    const NAME: &'static str = "undo";
    const DOC: &'static str = "Discard the pending changes of a partition table";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part undo ada0";
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let name = self.0.of.geom;
        let geom = find(control, &name)?;
        undo(control, geom)?;
        Ok(answer(control, &name, format!("{name} undone"), Vec::new()))
    }
}
