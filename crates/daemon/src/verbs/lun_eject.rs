//! `lun eject`: removal of the medium of a unit, as by a hand at the drive.

use geom::Verb;
use mgmt::api::{Level, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::control_loop::ControlLoop;

/// Eject the medium of a drive or removable unit
#[derive(Deserialize, JsonSchema)]
pub(super) struct Eject {
    /// Name of the unit, as in `list luns`
    name: String,
}

impl Verb<ControlLoop> for Eject {
    const NAME: &'static str = "eject";
    const EXAMPLE: &'static str = "tray eject cd0";
    type Answer = ();

    fn run(self, control_loop: &mut ControlLoop) -> Result<()> {
        control_loop.exports.eject(&self.name)?;
        control_loop.note(Level::Info, &self.name, "medium ejected by hand".to_owned());
        Ok(())
    }
}
