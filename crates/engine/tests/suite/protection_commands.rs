//! Commands other than READ and WRITE at units with protection information: those that move tuples
//! at each type, and the tuples after copies between units.

use std::sync::Arc;

use bio::Op;
use engine::lun::open_device;

use crate::lists::*;
use crate::tuples::*;
use crate::world::*;

const BLOCKS: u64 = 1000;

fn compare_cdb(lba: u64, blocks: u8, field: u8) -> [u8; 16] {
    let mut cdb = with_protect(cdb16(0x89, lba, 0), field);
    cdb[13] = blocks;
    cdb
}

fn read_woven(w: &World, h: &Host, lun: u64, lba: u64, blocks: u32) -> Vec<u8> {
    w.run(h, lun, &with_protect(read16(lba, blocks), 1), 520 * blocks, &[]).good().data
}

#[test]
fn compare_and_write_checks_the_tuples_of_both_halves() {
    for kind in [1, 3] {
        let w = World::protected(1, BLOCKS, kind);
        let h = w.calm(0, "i1", &[0]);
        let old = woven(&[[1; 512], [2; 512]], 0x10, 62);
        let new = woven(&[[3; 512], [4; 512]], 0x20, 62);
        w.run(&h, 0, &with_protect(write16(62, 2), 1), 0, &old).good();
        let run = |field: u8, halves: &[&[u8]]| {
            w.run(&h, 0, &compare_cdb(62, 2, field), 0, &halves.concat())
        };
        // A miscompare is reported with the position of the byte in the sent data.
        let other = woven(&[[1; 512], [9; 512]], 0x10, 62);
        let answer = run(1, &[&other, &new]);
        assert_eq!((answer.asc(), answer.sense().information), ((0xE, 0x1D, 0), Some(520)));
        // A wrong guard in either half.
        for half in 0..2 {
            let mut halves = [old.clone(), new.clone()];
            halves[half][520] ^= 1;
            let answer = run(1, &[&halves[0], &halves[1]]);
            assert_eq!((answer.asc(), answer.sense().information), (GUARD, Some(63)), "{half}");
        }
        // A reference tag of another block, in either half; for type 3 the expected tag is unknown.
        let (moved, wrong) =
            (woven(&[[3; 512], [4; 512]], 0, 63), (kind == 1).then_some(REFERENCE));
        assert_eq!(run(2, &[&old, &moved]).status != 0, wrong.is_some());
        w.run(&h, 0, &with_protect(write16(62, 2), 1), 0, &old).good();
        assert_eq!(read_woven(&w, &h, 0, 62, 2), old);
        if let Some(wrong) = wrong {
            let shifted = woven(&[[1; 512], [2; 512]], 0x10, 63);
            assert_eq!(run(1, &[&shifted, &new]).asc(), wrong);
        }
        // Only the data is compared: tuples of another application do.
        run(1, &[&woven(&[[1; 512], [2; 512]], 0x99, 62), &new]).good();
        assert_eq!(read_woven(&w, &h, 0, 62, 2), new);
        // Without tuples on the wire they are made; halves without theirs are too little.
        run(0, &[&[3; 512], &[4; 512], &[5; 1024]]).good();
        let expected = tuple(&[5; 512], 0, if kind == 1 { 62 } else { u32::MAX });
        assert_eq!(read_woven(&w, &h, 0, 62, 1)[512..], expected);
        let short = run(1, &[&[5; 1024], &[6; 1024]]);
        assert_ne!(short.status, 0);
        assert_eq!(w.run(&h, 0, &read16(62, 2), 1024, &[]).good().data, [5; 1024]);
        // Reserved values of the field.
        assert_eq!(run(6, &[&old, &new]).asc(), (5, 0x24, 0));
        w.check_empty();
    }
}

#[test]
fn orwrite_stores_the_received_tags_and_a_computed_guard() {
    let w = World::protected(1, BLOCKS, 1);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &with_protect(write16(10, 2), 1), 0, &woven(&[[0x10; 512]; 2], 1, 10)).good();
    let or =
        |field: u8, data: &[u8]| w.run(&h, 0, &with_protect(cdb16(0x8B, 10, 2), field), 0, data);
    or(1, &woven(&[[0x01; 512], [0x02; 512]], 0x77, 10)).good();
    let want = woven(&[[0x11; 512], [0x12; 512]], 0x77, 10);
    assert_eq!(read_woven(&w, &h, 0, 10, 2), want);
    // Wrong tuples are refused and change nothing.
    let mut bad = woven(&[[0x80; 512]; 2], 0, 10);
    bad[520] ^= 1;
    let answer = or(1, &bad);
    assert_eq!((answer.asc(), answer.sense().information), (GUARD, Some(11)));
    assert_eq!(or(5, &woven(&[[0x80; 512]; 2], 0, 11)).asc(), REFERENCE);
    assert_eq!(or(7, &bad).asc(), (5, 0x24, 0));
    assert_eq!(read_woven(&w, &h, 0, 10, 2), want);
    // Nothing is checked of field 3, but the guard of the result is right.
    or(3, &bad).good();
    let mut blocks = [[0x91; 512], [0x92; 512]];
    blocks[1][0] = 0x93;
    assert_eq!(read_woven(&w, &h, 0, 10, 2), woven(&blocks, 0, 10));
    w.check_empty();
}

/// SBC-3 4.22.2.4: short commands with a protection field that is not zero are no commands of type
/// 2, long ones of no other. With zero all of the short ones are.
#[test]
fn commands_not_defined_for_a_protection_type_are_refused() {
    let unknown = (5, 0x20, 0);
    for kind in 0..4u8 {
        let w =
            if kind == 0 { World::simple(1, BLOCKS) } else { World::protected(1, BLOCKS, kind) };
        let h = w.calm(0, "i1", &[0]);
        for action in 0x09..=0x0D {
            let answer = w.run(&h, 0, &cdb32(action, 0, 1, 0, (0, 0, 0)), 512, &[0; 512]);
            assert_eq!(answer.status == 0, kind == 2, "{action:x} of type {kind}");
            assert!(kind == 2 || answer.asc() == unknown);
        }
        // Opcode, place of the blocks' low byte, blocks in the data, out.
        let short: &[(u8, usize, usize)] = &[
            (0x28, 8, 0),
            (0xA8, 9, 0),
            (0x88, 13, 0),
            (0x2A, 8, 1),
            (0xAA, 9, 1),
            (0x8A, 13, 1),
            (0x2E, 8, 1),
            (0xAE, 9, 1),
            (0x8E, 13, 1),
            (0x2F, 8, 0),
            (0xAF, 9, 0),
            (0x8F, 13, 0),
            (0x41, 8, 1),
            (0x93, 13, 1),
            (0x8B, 13, 1),
            (0x89, 13, 2),
            (0x9C, 13, 1),
        ];
        for (opcode, at, blocks) in short {
            let len = match opcode >> 5 {
                1 | 2 => 10,
                5 => 12,
                _ => 16,
            };
            let mut cdb = vec![0; len];
            (cdb[0], cdb[*at]) = (*opcode, 1);
            w.run(&h, 0, &cdb, 512, &vec![0; 512 * blocks]).good();
            cdb[1] = 0x20;
            let both = woven(&[[0; 512]], 0, 0).repeat(*blocks);
            let answer = w.run(&h, 0, &cdb, 520, &both);
            match kind {
                0 => assert_eq!(answer.asc(), (5, 0x24, 0), "{opcode:x}"),
                2 => assert_eq!(answer.asc(), unknown, "{opcode:x}"),
                _ => assert_eq!(answer.status, 0, "{opcode:x} of type {kind}: {answer:?}"),
            }
        }
        w.check_empty();
    }
}

/// Units of some types at LUN 0, 1... of all initiators; 0 is one without protection.
fn units(kinds: &[u8]) -> (World, Vec<Arc<TestDisk>>) {
    let mut w = World::new(1);
    let names: Vec<String> = (0..kinds.len()).map(|i| format!("d{i}")).collect();
    let mut disks = Vec::new();
    for (name, kind) in names.iter().zip(kinds) {
        disks.push(w.disk(name, BLOCKS));
        match kind {
            0 => w.export(name),
            _ => drop(open_device(&mut w.control, &w.registry, name, &spec(*kind)).unwrap()),
        }
    }
    let luns: Vec<Lun<'_>> = (0..).zip(&names).map(|(i, n)| (i, n.as_str(), false)).collect();
    w.map(&luns);
    w.settle();
    (0..400).for_each(|_| w.turn());
    (w, disks)
}

fn slowly(w: &World, h: &Host, lun: u64, cdb: &[u8], data: &[u8]) -> CommandResult {
    let tag = h.send(lun, cdb, 0, data);
    (0..400).for_each(|_| w.turn());
    w.answer(h, tag)
}

fn xcopy(w: &World, h: &Host, to: u64, n: u16, from_lba: u64, to_lba: u64) -> CommandResult {
    let name = |lun: u64| {
        let page = w.run(h, lun, &[0x12, 1, 0x83, 1, 0, 0], 256, &[]).good();
        cscd(&naa_of(&page.data))
    };
    let names = [name(0), name(to)];
    let list = lid1(1, 0, &names, &[blocks(2, 0, (0, 1), n, from_lba, to_lba)]);
    slowly(w, h, 0, &out_cdb(0, 0, list.len()), &list)
}

fn odx(w: &World, h: &Host, to: u64, n: u32, from_lba: u64, to_lba: u64) -> CommandResult {
    let list = populate(false, 0, &[(from_lba, n)]);
    let answer = slowly(w, h, 0, &out_cdb(0x10, 1, list.len()), &list);
    if answer.status != 0 {
        return answer;
    }
    let token = w.run(h, 0, &in_cdb(7, 1), 4096, &[]).good().data[38..].to_vec();
    let list = write(0, 0, &token, &[(to_lba, n)]);
    slowly(w, h, to, &out_cdb(0x11, 2, list.len()), &list)
}

/// From each kind of unit to each other: the data is the source's, the tuples are the destination's
/// own. Of type 1 the reference tag is that of the block's new place.
#[test]
fn copies_check_source_tuples_and_create_destination_tuples() {
    for from in 0..4u8 {
        let (w, disks) = units(&[from, 0, 1, 2, 3]);
        let h = w.calm(0, "i1", &[0, 1, 2, 3, 4]);
        let data: Vec<[u8; 512]> = (0..100).map(|i| [i + 1; 512]).collect();
        match from {
            0 => w.run(&h, 0, &write16(30, 100), 0, &data.concat()).good(),
            2 => {
                let cdb = cdb32(0x0B, 30, 100, 1, (7000, 0x55, 0xFFFF));
                w.run(&h, 0, &cdb, 0, &woven(&data, 0x55, 7000)).good()
            }
            _ => {
                let sent = woven(&data, 0x55, 30);
                w.run(&h, 0, &with_protect(write16(30, 100), 1), 0, &sent).good()
            }
        };
        type Copy = fn(&World, &Host, u64, u16, u64) -> CommandResult;
        let by: [(&str, Copy); 2] = [
            ("EXTENDED COPY", |w, h, to, n, lba| xcopy(w, h, to, n, 30, lba)),
            ("ODX", |w, h, to, n, lba| odx(w, h, to, n.into(), 30, lba)),
        ];
        for (what, copy) in by {
            for to in 0..4u64 {
                let (lun, lba) = (to + 1, 401);
                let what = format!("{what} from type {from} to type {to}");
                let (reads, blank) = (disks[lun as usize].clone(), [0; 512]);
                w.run(&h, lun, &write16(lba - 1, 1), 0, &blank).good();
                copy(&w, &h, lun, 100, lba).good();
                let plain = w.run(&h, lun, &read16(lba, 100), 51200, &[]).good().data;
                assert_eq!(plain, data.concat(), "{what}");
                let sense = match to {
                    0 => continue,
                    2 => {
                        let cdb = cdb32(9, lba, 100, 1, (lba as u32, 0, 0xFFFF));
                        w.run(&h, lun, &cdb, 52000, &[]).good().data
                    }
                    _ => read_woven(&w, &h, lun, lba, 100),
                };
                let want = match to {
                    3 => {
                        let one = |b: &[u8; 512]| [b.to_vec(), tuple(b, 0, u32::MAX)].concat();
                        data.iter().flat_map(one).collect()
                    }
                    _ => woven(&data, 0, lba as u32),
                };
                assert_eq!(sense, want, "{what}");
                assert!(reads.state().log.iter().any(|d| d.op == Op::Write), "{what}");
            }
        }
        if from == 0 {
            continue;
        }
        // Data that the source's disk corrupted are not copied as good.
        disks[0].state().bytes[50 * 512 + 9] ^= 1;
        let spoilt = xcopy(&w, &h, 1, 100, 30, 600);
        assert_eq!(spoilt.asc().0, 0xA, "COPY ABORTED: {:?}", spoilt.asc());
        assert_ne!(odx(&w, &h, 1, 100, 30, 600).status, 0);
        let stored = w.run(&h, 1, &read16(620, 1), 512, &[]).good().data;
        assert_eq!(stored, [0; 512], "type {from}");
        w.check_empty();
    }
}

/// Within one unit, overlapping: every block gets the tag of its new place.
#[test]
fn a_copy_within_a_unit_sets_the_reference_tags_of_the_new_blocks() {
    let (w, _) = units(&[1]);
    let h = w.calm(0, "i1", &[0]);
    let data: Vec<[u8; 512]> = (0..90).map(|i| [i + 1; 512]).collect();
    w.run(&h, 0, &with_protect(write16(60, 90), 1), 0, &woven(&data, 5, 60)).good();
    xcopy(&w, &h, 0, 90, 60, 77).good();
    assert_eq!(read_woven(&w, &h, 0, 77, 90), woven(&data, 0, 77));
    assert_eq!(read_woven(&w, &h, 0, 60, 17), woven(&data[..17], 5, 60));
    odx(&w, &h, 0, 50, 77, 400).good();
    assert_eq!(read_woven(&w, &h, 0, 400, 50), woven(&data[..50], 0, 400));
    // Unwritten blocks have no tuples that are checked; their copy has.
    xcopy(&w, &h, 0, 1, 500, 600).good();
    assert_eq!(read_woven(&w, &h, 0, 500, 1)[512..], [0xFF; 8]);
    assert_eq!(read_woven(&w, &h, 0, 600, 1), woven(&[[0; 512]], 0, 600));
    w.check_empty();
}
