//! The verbs, as graid has them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::Errno;
use geom::{Class, Control, Edge, Error, GeomId, Topology};
use serde::Deserialize;
use serde_json::{Value, json};

use super::book::Book;
use super::class::RaidClass;
use super::ddf::Place;
use super::found::Found;
use super::geom::{Job, Loss, NAME, RaidGeom};
use super::model::{Array, DiskState, Volume};
use super::set::Vol;
use super::show::{level_word, volumes};
use super::specs::VERBS;
use super::{compare, ddf, delete, follow, imsm, label, policy};
use crate::conversation::carry_out;
use crate::members::{hand, known};
use crate::probe::{Sectors, Step};
use crate::words;
use crate::write_plan::WritePlan;

/// Longest wait of a verb for its array to have done what it asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Request {
    pub(super) format: String,
    pub(super) level: String,
    pub(super) label: String,
    names: Vec<String>,
    pub(super) members: Vec<String>,
    pub(super) size: Option<u64>,
    pub(super) strip: Option<u64>,
    pub(super) order: Option<String>,
    pub(super) consistency: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) assume_same: bool,
    pub(super) force: bool,
    keep: Option<String>,
    pub(super) volume: Option<String>,
    sync_rate: Option<u64>,
    pub(super) repair: bool,
    pub(super) rate: Option<u64>,
    pub(super) end: bool,
    pub(super) member: String,
    pub(super) was: Option<u64>,
}

/// Carries out a verb on the array called `on`.
pub(super) fn run(
    class: &RaidClass,
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let request: Request = match params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| Error::inval(format!("raid {verb}: {e}")))?,
    };
    match verb {
        "label" => label::label(class, control, on, &request),
        "add" => label::add(control, on, &request),
        "delete" => delete::delete(class, control, on, &request),
        "insert" => insert(control, on, &request),
        "remove" => remove(control, on, &request),
        "fail" => fail(control, on, &request),
        "configure" => configure(control, on, &request),
        "verify" => compare::verify(control, on, &request),
        "consistency" => policy::consistency(control, on, &request),
        "follow" => follow::follow(control, &request),
        "stop" | "destroy" => {
            words::each(on, &request.names, |on| stop(class, control, on, &request))
        }
        "start" => start(class, control, on, &request),
        "clear" => clear(control, &request),
        "dump" => dump(control, &request),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("raid has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

/// The array called so, or that has a provider or a volume called so.
pub(super) fn find(control: &mut Control, on: &str) -> Result<GeomId, Error> {
    let name = known::bare(NAME, on).to_owned();
    let t = &mut control.topology;
    if let Some(geom) = t.find_geom(NAME, &name) {
        return Ok(geom);
    }
    let provider = t.find(&format!("{NAME}/{name}"));
    if let Some(geom) = provider.and_then(|p| t.geom_of(p)) {
        return Ok(geom);
    }
    let ids: Vec<GeomId> = {
        let view = t.view(0);
        let ours = view.iter().filter(|g| g.class == NAME && !g.withering);
        ours.filter_map(|g| t.find_geom(NAME, &g.name)).collect()
    };
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

/// The volumes of an array that a verb means: the one that is said, or after which the array was
/// called; otherwise all.
pub(super) fn meant(g: &RaidGeom, on: &str, request: &Request) -> Result<Vec<usize>, Error> {
    let volumes = g.set.iter().flat_map(|set| set.vols.iter().zip(&set.array.volumes));
    let named = |word: &str| {
        let is_it = |(vol, volume): (&Vol, &Volume)| {
            let up = g.ups.get(&vol.key).map(|up| up.name.as_str());
            volume.name == word || up.is_some_and(|up| known::bare(NAME, up) == word)
        };
        volumes.clone().position(is_it)
    };
    let (word, count) = (known::bare(NAME, on), volumes.clone().count());
    match &request.volume {
        None if word == g.id.name() => Ok((0..count).collect()),
        None => Ok(named(word).map_or_else(|| (0..count).collect(), |at| vec![at])),
        Some(word) => {
            let by_number = || word.parse().ok().filter(|n| *n < count);
            let at = named(known::bare(NAME, word)).or_else(by_number);
            let none = || Error::new(Errno::NoEnt, format!("{} has no volume {word}", g.id.name()));
            at.map(|at| vec![at]).ok_or_else(none)
        }
    }
}

/// Runs `f` with an array's own state, waits until it has done what follows, answers.
pub(super) fn with<R>(
    control: &mut Control,
    on: &str,
    f: impl FnOnce(&mut RaidGeom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = find(control, on)?;
    let going = || Err(Error::new(Errno::NxIo, format!("{on} is going")));
    let done = control.call(|t| {
        t.with(geom, |g: &mut RaidGeom, t| {
            let busy = g.busy.clone();
            f(g, t, geom).map(|r| (r, busy))
        })
        .unwrap_or_else(going)
    });
    let (answer, busy) = done?;
    let done = control.wait_until(PATIENCE, |_| busy.load(Relaxed) == 0);
    control.settle()?;
    match done {
        true => Ok(answer),
        false => {
            let what = format!("{on} has not done it in {} s: a disk hangs", PATIENCE.as_secs());
            Err(Error::new(Errno::TimedOut, what))
        }
    }
}

/// Carries out a plan on a provider that nobody uses.
pub(super) fn perform(control: &mut Control, name: &str, plan: WritePlan) -> Result<(), Error> {
    hand::writing(
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

/// What is on a provider.
pub(super) fn probe(control: &mut Control, name: &str) -> Result<Found, Error> {
    let on = hand::find(control, name)?;
    let (sector, media) = hand::sizes(control, on);
    let serial = label::serial(control, name)?;
    hand::reading(control, NAME, name, |control, edge| {
        probe_as(control, name, edge, (sector, media), &serial)
    })
}

/// What is on an open provider, as if it had that many bytes.
pub(super) fn probe_as(
    control: &mut Control,
    name: &str,
    edge: Edge,
    (sector, media): (u32, u64),
    serial: &str,
) -> Result<Found, Error> {
    let mut read = |at: u64, len: usize| hand::read(control, name, edge, at, len).ok();
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

/// The answer once a volume is there; otherwise what tasting said of the disks.
pub(super) fn up(
    control: &mut Control,
    set: &str,
    volume: &str,
    members: &[String],
) -> Result<Value, Error> {
    control.settle()?;
    let provider = |t: &mut Topology| -> Option<String> {
        let geom = t.find_geom(NAME, set)?;
        let provider = t.with(geom, |g: &mut RaidGeom, _| {
            let known = g.set.as_ref()?;
            let at = known.array.volumes.iter().position(|v| v.name == volume)?;
            Some(g.ups.get(&known.vols.get(at)?.key)?.provider)
        });
        Some(t.provider_name(provider??).to_owned())
    };
    if let Some(provider) = provider(&mut control.topology) {
        return Ok(json!({
            "message": format!("{provider} is there, volume {volume} of {set}"),
            "provider": provider, "array": set,
        }));
    }
    let view = control.topology.view(0);
    let shown = view.iter().find(|g| g.class == NAME && g.name == set && !g.withering);
    let state = shown.and_then(|g| g.show.iter().find(|(k, _)| *k == "State"));
    let said = members.iter().filter_map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m)?;
        let (_, why) = found.verdicts.iter().find(|(c, _)| *c == NAME)?;
        Some(format!("{m}: {why}"))
    });
    let mut said: Vec<String> = said.collect();
    said.extend(state.map(|(_, state)| format!("{set} is {state}")));
    Err(Error::new(Errno::NxIo, format!("{volume} did not come up: {}", said.join("; "))))
}

/// The disk of an array that a provider is.
fn disk(g: &RaidGeom, name: &str) -> Result<u32, Error> {
    g.called(name).map(|(tag, _)| tag).ok_or_else(|| {
        let set = g.id.name();
        let what = format!("{name} is no disk of {set}; `ashlar raid list {set}` names them");
        Error::new(Errno::NoEnt, what)
    })
}

/// How a disk that is not used any more comes back to its array.
pub(super) fn again(disk: &str, set: &str) -> String {
    format!(
        "`ashlar {NAME} clear {disk}`, then `ashlar {NAME} insert {set} {disk}` takes it in anew"
    )
}

/// Refuses what would leave a volume without its data.
fn spare_of(g: &RaidGeom, tag: u32, name: &str) -> Result<(), Error> {
    let Some(set) = &g.set else { return Ok(()) };
    let broken = set.disk(tag).map(|index| set.breaks(index)).unwrap_or_default();
    match broken.first().and_then(|at| set.array.volumes.get(*at)) {
        None => Ok(()),
        Some(volume) => {
            let what = format!(
                "volume {} cannot do without {name}: nothing would be left of it",
                volume.name
            );
            Err(Error::new(Errno::Busy, what))
        }
    }
}

fn insert(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for name in &request.members {
        let new = hand::find(control, name)?;
        let (sector, media) = hand::sizes(control, new);
        let is_own = |_: &[u8]| false;
        known::check_member(control, NAME, name, request.force, is_own)?;
        let serial = label::serial(control, name)?;
        let number = known::new_id(control, name);
        let (plan, key) = with(control, on, |g, _, _| {
            if sector != g.sector {
                let what = format!("{name} has sectors of {sector} bytes, the array {}", g.sector);
                return Err(Error::inval(what));
            }
            let not_up = || Error::new(Errno::NxIo, "the array has not started");
            let (Some(set), Some(book)) = (&mut g.set, &g.book) else { return Err(not_up()) };
            let disk = book.new_disk(&serial, number, media, sector);
            let places = media / u64::from(sector.max(1));
            let refused = |fault: super::Fault| Error::inval(fault.to_string());
            let key = book.key(&disk);
            if let Some(old) = book.find(&set.array, &key) {
                // The same disk again: its old place is kept, if it has one.
                let gone = set.here.get(old).copied().flatten().is_none();
                if !gone {
                    return Err(Error::inval(format!("a disk {key} is in the array already")));
                }
                if let Some(known) = set.array.disks.get_mut(old) {
                    known.state = DiskState::Missing;
                }
            } else {
                set.array.disks.push(disk.clone());
                set.here.push(None);
            }
            let plan = match book {
                Book::Intel { .. } => {
                    let record = imsm::spare(&disk, sector).map_err(refused)?;
                    imsm::plan(&record, places, sector)
                }
                Book::Ddf { newest, .. } => {
                    let place = Place {
                        sector_size: sector,
                        media_sectors: places,
                        time: newest.header.time,
                        controller: book.controller(),
                        limits: newest.header.limits,
                        order: newest.header.order,
                    };
                    let mut array: Array = set.record();
                    let index = book.find(&array, &key).unwrap_or(usize::MAX);
                    if let Some(known) = array.disks.get_mut(index) {
                        known.state = DiskState::Spare;
                    }
                    let meta = ddf::create(&array, index, &place).map_err(refused)?;
                    ddf::plan(&meta, places, sector, true)
                }
            };
            let plan = plan.map_err(refused)?;
            g.awaited = Some(key.clone());
            Ok((plan, key))
        })?;
        let written = perform(control, name, plan);
        with(control, on, |g, _, _| {
            g.awaited = None;
            Ok(())
        })?;
        let came = written.and_then(|()| with(control, on, |g, _, _| disk(g, name).map(drop)));
        if came.is_err() {
            // Nobody waits for it.
            with(control, on, |g, _, _| {
                g.expect_no_more(&key);
                Ok(())
            })?;
            return came.map(|()| Value::Null);
        }
    }
    Ok(json!({ "message": format!("{} inserted into {on}", request.members.join(", ")) }))
}

fn remove(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for name in &request.members {
        let on_disk = hand::find(control, name)?;
        let (sector, media) = hand::sizes(control, on_disk);
        let sectors = media / u64::from(sector.max(1));
        let (tag, edge, plan) = with(control, on, |g, t, _| {
            let tag = disk(g, name)?;
            spare_of(g, tag, name)?;
            let gone = || Error::new(Errno::NxIo, format!("{name} is going"));
            let edge = g.edge(t, tag).ok_or_else(gone)?;
            let plan = match g.disks.get(&tag).map(|d| &d.found) {
                Some(Found::Ddf(meta)) => ddf::erase(meta, sectors, sector),
                _ => imsm::erase(sectors, sector),
            };
            Ok((tag, edge, plan))
        })?;
        let done = control.run_on_core("clearing a record", move |core| {
            Box::pin(async move { carry_out(core, edge, &plan).await })
        })?;
        done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))?;
        with(control, on, |g, t, me| {
            g.push(t, me, Job::Out(tag, Loss::Removed));
            Ok(())
        })?;
        if with(control, on, |g, _, _| Ok(g.disks.contains_key(&tag)))? {
            // It was needed after all: its record is written again with the next change.
            with(control, on, |g, t, me| {
                g.push(t, me, Job::Rewrite);
                Ok(())
            })?;
            return Err(stays(name));
        }
    }
    Ok(json!({ "message": format!("{} removed from {on}", request.members.join(", ")) }))
}

fn fail(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for name in &request.members {
        let tag = with(control, on, |g, t, me| {
            let tag = disk(g, name)?;
            spare_of(g, tag, name)?;
            g.push(t, me, Job::Out(tag, Loss::ByHand));
            Ok(tag)
        })?;
        if with(control, on, |g, _, _| Ok(g.disks.contains_key(&tag)))? {
            return Err(stays(name));
        }
    }
    let set = with(control, on, |g, _, _| Ok(g.id.name()))?;
    let names = request.members.join(", ");
    let how = again(&request.members.join(" "), &set);
    Ok(json!({ "message": format!("{names} of {on} failed; {how}") }))
}

/// A disk that was to go is needed after all.
fn stays(name: &str) -> Error {
    let what = format!("{name} stays: it became one that a volume cannot do without");
    Error::new(Errno::Busy, what)
}

fn configure(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    with(control, on, |g, _, _| {
        if let Some(rate) = request.sync_rate {
            g.rate.store(rate, Relaxed);
        }
        Ok(())
    })?;
    Ok(json!({ "message": format!("{on} configured") }))
}

/// Marks are taken away first, so that nothing is synced at the next start.
fn clean(control: &mut Control, on: &str) -> Result<(), Error> {
    with(control, on, |g, t, me| {
        let keys: Vec<u32> = g.ups.keys().copied().collect();
        keys.into_iter().for_each(|key| g.push(t, me, Job::Clean(key)));
        Ok(())
    })
}

fn stop(
    class: &RaidClass,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let geom = find(control, on)?;
    if !control.topology.geom_is_open(geom) || request.force {
        clean(control, on)?;
    }
    control.call(|t| class.destroy(t, geom, request.force))?;
    Ok(json!({ "message": format!("{on} stopped") }))
}

/// After a split brain the half of this disk is believed at the start that follows.
fn keep(g: &mut RaidGeom, array: &str, disk: &str) -> Result<(), Error> {
    let has_it = g.disks.values().any(|d| d.name == disk);
    if g.set.is_some() && !has_it {
        let what =
            format!("raid {array} runs already, without {disk}; `ashlar raid stop {array}` first");
        return Err(Error::new(Errno::Busy, what));
    }
    if !has_it {
        let names: Vec<&str> = g.disks.values().map(|d| d.name.as_str()).collect();
        let what = format!("{disk} is no disk of raid {array}, which has {}", names.join(", "));
        return Err(Error::new(Errno::NoEnt, what));
    }
    g.keep = Some(disk.to_owned());
    Ok(())
}

fn start(
    class: &RaidClass,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let name = known::bare(NAME, on).to_owned();
    let was_stopped = class.stopped.start(&name);
    // The half that is kept starts before the other is found, which is refused then.
    match request.keep.as_ref().filter(|_| was_stopped) {
        Some(disk) => {
            let on = hand::find(control, disk)?;
            control.call(|t| {
                t.retaste(on);
                Ok(())
            })?;
            control.settle()?;
        }
        None if was_stopped => hand::look_again(control)?,
        None => {}
    }
    if request.force || request.keep.is_some() {
        with(control, on, |g, t, me| {
            if let Some(disk) = &request.keep {
                keep(g, &name, disk)?;
            }
            g.launch(t, me, true, true);
            for vol in g.set.iter_mut().flat_map(|set| &mut set.vols) {
                vol.forced = true;
            }
            g.start_volumes(t, me);
            g.start_passes();
            Ok(())
        })?;
    } else if !was_stopped {
        with(control, on, |g, t, me| {
            if g.set.is_some() {
                let what = format!("raid {name} was not stopped; `ashlar raid status` shows all");
                return Err(Error::new(Errno::NoEnt, what));
            }
            // It waits for further disks: not any more.
            g.launch(t, me, true, false);
            Ok(())
        })?;
    }
    if request.keep.is_some() {
        hand::look_again(control)?;
    }
    let (count, fault) = with(control, on, |g, _, _| Ok((g.ups.len(), g.fault.clone())))?;
    match fault {
        Some(fault) if count == 0 => Err(Error::new(Errno::NxIo, fault)),
        _ => Ok(json!({ "message": format!("{name} is there, with {}", volumes(count)) })),
    }
}

fn clear(control: &mut Control, request: &Request) -> Result<Value, Error> {
    for name in &request.members {
        let on = hand::find(control, name)?;
        let (sector, media) = hand::sizes(control, on);
        let sectors = media / u64::from(sector.max(1));
        let plan = match probe(control, name) {
            Ok(Found::Ddf(meta)) => ddf::erase(&meta, sectors, sector),
            Ok(Found::Intel { .. } | Found::Torn { .. }) => imsm::erase(sectors, sector),
            Err(_) => damaged(control, name, sectors, sector)?,
        };
        perform(control, name, plan)?;
    }
    Ok(json!({ "message": format!("{} cleared", request.members.join(", ")) }))
}

/// What clears a record that cannot be read; one that is none is refused.
fn damaged(
    control: &mut Control,
    name: &str,
    sectors: u64,
    sector: u32,
) -> Result<WritePlan, Error> {
    let (intel, ddf) = hand::reading(control, NAME, name, |control, edge| {
        let (at, last) = hand::last(control, name, edge)?;
        let before = at.saturating_sub(last.len() as u64);
        let before = hand::read(control, name, edge, before, last.len())?;
        Ok((before.starts_with(imsm::SIGNATURE), ddf::is_signature(&last)))
    })?;
    if !intel && !ddf {
        let what = format!(
            "{name} has no record of an array; nothing was written (`ashlar inspect {name}` says \
             what it has)"
        );
        return Err(Error::new(Errno::NoEnt, what));
    }
    let mut plan = if intel { imsm::erase(sectors, sector) } else { WritePlan::default() };
    if ddf {
        plan.write((sectors - 1) * u64::from(sector), vec![0; sector as usize]);
        plan.flush();
    }
    Ok(plan)
}

fn dump(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let (mut text, mut all) = (String::new(), Vec::new());
    for name in &request.members {
        let found = probe(control, name)?;
        let on = hand::find(control, name)?;
        let (sector, _) = hand::sizes(control, on);
        let (array, _) =
            Book::open(&[&found], 0, sector).map_err(|f| Error::inval(f.to_string()))?;
        let id = found.set();
        text += &format!(
            "Metadata on {name}:\n    format: {}\n     array: {}\n      disk: {}\ngeneration: {}\n",
            id.format(),
            id.name(),
            found.key(),
            found.generation(),
        );
        for disk in &array.disks {
            text +=
                &format!("      disk: {} {:?}, {} bytes\n", disk.serial, disk.state, disk.bytes);
        }
        let mut volumes = Vec::new();
        for volume in &array.volumes {
            let word = level_word(volume.level);
            let members: Vec<String> = volume
                .members
                .iter()
                .map(|m| format!("{}@{}+{} {:?}", m.disk, m.offset, m.bytes, m.state))
                .collect();
            text += &format!(
                "    volume: {} {word}, {} bytes, strip {}{}\n            {}\n",
                volume.name,
                volume.bytes,
                volume.strip,
                match (volume.dirty, volume.log.is_some()) {
                    (false, false) => "",
                    (true, false) => ", dirty",
                    (false, true) => ", partial parity log (PPL)",
                    (true, true) => ", dirty, partial parity log (PPL)",
                },
                members.join(", "),
            );
            volumes.push(json!({
                "name": volume.name, "level": word, "bytes": volume.bytes, "strip": volume.strip,
                "dirty": volume.dirty, "members": members,
                "consistency": if volume.log.is_some() { "ppl" } else { "resync" },
            }));
        }
        text.push('\n');
        all.push(json!({
            "provider": name, "format": id.format(), "array": id.name(), "disk": found.key(),
            "generation": found.generation(), "volumes": volumes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
