//! `local detach`: removal of the block device of a LUN.

use geom::Verb;
use mgmt::api::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::local::{Device, change};
use crate::control_loop::ControlLoop;

/// Detach the block device of a LUN
#[derive(Deserialize, JsonSchema)]
pub(super) struct LocalDetach {
    /// Number of the LUN, name of its unit, or the device
    lun: String,
    /// Name of the local target [default: the only one]
    target: Option<String>,
    /// Detach a device that is in use
    force: bool,
}

impl Verb<ControlLoop> for LocalDetach {
    const NAME: &'static str = "detach";
    const POSITIONAL: &'static [&'static str] = &["lun"];
    const EXAMPLE: &'static str = "detach 0";
    type Answer = Device;

    fn run(self, control_loop: &mut ControlLoop) -> Result<Device> {
        let LocalDetach { lun, target, force } = self;
        let next = match force {
            true => "Stop its users first.".to_owned(),
            false => format!(
                "Unmount the device or stop its users first; or remove it in use: ashlar detach \
                 {lun} --force"
            ),
        };
        let what = (lun.as_str(), target.as_deref());
        change(control_loop, Self::NAME, what, |all, key| all.detach(key, force), &next)
    }
}
