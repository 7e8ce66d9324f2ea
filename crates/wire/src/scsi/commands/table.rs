//! The rows, by opcode. Sources: SPC-4 section 6, SBC-3 section 5 (WRITE ATOMIC: SBC-4), MMC-6
//! section 6, SPC-2 for RESERVE and RELEASE.

use super::Direction::{self, Any, In, None as NoData, Out};
use super::{Access, CommandInfo, NACA, Times, Types, VARIABLE, VARIABLE_REST};

/// A row whose opcode has no service actions.
const fn row(
    name: &'static str,
    usage: &'static [u8],
    direction: Direction,
    access: Access,
    types: Types,
    times: Times,
) -> CommandInfo {
    CommandInfo {
        opcode: usage[0],
        service_action: None,
        name,
        usage,
        direction,
        access,
        types,
        times,
        reserved: 0,
    }
}

/// A row with a service action; the usage map has its value.
const fn action(
    name: &'static str,
    usage: &'static [u8],
    direction: Direction,
    access: Access,
    types: Types,
    times: Times,
) -> CommandInfo {
    let service_action = match usage[0] {
        VARIABLE => (usage[8] as u16) << 8 | usage[9] as u16,
        _ => (usage[1] & 0x1f) as u16,
    };
    let plain = row(name, usage, direction, access, types, times);
    CommandInfo { service_action: Some(service_action), ..plain }
}

/// An all-ones field byte in the maps below.
const F: u8 = 0xff;
/// Control byte: NACA.
const C: u8 = NACA;
/// RDPROTECT or WRPROTECT, DPO, FUA and the obsolete FUA_NV, which is ignored.
const RW: u8 = 0xfa;
/// Protection field, DPO, FUA.
const ATOM: u8 = 0xf8;
/// VRPROTECT, DPO and BYTCHK.
const VER: u8 = 0xf6;
/// WRPROTECT, ANCHOR, UNMAP; [`SAME`] with NDOB.
const SAME10: u8 = 0xf8;
/// See [`SAME10`].
const SAME: u8 = 0xf9;
/// GROUP NUMBER, ignored.
const G: u8 = 0x1f;
/// ADDITIONAL CDB LENGTH.
const L: u8 = VARIABLE_REST;
/// Variable-length opcode.
const V: u8 = VARIABLE;

const D: Types = Types::DISK;
const CD: Types = Types::CDROM;
const ALL: Types = Types::ALL;

/// Answered from memory.
const QUICK: Times = Times { nominal_s: 1, recommended_s: 10 };
/// One access to the medium.
const MEDIUM: Times = Times { nominal_s: 2, recommended_s: 60 };
/// A cache to flush, or a run of blocks that one transfer does not bound.
const LONG: Times = Times { nominal_s: 10, recommended_s: 300 };
/// The whole medium.
const WHOLE: Times = Times { nominal_s: 60, recommended_s: 86_400 };

/// One line a row: constructor, name, usage map, direction, access rules, types, times.
macro_rules! table {
    ($($make:ident $name:literal [$($usage:expr),*] $direction:ident $access:ident $types:ident
        $times:ident;)*) => {
        /// Every command that is parsed, by opcode; a unit serves some of those of its type.
        pub const COMMANDS: &[CommandInfo] = &[$(
            $make($name, &[$($usage),*], $direction, Access::$access, $types, $times)
                .with_reserved()
        ),*];
    };
}

table! {
    row "TEST UNIT READY" [0x00, 0, 0, 0, 0, C] NoData READY ALL QUICK;
    row "REZERO UNIT" [0x01, 0, 0, 0, 0, C] NoData READ D QUICK;
    row "REQUEST SENSE" [0x03, 0x01, 0, 0, F, C] In FREE ALL QUICK;
    row "FORMAT UNIT" [0x04, F, 0, 0, 0, C] Any WRITE D WHOLE;
    row "READ(6)" [0x08, 0x1f, F, F, F, C] In READ D MEDIUM;
    row "WRITE(6)" [0x0a, 0x1f, F, F, F, C] Out WRITE D MEDIUM;
    row "SEEK(6)" [0x0b, 0x1f, F, F, 0, C] NoData READ D QUICK;
    row "INQUIRY" [0x12, 0x01, F, F, F, C] In FREE ALL QUICK;
    row "MODE SELECT(6)" [0x15, 0x11, 0, 0, F, C] Out WRITE_STATE ALL LONG;
    row "RESERVE(6)" [0x16, 0, 0, 0, 0, C] NoData RESERVE D QUICK;
    row "RELEASE(6)" [0x17, 0, 0, 0, 0, C] NoData RELEASE D QUICK;
    row "MODE SENSE(6)" [0x1a, 0x08, F, F, F, C] In READ_STATE ALL QUICK;
    row "START STOP UNIT" [0x1b, 0x01, 0, 0x0f, 0xf7, C] NoData START_STOP ALL LONG;
    row "RECEIVE DIAGNOSTIC RESULTS" [0x1c, 0x01, F, F, F, C] In READ_STATE D QUICK;
    row "SEND DIAGNOSTIC" [0x1d, 0xf7, 0, F, F, C] Out WRITE_STATE D LONG;
    row "PREVENT ALLOW MEDIUM REMOVAL" [0x1e, 0, 0, 0, 0x03, C] NoData PREVENT ALL QUICK;
    row "READ CAPACITY(10)" [0x25, 0, 0, 0, 0, 0, 0, 0, 0, C] In FACTS ALL QUICK;
    row "READ(10)" [0x28, RW, F, F, F, F, G, F, F, C] In READ ALL MEDIUM;
    row "WRITE(10)" [0x2a, RW, F, F, F, F, G, F, F, C] Out WRITE D MEDIUM;
    row "SEEK(10)" [0x2b, 0, F, F, F, F, 0, 0, 0, C] NoData READ ALL QUICK;
    row "WRITE AND VERIFY(10)" [0x2e, VER, F, F, F, F, G, F, F, C] Out WRITE D MEDIUM;
    row "VERIFY(10)" [0x2f, VER, F, F, F, F, G, F, F, C] Any READ D MEDIUM;
    row "PRE-FETCH(10)" [0x34, 0x02, F, F, F, F, G, F, F, C] NoData READ D MEDIUM;
    row "SYNCHRONIZE CACHE(10)" [0x35, 0x06, F, F, F, F, G, F, F, C] NoData WRITE D LONG;
    row "READ DEFECT DATA(10)" [0x37, 0, G, 0, 0, 0, 0, F, F, C] In READ D QUICK;
    row "WRITE BUFFER" [0x3b, 0x1f, F, F, F, F, F, F, F, C] Out WRITE_BUFFER D QUICK;
    row "READ BUFFER(10)" [0x3c, 0x1f, F, F, F, F, F, F, F, C] In READ_BUFFER D QUICK;
    row "WRITE SAME(10)" [0x41, SAME10, F, F, F, F, G, F, F, C] Out WRITE D LONG;
    row "UNMAP" [0x42, 0x01, 0, 0, 0, 0, G, F, F, C] Out WRITE D LONG;
    row "READ SUB-CHANNEL" [0x42, 0x02, 0x40, F, 0, 0, F, F, F, C] In READ CD MEDIUM;
    row "READ TOC/PMA/ATIP" [0x43, 0x02, 0x0f, 0, 0, 0, F, F, F, C] In READ CD MEDIUM;
    row "GET CONFIGURATION" [0x46, 0x03, F, F, 0, 0, 0, F, F, C] In QUERY CD QUICK;
    action "SANITIZE, OVERWRITE" [0x48, 0xa1, 0, 0, 0, 0, 0, F, F, C] Out WRITE D WHOLE;
    action "SANITIZE, BLOCK ERASE" [0x48, 0xa2, 0, 0, 0, 0, 0, 0, 0, C] NoData WRITE D WHOLE;
    action "SANITIZE, CRYPTOGRAPHIC ERASE" [0x48, 0xa3, 0, 0, 0, 0, 0, 0, 0, C]
        NoData WRITE D WHOLE;
    action "SANITIZE, EXIT FAILURE MODE" [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, C] NoData WRITE D QUICK;
    row "GET EVENT STATUS NOTIFICATION" [0x4a, 0x01, 0, 0, F, 0, 0, F, F, C] In QUERY CD QUICK;
    row "LOG SELECT" [0x4c, 0x03, F, F, 0, 0, 0, F, F, C] Out WRITE_STATE D QUICK;
    row "LOG SENSE" [0x4d, 0x01, F, F, 0, F, F, F, F, C] In FACTS D QUICK;
    row "READ DISC INFORMATION" [0x51, 0x07, 0, 0, 0, 0, 0, F, F, C] In READ CD MEDIUM;
    row "READ TRACK INFORMATION" [0x52, 0x07, F, F, F, F, 0, F, F, C] In READ CD MEDIUM;
    row "MODE SELECT(10)" [0x55, 0x11, 0, 0, 0, 0, 0, F, F, C] Out WRITE_STATE ALL LONG;
    row "RESERVE(10)" [0x56, 0, 0, 0, 0, 0, 0, 0, 0, C] NoData RESERVE D QUICK;
    row "RELEASE(10)" [0x57, 0, 0, 0, 0, 0, 0, 0, 0, C] NoData RELEASE D QUICK;
    row "MODE SENSE(10)" [0x5a, 0x18, F, F, 0, 0, 0, F, F, C] In READ_STATE ALL QUICK;
    action "PERSISTENT RESERVE IN, READ KEYS" [0x5e, 0, 0, 0, 0, 0, 0, F, F, C] In QUERY D QUICK;
    action "PERSISTENT RESERVE IN, READ RESERVATION" [0x5e, 1, 0, 0, 0, 0, 0, F, F, C]
        In QUERY D QUICK;
    action "PERSISTENT RESERVE IN, REPORT CAPABILITIES" [0x5e, 2, 0, 0, 0, 0, 0, F, F, C]
        In QUERY D QUICK;
    action "PERSISTENT RESERVE IN, READ FULL STATUS" [0x5e, 3, 0, 0, 0, 0, 0, F, F, C]
        In QUERY D QUICK;
    action "PERSISTENT RESERVE OUT, REGISTER" [0x5f, 0, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, RESERVE" [0x5f, 1, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, RELEASE" [0x5f, 2, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, CLEAR" [0x5f, 3, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, PREEMPT" [0x5f, 4, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, PREEMPT AND ABORT" [0x5f, 5, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D LONG;
    action "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY"
        [0x5f, 6, F, 0, 0, F, F, F, F, C] Out PERSISTENT_OUT D QUICK;
    action "PERSISTENT RESERVE OUT, REGISTER AND MOVE" [0x5f, 7, F, 0, 0, F, F, F, F, C]
        Out PERSISTENT_OUT D QUICK;
    action "READ(32)"
        [V, C, 0, 0, 0, 0, G, L, 0, 0x09, RW, 0, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F,
         F, F, F, F] In READ D MEDIUM;
    action "VERIFY(32)"
        [V, C, 0, 0, 0, 0, G, L, 0, 0x0a, VER, 0, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F,
         F, F, F, F] Any READ D MEDIUM;
    action "WRITE(32)"
        [V, C, 0, 0, 0, 0, G, L, 0, 0x0b, RW, 0, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F,
         F, F, F, F] Out WRITE D MEDIUM;
    action "WRITE AND VERIFY(32)"
        [V, C, 0, 0, 0, 0, G, L, 0, 0x0c, VER, 0, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F,
         F, F, F, F] Out WRITE D MEDIUM;
    action "WRITE SAME(32)"
        [V, C, 0, 0, 0, 0, G, L, 0, 0x0d, SAME, 0, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, F,
         F, F, F, F] Any WRITE D LONG;
    action "EXTENDED COPY(LID1)" [0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        Out WRITE D LONG;
    action "EXTENDED COPY(LID4)" [0x83, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        Out WRITE D LONG;
    action "POPULATE TOKEN" [0x83, 0x10, 0, 0, 0, 0, F, F, F, F, F, F, F, F, G, C]
        Out READ D LONG;
    action "WRITE USING TOKEN" [0x83, 0x11, 0, 0, 0, 0, F, F, F, F, F, F, F, F, G, C]
        Out WRITE D LONG;
    action "COPY OPERATION ABORT" [0x83, 0x1c, F, F, F, F, 0, 0, 0, 0, 0, 0, 0, 0, 0, C]
        NoData WRITE D QUICK;
    action "RECEIVE COPY STATUS(LID1)" [0x84, 0x00, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        In READ D QUICK;
    action "RECEIVE COPY DATA(LID1)" [0x84, 0x01, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        In READ D QUICK;
    action "RECEIVE COPY OPERATING PARAMETERS"
        [0x84, 0x03, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] In READ D QUICK;
    action "RECEIVE COPY FAILURE DETAILS(LID1)"
        [0x84, 0x04, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] In READ D QUICK;
    action "RECEIVE COPY STATUS(LID4)" [0x84, 0x05, F, F, F, F, 0, 0, 0, 0, F, F, F, F, 0, C]
        In READ D QUICK;
    action "RECEIVE ROD TOKEN INFORMATION"
        [0x84, 0x07, F, F, F, F, 0, 0, 0, 0, F, F, F, F, 0, C] In READ D QUICK;
    action "REPORT ALL ROD TOKENS" [0x84, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        In READ D QUICK;
    row "READ(16)" [0x88, RW, F, F, F, F, F, F, F, F, F, F, F, F, G, C] In READ D MEDIUM;
    row "COMPARE AND WRITE" [0x89, RW, F, F, F, F, F, F, F, F, 0, 0, 0, F, G, C]
        Out WRITE D MEDIUM;
    row "WRITE(16)" [0x8a, RW, F, F, F, F, F, F, F, F, F, F, F, F, G, C] Out WRITE D MEDIUM;
    row "ORWRITE(16)" [0x8b, RW, F, F, F, F, F, F, F, F, F, F, F, F, G, C] Out WRITE D MEDIUM;
    row "WRITE AND VERIFY(16)" [0x8e, VER, F, F, F, F, F, F, F, F, F, F, F, F, G, C]
        Out WRITE D MEDIUM;
    row "VERIFY(16)" [0x8f, VER, F, F, F, F, F, F, F, F, F, F, F, F, G, C] Any READ D MEDIUM;
    row "PRE-FETCH(16)" [0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, G, C]
        NoData READ D MEDIUM;
    row "SYNCHRONIZE CACHE(16)" [0x91, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, G, C]
        NoData WRITE D LONG;
    row "WRITE SAME(16)" [0x93, SAME, F, F, F, F, F, F, F, F, F, F, F, F, G, C] Any WRITE D LONG;
    row "READ BUFFER(16)" [0x9b, 0x1f, F, F, F, F, F, F, F, F, F, F, F, F, F, C]
        In READ_BUFFER D QUICK;
    row "WRITE ATOMIC(16)" [0x9c, ATOM, F, F, F, F, F, F, F, F, F, F, F, F, G, C]
        Out WRITE D MEDIUM;
    action "READ CAPACITY(16)" [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C]
        In FACTS D QUICK;
    action "GET LBA STATUS(16)" [0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, C]
        In READ D MEDIUM;
    row "REPORT LUNS" [0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, C] In FREE ALL QUICK;
    action "REPORT IDENTIFYING INFORMATION" [0xa3, 0x05, 0, 0, 0, 0, F, F, F, F, 0xfe, C]
        In FACTS D QUICK;
    action "REPORT TARGET PORT GROUPS" [0xa3, 0xea, 0, 0, 0, 0, F, F, F, F, 0, C]
        In FREE ALL QUICK;
    action "REPORT SUPPORTED OPERATION CODES" [0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, C]
        In READ_STATE ALL QUICK;
    action "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS"
        [0xa3, 0x0d, 0x80, 0, 0, 0, F, F, F, F, 0, C] In READ_STATE ALL QUICK;
    action "REPORT TIMESTAMP" [0xa3, 0x0f, 0, 0, 0, 0, F, F, F, F, 0, C] In FACTS D QUICK;
    action "SET IDENTIFYING INFORMATION" [0xa4, 0x06, 0, 0, 0, 0, F, F, F, F, 0xfe, C]
        Out WRITE_STATE D QUICK;
    action "SET TARGET PORT GROUPS" [0xa4, 0x0a, 0, 0, 0, 0, F, F, F, F, 0, C]
        Out SET_GROUPS ALL LONG;
    action "SET TIMESTAMP" [0xa4, 0x0f, 0, 0, 0, 0, F, F, F, F, 0, C] Out WRITE_STATE D QUICK;
    row "READ(12)" [0xa8, RW, F, F, F, F, F, F, F, F, G, C] In READ ALL MEDIUM;
    row "WRITE(12)" [0xaa, RW, F, F, F, F, F, F, F, F, G, C] Out WRITE D MEDIUM;
    row "READ DISC STRUCTURE" [0xad, 0x0f, F, F, F, F, F, F, F, F, 0xc0, C] In READ CD MEDIUM;
    row "WRITE AND VERIFY(12)" [0xae, VER, F, F, F, F, F, F, F, F, G, C] Out WRITE D MEDIUM;
    row "VERIFY(12)" [0xaf, VER, F, F, F, F, F, F, F, F, G, C] Any READ D MEDIUM;
    row "READ DEFECT DATA(12)" [0xb7, G, F, F, F, F, F, F, F, F, 0, C] In READ D QUICK;
    row "SET CD SPEED" [0xbb, 0x03, F, F, F, F, 0, 0, 0, 0, 0, C] NoData WRITE CD QUICK;
    row "MECHANISM STATUS" [0xbd, 0, 0, 0, 0, 0, 0, 0, F, F, 0, C] In QUERY CD QUICK;
    row "READ CD" [0xbe, 0x1f, F, F, F, F, F, F, F, 0xfe, 0x07, C] In READ CD MEDIUM;
}
