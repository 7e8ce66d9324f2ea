//! WRITE ATOMIC: the guarantees of page B0h hold at a power cut at any instant, and larger writes
//! are refused.

use std::sync::Arc;

use bio::Op;
use engine::ProtectionSpec;
use engine::lun::{OpenSpec, open_device};
use reactor::SeededRandom;
use testkit::Seeds;
use wire::scsi::ProtectionType;

use crate::world::*;

const BLOCKS: u64 = 64;

/// Most requests between two cuts.
const STEPS: u64 = 40;

fn world_of(keeping: u64, sector: usize, spec: &OpenSpec) -> (World, Arc<TestDisk>) {
    let mut w = World::new(1);
    let disk = w.disk_keeping("d0", BLOCKS, sector, keeping);
    open_device(&mut w.control, &w.registry, "d0", spec).unwrap();
    w.map(&[(0, "d0", false)]);
    w.settle();
    for _ in 0..100 {
        w.turn();
    }
    (w, disk)
}

fn write_atomic(lba: u64, blocks: u16) -> [u8; 16] {
    let mut cdb = cdb16(0x9C, lba, 0);
    [cdb[12], cdb[13]] = blocks.to_be_bytes();
    cdb
}

/// MAXIMUM ATOMIC TRANSFER LENGTH, ATOMIC ALIGNMENT, ATOMIC TRANSFER LENGTH GRANULARITY and the two
/// of boundaries.
fn reported_limits(w: &World, h: &Host) -> [u32; 5] {
    let page = w.run(h, 0, &[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).good().data;
    let field = |i: usize| u32::from_be_bytes(page[44 + 4 * i..][..4].try_into().unwrap());
    [field(0), field(1), field(2), field(3), field(4)]
}

/// REPORT SUPPORTED OPERATION CODES has it.
fn is_served(w: &World, h: &Host) -> bool {
    let cdb = [0xA3, 0x0C, 1, 0x9C, 0, 0, 0, 0, 0, 64, 0, 0];
    w.run(h, 0, &cdb, 64, &[]).good().data[1] & 7 == 3
}

#[test]
fn atomic_write_limits_are_derived_from_the_disk() {
    let plain = OpenSpec::default();
    let kind = ProtectionSpec::Type(ProtectionType::One);
    let protected = OpenSpec { protection: kind, ..OpenSpec::default() };
    for (keeping, sector, spec, most, alignment) in [
        (4096, 512, &plain, 8, 8),
        (512, 512, &plain, 1, 0),
        (4096, 4096, &plain, 1, 0),
        (u64::MAX, 512, &plain, 8192, 0),
        // Not a block, nothing known, nothing sensible.
        (512, 4096, &plain, 0, 0),
        (0, 512, &plain, 0, 0),
        (1000, 512, &plain, 0, 0),
        // Tuples are elsewhere.
        (4096, 512, &protected, 0, 0),
    ] {
        let (w, _) = world_of(keeping, sector, spec);
        let h = w.calm(0, "i1", &[0]);
        let limits = reported_limits(&w, &h);
        if most == 8192 {
            assert!((256..=8192).contains(&limits[0]) && limits[1..] == [0; 4], "{limits:?}");
            continue;
        }
        assert_eq!(limits, [most, alignment, 0, 0, 0], "{keeping} bytes of {sector}");
        assert_eq!(is_served(&w, &h), most > 0);
        let one = w.run(&h, 0, &write_atomic(0, 1), 0, &vec![1; sector]);
        match most {
            0 => assert_eq!(one.asc(), (5, 0x20, 0)),
            _ => assert_eq!(one.status, 0),
        }
        let long = w.run(&h, 0, &write_atomic(0, most as u16 + 1), 0, &[]);
        assert_eq!(long.asc(), (5, if most > 0 { 0x24 } else { 0x20 }, 0));
    }
    // Beyond the end is first, then where it begins and how long it is.
    let (w, _) = world_of(4096, 512, &plain);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &write_atomic(BLOCKS - 1, 9), 0, &[]).asc(), (5, 0x21, 0));
    assert_eq!(w.run(&h, 0, &write_atomic(4, 1), 0, &[]).asc(), (5, 0x24, 0));
    let mut bounded = write_atomic(0, 2);
    bounded[11] = 1;
    assert_eq!(w.run(&h, 0, &bounded, 0, &[]).asc(), (5, 0x24, 0));
    assert_eq!(w.run(&h, 0, &write_atomic(4, 0), 0, &[]).asc(), (5, 0x24, 0));
    w.run(&h, 0, &write_atomic(BLOCKS - 8, 8), 0, &[7; 4096]).good();
}

/// Contents after a power cut: every piece that the disk keeps whole is as last made durable, or as
/// some later request left it, independently of the others.
fn after_cut(disk: &TestDisk, whole: usize, random: &mut SeededRandom) -> Vec<u8> {
    let s = disk.state();
    let from = s.log.iter().rposition(|d| d.op == Op::Flush).map_or(0, |at| at + 1);
    let writes: Vec<_> = s.log[from..].iter().filter(|d| d.op == Op::Write).collect();
    let mut image = s.durable.clone();
    for at in (0..BLOCKS as usize * 512).step_by(whole) {
        let arrived = random.below(writes.len() as u64 + 1) as usize;
        for (i, done) in writes.iter().enumerate() {
            let start = (done.offset as usize).max(at);
            let end = ((done.offset + done.length) as usize).min(at + whole);
            if start < end && (i < arrived || done.fua) {
                let data = &done.data[start - done.offset as usize..end - done.offset as usize];
                image[start..end].copy_from_slice(data);
            }
        }
    }
    image
}

/// Atomic writes of the full reported length and overlapping plain writes, some made durable; then
/// the power fails. Of an atomic write all blocks are stored, or none. Stamps identify the writes,
/// and those of a later write replace earlier ones.
#[test]
fn a_power_cut_leaves_all_of_an_atomic_write_or_nothing() {
    let (mut torn, mut written, mut missing) = (0, 0, 0);
    for seed in Seeds::of(40) {
        let mut random = SeededRandom::new(seed);
        let whole = [512, 1024, 4096, 8192][random.below(4) as usize];
        let (w, disk) = world_of(whole as u64, 512, &OpenSpec::default());
        let h = w.calm(0, "i1", &[0]);
        let [most, alignment, ..] = reported_limits(&w, &h);
        // First block, blocks, atomic; the index is the stamp less one.
        let mut writes: Vec<(u64, u64, bool)> = Vec::new();
        for _ in 0..random.below(STEPS) + 1 {
            let is_atomic = random.below(3) > 0;
            let (lba, blocks) = if is_atomic {
                let step = u64::from(alignment.max(1));
                (random.below(BLOCKS / step) * step, 1 + random.below(u64::from(most)))
            } else {
                let lba = random.below(BLOCKS - 20);
                (lba, 1 + random.below(20))
            };
            writes.push((lba, blocks, is_atomic));
            let data = vec![writes.len() as u8; blocks as usize * 512];
            let mut cdb = if is_atomic {
                write_atomic(lba, blocks as u16)
            } else {
                write16(lba, blocks as u32)
            };
            cdb[1] = if random.below(8) == 0 { 8 } else { 0 };
            w.run(&h, 0, &cdb, 0, &data).good();
            if random.below(12) == 0 {
                w.run(&h, 0, &cdb16(0x91, 0, 0), 0, &[]).good();
            }
        }
        let image = after_cut(&disk, whole, &mut random);
        for (i, (lba, blocks, is_atomic)) in writes.iter().enumerate() {
            let stamp = i as u8 + 1;
            let found: Vec<u8> = (*lba..lba + blocks)
                .flat_map(|b| image[b as usize * 512..][..512].to_vec())
                .collect();
            // A later write may have hidden a part, so only older stamps count as missing blocks.
            let has = found.contains(&stamp);
            let older = found.iter().any(|at| *at < stamp);
            match (has && older, *is_atomic) {
                (true, true) => panic!("seed {seed}: write {stamp} at {lba}, {blocks} is torn"),
                (true, false) => torn += 1,
                (false, true) if has => written += 1,
                (false, true) => missing += 1,
                (false, false) => {}
            }
        }
        w.check_empty();
    }
    assert!(torn > 10 && written > 10 && missing > 10, "{torn} {written} {missing}");
}
