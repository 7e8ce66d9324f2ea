//! apply: change the daemon to the configuration, wholly or not at all.

use super::entry::CommandVerb;
use super::export::steps_without_secrets;
use super::plan::{desired, lines, load, notes};
use crate::api::{Result, SCHEMA_VERSION};
use crate::plan::Step;
use crate::plant::Progress;
use crate::service::{Consent, Control};
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `apply`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApplyParams {
    /// Configuration file; `-`: standard input [default: $ASHLAR_CONFIG, else
    /// /etc/ashlar/ashlar.toml]
    pub file: Option<String>,
    /// Text of the configuration (the command reads the file).
    #[schemars(extend("x-hidden" = true))]
    pub document: Option<String>,
    /// Check every step without changing anything.
    pub dry_run: bool,
    /// Name of an object whose data may be lost; may be given several times.
    pub yes_destroy: Vec<String>,
    /// Refuse if the running configuration has another generation (see `plan --json`).
    pub if_generation: Option<u64>,
}

/// Answer of `apply` and `undo`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ApplyAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Whether anything was changed.
    pub changed: bool,
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// Generation of the running configuration afterwards.
    pub generation: u64,
    /// Completed steps, in order; for a dry run, the steps that would be done. Secrets that are
    /// written out in the configuration are hidden.
    pub steps: Vec<Step>,
    /// Number of steps that could not be carried out yet; the daemon waits for missing parts.
    #[serde(default)]
    pub waiting: usize,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// The answer for people.
pub fn table(answer: &ApplyAnswer) -> String {
    let notes = notes(&answer.notes);
    let count = text::count(answer.steps.len(), "step");
    match (answer.steps.is_empty(), answer.dry_run) {
        (true, _) => format!("{notes}no changes\n"),
        (false, true) => {
            format!("{}{notes}{count} would be done (dry run)\n", lines(&answer.steps))
        }
        (false, false) => {
            let generation = answer.generation;
            let done = match answer.waiting {
                0 => format!("{count} done"),
                n => format!("{} of {count} done, {n} waited for", answer.steps.len() - n),
            };
            format!("{}{notes}{done}, generation {generation}\n", lines(&answer.steps))
        }
    }
}

/// Applies `config` and words the answer.
///
/// # Errors
/// Those of [`Control::apply`].
pub fn carry_out(
    control: &Control,
    config: &crate::config::Config,
    consent: &Consent,
    mut notes: Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<ApplyAnswer> {
    let (plan, applied) = control.apply(config, consent, progress)?;
    let waiting = applied.deferred.len().min(plan.steps.len());
    notes.extend(applied.notes);
    Ok(ApplyAnswer {
        schema_version: SCHEMA_VERSION,
        changed: !plan.steps.is_empty() && !consent.dry_run,
        dry_run: consent.dry_run,
        generation: control.config().1,
        steps: steps_without_secrets(plan.steps)?,
        waiting,
        notes,
    })
}

impl Verb<Control> for ApplyParams {
    const NAME: &'static str = "apply";
    const DOC: &'static str = "Apply the configuration, completely or not at all";
    const DETAIL: &'static str = "Every step is checked before the first is done. If a step fails, \
        the completed steps are undone. Steps that destroy data need --yes-destroy NAME. The \
        applied configuration is archived: see history and undo.";
    const POSITIONAL: &'static [&'static str] = &["file"];
    const EXAMPLE: &'static str = "apply";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["apply new.toml --dry-run", "apply --yes-destroy scratch"];
    type Answer = ApplyAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<ApplyAnswer> {
        let (config, notes) = desired(control, &self.file, &self.document)?;
        let consent = Consent {
            destroy: self.yes_destroy,
            if_generation: self.if_generation,
            dry_run: self.dry_run,
        };
        carry_out(control, &config, &consent, notes, progress)
    }
}

impl CommandVerb<Control> for ApplyParams {
    const FROM_FILES: &'static [&'static str] = &["document"];

    fn prepare(&mut self, app: &crate::App) -> Result<()> {
        load(&mut self.file, &mut self.document, app)
    }

    fn table(answer: &ApplyAnswer) -> String {
        table(answer)
    }
}
