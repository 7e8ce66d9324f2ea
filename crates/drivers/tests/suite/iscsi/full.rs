//! A connection full of large commands, in a simulated world. A task that waits for memory, for
//! space on the connection or for a turn is woken by that event, and never by a timer.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::sim::{Ended, NetShape, World};
use reactor::{Reactor, SeededRandom};
use wire::iscsi::{Framer, Offer, Response, SessionParams};

use crate::iscsi::simulated::{Broken, Client, Wire, Work, burst, plant};

/// Longest that the slow disk and a fast line may take for all of it, ns. The shortest timer of the
/// target that a task could wait for is several times that.
const SOON_NS: u64 = 40_000_000;

/// Runs `count` commands of `sectors` at once; every answer is GOOD and complete.
async fn all(client: &mut Client, wire: &mut Wire, shape: Shape) -> Result<(), Broken> {
    let len = shape.sectors as usize * 512;
    let data = shape.writes.then(|| vec![shape.count as u8; len]);
    let work = Work { lba: 0, sectors: shape.sectors, data: data.clone(), received: Vec::new() };
    let mut open = BTreeMap::new();
    for _ in 0..shape.count {
        open.insert(client.start(wire, &work).await?, 0);
    }
    let framer = Framer::of(&wire.params);
    while !open.is_empty() {
        let (bhs, bytes) = wire.receive(&framer).await?;
        match Response::decode(&bhs).unwrap() {
            Response::DataIn(p) => {
                let arrived_bytes = open.get_mut(&p.task_tag).unwrap();
                *arrived_bytes += bytes.len();
                if let Some((status, _)) = p.status {
                    assert_eq!((status, *arrived_bytes), (0, len));
                    open.remove(&p.task_tag);
                }
            }
            Response::R2t(r) => {
                let (from, to) = (r.offset as usize, (r.offset + r.desired_len) as usize);
                let data = data.as_deref().unwrap();
                burst(wire, r.task_tag, r.target_tag, data, (from, to), 65_536).await?;
            }
            Response::Scsi(p) => {
                assert_eq!((p.status, shape.writes), (0, true));
                open.remove(&p.task_tag);
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    sessions: u64,
    count: u32,
    sectors: u32,
    writes: bool,
}

/// Answers how long the commands of all sessions took, ns.
fn play(shape: Shape) -> u64 {
    let world = World::new(u64::from(shape.count));
    world.set_net(NetShape {
        delay_ns_min: 1_000,
        delay_ns_max: 2_000,
        segment_max: 64 * 1024,
        ..NetShape::default()
    });
    let at: SocketAddr = "10.0.0.1:3260".parse().unwrap();
    let plant = plant(&world, at, &mut SeededRandom::new(7));
    let outside = Reactor::simulated(&world, "clients");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let params = SessionParams {
        recv_data_len_max: 262_144,
        max_burst: 262_144,
        initial_r2t: true,
        ..SessionParams::default()
    };
    let (ready, ended, longest) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::default());
    for number in 0..shape.sessions {
        let offer = Offer { params, ..Offer::default() };
        let mut client = Client::new(0, number, &outside, &pool, at, offer);
        let (ready, ended, longest) = (ready.clone(), ended.clone(), Rc::clone(&longest));
        drop(outside.spawn("client", async move {
            client.name(number);
            let mut wire = client.login().await.ok().unwrap();
            assert!(client.swallow_attention(&mut wire).await.is_ok());
            ready.set(ready.get() + 1);
            while ready.get() < shape.sessions {
                client.reactor.yield_now().await;
            }
            let began = client.reactor.now();
            assert!(all(&mut client, &mut wire, shape).await.is_ok());
            let took = client.reactor.now() - began;
            Cell::set(&longest, took.max(Cell::get(&longest)));
            ended.set(ended.get() + 1);
        }));
    }
    let over = plant.run(&world, &outside, &mut || ended.get() == shape.sessions);
    assert_eq!(over, Ended::Stopped, "{shape:?}");
    plant.end(&outside);
    longest.get()
}

#[test]
fn waiting_tasks_are_woken_by_events_not_timers() {
    for writes in [false, true] {
        for (sessions, count, sectors) in [(1, 32, 128), (1, 32, 256), (1, 8, 280), (4, 16, 128)] {
            let shape = Shape { sessions, count, sectors, writes };
            let took = play(shape);
            assert!(took < SOON_NS, "{shape:?} took {} us", took / 1000);
        }
    }
}
