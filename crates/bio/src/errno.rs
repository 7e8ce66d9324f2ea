//! Errors below the protocols: GEOM's errno vocabulary, one meaning each.

use std::fmt;

/// How a request ended.
pub type Status = Result<(), Errno>;

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident = $posix:literal, $word:literal, $text:literal;)*) => {
        /// Why a request or a change of the topology failed. `Copy`, one byte: for control flow.
        /// Text for people is [`Errno::text`]; protocols map it in one table each.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Errno { $($(#[$doc])* $name,)* }

        impl Errno {
            /// Every member, in the order of the table.
            pub const ALL: &'static [Errno] = &[$(Errno::$name,)*];

            /// The classic name, as scripts and FreeBSD users know it.
            pub const fn name(self) -> &'static str {
                match self { $(Errno::$name => $word,)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* }
            }

            /// The number that Linux gives this error.
            pub const fn posix(self) -> i32 {
                match self { $(Errno::$name => $posix,)* }
            }
        }
    };
}

vocabulary! {
    /// Access conflict, or I/O without the access count it needs.
    Perm = 1, "EPERM", "not permitted by the access counts";
    /// No such object.
    NoEnt = 2, "ENOENT", "no such object";
    /// The medium failed, or the range is beyond it.
    Io = 5, "EIO", "input/output error";
    /// Provider removed, not configured yet, or without a medium.
    NxIo = 6, "ENXIO", "device is gone or has no medium";
    /// A wait was cut short; try again. On the data path: only for requests with
    /// `Flags::FAIL_FAST`.
    Again = 11, "EAGAIN", "cancelled while waiting, try again";
    /// No memory for the request now. Never reaches the originator: the dispatcher resubmits.
    NoMem = 12, "ENOMEM", "no buffer free";
    /// An attribute's value does not fit.
    Fault = 14, "EFAULT", "value does not fit the buffer";
    /// Open, or in use.
    Busy = 16, "EBUSY", "in use";
    /// A name or object that exists already.
    Exist = 17, "EEXIST", "exists already";
    /// The class cannot do this on this kind of object.
    NoDev = 19, "ENODEV", "not possible on this device";
    /// Misaligned offset or length, or a malformed request.
    Inval = 22, "EINVAL", "not a multiple of the sector size, or malformed";
    /// No space left, partitions overlap, or a thin device is full.
    NoSpc = 28, "ENOSPC", "no space";
    /// Write to something read-only.
    RoFs = 30, "EROFS", "read-only";
    /// A lock would be waited for for ever; a graph deeper than a Bio has frames.
    DeadLk = 35, "EDEADLK", "would never end";
    /// Not implemented by this scheme.
    NoSys = 38, "ENOSYS", "not implemented by this format";
    /// A cycle in the graph.
    Loop = 40, "ELOOP", "would make a cycle";
    /// The medium is reserved for others (Linux: EBADE of a block device).
    Conflict = 52, "EBADE", "reserved by another host";
    /// No such attribute.
    NoAttr = 61, "ENOATTR", "no such attribute";
    /// The command is not supported here.
    NotSup = 95, "EOPNOTSUPP", "operation not supported";
    /// A deadline passed.
    TimedOut = 110, "ETIMEDOUT", "timed out";
    /// The device, or the way to it, failed, and not its medium (Linux: a target error).
    RemoteIo = 121, "EREMOTEIO", "the device or the way to it failed";
    /// Cancelled by the requester.
    Canceled = 125, "ECANCELED", "cancelled";
}

impl Errno {
    /// The member nearest to a Linux errno; errors without an equivalent become `Io`.
    pub fn from_posix(raw: i32) -> Errno {
        match raw {
            13 => Errno::Perm,
            27 => Errno::NoSpc,
            122 => Errno::NoSpc,
            123 | 19 => Errno::NxIo,
            _ => Errno::ALL.iter().copied().find(|e| e.posix() == raw).unwrap_or(Errno::Io),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.name())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_distinct() {
        for (i, a) in Errno::ALL.iter().enumerate() {
            for b in &Errno::ALL[i + 1..] {
                assert_ne!(a.name(), b.name());
                assert_ne!(a.posix(), b.posix());
            }
        }
    }

    #[test]
    fn posix_number_maps_to_the_nearest_errno() {
        assert_eq!(Errno::from_posix(28), Errno::NoSpc);
        assert_eq!(Errno::from_posix(122), Errno::NoSpc, "quota is space to the user");
        assert_eq!(Errno::from_posix(9999), Errno::Io);
    }
}
