//! The `create` verb: names a provider without writing to it.

use geom::{At, Class, Create as Request, Deserialize, Error, JsonSchema, Verb};
use serde_json::Value;

use super::{LabelAnswer, find};
use crate::label::class::LabelClass;

/// Name a provider without a label, until the daemon stops
#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
    /// Name, as in label/NAME
    name: String,
    /// Provider to name
    provider: String,
}

impl Verb<LabelClass> for Create {
    const NAME: &'static str = "create";
    const POSITIONAL: &'static [&'static str] = &["name", "provider"];
    const EXAMPLE: &'static str = "label create usb d0";
    type Answer = LabelAnswer;

    fn run(self, (class, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        let on = find(control, &self.provider)?;
        let create = Request { name: &self.name, members: &[on], params: &Value::Null };
        let geom = control.call(|topology| class.create(topology, &create))?;
        let provider = control.topology.geom_name(geom);
        Ok(LabelAnswer::new(provider, format!("{provider} created")))
    }
}
