//! NBD disks in a simulated world. The server loses connections, restarts, grows and is exchanged,
//! and links are cut or become silent. Users on several cores remember the data that they wrote.
//! Some cores have a connection of their own, others use that of another core.

use std::rc::Rc;

use bio::Errno;
use disks::DiskClass;
use geom::Edge;
use reactor::SeededRandom;
use reactor::sim::{self, NetShape};
use rig::papers::{Good, Papers};
use serde_json::{Value, json};
use testkit::Seeds;
use testkit::clock::MS;
use tls::{Files, Keys};
use wire::nbd::Form;
use wire::nbd::client::{BlockSizes, Terms};
use wire::nbd::codes::export_flag;

use super::remote::{FLAGS, Remote};
use super::{Progress, Shape, load};
use crate::world::World;

const PORTAL: &str = "10.0.0.1:10809";
const PART: u64 = 64 * 512;
const USERS: Shape = Shape { users: 4, part: PART, rounds: 40 };
const BYTES: u64 = PART * USERS.users;

struct Play {
    world: sim::World,
    w: World,
    remote: Rc<Remote>,
    edge: Edge,
    random: SeededRandom,
    /// Links that became silent: neither end was notified.
    silenced: u64,
}

impl Play {
    fn new(seed: u64, params: Value, keys: Option<Keys>) -> Play {
        Play::beside(seed, params, keys, FLAGS)
    }

    /// The same with a server that offers `flags`.
    fn beside(seed: u64, params: Value, keys: Option<Keys>, flags: u16) -> Play {
        let world = sim::World::new(seed);
        let mut random = SeededRandom::new(seed ^ 0x6e62_6463);
        world.set_net(NetShape {
            segment_max: [7, 100, 1460, 16 * 1024][random.below(4) as usize],
            buffer_bytes: [4096, 65_536, 262_144][random.below(3) as usize],
            ..NetShape::default()
        });
        let cores = 1 + random.below(3) as usize;
        let mut w = World::simulated_in(world.clone(), cores);
        let portal = PORTAL.parse().unwrap();
        let parts = (BYTES as usize, keys);
        let remote = Remote::new(&world, &w.reactor, w.core.pool(), portal, parts);
        remote.flags.set(flags);
        remote.start();
        let blocks = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 25 };
        let terms = Terms {
            size: BYTES,
            flags,
            form: Form::Extended,
            allocation: Some(1),
            blocks: Some(blocks),
        };
        let connections = 1 + random.below(cores as u64);
        let mut all = json!({ "address": PORTAL, "connections": connections });
        let more = params.as_object().cloned().unwrap_or_default();
        all.as_object_mut().unwrap().extend(more);
        let disks = w.disks.clone();
        w.control.call(|t| disks.adopt_nbd(t, "n0", &all, &terms).map(drop)).unwrap();
        let edge = w.open("n0");
        Play { world, w, remote, edge, random, silenced: 0 }
    }

    fn passes(&mut self, ns: u64) {
        self.w.turn(ns);
    }

    /// Cuts a link, which both ends notice, or makes it silent.
    fn break_link(&mut self) {
        let links = self.world.links();
        let chosen = self.random.below(links.len() as u64) as usize;
        let Some((link, ..)) = links.get(chosen) else { return };
        if self.random.chance(500) {
            self.world.cut(*link);
        } else {
            self.world.half_open(*link);
            self.silenced += 1;
        }
    }

    /// Restarts the server and breaks links while users work, until they have ended.
    fn storm(&mut self, p: &Progress) {
        while p.ended.get() < USERS.users {
            let ns = self.random.below(30) * MS;
            self.passes(ns + MS);
            if self.random.chance(150) {
                self.remote.stop();
                let away = self.random.below(2000) * MS;
                self.passes(away + MS);
                self.remote.start();
            }
            if self.random.chance(30) {
                self.break_link();
            }
        }
    }
}

/// Every request ends well, and read data equal the written data, although connections fail. `tls`:
/// the keys of the server, and the parameters with which the disk trusts them. Returns the faults
/// of the server, and the number of silent links.
fn survives(seed: u64, tls: Option<&(Keys, Value)>) -> [u64; 2] {
    let mut params = json!({
        "retries": 100, "timeout_s": 1, "deadline_s": 3600, "request_deadline_s": 7200,
    });
    if let Some((_, trust)) = tls {
        params.as_object_mut().unwrap().extend(trust.as_object().cloned().unwrap_or_default());
    }
    let mut play = Play::new(seed, params, tls.map(|(keys, _)| keys.clone()));
    let faults = [0, 2, 10, 30][play.random.below(4) as usize];
    play.remote.faults.set(faults);
    let p = load(&mut play.w, play.edge, USERS);
    play.storm(&p);
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
    assert_eq!(p.rounds.get(), USERS.users * USERS.rounds);
    if play.random.chance(100) {
        play.remote.faults.set(0);
        // No end notices that an idle link became silent: a request shows it.
        play.w.read(play.edge, 0, 512).unwrap();
        play.remote.stop();
        play.remote.data.borrow_mut().resize(2 * BYTES as usize, 0);
        play.remote.start();
        play.w.until("the new size", |w| {
            let provider = w.control.topology.find("n0").unwrap();
            w.control.topology.limits(provider).unwrap().media_bytes == 2 * BYTES
        });
    }
    [play.remote.faults_made.get(), play.silenced]
}

#[test]
fn acknowledged_writes_survive_all_connection_faults() {
    let seeds = Seeds::of(24);
    let made = seeds.each(|seed| survives(seed, None));
    let total = |n: usize| made.iter().map(|faults| faults[n]).sum::<u64>();
    assert!((total(0) > 0 && total(1) > 0) || !seeds.are_enough(), "{made:?}");
}

/// A seed does not determine the ciphertext, only its place among the faults: rustls takes random
/// numbers and the time from the machine.
#[test]
fn acknowledged_writes_survive_all_connection_faults_over_tls() {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new("disks-nbd-sim").unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=DNS:localhost", Good::Now).unwrap();
    let path = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("server/server-cert.pem"), path("server/server-key.pem"));
    let files = Files { certificate: &certificate, key: &key, client_ca: "" };
    let trust = json!({ "tls_ca": path("ca.pem"), "tls_name": "localhost" });
    let tls = (Keys::read(&files).unwrap(), trust);
    let seeds = Seeds::of(12);
    let made = seeds.each(|seed| survives(seed, Some(&tls)));
    let total = |n: usize| made.iter().map(|faults| faults[n]).sum::<u64>();
    assert!((total(0) > 0 && total(1) > 0) || !seeds.are_enough(), "{made:?}");
}

/// The number of connections and the bounds change while users work and links are cut. In the end
/// only the connection of the last section remains. Returns the most connections at a time.
fn edited(seed: u64) -> usize {
    let section = |connections: u64, timeout_s: u64| {
        json!({
            "address": PORTAL, "connections": connections, "timeout_s": timeout_s,
            "retries": 100, "deadline_s": 3600, "request_deadline_s": 7200,
        })
    };
    let mut play = Play::new(seed, section(1, 1), None);
    let p = load(&mut play.w, play.edge, USERS);
    let mut most = 0;
    let update = |play: &mut Play, params: Value| {
        DiskClass::update_params(&mut play.w.control.topology, "n0", &params).unwrap();
    };
    while p.ended.get() < USERS.users {
        let pause = play.random.below(30) * MS;
        play.passes(pause + MS);
        let links = play.world.links();
        most = most.max(links.len());
        let (connections, timeout_s) = (1 + play.random.below(3), 1 + play.random.below(5));
        update(&mut play, section(connections, timeout_s));
        if let Some((link, ..)) = links.first().filter(|_| play.random.chance(50)) {
            play.world.cut(*link);
        }
    }
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
    assert_eq!(p.rounds.get(), USERS.users * USERS.rounds);
    update(&mut play, section(1, 1));
    let world = play.world.clone();
    play.w.until("the end of surplus connections", |_| world.links().len() <= 1);
    most
}

#[test]
fn changed_number_of_connections_loses_no_request() {
    let seeds = Seeds::of(24);
    let most = seeds.each(edited);
    assert!(most.iter().any(|links| *links > 1) || !seeds.are_enough(), "{most:?}");
}

/// N3 of nbd/layer.rs: further connections would be refused, and the disk would be lost.
#[test]
fn edit_leaves_one_connection_to_a_server_that_shares_no_cache_any_more() {
    let section = |connections: u64| {
        json!({
            "address": PORTAL, "connections": connections,
            "retries": 100, "deadline_s": 5, "request_deadline_s": 600,
        })
    };
    Seeds::of(8).each(|seed| {
        let mut play = Play::new(seed, section(1), None);
        play.remote.flags.set(FLAGS & !export_flag::CAN_MULTI_CONN);
        let p = load(&mut play.w, play.edge, USERS);
        while p.rounds.get() < USERS.users {
            play.passes(MS);
        }
        let edited = section(3);
        DiskClass::update_params(&mut play.w.control.topology, "n0", &edited).unwrap();
        while p.ended.get() < USERS.users {
            play.passes(10 * MS);
        }
        assert_eq!(*p.failed.borrow(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(p.rounds.get(), USERS.users * USERS.rounds);
        assert!(play.world.links().len() <= 1);
    });
}

/// Another export at the same address: nothing of the disk reaches it, and the disk is lost.
fn exchanged(seed: u64) {
    let bounds = json!({ "retries": 100, "deadline_s": 3, "request_deadline_s": 600 });
    let mut play = Play::new(seed, bounds, None);
    let p = load(&mut play.w, play.edge, Shape { rounds: u64::MAX, ..USERS });
    play.w.until("some work", |_| p.rounds.get() > 40);
    play.remote.stop();
    match play.random.below(3) {
        0 => play.remote.data.borrow_mut().truncate(BYTES as usize / 2),
        1 => play.remote.flags.set(FLAGS | wire::nbd::codes::export_flag::READ_ONLY),
        _ => play.remote.flags.set(FLAGS & !wire::nbd::codes::export_flag::SEND_FLUSH),
    }
    let writes = play.remote.writes.get();
    play.remote.start();
    play.w.until("the loss of the disk", |w| w.control.topology.find("n0").is_none());
    play.w.until("the end of the users", |_| p.ended.get() == USERS.users);
    assert_eq!(play.remote.writes.get(), writes, "written to another export");
    let failed = p.failed.borrow();
    assert!(failed.iter().all(|f| f.contains("ENXIO")), "{failed:?}");
}

#[test]
fn exchanged_export_is_refused_after_a_reconnect() {
    Seeds::of(12).each(exchanged);
}

/// N2 of nbd/layer.rs.
#[test]
fn zeroes_are_written_if_the_server_cannot_zero() {
    let flags = FLAGS & !wire::nbd::codes::export_flag::SEND_WRITE_ZEROES;
    let mut play = Play::beside(1, json!({}), None, flags);
    let p = load(&mut play.w, play.edge, USERS);
    play.w.until("the end of the users", |_| p.ended.get() == USERS.users);
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
}

#[test]
fn a_request_that_ends_its_connection_fails_alone() {
    let mut play = Play::new(1, json!({ "retries": 3 }), None);
    let kills = play.remote.clone();
    kills.poison.set(Some(BYTES - 512));
    let p = load(&mut play.w, play.edge, Shape { users: 3, ..USERS });
    assert_eq!(play.w.write(play.edge, BYTES - 512, &[1; 512]), Err(Errno::RemoteIo));
    play.w.until("the end of the users", |_| p.ended.get() == 3);
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
}
