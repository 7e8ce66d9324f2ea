//! The one table from the block layer's errno vocabulary to the status and sense of a command.

use bio::{Errno, Op};
use wire::scsi::{Asc, Sense, Status, asc};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Good,
    /// CHECK CONDITION with this sense data.
    Check(Sense),
    /// Another status, without sense data.
    Status(Status),
}

impl Ending {
    /// CHECK CONDITION with nothing but a meaning.
    pub const fn check(code: Asc) -> Ending {
        Ending::Check(Sense::new(code))
    }

    pub fn status(&self) -> Status {
        match self {
            Ending::Good => Status::Good,
            Ending::Check(_) => Status::CheckCondition,
            Ending::Status(s) => *s,
        }
    }
}

impl From<Sense> for Ending {
    fn from(sense: Sense) -> Ending {
        Ending::Check(sense)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SenseOrStatus {
    Sense(Asc),
    Status(Status),
}

use SenseOrStatus::{Sense as S, Status as T};

/// Errno, result for a command that reads, result for a command that writes. In the order of
/// `Errno::ALL`; a test keeps it whole.
const TABLE: &[(Errno, SenseOrStatus, SenseOrStatus)] = &[
    (Errno::Perm, S(asc::NOT_READY), S(asc::WRITE_PROTECTED)),
    (Errno::NoEnt, S(asc::MANUAL_NEEDED), S(asc::MANUAL_NEEDED)),
    (Errno::Io, S(asc::READ_ERROR), S(asc::WRITE_ERROR)),
    (Errno::NxIo, S(asc::MANUAL_NEEDED), S(asc::MANUAL_NEEDED)),
    (Errno::Again, T(Status::Busy), T(Status::Busy)),
    (Errno::NoMem, T(Status::Busy), T(Status::Busy)),
    (Errno::Fault, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::Busy, T(Status::Busy), T(Status::Busy)),
    (Errno::Exist, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::NoDev, S(asc::MANUAL_NEEDED), S(asc::MANUAL_NEEDED)),
    (Errno::Inval, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::NoSpc, S(asc::SPACE_EXHAUSTED), S(asc::SPACE_EXHAUSTED)),
    (Errno::RoFs, S(asc::WRITE_PROTECTED), S(asc::WRITE_PROTECTED)),
    (Errno::DeadLk, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::NoSys, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::Loop, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::Conflict, T(Status::ReservationConflict), T(Status::ReservationConflict)),
    (Errno::NoAttr, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::NotSup, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::TimedOut, S(asc::TIMEOUT), S(asc::TIMEOUT)),
    (Errno::RemoteIo, S(asc::INTERNAL_FAILURE), S(asc::INTERNAL_FAILURE)),
    (Errno::Canceled, T(Status::Busy), T(Status::Busy)),
];

/// Ending of a command when a request below ended with `error`.
pub fn ending_of(error: Errno, op: Op) -> Ending {
    let row = TABLE.iter().find(|(e, _, _)| *e == error);
    let fate = row.map_or(
        S(asc::INTERNAL_FAILURE),
        |(_, read, write)| {
            if op.needs_write() { *write } else { *read }
        },
    );
    match fate {
        S(code) => Ending::check(code),
        T(status) => Ending::Status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::Key;

    #[test]
    fn table_lists_every_errno_in_order() {
        let order: Vec<Errno> = TABLE.iter().map(|(e, _, _)| *e).collect();
        assert_eq!(order, Errno::ALL);
    }

    #[test]
    fn errors_below_never_become_success_or_illegal_request() {
        for &e in Errno::ALL {
            for op in Op::ALL {
                match ending_of(e, op) {
                    Ending::Good => panic!("{e:?} must not end GOOD"),
                    Ending::Check(s) => {
                        let key = s.code.key;
                        assert!(
                            !matches!(
                                key,
                                Key::NoSense | Key::RecoveredError | Key::IllegalRequest
                            ),
                            "{e:?}"
                        );
                    }
                    Ending::Status(Status::ReservationConflict) => {
                        assert_eq!(e, Errno::Conflict);
                    }
                    Ending::Status(s) => assert_eq!(s, Status::Busy, "{e:?}"),
                }
            }
        }
    }
}
