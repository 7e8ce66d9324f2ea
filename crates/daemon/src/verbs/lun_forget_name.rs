//! `lun forget-name`: the end of a former name of a unit, which is still served.

use geom::{MessageAnswer, Verb};
use mgmt::api::{Error, Kind, Level, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::control_loop::ControlLoop;

/// Stop serving a unit under a former name
///
/// A unit whose provider was renamed is still served under its former name to clients that request
/// it. `ashlar status` lists former names.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ForgetName {
    /// Former name of the unit
    name: String,
}

impl Verb<ControlLoop> for ForgetName {
    const NAME: &'static str = "forget-name";
    const EXAMPLE: &'static str = "lun forget-name d0";
    type Answer = MessageAnswer;

    fn run(self, control_loop: &mut ControlLoop) -> Result<MessageAnswer> {
        let name = self.name;
        if !control_loop.exports.forget_former(&name) {
            let error = Error::new(Kind::NotFound, "forget name", "no unit had that name");
            return Err(error.at(name).next("`ashlar status` lists former names."));
        }
        control_loop.note(Level::Info, &name, "former name removed by hand".to_owned());
        Ok(MessageAnswer::new(format!("{name}: no longer served")))
    }
}
