//! Addresses of images that become free while a superblock waits for the WORM: more than the log's
//! head holds. None is lost, and each is given again.

use std::rc::Rc;

use fileserver::files::{New, ROOT, Served};
use fileserver::image::format::{self, BLOCK, BlockState, Layout, PAYLOAD, Tag};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::image_repair::Cache;
use super::server::{image_disks, lend, on, run, server};

/// Blocks of the file that is removed: two nodes of spare addresses.
const MANY: u64 = 2400;
const SETUP: Setup = Setup { once: false, layout: Some(Layout::Rows), read_only: false };

/// A server's life on the devices as they are. `cut`: it ends without a close, by a loss of power.
fn life<F: Future<Output = ()> + 'static>(
    disks: &[Rc<Disk>; 2],
    cut: bool,
    task: impl FnOnce(Options, Served) -> F + 'static,
) {
    let world = World::new(7);
    let mut s = server(&world, "s", 1, &disks[0], &disks[1..]);
    s.options.memory = 400 * BLOCK;
    let o = s.options.clone();
    run(&world, &s.reactor, async move {
        let fs = Served::from(image::open(&o, SETUP).await.unwrap());
        task(o, fs.clone()).await;
        if !cut {
            fs.close().await.unwrap();
        }
    })
    .unwrap();
    let limits = Limits { ns: 1_000_000_000, steps: 1_000_000 };
    world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || false);
    s.reactor.shutdown();
    disks.iter().for_each(|d| d.power_cut());
}

async fn write(fs: &Served, o: &Options) {
    let some = 50;
    let data = lend(&o.pool, &vec![7; some * PAYLOAD], 30_000);
    let new = New { mode: 0o644, ..New::default() };
    let ino = fs.run(|f| f.create(ROOT, b"large", &new)).await.unwrap();
    for n in 0..MANY / some as u64 {
        let at = n * (some * PAYLOAD) as u64;
        fs.run(|f| f.write(ino, at, &data, 0)).await.unwrap();
    }
}

/// The file is removed, and its blocks with it.
async fn remove(fs: &Served, o: &Options) {
    let ino = fs.run(|f| f.remove(ROOT, b"large", 0)).await.unwrap();
    while fs.run(|f| f.inode(View::Live, ino)).await.is_ok() {
        o.reactor.sleep(10_000_000).await;
    }
}

async fn is_whole(fs: &Served) {
    let found = fs.check(View::Live, true).await.unwrap();
    assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
}

/// An image whose superblock waits, and from which so much has been removed.
fn new_disks(cut: bool) -> [Rc<Disk>; 2] {
    let disks = image_disks(4200, 6000);
    on((6, 400), &disks, |o| async move { image::ream(&o, SETUP).await.unwrap() });
    let worm = disks[1].clone();
    life(&disks, cut, |o, fs| async move {
        worm.failing.set(1000);
        fs.dump(20_261_121).await.unwrap();
        write(&fs, &o).await;
        remove(&fs, &o).await;
        is_whole(&fs).await;
        fs.sync().await.unwrap();
        // Another commit: nodes are not in the log any more.
        fs.run(|f| f.create(ROOT, b"small", &New::default())).await.unwrap();
        fs.sync().await.unwrap();
    });
    disks
}

#[test]
fn freed_addresses_that_wait_for_a_superblock_are_not_lost() {
    for cut in [false, true] {
        let disks = new_disks(cut);
        // They are given again, while the superblock still waits.
        life(&disks, cut, |o, fs| async move {
            is_whole(&fs).await;
            let end = fs.facts().next;
            write(&fs, &o).await;
            is_whole(&fs).await;
            assert_eq!(fs.facts().next, end, "none is new");
            remove(&fs, &o).await;
            fs.sync().await.unwrap();
        });
        disks[1].failing.set(0);
        // It waits no more: they are on the list.
        life(&disks, cut, |o, fs| async move {
            let end = fs.facts().next;
            while fs.members()[0].behind > 0 {
                o.reactor.sleep(1_000_000_000).await;
            }
            o.reactor.sleep(1_000_000_000).await;
            is_whole(&fs).await;
            write(&fs, &o).await;
            assert_eq!(fs.facts().next, end, "none is new");
            is_whole(&fs).await;
            fs.sync().await.unwrap();
        });
        life(&disks, false, |_, fs| async move { is_whole(&fs).await });
    }
}

#[test]
fn unreadable_spare_addresses_are_reported_and_recovered() {
    let disks = new_disks(false);
    let cache = Cache(disks[0].clone());
    let is_node = |at: u64| format::tag_of(&cache.block(at)) == Tag::Free as u16;
    let nodes =
        cache.all().into_iter().filter(|(_, s, at)| *s == BlockState::Dirty && is_node(*at));
    let nodes: Vec<u64> = nodes.map(|(.., at)| at).collect();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    for at in nodes {
        cache.change(at, |b| format::set_tag(b, Tag::File, 4711));
    }
    life(&disks, false, |_, fs| async move {
        let found = fs.check(View::Live, true).await.unwrap();
        let [fault] = &found.faults[..] else { panic!("{found:?}") };
        assert!(
            fault.starts_with("spare addresses: ") && fault.contains("Free should be"),
            "{fault}"
        );
        assert!(found.leaked > MANY - 300, "{found:?}");
    });
    disks[1].failing.set(0);
    life(&disks, false, |_, fs| async move {
        let done = fs.repair(false, false).await.unwrap();
        assert_eq!(done.len(), 2, "{done:?}");
        is_whole(&fs).await;
    });
    life(&disks, false, |_, fs| async move { is_whole(&fs).await });
}
