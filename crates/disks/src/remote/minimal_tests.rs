//! A protocol that reads and writes, and its disk: what a kind adds to the connections of this
//! folder.
//!
//! ```text
//!   server: bytes of the medium (8)
//!   client: `r` or `w` (1), cookie (8), offset (8), length (4), data of a write
//!   server: cookie (8), error (1), data of a read that has succeeded
//! ```

use std::sync::Arc;

use bio::{Attr, Bio, Errno, Op};
use geom::{Core, Flow, Layer};

use super::protocol::{Handshake, Job, Progress, Protocol, ProtocolViolation, Transfer};
use super::{Outcome, Remote};

/// Bytes of a request without its data, and of a reply without its data.
pub(super) const REQUEST: usize = 21;
const REPLY: usize = 9;

#[derive(Clone, Copy)]
pub(super) struct Command {
    op: u8,
    offset: u64,
    len: u32,
}

pub(super) struct Minimal;

pub(super) struct Greeting;

impl Handshake for Greeting {
    type Terms = u64;

    fn input(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<(usize, Progress<u64>), String> {
        let Some(size) = bytes.first_chunk::<8>() else { return Ok((0, Progress::More)) };
        Ok((size.len(), Progress::Ready(u64::from_be_bytes(*size))))
    }
}

impl Protocol for Minimal {
    type Command = Command;
    type Reply = ();
    type Terms = u64;
    type Handshake = Greeting;
    /// Its cookie, and whether the request has failed.
    type Piece = (u64, bool);

    const HEAD_MAX: usize = REQUEST;

    fn handshake(&self, _: bool) -> Greeting {
        Greeting
    }

    fn bytes(terms: &u64) -> u64 {
        *terms
    }

    fn transfer(command: &Command) -> Transfer {
        match command.op {
            b'w' => Transfer::ToServer,
            _ => Transfer::FromServer(u64::from(command.len)),
        }
    }

    fn encode(&self, _: &u64, command: &Command, cookie: u64, out: &mut Vec<u8>) {
        out.push(command.op);
        out.extend(cookie.to_be_bytes());
        out.extend(command.offset.to_be_bytes());
        out.extend(command.len.to_be_bytes());
    }

    fn piece(bytes: &[u8]) -> Result<Option<((u64, bool), usize)>, String> {
        let Some(reply) = bytes.first_chunk::<REPLY>() else { return Ok(None) };
        let cookie = u64::from_be_bytes(*reply.first_chunk::<8>().expect("8 of 9 bytes"));
        Ok(Some(((cookie, reply[8] != 0), REPLY)))
    }

    fn cookie(piece: &(u64, bool)) -> u64 {
        piece.0
    }

    fn place(
        &self,
        piece: &(u64, bool),
        job: &mut Job<Minimal>,
    ) -> Result<Option<(usize, usize)>, ProtocolViolation> {
        let has_data = job.command.op == b'r' && !piece.1;
        Ok(has_data.then_some((0, job.command.len as usize)))
    }

    fn take(
        &self,
        _: &u64,
        piece: &(u64, bool),
        _: &mut Job<Minimal>,
    ) -> Result<Option<Outcome>, ProtocolViolation> {
        Ok(Some(if piece.1 { Outcome::failed(Errno::Io) } else { Outcome::GOOD }))
    }
}

pub(super) struct MinimalLayer(pub(super) Arc<Remote<Minimal>>);

impl Layer for MinimalLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let op = match bio.op {
            Op::Read => b'r',
            Op::Write => b'w',
            _ => return Flow::Done(Err(Errno::NotSup)),
        };
        match self.0.send(bio, Command { op, offset: bio.offset, len: bio.length as u32 }, core) {
            Ok(number) => {
                bio.value = Some(Attr::Int(number));
                Flow::Wait
            }
            Err(e) => Flow::Done(Err(e)),
        }
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let Some(Attr::Int(number)) = bio.value.take() else { return Flow::Done(Err(Errno::NxIo)) };
        let outcome = self.0.take(number, bio, core);
        Flow::Done(outcome.map_or(Err(Errno::NxIo), |outcome| outcome.status))
    }
}
