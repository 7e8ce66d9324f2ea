//! REPORT SUPPORTED OPERATION CODES (SPC-4 6.35).

use super::{CdbError, CommandInfo};

/// The request of REPORT SUPPORTED OPERATION CODES (SPC-4 6.35.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// 000b: every command.
    All,
    /// 001b: one opcode that has no service actions.
    Opcode(u8),
    /// 010b: one opcode with a service action.
    Action(u8, u16),
    /// 011b: either.
    Either(u8, u16),
}

/// Parameter data of REPORT SUPPORTED OPERATION CODES, not truncated. `commands` are those that the
/// unit serves; `timeouts` is the RCTD bit.
pub fn report_opcodes(
    commands: &[&CommandInfo],
    report: Report,
    timeouts: bool,
) -> Result<Vec<u8>, CdbError> {
    let (opcode, wanted) = match report {
        Report::All => return Ok(report_all(commands, timeouts)),
        Report::Opcode(opcode) => (opcode, None),
        Report::Action(opcode, action) | Report::Either(opcode, action) => (opcode, Some(action)),
    };
    let mut of_opcode = commands.iter().filter(|info| info.opcode == opcode).peekable();
    let has_actions = of_opcode.peek().map(|info| info.service_action.is_some());
    match (report, has_actions) {
        (Report::Opcode(_), Some(true)) | (Report::Action(..), Some(false)) => {
            return Err(CdbError::field(2, Some(2)));
        }
        _ => {}
    }
    let found = of_opcode.find(|info| match (info.service_action, wanted) {
        (Some(action), Some(wanted)) => action == wanted,
        (None, Some(wanted)) => wanted == 0,
        (None, None) => true,
        (Some(_), None) => false,
    });
    let Some(info) = found else { return Ok(vec![0, 1, 0, 0]) };
    let flags = 3 | if timeouts { 0x80 } else { 0 };
    let mut out = vec![0, flags];
    out.extend(len16(info));
    out.extend_from_slice(info.usage);
    if timeouts {
        out.extend(timeouts_of(info));
    }
    Ok(out)
}

fn timeouts_of(info: &CommandInfo) -> [u8; 12] {
    let [a, b, c, d] = info.times.nominal_s.to_be_bytes();
    let [e, f, g, h] = info.times.recommended_s.to_be_bytes();
    [0, 10, 0, 0, a, b, c, d, e, f, g, h]
}

fn len16(info: &CommandInfo) -> [u8; 2] {
    u16::try_from(info.cdb_len()).unwrap_or(0).to_be_bytes()
}

fn report_all(commands: &[&CommandInfo], timeouts: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    for info in commands {
        let flags = u8::from(info.service_action.is_some()) | if timeouts { 2 } else { 0 };
        let [high, low] = info.service_action.unwrap_or(0).to_be_bytes();
        out.extend([info.opcode, 0, high, low, 0, flags]);
        out.extend(len16(info));
        if timeouts {
            out.extend(timeouts_of(info));
        }
    }
    let len = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_be_bytes();
    }
    out
}
