//! The verbs, as gmultipath has them: a file each; those of every class with labels are in
//! [`crate::members::verbs`].

mod add;
mod configure;
mod create;
mod dump;
mod fail;
mod get_active;
mod label;
mod path;
mod prefer;
mod redeclare;
mod remove;
mod restore;
mod rotate;

use bio::Errno;
use geom::{Class, ClassVerb, Edge, Error, GeomId, GraphControl, MessageAnswer, Topology};

use super::NAME;
use super::class::MultipathClass;
use super::geom::MultipathGeom;
use super::metadata::{Metadata, Mode};
use super::options::{Options, SECONDS_MAX};
use crate::members::frame::{self, FrameError};
use crate::members::relocate::MovableLabel;
use crate::members::verbs::{
    Clear, Destroy, Dump, LabelledClass, LastSectorClass, Relocate, Start, Stop,
};
use crate::members::{Stopped, provider_access, verb_util};

pub(super) use create::check_same_disk;
pub(super) use redeclare::{foresee, redeclare};

pub(super) const VERBS: &[ClassVerb<MultipathClass>] = &[
    ClassVerb::of::<label::Label>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<configure::Configure>(),
    ClassVerb::of::<add::Add>(),
    ClassVerb::of::<remove::Remove>(),
    ClassVerb::of::<fail::Fail>(),
    ClassVerb::of::<restore::Restore>(),
    ClassVerb::of::<prefer::Prefer>(),
    ClassVerb::of::<rotate::Rotate>(),
    ClassVerb::of::<get_active::GetActive>(),
    ClassVerb::of::<Stop>(),
    ClassVerb::of::<Destroy>(),
    ClassVerb::of::<Start>(),
    ClassVerb::of::<Clear>(),
    ClassVerb::of::<Dump>(),
    ClassVerb::of::<Relocate>(),
];

impl LabelledClass for MultipathClass {
    const DESTROY: (&'static str, bool) = ("Stop multipath geoms and clear their labels", true);
    type Records = dump::Records;

    fn take_apart(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        let geom = geom::named(&control.topology, NAME, on)?;
        control.call(|t| self.destroy(t, geom, force))?;
        Ok(MessageAnswer::new(format!("{on} stopped")))
    }

    fn destroy_geom(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        let geom = geom::named(&control.topology, NAME, on)?;
        if !force && control.topology.geom_is_open(geom) {
            let what = format!("{on} is open; close what uses it, or use --force");
            return Err(Error::new(Errno::Busy, what));
        }
        let (record, ways): (_, Vec<Edge>) =
            with(control, on, |g, t, _| Ok((g.identity.record(g.options), g.path_edges(t))))?;
        if let Some(record) = record
            && let Some(at) = frame::last_sector(record.sector_bytes, record.provider_bytes)
        {
            let zeroes = vec![0; record.sector_bytes as usize];
            let mut done = Err(Error::new(Errno::NxIo, "the device has no path"));
            for edge in ways {
                done = provider_access::write(control, on, edge, at, zeroes.clone());
                if done.is_ok() {
                    break;
                }
            }
            done.map_err(|e| {
                Error::new(e.kind, format!("its label could not be cleared, and it stays: {e}"))
            })?;
        }
        let name = control.topology.geom_name(geom).to_owned();
        // Those that were stopped are not tasted; nothing is left to be found here.
        self.take_apart(control, on, force)?;
        self.stopped.start(&name);
        self.clear_stopped(&name);
        Ok(MessageAnswer::new(format!("{on} destroyed")))
    }

    fn clear(control: &mut GraphControl, members: &[String]) -> Result<MessageAnswer, Error> {
        verb_util::clear(control, NAME, members, "label of multipath", Metadata::decode)
    }

    fn dump(control: &mut GraphControl, members: &[String]) -> Result<dump::Records, Error> {
        dump::dump(control, members)
    }
}

impl LastSectorClass for MultipathClass {
    const CLASS: &'static str = NAME;

    fn stopped(&self) -> &Stopped {
        &self.stopped
    }

    fn clear_stopped(&self, name: &str) {
        self.clear_stopped(name);
    }

    fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError> {
        Metadata::placed(sector)
    }
}

pub(super) fn seconds(given: u64) -> Result<u64, Error> {
    match given <= SECONDS_MAX {
        true => Ok(given * 1_000_000_000),
        false => Err(Error::inval(format!("{given} seconds: use at most {SECONDS_MAX}"))),
    }
}

/// The mode of these switches; `None` without one.
fn mode(active: bool, passive: bool, read: bool) -> Result<Option<Mode>, Error> {
    match (active, passive, read) {
        (false, false, false) => Ok(None),
        (true, false, false) => Ok(Some(Mode::Active)),
        (false, true, false) => Ok(Some(Mode::Passive)),
        (false, false, true) => Ok(Some(Mode::Read)),
        _ => Err(Error::inval("give one of --active, --passive and --read")),
    }
}

/// Runs `f` on a device's state. Its consequences are done when this returns.
fn with<R>(
    control: &mut GraphControl,
    on: &str,
    f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    geom::with::<MultipathClass, R>(control, on, f)
}

/// Applies the settings, and writes them to the record if there is one. `rewrite`: also when the
/// record has them already.
pub(super) fn work_as(
    control: &mut GraphControl,
    on: &str,
    rewrite: bool,
    new: impl FnOnce((Mode, Options)) -> Result<(Mode, Options), Error>,
) -> Result<(), Error> {
    with(control, on, |g, t, me| {
        let before = (g.identity.mode, g.options);
        (g.identity.mode, g.options) = new(before)?;
        g.changed(t, me);
        if rewrite || (g.identity.mode, g.options) != before {
            g.write_record(t, me, None);
        }
        Ok(())
    })?;
    with(control, on, |g, _, _| match &g.fault {
        None => Ok(()),
        Some(fault) => Err(Error::new(Errno::Io, format!("{on}: {fault}"))),
    })
}
