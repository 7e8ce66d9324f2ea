//! Reported figures of an image: the size of a dump, its place, and the highest address in use.

use fileserver::files::{Ino, New, ROOT, Served};
use fileserver::image::format::PAYLOAD;
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};

use super::server::{filled, image_disks, on};

/// Runs a task with an empty image on a cache device and a WORM.
fn with<F: Future<Output = ()> + 'static>(task: impl FnOnce(Served, Options) -> F + 'static) {
    // Few enough that a walk waits for blocks, and its steps begin again.
    on((11, 64), &image_disks(1500, 900), |o| async move {
        image::ream(&o, Setup::default()).await.unwrap();
        task(open(&o).await, o).await;
    });
}

async fn open(o: &Options) -> Served {
    Served::from(image::open(o, Setup::default()).await.unwrap())
}

/// A new file of so many blocks.
async fn make(fs: &Served, o: &Options, name: &str, blocks: u64) -> Ino {
    let ino = fs.run(|f| f.create(ROOT, name.as_bytes(), &New::default())).await.unwrap();
    for n in 0..blocks {
        write(fs, o, ino, n).await;
    }
    ino
}

async fn write(fs: &Served, o: &Options, ino: Ino, n: u64) {
    let seg = filled(o, PAYLOAD, n as u8 | 1);
    let at = n * PAYLOAD as u64;
    fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
}

#[test]
fn dump_of_an_image_reports_its_block_count_and_copies() {
    with(|fs, o| async move {
        let ino = make(&fs, &o, "large", 200).await;
        make(&fs, &o, "other", 20).await;
        let first = fs.dump(20_261_121).await.unwrap();
        fs.copied(&first).await.unwrap();
        let leg = || fs.members().remove(0);
        let (blocks, copied) = (fs.blocks_of(&first).unwrap(), leg().copied);
        assert!(blocks > 220, "{blocks} blocks, and contents alone are 220");
        assert_eq!(copied, blocks);
        assert!(fs.is_on(&first, &leg()));
        // Blocks that the first dump lacks count again.
        fs.set_copying(false);
        write(&fs, &o, ino, 3).await;
        write(&fs, &o, ino, 150).await;
        let second = fs.dump(20_261_122).await.unwrap();
        let blocks = fs.blocks_of(&second).unwrap();
        assert!((5..12).contains(&blocks), "{blocks} blocks for two that changed");
        assert_eq!(leg().behind, blocks);
        let third = fs.dump(20_261_122).await.unwrap();
        assert_eq!(leg().behind, blocks + fs.blocks_of(&third).unwrap());
        let where_they_are = |fs: &Served| {
            let leg = fs.members().remove(0);
            [first, second, third].map(|d| fs.is_on(&d, &leg))
        };
        assert_eq!(where_they_are(&fs), [true, false, false]);
        fs.close().await.unwrap();
        // An image stores no such figure and reports this; the contents of its WORM are known.
        let fs = open(&o).await;
        fs.set_copying(false);
        assert_eq!(fs.blocks_of(&second), None);
        assert_eq!(where_they_are(&fs), [true, false, false]);
        fs.set_copying(true);
        fs.copied(&third).await.unwrap();
        assert_eq!(where_they_are(&fs), [true; 3]);
        fs.close().await.unwrap();
    });
}

#[test]
fn check_of_an_image_reports_the_highest_address_in_use() {
    with(|fs, o| async move {
        let highest = async |view| fs.check(view, false).await.unwrap().highest;
        assert_eq!(highest(View::Live).await, 3, "the root");
        // Addresses are given from below: the last block has the highest.
        let last = async |view, ino| {
            let all = fs.run(|f| f.blocks(view, ino, 1000)).await.unwrap();
            all.last().map(|(_, addr)| *addr).unwrap()
        };
        let ino = make(&fs, &o, "one", 150).await;
        let then = last(View::Live, ino).await;
        assert!(then > 150);
        assert_eq!(highest(View::Live).await, then);
        let d = fs.dump(20_261_121).await.unwrap();
        let ino = make(&fs, &o, "two", 90).await;
        let now = last(View::Live, ino).await;
        assert!(now > then + 90);
        assert_eq!(highest(View::Live).await, now);
        assert_eq!(highest(View::Dump(d.number)).await, then);
        fs.close().await.unwrap();
    });
}
