//! The verbs, as gmirror has them.

mod made;
mod members;
mod redeclare;
mod specs;
mod whole;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::Errno;
use geom::{Control, Error, GeomId, Topology};
use serde::Deserialize;
use serde_json::Value;

use super::NAME;
use super::bitmap::{BYTES_MAX, REGION_MIN, Shape};
use super::class::MirrorClass;
use super::geom::MirrorGeom;
use super::metadata::{Balance, Metadata};
use super::state::Mirror;
use crate::members::follow::{self, Ask};
use crate::members::{hand, known};
use crate::words;
pub(super) use made::{by_hand, declare};
pub(super) use redeclare::{foresee, redeclare, settings};
pub(super) use specs::VERBS;

/// Longest wait of a verb for its mirror to have done what it asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    names: Vec<String>,
    members: Vec<String>,
    member: Option<String>,
    balance: Option<String>,
    slice: Option<u64>,
    no_failsync: bool,
    no_autosync: bool,
    failsync: bool,
    autosync: bool,
    assume_same: bool,
    priority: Option<u64>,
    inactive: bool,
    hardcode: bool,
    dynamic: bool,
    force: bool,
    sync_rate: Option<u64>,
    size: Option<u64>,
    was: Option<u64>,
    bitmap: bool,
    no_bitmap: bool,
    region: Option<u64>,
    repair: bool,
    end: bool,
    rate: Option<u64>,
    keep: Option<String>,
}

fn is_own(sector: &[u8]) -> bool {
    Metadata::decode(sector).is_ok()
}

/// Carries out a verb on the geom called `on`.
pub(super) fn run(
    class: &MirrorClass,
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let request: Request = match params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| Error::inval(format!("mirror {verb}: {e}")))?,
    };
    match verb {
        "label" => made::label(class, control, on, &request),
        "create" => made::create(class, control, on, &request),
        "configure" => whole::configure(control, on, &request),
        "insert" => members::insert(control, on, &request),
        "remove" => members::remove(control, on, &request),
        "forget" => words::each(on, &request.names, |on| members::forget(control, on)),
        "rebuild" => members::rebuild(control, on, &request),
        "deactivate" => members::deactivate(control, on, &request),
        "activate" => members::activate(control, on, &request),
        "follow" => follow::follow(
            control,
            &Ask {
                class: NAME,
                member: request.member.as_deref().unwrap_or_default(),
                was: request.was,
                force: request.force,
                read: Metadata::placed,
            },
        ),
        "resize" => whole::resize(control, on, &request),
        "verify" => whole::verify(control, on, &request),
        "stop" | "destroy" => {
            words::each(on, &request.names, |on| whole::stop(class, control, on, &request))
        }
        "start" => whole::start(class, control, on, &request),
        "clear" => {
            known::clear(control, NAME, &request.members, "record of a mirror", Metadata::decode)
        }
        "dump" => whole::dump(control, &request),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("mirror has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

fn balance(request: &Request) -> Result<Option<Balance>, Error> {
    let Some(word) = &request.balance else { return Ok(None) };
    let none = || Error::inval(format!("no balance {word}; {}", Balance::WORDS.join(", ")));
    Balance::of_word(word).ok_or_else(none).map(Some)
}

/// The bitmap of a mirror of so many bytes.
fn shape(media_bytes: u64, sector_bytes: u32, region: Option<u64>) -> Result<Shape, Error> {
    Shape::of(media_bytes, sector_bytes, region).ok_or_else(|| {
        let least = media_bytes.div_ceil(BYTES_MAX * 8).next_power_of_two().max(REGION_MIN);
        Error::inval(format!("a region must be a power of two, of {least} bytes at least"))
    })
}

fn slice(request: &Request) -> Result<Option<u32>, Error> {
    let Some(bytes) = request.slice else { return Ok(None) };
    match u32::try_from(bytes) {
        Ok(slice) if slice > 0 => Ok(Some(slice)),
        _ => Err(Error::inval(format!("a slice of {bytes} bytes: use 1 to 4294967295"))),
    }
}

fn priority(request: &Request) -> Result<Option<u8>, Error> {
    let Some(given) = request.priority else { return Ok(None) };
    let wrong = |_| Error::inval(format!("priority {given}: use 0 to 255"));
    u8::try_from(given).map_err(wrong).map(Some)
}

/// Runs `f` with a mirror's own state, waits until it has done what follows, answers.
fn with<R>(
    control: &mut Control,
    on: &str,
    f: impl FnOnce(&mut MirrorGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = known::geom(control, NAME, on)?;
    let going = || Err(Error::new(Errno::NxIo, format!("{on} is going")));
    let done = control.call(|t| {
        t.with(geom, |g: &mut MirrorGeom, t| {
            let shared = g.shared.clone();
            f(g, t, geom).map(|r| (r, shared))
        })
        .unwrap_or_else(going)
    });
    let (answer, shared) = done?;
    let done = control.wait_until(PATIENCE, |_| !shared.busy.load(Relaxed));
    control.settle()?;
    match done {
        true => Ok(answer),
        false => {
            let what = format!("{on} has not done it in {} s: a member hangs", PATIENCE.as_secs());
            Err(Error::new(Errno::TimedOut, what))
        }
    }
}

/// Refuses before the start: records of members that are still to come may say otherwise.
fn runs(mirror: &Mirror) -> Result<(), Error> {
    if mirror.running {
        return Ok(());
    }
    let what = format!(
        "{0} has not started: it does when its members are there, or after a while without those \
         that are missing; `ashlar mirror list {0}` says what it waits for",
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
        "not all members of {0} are in use: plug in those that are away, `ashlar mirror activate \
         {0} DISK` those that were deactivated, or `ashlar mirror forget {0}` gives them up",
        mirror.name
    );
    Err(Error::new(Errno::Busy, what))
}

fn write_record(
    control: &mut Control,
    member: &str,
    record: Option<&Metadata>,
) -> Result<(), Error> {
    hand::writing(
        control,
        NAME,
        member,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = hand::last(control, member, edge)?;
            if let Some(shape) = record.and_then(|r| r.bitmap) {
                let (from, bytes) = (u64::from(shape.bytes), vec![0; shape.bytes as usize]);
                hand::write(control, member, edge, at.saturating_sub(from), bytes)?;
            }
            let mut sector = record.map(Metadata::encode).unwrap_or_default();
            sector.resize(old.len(), 0);
            hand::write(control, member, edge, at, sector)
        },
    )
}
