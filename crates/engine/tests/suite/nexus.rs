//! Reports to initiators, their time and number: unit attentions, masking, sense data, residuals.

use bio::{Errno, Op};
use engine::lun::{OpenSpec, open_device};
use engine::{Next, Residual, TmFunction, TmOutcome};
use geom::Event;

use crate::world::*;

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const REPORT_LUNS: [u8; 12] = [0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const SENSE: [u8; 6] = [3, 0, 0, 0, 252, 0];

fn control(w: &World, host: &Host, d_sense: bool, swp: bool, tas: bool) {
    let (cdb, list) = control_page(d_sense, swp, tas);
    w.run(host, 0, &cdb, 0, &list).good();
}

/// A1 of unit/unit_attention.rs.
#[test]
fn every_nexus_gets_each_unit_attention_once_in_order() {
    for first in 0..2 {
        let mut w = World::simple(1, 64);
        let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0])];
        let third = w.calm(0, "i3", &[0]);
        let p = w.provider("d0");
        w.control.topology.post(Event::Resize(p, 80 * BLOCK as u64));
        w.settle();
        // The host that changes the mode is still to be notified of the resize.
        assert_eq!(w.run(&third, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 9));
        control(&w, &third, true, false, false);
        w.run(&third, 0, &TUR, 0, &[]).good();
        for i in [first, 1 - first] {
            let h = &hosts[i];
            w.run(h, 0, &INQUIRY, 96, &[]).good();
            w.run(h, 0, &REPORT_LUNS, 256, &[]).good();
            assert_eq!(w.run(h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 9));
            assert_eq!(w.run(h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
            w.run(h, 0, &TUR, 0, &[]).good();
        }
    }
}

/// P2 of nexus/paths.rs.
/// N1 of nexus/mod.rs.
#[test]
fn a_new_nexus_gets_29_00_and_a_reinstated_one_29_07() {
    let w = World::simple(1, 64);
    let h = w.host(0, "i1");
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    w.run(&h, 0, &TUR, 0, &[]).good();
    h.session.close();
    assert!(h.ended());
    let h = Host::login(&w.engines[0], "i1", true).unwrap();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x29, 7));
    w.run(&h, 0, &TUR, 0, &[]).good();
}

#[test]
fn request_sense_returns_a_unit_attention_as_data_and_clears_it() {
    let w = World::simple(1, 64);
    let h = w.host(0, "i1");
    let a = w.run(&h, 0, &SENSE, 252, &[]).good();
    assert_eq!((a.data[0], a.data[2], a.data[12], a.data[13]), (0x70, 6, 0x29, 0));
    w.run(&h, 0, &TUR, 0, &[]).good();
    let a = w.run(&h, 0, &[3, 1, 0, 0, 252, 0], 252, &[]).good();
    assert_eq!((a.data[0], a.data[1], a.data[2]), (0x72, 0, 0));
}

#[test]
fn an_unmapped_lun_gives_the_standard_answer_to_each_command() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 5, &INQUIRY, 96, &[]).good().data[0], 0x7F);
    assert_eq!(w.run(&h, 5, &SENSE, 252, &[]).good().data[12], 0x25);
    assert_eq!(w.run(&h, 5, &TUR, 0, &[]).asc(), (5, 0x25, 0));
    assert_eq!(w.run(&h, 5, &[0xFF; 16], 0, &[]).asc(), (5, 0x25, 0));
    let luns = w.run(&h, 5, &REPORT_LUNS, 256, &[]).good().data;
    assert_eq!(luns, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_initiator_without_a_group_is_refused_and_listed_as_denied() {
    let w = World::simple(1, 64);
    w.groups(&[("g", &["i1"], &[(0, "d0", false)])]);
    let Err(refused) = Host::login(&w.engines[0], "i2", false) else {
        panic!("i2 must not get in");
    };
    assert!(refused.text.contains("i2"), "{}", refused.text);
    assert_eq!(w.registry.denied().len(), 1);
    assert_eq!(w.registry.view().denied[0].initiator, "i2");
}

#[test]
fn lba_ranges_are_checked_without_overflow() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let out_of_range = (5, 0x21, 0);
    for opcode in [0x88, 0x8A, 0x8E, 0x8F, 0x91] {
        for (lba, blocks, fits) in [
            (1 << 63, 1, false),
            (u64::MAX, 1, false),
            (u64::MAX, u32::MAX, false),
            (64, 1, false),
            (65, 0, false),
            (63, 2, false),
            (64, 0, true),
            (0, 0, true),
        ] {
            let a = w.run(&h, 0, &cdb16(opcode, lba, blocks), 0, &[]);
            let want = if fits { (0, 0, 0) } else { out_of_range };
            assert_eq!(a.asc(), want, "{opcode:x} {lba:x} {blocks}");
        }
    }
}

#[test]
fn sense_data_has_the_selected_format_and_the_right_information() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    disk.state().bytes[700] = 9;
    let mut verify = cdb16(0x8F, 0, 2);
    verify[1] = 2;
    for descriptor in [false, true] {
        control(&w, &h, descriptor, false, false);
        let a = w.run(&h, 0, &verify, 0, &[0; 1024]);
        assert_eq!(a.sense[0] & 0x7F, if descriptor { 0x72 } else { 0x70 });
        assert_eq!((a.asc(), a.sense().information), ((0xE, 0x1D, 0), Some(700)));
        disk.state().fail = Some((5 * BLOCK as u64, Errno::Io));
        let a = w.run(&h, 0, &read16(5, 1), 512, &[]);
        assert_eq!((a.asc(), a.sense().information), ((3, 0x11, 0), Some(5)));
        assert!(a.data.is_empty());
        let a = w.run(&h, 0, &write16(5, 1), 0, &[1; 512]);
        assert_eq!((a.asc(), a.sense().information), ((3, 0x0C, 0), Some(5)));
        assert_eq!(w.run(&h, 0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]).asc().0, 3);
        disk.state().fail = None;
    }
}

#[test]
fn residuals_are_correct_and_surplus_data_is_not_written() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    disk.state().bytes[..2048].fill(7);
    // Reading: fewer and more than the CDB requests.
    for (expect, sent, residual) in [
        (1024, 1024, Residual::None),
        (512, 512, Residual::Over(512)),
        (100, 100, Residual::Over(924)),
        (0, 0, Residual::Over(1024)),
        (4000, 1024, Residual::Under(2976)),
    ] {
        let a = w.run(&h, 0, &read16(0, 2), expect, &[]).good();
        assert_eq!((a.data, a.residual), (vec![7; sent], residual), "expecting {expect}");
    }
    // Writing.
    for (given, written, residual) in [
        (1024, 1024, Residual::None),
        (512, 512, Residual::Over(512)),
        (0, 0, Residual::Over(1024)),
        (2000, 1024, Residual::Under(976)),
    ] {
        disk.state().bytes[..2048].fill(7);
        let a = w.run(&h, 0, &write16(0, 2), 0, &vec![1; given]).good();
        assert_eq!(a.residual, residual, "giving {given}");
        let medium = disk.state().bytes[..2048].to_vec();
        let ones = medium.iter().filter(|b| **b == 1).count();
        assert_eq!((ones, medium[written..].to_vec()), (written, vec![7; 2048 - written]));
    }
    // The wrong way round.
    let a = w.run(&h, 0, &read16(0, 1), 0, &[0; 512]).good();
    assert_eq!((a.data, a.residual), (vec![], Residual::Over(512)));
    assert_eq!(w.run(&h, 0, &write16(0, 1), 512, &[]).asc(), (0xB, 0x4B, 0));
    let a = w.run(&h, 0, &TUR, 0, &[0; 512]).good();
    assert_eq!(a.residual, Residual::Under(512));
}

#[test]
fn allocation_length_truncates_data_and_changes_nothing_else() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    type Cut = fn(u16) -> Vec<u8>;
    let commands: Vec<(&str, u16, Cut)> = vec![
        ("INQUIRY", 120, |n| [&[0x12, 0, 0][..], &n.to_be_bytes(), &[0]].concat()),
        ("VPD 00", 40, |n| [&[0x12, 1, 0][..], &n.to_be_bytes(), &[0]].concat()),
        ("VPD 83", 250, |n| [&[0x12, 1, 0x83][..], &n.to_be_bytes(), &[0]].concat()),
        ("VPD B0", 90, |n| [&[0x12, 1, 0xB0][..], &n.to_be_bytes(), &[0]].concat()),
        ("MODE SENSE 6", 90, |n| vec![0x1A, 0, 0x3F, 0, n as u8, 0]),
        ("MODE SENSE 10", 90, |n| {
            [&[0x5A, 0, 0x3F, 0, 0, 0, 0][..], &n.to_be_bytes(), &[0]].concat()
        }),
        ("REQUEST SENSE", 40, |n| vec![3, 0, 0, 0, n as u8, 0]),
        ("READ CAPACITY 16", 40, |n| {
            let mut cdb = cdb16(0x9E, 0, u32::from(n)).to_vec();
            cdb[1] = 0x10;
            cdb
        }),
        ("REPORT LUNS", 40, |n| {
            [&[0xA0, 0, 0, 0, 0, 0, 0, 0][..], &n.to_be_bytes(), &[0, 0]].concat()
        }),
        ("REPORT OPCODES", 400, |n| {
            [&[0xA3, 0x0C, 0, 0, 0, 0, 0, 0][..], &n.to_be_bytes(), &[0, 0]].concat()
        }),
    ];
    for (name, most, cut) in commands {
        let whole = w.run(&h, 0, &cut(most), 4096, &[]).good().data;
        for n in 0..most {
            let a = w.run(&h, 0, &cut(n), 4096, &[]).good();
            let len = whole.len().min(usize::from(n));
            assert_eq!(a.data, whole[..len], "{name} {n}");
            assert_eq!(a.residual, Residual::Under(4096 - len as u32), "{name} {n}");
        }
    }
}

#[test]
fn a_read_only_mapping_refuses_all_writing_commands() {
    let w = World::simple(1, 64);
    w.map(&[(0, "d0", true)]);
    let h = w.calm(0, "i1", &[0]);
    let writes: [Vec<u8>; 6] = [
        write16(0, 1).to_vec(),
        vec![0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        vec![0x0A, 0, 0, 0, 1, 0],
        cdb16(0x8E, 0, 1).to_vec(),
        cdb16(0x93, 0, 1).to_vec(),
        vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
    ];
    for cdb in writes {
        assert_eq!(w.run(&h, 0, &cdb, 0, &[0; 512]).asc(), (7, 0x27, 0), "{:x}", cdb[0]);
    }
    w.run(&h, 0, &read16(0, 1), 512, &[]).good();
    let mode = w.run(&h, 0, &[0x1A, 0, 8, 0, 255, 0], 255, &[]).good().data;
    assert_eq!(mode[2] & 0x80, 0x80, "WP is shown");
    assert!(w.disks[0].1.state().log.iter().all(|d| d.op == Op::Read));
}

#[test]
fn without_the_write_cache_every_write_is_durable() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    let last = || disk.state().log.last().cloned().unwrap();
    w.run(&h, 0, &write16(0, 1), 0, &[1; 512]).good();
    assert!(!last().fua);
    let mut fua = write16(0, 1);
    fua[1] = 8;
    w.run(&h, 0, &fua, 0, &[1; 512]).good();
    assert!(last().fua);
    let (cdb, list) = caching_page(false);
    w.run(&h, 0, &cdb, 0, &list).good();
    assert_eq!(last().op, Op::Flush, "the cache is emptied before it is off");
    w.run(&h, 0, &write16(0, 1), 0, &[1; 512]).good();
    assert!(last().fua);
    w.run(&h, 0, &cdb16(0x91, 0, 0), 0, &[]).good();
    assert_eq!(last().op, Op::Flush);
}

#[test]
fn write_same_and_unmap_reach_the_medium() {
    let w = World::simple(1, 2048);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    let pattern: Vec<u8> = (0..512).map(|i| i as u8).collect();
    w.run(&h, 0, &cdb16(0x93, 10, 1500), 0, &pattern).good();
    let s = disk.state();
    assert!(s.bytes[10 * 512..1510 * 512].chunks(512).all(|b| b == pattern));
    assert!(s.bytes[..10 * 512].iter().chain(&s.bytes[1510 * 512..]).all(|b| *b == 0));
    drop(s);
    // NDOB.
    let mut ndob = cdb16(0x93, 20, 5);
    ndob[1] = 1;
    w.run(&h, 0, &ndob, 0, &[]).good();
    assert_eq!(disk.state().log.last().map(|d| (d.op, d.length)), Some((Op::WriteZeroes, 2560)));
    // UNMAP of two ranges, one of them empty.
    let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
    for (lba, blocks) in [(100u64, 4u32), (5, 0)] {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
    w.run(&h, 0, &unmap, 0, &list).good();
    assert_eq!(disk.state().log.last().map(|d| (d.op, d.offset)), Some((Op::Delete, 51200)));
    list[8..16].copy_from_slice(&2047u64.to_be_bytes());
    assert_eq!(w.run(&h, 0, &unmap, 0, &list).asc(), (5, 0x21, 0));
    assert_eq!(w.run(&h, 0, &cdb16(0x93, 0, 0), 0, &pattern).asc(), (5, 0x24, 0), "WSNZ");
    let mut anchor = cdb16(0x93, 0, 1);
    anchor[1] = 0x18;
    assert_eq!(w.run(&h, 0, &anchor, 0, &pattern).asc(), (5, 0x24, 0));
}

#[test]
fn a_map_change_is_effective_at_once_and_reported_once_per_session() {
    let mut w = World::simple(1, 64);
    w.disk("d1", 64);
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    let h = w.calm(0, "i1", &[0, 1]);
    // Removed.
    w.map(&[(0, "d0", false)]);
    assert_eq!(w.run(&h, 1, &TUR, 0, &[]).asc(), (5, 0x25, 0));
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x3F, 0x0E));
    w.run(&h, 0, &TUR, 0, &[]).good();
    // Added: the new unit reports a reset, the session one change.
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    assert_eq!(w.run(&h, 1, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    assert_eq!(w.run(&h, 1, &TUR, 0, &[]).asc(), (6, 0x3F, 0x0E));
    w.run(&h, 1, &TUR, 0, &[]).good();
    w.run(&h, 0, &TUR, 0, &[]).good();
    // Exchanged.
    w.map(&[(0, "d1", false), (1, "d0", false)]);
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    // REPORT LUNS also reports the change.
    w.run(&h, 0, &REPORT_LUNS, 256, &[]).good();
    w.run(&h, 0, &TUR, 0, &[]).good();
    assert_eq!(w.run(&h, 1, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    // It is another disk: no command reaches it before the initiator has queried its identity.
    let pages = [&[0x12, 1, 0x80, 0, 96, 0], &[0x12, 1, 0xB0, 0, 96, 0]];
    for _ in 0..2 {
        assert_eq!(w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).asc(), (5, 0x25, 0));
        assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), (5, 0x25, 0));
        pages.iter().for_each(|page| drop(w.run(&h, 0, *page, 96, &[]).good()));
    }
    // Nor by a new session, nor while another host has read its identity.
    w.run(&w.calm(0, "i2", &[0]), 0, &INQUIRY, 96, &[]).good();
    let port = h.session.port().transport_id.clone();
    h.session.close();
    w.settle();
    let h = Host::login_as(&w.engines[0], "i1", &port).unwrap();
    assert_eq!(w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).asc(), (6, 0x29, 0));
    assert_eq!(w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).asc(), (6, 0x3F, 0x0E));
    assert_eq!(w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).asc(), (5, 0x25, 0));
    w.run(&h, 0, &[0x12, 1, 0x83, 0, 96, 0], 96, &[]).good();
    w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).good();
    // Writable to read-only, without a word: the unit is the same.
    w.map(&[(0, "d1", true), (1, "d0", false)]);
    w.run(&h, 0, &TUR, 0, &[]).good();
    assert_eq!(w.run(&h, 0, &write16(0, 1), 0, &[0; 512]).asc(), (7, 0x27, 0));
}

#[test]
fn a_lost_disk_affects_neither_the_session_nor_its_other_luns() {
    let mut w = World::simple(1, 64);
    w.disk("d1", 64);
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    let h = w.calm(0, "i1", &[0, 1]);
    let p = w.provider("d0");
    w.control.topology.post(Event::Lost(p, Errno::NxIo));
    w.settle();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (2, 4, 3));
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), (2, 4, 3));
    w.run(&h, 0, &INQUIRY, 96, &[]).good();
    w.run(&h, 1, &read16(0, 1), 512, &[]).good();
    assert!(w.registry.view().devices.iter().any(|d| d.lost == Some(Errno::NxIo)));
    // The same disk returns.
    let gone = w.control.topology.find_geom(testkit::disk::CLASS, "d0").unwrap();
    w.control.topology.wither_geom(gone, Errno::NxIo);
    w.settle();
    w.disk("d0", 64);
    w.export("d0");
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x28, 0));
    w.run(&h, 0, &read16(0, 1), 512, &[]).good();
}

#[test]
fn a_shrunken_disk_is_reported_and_refuses_blocks_beyond_its_end() {
    let mut w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let p = w.provider("d0");
    w.control.topology.post(Event::Resize(p, 32 * BLOCK as u64));
    w.settle();
    assert_eq!(w.run(&h, 0, &read16(40, 1), 512, &[]).asc(), (6, 0x2A, 9));
    assert_eq!(w.run(&h, 0, &read16(40, 1), 512, &[]).asc(), (5, 0x21, 0));
    let cap = w.run(&h, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[]).good();
    assert_eq!(cap.data, [0, 0, 0, 31, 0, 0, 2, 0]);
}

#[test]
fn a_unit_can_be_closed_only_when_it_is_not_mapped() {
    let mut w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let close = |w: &mut World| engine::lun::close_device(&mut w.control, &w.registry, "d0");
    assert_eq!(close(&mut w).map_err(|e| e.kind), Err(Errno::Busy));
    w.map(&[]);
    close(&mut w).unwrap();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (5, 0x25, 0));
    let p = w.provider("d0");
    assert_eq!(w.control.topology.counts(p), geom::Access::NONE);
    w.export("d0");
}

#[test]
fn a_write_waiting_for_data_fails_when_its_unit_is_closed() {
    let mut w = World::simple(1, 64);
    let other = w.disk("d1", 64);
    let h = w.calm(0, "i1", &[0]);
    let (tag, next) = h.begin(0, &write16(3, 2), 0, 1024);
    assert_eq!(next, Next::Data { wanted: 1024 });
    w.map(&[]);
    engine::lun::close_device(&mut w.control, &w.registry, "d0").unwrap();
    w.export("d1");
    h.give(tag, &[0xAB; 1024]);
    // LOGICAL UNIT NOT SUPPORTED: it is not in the initiator's map any more.
    assert_eq!(w.answer(&h, tag).asc(), (5, 0x25, 0));
    assert!(other.state().bytes.iter().all(|b| *b == 0), "written to another disk");
}

#[test]
fn task_management_queries_report_existing_and_missing_tasks() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let ask = |f, lun, of| h.outcome(h.manage(f, lun, of)).unwrap();
    assert_eq!(ask(TmFunction::AbortTask, 0, Some(999)), TmOutcome::NoTask);
    assert_eq!(ask(TmFunction::QueryTask, 0, Some(999)), TmOutcome::Complete);
    assert_eq!(ask(TmFunction::QueryTaskSet, 0, None), TmOutcome::Complete);
    assert_eq!(ask(TmFunction::LunReset, 9, None), TmOutcome::NoLun);
    assert_eq!(ask(TmFunction::ClearAca, 0, None), TmOutcome::Complete);
    let (tag, _) = h.begin(0, &write16(0, 1), 0, 512);
    assert_eq!(ask(TmFunction::QueryTask, 0, Some(tag)), TmOutcome::Found);
    assert_eq!(ask(TmFunction::QueryTaskSet, 0, None), TmOutcome::Found);
    assert_eq!(ask(TmFunction::QueryAsyncEvent, 0, None), TmOutcome::Complete);
}

#[test]
fn writes_to_a_null_unit_report_the_residual_of_their_data() {
    let mut w = World::new(1);
    w.disk("d0", 64);
    let spec = OpenSpec { handler: Some("null".into()), ..OpenSpec::default() };
    open_device(&mut w.control, &w.registry, "d0", &spec).unwrap();
    w.map(&[(0, "d0", false)]);
    let h = w.calm(0, "i1", &[0]);
    for (given, residual) in [
        (0, Residual::Over(1024)),
        (512, Residual::Over(512)),
        (1024, Residual::None),
        (1536, Residual::Under(512)),
    ] {
        let a = w.run(&h, 0, &write16(0, 2), 0, &vec![1; given]).good();
        assert_eq!(a.residual, residual, "{given} bytes");
    }
}

/// INVALID FIELD IN COMMAND INFORMATION UNIT.
const CUT: (u8, u8, u8) = (5, 0x0E, 3);
/// INVALID FIELD IN CDB.
const FIELD: (u8, u8, u8) = (5, 0x24, 0);

#[test]
fn write_data_truncated_within_a_block_is_refused_and_not_written() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    disk.state().bytes[..4096].fill(7);
    let ten = |op: u8, n: u8, bits: u8| vec![op, bits, 0, 0, 0, 0, 0, 0, n, 0];
    let twelve = |op: u8, n: u8| vec![op, 0, 0, 0, 0, 0, 0, 0, 0, n, 0, 0];
    let sixteen = |op: u8, n: u8| [vec![op], vec![0; 12], vec![n, 0, 0]].concat();
    let six = vec![0x0A, 0, 0, 0, 2, 0];
    let writes = [
        six,
        ten(0x2A, 2, 0),
        twelve(0xAA, 2),
        sixteen(0x8A, 2),
        ten(0x2E, 2, 0),
        twelve(0xAE, 2),
        sixteen(0x8E, 2),
    ];
    for cdb in &writes {
        for given in [1, 200, 511, 513, 1023] {
            let a = w.run(&h, 0, cdb, 0, &vec![1; given]);
            let over = Residual::Over(1024 - given as u32);
            assert_eq!((a.asc(), a.residual), (CUT, over), "{cdb:x?}: {given} bytes");
        }
        assert_eq!(disk.state().bytes[..4096], [7; 4096], "{cdb:x?}");
    }
    // Those that compare or combine want all of it, and so do parameter lists.
    let modes = [&[0x15, 0x10, 0, 0, 24, 0][..], &[0x55, 0x10, 0, 0, 0, 0, 0, 0, 24, 0]].concat();
    let all: [(&[u8], usize); 9] = [
        (&ten(0x2F, 2, 2), 1024),
        (&sixteen(0x8B, 2), 1024),
        (&modes[..6], 24),
        (&modes[6..], 24),
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24),
        (&[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24),
        (&[&[0x83, 0x11][..], &[0; 11], &[32, 0, 0]].concat(), 32),
        (&[0x3B, 2, 0, 0, 0, 0, 0, 0, 64, 0], 64),
        (&[4, 0x30, 0, 0, 0, 0], 8),
    ];
    for (cdb, whole) in all {
        for given in [0, 4, whole / 2, whole - 1] {
            let a = w.run(&h, 0, cdb, 0, &vec![0; given]);
            assert_eq!(a.asc(), CUT, "{cdb:x?}: {given} of {whole} bytes");
        }
    }
    // FORMAT UNIT has a list without a length: its header must be there.
    for given in 0..4 {
        let a = w.run(&h, 0, &[4, 0x10, 0, 0, 0, 0], 0, &vec![0; given]);
        let over = Residual::Over(4 - given as u32);
        assert_eq!((a.asc(), a.residual), (CUT, over), "FORMAT UNIT: {given} bytes");
    }
    assert_eq!(disk.state().bytes[..4096], [7; 4096]);
}

#[test]
fn commands_that_are_all_or_nothing_refuse_a_part_of_their_data() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = &w.disks[0].1;
    disk.state().bytes[..4096].fill(7);
    let sixteen = |op: u8, bits: u8, at: usize, n: u8| {
        let mut cdb = cdb16(op, 0, 0);
        (cdb[1], cdb[at]) = (bits, n);
        cdb.to_vec()
    };
    let all = [
        ("VERIFY(12)", vec![0xAF, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0], 1024, CUT),
        ("VERIFY(16)", sixteen(0x8F, 2, 13, 2), 1024, CUT),
        ("WRITE SAME(10)", vec![0x41, 0, 0, 0, 0, 0, 0, 0, 2, 0], 512, FIELD),
        ("WRITE SAME(16)", sixteen(0x93, 0, 13, 2), 512, FIELD),
        ("COMPARE AND WRITE", sixteen(0x89, 0, 13, 1), 1024, FIELD),
        ("WRITE ATOMIC(16)", sixteen(0x9C, 0, 13, 2), 1024, FIELD),
    ];
    for (name, cdb, whole, wanted) in all {
        for given in [0, 200, 511, whole - 1] {
            let a = w.run(&h, 0, &cdb, 0, &vec![7; given]);
            assert_eq!((a.status, a.asc()), (2, wanted), "{name}: {given} bytes");
        }
        w.run(&h, 0, &cdb, 0, &vec![7; whole]).good();
    }
    assert_eq!(disk.state().bytes[..4096], [7; 4096]);
}

#[test]
fn units_of_every_kind_refuse_writes_that_end_within_a_block() {
    let of = |handler: Option<&str>, block: usize| {
        let mut w = World::new(1);
        w.disk_of("d0", 64, block);
        let spec = OpenSpec { handler: handler.map(Into::into), ..OpenSpec::default() };
        open_device(&mut w.control, &w.registry, "d0", &spec).unwrap();
        w.map(&[(0, "d0", false)]);
        w
    };
    for (kind, w, block) in [
        ("blocks of 4096 bytes", of(None, 4096), 4096),
        ("type 1 protection", World::protected(1, 2048, 1), BLOCK),
        ("null", of(Some("null"), BLOCK), BLOCK),
    ] {
        let h = w.calm(0, "i1", &[0]);
        for given in [1, 200, block - 1, block + 1, 2 * block - 1] {
            let a = w.run(&h, 0, &write16(0, 2), 0, &vec![1; given]);
            assert_eq!((a.status, a.asc()), (2, CUT), "{kind}: {given} bytes");
        }
        let a = w.run(&h, 0, &write16(0, 2), 0, &vec![1; block]).good();
        assert_eq!(a.residual, Residual::Over(block as u32), "{kind}: a whole block");
    }
}
