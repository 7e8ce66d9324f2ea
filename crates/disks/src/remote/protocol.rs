//! Protocol of a remote disk: the codec that a kind adds to the connections of this folder.
//!
//! It does no I/O. The connections dial, begin TLS, send and receive; they keep deadlines, retries,
//! replay and one connection for each core. A protocol is shared by all cores.

use bio::{Segs, Status, Ticket};

use super::Outcome;

/// Data that a request carries, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transfer {
    None,
    ToServer,
    FromServer(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress<T> {
    More,
    /// TLS begins now; then [`Handshake::secured`].
    StartTls,
    /// Requests are sent from now on.
    Ready(T),
}

/// The start of a connection, up to its first request.
pub(crate) trait Handshake {
    /// See [`Protocol::Terms`].
    type Terms;

    /// Consumes bytes from the server, at first none, and appends the bytes to send to `out`.
    /// Returns the number of bytes consumed; the rest is passed again, followed by more.
    ///
    /// # Errors
    /// The reason why the connection cannot be used.
    fn input(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Progress<Self::Terms>), String>;

    /// TLS protects the connection now.
    fn secured(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// A server that left the protocol: its connection is closed, for this reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProtocolViolation(pub(crate) &'static str);

/// See the module.
pub(crate) trait Protocol: Send + Sync + Sized + 'static {
    /// The fields of a request, without its data.
    type Command: Copy + Send + 'static;
    /// What is known of the reply to a request, while it arrives.
    type Reply: Default + 'static;
    /// The result of a handshake.
    type Terms: Copy + Send + 'static;
    /// The start of a connection.
    type Handshake: Handshake<Terms = Self::Terms>;
    /// A piece of a reply, without the data that follow it.
    type Piece;

    /// Longest head of a request, bytes.
    const HEAD_MAX: usize;

    fn handshake(&self, is_tls: bool) -> Self::Handshake;

    fn bytes(terms: &Self::Terms) -> u64;

    /// Compares the medium of a new connection with that of the disk, apart from its size.
    ///
    /// # Errors
    /// It is another one: nothing is sent to it.
    fn check(&self, terms: &Self::Terms) -> Result<(), String> {
        let _ = terms;
        Ok(())
    }

    /// The data that a request carries.
    fn transfer(command: &Self::Command) -> Transfer;

    /// Appends the head of a request. The reply repeats `cookie`.
    fn encode(&self, terms: &Self::Terms, command: &Self::Command, cookie: u64, out: &mut Vec<u8>);

    /// Appends the bytes that end a connection in order.
    fn goodbye(&self, terms: &Self::Terms, out: &mut Vec<u8>) {
        let _ = (terms, out);
    }

    /// The piece of a reply at the start of `bytes`, and its length. `None`: more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not of the protocol.
    fn piece(bytes: &[u8]) -> Result<Option<(Self::Piece, usize)>, String>;

    /// The request that a piece belongs to.
    fn cookie(piece: &Self::Piece) -> u64;

    /// The first byte and the length, in the memory of the request, of the data that follow a
    /// piece. `None`: no data follow.
    ///
    /// # Errors
    /// The server sends data that were not requested.
    fn place(
        &self,
        piece: &Self::Piece,
        job: &mut Job<Self>,
    ) -> Result<Option<(usize, usize)>, ProtocolViolation>;

    /// Takes a piece that has arrived with its data. `None`: the reply continues.
    ///
    /// # Errors
    /// The server has left the protocol, or is ending.
    fn take(
        &self,
        terms: &Self::Terms,
        piece: &Self::Piece,
        job: &mut Job<Self>,
    ) -> Result<Option<Outcome>, ProtocolViolation>;

    /// A connection is used from now on.
    fn connected(&self) {}

    /// A request of the disk itself has ended; `number` is that of [`RequestOwner::Disk`].
    fn own_request_ended(&self, number: u64, status: Status) {
        let _ = (number, status);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOwner {
    /// A Bio of this core.
    Bio(Ticket),
    /// One of another core: its number there.
    OtherCore { core: u32, number: u64 },
    /// The disk itself, with a number that its protocol has chosen.
    Disk { number: u64 },
}

/// A request with its memory.
pub(crate) struct Job<P: Protocol> {
    pub(crate) owner: RequestOwner,
    pub(crate) command: P::Command,
    pub(crate) data: Segs,
    pub(crate) reply: P::Reply,
}

impl<P: Protocol> Job<P> {
    pub(crate) fn new(owner: RequestOwner, command: P::Command, data: Segs) -> Job<P> {
        Job { owner, command, data, reply: P::Reply::default() }
    }
}
