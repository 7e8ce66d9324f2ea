//! Commands that end their session each time (engine I7).

use bio::{Errno, Flags, Op};
use cam::Sim;
use std::collections::BTreeMap;
use wire::iscsi::Auth;

use super::peer::{Peer, Ways};
use super::*;
use crate::contents::pattern;
use crate::world::{World, range};

/// Sessions that a command may end: two, and then one for each of its five tries.
const SESSIONS_MOST: u64 = 7;

fn one_of(sim: &dyn Sim, name: &str) -> u64 {
    sim.counts().iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count)
}

#[test]
fn a_command_that_repeatedly_ends_its_session_fails_alone() {
    for (seed, killer, op) in [(20, 0, Op::Write), (21, 5, Op::Read), (22, 40, Op::Write)] {
        let mut w = World::with(seed, &[]);
        let ways = Ways { slow_ns: 10 * MS, ..good() };
        let peer = Peer::start(&w.core, &[portal(1)], 64, seed, (ways, Auth::None));
        let at = bus(&mut w, &params(&[portal(1)]));
        let sim = w.buses[at].sim().clone();
        assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
        let (_, edge) = w.open("da0");
        peer.falls_over.set(Some(killer));
        for tag in 0..48 {
            let data = w.buffer(SECTOR as usize);
            data.copy_from(0, &pattern(tag, 1));
            let op = if tag == u64::from(killer) { op } else { Op::Write };
            w.start(edge, tag, |bio| range(bio, op, tag * SECTOR, data));
        }
        let (mut ended, mut reasons) = (BTreeMap::new(), Vec::new());
        let end = w.now() + 60 * S;
        while ended.len() < 48 && w.now() < end {
            w.turn(10 * MS);
            ended.extend(w.ended().into_iter().map(|e| (e.tag, e.status)));
            reasons.extend(sim.troubles().into_iter().map(|t| t.why));
        }
        let failed: Vec<_> = ended.iter().filter(|(_, status)| status.is_err()).collect();
        assert_eq!(ended.len(), 48, "seed {seed}: the others go on");
        assert_eq!(failed, [(&u64::from(killer), &Err(Errno::RemoteIo))], "seed {seed}");
        assert_eq!(peer.fell_over.get(), SESSIONS_MOST, "seed {seed}");
        for tag in (0..48).filter(|tag| *tag != u64::from(killer)) {
            let there = (tag * SECTOR) as usize..((tag + 1) * SECTOR) as usize;
            assert!(peer.bytes.borrow()[there] == pattern(tag, 1), "seed {seed}, {tag}");
        }
        // It was named, and afterwards all is as before.
        let opcode = if op == Op::Read { "28" } else { "2a" };
        let name = format!("the last alone: {opcode} 00 00 00 00 {killer:02x} 00 00 01 00");
        assert!(reasons.iter().any(|why| why.contains(&name)), "seed {seed}: {name} {reasons:?}");
        (0..50).for_each(|_| w.turn(10 * MS));
        w.write(edge, SECTOR * u64::from(killer ^ 1), &pattern(9, 9), Flags::NONE).unwrap();
        (0..200).for_each(|_| w.turn(10 * MS));
        assert_eq!(one_of(&*sim, "sessions-ended-by-a-command"), SESSIONS_MOST - 2);
        assert_eq!(one_of(&*sim, "sessions-dropped"), SESSIONS_MOST);
    }
}

const WRITES: usize = 2000;

/// N3 of sims/iscsi/mod.rs.
#[test]
fn no_command_fails_when_sessions_end_for_other_reasons() {
    let mut w = World::with(30, &[]);
    let ways = Ways { slow_ns: 40 * MS, ..good() };
    let peer = Peer::start(&w.core, &[portal(1)], 64, 30, (ways, Auth::None));
    let at = bus(&mut w, &params(&[portal(1)]));
    let sim = w.buses[at].sim().clone();
    assert_eq!(disks(&mut w, at, 1, 20 * S), ["da0"]);
    let (_, edge) = w.open("da0");
    // More sessions end than a command may end, whichever commands are in flight.
    let mut left = 4 * SESSIONS_MOST;
    for tag in 0..WRITES as u64 {
        let data = w.buffer(SECTOR as usize);
        w.start(edge, tag, |bio| range(bio, Op::Write, tag % 64 * SECTOR, data));
    }
    let mut ended = Vec::new();
    let end = w.now() + 200 * S;
    while ended.len() < WRITES && w.now() < end {
        w.turn(100 * MS);
        ended.extend(w.ended().into_iter().map(|e| e.status));
        if left > 0 {
            left -= 1;
            peer.kill();
        }
    }
    assert!(ended.len() == WRITES && ended.iter().all(|status| status.is_ok()), "{}", ended.len());
    (0..20).for_each(|_| w.turn(100 * MS));
    let dropped = one_of(&*sim, "sessions-dropped");
    assert!(dropped > SESSIONS_MOST, "{dropped}");
}
