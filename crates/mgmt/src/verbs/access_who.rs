//! access who: the initiators that may use a provider or LUN.

use super::access::{MISSING_MODE, mode};
use super::entry::CommandVerb;
use crate::api::{Error, Kind, LunState, PendingLunState, Result, SystemState};
use crate::plan::DependencyGraph;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `access who`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccessWhoParams {
    /// Name of a provider, or a LUN as TARGET/GROUP/NUMBER, or the serial number of a LUN.
    pub lun: String,
}

/// One LUN that gives access to a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LunAccess {
    /// The target.
    pub target: String,
    /// The group.
    pub group: String,
    /// The LUN.
    pub lun: LunState,
    /// The provider of the LUN is missing and awaited.
    #[serde(default)]
    pub missing: bool,
    /// Patterns of the names of initiators that may use the LUN.
    pub initiators: Vec<String>,
    /// Portals through which they may use it; empty: all.
    pub portals: Vec<String>,
    /// Initiators that are connected now.
    pub connected: Vec<String>,
}

/// Answer of `access who`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccessWhoAnswer {
    /// All LUNs that give access; empty if no initiator has access.
    pub ways: Vec<LunAccess>,
}

/// A LUN that is not there yet, as far as it is known.
fn pending_lun(awaited: &PendingLunState) -> LunState {
    let PendingLunState { lun, provider } = awaited.clone();
    LunState { lun, provider, ..LunState::default() }
}

fn exported_luns(state: &SystemState, wanted: &str) -> AccessWhoAnswer {
    let ground = DependencyGraph::new(state);
    let is_provider =
        state.provider(wanted).is_some() || state.disks.iter().any(|d| d.name == wanted);
    let mut ways = Vec::new();
    for target in &state.targets {
        for group in &target.groups {
            let in_group = |s: &&crate::api::SessionState| s.group.as_ref() == Some(&group.name);
            let connected: Vec<String> =
                target.sessions.iter().filter(in_group).map(|s| s.initiator.clone()).collect();
            let path = |l: &LunState| format!("{}/{}/{}", target.name, group.name, l.lun);
            let meant = |l: &&LunState| {
                l.provider == wanted || l.serial == wanted || path(l) == wanted
                    // A partition of it, or any other provider above it.
                    || is_provider && ground.depends_on(&l.provider, wanted)
            };
            let way = |lun: LunState, missing: bool| LunAccess {
                target: target.name.clone(),
                group: group.name.clone(),
                lun,
                missing,
                initiators: group.initiators.clone(),
                portals: group.portals.clone(),
                connected: connected.clone(),
            };
            let awaited: Vec<LunState> = group.awaited.iter().map(pending_lun).collect();
            ways.extend(group.luns.iter().filter(meant).map(|lun| way(lun.clone(), false)));
            ways.extend(awaited.iter().filter(meant).map(|lun| way(lun.clone(), true)));
        }
    }
    AccessWhoAnswer { ways }
}

fn initiators_text(way: &LunAccess) -> String {
    match way.portals.is_empty() {
        true => way.initiators.join(" "),
        false => format!("{} at {}", way.initiators.join(" "), way.portals.join(" ")),
    }
}

impl Verb<Control> for AccessWhoParams {
    const NAME: &'static str = "access.who";
    const DOC: &'static str = "Show which initiators may use a provider or LUN";
    const DETAIL: &'static str = "Also shows which initiators are connected now. For a disk or \
        another provider, the LUNs of all providers above it are included: a LUN on a partition \
        gives access to a part of the disk.";
    const POSITIONAL: &'static [&'static str] = &["lun"];
    const EXAMPLE: &'static str = "access who d0p1";
    type Answer = AccessWhoAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<AccessWhoAnswer> {
        let state = control.state()?;
        let answer = exported_luns(&state, &self.lun);
        if answer.ways.is_empty() && state.provider(&self.lun).is_none() {
            let why = "no provider or LUN has that name";
            return Err(Error::new(Kind::NotFound, "access who", why).at(self.lun));
        }
        Ok(answer)
    }
}

impl CommandVerb<Control> for AccessWhoParams {
    fn table(answer: &AccessWhoAnswer) -> String {
        if answer.ways.is_empty() {
            return "no initiator\n".to_owned();
        }
        let row = |w: &LunAccess| {
            vec![
                w.target.clone(),
                w.group.clone(),
                w.lun.lun.to_string(),
                w.lun.provider.clone(),
                if w.missing { MISSING_MODE } else { mode(&w.lun) }.to_owned(),
                initiators_text(w),
                text::or_dash(&w.connected.join(" ")),
            ]
        };
        let rows: Vec<_> = answer.ways.iter().map(row).collect();
        text::table(&["target", "group", ">lun", "provider", "mode", "may", "connected now"], &rows)
    }
}
