//! A LUN without a unit (SPC-4 4.6).
//!
//! | | not mapped | awaited: its unit is configured and not there yet |
//! |---|---|---|
//! | INQUIRY | peripheral qualifier 011b | 001b: a unit can be here and is not connected |
//! | REPORT LUNS | the units that are there | the same |
//! | REQUEST SENSE | LOGICAL UNIT NOT SUPPORTED | BECOMING READY |
//! | all others | LOGICAL UNIT NOT SUPPORTED | BECOMING READY: hosts send it again |

use wire::scsi::{
    Asc, Command as Cdb, CommandInfo, PeripheralType, SENSE_LEN_MAX, Sense, asc, no_lun_inquiry,
    unconnected_inquiry,
};

use crate::command::spc::report_luns;
use crate::handlers::ImmediateCommand;
use crate::plan::Plan;

/// A command at a number without a unit; one that is not known ends with `code`.
pub(crate) fn parse_none(cdb: &[u8], code: Asc) -> Result<(Cdb, &'static CommandInfo), Sense> {
    Cdb::parse_for(PeripheralType::Disk, cdb).map_err(|_| Sense::new(code))
}

/// The needs of such a command.
pub(crate) fn plan_none(command: &Cdb, code: Asc) -> Result<Plan, Sense> {
    match *command {
        Cdb::Inquiry { page: None, alloc }
        | Cdb::ReportLuns { alloc, .. }
        | Cdb::RequestSense { alloc, .. } => Ok(Plan::reply(alloc)),
        Cdb::Inquiry { page: Some(_), .. } if code == asc::LUN_NOT_SUPPORTED => {
            Err(Sense::cdb_field(1, Some(0)))
        }
        _ => Err(Sense::new(code)),
    }
}

pub(crate) fn answer_none(ask: &mut ImmediateCommand<'_>, code: Asc) -> Result<(), Sense> {
    match *ask.command {
        Cdb::Inquiry { .. } if code == asc::LUN_NOT_SUPPORTED => ask.reply.extend(no_lun_inquiry()),
        Cdb::Inquiry { .. } => ask.reply.extend(unconnected_inquiry()),
        Cdb::ReportLuns { .. } => report_luns(ask),
        Cdb::RequestSense { descriptor, .. } => {
            let mut bytes = [0; SENSE_LEN_MAX];
            let len = Sense::new(code).encode(descriptor, &mut bytes);
            ask.reply.extend(bytes.iter().take(len));
        }
        _ => return Err(Sense::new(code)),
    }
    Ok(())
}
