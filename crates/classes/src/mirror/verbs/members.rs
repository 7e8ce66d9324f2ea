//! Verbs about single members.

use bio::Errno;
use geom::{Control, Error, Topology};
use serde_json::{Value, json};

use super::{Request, complete, is_own, priority, runs, with, write_record};
use crate::members::{hand, known};
use crate::mirror::NAME;
use crate::mirror::geom::{Job, MirrorGeom, Parting};
use crate::mirror::metadata::{Metadata, disk_flags};
use crate::mirror::state::{MEMBERS_MAX, Mirror, Role};

pub(super) fn slot(g: &MirrorGeom, t: &Topology, member: &str) -> Result<usize, Error> {
    g.slot_called(t, member).ok_or_else(|| {
        let name = &g.mirror.name;
        let what = format!("{member} is no member of {name}; `ashlar mirror list {name}`");
        Error::new(Errno::NoEnt, what)
    })
}

pub(super) fn insert(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    priority(request)?;
    for member in &request.members {
        with(control, on, |g, _, _| complete(&g.mirror))?;
        insert_one(control, on, member, request)?;
    }
    Ok(json!({ "message": format!("{} inserted into {on}", request.members.join(", ")) }))
}

/// Takes in members that replace others that are away. Those are given up only when the new ones
/// are in; a failure leaves them expected as before, and older (M10 of `state`).
pub(super) fn replace_absent(
    control: &mut Control,
    on: &str,
    members: &[String],
) -> Result<(), Error> {
    // A disk that takes no writes changes nothing.
    for member in members {
        known::check_member(control, NAME, member, true, is_own)?;
        write_record(control, member, None)?;
    }
    for member in members {
        with(control, on, |g, t, me| {
            runs(&g.mirror)?;
            if !g.mirror.is_complete() {
                g.mirror.outdate_absent();
                g.push(t, me, Job::Rewrite);
            }
            Ok(())
        })?;
        insert_one(control, on, member, &Request { force: true, ..Request::default() })?;
    }
    Ok(())
}

/// Takes in one member. While others are away it has the place of one of them.
fn insert_one(
    control: &mut Control,
    on: &str,
    member: &str,
    request: &Request,
) -> Result<(), Error> {
    let new = hand::find(control, member)?;
    let (sector_bytes, provider_bytes) = hand::sizes(control, new);
    known::check_member(control, NAME, member, request.force, is_own)?;
    let disk = known::new_id(control, member);
    with(control, on, |_, _, _| Ok(()))?;
    let (before, record) = with(control, on, |g, t, me| {
        on_record(g)?;
        let mirror = &mut g.mirror;
        if !mirror.fits(provider_bytes) {
            let bitmap = mirror.shape().map_or(0, |s| u64::from(s.bytes));
            let most = mirror.held_bytes() + bitmap + u64::from(mirror.sector_bytes);
            let what = format!("{member} has {provider_bytes} bytes; it needs {most}");
            return Err(Error::inval(what));
        }
        if let Some(why) = mirror.other_sectors(sector_bytes) {
            return Err(Error::inval(format!("{member}: {why}")));
        }
        let before = mirror.all;
        if !mirror.is_complete() {
            // One that left meanwhile has records as new as theirs.
            if !mirror.count_instead(disk) {
                complete(mirror)?;
            }
        } else if usize::from(before) < MEMBERS_MAX {
            mirror.count_new(disk);
        } else {
            return Err(Error::inval(format!("a mirror has at most {MEMBERS_MAX} members")));
        }
        g.push(t, me, Job::Rewrite);
        Ok((before, first_record(g, (disk, member, provider_bytes), request)?))
    })?;
    let done = write_record(control, member, Some(&record)).and_then(|()| {
        with(control, on, |g, t, _| match g.slot_called(t, member) {
            None if !request.inactive => Err(Error::new(
                Errno::Io,
                format!("{member} has a record of {on} now, but is not taken in: `ashlar list`"),
            )),
            _ => Ok(()),
        })
    });
    done.inspect_err(|_| {
        // The others expect no more than before.
        let back = with(control, on, |g, t, me| {
            let here = g.mirror.members().count() as u8;
            g.mirror.count_only(before.max(here));
            g.push(t, me, Job::Rewrite);
            Ok(())
        });
        drop(back);
    })
}

/// The record with which a member is taken in.
fn first_record(
    g: &MirrorGeom,
    (disk, member, provider_bytes): (u32, &str, u64),
    request: &Request,
) -> Result<Metadata, Error> {
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
        priority: priority(request)?.unwrap_or(0),
        slice: m.slice,
        balance: m.balance,
        media_bytes: m.media_bytes,
        sector_bytes: m.sector_bytes,
        sync_offset: 0,
        flags: m.flags,
        disk_flags: disk_flags::FORCE_SYNC | disk_flags::SYNCHRONIZING | inactive,
        home: if request.hardcode { member.to_owned() } else { String::new() },
        provider_bytes,
        bitmap: m.shape(),
        lineage: m.lineage.clone(),
    })
}

pub(super) fn remove(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        part(control, on, member, Parting::Removed)?;
    }
    Ok(json!({ "message": format!("{} removed from {on}", request.members.join(", ")) }))
}

pub(super) fn deactivate(
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    for member in &request.members {
        part(control, on, member, Parting::Deactivated)?;
    }
    Ok(json!({ "message": format!("{} deactivated", request.members.join(", ")) }))
}

/// Lets a member go. When the others' records say that it is out its own is cleared, or marked,
/// while the mirror still holds it, so that nobody finds it as it was. One that cannot be let go
/// is looked at again, and comes back as what its record says.
fn part(control: &mut Control, on: &str, member: &str, how: Parting) -> Result<(), Error> {
    let seat = with(control, on, |g, t, _| {
        let seat = slot(g, t, member)?;
        if how == Parting::Removed {
            complete(&g.mirror)?;
        }
        keep_one(&g.mirror, seat, member)?;
        Ok(seat)
    })?;
    let out = with(control, on, |g, t, me| {
        g.let_go(t, me, seat, how);
        Ok(())
    });
    let done = out.and_then(|()| last_word(control, on, member, (seat, how)));
    let over = with(control, on, |g, t, _| {
        g.parted(t, seat);
        Ok(())
    });
    done.and(over)
}

fn last_word(
    control: &mut Control,
    on: &str,
    member: &str,
    (seat, how): (usize, Parting),
) -> Result<(), Error> {
    let last = with(control, on, |g, t, _| g.last_word(t, seat, member))?;
    if last.manual {
        return Ok(());
    }
    let mut sector = match how {
        Parting::Removed => Vec::new(),
        Parting::Deactivated => {
            let disk_flags = last.record.disk_flags | disk_flags::INACTIVE;
            Metadata { disk_flags, ..last.record }.encode()
        }
    };
    sector.resize(last.sector_bytes as usize, 0);
    hand::write(control, member, last.edge, last.at, sector)
}

/// M4, for verbs.
fn keep_one(mirror: &Mirror, slot: usize, member: &str) -> Result<(), Error> {
    let active = mirror.in_role(Role::Active);
    if active.iter().any(|s| *s != slot) {
        return Ok(());
    }
    let what = format!(
        "{member} is the last that has everything; without it nothing is left: `ashlar mirror stop \
         {}` takes the whole apart",
        mirror.name
    );
    Err(Error::new(Errno::Busy, what))
}

pub(super) fn forget(control: &mut Control, on: &str) -> Result<Value, Error> {
    let count = with(control, on, |g, t, me| {
        // No record could say so.
        runs(&g.mirror)?;
        let count = g.mirror.members().count();
        g.mirror.count_only(count as u8);
        g.push(t, me, Job::Rewrite);
        Ok(count)
    })?;
    with(control, on, |g, _, _| on_record(g))?;
    Ok(json!({ "message": format!("{on} has {count} members now") }))
}

/// What was changed last is on record: otherwise members that are not there know nothing of it, and
/// may start without those who are.
fn on_record(g: &MirrorGeom) -> Result<(), Error> {
    if g.is_on_record() {
        return Ok(());
    }
    let what = format!(
        "the records of {0} cannot be written, so no other member can be taken in: `ashlar mirror \
         forget {0}` again when its disks take writes. If they never will, copy what can be read \
         to another disk and `ashlar mirror stop {0}`",
        g.mirror.name
    );
    Err(Error::new(Errno::Io, what))
}

pub(super) fn rebuild(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        with(control, on, |g, t, me| {
            let slot = slot(g, t, member)?;
            keep_one(&g.mirror, slot, member)?;
            g.push(t, me, Job::Anew(slot));
            Ok(())
        })?;
        // It may have become the last meanwhile, and stays as it is.
        with(control, on, |g, t, _| match slot(g, t, member) {
            Ok(slot) => keep_one(&g.mirror, slot, member),
            Err(e) => Err(e),
        })?;
    }
    Ok(json!({ "message": format!("{} of {on} is rebuilt", request.members.join(", ")) }))
}

pub(super) fn activate(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        let record = known::read(control, NAME, member, Metadata::decode)?;
        if record.name != known::bare(NAME, on) || !record.has(disk_flags::INACTIVE) {
            let what = format!("{member} is no deactivated member of {on}");
            return Err(Error::inval(what));
        }
        let flags = record.disk_flags & !disk_flags::INACTIVE;
        write_record(control, member, Some(&Metadata { disk_flags: flags, ..record }))?;
        with(control, on, |_, _, _| Ok(()))?;
    }
    Ok(json!({ "message": format!("{} activated", request.members.join(", ")) }))
}
