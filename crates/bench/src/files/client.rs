//! A client of 9P that makes load: one connection, one thread that never sleeps, so that no wake-up
//! is charged to the server. All that can be sent goes out with one call.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use reactor::SeededRandom;
use rustix::thread::{CpuSet, sched_setaffinity};
use wire::ninep::{self, HEAD, IOHDR, NOFID, NOTAG, Names, T, open};

use super::servers::{FILE, FILE_BYTES, PIECE, SEED, Server};
use crate::error::{Error, Kind};
use crate::load::{Outcome, Shared, pattern};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes that are verified together: what every server takes.
const VERIFY: u32 = 16 << 10;
/// Longest wait for a server's word.
const WAIT: Duration = Duration::from_secs(20);
/// The root's fid, and the file's.
const ROOT: u32 = 1;
const DATA: u32 = 2;
/// The first fid of the slots.
const SLOTS: u32 = 16;
/// Types of replies.
const RERROR: u8 = 107;
const RLERROR: u8 = 7;
const RREAD: u8 = 117;

/// Loads so far.
static LOADS: AtomicU64 = AtomicU64::new(0);

/// Which 9P a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// 9P2000.
    Plain,
    /// 9P2000.L, as much of it as reading needs.
    Linux,
}

/// What the requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Makes the file, of so many bytes, and writes it front to back.
    Fill(u64),
    /// Reads the file front to back, again and again.
    Sequential,
    /// The same once, and looks at what comes.
    Verify,
    /// Reads so many bytes at random places.
    Random(u32),
    /// Makes files and removes them.
    Names,
    /// Writes blocks at random places of a file of so many bytes.
    Soil(u64),
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub at: SocketAddr,
    pub dialect: Dialect,
    pub aname: String,
    /// Largest message.
    pub msize: u32,
    pub depth: u32,
    pub work: Work,
    /// None: until told to stop.
    pub requests: Option<u64>,
    pub core: Option<usize>,
}

impl Load {
    pub fn new(server: &Server, work: Work) -> Load {
        Load {
            at: server.at,
            dialect: server.dialect,
            aname: server.aname.clone(),
            msize: (128 << 10) + IOHDR,
            depth: 1,
            work,
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
            let mut set = CpuSet::new();
            set.set(core.min(CpuSet::MAX_CPU - 1));
            let pinned = sched_setaffinity(None, &set).map_err(std::io::Error::from);
            pinned.map_err(|e| Error::system("pin the load", e))?;
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

fn broken(what: impl Into<String>) -> Error {
    Error::new(Kind::Protocol, what.into())
}

/// Where a slot of [`Work::Names`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Walk,
    Create,
    Remove,
}

#[derive(Clone, Default)]
struct Slot {
    begun: u64,
    place: u64,
    step: Step,
}

struct Client {
    load: Load,
    shared: Arc<Shared>,
    stream: TcpStream,
    clock: Instant,
    slots: Vec<Slot>,
    idle: Vec<u16>,
    in_flight: u32,
    issued: u64,
    /// Which load it is of this process.
    number: u64,
    random: SeededRandom,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    at: usize,
    have: usize,
    data: Vec<u8>,
    outcome: Outcome,
}

/// A message of 9P2000.L: what its fields are, as they are sent.
fn linux(kind: u8, tag: u16, fields: &[&[u8]], out: &mut Vec<u8>) {
    let len = HEAD + fields.iter().map(|f| f.len()).sum::<usize>();
    out.extend_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&tag.to_le_bytes());
    fields.iter().for_each(|f| out.extend_from_slice(f));
}

/// A string with its count.
fn text(s: &str) -> Vec<u8> {
    let len = u16::try_from(s.len()).unwrap_or(0).to_le_bytes();
    [&len[..], s.as_bytes()].concat()
}

impl Client {
    /// Connected, attached, the file open.
    fn enter(load: &Load, shared: Arc<Shared>) -> Result<Client, Error> {
        let io = |e| Error::system(load.at, e);
        let stream = TcpStream::connect(load.at).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        stream.set_read_timeout(Some(WAIT)).map_err(io)?;
        let depth = u16::try_from(load.depth).unwrap_or(u16::MAX);
        let mut client = Client {
            slots: vec![Slot::default(); usize::from(depth)],
            idle: (0..depth).rev().collect(),
            data: vec![0; PIECE],
            load: load.clone(),
            shared,
            stream,
            clock: Instant::now(),
            in_flight: 0,
            issued: 0,
            number: LOADS.fetch_add(1, Relaxed),
            random: SeededRandom::new(1),
            out: Vec::new(),
            sent: 0,
            input: vec![0; READ_BYTES],
            at: 0,
            have: 0,
            outcome: Outcome::default(),
        };
        let mut ask = |f: &dyn Fn(&mut Vec<u8>)| client.ask(f);
        let (msize, aname) = (load.msize, load.aname.as_str());
        match load.dialect {
            Dialect::Plain => {
                ask(&|o| T::Version { msize, version: "9P2000" }.encode(NOTAG, o))?;
                let afid = NOFID;
                ask(&|o| T::Attach { fid: ROOT, afid, uname: "bench", aname }.encode(0, o))?;
            }
            Dialect::Linux => {
                ask(&|o| T::Version { msize, version: "9P2000.L" }.encode(NOTAG, o))?;
                let (fid, afid) = (ROOT.to_le_bytes(), NOFID.to_le_bytes());
                let fields = [&fid[..], &afid, &text(""), &text(aname), &[0; 4]];
                ask(&|o| linux(104, 0, &fields, o))?;
            }
        }
        client.open()?;
        client.stream.set_nonblocking(true).map_err(io)?;
        Ok(client)
    }

    fn open(&mut self) -> Result<(), Error> {
        let to = |names: &[&'static str]| Names::new(names).ok_or(broken("too many names"));
        let (here, file) = (to(&[])?, to(&[FILE])?);
        let walk = |names| T::Walk { fid: ROOT, newfid: DATA, names };
        match self.load.work {
            Work::Names => Ok(()),
            Work::Fill(_) => {
                self.ask(&|o| walk(here).encode(0, o))?;
                let mode = open::RDWR;
                self.ask(&|o| T::Create { fid: DATA, name: FILE, perm: 0o644, mode }.encode(0, o))
            }
            _ => {
                self.ask(&|o| walk(file).encode(0, o))?;
                match self.load.dialect {
                    Dialect::Plain => {
                        self.ask(&|o| T::Open { fid: DATA, mode: open::RDWR }.encode(0, o))
                    }
                    Dialect::Linux => {
                        self.ask(&|o| linux(12, 0, &[&DATA.to_le_bytes(), &[0; 4]], o))
                    }
                }
            }
        }
    }

    /// A request before the load begins.
    fn ask(&mut self, encode: &dyn Fn(&mut Vec<u8>)) -> Result<(), Error> {
        let io = |e| Error::system("the first requests", e);
        let mut out = Vec::new();
        encode(&mut out);
        self.stream.write_all(&out).map_err(io)?;
        let mut head = [0; HEAD];
        self.stream.read_exact(&mut head).map_err(io)?;
        let (size, kind, _) = ninep::head(&head, 1 << 20).map_err(|_| broken("a reply's size"))?;
        let mut rest = vec![0; size as usize - HEAD];
        self.stream.read_exact(&mut rest).map_err(io)?;
        if kind == RERROR || kind == RLERROR {
            let what = String::from_utf8_lossy(rest.get(2..).unwrap_or(&[])).into_owned();
            return Err(broken(format!("the server refused: {what} {rest:?}")));
        }
        Ok(())
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
        Ok(self.outcome)
    }

    /// Bytes of a read or write.
    fn piece(&self) -> u32 {
        match self.load.work {
            Work::Random(bytes) => bytes,
            Work::Fill(_) => PIECE as u32,
            Work::Verify => VERIFY,
            Work::Soil(_) => 4096,
            _ => self.load.msize - IOHDR,
        }
    }

    fn ends(&self) -> bool {
        let all = match self.load.work {
            Work::Fill(bytes) => bytes / PIECE as u64,
            Work::Verify => FILE_BYTES / u64::from(VERIFY),
            _ => self.load.requests.unwrap_or(u64::MAX),
        };
        self.shared.stop.load(Relaxed) || self.issued >= all
    }

    /// Makes a request for every slot that has none.
    fn fill(&mut self) {
        let now = self.now();
        let bytes = self.piece();
        let places = FILE_BYTES / u64::from(bytes);
        while !self.ends()
            && let Some(index) = self.idle.pop()
        {
            let n = self.issued;
            let place = u64::from(bytes)
                * match self.load.work {
                    Work::Random(_) => self.random.below(places),
                    Work::Soil(all) => self.random.below(all / u64::from(bytes)),
                    Work::Fill(_) => n,
                    _ => n % places,
                };
            let Some(slot) = self.slots.get_mut(usize::from(index)) else { continue };
            (slot.begun, slot.place) = (now, place);
            match self.load.work {
                Work::Names => self.name(index),
                Work::Fill(_) | Work::Soil(_) => self.write(index, place, bytes),
                _ => {
                    T::Read { fid: DATA, offset: place, count: bytes }.encode(index, &mut self.out)
                }
            }
            self.issued += 1;
            self.in_flight += 1;
        }
    }

    fn write(&mut self, index: u16, place: u64, bytes: u32) {
        let data = self.data.get_mut(..bytes as usize).unwrap_or(&mut []);
        pattern::fill(SEED, place, data);
        ninep::write_head(index, DATA, place, bytes, &mut self.out);
        self.out.extend_from_slice(data);
    }

    /// The next request of a slot that makes files and removes them.
    fn name(&mut self, index: u16) {
        let Some(slot) = self.slots.get(usize::from(index)) else { return };
        let fid = SLOTS + u32::from(index);
        // A load that ends between the two leaves its files.
        let (name, mode) = (format!("f{}-{index}", self.number), open::RDWR);
        let out = &mut self.out;
        match slot.step {
            Step::Walk => {
                if let Some(names) = Names::new(&[]) {
                    T::Walk { fid: ROOT, newfid: fid, names }.encode(index, out);
                }
            }
            Step::Create => T::Create { fid, name: &name, perm: 0o644, mode }.encode(index, out),
            Step::Remove => T::Remove { fid }.encode(index, out),
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
        if self.at > 0 {
            self.input.copy_within(self.at..self.have, 0);
            self.have -= std::mem::take(&mut self.at);
        }
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

    /// Takes one reply when all of it is here.
    fn reply(&mut self) -> Result<bool, Error> {
        let here = self.input.get(self.at..self.have).unwrap_or(&[]);
        let Some(head) = here.first_chunk::<HEAD>() else { return Ok(false) };
        let (size, kind, index) =
            ninep::head(head, self.load.msize).map_err(|_| broken("a reply's size"))?;
        let Some(message) = here.get(..size as usize) else { return Ok(false) };
        let body = message.get(HEAD..).unwrap_or(&[]);
        if kind == RERROR || kind == RLERROR {
            let what = String::from_utf8_lossy(body.get(2..).unwrap_or(&[])).into_owned();
            return Err(broken(format!("a request ended with an error: {what}")));
        }
        let Some(slot) = self.slots.get(usize::from(index)).cloned() else {
            return Err(broken("a reply's tag"));
        };
        if kind == RREAD {
            let data = body.get(4..).unwrap_or(&[]);
            if data.len() != self.piece() as usize {
                return Err(broken("fewer bytes than were asked for"));
            }
            if self.load.work == Work::Verify {
                if let Some(wrong) = pattern::first_wrong(SEED, slot.place, data) {
                    let what = format!("byte {wrong} of the file does not read as written");
                    return Err(Error::new(Kind::Data, what));
                }
                self.outcome.compared += 1;
            }
        }
        self.at += size as usize;
        self.done(index, &slot);
        Ok(true)
    }

    /// A request has ended.
    fn done(&mut self, index: u16, slot: &Slot) {
        if let (Work::Names, Some(s)) = (self.load.work, self.slots.get_mut(usize::from(index))) {
            s.step = match slot.step {
                Step::Walk => Step::Create,
                Step::Create => Step::Remove,
                Step::Remove => Step::Walk,
            };
            if slot.step == Step::Walk {
                // It does not count: the request that it is for goes out at once.
                return self.name(index);
            }
        }
        if self.shared.recording.load(Relaxed) {
            let took = self.now().saturating_sub(slot.begun);
            self.outcome.latency.record(took);
        }
        self.outcome.requests += 1;
        self.shared.requests.fetch_add(1, Relaxed);
        self.in_flight -= 1;
        self.idle.push(index);
    }
}
