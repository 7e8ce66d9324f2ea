//! attach: a LUN as a block device of this machine.

use super::entry::CommandVerb;
use crate::api::{AttachedState, Result};
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Method that makes a LUN a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttachMethod {
    /// The kernel's network block device.
    Nbd,
    /// A loop device on a file served by FUSE.
    Fuse,
}

/// Parameters of `attach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachParams {
    /// Number of the LUN, or name of its unit.
    pub lun: Option<String>,
    /// Name of the local target [default: the only one]
    pub target: Option<String>,
    /// Method: the kernel's NBD, or a loop device on a file served by FUSE [default: `by` of the
    /// target, else nbd if the kernel has it, else fuse]
    pub by: Option<AttachMethod>,
    /// Show the attached LUNs without attaching one.
    pub list: bool,
}

/// Answer of `attach` and `detach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AttachAnswer {
    /// The new block device; absent if none was requested.
    pub device: Option<String>,
    /// LUNs that are attached now.
    pub attached: Vec<AttachedState>,
}

pub(super) fn table(answer: &AttachAnswer) -> String {
    let listing = super::list::attached(&answer.attached);
    let columns: Vec<&str> = listing.columns.iter().map(String::as_str).collect();
    match (&answer.device, listing.rows.is_empty()) {
        (Some(device), _) => format!("{device}\n"),
        (None, true) => "nothing is attached\n".to_owned(),
        (None, false) => text::table(&columns, &listing.rows),
    }
}

impl Verb<Control> for AttachParams {
    const NAME: &'static str = "attach";
    const DOC: &'static str = "Attach a LUN as a block device of this machine";
    const DETAIL: &'static str = "The LUN must be one that an access group of a target with driver \
        = \"local\" grants to the initiator local:TARGET. Requests of the kernel pass through the \
        target engine like those of any initiator: masking, reservations, write protection and \
        statistics apply. Requires root. Prints the name of the device.\n\
        \n\
        If the kernel has the module `nbd`, the device is a network block device with one socket \
        for each core of the daemon, without a network. A device in use outlives a daemon that is \
        killed or restarted: its users wait until a new daemon has taken it over, for at most \
        `reconnect` seconds of the target. Requests that a killed daemon did not answer are sent \
        again by the kernel after `resend` seconds (with a separate NBD client: `nbd-client \
        -persist -timeout 30 HOST DEVICE`).\n\
        \n\
        Without the module, the device is a loop device, without a cache of its own, on a file \
        that the daemon serves by FUSE, and ends with the daemon.\n\
        \n\
        LUNs in `attach` of the target are attached again after a restart. While a LUN is \
        attached, the daemon's memory is locked, and the kernel does not kill the daemon when \
        memory is short.";
    const POSITIONAL: &'static [&'static str] = &["lun"];
    const EXAMPLE: &'static str = "attach 0";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["attach d0 --target here", "attach 0 --by fuse", "attach --list"];
    type Answer = AttachAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<AttachAnswer> {
        let Some(lun) = self.lun.filter(|_| !self.list) else {
            return Ok(AttachAnswer { device: None, attached: control.state()?.attached });
        };
        let value = json!({ "lun": lun, "target": self.target, "by": self.by });
        let answer = control.change(|plant| plant.verb("local", "attach", &value, progress))?;
        let device = answer.get("device").and_then(|d| d.as_str()).map(str::to_owned);
        Ok(AttachAnswer { device, attached: control.state()?.attached })
    }
}

impl CommandVerb<Control> for AttachParams {
    fn table(answer: &AttachAnswer) -> String {
        table(answer)
    }
}
