//! The verb `set`: an attribute of a partition or table.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Edit, PartAnswer, TableBefore, TableEdit, edit, params};
use crate::part::class::{PartClass, refusal};

/// An attribute of a partition, or of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Provider with the table.
    pub geom: String,
    /// Attribute, such as bootme or active.
    #[serde(default)]
    pub attribute: Option<String>,
    /// Attribute, given as an option instead of an argument.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub attrib: Option<String>,
    /// Index of the partition, from 1 [default: the table itself]
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
}

// Without a comment of its own, it has the schema of the edit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Set(pub Edit<Attribute>);

/// An attribute, and its new value.
pub(super) struct AttributeEdit(pub(super) Attribute, pub(super) bool);

impl TableEdit for AttributeEdit {
    fn geom(&self) -> &str {
        &self.0.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let AttributeEdit(Attribute { attribute, attrib, index, .. }, on) = self;
        let attrib = match (attribute, attrib) {
            (Some(one), None) | (None, Some(one)) => one,
            (Some(_), Some(_)) => return Err(Error::inval("the attribute is given twice")),
            (None, None) => {
                let what = "no attribute is given: name one, as `-a bootme`; `ashlar part set \
                            --help` has them all";
                return Err(Error::inval(what));
            }
        };
        let done = if on { "set on" } else { "unset on" };
        let at = index.map_or(before.name.to_owned(), |at| before.part_name(before.table, at));
        let spec = params::Attribute { attrib, index };
        let next = before.table.attribute(&spec, on).map_err(refusal)?;
        Ok(Change::of(next, index, format!("{} {done} {at}", spec.attrib)))
    }
}

impl Verb<PartClass> for Set {
    const NAME: &'static str = "set";
    const DOC: &'static str = "Set an attribute of a partition or table";
    const DETAIL: &'static str = "GPT: bootme, bootonce (also sets bootme), bootfailed, \
        legacy-boot, required, no-block-io, read-only, hidden, no-automount of a partition, active \
        and lenovofix of the table. MBR, EBR: active of a partition.";
    const POSITIONAL: &'static [&'static str] = &["geom", "attribute"];
    const EXAMPLE: &'static str = "part set ada0 bootme --index 2";
    const MORE_EXAMPLES: &'static [&'static str] = &["part set -a bootonce -i 2 ada0"];
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.0.parts();
        edit(control, AttributeEdit(of, true), at_once)
    }
}
