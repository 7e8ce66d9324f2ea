//! tray: media of units that can be taken out and put in while initiators are logged in.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Takes a medium out.
pub struct Eject;

/// What `tray eject` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct EjectParams {
    /// The unit, as `list luns` names it.
    pub unit: String,
}

/// What the verbs of the tray answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The unit.
    pub unit: String,
    /// Whether it has a medium now.
    pub loaded: bool,
    /// The provider that was put in, when it is another one than the unit's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

fn table(answer: &Answer) -> String {
    match (answer.loaded, &answer.provider) {
        (false, _) => format!("{}: the medium is out\n", answer.unit),
        (true, None) => format!("{}: the medium is in\n", answer.unit),
        (true, Some(provider)) => format!("{}: {provider} is in\n", answer.unit),
    }
}

impl Verb for Eject {
    type Params = EjectParams;
    type Answer = Answer;
    const NAME: &'static str = "tray.eject";
    const DOC: &'static str = "Take the medium of a drive or removable unit out";
    const DETAIL: &'static str = "Refused while an initiator prevents it. Commands that need the \
        medium end NOT READY until one is put in.";
    const EXAMPLES: &'static [&'static str] = &["ashlar tray eject cd0"];
    const POSITIONAL: &'static [&'static str] = &["unit"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Eject {
    fn run(control: &Control, params: EjectParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let value = json!({ "name": params.unit });
        control.change(|plant| plant.verb("lun", "eject", &value, progress))?;
        Ok(Answer { unit: params.unit, ..Answer::default() })
    }
}

/// Puts a medium in.
pub struct Load;

/// What `tray load` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LoadParams {
    /// The unit, as `list luns` names it.
    pub unit: String,
    /// The provider to put in; absent: the medium that was taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

impl Verb for Load {
    type Params = LoadParams;
    type Answer = Answer;
    const NAME: &'static str = "tray.load";
    const DOC: &'static str = "Put a medium into a drive or removable unit";
    const DETAIL: &'static str = "Initiators hear that the medium may have changed. Another \
        provider than the unit's own stays in until it is taken out, over a restart too: the \
        state folder has it.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar tray load cd0", "ashlar tray load cd0 disc2"];
    const POSITIONAL: &'static [&'static str] = &["unit", "provider"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Load {
    fn run(control: &Control, params: LoadParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let value = json!({ "name": params.unit, "provider": params.provider });
        control.change(|plant| plant.verb("lun", "load", &value, progress))?;
        Ok(Answer { unit: params.unit, loaded: true, provider: params.provider })
    }
}
