//! A client of 9P that makes load: one connection. Several share a thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use reactor::SeededRandom;
use wire::ninep::{self, HEAD, IOHDR, NOFID, NOTAG, Names, T, open};

use super::servers::{FILE, FILE_BYTES, PIECE, SEED, Server};
use crate::error::{Error, Kind};
use crate::load::{Caller, LoadShared, Outcome, Pipe, RequestTable, Running, pattern, work_all};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes that are verified together: a size that every server accepts.
const VERIFY: u32 = 16 << 10;
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

/// Operation of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Makes the file, of so many bytes, and writes it front to back.
    Fill(u64),
    /// Reads the file front to back, again and again.
    Sequential,
    /// The same once, and compares the data.
    Verify,
    /// Reads so many bytes at random places.
    Random(u32),
    /// Makes files and removes them.
    Names,
    /// Writes blocks at random places of a file of so many bytes.
    Soil(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    pub at: SocketAddr,
    pub dialect: Dialect,
    pub aname: String,
    pub file: String,
    /// Largest message.
    pub msize: u32,
    pub depth: u32,
    pub work: Work,
    /// None: until stopped.
    pub requests: Option<u64>,
    pub core: Option<usize>,
}

impl Load {
    pub fn new(server: &Server, work: Work) -> Load {
        Load {
            at: server.at,
            dialect: server.dialect,
            aname: server.aname.clone(),
            file: FILE.to_owned(),
            msize: (128 << 10) + IOHDR,
            depth: 1,
            work,
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
    start_all(vec![load.clone()])
}

/// Starts loads of several clients, each with a connection of its own, on one thread.
pub(super) fn start_all(loads: Vec<Load>) -> Result<Running, Error> {
    let core = loads.first().and_then(|load| load.core);
    Running::begin(core, 1, move |shared| {
        let enter = |load| Client::enter(load, shared.clone());
        let mut clients = loads.iter().map(enter).collect::<Result<Vec<_>, _>>()?;
        work_all(&mut clients)
    })
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
    pipe: Pipe,
    requests: RequestTable,
    slots: Vec<Slot>,
    /// Which load it is of this process.
    number: u64,
    random: SeededRandom,
    data: Vec<u8>,
}

/// A message of 9P2000.L from its encoded fields.
fn linux(kind: u8, tag: u16, fields: &[&[u8]], out: &mut Vec<u8>) {
    let len = HEAD + fields.iter().map(|f| f.len()).sum::<usize>();
    out.extend_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&tag.to_le_bytes());
    fields.iter().for_each(|f| out.extend_from_slice(f));
}

/// Names of a walk.
fn path<'a>(names: &[&'a str]) -> Result<Names<'a>, Error> {
    Names::new(names).ok_or_else(|| broken("too many names"))
}

/// A string with its count.
fn text(s: &str) -> Vec<u8> {
    let len = u16::try_from(s.len()).unwrap_or(0).to_le_bytes();
    [&len[..], s.as_bytes()].concat()
}

impl Client {
    /// Connected, attached, the file open.
    fn enter(load: &Load, shared: Arc<LoadShared>) -> Result<Client, Error> {
        let mut client = Client {
            slots: vec![Slot::default(); load.depth as usize],
            data: vec![0; PIECE],
            load: load.clone(),
            pipe: Pipe::dial(load.at, READ_BYTES)?,
            requests: RequestTable::new(shared, load.depth.min(u32::from(u16::MAX))),
            number: LOADS.fetch_add(1, Relaxed),
            random: SeededRandom::new(1),
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
        client.pipe.set_nonblocking()?;
        Ok(client)
    }

    fn open(&mut self) -> Result<(), Error> {
        let name = self.load.file.clone();
        let (here, file) = (path(&[])?, path(&[name.as_str()])?);
        let walk = |names| T::Walk { fid: ROOT, newfid: DATA, names };
        match self.load.work {
            Work::Names => Ok(()),
            Work::Fill(_) => {
                self.ask(&|o| walk(here).encode(0, o))?;
                let mode = open::RDWR;
                self.ask(&|o| T::Create { fid: DATA, name: &name, perm: 0o644, mode }.encode(0, o))
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
        let mut out = Vec::new();
        encode(&mut out);
        self.pipe.send_blocking(&out)?;
        let mut head = [0; HEAD];
        self.pipe.receive_blocking(&mut head)?;
        let (size, kind, _) = ninep::head(&head, 1 << 20).map_err(|_| broken("a reply's size"))?;
        let mut rest = vec![0; size as usize - HEAD];
        self.pipe.receive_blocking(&mut rest)?;
        if kind == RERROR || kind == RLERROR {
            let what = String::from_utf8_lossy(rest.get(2..).unwrap_or(&[])).into_owned();
            return Err(broken(format!("the server refused: {what} {rest:?}")));
        }
        Ok(())
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

    /// Requests in all.
    fn all(&self) -> u64 {
        match self.load.work {
            Work::Fill(bytes) => bytes / PIECE as u64,
            Work::Verify => FILE_BYTES / u64::from(VERIFY),
            _ => self.load.requests.unwrap_or(u64::MAX),
        }
    }

    fn write(&mut self, index: u16, place: u64, bytes: u32) {
        let data = self.data.get_mut(..bytes as usize).unwrap_or(&mut []);
        pattern::fill(SEED, place, data);
        ninep::write_head(index, DATA, place, bytes, &mut self.pipe.out);
        self.pipe.out.extend_from_slice(data);
    }

    /// The next request of a slot that makes files and removes them.
    fn name(&mut self, index: u16) {
        let Some(slot) = self.slots.get(usize::from(index)) else { return };
        let fid = SLOTS + u32::from(index);
        // A load that ends between the two leaves its files.
        let (name, mode) = (format!("f{}-{index}", self.number), open::RDWR);
        let out = &mut self.pipe.out;
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

    fn ended(&mut self, index: u16, slot: &Slot) {
        if let (Work::Names, Some(s)) = (self.load.work, self.slots.get_mut(usize::from(index))) {
            s.step = match slot.step {
                Step::Walk => Step::Create,
                Step::Create => Step::Remove,
                Step::Remove => Step::Walk,
            };
            if slot.step == Step::Walk {
                // It is not counted: the request that it prepares is sent at once.
                return self.name(index);
            }
        }
        self.requests.ended(u32::from(index), slot.begun);
    }
}

impl Caller for Client {
    fn parts(&mut self) -> (&mut Pipe, &mut RequestTable) {
        (&mut self.pipe, &mut self.requests)
    }

    fn fill(&mut self) {
        let (now, all) = (self.requests.now(), self.all());
        let bytes = self.piece();
        let places = FILE_BYTES / u64::from(bytes);
        while let Some(slot) = self.requests.next(all) {
            let nth = self.requests.issued - 1;
            let place = u64::from(bytes)
                * match self.load.work {
                    Work::Random(_) => self.random.below(places),
                    Work::Soil(all) => self.random.below(all / u64::from(bytes)),
                    Work::Fill(_) => nth,
                    _ => nth % places,
                };
            let index = u16::try_from(slot).unwrap_or(u16::MAX);
            let Some(slot) = self.slots.get_mut(usize::from(index)) else { continue };
            (slot.begun, slot.place) = (now, place);
            match self.load.work {
                Work::Names => self.name(index),
                Work::Fill(_) | Work::Soil(_) => self.write(index, place, bytes),
                _ => {
                    let read = T::Read { fid: DATA, offset: place, count: bytes };
                    read.encode(index, &mut self.pipe.out);
                }
            }
        }
    }

    fn reply(&mut self) -> Result<bool, Error> {
        let here = self.pipe.unread();
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
                return Err(broken("fewer bytes than requested"));
            }
            if self.load.work == Work::Verify {
                if let Some(wrong) = pattern::first_wrong(SEED, slot.place, data) {
                    let what = format!("byte {wrong} of the file does not read as written");
                    return Err(Error::new(Kind::Data, what));
                }
                self.requests.outcome.compared += 1;
            }
        }
        self.pipe.used(size as usize);
        self.ended(index, &slot);
        Ok(true)
    }
}
