//! WORMs of images that grow under a server that serves, with power cuts at every step; and copying
//! to them that rests.

use std::cell::Cell;
use std::rc::Rc;

use fileserver::files::{New, ROOT, Served};
use fileserver::image::{self, Setup, format::BLOCK};
use fileserver::volume::{Options, View};
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model::{self, Tree};
use super::server::{filled, image_disks, on, run, server};

const SMALL: u64 = 400;
const LARGE: u64 = 900;
/// Blocks of the usual block cache.
const FEW: usize = 300;
/// Blocks of a block cache that holds everything.
const ROOMY: usize = 2 * LARGE as usize;
/// Commits, and looks whether a device has grown.
const OFTEN_NS: u64 = 300_000_000;
/// Nothing grows by itself in such a time.
const SELDOM_NS: u64 = 1000 * OFTEN_NS;

fn setup(once: bool) -> Setup {
    Setup { once, ..Setup::default() }
}

fn disks() -> [Rc<Disk>; 2] {
    let disks = image_disks(1500, LARGE);
    disks[1].shows.set(SMALL * BLOCK as u64);
    disks
}

async fn open(o: &Options, once: bool) -> Served {
    Served::from(image::open(o, setup(once)).await.unwrap())
}

/// Files of two blocks until no more fit, at most so many; how many there are.
async fn fill(fs: &Served, o: &Options, from: u32, most: u32) -> u32 {
    for n in from..most {
        let seg = filled(o, 30_000, n as u8 | 1);
        let result = fs.run(|f| {
            let ino = f.create(ROOT, format!("f{n}").as_bytes(), &New::default())?;
            f.write(ino, 0, std::slice::from_ref(&seg), 0)
        });
        if result.await.is_err() {
            return n;
        }
    }
    most
}

/// A dump, which is on the WORM when it returns.
async fn copied(fs: &Served) -> View {
    let d = fs.dump(20_261_121).await.unwrap();
    fs.copied(&d).await.unwrap();
    View::Dump(d.number)
}

/// The contents of a dump.
async fn dump(fs: &Served) -> Tree {
    let view = copied(fs).await;
    model::tree(fs, view).await.unwrap()
}

async fn is_sound(fs: &Served) {
    let dumps = fs.dumps().into_iter().map(|d| View::Dump(d.number));
    for view in std::iter::once(View::Live).chain(dumps) {
        let found = fs.check(view, true).await.unwrap();
        assert_eq!(found.faults, Vec::<String>::new(), "{view:?}");
    }
}

/// The power fails after so many operations since a WORM of so many files, or full of them, began
/// to grow. Returns the devices, the files of the live tree, the dump before, and false if it had
/// grown and been used by then.
fn cut_after(operations: i64, once: bool, most: u32) -> ([Rc<Disk>; 2], u32, Tree, bool) {
    let world = World::new(operations.cast_unsigned());
    let disks = disks();
    let mut s = server(&world, "main", 1, &disks[0], &disks[1..]);
    s.options.memory = FEW * BLOCK;
    let o = s.options.clone();
    let (fs, full, first) = run(&world, &s.reactor, async move {
        image::ream(&o, setup(once)).await.unwrap();
        let fs = open(&o, once).await;
        fill(&fs, &o, 0, 60).await;
        let first = dump(&fs).await;
        let full = fill(&fs, &o, 60, most).await;
        assert!((80..200).contains(&full), "{full} files");
        fs.sync().await.unwrap();
        (fs, full, first)
    })
    .unwrap();
    disks[1].shows.set(0);
    let fuse = Rc::new(Cell::new(operations));
    disks.iter().for_each(|d| *d.fuse.borrow_mut() = Some(fuse.clone()));
    let (f, o) = (fs.clone(), s.options.clone());
    s.reactor.spawn("grow", async move {
        assert!(f.grow().await.unwrap() > 400);
        fill(&f, &o, full, full + 9).await;
        copied(&f).await;
    });
    let limits = Limits { ns: 250_000_000, steps: 1_000_000 };
    world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || fuse.get() <= 0);
    drop(fs);
    s.reactor.shutdown();
    let burnt = fuse.get() <= 0;
    disks.iter().for_each(|d| *d.fuse.borrow_mut() = None);
    disks.iter().for_each(|d| d.power_cut());
    (disks, full, first, burnt)
}

/// A life on the devices as they are, in which so often something is done by the clock.
fn roomy<F: Future<Output = ()> + 'static>(
    disks: &[Rc<Disk>; 2],
    commit_ns: u64,
    task: impl FnOnce(Options) -> F + 'static,
) {
    // All of the files at once: they are looked through several times.
    on((6, ROOMY), disks, |o| task(Options { commit_ns, ..o }));
}

fn continues_after_power_cut(operations: i64, once: bool) -> bool {
    let (disks, full, first, burnt) = cut_after(operations, once, 1000);
    roomy(&disks, OFTEN_NS, move |o| async move {
        let fs = open(&o, once).await;
        is_sound(&fs).await;
        assert!(model::tree(&fs, View::Dump(1)).await.unwrap() == first, "{operations}");
        let n = model::tree(&fs, View::Live).await.unwrap().len() as u32;
        assert!(n >= full, "{n} of {full} files");
        fs.grow().await.unwrap();
        assert_eq!(fill(&fs, &o, n, full + 60).await, full + 60);
        let last = dump(&fs).await;
        fs.close().await.unwrap();
        // The WORM knows it all.
        image::recover(&o, setup(once)).await.unwrap();
        let fs = open(&o, once).await;
        assert!(model::tree(&fs, View::Live).await.unwrap() == last, "{operations}");
        is_sound(&fs).await;
    });
    burnt
}

/// The cache device is lost with the power: the contents are recovered from the WORM alone.
fn recovers_after_a_cut(operations: i64) -> bool {
    let (disks, _, first, burnt) = cut_after(operations, true, 80);
    roomy(&disks, SELDOM_NS, move |o| async move {
        image::recover(&o, setup(true)).await.unwrap();
        let fs = open(&o, true).await;
        assert!(model::tree(&fs, View::Dump(1)).await.unwrap() == first, "{operations}");
        is_sound(&fs).await;
    });
    burnt
}

/// It is lost later, when another dump has been copied.
fn recovers_after_power_cut(operations: i64) -> bool {
    let (disks, _, _, burnt) = cut_after(operations, true, 80);
    roomy(&disks, SELDOM_NS, move |o| async move {
        let fs = open(&o, true).await;
        let last = dump(&fs).await;
        fs.close().await.unwrap();
        image::recover(&o, setup(true)).await.unwrap();
        let fs = open(&o, true).await;
        assert!(model::tree(&fs, View::Live).await.unwrap() == last, "{operations}");
        is_sound(&fs).await;
    });
    burnt
}

#[test]
fn worm_growth_survives_a_power_cut_after_any_operation() {
    for once in [false, true] {
        let mut operations = 1;
        while continues_after_power_cut(operations, once) {
            operations += 1 + operations / 12;
            assert!(operations < 10_000, "it never ends");
        }
        assert!(operations > 30, "{operations} operations");
    }
}

#[test]
fn fake_worm_bitmap_survives_a_power_cut_during_growth() {
    for recovers in [recovers_after_a_cut, recovers_after_power_cut] {
        let mut operations = 1;
        // All of the growth, and some of what uses it.
        while recovers(operations) && operations < 40 {
            operations += 1;
        }
        assert!(operations > 20, "{operations} operations");
    }
}

#[test]
fn worm_that_grew_while_not_served_is_used_after_the_next_start() {
    for once in [false, true] {
        let disks = disks();
        let worm = disks[1].clone();
        on((3, FEW), &disks, |o| async move {
            image::ream(&o, setup(once)).await.unwrap();
            let fs = open(&o, once).await;
            fill(&fs, &o, 0, 60).await;
            let first = dump(&fs).await;
            fs.close().await.unwrap();
            worm.shows.set(0);
            // Bits that only the old place has are found without a cache device too.
            image::recover(&o, setup(once)).await.unwrap();
            let only = Setup { read_only: true, ..setup(once) };
            let fs = Served::from(image::open(&o, only).await.unwrap());
            assert!(model::tree(&fs, View::Dump(1)).await.unwrap() == first);
            fs.close().await.unwrap();
            let fs = open(&o, once).await;
            // It is noticed within a commit's time.
            o.reactor.sleep(1_000_000_000).await;
            assert!(fs.facts().worm > SMALL + 400, "{:?}", fs.facts());
            assert_eq!(fill(&fs, &o, 60, 250).await, 250);
            let second = dump(&fs).await;
            assert!(model::tree(&fs, View::Dump(1)).await.unwrap() == first);
            fs.close().await.unwrap();
            image::recover(&o, setup(once)).await.unwrap();
            let fs = open(&o, once).await;
            assert!(model::tree(&fs, View::Live).await.unwrap() == second);
            is_sound(&fs).await;
        });
    }
}

#[test]
fn copying_of_an_image_pauses_when_it_is_switched_off() {
    let disks = disks();
    let worm = disks[1].clone();
    on((4, FEW), &disks, |o| async move {
        image::ream(&o, setup(false)).await.unwrap();
        let fs = open(&o, false).await;
        fill(&fs, &o, 0, 20).await;
        dump(&fs).await;
        fs.set_copying(false);
        assert!(!fs.is_copying());
        o.reactor.sleep(1_000_000_000).await;
        let writes = worm.writes();
        fill(&fs, &o, 20, 40).await;
        let d = fs.dump(20_261_121).await.unwrap();
        o.reactor.sleep(100_000_000_000).await;
        assert_eq!(worm.writes(), writes, "nothing comes to the WORM");
        assert!(fs.members()[0].behind > 40, "{:?}", fs.members());
        // The dump is one all the same, and clients continue.
        assert_eq!(model::tree(&fs, View::Dump(d.number)).await.unwrap().len(), 40);
        fill(&fs, &o, 40, 50).await;
        fs.set_copying(true);
        fs.copied(&d).await.unwrap();
        assert_eq!(fs.members()[0].behind, 0);
        assert!(worm.writes() > writes + 40);
        is_sound(&fs).await;
        fs.close().await.unwrap();
    });
}

#[test]
fn grown_cache_device_reports_its_fixed_size_and_remains_usable() {
    let disks = disks();
    disks[0].shows.set(1100 * BLOCK as u64);
    let (cache, worm) = (disks[0].clone(), disks[1].clone());
    on((5, FEW), &disks, |o| async move {
        image::ream(&o, setup(false)).await.unwrap();
        let fs = open(&o, false).await;
        fill(&fs, &o, 0, 20).await;
        assert!(fs.cache_keeps_its_size().is_none());
        let slots = fs.facts().slots;
        cache.shows.set(0);
        // Of a WORM that grows with it, all is used.
        worm.shows.set(0);
        assert_eq!(fs.grow().await.unwrap(), LARGE - SMALL);
        let why = fs.cache_keeps_its_size().expect("a reason").to_string();
        assert!(why.contains("its buckets") && why.contains("fs recover --force"), "{why}");
        assert_eq!((fs.grow().await.unwrap(), fs.facts().slots), (0, slots));
        fill(&fs, &o, 20, 40).await;
        let last = dump(&fs).await;
        fs.close().await.unwrap();
        let fs = open(&o, false).await;
        assert!(fs.cache_keeps_its_size().is_some(), "after a restart too");
        assert!(model::tree(&fs, View::Live).await.unwrap() == last);
        is_sound(&fs).await;
        fs.close().await.unwrap();
        image::recover(&o, setup(false)).await.unwrap();
        let fs = open(&o, false).await;
        assert!(fs.cache_keeps_its_size().is_none() && fs.facts().slots > slots + 300);
        assert!(model::tree(&fs, View::Live).await.unwrap() == last);
        fs.close().await.unwrap();
    });
}
