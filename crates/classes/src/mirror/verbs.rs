//! The verbs, as gmirror has them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Class, Control, Create, Error, GeomId, Topology, VerbSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::{MirrorClass, Tunables};
use super::geom::{Job, MirrorGeom};
use super::metadata::{Balance, Metadata, disk_flags, mirror_flags};
use super::state::{Fault, MEMBERS_MAX, Mirror, Role};
use super::{NAME, flag_words};
use crate::members::{hand, known};
use crate::span::words;

/// Longest wait of a verb for its mirror to have done what it asked for.
const PATIENCE: Duration = Duration::from_secs(30);

const BALANCE: ArgSpec = ArgSpec {
    name: "balance",
    short: Some('b'),
    kind: ArgKind::Choice(Balance::WORDS),
    doc: "Which member serves a read [default: load]",
};
const SLICE: ArgSpec = ArgSpec {
    name: "slice",
    short: Some('s'),
    kind: ArgKind::Bytes,
    doc: "With balance split: reads larger than this are split [default: 4096]",
};
const NOFAILSYNC: ArgSpec = ArgSpec {
    name: "no_failsync",
    short: Some('F'),
    kind: ArgKind::Flag,
    doc: "After a crash members are taken as they are, not rebuilt",
};
const NOAUTOSYNC: ArgSpec = ArgSpec {
    name: "no_autosync",
    short: Some('n'),
    kind: ArgKind::Flag,
    doc: "Members that are out of date wait for `rebuild`",
};
const FAILSYNC: ArgSpec = ArgSpec {
    name: "failsync",
    short: None,
    kind: ArgKind::Flag,
    doc: "After a crash dirty members are rebuilt",
};
const AUTOSYNC: ArgSpec = ArgSpec {
    name: "autosync",
    short: Some('a'),
    kind: ArgKind::Flag,
    doc: "Members that are out of date are rebuilt at once",
};
const SAME: ArgSpec = ArgSpec {
    name: "assume_same",
    short: None,
    kind: ArgKind::Flag,
    doc: "The members hold the same already (all zeroes, say): nothing is copied",
};
const PRIORITY: ArgSpec = ArgSpec {
    name: "priority",
    short: Some('p'),
    kind: ArgKind::Number,
    doc: "0 to 255; the highest is read first with balance prefer [default: 0]",
};
const INACTIVE: ArgSpec = ArgSpec {
    name: "inactive",
    short: Some('i'),
    kind: ArgKind::Flag,
    doc: "Take it in, but do not use it until it is activated",
};
const RATE: ArgSpec = ArgSpec {
    name: "sync_rate",
    short: None,
    kind: ArgKind::Bytes,
    doc: "Bytes a second that a rebuild may copy; 0: as fast as it goes. Until the next start",
};
const MEMBER: ArgSpec =
    ArgSpec { name: "member", short: None, kind: ArgKind::Text, doc: "One member, for --priority" };

const fn verb(
    name: &'static str,
    doc: &'static str,
    args: &'static [ArgSpec],
    example: &'static str,
    writes: bool,
) -> VerbSpec {
    VerbSpec { name, doc, detail: "", args, example, writes }
}

/// What the class can be asked.
pub(super) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        detail: "The last sector of each provider is written; the first provider's contents are \
                 kept and copied to the others. A provider with something in its last sector is \
                 refused unless --force is given. The last one has the highest priority.",
        ..verb(
            "label",
            "Label providers and make a mirror of them that is found again by itself",
            &[
                words::NAME,
                words::PROVIDERS,
                BALANCE,
                SLICE,
                NOFAILSYNC,
                NOAUTOSYNC,
                SAME,
                words::HARDCODE,
                words::FORCE,
            ],
            "mirror label -b round-robin data d0 d1",
            true,
        )
    },
    verb(
        "create",
        "Make a mirror without writing records, until the daemon ends",
        &[words::NAME, words::PROVIDERS, BALANCE, SLICE],
        "mirror create data d0 d1",
        false,
    ),
    verb(
        "configure",
        "Change how a mirror works",
        &[
            words::NAME,
            BALANCE,
            SLICE,
            AUTOSYNC,
            NOAUTOSYNC,
            FAILSYNC,
            NOFAILSYNC,
            PRIORITY,
            MEMBER,
            RATE,
        ],
        "mirror configure -b prefer data",
        true,
    ),
    verb(
        "insert",
        "Add members; they are rebuilt in the background",
        &[words::NAME, words::PROVIDERS, PRIORITY, INACTIVE, words::HARDCODE, words::FORCE],
        "mirror insert data d2",
        true,
    ),
    verb(
        "remove",
        "Take members out for good: their records are cleared",
        &[words::NAME, words::PROVIDERS],
        "mirror remove data d1",
        true,
    ),
    verb(
        "forget",
        "No longer expect members that are not there",
        &[words::NAME],
        "mirror forget data",
        true,
    ),
    verb(
        "rebuild",
        "Copy to members anew",
        &[words::NAME, words::PROVIDERS],
        "mirror rebuild data d1",
        true,
    ),
    verb(
        "deactivate",
        "Do not use members for now; they stay marked so until they are activated",
        &[words::NAME, words::PROVIDERS],
        "mirror deactivate data d1",
        true,
    ),
    verb(
        "activate",
        "Use members again that were deactivated",
        &[words::NAME, words::PROVIDERS],
        "mirror activate data d1",
        true,
    ),
    verb(
        "resize",
        "Grow to what the smallest member has room for",
        &[
            words::NAME,
            ArgSpec {
                name: "size",
                short: Some('s'),
                kind: ArgKind::Bytes,
                doc: "New size [default: all there is]",
            },
        ],
        "mirror resize data",
        true,
    ),
    words::STOP,
    words::DESTROY,
    words::START,
    words::CLEAR,
    words::DUMP,
];

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
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
    force: bool,
    sync_rate: Option<u64>,
    size: Option<u64>,
}

fn inval(what: impl Into<String>) -> Error {
    Error::new(Errno::Inval, what)
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
            .map_err(|e| inval(format!("mirror {verb}: {e}")))?,
    };
    match verb {
        "label" => label(class, control, on, &request),
        "create" => create(class, control, on, &request),
        "configure" => configure(control, on, &request),
        "insert" => insert(control, on, &request),
        "remove" => remove(control, on, &request),
        "forget" => forget(control, on),
        "rebuild" => rebuild(control, on, &request),
        "deactivate" => deactivate(control, on, &request),
        "activate" => activate(control, on, &request),
        "resize" => resize(control, on, &request),
        "stop" | "destroy" => stop(class, control, on, &request),
        "start" => known::start(control, NAME, &class.stopped, on),
        "clear" => {
            known::clear(control, NAME, &request.members, "record of a mirror", Metadata::decode)
        }
        "dump" => dump(control, &request),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("mirror has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

fn balance(request: &Request) -> Result<Option<Balance>, Error> {
    let Some(word) = &request.balance else { return Ok(None) };
    let none = || inval(format!("no balance {word}; {}", Balance::WORDS.join(", ")));
    Balance::of_word(word).ok_or_else(none).map(Some)
}

fn slice(request: &Request) -> Result<Option<u32>, Error> {
    let Some(bytes) = request.slice else { return Ok(None) };
    match u32::try_from(bytes) {
        Ok(slice) if slice > 0 => Ok(Some(slice)),
        _ => Err(inval(format!("a slice of {bytes} bytes: use 1 to 4294967295"))),
    }
}

fn priority(request: &Request) -> Result<Option<u8>, Error> {
    let Some(given) = request.priority else { return Ok(None) };
    let wrong = |_| inval(format!("priority {given}: use 0 to 255"));
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

/// Refuses while members are missing: a change would not reach them.
fn complete(mirror: &Mirror) -> Result<(), Error> {
    if mirror.is_complete() {
        return Ok(());
    }
    let what = format!(
        "not all members of {0} are there: plug them in, or `ashlar mirror forget {0}` first",
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
            let mut sector = record.map(Metadata::encode).unwrap_or_default();
            sector.resize(old.len(), 0);
            hand::write(control, member, edge, at, sector)
        },
    )
}

fn flags(request: &Request, old: u64) -> u64 {
    let mut flags = old;
    let mut set = |on: bool, off: bool, flag: u64| {
        if on {
            flags |= flag;
        }
        if off {
            flags &= !flag;
        }
    };
    set(request.no_failsync, request.failsync, mirror_flags::NOFAILSYNC);
    set(request.no_autosync, request.autosync, mirror_flags::NOAUTOSYNC);
    flags
}

fn label(
    class: &MirrorClass,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    known::check_name(name)?;
    if control.topology.find_geom(NAME, name).is_some() {
        let what = format!("a mirror {name} is there already; `ashlar mirror stop {name}`");
        return Err(Error::new(Errno::Exist, what));
    }
    let members = &request.members;
    if members.is_empty() || members.len() > MEMBERS_MAX {
        return Err(inval(format!("a mirror has 1 to {MEMBERS_MAX} members")));
    }
    let (mut sector_bytes, mut least) = (512, u64::MAX);
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(inval(format!("{member} is named twice")));
        }
        let on = hand::find(control, member)?;
        let (sector, media) = hand::sizes(control, on);
        sector_bytes = sector_bytes.max(sector);
        least = least.min(media.saturating_sub(u64::from(sector)));
        known::check_member(control, NAME, member, request.force, is_own)?;
    }
    let media_bytes = least - least % u64::from(sector_bytes);
    if media_bytes == 0 {
        return Err(inval("its members are too small: nothing is left"));
    }
    let id = known::new_id(control, name);
    let first = Metadata {
        name: name.to_owned(),
        id,
        disk: 0,
        all: members.len() as u8,
        genid: 0,
        syncid: 1,
        priority: 0,
        slice: slice(request)?.unwrap_or(4096),
        balance: balance(request)?.unwrap_or_default(),
        media_bytes,
        sector_bytes,
        sync_offset: 0,
        flags: flags(request, 0),
        disk_flags: 0,
        home: String::new(),
        provider_bytes: 0,
    };
    class.stopped.start(name);
    for member in members {
        write_record(control, member, None)?;
    }
    for (number, member) in members.iter().enumerate() {
        let on = hand::find(control, member)?;
        let copied = number > 0 && !request.assume_same;
        let record = Metadata {
            disk: known::new_id(control, member).wrapping_add(number as u32),
            priority: number as u8,
            // An old syncid: it is rebuilt from the first.
            syncid: if copied { 0 } else { first.syncid },
            disk_flags: if copied { disk_flags::FORCE_SYNC } else { 0 },
            home: if request.hardcode { member.clone() } else { String::new() },
            provider_bytes: hand::sizes(control, on).1,
            ..first.clone()
        };
        write_record(control, member, Some(&record))?;
    }
    known::up(control, NAME, name, members)
}

fn create(
    class: &MirrorClass,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    known::check_name(name)?;
    let members: Result<Vec<_>, Error> =
        request.members.iter().map(|m| hand::find(control, m)).collect();
    let members = members?;
    let mut params = json!({});
    if let Some(balance) = &request.balance {
        params["balance"] = json!(balance);
    }
    if let Some(slice) = slice(request)? {
        params["slice"] = json!(slice);
    }
    control.call(|t| class.create(t, &Create { name, members: &members, params: &params }))?;
    known::up(control, NAME, name, &request.members)
}

/// A mirror of providers as they are, without records: the first is copied to the others.
pub(super) fn by_hand(
    t: &mut Topology,
    request: &Create<'_>,
    balance: Balance,
    slice: u32,
    tunables: Tunables,
) -> Result<GeomId, Error> {
    let limits: Vec<_> = request.members.iter().filter_map(|p| t.limits(*p)).collect();
    let sector_bytes = limits.iter().map(|l| l.sector_bytes).max().unwrap_or(512).max(512);
    let least = limits.iter().map(|l| l.media_bytes).min().unwrap_or(0);
    let media_bytes = least - least % u64::from(sector_bytes);
    if limits.is_empty() || limits.len() > MEMBERS_MAX || media_bytes == 0 {
        return Err(inval(format!("a mirror has 1 to {MEMBERS_MAX} members, with room on each")));
    }
    let record = Metadata {
        name: request.name.to_owned(),
        id: 0,
        disk: 0,
        all: limits.len() as u8,
        genid: 0,
        syncid: 1,
        priority: 0,
        slice,
        balance,
        media_bytes,
        sector_bytes,
        sync_offset: 0,
        flags: 0,
        disk_flags: 0,
        home: String::new(),
        provider_bytes: 0,
    };
    let mut mirror = Mirror::of(&record);
    mirror.manual = true;
    let geom = MirrorGeom::place(t, mirror, "made by hand", tunables)?;
    let taken = t.with(geom, |g: &mut MirrorGeom, t| {
        for (number, on) in request.members.iter().enumerate() {
            let syncid = if number > 0 { 0 } else { 1 };
            let (disk, priority) = (number as u32, number as u8);
            let record = Metadata { disk, priority, syncid, ..record.clone() };
            if let Err(e) = g.take_in(t, geom, *on, record) {
                MirrorGeom::take_apart(t, geom, g);
                return Err(e);
            }
        }
        Ok(geom)
    });
    taken.unwrap_or_else(|| Err(Error::new(Errno::NxIo, "the mirror is going")))
}

fn configure(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let (balance, slice, priority) = (balance(request)?, slice(request)?, priority(request)?);
    with(control, on, |g, t, me| {
        complete(&g.mirror)?;
        if let (Some(priority), Some(member)) = (priority, &request.member) {
            let slot = slot(g, t, member)?;
            if let Some(Some(member)) = g.mirror.slots.get_mut(slot) {
                member.record.priority = priority;
            }
        } else if priority.is_some() {
            return Err(inval("--priority is one member's: give --member PROVIDER too"));
        }
        g.mirror.balance = balance.unwrap_or(g.mirror.balance);
        g.mirror.slice = slice.unwrap_or(g.mirror.slice);
        g.mirror.flags = flags(request, g.mirror.flags);
        if let Some(rate) = request.sync_rate {
            g.shared.sync_rate.store(rate, Relaxed);
        }
        g.push(t, me, Job::Rewrite);
        Ok(())
    })?;
    Ok(json!({ "message": format!("{on} configured") }))
}

fn slot(g: &MirrorGeom, t: &Topology, member: &str) -> Result<usize, Error> {
    g.slot_called(t, member).ok_or_else(|| {
        let name = &g.mirror.name;
        let what = format!("{member} is no member of {name}; `ashlar mirror list {name}`");
        Error::new(Errno::NoEnt, what)
    })
}

fn insert(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let priority = priority(request)?.unwrap_or(0);
    for member in &request.members {
        let new = hand::find(control, member)?;
        let (_, provider_bytes) = hand::sizes(control, new);
        known::check_member(control, NAME, member, request.force, is_own)?;
        let disk = known::new_id(control, member);
        let home = if request.hardcode { member.clone() } else { String::new() };
        let record = with(control, on, |g, t, me| {
            complete(&g.mirror)?;
            let mirror = &mut g.mirror;
            if !mirror.fits(provider_bytes) {
                let most = mirror.media_bytes + u64::from(mirror.sector_bytes);
                let what = format!("{member} has {provider_bytes} bytes; it needs {most}");
                return Err(inval(what));
            }
            if usize::from(mirror.all) >= MEMBERS_MAX {
                return Err(inval(format!("a mirror has at most {MEMBERS_MAX} members")));
            }
            mirror.all += 1;
            g.push(t, me, Job::Rewrite);
            let m = &g.mirror;
            let inactive = if request.inactive { disk_flags::INACTIVE } else { 0 };
            Ok(Metadata {
                name: m.name.clone(),
                id: m.id,
                disk,
                all: m.all,
                genid: m.genid,
                // As new as the others, and copied to: beside it a stale one is seen to be stale.
                syncid: m.syncid,
                priority,
                slice: m.slice,
                balance: m.balance,
                media_bytes: m.media_bytes,
                sector_bytes: m.sector_bytes,
                sync_offset: 0,
                flags: m.flags,
                disk_flags: disk_flags::FORCE_SYNC | disk_flags::SYNCHRONIZING | inactive,
                home,
                provider_bytes,
            })
        })?;
        write_record(control, member, Some(&record))?;
        with(control, on, |_, _, _| Ok(()))?;
    }
    Ok(json!({ "message": format!("{} inserted into {on}", request.members.join(", ")) }))
}

fn remove(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        part(control, on, member, |mirror, slot| {
            complete(mirror)?;
            keep_one(mirror, slot, member)?;
            mirror.all = mirror.all.saturating_sub(1);
            Ok(None)
        })?;
    }
    Ok(json!({ "message": format!("{} removed from {on}", request.members.join(", ")) }))
}

/// Lets a member go: its record is written for the last time, as `last` says (`None`: zeroes),
/// while the mirror still holds it, so that nobody finds it as it was.
fn part(
    control: &mut Control,
    on: &str,
    member: &str,
    last: impl FnOnce(&mut Mirror, usize) -> Result<Option<Metadata>, Error>,
) -> Result<(), Error> {
    let parted = with(control, on, |g, t, _| {
        let slot = slot(g, t, member)?;
        let record = last(&mut g.mirror, slot)?;
        let gone = || Error::new(Errno::NxIo, format!("{member} is going"));
        let (edge, at, len) = g.part_with(t, slot).ok_or_else(gone)?;
        let mut sector = record.map(|r| r.encode()).unwrap_or_default();
        sector.resize(len, 0);
        Ok((edge, at, sector))
    });
    let written =
        parted.and_then(|(edge, at, sector)| hand::write(control, member, edge, at, sector));
    if let Err(e) = written {
        // Perhaps it was written after all: it stays, so it says so again.
        let stays = with(control, on, |g, t, me| {
            let slot = slot(g, t, member)?;
            g.keep(t, me, slot);
            Ok(())
        });
        return Err(stays.err().filter(|s| s.kind == Errno::TimedOut).unwrap_or(e));
    }
    with(control, on, |g, t, me| {
        let slot = slot(g, t, member)?;
        g.push(t, me, Job::Out { slot, fault: Fault::Absent, gone: false });
        Ok(())
    })?;
    // The others may have been lost meanwhile.
    match with(control, on, |g, t, _| slot(g, t, member)) {
        Ok(_) => {
            let what = format!("{member} stays: it became the last that has everything");
            Err(Error::new(Errno::Busy, what))
        }
        Err(_) => Ok(()),
    }
}

/// M4, for verbs.
fn keep_one(mirror: &Mirror, slot: usize, member: &str) -> Result<(), Error> {
    let active = mirror.in_role(Role::Active);
    if active.iter().any(|s| *s != slot) {
        return Ok(());
    }
    let what = format!("{member} is the last that has everything; without it nothing is left");
    Err(Error::new(Errno::Busy, what))
}

fn forget(control: &mut Control, on: &str) -> Result<Value, Error> {
    let count = with(control, on, |g, t, me| {
        let count = g.mirror.members().count();
        g.mirror.all = count as u8;
        g.push(t, me, Job::Rewrite);
        Ok(count)
    })?;
    Ok(json!({ "message": format!("{on} has {count} members now") }))
}

fn rebuild(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        with(control, on, |g, t, me| {
            let slot = slot(g, t, member)?;
            keep_one(&g.mirror, slot, member)?;
            g.mirror.rebuild(slot);
            g.push(t, me, Job::In(slot));
            Ok(())
        })?;
    }
    Ok(json!({ "message": format!("{} of {on} is rebuilt", request.members.join(", ")) }))
}

fn deactivate(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        part(control, on, member, |mirror, slot| {
            keep_one(mirror, slot, member)?;
            let none = || inval(format!("{member} has no record"));
            let record = mirror.record(slot).ok_or_else(none)?;
            let disk_flags = record.disk_flags | disk_flags::INACTIVE;
            Ok(Some(Metadata { disk_flags, ..record }))
        })?;
    }
    Ok(json!({ "message": format!("{} deactivated", request.members.join(", ")) }))
}

fn activate(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        let record = known::read(control, NAME, member, Metadata::decode)?;
        if record.name != known::bare(NAME, on) || !record.has(disk_flags::INACTIVE) {
            let what = format!("{member} is no deactivated member of {on}");
            return Err(inval(what));
        }
        let flags = record.disk_flags & !disk_flags::INACTIVE;
        write_record(control, member, Some(&Metadata { disk_flags: flags, ..record }))?;
        with(control, on, |_, _, _| Ok(()))?;
    }
    Ok(json!({ "message": format!("{} activated", request.members.join(", ")) }))
}

fn resize(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let size = with(control, on, |g, t, me| {
        complete(&g.mirror)?;
        let metadata = if g.mirror.manual { 0 } else { u64::from(g.mirror.sector_bytes) };
        let room = g.mirror.members().map(|(_, m)| m.provider_bytes).min().unwrap_or(0);
        let most = room.saturating_sub(metadata);
        let wanted = request.size.unwrap_or(most - most % u64::from(g.mirror.sector_bytes));
        let whole = wanted % u64::from(g.mirror.sector_bytes) == 0;
        if wanted < g.mirror.media_bytes || wanted > most || !whole {
            let what = format!(
                "{on} can have {} to {most} bytes, in whole sectors, not {wanted}",
                g.mirror.media_bytes
            );
            return Err(inval(what));
        }
        g.mirror.media_bytes = wanted;
        g.grown(t, me);
        Ok(wanted)
    })?;
    Ok(json!({ "message": format!("{on} has {size} bytes now") }))
}

fn stop(
    class: &MirrorClass,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let geom = known::geom(control, NAME, on)?;
    let open = control.topology.geom_is_open(geom);
    if !open || request.force {
        // Marks are taken away first, so that nothing is rebuilt at the next start.
        with(control, on, |g, t, me| {
            g.push(t, me, Job::Clean);
            Ok(())
        })?;
    }
    control.call(|t| class.destroy(t, geom, request.force))?;
    Ok(json!({ "message": format!("{on} stopped") }))
}

fn dump(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in &request.members {
        let m = known::read(control, NAME, member, Metadata::decode)?;
        text += &format!(
            "Metadata on {member}:\n     name: {}\n      mid: {}\n      did: {}\n      all: {}\n\
             \u{20}   genid: {}\n   syncid: {}\n priority: {}\n    slice: {}\n\
             \u{20} balance: {}\nmediasize: {}\nsectorsize: {}\nsyncoffset: {}\n\
             \u{20}  mflags: {}\n   dflags: {:#x}\nhcprovider: {}\n provsize: {}\n\n",
            m.name,
            m.id,
            m.disk,
            m.all,
            m.genid,
            m.syncid,
            m.priority,
            m.slice,
            m.balance.word(),
            m.media_bytes,
            m.sector_bytes,
            m.sync_offset,
            flag_words(m.flags),
            m.disk_flags,
            m.home,
            m.provider_bytes
        );
        all.push(json!({
            "provider": member, "name": m.name, "id": m.id, "disk": m.disk, "all": m.all,
            "genid": m.genid, "syncid": m.syncid, "priority": m.priority, "slice": m.slice,
            "balance": m.balance.word(), "media_bytes": m.media_bytes,
            "sector_bytes": m.sector_bytes, "sync_offset": m.sync_offset, "flags": m.flags,
            "disk_flags": m.disk_flags, "hardcoded": m.home, "provider_bytes": m.provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
