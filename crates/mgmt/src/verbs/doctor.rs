//! doctor: checks of this machine, each with the command that fixes its problem.

use super::entry::{CommandVerb, Local};
use super::plan::{self, default_file};
use crate::App;
use crate::api::{Error, Exit, Kind, Result};
use crate::client::Client;
use crate::config::{Catalog, Config, TargetConfig, read, read_text};
use crate::doctor::{CHECKS, Check, CheckFinding, Facts, Severity};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

/// Parameters of `doctor`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DoctorParams {
    /// Run only this check [default: all checks]
    pub check: Option<String>,
    /// Configuration file to check [default: $ASHLAR_CONFIG, else /etc/ashlar/ashlar.toml]
    pub file: Option<String>,
}

/// Answer of `doctor`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DoctorAnswer {
    /// Findings of all checks, in order.
    pub findings: Vec<CheckFinding>,
}

impl Verb<App> for DoctorParams {
    const NAME: &'static str = "doctor";
    const DOC: &'static str = "Check for problems and print the command that fixes each";
    const DETAIL: &'static str = "Runs with or without a daemon. With --remote only checks that \
        need the state alone are made: io_uring, certificates, listeners, buses and version. Exit \
        code 3 if a check finds a problem.";
    const POSITIONAL: &'static [&'static str] = &["check"];
    const EXAMPLE: &'static str = "doctor";
    const MORE_EXAMPLES: &'static [&'static str] = &["doctor ports"];
    type Answer = DoctorAnswer;

    fn run(self, local: Local<'_>) -> Result<DoctorAnswer> {
        let wanted = wanted(&self)?;
        let is_remote = local.client.is_remote();
        let facts = if is_remote { remote_facts(&local, &wanted)? } else { facts(&local, self) };
        let checked = wanted.into_iter().filter(|check| !is_remote || check.is_of_state());
        Ok(DoctorAnswer { findings: checked.flat_map(|check| check.run(&facts)).collect() })
    }
}

impl CommandVerb<App> for DoctorParams {
    fn table(answer: &DoctorAnswer) -> String {
        let one = |f: &CheckFinding| match f.grade {
            Severity::Ok => format!("ok     {}: {}\n", f.check, f.finding),
            grade => format!(
                "{:<6} {}: {}\n       consequence: {}\n       fix: {}\n",
                grade.label(),
                f.check,
                f.finding,
                f.consequence,
                f.fix
            ),
        };
        answer.findings.iter().map(one).collect()
    }

    fn exit(answer: &DoctorAnswer) -> Exit {
        let ok = answer.findings.iter().all(|f| f.grade == Severity::Ok);
        if ok { Exit::Done } else { Exit::Degraded }
    }
}

/// The named check, or all.
fn wanted(params: &DoctorParams) -> Result<Vec<&'static Check>> {
    let Some(name) = &params.check else { return Ok(CHECKS.iter().collect()) };
    if let Some(check) = CHECKS.iter().find(|check| check.id == name) {
        return Ok(vec![check]);
    }
    let all: Vec<String> = CHECKS.iter().map(|c| format!("{} ({})", c.id, c.doc)).collect();
    let why = format!("no such check; there are: {}", all.join(", "));
    Err(Error::new(Kind::Usage, "doctor", why).at(name.clone()))
}

/// Facts about a daemon of another machine: its state alone.
fn remote_facts(local: &Local<'_>, wanted: &[&Check]) -> Result<Facts> {
    if let [check] = wanted
        && !check.is_of_state()
    {
        let why = "the check examines the machine of the daemon, not its state";
        let next = format!("Run `ashlar doctor {}` on that machine.", check.id);
        return Err(Error::new(Kind::Usage, "doctor", why).at(check.id).next(next));
    }
    Ok(Facts {
        proc: "/proc".into(),
        catalog: (local.app.catalog)(),
        file: default_file().into(),
        config: None,
        socket: local.client.socket().to_owned(),
        daemon: Ok(local.client.state()?),
        refused_steps: Vec::new(),
        version: local.app.version.to_owned(),
    })
}

/// Facts about this machine.
fn facts(local: &Local<'_>, params: DoctorParams) -> Facts {
    let file = params.file.unwrap_or_else(default_file);
    let text = read_text(Path::new(&file));
    let catalog = (local.app.catalog)();
    let daemon = local.client.state();
    let mut refused = Vec::new();
    let config = match text {
        Ok(text) => {
            let config = read(&text, &file, &catalog);
            if let Ok(judged) = &config {
                refused = match &daemon {
                    Ok(_) => refusals(local.client, &file, text, judged, &catalog),
                    Err(e) if e.kind == Kind::Unreachable => {
                        catalog.check_start.map_or_else(Vec::new, |check| check(judged))
                    }
                    // One that runs, also one that is silent, has locked the files of its disks.
                    Err(_) => Vec::new(),
                };
            }
            Some(config)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => Some(Err(Error::new(Kind::System, "read configuration", e).at(&file))),
    };
    Facts {
        proc: "/proc".into(),
        catalog,
        file: file.into(),
        config,
        socket: local.client.socket().to_owned(),
        daemon,
        refused_steps: refused,
        version: local.app.version.to_owned(),
    }
}

/// The refusals of the daemon for the configuration, besides those of drivers for targets.
fn refusals(
    client: &Client,
    file: &str,
    document: String,
    config: &Config,
    catalog: &Catalog,
) -> Vec<String> {
    let bad = |t: &TargetConfig| catalog.check_target.is_some_and(|judge| judge(t).is_err());
    if config.target.iter().any(bad) {
        return Vec::new();
    }
    let full = std::path::absolute(file).ok().and_then(|path| path.to_str().map(str::to_owned));
    let params = json!({ "file": full.as_deref().unwrap_or(file), "document": document });
    // One that does not answer has a finding of its own.
    let answer = client.verb("plan", &params, &mut |_| {}).ok();
    let answer = answer.and_then(|answer| plan::PlanAnswer::deserialize(&answer).ok());
    answer.unwrap_or_default().refused
}
