//! An iSCSI target that behaves oddly, one thing at a time: what its disk's user gets, what is on
//! which disk, and what the bus says of it.

mod answers;
mod capacity;
mod hang;
mod lines;
mod paths;
mod storm;
mod table;
mod target;

use std::net::SocketAddr;

use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::{World, range};
use bio::{Errno, Op};
use cam::sims::iscsi::IscsiKind;
use cam::{Open, SimKind, Site};
use geom::Edge;
use serde_json::json;
use table::{ROWS, Row, When, reply};
use target::{Disk, OTHER, OWN, Target};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const BUSY: u8 = 0x08;

fn portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 3260))
}

fn ways(window: u32) -> Ways {
    Ways { slow_ns: MS, burst: 4096, segment: 4096, window, ..Ways::default() }
}

/// A bus of that target.
fn bus(w: &mut World, deadline_s: u64, luns_max: u32) -> usize {
    let site = Site { switchboard: w.control.topology.switchboard(), cores: 1 };
    let params = json!({
        "portals": [portal()], "target": "iqn.2026-11.test.ashlar:peer",
        "initiator": "iqn.2026-11.test.ashlar:us", "deadline_s": deadline_s, "luns_max": luns_max,
    });
    let sim = IscsiKind.open(&Open { name: "iscsi0", params: &params, site: &site }).unwrap();
    w.add(sim)
}

/// The same, with its disk.
fn open(w: &mut World, deadline_s: u64) -> Edge {
    let at = bus(w, deadline_s, 16_384);
    let mut found = w.scan(at);
    let end = w.now() + 20 * S;
    while found.is_empty() && w.now() < end {
        w.turn(20 * MS);
        let cam = w.cam.clone();
        cam.look(&mut w.control).into_iter().for_each(|(_, names)| found.extend(names.unwrap()));
    }
    assert_eq!(found, ["da0"]);
    w.open("da0").1
}

fn exchange(row: &Row, target: &Target, w: &mut World) -> Vec<u8> {
    let bytes = || vec![0; row.after.sectors * SECTOR];
    let is_own = row.after.serial == row.before.serial
        && row.says.is_empty()
        && row.ends != Err(Errno::NxIo);
    let put = |target: &Target| {
        let mut own = target.peer.bytes.borrow().clone();
        own.resize(row.after.sectors * SECTOR, 0);
        target.exchange(row.after.clone(), if is_own { own } else { bytes() })
    };
    let odd = |target: &Target| {
        row.attentions.iter().for_each(|(asc, ascq)| target.attention(*asc, *ascq));
        row.reply.iter().for_each(|reply| target.reply(reply.clone()));
    };
    match row.when {
        When::Live => {}
        When::Cut if is_own => target.peer.cut(),
        When::Cut => target.peer.kill(),
        When::Restart | When::RestartTwice => target.stop(),
    }
    if row.when == When::RestartTwice {
        // It is asked who it is, and does not say it before it ends again.
        target.reply(reply(0x12, Some(0x83), u32::MAX, BUSY));
        target.open();
        (0..5).for_each(|_| w.turn(100 * MS));
        target.stop();
        target.calm();
    }
    let old = put(target);
    odd(target);
    target.open();
    old
}

/// The bytes of the disk that was there, and of the one that is.
fn run(row: &Row, seed: u64) {
    let mut w = World::with(seed, &[]);
    // One command at a time: others that are on their way to a live session cannot be held back.
    let window = if row.when == When::Live { 1 } else { 8 };
    let target = Target::start(&w.core, portal(), row.before.clone(), seed, ways(window));
    let edge = open(&mut w, 10);
    w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
    // Under way when it happens, and meant for the disk that is there now.
    target.peer.ways.borrow_mut().slow_ns = 50 * MS;
    if row.when != When::Live {
        for tag in 0..4 {
            let data = w.buffer(SECTOR);
            data.fill(0, SECTOR, 7);
            w.start(edge, tag, |bio| range(bio, Op::Write, (16 + tag) * SECTOR as u64, data));
        }
        w.turn(MS);
    }
    let old = exchange(row, &target, &mut w);
    target.peer.ways.borrow_mut().slow_ns = MS;
    for tag in 100..104 {
        let data = w.buffer(SECTOR);
        data.fill(0, SECTOR, 9);
        let sector = row.sector + tag - 100;
        w.start(edge, tag, |bio| range(bio, Op::Write, sector * SECTOR as u64, data));
    }
    let (began, mut ended, mut said) = (w.now(), Vec::new(), Vec::new());
    let count = if row.when == When::Live { 4 } else { 8 };
    while ended.len() < count {
        let took = w.now() - began;
        assert!(took < row.within_s * S, "{}: {} ended in time", row.name, ended.len());
        w.turn(20 * MS);
        ended.extend(w.ended());
        said.extend(w.buses[0].troubles().into_iter().map(|t| t.why));
    }
    for end in ended.iter().filter(|end| end.tag >= 100) {
        assert_eq!(end.status, row.ends, "{}: write {}", row.name, end.tag);
    }
    (0..100).for_each(|_| w.turn(20 * MS));
    let now = target.peer.bytes.borrow().clone();
    let lies_at = |bytes: &[u8], sector: u64, byte: u8| {
        let at = sector as usize * SECTOR;
        bytes.get(at..at + SECTOR).is_some_and(|bytes| bytes.iter().all(|b| *b == byte))
    };
    match row.ends {
        Ok(()) => (0..4).for_each(|n| {
            assert!(lies_at(&now, row.sector + n, 9), "{}: sector {n} is there", row.name);
            assert!(lies_at(&now, 0, 1), "{}: and the disk is its own", row.name);
        }),
        Err(Errno::NxIo) => {
            assert!(now.iter().all(|b| *b == 0), "{}: nothing is on the other disk", row.name);
            assert!(lies_at(&old, 0, 1) && !lies_at(&old, row.sector, 9), "{}", row.name);
            assert_eq!(w.read(edge, 0, SECTOR), Err(Errno::NxIo), "{}", row.name);
        }
        Err(_) => assert!(now.iter().all(|b| *b != 9), "{}: nothing is written", row.name),
    }
    match row.says {
        "" => {
            let exchanged = said.iter().any(|why| why.contains("another disk"));
            assert!(!exchanged, "{}: {said:?}", row.name);
        }
        says => assert!(said.iter().any(|why| why.contains(says)), "{}: {said:?}", row.name),
    }
}

#[test]
fn what_a_target_does_has_the_effect_that_the_table_says() {
    for (n, row) in ROWS.iter().enumerate() {
        run(row, n as u64 + 1);
    }
}

#[test]
fn an_attention_about_parameters_asks_for_no_identity() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    let edge = open(&mut w, 10);
    for (attention, asks) in [((0x2a, 1), false), ((0x38, 7), false), ((0x3f, 3), true)] {
        target.attention(attention.0, attention.1);
        target.came(0);
        w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
        (0..10).for_each(|_| w.turn(20 * MS));
        assert_eq!(target.came(0x12) > 0, asks, "{attention:x?}");
    }
}

#[test]
fn a_rescan_takes_in_the_disk_that_is_there_and_ends_the_trouble() {
    let mut w = World::with(2, &[]);
    let target = Target::start(&w.core, portal(), OWN, 2, ways(8));
    let edge = open(&mut w, 10);
    target.stop();
    target.exchange(OTHER, vec![3; OTHER.sectors * SECTOR]);
    target.open();
    assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
    let troubles = w.buses[0].troubles();
    let trouble = troubles.iter().find(|t| t.why.contains("another disk")).unwrap();
    for part in ["da0", "iqn.2026-11.test.ashlar:peer", "OWN", "OTHER", "5000000000000002"] {
        assert!(trouble.why.contains(part), "{part}: {}", trouble.why);
    }
    assert!(trouble.action.contains("`ashlar cam rescan 0`"), "{}", trouble.action);
    // Its name is free when what used it has let go of it: here it never does.
    assert_eq!(w.scan(0), ["da1"]);
    assert!(w.buses[0].troubles().iter().all(|t| !t.why.contains("another disk")));
    let (_, edge) = w.open("da1");
    assert!(w.read(edge, 0, SECTOR).unwrap() == [3; SECTOR]);
}

#[test]
fn all_units_that_a_target_announces_are_found_up_to_the_limit() {
    for (luns_max, found) in [(16_384, 600), (550, 550), (512, 512), (3, 3)] {
        let mut w = World::with(3, &[]);
        let target = Target::start(&w.core, portal(), OWN, 3, ways(8));
        target.has_luns(600);
        let at = bus(&mut w, 10, luns_max);
        let end = w.now() + 300 * S;
        let count = |w: &World| w.buses[at].devices().len();
        while count(&w) < found && w.now() < end {
            w.scan(at);
        }
        assert_eq!(count(&w), found, "luns_max = {luns_max}");
        let said = format!("has 600 logical units, and {luns_max} are looked at");
        let says = w.buses[at].troubles().iter().any(|t| t.why.contains(&said));
        assert_eq!(says, found < 600, "luns_max = {luns_max}");
    }
}

/// C6: LUNs have changed, and a disk is exchanged that meets no command.
#[test]
fn a_scan_that_the_bus_starts_takes_in_no_disk_in_place_of_another() {
    for (before, after) in
        [(OWN, OTHER), (OWN, Disk { serial: "X", ..OWN }), (NAMELESS, LARGER_NAMELESS)]
    {
        let mut w = World::with(4, &[]);
        let target = Target::start(&w.core, portal(), before.clone(), 4, ways(8));
        let edge = open(&mut w, 10);
        w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
        let look = |w: &mut World| {
            for _ in 0..100 {
                w.turn(20 * MS);
                let cam = w.cam.clone();
                cam.look(&mut w.control).into_iter().for_each(|(_, names)| drop(names.unwrap()));
            }
        };
        target.exchange(after.clone(), vec![3; after.sectors * SECTOR]);
        w.buses[0].rescan().wish();
        look(&mut w);
        assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
        assert!(target.peer.bytes.borrow().iter().all(|b| *b == 3));
        let said = |w: &World| w.buses[0].troubles().into_iter().map(|t| t.why).collect::<Vec<_>>();
        assert!(said(&w).iter().any(|why| why.contains("another disk")), "{:?}", said(&w));
        assert!(w.control.topology.find("da1").is_none(), "it is not taken in");
        assert!(w.buses[0].devices().is_empty());
        w.buses[0].rescan().wish();
        look(&mut w);
        assert!(w.buses[0].devices().is_empty(), "nor later");
        // The right one is back.
        target.exchange(before.clone(), vec![0; before.sectors * SECTOR]);
        w.buses[0].rescan().wish();
        look(&mut w);
        assert_eq!(w.buses[0].devices().len(), 1);
        assert!(said(&w).iter().all(|why| !why.contains("another disk")), "{:?}", said(&w));
    }
}

const NAMELESS: Disk = Disk { serial: "", naa: 0, ..OWN };
const LARGER_NAMELESS: Disk = Disk { sectors: 128, ..NAMELESS };
