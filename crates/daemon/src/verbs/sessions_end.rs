//! `sessions end`: the end of one session, which its host may begin again.

use geom::Verb;
use mgmt::api::{Error, Kind, Level, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control_loop::ControlLoop;
use crate::exports::SESSIONS_DEADLINE;

/// End one session of an initiator or client
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsEnd {
    /// Identifier of the session
    id: u64,
}

/// Answer of [`SessionsEnd`].
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionsEndAnswer {
    /// False while its last commands have not returned.
    ended: bool,
}

impl Verb<ControlLoop> for SessionsEnd {
    const NAME: &'static str = "end";
    const POSITIONAL: &'static [&'static str] = &["id"];
    const EXAMPLE: &'static str = "sessions end 7 --yes";
    type Answer = SessionsEndAnswer;

    fn run(self, control_loop: &mut ControlLoop) -> Result<SessionsEndAnswer> {
        let exports = &control_loop.exports;
        let session = exports.session(self.id).filter(|s| exports.end_session(s.number));
        let Some(session) = session else {
            let error = Error::new(Kind::NotFound, "sessions end", "no session has that ID");
            let next = "Run `ashlar sessions` to see the IDs.";
            return Err(error.at(format!("session {}", self.id)).next(next));
        };
        let (id, initiator, from) = (session.number, &session.initiator, &session.from);
        let text = format!("session {id} of {initiator} at {from} was ended by hand");
        control_loop.note(Level::Warn, &session.target, text);
        let (control, exports) = (&mut control_loop.control, &control_loop.exports);
        let ended = control.wait_until(SESSIONS_DEADLINE, |_| exports.session(id).is_none());
        Ok(SessionsEndAnswer { ended })
    }
}
