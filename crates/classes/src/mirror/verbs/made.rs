//! How a mirror is made: with records, or by hand.

use bio::Errno;
use geom::{Class, Control, Create, Error, GeomId, MADE_BY_HAND, Topology};
use serde_json::{Value, json};

use super::redeclare::{names_one, settings, work_as_declared};
use super::whole::flags;
use super::{Request, balance, is_own, shape, slice, write_record};
use crate::guard;
use crate::members::{hand, known};
use crate::mirror::NAME;
use crate::mirror::class::{MirrorClass, Seen};
use crate::mirror::geom::MirrorGeom;
use crate::mirror::lineage::Lineage;
use crate::mirror::metadata::{Balance, Metadata, disk_flags};
use crate::mirror::state::{MEMBERS_MAX, Mirror};

pub(super) fn label(
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
        return Err(Error::inval(format!("a mirror has 1 to {MEMBERS_MAX} members")));
    }
    let (mut sector_bytes, mut least) = (512, u64::MAX);
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(Error::inval(format!("{member} is named twice")));
        }
        let on = hand::find(control, member)?;
        let (sector, media) = hand::sizes(control, on);
        sector_bytes = sector_bytes.max(sector);
        least = least.min(media.saturating_sub(u64::from(sector)));
        known::check_member(control, NAME, member, request.force, is_own)?;
    }
    let media_bytes = least - least % u64::from(sector_bytes);
    if media_bytes == 0 {
        return Err(Error::inval("its members are too small: nothing is left"));
    }
    let bitmap = match request.bitmap || request.region.is_some() {
        true => Some(shape(media_bytes, sector_bytes, request.region)?),
        false => None,
    };
    let spare = bitmap.map_or(0, |s| u64::from(s.bytes));
    let media_bytes = media_bytes.saturating_sub(spare.next_multiple_of(u64::from(sector_bytes)));
    if media_bytes == 0 {
        return Err(Error::inval("its members are too small: nothing is left beside the bitmap"));
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
        bitmap,
        lineage: Lineage {
            held_by: if request.assume_same { members.len() as u8 } else { 1 },
            ..Lineage::first(id)
        },
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

pub(super) fn create(
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
    params["no_failsync"] = json!(request.no_failsync);
    params["no_autosync"] = json!(request.no_autosync);
    control.call(|t| class.create(t, &Create { name, members: &members, params: &params }))?;
    known::up(control, NAME, name, &request.members)
}

/// A mirror of the configuration. Its records say who has what, so that no start copies an older
/// member over a newer one; the configuration only names it. It is labelled once: when none of that
/// name is found on disks.
pub(in crate::mirror) fn declare(
    class: &MirrorClass,
    control: &mut Control,
    declared: &Create<'_>,
    consent: &[String],
) -> Result<(), Error> {
    let name = declared.name;
    let wrong = |e: serde_json::Error| Error::inval(format!("mirror {name}: {e}"));
    let mut request: Request = match declared.params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone()).map_err(wrong)?,
    };
    control.settle()?;
    // One that was stopped cannot be foreseen: it is taken as its records say.
    let was_there = control.topology.find_geom(NAME, name).is_some();
    if class.stopped.start(name) {
        hand::look_again(control)?;
        control.settle()?;
    }
    let names = declared.members.iter().map(|on| control.topology.provider_name(*on).to_owned());
    request.members = names.collect();
    if control.topology.find_geom(NAME, name).is_some() {
        if was_there {
            names_one(control, name, &request.members)?;
        }
        return work_as_declared(control, name, settings(declared.params)?);
    }
    let consents = consent.iter().any(|c| c == name);
    let looked: Vec<&str> = request.members.iter().map(String::as_str).collect();
    if !consents {
        guard::check(
            control,
            guard::By { class: NAME, geom: name, force: false },
            &looked,
            consent,
        )?;
    }
    request.force = true;
    label(class, control, name, &request).map(drop)
}

/// A mirror of providers as they are, without records: the first is copied to the others.
pub(in crate::mirror) fn by_hand(
    class: &MirrorClass,
    t: &mut Topology,
    request: &Create<'_>,
    (balance, slice, flags): (Balance, u32, u64),
) -> Result<GeomId, Error> {
    let limits: Vec<_> = request.members.iter().filter_map(|p| t.limits(*p)).collect();
    let sector_bytes = limits.iter().map(|l| l.sector_bytes).max().unwrap_or(512).max(512);
    let least = limits.iter().map(|l| l.media_bytes).min().unwrap_or(0);
    let media_bytes = least - least % u64::from(sector_bytes);
    if limits.is_empty() || limits.len() > MEMBERS_MAX || media_bytes == 0 {
        return Err(Error::inval(format!(
            "a mirror has 1 to {MEMBERS_MAX} members, with room on each"
        )));
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
        flags,
        disk_flags: 0,
        home: String::new(),
        provider_bytes: 0,
        bitmap: None,
        lineage: Lineage::default(),
    };
    let mut mirror = Mirror::of(&record);
    mirror.manual = true;
    let geom = class.place(t, mirror, MADE_BY_HAND)?;
    let taken = t.with(geom, |g: &mut MirrorGeom, t| {
        for (number, on) in request.members.iter().enumerate() {
            let syncid = if number > 0 { 0 } else { 1 };
            let (disk, priority) = (number as u32, number as u8);
            let record = Metadata { disk, priority, syncid, ..record.clone() };
            if let Err(e) = g.take_in(t, geom, *on, Seen { record, bits: Vec::new() }) {
                MirrorGeom::take_apart(t, geom, g);
                return Err(e);
            }
        }
        Ok(geom)
    });
    taken.unwrap_or_else(|| Err(Error::new(Errno::NxIo, "the mirror is going")))
}
