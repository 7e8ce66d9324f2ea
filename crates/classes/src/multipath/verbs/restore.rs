//! `restore`: a failed path marked as good.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::path::Path;
use crate::multipath::class::MultipathClass;

/// Mark a failed path as good
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Restore(Path);

impl Verb<MultipathClass> for Restore {
    const NAME: &'static str = "restore";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath restore data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        self.0.change(control, "restored", |g, t, me, slot| {
            g.paths.restore(slot);
            g.changed(t, me);
            Ok(())
        })
    }
}
