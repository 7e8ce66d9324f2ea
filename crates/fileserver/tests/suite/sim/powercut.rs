//! Power failure after each single operation of a leg while a dump is copied to it. A recovery from
//! that leg alone always gives a whole dump.

use std::cell::Cell;
use std::rc::Rc;

use fileserver::volume::{self, View};
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model;
use super::server::{filled, life, mounted, new_file_system, run, server};
use super::takeover::put;

/// False: all was done before the power failed.
fn cut_after(operations: i64, seed: u64) -> bool {
    let world = World::new(seed);
    let cache = Disk::new("cache", 6 << 20, seed);
    let legs = [Disk::new("leg", 30 << 20, seed ^ 1)];
    let s = server(&world, "main", 1, &cache, &legs);
    let o = s.options.clone();
    let (fs, first) = run(&world, &s.reactor, async move {
        let fs = new_file_system(&o).await;
        let seg = filled(&o, 20_000, 5);
        put(&fs, "first", &seg).await.unwrap();
        let d = fs.volume().dump(20_261_120).await.unwrap();
        fs.volume().copied(&d).await.unwrap();
        let tree = model::tree(&fs, View::Live).await.unwrap();
        seg.with_mut(|b| b.fill(6));
        put(&fs, "second", &seg).await.unwrap();
        (fs, tree)
    })
    .unwrap();
    let fuse = Rc::new(Cell::new(operations));
    *legs[0].fuse.borrow_mut() = Some(fuse.clone());
    let f = fs.clone();
    s.reactor.spawn("dump", async move {
        f.volume().dump(20_261_121).await.unwrap();
    });
    let limits = Limits { ns: 200_000_000, steps: 1_000_000 };
    world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || false);
    drop(fs);
    s.reactor.shutdown();
    let burnt = fuse.get() <= 0;
    *legs[0].fuse.borrow_mut() = None;
    legs[0].power_cut();
    cache.wipe();
    life(&world, &cache, &legs, |o| async move {
        let last = volume::recover(&o, None).await.unwrap().number;
        assert!(last == 2 || (last == 1 && burnt), "dump {last} after {operations} operations");
        let fs = mounted(&o).await;
        for number in 1..=last {
            let found = fs.check(View::Dump(number), true).await.unwrap();
            assert!(found.faults.is_empty(), "after {operations} operations: {found:?}");
        }
        let tree = model::tree(&fs, View::Live).await.unwrap();
        assert_eq!(tree.len(), last as usize);
        assert!(tree.get("/first") == first.get("/first"));
    });
    burnt
}

/// The number of operations of a copy in the world of a seed.
pub fn everywhere(seed: u64) -> i64 {
    let mut operations = 1;
    while cut_after(operations, seed) {
        operations += 1;
        assert!(operations < 500, "it never ends");
    }
    operations
}
