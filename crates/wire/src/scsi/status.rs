//! SCSI status codes (SAM-5 section 5.3.1).
//!
//! The table from the block layer's errno vocabulary to sense data is in the target crate, which
//! knows both vocabularies.

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done.
    #[default]
    Good = 0x00,
    /// Sense data describes the problem.
    CheckCondition = 0x02,
    /// PRE-FETCH: everything fits in the cache.
    ConditionMet = 0x04,
    /// Try again later.
    Busy = 0x08,
    /// Someone else has reserved the logical unit.
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
    /// An auto contingent allegiance is in effect.
    AcaActive = 0x30,
    /// Ended by another initiator's task management.
    TaskAborted = 0x40,
}

impl Status {
    /// The status of a code; None when the code is reserved.
    pub fn from_code(code: u8) -> Option<Status> {
        Some(match code {
            0x00 => Status::Good,
            0x02 => Status::CheckCondition,
            0x04 => Status::ConditionMet,
            0x08 => Status::Busy,
            0x18 => Status::ReservationConflict,
            0x28 => Status::TaskSetFull,
            0x30 => Status::AcaActive,
            0x40 => Status::TaskAborted,
            _ => return None,
        })
    }

    pub fn code(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_survive_decoding_and_encoding() {
        let known: Vec<Status> = (0..=255).filter_map(Status::from_code).collect();
        assert_eq!(known.len(), 8);
        for status in known {
            assert_eq!(Status::from_code(status.code()), Some(status));
        }
    }
}
