//! Devices whose contents differ from the data that were written.

use std::cell::Cell;

use bio::Seg;
use fileserver::Fault;
use fileserver::files::{FileSystem, Kind, New, ROOT};
use fileserver::volume::{self, Options, View};
use reactor::SeededRandom;
use reactor::sim::World;

use super::disk::Disk;
use super::model;
use super::server::{life, mounted, new_file_system};

async fn with_files(o: &Options) -> FileSystem {
    let fs = new_file_system(o).await;
    let seg: Seg = o.pool.get(65_536).unwrap().seg(0, 65_536).unwrap();
    for n in 0..12_u8 {
        let dir = New { kind: Kind::Dir, mode: 0o755, ..New::default() };
        let file = New { mode: 0o644, ..New::default() };
        seg.with_mut(|b| b.fill(n + 1));
        fs.run(|f| {
            let at = f.create(ROOT, format!("d{n}").as_bytes(), &dir)?;
            let ino = f.create(at, b"f", &file)?;
            f.write(ino, 0, std::slice::from_ref(&seg), 0)
        })
        .await
        .unwrap();
        if n % 4 == 3 {
            let d = fs.volume().dump(20_261_121).await.unwrap();
            fs.volume().copied(&d).await.unwrap();
        }
    }
    fs
}

/// Bytes anywhere are changed, on some devices: every answer is the written data, or an error that
/// names the place.
pub fn anywhere(seed: u64, seen: &Cell<(u64, u64, u64)>) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0xda7a);
    let cache = Disk::new("cache", 6 << 20, seed);
    let legs = [Disk::new("near", 30 << 20, seed ^ 1), Disk::new("far", 30 << 20, seed ^ 2)];
    let (live, dumps) = life(&world, &cache, &legs, |o| async move {
        let fs = with_files(&o).await;
        let live = model::tree(&fs, View::Live).await.unwrap();
        let mut dumps = Vec::new();
        for d in fs.volume().dumps() {
            dumps.push(model::tree(&fs, View::Dump(d.number)).await.unwrap());
        }
        fs.volume().close().await.unwrap();
        (live, dumps)
    });
    let mut hurt = |disk: &Disk, used: u64| {
        for _ in 0..1 + random.below(60) {
            let at = random.below(used);
            let byte = [random.next_u64() as u8];
            disk.with(|d| d.write(at, &byte, true)).unwrap();
        }
    };
    match seed % 4 {
        0 => hurt(&cache, 6 << 20),
        1 => hurt(&legs[0], 3 << 20),
        2 => {
            hurt(&cache, 2 << 20);
            hurt(&legs[1], 3 << 20);
        }
        _ => {
            hurt(&legs[0], 2 << 20);
            hurt(&legs[1], 2 << 20);
        }
    }
    // In half of the seeds the contents of the cache device are not used.
    let recovers = seed % 8 < 4;
    let (good, bad) = life(&world, &cache, &legs, |o| async move {
        let (mut good, mut bad) = (0, 0);
        let mut count = |found: Result<model::Tree, Fault>, wanted: &model::Tree| match found {
            Ok(found) => {
                assert!(found == *wanted, "seed {seed}: something else was read");
                good += 1;
            }
            Err(Fault::Corrupt(text) | Fault::Io(_, text)) => {
                assert!(!text.is_empty());
                bad += 1;
            }
            Err(fault) => panic!("seed {seed}: {fault}"),
        };
        if recovers && volume::recover(&o, None).await.is_err() {
            return (good, bad + 1);
        }
        let Ok(volume) = volume::open(&o).await else { return (good, bad + 1) };
        let Ok(fs) = FileSystem::mount(volume, 0, 0).await else { return (good, bad + 1) };
        for (number, wanted) in (1..).zip(&dumps) {
            count(model::tree(&fs, View::Dump(number)).await, wanted);
        }
        let wanted = if recovers { dumps.last().unwrap_or(&live) } else { &live };
        count(model::tree(&fs, View::Live).await, wanted);
        (good, bad)
    });
    let (g, b, n) = seen.get();
    seen.set((g + good, b + bad, n + 1));
}

/// Blocks of one file are spoiled on every device: the check names that file, and no other.
pub fn of_one_file() {
    let world = World::new(1);
    let cache = Disk::new("cache", 6 << 20, 1);
    let legs = [Disk::new("near", 30 << 20, 2), Disk::new("far", 30 << 20, 3)];
    life(&world, &cache, &legs, |o| async move {
        with_files(&o).await.volume().close().await.unwrap();
    });
    for leg in &legs {
        // The file of /d4 is full of fives.
        let spoilt = leg.with(|d| {
            let mut block = vec![0; 4096];
            let all = (0..d.size()).step_by(4096);
            let mine = all.filter(|at| {
                d.read(*at, &mut block).unwrap();
                block.iter().all(|b| *b == 5)
            });
            let mine: Vec<u64> = mine.collect();
            mine.iter().for_each(|at| d.write(at + 77, &[6], true).unwrap());
            mine.len()
        });
        assert_eq!(spoilt, 16);
    }
    life(&world, &cache, &legs, |o| async move {
        volume::recover(&o, None).await.unwrap();
        let fs = mounted(&o).await;
        for view in [View::Dump(2), View::Live] {
            let found = fs.check(view, true).await.unwrap();
            assert_eq!(found.faults.len(), 16, "{found:?}");
            assert!(found.faults.iter().all(|f| f.starts_with("/d4/f: ")), "{found:?}");
        }
        assert_eq!(fs.check(View::Dump(1), true).await.unwrap().faults.len(), 0);
    });
}
