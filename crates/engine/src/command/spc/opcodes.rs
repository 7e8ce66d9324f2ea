//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 6.35,
//! 6.36): the commands of the parser and the functions of the engine, from the same tables.

use wire::scsi::{Command as Cdb, Sense, asc, report_opcodes};

use super::EngineCommand;
use crate::command::serve::served;
use crate::gate::ACA_SERVED;
use crate::handlers::ImmediateCommand;
use crate::plan::Plan;
use crate::unit::Device;

pub(super) struct Opcodes;

impl EngineCommand for Opcodes {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        match *command {
            Cdb::ReportOpcodes { alloc, .. } => Ok(Plan::reply(alloc)),
            // The standard's least length (SPC-4 6.36.1).
            Cdb::ReportTaskManagement { alloc, .. } if alloc < 4 => Err(Sense::cdb_field(6, None)),
            Cdb::ReportTaskManagement { alloc, .. } => Ok(Plan::reply(alloc)),
            _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        match (*ask.command, ask.device) {
            (Cdb::ReportOpcodes { report, timeouts, .. }, Some(device)) => {
                let list = report_opcodes(&served(device), report, timeouts);
                ask.reply.extend(list.map_err(|e| e.sense())?);
            }
            (Cdb::ReportTaskManagement { extended, .. }, _) => {
                ask.reply.extend(functions(extended));
            }
            _ => return Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
        Ok(())
    }
}

/// ATS, ATSS, CACAS, CTSS, LURS, QTS, TRS; QAES, QTSS, ITNRS. With REPD the timeouts follow. No
/// timeout is reported, because an answer waits for the medium.
fn functions(extended: bool) -> Vec<u8> {
    let clear_aca = if ACA_SERVED { 0x20 } else { 0 };
    let mut out = vec![0xde | clear_aca, 0x07, 0, 0];
    if extended {
        out[3] = 12;
        out.resize(16, 0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_task_management_functions_have_the_expected_bytes() {
        assert_eq!(functions(false)[1..], [7, 0, 0]);
        assert_eq!((functions(true).len(), functions(true)[3]), (16, 12));
        assert_eq!(functions(true)[0] & 0x20 != 0, ACA_SERVED);
    }
}
