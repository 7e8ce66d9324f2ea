//! Verbs of the class, as in graid: a file each; those of every class with labels are in
//! [`crate::members::verbs`].

mod add;
mod clear;
mod configure;
mod consistency;
mod delete;
mod dump;
mod fail;
mod insert;
mod label;
mod relocate;
mod remove;
mod start;
mod verify;
mod volume;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::{Attr, Errno};
use geom::{Class, ClassVerb, Edge, Error, GeomId, GraphControl, MessageAnswer, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assemble::Found;
use super::class::RaidClass;
use super::geom::{Job, NAME, RaidGeom};
use super::members::VolumeStatus;
use super::model::Volume;
use super::{ddf, imsm};
use crate::members::pause::{Pause, RebuildingClass, Resume};
use crate::members::provider_access;
use crate::members::verbs::{Clear, Destroy, Dump, LabelledClass, Stop};
use crate::probe::{Sectors, Step};
use crate::probe_io::carry_out;
use crate::shared_args::STOPPED_HIDES;
use crate::write_plan::WritePlan;

pub(super) const VERBS: &[ClassVerb<RaidClass>] = &[
    ClassVerb::of::<label::Label>(),
    ClassVerb::of::<add::Add>(),
    ClassVerb::of::<delete::Delete>(),
    ClassVerb::of::<insert::Insert>(),
    ClassVerb::of::<remove::Remove>(),
    ClassVerb::of::<fail::Fail>(),
    ClassVerb::of::<configure::Configure>(),
    ClassVerb::of::<consistency::Consistency>(),
    ClassVerb::of::<verify::Verify>(),
    ClassVerb::of::<Pause>(),
    ClassVerb::of::<Resume>(),
    ClassVerb::of::<relocate::Relocate>(),
    ClassVerb::of::<Stop>(),
    ClassVerb::of::<Destroy>(),
    ClassVerb::of::<start::Start>(),
    ClassVerb::of::<Clear>(),
    ClassVerb::of::<Dump>(),
];

/// Name of the array, or of one of its volumes: its label, or its name in `status`
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct ArrayName(String);

/// Label of the volume, or its number in `list`, from 0 [default: the volume that NAME refers to,
/// or all volumes]
#[derive(Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct VolumeName(Option<String>);

/// Consistency policy of a volume after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Policy {
    #[default]
    Resync,
    Ppl,
}

impl LabelledClass for RaidClass {
    const STOPPED: &'static str = STOPPED_HIDES;
    type Records = dump::Records;

    fn take_apart(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        let geom = find(control, on)?;
        if !control.topology.geom_is_open(geom) || force {
            // Marks are taken away first, so that nothing is synced at the next start.
            with(control, on, |g, t, me| {
                let keys: Vec<u32> = g.running_volumes.keys().copied().collect();
                keys.into_iter().for_each(|key| g.push(t, me, Job::Clean(key)));
                Ok(())
            })?;
        }
        control.call(|t| self.destroy(t, geom, force))?;
        Ok(MessageAnswer::new(format!("{on} stopped")))
    }

    fn clear(control: &mut GraphControl, members: &[String]) -> Result<MessageAnswer, Error> {
        clear::clear(control, members)
    }

    fn dump(control: &mut GraphControl, members: &[String]) -> Result<dump::Records, Error> {
        dump::dump(control, members)
    }
}

impl RebuildingClass for RaidClass {
    const REBUILDS_OF: &'static str = NAME;

    fn set_paused(control: &mut GraphControl, on: &str, paused: bool) -> Result<bool, Error> {
        with(control, on, |g, _, _| Ok(g.throttle.set_paused(paused)))
    }
}

/// Longest wait of a verb for its array to complete the operation.
const VERB_TIMEOUT: Duration = Duration::from_secs(30);

/// The array called so, or that has a provider or a volume called so.
fn find(control: &mut GraphControl, on: &str) -> Result<GeomId, Error> {
    let name = geom::bare_name(NAME, on).to_owned();
    let t = &mut control.topology;
    if let Some(geom) = t.find_geom(NAME, &name) {
        return Ok(geom);
    }
    let provider = t.find(&format!("{NAME}/{name}"));
    if let Some(geom) = provider.and_then(|p| t.geom_of(p)) {
        return Ok(geom);
    }
    let ids: Vec<GeomId> = t.class_view(NAME, 0).iter().map(|g| g.id).collect();
    let mut has = |geom: &GeomId| {
        let of = |g: &mut RaidGeom, _: &mut Topology| {
            g.set.as_ref().is_some_and(|s| s.array.volumes.iter().any(|v| v.name == name))
        };
        t.with(*geom, of).unwrap_or(false)
    };
    let found: Vec<GeomId> = ids.into_iter().filter(|geom| has(geom)).collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            let what = format!("there is no array {name}; `ashlar raid status` names them");
            Err(Error::new(Errno::NoEnt, what))
        }
        _ => Err(Error::inval(format!("several arrays have a volume {name}: name the array"))),
    }
}

/// The volumes that a verb works on: the given one, or the one by whose name the array was given;
/// otherwise all.
fn selected_volumes(g: &RaidGeom, on: &str, volume: Option<&str>) -> Result<Vec<usize>, Error> {
    let volumes = g.set.iter().flat_map(|set| set.volume_status.iter().zip(&set.array.volumes));
    let named = |word: &str| {
        let is_it = |(vol, volume): (&VolumeStatus, &Volume)| {
            let up = g.running_volumes.get(&vol.key).map(|up| up.name.as_str());
            volume.name == word || up.is_some_and(|up| geom::bare_name(NAME, up) == word)
        };
        volumes.clone().position(is_it)
    };
    let (word, count) = (geom::bare_name(NAME, on), volumes.clone().count());
    match volume {
        None if word == g.id.name() => Ok((0..count).collect()),
        None => Ok(named(word).map_or_else(|| (0..count).collect(), |at| vec![at])),
        Some(word) => {
            let by_number = || word.parse().ok().filter(|n| *n < count);
            let at = named(geom::bare_name(NAME, word)).or_else(by_number);
            let none = || Error::new(Errno::NoEnt, format!("{} has no volume {word}", g.id.name()));
            at.map(|at| vec![at]).ok_or_else(none)
        }
    }
}

/// Runs `f` with an array's own state, waits until it has done what follows, answers.
fn with<R>(
    control: &mut GraphControl,
    on: &str,
    f: impl FnOnce(&mut RaidGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = find(control, on)?;
    let going = || Err(Error::new(Errno::NxIo, format!("{on} is being removed")));
    let done = control.call(|t| {
        t.with(geom, |g: &mut RaidGeom, t| {
            let busy = g.busy.clone();
            f(g, t, geom).map(|r| (r, busy))
        })
        .unwrap_or_else(going)
    });
    let (answer, busy) = done?;
    let done = control.wait_until(VERB_TIMEOUT, |_| busy.load(Relaxed) == 0);
    control.settle()?;
    match done {
        true => Ok(answer),
        false => {
            let what = format!(
                "{on}: not finished after {} s: a disk does not answer",
                VERB_TIMEOUT.as_secs()
            );
            Err(Error::new(Errno::TimedOut, what))
        }
    }
}

/// Carries out a plan on a provider that absent uses.
fn apply_plan(control: &mut GraphControl, name: &str, plan: WritePlan) -> Result<(), Error> {
    provider_access::with_write_access(
        control,
        NAME,
        name,
        |_, _| Ok(()),
        |control, edge| {
            let done = control.run_on_core("writing a record", move |core| {
                Box::pin(async move { carry_out(core, edge, &plan).await })
            })?;
            done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))
        },
    )
}

/// The record on a provider.
fn probe(control: &mut GraphControl, name: &str) -> Result<Found, Error> {
    let on = provider_access::find(control, name)?;
    let (sector, media) = provider_access::sizes(control, on);
    let serial = serial(control, name)?;
    provider_access::with_read_access(control, NAME, name, |control, edge| {
        probe_as(control, name, edge, (sector, media), &serial)
    })
}

/// The record on an open provider, as if it had that many bytes.
pub(super) fn probe_as(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    (sector, media): (u32, u64),
    serial: &str,
) -> Result<Found, Error> {
    let mut read = |at: u64, len: usize| provider_access::read(control, name, edge, at, len).ok();
    let mut sectors = Sectors::new(sector, media);
    let intel = sectors.drive(&mut read, imsm::step);
    if let Ok(record) = intel {
        return Ok(Found::Intel { serial: serial.to_owned(), record: Box::new(record) });
    }
    let mut sectors = Sectors::new(sector, media);
    let found = sectors.drive(&mut read, |s| -> Step<_> { ddf::step(s) });
    match (found, intel) {
        (Ok(meta), _) => Ok(Found::Ddf(Box::new(meta))),
        (Err(why), Err(intel)) => Err(Error::inval(format!("{name}: {intel}; {why}"))),
        (Err(why), Ok(_)) => Err(Error::inval(format!("{name}: {why}"))),
    }
}

/// The provider of a new volume.
#[derive(Serialize, JsonSchema)]
pub(super) struct VolumeAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the provider.
    provider: String,
    /// Name of the array.
    array: String,
}

/// The answer once a volume exists; otherwise the taste results of its disks.
fn wait_for_volume(
    control: &mut GraphControl,
    set: &str,
    volume: &str,
    members: &[String],
) -> Result<VolumeAnswer, Error> {
    control.settle()?;
    let provider = |t: &mut Topology| -> Option<String> {
        let geom = t.find_geom(NAME, set)?;
        let provider = t.with(geom, |g: &mut RaidGeom, _| {
            let known = g.set.as_ref()?;
            let at = known.array.volumes.iter().position(|v| v.name == volume)?;
            Some(g.running_volumes.get(&known.volume_status.get(at)?.key)?.provider)
        });
        Some(t.provider_name(provider??).to_owned())
    };
    if let Some(provider) = provider(&mut control.topology) {
        let message = format!("{provider} is there, volume {volume} of {set}");
        return Ok(VolumeAnswer { message, provider, array: set.to_owned() });
    }
    let view = control.topology.view(0);
    let listed = view.iter().find(|g| g.class == NAME && g.name == set && !g.withering);
    let state = listed.and_then(|g| g.show.iter().find(|(k, _)| *k == "State"));
    let reasons = members.iter().filter_map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m)?;
        let (_, why) = found.taste_outcomes.iter().find(|(c, _)| *c == NAME)?;
        Some(format!("{m}: {why}"))
    });
    let mut reasons: Vec<String> = reasons.collect();
    reasons.extend(state.map(|(_, state)| format!("{set} is {state}")));
    Err(Error::new(Errno::NxIo, format!("{volume} did not start: {}", reasons.join("; "))))
}

/// The disk of an array that a provider is.
fn disk(g: &RaidGeom, name: &str) -> Result<u32, Error> {
    g.called(name).map(|(tag, _)| tag).ok_or_else(|| {
        let set = g.id.name();
        let what = format!("{name} is no disk of {set}; `ashlar raid list {set}` names them");
        Error::new(Errno::NoEnt, what)
    })
}

/// How a disk that is not used any more returns to its array.
pub(super) fn readd_command(disk: &str, set: &str) -> String {
    format!("`ashlar {NAME} clear {disk}`, then `ashlar {NAME} insert {set} {disk}` adds it again")
}

/// Refuses what would leave a volume without its data.
fn spare_of(g: &RaidGeom, tag: u32, name: &str) -> Result<(), Error> {
    let Some(set) = &g.set else { return Ok(()) };
    let broken = set.disk(tag).map(|index| set.breaks(index)).unwrap_or_default();
    match broken.first().and_then(|at| set.array.volumes.get(*at)) {
        None => Ok(()),
        Some(volume) => {
            let what =
                format!("volume {} needs {name}: its data would be lost without it", volume.name);
            Err(Error::new(Errno::Busy, what))
        }
    }
}

/// A disk that was to be removed is needed after all.
fn still_needed(name: &str) -> Error {
    let what = format!("{name} stays: a volume needs it now");
    Error::new(Errno::Busy, what)
}

/// A disk's own serial number, or its name.
fn serial(control: &GraphControl, name: &str) -> Result<String, Error> {
    let on = provider_access::find(control, name)?;
    let ident = match control.topology.attr(on, "GEOM::ident") {
        Some(Attr::Text(text)) if !text.is_empty() => text,
        _ => name.to_owned(),
    };
    Ok(imsm::serial_of(&ident))
}

/// Clears the record of a disk, so that the disk is no longer recognized as a member.
fn erase(control: &mut GraphControl, name: &str) -> Result<(), Error> {
    let on = provider_access::find(control, name)?;
    let (sector, media) = provider_access::sizes(control, on);
    let sectors = media / u64::from(sector.max(1));
    let plan = match probe(control, name) {
        Ok(Found::Ddf(meta)) => ddf::erase(&meta, sectors, sector),
        _ => imsm::erase(sectors, sector),
    };
    apply_plan(control, name, plan)
}
