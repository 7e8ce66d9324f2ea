//! Whole connections made of good PDUs with bytes changed, into the driver in a simulated world.
//! They have a login, then mutants of every PDU an initiator has, cut anywhere by the network. The
//! driver neither panics nor hangs, and a later initiator is served.
//!
//! More of them: see `testkit::seeds`.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::sim::{Ended, NetShape, World};
use reactor::{Reactor, SeededRandom, Stream};
use wire::iscsi::{
    Crc32c, DataOut, LoginRequest, LogoutReason, LogoutRequest, NopOut, Pdu, ScsiCommand, Snack,
    TAG_NONE, TaskRequest, TextRequest, crc32c,
};

use crate::iscsi::simulated::{Client, Wire, offer, plant};
use testkit::Seeds;

/// Worlds; each connection sends at most thirty mutants.
const SEEDS: u64 = 8;

/// Connections of one world.
const OF_A_WORLD: u64 = 50;

/// Reads and drops all data of the target.
async fn drain(stream: Stream, pool: Pool) {
    let seg = pool.get(65_536).unwrap().seg(0, 65_536).unwrap();
    while matches!(stream.recv(&seg).await, Ok(n) if n > 0) {}
}

struct Mutator {
    random: SeededRandom,
    cmd_sn: u32,
}

impl Mutator {
    fn byte(&mut self) -> u8 {
        self.random.next_u64() as u8
    }

    /// A number that is small, near a limit, or anything.
    fn odd(&mut self) -> u32 {
        let any = self.random.next_u64() as u32;
        match self.random.below(4) {
            0 => any & 7,
            1 => [0, 1, 511, 512, 513, 0xffff, 0x7fff_ffff, u32::MAX][any as usize & 7],
            2 => any & 0xffff,
            _ => any,
        }
    }

    fn command(&mut self) -> ScsiCommand {
        const OPCODES: [u8; 16] = [
            0x00, 0x12, 0x28, 0x2a, 0x88, 0x8a, 0xa0, 0x5e, 0x5f, 0x15, 0x1a, 0x42, 0x41, 0x83,
            0x89, 0x9e,
        ];
        let mut cdb = [0; 16];
        cdb[0] = match self.random.chance(700) {
            true => OPCODES[self.random.below(16) as usize],
            false => self.byte(),
        };
        for byte in &mut cdb[1..] {
            if self.random.chance(200) {
                *byte = self.random.next_u64() as u8;
            }
        }
        ScsiCommand {
            immediate: self.random.chance(100),
            last: self.random.chance(800),
            read: self.random.chance(500),
            write: self.random.chance(500),
            lun: [0, self.random.below(2) as u8, 0, 0, 0, 0, 0, 0],
            task_tag: self.random.below(8) as u32,
            transfer_len: self.odd(),
            cmd_sn: self.next_number(),
            cdb,
            ..ScsiCommand::default()
        }
    }

    fn next_number(&mut self) -> u32 {
        let number = self.cmd_sn;
        match self.random.below(20) {
            0 => number.wrapping_add(self.odd()),
            1 => number.wrapping_add(3),
            _ => {
                self.cmd_sn = number.wrapping_add(1);
                number
            }
        }
    }

    /// A header of some kind, with the length of its data.
    fn header(&mut self, data_len: u32) -> [u8; 48] {
        let mut bhs = [0; 48];
        let (task_tag, cmd_sn) = (self.random.below(8) as u32, self.next_number());
        let immediate = self.random.chance(700);
        match self.random.below(10) {
            0..=3 => ScsiCommand { data_len, ..self.command() }.encode(&mut bhs),
            4 => {
                let target_tag = if self.random.chance(300) { TAG_NONE } else { self.odd() & 15 };
                let (data_sn, offset) = (self.odd() & 3, self.odd() & 0xffff);
                let last = self.random.chance(500);
                let pdu = DataOut {
                    last,
                    task_tag,
                    target_tag,
                    data_sn,
                    offset,
                    data_len,
                    ..DataOut::default()
                };
                pdu.encode(&mut bhs);
            }
            5 => {
                let pdu = TaskRequest {
                    immediate,
                    function: self.byte() & 15,
                    task_tag,
                    referenced_tag: self.random.below(8) as u32,
                    ref_cmd_sn: self.cmd_sn,
                    cmd_sn,
                    ..TaskRequest::default()
                };
                pdu.encode(&mut bhs);
            }
            6 => {
                let pdu = NopOut {
                    immediate,
                    task_tag,
                    target_tag: TAG_NONE,
                    cmd_sn,
                    data_len,
                    ..NopOut::default()
                };
                pdu.encode(&mut bhs);
            }
            7 => {
                let pdu = TextRequest {
                    immediate,
                    last: self.random.chance(500),
                    task_tag,
                    target_tag: TAG_NONE,
                    cmd_sn,
                    data_len,
                    ..TextRequest::default()
                };
                pdu.encode(&mut bhs);
            }
            8 => Snack { kind: self.byte() & 3, task_tag, ..Snack::default() }.encode(&mut bhs),
            _ if self.random.chance(100) => {
                let reason = LogoutReason::Recovery;
                let pdu = LogoutRequest {
                    immediate,
                    reason,
                    task_tag,
                    cmd_sn,
                    ..LogoutRequest::default()
                };
                pdu.encode(&mut bhs);
            }
            _ => LoginRequest { task_tag, cmd_sn, data_len, ..Default::default() }.encode(&mut bhs),
        }
        bhs
    }

    /// A whole PDU; some of its bytes changed before its digests are made, some after.
    fn pdu(&mut self, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let len = if self.random.chance(500) { 0 } else { self.random.below(2000) as usize };
        let mut bytes = self.header(len as u32).to_vec();
        for _ in 0..self.random.below(3) {
            let at = self.random.below(48) as usize;
            // Most lengths stay true, or nothing that follows would be understood.
            if !(4..8).contains(&at) || self.random.chance(50) {
                bytes[at] = self.byte();
            }
        }
        if header_digest {
            bytes.extend(crc32c(&bytes).to_le_bytes());
        }
        let text = b"SendTargets=All\0MaxRecvDataSegmentLength=512\0X-a=b\0";
        let texts = self.random.chance(300);
        let mut data: Vec<u8> =
            (0..len).map(|i| if texts { text[i % text.len()] } else { self.byte() }).collect();
        data.resize(len.next_multiple_of(4), 0);
        if data_digest && len > 0 {
            let mut crc = Crc32c::new();
            crc.update(&data);
            data.extend(crc.wire());
        }
        bytes.extend(data);
        if self.random.chance(20) {
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.random.below(8);
        }
        bytes
    }

    /// A login made by hand, wrong somewhere.
    fn login(&mut self) -> Vec<u8> {
        let mut text = b"InitiatorName=iqn.2026-11.test.ashlar:sim0\0TargetName=".to_vec();
        text.extend(crate::iscsi::server::IQN.as_bytes());
        text.extend(b"\0HeaderDigest=CRC32C,None\0MaxBurstLength=0x8000\0AuthMethod=CHAP,None\0");
        let mut bhs = [0; 48];
        LoginRequest { data_len: text.len() as u32, ..LoginRequest::default() }.encode(&mut bhs);
        bhs[1] = [0x87, 0x04, 0x00, 0x81, 0x44][self.random.below(5) as usize];
        let mut bytes = bhs.to_vec();
        bytes.extend(text);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        for _ in 0..1 + self.random.below(4) {
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] = self.byte();
        }
        bytes
    }
}

async fn attack(mut client: Client, mut mutator: Mutator, rounds: u64, done: Rc<Cell<bool>>) {
    let mut entered = 0;
    for _ in 0..rounds {
        if mutator.random.chance(200) {
            let Ok(stream) = client.reactor.connect(client.portal).await else { continue };
            let wire = Wire::over(stream, client.pool.clone());
            drop(client.reactor.spawn("drain", drain(wire.stream.clone(), client.pool.clone())));
            for _ in 0..2 {
                let bytes = mutator.login();
                let _ = wire.raw(&bytes).await;
            }
            client.reactor.sleep(2_000_000).await;
            wire.stream.close();
            continue;
        }
        client.offer = offer(&mut mutator.random);
        let Ok(wire) = client.login().await else {
            client.reactor.sleep(1_000_000).await;
            continue;
        };
        drop(client.reactor.spawn("drain", drain(wire.stream.clone(), client.pool.clone())));
        entered += 1;
        mutator.cmd_sn = client.cmd_sn;
        for _ in 0..1 + mutator.random.below(30) {
            let bytes = mutator.pdu(wire.params.header_digest, wire.params.data_digest);
            if wire.raw(&bytes).await.is_err() {
                break;
            }
        }
        client.reactor.sleep(mutator.random.below(5_000_000)).await;
        wire.stream.close();
    }
    assert!(entered > 0, "nothing was ever sent");
    // A client after it is served; its first command reports the reset.
    loop {
        client.reactor.sleep(10_000_000).await;
        let Ok(mut wire) = client.login().await else { continue };
        if client.swallow_attention(&mut wire).await.is_ok() {
            done.set(true);
            std::future::pending::<()>().await;
        }
    }
}

fn play(seed: u64) -> u64 {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0xf022);
    let segment_max = [3, 100, 1460, 16 * 1024][random.below(4) as usize];
    world.set_net(NetShape { segment_max, ..NetShape::default() });
    let at = "10.0.0.1:3260".parse().unwrap();
    let plant = plant(&world, at, &mut random);
    let outside = Reactor::simulated(&world, "attacker");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let client = Client::new(0, seed, &outside, &pool, at, offer(&mut random));
    let done = Rc::new(Cell::new(false));
    let mutator = Mutator { random, cmd_sn: 0 };
    drop(outside.spawn("attack", attack(client, mutator, OF_A_WORLD, done.clone())));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "seed {seed}: nobody is served any more");
    assert!(plant.registry.sessions().len() <= 1, "seed {seed}: sessions are left");
    plant.end(&outside);
    world.trace()
}

#[test]
fn mutated_connections_do_not_stop_the_driver() {
    Seeds::of(SEEDS).each(play);
}
