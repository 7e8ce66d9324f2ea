//! The client's handshake: fixed newstyle, and EXPORT_NAME for servers that know no GO.
//!
//! ```text
//!   GREETING --> STARTTLS (if wanted) --> EXTENDED_HEADERS --no--> STRUCTURED_REPLY
//!                                               | yes                    |
//!                                               +--> SET_META_CONTEXT <--+ yes
//!                                                          |
//!                   Terms <-- GO --not known--> EXPORT_NAME --> Terms
//! ```
//!
//! Invariants
//!  C1  Bytes that arrive in the clear behind the answer to STARTTLS end the connection.
//!  C2  No more memory than [`REPLY_MAX`] is needed for a server's reply, and no more than
//!      [`REPLIES_MAX`] replies are read for one option.
//!  C3  A connection without TLS is refused where TLS is wanted, regardless of the server's offers.

use std::fmt;

use super::codes::{
    ALLOCATION_CONTEXT, OPTION_REPLY_MAGIC, export_flag, handshake_flag, info, option, rep,
};
use super::dial;
use super::option::OptionReply;
use super::transmission::Form;
use crate::bytes::Reader;
use crate::error::WireError;

/// Longest payload of a reply that is read, bytes; a longer one ends the handshake.
pub const REPLY_MAX: usize = 16 * 1024;

/// Replies to one option that are read; a further one ends the handshake.
pub const REPLIES_MAX: u32 = 64;

/// Zeroes behind the answer to EXPORT_NAME from a server that does not leave them out.
const PADDING_LEN: usize = 124;

/// Sizes of requests that a server takes, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Requests are multiples of it.
    pub minimum: u32,
    /// Smaller writes are slow.
    pub preferred: u32,
    /// Longest payload; `u32::MAX`: no limit is known.
    pub maximum: u32,
}

/// The result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub size: u64,
    /// Transmission flags ([`export_flag`]).
    pub flags: u16,
    pub form: Form,
    /// Number of the context `base:allocation`; `None`: BLOCK_STATUS may not be sent.
    pub allocation: Option<u32>,
    /// Sizes of requests, where the server names them.
    pub blocks: Option<BlockSizes>,
}

impl Terms {
    /// True with all bits of a transmission flag.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag == flag
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// TLS begins now; then [`ClientHandshake::secured`].
    StartTls,
    /// Transmission begins with the next byte.
    Ready(Terms),
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Bytes that are not of the protocol.
    Wire(WireError),
    /// A server of the old style, before 2011: no options.
    OldStyle,
    /// TLS is wanted, and the server has none.
    NoTls,
    /// The server serves nothing without TLS.
    TlsRequired,
    NoExport,
    /// The server is ending.
    Shutdown,
    /// Another error of the server: number and text.
    Server(u32, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Wire(e) => write!(f, "the server does not speak NBD: {e}"),
            Refusal::OldStyle => {
                f.write_str("the server speaks oldstyle NBD, which has no options")
            }
            Refusal::NoTls => f.write_str("the server has no TLS"),
            Refusal::TlsRequired => f.write_str("the server requires TLS (set tls_ca)"),
            Refusal::NoExport => f.write_str("the server has no such export"),
            Refusal::Shutdown => f.write_str("the server is ending"),
            Refusal::Server(number, text) => {
                write!(f, "the server refuses: error {}", number & 0xffff)?;
                if text.is_empty() { Ok(()) } else { write!(f, ": {}", text.escape_default()) }
            }
        }
    }
}

impl From<WireError> for Refusal {
    fn from(e: WireError) -> Refusal {
        Refusal::Wire(e)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientHandshakeState {
    Greeting,
    Option(u32),
    Secure,
    Name,
    Over,
}

#[derive(Debug)]
pub struct ClientHandshake {
    export: String,
    wants_tls: bool,
    state: ClientHandshakeState,
    no_zeroes: bool,
    form: Form,
    allocation: Option<u32>,
    size: Option<(u64, u16)>,
    blocks: Option<BlockSizes>,
    replies: u32,
}

impl ClientHandshake {
    /// For an export; `tls` wants the connection encrypted.
    pub fn new(export: &str, tls: bool) -> ClientHandshake {
        ClientHandshake {
            export: export.to_owned(),
            wants_tls: tls,
            state: ClientHandshakeState::Greeting,
            no_zeroes: false,
            form: Form::Simple,
            allocation: None,
            size: None,
            blocks: None,
            replies: 0,
        }
    }

    /// Consumes bytes from the server and appends the reply to `out`. Returns the number of bytes
    /// consumed; the caller passes the rest again, followed by more.
    ///
    /// # Errors
    /// The reason why the connection cannot be used.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Progress), Refusal> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or(&[]);
            let (took, progress) = match self.state {
                ClientHandshakeState::Greeting => self.greeted(rest, out)?,
                ClientHandshakeState::Option(asked) => self.answered(asked, rest, out)?,
                ClientHandshakeState::Name => self.named(rest)?,
                ClientHandshakeState::Secure | ClientHandshakeState::Over => {
                    return Ok((used, Progress::More));
                }
            };
            used += took;
            match progress {
                Progress::More if took > 0 => {}
                // C1
                Progress::StartTls if used < bytes.len() => {
                    return Err(WireError::long("reply to STARTTLS", 0).into());
                }
                other => return Ok((used, other)),
            }
        }
    }

    /// TLS protects the connection now.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        self.send_option(option::EXTENDED_HEADERS, &[], out);
    }

    fn greeted(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Progress), Refusal> {
        if bytes.len() < dial::GREETING_LEN {
            return Ok((0, Progress::More));
        }
        let flags = dial::greeting(bytes).map_err(|e| match e.field {
            "IHAVEOPT" => Refusal::OldStyle,
            _ => Refusal::Wire(e),
        })?;
        let ours = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.no_zeroes = ours & handshake_flag::NO_ZEROES != 0;
        out.extend(u32::from(ours).to_be_bytes());
        match (ours & handshake_flag::FIXED_NEWSTYLE != 0, self.wants_tls) {
            (true, true) => self.send_option(option::STARTTLS, &[], out),
            (true, false) => self.send_option(option::EXTENDED_HEADERS, &[], out),
            (false, true) => return Err(Refusal::NoTls), // C3
            (false, false) => self.send_export_name(out),
        }
        Ok((dial::GREETING_LEN, Progress::More))
    }

    fn send_option(&mut self, which: u32, payload: &[u8], out: &mut Vec<u8>) {
        out.extend(dial::option(which, payload));
        (self.state, self.replies) = (ClientHandshakeState::Option(which), 0);
    }

    fn send_export_name(&mut self, out: &mut Vec<u8>) {
        out.extend(dial::option(option::EXPORT_NAME, self.export.as_bytes()));
        self.state = ClientHandshakeState::Name;
    }

    fn go(&mut self, out: &mut Vec<u8>) {
        let payload = dial::info(&self.export, &[info::BLOCK_SIZE]);
        self.send_option(option::GO, &payload, out);
    }

    fn context(&mut self, out: &mut Vec<u8>) {
        let payload = dial::contexts(&self.export, &[ALLOCATION_CONTEXT]);
        self.send_option(option::SET_META_CONTEXT, &payload, out);
    }

    fn answered(
        &mut self,
        asked: u32,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Progress), Refusal> {
        let Some(head) = bytes.get(..OptionReply::HEADER_LEN) else {
            return Ok((0, Progress::More));
        };
        let mut r = Reader::new(head);
        if r.u64("magic")? != OPTION_REPLY_MAGIC {
            return Err(WireError::bad("magic", 0).into());
        }
        let _option_and_type = r.u64("option and type")?;
        let len = usize::try_from(r.u32("length")?).unwrap_or(usize::MAX);
        if len > REPLY_MAX {
            return Err(WireError::long("length", 16).into()); // C2
        }
        if bytes.len() < head.len() + len {
            return Ok((0, Progress::More));
        }
        let (reply, used) = OptionReply::decode(bytes)?;
        self.replies += 1;
        if reply.option != asked || self.replies > REPLIES_MAX {
            return Err(WireError::bad("option", 8).into());
        }
        Ok((used, self.reply(&reply, out)?))
    }

    fn reply(&mut self, reply: &OptionReply<'_>, out: &mut Vec<u8>) -> Result<Progress, Refusal> {
        let is_ack = reply.kind == rep::ACK;
        match reply.option {
            option::STARTTLS if is_ack => {
                self.state = ClientHandshakeState::Secure;
                return Ok(Progress::StartTls);
            }
            option::STARTTLS => return Err(Refusal::NoTls), // C3
            option::EXTENDED_HEADERS if is_ack => {
                self.form = Form::Extended;
                self.context(out);
            }
            option::EXTENDED_HEADERS if reply.is_error() => {
                refused_for_tls(reply)?;
                self.send_option(option::STRUCTURED_REPLY, &[], out);
            }
            option::STRUCTURED_REPLY if is_ack => {
                self.form = Form::Structured;
                self.context(out);
            }
            option::STRUCTURED_REPLY if reply.is_error() => {
                refused_for_tls(reply)?;
                self.go(out);
            }
            option::SET_META_CONTEXT if reply.kind == rep::META_CONTEXT => {
                let mut r = Reader::new(reply.payload);
                let number = r.u32("context number")?;
                if r.rest() == ALLOCATION_CONTEXT.as_bytes() {
                    self.allocation = Some(number);
                }
            }
            option::SET_META_CONTEXT if is_ack || reply.is_error() => {
                if reply.is_error() {
                    self.allocation = None;
                }
                self.go(out);
            }
            option::GO if reply.kind == rep::INFO => self.learn(reply.payload)?,
            option::GO if is_ack => {
                let Some((size, flags)) = self.size else {
                    return Err(WireError::short("NBD_INFO_EXPORT", 0).into());
                };
                return Ok(self.ready(size, flags));
            }
            option::GO if reply.kind == rep::ERR_UNSUP => self.send_export_name(out),
            option::GO if reply.is_error() => return Err(refusal(reply)),
            _ => return Err(WireError::bad("type", 12).into()),
        }
        Ok(Progress::More)
    }

    fn learn(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let mut r = Reader::new(payload);
        match r.u16("information type")? {
            info::EXPORT => self.size = Some((r.u64("size")?, r.u16("flags")?)),
            info::BLOCK_SIZE => {
                let sizes = BlockSizes {
                    minimum: r.u32("minimum block size")?,
                    preferred: r.u32("preferred block size")?,
                    maximum: r.u32("maximum payload")?,
                };
                let powers = sizes.minimum.is_power_of_two() && sizes.preferred.is_power_of_two();
                if !powers || sizes.maximum < sizes.minimum || sizes.preferred < sizes.minimum {
                    return Err(WireError::bad("block sizes", 2));
                }
                self.blocks = Some(sizes);
            }
            _ => {}
        }
        Ok(())
    }

    fn named(&mut self, bytes: &[u8]) -> Result<(usize, Progress), Refusal> {
        let len = 10 + if self.no_zeroes { 0 } else { PADDING_LEN };
        let Some(bytes) = bytes.get(..len) else { return Ok((0, Progress::More)) };
        let mut r = Reader::new(bytes);
        let (size, flags) = (r.u64("size")?, r.u16("flags")?);
        Ok((len, self.ready(size, flags)))
    }

    fn ready(&mut self, size: u64, flags: u16) -> Progress {
        self.state = ClientHandshakeState::Over;
        let flags = if flags & export_flag::HAS_FLAGS == 0 { 0 } else { flags };
        let allocation = self.allocation;
        Progress::Ready(Terms { size, flags, form: self.form, allocation, blocks: self.blocks })
    }
}

fn refused_for_tls(reply: &OptionReply<'_>) -> Result<(), Refusal> {
    match reply.kind {
        rep::ERR_TLS_REQD => Err(Refusal::TlsRequired),
        _ => Ok(()),
    }
}

fn refusal(reply: &OptionReply<'_>) -> Refusal {
    match reply.kind {
        rep::ERR_TLS_REQD => Refusal::TlsRequired,
        rep::ERR_UNKNOWN => Refusal::NoExport,
        rep::ERR_SHUTDOWN => Refusal::Shutdown,
        number => Refusal::Server(number, String::from_utf8_lossy(reply.payload).into_owned()),
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
