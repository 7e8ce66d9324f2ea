//! Change of a mirror that the configuration declares otherwise than before, while it is used.

use geom::{Error, GeomId, GraphControl, Redeclare, Topology};

use super::forget::forget;
use super::insert::{InsertOptions, insert, replace_absent};
use super::remove::remove;
use super::{complete, runs, with};
use crate::guard;
use crate::mirror::NAME;
use crate::mirror::geom::MirrorGeom;
use crate::mirror::settings::MirrorParams;
use crate::mirror::state::{MEMBERS_MAX, Role};

/// How the members change.
#[derive(Debug, Default)]
struct Difference {
    /// They are rebuilt from those that are there.
    added: Vec<String>,
    /// They are in use, and their records are cleared.
    removed: Vec<String>,
    /// Those that are away are no longer expected.
    gives_up: bool,
}

/// Why the change would be refused.
pub(in crate::mirror) fn foresee(
    control: &mut GraphControl,
    request: &Redeclare<'_, MirrorParams>,
) -> Result<(), Error> {
    request.params.settings()?;
    let geom = geom::named(&control.topology, NAME, request.name)?;
    if request.from.is_empty() {
        return names_one(control, request.name, request.to);
    }
    difference(&mut control.topology, geom, request).map(drop)
}

/// New members are taken in before others are removed or given up, so that no copy is given up for
/// nothing.
pub(in crate::mirror) fn redeclare(
    control: &mut GraphControl,
    request: &Redeclare<'_, MirrorParams>,
    consent: &[String],
) -> Result<(), Error> {
    let on = request.name;
    request.params.settings()?;
    control.settle()?;
    let geom = geom::named(&control.topology, NAME, on)?;
    let difference = difference(&mut control.topology, geom, request)?;
    if !consent.iter().any(|name| name == on) {
        let by = guard::Requester { class: NAME, geom: on, force: false };
        let added: Vec<&str> = difference.added.iter().map(String::as_str).collect();
        guard::check(control, by, &added, consent)?;
    }
    if let Err(e) = change_members(control, on, &difference) {
        return Err(undo_members(control, on, &difference, e));
    }
    work_as_declared(control, on, request.params)
}

fn change_members(
    control: &mut GraphControl,
    on: &str,
    difference: &Difference,
) -> Result<(), Error> {
    if difference.gives_up {
        replace_absent(control, on, &difference.added)?;
        forget(control, on)?;
    } else if !difference.added.is_empty() {
        insert(
            control,
            on,
            &difference.added,
            &InsertOptions { force: true, ..InsertOptions::default() },
        )?;
    }
    remove(control, on, &difference.removed)
}

/// Removes the members that a change has added before it ended for `cause`. If another member has
/// left, they stay as its copies. The error names the members that are not as before.
fn undo_members(
    control: &mut GraphControl,
    on: &str,
    difference: &Difference,
    cause: Error,
) -> Error {
    let (added, removed) = reached(control, on, difference);
    if removed.is_empty() && !difference.gives_up {
        for member in &added {
            // One that stays is named below.
            drop(remove(control, on, std::slice::from_ref(member)));
        }
    }
    let (added, removed) = reached(control, on, difference);
    let parts = [("added", added), ("removed", removed)].into_iter();
    let parts = parts.filter(|(_, members)| !members.is_empty());
    let parts: Vec<String> =
        parts.map(|(how, members)| format!("{how} {}", members.join(", "))).collect();
    if parts.is_empty() {
        return cause;
    }
    let what = format!(
        "{}; the change of {on} is carried out in part: {}; `ashlar mirror list {on}` shows its \
         members",
        cause.message,
        parts.join("; ")
    );
    Error { message: what, ..cause }
}

/// The added members that are in use, and the removed ones that are not.
fn reached(
    control: &mut GraphControl,
    on: &str,
    difference: &Difference,
) -> (Vec<String>, Vec<String>) {
    let Ok(geom) = geom::named(&control.topology, NAME, on) else { return Default::default() };
    let found = control.topology.with(geom, |g: &mut MirrorGeom, t| {
        let is_member = |name: &str| g.slot_called(t, name).is_some();
        let added = difference.added.iter().filter(|name| is_member(name)).cloned().collect();
        let removed = difference.removed.iter().filter(|name| !is_member(name)).cloned().collect();
        (added, removed)
    });
    found.unwrap_or_default()
}

/// It works so from now on, or when it has started (S2 of `settings`).
pub(super) fn work_as_declared(
    control: &mut GraphControl,
    on: &str,
    params: &MirrorParams,
) -> Result<(), Error> {
    let settings = params.settings()?;
    with(control, on, |g, t, me| {
        g.shared.throttle.declare_rate(params.sync_rate());
        if !g.mirror.running {
            g.declared = Some(settings);
        } else if g.mirror.work_as(settings) {
            g.rewrite(t, me);
        }
        Ok(())
    })
}

/// A section that was changed while nothing ran names members of the mirror that is found by its
/// records, or some of them. One that names none of them would be refused as a change.
pub(super) fn names_one(
    control: &mut GraphControl,
    on: &str,
    members: &[String],
) -> Result<(), Error> {
    let geom = geom::named(&control.topology, NAME, on)?;
    let judged = control.topology.with(geom, |g: &mut MirrorGeom, t| {
        if members.is_empty() || members.iter().any(|name| g.has_record_on(t, name)) {
            return Ok(());
        }
        let members = g.names(t);
        if members.is_empty() { Ok(()) } else { Err(nothing_left(on, &members)) }
    });
    judged.unwrap_or_else(|| Err(Error::inval(format!("{on} is being removed"))))
}

fn nothing_left(on: &str, members: &[String]) -> Error {
    let what = format!(
        "no complete member would be left in {on}: keep one of {} until the new ones are rebuilt \
         (`ashlar mirror list {on}` shows how far they are)",
        members.join(", ")
    );
    Error::new(bio::Errno::Busy, what)
}

/// The effect of a change of a section on the present members. A member that it names before and
/// after is not changed, even when it is absent.
fn difference(
    topology: &mut Topology,
    geom: GeomId,
    request: &Redeclare<'_, MirrorParams>,
) -> Result<Difference, Error> {
    let judged = topology.with(geom, |g: &mut MirrorGeom, t| judge(g, t, request));
    judged.unwrap_or_else(|| Err(Error::inval(format!("{} is being removed", request.name))))
}

fn judge(
    g: &MirrorGeom,
    t: &Topology,
    request: &Redeclare<'_, MirrorParams>,
) -> Result<Difference, Error> {
    let (mirror, on) = (&g.mirror, request.name);
    runs(mirror)?;
    let is_member = |name: &&String| g.slot_called(t, name).is_some();
    let came = request.to.iter().filter(|name| !request.from.contains(name));
    let added: Vec<String> = came.filter(|name| !is_member(name)).cloned().collect();
    let went = request.from.iter().filter(|name| !request.to.contains(name));
    let (removed, lost): (Vec<&String>, Vec<&String>) = went.partition(is_member);
    let away = usize::from(mirror.all).saturating_sub(mirror.members().count());
    let gives_up = away > 0 && !lost.is_empty();
    let changes = !added.is_empty() || !removed.is_empty() || gives_up;
    if changes && lost.len() < away {
        complete(mirror).map_err(|e| {
            let what = format!(
                "{}. A member that is away and that `members` no longer names is given up",
                e.message
            );
            Error::new(e.kind, what)
        })?;
    }
    let slots: Vec<usize> = removed.iter().filter_map(|name| g.slot_called(t, name)).collect();
    if !slots.is_empty() && mirror.in_role(Role::Active).iter().all(|slot| slots.contains(slot)) {
        return Err(nothing_left(on, request.from));
    }
    if mirror.members().count() + added.len() > MEMBERS_MAX {
        return Err(Error::inval(format!("a mirror has at most {MEMBERS_MAX} members")));
    }
    for name in &added {
        let Some(limits) = t.find(name).and_then(|on| t.limits(on)) else { continue };
        if !mirror.fits(limits.media_bytes) {
            let what = format!("{name} has {} bytes, too few for {on}", limits.media_bytes);
            return Err(Error::inval(what));
        }
        if let Some(why) = mirror.other_sectors(limits.sector_bytes) {
            return Err(Error::inval(format!("{name}: {why}")));
        }
    }
    let removed = removed.into_iter().cloned().collect();
    Ok(Difference { added, removed, gives_up })
}
