//! Blocks that a check of an image, and the next start, regard as free: cases that the story
//! reaches too seldom.

use std::cell::Cell;
use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::{Ino, New, ROOT, Served};
use fileserver::image::format::{self, BLOCK, Layout, PAYLOAD};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};

use super::disk::Disk;
use super::image::watch;
use super::image_repair::Cache;
use super::model::walk;
use super::server::{image_disks, is_sound, lend, on};

const SETUP: Setup = Setup { once: false, layout: Some(Layout::Rows), read_only: false };

async fn open(o: &Options) -> Served {
    Served::from(image::open(o, SETUP).await.unwrap())
}

/// A new image on devices of so many blocks.
fn new_disks(cache: u64, worm: u64) -> [Rc<Disk>; 2] {
    let disks = image_disks(cache, worm);
    on((8, 400), &disks, |o| async move { image::ream(&o, SETUP).await.unwrap() });
    disks
}

async fn create(fs: &Served, name: &str) -> Ino {
    let new = New { mode: 0o644, ..New::default() };
    fs.run(|f| f.create(ROOT, name.as_bytes(), &new)).await.unwrap()
}

/// So many blocks are put to a file from `from` on.
async fn write(fs: &Served, o: &Options, ino: Ino, from: u64, many: u64) {
    for n in (from..from + many).step_by(50) {
        let some = 50.min(from + many - n) as usize;
        let data = lend(&o.pool, &vec![7; some * PAYLOAD], 30_000);
        fs.run(|f| f.write(ino, n * PAYLOAD as u64, &data, 0)).await.unwrap();
    }
}

/// A file is removed, and its blocks with it.
async fn remove(fs: &Served, o: &Options, name: &str) {
    let ino = fs.run(|f| f.remove(ROOT, name.as_bytes(), 0)).await.unwrap();
    while fs.run(|f| f.inode(View::Live, ino)).await.is_ok() {
        o.reactor.sleep(1_000_000).await;
    }
}

#[test]
fn removed_file_that_is_still_open_is_an_orphan_for_check() {
    on((8, 400), &new_disks(1100, 2000), |o| async move {
        let fs = open(&o).await;
        let ino = create(&fs, "held").await;
        write(&fs, &o, ino, 0, 20).await;
        let held = fs.hold(ino);
        fs.run(|f| f.remove(ROOT, b"held", 0)).await.unwrap();
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
        assert_eq!(found.orphans, 1);
        drop(held);
        fs.close().await.unwrap();
    });
}

#[test]
fn operation_without_room_in_the_log_does_not_wait_for_a_whole_commit() {
    let disks = new_disks(4000, 8000);
    let cache = disks[0].clone();
    on((8, 400), &disks, move |o| async move {
        // The log is full before the block cache.
        let fs = open(&Options { memory: 4000 * BLOCK, ..o.clone() }).await;
        let ino = create(&fs, "f").await;
        // Nothing is to be loaded afterwards.
        write(&fs, &o, ino, 0, 2000).await;
        fs.sync().await.unwrap();
        let mut waited = None;
        for n in 0..2000 {
            let (commits, writes) = (fs.facts().commits, cache.writes());
            write(&fs, &o, ino, n, 1).await;
            if fs.facts().commits > commits {
                waited = Some((n, cache.writes() - writes));
                break;
            }
        }
        // The commit has all blocks before it writes the first one.
        let (n, writes) = waited.expect("the log has no end");
        assert!(n >= 200 && writes <= 2, "block {n} waited for {writes} writes");
        fs.close().await.unwrap();
    });
}

/// I1 of image/mod.rs.
#[test]
fn incomplete_commit_is_ignored_at_the_next_start() {
    let disks = new_disks(1100, 2000);
    let (cache, worm) = (disks[0].clone(), disks[1].clone());
    let all = move || {
        let mut bytes = vec![0; cache.with(|m| m.size()) as usize];
        cache.with(|m| m.read(0, &mut bytes)).unwrap();
        bytes
    };
    let cache = disks[0].clone();
    on((8, 400), &disks, move |o| async move {
        let fs = open(&o).await;
        // The superblock waits: what becomes free is noted.
        worm.failing.set(1000);
        fs.dump(20_261_121).await.unwrap();
        let ino = create(&fs, "f").await;
        write(&fs, &o, ino, 0, 20).await;
        fs.sync().await.unwrap();
        let (before, commits) = (all(), fs.facts().commits);
        remove(&fs, &o, "f").await;
        fs.sync().await.unwrap();
        assert_eq!(fs.facts().commits, commits + 1);
        // Of that commit the head alone reached the device.
        let h = format::Header::read(&before[2 * BLOCK..]);
        let head = h.slack((before.len() / BLOCK) as u64).0 as usize * BLOCK;
        let now = all();
        assert!(now[head..head + BLOCK] != before[head..head + BLOCK]);
        fs.close().await.unwrap();
        cache.with(|m| m.write(0, &before, true)).unwrap();
        cache.with(|m| m.write(head as u64, &now[head..head + BLOCK], true)).unwrap();
    });
    on((8, 400), &disks, |o| async move {
        let fs = open(&o).await;
        assert!(fs.run(|f| f.lookup(View::Live, ROOT, b"f")).await.unwrap().is_some());
        is_sound(&fs, View::Live).await;
        fs.close().await.unwrap();
    });
}

/// Entries of the free list in the superblock itself, and the length of the whole list.
fn listed(disks: &[Rc<Disk>; 2]) -> (u64, u64) {
    let cache = Cache(disks[0].clone());
    let b = cache.block(cache.place(cache.header().sb));
    (format::frees(&b).unwrap() as u64, format::Super::read(&b).tfree)
}

#[test]
fn blocks_allocated_during_a_check_are_no_fault() {
    let disks = image_disks(3000, 5000);
    disks[1].shows.set(4900 * BLOCK as u64);
    on((8, 400), &disks, |o| async move { image::ream(&o, SETUP).await.unwrap() });
    on((8, 400), &disks, |o| async move {
        let fs = open(&o).await;
        let ino = create(&fs, "large").await;
        write(&fs, &o, ino, 0, format::FREES as u64 + 200).await;
        let ino = create(&fs, "other").await;
        write(&fs, &o, ino, 0, 8).await;
        remove(&fs, &o, "large").await;
        fs.close().await.unwrap();
    });
    // All entries in the superblock are used: the next one is a block of the list itself.
    let mut n = 8;
    loop {
        let (seen, all) = listed(&disks);
        assert!(all >= format::FREES as u64, "{all}");
        if seen == 1 {
            break;
        }
        let more = seen - 1;
        on((8, 400), &disks, move |o| async move {
            let fs = open(&o).await;
            let other = fs.run(|f| walk(f, View::Live, "/other")).await.unwrap();
            write(&fs, &o, other, n, more).await;
            fs.close().await.unwrap();
        });
        n += more;
    }
    // The header is changed by a growth, and in memory then.
    disks[1].shows.set(0);
    on((8, 400), &disks, move |o| async move {
        let fs = open(&o).await;
        // What leads to the file's end is in memory, and nothing of the list.
        let other = fs.run(|f| walk(f, View::Live, "/other")).await.unwrap();
        let last = (n - 1) * PAYLOAD as u64;
        fs.run(|f| f.read(View::Live, other, last, 1, &mut Vec::new())).await.unwrap();
        let (client, task) = (fs.clone(), o.clone());
        o.reactor.spawn("client", async move { write(&client, &task, other, n, 1).await });
        o.reactor.yield_now().await;
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
        assert_eq!(
            fs.run(|f| f.inode(View::Live, other)).await.unwrap().size,
            last + 2 * PAYLOAD as u64
        );
        fs.close().await.unwrap();
    });
}

/// I8 of image/mod.rs.
#[test]
fn blocks_of_a_dump_without_space_reach_the_worm_unchanged() {
    let disks = new_disks(2500, 775);
    let (cache, worm) = (disks[0].clone(), disks[1].clone());
    on((8, 400), &disks, move |o| async move {
        let fs = open(&o).await;
        let ino = create(&fs, "f").await;
        write(&fs, &o, ino, 0, 20).await;
        let d = fs.dump(20_261_121).await.unwrap();
        fs.copied(&d).await.unwrap();
        fs.set_copying(false);
        write(&fs, &o, ino, 0, 20).await;
        let (big, mut n) = (create(&fs, "big").await, 0);
        let left = || fs.facts().worm - fs.facts().next;
        while left() >= 100 {
            write(&fs, &o, big, n, 1).await;
            n += 1;
        }
        assert!(left() >= 60, "{} are left", left());
        fs.sync().await.unwrap();
        let seen = Rc::new(Cell::new(0));
        let saw = seen.clone();
        watch(&cache, &worm, (false, Layout::Rows), move || saw.set(saw.get() + 1));
        // A client has the rest before the dump that has begun is one.
        let (full, client, task) = (Rc::new(Cell::new(false)), fs.clone(), o.clone());
        let is_full = full.clone();
        o.reactor.spawn("client", async move {
            let data = lend(&task.pool, &vec![8; PAYLOAD], 30_000);
            while client.run(|f| f.write(big, n * PAYLOAD as u64, &data, 0)).await.is_ok() {
                n += 1;
            }
            is_full.set(true);
        });
        let fault = fs.dump(20_261_122).await.expect_err("no room");
        assert!(matches!(fault, Fault::NoSpace(_)), "{fault}");
        while !full.get() {
            o.reactor.sleep(1_000_000).await;
        }
        // The block is changed in place, once the WORM has its former contents.
        write(&fs, &o, ino, 0, 1).await;
        assert!(seen.get() > 0);
        is_sound(&fs, View::Live).await;
        fs.close().await.unwrap();
    });
}
