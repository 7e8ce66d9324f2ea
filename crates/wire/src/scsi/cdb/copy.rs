//! EXTENDED COPY, tokens and RECEIVE COPY (SPC-4 6.4, 6.5, 6.20 to 6.27; SBC-3 5.7, 5.49).

use super::{CdbError, Command};
use crate::bytes::get32;

/// A copy command with a parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOut {
    /// 83h/00h: EXTENDED COPY with a one-byte list identifier.
    Lid1,
    /// 83h/01h: EXTENDED COPY with a four-byte list identifier.
    Lid4,
    /// 83h/10h: POPULATE TOKEN.
    PopulateToken,
    /// 83h/11h: WRITE USING TOKEN.
    WriteUsingToken,
}

/// A request to the copy manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStatus {
    /// 84h/00h: RECEIVE COPY STATUS(LID1).
    StatusLid1,
    /// 84h/01h: RECEIVE COPY DATA(LID1).
    HeldData,
    /// 84h/03h: RECEIVE COPY OPERATING PARAMETERS.
    Parameters,
    /// 84h/04h: RECEIVE COPY FAILURE DETAILS(LID1).
    FailureDetails,
    /// 84h/05h: RECEIVE COPY STATUS(LID4).
    StatusLid4,
    /// 84h/07h: RECEIVE ROD TOKEN INFORMATION.
    TokenInformation,
    /// 84h/08h: REPORT ALL ROD TOKENS.
    AllTokens,
}

/// The table has let only known service actions through.
pub(super) fn out(b: &[u8; 16]) -> Result<Command, CdbError> {
    let action = match b[1] & 0x1f {
        0x00 => CopyOut::Lid1,
        0x01 => CopyOut::Lid4,
        0x10 => CopyOut::PopulateToken,
        0x11 => CopyOut::WriteUsingToken,
        _ => return Ok(Command::CopyAbort { list_id: get32::<2, 16>(b) }),
    };
    Ok(Command::CopyOut { action, list_id: get32::<6, 16>(b), len: get32::<10, 16>(b) })
}

/// Likewise.
pub(super) fn status(b: &[u8; 16]) -> Result<Command, CdbError> {
    let (action, list_id) = match b[1] & 0x1f {
        0x00 => (CopyStatus::StatusLid1, u32::from(b[2])),
        0x01 => (CopyStatus::HeldData, u32::from(b[2])),
        0x03 => (CopyStatus::Parameters, 0),
        0x04 => (CopyStatus::FailureDetails, u32::from(b[2])),
        0x05 => (CopyStatus::StatusLid4, get32::<2, 16>(b)),
        0x07 => (CopyStatus::TokenInformation, get32::<2, 16>(b)),
        _ => (CopyStatus::AllTokens, 0),
    };
    Ok(Command::CopyStatus { action, list_id, alloc: get32::<10, 16>(b) })
}
