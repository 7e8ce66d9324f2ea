//! access: who sees what, before anybody logs in. Masking is a pure function of the groups.

use super::entry::{DaemonVerb, Verb};
use crate::api::{Error, GroupState, Kind, LunState, Result, State};
use crate::plant::Progress;
use crate::service::Control;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which LUNs an initiator would see.
pub struct Check;

/// What `access check` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CheckParams {
    /// Name of the initiator.
    pub initiator: String,
    /// Only of this target.
    #[serde(default)]
    pub target: Option<String>,
}

/// What one target shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// The target.
    pub target: String,
    /// The group that matches; absent when none does, and then nothing is seen.
    pub group: Option<String>,
    /// Why: the pattern that matches, or that none does.
    pub why: String,
    /// What is seen.
    pub luns: Vec<LunState>,
}

/// What `access check` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CheckAnswer {
    /// The initiator asked for.
    pub initiator: String,
    /// Every target.
    pub targets: Vec<Seen>,
}

/// The group of `groups` in which an initiator falls, with the pattern that says so.
pub fn group_of<'g>(
    groups: &'g [GroupState],
    initiator: &str,
) -> Option<(&'g GroupState, &'g str)> {
    groups.iter().find_map(|group| {
        let pattern = group.initiators.iter().find(|p| wire::pattern::matches(p, initiator))?;
        Some((group, pattern.as_str()))
    })
}

fn check(state: &State, params: CheckParams) -> CheckAnswer {
    let wanted =
        |name: &String| params.target.as_ref().is_none_or(|t| t.eq_ignore_ascii_case(name));
    let seen = |target: &crate::api::TargetState| match group_of(&target.groups, &params.initiator)
    {
        Some((group, pattern)) => Seen {
            target: target.name.clone(),
            group: Some(group.name.clone()),
            why: format!("matches {pattern}"),
            luns: group.luns.clone(),
        },
        None => Seen {
            target: target.name.clone(),
            group: None,
            why: "no group matches; the default is deny".to_owned(),
            luns: Vec::new(),
        },
    };
    let targets = state.targets.iter().filter(|t| wanted(&t.name)).map(seen).collect();
    CheckAnswer { initiator: params.initiator, targets }
}

fn mode(lun: &LunState) -> &'static str {
    if lun.read_only { "read only" } else { "read write" }
}

impl Verb for Check {
    type Params = CheckParams;
    type Answer = CheckAnswer;
    const NAME: &'static str = "access.check";
    const DOC: &'static str = "Say which LUNs an initiator would see, and why";
    const EXAMPLES: &'static [&'static str] = &["ashlar access check iqn.1998-01.com.vmware:esx1"];
    const POSITIONAL: &'static [&'static str] = &["initiator"];

    fn table(answer: &CheckAnswer) -> String {
        let mut rows = Vec::new();
        for seen in &answer.targets {
            let head = |lun: String, provider: String, mode: String| {
                let group = seen.group.clone().unwrap_or_else(|| "-".to_owned());
                vec![seen.target.clone(), group, lun, provider, mode, seen.why.clone()]
            };
            if seen.luns.is_empty() {
                rows.push(head("-".into(), "-".into(), "nothing".into()));
            }
            let line = |l: &LunState| head(l.lun.to_string(), l.provider.clone(), mode(l).into());
            rows.extend(seen.luns.iter().map(line));
        }
        if rows.is_empty() {
            return "no such target\n".to_owned();
        }
        text::table(&["target", "group", ">lun", "provider", "mode", "why"], &rows)
    }
}

impl DaemonVerb for Check {
    fn run(
        control: &Control,
        params: CheckParams,
        _progress: &mut Progress<'_>,
    ) -> Result<CheckAnswer> {
        Ok(check(&control.state(), params))
    }
}

/// Who may see a provider.
pub struct Who;

/// What `access who` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WhoParams {
    /// Name of a provider, or a LUN as TARGET/GROUP/NUMBER, or the serial number of a LUN.
    pub lun: String,
}

/// One way to a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// The target.
    pub target: String,
    /// The group.
    pub group: String,
    /// The LUN.
    pub lun: LunState,
    /// Who may: patterns of initiator names.
    pub initiators: Vec<String>,
    /// Who is connected now.
    pub connected: Vec<String>,
}

/// What `access who` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WhoAnswer {
    /// Every way; none when nobody may.
    pub ways: Vec<Way>,
}

fn who(state: &State, wanted: &str) -> WhoAnswer {
    let mut ways = Vec::new();
    for target in &state.targets {
        for group in &target.groups {
            let here = |s: &&crate::api::SessionState| s.group.as_ref() == Some(&group.name);
            let connected: Vec<String> =
                target.sessions.iter().filter(here).map(|s| s.initiator.clone()).collect();
            let path = |l: &LunState| format!("{}/{}/{}", target.name, group.name, l.lun);
            let meant =
                |l: &&LunState| l.provider == wanted || l.serial == wanted || path(l) == wanted;
            ways.extend(group.luns.iter().filter(meant).map(|lun| Way {
                target: target.name.clone(),
                group: group.name.clone(),
                lun: lun.clone(),
                initiators: group.initiators.clone(),
                connected: connected.clone(),
            }));
        }
    }
    WhoAnswer { ways }
}

impl Verb for Who {
    type Params = WhoParams;
    type Answer = WhoAnswer;
    const NAME: &'static str = "access.who";
    const DOC: &'static str = "Say who may see a provider or LUN, and who does now";
    const EXAMPLES: &'static [&'static str] = &["ashlar access who d0p1"];
    const POSITIONAL: &'static [&'static str] = &["lun"];

    fn table(answer: &WhoAnswer) -> String {
        if answer.ways.is_empty() {
            return "nobody\n".to_owned();
        }
        let row = |w: &Way| {
            vec![
                w.target.clone(),
                w.group.clone(),
                w.lun.lun.to_string(),
                mode(&w.lun).to_owned(),
                w.initiators.join(" "),
                text::dash(&w.connected.join(" ")),
            ]
        };
        let rows: Vec<_> = answer.ways.iter().map(row).collect();
        text::table(&["target", "group", ">lun", "mode", "may", "connected now"], &rows)
    }
}

impl DaemonVerb for Who {
    fn run(
        control: &Control,
        params: WhoParams,
        _progress: &mut Progress<'_>,
    ) -> Result<WhoAnswer> {
        let state = control.state();
        let answer = who(&state, &params.lun);
        if answer.ways.is_empty() && state.provider(&params.lun).is_none() {
            let why = "no provider and no LUN is called so";
            return Err(Error::new(Kind::NotFound, "access who", why).at(params.lun));
        }
        Ok(answer)
    }
}
