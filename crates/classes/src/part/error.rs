//! Errors of the edits of a partition table.

use std::fmt;

/// Small kind of a [`PartError`], for control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartErrorKind {
    /// No free space of that size.
    NoSpace,
    /// The range overlaps a partition.
    Overlap,
    /// The range leaves the usable part of the media.
    OutOfRange,
    /// No partition has this index.
    NoSuchIndex,
    /// A partition has this index already.
    IndexTaken,
    /// Every index of the table is used.
    TableFull,
    /// The partition is open.
    Busy,
    /// The table is damaged: only `recover` and `destroy` are possible.
    Corrupt,
    /// The partition type is not known to this scheme.
    BadType,
    /// The attribute is not known to this scheme.
    BadAttribute,
    /// The name cannot be stored.
    BadLabel,
    /// A number or a size is not understood or not allowed.
    BadValue,
    /// The media is too small, or its sector size not supported.
    BadMedia,
    /// It is no boot code of this scheme: empty, too long, or without its signature.
    BadCode,
    /// The code is longer than the partition.
    TooLong,
    /// The scheme has no such operation.
    Unsupported,
}

/// Why an edit was refused: kind, operation and object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartError {
    /// Small kind, for control flow.
    pub kind: PartErrorKind,
    /// The operation refused, for example `add`.
    pub op: &'static str,
    /// The object, for people: a partition, a value, a range.
    pub at: String,
}

impl PartError {
    /// An error of `kind` in `op` about `at`.
    pub fn new(kind: PartErrorKind, op: &'static str, at: impl Into<String>) -> Self {
        Self { kind, op, at: at.into() }
    }
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PartErrorKind as K;
        let (what, next) = match self.kind {
            K::NoSpace => ("no free space", "see `part show` for the free ranges"),
            K::Overlap => ("the range overlaps a partition", "choose a free range"),
            K::OutOfRange => ("the range is outside the usable sectors", "choose a free range"),
            K::NoSuchIndex => ("no such partition", "see `part show` for the indexes"),
            K::IndexTaken => ("the index is in use", "choose another or leave it out"),
            K::TableFull => ("the table has no free entry", "delete a partition first"),
            K::Busy => ("the partition is in use", "close what uses it first"),
            K::Corrupt => ("the table is damaged", "run `part recover` first"),
            K::BadType => ("unknown partition type", "use an alias, !number or !uuid"),
            K::BadAttribute => ("unknown attribute", "the scheme does not have it"),
            K::BadLabel => ("the label cannot be stored", "shorten it"),
            K::BadValue => ("value not allowed", "correct it"),
            K::BadMedia => ("the media cannot hold this table", "use another scheme"),
            K::BadCode => ("not boot code of this scheme", "give the file made for it"),
            K::TooLong => ("it does not fit", "give a shorter file or a larger partition"),
            K::Unsupported => ("not possible with this scheme", "use another scheme"),
        };
        write!(f, "{}: {}: {what}; {next}", self.op, self.at)
    }
}

impl std::error::Error for PartError {}
