//! The `resize` verb: changes the size of a partition.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Change, Edit, PartAnswer, TableBefore, TableEdit, edit, params};
use crate::part::class::{PartClass, refusal};

/// A new size of a partition; by default up to the end of the gap behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// Alignment of the new size, in sectors, or in bytes with a unit.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// New size in sectors, or in bytes with a unit [default: to the end of the gap behind it]
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
}

impl TableEdit for Resize {
    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let Resize { index, align, size, .. } = self;
        let (align, size) = (before.amount(align, "align")?, before.amount(size, "size")?);
        let spec = params::Resize { index, align, size };
        let next = before.table.resize(&spec, &before.uses.open).map_err(refusal)?;
        let done = format!("{} resized", before.part_name(before.table, index));
        Ok(Change::of(next, Some(index), done))
    }
}

impl Verb<PartClass> for Edit<Resize> {
    const NAME: &'static str = "resize";
    const DOC: &'static str = "Change the size of a partition";
    const DETAIL: &'static str = "Without --size the partition grows to the end of the gap behind \
        it. A shrunk partition loses the data behind its new end: shrink the file system first.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part resize ada0 --index 2 --size 20G";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        edit(control, of, at_once)
    }
}
