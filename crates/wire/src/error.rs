//! The error type of all codecs: a kind, the field's name, and its offset.

use std::fmt;

/// A problem with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Fewer bytes than the field or structure needs.
    Truncated,
    /// A length above the negotiated value or a limit.
    TooLong,
    /// A value the standard does not allow here.
    BadValue,
    /// The same thing twice where once is allowed.
    Duplicate,
    /// A checksum that does not agree with the bytes.
    Digest,
    /// A value that is legal but not served here.
    Unsupported,
    /// A message that is not allowed now.
    OutOfOrder,
}

/// An error in bytes that a peer or a disk supplied. It is `Copy` and holds no peer data, so that
/// it can be logged and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireError {
    /// The problem.
    pub kind: Kind,
    /// The field, by the name its standard gives it.
    pub field: &'static str,
    /// Byte offset of the field in the structure being read; 0 when it has no fixed place.
    pub at: u32,
}

impl WireError {
    /// An error of `kind` in `field`, `at` bytes from the start of the structure.
    pub const fn new(kind: Kind, field: &'static str, at: u32) -> WireError {
        WireError { kind, field, at }
    }

    /// Shorthand for [`Kind::BadValue`].
    pub const fn bad(field: &'static str, at: u32) -> WireError {
        WireError::new(Kind::BadValue, field, at)
    }

    /// Shorthand for [`Kind::Truncated`].
    pub const fn short(field: &'static str, at: u32) -> WireError {
        WireError::new(Kind::Truncated, field, at)
    }

    /// Shorthand for [`Kind::TooLong`].
    pub const fn long(field: &'static str, at: u32) -> WireError {
        WireError::new(Kind::TooLong, field, at)
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Truncated => "is cut short",
            Kind::TooLong => "is longer than allowed",
            Kind::BadValue => "has a value that is not allowed",
            Kind::Duplicate => "is given twice",
            Kind::Digest => "does not match its bytes",
            Kind::Unsupported => "has a value that is not supported",
            Kind::OutOfOrder => "is not allowed in this state",
        };
        write!(f, "{} {} (byte {})", self.field, what, self.at)
    }
}

impl std::error::Error for WireError {}
