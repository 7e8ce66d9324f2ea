//! Determinism of the simulated world: the same seed gives the same world, another seed another
//! one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bio::Segs;
use reactor::model::DiskShape;
use reactor::sim::{Actor, Limits, NetShape, World};
use reactor::{Reactor, WaitFor};
use testkit::Seeds;

use crate::world::stage::{filled, pool, seg, token};

/// Three cores: clients over rough links, a server that writes received data to a disk and answers,
/// a core that gets mail. Random power cuts and cuts of links. Returns a log of the events and the
/// world's own trace.
fn drama(seed: u64) -> (Vec<String>, u64) {
    let world = World::new(seed);
    world.set_net(NetShape {
        segment_max: 9,
        buffer_bytes: 64,
        resets_per_million: 500,
        ..NetShape::default()
    });
    let cores: Vec<Reactor> =
        (0..3).map(|n| Reactor::simulated(&world, &format!("core{n}"))).collect();
    let log = Rc::new(RefCell::new(Vec::<String>::new()));
    let memory = pool();
    let address = "10.1.1.1:10809".parse().unwrap();
    let file = world.file("disk", DiskShape::default()).unwrap();
    let (mailer, mailbox) = cores[2].mailbox::<u64>();

    let (server, m, l) = (cores[1].clone(), memory.clone(), log.clone());
    let listener = server.listen(address).unwrap();
    cores[1].spawn("server", async move {
        while let Ok((s, peer)) = listener.accept().await {
            let (server2, m, l, mailer) = (server.clone(), m.clone(), l.clone(), mailer.clone());
            server.spawn("session", async move {
                let into = Segs::alloc(&m, 16).unwrap();
                while s.recv_exact(&into).await.is_ok() {
                    server2.sleep(server2.random() % 50_000).await;
                    let _ = mailer.send(u64::from(peer.port()));
                    if s.send(&mut into.iter().cloned().collect()).await.is_err() {
                        break;
                    }
                }
                l.borrow_mut().push(format!("{} end of {peer}", server2.now()));
            });
        }
    });
    let (r, l) = (cores[2].clone(), log.clone());
    cores[2].spawn("mail", async move {
        while let Some(word) = mailbox.recv().await {
            l.borrow_mut().push(format!("{} mail {word}", r.now()));
        }
    });
    let left = Rc::new(Cell::new(12));
    for n in 0..12u8 {
        let (r, m, left, world2) = (cores[0].clone(), memory.clone(), left.clone(), world.clone());
        cores[0].spawn("client", async move {
            if let Ok(s) = r.connect(address).await {
                for round in 0..4 {
                    let sent = s.send(&mut vec![seg(&m, &[n; 16])]).await;
                    let into = Segs::alloc(&m, 16).unwrap();
                    if sent.is_err() || s.recv_exact(&into).await.is_err() {
                        break;
                    }
                    if n == 5 && round == 2 {
                        let links = world2.links();
                        world2.cut(links[(world2.random() as usize) % links.len()].0);
                    }
                }
            }
            left.set(left.get() - 1);
        });
    }
    for word in 0..40 {
        cores[0].write(token(word), &file, word * 512, &filled(&memory, &[1; 700]), false);
    }
    cores[0].after(150_000, token(1000));
    {
        let actor = |r: Reactor| {
            let (world, log) = (world.clone(), log.clone());
            let r2 = r.clone();
            Actor::new(&r, move || {
                r2.turn(WaitFor::Forever, &mut |t, e| {
                    log.borrow_mut().push(format!("{} {} {e:?}", world.now(), t.user_data));
                    if t.user_data == 1000 {
                        world.power_cut("disk");
                    }
                });
            })
        };
        let mut actors: Vec<Actor> = cores.iter().map(|r| actor(r.clone())).collect();
        world.run(&mut actors, Limits::default(), &mut || left.get() == 0);
    }
    let mut found = vec![0; 30_000];
    world.with_disk("disk", |d| d.read(0, &mut found)).unwrap().unwrap();
    let sum: u64 = (1u64..).zip(&found).map(|(i, b)| i * u64::from(*b)).sum();
    log.borrow_mut().push(format!("disk {sum} random {}", cores[0].random()));
    cores.iter().for_each(|core| drop(core.shutdown()));
    let log = log.take();
    (log, world.trace())
}

/// V1.
#[test]
fn the_same_seed_replays_exactly() {
    let (mut traces, seeds) = (BTreeSet::new(), Seeds::of(1000));
    for seed in seeds.clone() {
        let (log, trace) = drama(seed);
        assert!(log.len() > 60, "{log:?}");
        let (again, trace_again) = drama(seed);
        assert_eq!(trace, trace_again, "seed {seed}");
        assert!(log == again, "seed {seed}");
        traces.insert(trace);
    }
    assert_eq!(traces.len() as u64, seeds.count(), "every seed is another story");
}

#[test]
fn a_note_of_the_test_is_part_of_the_trace() {
    let (a, b) = (World::new(1), World::new(1));
    assert_eq!(a.trace(), b.trace());
    a.note(1);
    assert_ne!(a.trace(), b.trace());
    b.note(1);
    assert_eq!(a.trace(), b.trace());
}
