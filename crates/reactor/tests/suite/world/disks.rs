//! Simulated disks behind the ordinary data path.

use bio::{Errno, Extent, Segs};
use reactor::model::{DiskOp, DiskShape, Fault, Timing};
use reactor::sim::World;
use reactor::{File, Reactor};
use testkit::Seeds;

use crate::world::stage::{filled, pool, quiet, token};

fn shape() -> DiskShape {
    DiskShape { size: 1 << 20, ..DiskShape::default() }
}

fn contents(world: &World, r: &Reactor, file: &File, len: usize) -> Vec<u8> {
    let into = Segs::alloc(&pool(), len).unwrap();
    r.read(token(99), file, 0, &into);
    assert_eq!(quiet(world, r), [(token(99), Ok(len as u64))]);
    into.to_vec()
}

#[test]
fn simulated_file_operations_behave_as_on_a_kernel() {
    for seed in Seeds::of(1000) {
        let world = World::new(seed);
        let r = Reactor::simulated(&world, "core");
        let file = world.file("disk", shape()).unwrap();
        assert_eq!(file.size().unwrap(), 1 << 20);
        let start = world.now();
        r.write(token(1), &file, 100, &filled(&pool(), &[7; 70_000]), false);
        assert_eq!(quiet(&world, &r), [(token(1), Ok(70_000))]);
        assert!(world.now() > start, "it took virtual time");
        r.punch(token(2), &file, 4096, 4096);
        r.zero(token(3), &file, 16384, 100, true);
        r.sync(token(4), &file);
        assert_eq!(quiet(&world, &r).len(), 3);
        let mut model = vec![0; 1 << 17];
        model[100..70_100].fill(7);
        model[4096..8192].fill(0);
        model[16384..16484].fill(0);
        assert!(contents(&world, &r, &file, 1 << 17) == model);
        let into = Segs::alloc(&pool(), 8192).unwrap();
        r.read(token(5), &file, (1 << 20) - 4096, &into);
        r.read(token(6), &file, u64::MAX, &into);
        r.write(token(7), &file, 1 << 20, &filled(&pool(), &[1; 8192]), false);
        let mut completions = quiet(&world, &r);
        completions.sort_by_key(|(t, _)| t.user_data);
        let want = [Ok(4096), Err(Errno::Inval), Err(Errno::NoSpc)];
        assert!(completions.iter().map(|(_, e)| *e).eq(want), "{completions:?}");
        assert_eq!(r.in_flight(), 0);
    }
}

#[test]
fn power_cut_loses_only_unflushed_data() {
    let (mut lost, mut kept, seeds) = (0, 0, Seeds::of(1000));
    for seed in seeds.clone() {
        let world = World::new(seed);
        let r = Reactor::simulated(&world, "core");
        let file = world.file("disk", shape()).unwrap();
        r.write(token(1), &file, 0, &filled(&pool(), &[1; 8192]), false);
        quiet(&world, &r);
        r.sync(token(2), &file);
        quiet(&world, &r);
        r.write(token(3), &file, 0, &filled(&pool(), &[2; 4096]), false);
        quiet(&world, &r);
        // Under way when it happens.
        r.write(token(4), &file, 4096, &filled(&pool(), &[3; 4096]), true);
        assert!(world.power_cut("disk"));
        assert_eq!(quiet(&world, &r), [(token(4), Err(Errno::Io))]);
        let found = contents(&world, &r, &file, 8192);
        for (at, sector) in found.chunks(512).enumerate() {
            let new = if at < 8 { 2 } else { 3 };
            assert!(sector.iter().all(|b| *b == sector[0]), "whole sectors");
            match sector[0] {
                1 => lost += 1,
                b if b == new => kept += 1,
                b => panic!("seed {seed}, sector {at}: {b}"),
            }
        }
    }
    assert!((lost > 100 && kept > 100) || !seeds.are_enough(), "{lost} {kept}");
    assert!(!World::new(0).power_cut("nothing"));
}

#[test]
fn hung_disk_completes_nothing_and_keeps_the_memory() {
    let world = World::new(3);
    let r = Reactor::simulated(&world, "core");
    let file = world.file("disk", shape()).unwrap();
    let memory = pool();
    world.hang("disk", true);
    r.read(token(1), &file, 0, &Segs::alloc(&memory, 4096).unwrap());
    assert!(quiet(&world, &r).is_empty());
    assert_eq!((r.in_flight(), memory.usage().used_bytes), (1, 4096));
    world.hang("disk", false);
    assert_eq!(quiet(&world, &r), [(token(1), Ok(4096))]);
    assert_eq!((r.in_flight(), memory.usage().used_bytes), (0, 0));
}

#[test]
fn injected_errors_reach_the_receiver() {
    let world = World::new(4);
    let r = Reactor::simulated(&world, "core");
    let file = world.file("disk", shape()).unwrap();
    let fault = Fault {
        range: Extent::new(4096, 512).unwrap(),
        op: DiskOp::Write,
        error: Errno::NoSpc,
        times: Some(1),
    };
    world.with_disk("disk", |d| d.fail(fault)).unwrap().unwrap();
    for want in [Err(Errno::NoSpc), Ok(8192)] {
        r.write(token(1), &file, 0, &filled(&pool(), &[1; 8192]), false);
        assert_eq!(quiet(&world, &r), [(token(1), want)]);
    }
}

/// V2.
#[test]
fn timers_and_disks_share_one_clock() {
    let world = World::new(5);
    let r = Reactor::simulated(&world, "core");
    let slow =
        DiskShape { timing: Timing::Between { min_ns: 5_000_000, max_ns: 5_000_000 }, ..shape() };
    let file = world.file("disk", slow).unwrap();
    r.after(9_000_000, token(3));
    r.after(1_000_000, token(1));
    let never = r.after(2_000_000, token(9));
    r.cancel(never);
    r.sync(token(2), &file);
    let words: Vec<u64> = quiet(&world, &r).iter().map(|(t, _)| t.user_data).collect();
    assert_eq!(words, [1, 2, 3]);
    assert!(r.now() < 1_000_000_000 + 9_100_000);
}

#[test]
fn contents_outlive_the_reactor_that_wrote_them() {
    let world = World::new(6);
    let first = Reactor::simulated(&world, "first");
    let file = world.file("disk", shape()).unwrap();
    first.write(token(1), &file, 0, &filled(&pool(), &[9; 512]), false);
    first.shutdown();
    drop((first, file));
    let second = Reactor::simulated(&world, "second");
    let file = world.file("disk", DiskShape::default()).unwrap();
    assert_eq!(file.size().unwrap(), 1 << 20, "it existed already");
    assert_eq!(contents(&world, &second, &file, 512), [9; 512]);
}
