//! Reasons why an operation ended without a result.

use std::fmt;

use bio::Errno;

/// A block's place in the address space of the WORM, in blocks. Never given to another block once
/// a dump holds it.
pub type Addr = u64;

/// Why an operation over memory stopped. All of its changes are undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A block is not in memory: load it and try again.
    Missing(Addr),
    /// Something has to happen first.
    Wait(Wait),
    /// It cannot be done.
    Fail(Fault),
}

/// The condition that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Buffers of the block cache: evict or commit.
    Memory,
    /// Space on the cache device, or in the journal's next record: commit.
    Commit,
    /// Blocks that a file lost are still to be given back before it grows over them.
    Reap(u64),
    /// A file's contents have to be where dumps find them first.
    Settle(u64),
    /// A new look at the fence: no other server may have taken the WORM.
    Fence,
    /// A block of a dump, in an image, that is to be copied to the WORM before it is changed.
    Copy(Addr),
    /// A tree that is frozen, in an image, has to be looked through first.
    Thaw,
}

/// The reason of a failure, for people and for protocols that have their own codes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No such file.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory that has entries.
    NotEmpty,
    /// Not a directory.
    NotDir,
    /// A directory where a file is wanted.
    IsDir,
    /// No space; the text names the place.
    NoSpace(&'static str),
    /// Behind the largest offset of a file.
    TooBig,
    /// A name that no file can have, with the reason.
    BadName(&'static str),
    /// A name that is too long.
    NameTooLong,
    /// Dumps and fenced volumes are not written.
    ReadOnly,
    /// The request makes no sense for this file, with the reason.
    Invalid(&'static str),
    /// It would do harm as things are; the text names it and the remedy.
    Refused(String),
    /// A device failed.
    Io(Errno, String),
    /// The bytes differ from those that were written; names the device and the place.
    Corrupt(String),
    /// A device holds no metadata of ours; names the device and describes its contents.
    Foreign(String),
    /// Another server has taken the WORM; the text names it.
    Fenced(String),
    /// A file is being cut; the runner of operations finishes that and tries again.
    Unfinished(u64),
    /// A file's contents are to be moved; likewise.
    Unsettled(u64),
    /// The volume was closed.
    Closed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotFound => f.write_str("file not found"),
            Fault::Exists => f.write_str("file already exists"),
            Fault::NotEmpty => f.write_str("directory is not empty"),
            Fault::NotDir => f.write_str("not a directory"),
            Fault::IsDir => f.write_str("is a directory"),
            Fault::NoSpace(place) => write!(f, "file system is full: {place}"),
            Fault::TooBig => f.write_str("file too big"),
            Fault::BadName(why) => write!(f, "illegal name: {why}"),
            Fault::NameTooLong => f.write_str("file name too long"),
            Fault::ReadOnly => f.write_str("read only file system"),
            Fault::Invalid(why) => f.write_str(why),
            Fault::Io(e, place) => write!(f, "i/o error: {place}: {e:?}"),
            Fault::Corrupt(what) => write!(f, "corrupted: {what}"),
            Fault::Foreign(what) | Fault::Refused(what) => f.write_str(what),
            Fault::Fenced(by) => write!(f, "taken over by another server: {by}"),
            Fault::Unfinished(_) => f.write_str("file is being cut"),
            Fault::Unsettled(_) => f.write_str("file's contents are being moved"),
            Fault::Closed => f.write_str("the file system is halted"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fail(fault)
    }
}
