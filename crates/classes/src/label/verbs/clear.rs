//! The `clear` verb: removes the label of a provider.

use bio::Errno;
use geom::{At, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::{LabelAnswer, LastSectorContent, find, last_sector_content};
use crate::label::class::{LabelClass, NAME};
use crate::label::generic;
use crate::members::provider_access;

/// Remove the label of a provider
///
/// The last sector is filled with zeroes. A provider without such a label is refused.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Clear {
    /// Provider with the label
    provider: String,
}

impl Verb<LabelClass> for Clear {
    const NAME: &'static str = "clear";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "label clear d0";
    const WRITES: bool = true;
    type Answer = LabelAnswer;

    fn run(self, (_, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        let name = self.provider.as_str();
        let on = find(control, name)?;
        let (size, len) = provider_access::sizes(control, on);
        let (at, zeros) = generic::clear(size, len).map_err(|e| Error::inval(e.to_string()))?;
        let check =
            |control: &mut GraphControl, edge| match last_sector_content(control, name, edge)? {
                LastSectorContent::Label => Ok(()),
                _ => {
                    let what = format!(
                        "{name} has no label of this kind; nothing was written (`ashlar inspect \
                         {name}` shows its contents)"
                    );
                    Err(Error::new(Errno::NoEnt, what))
                }
            };
        provider_access::with_write_access(control, NAME, name, check, |control, edge| {
            provider_access::write(control, name, edge, at, zeros)
        })?;
        Ok(LabelAnswer::new(name, format!("{name} cleared")))
    }
}
