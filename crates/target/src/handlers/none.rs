//! A LUN that is not mapped: INQUIRY says that nothing is here, REPORT LUNS lists what is, REQUEST
//! SENSE explains, and everything else ends LOGICAL UNIT NOT SUPPORTED (SPC-4 4.6).

use wire::scsi::{Command as Cdb, SENSE_LEN_MAX, Sense, asc, no_lun_inquiry};

use super::{Ask, Plan};
use crate::commands::report_luns;

/// What a command at an unmapped LUN needs.
pub(crate) fn plan_none(command: &Cdb) -> Result<Plan, Sense> {
    match *command {
        Cdb::Inquiry { page: None, alloc }
        | Cdb::ReportLuns { alloc, .. }
        | Cdb::RequestSense { alloc, .. } => Ok(Plan::reply(alloc)),
        Cdb::Inquiry { page: Some(_), .. } => Err(Sense::cdb_field(1, Some(0))),
        _ => Err(Sense::new(asc::LUN_NOT_SUPPORTED)),
    }
}

/// The answer.
pub(crate) fn answer_none(ask: &mut Ask<'_>) -> Result<(), Sense> {
    match *ask.command {
        Cdb::Inquiry { .. } => ask.reply.extend(no_lun_inquiry()),
        Cdb::ReportLuns { .. } => report_luns(ask),
        Cdb::RequestSense { descriptor, .. } => {
            let mut bytes = [0; SENSE_LEN_MAX];
            let len = Sense::new(asc::LUN_NOT_SUPPORTED).encode(descriptor, &mut bytes);
            ask.reply.extend(bytes.iter().take(len));
        }
        _ => return Err(Sense::new(asc::LUN_NOT_SUPPORTED)),
    }
    Ok(())
}
