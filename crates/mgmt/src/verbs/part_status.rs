//! part status: the short listing of every GEOM class, for partition tables.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Parameters of `part status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartStatusParams {
    /// Providers with tables, or partitions [default: all]
    pub names: Vec<String>,
    /// For scripts: no header, name and state on every line.
    #[schemars(extend("x-short" = "s"))]
    pub script: bool,
    /// Print names of tables instead of partitions.
    #[schemars(extend("x-short" = "g"))]
    pub geoms: bool,
    /// Include tables without a partition (always done).
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

/// Answer of `part status` and `part list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartListAnswer {
    /// Text in the format of GEOM.
    pub text: String,
    /// The same data for programs.
    #[serde(default)]
    pub geoms: Vec<Value>,
}

impl Verb<Control> for PartStatusParams {
    const NAME: &'static str = "part.status";
    const DOC: &'static str = "Show partitions, the state of their table and its provider";
    const POSITIONAL: &'static [&'static str] = &["names"];
    const EXAMPLE: &'static str = "part status";
    const MORE_EXAMPLES: &'static [&'static str] = &["part status -s ada0"];
    type Answer = PartListAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<PartListAnswer> {
        let PartStatusParams { names, script, geoms, all } = self;
        let params = json!({ "names": names, "script": script, "geoms": geoms, "all": all });
        control.verb(("part", "status"), &params, progress)
    }
}

impl CommandVerb<Control> for PartStatusParams {
    fn table(answer: &PartListAnswer) -> String {
        answer.text.clone()
    }
}
