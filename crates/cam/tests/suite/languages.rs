//! Command sets of older and simpler disks: no tags, no NCQ, 28-bit addresses, WRITE SAME. Also
//! which commands may run together, and the queue of a SATA disk after one command fails.

use std::sync::Arc;

use bio::{Errno, Extent, Flags, Op};
use cam::sims::hba::{Deletes, DiskSpec, Faults, Transport, VirtualHba};
use reactor::SeededRandom;
use reactor::model::{DiskOp, DiskShape, Fault, Timing};

use crate::world::{World, range};

const SIZE: u64 = 1 << 20;

fn spec() -> DiskSpec {
    DiskSpec {
        shape: DiskShape {
            size: SIZE,
            timing: Timing::Between { min_ns: 10_000, max_ns: 900_000 },
            ..DiskShape::default()
        },
        ..DiskSpec::default()
    }
}

/// A disk in the graph, and the shape of its queue.
fn disk(transport: Transport, spec: DiskSpec) -> (World, Arc<VirtualHba>, geom::Edge) {
    World::of_disk(7, transport, spec)
}

/// Reads, writes, flushes and deletes, many at a time, each in a place of its own. All end well and
/// the disk has what an array of bytes has.
fn mixed(w: &mut World, edge: geom::Edge, seed: u64, deletes: bool) {
    const PLACES: u64 = 64;
    const LEN: u64 = SIZE / PLACES;
    let mut random = SeededRandom::new(seed);
    let mut model = vec![vec![0u8; LEN as usize]; PLACES as usize];
    for round in 0..40u64 {
        let mut reads = Vec::new();
        for place in 0..PLACES {
            let (at, tag) = (place * LEN, round * PLACES + place);
            match random.below(8) {
                0..3 => {
                    let data = w.buffer(LEN as usize);
                    let bytes = vec![(tag % 251) as u8 + 1; LEN as usize];
                    data.copy_from(0, &bytes);
                    model[place as usize] = bytes;
                    let fua = if random.below(4) == 0 { Flags::FUA } else { Flags::NONE };
                    w.start(edge, tag, |bio| {
                        range(bio, Op::Write, at, data);
                        bio.flags = fua;
                    });
                }
                3 if deletes => {
                    model[place as usize].fill(0);
                    w.start(edge, tag, |bio| {
                        range(bio, Op::Delete, at, bio::Segs::new());
                        bio.length = LEN;
                    });
                }
                4 => w.start(edge, tag, |bio| bio.op = Op::Flush),
                _ => {
                    reads.push((tag, place as usize));
                    let data = w.buffer(LEN as usize);
                    w.start(edge, tag, |bio| range(bio, Op::Read, at, data));
                }
            }
        }
        let mut left = PLACES;
        let end = w.now() + 600_000_000_000;
        while left > 0 {
            assert!(w.now() < end, "round {round}: {left} do not end");
            w.turn(10_000_000);
            for ended in w.ended() {
                left -= 1;
                assert_eq!(ended.status, Ok(()), "round {round}, request {}", ended.tag);
                if let Some((_, place)) = reads.iter().find(|(tag, _)| *tag == ended.tag) {
                    assert!(ended.bytes == model[*place], "round {round}, place {place}");
                }
            }
        }
    }
}

#[test]
fn a_disk_without_a_queue_gets_one_command_at_a_time_and_no_tag() {
    for transport in [Transport::Sas, Transport::Sata] {
        let (mut w, hba, edge) = disk(transport, DiskSpec { depth: 1, ..spec() });
        mixed(&mut w, edge, 1, true);
        assert_eq!(hba.overlaps(0), 0, "{transport:?}");
        let shape = w.buses[0].devices()[0].0.inspect(|device| device.shape());
        assert_eq!((shape.openings_max, shape.queueing), (1, cam::Queueing::Untagged));
    }
}

/// D8 of device/mod.rs.
#[test]
fn flush_and_trim_are_kept_apart_from_queued_commands() {
    let (mut w, hba, edge) = disk(Transport::Sata, spec());
    mixed(&mut w, edge, 2, true);
    assert_eq!(hba.overlaps(0), 0, "D8");
    // A rescan in the middle of the requests: IDENTIFY runs alone too.
    for tag in 0..30 {
        let data = w.buffer(512);
        w.start(edge, tag, |bio| range(bio, Op::Read, tag * 512, data));
    }
    assert_eq!(w.scan(0), [""; 0]);
    assert_eq!(hba.overlaps(0), 0, "D8 holds for every priority");
    assert_eq!(w.ended().len(), 30);
}

#[test]
fn a_disk_without_48_bit_addressing_gets_28_bit_commands() {
    let mut old = DiskSpec { extended: false, ..spec() };
    old.shape.discards = false;
    let (mut w, hba, edge) = disk(Transport::Sata, old);
    mixed(&mut w, edge, 3, false);
    assert_eq!(hba.overlaps(0), 0);
    assert_eq!(w.plain(edge, Op::Delete, 0, 4096), Err(Errno::NotSup));
    let limits = w.control.topology.find("ada0").and_then(|p| w.control.topology.limits(p));
    assert_eq!(limits.unwrap().io_max_bytes, 255 * 512);
    let whole = vec![9; 300 * 512];
    assert_eq!(w.write(edge, 512, &whole, Flags::NONE), Ok(()), "it is cut to what fits");
    assert_eq!(w.read(edge, 512, 300 * 512), Ok(whole));
}

#[test]
fn deletes_are_sent_as_write_same_where_unmap_is_missing() {
    for deletes in [Deletes::Same16, Deletes::Same10] {
        let (mut w, hba, edge) = disk(Transport::Sas, DiskSpec { deletes, ..spec() });
        mixed(&mut w, edge, 4, true);
        assert_eq!(w.write(edge, 0, &[1; 8192], Flags::NONE), Ok(()));
        assert_eq!(w.plain(edge, Op::Delete, 4096, 512), Ok(()));
        let mut medium = [0; 8192];
        hba.read_medium(0, 0, &mut medium).unwrap();
        assert!(medium[..4096] == [1; 4096] && medium[4096..4608] == [0; 512], "{deletes:?}");
        assert!(medium[4608..] == [1; 8192 - 4608], "{deletes:?}: nothing more than asked for");
    }
}

#[test]
fn an_ncq_error_uses_up_no_retry_of_other_queued_commands() {
    let (mut w, hba, edge) = disk(Transport::Sata, spec());
    // Of 32 at a time some fail, and each failure throws all others out. With four retries none of
    // them would succeed if that cost one.
    hba.set_faults(0, Faults { fails: 6, lies: 3, ..Faults::default() });
    mixed(&mut w, edge, 5, true);
    let unit = w.buses[0].devices()[0].0.clone();
    let counts = unit.inspect(|device| device.counts());
    let halts = hba.halts(0);
    assert!(halts > 40, "the queue stopped {halts} times");
    assert!(counts.requeues > 4 * halts, "{counts:?}: victims are sent again");
    assert_eq!(hba.overlaps(0), 0);
    // Every other read of the log fails: no command is the cause, and all are sent again.
    let (mut w, hba, edge) = disk(Transport::Sata, spec());
    hba.set_faults(0, Faults { fails: 4, mute: 50, ..Faults::default() });
    mixed(&mut w, edge, 6, true);
}

#[test]
fn only_the_command_named_in_the_ncq_error_log_fails() {
    let (mut w, hba, edge) = disk(Transport::Sata, spec());
    let range_of = Extent::new(4096, 512).unwrap();
    let fault = Fault { range: range_of, op: DiskOp::Read, error: Errno::Io, times: None };
    hba.inject_medium_fault(0, fault).unwrap();
    for tag in 0..16 {
        let data = w.buffer(512);
        w.start(edge, tag, |bio| range(bio, Op::Read, tag * 512, data));
    }
    let mut ended = Vec::new();
    while ended.len() < 16 {
        w.turn(10_000_000);
        ended.extend(w.ended());
    }
    for each in &ended {
        let wanted = if each.tag == 8 { Err(Errno::Io) } else { Ok(()) };
        assert_eq!(each.status, wanted, "request {}", each.tag);
    }
    assert_eq!(hba.halts(0), 5, "once, and four retries");
}
