//! `prefer`: another active path.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::path::Path;
use crate::multipath::class::MultipathClass;

/// Make a good path the active one
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Prefer(Path);

impl Verb<MultipathClass> for Prefer {
    const NAME: &'static str = "prefer";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath prefer data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = &self.0;
        self.0.change(control, "active", |g, t, me, slot| match g.prefer(t, me, slot) {
            true => Ok(()),
            false => {
                let what =
                    format!("{member} has failed; `ashlar multipath restore {on} {member}` first");
                Err(Error::new(Errno::NxIo, what))
            }
        })
    }
}
