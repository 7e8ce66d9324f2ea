//! The driver in a simulated world: slow disks, links that cut bytes anywhere and break, clients
//! that return, and a model of what each sector may hold.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bio::Pool;
use drivers::Driver;
use drivers::nbd::Nbd;
use engine::Registry;
use reactor::sim::World;
use reactor::{Address, Reactor, SeededRandom, Stream};
use wire::nbd::codes::{chunk_kind, kind, option};
use wire::nbd::{Form, Head, OptionReply, Request, chunk, dial};

use crate::common::connection_cuts::ConnectionCuts;
use crate::common::plant::{self, Plant};
use crate::common::players::{Players, net_shape};
use testkit::Seeds;
use testkit::iscsi::{RxBuffer, put};

const CLIENTS: u64 = 3;
/// Sectors of each client.
const AREA: u64 = 96;
const ROUNDS: u32 = 30;
/// Longer than a request takes at the slow disk, and the news of a lost connection on its way.
const GRACE_NS: u64 = 20_000_000;

/// The connection broke.
#[derive(Debug)]
pub struct Broken;

pub struct Wire {
    pub stream: Stream,
    pool: Pool,
    rx: RxBuffer,
    form: Form,
}

impl Wire {
    /// One that speaks on a stream.
    pub fn over(stream: Stream, pool: Pool) -> Wire {
        let rx = RxBuffer::new(&stream, &pool, 65_536);
        Wire { stream, pool, rx, form: Form::Simple }
    }

    async fn need(&mut self, len: usize) -> Result<(), Broken> {
        self.rx.fill(len).await.ok_or(Broken)
    }

    /// The bytes that have arrived, at least a byte.
    pub async fn some(&mut self) -> Result<Vec<u8>, Broken> {
        self.need(1).await?;
        Ok(std::mem::take(&mut self.rx.bytes))
    }

    pub async fn take(&mut self, len: usize) -> Result<Vec<u8>, Broken> {
        self.rx.take(len).await.ok_or(Broken)
    }

    pub async fn send(&self, bytes: &[u8]) -> Result<(), Broken> {
        put(&self.stream, &self.pool, bytes).await.ok_or(Broken)
    }

    async fn option(&mut self, option: u32, payload: &[u8]) -> Result<(), Broken> {
        self.send(&dial::option(option, payload)).await?;
        loop {
            self.need(OptionReply::HEADER_LEN).await?;
            let len = u32::from_be_bytes(self.rx.bytes[16..20].try_into().unwrap()) as usize;
            let bytes = self.take(OptionReply::HEADER_LEN + len).await?;
            let (reply, _) = OptionReply::decode(&bytes).unwrap();
            assert!(!reply.is_error(), "{:?}", reply.kind);
            if reply.kind == wire::nbd::codes::rep::ACK {
                return Ok(());
            }
        }
    }

    /// The next piece of a reply: cookie, whether it is the last, bytes of a READ and their place.
    pub async fn receive(&mut self, read: &dyn Fn(u64) -> u64) -> Result<ReplyPiece, Broken> {
        self.need(16).await?;
        let len = match (self.form, self.rx.bytes[0]) {
            (Form::Extended, _) => 32,
            (_, 0x67) => 16,
            _ => 20,
        };
        let bytes = self.take(len).await?;
        match Head::decode(&bytes).unwrap().0 {
            Head::Simple { error, cookie } => {
                let data =
                    if error == 0 { self.take(read(cookie) as usize).await? } else { vec![] };
                Ok(ReplyPiece { cookie, last: true, error: error != 0, data, at: None })
            }
            Head::Chunk { flags, kind, cookie, len, .. } => {
                let body = self.take(len as usize).await?;
                let mut piece = ReplyPiece {
                    cookie,
                    last: flags & 1 != 0,
                    error: false,
                    data: vec![],
                    at: None,
                };
                match kind {
                    chunk_kind::NONE => {}
                    chunk_kind::OFFSET_DATA => {
                        piece.at = Some(u64::from_be_bytes(body[..8].try_into().unwrap()));
                        piece.data = body[8..].to_vec();
                    }
                    chunk_kind::OFFSET_HOLE => {
                        let (at, len) = chunk::parse_hole(&body).unwrap();
                        (piece.at, piece.data) = (Some(at), vec![0; len as usize]);
                    }
                    _ => piece.error = true,
                }
                Ok(piece)
            }
        }
    }
}

pub struct ReplyPiece {
    cookie: u64,
    last: bool,
    pub error: bool,
    data: Vec<u8>,
    at: Option<u64>,
}

struct Work {
    cookie: u64,
    sector: u64,
    sectors: u64,
    /// None for a read.
    value: Option<u8>,
    data: Vec<u8>,
}

pub struct Client {
    number: u64,
    random: SeededRandom,
    pub reactor: Reactor,
    pub pool: Pool,
    portal: Address,
    pub form: Form,
    /// What each sector may hold: one value, or more after writes that were not answered.
    model: Vec<Vec<u8>>,
    cookie: u64,
    entries: u32,
}

impl Client {
    pub fn new(
        number: u64,
        seed: u64,
        reactor: &Reactor,
        pool: &Pool,
        portal: &Address,
        form: Form,
    ) -> Client {
        Client {
            number,
            random: SeededRandom::new(seed * 31 + number),
            reactor: reactor.clone(),
            pool: pool.clone(),
            portal: portal.clone(),
            form,
            model: vec![vec![0]; AREA as usize],
            cookie: 0,
            entries: 0,
        }
    }

    /// Connected, and past the greeting.
    pub async fn dial(&mut self) -> Result<Wire, Broken> {
        let stream = match &self.portal {
            Address::Inet(at) => self.reactor.connect(*at).await,
            Address::Unix(path) => self.reactor.connect_unix(path).await,
            Address::Ether(_) => return Err(Broken),
        };
        let stream = stream.map_err(|_| Broken)?;
        let mut wire = Wire::over(stream, self.pool.clone());
        let greeting = wire.take(dial::GREETING_LEN).await?;
        dial::greeting(&greeting).unwrap();
        wire.send(&dial::flags()).await?;
        Ok(wire)
    }

    pub async fn enter(&mut self) -> Result<Wire, Broken> {
        let mut wire = self.dial().await?;
        match self.form {
            Form::Simple => {}
            Form::Structured => wire.option(option::STRUCTURED_REPLY, &[]).await?,
            Form::Extended => wire.option(option::EXTENDED_HEADERS, &[]).await?,
        }
        wire.option(option::GO, &dial::info("", &[])).await?;
        wire.form = self.form;
        self.entries += 1;
        Ok(wire)
    }

    async fn run(mut self, rounds: Rc<Cell<u32>>, report: Rc<RefCell<Vec<u32>>>) {
        let mut done = 0;
        while done < ROUNDS {
            if let Ok(mut wire) = self.enter().await {
                while done < ROUNDS && self.round(&mut wire).await.is_ok() {
                    done += 1;
                    rounds.set(rounds.get() + 1);
                }
            }
            // NBD takes no session over: requests of a lost connection may be written until the
            // disk has ended them.
            self.reactor.sleep(GRACE_NS).await;
        }
        report.borrow_mut().push(self.entries);
    }

    fn invent(&mut self, taken: &mut [bool]) -> Option<(Work, Vec<u8>)> {
        let sector = self.random.below(AREA);
        let sectors = 1 + self.random.below((AREA - sector).min(24));
        let range = sector as usize..(sector + sectors) as usize;
        // Requests under way together have no order: they keep apart.
        if taken[range.clone()].iter().any(|t| *t) {
            return None;
        }
        taken[range.clone()].fill(true);
        self.cookie += 1;
        let value = match self.random.below(4) {
            0 | 1 => None,
            2 => Some(0),
            _ => Some(1 + self.random.below(255) as u8),
        };
        let zeroes = value == Some(0) && self.random.chance(500);
        let kind = match value {
            None => kind::READ,
            Some(_) if zeroes => kind::WRITE_ZEROES,
            Some(_) => kind::WRITE,
        };
        if let Some(value) = value {
            self.model[range].iter_mut().for_each(|s| s.push(value));
        }
        let offset = (self.number * AREA + sector) * 512;
        let request = Request { kind, cookie: self.cookie, offset, len: sectors * 512, flags: 0 };
        let mut bytes = Vec::new();
        request.encode(self.form, &mut bytes);
        if let (kind::WRITE, Some(value)) = (kind, value) {
            bytes.resize(bytes.len() + sectors as usize * 512, value);
        }
        Some((Work { cookie: self.cookie, sector, sectors, value, data: vec![] }, bytes))
    }

    /// A few requests at once, and all their replies.
    async fn round(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        let mut taken = vec![false; AREA as usize];
        let (mut all, mut out) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(6) {
            if let Some((work, bytes)) = self.invent(&mut taken) {
                all.push(work);
                out.extend(bytes);
            }
        }
        wire.send(&out).await?;
        while !all.is_empty() {
            let lens: Vec<(u64, u64)> = all
                .iter()
                .map(|w| (w.cookie, if w.value.is_none() { w.sectors * 512 } else { 0 }))
                .collect();
            let len_of = move |cookie| lens.iter().find(|l| l.0 == cookie).unwrap().1;
            let piece = wire.receive(&len_of).await?;
            let place = all.iter().position(|w| w.cookie == piece.cookie).expect("a known cookie");
            assert!(!piece.error, "an error nobody asked for");
            let base = (self.number * AREA + all[place].sector) * 512;
            if let Some(at) = piece.at {
                assert_eq!(at, base + all[place].data.len() as u64, "pieces in order");
            }
            all[place].data.extend(piece.data);
            if piece.last {
                let work = all.remove(place);
                self.learn(&work);
            }
        }
        Ok(())
    }

    fn learn(&mut self, work: &Work) {
        for i in 0..work.sectors as usize {
            let may = &mut self.model[work.sector as usize + i];
            match work.value {
                Some(value) => *may = vec![value],
                None => {
                    let bytes = &work.data[i * 512..][..512];
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "a torn sector");
                    assert!(may.contains(&bytes[0]), "{} is none of {may:?}", bytes[0]);
                    *may = vec![bytes[0]];
                }
            }
        }
    }
}

/// A target in a world.
pub fn plant(world: &World, portals: &[Address]) -> Plant {
    plant_with(world, portals, serde_json::Value::Null)
}

/// The same, the target with parameters.
pub fn plant_with(world: &World, portals: &[Address], params: serde_json::Value) -> Plant {
    let nbd =
        |registry: &Arc<Registry>| -> Arc<dyn Driver> { Arc::new(Nbd::new(registry.clone())) };
    plant::plant(world, &nbd, ("sim", params), portals, (CLIENTS * AREA) as usize * 512)
}

/// Runs one seed; answers its trace and how often clients entered.
fn play(seed: u64) -> (u64, u32) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0x0bd);
    world.set_net(net_shape(&mut random, &[1, 7, 100, 1460, 16 * 1024]));
    let tcp: Address = "10.0.0.1:10809".parse().unwrap();
    let portals = [tcp, "unix:/run/nbd-simulated".parse().unwrap()];
    let plant = plant(&world, &portals);
    let players = Players::new(&world);
    for number in 0..CLIENTS {
        let portal = &portals[random.below(2) as usize];
        let form = [Form::Simple, Form::Structured, Form::Extended][random.below(3) as usize];
        let client = Client::new(number, seed, &players.reactor, &players.pool, portal, form);
        let run = client.run(players.rounds.clone(), players.logins.clone());
        drop(players.reactor.spawn("client", run));
    }
    let cuts = ConnectionCuts::new(random.below(8) as u32, CLIENTS as u32 * ROUNDS);
    players.run(&world, plant, CLIENTS, cuts)
}

/// T2 of block_requests/session.rs, Q1 of block_requests/requests.rs.
#[test]
fn data_is_correct_over_links_that_cut_and_break() {
    let played = Seeds::of(16).each(play);
    let entries: u32 = played.iter().map(|(_, entries)| entries).sum();
    assert!(u64::from(entries) > played.len() as u64 * CLIENTS, "nothing was ever cut");
}

#[test]
fn a_seed_plays_the_same_twice() {
    assert_eq!(play(3), play(3));
}
