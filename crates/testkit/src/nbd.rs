//! NBD client over a socket, made of the wire's codecs: it can send messages that no other client
//! sends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use wire::nbd::codes::{chunk_kind, command_flag, info, option, rep};
use wire::nbd::{Error, Form, HEAD_MAX, Head, OptionReply, Request, chunk, dial};

use crate::iscsi::initiator::dial_from;

/// Longest wait for bytes.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct RequestResult {
    pub error: Option<Error>,
    /// Pieces of a READ: offset and bytes, holes as zeroes.
    pub data: Vec<(u64, Vec<u8>)>,
    /// Pieces that were holes.
    pub holes: usize,
    pub extents: Vec<chunk::Extent>,
}

impl RequestResult {
    /// The bytes of a READ in order.
    pub fn bytes(&self, offset: u64) -> Vec<u8> {
        let mut pieces = self.data.clone();
        pieces.sort();
        let mut out = Vec::new();
        for (at, bytes) in pieces {
            assert_eq!(at, offset + out.len() as u64, "pieces neither overlap nor leave gaps");
            out.extend(bytes);
        }
        out
    }
}

pub struct Client {
    pub stream: TcpStream,
    form: Form,
    cookie: u64,
}

impl Client {
    /// Connected, and past the greeting.
    pub fn dial(at: SocketAddr) -> Client {
        Client::try_dial(at).unwrap()
    }

    fn try_dial(at: SocketAddr) -> io::Result<Client> {
        Client::greeted(TcpStream::connect(at)?)
    }

    fn greeted(mut stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        let mut greeting = [0; dial::GREETING_LEN];
        stream.read_exact(&mut greeting)?;
        assert_eq!(dial::greeting(&greeting), Ok(3));
        stream.write_all(&dial::flags())?;
        Ok(Client { stream, form: Form::Simple, cookie: 0 })
    }

    /// In transmission at an export of a server that may have ended, or the reply type with which
    /// it refused.
    ///
    /// # Errors
    ///
    /// The connection was closed.
    pub fn try_enter(at: SocketAddr, export: &str) -> io::Result<Result<Client, u32>> {
        let mut client = Client::try_dial(at)?;
        let kinds = client.try_option(option::GO, &dial::info(export, &[]))?;
        let last = kinds.last().copied().unwrap_or_default();
        Ok(if last == rep::ACK { Ok(client) } else { Err(last) })
    }

    /// In transmission at an export, from another address of this machine: for the server it is
    /// another host.
    pub fn enter_from(source: Ipv4Addr, at: SocketAddr, export: &str) -> Client {
        let mut client = Client::greeted(dial_from(source, at).unwrap()).unwrap();
        let kinds = client.option(option::GO, &dial::info(export, &[]));
        assert_eq!(kinds.last(), Some(&rep::ACK), "{kinds:x?}");
        client
    }

    /// In transmission at an export, after asking for its block sizes.
    pub fn enter(at: SocketAddr, form: Form, export: &str) -> Client {
        Client::enter_asking(at, form, export, &[info::BLOCK_SIZE])
    }

    /// In transmission at an export, after asking for that information.
    pub fn enter_asking(at: SocketAddr, form: Form, export: &str, asks: &[u16]) -> Client {
        let mut c = Client::dial(at);
        match form {
            Form::Simple => {}
            Form::Structured => assert_eq!(c.option(option::STRUCTURED_REPLY, &[]), [rep::ACK]),
            Form::Extended => assert_eq!(c.option(option::EXTENDED_HEADERS, &[]), [rep::ACK]),
        }
        if form != Form::Simple {
            let contexts = dial::contexts(export, &["base:allocation"]);
            let kinds = c.option(option::SET_META_CONTEXT, &contexts);
            assert_eq!(kinds, [rep::META_CONTEXT, rep::ACK]);
        }
        let kinds = c.option(option::GO, &dial::info(export, asks));
        assert_eq!(kinds.last(), Some(&rep::ACK), "{kinds:x?}");
        c.form = form;
        c
    }

    /// Types of the replies to an option, up to the last.
    pub fn option(&mut self, option: u32, payload: &[u8]) -> Vec<u32> {
        self.try_option(option, payload).unwrap()
    }

    fn try_option(&mut self, option: u32, payload: &[u8]) -> io::Result<Vec<u32>> {
        self.stream.write_all(&dial::option(option, payload))?;
        let mut kinds = Vec::new();
        loop {
            let mut bytes = vec![0; OptionReply::HEADER_LEN];
            self.stream.read_exact(&mut bytes)?;
            let len = u32::from_be_bytes(*bytes.last_chunk().unwrap()) as usize;
            bytes.resize(bytes.len() + len, 0);
            self.stream.read_exact(&mut bytes[OptionReply::HEADER_LEN..])?;
            let (reply, _) = OptionReply::decode(&bytes).unwrap();
            kinds.push(reply.kind);
            if reply.kind == rep::ACK || reply.is_error() {
                return Ok(kinds);
            }
        }
    }

    /// Sends a request; answers its cookie.
    pub fn send(&mut self, kind: u16, flags: u16, offset: u64, len: u64, data: &[u8]) -> u64 {
        self.cookie += 1;
        let extended = self.form == Form::Extended && !data.is_empty();
        let flags = flags | if extended { command_flag::PAYLOAD_LEN } else { 0 };
        let mut out = Vec::new();
        Request { flags, kind, cookie: self.cookie, offset, len }.encode(self.form, &mut out);
        out.extend(data);
        self.stream.write_all(&out).unwrap();
        self.cookie
    }

    fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.stream.read_exact(&mut out).unwrap();
        out
    }

    /// Receives the whole reply to a request, the only one in flight; `len` of a READ.
    pub fn receive(&mut self, cookie: u64, read: Option<(u64, u64)>) -> RequestResult {
        let mut answer = RequestResult::default();
        loop {
            let len = match self.form {
                Form::Simple => 16,
                Form::Extended => HEAD_MAX,
                Form::Structured => {
                    let mut magic = [0; 4];
                    self.stream.peek(&mut magic).unwrap();
                    if magic == [0x67, 0x44, 0x66, 0x98] { 16 } else { 20 }
                }
            };
            let bytes = self.exactly(len);
            match Head::decode(&bytes).unwrap().0 {
                Head::Simple { error, cookie: of } => {
                    assert_eq!(of, cookie);
                    answer.error = (error != 0).then(|| Error::from_code(error));
                    if let (0, Some((offset, len))) = (error, read) {
                        answer.data.push((offset, self.exactly(len as usize)));
                    }
                    return answer;
                }
                Head::Chunk { flags, kind, cookie: of, len, .. } => {
                    assert_eq!(of, cookie);
                    let body = self.exactly(len as usize);
                    answer.chunk(kind, body);
                    if flags & 1 != 0 {
                        return answer;
                    }
                }
            }
        }
    }

    /// A request and its reply.
    pub fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> RequestResult {
        let cookie = self.send(kind, flags, offset, len, data);
        self.receive(cookie, (kind == 0).then_some((offset, len)))
    }

    /// True when the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

impl RequestResult {
    fn chunk(&mut self, kind: u16, body: Vec<u8>) {
        match kind {
            chunk_kind::NONE => {}
            chunk_kind::OFFSET_DATA => {
                let (offset, data) = body.split_first_chunk().unwrap();
                self.data.push((u64::from_be_bytes(*offset), data.to_vec()));
            }
            chunk_kind::OFFSET_HOLE => {
                let (offset, len) = chunk::parse_hole(&body).unwrap();
                self.data.push((offset, vec![0; len as usize]));
                self.holes += 1;
            }
            chunk_kind::BLOCK_STATUS | chunk_kind::BLOCK_STATUS_EXT => {
                let wide = kind == chunk_kind::BLOCK_STATUS_EXT;
                self.extents = chunk::parse_block_status(&body, wide).unwrap().1;
            }
            _ => self.error = Some(chunk::parse_error(&body).unwrap().0),
        }
    }
}
