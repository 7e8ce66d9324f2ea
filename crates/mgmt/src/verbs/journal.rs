//! journal: the events of the daemon.

use super::entry::CommandVerb;
use crate::api::{Event, Level, Result};
use crate::config::units::short_ns;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most events of one answer. More are had by asking again with `after`.
const EVENTS_MAX: usize = 10_000;

/// Parameters of `journal`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JournalParams {
    /// Show only events with a higher number than this.
    pub after: u64,
    /// Maximum number of events to show, at most 10,000.
    pub limit: usize,
}

impl Default for JournalParams {
    fn default() -> JournalParams {
        JournalParams { after: 0, limit: 1000 }
    }
}

/// Answer of `journal`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JournalAnswer {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Number of requested older events that are lost: the daemon keeps only the newest events.
    #[serde(default)]
    pub forgotten: u64,
}

impl Verb<Control> for JournalParams {
    const NAME: &'static str = "journal";
    const DOC: &'static str = "List events since the daemon started";
    const DETAIL: &'static str = "The path /v1/events of the socket streams the same events live.";
    const EXAMPLE: &'static str = "journal";
    const MORE_EXAMPLES: &'static [&'static str] = &["journal --after 120"];
    type Answer = JournalAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<JournalAnswer> {
        let events = control.journal(self.after, self.limit.min(EVENTS_MAX));
        let oldest = control.plant().journal(self.after, 1);
        let first = oldest.first().map_or(0, |e| e.id);
        let forgotten = first.saturating_sub(self.after).saturating_sub(1);
        Ok(JournalAnswer { events, forgotten })
    }
}

impl CommandVerb<Control> for JournalParams {
    fn table(answer: &JournalAnswer) -> String {
        let level = |l: Level| match l {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        let row = |e: &Event| {
            vec![
                e.id.to_string(),
                short_ns(e.at_ns),
                level(e.level).to_owned(),
                text::or_dash(&e.about),
                e.text.clone(),
            ]
        };
        let rows: Vec<_> = answer.events.iter().map(row).collect();
        let table = text::table(&[">id", ">at", "level", "about", "event"], &rows);
        match answer.forgotten {
            0 => table,
            n => format!("{table}{n} events before these are forgotten\n"),
        }
    }
}
