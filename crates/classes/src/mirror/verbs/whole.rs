//! Verbs about the whole.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bio::Errno;
use geom::{Class, Control, Error, GeomId, Topology};
use serde_json::{Value, json};

use super::members::slot;
use super::{Request, balance, complete, priority, runs, shape, slice, with};
use crate::members::{hand, known};
use crate::mirror::bitmap::Shape;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::{Job, MirrorGeom};
use crate::mirror::level::Stage;
use crate::mirror::metadata::{Metadata, mirror_flags};
use crate::mirror::settings::Settings;
use crate::mirror::state::{Mirror, Role};
use crate::mirror::verify::Ask;
use crate::mirror::{NAME, flag_words};

pub(super) fn flags(request: &Request, old: u64) -> u64 {
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

/// Whether bitmaps are to be kept from now on, or no longer; `None`: neither.
fn bitmap_change(
    mirror: &Mirror,
    (on, growing): (&str, bool),
    request: &Request,
) -> Result<Option<Option<Shape>>, Error> {
    let keeps = request.bitmap || request.region.is_some();
    if keeps == request.no_bitmap {
        return match keeps {
            true => Err(Error::inval("--bitmap and --no-bitmap")),
            false => Ok(None),
        };
    }
    if growing {
        let what = format!("{on} is growing: wait for that, or end it with `mirror resize`");
        return Err(Error::new(Errno::Busy, what));
    }
    if mirror.members().any(|(_, m)| m.partial) {
        let what = format!("members of {on} are rebuilt by their bitmaps; wait for that");
        return Err(Error::new(Errno::Busy, what));
    }
    if !keeps {
        return Ok(Some(None));
    }
    let shape = shape(mirror.media_bytes, mirror.sector_bytes, request.region)?;
    let least = mirror.members().map(|(_, m)| m.provider_bytes).min().unwrap_or(0);
    let sector = u64::from(mirror.sector_bytes);
    let most = mirror.media_bytes + u64::from(shape.bytes) + sector;
    if mirror.manual || least < most {
        let what = format!(
            "there is no room for a bitmap: {on} uses all of its members. {most} bytes of each are \
             needed; `ashlar mirror label --bitmap` leaves room"
        );
        return Err(Error::inval(what));
    }
    Ok(Some(Some(shape)))
}

pub(super) fn configure(
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let (balance, slice, priority) = (balance(request)?, slice(request)?, priority(request)?);
    // Members that are away would not have it.
    let of_all = request.hardcode || request.dynamic;
    let of_all = of_all || request.bitmap || request.no_bitmap || request.region.is_some();
    with(control, on, |g, t, me| {
        runs(&g.mirror)?;
        if of_all {
            complete(&g.mirror)?;
        }
        if let (Some(priority), Some(member)) = (priority, &request.member) {
            let slot = slot(g, t, member)?;
            if let Some(Some(member)) = g.mirror.slots.get_mut(slot) {
                member.record.priority = priority;
            }
        } else if priority.is_some() {
            let what = format!("--priority is one member's: `mirror configure -p 5 {on} PROVIDER`");
            return Err(Error::inval(what));
        } else if request.member.is_some() {
            return Err(Error::inval("a member is named for --priority"));
        }
        match (request.hardcode, request.dynamic) {
            (false, false) => {}
            (true, true) => return Err(Error::inval("--hardcode and --dynamic")),
            _ if g.mirror.manual => {
                return Err(Error::inval(format!("{on} was made by hand: it has no records")));
            }
            (hardcode, _) => g.tie(t, hardcode),
        }
        let growing = g.shared.growth().is_live();
        if let Some(change) = bitmap_change(&g.mirror, (on, growing), request)? {
            g.push(t, me, Job::Bitmap(change));
        }
        let now = g.mirror.settings();
        g.mirror.work_as(Settings {
            balance: balance.unwrap_or(now.balance),
            slice: slice.unwrap_or(now.slice),
            flags: flags(request, now.flags),
        });
        if let Some(rate) = request.sync_rate {
            g.shared.sync_rate.store(rate, Relaxed);
        }
        g.push(t, me, Job::Rewrite);
        Ok(())
    })?;
    Ok(json!({ "message": format!("{on} configured") }))
}

/// How long the verb waits for what is added to be the same on all members before it leaves that to
/// the background.
const GROWS: Duration = Duration::from_secs(1);

pub(super) fn resize(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let (size, shared) = with(control, on, |g, t, me| {
        complete(&g.mirror)?;
        let most = g.mirror.most();
        let wanted = request.size.unwrap_or(most);
        let whole = wanted.is_multiple_of(u64::from(g.mirror.sector_bytes));
        if wanted == 0 || wanted > most || !whole {
            let what = format!("{on} can have up to {most} bytes, in whole sectors, not {wanted}");
            return Err(Error::inval(what));
        }
        if wanted < g.mirror.media_bytes {
            may_shrink(g, t, me, on)?;
        }
        if g.mirror.shape().is_some_and(|s| !s.covers(wanted)) {
            let what = "its bitmap has no bits for so much: `ashlar mirror configure --no-bitmap` \
                        first, and `--bitmap` afterwards";
            return Err(Error::inval(what));
        }
        g.size_to(t, me, wanted)?;
        Ok((wanted, g.shared.clone()))
    })?;
    let done = control.wait_until(GROWS, |_| !shared.growth().is_live());
    control.settle()?;
    let growth = *shared.growth();
    let message = match growth.stage {
        Stage::Failed(why) => {
            return Err(Error::new(Errno::Io, format!("{on} stays as large as it is: {why}")));
        }
        _ if done => format!("{on} has {size} bytes now"),
        _ if growth.to < growth.from => format!(
            "{on} becomes smaller, {size} bytes, when its records say so; `ashlar mirror list \
             {on}` shows its size"
        ),
        _ => format!(
            "{on} grows to {size} bytes when its members hold the same in what is added; \
             `ashlar mirror list {on}` shows how far it is"
        ),
    };
    Ok(json!({ "message": message }))
}

/// G4 of `level`.
fn may_shrink(g: &MirrorGeom, t: &Topology, me: GeomId, on: &str) -> Result<(), Error> {
    let busy = |what: &str| Err(Error::new(Errno::Busy, format!("{on} {what}")));
    let members: Vec<Role> = g.mirror.members().map(|(_, m)| m.role).collect();
    if t.geom_is_open(me) {
        return busy("is open; close what uses it before it is made smaller");
    }
    if g.shared.growth().is_live() {
        return busy("is being resized: wait for that, or end it with the size that it has");
    }
    if members.iter().any(|role| *role != Role::Active) {
        return busy("has members that are rebuilt, or are to be; wait for that");
    }
    if g.shared.verified().running {
        return busy("is being compared: `ashlar mirror verify --end` ends it");
    }
    Ok(())
}

pub(super) fn stop(
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

/// Starts what was stopped, or what does not start for its members went on apart (M12).
pub(super) fn start(
    class: &MirrorClass,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let Some(keep) = &request.keep else {
        return known::start(control, NAME, &class.stopped, on);
    };
    let name = known::bare(NAME, on).to_owned();
    if class.stopped.start(&name) {
        hand::look_again(control)?;
        control.settle()?;
    }
    with(control, on, |g, t, me| {
        let slot = slot(g, t, keep)?;
        if g.mirror.running {
            let what = format!("{on} runs already; `ashlar mirror stop {on}` first");
            return Err(Error::new(Errno::Busy, what));
        }
        if !g.mirror.is_split() {
            let what = format!(
                "{on} is no split brain: its records prove which member is newer, and it starts \
                 without --keep when the members are there"
            );
            return Err(Error::inval(what));
        }
        g.mirror.keep(slot);
        g.launch(t, me);
        Ok(())
    })?;
    match control.topology.find(&format!("{NAME}/{name}")) {
        Some(_) => Ok(json!({ "message": format!("{NAME}/{name} runs with what {keep} has") })),
        None => {
            let what = format!("{on} does not start; `ashlar mirror list {on}` says why");
            Err(Error::new(Errno::NxIo, what))
        }
    }
}

pub(super) fn dump(control: &mut Control, request: &Request) -> Result<Value, Error> {
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
        if let Some(shape) = m.bitmap {
            text += &format!("   bitmap: {} bytes, regions of {}\n\n", shape.bytes, shape.region());
        }
        all.push(json!({
            "provider": member, "name": m.name, "id": m.id, "disk": m.disk, "all": m.all,
            "genid": m.genid, "syncid": m.syncid, "priority": m.priority, "slice": m.slice,
            "balance": m.balance.word(), "media_bytes": m.media_bytes,
            "sector_bytes": m.sector_bytes, "sync_offset": m.sync_offset, "flags": m.flags,
            "region_bytes": m.bitmap.map(|s| s.region()), "disk_flags": m.disk_flags,
            "hardcoded": m.home, "provider_bytes": m.provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}

/// Members are compared in the background.
pub(super) fn verify(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let ended = with(control, on, |g, t, me| {
        if request.end {
            return Ok(std::mem::take(&mut g.shared.verified().running));
        }
        if g.shared.verified().running {
            let what = format!("{on} is being compared: `ashlar mirror verify {on} --end` ends it");
            return Err(Error::new(Errno::Busy, what));
        }
        let active = g.mirror.in_role(Role::Active);
        if active.len() < 2 {
            return Err(Error::inval(format!("{on} has no two members that have everything")));
        }
        let right = match &request.member {
            Some(name) => slot(g, t, name)?,
            None => {
                let priority = |slot: &usize| g.mirror.member(*slot).map(|m| m.record.priority);
                let best = active.iter().max_by_key(|slot| (priority(slot), Reverse(**slot)));
                best.copied().unwrap_or(0)
            }
        };
        if !active.contains(&right) {
            return Err(Error::inval("the member to compare with has not everything"));
        }
        let rate = request.rate.unwrap_or_else(|| g.shared.sync_rate.load(Relaxed));
        g.push(t, me, Job::Verify(Ask { repair: request.repair, right, rate }));
        Ok(false)
    })?;
    let message = match (request.end, ended) {
        (true, true) => format!("{on} is no longer compared"),
        (true, false) => format!("{on} was not being compared"),
        (false, _) => format!("{on} is compared; `ashlar mirror list {on}` shows how far it is"),
    };
    Ok(json!({ "message": message }))
}
