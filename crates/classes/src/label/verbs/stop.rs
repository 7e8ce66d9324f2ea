//! The verb `stop`: the verb `destroy` under another name, as in glabel.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::LabelAnswer;
use super::destroy::Destroy;
use crate::label::class::LabelClass;

/// Remove a name: the same as `destroy`
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Stop(Destroy);

impl Verb<LabelClass> for Stop {
    const NAME: &'static str = "stop";
    const EXAMPLE: &'static str = "label stop label/usb";
    type Answer = LabelAnswer;

    fn run(self, (class, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        self.0.run((class, control))
    }
}
