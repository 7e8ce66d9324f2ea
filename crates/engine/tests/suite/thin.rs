//! Thin units: their fill level, thresholds, recipients and number of the reports, and lack of
//! space.

use std::sync::Arc;

use bio::Errno;
use engine::lun::{OpenSpec, open_device};
use engine::space::SpaceUsage;
use engine::state_store::MemoryStore;
use engine::{Device, DeviceSpec, TmFunction};
use reactor::SeededRandom;
use testkit::Seeds;

use crate::world::*;

const MIB: u64 = 1 << 20;
const THRESHOLD_REACHED: (u8, u8, u8) = (6, 0x38, 7);

/// A unit of 100 MiB whose disk has space for 50, of which `used` are taken.
fn thin(seed: u64) -> (World, Arc<Device>) {
    let mut w = World::new(seed);
    w.registry.set_state_store(Arc::new(MemoryStore::default()));
    w.disk("d0", 1000);
    w.export("d0");
    let edge = w.registry.device("d0").unwrap().edge();
    // The same disk as a larger unit, whose free space the test sets.
    let spec = DeviceSpec {
        can_delete: true,
        space_usage: Some(capacity(0)),
        ..DeviceSpec::new("thin", "THIN-1", edge, 100 * MIB, 512)
    };
    let device = w.registry.add_device("disk", spec).unwrap();
    w.map(&[(0, "thin", false), (1, "d0", false)]);
    w.settle();
    (w, device)
}

/// So many MiB of 50 are taken.
fn capacity(used: u64) -> SpaceUsage {
    SpaceUsage { used: used * MIB, free: (50 - used) * MIB, is_shared: true }
}

fn log_page(w: &World, h: &Host) -> Vec<u8> {
    let cdb = [0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 64, 0];
    w.run(h, 0, &cdb, 64, &[]).good().data
}

/// MODE SENSE(10) of a page without blocks; its bytes.
fn page(w: &World, h: &Host, control: u8, code: u8, subpage: u8) -> Vec<u8> {
    let cdb = [0x5A, 8, control << 6 | code, subpage, 0, 0, 0, 0, 255, 0];
    w.run(h, 0, &cdb, 255, &[]).good().data[8..].to_vec()
}

fn select(w: &World, h: &Host, save: bool, page: &[u8]) -> CommandResult {
    let mut list = vec![0; 8];
    list.extend(page);
    list[8] &= 0x7F;
    let cdb = [0x55, 0x10 | u8::from(save), 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
    w.run(h, 0, &cdb, 0, &list)
}

#[test]
fn used_space_is_reported_in_vpd_and_log_pages() {
    let (w, device) = thin(1);
    let h = w.calm(0, "i1", &[0, 1]);
    let vpd = w.run(&h, 0, &[0x12, 1, 0xB2, 0, 8, 0], 8, &[]).good().data;
    // Sets of 2048 blocks, LBPU LBPWS LBPWS10 and no ANC_SUP, thin, steps of a percent.
    assert_eq!(vpd[4..], [11, 0xE0, 2, 1]);
    device.update_space_usage(capacity(20));
    let log = log_page(&w, &h);
    let want = [0x0C, 0, 0, 36, 0, 1, 3, 8, 0, 0, 0, 30, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 20, 2];
    assert_eq!((log[0] & 0x3F, &log[1..25]), (want[0], &want[1..25]));
    assert_eq!(log[28..40], [0, 3, 3, 8, 0, 60, 0, 0, 2, 0, 0, 0]);
    let list = w.run(&h, 0, &[0x4D, 0, 0x40, 0, 0, 0, 0, 0, 64, 0], 64, &[]).good().data;
    assert!(list[4..].contains(&0x0C));
    // Counters are reset by LOG SELECT; this is none.
    w.run(&h, 0, &[0x4C, 2, 0x40, 0, 0, 0, 0, 0, 0, 0], 0, &[]).good();
    assert_eq!(log_page(&w, &h), log);
    // A disk without this report has neither page.
    let other = [0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 64, 0];
    assert_eq!(w.run(&h, 1, &other, 64, &[]).asc(), (5, 0x24, 0));
    let mode = [0x5A, 8, 0x1C, 2, 0, 0, 0, 0, 255, 0];
    assert_eq!(w.run(&h, 1, &mode, 255, &[]).asc(), (5, 0x24, 0));
    let vpd = w.run(&h, 1, &[0x12, 1, 0xB2, 0, 8, 0], 8, &[]).good().data;
    assert_eq!((vpd[4], vpd[7]), (0, 0));
    w.check_empty();
}

#[test]
fn every_nexus_is_notified_once_at_each_threshold() {
    let (w, device) = thin(2);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    device.update_space_usage(capacity(40));
    w.run(&a, 0, &TUR, 0, &[]).good();
    for (used, offset) in [(41, 16), (46, 24)] {
        device.update_space_usage(capacity(used));
        device.update_space_usage(capacity(used));
        for h in [&a, &b] {
            let sense = w.run(h, 0, &read16(0, 1), 512, &[]);
            assert_eq!((sense.asc(), sense.sense().information), (THRESHOLD_REACHED, Some(offset)));
            w.run(h, 0, &read16(0, 1), 512, &[]).good();
        }
    }
    // Back and over both at once: one condition, of the threshold crossed last.
    device.update_space_usage(capacity(10));
    device.update_space_usage(capacity(50));
    assert_eq!(w.run(&a, 0, &TUR, 0, &[]).sense().information, Some(24));
    w.run(&a, 0, &TUR, 0, &[]).good();
    // A later session gets only the report of the reset.
    let c = w.calm(0, "i3", &[0]);
    w.run(&c, 0, &TUR, 0, &[]).good();
    // A reset of the unit arms everything.
    let tm = a.manage(TmFunction::LunReset, 0, None);
    w.turn();
    assert!(a.outcome(tm).is_some());
    device.update_space_usage(capacity(50));
    let asc: Vec<_> = (0..2).map(|_| w.run(&b, 0, &TUR, 0, &[]).asc()).collect();
    assert!(asc.contains(&THRESHOLD_REACHED), "{asc:?}");
    w.check_empty();
}

#[test]
fn thresholds_can_be_set_saved_and_turned_off() {
    let (w, device) = thin(3);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let mut descriptors = page(&w, &a, 0, 0x1C, 2);
    let first = descriptors.clone();
    assert_eq!(first[..4], [0xDC, 2, 0, 36]);
    assert_eq!(first[16..24], [0x88, 3, 0, 0, 0, 0, 0, 20]);
    assert_eq!(first[32..40], [0x01, 2, 0, 0, 0, 0, 0, 0]);
    // The third: more than 30 sets used.
    (descriptors[32], descriptors[39]) = (0x81, 30);
    select(&w, &a, true, &descriptors).good();
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    assert_eq!(page(&w, &a, 3, 0x1C, 2), descriptors);
    assert_eq!(page(&w, &a, 2, 0x1C, 2), first);
    device.update_space_usage(capacity(31));
    let answer = w.run(&b, 0, &TUR, 0, &[]);
    assert_eq!((answer.asc(), answer.sense().information), (THRESHOLD_REACHED, Some(32)));
    w.run(&a, 0, &TUR, 0, &[]);
    // Percent above a hundred.
    let mut wrong = descriptors.clone();
    wrong[23] = 101;
    assert_eq!(select(&w, &a, false, &wrong).asc(), (5, 0x26, 0));
    // LBPERE off: silence, and the telling is made up for when it is on again.
    let mut recovery = page(&w, &a, 0, 1, 0);
    assert_eq!(recovery[7], 0x80);
    recovery[7] = 0;
    select(&w, &a, false, &recovery).good();
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    device.update_space_usage(capacity(45));
    w.run(&b, 0, &TUR, 0, &[]).good();
    recovery[7] = 0x80;
    select(&w, &a, false, &recovery).good();
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    device.update_space_usage(capacity(45));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), THRESHOLD_REACHED);
    // Saved values are in effect after a reset.
    select(&w, &a, false, &first);
    let tm = a.manage(TmFunction::LunReset, 0, None);
    w.turn();
    assert!(a.outcome(tm).is_some());
    while w.run(&a, 0, &TUR, 0, &[]).status != 0 {}
    assert_eq!(page(&w, &a, 0, 0x1C, 2), descriptors);
    w.check_empty();
}

/// H3.
#[test]
fn with_situa_only_the_first_nexus_is_notified() {
    let (w, device) = thin(4);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let mut descriptors = page(&w, &a, 0, 0x1C, 2);
    descriptors[4] = 1;
    select(&w, &a, false, &descriptors).good();
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    for (round, (first, second)) in [(&b, &a), (&a, &b)].into_iter().enumerate() {
        device.update_space_usage(capacity(42));
        let sense = match round {
            0 => w.run(first, 0, &TUR, 0, &[]).sense(),
            _ => {
                let data = w.run(first, 0, &[3, 0, 0, 0, 32, 0], 32, &[]).good().data;
                wire::scsi::Sense::decode(&data).unwrap()
            }
        };
        assert_eq!((sense.code.asc, sense.code.ascq, sense.information), (0x38, 7, Some(16)));
        w.run(second, 0, &TUR, 0, &[]).good();
        w.run(first, 0, &TUR, 0, &[]).good();
        device.update_space_usage(capacity(10));
    }
    w.check_empty();
}

/// Seeded: the free space and the configured thresholds change at random, and two initiators listen
/// at random. A small model determines the reports that each must get.
#[test]
fn threshold_reports_agree_with_the_model() {
    for seed in Seeds::of(1000) {
        let (w, device) = thin(seed);
        let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0])];
        let mut random = SeededRandom::new(seed);
        // Per threshold: free space in percent, and armed. Per host: something waits.
        let (mut counts, mut armed, mut waits) = ([20.0, 10.0], [true; 2], [false; 2]);
        for step in 0..200 {
            match random.below(8) {
                0 => {
                    let percents = [[80_u8, 90], [60, 90], [60, 70]][random.below(3) as usize];
                    assert!(device.configure_thresholds(Some(&percents)));
                    let to = percents.map(|percent| f64::from(100 - percent));
                    // A changed threshold is armed; an unchanged one stays as it is.
                    let differ = counts.into_iter().zip(to).map(|(was, is)| was != is);
                    armed.iter_mut().zip(differ).for_each(|(armed, differs)| *armed |= differs);
                    counts = to;
                }
                1 | 2 => {
                    let used = random.below(51);
                    device.update_space_usage(capacity(used));
                    let left = (50 - used) as f64 * 2.0;
                    for (i, count) in counts.into_iter().enumerate() {
                        if left < count - 0.5 && armed[i] {
                            armed[i] = false;
                            waits = [true; 2];
                        } else if left > count + 0.5 {
                            armed[i] = true;
                        }
                    }
                }
                n => {
                    let i = (n % 2) as usize;
                    let asc = w.run(&hosts[i], 0, &TUR, 0, &[]);
                    let want =
                        if std::mem::take(&mut waits[i]) { THRESHOLD_REACHED } else { (0, 0, 0) };
                    assert_eq!(asc.asc(), want, "seed {seed} step {step}");
                }
            }
        }
    }
}

#[test]
fn writes_without_free_space_fail_with_space_allocation_failed() {
    let w = World::simple(6, 1000);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    disk.state().fail = Some((10 * 512, Errno::NoSpc));
    let full = (7, 0x27, 7);
    assert_eq!(w.run(&h, 0, &write16(8, 4), 0, &[1; 2048]).asc(), full);
    assert_eq!(w.run(&h, 0, &cdb16(0x93, 10, 1), 0, &[1; 512]).asc(), full);
    // It is no write protection: neither the bit of the mode header nor other blocks.
    let header = w.run(&h, 0, &[0x1A, 8, 8, 0, 64, 0], 64, &[]).good().data;
    assert_eq!(header[2] & 0x80, 0);
    w.run(&h, 0, &write16(20, 1), 0, &[1; 512]).good();
    disk.state().fail = None;
    w.run(&h, 0, &write16(8, 4), 0, &[1; 2048]).good();
    // Blocks cannot be anchored here: the bit is refused with its position.
    assert_eq!(w.run(&h, 0, &[0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0], 0, &[0; 24]).asc(), (5, 0x24, 0));
    let mut same = cdb16(0x93, 10, 1);
    same[1] = 0x18;
    assert_eq!(w.run(&h, 0, &same, 0, &[0; 512]).asc(), (5, 0x24, 0));
    w.check_empty();
}

#[test]
fn a_disk_with_anchor_support_anchors_blocks() {
    let (mut w, _) = thin(7);
    let edge = w.registry.device("d0").unwrap().edge();
    let spec = DeviceSpec {
        can_delete: true,
        can_anchor: true,
        ..DeviceSpec::new("anchored", "ANCHOR-1", edge, 1000 * 512, 512)
    };
    w.registry.add_device("disk", spec).unwrap();
    w.map(&[(0, "anchored", false)]);
    w.settle();
    let h = w.calm(0, "i1", &[0]);
    let vpd = w.run(&h, 0, &[0x12, 1, 0xB2, 0, 8, 0], 8, &[]).good().data;
    assert_eq!(vpd[5] & 2, 2, "ANC_SUP");
    let disk = w.disks[0].1.clone();
    w.run(&h, 0, &write16(8, 4), 0, &[1; 2048]).good();
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0]);
    w.run(&h, 0, &[0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list).good();
    let ops: Vec<_> = disk.state().log.iter().map(|d| (d.op, d.offset, d.length)).collect();
    assert!(ops.contains(&(bio::Op::WriteZeroes, 8 * 512, 2048)), "{ops:?}");
    assert!(!ops.iter().any(|d| d.0 == bio::Op::Delete));
    let mut same = cdb16(0x93, 8, 4);
    same[1] = 0x18;
    w.run(&h, 0, &same, 0, &[0; 512]).good();
    // ANCHOR without UNMAP has no effect.
    same[1] = 0x10;
    assert_eq!(w.run(&h, 0, &same, 0, &[0; 512]).asc(), (5, 0x24, 0));
    w.check_empty();
}

/// For example a block device: no page offers unknown data, and requests for them are refused.
#[test]
fn thresholds_are_refused_for_a_disk_of_unknown_usage() {
    let mut w = World::new(7);
    w.disk("d0", 1000);
    let percents =
        |all: &[u8]| OpenSpec { full_percents: Some(all.to_vec()), ..OpenSpec::default() };
    let refused = open_device(&mut w.control, &w.registry, "d0", &percents(&[50]));
    let error = refused.err().expect("refused");
    assert!(error.kind == Errno::NotSup && error.message.contains("`thresholds`"), "{error}");
    let device = open_device(&mut w.control, &w.registry, "d0", &percents(&[])).unwrap();
    assert!(device.spec().can_delete, "it frees what it deletes all the same");
    w.map(&[(0, "d0", false)]);
    w.settle();
    let h = w.calm(0, "i1", &[0]);
    let vpd = w.run(&h, 0, &[0x12, 1, 0xB2, 0, 8, 0], 8, &[]).good().data;
    // No sets, LBPU LBPWS LBPWS10, thin, no steps.
    assert_eq!((vpd[4], vpd[5] & 0xE0, vpd[6] & 7, vpd[7]), (0, 0xE0, 2, 0));
    for cdb in [[0x5A, 8, 0x1C, 2, 0, 0, 0, 0, 255, 0], [0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 64, 0]] {
        assert_eq!(w.run(&h, 0, &cdb, 255, &[]).asc(), (5, 0x24, 0), "{cdb:02x?}");
    }
    // All pages: the one about thresholds is not among them.
    let all = w.run(&h, 0, &[0x5A, 8, 0x3F, 0xFF, 0, 0, 0, 0, 255, 0], 255, &[]).good().data;
    let mut at = 8;
    while at < all.len() {
        let (code, long) = (all[at] & 0x3F, all[at] & 0x40 != 0);
        assert!(code != 0x1C || !long || all[at + 1] != 2, "{all:02x?}");
        let len = if long { 4 + usize::from(all[at + 3]) } else { 2 + usize::from(all[at + 1]) };
        at += len;
    }
    w.check_empty();
}
