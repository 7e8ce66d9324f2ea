//! `add`, `remove`, `fail`, `restore`, `prefer`: one path.

use bio::Errno;
use geom::{At, Deserialize, Error, GeomId, GraphControl, JsonSchema, MessageAnswer, Topology, Verb};

use super::with;
use crate::members::provider_access;
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::multipath::geom::MultipathGeom;
use crate::multipath::metadata::Metadata;

/// Arguments of the verbs about one path.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct Path {
    /// Name of the multipath geom, without the class
    name: String,
    /// Provider of the path
    member: String,
}

impl Path {
    /// Changes a path; `done` is the word for its new state.
    fn change(
        &self,
        control: &mut GraphControl,
        done: &str,
        f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId, usize) -> Result<(), Error>,
    ) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = self;
        change(control, on, member, f)?;
        Ok(MessageAnswer::new(format!("{on}: {member} {done}")))
    }
}

/// Applies `f` to a path by its slot.
fn change(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    with(control, on, |g, t, me| {
        let Some(slot) = g.paths.called(member).map(|p| p.slot) else {
            let what = format!("{member} is no path of {on}; `ashlar multipath list` shows them");
            return Err(Error::new(Errno::NoEnt, what));
        };
        f(g, t, me, slot)
    })
}

/// Add a path
///
/// If the disk is labelled, the path must show the label.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Add(Path);

impl Verb<MultipathClass> for Add {
    const NAME: &'static str = "add";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath add data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = &self.0;
        add(control, on, member)?;
        Ok(MessageAnswer::new(format!("{member} added to {on}")))
    }
}

/// Adds a path, after a check that it shows the label of a labelled disk.
pub(super) fn add(control: &mut GraphControl, on: &str, member: &str) -> Result<(), Error> {
    let new = provider_access::find(control, member)?;
    let uuid = with(control, on, |g, _, _| Ok(g.identity.uuid.clone()))?;
    if let Some(uuid) = uuid {
        let sector = provider_access::with_read_access(control, NAME, member, |control, edge| {
            Ok(provider_access::read_last_sector(control, member, edge)?.1)
        })?;
        if Metadata::decode(&sector).ok().is_none_or(|record| record.uuid != uuid) {
            return Err(Error::inval(format!(
                "{member} does not show the label of {on} in its last sector: it is another \
                 disk"
            )));
        }
    }
    with(control, on, |g, t, me| g.take_in(t, me, new))
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
