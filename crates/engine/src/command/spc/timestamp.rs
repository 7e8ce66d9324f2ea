//! REPORT TIMESTAMP and SET TIMESTAMP (SPC-4 6.38, 6.47): milliseconds, counted from the start of
//! the daemon until an initiator sets them.

use geom::Local;
use wire::scsi::{Command as Cdb, Sense, asc};

use super::EngineCommand;
use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// The parameter list, bytes.
const LIST_LEN: u32 = 12;
/// TIMESTAMP ORIGIN: zero at the start, or set by the command.
const ORIGIN_START: u8 = 0;
/// See [`ORIGIN_START`].
const ORIGIN_SET: u8 = 2;

pub(super) struct Timestamp;

fn milliseconds(ns: u64) -> u64 {
    ns / 1_000_000
}

impl EngineCommand for Timestamp {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        match *command {
            Cdb::ReportTimestamp { alloc } => Ok(Plan::reply(alloc)),
            Cdb::SetTimestamp { len: 0 } => Ok(Plan::NOTHING),
            Cdb::SetTimestamp { len } if len < LIST_LEN => Err(Sense::new(asc::PARAMETER_LIST_LEN)),
            Cdb::SetTimestamp { .. } => Ok(Plan { medium: false, ..Plan::task(LIST_LEN) }),
            _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let (Cdb::ReportTimestamp { .. }, Some(device)) = (*ask.command, ask.device) else {
            return Ok(());
        };
        let now = milliseconds(ask.core.now());
        let (origin, time) = match device.initiator_data().state().timestamp {
            Some((set_to, at)) => (ORIGIN_SET, set_to.wrapping_add(now.saturating_sub(at))),
            None => (ORIGIN_START, now),
        };
        let [_, _, a, b, c, d, e, f] = time.to_be_bytes();
        ask.reply.extend([0, 10, origin, 0, a, b, c, d, e, f, 0, 0]);
        Ok(())
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move {
            let list = job.data.to_vec();
            let [_, _, _, _, a, b, c, d, e, f, _, _] = *list else {
                return Ending::check(asc::PARAMETER_LIST_LEN);
            };
            let set_to = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
            let now = milliseconds(job.core().now());
            job.device.initiator_data().state().timestamp = Some((set_to, now));
            job.device.raise(asc::TIMESTAMP_CHANGED, Some(&job.nexus));
            Ending::Good
        })
    }
}
