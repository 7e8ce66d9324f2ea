//! The table of commands. Parsing rules and REPORT SUPPORTED OPERATION CODES both come from it: a
//! bit that the usage map does not have must be zero in a CDB.

use super::cdb::CdbError;
use Direction::{In, None as NoData, Out};

/// Where a command's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// Operation code.
    pub opcode: u8,
    /// Service action (byte 1, low five bits); None when the opcode has none.
    pub service_action: Option<u8>,
    /// The standard's name.
    pub name: &'static str,
    /// CDB usage data (SPC-4 6.35.3), as long as the CDB: byte 0 the opcode, then a bit for each
    /// one that is looked at; the service action stands with its value.
    pub usage: &'static [u8],
    /// Where the data goes.
    pub direction: Direction,
}

impl CommandInfo {
    /// CDB length in bytes: 6, 10, 12 or 16.
    pub const fn cdb_len(&self) -> usize {
        self.usage.len()
    }

    /// The bits of byte `at` that may be set.
    fn mask(&self, at: usize) -> u8 {
        let usage = self.usage.get(at).copied().unwrap_or(0);
        match (at, self.service_action) {
            (0, _) => 0xff,
            (1, Some(_)) => usage | 0x1f,
            _ if self.is_control(at) => usage | NACA,
            _ => usage,
        }
    }

    /// Byte `at` is the CONTROL byte (SAM-5 5.2): the last one.
    fn is_control(&self, at: usize) -> bool {
        at + 1 == self.cdb_len()
    }

    /// The usage map as REPORT SUPPORTED OPERATION CODES tells it: with NACA in the CONTROL byte.
    fn usage_data(&self) -> impl Iterator<Item = u8> {
        let naca = |at| if self.is_control(at) { NACA } else { 0 };
        self.usage.iter().enumerate().map(move |(at, byte)| byte | naca(at))
    }

    /// Checks that nothing outside the usage map is set.
    pub(crate) fn check(&self, cdb: &[u8]) -> Result<(), CdbError> {
        for at in 0..self.cdb_len() {
            let byte = *cdb.get(at).ok_or(CdbError::field(at, None))?;
            let wrong = byte & !self.mask(at);
            if wrong != 0 {
                return Err(CdbError::field(at, u8::try_from(wrong.ilog2()).ok()));
            }
        }
        Ok(())
    }
}

/// CONTROL byte: a CHECK CONDITION of this command establishes an auto contingent allegiance.
pub const NACA: u8 = 0x04;

const fn plain(name: &'static str, usage: &'static [u8], direction: Direction) -> CommandInfo {
    CommandInfo { opcode: usage[0], service_action: None, name, usage, direction }
}

const fn action(name: &'static str, usage: &'static [u8], direction: Direction) -> CommandInfo {
    let service_action = Some(usage[1] & 0x1f);
    CommandInfo { opcode: usage[0], service_action, name, usage, direction }
}

/// An all-ones field byte in the maps below.
const F: u8 = 0xff;
/// DPO, FUA and the obsolete FUA_NV, which is ignored.
const RW: u8 = 0x1a;
/// DPO and BYTCHK.
const VER: u8 = 0x16;
/// GROUP NUMBER, ignored.
const GRP: u8 = 0x1f;

/// Every command of a direct-access device that is parsed, by opcode. A handler that serves fewer
/// passes a filtered list to [`report_opcodes`].
pub const COMMANDS: &[CommandInfo] = &[
    plain("TEST UNIT READY", &[0x00, 0, 0, 0, 0, 0], NoData),
    plain("REQUEST SENSE", &[0x03, 0x01, 0, 0, F, 0], In),
    plain("READ(6)", &[0x08, 0x1f, F, F, F, 0], In),
    plain("WRITE(6)", &[0x0a, 0x1f, F, F, F, 0], Out),
    plain("INQUIRY", &[0x12, 0x01, F, F, F, 0], In),
    plain("MODE SELECT(6)", &[0x15, 0x11, 0, 0, F, 0], Out),
    plain("MODE SENSE(6)", &[0x1a, 0x08, F, F, F, 0], In),
    plain("START STOP UNIT", &[0x1b, 0x01, 0, 0x0f, 0xf7, 0], NoData),
    plain("PREVENT ALLOW MEDIUM REMOVAL", &[0x1e, 0, 0, 0, 0x03, 0], NoData),
    plain("READ CAPACITY(10)", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], In),
    plain("READ(10)", &[0x28, RW, F, F, F, F, GRP, F, F, 0], In),
    plain("WRITE(10)", &[0x2a, RW, F, F, F, F, GRP, F, F, 0], Out),
    plain("WRITE AND VERIFY(10)", &[0x2e, VER, F, F, F, F, GRP, F, F, 0], Out),
    plain("VERIFY(10)", &[0x2f, VER, F, F, F, F, GRP, F, F, 0], Out),
    plain("PRE-FETCH(10)", &[0x34, 0x02, F, F, F, F, GRP, F, F, 0], NoData),
    plain("SYNCHRONIZE CACHE(10)", &[0x35, 0x06, F, F, F, F, GRP, F, F, 0], NoData),
    plain("WRITE SAME(10)", &[0x41, 0x18, F, F, F, F, GRP, F, F, 0], Out),
    plain("UNMAP", &[0x42, 0x01, 0, 0, 0, 0, GRP, F, F, 0], Out),
    plain("MODE SELECT(10)", &[0x55, 0x11, 0, 0, 0, 0, 0, F, F, 0], Out),
    plain("MODE SENSE(10)", &[0x5a, 0x18, F, F, 0, 0, 0, F, F, 0], In),
    plain("READ(16)", &[0x88, RW, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], In),
    plain("WRITE(16)", &[0x8a, RW, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], Out),
    plain("WRITE AND VERIFY(16)", &[0x8e, VER, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], Out),
    plain("VERIFY(16)", &[0x8f, VER, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], Out),
    plain("PRE-FETCH(16)", &[0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], NoData),
    plain(
        "SYNCHRONIZE CACHE(16)",
        &[0x91, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0],
        NoData,
    ),
    plain("WRITE SAME(16)", &[0x93, 0x19, F, F, F, F, F, F, F, F, F, F, F, F, GRP, 0], Out),
    action("READ CAPACITY(16)", &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0], In),
    action("GET LBA STATUS", &[0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0], In),
    plain("REPORT LUNS", &[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 0], In),
    action("REPORT TARGET PORT GROUPS", &[0xa3, 0xea, 0, 0, 0, 0, F, F, F, F, 0, 0], In),
    action("REPORT SUPPORTED OPERATION CODES", &[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, 0], In),
    plain("READ(12)", &[0xa8, RW, F, F, F, F, F, F, F, F, GRP, 0], In),
    plain("WRITE(12)", &[0xaa, RW, F, F, F, F, F, F, F, F, GRP, 0], Out),
    plain("WRITE AND VERIFY(12)", &[0xae, VER, F, F, F, F, F, F, F, F, GRP, 0], Out),
    plain("VERIFY(12)", &[0xaf, VER, F, F, F, F, F, F, F, F, GRP, 0], Out),
];

/// No row of [`COMMANDS`] has the opcode.
const NO_ROW: u8 = u8::MAX;

/// First row of [`COMMANDS`] by opcode; rows of one opcode stand together.
static FIRST_ROW: [u8; 256] = first_rows();

const fn first_rows() -> [u8; 256] {
    assert!(COMMANDS.len() < NO_ROW as usize);
    let mut rows = [NO_ROW; 256];
    let mut i = COMMANDS.len();
    while i > 0 {
        i -= 1;
        rows[COMMANDS[i].opcode as usize] = i as u8;
    }
    rows
}

/// Looks a CDB up by opcode and service action. An opcode that only has other service actions is an
/// invalid field; an unknown one is an invalid opcode.
pub fn find(cdb: &[u8]) -> Result<&'static CommandInfo, CdbError> {
    let opcode = *cdb.first().ok_or(CdbError::Opcode)?;
    let first = FIRST_ROW.get(usize::from(opcode)).copied().unwrap_or(NO_ROW);
    let rows = COMMANDS.get(usize::from(first)..).ok_or(CdbError::Opcode)?;
    for info in rows.iter().take_while(|info| info.opcode == opcode) {
        match (info.service_action, cdb.get(1)) {
            (None, _) => return Ok(info),
            (Some(action), Some(byte)) if byte & 0x1f == action => return Ok(info),
            _ => {}
        }
    }
    Err(CdbError::field(1, Some(4)))
}

/// What REPORT SUPPORTED OPERATION CODES asks for (SPC-4 6.35.1).
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

/// Parameter data of REPORT SUPPORTED OPERATION CODES, not truncated. `timeouts` is the RCTD bit:
/// no timeouts are given, the descriptors say so.
pub fn report_opcodes(
    commands: &[CommandInfo],
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
        (Some(action), Some(wanted)) => u16::from(action) == wanted,
        (None, Some(wanted)) => wanted == 0,
        (None, None) => true,
        (Some(_), None) => false,
    });
    let Some(info) = found else { return Ok(vec![0, 1, 0, 0]) };
    let flags = 3 | if timeouts { 0x80 } else { 0 };
    let mut out = vec![0, flags];
    out.extend(len16(info));
    out.extend(info.usage_data());
    if timeouts {
        out.extend(NO_TIMEOUTS);
    }
    Ok(out)
}

/// A command timeouts descriptor that names none.
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn len16(info: &CommandInfo) -> [u8; 2] {
    u16::try_from(info.cdb_len()).unwrap_or(0).to_be_bytes()
}

fn report_all(commands: &[CommandInfo], timeouts: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    for info in commands {
        let flags = u8::from(info.service_action.is_some()) | if timeouts { 2 } else { 0 };
        let action = info.service_action.unwrap_or(0);
        out.extend([info.opcode, 0, 0, action, 0, flags]);
        out.extend(len16(info));
        if timeouts {
            out.extend(NO_TIMEOUTS);
        }
    }
    let len = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_be_bytes();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for (i, info) in COMMANDS.iter().enumerate() {
            // The length follows from the opcode's group (SPC-4 4.3.4.2).
            let len = [6, 10, 10, 0, 16, 12, 0, 0][usize::from(info.opcode >> 5)];
            assert_eq!(info.cdb_len(), len, "{}", info.name);
            let same = |o: &CommandInfo| {
                (o.opcode, o.service_action) == (info.opcode, info.service_action)
            };
            assert!(!COMMANDS[..i].iter().any(same), "{} stands twice", info.name);
            assert_eq!(find(info.usage), Ok(info));
            let before = i.checked_sub(1).map_or(0, |b| COMMANDS[b].opcode);
            assert!(before <= info.opcode, "{} is not at its place", info.name);
        }
    }

    #[test]
    fn unknown_opcodes_and_actions_differ() {
        assert_eq!(find(&[0xff, 0]), Err(CdbError::Opcode));
        assert_eq!(find(&[0x5f, 0]), Err(CdbError::Opcode));
        assert_eq!(find(&[]), Err(CdbError::Opcode));
        for action in [0x00, 0x11, 0x1f] {
            assert_eq!(find(&[0x9e, action]), Err(CdbError::field(1, Some(4))));
        }
        assert_eq!(find(&[0xa3]), Err(CdbError::field(1, Some(4))));
    }

    #[test]
    fn reports() {
        let all = report_opcodes(COMMANDS, Report::All, false).unwrap();
        assert_eq!(all.len(), 4 + 8 * COMMANDS.len());
        assert_eq!(all[..4], (8 * COMMANDS.len() as u32).to_be_bytes());
        let timed = report_opcodes(COMMANDS, Report::All, true).unwrap();
        assert_eq!(timed.len(), 4 + 20 * COMMANDS.len());
        let one = report_opcodes(COMMANDS, Report::Opcode(0x12), false).unwrap();
        assert_eq!(one, [0, 3, 0, 6, 0x12, 1, 0xff, 0xff, 0xff, NACA]);
        let one = report_opcodes(COMMANDS, Report::Opcode(0x12), true).unwrap();
        assert_eq!((one[1], one.len()), (0x83, 22));
        let none = vec![0, 1, 0, 0];
        for report in [
            Report::Opcode(0xff),
            Report::Action(0xff, 0),
            Report::Action(0x9e, 0x1f),
            Report::Action(0x9e, 0xffff),
            Report::Either(0x12, 1),
            Report::Either(0x9e, 0),
        ] {
            assert_eq!(report_opcodes(COMMANDS, report, false).unwrap(), none, "{report:?}");
        }
        assert!(report_opcodes(COMMANDS, Report::Opcode(0x9e), false).is_err());
        assert!(report_opcodes(COMMANDS, Report::Action(0x12, 0), false).is_err());
        assert_eq!(report_opcodes(COMMANDS, Report::Either(0x12, 0), false).unwrap()[1], 3);
        assert_eq!(report_opcodes(COMMANDS, Report::Either(0x9e, 0x10), false).unwrap()[1], 3);
    }

    /// Supported by the report exactly when the command is found.
    #[test]
    fn the_report_agrees_with_the_parser() {
        for opcode in 0..=255u8 {
            for action in 0..32u8 {
                let report = report_opcodes(COMMANDS, Report::Either(opcode, action.into()), false);
                let has_actions = COMMANDS
                    .iter()
                    .any(|info| info.opcode == opcode && info.service_action.is_some());
                if has_actions || action == 0 {
                    let supported = report.unwrap()[1] == 3;
                    assert_eq!(supported, find(&[opcode, action]).is_ok());
                }
            }
        }
    }
}
