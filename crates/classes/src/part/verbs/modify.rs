//! The `modify` verb: changes the label or type of a partition.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Edit, PartAnswer, TableBefore, TableEdit, edit, params};
use crate::part::class::{PartClass, refusal};

/// A new label or type of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Modify {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// New label [default: unchanged]
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
    /// New type: an alias (`linux-data`), !UUID or !NUMBER [default: unchanged]
    #[serde(default, rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: Option<String>,
}

impl TableEdit for Modify {
    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let Modify { index, label, kind, .. } = self;
        let spec = params::Modify { index, kind, label };
        let next = before.table.modify(&spec).map_err(refusal)?;
        let done = format!("{} modified", before.part_name(&next, index));
        Ok(Change::of(next, Some(index), done))
    }
}

impl Verb<PartClass> for Edit<Modify> {
    const NAME: &'static str = "modify";
    const DOC: &'static str = "Change the label or type of a partition";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part modify ada0 --index 2 --label home";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        edit(control, of, at_once)
    }
}
