//! Protection information: tuples beside the data, checked for every initiator, and correct after a
//! power cut at any instant.

use std::sync::Arc;

use bio::Op;
use engine::lun::{OpenSpec, open_device};
use reactor::SeededRandom;
use testkit::Seeds;

use crate::tuples::*;
use crate::world::*;

/// Blocks of a small provider, and the blocks that are left for data.
const SMALL: u64 = 1000;
const SMALL_LEFT: u64 = 975;

/// A unit of a type over the contents of a disk, or over a blank one.
fn world_of(seed: u64, blocks: u64, kind: u8, image: Option<Vec<u8>>) -> (World, Arc<TestDisk>) {
    let mut w = World::new(seed);
    let disk = w.disk("d0", blocks);
    if let Some(image) = image {
        let mut s = disk.state();
        s.durable.copy_from_slice(&image);
        s.bytes = image;
    }
    open_device(&mut w.control, &w.registry, "d0", &spec(kind)).unwrap();
    w.map(&[(0, "d0", false)]);
    w.settle();
    for _ in 0..200 {
        w.turn();
    }
    (w, disk)
}

fn capacity(w: &World, h: &Host) -> (u64, u8) {
    let mut cdb = cdb16(0x9E, 0, 32);
    cdb[1] = 0x10;
    let data = w.run(h, 0, &cdb, 32, &[]).good().data;
    (u64::from_be_bytes(data[..8].try_into().unwrap()) + 1, data[12])
}

#[test]
fn protection_type_is_reported_in_capacity_and_inquiry_pages() {
    for (kind, byte) in [(0, 0), (1, 1), (2, 3), (3, 5)] {
        let (w, _) = world_of(1, SMALL, kind, None);
        let h = w.calm(0, "i1", &[0]);
        assert_eq!(capacity(&w, &h), (SMALL_LEFT, byte));
        let standard = w.run(&h, 0, &[0x12, 0, 0, 0, 96, 0], 96, &[]).good().data;
        assert_eq!(standard[5] & 1, 1);
        let extended = w.run(&h, 0, &[0x12, 1, 0x86, 0, 64, 0], 64, &[]).good().data;
        assert_eq!(extended[4] & 0x3F, 0x3F);
        let control = w.run(&h, 0, &[0x1A, 8, 0x0A, 0, 64, 0], 64, &[]).good().data;
        assert_eq!(control[4 + 5] & 0x80, 0x80);
        // No command reaches the tail.
        assert_eq!(w.run(&h, 0, &read16(SMALL_LEFT, 1), 512, &[]).asc(), (5, 0x21, 0));
        assert_eq!(w.run(&h, 0, &write16(SMALL_LEFT - 1, 2), 0, &[0; 1024]).asc(), (5, 0x21, 0));
    }
}

#[test]
fn type_one_checks_guards_and_reference_tags_of_reads_and_writes() {
    let (w, disk) = world_of(1, SMALL, 1, None);
    let h = w.calm(0, "i1", &[0]);
    let blocks = [[1; 512], [2; 512], [3; 512]];
    // Nothing was written: nothing is checked.
    let empty = w.run(&h, 0, &with_protect(read16(9, 1), 1), 520, &[]).good().data;
    assert_eq!((&empty[..512], &empty[512..]), (&[0; 512][..], &[0xFF; 8][..]));
    let good = woven(&blocks, 0xABCD, 10);
    w.run(&h, 0, &with_protect(write16(10, 3), 1), 0, &good).good();
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 3), 1), 1560, &[]).good().data, good);
    assert_eq!(w.run(&h, 0, &read16(11, 1), 512, &[]).good().data, [2; 512]);
    // Wrong tuples are refused with their position, and no block of the command is written.
    let mut bad = woven(&[[7; 512]; 3], 0, 10);
    bad[520 + 100] ^= 1;
    for (field, end) in [(1, GUARD), (4, GUARD), (5, GUARD)] {
        let answer = w.run(&h, 0, &with_protect(write16(10, 3), field), 0, &bad);
        assert_eq!((answer.asc(), answer.sense().information), (end, Some(11)));
    }
    let shifted = woven(&[[7; 512]; 3], 0, 11);
    let answer = w.run(&h, 0, &with_protect(write16(10, 3), 2), 0, &shifted);
    assert_eq!((answer.asc(), answer.sense().information), (REFERENCE, Some(10)));
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 3), 1), 1560, &[]).good().data, good);
    assert_eq!(w.run(&h, 0, &with_protect(write16(10, 3), 6), 0, &bad).asc(), (5, 0x24, 0));
    // Field 3 checks nothing: the next read finds the wrong tuple that it stored.
    w.run(&h, 0, &with_protect(write16(10, 3), 3), 0, &bad).good();
    let answer = w.run(&h, 0, &read16(10, 3), 1536, &[]);
    assert_eq!((answer.asc(), answer.sense().information), (GUARD, Some(11)));
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 3), 3), 1560, &[]).good().data, bad);
    // Without tuples on the wire there are some all the same.
    w.run(&h, 0, &write16(10, 3), 0, &[9; 1536]).good();
    let data = w.run(&h, 0, &with_protect(read16(10, 3), 1), 1560, &[]).good().data;
    assert_eq!(data, woven(&[[9; 512]; 3], 0, 10));
    // Corrupt data on the disk are detected by every read.
    disk.state().bytes[11 * 512 + 5] ^= 4;
    for cdb in [read16(10, 3), cdb16(0x8F, 10, 3), with_protect(cdb16(0x8F, 10, 3), 1)] {
        let answer = w.run(&h, 0, &cdb, 1536, &[]);
        assert_eq!((answer.asc(), answer.sense().information), (GUARD, Some(11)), "{cdb:?}");
    }
    let mut compare = cdb16(0x89, 11, 0);
    compare[13] = 1;
    assert_eq!(w.run(&h, 0, &compare, 0, &[9; 1024]).asc(), GUARD);
    assert_eq!(w.run(&h, 0, &cdb16(0x8B, 11, 1), 0, &[9; 512]).asc(), GUARD);
    // DPICZ: reads without a requested check are not checked.
    let mut list = vec![0, 0, 0, 0, 0x0A, 10, 0x02, 0x10, 0, 0x80, 0, 0, 0, 0, 0, 0];
    list[4 + 2] |= 0x08;
    w.run(&h, 0, &[0x15, 0x10, 0, 0, 16, 0], 0, &list).good();
    w.run(&h, 0, &read16(10, 3), 1536, &[]).good();
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 3), 1), 1560, &[]).asc(), GUARD);
    w.check_empty();
}

#[test]
fn every_writing_command_stores_correct_tuples() {
    let (w, _) = world_of(1, SMALL, 1, None);
    let h = w.calm(0, "i1", &[0]);
    let check = |lba: u64, data: [u8; 512], what: &str| {
        let read = w.run(&h, 0, &with_protect(read16(lba, 1), 1), 520, &[]).good().data;
        assert_eq!(read, woven(&[data], 0, lba as u32), "{what}");
    };
    w.run(&h, 0, &write16(60, 9), 0, &[1; 9 * 512]).good();
    let mut compare = cdb16(0x89, 63, 0);
    compare[13] = 2;
    w.run(&h, 0, &compare, 0, &[[1; 1024], [2; 1024]].concat()).good();
    check(64, [2; 512], "COMPARE AND WRITE over a block of tuples");
    w.run(&h, 0, &cdb16(0x8B, 62, 3), 0, &[4; 1536]).good();
    check(63, [6; 512], "ORWRITE");
    w.run(&h, 0, &cdb16(0x93, 61, 4), 0, &[8; 512]).good();
    check(64, [8; 512], "WRITE SAME");
    w.run(&h, 0, &cdb16(0x93, 61, 2), 0, &[0; 512]).good();
    check(62, [0; 512], "WRITE SAME of zeroes");
    w.run(&h, 0, &cdb16(0x8E, 66, 1), 0, &[5; 512]).good();
    check(66, [5; 512], "WRITE AND VERIFY");
    check(60, [1; 512], "neighbour");
    check(67, [1; 512], "neighbour");
    // One tuple for all blocks.
    let one = woven(&[[3; 512]], 0x77, 700);
    w.run(&h, 0, &with_protect(cdb16(0x93, 700, 3), 1), 0, &one).good();
    let data = w.run(&h, 0, &with_protect(read16(700, 3), 1), 1560, &[]).good().data;
    assert_eq!(data, woven(&[[3; 512]; 3], 0x77, 700));
    // WRITE ATOMIC with tuples, and with wrong ones.
    let atomic = |lba: u64| {
        let mut cdb = with_protect(cdb16(0x9C, lba, 0), 1);
        cdb[13] = 2;
        cdb
    };
    let two = woven(&[[6; 512]; 2], 0x66, 720);
    w.run(&h, 0, &atomic(720), 0, &two).good();
    assert_eq!(w.run(&h, 0, &with_protect(read16(720, 2), 1), 1040, &[]).good().data, two);
    assert_eq!(w.run(&h, 0, &atomic(721), 0, &two).asc(), REFERENCE);
    assert_eq!(w.run(&h, 0, &with_protect(read16(720, 2), 1), 1040, &[]).good().data, two);
    // VERIFY with data and tuples; WRITE AND VERIFY with tuples.
    let mut verify = with_protect(cdb16(0x8F, 700, 3), 1);
    verify[1] |= 2;
    w.run(&h, 0, &verify, 0, &woven(&[[3; 512]; 3], 0x77, 700)).good();
    let other = woven(&[[3; 512], [4; 512], [3; 512]], 0x77, 700);
    assert_eq!(w.run(&h, 0, &verify, 0, &other).asc(), (0xE, 0x1D, 0));
    let mut both = with_protect(cdb16(0x8E, 700, 3), 1);
    both[1] |= 2;
    w.run(&h, 0, &both, 0, &other).good();
    let data = w.run(&h, 0, &with_protect(read16(700, 3), 1), 1560, &[]).good().data;
    assert_eq!(data, other);
    // Freed blocks are not checked.
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(701u64.to_be_bytes());
    list.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    w.run(&h, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list).good();
    let data = w.run(&h, 0, &with_protect(read16(701, 1), 1), 520, &[]).good().data;
    assert_eq!(data[512..], [0xFF; 8]);
    w.check_empty();
}

#[test]
fn type_two_checks_the_expected_tags_of_the_cdb() {
    let (w, _) = world_of(1, SMALL, 2, None);
    let h = w.calm(0, "i1", &[0]);
    let data = woven(&[[1; 512], [2; 512]], 0x1234, 5000);
    // Only 32-byte commands move tuples.
    let short = w.run(&h, 0, &with_protect(write16(10, 2), 1), 0, &data);
    assert_eq!(short.asc(), (5, 0x20, 0));
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 2), 1), 1040, &[]).asc(), (5, 0x20, 0));
    let run = |action: u8, field: u8, tags, data: &[u8]| {
        let expect = if action == 9 { 1040 } else { 0 };
        w.run(&h, 0, &cdb32(action, 10, 2, field, tags), expect, data)
    };
    let right = (5000, 0x1234, 0xFFFF);
    run(0x0B, 1, right, &data).good();
    assert_eq!(run(9, 1, right, &[]).good().data, data);
    assert_eq!(run(9, 1, (5001, 0x1234, 0xFFFF), &[]).asc(), REFERENCE);
    let answer = run(9, 1, (5000, 0x1235, 0xFFFF), &[]);
    assert_eq!((answer.asc(), answer.sense().information), (APP, Some(10)));
    run(9, 1, (5000, 0x12FF, 0xFF00), &[]).good();
    run(9, 4, (0, 0, 0xFFFF), &[]).good();
    assert_eq!(run(0x0B, 1, (4999, 0x1234, 0xFFFF), &data).asc(), REFERENCE);
    assert_eq!(run(0x0B, 2, (5000, 0x1233, 0xFFFF), &data).asc(), APP);
    // An initiator that does not know the tags reads with a check of the guard.
    assert_eq!(w.run(&h, 0, &read16(11, 1), 512, &[]).good().data, [2; 512]);
    // FFFFh as application tag turns the checks of the medium off.
    let escape = woven(&[[7; 512], [8; 512]], 0xFFFF, 1);
    run(0x0B, 3, right, &escape).good();
    run(9, 1, right, &[]).good();
}

#[test]
fn type_three_leaves_reference_tags_to_the_initiator() {
    let (w, disk) = world_of(1, SMALL, 3, None);
    let h = w.calm(0, "i1", &[0]);
    let data = woven(&[[1; 512], [2; 512]], 0xFFFF, 0xDEAD_BEEF);
    w.run(&h, 0, &with_protect(write16(10, 2), 1), 0, &data).good();
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 2), 1), 1040, &[]).good().data, data);
    // The application tag alone is no escape here.
    disk.state().bytes[10 * 512] ^= 1;
    assert_eq!(w.run(&h, 0, &read16(10, 2), 1024, &[]).asc(), GUARD);
    w.run(&h, 0, &write16(10, 2), 0, &[6; 1024]).good();
    let data = w.run(&h, 0, &with_protect(read16(10, 1), 1), 520, &[]).good().data;
    assert_eq!(data[512..], tuple(&[6; 512], 0, 0xFFFF_FFFF));
}

#[test]
fn format_unit_sets_the_type_and_a_restart_keeps_it() {
    let (w, disk) = world_of(1, SMALL, 0, None);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(10, 1), 0, &[1; 512]).good();
    let refused = w.run(&h, 0, &with_protect(write16(10, 1), 1), 0, &[1; 520]);
    assert_eq!(refused.asc(), (5, 0x24, 0));
    for (info, usage, byte) in [(0x80, 0, 1), (0xC0, 0, 3), (0xC0, 1, 5), (0, 0, 0), (0x80, 0, 1)] {
        let cdb = [4, info | 0x10, 0, 0, 0, 0];
        w.run(&h, 0, &cdb, 0, &[usage, 0, 0, 0]).good();
        assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 9));
        assert_eq!(capacity(&w, &h), (SMALL_LEFT, byte));
        assert_eq!(w.run(&h, 0, &read16(10, 1), 512, &[]).good().data, [0; 512]);
    }
    let data = woven(&[[5; 512]], 3, 10);
    w.run(&h, 0, &with_protect(write16(10, 1), 1), 0, &data).good();
    let image = disk.state().bytes.clone();
    drop(w);
    let (w, disk) = world_of(2, SMALL, 0, Some(image));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(capacity(&w, &h), (SMALL_LEFT, 1));
    assert_eq!(w.run(&h, 0, &with_protect(read16(10, 1), 1), 520, &[]).good().data, data);
    // A SANITIZE keeps the type, and its pattern is not checked.
    w.run(&h, 0, &[0x48, 1, 0, 0, 0, 0, 0, 0, 5, 0], 0, &[1, 0, 0, 1, 0xAA]).good();
    assert_eq!(w.run(&h, 0, &read16(10, 1), 512, &[]).good().data, [0xAA; 512]);
    assert_eq!(capacity(&w, &h).1, 1);
    // A damaged header is not taken for no header.
    let mut image = disk.state().bytes.clone();
    drop(w);
    image[(SMALL as usize - 1) * 512 + 20] ^= 1;
    let (w, _) = world_of(3, SMALL, 1, Some(image));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (3, 0x31, 0));
    w.run(&h, 0, &[4, 0x90, 0, 0, 0, 0], 0, &[0; 4]).good();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 9));
    assert_eq!(capacity(&w, &h), (SMALL_LEFT, 1));
}

#[test]
fn existing_data_stays_readable_and_small_providers_are_refused() {
    let image = vec![0x5A; 2 * SMALL as usize * 512];
    let (w, _) = world_of(1, SMALL, 1, Some(image));
    let h = w.calm(0, "i1", &[0]);
    let data = w.run(&h, 0, &with_protect(read16(SMALL_LEFT - 1, 1), 1), 520, &[]).good().data;
    assert_eq!((data[0], &data[512..]), (0x5A, &[0xFF; 8][..]));
    let w = World::simple(1, SMALL);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(capacity(&w, &h), (SMALL, 0));
    assert_eq!(w.run(&h, 0, &[4, 0x90, 0, 0, 0, 0], 0, &[0; 4]).asc(), (5, 0x24, 0));
    let mut w = World::new(1);
    w.disk("tiny", 9);
    assert!(open_device(&mut w.control, &w.registry, "tiny", &spec(1)).is_err());
    w.disk("d1", SMALL);
    let only = OpenSpec { read_only: true, ..spec(1) };
    assert!(open_device(&mut w.control, &w.registry, "d1", &only).is_err());
}

#[test]
fn blocks_of_a_failed_write_are_readable_after_a_restart() {
    let (w, disk) = world_of(1, SMALL, 1, None);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(10, 2), 0, &[1; 1024]).good();
    // The tuples' block cannot be written, then it can.
    disk.state().fail = Some((SMALL_LEFT * 512, bio::Errno::Io));
    let answer = w.run(&h, 0, &write16(10, 2), 0, &[2; 1024]);
    assert_ne!(answer.status, 0);
    disk.state().fail = None;
    let image = disk.state().bytes.clone();
    drop(w);
    let (w, _) = world_of(2, SMALL, 1, Some(image));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &read16(10, 2), 1024, &[]).good().data, [2; 1024]);
}

/// Six regions of 1 MiB, of which four may be marked at rest, and the blocks of them that the model
/// writes.
const LARGE: u64 = 6 * 2048 + 300;
const HOT: u64 = 5;

fn hot(random: &mut SeededRandom) -> u64 {
    random.below(6) * 2048 + 62 + random.below(HOT)
}

/// A block of one stamp.
fn stamped(stamp: u32) -> Vec<u8> {
    if stamp == 0 { vec![0; 512] } else { stamp.to_be_bytes().repeat(128) }
}

/// Contents after a power cut: each sector as last made durable, or as any later write left it.
fn after_cut(disk: &TestDisk, random: &mut SeededRandom) -> Vec<u8> {
    let s = disk.state();
    let from = s.log.iter().rposition(|d| d.op == Op::Flush).map_or(0, |at| at + 1);
    let mut image = s.durable.clone();
    let mut since: std::collections::BTreeMap<u64, Vec<Vec<u8>>> = Default::default();
    for done in s.log[from..].iter().filter(|d| d.op.needs_write()) {
        for i in 0..done.length / 512 {
            let bytes = match done.op {
                Op::Write => done.data[i as usize * 512..][..512].to_vec(),
                _ => vec![0; 512],
            };
            let versions = since.entry(done.offset / 512 + i).or_default();
            if done.fua {
                versions.clear();
            }
            versions.push(bytes);
        }
    }
    for (sector, versions) in since {
        // The base counts as one; a FUA write is in `durable` already.
        let pick = random.below(versions.len() as u64 + 1) as usize;
        if let Some(bytes) = versions.get(pick) {
            image[sector as usize * 512..][..512].copy_from_slice(bytes);
        }
    }
    image
}

/// Two initiators on two cores write, zero and unmap blocks that share tuples' blocks, in more
/// regions than may be marked, over a disk that answers in any order; then the power fails.
/// D1 of protection/mod.rs.
#[test]
fn every_block_is_readable_and_current_after_a_power_cut() {
    let (mut cleaned, mut torn) = (0, 0);
    for seed in Seeds::of(3) {
        let mut random = SeededRandom::new(seed);
        let mut allowed: std::collections::BTreeMap<u64, Vec<u32>> = Default::default();
        let (mut image, mut stamp) = (None, 0u32);
        for round in 0..3 {
            let (w, disk) = world_of(seed * 7 + round, LARGE, 1, image.take());
            let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0])];
            check_all(&w, &hosts[0], &mut allowed, seed);
            let (maps, map_at) = (disk.state().log.len(), map_offset());
            disk.state().hold = true;
            let mut flying: Vec<(usize, u32, bool)> = Vec::new();
            let cut_at = 100 + random.below(200);
            for step in 0..cut_at {
                let who = random.below(2) as usize;
                if flying.len() < 6 {
                    let lba = hot(&mut random);
                    let blocks = (1 + random.below(3)).min(HOT);
                    stamp += 1;
                    let act = random.below(10);
                    let put = if act == 8 || act == 9 { 0 } else { stamp };
                    if act > 3 {
                        for b in lba..lba + blocks {
                            allowed.entry(b).or_insert_with(|| vec![0]).push(put);
                        }
                    }
                    let h = &hosts[who];
                    let tag = match act {
                        0..=3 => h.send(0, &read16(lba, blocks as u32), 512 * blocks as u32, &[]),
                        4..=7 => {
                            let mut cdb = write16(lba, blocks as u32);
                            cdb[1] = if random.below(4) == 0 { 8 } else { 0 };
                            h.send(0, &cdb, 0, &stamped(stamp).repeat(blocks as usize))
                        }
                        8 => h.send(0, &cdb16(0x93, lba, blocks as u32), 0, &[0; 512]),
                        _ => {
                            let mut cdb = cdb16(0x93, lba, blocks as u32);
                            cdb[1] = 8;
                            h.send(0, &cdb, 0, &[0; 512])
                        }
                    };
                    flying.push((who, tag, act > 3));
                }
                w.turn();
                let held = disk.state().held.len() as u64;
                if held > 0 {
                    w.release(&disk, random.below(held) as usize);
                }
                flying.retain(|(who, tag, _)| match hosts[*who].answer(*tag) {
                    Some(answer) => {
                        answer.good();
                        false
                    }
                    None => true,
                });
                if step % 97 == 96 {
                    // All commands end and are made durable, so the present contents must persist.
                    w.release_all(&disk);
                    for (who, tag, _) in flying.drain(..) {
                        w.answer(&hosts[who], tag).good();
                    }
                    w.run(&hosts[0], 0, &cdb16(0x91, 0, 0), 0, &[]).good();
                    check_all(&w, &hosts[0], &mut allowed, seed);
                    disk.state().hold = true;
                }
            }
            let s = disk.state();
            let written = |d: &&Done| d.op == Op::Write && d.offset == map_at;
            cleaned += s.log[maps..].iter().filter(written).count();
            drop(s);
            let cut = after_cut(&disk, &mut random);
            torn += allowed.keys().filter(|lba| is_torn(&cut, **lba as usize)).count();
            image = Some(cut);
        }
        let (w, disk) = world_of(seed, LARGE, 1, image);
        let h = w.calm(0, "i1", &[0]);
        check_all(&w, &h, &mut allowed, seed);
        // Repairs are for marked regions: where none is marked, a wrong guard is an error at once
        // and after a restart.
        let lba = 62;
        w.run(&h, 0, &write16(lba, 1), 0, &[1; 512]).good();
        w.run(&h, 0, &cdb16(0x91, 0, 0), 0, &[]).good();
        let mut image = disk.state().bytes.clone();
        drop(w);
        image[lba as usize * 512] ^= 1;
        image[map_at_bytes()..][..4096].fill(0);
        let (w, _) = world_of(seed, LARGE, 1, Some(image));
        let h = w.calm(0, "i1", &[0]);
        assert_eq!(w.run(&h, 0, &read16(lba, 1), 512, &[]).asc(), GUARD);
    }
    assert!(cleaned > 20, "the map was written {cleaned} times only");
    assert!(torn > 10, "{torn} blocks were torn only");
}

/// A block and its tuple, stored inverted behind the data, do not fit.
fn is_torn(image: &[u8], lba: usize) -> bool {
    let at = (LARGE as usize - 1 - 8) * 64 / 65 * 512 + lba * 8;
    let (guard, app) = ([!image[at], !image[at + 1]], [!image[at + 2], !image[at + 3]]);
    app != [0xFF; 2] && guard != crc(&image[lba * 512..][..512]).to_be_bytes()
}

/// Where the map of a large unit is: behind its data and tuples.
fn map_offset() -> u64 {
    let blocks = (LARGE - 1 - 8) * 64 / 65;
    (blocks + blocks.div_ceil(64)) * 512
}

fn map_at_bytes() -> usize {
    map_offset() as usize
}

/// Every block that was ever written has one of its permitted stamps, and a guard that matches or a
/// tag that disables the checks. Its present content is the only permitted one from now on.
fn check_all(
    w: &World,
    h: &Host,
    allowed: &mut std::collections::BTreeMap<u64, Vec<u32>>,
    seed: u64,
) {
    for (lba, stamps) in allowed.iter_mut() {
        let answer = w.run(h, 0, &with_protect(read16(*lba, 1), 1), 520, &[]);
        assert_eq!(answer.status, 0, "seed {seed}: block {lba} {:?}", answer.asc());
        let (data, tuple) = answer.data.split_at(512);
        let found = u32::from_be_bytes(data[..4].try_into().unwrap());
        assert!(stamps.contains(&found), "seed {seed}: block {lba} has {found}, not {stamps:?}");
        assert_eq!(data, stamped(found), "seed {seed}: block {lba} is torn");
        let escape = tuple == [0xFF; 8];
        assert!(escape || tuple[..2] == crc(data).to_be_bytes(), "seed {seed}: block {lba}");
        *stamps = vec![found];
    }
}
