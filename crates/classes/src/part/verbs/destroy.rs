//! The `destroy` verb: removes a table.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Edit, PartAnswer, TableBefore, TableEdit, edit};
use crate::guard;
use crate::part::class::{PartClass, describe, refusal};

/// A table to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destroy {
    /// Provider with the table.
    pub geom: String,
    /// Destroy the table even if it has partitions.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
    /// Name of the provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

impl TableEdit for Destroy {
    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        before.table.may_destroy(&before.uses.open).map_err(refusal)?;
        if !self.force {
            let held = describe(before.table, before.name);
            guard::require_consent(before.name, held, &self.yes_destroy)?;
        }
        let message = format!("{} destroyed", before.name);
        Ok(Change { table: None, touched: None, fresh: None, code: None, message })
    }
}

impl Verb<PartClass> for Edit<Destroy> {
    const NAME: &'static str = "destroy";
    const DOC: &'static str = "Destroy a partition table";
    const DETAIL: &'static str = "The partitions in the table are destroyed too, so --yes-destroy \
        with the name of the provider is required; --force replaces it. A table with a partition \
        in use is never destroyed.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part destroy ada0 --yes-destroy ada0";
    const MORE_EXAMPLES: &'static [&'static str] = &["part destroy -F ada0"];
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        edit(control, of, at_once)
    }
}
