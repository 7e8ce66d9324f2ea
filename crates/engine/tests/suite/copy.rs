//! EXTENDED COPY and its results: the copied data, permissions, reports, and the state after an end
//! in the middle.

use std::sync::Arc;

use bio::{Errno, Op};
use engine::{TmFunction, TmOutcome, flags};
use testkit::{Seeds, noise};
use wire::fuzzing::Prng;

use crate::lists::*;
use crate::world::*;

const COPY_ABORTED: u8 = 0x0a;

fn name(w: &World, host: &Host, lun: u64) -> Vec<u8> {
    let page = w.run(host, lun, &[0x12, 1, 0x83, 1, 0, 0], 256, &[]).good();
    cscd(&naa_of(&page.data))
}

/// Disks `d0`, `d1` at LUN 0 and 1 of all initiators, full of different bytes.
fn two(seed: u64, blocks: u64) -> (World, Arc<TestDisk>, Arc<TestDisk>) {
    let mut w = World::new(seed);
    let (a, b) = (w.disk("d0", blocks), w.disk("d1", blocks));
    for (i, disk) in [&a, &b].into_iter().enumerate() {
        let len = disk.state().bytes.len();
        disk.state().bytes = noise(seed + 1 + i as u64, len);
    }
    w.export("d0");
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    (w, a, b)
}

fn copy(w: &World, h: &Host, list: &[u8]) -> CommandResult {
    // The header's CSCD descriptor type of LID4 is no descriptor type of LID1.
    let action = u8::from(list.get(16) == Some(&0xff));
    let tag = h.send(0, &out_cdb(action, 0, list.len()), 0, list);
    for _ in 0..40 {
        w.turn();
    }
    w.answer(h, tag)
}

fn writes(disk: &TestDisk) -> usize {
    disk.state().log.iter().filter(|d| d.op == Op::Write).count()
}

#[test]
fn blocks_are_copied_between_units_and_counted_in_the_status() {
    let (w, a, b) = two(1, 4096);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let list = lid1(7, 0, &units, &[blocks(2, 0, (0, 1), 2000, 3, 50)]);
    copy(&w, &h, &list).good();
    let (from, to) = (a.state().bytes.clone(), b.state().bytes.clone());
    assert_eq!(to[50 * 512..2050 * 512], from[3 * 512..2003 * 512]);
    let before = noise(3, to.len());
    assert_eq!(to[..50 * 512], before[..50 * 512]);
    assert_eq!(to[2050 * 512..], before[2050 * 512..]);
    let status = w.run(&h, 0, &in_cdb(0, 7), 4096, &[]).good();
    assert_eq!(status.data, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0x0f, 0xa0, 0]);
    assert_eq!(w.run(&h, 0, &in_cdb(0, 8), 4096, &[]).asc(), (5, 0x24, 0), "another list");
    assert_eq!(w.run(&h, 1, &in_cdb(0, 7), 4096, &[]).asc(), (5, 0x24, 0), "another unit");
    let other = w.calm(1, "i2", &[0]);
    assert_eq!(w.run(&other, 0, &in_cdb(0, 7), 4096, &[]).asc(), (5, 0x24, 0), "another nexus");
    w.check_empty();
}

/// CVE-2020-28374: a copy manager that finds units anywhere in the daemon gives every initiator
/// every disk.
/// Y1.
#[test]
fn a_copy_cannot_reach_units_outside_the_map_of_the_session() {
    let mut w = World::new(1);
    let (mine, secret) = (w.disk("mine", 64), w.disk("secret", 64));
    w.export("mine");
    w.export("secret");
    let all: &[Lun<'_>] = &[(0, "mine", false), (1, "secret", false)];
    w.groups(&[("admin", &["admin"], all), ("rest", &["guest"], &all[..1])]);
    let admin = w.calm(0, "admin", &[0, 1]);
    let units = [name(&w, &admin, 0), name(&w, &admin, 1)];
    secret.state().bytes.fill(0x5a);
    let guest = w.calm(0, "guest", &[0]);
    for (ids, at) in [((1, 0), 84), ((0, 1), 86)] {
        let answer = copy(&w, &guest, &lid1(1, 0, &units, &[blocks(2, 0, ids, 4, 0, 0)]));
        assert_eq!(answer.asc(), (COPY_ABORTED, 0x08, 0x04));
        let sense = answer.sense();
        assert_eq!((sense.segment, sense.field.map(|f| f.byte)), (Some(0), Some(at)));
    }
    let same_id = lid1(1, 0, &[], &[blocks(2, 0, (1, 0xffff), 4, 0, 0)]);
    assert_eq!(copy(&w, &guest, &same_id).asc(), (COPY_ABORTED, 0x08, 0x04));
    assert!(mine.state().log.is_empty() && secret.state().log.is_empty());
    // The same list by one who may.
    copy(&w, &admin, &lid1(1, 0, &units, &[blocks(2, 0, (1, 0), 4, 0, 0)])).good();
    assert_eq!(mine.state().bytes[..2048], [0x5a; 2048]);
}

#[test]
fn copies_obey_read_only_maps_write_protection_and_reservations() {
    let (w, a, b) = two(4, 64);
    w.map(&[(0, "d0", false), (1, "d1", true)]);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let forth = lid1(1, 0, &units, &[blocks(2, 0, (0, 1), 4, 0, 0)]);
    let back = lid1(1, 0, &units, &[blocks(2, 0, (1, 0), 4, 0, 0)]);
    assert_eq!(copy(&w, &h, &forth).asc(), (COPY_ABORTED, 0x0d, 0x01));
    copy(&w, &h, &back).good();
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    copy(&w, &h, &forth).good();
    let (cdb, page) = control_page(false, true, false);
    w.run(&h, 1, &cdb, 0, &page).good();
    assert_eq!(copy(&w, &h, &forth).asc(), (COPY_ABORTED, 0x0d, 0x01), "SWP");
    let (cdb, page) = control_page(false, false, false);
    w.run(&h, 1, &cdb, 0, &page).good();
    let path = h.session.path_of(lun_field(1)).unwrap();
    for (bit, list, fails) in [
        (flags::RESERVED_WRITE, &forth, true),
        (flags::RESERVED_WRITE, &back, false),
        (flags::RESERVED_READ, &back, true),
        (flags::RESERVED_READ, &forth, false),
        (3 << flags::ALUA_SHIFT, &back, true),
    ] {
        path.nexus().set(bit);
        let seen = (a.state().log.len(), b.state().log.len());
        let answer = copy(&w, &h, list);
        assert_eq!(answer.asc() == (COPY_ABORTED, 0x0d, 0x01), fails, "{bit:x} {answer:?}");
        if fails {
            assert_eq!(seen, (a.state().log.len(), b.state().log.len()), "nothing was touched");
        }
        path.nexus().clear(bit);
    }
}

#[test]
fn overlapping_copies_within_a_unit_are_correct_in_both_directions() {
    for (from, to) in [(0, 700), (700, 0), (10, 11), (11, 10), (5, 5)] {
        let (w, a, _) = two(5, 8192);
        let h = w.calm(0, "i1", &[0]);
        let mut want = a.state().bytes.clone();
        want.copy_within(from * 512..(from + 3000) * 512, to * 512);
        let segment = blocks(2, 0, (0xffff, 0xffff), 3000, from as u64, to as u64);
        copy(&w, &h, &lid1(0, 0x18, &[], &[segment])).good();
        assert!(a.state().bytes == want, "{from} to {to}");
    }
}

#[test]
fn a_failing_unit_ends_the_copy_and_its_segment_is_reported() {
    let (w, a, b) = two(6, 64);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let segments = [
        blocks(2, 0, (0, 1), 4, 0, 0),
        blocks(2, 0, (0, 1), 4, 8, 8),
        blocks(2, 0, (0, 1), 4, 16, 16),
    ];
    let list = lid1(3, 0, &units, &segments);
    for (bad, error, asc) in [(&a, Errno::Io, 0x01), (&b, Errno::NoSpc, 0x01), (&b, Errno::NxIo, 2)]
    {
        bad.state().fail = Some((8 * 512, error));
        let before = writes(&b);
        let answer = copy(&w, &h, &list);
        assert_eq!(answer.asc(), (COPY_ABORTED, 0x0d, asc));
        assert_eq!(answer.sense().segment, Some(1));
        assert_eq!(writes(&b), before + 1, "segments after it are not done");
        bad.state().fail = None;
        let status = w.run(&h, 0, &in_cdb(0, 3), 4096, &[]).good();
        assert_eq!(status.data[4..7], [2, 0, 1]);
        let details = w.run(&h, 0, &in_cdb(4, 3), 4096, &[]).good().data;
        assert_eq!((details[56], details[60], details[61]), (2, 0x72, COPY_ABORTED));
    }
    w.check_empty();
}

#[test]
fn copies_between_block_sizes_move_whole_destination_blocks_only() {
    let mut w = World::new(1);
    let (a, b) = (w.disk("d0", 64), w.disk_of("d1", 16, 4096));
    let len = a.state().bytes.len();
    a.state().bytes = noise(9, len);
    w.export("d0");
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let run = |flags, n| copy(&w, &h, &lid1(1, 0, &units, &[blocks(2, flags, (0, 1), n, 8, 1)]));
    assert_eq!(run(0, 9).asc(), (COPY_ABORTED, 0x26, 0x0a));
    run(0, 8).good();
    assert_eq!(b.state().bytes[4096..8192], a.state().bytes[4096..8192]);
    run(2, 2).good();
    assert_eq!(b.state().bytes[4096..12288], a.state().bytes[4096..12288]);
    // DISK BLOCK LENGTH, when it is given, must be right.
    let mut wrong = units.clone();
    wrong[1][30] = 2;
    let list = lid1(1, 0, &wrong, &[blocks(2, 0, (0, 1), 8, 0, 0)]);
    assert_eq!(copy(&w, &h, &list).asc(), (COPY_ABORTED, 0x0d, 0x03));
}

#[test]
fn held_data_is_returned_once() {
    let (w, a, _) = two(8, 64);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    copy(&w, &h, &lid1(5, 0, &units, &[blocks(0x0d, 0, (0, 1), 2, 7, 9)])).good();
    let held = w.run(&h, 0, &in_cdb(1, 5), 4096, &[]).good().data;
    assert_eq!(held[..4], [0, 0, 4, 0]);
    assert_eq!(held[4..], a.state().bytes[7 * 512..9 * 512]);
    assert_eq!(w.run(&h, 0, &in_cdb(1, 5), 4096, &[]).good().data, [0; 4]);
}

/// An abort after each request that the unit at `disk` holds back, one at a time. The function is
/// answered only when the medium is left alone, and it stays so.
/// Y4.
#[test]
fn an_abort_is_answered_after_the_last_access_of_the_copy() {
    for step in 0..12 {
        for f in [TmFunction::AbortTask, TmFunction::LunReset, TmFunction::AbortTaskSet] {
            let (w, a, b) = two(step, 8192);
            let h = w.calm(0, "i1", &[0, 1]);
            let units = [name(&w, &h, 0), name(&w, &h, 1)];
            (a.state().hold, b.state().hold) = (true, true);
            let list = lid1(1, 0, &units, &[blocks(2, 0, (0, 1), 6000, 0, 0)]);
            let tag = h.send(0, &out_cdb(0, 0, list.len()), 0, &list);
            w.turn();
            for i in 0..step {
                if !w.release(&a, 0) {
                    w.release(&b, (i % 2) as usize);
                }
            }
            let tm = h.manage(f, 0, (f == TmFunction::AbortTask).then_some(tag));
            w.turn();
            loop {
                let held = a.state().held.len() + b.state().held.len();
                if held == 0 {
                    break;
                }
                assert_eq!(h.outcome(tm), None, "step {step}: {held} requests are below");
                if !w.release(&a, 0) {
                    w.release(&b, 0);
                }
            }
            assert_eq!(h.outcome(tm), Some(TmOutcome::Complete), "step {step}");
            let (seen, reads) = (writes(&b), a.state().log.len());
            for _ in 0..20 {
                w.turn();
            }
            assert_eq!((seen, reads), (writes(&b), a.state().log.len()));
            assert!(h.discarded(tag));
            w.check_empty();
        }
    }
}

/// Y4.
#[test]
fn resets_and_logouts_wait_for_a_copy_in_the_background() {
    for end in 0..4 {
        let (w, a, b) = two(3, 8192);
        let h = w.calm(0, "i1", &[0, 1]);
        let units = [name(&w, &h, 0), name(&w, &h, 1)];
        b.state().hold = true;
        let list = lid4(0x1_0000, true, &units, &[blocks(2, 0, (0, 1), 6000, 0, 0)]);
        let tag = h.send(0, &out_cdb(1, 0, list.len()), 0, &list);
        w.answer(&h, tag).good();
        assert_eq!(h.session.outstanding(), 0);
        let status = w.run(&h, 0, &in_cdb(5, 0x1_0000), 4096, &[]).good().data;
        assert_eq!((status[4], status[5]), (1, 0x12), "in the background");
        // The name is taken until it ends.
        assert_eq!(copy(&w, &h, &list).asc(), (0x5, 0x00, 0x16));
        match end {
            0 => {
                w.release_all(&b);
                (0..40).for_each(|_| w.turn());
                assert_eq!(b.state().bytes[..6000 * 512], a.state().bytes[..6000 * 512]);
                let status = w.run(&h, 0, &in_cdb(5, 0x1_0000), 4096, &[]).good().data;
                assert_eq!((status[5], status[12]), (0x01, 0));
                assert_eq!(status[16..24], (6000u64 * 512).to_be_bytes());
            }
            1 => {
                let abort = h.send(0, &abort_cdb(0x1_0000), 0, &[]);
                w.turn();
                assert!(h.answer(abort).is_none(), "requests are below");
                w.release_all(&b);
                w.answer(&h, abort).good();
                let seen = writes(&b);
                (0..20).for_each(|_| w.turn());
                assert_eq!(writes(&b), seen);
                let status = w.run(&h, 0, &in_cdb(5, 0x1_0000), 4096, &[]).good().data;
                assert_eq!(status[5], 0x60, "aborted");
                assert_eq!(w.run(&h, 0, &abort_cdb(0x1_0000), 0, &[]).asc(), (5, 0x24, 0));
            }
            2 => {
                let tm = h.manage(TmFunction::LunReset, 0, None);
                w.turn();
                assert_eq!(h.outcome(tm), None);
                w.release_all(&b);
                assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
                assert!(writes(&b) < 6);
            }
            _ => {
                h.session.close();
                w.turn();
                assert!(!h.ended(), "the copy still writes");
                w.release_all(&b);
                w.turn();
                assert!(h.ended());
                assert!(writes(&b) < 6);
            }
        }
        w.check_empty();
    }
}

#[test]
fn a_copy_fails_when_one_of_its_units_is_lost() {
    for gone in 0..2 {
        let (w, a, b) = two(2, 8192);
        let h = w.calm(0, "i1", &[0, 1]);
        let units = [name(&w, &h, 0), name(&w, &h, 1)];
        b.state().hold = true;
        let list = lid1(1, 0, &units, &[blocks(2, 0, (0, 1), 6000, 0, 0)]);
        let tag = h.send(0, &out_cdb(0, 0, list.len()), 0, &list);
        w.turn();
        let path = h.session.path_of(lun_field(gone)).unwrap();
        path.device().lose(Errno::NxIo);
        w.release_all(&b);
        let answer = w.answer(&h, tag);
        assert_eq!(answer.asc(), (COPY_ABORTED, 0x0d, 0x02), "{gone}");
        assert!(a.state().held.is_empty());
        w.check_empty();
    }
}

#[test]
fn other_commands_wait_for_the_read_modify_write_of_a_partial_block() {
    // A patch reads the block, and writes it later: a write that arrives between is not lost.
    let (w, a, b) = two(2, 64);
    let h = w.calm(0, "i1", &[0, 1]);
    let other = w.calm(1, "i2", &[1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let source = a.state().bytes[..100].to_vec();
    b.state().hold = true;
    let list = lid1(1, 0, &units, &[bytes((0, 1), 100, (0, 0), (5, 10))]);
    let tag = h.send(0, &out_cdb(0, 0, list.len()), 0, &list);
    (0..4).for_each(|_| w.turn());
    assert_eq!(b.state().held.len(), 1, "the block is read");
    let write = other.send(1, &write16(5, 1), 0, &[0x77; 512]);
    (0..4).for_each(|_| w.turn());
    assert_eq!(b.state().held.len(), 1, "the write waits");
    w.release_all(&b);
    (0..20).for_each(|_| w.turn());
    w.answer(&h, tag).good();
    w.answer(&other, write).good();
    assert_eq!(b.state().bytes[5 * 512..6 * 512], [0x77; 512], "the write came after");
    copy(&w, &h, &list).good();
    assert_eq!(b.state().bytes[5 * 512 + 10..5 * 512 + 110], source);
    assert_eq!(b.state().bytes[5 * 512..5 * 512 + 10], [0x77; 10]);
    assert_eq!(b.state().bytes[5 * 512 + 110..6 * 512], [0x77; 402]);
}

#[test]
fn malformed_parameter_lists_are_refused_before_any_data_is_copied() {
    let (w, a, b) = two(2, 64);
    let h = w.calm(0, "i1", &[0, 1]);
    let units = [name(&w, &h, 0), name(&w, &h, 1)];
    let good = lid1(1, 0, &units, &[blocks(2, 0, (0, 1), 4, 0, 0)]);
    let with = |at: usize, value: u8| {
        let mut list = good.clone();
        list[at] = value;
        list
    };
    for (what, list, asc) in [
        ("cut", good[..good.len() - 1].to_vec(), (5, 0x1a, 0)),
        ("Fibre Channel name", with(16, 0xe0), (5, 0x26, 0x07)),
        ("stream", with(80, 0x03), (5, 0x26, 0x09)),
        ("null unit", with(17, 0x20), (COPY_ABORTED, 0x08, 0x04)),
        ("a tape", with(17, 0x01), (COPY_ABORTED, 0x0d, 0x03)),
        ("a port's name", with(21, 0x13), (COPY_ABORTED, 0x08, 0x04)),
        ("beyond the end", with(99, 61), (COPY_ABORTED, 0, 0)),
        ("far beyond the end", with(92, 0xff), (COPY_ABORTED, 0, 0)),
        ("too many", lid1(1, 0, &vec![units[0].clone(); 33], &[]), (5, 0x26, 0x06)),
    ] {
        assert_eq!(copy(&w, &h, &list).asc(), asc, "{what}");
    }
    w.run(&h, 0, &out_cdb(0, 0, 0), 0, &[]).good();
    let (_, next) = h.begin(0, &out_cdb(0, 0, 70_000), 0, 70_000);
    assert_eq!(next, engine::Next::Started, "refused before it is sent");
    assert!(a.state().log.is_empty() && b.state().log.is_empty());
}

struct Unit {
    bytes: Vec<u8>,
    unit: usize,
    media: usize,
}

/// The effect of one segment on the media, from the standard and independent of the engine. `None`
/// if it must end the copy; in this case it has changed nothing.
fn model(
    units: &mut [Unit],
    kind: u8,
    ids: (u16, u16),
    n: usize,
    from: (u64, u16),
    to: (u64, u16),
) -> Option<()> {
    let (s, d) = (units.get(ids.0 as usize)?, units.get(ids.1 as usize)?);
    let len = if kind == 0x0a { n } else { n * s.unit };
    if kind != 0x0a && (len % d.unit != 0) {
        return None;
    }
    if usize::from(from.1) >= s.unit || usize::from(to.1) >= d.unit {
        return None;
    }
    let source = from.0 as usize * s.unit + usize::from(from.1);
    let target = to.0 as usize * d.unit + usize::from(to.1);
    if source + len > s.media || target + len > d.media {
        return None;
    }
    let data = s.bytes[source..source + len].to_vec();
    units[ids.1 as usize].bytes[target..target + len].copy_from_slice(&data);
    Some(())
}

#[test]
fn random_segments_agree_with_the_model() {
    for seed in Seeds::of(12) {
        let mut rng = Prng::new(seed);
        let mut w = World::new(seed);
        let shapes = [("d0", 3000, 512), ("d1", 2500, 512), ("d2", 300, 4096)];
        let mut units = Vec::new();
        for (i, (label, count, unit)) in shapes.into_iter().enumerate() {
            let disk = w.disk_of(label, count, unit);
            let bytes = noise(seed * 10 + i as u64, disk.state().bytes.len());
            disk.state().bytes.clone_from(&bytes);
            w.export(label);
            units.push(Unit { bytes, unit, media: count as usize * unit });
        }
        w.map(&[(0, "d0", false), (1, "d1", false), (2, "d2", false)]);
        let h = w.calm(seed as usize % 2, "i1", &[0, 1, 2]);
        let names: Vec<_> = (0..3).map(|lun| name(&w, &h, lun)).collect();
        for round in 0..12u8 {
            let mut segments = Vec::new();
            let mut failed = None;
            for i in 0..1 + rng.below(4) {
                let kind = [0x02, 0x02, 0x0d, 0x0a][rng.below(4)];
                let ids = (rng.below(3) as u16, rng.below(3) as u16 + rng.below(12) as u16 / 11);
                let at = |rng: &mut Prng, id: u16| {
                    rng.below(shapes[usize::from(id.min(2))].1 as usize) as u64
                };
                let (from, to) = (at(&mut rng, ids.0), at(&mut rng, ids.1));
                let offsets = if kind == 0x0a {
                    (rng.below(520) as u16, rng.below(520) as u16)
                } else {
                    (0, 0)
                };
                let n = match kind {
                    0x0a => rng.below(900_000),
                    _ if rng.below(3) > 0 => rng.below(150) * 8,
                    _ => rng.below(1500),
                };
                segments.push(match kind {
                    0x0a => bytes(ids, n as u32, (from, offsets.0), (to, offsets.1)),
                    _ => blocks(kind, 0, ids, n as u16, from, to),
                });
                if failed.is_none()
                    && model(&mut units, kind, ids, n, (from, offsets.0), (to, offsets.1)).is_none()
                {
                    failed = Some(i as u16);
                }
            }
            let answer = copy(&w, &h, &lid1(round, 0x10, &names, &segments));
            let segment = (answer.status == 2).then(|| answer.sense().segment).flatten();
            assert_eq!(segment, failed, "seed {seed} round {round}: {answer:?}");
            for (i, unit) in units.iter().enumerate() {
                let same = w.disks[i].1.state().bytes[..unit.media] == unit.bytes[..unit.media];
                assert!(same, "seed {seed} round {round} unit {i}");
            }
        }
        w.check_empty();
    }
}
