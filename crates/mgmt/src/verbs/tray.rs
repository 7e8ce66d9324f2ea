//! tray: media of units that can be taken out and put in while initiators are logged in.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Takes a medium out.
pub struct TrayEject;

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

fn table(answer: &TrayAnswer) -> String {
    match (answer.loaded, &answer.provider) {
        (false, _) => format!("{}: the medium is out\n", answer.unit),
        (true, None) => format!("{}: the medium is in\n", answer.unit),
        (true, Some(provider)) => format!("{}: {provider} is in\n", answer.unit),
    }
}

impl Verb for TrayEject {
    type Params = TrayEjectParams;
    type Answer = TrayAnswer;
    const NAME: &'static str = "tray.eject";
    const DOC: &'static str = "Eject the medium of a drive or removable unit";
    const DETAIL: &'static str = "Refused while an initiator prevents it. Commands that need the \
        medium fail with NOT READY until a medium is loaded.";
    const EXAMPLES: &'static [&'static str] = &["ashlar tray eject cd0"];
    const POSITIONAL: &'static [&'static str] = &["unit"];

    fn table(answer: &TrayAnswer) -> String {
        table(answer)
    }
}

impl DaemonVerb for TrayEject {
    fn run(
        control: &Control,
        params: TrayEjectParams,
        progress: &mut Progress<'_>,
    ) -> Result<TrayAnswer> {
        let value = json!({ "name": params.unit });
        control.change(|plant| plant.verb("lun", "eject", &value, progress))?;
        Ok(TrayAnswer { unit: params.unit, ..TrayAnswer::default() })
    }
}

/// Puts a medium in.
pub struct TrayLoad;

/// Parameters of `tray load`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrayLoadParams {
    /// Name of the unit, as in `list luns`.
    pub unit: String,
    /// Provider to load [default: the ejected medium]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

impl Verb for TrayLoad {
    type Params = TrayLoadParams;
    type Answer = TrayAnswer;
    const NAME: &'static str = "tray.load";
    const DOC: &'static str = "Load a medium into a drive or removable unit";
    const DETAIL: &'static str = "Initiators are notified that the medium may have changed. A \
        provider that is not the unit's own remains loaded until it is ejected, also over a \
        restart: it is recorded in the state folder.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar tray load cd0", "ashlar tray load cd0 disc2"];
    const POSITIONAL: &'static [&'static str] = &["unit", "provider"];

    fn table(answer: &TrayAnswer) -> String {
        table(answer)
    }
}

impl DaemonVerb for TrayLoad {
    fn run(
        control: &Control,
        params: TrayLoadParams,
        progress: &mut Progress<'_>,
    ) -> Result<TrayAnswer> {
        let value = json!({ "name": params.unit, "provider": params.provider });
        control.change(|plant| plant.verb("lun", "load", &value, progress))?;
        Ok(TrayAnswer { unit: params.unit, loaded: true, provider: params.provider })
    }
}
