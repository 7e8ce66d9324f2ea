//! The server's handshake: fixed newstyle.
//!
//! ```text
//!   FLAGS --4 bytes--> HEADER --16 bytes--> PAYLOAD --option done--> HEADER ...
//!     |                  |                    |  STARTTLS: forget all, Step::StartTls
//!     | unknown flag     | bad magic          |  GO, EXPORT_NAME: Step::Transmit
//!     v                  v                    |  ABORT: Step::Abort
//!   Hangup             Hangup               DRAIN --too long: TOO_BIG--> HEADER
//! ```
//!
//! Invariants
//!  H1  Everything that was agreed on before STARTTLS is forgotten. Bytes that follow it in the
//!      clear end the connection, so an attacker cannot inject options before TLS begins.
//!  H2  Without TLS where it is required, only STARTTLS and ABORT are answered. Other options do
//!      not reveal whether an export exists.
//!  H3  Contexts apply only to the export that they were set for.
//!  H4  At most [`OPTION_MAX`] bytes are held of a client's input, and a length field alone
//!      allocates none.
//!  H5  A client that did not request the block sizes of an export may send any request. It enters
//!      an export that serves whole blocks only if these have no more than [`BLOCK_USUAL`] bytes.

use super::codes::{
    self, ALLOCATION_CONTEXT, ALLOCATION_ID, MAGIC, OPTION_MAGIC, export_flag, handshake_flag,
    info, option, rep,
};
use super::option::{
    DRAIN_MAX, LISTED_MAX, NAME_MAX, OPTION_MAX, OPTIONS_MAX, asked, contexts, export_name, reply,
};
use super::transmission::Form;
use crate::bytes::get32;

const GREETING_LEN: usize = 18;
const HEADER_LEN: usize = 16;

/// Blocks of this size are served to clients that did not request it: those that request nothing
/// send whole sectors of 512 bytes.
const BLOCK_USUAL: u32 = 512;

/// Whether STARTTLS is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// When the client wants it.
    Allow,
    /// Nothing else is answered before it (H2).
    Require,
}

/// States of a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub tls: Tls,
}

/// The description of an export that is sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name in full.
    pub name: String,
    /// For people.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Transmission flags, without DF, which depends on the negotiation.
    pub flags: u16,
    /// Smallest, best and largest request, bytes.
    pub block_sizes: [u32; 3],
    /// Requests of other sizes are served too, for clients that did not request block sizes.
    pub unaligned: bool,
}

/// Why an export cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// There is none of that name for this client.
    Unknown(String),
    /// It may not.
    Denied(String),
    /// The server is ending.
    Ending(String),
}

/// One line of LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// For people.
    pub description: String,
}

/// The directory of exports. A client may query it as often as it likes, so nothing expensive
/// happens before `enter`.
pub trait Exports {
    /// Looks at an export. With `enter` transmission begins next if the answer is good.
    fn find(&mut self, name: &str, enter: bool) -> Result<Export, Unavailable>;
    /// Every export that this client may enter; None if the list is not disclosed.
    fn list(&mut self) -> Option<Vec<Listed>>;
}

/// The result of the negotiation when transmission begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The name as the client wrote it.
    pub name: String,
    pub export: Export,
    /// Headers.
    pub form: Form,
    /// The context `base:allocation` is answered.
    pub allocation: bool,
    /// The client requested the block sizes, so its requests keep to them.
    pub sizes: bool,
}

/// The caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All input is used up: more is needed.
    More,
    /// An option was answered; there may be input left.
    Answered,
    /// Send the queued bytes, then begin TLS as the server, then call [`Handshake::secured`].
    StartTls,
    /// Send the queued bytes. Requests follow, possibly already in the rest of the input.
    Transmit(Box<Agreed>),
    /// Send the queued bytes and close.
    Abort,
}

/// The client left the protocol, or sent an option that has no answer: close at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hangup {
    /// For people.
    pub why: String,
    /// The requested export, if its lookup failed.
    pub name: Option<String>,
}

impl Hangup {
    fn new(why: impl Into<String>) -> Hangup {
        Hangup { why: why.into(), name: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flags,
    Header,
    Payload { option: u32, len: usize },
    Drain { option: u32, left: u32 },
    Over,
}

/// The server's side of one connection.
pub struct Handshake {
    settings: Settings,
    phase: Phase,
    held: Vec<u8>,
    no_zeroes: bool,
    secure: bool,
    form: Form,
    /// Export for which `base:allocation` was chosen.
    allocation_of: Option<String>,
    /// Export whose block sizes the client requested.
    sizes_of: Option<String>,
    options: u32,
}

impl Handshake {
    /// The server speaks first: its greeting is written to `out`.
    pub fn new(settings: Settings, out: &mut Vec<u8>) -> Handshake {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        let before = out.len();
        out.extend(MAGIC.to_be_bytes());
        out.extend(OPTION_MAGIC.to_be_bytes());
        out.extend(flags.to_be_bytes());
        debug_assert_eq!(out.len() - before, GREETING_LEN);
        Handshake {
            settings,
            phase: Phase::Flags,
            held: Vec::new(),
            no_zeroes: false,
            secure: false,
            form: Form::Simple,
            allocation_of: None,
            sizes_of: None,
            options: 0,
        }
    }

    /// TLS has begun (H1).
    pub fn secured(&mut self) {
        self.secure = true;
        self.forget();
    }

    fn forget(&mut self) {
        self.form = Form::Simple;
        (self.allocation_of, self.sizes_of) = (None, None);
    }

    /// True once TLS has begun.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    pub fn options(&self) -> u32 {
        self.options
    }

    /// Consumes input until a step is due. Returns the number of bytes consumed, and the step.
    pub fn input(
        &mut self,
        bytes: &[u8],
        exports: &mut dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Hangup> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or(&[]);
            let wanted = match self.phase {
                Phase::Flags => 4,
                Phase::Header => HEADER_LEN,
                Phase::Payload { len, .. } => len,
                Phase::Drain { option, left } => {
                    let now = u32::try_from(rest.len()).unwrap_or(u32::MAX).min(left);
                    used += usize::try_from(now).unwrap_or(0);
                    if now < left {
                        self.phase = Phase::Drain { option, left: left - now };
                        return Ok((used, Step::More));
                    }
                    self.phase = Phase::Header;
                    self.refuse(option, rep::ERR_TOO_BIG, "the option is too long", out);
                    return Ok((used, Step::Answered));
                }
                Phase::Over => return Err(Hangup::new("the handshake is over")),
            };
            // H4: the held bytes grow only with received bytes.
            let take = wanted.saturating_sub(self.held.len()).min(rest.len());
            self.held.extend_from_slice(rest.get(..take).unwrap_or(&[]));
            used += take;
            if self.held.len() < wanted {
                return Ok((used, Step::More));
            }
            let held = std::mem::take(&mut self.held);
            match self.phase {
                Phase::Flags => self.flags(&held)?,
                Phase::Header => self.header(&held)?,
                Phase::Payload { option, .. } => {
                    self.phase = Phase::Header;
                    let step = self.option(option, &held, exports, out)?;
                    if step == Step::StartTls && used < bytes.len() {
                        return Err(Hangup::new("unencrypted bytes after STARTTLS"));
                    }
                    if matches!(step, Step::Transmit(_) | Step::Abort) {
                        self.phase = Phase::Over;
                    }
                    return Ok((used, step));
                }
                Phase::Drain { .. } | Phase::Over => {}
            }
        }
    }

    fn flags(&mut self, held: &[u8]) -> Result<(), Hangup> {
        let flags = held.first_chunk::<4>().map_or(u32::MAX, get32::<0, 4>);
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Err(Hangup::new(format!("unknown handshake flags {flags:#x}")));
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.phase = Phase::Header;
        Ok(())
    }

    fn header(&mut self, held: &[u8]) -> Result<(), Hangup> {
        let Some(header) = held.first_chunk::<HEADER_LEN>() else {
            return Err(Hangup::new("an option cut short"));
        };
        let magic = u64::from_be_bytes(crate::bytes::get_array::<0, 8, HEADER_LEN>(header));
        let (option, len) = (get32::<8, HEADER_LEN>(header), get32::<12, HEADER_LEN>(header));
        if magic != OPTION_MAGIC {
            return Err(Hangup::new("not an option: its magic number is wrong"));
        }
        self.options = self.options.saturating_add(1);
        if self.options > OPTIONS_MAX {
            return Err(Hangup::new(format!("more than {OPTIONS_MAX} options")));
        }
        self.phase = match usize::try_from(len) {
            Ok(len) if len <= OPTION_MAX => Phase::Payload { option, len },
            _ if len <= DRAIN_MAX && option != option::EXPORT_NAME => {
                Phase::Drain { option, left: len }
            }
            _ => return Err(Hangup::new(format!("an option of {len} bytes"))),
        };
        Ok(())
    }

    fn refuse(&self, option: u32, kind: u32, text: &str, out: &mut Vec<u8>) {
        reply(option, kind, &[text.as_bytes()], out);
    }

    fn option(
        &mut self,
        option: u32,
        payload: &[u8],
        exports: &mut dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Hangup> {
        let hidden = self.settings.tls == Tls::Require && !self.secure;
        match option {
            option::ABORT => {
                reply(option, rep::ACK, &[], out);
                return Ok(Step::Abort);
            }
            option::STARTTLS => return Ok(self.start_tls(payload, out)),
            // H2
            option::EXPORT_NAME if hidden => {
                return Err(Hangup::new("an export was requested without TLS"));
            }
            _ if hidden => {
                self.refuse(option, rep::ERR_TLS_REQD, "begin TLS first", out);
                return Ok(Step::Answered);
            }
            option::EXPORT_NAME => return self.export_name(payload, exports, out),
            option::GO => return Ok(self.info_or_go(option, payload, exports, out)),
            option::INFO => return Ok(self.info_or_go(option, payload, exports, out)),
            option::LIST => list(payload, exports, out),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if !payload.is_empty() => {
                self.refuse(option, rep::ERR_INVALID, "the option takes no data", out);
            }
            option::STRUCTURED_REPLY if self.form == Form::Extended => {
                let text = "extended headers were agreed on already";
                self.refuse(option, rep::ERR_EXT_HEADER_REQD, text, out);
            }
            option::STRUCTURED_REPLY => {
                self.form = Form::Structured;
                reply(option, rep::ACK, &[], out);
            }
            option::EXTENDED_HEADERS => {
                self.form = Form::Extended;
                reply(option, rep::ACK, &[], out);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta(option, payload, exports, out);
            }
            _ => self.refuse(option, rep::ERR_UNSUP, "no such option here", out),
        }
        Ok(Step::Answered)
    }

    fn start_tls(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Step {
        let refusal = match (self.settings.tls, self.secure) {
            _ if !payload.is_empty() => Some((rep::ERR_INVALID, "the option takes no data")),
            (Tls::Off, _) => Some((rep::ERR_UNSUP, "there is no TLS here")),
            (_, true) => Some((rep::ERR_INVALID, "TLS has begun already")),
            (Tls::Allow | Tls::Require, false) => None,
        };
        if let Some((kind, text)) = refusal {
            self.refuse(option::STARTTLS, kind, text, out);
            return Step::Answered;
        }
        reply(option::STARTTLS, rep::ACK, &[], out);
        // H1: nothing that was agreed on survives, for any next call.
        self.forget();
        Step::StartTls
    }

    /// Transmission flags after negotiation.
    fn flags_of(&self, export: &Export) -> u16 {
        let df = if self.form == Form::Simple { 0 } else { export_flag::SEND_DF };
        (export.flags & !export_flag::SEND_DF) | df | export_flag::HAS_FLAGS
    }

    fn has_requested_sizes(&self, name: &str) -> bool {
        self.sizes_of.as_deref() == Some(name)
    }

    /// The client must request the block sizes before it may enter (H5).
    fn must_request_sizes(&self, name: &str, export: &Export) -> bool {
        let [min, ..] = export.block_sizes;
        !export.unaligned && min > BLOCK_USUAL && !self.has_requested_sizes(name)
    }

    fn transmit(&mut self, name: &str, mut export: Export) -> Step {
        export.flags = self.flags_of(&export);
        Step::Transmit(Box::new(Agreed {
            export,
            form: self.form,
            // H3
            allocation: self.allocation_of.take().is_some_and(|of| of == name),
            sizes: self.has_requested_sizes(name),
            name: name.to_owned(),
        }))
    }

    fn export_name(
        &mut self,
        payload: &[u8],
        exports: &mut dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Hangup> {
        let name = export_name(payload).map_err(|e| Hangup::new(e.to_string()))?;
        let hangup = |why| Hangup { why, name: Some(name.to_owned()) };
        let denied = |e| {
            let (Unavailable::Unknown(why) | Unavailable::Denied(why) | Unavailable::Ending(why)) =
                e;
            hangup(why)
        };
        // Nothing is entered before this is known.
        if let Ok(export) = exports.find(name, false)
            && self.must_request_sizes(name, &export)
        {
            return Err(hangup(sizes_wanted(&export)));
        }
        let export = exports.find(name, true).map_err(denied)?;
        out.extend(export.size.to_be_bytes());
        out.extend(self.flags_of(&export).to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Ok(self.transmit(name, export))
    }

    fn info_or_go(
        &mut self,
        option: u32,
        payload: &[u8],
        exports: &mut dyn Exports,
        out: &mut Vec<u8>,
    ) -> Step {
        let asked = match asked(payload) {
            Ok(asked) => asked,
            Err(e) => {
                self.refuse(option, rep::ERR_INVALID, &e.to_string(), out);
                return Step::Answered;
            }
        };
        if asked.wants_block_size {
            self.sizes_of = Some(asked.name.to_owned());
        }
        let kind = |k: u16| k.to_be_bytes();
        // Nothing is entered before this is known.
        if let Ok(export) = exports.find(asked.name, false)
            && self.must_request_sizes(asked.name, &export)
        {
            let [min, best, max] = export.block_sizes.map(u32::to_be_bytes);
            reply(option, rep::INFO, &[&kind(info::BLOCK_SIZE), &min, &best, &max], out);
            let text = sizes_wanted(&export);
            self.refuse(option, rep::ERR_BLOCK_SIZE_REQD, clipped(&text), out);
            return Step::Answered;
        }
        let enter = option == option::GO;
        let export = match exports.find(asked.name, enter) {
            Ok(export) => export,
            Err(e) => {
                self.unavailable(option, e, out);
                return Step::Answered;
            }
        };
        let (size, flags) = (export.size.to_be_bytes(), self.flags_of(&export).to_be_bytes());
        reply(option, rep::INFO, &[&kind(info::EXPORT), &size, &flags], out);
        if asked.wants_name {
            let name = clipped(&export.name);
            reply(option, rep::INFO, &[&kind(info::NAME), name.as_bytes()], out);
        }
        if asked.wants_description && !export.description.is_empty() {
            let text = clipped(&export.description);
            reply(option, rep::INFO, &[&kind(info::DESCRIPTION), text.as_bytes()], out);
        }
        // Sent to every client: even one without a request may respect them.
        let [min, best, max] = export.block_sizes.map(u32::to_be_bytes);
        reply(option, rep::INFO, &[&kind(info::BLOCK_SIZE), &min, &best, &max], out);
        reply(option, rep::ACK, &[], out);
        if enter { self.transmit(asked.name, export) } else { Step::Answered }
    }

    fn unavailable(&self, option: u32, why: Unavailable, out: &mut Vec<u8>) {
        let (kind, text) = match &why {
            Unavailable::Unknown(text) => (rep::ERR_UNKNOWN, text),
            Unavailable::Denied(text) => (rep::ERR_POLICY, text),
            Unavailable::Ending(text) => (rep::ERR_SHUTDOWN, text),
        };
        self.refuse(option, kind, clipped(text), out);
    }

    fn meta(&mut self, option: u32, payload: &[u8], exports: &mut dyn Exports, out: &mut Vec<u8>) {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // H3: a choice replaces the one before it, also when it fails.
            self.allocation_of = None;
        }
        if self.form == Form::Simple {
            let text = "contexts need structured replies";
            return self.refuse(option, rep::ERR_INVALID, text, out);
        }
        let asked = match contexts(payload) {
            Ok(asked) => asked,
            Err(e) => return self.refuse(option, rep::ERR_INVALID, &e.to_string(), out),
        };
        if let Err(e) = exports.find(asked.name, false) {
            return self.unavailable(option, e, out);
        }
        let all = !set && (asked.queries.is_empty() || asked.queries.contains(&"base:"));
        if all || asked.queries.contains(&ALLOCATION_CONTEXT) {
            let id = if set { ALLOCATION_ID } else { 0 };
            let parts: [&[u8]; 2] = [&id.to_be_bytes(), ALLOCATION_CONTEXT.as_bytes()];
            reply(option, rep::META_CONTEXT, &parts, out);
            if set {
                self.allocation_of = Some(asked.name.to_owned());
            }
        }
        reply(option, codes::rep::ACK, &[], out);
    }
}

/// Why a client that did not request block sizes may not enter.
fn sizes_wanted(export: &Export) -> String {
    let ([min, ..], name) = (export.block_sizes, &export.name);
    format!(
        "export {name}: blocks of {min} bytes, and the client did not request block sizes \
         (NBD_INFO_BLOCK_SIZE); next: use a client that does, or set unaligned = true at the target"
    )
}

fn clipped(text: &str) -> &str {
    let mut end = text.len().min(NAME_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

fn list(payload: &[u8], exports: &mut dyn Exports, out: &mut Vec<u8>) {
    if !payload.is_empty() {
        let text = "the option takes no data";
        return reply(option::LIST, rep::ERR_INVALID, &[text.as_bytes()], out);
    }
    let Some(all) = exports.list() else {
        let text = "exports are not listed here";
        return reply(option::LIST, rep::ERR_POLICY, &[text.as_bytes()], out);
    };
    for one in all.iter().take(LISTED_MAX) {
        let (name, text) = (clipped(&one.name), clipped(&one.description));
        let len = u32::try_from(name.len()).unwrap_or(0).to_be_bytes();
        reply(option::LIST, rep::SERVER, &[&len, name.as_bytes(), text.as_bytes()], out);
    }
    reply(option::LIST, rep::ACK, &[], out);
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
