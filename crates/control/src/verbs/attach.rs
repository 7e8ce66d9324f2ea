//! attach, detach: LUNs as block devices of this machine.

use super::entry::{DaemonVerb, Verb};
use crate::api::{AttachedState, Result};
use crate::plant::Progress;
use crate::service::Control;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Makes a LUN a block device.
pub struct Attach;

/// By what a LUN becomes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The kernel's network block device.
    Nbd,
    /// A loop device on a file that is served by FUSE.
    Fuse,
}

/// What `attach` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachParams {
    /// The LUN, or the name of its unit.
    pub lun: Option<String>,
    /// The local target, if there are several.
    pub target: Option<String>,
    /// By what: the kernel's NBD, or a loop device on a file served by FUSE. Without it as `by` of
    /// the target says, which is NBD where the kernel has it.
    pub by: Option<By>,
    /// Show what is attached; attach nothing.
    pub list: bool,
}

/// What `attach` and `detach` answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The device made; absent when none was asked for.
    pub device: Option<String>,
    /// What is attached now.
    pub attached: Vec<AttachedState>,
}

fn table(answer: &Answer) -> String {
    let listing = super::list::attached(&answer.attached);
    let columns: Vec<&str> = listing.columns.iter().map(String::as_str).collect();
    match (&answer.device, listing.rows.is_empty()) {
        (Some(device), _) => format!("{device}\n"),
        (None, true) => "nothing is attached\n".to_owned(),
        (None, false) => text::table(&columns, &listing.rows),
    }
}

impl Verb for Attach {
    type Params = AttachParams;
    type Answer = Answer;
    const NAME: &'static str = "attach";
    const DOC: &'static str = "Attach a LUN as a block device of this machine";
    const DETAIL: &'static str = "The LUN is one that an access group of a target with driver = \
        \"local\" grants the initiator local:TARGET. The kernel's requests pass the target engine \
        like any initiator's: masking, reservations, write protection and statistics hold. The \
        device is a network block device where the kernel has the module `nbd`: a socket for each \
        core of the daemon, no network. In use, it outlives the daemon, killed or restarted: \
        its users wait until a new daemon has taken it over, `reconnect` seconds of the target at \
        most; what a killed one took along the kernel sends again after `resend` seconds (with \
        a client of one's own: `nbd-client -persist -timeout 30 HOST DEVICE`). Elsewhere it is a \
        loop device, without a cache of its own, on a file that the daemon serves by FUSE, and \
        ends with the daemon. Needs root. LUNs in `attach` of the target are \
        there again after a restart. While something is attached the daemon's memory is locked, \
        and it is not ended when memory is short. Prints the device.";
    const EXAMPLES: &'static [&'static str] = &[
        "ashlar attach 0",
        "ashlar attach d0 --target here",
        "ashlar attach 0 --by fuse",
        "ashlar attach --list",
    ];
    const POSITIONAL: &'static [&'static str] = &["lun"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Attach {
    fn run(control: &Control, params: AttachParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let Some(lun) = params.lun.filter(|_| !params.list) else {
            return Ok(Answer { device: None, attached: control.state().attached });
        };
        let value = json!({ "lun": lun, "target": params.target, "by": params.by });
        let made = control.change(|plant| plant.verb("local", "attach", &value, progress))?;
        let device = made.get("device").and_then(|d| d.as_str()).map(str::to_owned);
        Ok(Answer { device, attached: control.state().attached })
    }
}

/// Takes the block device away.
pub struct Detach;

/// What `detach` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DetachParams {
    /// The LUN, the name of its unit, or the device.
    pub name: String,
    /// The local target, if there are several.
    #[serde(default)]
    pub target: Option<String>,
    /// Though somebody uses it: what the machine holds is written first; later requests fail.
    #[serde(default)]
    pub force: bool,
}

impl Verb for Detach {
    type Params = DetachParams;
    type Answer = Answer;
    const NAME: &'static str = "detach";
    const DOC: &'static str = "Detach the block device of a LUN";
    const DETAIL: &'static str = "Refused while the device is in use: mounted, swap, under \
        another device, or open in a process; says by whom. A LUN in `attach` of the target comes \
        back with the next start.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar detach 0", "ashlar detach /dev/loop0", "ashlar detach 0 --force"];
    const POSITIONAL: &'static [&'static str] = &["name"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Detach {
    fn run(control: &Control, params: DetachParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let value = json!({ "lun": params.name, "target": params.target, "force": params.force });
        control.change(|plant| plant.verb("local", "detach", &value, progress))?;
        Ok(Answer { device: None, attached: control.state().attached })
    }
}
