//! PERSISTENT RESERVE IN and OUT (SPC-4 6.15, 6.16): from the list to the state machine of
//! `reserve`, to the state store, to the nexuses of all cores.
//!
//! Invariants
//!  O1  State that APTPL promises to keep is on stable storage before the change holds, and the
//!      change holds before GOOD. A save that fails changes nothing, and the initiator receives an
//!      error.
//!  O2  PREEMPT AND ABORT is answered when the commands that it aborted can no longer touch the
//!      medium, on any core. Others may change reservations meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use bio::Errno;
use geom::{Error, Local};
use wire::scsi::{
    Command as Cdb, PR_OUT_LEN, PR_OUT_LEN_MAX, PrInAction, PrOutAction, PrOutList, Sense, Status,
    asc, pr_capabilities, pr_full_status, pr_keys, pr_reservation,
};

use super::EngineCommand;
use super::reserve::refused;
use crate::job::Job;
use crate::plan::{Plan, Run};
use crate::reservations::{Effects, PortContext, Request, RequestingNexus, Reservations};
use crate::state_store::{RecordKind, StateStore};
use crate::status::Ending;
use crate::unit::Device;

/// Ending of a command that was aborted before it changed anything; it is never sent.
const STOPPED: Ending = Ending::Status(Status::TaskAborted);

pub(super) struct PersistentIn;

impl EngineCommand for PersistentIn {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::PersistentIn { alloc, .. } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        Ok(Plan { reply: alloc, run: Run::Task, ..Plan::NOTHING })
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move { read(&job).await.err().unwrap_or(Ending::Good) })
    }
}

async fn read(job: &Job) -> Result<(), Ending> {
    let Cdb::PersistentIn { action, .. } = job.command else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    let state = job.device.reservations().state();
    // SPC-2 5.5.1: conflicts with a RESERVE even of the same nexus.
    if state.legacy().is_some() {
        return Err(Ending::Status(Status::ReservationConflict));
    }
    let generation = state.generation();
    let data = match action {
        PrInAction::ReadKeys => pr_keys(generation, state.registrations().map(|(_, key)| key)),
        PrInAction::ReadReservation => pr_reservation(generation, state.reservation()),
        PrInAction::ReportCapabilities => {
            pr_capabilities(job.registry.state_store().is_persistent(), state.is_aptpl())
        }
        PrInAction::ReadFullStatus => pr_full_status(generation, state.full_status().iter()),
    };
    job.reply_bytes(&data).await
}

pub(super) struct PersistentOut;

impl EngineCommand for PersistentOut {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::PersistentOut { len, .. } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        if !(PR_OUT_LEN..=PR_OUT_LEN_MAX).contains(&len) {
            return Err(Sense::new(asc::PARAMETER_LIST_LEN));
        }
        Ok(Plan { medium: false, ..Plan::task(len) })
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move { change(&job).await.err().unwrap_or(Ending::Good) })
    }
}

async fn change(job: &Job) -> Result<(), Ending> {
    let Cdb::PersistentOut { action, scope, kind, len } = job.command else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    // A conflict takes precedence over errors in the list.
    if job.device.reservations().state().legacy().is_some() {
        return Err(Ending::Status(Status::ReservationConflict));
    }
    if u32::try_from(job.data.len()) != Ok(len) {
        return Err(Ending::check(asc::PARAMETER_LIST_LEN));
    }
    let list = PrOutList::parse(action, &job.data.to_vec())?;
    if list.aptpl && !job.registry.state_store().is_persistent() {
        let byte = if action == PrOutAction::RegisterAndMove { 17 } else { 20 };
        return Err(Sense::list_field(byte, Some(0)).into());
    }
    let port = job.nexus.port();
    let who = RequestingNexus { id: port.identity.as_ref(), session: port.session };
    let request = Request { action, scope, kind, list };
    let around = surroundings(job);
    let turn = job.device.reservations().lock_for_change().await;
    if job.is_aborted() {
        return Err(STOPPED);
    }
    let decided = turn.state().out(who, &request, &around).map_err(refused)?;
    let Some(change) = decided else { return Ok(()) };
    if change.save {
        let record = change.next.record();
        job.save(RecordKind::Reservations, record).await.map_err(not_saved)?;
    }
    // A saved change is carried out, even if task management has aborted the command meanwhile
    // (O1).
    turn.commit(&job.device, change.next, &change.effects);
    drop(turn);
    abort_others(job, change.effects).await;
    Ok(())
}

/// O2.
async fn abort_others(job: &Job, effects: Effects) {
    if effects.aborts.is_empty() {
        return;
    }
    let whom: BTreeSet<_> = effects.aborts.into_iter().collect();
    job.abort_nexuses(Arc::new(whom)).await;
}

/// Target ports of the sender's driver, and the initiator ports that are logged in to the unit.
fn surroundings(job: &Job) -> PortContext {
    let nexuses = job.device.nexuses();
    let ports = nexuses.iter().filter_map(|n| n.port().identity.as_ref());
    PortContext {
        targets: job.registry.relative_ports(&job.port.driver),
        ports: ports.map(|id| id.port.clone()).collect(),
    }
}

/// A record that could not be stored: the unit is out of space for it, or the daemon's storage is
/// at fault.
fn not_saved(error: Errno) -> Ending {
    match error {
        Errno::NoSpc | Errno::NoMem => Ending::check(asc::OUT_OF_RESERVATIONS),
        _ => Ending::check(asc::INTERNAL_FAILURE),
    }
}

/// Loads the state store's record of a unit, before any nexus exists. An invalid record keeps the
/// unit from being exported: without its reservations two hosts could write at the same time.
pub(super) fn load(device: &Device, store: &dyn StateStore) -> Result<(), Error> {
    let spec = device.spec();
    let Some(bytes) = store.load(&spec.serial, RecordKind::Reservations)? else { return Ok(()) };
    match Reservations::of_record(&bytes) {
        Ok(state) => {
            device.reservations().load(state);
            Ok(())
        }
        Err(why) => {
            let what = format!(
                "{}: the saved reservations of serial number {} cannot be used: {why}; \
                 move the record away to export the disk without them",
                spec.label.name, spec.serial
            );
            Err(Error::inval(what))
        }
    }
}
