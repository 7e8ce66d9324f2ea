//! SEND DIAGNOSTIC and RECEIVE DIAGNOSTIC RESULTS (SPC-4 6.19, 6.42), READ DEFECT DATA 10 and 12
//! (SBC-3 5.16, 5.17).

use wire::scsi::{Command as Cdb, Sense, asc};

use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;

/// SELF-TEST CODE: foreground short and extended.
const FOREGROUND: [u8; 2] = [5, 6];

/// No diagnostic pages are taken; background tests are not done.
pub(super) fn plan_send(command: &Cdb) -> Result<Plan, Sense> {
    let Cdb::SendDiagnostic { test, default_test, len, .. } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    if test != 0 && (default_test || !FOREGROUND.contains(&test)) {
        return Err(Sense::cdb_field(1, Some(7)));
    }
    if len != 0 {
        return Err(Sense::cdb_field(3, None));
    }
    match default_test || test != 0 {
        true => Ok(Plan::task(0)),
        false => Ok(Plan::NOTHING),
    }
}

/// A self-test: the first and the last block can be read.
pub(super) async fn send(job: &Job) -> Result<(), Ending> {
    let last = job.device.blocks().saturating_sub(1);
    for lba in [0, last] {
        if job.device.blocks() > 0 && job.read(lba, 1).await.is_err() {
            return Err(Ending::check(asc::SELF_TEST_FAILED));
        }
    }
    Ok(())
}

/// The one page there is: the list of pages.
pub(super) fn plan_receive(page: Option<u8>, alloc: u32) -> Result<Plan, Sense> {
    match page {
        Some(0) => Ok(Plan::reply(alloc)),
        Some(_) => Err(Sense::cdb_field(2, None)),
        None => Err(Sense::cdb_field(1, Some(0))),
    }
}

pub(super) fn receive(ask: &mut ImmediateCommand<'_>) {
    ask.reply.extend([0, 0, 0, 1, 0]);
}

pub(super) fn plan_defects(command: &Cdb) -> Result<Plan, Sense> {
    match *command {
        Cdb::ReadDefects { alloc, .. } => Ok(Plan { medium: true, ..Plan::reply(alloc) }),
        _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
    }
}

/// Both lists are valid and empty, in any format.
pub(super) fn defects(ask: &mut ImmediateCommand<'_>, _: &Device) {
    let Cdb::ReadDefects { twelve, primary, grown, format, .. } = *ask.command else { return };
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    let valid = bit(primary, 0x10) | bit(grown, 0x08) | format;
    ask.reply.extend([0, valid]);
    ask.reply.resize(if twelve { 8 } else { 4 }, 0);
}
