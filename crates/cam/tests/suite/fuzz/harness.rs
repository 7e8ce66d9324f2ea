//! Random frames to the AoE initiator, from its target's address and from another, while it reads
//! and writes. Nothing panics, and the disk is read correctly afterwards.
//!
//! ```text
//!   a frame: 1 byte of flags, 1 byte of length, the bytes after the Ethernet header
//!     1 from the target's own address   2 broadcast   4 50 ms pass first
//! ```

use bio::{Flags, Op};
use cam::sims::aoe::AoeKind;
use reactor::sim::SegmentShape;
use serde_json::json;
use testkit::aoe::{Shelf, Ways};
use testkit::clock::MS;
use wire::aoe::ETHERTYPE;

use super::world::{World, range};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SHELF: [u8; 6] = [2, 0, 0, 0, 0, 2];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// Frames that one input may have.
const FRAMES_MAX: usize = 64;

/// See the module.
pub fn aoe_initiator(data: &[u8]) {
    let mut w = World::with(1, &[]);
    let segment = w.net().segment(SegmentShape::default());
    for (name, mac) in [("eth0", OWN), ("shelf0", SHELF), ("spoof", STRANGER)] {
        segment.plug(name, mac, 9000);
    }
    let ways = Ways { slow_ns: 200_000, buffers: 8, ..Ways::default() };
    let shelf = Shelf::start(&w.core, &["shelf0"], 64, 1, ways);
    shelf.bytes.borrow_mut().fill(0x5a);
    let params = json!({ "interfaces": ["eth0"], "deadline_s": 5, "frame_life_ms": 200 });
    let bus = w.add_kind(&AoeKind, "aoe0", &params);
    let mut found = w.scan(bus);
    // The bus starts a scan when a target announces itself.
    while found.is_empty() && w.now() < 5_000 * MS {
        found.extend(w.found());
        w.turn(20 * MS);
    }
    assert_eq!(found, ["ada0"]);
    let (_, edge) = w.open("ada0");
    let spoof = w.core.reactor().link("spoof", ETHERTYPE).expect("it is plugged in");

    let mut rest = data;
    for n in 0..FRAMES_MAX as u64 {
        let [flags, len, tail @ ..] = rest else { break };
        let (body, after) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = after;
        let buffer = w.buffer(4096);
        buffer.fill(0, 4096, 0x5a);
        let op = if n % 2 == 0 { Op::Read } else { Op::Write };
        w.start_quietly(edge, |bio| {
            range(bio, op, 4096, buffer);
            bio.flags = Flags::default();
        });
        w.turn(if flags & 4 != 0 { 50 * MS } else { 50_000 });
        let to = if flags & 2 != 0 { [0xff; 6] } else { OWN };
        let from = if flags & 1 != 0 { SHELF } else { STRANGER };
        let frame = [&to[..], &from, &ETHERTYPE.to_be_bytes(), body].concat();
        let _ = spoof.send(&frame, &bio::Segs::new());
        let _ = spoof.flush();
    }
    // Commands in flight end, and copies are dropped.
    (0..40).for_each(|_| w.turn(20 * MS));
    let read = w.read(edge, 0, 8192);
    assert!(read.is_ok_and(|bytes| bytes.iter().all(|b| *b == 0x5a)), "the disk is as it was");
    assert!(shelf.bytes.borrow().iter().all(|b| *b == 0x5a));
}
