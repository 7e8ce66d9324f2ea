//! `insert`: more members.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::forget::on_record;
use super::{complete, is_own, priority, runs, with, write_record};
use crate::members::{provider_access, verb_util};
use crate::mirror::NAME;
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::{Job, MirrorGeom};
use crate::mirror::metadata::{Metadata, disk_flags};
use crate::mirror::state::MEMBERS_MAX;
use crate::shared_args::{Force, Hardcode, Members, RebuildAnswer, Wait};

/// Add members; they are rebuilt in the background
#[derive(Deserialize, JsonSchema)]
pub(super) struct Insert {
    /// Name of the mirror, without the class
    name: String,
    /// Providers to add
    members: Members,
    /// Priority, 0 to 255; with balance prefer the highest is read first
    #[serde(default)]
    #[schemars(extend("x-short" = "p"))]
    priority: u64,
    /// Do not use the new members until `activate`
    #[schemars(extend("x-short" = "i"))]
    inactive: bool,
    hardcode: Hardcode,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
    wait: Wait,
}

impl Verb<MirrorClass> for Insert {
    const NAME: &'static str = "insert";
    const EXAMPLE: &'static str = "mirror insert data d2";
    const WRITES: bool = true;
    type Answer = RebuildAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<RebuildAnswer, Error> {
        let (hardcode, force) = (self.hardcode.0, self.force.0);
        let priority = priority(self.priority)?;
        let how = InsertOptions { priority, inactive: self.inactive, hardcode, force };
        insert(control, &self.name, &self.members.0, &how)?;
        let message = format!("{} inserted into {}", self.members.0.join(", "), self.name);
        Ok(RebuildAnswer::new(message, &self.name, self.wait))
    }
}

/// How a member is taken in.
#[derive(Default)]
pub(super) struct InsertOptions {
    pub(super) priority: u8,
    pub(super) inactive: bool,
    pub(super) hardcode: bool,
    /// The content of its last sector may be overwritten.
    pub(super) force: bool,
}

/// Takes in members, one after the other.
pub(super) fn insert(
    control: &mut GraphControl,
    on: &str,
    members: &[String],
    how: &InsertOptions,
) -> Result<(), Error> {
    for member in members {
        with(control, on, |g, _, _| complete(&g.mirror))?;
        insert_one(control, on, member, how)?;
    }
    Ok(())
}

/// Takes in members that replace others that are away. Those are given up only when the new ones
/// are in; a failure leaves them expected as before, and older (M10 of `state`).
pub(super) fn replace_absent(
    control: &mut GraphControl,
    on: &str,
    members: &[String],
) -> Result<(), Error> {
    // A disk that takes no writes changes nothing.
    for member in members {
        verb_util::check_member(control, NAME, member, true, is_own)?;
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
        insert_one(
            control,
            on,
            member,
            &InsertOptions { force: true, ..InsertOptions::default() },
        )?;
    }
    Ok(())
}

/// Takes in one member. While others are away it has the place of one of them.
fn insert_one(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    how: &InsertOptions,
) -> Result<(), Error> {
    let new = provider_access::find(control, member)?;
    let (sector_bytes, provider_bytes) = provider_access::sizes(control, new);
    verb_util::check_member(control, NAME, member, how.force, is_own)?;
    let disk = verb_util::new_id(control, member);
    with(control, on, |_, _, _| Ok(()))?;
    let (before, record) = with(control, on, |g, t, me| {
        on_record(g)?;
        let mirror = &mut g.mirror;
        if !mirror.fits(provider_bytes) {
            let bitmap = mirror.shape().map_or(0, |s| u64::from(s.bytes));
            let most = mirror.held_bytes() + bitmap + u64::from(mirror.sector_bytes);
            let what = format!("{member}: too small ({provider_bytes} bytes, {most} needed)");
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
        Ok((before, first_record(g, (disk, member, provider_bytes), how)))
    })?;
    let done = write_record(control, member, Some(&record)).and_then(|()| {
        with(control, on, |g, t, _| match g.slot_called(t, member) {
            None if !how.inactive => Err(Error::new(
                Errno::Io,
                format!(
                    "{member} has a record of {on} now, but is not in use; next: `ashlar list`"
                ),
            )),
            _ => Ok(()),
        })
    });
    done.inspect_err(|_| {
        // The others expect no more than before.
        let back = with(control, on, |g, t, me| {
            let present = g.mirror.members().count() as u8;
            g.mirror.count_only(before.max(present));
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
    how: &InsertOptions,
) -> Metadata {
    let m = &g.mirror;
    let inactive = if how.inactive { disk_flags::INACTIVE } else { 0 };
    Metadata {
        name: m.name.clone(),
        id: m.id,
        disk,
        all: m.all,
        genid: m.genid,
        // As new as the others, and copied to: beside it a stale one is seen to be stale.
        syncid: m.syncid,
        priority: how.priority,
        slice: m.slice,
        balance: m.balance,
        media_bytes: m.media_bytes,
        sector_bytes: m.sector_bytes,
        sync_offset: 0,
        flags: m.flags,
        disk_flags: disk_flags::FORCE_SYNC | disk_flags::SYNCHRONIZING | inactive,
        home: if how.hardcode { member.to_owned() } else { String::new() },
        provider_bytes,
        bitmap: m.shape(),
        lineage: m.lineage.clone(),
    }
}
