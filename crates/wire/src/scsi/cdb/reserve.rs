//! PERSISTENT RESERVE IN and OUT (SPC-4 6.15, 6.16).

use super::{CdbError, Command, PrInAction, PrOutAction};
use crate::bytes::{get16, get32};

pub(super) fn persistent_in(b: &[u8; 16]) -> Result<Command, CdbError> {
    let action = PrInAction::from_code(b[1] & 0x1f).ok_or(CdbError::field(1, Some(4)))?;
    Ok(Command::PersistentIn { action, alloc: u32::from(get16::<7, 16>(b)) })
}

pub(super) fn persistent_out(b: &[u8; 16]) -> Result<Command, CdbError> {
    let action = PrOutAction::from_code(b[1] & 0x1f).ok_or(CdbError::field(1, Some(4)))?;
    let (scope, kind) = (b[2] >> 4, b[2] & 0x0f);
    Ok(Command::PersistentOut { action, scope, kind, len: get32::<5, 16>(b) })
}
