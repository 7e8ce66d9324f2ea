//! `part show`: partition tables by name.

use geom::{ProviderId, Verb};
use mgmt::api::{Error, Kind, PartAnswer, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(super) use classes::part::request::Show;

use crate::control_loop::ControlLoop;
use crate::errors::find_persistent;

/// The class of partition tables.
pub(super) const CLASS: &str = "part";

/// The tables, or the reasons why there are none.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ShowAnswer {
    /// The tables.
    Tables(PartAnswer),
    /// No named provider has a table.
    None {
        /// The reasons, one for each provider.
        warnings: Vec<String>,
    },
}

/// A provider without a table is reported and is no error.
impl Verb<ControlLoop> for Show {
    const NAME: &'static str = "show";
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const EXAMPLE: &'static str = "part show ada0";
    type Answer = ShowAnswer;

    fn run(self, control_loop: &mut ControlLoop) -> Result<ShowAnswer> {
        let (mut geoms, mut warnings) = (Vec::new(), Vec::new());
        for name in self.geoms {
            let topology = &control_loop.control.topology;
            if topology.find_geom(CLASS, &name).is_some() {
                geoms.push(name);
                continue;
            }
            let id = find_persistent(topology, "part show", &name)?;
            warnings.push(match taste_result(control_loop, id) {
                Some(why) => format!("{name}: no partition table: {why}"),
                None => format!("{name}: not searched for a partition table (in use)"),
            });
        }
        if geoms.is_empty() && !warnings.is_empty() {
            return Ok(ShowAnswer::None { warnings });
        }
        let on = geoms.first().cloned().unwrap_or_default();
        let answer = control_loop.call_verb(CLASS, "show", &on, &json!({ "geoms": geoms }))?;
        let answer = PartAnswer::deserialize(&answer);
        let tables = answer.map_err(|e| Error::new(Kind::Internal, "part show", e))?;
        Ok(ShowAnswer::Tables(PartAnswer { warnings, ..tables }))
    }
}

/// Why the class left a provider alone.
fn taste_result(control_loop: &ControlLoop, provider: ProviderId) -> Option<String> {
    let geoms = control_loop.control.topology.view(control_loop.control.now_ns());
    let found = geoms.into_iter().flat_map(|g| g.providers).find(|p| p.id == provider)?;
    let why = found.taste_outcomes.into_iter().find(|(class, _)| *class == CLASS)?;
    Some(why.1)
}
