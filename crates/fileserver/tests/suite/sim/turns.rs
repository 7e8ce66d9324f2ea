//! Work that commits, dumps and the copier do between two turns of clients: bounded, by count.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Errno, Segs};
use fileserver::files::{Ino, New, ROOT, Served};
use fileserver::image::format::{self, PAYLOAD};
use fileserver::image::{self, Setup};
use fileserver::medium::Medium;
use fileserver::volume::{Options, View};
use geom::Local;
use reactor::Reactor;
use reactor::sim::World;

use super::disk::Disk;
use super::exposing::{BLOCK, all_have, block, file, roomy};
use super::server::{filled, life_with, new_file_system};

/// Blocks of the file that is changed or removed.
const BLOCKS: u64 = 3000;
/// Most of them that one turn may take.
const MOST: u64 = 300;
/// The same for blocks that are given back, and for those that led to them.
const MOST_FREED: u64 = 2048 + 100;

/// Part of the blocks that a check looks at, of which one turn may take no more.
const CHECK_PART: u64 = 4;
/// Writes of one block that a commit of an image makes between two turns: 256 KiB, and the head.
const SMALL_WRITES: std::ops::RangeInclusive<u64> = 8..=18;

/// Watches a count at every turn of the reactor.
pub struct Watch {
    is_over: Rc<Cell<bool>>,
    most: Rc<Cell<u64>>,
}

impl Watch {
    pub fn new(reactor: &Reactor, count: impl Fn() -> u64 + 'static) -> Watch {
        let watch = Watch { is_over: Rc::default(), most: Rc::default() };
        let (is_over, most, own) = (watch.is_over.clone(), watch.most.clone(), reactor.clone());
        reactor.spawn("watch", async move {
            let mut last = count();
            while !is_over.get() {
                own.yield_now().await;
                let now = count();
                most.set(most.get().max(now.saturating_sub(last)));
                last = now;
            }
        });
        watch
    }

    /// The largest increase from one turn to the next.
    pub fn most(self) -> u64 {
        self.is_over.set(true);
        self.most.get()
    }
}

/// A device in memory, which completes each operation at once.
struct InMemory {
    bytes: RefCell<Vec<u8>>,
    writes: Cell<u64>,
}

impl InMemory {
    fn new(blocks: usize) -> Rc<InMemory> {
        let bytes = RefCell::new(vec![0; blocks * format::BLOCK]);
        Rc::new(InMemory { bytes, writes: Cell::new(0) })
    }
}

impl Medium for InMemory {
    fn name(&self) -> &str {
        "memory"
    }

    fn size(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let (at, bytes) = (at as usize, self.bytes.borrow());
            into.copy_from(0, bytes.get(at..at + into.len()).ok_or(Errno::Io)?);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.writes.set(self.writes.get() + 1);
            let (at, mut bytes) = (at as usize, self.bytes.borrow_mut());
            let to = bytes.get_mut(at..at + from.len()).ok_or(Errno::Io)?;
            to.copy_from_slice(&from.to_vec());
            Ok(())
        })
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(async { Ok(()) })
    }
}

/// Runs a task with an image on devices in memory, whose blocks all stay in the block cache.
fn with_image<F: Future<Output = ()> + 'static>(
    seed: u64,
    task: impl FnOnce(Served, Options, Rc<InMemory>) -> F + 'static,
) {
    let unused = Disk::new("unused", 1 << 20, seed);
    let (cache, worm): (_, Rc<dyn Medium>) = (InMemory::new(3000), InMemory::new(2000));
    life_with(&World::new(seed), 2000 * format::BLOCK, (&unused, &[]), |o| async move {
        let o = Options { cache: cache.clone(), members: vec![worm], ..o };
        image::ream(&o, Setup::default()).await.unwrap();
        let fs = Served::from(image::open(&o, Setup::default()).await.unwrap());
        task(fs, o, cache).await;
    });
}

/// Writes a block of a file of an image.
async fn write_block(fs: &Served, o: &Options, ino: Ino, n: u64, byte: u8) {
    let seg = filled(o, PAYLOAD, byte);
    let at = n * PAYLOAD as u64;
    fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
}

#[test]
fn check_of_an_image_looks_at_a_part_of_the_tree_at_a_time() {
    with_image(86, |fs, o, _| async move {
        let ino = fs.run(|f| f.create(ROOT, b"f", &New::default())).await.unwrap();
        for n in 0..900 {
            write_block(&fs, &o, ino, n, 1).await;
        }
        fs.sync().await.unwrap();
        let hits = {
            let fs = fs.clone();
            move || fs.facts().hits
        };
        let before = hits();
        let watch = Watch::new(&o.reactor, hits.clone());
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.blocks > 900, "{found:?}");
        let (most, all) = (watch.most(), hits() - before);
        assert!(all >= 900 && most * CHECK_PART < all, "{most} of {all} blocks in one turn");
        fs.close().await.unwrap();
    });
}

#[test]
fn check_of_a_dump_looks_at_a_part_of_the_tree_at_a_time() {
    let cache = Disk::new("cache", 60 << 20, 87);
    let legs = [Disk::new("leg", 60 << 20, 88)];
    roomy(&World::new(87), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        for n in 0..500 {
            file(&fs, &format!("f{n}")).await;
        }
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        all_have(&fs, &o.reactor).await;
        let hits = {
            let volume = fs.volume().clone();
            move || volume.facts().hits
        };
        let before = hits();
        let watch = Watch::new(&o.reactor, hits.clone());
        let found = fs.check(View::Dump(dump.number), false).await.unwrap();
        assert!(found.faults.is_empty() && found.files == 500, "{found:?}");
        let (most, all) = (watch.most(), hits() - before);
        assert!(most * CHECK_PART < all, "{most} of {all} blocks in one turn");
    });
}

#[test]
fn commit_of_an_image_makes_several_small_writes_between_two_turns() {
    with_image(85, |fs, o, cache| async move {
        let ino = fs.run(|f| f.create(ROOT, b"f", &New::default())).await.unwrap();
        for n in 0..150 {
            write_block(&fs, &o, ino, n, 1).await;
        }
        fs.sync().await.unwrap();
        // Every other block: none of them follows another one on the cache device.
        for n in (0..150).step_by(2) {
            write_block(&fs, &o, ino, n, 2).await;
        }
        let writes = {
            let cache = cache.clone();
            move || cache.writes.get()
        };
        let before = writes();
        let watch = Watch::new(&o.reactor, writes.clone());
        fs.sync().await.unwrap();
        let (most, all) = (watch.most(), writes() - before);
        assert!(all >= 60, "{all} writes");
        assert!(SMALL_WRITES.contains(&most), "{most} writes in one turn");
        fs.close().await.unwrap();
    });
}

#[test]
fn commit_enters_its_blocks_in_the_table_a_part_at_a_time() {
    let cache = Disk::new("cache", 60 << 20, 81);
    let legs = [Disk::new("leg", 60 << 20, 82)];
    roomy(&World::new(81), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        let fill = async |byte: u8| {
            let seg = block(&o, byte);
            for i in 0..BLOCKS {
                let at = i * BLOCK as u64;
                fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
            }
        };
        fill(1).await;
        fs.sync().await.unwrap();
        let volume = fs.volume().clone();
        // Each block of the commit gives back the slot that held it before.
        let watch = Watch::new(&o.reactor, move || {
            let facts = volume.facts();
            facts.slots - facts.slots_used
        });
        fill(2).await;
        fs.sync().await.unwrap();
        let most = watch.most();
        assert!((1..=MOST).contains(&most), "{most} slots in one turn");
    });
}

#[test]
fn removed_file_is_given_back_and_passed_by_the_copier_a_part_at_a_time() {
    let cache = Disk::new("cache", 60 << 20, 83);
    let legs = [Disk::new("leg", 60 << 20, 84)];
    roomy(&World::new(83), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "gone").await;
        let seg = block(&o, 1);
        for i in 0..BLOCKS {
            let at = i * BLOCK as u64;
            fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
        }
        let volume = fs.volume().clone();
        let watch = Watch::new(&o.reactor, move || u64::MAX - volume.facts().live);
        fs.run(|f| f.remove(ROOT, b"gone", 0)).await.unwrap();
        while fs.run(|f| f.inode(View::Live, ino)).await.is_ok() {
            o.reactor.sleep(1_000_000).await;
        }
        let most = watch.most();
        assert!((1..=MOST_FREED).contains(&most), "{most} blocks given back in one turn");
        // Every address is looked up in a block of checksums, which is found in memory.
        let hits = {
            let volume = fs.volume().clone();
            move || volume.facts().hits
        };
        let before = hits();
        let watch = Watch::new(&o.reactor, hits.clone());
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        assert!(dump.end - dump.sb > BLOCKS, "addresses of the removed file are the dump's");
        all_have(&fs, &o.reactor).await;
        assert!(hits() - before > BLOCKS / 2, "{} addresses", hits() - before);
        let most = watch.most();
        assert!((1..=MOST).contains(&most), "{most} addresses in one turn");
    });
}
