//! Reading ahead in images: blocks are in memory before a client requests them, by count.

use std::rc::Rc;

use fileserver::files::{New, ROOT, Reader, Served};
use fileserver::image::format::{BLOCK, Layout, PAYLOAD};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, ReadAhead, View};

use super::disk::Disk;
use super::server::{image_disks, lend, on};

const BLOCKS: u64 = 300;
/// Blocks of the block cache.
const CACHE: u64 = 640;

fn setup(layout: Layout) -> Setup {
    Setup { once: false, layout: Some(layout), read_only: false }
}

/// A file that is not in memory, read ahead as announced.
async fn cold(o: &Options, layout: Layout, ahead: ReadAhead) -> Served {
    let fs = Served::from(image::open(o, setup(layout)).await.unwrap());
    fs.set_read_ahead(ahead);
    fs
}

async fn read(fs: &Served, view: View, reader: &mut Reader, order: impl Iterator<Item = u64>) {
    let mut segs = Vec::new();
    let ino = fs.run(|f| f.lookup(view, ROOT, b"f")).await.unwrap().unwrap();
    for n in order {
        let range = (n * PAYLOAD as u64, PAYLOAD);
        fs.run(|f| {
            segs.clear();
            f.read_on(view, ino, range, reader, &mut segs)
        })
        .await
        .unwrap();
        assert!(segs.iter().all(|s| s.with(|b| b.iter().all(|b| *b == n as u8))), "block {n}");
    }
}

/// Sequential reads in a view request no block from the devices that was not requested before.
async fn check_read_ahead(o: &Options, disks: &[Rc<Disk>; 2], layout: Layout, view: View) {
    let ahead = ReadAhead { workers: 8, bytes: 64 * BLOCK as u64 };
    let rest = || o.reactor.sleep(1_000_000_000);
    let reads = || disks.iter().map(|d| d.reads()).sum::<u64>();
    let fs = cold(o, layout, ahead).await;
    let mut reader = Reader::default();
    // Pointers to blocks are requested first, then the blocks.
    for n in 0..10 {
        read(&fs, view, &mut reader, n..n + 1).await;
        rest().await;
    }
    let loaded = fs.facts().ahead_loaded;
    assert!((64..90).contains(&loaded), "{loaded} blocks for 64");
    let before = reads();
    fs.set_read_ahead(ReadAhead { workers: 0, ..ahead });
    read(&fs, view, &mut reader, 10..73).await;
    assert_eq!(reads(), before, "the client asked for what was there");
    read(&fs, view, &mut reader, 73..90).await;
    assert!(reads() >= before + 12, "and behind it for what was not");
    assert_eq!(fs.facts().ahead_loaded, loaded);
    fs.close().await.unwrap();
    // The reads are not sequential.
    let fs = cold(o, layout, ahead).await;
    read(&fs, view, &mut Reader::default(), (0..BLOCKS).map(|n| n * 77 % BLOCKS)).await;
    rest().await;
    assert_eq!(fs.facts().ahead_loaded, 0);
    fs.close().await.unwrap();
    // However far it is to be: no more than its share.
    let fs = cold(o, layout, ReadAhead { bytes: 64 << 20, ..ahead }).await;
    let mut reader = Reader::default();
    for n in 0..10 {
        read(&fs, view, &mut reader, n..n + 1).await;
        rest().await;
    }
    let loaded = fs.facts().ahead_loaded;
    assert!((CACHE / 8..CACHE / 8 + 30).contains(&loaded), "{loaded} blocks of {CACHE}");
    fs.close().await.unwrap();
}

/// A file of so many blocks in a new image.
async fn prepare(o: &Options, layout: Layout) {
    image::ream(o, setup(layout)).await.unwrap();
    let fs = cold(o, layout, ReadAhead::default()).await;
    let new = New { mode: 0o644, ..New::default() };
    let ino = fs.run(|f| f.create(ROOT, b"f", &new)).await.unwrap();
    for n in 0..BLOCKS {
        let data = lend(&o.pool, &vec![n as u8; PAYLOAD], PAYLOAD);
        let at = n * PAYLOAD as u64;
        fs.run(|f| f.write(ino, at, &data, 0)).await.unwrap();
    }
    fs.close().await.unwrap();
}

#[test]
fn read_ahead_is_retried_when_its_bucket_is_not_in_memory() {
    /// Blocks of the block cache: fewer than there are of buckets, each of which has ten addresses.
    const CACHE: usize = 160;
    let layout = Layout::Rows;
    let disks = image_disks(300_000, 3000);
    let device = disks[0].clone();
    on((13, CACHE), &disks, |o| async move {
        prepare(&o, layout).await;
        let ahead = ReadAhead { workers: 8, bytes: 20 * BLOCK as u64 };
        for start in [20, 45, 70] {
            let fs = cold(&o, layout, ahead).await;
            let mut reader = Reader::default();
            for n in 0..start {
                read(&fs, View::Live, &mut reader, n..n + 1).await;
                o.reactor.sleep(1_000_000_000).await;
            }
            fs.set_read_ahead(ReadAhead { workers: 0, ..ahead });
            let before = device.reads();
            read(&fs, View::Live, &mut reader, start..start + 16).await;
            assert_eq!(device.reads(), before, "behind {start} something was not there");
            fs.close().await.unwrap();
        }
    });
}

#[test]
fn sequentially_read_blocks_are_prefetched() {
    for layout in [Layout::Rows, Layout::Columns] {
        let devices = image_disks(1500, 2000);
        let disks = devices.clone();
        on((12, CACHE as usize), &devices, |o| async move {
            prepare(&o, layout).await;
            check_read_ahead(&o, &disks, layout, View::Live).await;
            let fs = cold(&o, layout, ReadAhead::default()).await;
            let d = fs.dump(20_261_121).await.unwrap();
            fs.copied(&d).await.unwrap();
            fs.close().await.unwrap();
            check_read_ahead(&o, &disks, layout, View::Dump(d.number)).await;
            // From the WORM, which a new cache device knows alone.
            image::recover(&o, setup(layout)).await.unwrap();
            check_read_ahead(&o, &disks, layout, View::Dump(d.number)).await;
        });
    }
}
