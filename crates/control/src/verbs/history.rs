//! history: the configurations applied.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::plant::Progress;
use crate::service::{Archived, Control};
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
pub struct History;

/// Parameters of `history`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Params {}

/// Answer of `history`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Configurations, oldest first; the last one is running.
    pub applied: Vec<Archived>,
}

impl Verb for History {
    type Params = Params;
    type Answer = Answer;
    const NAME: &'static str = "history";
    const DOC: &'static str = "List applied configurations, oldest first";
    const EXAMPLES: &'static [&'static str] = &["ashlar history"];

    fn table(answer: &Answer) -> String {
        let row = |a: &Archived| {
            vec![
                a.number.to_string(),
                text::utc(a.applied_unix_s),
                a.bytes.to_string(),
                a.path.clone(),
            ]
        };
        let rows: Vec<_> = answer.applied.iter().map(row).collect();
        text::table(&[">number", "applied", ">bytes", "file"], &rows)
    }
}

impl DaemonVerb for History {
    fn run(control: &Control, _params: Params, _progress: &mut Progress<'_>) -> Result<Answer> {
        Ok(Answer { applied: control.archive().list()? })
    }
}
