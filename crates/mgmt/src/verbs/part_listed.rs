//! part status, part list: the listings of every GEOM class, for partition tables.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A line a partition.
pub struct PartStatus;

/// Everything.
pub struct PartList;

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

/// Answer of `part status` and `part list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartListAnswer {
    /// Text in the format of GEOM.
    pub text: String,
    /// The same data for programs.
    #[serde(default)]
    pub geoms: Vec<Value>,
}

impl Verb for PartStatus {
    type Params = PartStatusParams;
    type Answer = PartListAnswer;
    const NAME: &'static str = "part.status";
    const DOC: &'static str = "Show partitions, the state of their table and its provider";
    const DETAIL: &'static str = "";
    const EXAMPLES: &'static [&'static str] = &["ashlar part status", "ashlar part status -s ada0"];
    const POSITIONAL: &'static [&'static str] = &["names"];

    fn table(answer: &PartListAnswer) -> String {
        answer.text.clone()
    }
}

impl DaemonVerb for PartStatus {
    fn run(
        control: &Control,
        params: PartStatusParams,
        progress: &mut Progress<'_>,
    ) -> Result<PartListAnswer> {
        let PartStatusParams { names, script, geoms, all } = params;
        let params = json!({ "names": names, "script": script, "geoms": geoms, "all": all });
        control.verb(("part", "status"), &params, progress)
    }
}

impl Verb for PartList {
    type Params = PartListParams;
    type Answer = PartListAnswer;
    const NAME: &'static str = "part.list";
    const DOC: &'static str = "Show everything about partition tables and partitions";
    const DETAIL: &'static str = "";
    const EXAMPLES: &'static [&'static str] = &["ashlar part list", "ashlar part list ada0"];
    const POSITIONAL: &'static [&'static str] = &["names"];

    fn table(answer: &PartListAnswer) -> String {
        answer.text.clone()
    }
}

impl DaemonVerb for PartList {
    fn run(
        control: &Control,
        params: PartListParams,
        progress: &mut Progress<'_>,
    ) -> Result<PartListAnswer> {
        control.verb(
            ("part", "list"),
            &json!({ "names": params.names, "all": params.all }),
            progress,
        )
    }
}
