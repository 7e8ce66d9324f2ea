//! Tests that expose toy file servers, by the numbers of the reference; the others are next to the
//! code that they test. `cargo test exposing_` runs all thirty.

use std::rc::Rc;

use bio::Seg;
use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume::{self, Options, View};
use reactor::Reactor;
use reactor::sim::World;

use super::disk::Disk;
use super::model;
use super::server::{filled, is_sound, life_with, mounted, new_file_system};

pub const BLOCK: usize = 4096;
pub const BLOCKS: u64 = 1000;

/// A life with a block cache that holds everything.
pub fn roomy<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    cache: &Rc<Disk>,
    legs: &[Rc<Disk>],
    task: impl FnOnce(Options) -> F,
) -> T {
    life_with(world, 4096 * BLOCK, (cache, legs), task)
}

pub async fn file(fs: &FileSystem, name: &str) -> u64 {
    let new = New { mode: 0o644, ..New::default() };
    fs.run(|f| f.create(ROOT, name.as_bytes(), &new)).await.unwrap()
}

pub fn block(o: &Options, byte: u8) -> Seg {
    filled(o, BLOCK, byte)
}

/// Writes every block of a file, out of order; what 99 of 100 writes take at most, ns.
async fn rewrite(fs: &FileSystem, reactor: &Reactor, ino: u64, seg: &Seg) -> u64 {
    let mut took = Vec::new();
    for i in 0..BLOCKS {
        let at = i * 389 % BLOCKS * BLOCK as u64;
        let before = reactor.now();
        fs.run(|f| f.write(ino, at, std::slice::from_ref(seg), 0)).await.unwrap();
        took.push(reactor.now() - before);
        reactor.sleep(100_000).await;
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

pub async fn all_have(fs: &FileSystem, reactor: &Reactor) {
    while fs.volume().members().iter().any(|l| l.behind > 0) {
        reactor.sleep(50_000_000).await;
    }
}

#[test]
fn exposing_4_write_to_a_dumped_block_does_not_wait_for_a_slow_copy() {
    let cache = Disk::new("cache", 40 << 20, 4);
    let legs = [Disk::new("near", 60 << 20, 5), Disk::new("far", 60 << 20, 6)];
    let far = legs[1].clone();
    roomy(&World::new(4), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        rewrite(&fs, &o.reactor, ino, &block(&o, 1)).await;
        fs.sync().await.unwrap();
        let usual = rewrite(&fs, &o.reactor, ino, &block(&o, 2)).await;
        // 256 KiB in a quarter of a second: 1 MB/s.
        far.slow_ns.set(250_000_000);
        let before = model::tree(&fs, View::Live).await.unwrap();
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        let after = rewrite(&fs, &o.reactor, ino, &block(&o, 3)).await;
        assert!(fs.volume().members()[1].behind > 0, "the far leg has it before it could");
        assert!(after <= 2 * usual.max(1000), "{after} ns where {usual} are usual");
        let view = View::Dump(dump.number);
        assert!(model::tree(&fs, view).await.unwrap() == before, "the dump changed");
        all_have(&fs, &o.reactor).await;
        assert!(model::tree(&fs, view).await.unwrap() == before, "the dump changed");
    });
}

/// The fixes of the first servers' flaws, 6 and 7: a dump walks nothing, and clients continue.
#[test]
fn dump_does_not_block_clients_and_holds_only_changed_blocks() {
    let cache = Disk::new("cache", 40 << 20, 4);
    let legs = [Disk::new("near", 60 << 20, 5)];
    let device = cache.clone();
    roomy(&World::new(47), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        rewrite(&fs, &o.reactor, ino, &block(&o, 1)).await;
        fs.volume().dump(20_261_120).await.unwrap();
        all_have(&fs, &o.reactor).await;
        // One block of a thousand changed since, and the cache device answers nothing.
        let one = block(&o, 2);
        fs.run(|f| f.write(ino, 0, std::slice::from_ref(&one), 0)).await.unwrap();
        let before = model::tree(&fs, View::Live).await.unwrap();
        device.hangs.set(true);
        let (dumping, r) = (fs.clone(), o.reactor.clone());
        let done = Rc::new(std::cell::Cell::new(None));
        let to = done.clone();
        o.reactor.spawn("dump", async move {
            to.set(Some(dumping.volume().dump(20_261_121).await.unwrap()));
        });
        r.sleep(10_000_000).await;
        let began = r.now();
        for i in 0..BLOCKS / 2 {
            let at = i * BLOCK as u64;
            fs.run(|f| f.write(ino, at, std::slice::from_ref(&one), 0)).await.unwrap();
        }
        assert_eq!((r.now() - began, done.get()), (0, None), "nobody waits for the dump");
        device.hangs.set(false);
        let dump = loop {
            match done.get() {
                Some(dump) => break dump,
                None => r.sleep(1_000_000).await,
            }
        };
        assert!(dump.next - dump.sb < 12, "{} blocks for one that changed", dump.next - dump.sb);
        assert!(model::tree(&fs, View::Dump(dump.number)).await.unwrap() == before);
    });
}

#[test]
fn exposing_6_recover_does_not_follow_superblocks_of_an_earlier_life() {
    for lives in 0..4_u8 {
        let world = World::new(60 + u64::from(lives));
        let cache = Disk::new("cache", 20 << 20, 6);
        let legs = [Disk::new("leg", 60 << 20, 7)];
        let second = roomy(&world, &cache, &legs, |o| async move {
            let fs = new_file_system(&o).await;
            for n in 0..5_u8 {
                let ino = file(&fs, &format!("first{n}")).await;
                let seg = block(&o, n);
                fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await.unwrap();
                let dump = fs.volume().dump(20_261_121).await.unwrap();
                fs.volume().copied(&dump).await.unwrap();
            }
            fs.volume().close().await.unwrap();
            // The same shape, so that its next superblock's place holds an old one.
            let fs = new_file_system(&o).await;
            for n in 0..=lives {
                let ino = file(&fs, &format!("other{n}")).await;
                let seg = block(&o, 100 + n);
                fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await.unwrap();
                let dump = fs.volume().dump(20_261_122).await.unwrap();
                fs.volume().copied(&dump).await.unwrap();
            }
            model::tree(&fs, View::Live).await.unwrap()
        });
        legs[0].power_cut();
        cache.wipe();
        roomy(&world, &cache, &legs, |o| async move {
            let found = volume::recover(&o, None).await.unwrap();
            assert_eq!((found.number, found.date), (u32::from(lives) + 1, 20_261_122));
            let fs = mounted(&o).await;
            assert!(model::tree(&fs, View::Live).await.unwrap() == second);
        });
    }
}

#[test]
fn exposing_9_failed_worm_copy_gets_exactly_the_data_it_missed() {
    // Of a thousand operations so many fail; none: it does not answer.
    let some = (11..19).map(|seed| (seed, Some(60)));
    for (seed, fails) in [(9, Some(1000)), (10, None)].into_iter().chain(some) {
        let world = World::new(seed);
        let cache = Disk::new("cache", 40 << 20, 9);
        let legs = [Disk::new("near", 60 << 20, seed), Disk::new("far", 60 << 20, seed + 90)];
        let far = legs[1].clone();
        let last = roomy(&world, &cache, &legs, |o| async move {
            let fs = new_file_system(&o).await;
            let ino = file(&fs, "f").await;
            let usual = rewrite(&fs, &o.reactor, ino, &block(&o, 1)).await;
            fs.volume().dump(20_261_120).await.unwrap();
            all_have(&fs, &o.reactor).await;
            let had = fs.volume().members()[1].copied;
            match fails {
                Some(n) => far.failing.set(n),
                None => far.hangs.set(true),
            }
            let without = rewrite(&fs, &o.reactor, ino, &block(&o, 2)).await;
            assert!(without <= 2 * usual.max(1000), "{without} ns, {usual} with both");
            let dump = fs.volume().dump(20_261_121).await.unwrap();
            fs.volume().copied(&dump).await.unwrap();
            let both = fs.volume().members();
            if fails == Some(60) {
                // It gets there by trying again.
                all_have(&fs, &o.reactor).await;
            } else {
                assert!(both[0].behind == 0 && both[1].behind > 0, "{both:?}");
            }
            far.failing.set(0);
            far.hangs.set(false);
            all_have(&fs, &o.reactor).await;
            let both = fs.volume().members();
            assert_eq!(both[1].copied - had, both[0].copied - had, "{both:?}");
            fs.volume().close().await.unwrap();
            model::tree(&fs, View::Dump(2)).await.unwrap()
        });
        // The other leg and the cache device are lost: nothing that is old is shown.
        legs.iter().for_each(|leg| leg.power_cut());
        cache.wipe();
        legs[0].wipe();
        roomy(&world, &cache, &legs, |o| async move {
            assert_eq!(volume::recover(&o, None).await.unwrap().number, 2);
            let fs = mounted(&o).await;
            assert!(model::tree(&fs, View::Live).await.unwrap() == last);
            is_sound(&fs, View::Dump(2)).await;
        });
    }
}

#[test]
fn copying_resumes_where_a_worm_copy_failed() {
    let cache = Disk::new("cache", 60 << 20, 90);
    let legs = [Disk::new("near", 60 << 20, 91), Disk::new("far", 60 << 20, 92)];
    let far = legs[1].clone();
    roomy(&World::new(90), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        for n in 0..4_u8 {
            let ino = file(&fs, &format!("f{n}")).await;
            rewrite(&fs, &o.reactor, ino, &block(&o, n)).await;
        }
        far.slow_ns.set(20_000_000);
        let before = far.writes();
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        while fs.volume().members()[1].copied < 2 * BLOCKS {
            o.reactor.sleep(1_000_000).await;
        }
        let amid = fs.volume().members()[1].clone();
        let lacks = dump.next - amid.done;
        assert!(0 < amid.behind && amid.behind < lacks, "a part of the dump is there: {amid:?}");
        far.failing.set(1000);
        while fs.volume().members()[1].faults == 0 {
            o.reactor.sleep(1_000_000).await;
        }
        far.failing.set(0);
        all_have(&fs, &o.reactor).await;
        let wrote = far.writes() - before;
        // 64 blocks a write make 63 of all; half of them twice would be 94.
        assert!(wrote < 80, "{wrote} writes");
        let both = fs.volume().members();
        assert_eq!(both[0].copied, both[1].copied);
        is_sound(&fs, View::Dump(dump.number)).await;
    });
}
