//! Disks that grow, so that their labels are at the old ends: the daemon has recorded these, and
//! moves the labels to the new ends. The power may fail at each step.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use geom::Access;

use super::disk::{Disk, SECTOR};
use super::labels::{Bench, Case, DISK, MORE, cases, cut};
use super::life::{Life, MS, PowerCut};
use super::named;
use super::named_raid::{NEW, Rig};
use super::rising::labelled;

/// A daemon that starts with the ends of disks that an earlier one recorded.
fn knowing(case: &Case) -> Bench<'_> {
    let mut bench = Bench::of(case);
    bench.keeps = true;
    bench
}

#[test]
fn disks_that_grew_while_the_daemon_was_down_survive_power_cuts() {
    let cases = cases();
    // By less than the bitmap that is stored with a label: the bitmap would overlap the old place
    // of the label.
    let bitmap = cases.iter().filter(|case| case.with["region"].is_number());
    let little = bitmap.map(|case| (case, SECTOR));
    for (case, more) in cases.iter().map(|case| (case, MORE)).chain(little) {
        for fuse in 0.. {
            let mut bench = knowing(case);
            bench.ends();
            for (disk, _) in bench.growing() {
                disk.grow(more);
            }
            let gone = cut(&mut bench, fuse, |bench| {
                bench.plug();
                bench.life.pass(200 * MS);
            });
            if gone {
                bench.reboot();
            }
            bench.holds();
            if !gone {
                assert!(fuse > 10, "{}: it takes {fuse} turns", case.class);
                break;
            }
        }
    }
}

#[test]
fn a_label_is_found_after_a_power_cut_during_its_move() {
    for case in cases() {
        for fuse in 0.. {
            let mut bench = knowing(&case);
            let gone = cut(&mut bench, fuse, |bench| bench.grow());
            bench.reboot();
            bench.holds();
            if !gone {
                break;
            }
        }
    }
}

/// Twice: the second power cut occurs before the first label has been moved.
#[test]
fn a_disk_that_grows_again_before_its_label_moved_is_found() {
    for case in cases() {
        for fuse in (0..400).step_by(7) {
            let mut bench = knowing(&case);
            for _ in 0..2 {
                cut(&mut bench, fuse, |bench| bench.grow());
                bench.ends();
            }
            for (disk, _) in bench.growing() {
                disk.grow(MORE);
            }
            bench.plug();
            bench.holds();
        }
    }
}

/// The case that mirrors lost data by: one member has everything, and grows. The power fails before
/// its record has moved; the other one is back, and is old.
#[test]
fn a_stale_member_is_not_used_after_a_power_cut_during_growth() {
    let (mut stale_first, mut was_left) = (false, 0);
    for fuse in 0.. {
        let mut bench = named::Bench::of(2);
        bench.fill(1, true);
        bench.pull("d1");
        bench.fill(2, true);
        let disk = bench.disks["d0"].clone();
        bench.life.fuse.set(fuse);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let bytes = disk.grow(MORE);
            bench.life.resized("d0", bytes);
            bench.life.pass(100 * MS);
        }));
        let is_cut = done.is_err_and(|why| match why.is::<PowerCut>() {
            true => true,
            false => resume_unwind(why),
        });
        let kept = bench.life.kept.clone();
        bench.life = Life::new(2, 2);
        bench.life.go_on_from(&kept);
        bench.disks.values().for_each(Disk::power_cut);
        was_left += u64::from(labelled(&disk, disk.size()).is_none());
        stale_first = !stale_first;
        let order = if stale_first { ["d1", "d0"] } else { ["d0", "d1"] };
        order.iter().for_each(|name| bench.plug(name));
        bench.up();
        bench.holds(2);
        for name in order {
            assert_eq!(bench.state(name), "ACTIVE", "fuse {fuse}\n{}", bench.life.dump_state());
        }
        if !is_cut {
            break;
        }
    }
    assert!(was_left > 1, "{was_left} times its record was left behind");
}

/// Intel's records and DDF's.
#[test]
fn an_array_finds_its_grown_disks_after_a_power_cut() {
    for format in ["Intel", "DDF"] {
        for fuse in 0.. {
            let mut rig = Rig::of(format, "RAID1", 2);
            // The other one is away, and old from then on.
            rig.pull("d1");
            rig.life.write(rig.edge, 0, vec![NEW; SECTOR as usize]).expect("written");
            rig.life.flush(rig.edge).expect("flushed");
            let kept = rig.life.kept.clone();
            let begin = |rig: &mut Rig| {
                rig.life = Life::new(2, 2);
                rig.life.go_on_from(&kept);
                rig.disks.values().for_each(Disk::power_cut);
            };
            begin(&mut rig);
            rig.disks["d0"].grow(MORE);
            rig.life.fuse.set(fuse);
            let done = catch_unwind(AssertUnwindSafe(|| {
                rig.life.plug("d1", &rig.disks["d1"]);
                rig.life.plug("d0", &rig.disks["d0"]);
                rig.life.pass(200 * MS);
            }));
            let is_cut = done.is_err_and(|why| match why.is::<PowerCut>() {
                true => true,
                false => resume_unwind(why),
            });
            rig.life.fuse.set(u64::MAX);
            if is_cut {
                rig.reboot();
            } else {
                let volume = rig.volume.clone();
                let up = rig.life.until(40, move |c| c.topology.find(&volume).is_some());
                assert!(up, "{format}\n{}", rig.life.dump_state());
                rig.edge = rig.life.open(&rig.volume, Access::READ).expect("open").1;
            }
            let read = rig.life.read(rig.edge, 0, SECTOR as usize).expect("read");
            assert!(read.iter().all(|b| *b == NEW), "{format}, fuse {fuse}: {}", read[0]);
            rig.life.pass(2_000 * MS);
            for (name, disk) in &rig.disks {
                let label = labelled(disk, disk.size());
                assert_eq!(
                    label.as_deref(),
                    Some("raid"),
                    "{format} {name}\n{}",
                    rig.life.dump_state()
                );
            }
            if !is_cut {
                assert!(fuse > 10, "{format}: it takes {fuse} turns");
                break;
            }
        }
    }
}

/// Its label has to stay where it is, and the daemon knows where that is.
#[test]
fn a_grown_inner_member_of_a_concat_is_used_with_its_old_size() {
    let cases = cases();
    let case = cases.iter().find(|c| c.class == "concat").expect("a case");
    let mut bench = knowing(case);
    let bytes = bench.disks[0].grow(MORE);
    bench.life.resized("d0", bytes);
    bench.life.pass(100 * MS);
    for _ in 0..2 {
        bench.reboot();
        bench.reads();
        let story = bench.life.dump_state();
        assert!(story.contains("d0 grew, but it is not the last: give it 65536 bytes"), "{story}");
        bench.disks[0].grow(MORE);
    }
}

/// The cases in which other data on the disk would be overwritten.
#[test]
fn a_label_is_not_moved_to_another_disk_or_over_known_data() {
    let case = &cases()[0];
    let left = |bench: &mut Bench<'_>| {
        bench.ends();
        bench.disks[0].grow(MORE);
    };
    let says = |bench: &mut Bench<'_>, what: &str| {
        bench.plug();
        bench.life.pass(100 * MS);
        let story = bench.life.dump_state();
        assert!(story.contains(what), "not said: {what}\n{story}");
        let at_end = bench.disks[0].bytes(DISK + MORE - SECTOR, SECTOR as usize);
        assert!(!at_end.starts_with(b"GEOM::"), "it was carried\n{story}");
        at_end
    };
    // Another system, which sees a larger disk, made a table on it.
    let mut bench = knowing(case);
    left(&mut bench);
    bench.disks[0].put(DISK + MORE - SECTOR, b"EFI PART");
    let at_end = says(
        &mut bench,
        "at its end is a GPT header; if that may be lost, `ashlar mirror relocate d0 --was 65536 \
         --force`",
    );
    assert!(at_end.starts_with(b"EFI PART"));
    // Another disk replaces it, with a copy of the first one's content.
    let mut bench = knowing(case);
    let copy = Disk::new(DISK + MORE, 9);
    copy.put(0, &bench.disks[0].bytes(0, DISK as usize));
    let mut other = Life::new(9, 1);
    other.plug("other", &copy);
    bench.ends();
    bench.disks[0] = copy;
    says(&mut bench, "(\"mirror\", \"no metadata of this class in the last sector\")");
}

/// The label at the old end was written for another end.
#[test]
fn a_label_for_another_size_at_the_old_end_is_ignored() {
    let cases = cases();
    let mut bench = knowing(&cases[0]);
    let disk = bench.disks[0].clone();
    let bytes = disk.grow(MORE);
    bench.life.resized("d0", bytes);
    bench.life.pass(100 * MS);
    let label = disk.bytes(bytes - SECTOR, SECTOR as usize);
    assert!(label.starts_with(b"GEOM::"), "{}", bench.life.dump_state());
    let small = bench.disks[1].clone();
    small.put(DISK - SECTOR, &label);
    bench.ends();
    small.grow(MORE / 2);
    bench.plug();
    bench.life.pass(100 * MS);
    assert!(!small.bytes(DISK + MORE / 2 - SECTOR, 6).starts_with(b"GEOM::"));
    let story = bench.life.dump_state();
    assert!(!story.contains("its label is at its former end"), "{story}");
}

/// Another writer has the disk open for a moment.
#[test]
fn a_label_is_not_moved_over_data_written_since_it_was_found() {
    let cases = cases();
    let mut bench = knowing(&cases[0]);
    bench.ends();
    let disk = bench.disks[0].clone();
    disk.grow(MORE);
    bench.plug_in(&["d0"]);
    let says = |c: &geom::GraphControl, what: &str| {
        let all = c.topology.view(0).into_iter().flat_map(|g| g.providers);
        all.flat_map(|p| p.taste_outcomes).any(|(_, why)| why.contains(what))
    };
    let begun = bench.life.until(1, |c| says(c, "the label is being moved to the end"));
    assert!(begun, "{}", bench.life.dump_state());
    let (end, new) = (DISK + MORE - SECTOR, [7; SECTOR as usize]);
    disk.put(end, &new);
    let refused = bench.life.until(1, |c| says(c, "the provider was written meanwhile"));
    assert!(refused, "{}", bench.life.dump_state());
    assert_eq!(disk.bytes(end, SECTOR as usize), new, "{}", bench.life.dump_state());
}
