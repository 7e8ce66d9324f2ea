//! A request as the protocol knows it, and the reader of its reply.

use bio::{Errno, HOLE, MAPPED, Op, Segs, Ticket};
use wire::nbd::codes::{Error, allocation, command_flag, kind};
use wire::nbd::reply::Piece;

use crate::remote::Outcome;

/// The owner of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOwner {
    /// A Bio of this core.
    Bio(Ticket),
    /// One of another core: its number there.
    OtherCore { core: u32, number: u64 },
    /// The FLUSH of the disk itself, with the number of deaths at its start.
    Disk { began: u64 },
}

/// The fields of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NbdCommand {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl NbdCommand {
    /// `None`: an operation that is not sent.
    pub(crate) fn of(op: Op, offset: u64, len: u64) -> Option<NbdCommand> {
        let (kind, flags) = match op {
            Op::Read => (kind::READ, 0),
            Op::Write => (kind::WRITE, 0),
            Op::Flush => (kind::FLUSH, 0),
            Op::Delete => (kind::TRIM, 0),
            Op::WriteZeroes => (kind::WRITE_ZEROES, 0),
            Op::Map => (kind::BLOCK_STATUS, command_flag::REQ_ONE),
            Op::GetAttr => return None,
        };
        Some(NbdCommand { kind, flags, offset, len })
    }
}

/// Most pieces of one reply that are ahead of others.
const AHEAD_MAX: usize = 1024;

/// A request with its memory.
pub(crate) struct Job {
    pub(crate) owner: RequestOwner,
    pub(crate) command: NbdCommand,
    pub(crate) data: Segs,
    /// Bytes of a READ that have arrived from its start on.
    received: u64,
    /// The pieces that have arrived behind those: first byte and end of each.
    early: Vec<(u64, u64)>,
    /// Its first error.
    pub(crate) error: Option<Errno>,
    /// The extent of a BLOCK_STATUS.
    pub(crate) run: Option<(u64, u64)>,
}

/// A server that left the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProtocolViolation(pub(crate) &'static str);

impl Job {
    pub(crate) fn new(who: RequestOwner, command: NbdCommand, data: Segs) -> Job {
        Job { owner: who, command, data, received: 0, early: Vec::new(), error: None, run: None }
    }

    /// It is sent again: an old reply does not count.
    pub(crate) fn renew(&mut self) {
        (self.received, self.error, self.run) = (0, None, None);
        self.early.clear();
    }

    /// Counts the data that has arrived for a place in the buffer. Pieces arrive in any order and
    /// do not overlap: otherwise bytes that no piece contained would pass for read.
    pub(crate) fn cover(&mut self, at: u64, len: u64) -> Result<(), ProtocolViolation> {
        let end = at.saturating_add(len);
        if at < self.received || self.early.iter().any(|(from, to)| at < *to && *from < end) {
            return Err(ProtocolViolation("data sent twice for one range"));
        }
        if at > self.received {
            if self.early.len() == AHEAD_MAX {
                return Err(ProtocolViolation("a reply in too many pieces"));
            }
            self.early.push((at, end));
            return Ok(());
        }
        self.received = end;
        while let Some(next) = self.early.iter().position(|(from, _)| *from == self.received) {
            self.received = self.early.swap_remove(next).1;
        }
        Ok(())
    }

    /// Place in the data of the bytes of a reply.
    pub(crate) fn place(&self, offset: u64, len: u64) -> Result<usize, ProtocolViolation> {
        let at = offset.checked_sub(self.command.offset);
        let fits = |at: &u64| at.checked_add(len).is_some_and(|end| end <= self.command.len);
        match at.filter(fits) {
            Some(at) if self.command.kind == kind::READ => Ok(usize::try_from(at).unwrap_or(0)),
            _ => Err(ProtocolViolation("data for a range that was not read")),
        }
    }

    /// Takes a piece of the reply without data. True: the reply has ended.
    pub(crate) fn take(
        &mut self,
        piece: &Piece,
        context: Option<u32>,
    ) -> Result<bool, ProtocolViolation> {
        match piece {
            Piece::Simple { error, .. } => {
                self.error = error.map(|e| errno(e, self.command.kind));
                Ok(true)
            }
            Piece::Data { last, .. } => Ok(*last),
            Piece::Hole { offset, len, last, .. } => {
                let at = self.place(*offset, *len)?;
                self.data.fill(at, usize::try_from(*len).unwrap_or(0), 0);
                self.cover(at as u64, *len)?;
                Ok(*last)
            }
            Piece::Status { context: of, extents, last, .. } => {
                if self.command.kind != kind::BLOCK_STATUS || Some(*of) != context {
                    return Err(ProtocolViolation("extents that were not asked for"));
                }
                let first = extents.first().filter(|e| e.len > 0);
                let first = first.ok_or(ProtocolViolation("an extent of no bytes"))?;
                let hole = allocation::HOLE | allocation::ZERO;
                let state = if first.flags & hole == hole { HOLE } else { MAPPED };
                self.run = Some((first.len.min(self.command.len), state));
                Ok(*last)
            }
            Piece::Failed { error, last, .. } => {
                self.error.get_or_insert(errno(*error, self.command.kind));
                Ok(*last)
            }
            Piece::End { .. } => Ok(true),
        }
    }

    /// Its result, once its reply has ended.
    pub(crate) fn outcome(&self) -> Result<Outcome, ProtocolViolation> {
        if let Some(error) = self.error {
            return Ok(Outcome::failed(error));
        }
        match self.command.kind {
            kind::READ if self.received != self.command.len => {
                Err(ProtocolViolation("a READ with bytes left out"))
            }
            kind::BLOCK_STATUS if self.run.is_none() => {
                Err(ProtocolViolation("no extents in a reply"))
            }
            _ => Ok(Outcome { run: self.run, ..Outcome::GOOD }),
        }
    }
}

/// The errors of requests as those of disks.
fn errno(error: Error, of: u16) -> Errno {
    let writes = matches!(of, kind::WRITE | kind::TRIM | kind::WRITE_ZEROES);
    match error {
        Error::Perm if writes => Errno::RoFs,
        Error::Perm => Errno::Perm,
        Error::NoSpc => Errno::NoSpc,
        Error::Inval | Error::Overflow => Errno::Inval,
        Error::NotSup => Errno::NotSup,
        // ENOMEM of a server is no shortage of this machine: a wait here would not help.
        Error::Io | Error::NoMem | Error::Shutdown => Errno::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nbd::chunk::Extent;

    fn job(op: Op) -> Job {
        let who = RequestOwner::OtherCore { core: 0, number: 0 };
        Job::new(who, NbdCommand::of(op, 4096, 1024).unwrap(), Segs::new())
    }

    #[test]
    fn data_outside_the_requested_range_end_the_connection() {
        let read = job(Op::Read);
        assert_eq!(read.place(4096, 1024), Ok(0));
        assert_eq!(read.place(4608, 512), Ok(512));
        for (offset, len) in [(4095, 1), (4096, 1025), (5120, 1), (u64::MAX, 2), (4608, u64::MAX)] {
            assert!(read.place(offset, len).is_err(), "{offset} {len}");
        }
        assert!(job(Op::Write).place(4096, 512).is_err());
    }

    #[test]
    fn read_succeeds_once_all_its_data_have_arrived() {
        let mut read = job(Op::Read);
        let hole = |offset, last| Piece::Hole { cookie: 0, offset, len: 512, last };
        assert_eq!(read.take(&hole(4096, false), None), Ok(false));
        assert!(read.outcome().is_err());
        assert_eq!(read.take(&hole(4608, true), None), Ok(true));
        assert_eq!(read.outcome(), Ok(Outcome::GOOD));
        read.renew();
        assert!(read.outcome().is_err());
    }

    #[test]
    fn chunks_are_accepted_in_any_order_but_only_once() {
        let mut read = job(Op::Read);
        for (at, len) in [(512, 256), (256, 256), (0, 256)] {
            assert!(read.outcome().is_err());
            assert_eq!(read.cover(at, len), Ok(()));
        }
        for (at, len) in [(0, 1), (700, 100), (767, 1), (100, 900)] {
            assert!(read.cover(at, len).is_err(), "{at} {len}");
        }
        assert_eq!(read.cover(768, 256), Ok(()));
        assert_eq!(read.outcome(), Ok(Outcome::GOOD));
        let mut read = job(Op::Read);
        assert_eq!(read.cover(512, 256), Ok(()));
        assert!(read.cover(400, 300).is_err(), "it reaches into one that is ahead");
    }

    #[test]
    fn an_extent_is_a_hole_when_it_reads_as_zeroes() {
        for (flags, state) in [(0, MAPPED), (1, MAPPED), (2, MAPPED), (3, HOLE)] {
            let mut map = job(Op::Map);
            let extents = vec![Extent { len: 1 << 40, flags }];
            let piece = Piece::Status { cookie: 0, context: 7, extents, last: true };
            assert!(job(Op::Map).take(&piece, Some(8)).is_err());
            assert_eq!(map.take(&piece, Some(7)), Ok(true));
            assert_eq!(map.outcome().unwrap().run, Some((1024, state)));
        }
    }

    #[test]
    fn first_error_fails_the_request() {
        let mut write = job(Op::Write);
        let failed = |error, last| Piece::Failed { cookie: 0, error, last };
        assert_eq!(write.take(&failed(Error::Perm, false), None), Ok(false));
        assert_eq!(write.take(&failed(Error::Io, true), None), Ok(true));
        assert_eq!(write.outcome(), Ok(Outcome::failed(Errno::RoFs)));
    }
}
