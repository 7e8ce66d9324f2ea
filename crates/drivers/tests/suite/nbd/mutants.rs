//! Whole connections made of good options and requests with bytes changed, into the driver in a
//! simulated world. The driver neither panics nor hangs, and a later client is served.
//!
//! More of them: see `testkit::seeds`.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::sim::{Ended, NetShape, World};
use reactor::{Address, Reactor, SeededRandom, Stream};
use wire::nbd::{Form, Request, dial};

use crate::nbd::simulated::{Client, plant};
use testkit::Seeds;

/// Worlds; each connection sends at most thirty mutants.
const SEEDS: u64 = 10;

/// Connections of one world.
const OF_A_WORLD: u64 = 60;

/// Reads and drops all data of the server.
async fn drain(stream: Stream, pool: Pool) {
    let seg = pool.get(65_536).unwrap().seg(0, 65_536).unwrap();
    while matches!(stream.recv(&seg).await, Ok(n) if n > 0) {}
}

fn twist(random: &mut SeededRandom, bytes: &mut [u8]) {
    for _ in 0..random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        // Magic numbers stay, or nothing that follows would be read.
        if at >= 8 || random.chance(50) {
            bytes[at] = random.next_u64() as u8;
        }
    }
}

fn options(random: &mut SeededRandom) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.below(8) {
        let payload = match random.below(4) {
            0 => Vec::new(),
            1 => dial::info(["", "slow", "0", "x"][random.below(4) as usize], &[3, 1]),
            2 => dial::contexts("", &["base:allocation", "base:"]),
            _ => (0..random.below(300)).map(|_| random.next_u64() as u8).collect(),
        };
        let mut option = dial::option(random.below(13) as u32, &payload);
        twist(random, &mut option);
        out.extend(option);
    }
    out
}

fn request(random: &mut SeededRandom, form: Form) -> Vec<u8> {
    let lens = [0u64, 1, 511, 512, 4096, 65_536, 1 << 25, u64::from(u32::MAX)];
    let write = random.chance(300);
    let len = if write { random.below(9) * 512 } else { lens[random.below(8) as usize] };
    let request = Request {
        flags: if random.chance(300) { random.next_u64() as u16 & 0x7f } else { 0 },
        kind: if write { 1 } else { random.below(10) as u16 },
        cookie: random.below(4),
        offset: [0, 512, 1 << 14, random.next_u64()][random.below(4) as usize],
        len,
    };
    let mut out = Vec::new();
    request.encode(form, &mut out);
    twist(random, &mut out);
    if write {
        out.resize(out.len() + len as usize, 0x5a);
    }
    out
}

async fn attack(mut client: Client, mut random: SeededRandom, done: Rc<Cell<bool>>) {
    let mut entered = 0;
    for _ in 0..OF_A_WORLD {
        client.form = [Form::Simple, Form::Structured, Form::Extended][random.below(3) as usize];
        let early = random.chance(300);
        let wire = if early { client.dial().await } else { client.enter().await };
        let Ok(wire) = wire else {
            client.reactor.sleep(1_000_000).await;
            continue;
        };
        drop(client.reactor.spawn("drain", drain(wire.stream.clone(), client.pool.clone())));
        entered += 1;
        for _ in 0..1 + random.below(30) {
            let bytes = match early {
                true => options(&mut random),
                false => request(&mut random, client.form),
            };
            if !bytes.is_empty() && wire.send(&bytes).await.is_err() {
                break;
            }
        }
        client.reactor.sleep(random.below(5_000_000)).await;
        wire.stream.close();
    }
    assert!(entered > 0, "nothing was ever sent");
    loop {
        client.reactor.sleep(10_000_000).await;
        let Ok(mut wire) = client.enter().await else { continue };
        let read = Request { len: 512, ..Request::default() };
        let mut bytes = Vec::new();
        read.encode(client.form, &mut bytes);
        if wire.send(&bytes).await.is_err() {
            continue;
        }
        if let Ok(piece) = wire.receive(&|_| 512).await {
            assert!(!piece.error, "a good read fails");
            done.set(true);
            std::future::pending::<()>().await;
        }
    }
}

fn play(seed: u64) -> u64 {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0xf0bd);
    let segment_max = [3, 100, 1460, 16 * 1024][random.below(4) as usize];
    world.set_net(NetShape { segment_max, ..NetShape::default() });
    let portals: [Address; 1] = ["10.0.0.1:10809".parse().unwrap()];
    let plant = plant(&world, &portals);
    let outside = Reactor::simulated(&world, "attacker");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let client = Client::new(0, seed, &outside, &pool, &portals[0], Form::Simple);
    let done = Rc::new(Cell::new(false));
    drop(outside.spawn("attack", attack(client, random, done.clone())));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "seed {seed}: nobody is served any more");
    plant.end(&outside);
    world.trace()
}

#[test]
fn mutated_connections_do_not_stop_the_driver() {
    Seeds::of(SEEDS).each(play);
}
