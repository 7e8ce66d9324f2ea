//! Commands that change a medium: exclusive access to their blocks, a truthful cache,
//! uninterruptible formats and sanitizing, trays, drives, and units without a medium.

use bio::Errno;
use engine::lun::{OpenSpec, open_device};
use engine::state_store::MemoryStore;
use engine::{MediumState, Residual, TmFunction};
use reactor::SeededRandom;
use testkit::Seeds;

use crate::world::*;

const COMPARE_WRITE: u8 = 0x89;
const ORWRITE: u8 = 0x8B;
const WRITE_ATOMIC: u8 = 0x9C;

/// A world whose unit is opened with the given spec.
fn world_of(seed: u64, blocks: u64, spec: &OpenSpec) -> World {
    let mut w = World::new(seed);
    w.disk("d0", blocks);
    open_device(&mut w.control, &w.registry, "d0", spec).unwrap();
    w.map(&[(0, "d0", false)]);
    w
}

/// COMPARE AND WRITE keeps its length in one byte.
fn compare_write(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = cdb16(COMPARE_WRITE, lba, 0);
    cdb[13] = blocks;
    cdb
}

fn write_atomic(lba: u64, blocks: u16) -> [u8; 16] {
    let mut cdb = cdb16(WRITE_ATOMIC, lba, 0);
    [cdb[12], cdb[13]] = blocks.to_be_bytes();
    cdb
}

fn start_stop(byte: u8) -> [u8; 6] {
    [0x1B, 0, 0, 0, byte, 0]
}

fn block(fill: u8) -> [u8; 512] {
    [fill; 512]
}

#[test]
fn a_miscompare_reports_its_offset_and_writes_nothing() {
    let w = World::simple(1, 2048);
    let h = w.calm(0, "i1", &[0]);
    let mut data = vec![0; 6 * 512];
    data[3 * 512..].fill(7);
    w.run(&h, 0, &compare_write(10, 3), 0, &data).good();
    assert_eq!(w.run(&h, 0, &read16(12, 1), 512, &[]).good().data, block(7));
    data[..3 * 512].fill(7);
    data[1000] = 8;
    let answer = w.run(&h, 0, &compare_write(10, 3), 0, &data);
    assert_eq!(answer.asc(), (0xE, 0x1D, 0));
    assert_eq!(answer.sense().information, Some(1000));
    // Both halves are wanted, neither more nor less; and no more blocks than page B0h allows.
    for len in [0, 512, 3 * 512, 5 * 512, 7 * 512] {
        assert_ne!(w.run(&h, 0, &compare_write(10, 3), 0, &vec![7; len]).status, 0, "{len}");
    }
    let limits = w.run(&h, 0, &[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).good().data;
    assert_eq!(limits[5], 255);
    let all = vec![0; 2 * 255 * 512];
    w.run(&h, 0, &compare_write(100, 255), 0, &all).good();
    w.run(&h, 0, &compare_write(2048, 0), 0, &[]).good();
    assert_eq!(w.run(&h, 0, &compare_write(2048, 1), 0, &vec![0; 1024]).asc(), (5, 0x21, 0));
}

/// Test 18: a counter that eight nexuses on two cores increment by COMPARE AND WRITE, under a disk
/// that answers late and in any order, while others write, zero and unmap beside it and over it.
#[test]
fn increments_by_compare_and_write_are_never_lost() {
    for seed in Seeds::of(24) {
        let w = World::simple(seed, 64);
        let mut random = SeededRandom::new(seed);
        let names: Vec<String> = (0..8).map(|i| format!("i{i}")).collect();
        let hosts: Vec<Host> =
            names.iter().enumerate().map(|(i, n)| w.calm(i % 2, n, &[0])).collect();
        let disk = w.disks[0].1.clone();
        disk.state().hold = true;
        let mut seen = [0u64; 8];
        let mut flying: Vec<Option<u32>> = vec![None; 8];
        let (mut done, mut others) = (0u64, Vec::new());
        for _ in 0..400 {
            let i = random.below(8) as usize;
            match flying[i] {
                None => {
                    let mut data = vec![0; 1024];
                    data[..8].copy_from_slice(&seen[i].to_be_bytes());
                    data[512..520].copy_from_slice(&(seen[i] + 1).to_be_bytes());
                    flying[i] = Some(hosts[i].send(0, &compare_write(5, 1), 0, &data));
                }
                Some(tag) => {
                    if let Some(answer) = hosts[i].answer(tag) {
                        flying[i] = None;
                        match answer.status {
                            0 => (done, seen[i]) = (done + 1, seen[i] + 1),
                            _ => {
                                assert_eq!(answer.asc(), (0xE, 0x1D, 0), "seed {seed}");
                                seen[i] += 1;
                            }
                        }
                        // No initiator may be ahead of the true value.
                        seen[i] = seen[i].min(done);
                    }
                }
            }
            if random.below(3) == 0 {
                // Beside it; ORWRITE of zeroes over it changes nothing, and is alone as well.
                let h = &hosts[random.below(8) as usize];
                let at = [0, 4, 6, 9][random.below(4) as usize];
                others.push(match random.below(3) {
                    0 => (h, h.send(0, &write16(at, 1), 0, &block(0xEE))),
                    1 => (h, h.send(0, &cdb16(0x93, at, 1), 0, &block(0))),
                    _ => (h, h.send(0, &cdb16(ORWRITE, 4, 3), 0, &[0; 3 * 512])),
                });
            }
            let held = disk.state().held.len() as u64;
            if held > 0 {
                w.release(&disk, random.below(held) as usize);
            }
            w.turn();
        }
        w.release_all(&disk);
        w.turn();
        for (i, tag) in flying.iter().enumerate() {
            done += u64::from(tag.is_some_and(|tag| w.answer(&hosts[i], tag).status == 0));
        }
        for (host, tag) in others {
            w.answer(host, tag).good();
        }
        let counter = disk.state().bytes[5 * 512..5 * 512 + 8].try_into().unwrap();
        assert_eq!(u64::from_be_bytes(counter), done, "seed {seed}");
        assert!(done > 5, "seed {seed}: {done}");
        w.check_empty();
    }
}

#[test]
fn orwrite_and_atomic_writes_enforce_their_limits() {
    let w = World::simple(1, 16384);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(7, 2), 0, &[0x50; 1024]).good();
    w.run(&h, 0, &cdb16(ORWRITE, 7, 2), 0, &[0x0A; 1024]).good();
    assert_eq!(w.run(&h, 0, &read16(7, 2), 1024, &[]).good().data, vec![0x5A; 1024]);
    let mut protected = cdb16(ORWRITE, 7, 2);
    protected[1] = 0x20;
    assert_eq!(w.run(&h, 0, &protected, 0, &[0; 1024]).asc(), (5, 0x24, 0));
    w.run(&h, 0, &write_atomic(7, 2), 0, &[3; 1024]).good();
    assert_eq!(w.disks[0].1.state().bytes[7 * 512..9 * 512], [3; 1024]);
    // A part of the data is not written at all.
    assert_ne!(w.run(&h, 0, &write_atomic(7, 2), 0, &[4; 512]).status, 0);
    assert_eq!(w.disks[0].1.state().bytes[7 * 512..9 * 512], [3; 1024]);
    let limits = w.run(&h, 0, &[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).good().data;
    let most = u32::from_be_bytes(limits[44..48].try_into().unwrap());
    assert!((256..16384).contains(&most) && limits[48..] == [0; 16], "{most}");
    let mut bounded = write_atomic(7, 2);
    bounded[11] = 1;
    assert_eq!(w.run(&h, 0, &bounded, 0, &[3; 1024]).asc(), (5, 0x24, 0));
    let long = write_atomic(0, most as u16 + 1);
    assert_eq!(w.run(&h, 0, &long, 0, &[3; 1024]).asc(), (5, 0x24, 0));
}

#[test]
fn lba_status_agrees_with_the_disk() {
    let w = World::simple(1, 1000);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(100, 2), 0, &[1; 1024]).good();
    let ask = |lba: u64, alloc: u32| {
        let mut cdb = cdb16(0x9E, lba, alloc);
        cdb[1] = 0x12;
        w.run(&h, 0, &cdb, alloc, &[])
    };
    let data = ask(0, 256).good().data;
    let runs: Vec<(u64, u32, u8)> = data[8..]
        .chunks(16)
        .map(|d| {
            let lba = u64::from_be_bytes(d[..8].try_into().unwrap());
            (lba, u32::from_be_bytes(d[8..12].try_into().unwrap()), d[12])
        })
        .collect();
    assert_eq!(runs, [(0, 100, 1), (100, 2, 0), (102, 898, 1)]);
    let one = ask(101, 24).good().data;
    assert_eq!((one.len(), one[15], one[19], one[20]), (24, 101, 1, 0));
    // The length field covers only the blocks that were examined, and a truncated answer is a
    // prefix.
    assert_eq!(ask(0, 12).good().data, data[..12].to_vec().tap(20));
    assert_eq!(ask(999, 24).good().data[19], 1);
    assert_eq!(ask(1000, 24).asc(), (5, 0x21, 0));
}

trait Tap {
    fn tap(self, len: u8) -> Self;
}

impl Tap for Vec<u8> {
    /// With another length of parameter data.
    fn tap(mut self, len: u8) -> Vec<u8> {
        self[3] = len;
        self
    }
}

/// Test 20: what GOOD promised survives a power cut.
#[test]
fn acknowledged_durable_writes_survive_a_power_cut() {
    for seed in Seeds::of(16) {
        let w = World::simple(seed, 64);
        let h = w.calm(0, "i1", &[0]);
        let disk = w.disks[0].1.clone();
        let mut random = SeededRandom::new(seed);
        // What may be on the medium after a power cut, by block: the promised stamp or a later one.
        let mut promised = [0u8; 64];
        let mut written = [0u8; 64];
        let mut cache = true;
        for stamp in 1..=200u8 {
            let lba = random.below(63);
            match random.below(8) {
                0..=3 => {
                    let fua = random.below(3) == 0;
                    let mut cdb = write16(lba, 1);
                    cdb[1] = if fua { 8 } else { 0 };
                    w.run(&h, 0, &cdb, 0, &block(stamp)).good();
                    written[lba as usize] = stamp;
                    if fua || !cache {
                        promised[lba as usize] = stamp;
                    }
                }
                4 => {
                    w.run(&h, 0, &cdb16(0x93, lba, 1), 0, &block(stamp)).good();
                    written[lba as usize] = stamp;
                    if !cache {
                        promised[lba as usize] = stamp;
                    }
                }
                5 => {
                    let mut data = vec![written[lba as usize]; 512];
                    data.extend(block(stamp));
                    let mut cdb = compare_write(lba, 1);
                    cdb[1] = 8;
                    w.run(&h, 0, &cdb, 0, &data).good();
                    (written[lba as usize], promised[lba as usize]) = (stamp, stamp);
                }
                6 => {
                    // A range, or IMMED: GOOD is returned when it is true for that as well.
                    let mut cdb = cdb16(0x91, 0, [0, 64][random.below(2) as usize]);
                    cdb[1] = [0, 2][random.below(2) as usize];
                    w.run(&h, 0, &cdb, 0, &[]).good();
                    promised = written;
                }
                _ => {
                    cache = !cache;
                    let (cdb, list) = caching_page(cache);
                    w.run(&h, 0, &cdb, 0, &list).good();
                    if !cache {
                        promised = written;
                    }
                }
            }
            let durable = disk.state().durable.clone();
            for (lba, stamp) in promised.iter().enumerate() {
                let found = durable[lba * 512];
                assert!(found >= *stamp, "seed {seed}: block {lba} has {found}, not {stamp}");
            }
        }
    }
}

fn sanitize(action: u8, len: u16) -> [u8; 10] {
    let [a, b] = len.to_be_bytes();
    [0x48, action, 0, 0, 0, 0, 0, a, b, 0]
}

/// One pass of one byte.
fn overwrite(fill: u8) -> Vec<u8> {
    vec![1, 0, 0, 1, fill]
}

const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;

#[test]
fn sanitize_is_refused_unless_the_unit_is_configured_for_it() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &sanitize(1, 5), 0, &overwrite(1)).asc(), (5, 0x20, 0));
    let w = world_of(1, 64, &OpenSpec { sanitize: true, ..OpenSpec::default() });
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &sanitize(4, 0), 0, &[]).asc(), (5, 0x24, 0), "no such action");
    assert_eq!(w.run(&h, 0, &sanitize(1, 4), 0, &[1, 0, 0, 0]).asc(), (5, 0x24, 0));
    let (cdb, list) = control_page(false, true, false);
    w.run(&h, 0, &cdb, 0, &list).good();
    assert_eq!(w.run(&h, 0, &sanitize(1, 5), 0, &overwrite(1)).asc(), (7, 0x27, 0));
}

/// U1.
/// U2 of disk/medium_operation.rs, U3 of disk/medium_operation.rs.
#[test]
fn a_sanitize_continues_through_resets_and_after_a_restart() {
    let store = MemoryStore::new();
    let spec = OpenSpec { sanitize: true, ..OpenSpec::default() };
    let begin = |seed| {
        let mut w = World::new(seed);
        w.registry.set_state_store(store.clone());
        let disk = w.disk("d0", 8192);
        disk.state().bytes.fill(0xD0);
        disk.state().hold = true;
        open_device(&mut w.control, &w.registry, "d0", &spec).unwrap();
        w.map(&[(0, "d0", false)]);
        w.settle();
        (w, disk)
    };
    let (mut w, disk) = begin(1);
    let (h1, h2) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let tag = h1.send(0, &sanitize(1, 5), 0, &overwrite(0xAA));
    w.settle();
    assert!(w.release(&disk, 0));
    let sense_of = |w: &World| {
        let data = w.run(&h2, 0, &[3, 0, 0, 0, 252, 0], 252, &[]).good().data;
        wire::scsi::Sense::decode(&data).unwrap()
    };
    let first = sense_of(&w).progress.unwrap();
    assert_eq!(w.run(&h2, 0, &TUR, 0, &[]).asc(), (2, 0x04, 0x1B));
    assert_eq!(w.run(&h2, 0, &read16(0, 1), 512, &[]).asc(), (2, 0x04, 0x1B));
    w.run(&h2, 0, &[0x12, 0, 0, 0, 96, 0], 96, &[]).good();
    assert!(w.release(&disk, 0));
    w.settle();
    assert!(sense_of(&w).progress.unwrap() > first);
    // The command is aborted, the work is not.
    let tm = h1.manage(TmFunction::LunReset, 0, None);
    w.pass(50_000_000);
    assert!(h1.outcome(tm).is_some() && h1.discarded(tag));
    assert_eq!(w.run(&h1, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    assert_eq!(w.run(&h1, 0, &TUR, 0, &[]).asc(), (2, 0x04, 0x1B));
    drop(w);
    // Another daemon continues with it before a host sees the unit.
    let (mut w, disk) = begin(2);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (2, 0x04, 0x1B));
    w.release_all(&disk);
    w.settle();
    w.run(&h, 0, &TUR, 0, &[]).good();
    assert!(disk.state().durable[..8192 * 512].iter().all(|b| *b == 0xAA));
    // It is over for good.
    drop(w);
    let (w, _) = begin(3);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &TUR, 0, &[]).good();
}

#[test]
fn a_failed_sanitize_blocks_reads_until_it_is_repeated_or_exited() {
    for ause in [false, true] {
        let mut w = world_of(1, 4096, &OpenSpec { sanitize: true, ..OpenSpec::default() });
        let h = w.calm(0, "i1", &[0]);
        let disk = w.disks[0].1.clone();
        disk.state().fail = Some((4000 * 512, Errno::Io));
        let bits = IMMED | if ause { AUSE } else { 0 };
        w.run(&h, 0, &sanitize(1 | bits, 5), 0, &overwrite(0xAA)).good();
        w.settle();
        assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), (3, 0x31, 3));
        disk.state().fail = None;
        let left = w.run(&h, 0, &sanitize(0x1F, 0), 0, &[]);
        if ause {
            left.good();
        } else {
            assert_eq!(left.asc(), (3, 0x31, 3));
            assert_eq!(w.run(&h, 0, &sanitize(1 | AUSE, 5), 0, &overwrite(1)).asc(), (5, 0x24, 0));
            w.run(&h, 0, &sanitize(2 | IMMED, 0), 0, &[]).good();
            w.settle();
            assert!(disk.state().durable[..4096 * 512].iter().all(|b| *b == 0));
        }
        w.run(&h, 0, &read16(0, 1), 512, &[]).good();
    }
}

#[test]
fn format_unit_zeroes_or_fills_and_refuses_unsupported_options() {
    let mut w = World::simple(1, 4096);
    let (h1, h2) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    w.run(&h1, 0, &write16(9, 1), 0, &block(1)).good();
    w.run(&h1, 0, &[4, 0, 0, 0, 0, 0], 0, &[]).good();
    assert!(disk.state().durable[..4096 * 512].iter().all(|b| *b == 0));
    // FMTDATA with an initialization pattern, and IMMED.
    disk.state().hold = true;
    let list = [0, 0x8A, 0, 0, 0, 1, 0, 2, 0xAB, 0xCD];
    w.run(&h1, 0, &[4, 0x10, 0, 0, 0, 0], 0, &list).good();
    w.settle();
    assert_eq!(w.run(&h2, 0, &TUR, 0, &[]).asc(), (2, 0x04, 0x04));
    w.release_all(&disk);
    w.settle();
    w.run(&h2, 0, &TUR, 0, &[]).good();
    assert_eq!(disk.state().durable[4095 * 512..4095 * 512 + 3], [0xAB, 0xCD, 0xAB]);
    // Defects, and protection without space for it.
    let defects = [0, 0, 0, 8];
    assert_eq!(w.run(&h1, 0, &[4, 0x10, 0, 0, 0, 0], 0, &defects).asc(), (5, 0x26, 0));
    assert_eq!(w.run(&h1, 0, &[4, 0x90, 0, 0, 0, 0], 0, &[0; 4]).asc(), (5, 0x24, 0));
}

#[test]
fn eject_obeys_prevention_and_a_new_medium_is_reported_to_others() {
    let mut w = world_of(1, 64, &OpenSpec { removable: true, ..OpenSpec::default() });
    let (h1, h2) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    w.run(&h2, 0, &[0x1E, 0, 0, 0, 1, 0], 0, &[]).good();
    assert_eq!(w.run(&h1, 0, &start_stop(2), 0, &[]).asc(), (5, 0x53, 2));
    let device = w.registry.device("d0").unwrap();
    assert!(device.eject().is_err());
    // The one that prevents has been removed, which ends the prevention.
    h2.session.close();
    w.settle();
    w.run(&h1, 0, &write16(3, 1), 0, &block(9)).good();
    w.run(&h1, 0, &start_stop(2), 0, &[]).good();
    let disk = w.disks[0].1.clone();
    assert_eq!(disk.state().durable[3 * 512], 9, "what was written is there before it goes");
    assert_eq!(w.run(&h1, 0, &read16(0, 1), 512, &[]).asc(), (2, 0x3A, 2));
    let h3 = w.calm(1, "i3", &[0]);
    w.run(&h1, 0, &start_stop(3), 0, &[]).good();
    w.run(&h1, 0, &TUR, 0, &[]).good();
    assert_eq!(w.run(&h3, 0, &TUR, 0, &[]).asc(), (6, 0x28, 0));
    w.run(&h3, 0, &TUR, 0, &[]).good();
    // The control thread does the same.
    device.eject().unwrap();
    assert_eq!(device.condition().state(), MediumState::Empty);
    device.load(None).unwrap();
    assert_eq!(w.run(&h1, 0, &TUR, 0, &[]).asc(), (6, 0x28, 0));
    // A unit whose medium is fixed takes the prevention and ejects nothing.
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &[0x1E, 0, 0, 0, 1, 0], 0, &[]).good();
    assert_eq!(w.run(&h, 0, &start_stop(2), 0, &[]).asc(), (5, 0x24, 0));
    assert!(w.registry.device("d0").unwrap().eject().is_err());
}

#[test]
fn a_cdrom_unit_serves_an_image_in_2048_byte_blocks() {
    let spec = OpenSpec { handler: Some("cdrom".into()), read_only: true, ..OpenSpec::default() };
    let w = world_of(1, 4096, &spec);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    disk.state().bytes[2048 * 7..2048 * 8].fill(7);
    let inquiry = w.run(&h, 0, &[0x12, 0, 0, 0, 36, 0], 36, &[]).good().data;
    assert_eq!(inquiry[..2], [5, 0x80]);
    let capacity = w.run(&h, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[]).good().data;
    assert_eq!(capacity, [0, 0, 3, 0xFF, 0, 0, 8, 0]);
    let read = w.run(&h, 0, &[0x28, 0, 0, 0, 0, 7, 0, 0, 1, 0], 2048, &[]).good();
    assert_eq!(read.data, vec![7; 2048]);
    let cd = [0xBE, 0, 0, 0, 0, 7, 0, 0, 1, 0x10, 0, 0];
    assert_eq!(w.run(&h, 0, &cd, 2048, &[]).good().data, vec![7; 2048]);
    let toc = w.run(&h, 0, &[0x43, 0, 0, 0, 0, 0, 0, 0, 100, 0], 100, &[]).good().data;
    assert_eq!((toc.len(), &toc[18..20]), (20, &[4, 0][..]));
    let page = w.run(&h, 0, &[0x5A, 0, 0x2A, 0, 0, 0, 0, 0, 255, 0], 255, &[]).good().data;
    assert_eq!((page[8], usize::from(page[1]) + 2), (0x2A, page.len()));
    let all = w.run(&h, 0, &[0x5A, 8, 0x3F, 0, 0, 0, 0, 4, 0, 0], 1024, &[]).good().data;
    assert_eq!(usize::from(u16::from_be_bytes([all[0], all[1]])) + 2, all.len());
    assert_eq!(w.run(&h, 0, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[0; 2048]).asc().0, 5);
    // Media change: events, then a unit attention for the others.
    let event = |h: &Host| w.run(h, 0, &[0x4A, 1, 0, 0, 0x10, 0, 0, 0, 8, 0], 8, &[]).good().data;
    let device = w.registry.device("d0").unwrap();
    device.eject().unwrap();
    assert_eq!(event(&h)[4..6], [3, 1]);
    assert_eq!(w.run(&h, 0, &[0x43, 0, 0, 0, 0, 0, 0, 0, 100, 0], 100, &[]).asc(), (2, 0x3A, 2));
    let config = w.run(&h, 0, &[0x46, 0, 0, 0, 0, 0, 0, 1, 0, 0], 256, &[]).good().data;
    assert_eq!(config[6..8], [0, 0]);
    device.load(None).unwrap();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x28, 0));
    assert_eq!(event(&h)[4..6], [2, 2]);
    assert_eq!(event(&h)[4..6], [0, 2]);
}

#[test]
fn a_null_unit_reads_zeroes_and_never_accesses_its_disk() {
    let spec = OpenSpec { handler: Some("null".into()), ..OpenSpec::default() };
    let w = world_of(1, 4096, &spec);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(3, 2), 0, &[9; 1024]).good();
    assert_eq!(w.run(&h, 0, &read16(3, 2), 1024, &[]).good().data, vec![0; 1024]);
    assert_eq!(w.run(&h, 0, &read16(0, 600), 600 * 512, &[]).good().data, vec![0; 600 * 512]);
    let short = w.run(&h, 0, &read16(3, 2), 700, &[]).good();
    assert_eq!((short.data, short.residual), (vec![0; 700], Residual::Over(324)));
    assert_eq!(w.run(&h, 0, &read16(4096, 1), 512, &[]).asc(), (5, 0x21, 0));
    w.run(&h, 0, &cdb16(0x91, 0, 0), 0, &[]).good();
    // Pages offer nothing that it refuses.
    for refused in [0x42, 0x89, 0x93, 0x9C] {
        assert_eq!(w.run(&h, 0, &cdb16(refused, 0, 1), 0, &[0; 512]).asc(), (5, 0x20, 0));
    }
    let page = |code| w.run(&h, 0, &[0x12, 1, code, 0, 64, 0], 64, &[]).good().data;
    let limits = page(0xB0);
    assert_eq!(limits[5], 0, "COMPARE AND WRITE");
    assert_eq!(limits[12..16], [0; 4], "OPTIMAL TRANSFER LENGTH");
    assert_eq!(limits[20..64], [0; 44], "UNMAP, WRITE SAME, WRITE ATOMIC");
    let provisioning = page(0xB2);
    assert_eq!(provisioning[5] & 0xE0, 0, "LBPU, LBPWS, LBPWS10");
    assert_eq!(provisioning[6] & 7, 0, "a fully provisioned unit");
    assert!(w.disks[0].1.state().log.is_empty());
    assert!(!w.disks[0].1.state().bytes.iter().any(|b| *b != 0));
}
