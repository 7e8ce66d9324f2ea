//! What goes wrong between a target and us, for a while or for ever: digests, the command window,
//! redirections, logins that are refused. What the disk's user gets, and what the bus says.

use std::net::SocketAddr;

use bio::{Errno, Flags, Op};
use serde_json::json;

use super::hang::{attach, whys};
use super::target::{Disk, OTHER, OWN, Target};
use super::{MS, S, portal, ways};
use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::{World, range};

fn nowhere() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 3260))
}

#[derive(Clone, Copy)]
enum What {
    HeaderDigests(u32),
    DataDigests(u32),
    /// No command may be sent.
    Window,
    Moved,
    Busy,
    Deaf,
}

struct Row {
    name: &'static str,
    what: What,
    /// How long it lasts; 0: as many PDUs as it says, `u64::MAX`: for ever.
    lasts_ns: u64,
    after: Disk,
    ends: Result<(), Errno>,
    /// What the bus says while it lasts.
    says: &'static str,
    within_s: u64,
}

const fn row(name: &'static str, what: What, lasts_ns: u64) -> Row {
    Row { name, what, lasts_ns, after: OWN, ends: Ok(()), says: "", within_s: 12 }
}

const fn lost(name: &'static str, what: What, says: &'static str) -> Row {
    Row { ends: Err(Errno::NxIo), says, within_s: 15, ..row(name, what, u64::MAX) }
}

const fn other(name: &'static str, what: What, lasts_ns: u64) -> Row {
    let says = "another disk is there than before";
    Row { after: OTHER, ends: Err(Errno::NxIo), says, ..row(name, what, lasts_ns) }
}

const ROWS: &[Row] = &[
    row("one header digest", What::HeaderDigests(1), 0),
    row("five header digests", What::HeaderDigests(5), 0),
    row("one data digest", What::DataDigests(1), 0),
    row("five data digests", What::DataDigests(5), 0),
    other("one header digest, another disk", What::HeaderDigests(1), 0),
    other("one data digest, another disk", What::DataDigests(1), 0),
    row("a closed window for 5 s", What::Window, 5 * S),
    Row {
        ends: Err(Errno::TimedOut),
        says: "is not answered",
        within_s: 61,
        ..row("a closed window for ever", What::Window, u64::MAX)
    },
    row("sent to a dead portal for 4 s", What::Moved, 4 * S),
    other("sent to a dead portal for 4 s, another disk", What::Moved, 4 * S),
    lost("sent to a dead portal for ever", What::Moved, "iqn.2026-11.test.ashlar:peer at 10.0.0.1"),
    row("logins refused for 4 s", What::Busy, 4 * S),
    other("logins refused for 4 s, another disk", What::Busy, 4 * S),
    lost("logins refused for ever", What::Busy, "the service is not available now"),
    row("silent for 4 s", What::Deaf, 4 * S),
    lost("silent for ever", What::Deaf, "iqn.2026-11.test.ashlar:peer at 10.0.0.1"),
];

fn set(target: &Target, what: What, on: bool) {
    let peer = &target.peer;
    match what {
        What::HeaderDigests(n) => peer.spoils[0].set(if on { n } else { 0 }),
        What::DataDigests(n) => peer.spoils[1].set(if on { n } else { 0 }),
        What::Window => peer.ways.borrow_mut().window = if on { 0 } else { 8 },
        What::Moved => peer.moved.set(on.then(|| (portal(), nowhere()))),
        What::Busy => peer.busy.set(on),
        What::Deaf => peer.deaf.set(on),
    }
    if on && matches!(what, What::Moved | What::Busy) {
        peer.kill();
    }
}

fn run(n: usize, row: &Row) {
    let mut w = World::with(n as u64, &[]);
    let ways = Ways { digests: true, ..ways(8) };
    let target = Target::start(&w.core, portal(), OWN, n as u64, ways);
    let edge = attach(&mut w, &json!({}));
    w.write(edge, 0, &[1; SECTOR], Flags::NONE).unwrap();
    if let What::Window = row.what {
        target.peer.ways.borrow_mut().window = 0;
        // What it was told that it may send is used up.
        for _ in 0..8 {
            w.read(edge, 0, SECTOR).unwrap();
        }
    }
    let old = (row.after != OWN)
        .then(|| target.exchange(row.after.clone(), vec![0; OTHER.sectors * SECTOR]));
    set(&target, row.what, true);
    if old.is_some() {
        // No session goes on over the exchange.
        target.peer.kill();
    }
    let began = w.now();
    let data = w.buffer(SECTOR);
    data.fill(0, SECTOR, 9);
    w.start(edge, 1, |bio| range(bio, Op::Write, 9 * SECTOR as u64, data));
    let data = w.buffer(SECTOR);
    w.start(edge, 2, |bio| range(bio, Op::Read, 0, data));
    let (mut ended, mut said) = (Vec::new(), Vec::new());
    let mut lasts = row.lasts_ns > 0;
    while ended.len() < 2 {
        let took = w.now() - began;
        assert!(took < row.within_s * S, "{}: {} ended in time", row.name, ended.len());
        w.turn(20 * MS);
        ended.extend(w.ended());
        said.extend(whys(&w).into_iter().map(|(why, _)| why));
        if lasts && took >= row.lasts_ns {
            set(&target, row.what, false);
            lasts = false;
        }
    }
    for end in &ended {
        assert_eq!(end.status, row.ends, "{}: {}", row.name, end.tag);
    }
    (0..100).for_each(|_| w.turn(20 * MS));
    said.extend(whys(&w).into_iter().map(|(why, _)| why));
    assert!(said.iter().any(|why| why.contains(row.says)) || row.says.is_empty(), "{said:?}");
    let now = target.peer.bytes.borrow().clone();
    let written = now[9 * SECTOR..10 * SECTOR] == [9; SECTOR];
    assert_eq!(written, row.ends.is_ok(), "{}", row.name);
    if let Some(old) = old {
        assert!(now.iter().all(|b| *b == 0) && old[0] == 1, "{}", row.name);
        return;
    }
    // It is as it was once that is over, by itself.
    set(&target, row.what, false);
    if row.ends == Err(Errno::NxIo) {
        target.peer.cut();
    }
    let end = w.now() + 60 * S;
    while w.buses_at_work() < 1 {
        assert!(w.now() < end, "{}: the disk comes back", row.name);
        w.turn(100 * MS);
        let cam = w.cam.clone();
        cam.look(&mut w.control);
    }
}

impl World {
    /// Disks that are in the graph and not lost.
    fn buses_at_work(&self) -> usize {
        let devices = self.cam.buses().into_iter().flat_map(|bus| bus.devices());
        devices.filter(|(unit, _, name)| !name.is_empty() && !unit.look(|d| d.is_lost())).count()
    }
}

#[test]
fn what_goes_wrong_on_the_way_has_the_effect_that_the_table_says() {
    ROWS.iter().enumerate().for_each(|(n, row)| run(n, row));
}
