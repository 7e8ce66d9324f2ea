//! `local attach`: a LUN as a block device of this machine.

use drivers::local::By;
use geom::Verb;
use mgmt::api::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::local::{Device, change};
use crate::control_loop::ControlLoop;

/// Attach a LUN as a block device of this machine
#[derive(Deserialize, JsonSchema)]
pub(super) struct LocalAttach {
    /// Number of the LUN, or name of its unit
    lun: String,
    /// Name of the local target [default: the only one]
    target: Option<String>,
    /// Method [default: `by` of the target]
    by: Option<By>,
}

impl Verb<ControlLoop> for LocalAttach {
    const NAME: &'static str = "attach";
    const POSITIONAL: &'static [&'static str] = &["lun"];
    const EXAMPLE: &'static str = "attach 0";
    type Answer = Device;

    fn run(self, control_loop: &mut ControlLoop) -> Result<Device> {
        let what = (self.lun.as_str(), self.target.as_deref());
        let by = self.by.unwrap_or_default();
        let next = "Correct the problem that the message names.";
        change(control_loop, Self::NAME, what, |all, key| all.attach(key, by), next)
    }
}
