//! An iSCSI target with one oddity at a time: the result for its disk's user, the contents of each
//! disk, and the state that the bus reports.

mod answers;
mod capacity;
mod hang;
mod host;
mod layers;
mod lines;
mod paths;
mod storm;
mod table;
mod target;

use std::net::SocketAddr;

use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::World;
use bio::Errno;
use cam::sims::iscsi::IscsiKind;
use geom::Edge;
use host::{Host, Status, status, word_of};
use serde_json::json;
use table::{LATE, ROWS, Row, When, reply};
use target::{Disk, OTHER, OWN, Target};
use testkit::clock::{MS, S};

const BUSY: u8 = 0x08;

fn portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 3260))
}

fn ways(window: u32) -> Ways {
    Ways { slow_ns: MS, burst: 4096, segment: 4096, window, ..Ways::default() }
}

/// A bus of that target.
fn bus(w: &mut World, deadline_s: u64, luns_max: u32) -> usize {
    let params = json!({
        "portals": [portal()], "target": "iqn.2026-11.test.ashlar:peer",
        "initiator": "iqn.2026-11.test.ashlar:us", "deadline_s": deadline_s, "luns_max": luns_max,
    });
    w.add_kind(&IscsiKind, "iscsi0", &params)
}

/// The same, with its disk.
fn open(w: &mut World, deadline_s: u64) -> Edge {
    find(w, deadline_s);
    w.open("da0").1
}

/// The same, without opening it.
fn find(w: &mut World, deadline_s: u64) {
    let at = bus(w, deadline_s, 16_384);
    let mut found = w.scan(at);
    let end = w.now() + 20 * S;
    while found.is_empty() && w.now() < end {
        w.turn(20 * MS);
        found.extend(w.found());
    }
    assert_eq!(found, ["da0"]);
}

fn exchange(row: &Row, target: &Target, w: &mut World) -> Vec<u8> {
    let bytes = || vec![0; row.after.sectors * SECTOR];
    let is_own = !row.is_exchanged();
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
        // The target ends again before it answers the query for its identity.
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

/// Checks the result for a host, the contents of each disk, and `status`.
fn run(row: &Row, seed: u64) {
    let mut w = World::with(seed, &[]);
    // One command at a time: others that are on their way to a live session cannot be held back.
    let window = if row.when == When::Live { 1 } else { 8 };
    let target = Target::start(&w.core, portal(), row.before.clone(), seed, ways(window));
    find(&mut w, 10);
    let host = Host::login(&mut w, "da0");
    assert_eq!(host.write(&mut w, 0, 1).words(), "GOOD");
    // Under way when it happens, and meant for the disk that is there now.
    target.peer.ways.borrow_mut().slow_ns = 50 * MS;
    let early = if row.when == When::Live { 0 } else { 4 };
    let early: Vec<u32> = (16..16 + early).map(|sector| host.send_write(sector, 7)).collect();
    w.turn(MS);
    let old = exchange(row, &target, &mut w);
    target.peer.ways.borrow_mut().slow_ns = MS;
    let late: Vec<u32> = (0..4).map(|n| host.send_write(row.sector + n, 9)).collect();
    let (began, mut ended, mut reasons) = (w.now(), Vec::new(), Vec::new());
    while ended.len() < early.len() + late.len() {
        let took = w.now() - began;
        assert!(took < row.within_s * S, "{}: {} ended in time", row.name, ended.len());
        w.turn(20 * MS);
        ended.extend(host.ended());
        let troubles = w.buses[0].troubles().into_iter();
        reasons.extend(troubles.map(|t| (word_of(t.severity), t.why)));
    }
    (0..100).for_each(|_| w.turn(20 * MS));
    let disks = Disks { old: &old, now: &target.peer.bytes.borrow().clone() };
    for end in &ended {
        let is_late = late.contains(&end.tag);
        // Commands that were carried out before the event are on the disk of that time.
        let at = early.iter().position(|tag| *tag == end.tag).filter(|_| end.words() == "GOOD");
        match at {
            Some(at) => assert!(disks.is_kept(16 + at as u64, 7, row), "{}: {at}", row.name),
            None if is_late || row.sector < 16 => {
                assert_eq!(end.words(), row.host_status, "{}: {}", row.name, end.tag);
            }
            None => panic!("{}: {} of {}", row.name, end.words(), end.tag),
        }
    }
    disks.check(row);
    check_words(row, reasons, &status(&mut w));
    let (attentions, is) = host.look(&mut w);
    assert_eq!(attentions.concat(), row.attention, "{}", row.name);
    let unit = if row.is_exchanged() { row.host_status } else { "GOOD" };
    assert_eq!(is, unit, "{}: the unit afterwards", row.name);
    let reads = if row.host_status == LATE { LATE } else { unit };
    assert_eq!(host.read(&mut w, 0).words(), reads, "{}: a READ afterwards", row.name);
}

/// Bytes of the disk that was there, and of the one that is.
struct Disks<'a> {
    old: &'a [u8],
    now: &'a [u8],
}

fn is_filled_at(bytes: &[u8], sector: u64, byte: u8) -> bool {
    let at = sector as usize * SECTOR;
    bytes.get(at..at + SECTOR).is_some_and(|bytes| bytes.iter().all(|b| *b == byte))
}

impl Disks<'_> {
    /// A byte is on the disk that a host means.
    fn is_kept(&self, sector: u64, byte: u8, row: &Row) -> bool {
        is_filled_at(if row.is_exchanged() { self.old } else { self.now }, sector, byte)
    }

    fn check(&self, row: &Row) {
        let (name, was_written) = (row.name, row.host_status == "GOOD");
        if row.is_exchanged() {
            assert!(self.now.iter().all(|b| *b == 0), "{name}: nothing is on the other disk");
        }
        assert!(self.is_kept(0, 1, row), "{name}: the disk has what was acknowledged");
        for sector in row.sector..row.sector + 4 {
            assert_eq!(self.is_kept(sector, 9, row), was_written, "{name}: sector {sector}");
        }
    }
}

/// Checks the words of `status` during the fault and now.
fn check_words(row: &Row, mut reasons: Vec<(&str, String)>, now: &Status) {
    let name = row.name;
    let count = reasons.len();
    reasons.retain(|(w, why)| {
        let is = row.meanwhile.is_empty() || !why.contains(row.meanwhile);
        assert!(is || *w == "DEGRADED", "{name}: {w}: {why}");
        is
    });
    assert_eq!(
        reasons.len() < count,
        !row.meanwhile.is_empty(),
        "{name}: {} is said",
        row.meanwhile
    );
    let closed = ("FAILED", "the target has closed the connection");
    let closed = reasons.iter().any(|(word, why)| *word == closed.0 && why.contains(closed.1));
    let restarts = matches!(row.when, When::Restart | When::RestartTwice);
    assert!(closed || !restarts, "{name}: that the target is gone is said");
    let says = row.expected_status();
    let connection = format!("iqn.2026-11.test.ashlar:peer at {}: ", portal());
    reasons.retain(|(_, why)| !why.starts_with(&connection) || row.when == When::Live);
    reasons.retain(|(_, why)| says.is_empty() || !why.contains(&says));
    assert_eq!(reasons, [], "{name}: nothing else is said");
    let Status { severity: word, troubles: now } = now;
    assert_eq!(*word, row.severity, "{name}: {now:?}");
    let wanted = [&says, row.last].into_iter().filter(|words| !words.is_empty());
    let wanted: Vec<&str> = wanted.collect();
    assert_eq!(now.len(), wanted.len(), "{name}: {now:?}");
    for (now, wanted) in now.iter().zip(wanted) {
        assert!(now.contains(wanted), "{name}: {wanted}: {now}");
    }
}

#[test]
fn target_faults_have_the_effects_listed_in_the_table() {
    for (n, row) in ROWS.iter().enumerate() {
        run(row, n as u64 + 1);
    }
}

#[test]
fn unit_attentions_about_parameters_cause_no_identity_check() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    let edge = open(&mut w, 10);
    for (attention, asks) in [((0x2a, 1), false), ((0x38, 7), false), ((0x3f, 3), true)] {
        target.attention(attention.0, attention.1);
        target.take_received(0);
        w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
        (0..10).for_each(|_| w.turn(20 * MS));
        assert_eq!(target.take_received(0x12) > 0, asks, "{attention:x?}");
    }
}

#[test]
fn a_rescan_attaches_the_present_disk_and_clears_the_trouble() {
    let mut w = World::with(2, &[]);
    let target = Target::start(&w.core, portal(), OWN, 2, ways(8));
    let edge = open(&mut w, 10);
    target.stop();
    target.exchange(OTHER, vec![3; OTHER.sectors * SECTOR]);
    target.open();
    assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
    let troubles = w.buses[0].troubles();
    let trouble = troubles.iter().find(|t| t.why.contains("a different disk")).unwrap();
    for part in ["da0", "iqn.2026-11.test.ashlar:peer", "OWN", "OTHER", "5000000000000002"] {
        assert!(trouble.why.contains(part), "{part}: {}", trouble.why);
    }
    assert!(trouble.action.contains("`ashlar cam rescan 0`"), "{}", trouble.action);
    // Its name is free when its user has released it: here it never does.
    assert_eq!(w.scan(0), ["da1"]);
    assert!(w.buses[0].troubles().iter().all(|t| !t.why.contains("a different disk")));
    let (_, edge) = w.open("da1");
    assert!(w.read(edge, 0, SECTOR).unwrap() == [3; SECTOR]);
}

/// Only the login shows that the disk is back.
#[test]
fn the_original_disk_is_attached_again_at_the_next_login() {
    let mut w = World::with(5, &[]);
    let target = Target::start(&w.core, portal(), OWN, 5, ways(8));
    find(&mut w, 10);
    let host = Host::login(&mut w, "da0");
    assert_eq!(host.write(&mut w, 0, 1).words(), "GOOD");
    let restart = |w: &mut World, disk: Disk, bytes: Vec<u8>| {
        target.stop();
        let old = target.exchange(disk, bytes);
        target.open();
        for _ in 0..200 {
            w.turn(20 * MS);
            w.cam.clone().take_update_results(&mut w.control);
        }
        old
    };
    let own = restart(&mut w, OTHER, vec![0; OTHER.sectors * SECTOR]);
    assert_eq!(host.write(&mut w, 0, 2).words(), "02/04/03");
    assert!(w.buses[0].devices().is_empty());
    let other = restart(&mut w, Disk { serial: "X", ..OWN }, own);
    assert!(w.buses[0].devices().is_empty(), "it is another one");
    let own = restart(&mut w, OTHER, other);
    assert!(w.buses[0].devices().is_empty());
    restart(&mut w, OWN, own);
    assert_eq!(w.buses[0].devices().len(), 1);
    assert_eq!(status(&mut w), Status::ok(&[]));
}

#[test]
fn all_reported_units_are_found_up_to_the_limit() {
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
        let reason = format!("has 600 logical units, but at most {luns_max} are scanned");
        let says = w.buses[at].troubles().iter().any(|t| t.why.contains(&reason));
        assert_eq!(says, found < 600, "luns_max = {luns_max}");
    }
}

/// Turns so often, and adds the disks that the bus finds.
fn look(w: &mut World, turns: u32) {
    for _ in 0..turns {
        w.turn(20 * MS);
        w.found();
    }
}

fn reasons(w: &World) -> String {
    w.buses[0].troubles().into_iter().map(|t| t.why).collect()
}

/// C6: LUNs have changed, and a disk is exchanged that meets no command.
#[test]
fn an_automatic_scan_does_not_attach_an_exchanged_disk() {
    for (before, after) in
        [(OWN, OTHER), (OWN, Disk { serial: "X", ..OWN }), (NAMELESS, LARGER_NAMELESS)]
    {
        let mut w = World::with(4, &[]);
        let target = Target::start(&w.core, portal(), before.clone(), 4, ways(8));
        let edge = open(&mut w, 10);
        w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
        target.exchange(after.clone(), vec![3; after.sectors * SECTOR]);
        w.buses[0].rescan().request_scan();
        look(&mut w, 100);
        assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
        assert!(target.peer.bytes.borrow().iter().all(|b| *b == 3));
        assert!(reasons(&w).contains("a different disk"), "{}", reasons(&w));
        assert!(w.control.topology.find("da1").is_none(), "it is not taken in");
        assert!(w.buses[0].devices().is_empty());
        w.buses[0].rescan().request_scan();
        look(&mut w, 100);
        assert!(w.buses[0].devices().is_empty(), "nor later");
        // The right one is back.
        target.exchange(before.clone(), vec![0; before.sectors * SECTOR]);
        w.buses[0].rescan().request_scan();
        look(&mut w, 100);
        assert_eq!(w.buses[0].devices().len(), 1);
        assert!(!reasons(&w).contains("a different disk"), "{}", reasons(&w));
    }
}

const NAMELESS: Disk = Disk { serial: "", naa: 0, ..OWN };
const LARGER_NAMELESS: Disk = Disk { sectors: 128, ..NAMELESS };

/// C6, M1: the logical unit is taken away in order, and returns with another disk.
#[test]
fn another_disk_after_an_orderly_removal_is_not_attached() {
    for (is_called, by) in [(true, "a scan"), (true, "a login"), (false, "a scan")] {
        let mut w = World::with(6, &[]);
        let target = Target::start(&w.core, portal(), OWN, 6, ways(8));
        let edge = open(&mut w, 10);
        let called = is_called.then(|| "da0".to_owned()).into_iter().collect();
        w.cam.wired_names().set_configured(called);
        w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE).unwrap();
        let ask = |w: &mut World, target: &Target| {
            match by {
                "a login" => target.peer.kill(),
                _ => w.buses[0].rescan().request_scan(),
            }
            look(w, 150);
        };
        target.is_away(true);
        w.buses[0].rescan().request_scan();
        look(&mut w, 150);
        assert!(w.buses[0].devices().is_empty());
        assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
        let own = target.exchange(OTHER, vec![3; OTHER.sectors * SECTOR]);
        target.is_away(false);
        ask(&mut w, &target);
        assert_eq!(w.buses[0].devices().is_empty(), is_called, "{by}: {}", reasons(&w));
        assert_eq!(w.write(edge, 0, &[1; SECTOR], bio::Flags::NONE), Err(Errno::NxIo));
        assert!(target.peer.bytes.borrow().iter().all(|b| *b == 3));
        if !is_called {
            assert_eq!(reasons(&w), "", "nothing expects the first one");
            continue;
        }
        for part in ["da0", "a different disk answers", "OWN", "OTHER"] {
            assert!(reasons(&w).contains(part), "{part}: {}", reasons(&w));
        }
        let listed = w.verb("devlist", "", &json!({})).unwrap()["text"].to_string();
        for part in ["OWN", "OTHER", "`ashlar cam rescan 0`"] {
            assert!(listed.contains(part), "{part}: {listed}");
        }
        target.exchange(OWN, own);
        ask(&mut w, &target);
        assert_eq!(w.buses[0].devices().len(), 1, "{by}: the right one is back");
        assert_eq!(reasons(&w), "");
    }
}
