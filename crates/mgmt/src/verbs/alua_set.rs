//! alua set: another access state of a group of target ports.

use super::alua_show::{AluaAnswer, table};
use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result, SystemState};
use crate::auth::Scope;
use crate::config::AluaState;
use crate::plant::Plant;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `alua set`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaSetParams {
    /// Name of the target port group.
    pub group: String,
    /// New access state.
    pub state: AluaState,
}

impl Verb<Control> for AluaSetParams {
    const NAME: &'static str = "alua.set";
    const DOC: &'static str = "Change the access state of a target port group";
    const DETAIL: &'static str = "Before a group gives up access to its media, its running \
        commands end; meanwhile its state is transitioning. Every initiator is notified of the \
        change. The state is kept in the state folder over a restart, until `ashlar.toml` gives \
        the group another state.";
    const POSITIONAL: &'static [&'static str] = &["group", "state"];
    const EXAMPLE: &'static str = "alua set default standby";
    type Answer = AluaAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<AluaAnswer> {
        let groups = control.state()?.port_groups;
        if !groups.iter().any(|g| g.name == self.group) {
            let names: Vec<&str> = groups.iter().map(|g| g.name.as_str()).collect();
            let next = format!("Port groups: {}.", names.join(", "));
            let error = Error::new(Kind::NotFound, "alua set", "no such port group");
            return Err(error.at(self.group).next(next));
        }
        let value = json!({ "group": self.group, "state": self.state });
        let is_own = |scope: &Scope, all: &SystemState| scope.owns_port_group(all, &self.group);
        let set = |plant: &dyn Plant| plant.verb("alua", "set", &value, progress);
        control.change_own(("alua set", &self.group), is_own, set)?;
        Ok(AluaAnswer { groups: control.state()?.port_groups })
    }
}

impl CommandVerb<Control> for AluaSetParams {
    fn table(answer: &AluaAnswer) -> String {
        table(answer)
    }
}
