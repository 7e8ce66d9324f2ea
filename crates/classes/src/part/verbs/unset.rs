//! The verb `unset`: the end of an attribute of a partition or table.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::set::{Attribute, AttributeEdit};
use super::{Edit, PartAnswer, edit};
use crate::part::class::PartClass;

// Without a comment of its own, it has the schema of the edit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Unset(pub Edit<Attribute>);

impl Verb<PartClass> for Unset {
    const NAME: &'static str = "unset";
    const DOC: &'static str = "Unset an attribute of a partition or table";
    const DETAIL: &'static str = "Accepts the same attributes as `part set`; unsetting bootonce \
        leaves bootme as it is.";
    const POSITIONAL: &'static [&'static str] = &["geom", "attribute"];
    const EXAMPLE: &'static str = "part unset ada0 bootme --index 2";
    const MORE_EXAMPLES: &'static [&'static str] = &["part unset -a bootonce -i 2 ada0"];
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.0.parts();
        edit(control, AttributeEdit(of, false), at_once)
    }
}
