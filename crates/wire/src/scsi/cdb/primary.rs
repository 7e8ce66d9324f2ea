//! Commands of SPC-4 that need no other command.

use super::{CdbError, Command, LogControl, LunSelect, PageControl, Report};
use crate::bytes::{get_array, get16, get24, get32};

pub(super) fn parse(b: &[u8; 16]) -> Result<Option<Command>, CdbError> {
    Ok(Some(match b[0] {
        0x00 => Command::TestUnitReady,
        0x03 => Command::RequestSense { descriptor: b[1] & 1 != 0, alloc: u32::from(b[4]) },
        0x12 => inquiry(b)?,
        0x15 => mode_select(b, false, u32::from(b[4])),
        0x55 => mode_select(b, true, u32::from(get16::<7, 16>(b))),
        0x1a => mode_sense(b, false, u32::from(b[4])),
        0x5a => mode_sense(b, true, u32::from(get16::<7, 16>(b))),
        0x1b => start_stop(b),
        0x1c => {
            let page = (b[1] & 1 != 0).then_some(b[2]);
            Command::ReceiveDiagnostic { page, alloc: u32::from(get16::<3, 16>(b)) }
        }
        0x1d => send_diagnostic(b),
        0x1e => Command::PreventAllow { prevent: b[4] & 3 },
        0x3b => {
            let (offset, len) = (get24::<3, 16>(b), get24::<6, 16>(b));
            Command::WriteBuffer { mode: b[1] & 0x1f, id: b[2], offset, len }
        }
        0x3c => {
            let (offset, alloc) = (u64::from(get24::<3, 16>(b)), get24::<6, 16>(b));
            Command::ReadBuffer { mode: b[1] & 0x1f, id: b[2], offset, alloc }
        }
        0x9b => {
            let offset = u64::from_be_bytes(get_array::<2, 8, 16>(b));
            Command::ReadBuffer { mode: b[1] & 0x1f, id: b[14], offset, alloc: get32::<10, 16>(b) }
        }
        0x4c => Command::LogSelect {
            reset: b[1] & 2 != 0,
            save: b[1] & 1 != 0,
            control: log_control(b),
            page: b[2] & 0x3f,
            subpage: b[3],
            len: u32::from(get16::<7, 16>(b)),
        },
        0x4d => Command::LogSense {
            save: b[1] & 1 != 0,
            control: log_control(b),
            page: b[2] & 0x3f,
            subpage: b[3],
            from: get16::<5, 16>(b),
            alloc: u32::from(get16::<7, 16>(b)),
        },
        0xa0 => Command::ReportLuns { select: select(b[2])?, alloc: get32::<6, 16>(b) },
        _ => return Ok(None),
    }))
}

/// MAINTENANCE IN; the table has let only known service actions through.
pub(super) fn maintenance_in(b: &[u8; 16]) -> Result<Command, CdbError> {
    let alloc = get32::<6, 16>(b);
    Ok(match b[1] & 0x1f {
        0x05 => Command::ReportIdentifying { kind: b[10] >> 1, alloc },
        0x0a => Command::ReportTargetPortGroups { extended: header_format(b[1])?, alloc },
        0x0c => report(b)?,
        0x0d => Command::ReportTaskManagement { extended: b[2] & 0x80 != 0, alloc },
        _ => Command::ReportTimestamp { alloc },
    })
}

/// MAINTENANCE OUT, likewise.
pub(super) fn maintenance_out(b: &[u8; 16]) -> Result<Command, CdbError> {
    let len = get32::<6, 16>(b);
    Ok(match b[1] & 0x1f {
        0x06 => Command::SetIdentifying { kind: b[10] >> 1, len },
        0x0a => Command::SetTargetPortGroups { len },
        _ => Command::SetTimestamp { len },
    })
}

fn inquiry(b: &[u8; 16]) -> Result<Command, CdbError> {
    let evpd = b[1] & 1 != 0;
    if !evpd && b[2] != 0 {
        return Err(CdbError::field(2, None));
    }
    let alloc = u32::from(get16::<3, 16>(b));
    Ok(Command::Inquiry { page: evpd.then_some(b[2]), alloc })
}

fn mode_select(b: &[u8; 16], ten: bool, len: u32) -> Command {
    Command::ModeSelect { ten, page_format: b[1] & 0x10 != 0, save: b[1] & 1 != 0, len }
}

fn mode_sense(b: &[u8; 16], ten: bool, alloc: u32) -> Command {
    let control = match b[2] >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => PageControl::Saved,
    };
    Command::ModeSense {
        ten,
        long_lba: b[1] & 0x10 != 0,
        no_blocks: b[1] & 0x08 != 0,
        control,
        page: b[2] & 0x3f,
        subpage: b[3],
        alloc,
    }
}

fn log_control(b: &[u8; 16]) -> LogControl {
    match b[2] >> 6 {
        0 => LogControl::Threshold,
        1 => LogControl::Cumulative,
        2 => LogControl::DefaultThreshold,
        _ => LogControl::DefaultCumulative,
    }
}

fn start_stop(b: &[u8; 16]) -> Command {
    Command::StartStop {
        immed: b[1] & 1 != 0,
        power: b[4] >> 4,
        modifier: b[3] & 0x0f,
        no_flush: b[4] & 4 != 0,
        eject: b[4] & 2 != 0,
        start: b[4] & 1 != 0,
    }
}

fn send_diagnostic(b: &[u8; 16]) -> Command {
    Command::SendDiagnostic {
        test: b[1] >> 5,
        page_format: b[1] & 0x10 != 0,
        default_test: b[1] & 4 != 0,
        device_offline: b[1] & 2 != 0,
        unit_offline: b[1] & 1 != 0,
        len: u32::from(get16::<3, 16>(b)),
    }
}

fn select(code: u8) -> Result<LunSelect, CdbError> {
    match code {
        0 => Ok(LunSelect::Units),
        1 => Ok(LunSelect::WellKnown),
        2 => Ok(LunSelect::All),
        _ => Err(CdbError::field(2, None)),
    }
}

fn header_format(byte: u8) -> Result<bool, CdbError> {
    match byte >> 5 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(CdbError::field(1, Some(7))),
    }
}

fn report(b: &[u8; 16]) -> Result<Command, CdbError> {
    let (opcode, action) = (b[3], get16::<4, 16>(b));
    let report = match b[2] & 7 {
        0 => Report::All,
        1 => Report::Opcode(opcode),
        2 => Report::Action(opcode, action),
        3 => Report::Either(opcode, action),
        _ => return Err(CdbError::field(2, Some(2))),
    };
    Ok(Command::ReportOpcodes { report, timeouts: b[2] & 0x80 != 0, alloc: get32::<6, 16>(b) })
}
