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
pub struct HistoryParams {}

/// Answer of `history`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistoryAnswer {
    /// Configurations, oldest first; the last one is running.
    pub applied: Vec<Archived>,
}

impl Verb for History {
    type Params = HistoryParams;
    type Answer = HistoryAnswer;
    const NAME: &'static str = "history";
    const DOC: &'static str = "List applied configurations, oldest first";
    const EXAMPLES: &'static [&'static str] = &["ashlar history"];

    fn table(answer: &HistoryAnswer) -> String {
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
    fn run(
        control: &Control,
        _params: HistoryParams,
        _progress: &mut Progress<'_>,
    ) -> Result<HistoryAnswer> {
        Ok(HistoryAnswer { applied: control.archive().list()? })
    }
}
