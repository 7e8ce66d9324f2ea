//! LOG SENSE and LOG SELECT (SPC-4 6.7, 6.8). Counters are those of the unit, of all initiators
//! together, since it was made or since a LOG SELECT put them back to zero. None is saved.

use wire::scsi::{Command as Cdb, LogControl, LogCounts, Sense, asc, is_log_page, log_page};

use crate::handlers::ImmediateCommand;
use crate::plan::Plan;
use crate::unit::Device;

pub(super) fn plan(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let counts = LogCounts { space: device.space_counts(), ..LogCounts::default() };
    match *command {
        Cdb::LogSense { save: true, .. } | Cdb::LogSelect { save: true, .. } => {
            Err(Sense::cdb_field(1, Some(0)))
        }
        Cdb::LogSense { control, alloc, .. } => match control {
            // There are no thresholds.
            LogControl::Cumulative | LogControl::DefaultCumulative => Ok(Plan::reply(alloc)),
            _ => Err(Sense::cdb_field(2, Some(7))),
        },
        Cdb::LogSelect { reset, page, subpage, len, .. } => {
            // Nothing can be set by a list, only put back.
            if len != 0 {
                return Err(Sense::cdb_field(7, None));
            }
            if (page, subpage) != (0, 0) {
                let at = if is_log_page(page, 0, &counts) { (3, None) } else { (2, Some(5)) };
                return match is_log_page(page, subpage, &counts) && !reset {
                    true => Ok(Plan::NOTHING),
                    false => Err(Sense::cdb_field(at.0, at.1)),
                };
            }
            Ok(Plan::NOTHING)
        }
        _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
    }
}

pub(super) fn sense(ask: &mut ImmediateCommand<'_>, device: &Device) -> Result<(), Sense> {
    let Cdb::LogSense { control, page, subpage, from, .. } = *ask.command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let counts = match control {
        LogControl::Cumulative => device.counts(ask.core.now()),
        // How full it is has no default.
        _ => LogCounts { space: device.space_counts(), ..LogCounts::default() },
    };
    ask.reply.extend(log_page(page, subpage, from, &counts)?);
    Ok(())
}

/// PCR resets all counters to zero; the other nexuses are notified.
pub(super) fn select(ask: &mut ImmediateCommand<'_>, device: &Device) -> Result<(), Sense> {
    let Cdb::LogSelect { reset, .. } = *ask.command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    if reset {
        device.reset_counts();
        device.raise(asc::LOG_CHANGED, ask.nexus);
    }
    Ok(())
}
