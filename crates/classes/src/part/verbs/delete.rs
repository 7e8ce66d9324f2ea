//! The `delete` verb: removes a partition from the table.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Edit, PartAnswer, TableBefore, TableEdit, edit};
use crate::part::class::{PartClass, refusal};

/// A partition to be removed from the table. Its data stays on the disk, unreachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// Name of the provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

impl TableEdit for Delete {
    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let next = before.table.delete(self.index, &before.uses.open).map_err(refusal)?;
        before.require_consent(self.index, &self.yes_destroy)?;
        let done = format!("{} deleted", before.part_name(before.table, self.index));
        Ok(Change::of(next, None, done))
    }
}

impl Verb<PartClass> for Edit<Delete> {
    const NAME: &'static str = "delete";
    const DOC: &'static str = "Delete a partition; its data becomes unreachable";
    const DETAIL: &'static str = "Requires --yes-destroy with the name of the partition's \
        provider: --yes-destroy ada0p1.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part delete ada0 --index 1 --yes-destroy ada0p1";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        edit(control, of, at_once)
    }
}
