//! Requests larger than a layer takes.

use std::sync::Arc;

use bio::{Errno, Flags, Op};
use geom::{Edge, Limits};

use crate::common::{Lab, Leaf, MS, Mode, pattern};

fn disk(lab: &mut Lab, sector: u32, io_max: u32, delete_max: u64) -> (Arc<Leaf>, Edge) {
    let leaf = Leaf::shaped(Limits {
        media_bytes: 4096 * u64::from(sector),
        sector_bytes: sector,
        io_max_bytes: io_max,
        delete_max_bytes: delete_max,
    });
    let d = lab.disk("d0", &leaf);
    let c = lab.writer("u", d);
    let edge = lab.edge(c);
    (leaf, edge)
}

fn modes() -> [Mode; 3] {
    [Mode::Now, Mode::After(MS), Mode::Within(MS)]
}

#[test]
fn every_byte_arrives_once_for_any_sector_piece_size_and_order() {
    for mode in modes() {
        for sector in [512u32, 520, 4096, 4104] {
            for (io_max, pieces) in [(sector, 200), (3 * sector + 1, 67), (1, 200), (0, 1)] {
                let mut lab = Lab::new(7);
                let (leaf, edge) = disk(&mut lab, sector, io_max, 0);
                leaf.set(mode);
                leaf.take_requests();
                let (at, len) = (5 * u64::from(sector), 200 * u64::from(sector));
                let tag = lab.send(edge, Op::Write, at, len);
                let ended = lab.finish(tag);
                assert_eq!((ended.status, ended.completed), (Ok(()), len));
                let asked = leaf.take_requests();
                assert_eq!(asked.len(), pieces, "{mode:?} {sector} {io_max}");
                let most = u64::from((io_max / sector).max(1)) * u64::from(sector);
                assert!(io_max == 0 || asked.iter().all(|a| a.length <= most));
                assert_eq!(leaf.bytes(at as usize, len as usize), pattern(at, len, tag));
                let read = lab.io(edge, Op::Read, at, len);
                assert_eq!(read.data, pattern(at, len, tag), "{mode:?} {sector} {io_max}");
                lab.assert_empty();
            }
        }
    }
}

#[test]
fn pieces_are_sent_in_waves_of_bounded_size() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 512, 512, 0);
    leaf.set(Mode::Hold);
    let tag = lab.send(edge, Op::Read, 0, 150 * 512);
    let mut waves = Vec::new();
    while lab.ended(tag).is_none() {
        waves.push(leaf.held());
        assert_eq!(lab.live(), leaf.held() + 1);
        leaf.release(&lab.cores);
        lab.spin(MS);
    }
    assert_eq!(waves, [64, 64, 22]);
    lab.assert_empty();
}

#[test]
fn deletes_and_zeroes_have_a_limit_of_their_own() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 512, 4096, 10_000);
    for op in [Op::Delete, Op::WriteZeroes] {
        leaf.take_requests();
        let ended = lab.io(edge, op, 512, 1000 * 512);
        assert_eq!((ended.status, ended.completed), (Ok(()), 1000 * 512));
        let asked = leaf.take_requests();
        assert_eq!(asked.len(), 53, "19 whole sectors each");
        let mut next = 512;
        for a in &asked {
            assert_eq!((a.op, a.offset), (op, next));
            next += a.length;
        }
    }
}

#[test]
fn flags_reach_every_piece() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 512, 512, 0);
    leaf.take_requests();
    let flags = Flags::FUA | Flags::ORDERED | Flags::NO_HOLE;
    let tag = lab.send_on(0, edge, Op::Write, 0, 70 * 512, flags);
    lab.finish(tag);
    let asked = leaf.take_requests();
    assert_eq!(asked.len(), 70);
    assert!(asked.iter().all(|a| a.flags == flags));
}

#[test]
fn the_first_error_wins_and_the_next_wave_is_not_sent() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 512, 512, 0);
    leaf.take_requests();
    leaf.set(Mode::Hold);
    let tag = lab.send(edge, Op::Read, 0, 200 * 512);
    // Two pieces of the first wave fail, differently; the one that ends first decides.
    let held = leaf.take_held();
    let core = &lab.cores[0];
    for (i, (_, id)) in held.into_iter().enumerate() {
        let how = match i {
            40 => Err(Errno::NoSpc),
            41 => Err(Errno::Io),
            _ => Ok(()),
        };
        core.resume(id, geom::Flow::Done(how));
    }
    let ended = lab.finish(tag);
    assert_eq!(ended.status, Err(Errno::NoSpc));
    assert_eq!(leaf.take_requests().len(), 64, "one wave");
    assert_eq!(lab.ends.order.borrow().len(), 1);
    lab.assert_empty();
}

#[test]
fn a_request_at_the_end_of_the_medium_is_cut_before_it_is_split() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 520, 520 * 2, 0);
    leaf.take_requests();
    let ended = lab.io(edge, Op::Read, 4091 * 520, 100 * 520);
    assert_eq!((ended.status, ended.completed), (Ok(()), 5 * 520));
    assert_eq!(
        leaf.take_requests().iter().map(|a| a.length).collect::<Vec<_>>(),
        [1040, 1040, 520]
    );
}

#[test]
fn pieces_inherit_fail_fast() {
    for (op, bytes) in [(Op::Write, 4096), (Op::Delete, 64 << 10)] {
        let mut lab = Lab::new(1);
        let (leaf, edge) = disk(&mut lab, 512, 1024, 16 << 10);
        let flags = Flags::FAIL_FAST | Flags::FUA;
        let tag = lab.send_on(0, edge, op, 0, bytes, flags);
        assert_eq!(lab.finish(tag).status, Ok(()));
        let asked = leaf.take_requests();
        assert!(asked.len() > 1 && asked.iter().all(|a| a.flags == flags), "{op:?}");
    }
}
