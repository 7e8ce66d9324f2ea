//! An NBD client that makes load: one connection.

use std::net::SocketAddr;
use std::sync::Arc;

use reactor::SeededRandom;
use wire::nbd::codes::{DONE, chunk_kind, kind, option, rep};
use wire::nbd::{Form, Head, OptionReply, Request, chunk, dial};

use super::servers::{Server, Store};
use crate::error::{Error, Kind};
use crate::load::{Caller, LoadShared, Outcome, Pipe, RequestTable, Running, pattern, work_beside};
use crate::servers::MEMORY_BYTES;

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of the shortest header of a reply.
const REPLY_LEN: usize = 16;

/// Operation of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// Writes one place behind the other.
    Fill,
    /// Each slot has a part of the disk: it writes a pattern there and reads it back.
    Verify,
}

#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub portal: SocketAddr,
    pub export: &'static str,
    pub depth: u32,
    pub request_bytes: u32,
    pub work: Work,
    /// Simple or structured replies.
    pub form: Form,
    /// None: until stopped.
    pub requests: Option<u64>,
    pub core: Option<usize>,
}

impl Load {
    /// 4 KiB reads of an export of that store, one at a time.
    pub fn new(server: &Server, store: Store) -> Load {
        let (portal, export) = server.export(store);
        Load::of(portal, export)
    }

    /// 4 KiB reads of an export, one at a time.
    pub fn of(portal: SocketAddr, export: &'static str) -> Load {
        Load {
            portal,
            export,
            depth: 1,
            request_bytes: 4096,
            work: Work::Read,
            form: Form::Simple,
            requests: None,
            core: None,
        }
    }
}

pub(super) fn run(load: &Load) -> Result<Outcome, Error> {
    start(load)?.join()
}

/// Starts a load; answers when its first requests are out.
pub(super) fn start(load: &Load) -> Result<Running, Error> {
    start_beside(load, || Ok(()))
}

/// Starts a load whose thread does a part of other work in each turn.
pub(crate) fn start_beside(
    load: &Load,
    mut other: impl FnMut() -> Result<(), Error> + Send + 'static,
) -> Result<Running, Error> {
    let wanted = load.clone();
    Running::begin(load.core, 1, move |shared| {
        let mut client = Client::enter(&wanted, shared)?;
        let outcome = work_beside(std::slice::from_mut(&mut client), &mut other)?;
        client.leave();
        Ok(outcome)
    })
}

fn broken(what: &'static str) -> Error {
    Error::new(Kind::Protocol, what)
}

#[derive(Clone, Default)]
struct Slot {
    begun: u64,
    place: u64,
    write: bool,
    seed: u64,
}

struct Client {
    load: Load,
    pipe: Pipe,
    requests: RequestTable,
    slots: Vec<Slot>,
    random: SeededRandom,
    data: Vec<u8>,
}

impl Client {
    /// Connected and past the handshake.
    fn enter(load: &Load, shared: Arc<LoadShared>) -> Result<Client, Error> {
        let mut pipe = Pipe::dial(load.portal, READ_BYTES)?;
        let mut greeting = [0; dial::GREETING_LEN];
        pipe.receive_blocking(&mut greeting)?;
        dial::greeting(&greeting).map_err(|_| broken("greeting"))?;
        pipe.send_blocking(&dial::flags())?;
        let mut options = Vec::new();
        if load.form != Form::Simple {
            options.extend(dial::option(option::STRUCTURED_REPLY, &[]));
        }
        options.extend(dial::option(option::GO, &dial::info(load.export, &[])));
        pipe.send_blocking(&options)?;
        let mut wanted = if load.form == Form::Simple { 1 } else { 2 };
        while wanted > 0 {
            let mut head = [0; OptionReply::HEADER_LEN];
            pipe.receive_blocking(&mut head)?;
            let word = |at: usize| {
                let bytes = head.get(at..).and_then(|b| b.first_chunk::<4>());
                bytes.map_or(0, |b| u32::from_be_bytes(*b))
            };
            let mut rest = vec![0; word(16).min(65536) as usize];
            pipe.receive_blocking(&mut rest)?;
            match word(12) {
                rep::ACK => wanted -= 1,
                rep::INFO => {}
                _ => return Err(broken("the export was refused")),
            }
        }
        pipe.set_nonblocking()?;
        Ok(Client {
            slots: vec![Slot::default(); load.depth as usize],
            data: vec![0x5a; load.request_bytes as usize],
            load: load.clone(),
            pipe,
            requests: RequestTable::new(shared, load.depth),
            random: SeededRandom::new(1),
        })
    }

    fn leave(&mut self) {
        let bye = Request { kind: kind::DISC, ..Request::default() };
        bye.encode(Form::Simple, &mut self.pipe.out);
        // The session is over, whether the server receives that or not.
        let _ = self.pipe.send();
    }
}

impl Caller for Client {
    fn parts(&mut self) -> (&mut Pipe, &mut RequestTable) {
        (&mut self.pipe, &mut self.requests)
    }

    fn fill(&mut self) {
        let now = self.requests.now();
        let bytes = u64::from(self.load.request_bytes);
        let places = MEMORY_BYTES / bytes;
        let all = self.load.requests.unwrap_or(u64::MAX);
        while let Some(index) = self.requests.next(all) {
            let nth = self.requests.issued - 1;
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            slot.begun = now;
            slot.write = match self.load.work {
                Work::Read => false,
                Work::Write | Work::Fill => true,
                Work::Verify => !slot.write,
            };
            if self.load.work == Work::Fill {
                slot.place = nth % places * bytes;
            } else if self.load.work != Work::Verify {
                slot.place = self.random.below(places) * bytes;
            } else if slot.write {
                let share = places / u64::from(self.load.depth);
                slot.place = (self.random.below(share) + share * u64::from(index)) * bytes;
                slot.seed = self.random.below(u64::MAX);
                pattern::fill(slot.seed, slot.place, &mut self.data);
            }
            let request = Request {
                flags: 0,
                kind: if slot.write { kind::WRITE } else { kind::READ },
                cookie: u64::from(index),
                offset: slot.place,
                len: bytes,
            };
            request.encode(Form::Simple, &mut self.pipe.out);
            if slot.write {
                self.pipe.out.extend_from_slice(&self.data);
            }
        }
    }

    /// One reply, or a chunk of one.
    fn reply(&mut self) -> Result<bool, Error> {
        let here = self.pipe.unread();
        if here.len() < REPLY_LEN {
            return Ok(false);
        }
        let Ok((head, used)) = Head::decode(here) else {
            // A chunk's header is longer; a wrong one never becomes right.
            let may_come = self.load.form != Form::Simple && here.len() < wire::nbd::HEAD_MAX;
            return if may_come { Ok(false) } else { Err(broken("a reply's magic")) };
        };
        let cookie = match head {
            Head::Simple { cookie, .. } | Head::Chunk { cookie, .. } => cookie,
        };
        let index = usize::try_from(cookie).unwrap_or(usize::MAX);
        let slot = self.slots.get(index).cloned().ok_or(broken("a reply's cookie"))?;
        let failed = broken("a request ended with an error");
        let (bytes, data, done) = match head {
            Head::Simple { error: 0, .. } => {
                let bytes = if slot.write { 0 } else { self.load.request_bytes as usize };
                (bytes, used..used + bytes, true)
            }
            Head::Chunk { flags, kind, len, .. } => {
                let bytes = usize::try_from(len).unwrap_or(usize::MAX);
                let data = match kind {
                    chunk_kind::OFFSET_DATA => used + chunk::OFFSET_LEN..used.saturating_add(bytes),
                    chunk_kind::OFFSET_HOLE | chunk_kind::NONE => used..used,
                    _ => return Err(failed),
                };
                (bytes, data, flags & DONE != 0)
            }
            Head::Simple { .. } => return Err(failed),
        };
        if here.len() < used.saturating_add(bytes) {
            return Ok(false);
        }
        if self.load.work == Work::Verify && !slot.write {
            // Nothing that is verified is a hole, and one block is one piece.
            let data = here.get(data).filter(|d| !d.is_empty()).ok_or(broken("data's length"))?;
            if let Some(wrong) = pattern::first_wrong(slot.seed, slot.place, data) {
                let what = format!("byte {wrong} of the export does not read as it was written");
                return Err(Error::new(Kind::Data, what));
            }
            self.requests.outcome.compared += 1;
        }
        self.pipe.used(used + bytes);
        if done {
            self.requests.ended(u32::try_from(index).unwrap_or(0), slot.begun);
        }
        Ok(true)
    }
}
