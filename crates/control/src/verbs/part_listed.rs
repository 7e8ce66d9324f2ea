//! part status, part list: the listings of every GEOM class, for partition tables.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A line a partition.
pub struct Status;

/// Everything.
pub struct List;

/// Parameters of `part status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatusParams {
    /// Providers with tables, or partitions; all when none is given.
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
pub struct ListParams {
    /// Providers with tables, or partitions; all when none is given.
    pub names: Vec<String>,
    /// Include tables without a partition.
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

/// Answer of `part status` and `part list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Text in the format of GEOM.
    pub text: String,
    /// The same data for programs.
    #[serde(default)]
    pub geoms: Vec<Value>,
}

impl Verb for Status {
    type Params = StatusParams;
    type Answer = Answer;
    const NAME: &'static str = "part.status";
    const DOC: &'static str = "Show partitions, the state of their table and its provider";
    const DETAIL: &'static str = "";
    const EXAMPLES: &'static [&'static str] = &["ashlar part status", "ashlar part status -s ada0"];
    const POSITIONAL: &'static [&'static str] = &["names"];

    fn table(answer: &Answer) -> String {
        answer.text.clone()
    }
}

impl DaemonVerb for Status {
    fn run(control: &Control, params: StatusParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let StatusParams { names, script, geoms, all } = params;
        let params = json!({ "names": names, "script": script, "geoms": geoms, "all": all });
        control.verb(("part", "status"), &params, progress)
    }
}

impl Verb for List {
    type Params = ListParams;
    type Answer = Answer;
    const NAME: &'static str = "part.list";
    const DOC: &'static str = "Show everything about partition tables and partitions";
    const DETAIL: &'static str = "";
    const EXAMPLES: &'static [&'static str] = &["ashlar part list", "ashlar part list ada0"];
    const POSITIONAL: &'static [&'static str] = &["names"];

    fn table(answer: &Answer) -> String {
        answer.text.clone()
    }
}

impl DaemonVerb for List {
    fn run(control: &Control, params: ListParams, progress: &mut Progress<'_>) -> Result<Answer> {
        control.verb(
            ("part", "list"),
            &json!({ "names": params.names, "all": params.all }),
            progress,
        )
    }
}
