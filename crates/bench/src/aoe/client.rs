//! An AoE client that makes load: raw frames, one thread that never sleeps, so that no wake-up is
//! charged to the server. Every answer that is read must begin with the number of its block, which
//! a fill has written.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bio::{Pool, PoolConfig, Segs};
use reactor::{Config, Link, LinkMode, PortChoice, Reactor, SeededRandom};
use wire::aoe::{
    Address, Ata, BROADCAST, Config as Query, ETHERTYPE, HEADER_LEN, Header, Mac, command,
    directive,
};
use wire::ata::command as op;
use wire::ata::status;

use super::servers::{Server, Store};
use crate::error::{Error, Kind};
use crate::load::{LoadShared, Outcome, Running, WAIT};
use crate::servers::MEMORY_BYTES;

pub(super) const REQUEST_BYTES: u64 = 4096;
pub(super) const SECTORS: u8 = 8;
const SECTOR: u64 = 512;
/// After which an answer was lost, ns.
const LOST_NS: u64 = 200_000_000;
/// Longest wait for a first answer.
const PROBE: Duration = Duration::from_millis(200);
/// Mark of this client in each tag: answers to other clients have other tags.
const TAG: u32 = 0x5A00_0000;
const HEAD: usize = 36;

/// Operation of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Random places.
    Read,
    /// Random places.
    Write,
    /// Every place once.
    Fill,
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    pub near: String,
    pub address: Address,
    pub depth: u32,
    pub work: Work,
    /// Of a request; those of a fill are [`SECTORS`].
    pub sectors: u8,
    /// None: until stopped.
    pub requests: Option<u64>,
    pub core: Option<usize>,
}

impl Load {
    /// Reads, one at a time.
    pub fn new(server: &Server, store: Store) -> Load {
        let (near, address) = (server.near().to_owned(), server.address(store));
        let (work, sectors, requests, core) = (Work::Read, SECTORS, None, None);
        Load { near, address, depth: 1, work, sectors, requests, core }
    }
}

pub(super) fn run(load: &Load) -> Result<Outcome, Error> {
    start(load)?.join()
}

/// Starts a load; answers when its first requests are out.
pub(super) fn start(load: &Load) -> Result<Running, Error> {
    let wanted = load.clone();
    Running::begin(load.core, 1, move |shared| Client::new(&wanted, shared)?.work())
}

/// Probes for a target once.
pub(super) fn probe(near: &str, address: Address) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let (_reactor, link) = open(near)?;
            ask(&link, address).map(drop)
        });
        asked.join().map_err(|_| Error::new(Kind::System, "the probe's thread panicked"))?
    })
}

fn open(near: &str) -> Result<(Reactor, Link), Error> {
    let config = Config { name: "load".into(), port: PortChoice::Poll, spin_ns: 0, cpu: None };
    let reactor = Reactor::start(config).map_err(|e| Error::system("start the load", e))?;
    // By calls: with a ring the copy of received data would be charged to the sender.
    let link = reactor.link_by(near, ETHERTYPE, LinkMode::Calls);
    let link = link.map_err(|e| Error::system("open the cable", e))?;
    Ok((reactor, link))
}

fn header(link: &Link, to: Mac, address: Address, command: u8, tag: u32) -> Result<Header, Error> {
    let facts = link.facts().map_err(|e| Error::system("look at the cable", e))?;
    Ok(Header::request(to, Mac(facts.mac), address, command, tag))
}

/// The address of a target's interface.
fn ask(link: &Link, address: Address) -> Result<Mac, Error> {
    let question = header(link, BROADCAST, address, command::CONFIG, TAG)?;
    let frame = [&question.encode()[..], &Query::request(directive::READ, &[]).encode()].concat();
    let sent = link.send(&frame, &Segs::new()).and_then(|()| link.flush());
    sent.map_err(|e| Error::system("send on the cable", e))?;
    let begun = Instant::now();
    let mut found = None;
    while found.is_none() && begun.elapsed() < PROBE {
        let mut hear = |frame: &[u8]| {
            let Ok((header, _)) = Header::decode(frame) else { return };
            if header.response && header.error.is_none() && header.address == address {
                found = Some(header.from);
            }
        };
        link.receive(64, &mut hear).map_err(|e| Error::system("listen on the cable", e))?;
    }
    found.ok_or_else(|| Error::new(Kind::Timeout, format!("{address} does not answer")))
}

#[derive(Clone, Copy, Default)]
struct Slot {
    begun_ns: u64,
    block: u64,
    /// Which use of the slot: the tag's upper part.
    turn: u32,
}

struct Client {
    reactor: Reactor,
    link: Link,
    load: Load,
    shared: Arc<LoadShared>,
    random: SeededRandom,
    head: Header,
    /// Data of writes; the first word is the block's number.
    data: Segs,
    slots: Vec<Slot>,
    asked: u64,
    outcome: Outcome,
}

impl Client {
    fn new(load: &Load, shared: Arc<LoadShared>) -> Result<Client, Error> {
        let (reactor, link) = open(&load.near)?;
        let to = ask(&link, load.address)?;
        let pool = Pool::new(PoolConfig { limit_bytes: 1 << 20 });
        let rest = (u64::from(load.sectors) * SECTOR) as usize - 8;
        let data = Segs::alloc(&pool, rest).ok_or(Error::new(Kind::System, "no memory"))?;
        data.fill(0, rest, 0x5A);
        Ok(Client {
            reactor,
            head: header(&link, to, load.address, command::ATA, TAG)?,
            link,
            load: load.clone(),
            shared,
            random: SeededRandom::new(7),
            data,
            slots: vec![Slot::default(); load.depth as usize],
            asked: 0,
            outcome: Outcome::default(),
        })
    }

    fn bytes(&self) -> u64 {
        u64::from(self.load.sectors) * SECTOR
    }

    fn places(&self) -> u64 {
        MEMORY_BYTES / self.bytes()
    }

    fn is_over(&self) -> bool {
        let enough = self.load.requests.is_some_and(|most| self.asked >= most);
        enough || self.shared.stop.load(Relaxed)
    }

    /// A new request in a slot; nothing when there are to be no more.
    fn next(&mut self, slot: usize) -> Result<bool, Error> {
        if self.is_over() {
            self.slots[slot].begun_ns = 0;
            return Ok(false);
        }
        let block = match self.load.work {
            Work::Fill => self.asked % self.places(),
            _ => self.random.below(self.places()),
        };
        self.asked += 1;
        let turn = self.slots[slot].turn.wrapping_add(1) & 0xFFF;
        self.slots[slot] = Slot { begun_ns: reactor::monotonic_ns(), block, turn };
        self.send(slot)?;
        Ok(true)
    }

    fn send(&mut self, slot: usize) -> Result<(), Error> {
        let Slot { block, turn, .. } = self.slots[slot];
        let writes = self.load.work != Work::Read;
        let ata = Ata {
            write: writes,
            extended: true,
            sectors: self.load.sectors,
            command: if writes { op::WRITE_EXT } else { op::READ_EXT },
            registers: block * u64::from(self.load.sectors),
            ..Ata::default()
        };
        let head = Header { tag: TAG | turn << 12 | slot as u32, ..self.head };
        let mut bytes = [0; HEAD + 8];
        let number = block.to_le_bytes();
        let all = head.encode().into_iter().chain(ata.encode()).chain(number);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        let sent = match writes {
            true => self.link.send(&bytes, &self.data),
            false => self.link.send(&bytes[..HEAD], &Segs::new()),
        };
        sent.map_err(|e| Error::system("send on the cable", e))
    }

    fn flush(&self) -> Result<(), Error> {
        while self.link.queued() > 0 {
            self.link.flush().map_err(|e| Error::system("send on the cable", e))?;
        }
        Ok(())
    }

    /// The slot of an answer; None: it belongs to no slot, or was received before.
    fn answered_slot(&self, frame: &[u8]) -> Result<Option<usize>, Error> {
        let Ok((header, body)) = Header::decode(frame) else { return Ok(None) };
        let slot = (header.tag & 0xFFF) as usize;
        let Some(place) = self.slots.get(slot) else { return Ok(None) };
        let mine = header.tag == TAG | place.turn << 12 | slot as u32 && place.begun_ns > 0;
        if !header.response || !mine {
            return Ok(None);
        }
        let (ata, data) = Ata::decode(body)?;
        if header.error.is_some() || ata.command & status::FAILED != 0 {
            let what = format!("error {:?}, status {:#x}", header.error, ata.command);
            return Err(Error::new(Kind::Status, what));
        }
        if self.load.work == Work::Read {
            let number = data.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let (bytes, at) = (self.bytes(), place.block * self.bytes());
            // The fill numbered blocks of its own size.
            let numbered = at.is_multiple_of(REQUEST_BYTES) && self.load.sectors == SECTORS;
            let right = !numbered || number == Some(at / REQUEST_BYTES);
            if !right || frame.len() as u64 != HEAD as u64 + bytes {
                let what = format!("block {} reads as {number:?}", place.block);
                return Err(Error::new(Kind::Data, what));
            }
        }
        Ok(Some(slot))
    }

    fn work(mut self) -> Result<Outcome, Error> {
        let mut open = 0u32;
        for slot in 0..self.slots.len() {
            open += u32::from(self.next(slot)?);
        }
        self.flush()?;
        self.shared.ready.store(1, Relaxed);
        let mut looked_ns = reactor::monotonic_ns();
        let link = self.link.clone();
        while open > 0 {
            let mut wrong = None;
            let got = link.receive(64, &mut |frame| {
                let ended = self.answered_slot(frame).and_then(|slot| {
                    let Some(slot) = slot else { return Ok(()) };
                    let took = reactor::monotonic_ns() - self.slots[slot].begun_ns;
                    if self.shared.recording.load(Relaxed) {
                        self.outcome.latency.record(took);
                    }
                    self.outcome.requests += 1;
                    self.shared.requests.store(self.outcome.requests, Relaxed);
                    open -= u32::from(!self.next(slot)?);
                    Ok(())
                });
                wrong = wrong.take().or(ended.err());
            });
            let got = got.map_err(|e| Error::system("listen on the cable", e))?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            self.flush()?;
            let now = reactor::monotonic_ns();
            if got == 0 && now - looked_ns > LOST_NS {
                looked_ns = now;
                for slot in 0..self.slots.len() {
                    let begun = self.slots[slot].begun_ns;
                    if begun > 0 && now - begun > LOST_NS {
                        if now - begun > WAIT.as_nanos() as u64 {
                            return Err(Error::new(Kind::Timeout, "a request has no answer"));
                        }
                        self.send(slot)?;
                    }
                }
                self.flush()?;
            }
        }
        self.reactor.shutdown();
        Ok(self.outcome)
    }
}

const _: () = assert!(HEAD == HEADER_LEN + wire::aoe::ATA_LEN);
