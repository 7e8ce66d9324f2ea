//! A logical unit that answers no READ or WRITE while its target answers all other commands.

use std::net::SocketAddr;

use bio::{Errno, Op};
use cam::Bounds;
use geom::Edge;
use serde_json::{Value, json};

use super::table::reply;
use super::target::{OWN, Target};
use super::{MS, S, bus, portal, ways};
use crate::iscsi::peer::SECTOR;
use crate::world::{World, range};

/// Status of a reply that is never sent.
const NEVER: u8 = super::target::MUTE;

/// A bus with bounds, as the daemon attaches it, and its disk.
pub fn attach(w: &mut World, bounds: &Value) -> Edge {
    attach_at(w, ("iscsi0", portal(), "da0"), bounds);
    w.open("da0").1
}

/// The same of a portal, without opening it.
pub fn attach_at(w: &mut World, (name, at, disk): (&str, SocketAddr, &str), bounds: &Value) {
    let params = json!({
        "portals": [at], "target": "iqn.2026-11.test.ashlar:peer",
        "initiator": "iqn.2026-11.test.ashlar:us", "deadline_s": 10,
    });
    let request = json!({ "kind": "iscsi", "params": params, "bounds": bounds });
    w.verb("attach", name, &request).unwrap();
    let end = w.now() + 20 * S;
    while w.control.topology.find(disk).is_none() {
        assert!(w.now() < end, "the disk is found");
        w.turn(20 * MS);
        w.cam.clone().take_update_results(&mut w.control);
    }
}

pub fn whys(w: &World) -> Vec<(String, String)> {
    let troubles = |bus: &std::sync::Arc<cam::Bus>| bus.troubles();
    w.cam.buses().iter().flat_map(troubles).map(|t| (t.why, t.action)).collect()
}

fn write(w: &mut World, edge: Edge, tag: u64) {
    let data = w.buffer(SECTOR);
    data.fill(0, SECTOR, 7);
    w.start(edge, tag, |bio| range(bio, Op::Write, 9 * SECTOR as u64, data));
}

/// Seconds that a write takes which is never answered, and how often it is sent.
fn hang(bounds: &Value) -> (u64, usize) {
    let mut w = World::with(7, &[]);
    let target = Target::start(&w.core, portal(), OWN, 7, ways(8));
    let edge = attach(&mut w, bounds);
    assert_eq!(whys(&w), []);
    target.reply(reply(0x2a, None, u32::MAX, NEVER));
    target.take_received(0);
    let start = w.now();
    write(&mut w, edge, 1);
    let mut named = None;
    let mut ended = Vec::new();
    while ended.is_empty() {
        w.turn(100 * MS);
        ended = w.ended();
        if named.is_none() && !whys(&w).is_empty() {
            named = Some((w.now() - start, whys(&w).remove(0)));
        }
    }
    assert_eq!(ended[0].status, Err(Errno::TimedOut));
    let took = (w.now() - start) / S;
    let (at, (why, action)) = named.expect("it is said while it lasts");
    assert!(at <= 11 * S, "{at}");
    for part in ["da0", "bus iscsi0", "iqn.2026-11.test.ashlar:peer", "WRITE is not answered"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(action.contains("`ashlar cam reset da0`"), "{action}");
    assert_eq!(whys(&w).len(), 1, "and until it answers");
    let came = target.take_received(0x2a);
    // The session was never in doubt: other commands are answered.
    assert!(w.read(edge, 0, SECTOR).is_ok());
    assert_eq!(whys(&w), []);
    target.calm();
    write(&mut w, edge, 2);
    (0..10).for_each(|_| w.turn(20 * MS));
    assert_eq!(w.ended().pop().map(|end| end.status), Some(Ok(())));
    (took, came)
}

/// As an edit of the configuration does.
#[test]
fn changed_bounds_apply_to_new_requests() {
    let mut w = World::with(8, &[]);
    let target = Target::start(&w.core, portal(), OWN, 8, ways(8));
    let edge = attach(&mut w, &json!({ "request_deadline_s": 40 }));
    let bus = w.cam.bus("iscsi0").unwrap();
    target.reply(reply(0x2a, None, u32::MAX, NEVER));
    let begins = |w: &mut World, tag: u64, deadline_s: u32| {
        bus.set_bounds(Bounds { request_deadline_s: deadline_s, ..Bounds::default() });
        write(w, edge, tag);
        (w.now(), tag)
    };
    let mut ended = Vec::new();
    let began = [begins(&mut w, 1, 40), begins(&mut w, 2, 5), begins(&mut w, 3, 20)];
    while ended.len() < 3 {
        w.turn(100 * MS);
        let now = w.now();
        ended.extend(w.ended().into_iter().map(|end| (end.tag, end.status, now)));
    }
    let took = |(tag, status, at): &(u64, Result<(), Errno>, u64)| {
        assert_eq!(*status, Err(Errno::TimedOut));
        let began = began.iter().find(|(_, began)| began == tag).unwrap().0;
        (*tag, (at - began) / S)
    };
    assert_eq!(ended.iter().map(took).collect::<Vec<_>>(), [(2, 5), (3, 20), (1, 40)]);
}

/// The same: its disks stay, and others are added. C7 of bus/scan.rs.
#[test]
fn more_units_are_probed_when_the_limit_is_raised() {
    let mut w = World::with(9, &[]);
    let target = Target::start(&w.core, portal(), OWN, 9, ways(8));
    target.has_luns(5);
    let at = bus(&mut w, 10, 2);
    let look = |w: &mut World, count: usize| {
        let end = w.now() + 20 * S;
        let named = |w: &World| {
            let devices = w.buses[at].devices().into_iter();
            devices.filter(|(.., name)| !name.is_empty()).count()
        };
        while named(w) < count {
            assert!(w.now() < end, "{count} are found");
            w.turn(20 * MS);
            w.cam.clone().take_update_results(&mut w.control);
        }
        w.buses[at].devices().into_iter().map(|(.., name)| name).collect::<Vec<_>>()
    };
    w.scan(at);
    assert_eq!(look(&mut w, 2), ["da0", "da1"]);
    assert_eq!(whys(&w).len(), 1);
    let edge = w.open("da1").1;
    w.buses[at].set_luns_max(16);
    assert_eq!(look(&mut w, 5), ["da0", "da1", "da2", "da3", "da4"]);
    assert_eq!(w.read(edge, 0, SECTOR).map(|bytes| bytes.len()), Ok(SECTOR));
    assert_eq!(whys(&w), []);
    w.buses[at].set_luns_max(1);
    w.scan(at);
    assert_eq!(look(&mut w, 5), ["da0", "da1", "da2", "da3", "da4"], "C7");
}

#[test]
fn a_request_to_a_hanging_unit_fails_at_its_deadline() {
    assert_eq!(hang(&json!({})), (60, 2));
    assert_eq!(hang(&json!({ "request_deadline_s": 20 })), (20, 1));
    assert_eq!(hang(&json!({ "timeout_s": 8, "request_deadline_s": 20 })), (20, 3));
    assert_eq!(hang(&json!({ "timeout_s": 3, "retries": 2, "request_deadline_s": 100 })), (9, 3));
    assert_eq!(hang(&json!({ "timeout_s": 200, "request_deadline_s": 90 })), (90, 1));
}
