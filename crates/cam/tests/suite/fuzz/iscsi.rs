//! Random PDUs to the iSCSI initiator in place of its target's answers, while it reads and writes.
//! Nothing panics, nothing wrong is written, and the disk is read correctly afterwards.
//!
//! ```text
//!   1 byte of flags, 1 byte of length, bytes
//!     1 tag and StatSN are corrected                  2 DataSegmentLength and padding too
//!     4 50 ms pass first                              8 a reset of the unit first
//! ```

use bio::{Flags, Op};
use cam::sims::iscsi::IscsiKind;
use serde_json::json;
use testkit::clock::MS;
use wire::iscsi::Auth;

use super::peer::{Peer, Raw, Ways};
use super::world::{World, range};

/// Messages that one input may have.
const MESSAGES_MAX: usize = 48;

fn disk(w: &mut World, bus: usize) -> geom::Edge {
    let mut found = w.scan(bus);
    let end = w.now() + 10_000 * MS;
    while found.is_empty() && w.now() < end {
        w.turn(20 * MS);
        found.extend(w.found());
    }
    // It may have been found meanwhile by itself; while the old one is held it has another name.
    let names = ["da0", "da1", "da2"].into_iter();
    let there = |name: &&str| w.control.topology.find(name).is_some();
    let name = found.pop().or_else(|| names.rev().find(there).map(str::to_owned));
    w.open(&name.expect("there is a disk")).1
}

/// See the module.
pub fn iscsi_initiator(data: &[u8]) {
    let mut w = World::with(1, &[]);
    let at = std::net::SocketAddr::from(([10, 0, 0, 1], 3260));
    let ways = Ways { slow_ns: 200_000, burst: 1024, segment: 1024, window: 8, ..Ways::default() };
    let peer = Peer::start(&w.core, &[at], 64, 1, (ways, Auth::None));
    peer.bytes.borrow_mut().fill(0x5a);
    peer.doubts.set(true);
    let params = json!({
        "portals": [at], "target": "iqn.2026-11.test:peer", "initiator": "iqn.2026-11.test:us",
        "deadline_s": 5,
    });
    let bus = w.add_kind(&IscsiKind, "iscsi0", &params);
    let edge = disk(&mut w, bus);

    let mut rest = data;
    for n in 0..MESSAGES_MAX as u64 {
        let [flags, len, tail @ ..] = rest else { break };
        let (body, after) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = after;
        let (fits, frames) = (flags & 1 != 0, flags & 2 != 0);
        peer.raw.borrow_mut().push(Raw { bytes: body.to_vec(), fits, frames });
        let buffer = w.buffer(4096);
        buffer.fill(0, 4096, 0x5a);
        let op = if n % 2 == 0 { Op::Read } else { Op::Write };
        w.start_quietly(edge, |bio| {
            range(bio, op, 4096, buffer);
            bio.flags = Flags::default();
        });
        if flags & 8 != 0
            && let Some((unit, ..)) = w.buses[bus].devices().first()
        {
            unit.sim().reset(unit, &w.core);
        }
        w.turn(if flags & 4 != 0 { 50 * MS } else { MS });
    }
    // Requests in flight end; the session with a target that sends nonsense is replaced by a new
    // one.
    (0..40).for_each(|_| w.turn(20 * MS));
    peer.raw.borrow_mut().clear();
    peer.cut();
    (0..40).for_each(|_| w.turn(20 * MS));
    let read = match w.read(edge, 0, 8192) {
        Ok(bytes) => Ok(bytes),
        // It may have reported the loss of the disk.
        Err(_) => {
            let edge = disk(&mut w, bus);
            w.read(edge, 0, 8192)
        }
    };
    assert!(read.is_ok_and(|bytes| bytes.iter().all(|b| *b == 0x5a)), "the disk is as it was");
    assert!(peer.bytes.borrow().iter().all(|b| *b == 0x5a));
}
