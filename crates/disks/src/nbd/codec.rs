//! Requests and replies of NBD as a protocol of [`crate::remote`].

use bio::{Errno, HOLE, MAPPED, Op, Status};
use wire::Kind;
use wire::nbd::client::{self, ClientHandshake, Terms};
use wire::nbd::codes::{Error, allocation, command_flag, kind};
use wire::nbd::reply::{self, Piece};
use wire::nbd::{Form, Request, request_len};

use super::export::Export;
use crate::remote::Outcome;
use crate::remote::protocol::{Handshake, Job, Progress, Protocol, ProtocolViolation, Transfer};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NbdCommand {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl NbdCommand {
    pub(crate) const FLUSH: NbdCommand =
        NbdCommand { kind: kind::FLUSH, flags: 0, offset: 0, len: 0 };

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

/// What has arrived of the reply to a request.
#[derive(Default)]
pub(crate) struct NbdReply {
    /// Bytes of a READ that have arrived from its start on.
    received: u64,
    /// The pieces that have arrived behind those: first byte and end of each.
    early: Vec<(u64, u64)>,
    error: Option<Errno>,
    /// The extent of a BLOCK_STATUS.
    run: Option<(u64, u64)>,
}

impl Handshake for ClientHandshake {
    type Terms = Terms;

    fn input(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Progress<Terms>), String> {
        let input = ClientHandshake::input(self, bytes, out);
        let (used, progress) = input.map_err(|e| e.to_string())?;
        let progress = match progress {
            client::Progress::More => Progress::More,
            client::Progress::StartTls => Progress::StartTls,
            client::Progress::Ready(terms) => Progress::Ready(terms),
        };
        Ok((used, progress))
    }

    fn secured(&mut self, out: &mut Vec<u8>) {
        ClientHandshake::secured(self, out);
    }
}

impl Protocol for Export {
    type Command = NbdCommand;
    type Reply = NbdReply;
    type Terms = Terms;
    type Handshake = ClientHandshake;
    type Piece = Piece;

    const HEAD_MAX: usize = 32;

    fn handshake(&self, is_tls: bool) -> ClientHandshake {
        ClientHandshake::new(&self.name, is_tls)
    }

    fn bytes(terms: &Terms) -> u64 {
        terms.size
    }

    fn check(&self, terms: &Terms) -> Result<(), String> {
        self.check_export(terms)
    }

    fn transfer(command: &NbdCommand) -> Transfer {
        match command.kind {
            kind::WRITE => Transfer::ToServer,
            kind::READ => Transfer::FromServer(command.len),
            _ => Transfer::None,
        }
    }

    fn encode(&self, terms: &Terms, command: &NbdCommand, cookie: u64, out: &mut Vec<u8>) {
        debug_assert!(request_len(terms.form) <= Self::HEAD_MAX);
        let mut flags = command.flags;
        if terms.form == Form::Extended && command.kind == kind::WRITE {
            flags |= command_flag::PAYLOAD_LEN;
        }
        let (kind, offset, len) = (command.kind, command.offset, command.len);
        Request { flags, kind, cookie, offset, len }.encode(terms.form, out);
    }

    fn goodbye(&self, terms: &Terms, out: &mut Vec<u8>) {
        Request { kind: kind::DISC, ..Request::default() }.encode(terms.form, out);
    }

    fn piece(bytes: &[u8]) -> Result<Option<(Piece, usize)>, String> {
        match reply::piece(bytes) {
            Ok(piece) => Ok(Some(piece)),
            Err(e) if e.kind == Kind::Truncated => Ok(None),
            Err(e) => Err(format!("the server does not speak NBD: {e}")),
        }
    }

    fn cookie(piece: &Piece) -> u64 {
        piece.cookie()
    }

    fn place(
        &self,
        piece: &Piece,
        job: &mut Job<Export>,
    ) -> Result<Option<(usize, usize)>, ProtocolViolation> {
        let (offset, len) = match *piece {
            Piece::Data { offset, len, .. } => (offset, len),
            Piece::Simple { error: None, .. } if job.command.kind == kind::READ => {
                (job.command.offset, job.command.len)
            }
            _ => return Ok(None),
        };
        let at = job.place(offset, len)?;
        job.cover(at as u64, len)?;
        Ok(Some((at, usize::try_from(len).unwrap_or(usize::MAX))))
    }

    fn take(
        &self,
        terms: &Terms,
        piece: &Piece,
        job: &mut Job<Export>,
    ) -> Result<Option<Outcome>, ProtocolViolation> {
        if let Piece::Simple { error: Some(Error::Shutdown), .. }
        | Piece::Failed { error: Error::Shutdown, .. } = piece
        {
            return Err(ProtocolViolation("the server is ending"));
        }
        match job.take(piece, terms.allocation)? {
            true => job.outcome().map(Some),
            false => Ok(None),
        }
    }

    fn connected(&self) {
        if let Some(server) = &self.server {
            server.mark_connected();
        }
    }

    fn own_request_ended(&self, number: u64, status: Status) {
        self.own_flush_ends(number, status);
    }
}

impl Job<Export> {
    /// Counts the data that has arrived for a place in the buffer. Pieces arrive in any order and
    /// do not overlap: otherwise bytes that no piece contained would pass for read.
    fn cover(&mut self, at: u64, len: u64) -> Result<(), ProtocolViolation> {
        let end = at.saturating_add(len);
        let reply = &mut self.reply;
        if at < reply.received || reply.early.iter().any(|(from, to)| at < *to && *from < end) {
            return Err(ProtocolViolation("data sent twice for one range"));
        }
        if at > reply.received {
            if reply.early.len() == AHEAD_MAX {
                return Err(ProtocolViolation("a reply in too many pieces"));
            }
            reply.early.push((at, end));
            return Ok(());
        }
        reply.received = end;
        while let Some(next) = reply.early.iter().position(|(from, _)| *from == reply.received) {
            reply.received = reply.early.swap_remove(next).1;
        }
        Ok(())
    }

    /// Place in the data of the bytes of a reply.
    fn place(&self, offset: u64, len: u64) -> Result<usize, ProtocolViolation> {
        let at = offset.checked_sub(self.command.offset);
        let fits = |at: &u64| at.checked_add(len).is_some_and(|end| end <= self.command.len);
        match at.filter(fits) {
            Some(at) if self.command.kind == kind::READ => Ok(usize::try_from(at).unwrap_or(0)),
            _ => Err(ProtocolViolation("data for a range that was not read")),
        }
    }

    /// Takes a piece of the reply without data. True: the reply has ended.
    fn take(&mut self, piece: &Piece, context: Option<u32>) -> Result<bool, ProtocolViolation> {
        match piece {
            Piece::Simple { error, .. } => {
                self.reply.error = error.map(|e| errno(e, self.command.kind));
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
                    return Err(ProtocolViolation("unrequested extents"));
                }
                let first = extents.first().filter(|e| e.len > 0);
                let first = first.ok_or(ProtocolViolation("an extent of no bytes"))?;
                let hole = allocation::HOLE | allocation::ZERO;
                let state = if first.flags & hole == hole { HOLE } else { MAPPED };
                self.reply.run = Some((first.len.min(self.command.len), state));
                Ok(*last)
            }
            Piece::Failed { error, last, .. } => {
                self.reply.error.get_or_insert(errno(*error, self.command.kind));
                Ok(*last)
            }
            Piece::End { .. } => Ok(true),
        }
    }

    /// Its result, once its reply has ended.
    fn outcome(&self) -> Result<Outcome, ProtocolViolation> {
        if let Some(error) = self.reply.error {
            return Ok(Outcome::failed(error));
        }
        match self.command.kind {
            kind::READ if self.reply.received != self.command.len => {
                Err(ProtocolViolation("a READ with bytes left out"))
            }
            kind::BLOCK_STATUS if self.reply.run.is_none() => {
                Err(ProtocolViolation("no extents in a reply"))
            }
            _ => Ok(Outcome { run: self.reply.run, ..Outcome::GOOD }),
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
    use bio::Segs;
    use wire::nbd::chunk::Extent;

    use super::*;
    use crate::remote::protocol::RequestOwner;

    fn job(op: Op) -> Job<Export> {
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
        read.reply = NbdReply::default();
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
