//! Reading ahead: as many blocks at a time as were configured, and none for random reads.

use fileserver::files::{FileSystem, ROOT, Reader};
use fileserver::volume::{Options, ReadAhead, View};
use reactor::Reactor;
use reactor::sim::World;

use super::disk::Disk;
use super::exposing::file;
use super::server::{filled, life, mounted, new_file_system};

const BLOCK: usize = 4096;
const BLOCKS: usize = 512;

/// A file that is on the cache device and not in memory.
async fn cold(o: &Options, workers: u32) -> (FileSystem, u64) {
    let fs = mounted(o).await;
    fs.volume().set_read_ahead(ReadAhead { workers, bytes: 64 * BLOCK as u64 });
    let ino = fs.run(|f| f.lookup(View::Live, ROOT, b"f")).await.unwrap().unwrap();
    (fs, ino)
}

/// Reads blocks in this order; how long it took, ns.
async fn read(
    fs: &FileSystem,
    clock: &Reactor,
    ino: u64,
    order: impl Iterator<Item = usize>,
) -> u64 {
    let (mut reader, mut segs, began) = (Reader::default(), Vec::new(), clock.now());
    for n in order {
        let range = ((n * BLOCK) as u64, BLOCK);
        fs.run(|f| {
            segs.clear();
            f.read_on(View::Live, ino, range, &mut reader, &mut segs)
        })
        .await
        .unwrap();
        assert!(segs.iter().all(|s| s.with(|b| b.iter().all(|b| *b == n as u8))), "block {n}");
    }
    clock.now() - began
}

/// R2 of fileserver/src/ahead.rs.
#[test]
fn concurrent_read_aheads_equal_the_number_of_workers() {
    let cache = Disk::new("cache", 12 << 20, 12);
    let device = cache.clone();
    life(&World::new(12), &cache, &[], |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        for n in 0..BLOCKS {
            let seg = filled(&o, BLOCK, n as u8);
            let at = (n * BLOCK) as u64;
            fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
        }
        fs.volume().close().await.unwrap();
        let mut before = u64::MAX;
        for workers in [0_u32, 1, 2, 8, 20] {
            let (fs, ino) = cold(&o, workers).await;
            device.most_reads();
            let took = read(&fs, &o.reactor, ino, 0..BLOCKS).await;
            // A client's own, and one that it wants of the tree.
            let most = device.most_reads();
            assert!((workers.max(1)..=workers + 2).contains(&most), "{most} of {workers}");
            // One worker alone is as fast as the client that waits for it.
            let less = if workers < 2 { before } else { before / 4 * 3 };
            assert!(took < less, "{took} ns with {workers} workers, {before} with fewer");
            before = if workers == 0 { took + took / 10 } else { took };
            let f = fs.volume().facts();
            assert_eq!((f.ahead_loaded > 400, f.ahead_dropped), (workers > 0, 0), "{f:?}");
            fs.volume().close().await.unwrap();
        }
        let (fs, ino) = cold(&o, 20).await;
        read(&fs, &o.reactor, ino, (0..BLOCKS).map(|n| n * 389 % BLOCKS)).await;
        assert_eq!(fs.volume().facts().ahead_loaded, 0, "nobody reads in order");
        // Further ahead than the queue is long: the client's own requests load the rest.
        fs.volume().close().await.unwrap();
        let (fs, ino) = cold(&o, 1).await;
        fs.volume().set_read_ahead(ReadAhead { workers: 1, bytes: 64 << 20 });
        read(&fs, &o.reactor, ino, 0..BLOCKS).await;
        fs.volume().close().await.unwrap();
    });
}
