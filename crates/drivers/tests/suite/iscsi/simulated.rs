//! The driver in a simulated world. Disks are slow, links cut bytes anywhere and break, and
//! sessions return on another core. A model predicts the contents of each sector.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bio::Pool;
use engine::Registry;
use reactor::sim::World;
use reactor::{Reactor, SeededRandom, Stream};
use wire::iscsi::{
    Bhs, ClientConfig, ClientLogin, ClientStep, DataOut, DigestPolicy, Framer, Offer, PRE_LOGIN,
    Pdu, Response, ScsiCommand, SessionParams, TAG_NONE,
};

use crate::common::connection_cuts::ConnectionCuts;
use crate::common::plant::{self, Plant};
use crate::common::players::{Players, net_shape};
use crate::iscsi::server::IQN;
use testkit::Seeds;
use testkit::iscsi::initiator::rw10;
use testkit::iscsi::{RxBuffer, pdu_bytes, put};

const CLIENTS: u64 = 3;
/// Sectors of each client.
const AREA: u32 = 96;
const ROUNDS: u32 = 20;

/// Bytes of an initiator's connection, in a simulated world.
pub struct Wire {
    pub stream: Stream,
    pool: Pool,
    rx: RxBuffer,
    pub params: SessionParams,
}

/// The connection broke.
pub struct Broken;

impl Wire {
    /// Before any login.
    pub fn over(stream: Stream, pool: Pool) -> Wire {
        let rx = RxBuffer::new(&stream, &pool, 65_536);
        Wire { stream, pool, rx, params: SessionParams::default() }
    }

    pub async fn receive(&mut self, framer: &Framer) -> Result<(Bhs, Vec<u8>), Broken> {
        self.rx.pdu(framer).await.ok_or(Broken)
    }

    pub async fn raw(&self, bytes: &[u8]) -> Result<(), Broken> {
        put(&self.stream, &self.pool, bytes).await.ok_or(Broken)
    }

    async fn send(&self, pdu: &impl Pdu, data: &[u8]) -> Result<(), Broken> {
        self.raw(&pdu_bytes(&self.params, pdu, &[], data)).await
    }
}

/// The range and data of a command.
#[derive(Clone)]
pub struct Work {
    pub lba: u32,
    pub sectors: u32,
    /// None for a read.
    pub data: Option<Vec<u8>>,
    pub received: Vec<u8>,
}

/// One initiator: a session that returns whenever it was lost, and a model of its sectors.
pub struct Client {
    number: u64,
    name: u64,
    random: SeededRandom,
    pub reactor: Reactor,
    pub pool: Pool,
    pub portal: SocketAddr,
    pub offer: Offer,
    /// What each sector may hold: one value, or two after a write that was not answered.
    model: Vec<Vec<u8>>,
    pub cmd_sn: u32,
    tag: u32,
    logins: u32,
}

impl Client {
    pub fn new(
        number: u64,
        seed: u64,
        reactor: &Reactor,
        pool: &Pool,
        portal: SocketAddr,
        offer: Offer,
    ) -> Client {
        Client {
            number,
            name: number,
            random: SeededRandom::new(seed * 31 + number),
            reactor: reactor.clone(),
            pool: pool.clone(),
            portal,
            offer,
            model: vec![vec![0]; AREA as usize],
            cmd_sn: 0,
            tag: 0,
            logins: 0,
        }
    }

    /// Makes it another initiator over the same sectors.
    pub fn name(&mut self, name: u64) {
        self.name = name;
    }

    fn fill(&mut self) -> u8 {
        self.random.next_u64() as u8
    }

    pub async fn login(&mut self) -> Result<Wire, Broken> {
        let stream = self.reactor.connect(self.portal).await.map_err(|_| Broken)?;
        let config = ClientConfig {
            initiator: format!("iqn.2026-11.test.ashlar:sim{}", self.name),
            target: Some(IQN.into()),
            isid: [0x80, 0, 0, 0, 0, 1],
            cid: 0,
            cmd_sn: self.random.next_u64() as u32 | 0xffff_ff00,
            offer: self.offer,
            chap: None,
        };
        let mut wire = Wire::over(stream, self.pool.clone());
        let (mut login, mut request) = ClientLogin::start(config).unwrap();
        loop {
            wire.raw(&request.to_bytes()).await?;
            let (bhs, data) = wire.receive(&PRE_LOGIN).await?;
            match login.response(&bhs, &data).unwrap() {
                ClientStep::Send(next) => request = next,
                ClientStep::Done(done) => {
                    wire.params = done.params;
                    self.cmd_sn = done.cmd_sn;
                    self.logins += 1;
                    return Ok(wire);
                }
            }
        }
    }

    pub async fn start(&mut self, wire: &Wire, work: &Work) -> Result<u32, Broken> {
        self.tag = self.tag.wrapping_add(1);
        let p = wire.params;
        let len = work.sectors * 512;
        let base = self.number as u32 * AREA;
        let opcode = if work.data.is_some() { 0x2a } else { 0x28 };
        let mut header = ScsiCommand {
            last: true,
            read: work.data.is_none(),
            write: work.data.is_some(),
            task_tag: self.tag,
            transfer_len: len,
            cmd_sn: self.cmd_sn,
            ..ScsiCommand::default()
        };
        header.cdb[..10].copy_from_slice(&rw10(opcode, base + work.lba, work.sectors as u16));
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let Some(data) = &work.data else {
            wire.send(&header, &[]).await?;
            return Ok(self.tag);
        };
        let unasked = p.first_burst.min(len) as usize;
        let piece = 512 + self.random.below(9000) as usize;
        let first = if p.immediate_data { unasked.min(piece) } else { 0 };
        header.data_len = first as u32;
        header.last = p.initial_r2t || first == unasked;
        wire.send(&header, &data[..first]).await?;
        if !header.last {
            burst(wire, self.tag, TAG_NONE, data, (first, unasked), piece).await?;
        }
        Ok(self.tag)
    }

    /// A few commands at once over sectors that do not overlap; checks all answers.
    async fn batch(&mut self, wire: &mut Wire, batch: &[Work]) -> Result<(), Broken> {
        let mut open: BTreeMap<u32, Work> = BTreeMap::new();
        for work in batch {
            let tag = self.start(wire, work).await?;
            open.insert(tag, work.clone());
        }
        let framer = Framer::of(&wire.params);
        while !open.is_empty() {
            let (bhs, data) = wire.receive(&framer).await?;
            let (tag, status) = match Response::decode(&bhs).unwrap() {
                Response::DataIn(p) => {
                    let work = open.get_mut(&p.task_tag).unwrap();
                    assert_eq!(p.offset as usize, work.received.len());
                    work.received.extend(data);
                    (p.task_tag, p.status.map(|s| s.0))
                }
                Response::Scsi(p) => (p.task_tag, Some(p.status)),
                Response::R2t(r) => {
                    let data = open[&r.task_tag].data.clone().unwrap();
                    let (from, end) = (r.offset as usize, (r.offset + r.desired_len) as usize);
                    let piece = 512 + self.random.below(9000) as usize;
                    burst(wire, r.task_tag, r.target_tag, &data, (from, end), piece).await?;
                    continue;
                }
                Response::NopIn(_) => continue,
                // An announcement that the session ends; the end follows.
                Response::Async(_) => continue,
                other => panic!("client {}: {other:?}", self.number),
            };
            let Some(status) = status else { continue };
            let work = open.remove(&tag).unwrap();
            assert_eq!(status, 0, "client {}", self.number);
            self.check(&work);
        }
        Ok(())
    }

    /// A finished command against the model.
    fn check(&mut self, work: &Work) {
        for i in 0..work.sectors {
            let at = i as usize * 512;
            let model = &mut self.model[(work.lba + i) as usize];
            let bytes = work.data.as_ref().unwrap_or(&work.received);
            let sector = &bytes[at..at + 512];
            assert!(sector.iter().all(|b| *b == sector[0]), "a torn sector");
            if work.data.is_none() {
                let ok = model.contains(&sector[0]);
                assert!(
                    ok,
                    "client {} sector {}: {:#x}, may be {model:x?}",
                    self.number,
                    work.lba + i,
                    sector[0]
                );
            }
            // From now on it is this and nothing else.
            *model = vec![sector[0]];
        }
    }

    fn plan(&mut self) -> Vec<Work> {
        let mut at = self.random.below(16) as u32;
        let mut batch = Vec::new();
        while batch.len() < 6 && at < AREA {
            let sectors = 1 + self.random.below(60) as u32;
            let sectors = sectors.min(AREA - at);
            let data = self
                .random
                .chance(600)
                .then(|| (0..sectors).flat_map(|_| vec![self.fill(); 512]).collect::<Vec<u8>>());
            batch.push(Work { lba: at, sectors, data, received: Vec::new() });
            at += sectors + self.random.below(20) as u32;
        }
        batch
    }

    async fn run(mut self, rounds_done: Rc<Cell<u32>>, report: Rc<RefCell<Vec<u32>>>) {
        let all = |data| Work { lba: 0, sectors: AREA, data, received: Vec::new() };
        let mut round = 0;
        while round < ROUNDS {
            let Ok(mut wire) = self.login().await else {
                self.reactor.sleep(1_000_000).await;
                continue;
            };
            // The first command of a session reports the reset.
            if self.swallow_attention(&mut wire).await.is_err() {
                continue;
            }
            // The present contents stay: the lost session writes no more.
            if self.batch(&mut wire, &[all(None)]).await.is_err() {
                continue;
            }
            while round < ROUNDS {
                round += 1;
                rounds_done.set(rounds_done.get() + 1);
                let batch = self.plan();
                if self.batch(&mut wire, &batch).await.is_ok() {
                    continue;
                }
                for work in batch.iter().filter(|w| w.data.is_some()) {
                    for i in 0..work.sectors {
                        let byte = work.data.as_ref().unwrap()[i as usize * 512];
                        self.model[(work.lba + i) as usize].push(byte);
                    }
                }
                break;
            }
        }
        report.borrow_mut().push(self.logins);
    }

    pub async fn swallow_attention(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        let framer = Framer::of(&wire.params);
        let header = ScsiCommand {
            last: true,
            task_tag: 0xaaaa,
            cmd_sn: self.cmd_sn,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        wire.send(&header, &[]).await?;
        let (bhs, data) = wire.receive(&framer).await?;
        match Response::decode(&bhs).unwrap() {
            Response::Scsi(p) => {
                assert_eq!((p.status, testkit::iscsi::initiator::sense(&data).0), (2, 6))
            }
            Response::Async(_) => return Err(Broken),
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

pub async fn burst(
    wire: &Wire,
    tag: u32,
    target_tag: u32,
    data: &[u8],
    (mut at, end): (usize, usize),
    piece: usize,
) -> Result<(), Broken> {
    let mut data_sn = 0;
    while at < end {
        let n = piece.min(end - at).min(wire.params.send_data_len_max as usize);
        let pdu = DataOut {
            last: at + n == end,
            task_tag: tag,
            target_tag,
            data_sn,
            offset: at as u32,
            data_len: n as u32,
            ..DataOut::default()
        };
        wire.send(&pdu, &data[at..at + n]).await?;
        (at, data_sn) = (at + n, data_sn + 1);
    }
    Ok(())
}

pub fn offer(random: &mut SeededRandom) -> Offer {
    let digest = |on: bool| if on { DigestPolicy::Require } else { DigestPolicy::Off };
    let sizes = [512, 1000, 8192, 65_536];
    let mut size = || sizes[random.below(4) as usize];
    let params = SessionParams {
        recv_data_len_max: size(),
        max_burst: size().max(4096),
        first_burst: size().min(4096),
        ..SessionParams::default()
    };
    Offer {
        header_digest: digest(random.chance(500)),
        data_digest: digest(random.chance(500)),
        params: SessionParams {
            initial_r2t: random.chance(500),
            immediate_data: random.chance(500),
            max_outstanding_r2t: 1 + random.below(3) as u32,
            ..params
        },
        ..Offer::default()
    }
}

/// A target in a world.
pub fn plant(world: &World, at: SocketAddr, random: &mut SeededRandom) -> Plant {
    let params = serde_json::json!({
        "initial_r2t": random.chance(500), "immediate_data": random.chance(800),
        "max_burst_length": 8192 + random.below(60_000), "nop_interval": 1,
        "connections_per_peer": 65_536,
    });
    let iscsi = |registry: &Arc<Registry>| drivers::all(registry).remove(0);
    let disk_bytes = CLIENTS as usize * AREA as usize * 512;
    plant::plant(world, &iscsi, (IQN, params), &[at.into()], disk_bytes)
}

/// Runs one seed; answers its trace and how often clients logged in.
fn play(seed: u64) -> (u64, u32) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0x1511);
    world.set_net(net_shape(&mut random, &[1, 7, 100, 1460, 16 * 1024]));
    let at: SocketAddr = "10.0.0.1:3260".parse().unwrap();
    let plant = plant(&world, at, &mut random);
    let players = Players::new(&world);
    for number in 0..CLIENTS {
        let offer = offer(&mut random);
        let client = Client::new(number, seed, &players.reactor, &players.pool, at, offer);
        let run = client.run(players.rounds.clone(), players.logins.clone());
        drop(players.reactor.spawn("client", run));
    }
    let cuts = ConnectionCuts::new(random.below(6) as u32, CLIENTS as u32 * ROUNDS);
    players.run(&world, plant, CLIENTS, cuts)
}

#[test]
fn data_is_correct_over_links_that_cut_and_break() {
    let played = Seeds::of(16).each(play);
    let logins: u32 = played.iter().map(|(_, logins)| logins).sum();
    let sessions = played.len() as u64 * CLIENTS;
    println!("{logins} logins of {sessions} clients");
    assert!(u64::from(logins) >= sessions);
}

#[test]
fn a_seed_plays_the_same_twice() {
    assert_eq!(play(3), play(3));
}
