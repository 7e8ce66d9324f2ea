//! RESERVE and RELEASE, 6 and 10 (SPC-2 7.21, 7.16): the whole unit for one session. Third parties
//! and extents are refused by the table of commands. Beside persistent reservations they are
//! compatible (SPC-4 5.12.3).

use geom::Local;
use wire::scsi::{Command as Cdb, Sense, Status};

use super::EngineCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::reservations::{Effects, Refusal, RequestingNexus};
use crate::status::Ending;
use crate::unit::Device;

pub(super) struct Reserve;

impl EngineCommand for Reserve {
    fn plan(&self, _: &Cdb, _: &Device) -> Result<Plan, Sense> {
        Ok(Plan { medium: false, ..Plan::task(0) })
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move { run(&job).await.err().unwrap_or(Ending::Good) })
    }
}

async fn run(job: &Job) -> Result<(), Ending> {
    let turn = job.device.reservations().lock_for_change().await;
    if job.is_aborted() {
        return Err(Ending::Status(Status::TaskAborted));
    }
    let port = job.nexus.port();
    let state = turn.state();
    let who = RequestingNexus { id: port.identity.as_ref(), session: port.session };
    let next = match job.command {
        Cdb::Reserve => state.reserve_unit(who),
        _ => state.release_unit(who),
    };
    if let Some(next) = next.map_err(refused)? {
        turn.commit(&job.device, next, &Effects::default());
    }
    Ok(())
}

/// Answer to the initiator for a refusal.
pub(super) fn refused(refusal: Refusal) -> Ending {
    match refusal {
        Refusal::Conflict => Ending::Status(Status::ReservationConflict),
        Refusal::Sense(sense) => Ending::Check(sense),
    }
}
