//! The `add` verb: adds a partition.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Change, Edit, PartAnswer, TableBefore, TableEdit, edit, params};
use crate::part::class::{PartClass, refusal};

/// A new partition. Defaults: the first gap, the whole gap, the first free index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// Provider with the table.
    pub geom: String,
    /// Type: an alias (`linux-data`), !UUID or !NUMBER.
    #[serde(rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: String,
    /// Alignment of start and size, in sectors, or in bytes with a unit.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// First sector, or its offset in bytes with a unit [default: the first gap that is large
    /// enough]
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub start: Option<Amount>,
    /// Size in sectors, or in bytes with a unit [default: the whole gap]
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
    /// Index of the partition, from 1 [default: the first free index]
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Label of the partition, if the scheme has labels [default: none]
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
}

impl TableEdit for Add {
    const NEEDS_ID: bool = true;

    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let Add { kind, align, start, size, index, label, .. } = self;
        let (align, start) = (before.amount(align, "align")?, before.amount(start, "start")?);
        let size = before.amount(size, "size")?;
        let spec = params::Add { kind, align, start, size, index, label };
        let (next, index) = before.table.add(&spec, before.id).map_err(refusal)?;
        let done = format!("{} added", before.part_name(&next, index));
        Ok(Change::of(next, Some(index), done))
    }
}

impl Verb<PartClass> for Edit<Add> {
    const NAME: &'static str = "add";
    const DOC: &'static str = "Add a partition";
    const DETAIL: &'static str = "Missing values are filled in: the first gap, the whole gap, the \
        first free index. Numbers are sectors; numbers with a unit are bytes.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str =
        "part add ada0 --type linux-data --size 10G --align 1M --label root";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        edit(control, of, at_once)
    }
}
