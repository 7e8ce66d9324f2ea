//! `lun clear-reservations`: the end of the reservations of a host that does not return.

use geom::Verb;
use mgmt::api::{Level, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::control_loop::ControlLoop;

/// End all registrations and reservations of a unit
#[derive(Deserialize, JsonSchema)]
pub(super) struct ClearReservations {
    /// Provider of the unit
    name: String,
}

impl Verb<ControlLoop> for ClearReservations {
    const NAME: &'static str = "clear-reservations";
    const EXAMPLE: &'static str = "reservations d0 --clear --yes-clear d0";
    type Answer = ();

    fn run(self, control_loop: &mut ControlLoop) -> Result<()> {
        control_loop.exports.clear_reservations(&self.name)?;
        let text = "its reservations were cleared by hand".to_owned();
        control_loop.note(Level::Warn, &self.name, text);
        Ok(())
    }
}
