//! Tests of the protocol of several cores against a modelled target: frames at the target, orders,
//! and changes of size.

use std::sync::Arc;

use bio::{Pool, PoolConfig, Segs};
use testkit::clock::MS;
use wire::aoe::{
    ATA_LEN, Address, Ata, BROADCAST, Config, HEADER_LEN, Header, Mac, Reserve, SECTOR, VERSION,
    command, error, reserve,
};
use wire::ata::{self, Identify, status};

use super::super::inflight::ASK_TAG;
use super::*;

const SHELF: Address = Address { shelf: 7, slot: 1 };
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
const BUFFERS: u16 = 8;

/// One interface, with the frames that were sent.
#[derive(Default)]
struct Cable(Vec<Vec<u8>>);

impl Wire for Cable {
    fn links(&self) -> usize {
        1
    }

    fn sectors(&self, _: usize) -> u32 {
        2
    }

    fn mac(&self, _: usize) -> Mac {
        OURS
    }

    fn send(&mut self, _: usize, head: &[u8], _: Option<(&Segs, usize, usize)>) {
        self.0.push(head.to_vec());
    }
}

struct Bench {
    engines: Vec<Engine>,
    cables: Vec<Cable>,
    pool: Pool,
    now: u64,
    sectors: u64,
    serial: &'static str,
}

fn identify(sectors: u64, serial: &str) -> Vec<u8> {
    let device = Identify {
        model: "m".into(),
        serial: serial.into(),
        sectors,
        extended: true,
        ..Identify::default()
    };
    device.encode().to_vec()
}

fn frame(header: &Header, body: &[&[u8]]) -> Vec<u8> {
    [&[&header.encode()[..]], body].concat().concat()
}

fn decode_request(frame: &[u8]) -> (Header, Vec<u8>) {
    Header::decode(frame).map(|(header, body)| (header, body.to_vec())).unwrap()
}

impl Bench {
    /// So many cores, each of which knows the target.
    fn new(cores: usize) -> Bench {
        let shared: Arc<KnownTargets> = Arc::default();
        let rules = Rules {
            life_ns: 500 * MS,
            deadline_ns: 3_000 * MS,
            window: 64,
            shares: cores as u32,
            targets: Vec::new(),
        };
        let engine = |core| Engine::new(core, rules.clone(), shared.clone(), 0);
        let mut bench = Bench {
            engines: (0..cores).map(engine).collect(),
            cables: (0..cores).map(|_| Cable::default()).collect(),
            pool: Pool::new(PoolConfig { limit_bytes: 16 << 20 }),
            now: MS,
            sectors: 1000,
            serial: "s",
        };
        for core in 0..cores {
            let to = Header {
                to: OURS,
                from: THEIRS,
                version: VERSION,
                response: true,
                error: None,
                address: SHELF,
                command: command::CONFIG,
                tag: ASK_TAG,
            };
            let config = Config::response(BUFFERS, 1, 2, &[]).encode();
            bench.receive(core, &frame(&to, &[&config]));
            bench.pump(core);
            bench.answer_all(core);
            assert!(bench.engines[core].take_found(), "the target is found");
        }
        bench
    }

    fn receive(&mut self, core: usize, frame: &[u8]) {
        self.engines[core].receive(0, frame, &self.cables[core], self.now);
    }

    fn pump(&mut self, core: usize) {
        self.engines[core].pump(&mut self.cables[core], self.now);
    }

    fn read(&mut self, core: usize, id: u64) {
        let registers = Registers {
            command: ata::command::READ_EXT,
            count: 1,
            lba: id % 1000,
            extended: true,
            ..Registers::default()
        };
        let data = Segs::alloc(&self.pool, SECTOR).unwrap();
        let to = (CcbId::from_word(id), SHELF);
        let refused = self.engines[core].begin(to, &registers, (Flags::IN, false), &data, self.now);
        assert!(refused.is_none(), "{refused:?}");
    }

    /// Answers the oldest frame of a core; false when there is none.
    fn answer(&mut self, core: usize) -> bool {
        if self.cables[core].0.is_empty() {
            return false;
        }
        let (header, body) = decode_request(&self.cables[core].0.remove(0));
        let reply = header.answer(THEIRS, SHELF);
        let Ok((ata, _)) = Ata::decode(&body) else { return true };
        let (mut head, mut data) = (Ata { command: status::READY, feature: 0, ..ata }, Vec::new());
        match ata.command {
            _ if header.command != command::ATA => return true,
            ata::command::IDENTIFY => data = identify(self.sectors, self.serial),
            _ if ata.lba() >= self.sectors => {
                (head.command, head.feature) =
                    (status::READY | status::ERROR, ata::error::NOT_FOUND);
            }
            _ => data = vec![0; SECTOR],
        }
        self.receive(core, &frame(&reply, &[&head.encode(), &data]));
        true
    }

    fn answer_all(&mut self, core: usize) {
        while self.answer(core) {}
    }

    fn waiting(&self) -> usize {
        self.cables.iter().map(|cable| cable.0.len()).sum()
    }
}

#[test]
fn e5_a_lone_core_uses_all_buffers_of_the_target() {
    let mut b = Bench::new(4);
    for id in 0..100 {
        b.read(0, id);
    }
    let mut most = 0;
    for _ in 0..200 {
        b.now += MS;
        b.pump(0);
        most = most.max(b.waiting());
        b.answer(0);
    }
    assert_eq!(most, usize::from(BUFFERS));
}

#[test]
fn e5_cores_share_the_buffers_of_the_target_and_never_exceed_them() {
    for cores in [2, 3, 16] {
        let mut b = Bench::new(cores);
        let all = 60 * cores as u64;
        // One core has the target for itself until the others start, and the first core that gets
        // an answer is the first to send the next frame.
        (0..all).filter(|id| id % cores as u64 == 0).for_each(|id| b.read(0, id));
        for _ in 0..30 {
            b.now += MS;
            b.pump(0);
            b.answer(0);
        }
        let late = (0..all).filter(|id| id % cores as u64 != 0);
        late.for_each(|id| b.read((id % cores as u64) as usize, id));
        (1..cores).for_each(|core| b.pump(core));
        let (mut seen, mut done) = (vec![0; cores], 0);
        for turn in 0..20_000 {
            // Answered long before it is thought lost.
            b.now += MS / 20;
            let answered = turn % cores;
            b.answer(answered);
            for core in (answered..cores).chain(0..answered) {
                if core == answered || b.engines[core].due() <= b.now {
                    b.pump(core);
                }
                assert!(b.waiting() <= usize::from(BUFFERS), "{cores} cores: {}", b.waiting());
                if turn < 400 {
                    seen[core] = seen[core].max(b.cables[core].0.len());
                }
            }
            done += (0..cores).filter_map(|core| b.engines[core].take_ended()).count();
        }
        let part = (usize::from(BUFFERS) / cores).max(1);
        assert!(seen.iter().all(|most| *most >= part), "{cores} cores had {seen:?}");
        assert!(done as u64 + 30 >= all, "{cores} cores: {done} of {all}");
    }
}

/// E1 of aoe/engine/mod.rs, E3 of aoe/engine/mod.rs, E4 of aoe/engine/mod.rs.
#[test]
fn a_command_is_resent_and_ends_when_none_of_its_frames_may_arrive() {
    let mut b = Bench::new(1);
    let body = Reserve::encode(reserve::SET, &[OURS]);
    let number = b.engines[0].begin_command(SHELF, command::RESERVE, body.clone(), b.now).unwrap();
    b.pump(0);
    assert_eq!(
        b.engines[0].begin_command(SHELF, command::MASKS, Vec::new(), b.now),
        Err(NoReply::Busy)
    );
    let (first, sent) = decode_request(&b.cables[0].0.remove(0));
    assert_eq!((first.command, first.address, sent), (command::RESERVE, SHELF, body));
    // Lost: it is sent again, under another tag.
    b.now += 400 * MS;
    b.pump(0);
    let (second, _) = decode_request(&b.cables[0].0.remove(0));
    assert!(second.tag != first.tag && second.command == command::RESERVE);
    let list = Reserve::encode(reserve::SET, &[OURS]);
    let stranger = Header { from: Mac([2, 9, 9, 9, 9, 9]), ..second.answer(THEIRS, SHELF) };
    b.receive(0, &frame(&stranger, &[&list]));
    let other = Header { command: command::MASKS, ..second.answer(THEIRS, SHELF) };
    b.receive(0, &frame(&other, &[&list]));
    assert!(!b.engines[0].commands[0].over, "neither is its answer");
    b.receive(0, &frame(&second.answer(THEIRS, SHELF), &[&list]));
    assert_eq!(b.engines[0].take_reply(number), None, "the first frame may still come");
    b.now += 150 * MS;
    b.pump(0);
    assert!(b.cables[0].0.is_empty(), "nothing more is sent");
    assert_eq!(b.engines[0].take_reply(number), Some(Ok(Ok(list))));

    // One order that is refused, and one without an answer.
    let number = b.engines[0].begin_command(SHELF, command::RESERVE, Vec::new(), b.now).unwrap();
    b.pump(0);
    let (asks, _) = decode_request(&b.cables[0].0.remove(0));
    let refused = Header { error: Some(error::RESERVED), ..asks.answer(THEIRS, SHELF) };
    b.receive(0, &frame(&refused, &[]));
    assert_eq!(b.engines[0].take_reply(number), Some(Ok(Err(error::RESERVED))));
    let number = b.engines[0].begin_command(SHELF, command::MASKS, Vec::new(), b.now).unwrap();
    let mut sent = 0;
    for _ in 0..400 {
        b.now += 10 * MS;
        b.pump(0);
        sent += std::mem::take(&mut b.cables[0].0).len();
    }
    assert_eq!(b.engines[0].take_reply(number), Some(Err(NoReply::Silent)));
    assert!((5..20).contains(&sent), "{sent} frames in three seconds");
    assert_eq!(
        b.engines[0].begin_command(Address { slot: 9, ..SHELF }, 2, Vec::new(), 0),
        Err(NoReply::NoTarget)
    );
}

#[test]
fn a_changed_size_of_the_target_is_reported_once() {
    let mut b = Bench::new(1);
    let look = |b: &mut Bench| {
        b.now += 2_000 * MS;
        let (engine, cable, now) = (&mut b.engines[0], &mut b.cables[0], b.now);
        engine.query_sizes(cable, now);
        b.answer_all(0);
        b.engines[0].take_resized()
    };
    assert_eq!(look(&mut b), None);
    b.sectors = 2000;
    assert_eq!(look(&mut b), Some(SHELF));
    assert_eq!(look(&mut b), None, "once");
    b.engines[0].query_sizes(&mut b.cables[0], b.now);
    assert_eq!(b.waiting(), 0, "it was asked just now");
    // A sector that is not there any more is checked at once, and not each time.
    b.sectors = 500;
    b.now += 1_500 * MS;
    for id in [900, 901, 902] {
        b.read(0, id);
    }
    b.pump(0);
    b.answer_all(0);
    b.pump(0);
    assert_eq!(b.cables[0].0.len(), 1);
    let (header, body) = decode_request(&b.cables[0].0[0]);
    let (ata, _) = Ata::decode(&body).unwrap();
    assert_eq!((header.command, ata.command), (command::ATA, ata::command::IDENTIFY));
    assert_eq!(b.cables[0].0[0].len(), HEADER_LEN + ATA_LEN);
    b.answer_all(0);
    assert_eq!(b.engines[0].take_resized(), Some(SHELF));
    // Another disk that answers there proves nothing about this one.
    (b.serial, b.sectors) = ("other", 9000);
    assert_eq!(look(&mut b), None);
}

/// E6
#[test]
fn a_target_idle_for_long_is_verified_before_frames_are_sent_to_it() {
    let mut b = Bench::new(2);
    b.read(0, 900);
    b.pump(0);
    b.answer_all(0);
    b.now += 1_900 * MS;
    b.read(0, 901);
    b.pump(0);
    assert_eq!((b.waiting(), b.engines[0].take_doubted()), (1, None));
    b.answer_all(0);
    b.now += 1_900 * MS;
    b.read(1, 902);
    b.pump(1);
    assert_eq!(b.engines[1].take_doubted(), None, "another core heard it");
    b.answer_all(1);
    b.now += 2_000 * MS;
    b.read(0, 903);
    b.pump(0);
    assert_eq!((b.waiting(), b.engines[0].take_doubted()), (0, Some(SHELF)));
    b.engines[0].trust(SHELF, b.now);
    b.pump(0);
    assert_eq!(b.waiting(), 1);
}

/// E6
#[test]
fn an_unsolicited_announcement_causes_verification_of_the_target() {
    let mut b = Bench::new(1);
    let tell = |b: &mut Bench, tag: u32| {
        let (to, from, address) = (BROADCAST, THEIRS, SHELF);
        let (version, command) = (VERSION, command::CONFIG);
        let header =
            Header { to, from, version, response: true, error: None, address, command, tag };
        b.receive(0, &frame(&header, &[&Config::response(BUFFERS, 1, 2, &[]).encode()]));
        b.engines[0].take_doubted()
    };
    assert_eq!(tell(&mut b, ASK_TAG), None);
    assert_eq!(tell(&mut b, 0), Some(SHELF));
    assert_eq!(tell(&mut b, 0), None, "once");
    b.read(0, 900);
    b.pump(0);
    assert_eq!(b.waiting(), 0);
    b.engines[0].trust(SHELF, b.now);
    b.pump(0);
    assert_eq!(b.waiting(), 1);
}

/// E6: two cores saw an exchanged disk, and CAM found on one of them that the right one is back.
#[test]
fn a_core_that_saw_another_disk_queries_again_when_cam_trusts_it() {
    let mut b = Bench::new(1);
    b.serial = "another";
    let now = b.now;
    b.engines[0].accept_replacement(SHELF, now);
    b.pump(0);
    b.answer_all(0);
    b.serial = "s";
    b.now += 2_000 * MS;
    b.engines[0].query_sizes(&mut b.cables[0], b.now);
    b.answer_all(0);
    assert_eq!(b.engines[0].take_doubted(), Some(SHELF), "no path leads to that disk");
    let now = b.now;
    b.engines[0].trust(SHELF, now);
    b.read(0, 900);
    b.pump(0);
    b.answer_all(0);
    b.pump(0);
    assert_eq!(b.waiting(), 1, "it is read where it is");
}
