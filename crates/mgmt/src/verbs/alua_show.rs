//! alua show: groups of target ports and their access states.

use super::entry::CommandVerb;
use crate::api::{PortGroupState, Result};
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `alua show`: none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaShowParams {}

/// Answer of `alua show` and `alua set`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AluaAnswer {
    /// The groups, by identifier.
    pub groups: Vec<PortGroupState>,
}

pub(super) fn table(answer: &AluaAnswer) -> String {
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

impl Verb<Control> for AluaShowParams {
    const NAME: &'static str = "alua.show";
    const DOC: &'static str = "Show the target port groups and their access states";
    const EXAMPLE: &'static str = "alua show";
    type Answer = AluaAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<AluaAnswer> {
        Ok(AluaAnswer { groups: control.state()?.port_groups })
    }
}

impl CommandVerb<Control> for AluaShowParams {
    fn table(answer: &AluaAnswer) -> String {
        table(answer)
    }
}
