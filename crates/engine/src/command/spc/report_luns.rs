//! REPORT LUNS (SPC-4 6.33): the initiator's own view. There are no well-known units.

use wire::scsi::{Command as Cdb, Lun, LunSelect, Sense, asc, report_luns_into};

use super::EngineCommand;
use crate::handlers::ImmediateCommand;
use crate::plan::Plan;
use crate::unit::Device;

pub(super) struct ReportLuns;

impl EngineCommand for ReportLuns {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::ReportLuns { alloc, .. } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        Ok(Plan::reply(alloc))
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        answer(ask);
        Ok(())
    }
}

/// The list; an initiator that has received it needs no notification of its change.
pub(crate) fn answer(ask: &mut ImmediateCommand<'_>) {
    let Cdb::ReportLuns { select, .. } = *ask.command else { return };
    let wanted = select != LunSelect::WellKnown;
    let entries = ask.luns.iter().filter(|_| wanted);
    let numbers = entries.filter_map(|e| Lun::new(u32::try_from(e.lun).ok()?));
    report_luns_into(ask.reply, numbers, ask.luns.addressing());
    if wanted {
        ask.reported_attention = Some(asc::LUNS_CHANGED);
    }
}
