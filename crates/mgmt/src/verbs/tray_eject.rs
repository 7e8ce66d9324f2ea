//! tray eject: removal of the medium of a unit while initiators are logged in.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `tray eject`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrayEjectParams {
    /// Name of the unit, as in `list luns`.
    pub unit: String,
}

/// Answer of `tray eject` and `tray load`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrayAnswer {
    /// The unit.
    pub unit: String,
    /// Whether it has a medium now.
    pub loaded: bool,
    /// The loaded provider, if it is not the unit's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

pub(super) fn table(answer: &TrayAnswer) -> String {
    match (answer.loaded, &answer.provider) {
        (false, _) => format!("{}: the medium is out\n", answer.unit),
        (true, None) => format!("{}: the medium is in\n", answer.unit),
        (true, Some(provider)) => format!("{}: {provider} is in\n", answer.unit),
    }
}

impl Verb<Control> for TrayEjectParams {
    const NAME: &'static str = "tray.eject";
    const DOC: &'static str = "Eject the medium of a drive or removable unit";
    const DETAIL: &'static str = "Refused while an initiator prevents it. Commands that need the \
        medium fail with NOT READY until a medium is loaded.";
    const POSITIONAL: &'static [&'static str] = &["unit"];
    const EXAMPLE: &'static str = "tray eject cd0";
    type Answer = TrayAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<TrayAnswer> {
        let value = json!({ "name": self.unit });
        control.change(|plant| plant.verb("lun", "eject", &value, progress))?;
        Ok(TrayAnswer { unit: self.unit, ..TrayAnswer::default() })
    }
}

impl CommandVerb<Control> for TrayEjectParams {
    fn table(answer: &TrayAnswer) -> String {
        table(answer)
    }
}
