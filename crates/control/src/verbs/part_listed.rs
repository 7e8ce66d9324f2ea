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

/// What `part status` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatusParams {
    /// Providers with tables, or partitions; all when none is given.
    pub names: Vec<String>,
    /// For scripts: no header, name and state on every line.
    #[schemars(extend("x-short" = "s"))]
    pub script: bool,
    /// Name tables, not their partitions.
    #[schemars(extend("x-short" = "g"))]
    pub geoms: bool,
    /// Tables without a partition too; they are shown without it as well.
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

/// What `part list` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListParams {
    /// Providers with tables, or partitions; all when none is given.
    pub names: Vec<String>,
    /// Tables without a partition too.
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

/// What both answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// As GEOM prints it.
    pub text: String,
    /// The same for programs.
    #[serde(default)]
    pub geoms: Vec<Value>,
}

impl Verb for Status {
    type Params = StatusParams;
    type Answer = Answer;
    const NAME: &'static str = "part.status";
    const DOC: &'static str = "Show each partition, the state of its table and where the table is";
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
