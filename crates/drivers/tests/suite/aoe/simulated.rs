//! The driver over bad wires. Frames are lost, doubled, late and overtaken, interfaces fail, the
//! disk loses its power, and a model predicts the contents of each sector.
//!
//! More seeds: see `testkit::seeds`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Segs;
use reactor::sim::{Ended, SegmentShape};
use reactor::{Link, Reactor, SeededRandom};
use wire::aoe::{Ata, Header, Mac, command};
use wire::ata::command as op;
use wire::ata::{status, trim_blocks};

use crate::aoe::stage::{SLOT, Stage, mac, params, target_mac};
use testkit::Seeds;

const CLIENTS: u8 = 3;
/// Sectors of each client.
const AREA: u64 = 96;
const ROUNDS: u32 = 40;
/// After which a frame is sent once more.
const RETRANSMIT_NS: u64 = 8_000_000;
/// Nothing takes longer.
const DEADLINE_NS: u64 = 20_000_000_000;

struct Work {
    tag: u32,
    sector: u64,
    sectors: u64,
    /// None for a read.
    value: Option<u8>,
    frame: Ata,
    data: Vec<u8>,
    sent_ns: u64,
}

struct Client {
    number: u8,
    random: SeededRandom,
    reactor: Reactor,
    /// Its interfaces, one a segment.
    links: Vec<Link>,
    sectors_max: u64,
    model: Vec<Vec<u8>>,
    tag: u32,
    rounds: Rc<Cell<u32>>,
    resent: Rc<Cell<u32>>,
}

impl Client {
    fn send(&mut self, work: &Work) {
        let at = self.random.below(self.links.len() as u64) as u8;
        let (to, from) = (target_mac(at), mac(at, self.number));
        let header = Header::request(to, from, SLOT, command::ATA, work.tag);
        let bytes = [&header.encode()[..], &work.frame.encode(), &work.data].concat();
        let link = &self.links[usize::from(at)];
        link.send(&bytes, &Segs::new()).unwrap();
        // An interface that is down takes nothing.
        let _ = link.flush();
    }

    fn invent(&mut self, taken: &mut [bool]) -> Option<Work> {
        let sector = self.random.below(AREA);
        let sectors = 1 + self.random.below((AREA - sector).min(self.sectors_max));
        let range = sector as usize..(sector + sectors) as usize;
        if taken[range.clone()].iter().any(|t| *t) {
            return None;
        }
        taken[range.clone()].fill(true);
        self.tag += 1;
        let value = match self.random.below(8) {
            0..=2 => None,
            3 => Some(0),
            _ => Some(1 + self.random.below(255) as u8),
        };
        let lba = u64::from(self.number) * AREA + sector;
        let mut frame =
            Ata { extended: true, registers: lba, sectors: sectors as u8, ..Ata::default() };
        let mut data = Vec::new();
        match value {
            None => frame.command = op::READ_EXT,
            Some(0) => {
                (frame.command, frame.write, frame.feature) = (op::DATA_SET_MANAGEMENT, true, 1);
                (frame.registers, frame.sectors) = (0, 1);
                data = trim_blocks(&[(lba, sectors)], 1).0;
            }
            Some(byte) => {
                (frame.command, frame.write) = (op::WRITE_EXT, true);
                data = vec![byte; sectors as usize * 512];
            }
        }
        if let Some(value) = value {
            self.model[range].iter_mut().for_each(|s| s.push(value));
        }
        let sent_ns = self.reactor.now();
        Some(Work { tag: self.tag, sector, sectors, value, frame, data, sent_ns })
    }

    /// A few requests at once, until each is answered.
    async fn round(&mut self) {
        let mut taken = vec![false; AREA as usize];
        let mut all = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            all.extend(self.invent(&mut taken));
        }
        all.iter().for_each(|work| self.send(work));
        let began = self.reactor.now();
        while !all.is_empty() {
            let mut came: Vec<Vec<u8>> = Vec::new();
            for link in &self.links {
                // An interface that failed is reported here.
                let _ = link.receive(100, &mut |frame| came.push(frame.to_vec()));
            }
            came.iter().for_each(|frame| self.on_frame(frame, &mut all));
            let now = self.reactor.now();
            assert!(now - began < DEADLINE_NS, "stuck: {:?}", all[0].frame);
            for work in &mut all {
                if now - work.sent_ns > RETRANSMIT_NS {
                    work.sent_ns = now;
                    self.resent.set(self.resent.get() + 1);
                    self.send(work);
                }
            }
            self.reactor.sleep(50_000).await;
        }
    }

    fn on_frame(&mut self, frame: &[u8], all: &mut Vec<Work>) {
        let (header, body) = Header::decode(frame).unwrap();
        assert!(header.response && header.error.is_none(), "{header:?}");
        // Frames that were sent twice are answered twice.
        let Some(at) = all.iter().position(|w| w.tag == header.tag) else { return };
        let (registers, data) = Ata::decode(body).unwrap();
        let work = all.remove(at);
        let well = registers.command == status::READY;
        for i in 0..work.sectors as usize {
            let may = &mut self.model[work.sector as usize + i];
            match work.value {
                // A disk that lost its power: it was written, or not.
                _ if !well => {}
                Some(value) => *may = vec![value],
                None => {
                    let bytes = &data[i * 512..][..512];
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "a torn sector");
                    assert!(may.contains(&bytes[0]), "{} is none of {may:?}", bytes[0]);
                    *may = vec![bytes[0]];
                }
            }
        }
    }

    async fn run(mut self, over: Rc<Cell<u8>>) {
        for _ in 0..ROUNDS {
            self.round().await;
            self.rounds.set(self.rounds.get() + 1);
        }
        over.set(over.get() + 1);
    }
}

/// Results of a play: its trace, frames that were sent again, power cuts.
#[derive(Debug, PartialEq)]
struct Played {
    trace: u64,
    resent: u32,
    cuts: u32,
}

fn play(seed: u64) -> Played {
    let mut random = SeededRandom::new(seed ^ 0xA0E);
    let wires = 1 + random.below(2) as usize;
    let mut shape = || SegmentShape {
        delay_ns_min: 1_000,
        delay_ns_max: [10_000, 1_000_000, 20_000_000][random.below(3) as usize],
        in_order: random.below(2) == 0,
        lost_per_million: [0, 1_000, 10_000, 100_000][random.below(4) as usize],
        doubled_per_million: [0, 10_000, 300_000][random.below(3) as usize],
        ..SegmentShape::default()
    };
    let shapes: Vec<SegmentShape> = (0..wires).map(|_| shape()).collect();
    let mtu = [1500, 4200, 9000][random.below(3) as usize];
    let stage = Stage::new(seed, &shapes, mtu, params());
    let over: Rc<Cell<u8>> = Rc::default();
    let (rounds, resent) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let macs: RefCell<Vec<Mac>> = RefCell::default();
    for number in 0..CLIENTS {
        let links = (0..wires as u8).map(|segment| stage.plug(segment, number)).collect();
        macs.borrow_mut().push(mac(0, number));
        let client = Client {
            number,
            random: SeededRandom::new(seed * 31 + u64::from(number)),
            reactor: stage.outside.clone(),
            links,
            sectors_max: u64::from(wire::aoe::sectors_of_mtu(mtu as usize)),
            model: vec![vec![0]; AREA as usize],
            tag: u32::from(number) << 24,
            rounds: rounds.clone(),
            resent: resent.clone(),
        };
        drop(stage.outside.spawn("client", client.run(over.clone())));
    }
    let most = random.below(5) as u32;
    let falls = random.below(2) == 0;
    let (mut cuts, mut down_until) = (0, None);
    let all = u32::from(CLIENTS) * ROUNDS;
    let ended = stage.plant.run(&stage.world, &stage.outside, &mut || {
        let now = stage.world.now();
        if cuts < most && rounds.get() > (cuts + 1) * all / (most + 1) {
            cuts += 1;
            stage.disk.cut(now, &mut || stage.world.random().is_multiple_of(2));
            if falls && down_until.is_none() {
                stage.segments[0].set_up("t0", false);
                down_until = Some(now + 30_000_000);
            }
        }
        if down_until.is_some_and(|until| now > until) {
            stage.segments[0].set_up("t0", true);
            down_until = None;
        }
        over.get() == CLIENTS
    });
    assert_eq!(ended, Ended::Stopped, "seed {seed}: {rounds:?} rounds");
    let played = Played { trace: stage.world.trace(), resent: resent.get(), cuts };
    stage.end();
    played
}

/// A1 of aoe/mod.rs, A2 of aoe/mod.rs, C1 of aoe/replay_guard.rs.
#[test]
fn exposing_16_answered_writes_survive_bad_links_and_power_cuts() {
    let played = Seeds::of(24).each(play);
    assert!(played.iter().any(|p| p.resent > 10), "nothing was ever lost");
    assert!(played.iter().any(|p| p.cuts > 0), "the power never went");
}

#[test]
fn a_seed_plays_the_same_twice() {
    assert_eq!(play(3), play(3));
}
