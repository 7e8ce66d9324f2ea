//! `alua set`: the access state of a group of target ports.

use geom::Verb;
use mgmt::api::{Level, Result};
use mgmt::config::AluaState;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::control_loop::ControlLoop;

/// Change the access state of a target port group
#[derive(Deserialize, JsonSchema)]
pub(super) struct AluaSet {
    /// Name of the target port group
    group: String,
    /// New access state
    state: AluaState,
}

impl Verb<ControlLoop> for AluaSet {
    const NAME: &'static str = "set";
    const POSITIONAL: &'static [&'static str] = &["group", "state"];
    const EXAMPLE: &'static str = "alua set default standby";
    type Answer = ();

    fn run(self, control_loop: &mut ControlLoop) -> Result<()> {
        let AluaSet { group, state } = self;
        let config = control_loop.config();
        let configured = config.alua.iter().find(|g| g.name == group).map(|g| g.state);
        let configured = configured.unwrap_or_default();
        let (control, exports) = (&mut control_loop.control, &mut control_loop.exports);
        exports.set_access_state(control, &group, configured, state)?;
        let word = serde_json::to_value(state).unwrap_or_default();
        let word = word.as_str().unwrap_or_default();
        control_loop.note(Level::Info, &group, format!("the port group is {word} now"));
        Ok(())
    }
}
