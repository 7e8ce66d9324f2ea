//! Order of events, the idle barrier, spoiling, sizes and attributes (docs/reference/geom.md 1.3
//! and 1.5).

use bio::Errno;
use geom::{Access, Event};

use crate::common::{Lab, Leaf, Manner, Mode, SECOND, Taste, Tasting};

const SPOILS: Manner = Manner { spoils: true, resizes: false, stays: false };
const RESIZES: Manner = Manner { spoils: false, resizes: true, stays: false };

/// T2.
#[test]
fn events_run_in_the_order_posted_but_orphans_first() {
    let mut lab = Lab::new(1);
    let (a, b) = (lab.disk("a", &Leaf::new(1 << 20)), lab.disk("b", &Leaf::new(1 << 20)));
    lab.user("ua", a, RESIZES);
    lab.user("ub", b, RESIZES);
    lab.logged();
    let t = &mut lab.control.topology;
    t.post(Event::Attr(a, "one"));
    t.post(Event::Resize(a, 2 << 20));
    t.post(Event::Attr(b, "two"));
    t.post(Event::Attr(a, "three"));
    t.orphan_provider(b, Errno::Io);
    t.run();
    assert_eq!(
        lab.logged(),
        ["ub orphan EIO", "ua attr one", "ua resized 2097152", "ua attr three"],
        "the doorstep first; what concerns an orphan is cancelled"
    );
}

#[test]
fn barrier_returns_when_all_effects_of_a_call_are_done() {
    let mut lab = Lab::with_cores(1, 3);
    let log = lab.log.clone();
    lab.control.topology.load(Taste::class("ta", 0, &log)).unwrap();
    let leaf = Leaf::new(1 << 20);
    leaf.put(0, &[0xa0]);
    leaf.set(Mode::After(300_000_000));
    lab.disk("d0", &leaf);
    assert!(lab.control.is_idle());
    assert!(lab.control.topology.find("d0.ta").is_some(), "claimed before the call returned");
    assert_eq!(lab.control.topology.counts(lab.control.topology.find("d0").unwrap()), Access::NONE);
    let views = lab.control.topology.view(0);
    assert!(views.iter().all(|g| !g.withering));
    assert_eq!(lab.live(), 0);
}

#[test]
fn failed_call_returns_its_error() {
    let mut lab = Lab::new(1);
    let e = lab.try_pass_through("x", lab.control.topology.find("none").unwrap_or_default(), "");
    assert_eq!(e.unwrap_err().kind, Errno::NxIo);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    assert_eq!(lab.try_pass_through("x", disk, "impossible").unwrap_err().kind, Errno::NoSys);
    assert!(lab.control.is_idle());
}

#[test]
fn first_writer_spoils_all_other_consumers_without_exclusive() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let spoiled = lab.user("spoiled", disk, SPOILS);
    lab.open(spoiled, Access::READ).unwrap();
    let idle = lab.user("idle", disk, SPOILS);
    let tough = lab.user("tough", disk, Manner::default());
    lab.open(tough, Access::READ).unwrap();
    let writer = lab.user("writer", disk, SPOILS);
    // Between the open and its event the marked ones cannot open.
    lab.control.topology.access(writer, Access::WRITE).unwrap();
    assert_eq!(lab.control.topology.access(idle, Access::READ), Err(Errno::NxIo));
    assert_eq!(lab.control.topology.access(tough, Access::READ), Ok(()), "it does not spoil");
    assert_eq!(lab.control.topology.access(spoiled, Access::READ.inverse()), Ok(()));
    lab.control.settle().unwrap();
    let mut log = lab.logged();
    log.sort();
    assert_eq!(log, ["idle spoiled", "spoiled spoiled"]);
    let t = &lab.control.topology;
    assert_eq!(t.consumer_counts(writer), Access::WRITE);
    assert_eq!(t.counts(disk), Access { r: 3, w: 1, e: 0 });
    assert!(t.find_geom("user", "idle").is_none() && t.find_geom("user", "tough").is_some());
    // A second writer is not the first.
    let again = lab.user("again", disk, SPOILS);
    let second = lab.user("second", disk, Manner::default());
    lab.open(second, Access::WRITE).unwrap();
    assert_eq!(lab.logged(), [""; 0]);
    assert_eq!(lab.open(again, Access::READ), Ok(()));
}

#[test]
fn spoiled_consumer_that_stays_may_open_again() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let c = lab.user("u", disk, Manner { stays: true, ..SPOILS });
    let w = lab.writer("w", disk);
    assert_eq!(lab.logged(), ["u spoiled"]);
    assert_eq!(lab.open(c, Access::READ), Ok(()));
    lab.open(w, Access::WRITE.inverse()).unwrap();
}

#[test]
fn media_change_spoils_all_and_is_tasted_unless_open_for_writing() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let log = lab.log.clone();
    lab.control.topology.load(Taste::class("ta", 0, &log)).unwrap();
    leaf.put(0, &[0xa0]);
    let disk = lab.disk("d0", &leaf);
    lab.logged();
    lab.control.topology.post(Event::MediaChanged(disk));
    lab.control.settle().unwrap();
    let log = lab.logged();
    assert_eq!(
        log,
        ["ta tastes d0", "ta claims d0", "ta tastes d0.ta"],
        "spoiled, then found again"
    );
    // Held by a writer: no taste until it leaves.
    let sits = lab.control.topology.find_geom("ta", "d0.ta").unwrap();
    lab.control.topology.wither_geom(sits, Errno::NxIo);
    lab.control.settle().unwrap();
    let w = lab.writer("w", disk);
    lab.logged();
    lab.control.topology.post(Event::MediaChanged(disk));
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), [""; 0]);
    lab.open(w, Access::WRITE.inverse()).unwrap();
    assert!(lab.logged().contains(&"ta claims d0".to_string()));
    lab.control.topology.post(Event::MediaGone(disk));
    lab.control.settle().unwrap();
    assert!(lab.control.topology.find("d0.ta").is_none(), "spoiled");
}

#[test]
fn growth_notifies_all_and_shrinking_orphans_fixed_size_users() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    lab.user("can", disk, RESIZES);
    lab.user("cannot", disk, Manner::default());
    let stays = lab.user("stays", disk, Manner { stays: true, ..Manner::default() });
    lab.open(stays, Access::READ).unwrap();
    lab.logged();
    lab.control.topology.post(Event::Resize(disk, 2 << 20));
    lab.control.topology.post(Event::Resize(disk, 2 << 20));
    lab.control.settle().unwrap();
    let mut log = lab.logged();
    log.sort();
    let grown: Vec<_> =
        ["can", "cannot", "stays"].iter().map(|n| format!("{n} resized 2097152")).collect();
    assert_eq!(log, grown, "the same size again is no event");
    lab.control.topology.post(Event::Resize(disk, (1 << 20) - 100));
    lab.control.settle().unwrap();
    let log = lab.logged();
    assert_eq!(log.len(), 3);
    for line in ["cannot orphan ENXIO", "stays orphan ENXIO", "can resized 1048064"] {
        assert!(log.contains(&line.to_string()), "{log:?}: whole sectors only");
    }
    assert_eq!(lab.control.topology.limits(disk).unwrap().media_bytes, (1 << 20) - 512);
    let ended = lab.io(lab.edge(stays), bio::Op::Read, 0, 512);
    assert_eq!(ended.status, Err(Errno::NxIo), "an orphan consumer, not an orphan provider");
    assert!(lab.control.topology.provider_is_live(disk));
}

#[test]
fn size_change_propagates_through_layers_that_resize() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let mid = lab.pass_through("mid", disk, "resizes");
    let top = lab.pass_through("top", mid, "resizes");
    let stiff = lab.pass_through("stiff", disk, "");
    lab.control.topology.post(Event::Resize(disk, 1 << 19));
    lab.control.settle().unwrap();
    assert_eq!(lab.control.topology.limits(top).unwrap().media_bytes, 1 << 19);
    assert!(!lab.control.topology.provider_is_live(stiff));
    assert!(lab.control.topology.find("stiff").is_none());
}

#[test]
fn attribute_is_answered_by_the_first_provider_below_that_has_it() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let top = lab.pass_through("top", disk, "");
    let ident = bio::Attr::Text("ident of d0".into());
    assert_eq!(lab.control.topology.attr(top, "GEOM::ident"), Some(ident));
    assert_eq!(lab.control.topology.attr(top, "GEOM::nothing"), None);
    lab.user("u", top, Manner::default());
    lab.logged();
    lab.control.topology.post(Event::Attr(top, "GEOM::physpath"));
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), ["u attr GEOM::physpath"]);
}

#[test]
fn shutdown_ends_tastes_notifications_and_claims() {
    let mut lab = Lab::new(1);
    let log = lab.log.clone();
    lab.control.topology.load(Taste::with_mode("ta", 0, Tasting::Claims, &log)).unwrap();
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    lab.user("u", disk, RESIZES);
    leaf.put(0, &[0xa0]);
    leaf.set(Mode::After(SECOND));
    lab.control.topology.retaste(disk);
    lab.control.pump();
    lab.spin(1_000_000);
    lab.control.topology.shut_down();
    lab.logged();
    let t = &mut lab.control.topology;
    t.retaste(disk);
    t.post(Event::Attr(disk, "x"));
    t.post(Event::Resize(disk, 1 << 19));
    t.post(Event::MediaChanged(disk));
    t.post(Event::MediaGone(disk));
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), [""; 0]);
    assert!(lab.control.topology.find("d0.ta").is_none(), "tasted before, too late to claim");
    assert_eq!(lab.taste_outcome("d0", "ta"), "the first byte says so, but the daemon stops");
    assert_eq!(lab.control.topology.limits(disk).unwrap().media_bytes, 1 << 20);
}
