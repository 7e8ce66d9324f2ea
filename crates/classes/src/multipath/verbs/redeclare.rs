//! Change of the paths of a device that the configuration declares otherwise than before, while it
//! is used.

use geom::{Error, GraphControl, Redeclare};

use super::add::add;
use super::remove::remove;
use super::with;
use crate::multipath::class::{MultipathParams, declared};

/// Why the change would be refused.
pub(in crate::multipath) fn foresee(
    control: &mut GraphControl,
    request: &Redeclare<'_, MultipathParams>,
) -> Result<(), Error> {
    declared(request.params)?;
    with(control, request.name, |g, t, _| {
        let new = request.to.iter().filter(|name| g.paths.called(name).is_none());
        let found: Vec<_> = new.filter_map(|name| t.find(name)).collect();
        found.into_iter().try_for_each(|on| g.refuse_other(t, on))
    })
}

/// New paths are added before others are removed, so that requests always have a path.
pub(in crate::multipath) fn redeclare(
    control: &mut GraphControl,
    request: &Redeclare<'_, MultipathParams>,
) -> Result<(), Error> {
    let Redeclare { name: on, from, to, .. } = *request;
    let current = with(control, on, |g, _, _| {
        Ok(g.paths.all().iter().map(|path| path.name.clone()).collect::<Vec<_>>())
    })?;
    let new: Vec<&String> = to.iter().filter(|name| !current.contains(name)).collect();
    for (at, name) in new.iter().enumerate() {
        if let Err(e) = add(control, on, name) {
            return Err(undo(control, on, (&new[..at], &[]), e));
        }
    }
    let gone = from.iter().filter(|name| !to.contains(name) && current.contains(name));
    let gone: Vec<&String> = gone.collect();
    for (at, name) in gone.iter().enumerate() {
        if let Err(e) = remove(control, on, name) {
            return Err(undo(control, on, (&new, &gone[..at]), e));
        }
    }
    Ok(())
}

/// Adds the removed paths of a change again that ended for `cause`, then removes the added ones.
/// The error names the paths that are not as before.
fn undo(
    control: &mut GraphControl,
    on: &str,
    (added, removed): (&[&String], &[&String]),
    cause: Error,
) -> Error {
    // A removed path is closed when its requests have ended. One that hangs is named below.
    drop(control.settle());
    let mut left = Vec::new();
    for name in removed {
        if add(control, on, name).is_err() {
            left.push(format!("{name} is removed"));
        }
    }
    for name in added {
        if remove(control, on, name).is_err() {
            left.push(format!("{name} is added"));
        }
    }
    if left.is_empty() {
        return cause;
    }
    let what = format!(
        "{}; the change of {on} is carried out in part: {}; `ashlar multipath list {on}` shows its \
         paths",
        cause.message,
        left.join(", ")
    );
    Error { message: what, ..cause }
}
