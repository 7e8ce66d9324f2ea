//! Reads of many blocks that are not in memory: all blocks are requested at a time, and the read
//! returns their contents once.

use std::rc::Rc;

use fileserver::files::{New, ROOT, Served};
use fileserver::image::{self, Setup, format};
use fileserver::volume::{self, Options, View};
use reactor::sim::World;

use super::disk::Disk;
use super::server::{filled, life_with, mounted};

const BLOCKS: usize = 40;
/// One that was never written.
const HOLE: usize = 11;

/// Writes a file of blocks of so many bytes, and opens it again by `open` as it is on the devices.
async fn is_read_at_a_time(
    o: &Options,
    cache: &Rc<Disk>,
    wide: usize,
    open: impl AsyncFn() -> Served,
) {
    let fs = open().await;
    let ino = fs.run(|f| f.create(ROOT, b"f", &New::default())).await.unwrap();
    for n in (0..BLOCKS).filter(|n| *n != HOLE) {
        let seg = filled(o, wide, n as u8 + 1);
        let at = (n * wide) as u64;
        fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
    }
    fs.close().await.unwrap();
    let fs = open().await;
    // Attributes, and what leads to blocks.
    let ino = fs.run(|f| f.lookup(View::Live, ROOT, b"f")).await.unwrap().unwrap();
    fs.run(|f| f.blocks(View::Live, ino, BLOCKS)).await.unwrap();
    cache.most_reads();
    // Kept from one attempt to the next.
    let mut segs = Vec::new();
    let (from, len) = (wide / 2, (BLOCKS - 1) * wide);
    let n = fs.run(|f| f.read(View::Live, ino, from as u64, len, &mut segs)).await.unwrap();
    let most = cache.most_reads() as usize;
    assert!(most >= BLOCKS - 2, "{most} blocks at a time");
    let found: Vec<u8> = segs.iter().flat_map(|s| s.with(<[u8]>::to_vec)).collect();
    let byte = |at: usize| if at / wide == HOLE { 0 } else { (at / wide) as u8 + 1 };
    let wanted: Vec<u8> = (from..from + len).map(byte).collect();
    assert_eq!((n, found.len()), (len, len));
    assert!(found == wanted);
    fs.close().await.unwrap();
}

#[test]
fn missing_blocks_of_a_read_are_requested_together() {
    let size = 1200 * format::BLOCK as u64;
    let disks = [Disk::new("cache", size, 1), Disk::new("worm", size, 2)];
    let (cache, worm) = (disks[0].clone(), disks[1].clone());
    life_with(&World::new(14), 400 * format::BLOCK, (&disks[0], &disks[1..]), |o| async move {
        volume::ream(&o).await.unwrap();
        let volume = async || mounted(&o).await.into();
        is_read_at_a_time(&o, &cache, o.block as usize, volume).await;
        worm.wipe();
        image::ream(&o, Setup::default()).await.unwrap();
        let image = async || image::open(&o, Setup::default()).await.unwrap().into();
        is_read_at_a_time(&o, &cache, format::PAYLOAD, image).await;
    });
}
