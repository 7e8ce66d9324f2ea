//! The verbs, as gmirror has them: a file each; those of every class with labels are in
//! [`crate::members::verbs`].

mod activate;
mod configure;
mod create;
mod creation;
mod deactivate;
mod dump;
mod forget;
mod insert;
mod label;
mod rebuild;
mod redeclare;
mod remove;
mod resize;
mod start;
mod verify;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::Errno;
use geom::{Class, ClassVerb, Error, GeomId, GraphControl, MessageAnswer, Topology};

use super::NAME;
use super::bitmap::{BYTES_MAX, REGION_MIN, Shape};
use super::class::MirrorClass;
use super::geom::{Job, MirrorGeom};
use super::metadata::Metadata;
use super::state::Mirror;
use crate::members::frame::FrameError;
use crate::members::pause::{Pause, RebuildingClass, Resume};
use crate::members::relocate::MovableLabel;
use crate::members::verbs::{Clear, Destroy, Dump, LabelledClass, LastSectorClass, Relocate, Stop};
use crate::members::{Stopped, provider_access, verb_util};
use crate::shared_args::STOPPED_HIDES as HIDDEN;
pub(super) use creation::{by_hand, declare};
pub(super) use redeclare::{foresee, redeclare};

/// Longest time that a verb waits for its mirror to complete the request.
const VERB_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const VERBS: &[ClassVerb<MirrorClass>] = &[
    ClassVerb::of::<label::Label>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<configure::Configure>(),
    ClassVerb::of::<insert::Insert>(),
    ClassVerb::of::<remove::Remove>(),
    ClassVerb::of::<forget::Forget>(),
    ClassVerb::of::<rebuild::Rebuild>(),
    ClassVerb::of::<deactivate::Deactivate>(),
    ClassVerb::of::<activate::Activate>(),
    ClassVerb::of::<resize::Resize>(),
    ClassVerb::of::<verify::Verify>(),
    ClassVerb::of::<Pause>(),
    ClassVerb::of::<Resume>(),
    ClassVerb::of::<Stop>(),
    ClassVerb::of::<Destroy>(),
    ClassVerb::of::<start::Start>(),
    ClassVerb::of::<Clear>(),
    ClassVerb::of::<Dump>(),
    ClassVerb::of::<Relocate>(),
];

impl LabelledClass for MirrorClass {
    const STOPPED: &'static str = HIDDEN;
    type Records = dump::Records;

    fn take_apart(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        let geom = geom::named(&control.topology, NAME, on)?;
        let open = control.topology.geom_is_open(geom);
        if !open || force {
            // Marks are taken away first, so that nothing is rebuilt at the next start.
            with(control, on, |g, t, me| {
                g.push(t, me, Job::Clean);
                Ok(())
            })?;
        }
        control.call(|t| self.destroy(t, geom, force))?;
        Ok(MessageAnswer::new(format!("{on} stopped")))
    }

    fn clear(control: &mut GraphControl, members: &[String]) -> Result<MessageAnswer, Error> {
        verb_util::clear(control, NAME, members, "record of a mirror", Metadata::decode)
    }

    fn dump(control: &mut GraphControl, members: &[String]) -> Result<dump::Records, Error> {
        dump::dump(control, members)
    }
}

impl RebuildingClass for MirrorClass {
    const REBUILDS_OF: &'static str = NAME;

    fn set_paused(control: &mut GraphControl, on: &str, paused: bool) -> Result<bool, Error> {
        with(control, on, |g, _, _| Ok(g.shared.throttle.set_paused(paused)))
    }
}

impl LastSectorClass for MirrorClass {
    const CLASS: &'static str = NAME;

    fn stopped(&self) -> &Stopped {
        &self.stopped
    }

    fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError> {
        Metadata::placed(sector)
    }
}

fn is_own(sector: &[u8]) -> bool {
    Metadata::decode(sector).is_ok()
}

/// The bitmap of a mirror of so many bytes.
fn shape(media_bytes: u64, sector_bytes: u32, region: Option<u64>) -> Result<Shape, Error> {
    Shape::of(media_bytes, sector_bytes, region).ok_or_else(|| {
        let least = media_bytes.div_ceil(BYTES_MAX * 8).next_power_of_two().max(REGION_MIN);
        Error::inval(format!("a region must be a power of two, of {least} bytes at least"))
    })
}

/// The priority of a member, from a number that was given.
fn priority(given: u64) -> Result<u8, Error> {
    let wrong = |_| Error::inval(format!("priority {given}: use 0 to 255"));
    u8::try_from(given).map_err(wrong)
}

fn slot(g: &MirrorGeom, t: &Topology, member: &str) -> Result<usize, Error> {
    g.slot_called(t, member).ok_or_else(|| {
        let name = &g.mirror.name;
        let what = format!("{member} is no member of {name}; `ashlar mirror list {name}`");
        Error::new(Errno::NoEnt, what)
    })
}

/// Runs `f` on a mirror's state, waits until its consequences are done, and answers.
fn with<R>(
    control: &mut GraphControl,
    on: &str,
    f: impl FnOnce(&mut MirrorGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = geom::named(&control.topology, NAME, on)?;
    let going = || Err(Error::new(Errno::NxIo, format!("{on} is being removed")));
    let done = control.call(|t| {
        t.with(geom, |g: &mut MirrorGeom, t| {
            let shared = g.shared.clone();
            f(g, t, geom).map(|r| (r, shared))
        })
        .unwrap_or_else(going)
    });
    let (answer, shared) = done?;
    let done = control.wait_until(VERB_TIMEOUT, |_| !shared.busy.load(Relaxed));
    control.settle()?;
    match done {
        true => Ok(answer),
        false => {
            let what = format!(
                "{on}: not finished after {} s: a member does not answer",
                VERB_TIMEOUT.as_secs()
            );
            Err(Error::new(Errno::TimedOut, what))
        }
    }
}

/// Refuses before the start: records of members that arrive later may differ.
fn runs(mirror: &Mirror) -> Result<(), Error> {
    if mirror.running {
        return Ok(());
    }
    let what = format!(
        "{0} has not started: it starts when its members are present, or after a while without the \
         missing ones; `ashlar mirror list {0}` shows the missing ones",
        mirror.name
    );
    Err(Error::new(Errno::Busy, what))
}

/// Refuses while members are missing: a change would not reach them.
fn complete(mirror: &Mirror) -> Result<(), Error> {
    if mirror.is_complete() {
        return Ok(());
    }
    let what = format!(
        "not all members of {0} are in use: connect the absent ones, `ashlar mirror activate {0} \
         DISK` the deactivated ones, or `ashlar mirror forget {0}` gives them up",
        mirror.name
    );
    Err(Error::new(Errno::Busy, what))
}

fn write_record(
    control: &mut GraphControl,
    member: &str,
    record: Option<&Metadata>,
) -> Result<(), Error> {
    provider_access::with_write_access(
        control,
        NAME,
        member,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = provider_access::read_last_sector(control, member, edge)?;
            if let Some(shape) = record.and_then(|r| r.bitmap) {
                let (from, bytes) = (u64::from(shape.bytes), vec![0; shape.bytes as usize]);
                provider_access::write(control, member, edge, at.saturating_sub(from), bytes)?;
            }
            let mut sector = record.map(Metadata::encode).unwrap_or_default();
            sector.resize(old.len(), 0);
            provider_access::write(control, member, edge, at, sector)
        },
    )
}
