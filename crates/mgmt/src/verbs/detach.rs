//! detach: removal of the block device of a LUN.

use super::attach::{AttachAnswer, table};
use super::entry::CommandVerb;
use crate::api::Result;
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `detach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DetachParams {
    /// Number of the LUN, name of its unit, or the device.
    pub name: String,
    /// Name of the local target [default: the only one]
    #[serde(default)]
    pub target: Option<String>,
    /// Detach a device that is in use: its cached data is written first; later requests fail.
    #[serde(default)]
    pub force: bool,
}

impl Verb<Control> for DetachParams {
    const NAME: &'static str = "detach";
    const DOC: &'static str = "Detach the block device of a LUN";
    const DETAIL: &'static str = "Refused while the device is in use: mounted, swap, under another \
        device, or open in a process; the error names the user. A LUN in `attach` of the target is \
        attached again at the next start.";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "detach 0";
    const MORE_EXAMPLES: &'static [&'static str] = &["detach /dev/loop0", "detach 0 --force"];
    type Answer = AttachAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<AttachAnswer> {
        let value = json!({ "lun": self.name, "target": self.target, "force": self.force });
        control.change(|plant| plant.verb("local", "detach", &value, progress))?;
        Ok(AttachAnswer { device: None, attached: control.state()?.attached })
    }
}

impl CommandVerb<Control> for DetachParams {
    fn table(answer: &AttachAnswer) -> String {
        table(answer)
    }
}
