//! Faults of peers affect those peers only (T1), and each closed connection has one reason (T3).
//! Further connections of a full core (T4) or of a peer at its limit (T6) are reset.

use std::cell::Cell;
use std::rc::Rc;

use bio::PAGE_BYTES;
use reactor::sim::{Actor, Ended, Limits, World};
use reactor::{Address, Reactor};
use testkit::clock::S;
use transport::{BACKLOG_MAX, RECEIVE_BYTES_MAX};

use crate::client::{self, Client};
use crate::echo::{self, PerCore};

struct Stage {
    world: World,
    server: Reactor,
    outside: Reactor,
    core: Rc<PerCore>,
    at: Address,
}

impl Stage {
    fn new(seed: u64, most: usize) -> Stage {
        let world = World::new(seed);
        let (server, outside) = (Reactor::simulated(&world, "s"), Reactor::simulated(&world, "c"));
        let core = echo::install(&server, most);
        let at = core.open_portal("127.0.0.1:7".parse().unwrap()).unwrap();
        Stage { world, server, outside, core, at }
    }

    /// Runs until `stop`.
    fn run(&self, mut stop: impl FnMut() -> bool) {
        let mut actors = [Actor::of_tasks(&self.server), Actor::of_tasks(&self.outside)];
        let ended = self.world.run(&mut actors, Limits::default(), &mut stop);
        assert_eq!(ended, Ended::Stopped, "seed {}", self.world.seed());
    }

    /// Accepted and refused connections, those closed, and those closed with a warning.
    fn counts(&self) -> [u64; 4] {
        let c = self.core.shared.connection_counts();
        [c.accepted, c.refused, c.accepted - c.open(), c.warned]
    }

    /// Reasons of closed connections, each with its number.
    fn closed(&self) -> Vec<(&'static str, u64)> {
        let counts = self.core.shared.connection_counts();
        counts.closed().filter(|(_, number)| *number > 0).collect()
    }
}

/// K3 of io_loop.rs, R3 of receive_buffer.rs.
#[test]
fn bad_peers_are_closed_and_others_are_served() {
    testkit::Seeds::of(20).each(|seed| {
        let stage = Stage::new(seed, 10);
        let (at, own) = (stage.at.clone(), stage.outside.clone());
        let bad = client::spawn(&stage.outside, async move {
            let silent = Client::connect(&own, &at).await;
            let garbage = Client::connect(&own, &at).await;
            garbage.send(b"GARBAGE").await.unwrap();
            // It sends and never reads: its answers fill the queue.
            let deaf = Client::greet(&own, &at).await;
            while deaf.send(&[1; 4096]).await.is_ok() {}
            while silent.receive().await.is_ok_and(|b| !b.is_empty()) {}
            while garbage.receive().await.is_ok_and(|b| !b.is_empty()) {}
        });
        let (at, own, stop) = (stage.at.clone(), stage.outside.clone(), bad.clone());
        let good = client::spawn(&stage.outside, async move {
            let client = Client::greet(&own, &at).await;
            while !stop.get() {
                let begun = own.now();
                client.converse(b"good").await;
                assert!(own.now() - begun < S, "a bad peer delayed a good one");
                own.sleep(S / 10).await;
            }
            client.stream.close();
        });
        let most = Cell::new(0);
        stage.run(|| {
            most.set(most.get().max(stage.core.memory.usage().used_bytes));
            good.get() && stage.counts()[2] == 4
        });
        assert_eq!(stage.counts(), [4, 0, 4, 3], "seed {seed}");
        let silent = ("handshake_timeout", 1);
        let reasons = [("peer_closed", 1), ("not_reading", 1), silent, ("protocol", 1)];
        assert_eq!(stage.closed(), reasons, "seed {seed}");
        // T2: one connection has a full queue, the others a page or two.
        assert!(most.get() <= BACKLOG_MAX + 2 * RECEIVE_BYTES_MAX, "{}", most.get());
    });
}

#[test]
fn further_connections_of_a_full_core_are_reset() {
    let stage = Stage::new(1, 2);
    let (at, own) = (stage.at.clone(), stage.outside.clone());
    let played = client::spawn(&stage.outside, async move {
        let (a, b) = (Client::greet(&own, &at).await, Client::greet(&own, &at).await);
        a.converse(b"a").await;
        b.converse(b"b").await;
        let third = Client::connect(&own, &at).await;
        assert!(third.receive().await.map_or(true, |bytes| bytes.is_empty()));
        a.converse(b"a").await;
        a.stream.close();
        own.sleep(S).await;
        Client::greet(&own, &at).await.converse(b"c").await;
    });
    stage.run(|| played.get());
    assert_eq!(stage.counts()[..2], [3, 1]);
}

#[test]
fn silent_connections_of_one_peer_end_at_its_limit() {
    let stage = Stage::new(1, 100);
    let (at, own) = (stage.at.clone(), stage.outside.clone());
    let played = client::spawn(&stage.outside, async move {
        let mut silent = Vec::new();
        for _ in 0..echo::PER_PEER {
            silent.push(Client::connect(&own, &at).await);
        }
        let more = Client::connect(&own, &at).await;
        assert!(more.receive().await.map_or(true, |bytes| bytes.is_empty()));
        silent.pop().unwrap().stream.close();
        own.sleep(S).await;
        Client::greet(&own, &at).await.converse(b"a").await;
    });
    stage.run(|| played.get());
    assert_eq!(stage.counts()[..2], [u64::from(echo::PER_PEER) + 1, 1]);
}

#[test]
fn silent_connections_hold_at_most_a_page_each() {
    let stage = Stage::new(1, 100);
    let (at, own) = (stage.at.clone(), stage.outside.clone());
    let memory = stage.core.memory.clone();
    let played = client::spawn(&stage.outside, async move {
        let mut silent = Vec::new();
        for _ in 0..echo::PER_PEER {
            silent.push(Client::connect(&own, &at).await);
        }
        own.sleep(S).await;
        let held = memory.usage().used_bytes;
        assert!(held <= silent.len() * PAGE_BYTES, "{held} bytes for {}", silent.len());
    });
    stage.run(|| played.get());
    assert_eq!(stage.counts()[..2], [u64::from(echo::PER_PEER), 0]);
}

#[test]
fn closed_portal_accepts_no_connection() {
    let stage = Stage::new(1, 2);
    let again = stage.core.open_portal(stage.at.clone()).unwrap();
    assert_eq!(again, stage.at);
    // The daemon closes a portal of port 0 by the port that it got.
    let any = stage.core.open_portal("127.0.0.1:0".parse().unwrap()).unwrap();
    for at in [&stage.at, &any] {
        stage.core.close_portal(at);
        let (at, own) = (at.inet().unwrap(), stage.outside.clone());
        let played = client::spawn(&stage.outside, async move {
            assert!(own.connect(at).await.is_err());
        });
        stage.run(|| played.get());
    }
}

/// Has two implementations for a type that is `Send`, so that a call for one does not compile.
trait AmbiguousIfSend<Marker> {
    fn check() {}
}

impl<T: ?Sized> AmbiguousIfSend<()> for T {}

impl<T: ?Sized + Send> AmbiguousIfSend<u8> for T {}

#[test]
fn t5_connection_is_not_send() {
    <echo::Connection as AmbiguousIfSend<_>>::check();
}
