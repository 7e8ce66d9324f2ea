//! Refusals of requests, in the words that the client knows.

use wire::{Kind, WireError};

use crate::fault::Fault;

/// How strict the rules are, and the words of their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// The manual, and the words of Plan 9.
    #[default]
    Plan9,
    /// The behaviour that Linux needs of a 9P2000 server. A rename replaces, some fields of a
    /// Twstat are ignored, an open fid can be walked from. Errors use words that its client
    /// translates; any others are errno 526 to it.
    Linux,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The error of the file layer.
    Fault(Fault),
    /// No such fid.
    UnknownFid,
    /// The fid is in use.
    FidInUse,
    /// The client has so many fids, and may have no more.
    TooManyFids(usize),
    /// The tag is in use.
    TagInUse,
    /// Permissions do not allow it.
    Permission,
    /// The fid is not open for that, or is open.
    BadUse,
    /// An offset that a directory cannot be read at.
    BadOffset,
    /// A directory entry is longer than the requested count.
    ShortRead,
    /// No such user, or no proof.
    UnknownUser,
    /// No such file system.
    UnknownTree,
    /// No client may attach now.
    Maintenance,
    /// There is nothing to prove.
    NoAuth,
    /// Another fid holds the exclusive file.
    Locked,
    /// The lock was lost.
    LockBroken,
    /// A bit or mode that makes no sense; the text names it.
    BadMode(&'static str),
    /// A field of a Twstat may not change; the text names it.
    BadStat(&'static str),
    /// Not the owner, nor leader of the group.
    NotOwner,
    /// Not in the group.
    NotMember,
    /// A message that cannot be read, with the reason.
    Malformed(String),
    /// Tversion first.
    NoVersion,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Fault(fault)
    }
}

impl Refusal {
    /// Of a message that cannot be decoded. A name that is not UTF-8 (intro(5)) is the fault of
    /// the program that chose it, not of the protocol.
    pub fn unreadable(e: &WireError) -> Refusal {
        match (e.kind, e.field) {
            (Kind::BadValue, "wname") => Fault::NotFound.into(),
            (Kind::BadValue, "name" | "stat.name") => Fault::BadName("it is not UTF-8").into(),
            _ => Refusal::Malformed(e.to_string()),
        }
    }

    /// For the client.
    pub fn text(&self, flavour: Flavour) -> String {
        match flavour {
            Flavour::Plan9 => self.plan9(),
            Flavour::Linux => self.linux().map_or_else(|| self.plan9(), str::to_owned),
        }
    }

    fn plan9(&self) -> String {
        match self {
            Refusal::Fault(Fault::NotFound) => "file does not exist".into(),
            Refusal::Fault(fault) => fault.to_string(),
            Refusal::UnknownFid => "unknown fid".into(),
            Refusal::FidInUse => "fid already in use".into(),
            Refusal::TooManyFids(max) => format!("too many fids: the limit is {max} a client"),
            Refusal::TagInUse => "duplicate tag".into(),
            Refusal::Permission => "permission denied".into(),
            Refusal::BadUse => "bad use of fid".into(),
            Refusal::BadOffset => "bad offset in directory read".into(),
            Refusal::ShortRead => "directory entry longer than the count".into(),
            Refusal::UnknownUser => "unknown user or failed authentication".into(),
            Refusal::UnknownTree => "bad attach specifier".into(),
            Refusal::Maintenance => "system maintenance".into(),
            Refusal::NoAuth => "authentication not required".into(),
            Refusal::Locked => "exclusive use file already open: file is locked".into(),
            Refusal::LockBroken => "lock is broken".into(),
            Refusal::BadMode(what) => format!("unknown mode: {what}"),
            Refusal::BadStat(what) => format!("wstat prohibited: {what}"),
            Refusal::NotOwner => "not owner".into(),
            Refusal::NotMember => "not in group".into(),
            Refusal::Malformed(why) => format!("malformed message: {why}"),
            Refusal::NoVersion => "Tversion not seen".into(),
        }
    }

    /// Exactly as the kernel's table has them (net/9p/error.c).
    fn linux(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::Fault(fault) => match fault {
                Fault::NotFound => "file not found",
                Fault::Exists => "file already exists",
                Fault::NotEmpty => "directory is not empty",
                Fault::NotDir => "not a directory",
                Fault::IsDir => "Is a directory",
                Fault::NoSpace(_) => "file system is full",
                Fault::TooBig => "file too big",
                // Its "illegal name" is ENAMETOOLONG.
                Fault::BadName(_) => "Invalid argument",
                Fault::NameTooLong => "File name too long",
                Fault::ReadOnly => "read only file system",
                Fault::Invalid(_) => "illegal mode",
                Fault::Io(..)
                | Fault::Corrupt(_)
                | Fault::Foreign(_)
                | Fault::Closed
                | Fault::Unfinished(_)
                | Fault::Refused(_)
                | Fault::Unsettled(_) => "i/o error",
                Fault::Fenced(_) => "read only file system",
            },
            Refusal::UnknownFid => "fid unknown or out of range",
            Refusal::FidInUse => "fid already in use",
            Refusal::TooManyFids(_) => "Too many open files",
            Refusal::TagInUse | Refusal::NoVersion | Refusal::Malformed(_) => "protocol botch",
            Refusal::Permission | Refusal::UnknownTree | Refusal::Maintenance => {
                "permission denied"
            }
            Refusal::BadUse => "bad use of fid",
            Refusal::BadOffset | Refusal::ShortRead => "illegal offset",
            Refusal::UnknownUser => "unknown user",
            Refusal::NoAuth => return None,
            Refusal::Locked => "exclusive use file already open",
            Refusal::LockBroken => "i/o error",
            Refusal::BadMode(_) => "illegal mode",
            Refusal::BadStat(_) => "wstat prohibited",
            Refusal::NotOwner => "not owner",
            Refusal::NotMember => "not a member of proposed group",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_fids_differs_from_a_fid_in_use() {
        let (many, used) = (Refusal::TooManyFids(9), Refusal::FidInUse);
        assert_eq!(many.text(Flavour::Plan9), "too many fids: the limit is 9 a client");
        // EMFILE in the kernel's table.
        assert_eq!(many.text(Flavour::Linux), "Too many open files");
        assert_eq!(used.text(Flavour::Linux), "fid already in use");
    }
}
