//! history: the configurations applied.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::service::{Archived, Control};
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `history`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistoryParams {}

/// Answer of `history`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistoryAnswer {
    /// Configurations, oldest first; the last one is running.
    pub applied: Vec<Archived>,
}

impl Verb<Control> for HistoryParams {
    const NAME: &'static str = "history";
    const DOC: &'static str = "List applied configurations, oldest first";
    const EXAMPLE: &'static str = "history";
    type Answer = HistoryAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<HistoryAnswer> {
        Ok(HistoryAnswer { applied: control.archive().list()? })
    }
}

impl CommandVerb<Control> for HistoryParams {
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
