//! The quiesce gate, and layers that are inserted and removed under load.

use std::sync::Arc;
use std::time::Duration;

use bio::{Errno, Op};
use geom::{Access, GATE_DEADLINE};

use crate::common::{BLOCK, Lab, Leaf, Load, MS, Manner, Mode, SECTOR, Taste, User};

/// G1, G2.
#[test]
fn a_closed_gate_parks_in_order_and_reopening_replays_in_order() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    leaf.set(Mode::After(MS));
    leaf.take_requests();
    let first = lab.send(edge, Op::Write, 0, SECTOR);
    let gate = lab.control.close_gate(disk).unwrap();
    assert!(lab.ended(first).is_some(), "drained");
    for i in 1..20 {
        lab.send(edge, Op::Write, i * SECTOR, SECTOR);
    }
    lab.pass(5 * MS);
    assert_eq!(leaf.take_requests().len(), 1, "nobody enters");
    let flush = lab.send(edge, Op::Flush, 0, 0);
    lab.pass(MS);
    assert!(lab.ended(flush).is_none());
    lab.control.open_gate(gate);
    let last = lab.send(edge, Op::Write, 20 * SECTOR, SECTOR);
    assert!(lab.ended(last).is_none());
    lab.pass(5 * MS);
    let offsets: Vec<u64> = leaf.take_requests().iter().map(|a| a.offset / SECTOR).collect();
    assert_eq!(offsets, (1..20).chain([0, 20]).collect::<Vec<_>>());
    lab.assert_empty();
}

#[test]
fn gate_stays_closed_across_graph_changes() {
    let mut lab = Lab::with_cores(1, 2);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    leaf.take_requests();
    let gate = lab.control.close_gate(disk).unwrap();
    for i in 0..3 {
        lab.disk(&format!("other{i}"), &Leaf::new(1 << 20));
        lab.send_on(1, lab.edge(c), Op::Write, i * SECTOR, SECTOR, bio::Flags::NONE);
        lab.pass(MS);
    }
    assert!(leaf.take_requests().is_empty());
    lab.control.open_gate(gate);
    lab.pass(MS);
    assert_eq!(
        leaf.take_requests().iter().map(|a| a.offset / SECTOR).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    lab.assert_empty();
}

/// G2.
#[test]
fn parked_requests_precede_those_of_the_turn_that_opens_the_gate() {
    let mut lab = Lab::with_cores(1, 2);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let (edge, board) = (lab.edge(c), lab.control.topology.notifier());
    leaf.take_requests();
    let delete = |i: u64| {
        let fill = move |bio: &mut bio::Bio| {
            (bio.op, bio.offset, bio.length) = (Op::Delete, i * SECTOR, SECTOR);
        };
        let submit = move |core: &std::rc::Rc<geom::Core>| {
            core.submit(edge, bio::End::NoReceiver, fill);
        };
        board.call(1, Box::new(submit));
    };
    let gate = lab.control.close_gate(disk).unwrap();
    (0..3).for_each(delete);
    lab.pass(MS);
    assert!(leaf.take_requests().is_empty());
    lab.control.open_gate(gate);
    delete(3);
    lab.pass(MS);
    let offsets: Vec<u64> = leaf.take_requests().iter().map(|a| a.offset / SECTOR).collect();
    assert_eq!(offsets, [0, 1, 2, 3], "G2");
    lab.assert_empty();
}

#[test]
fn a_parked_request_keeps_its_slot() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    let gate = lab.control.close_gate(disk).unwrap();
    let tag = lab.send(edge, Op::Write, 0, SECTOR);
    lab.control.topology.leave(c);
    lab.pass(MS);
    let t = &mut lab.control.topology;
    let log = lab.log.clone();
    let other = User::create(t, "other", disk, Manner::default(), log).unwrap();
    assert_ne!(t.edge(other), edge);
    lab.control.open_gate(gate);
    lab.control.settle().unwrap();
    assert_eq!(lab.ended(tag).map(|e| e.status), Some(Err(Errno::NxIo)), "it came too late");
    lab.assert_empty();
}

#[test]
fn gate_of_a_new_unpublished_provider_holds_requests() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let t = &mut lab.control.topology;
    let disk = leaf.create(t, "d0").unwrap();
    let log = lab.log.clone();
    let c = User::create(t, "u", disk, Manner::default(), log).unwrap();
    t.access(c, Access::WRITE).unwrap();
    // No core has been notified of any of this.
    let gate = lab.control.close_gate(disk).unwrap();
    let tag = lab.send(lab.edge(c), Op::Write, 0, SECTOR);
    lab.pass(MS);
    assert!(lab.ended(tag).is_none() && leaf.take_requests().is_empty());
    lab.control.open_gate(gate);
    assert_eq!(lab.finish(tag).status, Ok(()));
}

#[test]
fn insert_is_rolled_back_if_a_request_does_not_drain() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    leaf.set(Mode::Hold);
    let stuck = lab.send(edge, Op::Write, 0, SECTOR);
    let start = lab.world.now();
    let before = lab.control.topology.view(0).len();
    let refused = lab.insert("s", disk, "").unwrap_err();
    assert_eq!(refused.kind, Errno::TimedOut);
    let took = Duration::from_nanos(lab.world.now() - start);
    assert!(took >= GATE_DEADLINE && took < GATE_DEADLINE + Duration::from_secs(1), "{took:?}");
    assert_eq!(lab.control.topology.view(0).len(), before, "the new layer is gone");
    lab.control.topology.check();
    leaf.set(Mode::Now);
    assert_eq!(lab.io(edge, Op::Read, 0, SECTOR).status, Ok(()), "the gate is open again");
    leaf.release(&lab.cores);
    assert_eq!(lab.finish(stuck).status, Ok(()));
    // The late answer of the old gate does not open the way for a new one.
    lab.insert("s", disk, "").unwrap();
    assert_eq!(lab.io(edge, Op::Read, 0, SECTOR).status, Ok(()));
    lab.assert_empty();
}

#[test]
fn late_drain_report_of_an_earlier_gate_is_ignored() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    leaf.set(Mode::Hold);
    lab.send(lab.edge(c), Op::Write, 0, SECTOR);
    lab.control.deadlines.gate = Duration::from_millis(1);
    assert_eq!(lab.control.close_gate(disk), Err(lab_timeout()));
    // The core's answer to the first gate is late: it was empty for a moment.
    let report = lab.control.inbox().report();
    lab.control.send(
        0,
        geom::Message::Call(Box::new(move |_| {
            report(geom::CoreNotice::GateDrained { core: 0, ticket: 1 });
        })),
    );
    assert_eq!(lab.control.close_gate(disk), Err(lab_timeout()), "somebody is inside");
    leaf.release(&lab.cores);
    lab.pass(MS);
    lab.assert_empty();
}

fn lab_timeout() -> geom::Error {
    geom::Error::new(Errno::TimedOut, "requests did not end in 0 s; nothing was changed")
}

#[test]
fn refused_insert_changes_nothing() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    for (params, kind) in [
        ("impossible", Errno::NoSys),
        ("smaller", Errno::Inval),
        ("refuses", Errno::Perm),
        ("keeps", Errno::Perm),
    ] {
        assert_eq!(lab.insert("s", disk, params).unwrap_err().kind, kind, "{params}");
        let t = &lab.control.topology;
        t.check();
        assert_eq!(t.view(0).len(), 2, "{params}: disk and user");
        assert_eq!(t.counts(disk), Access::WRITE, "{params}");
        assert_eq!(*leaf.opens.lock().unwrap(), Access::WRITE, "{params}");
        assert_eq!(lab.io(lab.edge(c), Op::Write, 0, SECTOR).status, Ok(()), "{params}");
    }
    let gone = lab.insert("s", Default::default(), "").unwrap_err();
    assert_eq!(gone.kind, Errno::NxIo);
    let e = lab.control.insert(
        "nothing",
        disk,
        &geom::Create { name: "x", members: &[], params: &serde_json::Value::Null },
    );
    assert_eq!(e.unwrap_err().kind, Errno::NoEnt);
    lab.assert_empty();
}

#[test]
fn refused_remove_changes_nothing() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let keeps = lab.pass_through("keeps", disk, "keeps");
    let c = lab.writer("u", keeps);
    let geom = lab.control.topology.geom_of(keeps).unwrap();
    assert_eq!(lab.control.remove(geom).unwrap_err().kind, Errno::Busy);
    lab.control.topology.check();
    assert_eq!(*leaf.opens.lock().unwrap(), Access::EXCLUSIVE);
    assert_eq!(lab.io(lab.edge(c), Op::Write, 0, SECTOR).status, Ok(()));
    let disk_geom = lab.control.topology.geom_of(disk).unwrap();
    assert_eq!(lab.control.remove(disk_geom).unwrap_err().kind, Errno::NotSup);
    let going = lab.pass_through("going", disk, "");
    lab.user("stays", going, Manner { stays: true, ..Manner::default() });
    let geom = lab.control.topology.geom_of(going).unwrap();
    lab.control.topology.wither_geom(geom, Errno::NxIo);
    assert_eq!(lab.control.remove(geom).unwrap_err().kind, Errno::NxIo);
}

#[test]
fn extra_access_of_a_layer_is_counted_through_insert_and_remove() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let (a, b) = (lab.writer("a", disk), lab.user("b", disk, Manner::default()));
    lab.open(b, Access::READ).unwrap();
    let total = Access { r: 2, w: 1, e: 0 };
    for params in ["extra-e", "", "waits"] {
        let geom = lab.insert("s", disk, params).unwrap();
        let extra = i32::from(params == "extra-e");
        let below = Access { e: extra, ..total };
        let t = &lab.control.topology;
        t.check();
        let above = t.providers_of(geom)[0];
        assert_eq!((t.counts(above), t.counts(disk)), (total, below), "{params}");
        assert_eq!(*leaf.opens.lock().unwrap(), below, "{params}: the geom below knows");
        // Opened further and closed altogether while it is in.
        lab.open(b, Access::WRITE).unwrap();
        lab.open(b, Access::WRITE.inverse()).unwrap();
        lab.open(a, Access::WRITE.inverse()).unwrap();
        lab.open(b, Access::READ.inverse()).unwrap();
        assert_eq!(*leaf.opens.lock().unwrap(), Access::NONE);
        lab.open(a, Access::WRITE).unwrap();
        lab.open(b, Access::READ).unwrap();
        assert_eq!(*leaf.opens.lock().unwrap(), below, "{params}");
        lab.control.remove(geom).unwrap();
        lab.control.topology.check();
        assert_eq!(lab.control.topology.counts(disk), total, "{params}");
        assert_eq!(*leaf.opens.lock().unwrap(), total, "{params}: it never saw a close");
        lab.open(a, Access::WRITE.inverse()).unwrap();
        lab.open(a, Access::WRITE).unwrap();
    }
    lab.assert_empty();
}

#[test]
fn inserted_layer_is_not_claimed_for_content_already_in_use() {
    let mut lab = Lab::new(1);
    let log = lab.log.clone();
    lab.control.topology.load(Taste::class("ta", 0, &log)).unwrap();
    let leaf = Leaf::new(1 << 20);
    leaf.put(0, &[0xa0]);
    let disk = lab.disk("d0", &leaf);
    let sits = lab.control.topology.find("d0.ta").unwrap();
    let shim = lab.insert("s", disk, "").unwrap();
    assert!(lab.control.topology.find("s.ta").is_none());
    let t = &lab.control.topology;
    let g = t.geom_of(sits).unwrap();
    assert_eq!(t.below(t.consumers_of(g)[0]), t.find("d0"), "it sits on the new layer now");
    assert_eq!(t.find("s"), Some(disk));
    lab.control.remove(shim).unwrap();
    let t = &lab.control.topology;
    assert_eq!(t.below(t.consumers_of(g)[0]), Some(disk));
    t.check();
}

#[test]
fn insert_that_is_too_deep_is_refused_on_that_stack_only() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let mut top = lab.disk("d0", &leaf);
    let low = top;
    for i in 1..bio::DEPTH_MAX / 2 {
        top = lab.pass_through(&format!("s{i}"), top, "");
    }
    assert_eq!(lab.insert("more", low, "").unwrap_err().kind, Errno::DeadLk);
    lab.control.topology.check();
    let other = lab.disk("d1", &Leaf::new(1 << 20));
    lab.writer("u", other);
    lab.insert("more", other, "").expect("another tower's height is its own");
}

fn under_load(seed: u64, cores: usize, rounds: usize, mode: Mode, params: &str) {
    const BLOCKS: u64 = 6;
    let mut lab = Lab::with_cores(seed, cores);
    let leaf = Leaf::new(cores as u64 * BLOCKS * BLOCK);
    let disk = lab.disk("d0", &leaf);
    let base = lab.pass_through("base", disk, "");
    let c = lab.writer("u", base);
    leaf.set(mode);
    let load = Arc::new(Load::default());
    for (i, core) in lab.cores.iter().enumerate() {
        let first = i as u64 * BLOCKS;
        load.start(core, lab.edge(c), first..first + BLOCKS);
    }
    let mut idle = 0;
    for round in 0..rounds {
        let was = load.rounds();
        let below = if round % 2 == 0 { base } else { disk };
        let name = format!("s{round}");
        let geom = lab.insert(&name, below, params).unwrap();
        assert_eq!(lab.control.topology.counts(below).w, 1);
        lab.control.remove(geom).unwrap();
        lab.control.topology.check();
        idle += usize::from(load.rounds() == was);
    }
    assert!(idle < rounds / 2, "the load went on: {idle} of {rounds} rounds without");
    load.stop();
    lab.spin(100 * MS);
    assert!(load.is_over() && load.rounds() > rounds as u64, "{}", load.rounds());
    assert_eq!(lab.control.topology.view(0).len(), 3, "disk, base and user");
    lab.assert_empty();
}

#[test]
fn layer_is_inserted_and_removed_1000_times_under_load_on_one_core() {
    under_load(1, 1, 1000, Mode::After(20_000), "");
    under_load(2, 1, 300, Mode::Now, "");
}

#[test]
fn layer_is_inserted_and_removed_under_load_on_three_cores() {
    under_load(3, 3, 300, Mode::After(30_000), "");
    under_load(4, 3, 100, Mode::After(5_000), "extra-e");
}
