//! Replacement of a lost device of the WORM by a new one.

use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::{FileSystem, ROOT};
use fileserver::volume::{self, Options, Remedy, View};
use reactor::Reactor;
use reactor::sim::World;
use testkit::clock::S;

use super::disk::Disk;
use super::exposing::{BLOCK, BLOCKS, all_have, block, file, roomy};
use super::server::{mounted, new_file_system};

async fn fill(o: &Options) {
    let fs = new_file_system(o).await;
    let ino = file(&fs, "f").await;
    for i in 0..BLOCKS {
        let seg = block(o, i as u8);
        fs.run(|f| f.write(ino, i * BLOCK as u64, std::slice::from_ref(&seg), 0)).await.unwrap();
    }
    fs.volume().dump(20_261_121).await.unwrap();
    all_have(&fs, &o.reactor).await;
    fs.volume().close().await.unwrap();
}

/// Reads a block of the file, and checks its contents.
pub async fn read_block(fs: &FileSystem, ino: u64, i: u64) {
    let mut segs = Vec::new();
    fs.run(|f| {
        segs.clear();
        f.read(View::Live, ino, i * BLOCK as u64, BLOCK, &mut segs)
    })
    .await
    .unwrap();
    let right = segs.iter().all(|s| s.with(|b| b.iter().all(|b| *b == i as u8)));
    assert!(right, "block {i}");
}

async fn is_whole(fs: &FileSystem) {
    let ino = fs.run(|f| f.lookup(View::Live, ROOT, b"f")).await.unwrap().unwrap();
    for i in 0..BLOCKS {
        read_block(fs, ino, i).await;
    }
}

/// Something is on a disk there.
fn hold(disk: &Disk, at: u64) {
    disk.with(|model| model.write(at, &[9; BLOCK], true)).unwrap();
}

pub type TestSetup = (Options, Reactor, Rc<Disk>, [Rc<Disk>; 2]);

/// Runs a story with a dumped file and a WORM of two devices. Nothing is read ahead or kept on the
/// cache device: every read needs a device of the WORM.
pub fn with_two<F: Future<Output = ()> + 'static>(
    seed: u64,
    story: impl FnOnce(TestSetup) -> F + 'static,
) {
    let cache = Disk::new("cache", 40 << 20, seed);
    let legs = [Disk::new("near", 60 << 20, seed + 1), Disk::new("far", 60 << 20, seed + 2)];
    let (device, disks) = (cache.clone(), legs.clone());
    roomy(&World::new(seed), &cache, &legs, |o| async move {
        let ahead = volume::ReadAhead { workers: 0, ..volume::ReadAhead::default() };
        let o = Options { fastworm: true, ahead, ..o };
        fill(&o).await;
        let reactor = o.reactor.clone();
        story((o, reactor, device, disks)).await;
    });
}

#[test]
fn blank_device_replaces_a_lost_one_and_gets_every_dump() {
    with_two(700, |(o, reactor, cache, [near, far])| async move {
        far.wipe();
        let fs = mounted(&o).await;
        let v = fs.volume().clone();
        reactor.sleep(30 * S).await;
        let report = v.members()[1].clone();
        assert_eq!(report.remedy, Remedy::Replace, "{:?}", report.fault);
        assert!(report.fault.as_deref().is_some_and(|why| why.ends_with("is blank")), "{report:?}");
        assert_eq!(report.done, 0, "{report:?}");
        assert!(report.behind > BLOCKS / 2 && report.lag_ns > 0, "it lacks the dump: {report:?}");
        assert!(far.durable(0).iter().all(|b| *b == 0), "nothing is written to it before");
        v.replace(&o, 1, false).await.unwrap();
        all_have(&fs, &reactor).await;
        assert_eq!(v.members()[1].fault, None);
        v.close().await.unwrap();
        drop(fs);
        // It has all: the other one and the cache device may be removed.
        near.wipe();
        cache.wipe();
        volume::recover(&o, None).await.unwrap();
        let fs = mounted(&o).await;
        is_whole(&fs).await;
        fs.volume().close().await.unwrap();
    });
}

#[test]
fn replace_refuses_a_device_with_data_in_use_or_too_small() {
    with_two(710, |(o, reactor, _, [_, far])| async move {
        let fs = mounted(&o).await;
        let v = fs.volume().clone();
        let refused = |done: Result<(), Fault>, why: &str| {
            let fault = done.unwrap_err();
            assert!(matches!(&fault, Fault::Refused(w) if w.contains(why)), "{fault}");
        };
        refused(v.replace(&o, 1, true).await, "in use");
        v.close().await.unwrap();
        drop(fs);
        far.wipe();
        hold(&far, BLOCK as u64 * 3);
        let fs = mounted(&o).await;
        let v = fs.volume().clone();
        refused(v.replace(&o, 1, false).await, "not blank");
        far.shows.set(1 << 20);
        refused(v.replace(&o, 1, true).await, "the WORM needs");
        far.shows.set(0);
        is_whole(&fs).await;
        v.replace(&o, 1, true).await.unwrap();
        all_have(&fs, &reactor).await;
        v.close().await.unwrap();
    });
}

#[test]
fn foreign_disk_in_place_of_a_lost_one_is_not_written() {
    with_two(720, |(o, _, cache, [near, _])| async move {
        // The cache device has nothing, and the first queried device holds something else.
        cache.wipe();
        volume::recover(&o, None).await.unwrap();
        near.wipe();
        hold(&near, 0);
        let before = near.writes();
        let fs = mounted(&o).await;
        is_whole(&fs).await;
        assert_eq!(near.writes(), before, "a disk that is not ours was written to");
        fs.volume().close().await.unwrap();
    });
}

/// R3 of volume/replace.rs.
#[test]
fn replace_refuses_to_discard_a_dump_that_only_the_lost_device_has() {
    with_two(730, |(o, reactor, _, [near, far])| async move {
        let fs = mounted(&o).await;
        near.hangs.set(true);
        let ino = file(&fs, "g").await;
        let seg = block(&o, 1);
        fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await.unwrap();
        fs.volume().dump(20_261_122).await.unwrap();
        while fs.volume().members()[1].behind > 0 {
            reactor.sleep(S).await;
        }
        near.failing.set(1000);
        near.hangs.set(false);
        fs.volume().close().await.unwrap();
        drop(fs);
        near.failing.set(0);
        far.wipe();
        let fs = mounted(&o).await;
        let v = fs.volume().clone();
        v.set_copying(false);
        let done = v.replace(&o, 1, true).await;
        assert!(matches!(&done, Err(Fault::Refused(w)) if w.contains("alone")), "{done:?}");
    });
}

#[test]
fn device_exchanged_while_the_copier_was_idle_gets_no_dump() {
    with_two(740, |(o, reactor, _, [_, far])| async move {
        let fs = mounted(&o).await;
        let v = fs.volume().clone();
        reactor.sleep(S).await;
        assert!(v.is_joined(1));
        far.wipe();
        let ino = file(&fs, "g").await;
        let seg = block(&o, 1);
        fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await.unwrap();
        v.dump(20_261_122).await.unwrap();
        reactor.sleep(3 * S).await;
        let report = v.members()[1].clone();
        assert!(report.behind > 0 && report.remedy == Remedy::Replace, "{report:?}");
        v.replace(&o, 1, false).await.unwrap();
        all_have(&fs, &reactor).await;
        v.close().await.unwrap();
    });
}
