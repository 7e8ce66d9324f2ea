//! Simulated connections.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;

use bio::Segs;
use reactor::sim::{Actor, Ended, Limits, NetShape, World};
use reactor::{Reactor, Stream};

use crate::world::stage::{MS, filled, pool, run, seg};

fn addr() -> SocketAddr {
    "10.0.0.1:3260".parse().unwrap()
}

fn pair(world: &World, a: &Reactor, b: &Reactor) -> (Stream, Stream) {
    let listener = b.listen(addr()).unwrap();
    let server = Rc::new(Cell::new(None));
    let put = server.clone();
    b.spawn("accept", async move {
        put.set(Some(listener.accept().await.unwrap()));
    });
    let a2 = a.clone();
    let client = run(world, &[a, b], async move { a2.connect(addr()).await.unwrap() });
    let (server, peer) = loop {
        if let Some(s) = server.take() {
            break s;
        }
        let a2 = a.clone();
        run(world, &[a, b], async move { a2.sleep(MS).await });
    };
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    (client, server)
}

fn stage(seed: u64, net: NetShape) -> (World, Reactor, Reactor) {
    let world = World::new(seed);
    world.set_net(net);
    let (a, b) = (Reactor::simulated(&world, "a"), Reactor::simulated(&world, "b"));
    (world, a, b)
}

/// L1.
#[test]
fn bytes_arrive_whole_and_in_order_for_any_segment_size() {
    for (seed, segment_max) in [(0, 1), (1, 2), (2, 100), (3, 100_000), (4, 1), (5, 7)] {
        let net = NetShape { segment_max, buffer_bytes: 1000, ..NetShape::default() };
        let (world, a, b) = stage(seed, net);
        let (client, server) = pair(&world, &a, &b);
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i / 7) as u8).collect();
        let memory = pool();
        let (sent, memory2) = (bytes.clone(), memory.clone());
        a.spawn("send", async move {
            let mut out = filled(&memory2, &sent).iter().cloned().collect();
            client.send(&mut out).await.unwrap();
            client.shutdown().unwrap();
            let into = seg(&memory2, &[0; 10]);
            assert_eq!(client.recv(&into).await.unwrap(), 0);
        });
        let memory2 = memory.clone();
        run(&world, &[&b, &a], async move {
            let head = Segs::alloc(&memory2, 48).unwrap();
            server.recv_exact(&head).await.unwrap();
            let mut got = head.to_vec();
            let into = seg(&memory2, &[0; 900]);
            loop {
                match server.recv(&into).await.unwrap() {
                    0 => break,
                    n => into.with(|b| got.extend_from_slice(&b[..n])),
                }
            }
            assert!(got == bytes, "seed {seed}");
        });
    }
}

/// L2.
#[test]
fn a_peer_that_does_not_read_stops_the_sender() {
    let net = NetShape { buffer_bytes: 5000, ..NetShape::default() };
    let (world, a, b) = stage(7, net);
    let (client, server) = pair(&world, &a, &b);
    let memory = pool();
    let memory2 = memory.clone();
    let sender = a.spawn("send", async move {
        let mut out = filled(&memory2, &[1; 50_000]).iter().cloned().collect();
        client.send(&mut out).await.unwrap();
    });
    let mut actors = [Actor::of_tasks(&a), Actor::of_tasks(&b)];
    let ended = world.run(&mut actors, Limits::default(), &mut || false);
    assert_eq!(ended, Ended::Quiet);
    assert!(!sender.is_finished());
    assert!(memory.usage().used_bytes >= 50_000, "the slot holds the memory");
    drop(actors);
    let memory2 = memory.clone();
    run(&world, &[&b, &a], async move {
        let into = Segs::alloc(&memory2, 50_000).unwrap();
        server.recv_exact(&into).await.unwrap();
    });
    assert!(sender.is_finished());
    assert_eq!(memory.usage().used_bytes, 0);
}

#[test]
fn cut_connection_is_reported_to_both_ends() {
    let (world, a, b) = stage(8, NetShape::default());
    let (client, server) = pair(&world, &a, &b);
    let memory = pool();
    let (m1, m2) = (memory.clone(), memory.clone());
    let reads = b.spawn("server", async move {
        let e = server.recv(&seg(&m1, &[0; 10])).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    });
    let links = world.links();
    assert_eq!(links.len(), 1);
    let a2 = a.clone();
    let world2 = world.clone();
    run(&world, &[&a, &b], async move {
        a2.sleep(MS).await;
        world2.cut(links[0].0);
        a2.sleep(MS).await;
        let e = client.recv(&seg(&m2, &[0; 10])).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    });
    assert!(reads.is_finished());
}

#[test]
fn half_open_connection_notifies_neither_end() {
    let (world, a, b) = stage(9, NetShape::default());
    let (client, server) = pair(&world, &a, &b);
    let memory = pool();
    world.half_open(world.links()[0].0);
    let m = memory.clone();
    let reads = b.spawn("server", async move {
        let _ = server.recv(&seg(&m, &[0; 10])).await;
    });
    let m = memory.clone();
    run(&world, &[&a, &b], async move {
        client.send(&mut vec![seg(&m, b"lost")]).await.unwrap();
        drop(client);
    });
    let mut actors = [Actor::of_tasks(&a), Actor::of_tasks(&b)];
    assert_eq!(world.run(&mut actors, Limits::default(), &mut || false), Ended::Quiet);
    assert!(!reads.is_finished(), "only a deadline of its own helps the server");
    reads.abort();
    let ended = world.run(&mut actors, Limits::default(), &mut || false);
    assert_eq!((ended, b.in_flight()), (Ended::Quiet, 0));
}

#[test]
fn shutdown_reset_and_refusal_have_distinct_errors() {
    let (world, a, b) = stage(10, NetShape::default());
    let a2 = a.clone();
    let e = run(&world, &[&a], async move { a2.connect(addr()).await.err().unwrap() });
    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);

    let (client, server) = pair(&world, &a, &b);
    assert!(a.listen(addr()).is_ok(), "the listener is gone with its task");
    let memory = pool();
    let a2 = a.clone();
    run(&world, &[&a, &b], async move {
        let into = Segs::alloc(&memory, 10).unwrap();
        server.shutdown().unwrap();
        let e = client.recv_exact(&into).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
        server.reset();
        drop(server);
        a2.sleep(10 * MS).await;
        let e = client.send(&mut vec![seg(&memory, b"x")]).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn socket_is_moved_to_another_core() {
    let (world, a, b) = stage(11, NetShape::default());
    let c = Reactor::simulated(&world, "c");
    let (client, server) = pair(&world, &a, &b);
    let parcel = server.detach().unwrap();
    let server = c.attach(parcel).unwrap();
    let memory = pool();
    let m = memory.clone();
    c.spawn("hello", async move {
        server.send(&mut vec![seg(&m, b"hello")]).await.unwrap();
    });
    run(&world, &[&a, &b, &c], async move {
        let into = Segs::alloc(&memory, 5).unwrap();
        client.recv_exact(&into).await.unwrap();
        assert_eq!(into.to_vec(), b"hello");
    });
}

#[test]
fn a_thousand_connections_and_a_dropped_receive_end_cleanly() {
    let (world, a, b) = stage(12, NetShape::default());
    let memory = pool();
    let listener = b.listen(addr()).unwrap();
    let (b2, m) = (b.clone(), memory.clone());
    b.spawn("server", async move {
        while let Ok((s, _)) = listener.accept().await {
            let m = m.clone();
            b2.spawn("echo", async move {
                let into = Segs::alloc(&m, 4).unwrap();
                while s.recv_exact(&into).await.is_ok() {
                    s.send(&mut into.iter().cloned().collect()).await.unwrap();
                }
            });
        }
    });
    let left = Rc::new(Cell::new(1000));
    for n in 0..1000u32 {
        let (a2, m, left) = (a.clone(), memory.clone(), left.clone());
        a.spawn("client", async move {
            let s = a2.connect(addr()).await.unwrap();
            s.send(&mut vec![seg(&m, &n.to_le_bytes())]).await.unwrap();
            let into = Segs::alloc(&m, 4).unwrap();
            s.recv_exact(&into).await.unwrap();
            assert_eq!(into.to_vec(), n.to_le_bytes());
            left.set(left.get() - 1);
        });
    }
    let mut actors = [Actor::of_tasks(&a), Actor::of_tasks(&b)];
    let ended = world.run(&mut actors, Limits::default(), &mut || left.get() == 0);
    assert_eq!(ended, Ended::Stopped);
    b.shutdown();
    assert_eq!((b.in_flight(), memory.usage().used_bytes), (0, 0));
}

#[test]
fn unix_sockets_are_simulated_as_links() {
    let (world, a, b) = stage(9, NetShape::default());
    let listener = b.listen_unix("/run/x").unwrap();
    let other = b.attach_unix(listener.share().unwrap()).unwrap();
    drop(listener);
    b.spawn("accept", async move {
        let stream = other.accept().await.unwrap();
        assert_eq!(stream.peer_uid().unwrap(), 0);
        stream.shutdown().unwrap();
    });
    let (a2, memory) = (a.clone(), pool());
    let n = run(&world, &[&a, &b], async move {
        assert!(a2.connect_unix("/run/y").await.is_err());
        let stream = a2.connect_unix("/run/x").await.unwrap();
        stream.recv(&seg(&memory, &[0; 8])).await.unwrap()
    });
    assert_eq!(n, 0);
}
