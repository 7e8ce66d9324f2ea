//! An NBD client that makes load: one connection, one thread that never sleeps, so that no wake-up
//! is charged to the server. All that can be sent goes out with one call.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use reactor::SeededRandom;
use rustix::thread::{CpuSet, sched_setaffinity};
use wire::nbd::codes::{DONE, chunk_kind, kind, option, rep};
use wire::nbd::{Form, Head, OptionReply, Request, chunk, dial};

use super::servers::{Server, Store};
use crate::error::{Error, Kind};
use crate::load::{Outcome, Shared, pattern};
use crate::servers::MEMORY_BYTES;

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of the shortest header of a reply.
const REPLY_LEN: usize = 16;
/// Longest wait for a server's word.
const WAIT: Duration = Duration::from_secs(20);

/// What the requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
    /// Writes one place behind the other.
    Fill,
    /// Each slot has a part of the disk: it writes a pattern there and reads it back.
    Verify,
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub portal: SocketAddr,
    pub export: &'static str,
    pub depth: u32,
    pub request_bytes: u32,
    pub work: Work,
    /// Simple or structured replies.
    pub form: Form,
    /// None: until told to stop.
    pub requests: Option<u64>,
    pub core: Option<usize>,
}

impl Load {
    /// 4 KiB reads, one at a time.
    pub fn new(server: &Server, store: Store) -> Load {
        let (portal, export) = server.export(store);
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

/// A load under way.
pub(super) struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Outcome, Error>>,
}

impl Running {
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }

    pub fn record(&self, yes: bool) {
        self.shared.recording.store(yes, Relaxed);
    }

    /// Ends it after the answers outstanding.
    pub fn stop(self) -> Result<Outcome, Error> {
        self.shared.stop.store(true, Relaxed);
        self.join()
    }

    fn join(self) -> Result<Outcome, Error> {
        let panicked = |_| Error::new(Kind::System, "the load's thread panicked");
        self.thread.join().map_err(panicked)?
    }
}

/// Makes a load with an end.
pub(super) fn run(load: &Load) -> Result<Outcome, Error> {
    start(load)?.join()
}

/// Starts a load; answers when its first requests are out.
pub(super) fn start(load: &Load) -> Result<Running, Error> {
    let shared = Arc::new(Shared::default());
    let (its, wanted) = (shared.clone(), load.clone());
    let thread = std::thread::Builder::new().name("load".into());
    let thread = thread.spawn(move || {
        if let Some(core) = wanted.core {
            pin(core).map_err(|e| Error::system("pin the load", e))?;
        }
        Client::enter(&wanted, its)?.work()
    });
    let thread = thread.map_err(|e| Error::system("start a thread", e))?;
    let begun = Instant::now();
    while shared.ready.load(Relaxed) == 0 && !thread.is_finished() && begun.elapsed() < WAIT {
        sleep(Duration::from_millis(1));
    }
    Ok(Running { shared, thread })
}

/// Keeps this thread on one core.
fn pin(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core.min(CpuSet::MAX_CPU - 1));
    Ok(sched_setaffinity(None, &set)?)
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
    shared: Arc<Shared>,
    stream: TcpStream,
    clock: Instant,
    slots: Vec<Slot>,
    idle: Vec<u32>,
    in_flight: u32,
    issued: u64,
    random: SeededRandom,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    at: usize,
    have: usize,
    data: Vec<u8>,
    outcome: Outcome,
}

impl Client {
    /// Connected and past the handshake.
    fn enter(load: &Load, shared: Arc<Shared>) -> Result<Client, Error> {
        let io = |e| Error::system(load.portal, e);
        let mut stream = TcpStream::connect(load.portal).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        stream.set_read_timeout(Some(WAIT)).map_err(io)?;
        let mut greeting = [0; dial::GREETING_LEN];
        stream.read_exact(&mut greeting).map_err(io)?;
        dial::greeting(&greeting).map_err(|_| broken("greeting"))?;
        stream.write_all(&dial::flags()).map_err(io)?;
        let mut options = Vec::new();
        if load.form != Form::Simple {
            options.extend(dial::option(option::STRUCTURED_REPLY, &[]));
        }
        options.extend(dial::option(option::GO, &dial::info(load.export, &[])));
        stream.write_all(&options).map_err(io)?;
        let mut wanted = if load.form == Form::Simple { 1 } else { 2 };
        while wanted > 0 {
            let mut head = [0; OptionReply::HEADER_LEN];
            stream.read_exact(&mut head).map_err(io)?;
            let word = |at: usize| {
                let bytes = head.get(at..).and_then(|b| b.first_chunk::<4>());
                bytes.map_or(0, |b| u32::from_be_bytes(*b))
            };
            let mut rest = vec![0; word(16).min(65536) as usize];
            stream.read_exact(&mut rest).map_err(io)?;
            match word(12) {
                rep::ACK => wanted -= 1,
                rep::INFO => {}
                _ => return Err(broken("the export was refused")),
            }
        }
        stream.set_nonblocking(true).map_err(io)?;
        Ok(Client {
            slots: vec![Slot::default(); load.depth as usize],
            idle: (0..load.depth).collect(),
            data: vec![0x5a; load.request_bytes as usize],
            load: load.clone(),
            shared,
            stream,
            clock: Instant::now(),
            in_flight: 0,
            issued: 0,
            random: SeededRandom::new(1),
            out: Vec::new(),
            sent: 0,
            input: vec![0; READ_BYTES],
            at: 0,
            have: 0,
            outcome: Outcome::default(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn work(mut self) -> Result<Outcome, Error> {
        let mut heard = Instant::now();
        loop {
            self.fill();
            self.shared.ready.store(1, Relaxed);
            self.send()?;
            if self.in_flight == 0 {
                break;
            }
            if self.receive()? {
                heard = Instant::now();
            } else if heard.elapsed() > WAIT {
                return Err(Error::new(Kind::Timeout, "the server does not answer"));
            }
        }
        self.out.clear();
        let bye = Request { kind: kind::DISC, ..Request::default() };
        bye.encode(Form::Simple, &mut self.out);
        let _ = self.stream.write(&self.out);
        Ok(self.outcome)
    }

    /// Makes a request for every slot that has none.
    fn fill(&mut self) {
        let now = self.now();
        let bytes = u64::from(self.load.request_bytes);
        let places = MEMORY_BYTES / bytes;
        while !self.shared.stop.load(Relaxed)
            && self.load.requests.is_none_or(|all| self.issued < all)
            && let Some(index) = self.idle.pop()
        {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            slot.begun = now;
            slot.write = match self.load.work {
                Work::Read => false,
                Work::Write | Work::Fill => true,
                Work::Verify => !slot.write,
            };
            if self.load.work == Work::Fill {
                slot.place = self.issued % places * bytes;
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
            request.encode(Form::Simple, &mut self.out);
            if slot.write {
                self.out.extend_from_slice(&self.data);
            }
            self.issued += 1;
            self.in_flight += 1;
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        while let Some(rest) = self.out.get(self.sent..).filter(|r| !r.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(Error::system("send", e)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Takes what has come; true when something had.
    fn receive(&mut self) -> Result<bool, Error> {
        self.input.copy_within(self.at..self.have, 0);
        self.have -= std::mem::take(&mut self.at);
        if self.have == self.input.len() {
            self.input.resize(self.have * 2, 0);
        }
        let room = self.input.get_mut(self.have..).unwrap_or(&mut []);
        match self.stream.read(room) {
            Ok(0) => return Err(broken("the server ended the connection")),
            Ok(n) => self.have += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(Error::system("receive", e)),
        }
        while self.reply()? {}
        Ok(true)
    }

    /// Takes one reply, or a chunk of one, when all of it is here.
    fn reply(&mut self) -> Result<bool, Error> {
        let here = self.input.get(self.at..self.have).unwrap_or(&[]);
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
            self.outcome.compared += 1;
        }
        self.at += used + bytes;
        if done {
            self.done(index, &slot);
        }
        Ok(true)
    }

    /// A request has ended.
    fn done(&mut self, index: usize, slot: &Slot) {
        if self.shared.recording.load(Relaxed) {
            let took = self.now().saturating_sub(slot.begun);
            self.outcome.latency.record(took);
        }
        self.outcome.requests += 1;
        self.shared.requests.fetch_add(1, Relaxed);
        self.in_flight -= 1;
        self.idle.push(u32::try_from(index).unwrap_or(0));
    }
}
