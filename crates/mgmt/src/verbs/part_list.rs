//! part list: the full listing of every GEOM class, for partition tables.

use super::entry::CommandVerb;
use super::part_status::PartListAnswer;
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `part list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartListParams {
    /// Providers with tables, or partitions [default: all]
    pub names: Vec<String>,
    /// Include tables without a partition.
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

impl Verb<Control> for PartListParams {
    const NAME: &'static str = "part.list";
    const DOC: &'static str = "Show everything about partition tables and partitions";
    const POSITIONAL: &'static [&'static str] = &["names"];
    const EXAMPLE: &'static str = "part list";
    const MORE_EXAMPLES: &'static [&'static str] = &["part list ada0"];
    type Answer = PartListAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<PartListAnswer> {
        let params = json!({ "names": self.names, "all": self.all });
        control.verb(("part", "list"), &params, progress)
    }
}

impl CommandVerb<Control> for PartListParams {
    fn table(answer: &PartListAnswer) -> String {
        answer.text.clone()
    }
}
