//! Edits of targets and interfaces of a running bus.

use std::rc::Rc;

use bio::Op;
use cam::sims::aoe::AoeKind;
use geom::Edge;
use reactor::sim::SegmentShape;
use serde_json::{Value, json};
use testkit::aoe::{Shelf, Ways};

use crate::aoe::{MS, Net, S, SECTOR, SECTORS, network};
use crate::world::{World, range};

fn params(interfaces: &[&str], targets: &[&str]) -> Value {
    json!({
        "interfaces": interfaces, "targets": targets, "deadline_s": 3, "frame_life_ms": 300,
        "ask_s": 2,
    })
}

/// Two networks and a bus on the first of them.
fn world(targets: &[&str]) -> (World, Net, usize) {
    let mut w = World::with(1, &[]);
    let shape = (SegmentShape::default(), 9000);
    let net = network(&w, &[shape, shape]);
    let bus = w.add_kind(&AoeKind, "aoe0", &params(&["eth0"], targets));
    (w, net, bus)
}

fn shelf(w: &World, slot: u8) -> Rc<Shelf> {
    let ways = Ways { buffers: 16, ..Ways::default() };
    let stations = ["shelf0", "shelf1"];
    Shelf::start_at(slot, &w.core, &stations, SECTORS as usize, slot.into(), ways)
}

fn edit(w: &World, bus: usize, interfaces: &[&str], targets: &[&str]) {
    w.buses[bus].sim().update_params(&params(interfaces, targets)).unwrap();
}

fn wait_for(w: &mut World, disk: &str, is_there: bool) {
    w.until((20 * MS, 60 * S), disk, |w| w.has(disk) == is_there);
}

fn run_on(w: &mut World) {
    (0..50).for_each(|_| {
        w.turn(100 * MS);
        w.found();
    });
}

fn is_readable(w: &mut World, edge: Edge) -> bool {
    w.read(edge, 0, 512) == Ok(vec![0; 512])
}

/// A1 of sims/aoe/mod.rs, E7 of sims/aoe/engine/mod.rs.
#[test]
fn targets_are_added_and_removed_while_the_disks_of_others_are_used() {
    let (mut w, _net, bus) = world(&["565.1"]);
    let shelves = [shelf(&w, 1), shelf(&w, 2)];
    wait_for(&mut w, "ada0", true);
    let (_, first) = w.open("ada0");
    run_on(&mut w);
    assert!(!w.has("ada1"), "the section does not name it");
    for _ in 0..2 {
        edit(&w, bus, &["eth0"], &["565.1", "565.2"]);
        wait_for(&mut w, "ada1", true);
        assert!(is_readable(&mut w, first));
        edit(&w, bus, &["eth0"], &["565.1"]);
        wait_for(&mut w, "ada1", false);
        assert!(is_readable(&mut w, first));
        run_on(&mut w);
        assert!(!w.has("ada1"), "it stays away");
        let troubles = w.buses[bus].troubles();
        assert!(troubles.is_empty(), "{troubles:?}");
    }
    // A command that is under way at the removed target ends there.
    shelves[0].ways.borrow_mut().slow_ns = 100 * MS;
    let data = w.buffer(SECTOR as usize);
    w.start(first, 1, |bio| range(bio, Op::Read, 0, data));
    w.turn(MS);
    edit(&w, bus, &["eth0"], &["565.2"]);
    let is_gone = |w: &World| {
        let devices = w.buses[bus].devices();
        devices.iter().all(|(unit, ..)| unit.path().target != 565 << 8 | 1)
    };
    w.until((20 * MS, 60 * S), "the removed target", is_gone);
    let ended: Vec<_> = w.ended().into_iter().map(|end| end.status).collect();
    assert_eq!(ended, [Ok(())]);
}

/// E7 of sims/aoe/engine/mod.rs.
#[test]
fn target_that_returns_at_once_keeps_its_disk() {
    let (mut w, _net, bus) = world(&[]);
    let _shelf = shelf(&w, 1);
    wait_for(&mut w, "ada0", true);
    let (_, edge) = w.open("ada0");
    edit(&w, bus, &["eth0"], &["565.2"]);
    edit(&w, bus, &["eth0"], &[]);
    run_on(&mut w);
    assert!(w.has("ada0") && is_readable(&mut w, edge));
}

/// A1 of sims/aoe/mod.rs.
#[test]
fn interfaces_are_added_and_removed_while_a_disk_is_used() {
    let (mut w, net, bus) = world(&[]);
    let _shelf = shelf(&w, 1);
    wait_for(&mut w, "ada0", true);
    let (_, edge) = w.open("ada0");
    edit(&w, bus, &["eth0", "eth1"], &[]);
    run_on(&mut w);
    edit(&w, bus, &["eth1"], &[]);
    net.segments[0].set_up("eth0", false);
    for _ in 0..3 {
        assert!(is_readable(&mut w, edge), "the second interface leads to it");
        run_on(&mut w);
    }
    let troubles = w.buses[bus].troubles();
    assert!(troubles.is_empty(), "a removed interface may be down: {troubles:?}");
    // The only interface that leads to it is removed: the disk is lost without a request.
    edit(&w, bus, &["eth0"], &[]);
    wait_for(&mut w, "ada0", false);
    net.segments[0].set_up("eth0", true);
    wait_for(&mut w, "ada0", true);
    let (_, edge) = w.open("ada0");
    assert!(is_readable(&mut w, edge));
}
