//! Creation of a mirror of the configuration, and of one without records.

use bio::Errno;
use geom::{Create, Error, GeomId, GraphControl, MADE_BY_VERB, Topology, Typed};

use super::label::{LabelOptions, label};
use super::redeclare::{names_one, work_as_declared};
use crate::guard;
use crate::members::provider_access;
use crate::mirror::NAME;
use crate::mirror::class::{MirrorClass, TastedMember};
use crate::mirror::geom::MirrorGeom;
use crate::mirror::lineage::Lineage;
use crate::mirror::metadata::Metadata;
use crate::mirror::settings::{MirrorParams, Settings};
use crate::mirror::state::{MEMBERS_MAX, Mirror};

/// A mirror of the configuration. Its records state which member has which data, so that no start
/// copies an older member over a newer one; the configuration only names it. It is labelled once:
/// when no mirror of that name is found on disks.
pub(in crate::mirror) fn declare(
    class: &MirrorClass,
    control: &mut GraphControl,
    declared: &Create<'_, MirrorParams>,
    consent: &[String],
) -> Result<(), Error> {
    let name = declared.name;
    let settings = declared.params.settings()?;
    control.settle()?;
    let was_stopped = class.stopped.start(name);
    let done = declare_started(class, control, declared, (settings, was_stopped), consent);
    if done.is_err() && was_stopped && control.topology.find_geom(NAME, name).is_none() {
        // A refusal starts nothing: its members may return later.
        class.stopped.stop(name);
    }
    done
}

/// The same of a mirror that is not stopped. `was_stopped`: its members have to be tasted again.
fn declare_started(
    class: &MirrorClass,
    control: &mut GraphControl,
    declared: &Create<'_, MirrorParams>,
    (settings, was_stopped): (Settings, bool),
    consent: &[String],
) -> Result<(), Error> {
    let name = declared.name;
    let existed = control.topology.find_geom(NAME, name).is_some();
    if was_stopped {
        provider_access::taste_all_again(control)?;
        control.settle()?;
    }
    let names = declared.members.iter().map(|on| control.topology.provider_name(*on).to_owned());
    let members: Vec<String> = names.collect();
    if let Some(found) = control.topology.find_geom(NAME, name) {
        // A deactivated member that was tasted before the others is not known as one yet.
        control.call(|t| {
            declared.members.iter().for_each(|on| t.retaste(*on));
            Ok(())
        })?;
        control.settle()?;
        let named = names_one(control, name, &members);
        if named.is_err() && !existed {
            // It was stopped, and stays so.
            control.call(|t| {
                class.disassemble(t, found);
                Ok(())
            })?;
        }
        named?;
        return work_as_declared(control, name, declared.params);
    }
    let consents = consent.iter().any(|c| c == name);
    let looked: Vec<&str> = members.iter().map(String::as_str).collect();
    if !consents {
        guard::check(
            control,
            guard::Requester { class: NAME, geom: name, force: false },
            &looked,
            consent,
        )?;
    }
    let new = LabelOptions { settings, force: true, ..LabelOptions::default() };
    label(class, control, (name, &members), &new)?;
    work_as_declared(control, name, declared.params)
}

/// A mirror of providers as they are, without records: the first is copied to the others.
pub(in crate::mirror) fn by_hand(
    class: &MirrorClass,
    t: &mut Topology,
    request: &Create<'_, MirrorParams>,
    Settings { balance, slice, flags }: Settings,
) -> Result<GeomId, Error> {
    let limits: Vec<_> = request.members.iter().filter_map(|p| t.limits(*p)).collect();
    let sector_bytes = limits.iter().map(|l| l.sector_bytes).max().unwrap_or(512).max(512);
    let least = limits.iter().map(|l| l.media_bytes).min().unwrap_or(0);
    let media_bytes = least - least % u64::from(sector_bytes);
    if limits.is_empty() || limits.len() > MEMBERS_MAX || media_bytes == 0 {
        return Err(Error::inval(format!(
            "a mirror has 1 to {MEMBERS_MAX} members, with space on each"
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
    if t.find_geom(NAME, request.name).is_none() {
        class.throttles.forget(request.name);
    }
    let geom = class.place(t, mirror, MADE_BY_VERB)?;
    let taken = t.with(geom, |g: &mut MirrorGeom, t| {
        g.shared.throttle.set_rate(request.params.sync_rate());
        for (number, on) in request.members.iter().enumerate() {
            let syncid = if number > 0 { 0 } else { 1 };
            let (disk, priority) = (number as u32, number as u8);
            let record = Metadata { disk, priority, syncid, ..record.clone() };
            if let Err(e) = g.take_in(t, geom, *on, TastedMember { record, bits: Vec::new() }) {
                MirrorGeom::take_apart(t, geom, g);
                return Err(e);
            }
        }
        Ok(geom)
    });
    taken.unwrap_or_else(|| Err(Error::new(Errno::NxIo, "the mirror is being removed")))
}
