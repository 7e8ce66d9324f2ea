//! plan: the steps that `apply` would take.

use super::entry::CommandVerb;
use super::export::steps_without_secrets;
use crate::api::{Error, Exit, Kind, Result, SCHEMA_VERSION};
use crate::config::{CONFIG_BYTES_MAX, exposures, read, secret, webhook};
use crate::plan::{Risk, Step, consent_names, grown_disks, manual_changes, resize_commands};
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Parameters of `plan`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanParams {
    /// Configuration file; `-`: standard input [default: $ASHLAR_CONFIG, else
    /// /etc/ashlar/ashlar.toml]
    pub file: Option<String>,
    /// Text of the configuration (the command reads the file).
    #[schemars(extend("x-hidden" = true))]
    pub document: Option<String>,
}

/// Answer of `plan`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Generation of the running configuration that the plan starts from.
    pub generation: u64,
    /// The worst risk of all steps; absent if there are no steps.
    pub risk: Option<Risk>,
    /// Steps that would be done, in order: all of them, or none if `refused` is not empty. Secrets
    /// that are written out in the configuration are hidden.
    pub steps: Vec<Step>,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Steps that cannot be carried out, each with the reason. If there are any, `apply` refuses
    /// the whole plan and does none of `steps`.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// The file that is meant when none is named.
pub fn default_file() -> String {
    std::env::var("ASHLAR_CONFIG").unwrap_or_else(|_| "/etc/ashlar/ashlar.toml".to_owned())
}

/// Reads the document on the client's side and looks for faults.
///
/// # Errors
/// [`Kind::System`], and those of `read`.
pub fn load(
    file: &mut Option<String>,
    document: &mut Option<String>,
    app: &crate::App,
) -> Result<()> {
    if document.is_some() {
        return Ok(());
    }
    let name = file.clone().unwrap_or_else(default_file);
    let fail = |e: std::io::Error| {
        Error::new(Kind::System, "read configuration", e)
            .at(name.clone())
            .next("Name the file: ashlar plan FILE.")
    };
    let mut text = String::new();
    let limit = u64::try_from(CONFIG_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    if name == "-" {
        std::io::stdin().take(limit).read_to_string(&mut text).map_err(fail)?;
    } else {
        let opened = std::fs::File::open(&name).map_err(fail)?;
        opened.take(limit).read_to_string(&mut text).map_err(fail)?;
    }
    read(&text, &name, &(app.catalog)())?;
    // The daemon's working folder is another.
    let full = std::path::absolute(&name).ok().and_then(|path| path.to_str().map(str::to_owned));
    *file = Some(full.unwrap_or(name));
    *document = Some(text);
    Ok(())
}

/// The document of a request, read through the schemas, with notes about it. Paths of webhooks that
/// `export` has hidden are those that run.
///
/// # Errors
/// Those of `read`; [`Kind::Usage`] when the request has no document.
pub fn desired(
    control: &Control,
    file: &Option<String>,
    document: &Option<String>,
) -> Result<(crate::config::Config, Vec<String>)> {
    let Some(document) = document else {
        return Err(Error::new(Kind::Usage, "plan", "`document` is missing"));
    };
    let mut config = read(document, file.as_deref().unwrap_or("document"), control.catalog())?;
    webhook::restore_paths(&mut config, &control.config().0);
    let mut notes = Vec::new();
    for target in &config.target {
        let all = [&target.chap, &target.mutual_chap, &target.discovery_chap];
        let groups = config.access.iter().filter(|a| a.target == target.name);
        let accounts = groups.flat_map(|a| a.accounts().map(|(_, c)| &c.secret));
        let mut secrets = all.into_iter().flatten().map(|c| &c.secret).chain(accounts);
        if secrets.any(|s| secret::is_literal(s)) {
            let name = &target.name;
            notes
                .push(format!("{name}: a secret is written in the file; use file: or credential:"));
        }
    }
    let exposed = exposures(&config, control.catalog()).into_iter();
    notes.extend(exposed.map(|e| format!("{}: {}; {}", e.target, e.why, e.fix)));
    Ok((config, notes))
}

/// Steps as lines: risk, what, why.
pub fn lines(steps: &[Step]) -> String {
    let sign = |step: &Step| match step.what.split(' ').next() {
        Some("create") => "+",
        Some("remove") => "-",
        _ => "~",
    };
    let row = |s: &Step| vec![format!("{} {}", sign(s), s.what), s.risk_text(), s.why.clone()];
    text::table(&["step", "risk", "why"], &steps.iter().map(row).collect::<Vec<_>>())
}

/// The options of `apply` that consent to each loss of data.
fn consents(steps: &[Step]) -> String {
    let names = consent_names(steps).into_iter();
    names.map(|name| format!(" --yes-destroy {}", text::shell_word(&name))).collect()
}

/// Notes as lines.
pub fn notes(notes: &[String]) -> String {
    notes.iter().map(|n| format!("note: {n}\n")).collect()
}

impl Verb<Control> for PlanParams {
    const NAME: &'static str = "plan";
    const DOC: &'static str = "Show what apply would change, with the risk of each step";
    const DETAIL: &'static str = "Compares the configuration with the running one. Exit code 0 if \
        they agree, 6 if there are changes, 1 if one of the changes cannot be carried out. Changes \
        nothing. Risks: safe (no host notices), disruptive (a connected host loses something, or \
        there is only one copy for a while), destroys (data is lost).";
    const POSITIONAL: &'static [&'static str] = &["file"];
    const EXAMPLE: &'static str = "plan";
    const MORE_EXAMPLES: &'static [&'static str] = &["plan new.toml --json"];
    type Answer = PlanAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<PlanAnswer> {
        let (config, mut notes) = desired(control, &self.file, &self.document)?;
        let state = control.state()?;
        let larger = grown_disks(&config, &state).into_iter();
        notes.extend(larger.map(|l| format!("disk {}: {}. {}", l.disk, l.why, l.fix)));
        let plan = control.plan(&config)?;
        notes.extend(resize_commands(&plan.steps, &state));
        // A geom that a step changes does not keep the state that was made by hand.
        let changes = |at: &str| {
            let mut geoms = plan.steps.iter().filter_map(|step| step.action.geom());
            geoms.any(|geom| at == format!("{} {}", geom.class, geom.name))
        };
        let by_hand = manual_changes(&config, &state, control.catalog()).into_iter();
        let adopted: Vec<String> = plan.adopted().collect();
        let by_hand = by_hand.filter(|h| !changes(&h.object) && !adopted.contains(&h.object));
        notes.extend(by_hand.map(|h| format!("{}: {}. {}", h.object, h.why, h.fix)));
        let keeps = |at: &String| format!("{at}: made by hand; `ashlar apply` keeps it as it is");
        notes.extend(adopted.iter().map(keeps));
        let (refused, awaited) = control.refused_steps(&plan);
        notes.extend(awaited.into_iter().map(|why| format!("{why}; the daemon waits for it")));
        Ok(PlanAnswer {
            schema_version: SCHEMA_VERSION,
            generation: plan.generation,
            risk: plan.steps.iter().map(|s| s.risk).max(),
            refused,
            steps: steps_without_secrets(plan.steps)?,
            notes,
        })
    }
}

impl CommandVerb<Control> for PlanParams {
    const FROM_FILES: &'static [&'static str] = &["document"];

    fn prepare(&mut self, app: &crate::App) -> Result<()> {
        load(&mut self.file, &mut self.document, app)
    }

    fn table(answer: &PlanAnswer) -> String {
        let notes = notes(&answer.notes);
        if answer.steps.is_empty() {
            return format!("{notes}no changes\n");
        }
        let count = text::count(answer.steps.len(), "step");
        let worst = answer.risk.unwrap_or_default().label();
        if !answer.refused.is_empty() {
            // No table of steps: none of them is done.
            let why: String = answer.refused.iter().map(|r| format!("  {r}\n")).collect();
            return format!(
                "{notes}`apply` would refuse and do none of {count}, because these are \
                 impossible:\n{why}"
            );
        }
        let flags = consents(&answer.steps);
        format!(
            "{notes}{}{count}, at worst {worst}; `ashlar apply{flags}` does it\n",
            lines(&answer.steps)
        )
    }

    fn exit(answer: &PlanAnswer) -> Exit {
        match (answer.steps.is_empty(), answer.refused.is_empty()) {
            (true, _) => Exit::Done,
            (false, true) => Exit::Pending,
            (false, false) => Exit::Failed,
        }
    }
}
