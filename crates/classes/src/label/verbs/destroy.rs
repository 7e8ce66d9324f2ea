//! The verb `destroy`: the end of a name.

use bio::Errno;
use geom::{At, Class, Deserialize, Error, JsonSchema, Verb};

use super::LabelAnswer;
use crate::label::class::{LabelClass, NAME};
use crate::shared_args::Force;

/// Remove a name; a label on the disk stays
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Destroy {
    /// Name with its prefix, such as label/usb
    name: String,
    /// Remove the name even if its provider is open
    force: Force,
}

impl Verb<LabelClass> for Destroy {
    const NAME: &'static str = "destroy";
    const EXAMPLE: &'static str = "label destroy label/usb";
    type Answer = LabelAnswer;

    fn run(self, (class, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        let name = self.name.as_str();
        let Some(geom) = control.topology.find_geom(NAME, name) else {
            let what = format!("there is no name {name}; `ashlar list label` shows them");
            return Err(Error::new(Errno::NoEnt, what));
        };
        control.call(|topology| class.destroy(topology, geom, self.force.0))?;
        Ok(LabelAnswer::new(name, format!("{name} destroyed")))
    }
}
