//! `detach`: removal of a bus with its disks.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use crate::class::CamClass;

/// Detach a bus with its disks
///
/// Refused while one of its disks is open.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Detach {
    /// Name of the bus, such as mps0
    name: String,
}

impl Verb<CamClass> for Detach {
    const NAME: &'static str = "detach";
    const EXAMPLE: &'static str = "detach mps0";
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<MessageAnswer, Error> {
        let name = self.name;
        let bus = class.bus(&name).ok_or_else(|| {
            let what = format!("no bus {name}; `ashlar cam devlist -v` lists them");
            Error::new(Errno::NoEnt, what)
        })?;
        control.call(|t| class.take_out(t, &bus))?;
        Ok(MessageAnswer::new(format!("{name} is gone")))
    }
}
