//! audit: the audit log of the API.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::audit::AuditEntry;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Entries of an answer when no limit is given.
const LIMIT: u32 = 100;

/// Parameters of `audit`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditParams {
    /// Maximum number of entries to show
    #[serde(default = "limit")]
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: Option<u32>,
}

fn limit() -> Option<u32> {
    Some(LIMIT)
}

/// Answer of `audit`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditAnswer {
    /// The newest entries, oldest first.
    pub entries: Vec<AuditEntry>,
}

impl Verb<Control> for AuditParams {
    const NAME: &'static str = "audit";
    const DOC: &'static str = "List changes and logins with their callers";
    const DETAIL: &'static str = "The log is in the folder `api` of the state folder and survives \
        restarts. Of the logins of one caller from one address, one a minute is recorded. A change \
        has two entries: one before it begins and one with its result. `before` and `after` are \
        generations of the configuration; `ashlar history` lists the files. The result of an \
        `apply` has its steps. That of a verb of a class has the former and present values of the \
        properties that changed while it ran, and so have those of `reservations --clear`, `alua \
        set`, `tray`, `sessions end`, `attach`, `detach` and `token`.";
    const EXAMPLE: &'static str = "audit";
    const MORE_EXAMPLES: &'static [&'static str] = &["audit --limit 10 --json"];
    type Answer = AuditAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<AuditAnswer> {
        let limit = usize::try_from(self.limit.unwrap_or(LIMIT)).unwrap_or(usize::MAX);
        Ok(AuditAnswer { entries: control.audit().newest(limit)? })
    }
}

impl CommandVerb<Control> for AuditParams {
    fn table(answer: &AuditAnswer) -> String {
        if answer.entries.is_empty() {
            return "no entries\n".to_owned();
        }
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let row = |e: &AuditEntry| {
            vec![
                text::utc(e.at_unix_s),
                text::or_dash(&e.who),
                text::or_dash(&e.address),
                e.what.clone(),
                number(e.before),
                number(e.after),
                match e.changes.is_empty() {
                    true => e.result.clone(),
                    false => format!("{}: {}", e.result, e.changes.join("; ")),
                },
            ]
        };
        let rows: Vec<_> = answer.entries.iter().map(row).collect();
        let columns = ["time", "who", "address", "what", ">before", ">after", "result"];
        text::table(&columns, &rows)
    }
}
