//! `remove`: removal of a path that is not the last.

use bio::Errno;
use geom::{At, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::path::{Path, change};
use crate::multipath::class::MultipathClass;

/// Remove a path; `add` adds it again
///
/// Requests in flight on the path end there. The last path cannot be removed: use `stop`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Remove(Path);

impl Verb<MultipathClass> for Remove {
    const NAME: &'static str = "remove";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath remove data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = &self.0;
        remove(control, on, member)?;
        Ok(MessageAnswer::new(format!("{on}: {member} removed")))
    }
}

/// Removes a path that is not the last.
pub(super) fn remove(control: &mut GraphControl, on: &str, member: &str) -> Result<(), Error> {
    change(control, on, member, |g, t, me, slot| {
        if g.paths.all().len() == 1 {
            let what = format!("{member} is the last path of {on}; `ashlar multipath stop {on}`");
            return Err(Error::new(Errno::Busy, what));
        }
        g.remove(t, me, slot);
        Ok(())
    })
}
