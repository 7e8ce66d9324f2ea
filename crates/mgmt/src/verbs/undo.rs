//! undo: back to a configuration of the archive.

use super::apply::{ApplyAnswer, carry_out, table};
use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result};
use crate::service::{Consent, Control};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `undo`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UndoParams {
    /// Number of the configuration in `history` [default: the previous one]
    pub to: Option<u64>,
    /// Check every step without changing anything.
    pub dry_run: bool,
    /// Refuse if the running configuration has another generation (see `plan --json`).
    pub if_generation: Option<u64>,
    /// Name of an object whose data may be lost; may be given several times.
    pub yes_destroy: Vec<String>,
}

impl Verb<Control> for UndoParams {
    const NAME: &'static str = "undo";
    const DOC: &'static str = "Return to the previous configuration";
    const DETAIL: &'static str = "The archived configuration is planned and applied like any \
        other, and is archived again: a second undo returns to the present one. With \
        --if-generation, an undo that is repeated after a lost answer is refused. The file \
        ashlar.toml is not changed.";
    const POSITIONAL: &'static [&'static str] = &[];
    const EXAMPLE: &'static str = "undo";
    const MORE_EXAMPLES: &'static [&'static str] = &["undo --to 12 --dry-run"];
    type Answer = ApplyAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<ApplyAnswer> {
        let list = control.archive().list()?;
        let before = list.iter().rev().nth(1).map(|a| a.number);
        let Some(number) = self.to.or(before) else {
            let why = "nothing was applied before the present configuration";
            return Err(Error::new(Kind::NoHistory, "undo", why));
        };
        let config = control.archive().load(number, control.catalog())?;
        let consent = Consent {
            destroy: self.yes_destroy,
            if_generation: self.if_generation,
            dry_run: self.dry_run,
        };
        let note = format!(
            "configuration {number} of history; ashlar.toml is unchanged, `ashlar export` prints \
             what runs"
        );
        carry_out(control, &config, &consent, vec![note], progress)
    }
}

impl CommandVerb<Control> for UndoParams {
    fn table(answer: &ApplyAnswer) -> String {
        table(answer)
    }
}
