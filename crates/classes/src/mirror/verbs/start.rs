//! `start`: a stopped mirror, or one that does not start because its members continued apart (M12).

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{slot, with};
use crate::members::{provider_access, verb_util};
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;

/// Find the members of a stopped mirror and start it
///
/// If members were used without each other (split brain), the mirror does not start, and `status`
/// shows the state of each member. --keep selects the member whose contents are kept. They
/// overwrite the other member.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Start {
    /// Name of the mirror, without the class
    name: String,
    /// After a split brain: the member whose contents are kept
    keep: Option<String>,
}

impl Verb<MirrorClass> for Start {
    const NAME: &'static str = "start";
    const EXAMPLE: &'static str = "start data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let Some(keep) = &self.keep else {
            return verb_util::start(control, NAME, &class.stopped, on);
        };
        let name = geom::bare_name(NAME, on).to_owned();
        if class.stopped.start(&name) {
            provider_access::taste_all_again(control)?;
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
                    "{on} is not in split brain: its records prove which member is newer, and it \
                     starts without --keep when the members are there"
                );
                return Err(Error::inval(what));
            }
            g.mirror.keep(slot);
            g.launch(t, me);
            Ok(())
        })?;
        match control.topology.find(&format!("{NAME}/{name}")) {
            Some(_) => {
                Ok(MessageAnswer::new(format!("{NAME}/{name} runs with the data of {keep}")))
            }
            None => {
                let what = format!("{on} does not start; `ashlar mirror list {on}` shows why");
                Err(Error::new(Errno::NxIo, what))
            }
        }
    }
}
