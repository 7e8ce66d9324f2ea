//! `start`: a stopped mirror, or one that does not start because its members went on apart (M12).

use bio::Errno;
use geom::{Control, Deserialize, Error, JsonSchema, Verb};
use serde_json::{Value, json};

use super::{slot, with};
use crate::members::{hand, known};
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;

/// Look for the members of one that was stopped
///
/// Members that were each used without the other (split brain) are not put together: the mirror
/// does not start, and `status` shows what each has. --keep says which of them is right; the other
/// is overwritten with what it has.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Start {
    /// Its name, without the class
    name: String,
    /// After a split brain: the member whose contents are kept
    keep: Option<String>,
}

impl Verb<MirrorClass> for Start {
    const NAME: &'static str = "start";
    const EXAMPLE: &'static str = "start data";
    const WRITES: bool = true;
    type Answer = Value;

    fn run(self, class: &MirrorClass, control: &mut Control) -> Result<Value, Error> {
        let on = self.name.as_str();
        let Some(keep) = &self.keep else {
            return known::start(control, NAME, &class.stopped, on);
        };
        let name = geom::bare_name(NAME, on).to_owned();
        if class.stopped.start(&name) {
            hand::look_again(control)?;
            control.settle()?;
        }
        with(control, on, |g, t, me| {
            let slot = slot(g, t, keep)?;
            if g.mirror.running {
                let what = format!("{on} runs already; `ashlar mirror stop {on}` first");
                return Err(Error::new(Errno::Busy, what));
            }
            if !g.mirror.is_split() {
                let what = format!(
                    "{on} is no split brain: its records prove which member is newer, and it \
                     starts without --keep when the members are there"
                );
                return Err(Error::inval(what));
            }
            g.mirror.keep(slot);
            g.launch(t, me);
            Ok(())
        })?;
        match control.topology.find(&format!("{NAME}/{name}")) {
            Some(_) => Ok(json!({ "message": format!("{NAME}/{name} runs with what {keep} has") })),
            None => {
                let what = format!("{on} does not start; `ashlar mirror list {on}` says why");
                Err(Error::new(Errno::NxIo, what))
            }
        }
    }
}
