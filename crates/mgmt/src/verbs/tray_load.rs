//! tray load: insertion of a medium into a unit while initiators are logged in.

use super::entry::CommandVerb;
use super::tray_eject::{TrayAnswer, table};
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `tray load`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrayLoadParams {
    /// Name of the unit, as in `list luns`.
    pub unit: String,
    /// Provider to load [default: the ejected medium]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

impl Verb<Control> for TrayLoadParams {
    const NAME: &'static str = "tray.load";
    const DOC: &'static str = "Load a medium into a drive or removable unit";
    const DETAIL: &'static str = "Initiators are notified that the medium may have changed. A \
        provider that is not the unit's own remains loaded until it is ejected, also over a \
        restart: it is recorded in the state folder.";
    const POSITIONAL: &'static [&'static str] = &["unit", "provider"];
    const EXAMPLE: &'static str = "tray load cd0";
    const MORE_EXAMPLES: &'static [&'static str] = &["tray load cd0 disc2"];
    type Answer = TrayAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<TrayAnswer> {
        let value = json!({ "name": self.unit, "provider": self.provider });
        control.change(|plant| plant.verb("lun", "load", &value, progress))?;
        Ok(TrayAnswer { unit: self.unit, loaded: true, provider: self.provider })
    }
}

impl CommandVerb<Control> for TrayLoadParams {
    fn table(answer: &TrayAnswer) -> String {
        table(answer)
    }
}
