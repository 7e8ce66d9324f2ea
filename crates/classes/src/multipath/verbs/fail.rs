//! `fail`: a path marked as failed.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::path::Path;
use crate::multipath::class::MultipathClass;

/// Mark a path as failed
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Fail(Path);

impl Verb<MultipathClass> for Fail {
    const NAME: &'static str = "fail";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath fail data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        self.0.change(control, "failed", |g, t, me, slot| {
            g.fail(slot);
            g.changed(t, me);
            Ok(())
        })
    }
}
