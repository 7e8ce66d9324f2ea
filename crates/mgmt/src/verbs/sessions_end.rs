//! sessions end: the end of one session; its host may log in again.

use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result, SessionEnd, SessionState, SystemState, TargetState};
use crate::plan::Risk;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const OP: &str = "sessions end";

/// Parameters of `sessions end`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionsEndParams {
    /// ID of the session: the last column of `sessions`.
    pub id: String,
    /// End the session although its host uses LUNs.
    #[serde(default)]
    pub yes: bool,
}

/// Answer of `sessions end`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionsEndAnswer {
    /// ID of the session.
    pub id: u64,
    /// Name of the initiator.
    pub initiator: String,
    /// Address of the initiator.
    pub address: String,
    /// The target.
    pub target: String,
    /// Risk of the command: `disruptive: HOST`, or `safe` for a session without LUNs.
    pub risk: String,
    /// LUNs that the session could use, with their providers; only the first ones of a long list.
    pub luns: Vec<String>,
    /// Whether the session has ended; false while its last commands have not returned.
    pub ended: bool,
    /// Consequence for the host: it may log in again.
    pub note: String,
}

/// LUNs of a session with their providers: `0 (d0)`.
fn luns(target: &TargetState, session: &SessionState) -> Vec<String> {
    let group = target.groups.iter().find(|g| session.group.as_ref() == Some(&g.name));
    let all = || group.into_iter().flat_map(|g| &g.luns);
    let named = |number: &u64| match all().find(|lun| lun.lun == *number) {
        Some(lun) => format!("{number} ({})", lun.provider),
        None => number.to_string(),
    };
    session.luns.iter().map(named).collect()
}

/// The session with an ID.
fn find<'s>(state: &'s SystemState, id: &str) -> Result<(&'s TargetState, &'s SessionState)> {
    let number: Option<u64> = id.parse().ok();
    let found = |(_, s): &(&TargetState, &SessionState)| Some(s.id) == number;
    state.sessions().find(found).ok_or_else(|| {
        let error = Error::new(Kind::NotFound, OP, "no session has that ID");
        error.at(format!("session {id}")).next("Run `ashlar sessions` to see the IDs.")
    })
}

/// Refuses sessions that this command does not end.
pub(crate) fn check_session_end(target: &TargetState, session: &SessionState) -> Result<()> {
    let (why, next) = match target.session_end {
        SessionEnd::Command => return Ok(()),
        SessionEnd::AccessGroup => (
            "there are no logins: the next request of the host would make the session again",
            format!("Remove {} from its access group, then run ashlar apply.", session.initiator),
        ),
        SessionEnd::Detach => (
            "the session belongs to a block device of this machine",
            "Run `ashlar attach --list`, then `ashlar detach NAME`.".to_owned(),
        ),
    };
    let at = format!("session {} of {}", session.id, target.name);
    Err(Error::new(Kind::Unsupported, OP, why).at(at).next(next))
}

impl Verb<Control> for SessionsEndParams {
    const NAME: &'static str = "sessions.end";
    const DOC: &'static str = "End one session of an initiator or client";
    const DETAIL: &'static str = "Closes the connections of the session without answers to its \
        outstanding commands. If the session has LUNs, the command needs --yes; without it, the \
        error names the host and the LUNs. The host may log in again at once, and most hosts do: \
        to keep it out, change its access group. Sessions of iSCSI, NVMe/TCP and NBD can be ended. \
        AoE has no logins; `detach` ends a session of a local target.";
    const POSITIONAL: &'static [&'static str] = &["id"];
    const EXAMPLE: &'static str = "sessions end 7 --yes";
    type Answer = SessionsEndAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<SessionsEndAnswer> {
        let state = control.state()?;
        let (target, session) = find(&state, &self.id)?;
        check_session_end(target, session)?;
        let (id, luns) = (session.id, luns(target, session));
        let SessionState { initiator, address, .. } = session;
        let risk = match luns.is_empty() {
            true => Risk::Safe.label().to_owned(),
            false => format!("{}: {initiator}", Risk::Disruptive.label()),
        };
        if !luns.is_empty() && !self.yes {
            let (luns, at) = (luns.join(", "), format!("session {id} of {}", target.name));
            let running = session.commands_outstanding;
            let why = format!("{risk} at {address} uses LUN {luns}; {running} commands run");
            let next = format!("Repeat the command with --yes: ashlar sessions end {id} --yes.");
            return Err(Error::new(Kind::Usage, OP, why).at(at).next(next));
        }
        let value = json!({ "id": id });
        let done = control.change(|plant| plant.verb("sessions", "end", &value, progress))?;
        Ok(SessionsEndAnswer {
            id,
            initiator: initiator.clone(),
            address: address.clone(),
            target: target.name.clone(),
            risk,
            luns,
            ended: done.get("ended").and_then(Value::as_bool).unwrap_or_default(),
            note: "the host may log in again".to_owned(),
        })
    }
}

impl CommandVerb<Control> for SessionsEndParams {
    fn table(answer: &SessionsEndAnswer) -> String {
        let SessionsEndAnswer { id, initiator, address, target, note, .. } = answer;
        let is = match answer.ended {
            true => "has ended",
            false => "ends when its last commands return",
        };
        format!("session {id} of {initiator} ({address}) at {target} {is}; {note}\n")
    }
}
