//! Change of the paths of a device that the configuration declares otherwise than before, while it
//! is used.

use geom::{Error, GraphControl, Redeclare};

use super::path::{add, remove};
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
            // Those that were added are removed again; the error that counts is the first.
            new[..at].iter().for_each(|name| drop(remove(control, on, name)));
            return Err(e);
        }
    }
    let gone = from.iter().filter(|name| !to.contains(name) && current.contains(name));
    gone.into_iter().try_for_each(|name| remove(control, on, name))
}
