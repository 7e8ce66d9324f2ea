//! Members with a bitmap whose disks grow by no more than its size: its new place is the record's
//! old one. After a power cut at any step one of the two records is there, and the bits are kept.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::json;

use super::disk::SECTOR;
use super::life::{MS, PowerCut};
use super::named::{Bench, DISK};
use super::rising::{labelled, left_behind};

const NAMES: [&str; 2] = ["d0", "d1"];

fn with_a_bitmap(clean: bool) -> Bench {
    let mut bench = Bench::with(2, json!({ "region": 4096 }));
    bench.fill(1, clean);
    bench
}

fn grow(bench: &Bench, by: u64) {
    for name in NAMES {
        bench.disks[name].grow(by);
    }
}

/// A power cut at each step; `relocate` moves the records that stayed behind.
fn cut_at_each_step(by: u64, off: bool, mut moved: impl FnMut(&mut Bench)) {
    let mut left = 0;
    for fuse in 0.. {
        let mut bench = with_a_bitmap(fuse % 2 == 0);
        grow(&bench, by);
        if off {
            bench.reboot(&NAMES);
        }
        bench.life.fuse.set(fuse);
        let done = catch_unwind(AssertUnwindSafe(|| moved(&mut bench)));
        let cut = match done {
            Ok(()) => false,
            Err(why) if why.is::<PowerCut>() => true,
            Err(why) => resume_unwind(why),
        };
        bench.life.fuse.set(u64::MAX);
        let order = if fuse % 3 == 0 { ["d1", "d0"] } else { NAMES };
        bench.reboot(&order);
        for name in NAMES {
            let disk = bench.disks[name].clone();
            if labelled(&disk, disk.size()).is_none() {
                let old = labelled(&disk, DISK);
                assert_eq!(old.as_deref(), Some("mirror"), "{fuse}: {name} has no record");
                bench.life.verb("mirror", "relocate", "", left_behind(name, DISK)).expect("found");
                left += 1;
            }
        }
        bench.up();
        for name in NAMES {
            assert_eq!(bench.state(name), "ACTIVE", "{fuse}\n{}", bench.life.dump_state());
        }
        let text = bench.life.show("mirror", "m", "Bitmap");
        assert!(text.contains("regions of 4096"), "{fuse}: the bitmap is lost: {text}");
        bench.holds(1);
        if !cut {
            break;
        }
    }
    assert!(left > 3, "{left} records stayed behind");
}

/// B4 of mirror/bitmap.rs.
#[test]
fn a_power_cut_during_the_move_of_a_bitmap_leaves_a_record() {
    for by in [SECTOR, 2 * SECTOR] {
        cut_at_each_step(by, false, |bench| {
            NAMES.iter().for_each(|name| bench.life.resized(name, DISK + by));
            bench.life.pass(20 * MS);
        });
    }
}

/// The disk grew while the daemon was down.
#[test]
fn a_power_cut_during_follow_leaves_a_record() {
    for by in [SECTOR, 2 * SECTOR] {
        cut_at_each_step(by, true, |bench| {
            for name in NAMES {
                bench.life.verb("mirror", "relocate", "", left_behind(name, DISK)).expect("found");
            }
        });
    }
}

/// Which parts may differ is still known after a power cut.
/// B4 of mirror/bitmap.rs.
#[test]
fn bits_are_kept_when_a_bitmap_moves_over_the_old_record() {
    let bits = |bench: &Bench, name: &str| {
        let disk = &bench.disks[name];
        disk.bytes(disk.size() - 2 * SECTOR, SECTOR as usize)
    };
    for by_hand in [false, true] {
        let mut bench = with_a_bitmap(false);
        let before = NAMES.map(|name| bits(&bench, name));
        assert!(before.iter().all(|bits| bits.iter().any(|b| *b != 0)), "writes are under way");
        grow(&bench, SECTOR);
        if by_hand {
            bench.reboot(&NAMES);
            // One after the other: the first is not taken in before the second is found.
            for name in NAMES {
                let with = left_behind(name, DISK);
                bench.life.verb("mirror", "relocate", "", with).expect("found");
                if name == "d0" {
                    assert_eq!(bits(&bench, name), before[0], "by hand");
                }
            }
            continue;
        }
        NAMES.iter().for_each(|name| bench.life.resized(name, DISK + SECTOR));
        bench.life.pass(3 * MS);
        for (name, before) in NAMES.iter().zip(&before) {
            let disk = &bench.disks[*name];
            assert_eq!(labelled(disk, disk.size()).as_deref(), Some("mirror"), "{name}");
            assert_eq!(bits(&bench, name), *before, "{name}");
        }
    }
}
