//! The verb `commit`: pending changes of a table are written.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{PartAnswer, answer, find};
use crate::part::class::PartClass;
use crate::part::commit::commit;
use crate::part::request::TableName;

// Without a comment of its own, it has the schema of the name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Commit(pub TableName);

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
