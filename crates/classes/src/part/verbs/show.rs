//! The `show` verb: partition tables.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PartAnswer, taste_result, view};
use crate::part::class::{NAME, PartClass};

/// Tables to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Names of providers with tables; empty: all.
    #[serde(default)]
    pub geoms: Vec<String>,
}

impl Verb<PartClass> for Show {
    const NAME: &'static str = "show";
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const EXAMPLE: &'static str = "part show ada0";
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (mut geoms, mut warnings) = (Vec::new(), Vec::new());
        for name in &self.geoms {
            if let Some(geom) = control.topology.find_geom(NAME, name) {
                geoms.push(geom);
                continue;
            }
            // A provider without a table is reported and is no error.
            warnings.push(match taste_result(control, name)? {
                Some(why) => format!("{name}: no partition table: {why}"),
                None => format!("{name}: not searched for a partition table (in use)"),
            });
        }
        if self.geoms.is_empty() {
            geoms.extend(control.topology.class_view(NAME, 0).iter().map(|g| g.id));
        }
        let tables = geoms.into_iter().filter_map(|g| view(&mut control.topology, g)).collect();
        Ok(PartAnswer { tables, warnings, ..PartAnswer::default() })
    }
}
