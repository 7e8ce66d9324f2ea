//! The verbs, as gmultipath has them.

use bio::Errno;
use geom::{ArgKind, ArgSpec, Class, Control, Create, Edge, Error, GeomId, Topology, VerbSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::NAME;
use super::class::MultipathClass;
use super::geom::MultipathGeom;
use super::metadata::{Metadata, Mode};
use super::options::{Options, SECONDS_MAX};
use super::paths::{One, PATHS_MAX};
use crate::members::follow::{self, Ask};
use crate::members::{frame, hand, known};
use crate::words::{self, verb};

const ACTIVE: ArgSpec = ArgSpec {
    name: "active",
    short: Some('A'),
    kind: ArgKind::Flag,
    doc: "Active/Active: everything goes by all good paths",
};
const READ: ArgSpec = ArgSpec {
    name: "read",
    short: Some('R'),
    kind: ArgKind::Flag,
    doc: "Active/Read: reads go by all good paths, the rest by the active one",
};
const PASSIVE: ArgSpec = ArgSpec {
    name: "passive",
    short: Some('P'),
    kind: ArgKind::Flag,
    doc: "Active/Passive: everything goes by the active path",
};
const CHECKER: ArgSpec = ArgSpec {
    name: "checker",
    short: None,
    kind: ArgKind::Number,
    doc: "Seconds between looks at failed paths, which restore those that answer, and at those \
          with a worse access state, which tell when it is better; 0: none \
          [default: 0]",
};
const FAILBACK: ArgSpec = ArgSpec {
    name: "failback",
    short: None,
    kind: ArgKind::Number,
    doc: "Seconds for which the preferred path (else the first) must be good again before it is \
          made active [default: never]",
};
const NO_FAILBACK: ArgSpec = ArgSpec {
    name: "no_failback",
    short: None,
    kind: ArgKind::Flag,
    doc: "The active path stays active until it fails",
};
const QUEUE: ArgSpec = ArgSpec {
    name: "queue",
    short: None,
    kind: ArgKind::Number,
    doc: "Seconds that requests wait when there is no path, before they end with ENXIO; 0: not \
          at all [default: 0]",
};

/// What the class can be asked.
pub(super) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        detail: "The record is written to the last sector by the first path only. A further one \
                 that does not show it there leads to another disk: it is refused, and the sector \
                 is what it was. A disk that holds something is refused unless \
                 --yes-destroy PROVIDER is given.",
        ..verb(
            "label",
            "Label a disk that is reached by several paths, so that it is found again by itself",
            &[words::NAME, words::PROVIDERS, ACTIVE, READ, words::YES_DESTROY, words::FORCE],
            "multipath label -A data d0 d1",
            true,
        )
    },
    VerbSpec {
        detail: "Nobody checks that the paths lead to the same disk.",
        ..verb(
            "create",
            "Join paths without writing a record, until the daemon ends",
            &[words::NAME, words::PROVIDERS, ACTIVE, READ],
            "multipath create data d0 d1",
            false,
        )
    },
    VerbSpec {
        detail: "All of it is kept on a disk that is labelled: --checker, --failback and --queue \
                 behind the record, where FreeBSD does not look; it clears them when it writes the \
                 record. Of one made by hand it lasts until the daemon ends, or stands in the \
                 configuration.",
        ..verb(
            "configure",
            "Change how paths are used",
            &[words::NAME, ACTIVE, PASSIVE, READ, CHECKER, FAILBACK, NO_FAILBACK, QUEUE],
            "multipath configure -R data",
            true,
        )
    },
    VerbSpec {
        detail: "If the disk is labelled, the path must show the label.",
        ..verb("add", "Add a path", &[words::NAME, words::PROVIDER], "multipath add data d2", false)
    },
    VerbSpec {
        detail: "What is in flight there ends there. The last path is not removed: that is `stop`.",
        ..verb(
            "remove",
            "Remove a path; `add` brings it back",
            &[words::NAME, words::PROVIDER],
            "multipath remove data d1",
            false,
        )
    },
    verb(
        "fail",
        "Mark a path failed",
        &[words::NAME, words::PROVIDER],
        "multipath fail data d1",
        false,
    ),
    verb(
        "restore",
        "Mark a failed path good",
        &[words::NAME, words::PROVIDER],
        "multipath restore data d1",
        false,
    ),
    verb(
        "prefer",
        "Make a good path the active one",
        &[words::NAME, words::PROVIDER],
        "multipath prefer data d1",
        false,
    ),
    verb(
        "rotate",
        "Make the next good path the active one",
        &[words::NAME],
        "multipath rotate data",
        false,
    ),
    verb("getactive", "Show the active path", &[words::NAME], "multipath getactive data", false),
    words::STOP,
    verb(
        "destroy",
        "Take it apart and clear its label",
        &[words::NAMES, words::FORCE],
        "multipath destroy data",
        true,
    ),
    words::START,
    words::CLEAR,
    words::DUMP,
    follow::FOLLOW,
];

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    names: Vec<String>,
    members: Vec<String>,
    member: Option<String>,
    active: bool,
    passive: bool,
    read: bool,
    checker: Option<u64>,
    failback: Option<u64>,
    no_failback: bool,
    queue: Option<u64>,
    force: bool,
    was: Option<u64>,
}

/// Nanoseconds of seconds that somebody gave.
pub(super) fn seconds(given: u64) -> Result<u64, Error> {
    match given <= SECONDS_MAX {
        true => Ok(given * 1_000_000_000),
        false => Err(Error::inval(format!("{given} seconds: use at most {SECONDS_MAX}"))),
    }
}

fn mode(request: &Request) -> Result<Option<Mode>, Error> {
    match (request.active, request.passive, request.read) {
        (false, false, false) => Ok(None),
        (true, false, false) => Ok(Some(Mode::Active)),
        (false, true, false) => Ok(Some(Mode::Passive)),
        (false, false, true) => Ok(Some(Mode::Read)),
        _ => Err(Error::inval("give one of --active, --passive and --read")),
    }
}

fn is_own(sector: &[u8]) -> bool {
    Metadata::decode(sector).is_ok()
}

/// Carries out a verb on the geom called `on`.
pub(super) fn run(
    class: &MultipathClass,
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let request: Request = match params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| Error::inval(format!("multipath {verb}: {e}")))?,
    };
    match verb {
        "label" => label(class, control, on, &request),
        "create" => create(class, control, on, &request),
        "configure" => configure(control, on, &request),
        "add" => add(control, on, &request),
        "remove" | "fail" | "restore" | "prefer" => path(control, verb, on, &request),
        "rotate" => rotate(control, on),
        "getactive" => getactive(control, on),
        "stop" => words::each(on, &request.names, |on| stop(class, control, on, request.force)),
        "destroy" => {
            words::each(on, &request.names, |on| destroy(class, control, on, request.force))
        }
        "start" => {
            class.wake(known::bare(NAME, on));
            known::start(control, NAME, &class.stopped, on)
        }
        "clear" => {
            let noun = format!("label of {NAME}");
            known::clear(control, NAME, &request.members, &noun, Metadata::decode)
        }
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
        "dump" => dump(control, &request),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("multipath has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

/// Runs `f` with a device's own state; what follows has been done when this returns.
fn with<R>(
    control: &mut Control,
    on: &str,
    f: impl FnOnce(&mut MultipathGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = known::geom(control, NAME, on)?;
    let going = || Err(Error::new(Errno::NxIo, format!("{on} is going")));
    control.call(|t| t.with(geom, |g: &mut MultipathGeom, t| f(g, t, geom)).unwrap_or_else(going))
}

/// A random uuid, version 4.
fn new_uuid(control: &mut Control) -> Result<String, Error> {
    let random = control.run_on_core("choosing a uuid", |core| {
        Box::pin(async move {
            let mut random = [0; 16];
            core.reactor().fill_random(&mut random);
            u128::from_be_bytes(random)
        })
    })?;
    let id = random & !(0xf << 76 | 3 << 62) | 4 << 76 | 2 << 62;
    let part = |at: u32, bits: u32| id >> at & ((1 << bits) - 1);
    let (low, mid, high) = (part(96, 32), part(80, 16), part(64, 16));
    Ok(format!("{low:08x}-{mid:04x}-{high:04x}-{:04x}-{:012x}", part(48, 16), part(0, 48)))
}

fn label(
    class: &MultipathClass,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    known::check_name(name)?;
    if control.topology.find_geom(NAME, name).is_some() {
        let what = format!("a multipath {name} is there already; `ashlar multipath stop {name}`");
        return Err(Error::new(Errno::Exist, what));
    }
    let members = &request.members;
    let Some(first) = members.first().filter(|_| members.len() <= PATHS_MAX) else {
        return Err(Error::inval(format!("a disk has 1 to {PATHS_MAX} paths")));
    };
    let of = |control: &Control, member: &str| {
        hand::find(control, member).map(|on| hand::sizes(control, on))
    };
    let (sector_bytes, provider_bytes) = of(control, first)?;
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(Error::inval(format!("{member} is named twice")));
        }
        let (sector, media) = of(control, member)?;
        if (sector, media) != (sector_bytes, provider_bytes) {
            return Err(Error::inval(format!(
                "{member} has {media} bytes in sectors of {sector}, and {first} has \
                 {provider_bytes} in sectors of {sector_bytes}: it is not the same disk"
            )));
        }
        known::check_member(control, NAME, member, request.force, is_own)?;
    }
    let uuid = new_uuid(control)?;
    let (mode, name) = (mode(request)?.unwrap_or_default(), name.to_owned());
    let options = Options::default();
    let record = Metadata { uuid, name, sector_bytes, provider_bytes, mode, options };
    class.stopped.start(&record.name);
    class.wake(&record.name);
    prove(control, members, first, &record)?;
    for member in members {
        let on = hand::find(control, member)?;
        control.call(|t| {
            t.retaste(on);
            Ok(())
        })?;
    }
    joined(control, members, &record.name)
}

/// Writes the record by the first path and reads it by the others; if one shows another sector,
/// what was there before is written back.
fn prove(
    control: &mut Control,
    members: &[String],
    first: &String,
    record: &Metadata,
) -> Result<(), Error> {
    hand::writing(
        control,
        NAME,
        first,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = hand::last(control, first, edge)?;
            hand::write(control, first, edge, at, record.sector())?;
            let stranger = members.iter().filter(|m| *m != first).find_map(|member| {
                let seen = hand::reading(control, NAME, member, |control, edge| {
                    Ok(hand::last(control, member, edge)?.1)
                });
                match seen {
                    Ok(sector) if sector == record.sector() => None,
                    Ok(_) => Some(Error::inval(format!(
                        "{member} does not show what was written by {first}: it is another disk. \
                         Nothing was changed"
                    ))),
                    Err(e) => Some(e),
                }
            });
            match stranger {
                None => Ok(()),
                Some(why) => hand::write(control, first, edge, at, old).and(Err(why)),
            }
        },
    )
}

/// The answer when every path is there; otherwise what tasting said of those that are not.
fn joined(control: &mut Control, members: &[String], name: &str) -> Result<Value, Error> {
    let answer = known::up(control, NAME, name, members)?;
    let missing = with(control, name, |g, _, _| {
        Ok(members.iter().filter(|m| g.paths.called(m).is_none()).cloned().collect::<Vec<_>>())
    })?;
    if missing.is_empty() {
        return Ok(answer);
    }
    let view = control.topology.view(0);
    let said = missing.iter().map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m);
        let why = found.and_then(|p| p.verdicts.iter().find(|(c, _)| *c == NAME));
        format!("{m}: {}", why.map_or("not looked at", |(_, why)| why))
    });
    let said: Vec<String> = said.collect();
    let what = format!("{NAME}/{name} is there, but not by every path: {}", said.join("; "));
    Err(Error::new(Errno::Busy, what))
}

fn create(
    class: &MultipathClass,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    known::check_name(name)?;
    let members: Result<Vec<_>, Error> =
        request.members.iter().map(|m| hand::find(control, m)).collect();
    let members = members?;
    let params = json!({ "mode": mode(request)?.unwrap_or_default().key() });
    control.call(|t| class.create(t, &Create { name, members: &members, params: &params }))?;
    known::up(control, NAME, name, &request.members)
}

fn configure(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let mode = mode(request)?;
    let checker = request.checker.map(seconds).transpose()?;
    let failback = request.failback.map(seconds).transpose()?;
    let queue = request.queue.map(seconds).transpose()?;
    work_as(control, on, mode.is_some(), |(was, before)| {
        let options = Options {
            checker_ns: checker.unwrap_or(before.checker_ns),
            queue_ns: queue.unwrap_or(before.queue_ns),
            failback_ns: match request.no_failback {
                true => None,
                false => failback.or(before.failback_ns),
            },
        };
        (mode.unwrap_or(was), options)
    })?;
    Ok(json!({ "message": format!("{on} configured") }))
}

/// It works so from now on, and its record says so if it has one. `rewrite`: also one that says so
/// already.
pub(super) fn work_as(
    control: &mut Control,
    on: &str,
    rewrite: bool,
    new: impl FnOnce((Mode, Options)) -> (Mode, Options),
) -> Result<(), Error> {
    with(control, on, |g, t, me| {
        let before = (g.nature.mode, g.options);
        (g.nature.mode, g.options) = new(before);
        g.changed(t, me);
        if rewrite || (g.nature.mode, g.options) != before {
            g.write_record(t, me, None);
        }
        Ok(())
    })?;
    with(control, on, |g, _, _| match &g.fault {
        None => Ok(()),
        Some(fault) => Err(Error::new(Errno::Io, format!("{on}: {fault}"))),
    })
}

fn add(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let member = request.member.clone().unwrap_or_default();
    let new = hand::find(control, &member)?;
    let uuid = with(control, on, |g, _, _| Ok(g.nature.uuid.clone()))?;
    if let Some(uuid) = uuid {
        let sector = hand::reading(control, NAME, &member, |control, edge| {
            Ok(hand::last(control, &member, edge)?.1)
        })?;
        if Metadata::decode(&sector).ok().is_none_or(|record| record.uuid != uuid) {
            return Err(Error::inval(format!(
                "{member} does not show the label of {on} in its last sector: it is another disk"
            )));
        }
    }
    with(control, on, |g, t, me| g.take_in(t, me, new))?;
    Ok(json!({ "message": format!("{member} added to {on}") }))
}

/// The verbs about one path.
fn path(control: &mut Control, verb: &str, on: &str, request: &Request) -> Result<Value, Error> {
    let member = request.member.clone().unwrap_or_default();
    let done = with(control, on, |g, t, me| {
        let Some(slot) = g.paths.called(&member).map(|p| p.slot) else {
            let what = format!("{member} is no path of {on}; `ashlar multipath list` shows them");
            return Err(Error::new(Errno::NoEnt, what));
        };
        match verb {
            "remove" if g.paths.all().len() == 1 => {
                let what =
                    format!("{member} is the last path of {on}; `ashlar multipath stop {on}`");
                return Err(Error::new(Errno::Busy, what));
            }
            "remove" => g.remove(t, me, slot),
            "fail" => {
                g.fail(slot);
                g.changed(t, me);
            }
            "restore" => {
                g.paths.restore(slot);
                g.changed(t, me);
            }
            _ if g.prefer(t, me, slot) => {}
            _ => {
                let what =
                    format!("{member} has failed; `ashlar multipath restore {on} {member}` first");
                return Err(Error::new(Errno::NxIo, what));
            }
        }
        Ok(match verb {
            "remove" => "removed",
            "fail" => "failed",
            "restore" => "restored",
            _ => "active",
        })
    })?;
    Ok(json!({ "message": format!("{on}: {member} {done}") }))
}

fn active(g: &MultipathGeom, on: &str) -> Result<String, Error> {
    let one = g.paths.active().and_then(|slot| g.paths.of(slot));
    let none = || {
        let what = format!("{on} has no good path; `ashlar multipath list` shows why");
        Error::new(Errno::NxIo, what)
    };
    one.map(|p| p.name.clone()).ok_or_else(none)
}

fn rotate(control: &mut Control, on: &str) -> Result<Value, Error> {
    let (rotated, name) = with(control, on, |g, t, me| {
        let rotated = g.rotate(t, me);
        Ok((rotated, active(g, on)?))
    })?;
    match rotated {
        true => Ok(json!({ "message": format!("{on}: {name} active"), "active": name })),
        false => {
            let what = format!("{on} has no other good path than {name}");
            Err(Error::new(Errno::NxIo, what))
        }
    }
}

/// All that requests go by: with Active/Active each path that is good and no worse than another;
/// `none` where there are none, as gmultipath(8) says it.
fn getactive(control: &mut Control, on: &str) -> Result<Value, Error> {
    let names: Vec<String> = with(control, on, |g, _, _| {
        let is_active = |p: &&One| g.paths.word(p.slot, g.nature.mode) == "ACTIVE";
        Ok(g.paths.all().iter().filter(is_active).map(|p| p.name.clone()).collect())
    })?;
    let message = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    Ok(json!({ "message": message, "active": names }))
}

fn stop(
    class: &MultipathClass,
    control: &mut Control,
    on: &str,
    force: bool,
) -> Result<Value, Error> {
    let geom = known::geom(control, NAME, on)?;
    control.call(|t| class.destroy(t, geom, force))?;
    Ok(json!({ "message": format!("{on} stopped") }))
}

fn destroy(
    class: &MultipathClass,
    control: &mut Control,
    on: &str,
    force: bool,
) -> Result<Value, Error> {
    let geom = known::geom(control, NAME, on)?;
    if !force && control.topology.geom_is_open(geom) {
        let what = format!("{on} is open; close what uses it, or use --force");
        return Err(Error::new(Errno::Busy, what));
    }
    let (record, ways): (_, Vec<Edge>) =
        with(control, on, |g, t, _| Ok((g.nature.record(g.options), g.ways(t))))?;
    if let Some(record) = record
        && let Some(at) = frame::last_sector(record.sector_bytes, record.provider_bytes)
    {
        let zeroes = vec![0; record.sector_bytes as usize];
        let mut done = Err(Error::new(Errno::NxIo, "it has no path"));
        for edge in ways {
            done = hand::write(control, on, edge, at, zeroes.clone());
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
    stop(class, control, on, force)?;
    class.stopped.start(&name);
    class.wake(&name);
    Ok(json!({ "message": format!("{on} destroyed") }))
}

fn dump(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in &request.members {
        let record = known::read(control, NAME, member, Metadata::decode)?;
        let Metadata { uuid, name, sector_bytes, provider_bytes, mode, options } = record;
        let mode = mode.word();
        text += &format!(
            "Metadata on {member}:\n      name: {name}\n      uuid: {uuid}\n      mode: {mode}\n\
             sectorsize: {sector_bytes}\n      size: {provider_bytes}\n\n"
        );
        for (word, value) in options.lines() {
            text += &format!("{word:>10}: {value}\n");
        }
        let options: serde_json::Map<String, Value> =
            options.lines().into_iter().map(|(k, v)| (k.to_lowercase(), v.into())).collect();
        all.push(json!({
            "options": options,
            "provider": member, "name": name, "uuid": uuid, "mode": mode,
            "sector_bytes": sector_bytes, "provider_bytes": provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
