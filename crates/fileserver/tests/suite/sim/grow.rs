//! Devices that grow under a server that serves, with power cuts at every step.

use std::cell::Cell;
use std::rc::Rc;

use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume::{self, Options, View};
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model;
use super::server::{filled, is_sound, life, mounted, new_file_system, run, server};

const SMALL: u64 = 2 << 20;
const LARGE: u64 = 7 << 20;

/// Files of four blocks until no more fit, at most so many; how many there are.
async fn fill(fs: &FileSystem, o: &Options, from: u32, most: u32) -> u32 {
    for n in from..most {
        let seg = filled(o, 16_384, n as u8);
        let result = fs.run(|f| {
            let new = New { mode: 0o644, ..New::default() };
            let ino = f.create(ROOT, format!("f{n}").as_bytes(), &new)?;
            f.write(ino, 0, std::slice::from_ref(&seg), 0)
        });
        if result.await.is_err() {
            return n;
        }
    }
    most
}

/// The power fails after so many operations of the cache device since it began to grow. False: it
/// had grown and been used by then.
fn cut_after(operations: i64) -> bool {
    let world = World::new(operations.cast_unsigned());
    let cache = Disk::new("cache", LARGE, 3);
    let legs: [Rc<Disk>; 0] = [];
    cache.shows.set(SMALL);
    let s = server(&world, "main", 1, &cache, &legs);
    let o = s.options.clone();
    let (fs, full, before) = run(&world, &s.reactor, async move {
        let fs = new_file_system(&o).await;
        let full = fill(&fs, &o, 0, 1000).await;
        fs.sync().await.unwrap();
        assert!((50..130).contains(&full), "{full} files in 2 MiB");
        let tree = model::tree(&fs, View::Live).await.unwrap();
        (fs, full, tree)
    })
    .unwrap();
    cache.shows.set(LARGE);
    let fuse = Rc::new(Cell::new(operations));
    *cache.fuse.borrow_mut() = Some(fuse.clone());
    let (f, o) = (fs.clone(), s.options.clone());
    s.reactor.spawn("grow", async move {
        f.volume().grow().await.unwrap();
        fill(&f, &o, full, full + 60).await;
        f.sync().await.unwrap();
    });
    let limits = Limits { ns: 400_000_000, steps: 1_000_000 };
    world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || false);
    drop(fs);
    s.reactor.shutdown();
    let burnt = fuse.get() <= 0;
    *cache.fuse.borrow_mut() = None;
    cache.power_cut();
    life(&world, &cache, &legs, |o| async move {
        let fs = mounted(&o).await;
        let tree = model::tree(&fs, View::Live).await.unwrap();
        assert!(before.iter().all(|(path, held)| tree.get(path) == Some(held)), "{operations}");
        fs.volume().grow().await.unwrap();
        let all = fill(&fs, &o, tree.len() as u32, 1000).await;
        assert!(all > 3 * full, "{all} files in 7 MiB, {full} in 2");
        fs.sync().await.unwrap();
        fs.volume().close().await.unwrap();
        let fs = mounted(&o).await;
        assert_eq!(model::tree(&fs, View::Live).await.unwrap().len(), all as usize);
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{operations}: {found:?}");
    });
    burnt
}

#[test]
fn cache_device_growth_survives_a_power_cut_after_any_operation() {
    let mut operations = 1;
    while cut_after(operations) {
        operations += 1;
        assert!(operations < 500, "it never ends");
    }
    assert!(operations > 15, "{operations} operations");
}

#[test]
fn closed_cache_device_is_not_written() {
    let cache = Disk::new("cache", LARGE, 3);
    cache.shows.set(SMALL);
    let device = cache.clone();
    life(&World::new(4), &cache, &[], |o| async move {
        volume::ream(&o).await.unwrap();
        for wait in [0, 100_000, 300_000, 1_000_000, 2_000_000] {
            device.shows.set(SMALL);
            let fs = new_file_system(&o).await;
            fill(&fs, &o, 0, 10).await;
            fs.sync().await.unwrap();
            device.shows.set(LARGE);
            let f = fs.clone();
            o.reactor.spawn("grow", async move { drop(f.volume().grow().await) });
            o.reactor.sleep(wait).await;
            fs.volume().close().await.unwrap();
            let wrote = device.writes();
            assert!(fs.volume().grow().await.is_err(), "it is closed");
            // The volume looks at its devices now and then.
            o.reactor.sleep(2_000_000_000).await;
            assert_eq!(device.writes(), wrote, "after {wait} ns");
        }
    });
}

#[test]
fn a_worm_that_grew_is_used_without_a_restart() {
    let cache = Disk::new("cache", 6 << 20, 3);
    let leg = Disk::new("leg", 12 << 20, 4);
    leg.shows.set(3 << 20);
    let legs = [leg.clone()];
    life(&World::new(2), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let full = fill(&fs, &o, 0, 1000).await;
        assert!(full < 190, "{full} files");
        let d = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&d).await.unwrap();
        leg.shows.set(0);
        assert_eq!(fs.volume().grow().await.unwrap(), 0, "the cache device did not grow");
        assert_eq!(fill(&fs, &o, full, full + 150).await, full + 150);
        let d = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&d).await.unwrap();
        is_sound(&fs, View::Dump(d.number)).await;
    });
}
