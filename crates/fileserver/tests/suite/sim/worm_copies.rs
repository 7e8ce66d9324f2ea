//! Clients that need data from the WORM, while a device of it is slow, hangs or is dead.

use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::{FileSystem, ROOT};
use fileserver::volume::{self, View};
use reactor::Reactor;
use reactor::sim::World;
use testkit::clock::MS;

use super::disk::Disk;
use super::exposing::{BLOCKS, block, file, roomy};
use super::replace::{read_block, with_two};
use super::server::{mounted, new_file_system};

/// Blocks read in a stretch: other ones each time, so that none is in memory.
const STRETCH: u64 = BLOCKS / 10;

/// Reads the blocks of a stretch, one at a time, and checks their contents; returns the time of
/// each, in order, ns.
async fn stretch(fs: &FileSystem, reactor: &Reactor, ino: u64, n: u64) -> Vec<u64> {
    let mut took = Vec::new();
    for i in n * STRETCH..(n + 1) * STRETCH {
        let before = reactor.now();
        read_block(fs, ino, i).await;
        took.push(reactor.now() - before);
        reactor.sleep(MS).await;
    }
    took
}

/// After the fault of the near leg was noticed once, no read waits for it.
fn read_past_fault(seed: u64, wrong: fn(&Disk)) {
    with_two(seed, move |(o, reactor, cache, [near, far])| async move {
        cache.wipe();
        volume::recover(&o, None).await.unwrap();
        let fs = mounted(&o).await;
        let ino = fs.run(|f| f.lookup(View::Live, ROOT, b"f")).await.unwrap().unwrap();
        let most = |took: &[u64]| took.iter().max().copied().unwrap_or(0);
        let (near_before, far_before) = (near.reads(), far.reads());
        let usual = most(&stretch(&fs, &reactor, ino, 0).await);
        let reads = |disk: &Rc<Disk>, before: u64| disk.reads() - before;
        assert!(reads(&near, near_before) > reads(&far, far_before) + 10, "the first one is read");
        wrong(&near);
        let took = stretch(&fs, &reactor, ino, 1).await;
        let noticed = took.iter().filter(|ns| **ns > 2 * usual).count();
        assert!(noticed <= 1 && most(&took) < 30 * MS, "{took:?} where {usual} is usual");
        for n in 2..8 {
            // The leg is tried now and then, and no read waits for that.
            reactor.sleep(6000 * MS).await;
            let took = stretch(&fs, &reactor, ino, n).await;
            assert!(most(&took) <= 2 * usual, "{took:?} where {usual} is usual");
        }
        near.hangs.set(false);
        near.unreadable.set(false);
        near.slow_ns.set(0);
        reactor.sleep(6000 * MS).await;
        stretch(&fs, &reactor, ino, 8).await;
        let far_before = far.reads();
        stretch(&fs, &reactor, ino, 9).await;
        assert!(far.reads() - far_before < 10, "the first one is read again when it is quick");
        fs.volume().close().await.unwrap();
    });
}

#[test]
fn exposing_9_read_does_not_wait_for_a_hung_slow_or_dead_copy() {
    let all: [fn(&Disk); 3] =
        [|d| d.hangs.set(true), |d| d.slow_ns.set(250 * MS), |d| d.unreadable.set(true)];
    for (seed, wrong) in (500..).step_by(10).zip(all) {
        read_past_fault(seed, wrong);
    }
}

/// With the only leg of the WORM so slow, silent for so long, changes are taken, or not.
fn alone(slow_ns: u64, silent_ns: u64, are_taken: bool) {
    let cache = Disk::new("cache", 40 << 20, 531);
    let legs = [Disk::new("only", 60 << 20, 532)];
    let leg = legs[0].clone();
    roomy(&World::new(530), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        // The lease runs out while nothing changes.
        o.reactor.sleep(10_000 * MS).await;
        leg.slow_ns.set(slow_ns);
        leg.hangs.set(silent_ns > 0);
        let (l, r) = (leg.clone(), o.reactor.clone());
        o.reactor.spawn("hand", async move {
            r.sleep(silent_ns).await;
            l.hangs.set(false);
        });
        let began = o.reactor.now();
        let seg = block(&o, 3);
        let wrote = fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await;
        let took = o.reactor.now() - began;
        match wrote {
            Ok(_) => assert!(are_taken && took < silent_ns + 3000 * MS, "{took}"),
            Err(fault @ Fault::Io(..)) => {
                assert!(!are_taken, "{fault} after {took}");
                assert!((9000 * MS..12_000 * MS).contains(&took), "{took}");
            }
            Err(fault) => panic!("{fault}"),
        }
    });
}

#[test]
fn slow_fence_of_a_worm_is_awaited_for_ten_seconds() {
    alone(0, 0, true);
    alone(250 * MS, 0, true);
    alone(0, 8000 * MS, true);
    alone(0, 15_000 * MS, false);
    // A look that takes longer than it would hold gives nothing.
    alone(900 * MS, 0, false);
}
