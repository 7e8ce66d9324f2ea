//! The one place where refusals of the graph become errors of the API.

use bio::Errno;
use control::api::{Error, Kind};

/// The kind of API error that an errno means.
pub fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::NoEnt | Errno::NoAttr => Kind::NotFound,
        Errno::Exist => Kind::Exists,
        Errno::Busy | Errno::Perm => Kind::Busy,
        Errno::NotSup | Errno::NoSys | Errno::NoDev | Errno::RoFs => Kind::Unsupported,
        Errno::Inval | Errno::Fault | Errno::Loop => Kind::Usage,
        Errno::NoSpc | Errno::DeadLk | Errno::NoMem => Kind::Limit,
        Errno::TimedOut | Errno::Again | Errno::Canceled => Kind::Timeout,
        Errno::Io | Errno::NxIo => Kind::Device,
    }
}

/// A refusal of the graph as an error of the API.
pub fn from_geom(op: &str, at: &str, error: geom::Error) -> Error {
    Error::new(kind_of(error.kind), op, error.what).at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_a_kind_and_none_is_internal() {
        for &e in Errno::ALL {
            assert_ne!(kind_of(e), Kind::Internal, "{e}");
        }
    }
}
