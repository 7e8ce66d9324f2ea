//! The steps in which a provider is removed (docs/reference/geom.md 1.5). The error is at once, the
//! orphan call later, and the object is freed when it has no more consumers.

use bio::{Errno, Op};
use geom::{Access, Event, ORPHAN_DEADLINE};

use crate::common::{Lab, Leaf, MS, Manner, Mode, SECTOR};

const STAYS: Manner = Manner { spoils: false, resizes: false, stays: true };

/// T5.
#[test]
fn withered_provider_fails_new_requests_and_finishes_old_ones() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.user("mount", disk, STAYS);
    lab.open(c, Access::WRITE).unwrap();
    let edge = lab.edge(c);
    leaf.set(Mode::Hold);
    let inside = lab.send(edge, Op::Write, 0, SECTOR);
    lab.logged();
    lab.control.topology.wither_provider(disk, Errno::Io);
    // No event has run yet, and no graph was published.
    assert_eq!(lab.io(edge, Op::Read, 0, SECTOR).status, Err(Errno::Io), "sticky, at once");
    assert_eq!(lab.logged(), [""; 0]);
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), ["mount orphan EIO"]);
    assert!(lab.ended(inside).is_none(), "the event thread waits for nobody's requests");
    lab.control.topology.wither_provider(disk, Errno::NxIo);
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), [""; 0], "told once");
    assert_eq!(lab.io(edge, Op::Read, 0, SECTOR).status, Err(Errno::Io), "the first error stays");
    leaf.release(&lab.cores);
    assert_eq!(lab.finish(inside).status, Ok(()), "what was inside ended as it would have");
    assert_eq!(lab.control.topology.counts(disk), Access::WRITE, "still mounted");
    lab.open(c, Access::WRITE.inverse()).unwrap();
    assert!(lab.control.topology.geom_of(disk).is_some(), "attached");
    lab.control.topology.leave(c);
    lab.control.settle().unwrap();
    assert!(lab.control.topology.geom_of(disk).is_none(), "gone with its last user");
    lab.assert_empty();
}

#[test]
fn stack_withers_from_the_bottom_when_its_disk_is_lost() {
    let mut lab = Lab::with_cores(1, 2);
    let leaf = Leaf::new(1 << 20);
    let mut top = lab.disk("d0", &leaf);
    let disk = top;
    for i in 0..5 {
        top = lab.pass_through(&format!("s{i}"), top, "");
    }
    let c = lab.user("u", top, Manner::default());
    lab.open(c, Access::WRITE).unwrap();
    lab.control.topology.post(Event::Lost(disk, Errno::NxIo));
    lab.control.topology.post(Event::Lost(disk, Errno::NxIo));
    lab.control.settle().unwrap();
    assert_eq!(lab.logged().last().unwrap(), "u orphan ENXIO");
    let left: Vec<_> = lab.control.topology.view(0).into_iter().map(|g| g.name).collect();
    assert_eq!(left, ["d0"], "the disk's geom outlives its provider");
    assert_eq!(*leaf.opens.lock().unwrap(), Access::NONE, "all was closed on the way");
    lab.control.topology.check();
}

#[test]
fn request_waiting_in_a_layer_finds_its_disk_still_open() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let slow = lab.pass_through("slow", disk, "waits");
    let c = lab.writer("u", slow);
    let tag = lab.send(lab.edge(c), Op::Write, 0, SECTOR);
    // It is inside the slow layer; its originator leaves before it has continued to the disk.
    lab.control.topology.leave(c);
    assert_eq!(lab.io(lab.edge(c), Op::Read, 0, SECTOR).status, Err(Errno::NxIo), "no new ones");
    lab.control.settle().unwrap();
    assert_eq!(lab.ended(tag).map(|e| e.status), Some(Ok(())));
    assert_eq!(*leaf.opens.lock().unwrap(), Access::NONE);
    assert_eq!(lab.control.topology.counts(disk), Access::NONE);
    lab.assert_empty();
}

/// T4.
#[test]
fn slots_are_reused_only_when_every_core_has_drained_them() {
    let mut lab = Lab::with_cores(1, 3);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    leaf.set(Mode::Hold);
    let tag = lab.send_on(2, edge, Op::Read, 0, SECTOR, bio::Flags::NONE);
    lab.control.topology.leave(c);
    assert_eq!(lab.control.settle().unwrap_err().kind, Errno::TimedOut);
    for i in 0..5 {
        let other = lab.user(&format!("v{i}"), disk, STAYS);
        assert_ne!(lab.edge(other).slot(), edge.slot(), "core 2 is inside");
        lab.control.topology.check();
    }
    leaf.release(&lab.cores);
    lab.pass(MS);
    assert!(lab.ended(tag).is_some());
    let other = lab.user("w", disk, STAYS);
    assert_eq!(lab.edge(other).slot(), edge.slot(), "now it is free");
    assert_ne!(lab.edge(other), edge, "T4: the old number leads nowhere");
}

#[test]
fn a_request_that_waits_for_memory_keeps_its_slot() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    leaf.set(Mode::NoMem(3));
    leaf.take_requests();
    let tag = lab.send(edge, Op::Write, 0, SECTOR);
    assert!(leaf.take_requests().is_empty());
    lab.control.topology.leave(c);
    let t = &mut lab.control.topology;
    let log = crate::common::log();
    let other = crate::common::User::create(t, "other", disk, STAYS, log).unwrap();
    assert_ne!(t.edge(other), edge);
    lab.control.settle().unwrap();
    let ended = lab.ended(tag).expect("the barrier waited for it");
    assert_eq!(ended.status, Err(Errno::NxIo), "it could not enter again");
    lab.assert_empty();
}

#[test]
fn lost_hung_disk_delays_the_barrier_only_briefly() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.user("u", disk, Manner::default());
    lab.open(c, Access::WRITE).unwrap();
    leaf.set(Mode::Hold);
    lab.send(lab.edge(c), Op::Read, 0, SECTOR);
    lab.control.topology.post(Event::Lost(disk, Errno::NxIo));
    let start = lab.world.now();
    lab.control.settle().unwrap();
    let took = u128::from(lab.world.now() - start);
    let deadline = ORPHAN_DEADLINE.as_nanos();
    assert!((deadline..deadline + 200_000_000).contains(&took), "{took}");
    assert!(lab.control.topology.geom_of(disk).is_some(), "somebody is inside");
    let start = lab.world.now();
    lab.disk("d1", &Leaf::new(1 << 20));
    assert!(lab.world.now() - start < 100 * MS, "nobody waits for it again");
    leaf.release(&lab.cores);
    lab.pass(MS);
    assert!(lab.control.topology.geom_of(disk).is_none());
    lab.assert_empty();
}

#[test]
fn hung_disk_is_named_when_an_orderly_leave_times_out() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    leaf.set(Mode::Hold);
    lab.send(lab.edge(c), Op::Read, 0, SECTOR);
    let error = lab.control.call(|t| {
        t.leave(c);
        Ok(())
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind, Errno::TimedOut);
    assert!(error.message.ends_with("waiting for requests to d0"), "{}", error.message);
    lab.control.settle().expect("said once");
    leaf.release(&lab.cores);
    lab.pass(MS);
    lab.assert_empty();
}

#[test]
fn abandoned_consumer_delays_the_barrier_only_briefly() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    leaf.set(Mode::Hold);
    lab.send(lab.edge(c), Op::Read, 0, SECTOR);
    let start = lab.world.now();
    let called = lab.control.call(|t| {
        t.abandon(c);
        Ok(())
    });
    called.expect("nobody asked for what hangs");
    let took = u128::from(lab.world.now() - start);
    let deadline = ORPHAN_DEADLINE.as_nanos();
    assert!((deadline..deadline + 200_000_000).contains(&took), "{took}");
    assert!(lab.control.topology.below(c).is_some(), "somebody is inside");
    leaf.release(&lab.cores);
    lab.pass(MS);
    lab.assert_empty();
}

#[test]
fn repeated_unopened_and_orphaned_leaves_are_safe() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let unopened = lab.user("unopened", disk, STAYS);
    lab.control.topology.leave(unopened);
    assert!(lab.control.topology.below(unopened).is_none(), "nothing can be in flight: at once");
    let c = lab.user("u", disk, STAYS);
    lab.open(c, Access::READ).unwrap();
    lab.control.topology.orphan_provider(disk, Errno::Io);
    lab.control.topology.leave(c);
    lab.control.topology.leave(c);
    lab.control.topology.run();
    lab.logged();
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), [""; 0], "who leaves is told nothing");
    assert!(lab.control.topology.below(c).is_none());
    assert!(lab.control.topology.geom_of(disk).is_some(), "orphaned, not withered: it stays");
    lab.control.topology.check();
}

#[test]
fn withered_geom_is_removed_when_its_last_user_leaves() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let top = lab.pass_through("s", disk, "");
    let c = lab.user("u", top, STAYS);
    lab.open(c, Access::READ).unwrap();
    let g = lab.control.topology.find_geom("shim", "s").unwrap();
    let class = lab.control.topology.class("shim").unwrap();
    let refused = class.destroy(&mut lab.control.topology, g, false).unwrap_err();
    assert_eq!(refused.kind, Errno::Busy);
    assert!(lab.control.topology.geom_is_live(g));
    class.destroy(&mut lab.control.topology, g, true).unwrap();
    lab.control.settle().unwrap();
    assert!(!lab.control.topology.geom_is_live(g));
    assert_eq!(lab.control.topology.geom_name(g), "s", "the user holds it");
    lab.open(c, Access::READ.inverse()).unwrap();
    lab.control.topology.leave(c);
    lab.control.settle().unwrap();
    assert_eq!(lab.control.topology.geom_name(g), "");
    assert_eq!(lab.control.topology.counts(disk), Access::NONE);
}

#[test]
fn closing_wither_releases_a_disk_that_the_geom_keeps_open() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let top = lab.pass_through("s", disk, "keeps");
    let c = lab.writer("u", top);
    leaf.set(Mode::Hold);
    let tag = lab.send(lab.edge(c), Op::Write, 0, SECTOR);
    let g = lab.control.topology.geom_of(top).unwrap();
    lab.control.topology.wither_geom_close(g, Errno::NxIo);
    lab.pass(MS);
    assert_eq!(*leaf.opens.lock().unwrap(), Access::EXCLUSIVE, "somebody is inside");
    leaf.release(&lab.cores);
    assert_eq!(lab.finish(tag).status, Ok(()));
    lab.control.settle().unwrap();
    assert_eq!(*leaf.opens.lock().unwrap(), Access::NONE);
    assert_eq!(lab.control.topology.view(0).len(), 1, "the disk alone");
    lab.assert_empty();
}

#[test]
fn t4_stale_edge_is_refused_and_reaches_no_provider() {
    let mut lab = Lab::new(1);
    let (old, new) = (Leaf::new(1 << 20), Leaf::new(1 << 20));
    let (from, to) = (lab.disk("old", &old), lab.disk("new", &new));
    let c = lab.writer("first", from);
    let stale = lab.edge(c);
    lab.control.topology.leave(c);
    lab.control.settle().unwrap();
    let mut seen = vec![stale];
    for i in 0..20 {
        let c = lab.writer(&format!("next{i}"), to);
        new.take_requests();
        let edge = lab.edge(c);
        assert!(!seen.contains(&edge), "a number is not given out again soon");
        seen.push(edge);
        assert_eq!(lab.io(stale, Op::Write, 0, SECTOR).status, Err(Errno::NxIo));
        assert!(
            old.take_requests().is_empty() && new.take_requests().is_empty(),
            "nobody is asked"
        );
        assert_eq!(lab.io(edge, Op::Write, 0, SECTOR).status, Ok(()));
        lab.control.topology.leave(c);
        lab.control.settle().unwrap();
    }
    lab.assert_empty();
}
