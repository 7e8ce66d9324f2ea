//! alua: groups of target ports and their access states.

use super::entry::{DaemonVerb, Verb};
use crate::api::{Error, Kind, PortGroupState, Result, SystemState};
use crate::auth::Scope;
use crate::config::AluaState;
use crate::plant::{Plant, Progress};
use crate::service::Control;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Which groups there are.
pub struct AluaShow;

/// Parameters of `alua show`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaShowParams {}

/// Answer of `alua show` and `alua set`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaAnswer {
    /// The groups, by identifier.
    pub groups: Vec<PortGroupState>,
}

fn table(answer: &AluaAnswer) -> String {
    let yes = |b: bool| if b { "yes" } else { "-" }.to_owned();
    let row = |g: &PortGroupState| {
        vec![
            g.name.clone(),
            g.id.to_string(),
            g.state.clone(),
            yes(g.preferred),
            yes(g.explicit),
            text::or_dash(&g.targets.join(" ")),
        ]
    };
    let rows: Vec<_> = answer.groups.iter().map(row).collect();
    text::table(&["group", ">id", "state", "preferred", "explicit", "targets"], &rows)
}

impl Verb for AluaShow {
    type Params = AluaShowParams;
    type Answer = AluaAnswer;
    const NAME: &'static str = "alua.show";
    const DOC: &'static str = "Show the target port groups and their access states";
    const EXAMPLES: &'static [&'static str] = &["ashlar alua show"];

    fn table(answer: &AluaAnswer) -> String {
        table(answer)
    }
}

impl DaemonVerb for AluaShow {
    fn run(control: &Control, _: AluaShowParams, _: &mut Progress<'_>) -> Result<AluaAnswer> {
        Ok(AluaAnswer { groups: control.state()?.port_groups })
    }
}

/// Changes the state of a group.
pub struct AluaSet;

/// Parameters of `alua set`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaSetParams {
    /// Name of the target port group.
    pub group: String,
    /// New access state.
    pub state: AluaState,
}

impl Verb for AluaSet {
    type Params = AluaSetParams;
    type Answer = AluaAnswer;
    const NAME: &'static str = "alua.set";
    const DOC: &'static str = "Change the access state of a target port group";
    const DETAIL: &'static str = "Before a group gives up access to its media, its running \
        commands end; meanwhile its state is transitioning. Every initiator is notified of the \
        change. The state is kept in the state folder over a restart, until `ashlar.toml` gives \
        the group another state.";
    const EXAMPLES: &'static [&'static str] = &["ashlar alua set default standby"];
    const POSITIONAL: &'static [&'static str] = &["group", "state"];

    fn table(answer: &AluaAnswer) -> String {
        table(answer)
    }
}

impl DaemonVerb for AluaSet {
    fn run(
        control: &Control,
        params: AluaSetParams,
        progress: &mut Progress<'_>,
    ) -> Result<AluaAnswer> {
        let groups = control.state()?.port_groups;
        if !groups.iter().any(|g| g.name == params.group) {
            let names: Vec<&str> = groups.iter().map(|g| g.name.as_str()).collect();
            let next = format!("Port groups: {}.", names.join(", "));
            let error = Error::new(Kind::NotFound, "alua set", "no such port group");
            return Err(error.at(params.group).next(next));
        }
        let value = json!({ "group": params.group, "state": params.state });
        let is_own = |scope: &Scope, all: &SystemState| scope.owns_port_group(all, &params.group);
        let set = |plant: &dyn Plant| plant.verb("alua", "set", &value, progress);
        control.change_own(("alua set", &params.group), is_own, set)?;
        Ok(AluaAnswer { groups: control.state()?.port_groups })
    }
}
