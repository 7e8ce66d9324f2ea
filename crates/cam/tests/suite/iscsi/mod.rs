//! The iSCSI initiator in seeded worlds: lost connections, and targets that are slow, silent or
//! killed, or answer twice, with wrong tags and with wrong lengths. No acknowledged write is lost,
//! no old write is applied over a newer one, and nothing waits forever.
//!
//! More of them: see `testkit::seeds`.

mod killers;
pub mod peer;
mod reply;

use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Errno, Flags, Op};
use cam::sims::iscsi::IscsiKind;
use geom::{Class, Edge};
use peer::{Peer, Ways};
use reactor::SeededRandom;
use reactor::sim::NetShape;
use serde_json::{Value, json};
use testkit::Seeds;
use testkit::clock::{MS, S};
use wire::iscsi::{Auth, ChapAccount, ChapUser};

use crate::contents::Contents;
use crate::world::{World, range};

const SECTOR: u64 = 512;
const SECTORS: u64 = 64;
const SEEDS: u64 = 60;
const DEADLINE_S: u64 = 2;

/// Longest wait where all commands are answered. Where some are not, CAM allows each 60 s, an abort
/// 5 and a reset 10, five times.
const LONGEST_NS: u64 = 30 * S;
const LONGEST_MUTE_NS: u64 = 400 * S;

fn portal(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 3260))
}

fn params(portals: &[SocketAddr]) -> Value {
    json!({
        "portals": portals, "target": "iqn.2026-11.test.ashlar:peer",
        "initiator": "iqn.2026-11.test.ashlar:us", "deadline_s": DEADLINE_S,
    })
}

fn bus(w: &mut World, params: &Value) -> usize {
    w.add_kind(&IscsiKind, "iscsi0", params)
}

/// Until the bus has so many disks.
fn disks(w: &mut World, at: usize, count: usize, most: u64) -> Vec<String> {
    let mut found = w.scan(at);
    let end = w.now() + most;
    while found.len() < count && w.now() < end {
        w.turn(20 * MS);
        found.extend(w.found());
    }
    found
}

#[derive(Default)]
struct Sums {
    acked: u64,
    read: u64,
    lost: u64,
    orphans: u64,
    reinstated: u64,
    stray: u64,
    wrong_lengths: u64,
}

struct Storm {
    seed: u64,
    random: SeededRandom,
    w: World,
    peer: Rc<Peer>,
    edge: Edge,
    contents: Contents,
    lost: bool,
    sums: Sums,
}

fn ways_of(random: &mut SeededRandom) -> Ways {
    let mut one = |of: &[u64]| of[random.below(of.len() as u64) as usize];
    Ways {
        slow_ns: one(&[100_000, 10 * MS, 300 * MS]),
        twice: one(&[0, 50]) as u32,
        wrong: one(&[0, 50]) as u32,
        early: 0,
        wrong_lengths: one(&[0, 20]) as u32,
        mute: one(&[0, 0, 2]) as u32,
        digests: one(&[0, 1]) == 1,
        initial_r2t: one(&[0, 1]) == 1,
        immediate: one(&[0, 1]) == 1,
        burst: one(&[512, 2048, 16_384]) as u32,
        segment: one(&[512, 1024, 8192]) as u32,
        window: one(&[1, 3, 32]) as u32,
    }
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut random = SeededRandom::new(seed);
        let mut w = World::with(seed, &[]);
        let shape = NetShape {
            delay_ns_max: [50_000, 2 * MS, 20 * MS][random.below(3) as usize],
            segment_max: [100, 1460, 16_384][random.below(3) as usize],
            ..NetShape::default()
        };
        w.net().set_net(shape);
        let mut ways = ways_of(&mut random);
        ways.early = [0, 30][random.below(2) as usize];
        let good = Ways { twice: 0, wrong: 0, wrong_lengths: 0, mute: 0, early: 0, ..ways };
        let own = Auth::None;
        let peer = Peer::start(&w.core, &[portal(1)], SECTORS as usize, seed, (good, own));
        let at = bus(&mut w, &params(&[portal(1)]));
        let found = disks(&mut w, at, 1, 20 * S);
        assert_eq!(found, ["da0"], "seed {seed}: the target is not found");
        let (_, edge) = w.open("da0");
        *peer.ways.borrow_mut() = ways;
        let resets_per_million = [0, 2_000][random.below(2) as usize];
        w.net().set_net(NetShape { resets_per_million, ..shape });
        let contents = Contents::new(seed, SECTORS as usize);
        peer.bytes.borrow_mut().copy_from_slice(&contents.initial());
        let sums = Sums::default();
        Storm { seed, random, w, peer, edge, contents, lost: false, sums }
    }

    fn request(&mut self) {
        // Some sectors are written again and again: as soon as one write has ended.
        let (len, at) = match self.random.below(2) {
            0 => (1 + self.random.below(2), self.random.below(3)),
            _ => {
                let len = 1 + self.random.below(20);
                (len, self.random.below(SECTORS - len + 1))
            }
        };
        if self.random.below(2) > 0 {
            self.contents.read(&mut self.w, self.edge, at, len);
        } else {
            self.contents.write(&mut self.w, self.edge, (at, len), |_| Flags::default());
        }
    }

    fn reap(&mut self) {
        let (now, longest) = (self.w.now(), self.longest());
        for ended in self.w.ended() {
            match self.contents.end(&ended, now, longest) {
                Ok(()) => {}
                Err(Errno::NxIo) => self.lost = true,
                // Five tries of one command may have ended with five connections.
                Err(Errno::RemoteIo) => {}
                Err(e) => panic!("seed {}: {e} without a reason", self.seed),
            }
        }
    }

    fn longest(&self) -> u64 {
        if self.peer.ways.borrow().mute > 0 { LONGEST_MUTE_NS } else { LONGEST_NS }
    }

    fn happen(&mut self) {
        match self.random.below(8) {
            0 => self.peer.deaf.set(true),
            1 => {
                self.peer.shut.set(true);
                self.peer.cut();
            }
            2 => {
                self.peer.shut.set(true);
                self.peer.kill();
            }
            3 => self.peer.kill(),
            _ => self.peer.cut(),
        }
    }

    fn restore_peer(&mut self) {
        self.peer.deaf.set(false);
        self.peer.shut.set(false);
    }

    fn run(&mut self) {
        let mut ill_until = 0;
        for _ in 0..500 {
            if self.lost {
                break;
            }
            while self.contents.in_flight() < 8 && self.random.below(3) > 0 {
                self.request();
            }
            if self.random.chance(30) && ill_until == 0 {
                self.happen();
                // Seldom longer than a caller waits.
                let most = if self.random.chance(150) { 20 * S } else { S };
                ill_until = self.w.now() + self.random.below(most);
            }
            if ill_until != 0 && self.w.now() >= ill_until {
                self.restore_peer();
                ill_until = 0;
            }
            let step = [MS / 5, 2 * MS, 20 * MS][self.random.below(3) as usize];
            self.w.turn(step);
            self.reap();
        }
        self.restore_peer();
        self.calm();
        self.contents.check(&self.peer.bytes.borrow());
    }

    /// All that is under way anywhere ends.
    fn calm(&mut self) {
        let end = self.w.now() + self.longest();
        while self.contents.in_flight() > 0 {
            let count = self.contents.in_flight();
            assert!(self.w.now() < end, "seed {}: {count} wait", self.seed);
            self.w.turn(20 * MS);
            self.reap();
        }
        let quiet = self.w.now() + S;
        while self.w.now() < quiet {
            self.w.turn(20 * MS);
        }
        let counts = self.w.buses[0].sim().counts();
        let count = |name| counts.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
        self.sums.stray = count("answers-unasked");
        self.sums.wrong_lengths = count("answers-of-other-lengths");
        self.sums.lost = u64::from(self.lost);
        (self.sums.acked, self.sums.read) = (self.contents.writes_done, self.contents.reads_done);
        self.sums.orphans = self.peer.orphans.get();
        self.sums.reinstated = self.peer.reinstated.get();
    }
}

/// I4 of iscsi/engine/mod.rs.
#[test]
fn acknowledged_writes_are_neither_lost_nor_overwritten_by_older_ones() {
    let seeds = Seeds::of(SEEDS);
    let count = seeds.count();
    let mut all = Sums::default();
    let play = |seed| {
        let mut storm = Storm::new(seed);
        storm.run();
        storm.sums
    };
    for sums in seeds.each(play) {
        all.acked += sums.acked;
        all.read += sums.read;
        all.lost += sums.lost;
        all.orphans += sums.orphans;
        all.reinstated += sums.reinstated;
        all.stray += sums.stray;
        all.wrong_lengths += sums.wrong_lengths;
    }
    println!(
        "{} writes ({} after their connection), {} reads, {} disks lost of {count}, {} sessions \
         begun anew, {} answers unasked, {} lies",
        all.acked, all.orphans, all.read, all.lost, all.reinstated, all.stray, all.wrong_lengths
    );
    if seeds.are_enough() {
        assert!(all.acked > 20 * count && all.read > 20 * count && all.lost > 0);
        assert!(
            all.orphans > 0 && all.reinstated > count && all.stray > 0 && all.wrong_lengths > 0
        );
    }
}

fn user(name: &str, secret: &str) -> ChapUser {
    ChapUser { name: name.into(), secret: secret.into() }
}

fn good() -> Ways {
    Ways { slow_ns: MS, burst: 4096, segment: 4096, window: 8, digests: true, ..Ways::default() }
}

#[test]
fn login_requires_the_configured_chap_authentication() {
    let mutual = Some(user("they", "their-own-secret-too"));
    let account = ChapAccount { user: user("we", "our-very-own-secret"), mutual };
    let auth = Auth::Chap { accounts: vec![account] };
    let proof = |name: &str, secret: &str| json!({ "user": name, "secret": secret });
    let (we, they) = (proof("we", "our-very-own-secret"), proof("they", "their-own-secret-too"));
    let wrong = proof("they", "some-other-secret-of-theirs");
    let cases = [
        (Some(&we), Some(&they), 1),
        (Some(&we), None, 1),
        (Some(&we), Some(&wrong), 0),
        (Some(&wrong), None, 0),
        (None, None, 0),
    ];
    for (n, (chap, mutual, count)) in cases.into_iter().enumerate() {
        let mut w = World::with(n as u64 + 1, &[]);
        let _peer = Peer::start(&w.core, &[portal(1)], 8, 1, (good(), auth.clone()));
        let mut params = params(&[portal(1)]);
        params["chap"] = json!(chap);
        params["mutual"] = json!(mutual);
        let at = bus(&mut w, &params);
        assert_eq!(disks(&mut w, at, 1, 10 * S).len(), count, "case {n}");
    }
}

/// N3 of sims/iscsi/mod.rs.
#[test]
fn the_disk_of_a_silent_portal_is_lost_and_found_again_later() {
    let mut w = World::with(5, &[]);
    let peer = Peer::start(&w.core, &[portal(1), portal(2)], 64, 5, (good(), Auth::None));
    let at = bus(&mut w, &params(&[portal(1), portal(2)]));
    let found = disks(&mut w, at, 2, 20 * S);
    assert_eq!(found, ["da0", "da1"], "one for each portal");
    let (_, edge) = w.open("da0");
    w.write(edge, 0, &[7; 4096], Flags::default()).unwrap();
    peer.deaf.set(true);
    let began = w.now();
    assert_eq!(w.read(edge, 0, 4096), Err(Errno::NxIo));
    assert!(w.now() - began <= (DEADLINE_S + 2) * S, "{} ms", (w.now() - began) / MS);
    (0..20).for_each(|_| w.turn(100 * MS));
    assert!(!w.has("da1"), "it was unused, and is removed as well");
    peer.deaf.set(false);
    peer.cut();
    let mut back = Vec::new();
    let end = w.now() + 60 * S;
    while back.len() < 2 && w.now() < end {
        w.turn(100 * MS);
        back.extend(w.found());
    }
    back.sort();
    assert_eq!(back, ["da0", "da1"], "under their old names");
    let (_, edge) = w.open("da0");
    assert!(w.read(edge, 0, 4096).unwrap() == [7; 4096]);
}

/// Turns until a disk is in the graph, or is not.
fn turn_until(w: &mut World, disk: &str, is_there: bool) {
    w.until((20 * MS, 20 * S), disk, |w| w.has(disk) == is_there);
}

/// Turns, and takes the disks into the graph that scans have found.
fn turn_and_update(w: &mut World) {
    w.turn(20 * MS);
    w.found();
}

/// N5 of sims/iscsi/mod.rs.
#[test]
fn portals_are_added_and_removed_while_the_disks_of_others_are_used() {
    let mut w = World::with(11, &[]);
    let peer = Peer::start(&w.core, &[portal(1), portal(2)], 64, 11, (good(), Auth::None));
    let at = bus(&mut w, &params(&[portal(1)]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let (_, first) = w.open("da0");
    w.write(first, 0, &[7; 4096], Flags::default()).unwrap();
    let sim = w.buses[at].sim().clone();
    let logins = || sim.counts().iter().find(|(name, _)| *name == "logins").map(|(_, n)| *n);
    let change = |portals: &[SocketAddr]| sim.update_params(&params(portals)).unwrap();
    for round in 0..2 {
        change(&[portal(2), portal(1)]);
        turn_until(&mut w, "da1", true);
        assert_eq!(w.read(first, 0, 4096), Ok(vec![7; 4096]));
        let unit = w.buses[at].sim().location(cam::Path::new(0, 1, 0));
        assert!(unit.contains(&portal(2).to_string()), "round {round}: {unit}");
        change(&[portal(1)]);
        turn_until(&mut w, "da1", false);
        assert_eq!(w.read(first, 0, 4096), Ok(vec![7; 4096]));
    }
    (0..20).for_each(|_| w.turn(100 * MS));
    assert_eq!(logins(), Some(2), "the session at the first portal is the former one");
    // A command that is under way at the removed portal ends there, and its disk is lost then.
    peer.ways.borrow_mut().slow_ns = 500 * MS;
    let data = w.buffer(4096);
    w.start(first, 1, |bio| range(bio, Op::Read, 0, data));
    change(&[portal(2)]);
    turn_until(&mut w, "da0", false);
    let ended: Vec<_> = w.ended().into_iter().map(|end| end.status).collect();
    assert_eq!(ended, [Ok(())]);
}

/// N5 of sims/iscsi/mod.rs.
#[test]
fn portal_that_returns_at_once_keeps_its_session_and_disk() {
    let mut w = World::with(12, &[]);
    let both = [portal(1), portal(2)];
    let _peer = Peer::start(&w.core, &both, 64, 12, (good(), Auth::None));
    let at = bus(&mut w, &params(&both));
    assert_eq!(disks(&mut w, at, 2, 20 * S), ["da0", "da1"]);
    let sim = w.buses[at].sim().clone();
    for portals in [&both[..1], &both[..]] {
        sim.update_params(&params(portals)).unwrap();
    }
    (0..100).for_each(|_| turn_and_update(&mut w));
    assert!(w.control.topology.find("da1").is_some(), "its portal is configured");
    assert!(sim.troubles().is_empty(), "{:?}", sim.troubles());
    let logins = sim.counts().into_iter().find(|(name, _)| *name == "logins");
    assert_eq!(logins, Some(("logins", 2)));
}

/// A write to `da0` of the first bus that the target has and does not carry out.
fn start_endless_write(w: &mut World, peer: &Peer) {
    let (_, edge) = w.open("da0");
    peer.ways.borrow_mut().slow_ns = 10_000 * S;
    let data = w.buffer(4096);
    w.start(edge, 1, |bio| range(bio, Op::Write, 0, data));
    (0..10).for_each(|_| w.turn(20 * MS));
    assert!(!peer.is_idle(), "the target has it");
    peer.ways.borrow_mut().slow_ns = MS;
}

/// How the only request under way ends.
fn wait_for_end(w: &mut World) -> Result<(), Errno> {
    let end = w.now() + 20 * S;
    loop {
        if let Some(ended) = w.ended().pop() {
            return ended.status;
        }
        assert!(w.now() < end, "the write is awaited");
        turn_and_update(w);
    }
}

/// N5 of sims/iscsi/mod.rs: otherwise the target could carry it out after newer writes.
#[test]
fn slow_write_of_a_removed_portal_ends_by_a_new_session() {
    let mut w = World::with(13, &[]);
    let both = [portal(1), portal(2)];
    let peer = Peer::start(&w.core, &both, 64, 13, (good(), Auth::None));
    let at = bus(&mut w, &params(&both[..1]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    w.buses[at].sim().update_params(&params(&both)).unwrap();
    turn_until(&mut w, "da1", true);
    start_endless_write(&mut w, &peer);
    w.buses[at].sim().update_params(&params(&both[1..])).unwrap();
    assert_eq!((wait_for_end(&mut w), peer.reinstated.get()), (Err(Errno::NxIo), 1));
    turn_until(&mut w, "da0", false);
}

/// N5 of sims/iscsi/mod.rs: the disk may be written by another bus as soon as it ends.
#[test]
fn slow_write_of_a_closed_bus_ends_by_a_new_session() {
    let mut w = World::with(14, &[]);
    let peer = Peer::start(&w.core, &[portal(1), portal(2)], 64, 14, (good(), Auth::None));
    let at = bus(&mut w, &params(&[portal(1)]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let second = second_bus(&mut w, portal(2));
    assert_eq!(disks(&mut w, second, 1, 20 * S), ["da1"]);
    let (_, other) = w.open("da1");
    start_endless_write(&mut w, &peer);
    w.buses[at].sim().close();
    assert_eq!((wait_for_end(&mut w), peer.reinstated.get()), (Err(Errno::NxIo), 1));
    assert_eq!(w.write(other, 0, &[7; 4096], Flags::default()), Ok(()));
    turn_until(&mut w, "da0", false);
    assert_eq!(w.read(other, 0, 4096), Ok(vec![7; 4096]));
}

/// N6 of sims/iscsi/mod.rs.
#[test]
fn bus_opened_anew_waits_for_the_sessions_of_the_closed_one() {
    let mut w = World::with(15, &[]);
    let peer = Peer::start(&w.core, &[portal(1)], 64, 15, (good(), Auth::None));
    let at = bus(&mut w, &params(&[portal(1)]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    start_endless_write(&mut w, &peer);
    w.buses[at].sim().close();
    let again = bus(&mut w, &params(&[portal(1)]));
    let logins = |w: &World, at: usize| {
        let counts = w.buses[at].sim().counts().into_iter();
        counts.filter(|(name, _)| *name == "logins").map(|(_, n)| n).sum::<u64>()
    };
    assert_eq!((wait_for_end(&mut w), peer.reinstated.get()), (Err(Errno::NxIo), 1));
    let name = |w: &World| w.buses[again].devices().first().map_or(String::new(), |d| d.2.clone());
    w.until((20 * MS, 20 * S), "the disk of the new bus", |w| !name(w).is_empty());
    (0..100).for_each(|_| turn_and_update(&mut w));
    assert_eq!((logins(&w, at), logins(&w, again)), (2, 1), "no session ends the other's");
    let name = name(&w);
    let (_, edge) = w.open(&name);
    assert_eq!(w.write(edge, 0, &[7; 4096], Flags::default()), Ok(()));
}

#[test]
fn login_redirections_are_followed_and_queried_at_each_login() {
    let mut w = World::with(6, &[]);
    let (first, second) = (portal(1), portal(2));
    let peer = Peer::start(&w.core, &[first, second], 64, 6, (good(), Auth::None));
    peer.moved.set(Some((first, second)));
    let at = bus(&mut w, &params(&[first]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let (_, edge) = w.open("da0");
    w.write(edge, 0, &[7; 4096], Flags::default()).unwrap();
    let before = peer.sent_on.get();
    assert!(before > 0, "nobody was sent anywhere");
    peer.cut();
    assert!(w.read(edge, 0, 4096).unwrap() == [7; 4096]);
    assert!(peer.sent_on.get() > before, "the portal knows where the target is now");
    // It is there itself again.
    peer.moved.set(None);
    peer.cut();
    assert!(w.read(edge, 0, 4096).unwrap() == [7; 4096]);
    // Both send on to each other: an end, and the disk is lost at its deadline.
    peer.moved.set(Some((first, first)));
    peer.cut();
    let began = w.now();
    assert_eq!(w.read(edge, 0, 4096), Err(Errno::NxIo));
    assert!(w.now() - began <= (DEADLINE_S + 2) * S);
    assert!(peer.sent_on.get() < 200, "as often as it is tried, and four times");
}

/// A bus of its own for each target: `names` of disks are in the order in which they are found.
fn second_bus(w: &mut World, at: SocketAddr) -> usize {
    w.add_kind(&IscsiKind, "iscsi1", &params(&[at]))
}

#[test]
fn a_target_smaller_than_reported_fails_only_requests_beyond_its_end() {
    let mut w = World::with(7, &[]);
    let liar = Peer::start(&w.core, &[portal(1)], 64, 7, (good(), Auth::None));
    let honest = Peer::start(&w.core, &[portal(2)], 64, 8, (good(), Auth::None));
    liar.reported_sectors.set(Some(128));
    let at = bus(&mut w, &params(&[portal(1)]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let at = second_bus(&mut w, portal(2));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da1"]);
    let (lies, other) = (w.open("da0").1, w.open("da1").1);
    w.write(other, 0, &[9; 4096], Flags::default()).unwrap();
    for round in 0..2 {
        // At first its size is false; then it shrinks under us.
        let end = (64 * SECTOR) >> round;
        w.write(lies, end - 4096, &[7; 4096], Flags::default()).unwrap();
        assert!(w.read(lies, end - 4096, 4096).unwrap() == [7; 4096]);
        assert_eq!(w.read(lies, end, 4096), Err(Errno::Inval));
        assert_eq!(w.write(lies, end - 512, &[8; 1024], Flags::default()), Err(Errno::Inval));
        assert!(w.read(lies, end - 4096, 4096).unwrap() == [7; 4096], "nothing of it was done");
        assert!(w.read(other, 0, 4096).unwrap() == [9; 4096]);
        liar.bytes.borrow_mut().truncate((32 * SECTOR) as usize);
    }
    assert_eq!(honest.bytes.borrow().len() as u64, 64 * SECTOR);
    assert!(w.has("da0"), "what it has is to be had");
}

#[test]
fn a_write_failed_by_a_lost_path_is_not_executed_later() {
    let mut w = World::with(8, &[]);
    // A WRITE that has all of its data with it, and is done at once.
    let ways = Ways { slow_ns: 1, ..good() };
    let peer = Peer::start(&w.core, &[portal(1)], 64, 8, (ways, Auth::None));
    let at = bus(&mut w, &params(&[portal(1)]));
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let (_, edge) = w.open("da0");
    w.write(edge, 0, &[1; 1024], Flags::default()).unwrap();
    peer.deaf.set(true);
    // Data that the target has not read yet are lost with the connection.
    assert_eq!(w.write(edge, 0, &[2; 1024], Flags::default()), Err(Errno::NxIo));
    assert!(peer.bytes.borrow()[..1024] == [1; 1024]);
    // Another initiator has written there since, on another path.
    peer.bytes.borrow_mut()[..1024].fill(3);
    peer.deaf.set(false);
    (0..50).for_each(|_| w.turn(100 * MS));
    assert!(peer.bytes.borrow()[..1024] == [3; 1024], "the old write came late");
}

#[test]
fn an_attach_that_fails_late_removes_disks_already_in_use() {
    let mut w = World::with(9, &[]);
    let near = json!({ "disks": 1, "size": 1 << 20 });
    let near = json!({ "kind": "virtual", "params": near, "names": { "root": "0:0" } });
    w.verb("attach", "mps0", &near).unwrap();
    let ways = Ways { slow_ns: 40 * MS, ..good() };
    let _peer = Peer::start(&w.core, &[portal(1), portal(2)], 64, 9, (ways, Auth::None));
    // Two ways to its disk, of which the second is to have a name that is taken.
    let params = params(&[portal(1), portal(2)]);
    let bus = json!({ "kind": "iscsi", "params": params, "names": { "root": "1:0" } });
    let cam = w.cam.clone();
    let answer = cam.verb(&mut w.control, "attach", "iscsi0", &bus).unwrap();
    let again = answer["unfinished"]["again"].clone();
    assert!(again.is_object(), "it takes its time: {answer}");
    let end = w.now() + 60 * S;
    while !w.has("da0") {
        assert!(w.now() < end, "da0 does not come");
        w.turn(10 * MS);
        drop(cam.take_update_results(&mut w.control));
    }
    let (_, edge) = w.open("da0");
    assert!(w.read(edge, 0, 512).is_ok());
    let refused = cam.verb(&mut w.control, "attach", "iscsi0", &again).unwrap_err();
    assert!(
        refused.kind == Errno::Exist && refused.message.contains("root"),
        "{}",
        refused.message
    );
    assert_eq!(cam.buses().len(), 1, "it was given up as a whole");
    w.turn(S);
    assert!(!w.has("da0"), "who has it open was told");
    assert_eq!(w.read(edge, 0, 512).unwrap_err(), Errno::NxIo);
    // Nothing of it is in the way of the next one.
    let bus = json!({ "kind": "iscsi", "params": params });
    assert_eq!(w.verb("attach", "iscsi0", &bus).unwrap()["found"].as_array().unwrap().len(), 2);
}
