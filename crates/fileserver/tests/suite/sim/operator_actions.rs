//! Occasional operator actions: pausing the copier, and removing files that dumps do not show.

use fileserver::files::{Flags, Inode, Kind, New, ROOT, Served};
use fileserver::volume::{self, View};
use reactor::sim::World;
use testkit::clock::S;

use super::disk::Disk;
use super::exposing::{all_have, block, file, roomy};
use super::model;
use super::server::{is_sound, mounted, new_file_system};

#[test]
fn copier_pauses_on_request_and_missing_blocks_are_reported() {
    let cache = Disk::new("cache", 40 << 20, 70);
    let legs = [Disk::new("near", 60 << 20, 71), Disk::new("far", 60 << 20, 72)];
    let near = legs[0].clone();
    roomy(&World::new(70), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        let fill = async |byte: u8| {
            for i in 0..500 {
                let seg = block(&o, byte);
                let at = i * 4096;
                fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
            }
        };
        fill(1).await;
        fs.volume().dump(20_261_121).await.unwrap();
        all_have(&fs, &o.reactor).await;
        assert!(fs.volume().members().iter().all(|l| l.lag_ns == 0));
        fs.volume().set_copying(false);
        fill(2).await;
        let writes = near.writes();
        fs.volume().dump(20_261_121).await.unwrap();
        o.reactor.sleep(100 * S).await;
        for leg in fs.volume().members() {
            assert!(leg.behind > 500 && (100 * S..110 * S).contains(&leg.lag_ns), "{leg:?}");
        }
        // Seats of the fence are written still.
        assert!(near.writes() - writes < 8, "{}", near.writes() - writes);
        fs.volume().set_copying(true);
        all_have(&fs, &o.reactor).await;
        assert!(fs.volume().members().iter().all(|l| l.lag_ns == 0));
        // In the middle of a dump too, and closing waits for nothing.
        fill(3).await;
        slow_worm_device(&near);
        fs.volume().dump(20_261_121).await.unwrap();
        o.reactor.sleep(S / 20).await;
        fs.volume().set_copying(false);
        o.reactor.sleep(10 * S).await;
        assert!(fs.volume().members()[0].behind > 0);
        fs.volume().close().await.unwrap();
        let fs = mounted(&o).await;
        all_have(&fs, &o.reactor).await;
        is_sound(&fs, View::Dump(3)).await;
    });
}

#[test]
fn dumps_taken_while_others_are_copied_hold_the_tree_of_their_time() {
    let cache = Disk::new("cache", 40 << 20, 70);
    let legs = [Disk::new("near", 60 << 20, 71), Disk::new("far", 60 << 20, 72)];
    legs.iter().zip([20, 90]).for_each(|(leg, ms)| leg.slow_ns.set(ms * 1_000_000));
    let lost = [cache.clone(), legs[0].clone()];
    roomy(&World::new(73), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        let mut trees = Vec::new();
        for byte in 1..=6_u8 {
            for i in 0..200 {
                let (seg, at) = (block(&o, byte), (i * 7 + u64::from(byte)) % 300 * 4096);
                fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await.unwrap();
            }
            trees.push(model::tree(&fs, View::Live).await.unwrap());
            fs.volume().dump(20_261_121).await.unwrap();
        }
        let behind: Vec<u64> = fs.volume().members().iter().map(|l| l.behind).collect();
        assert!(behind[1] > 1000 && behind[0] > 200, "several at a time: {behind:?}");
        all_have(&fs, &o.reactor).await;
        fs.volume().close().await.unwrap();
        // From the last leg alone.
        lost.iter().for_each(|disk| disk.wipe());
        assert_eq!(volume::recover(&o, None).await.unwrap().number, 6);
        let fs = mounted(&o).await;
        for (number, tree) in (1..).zip(&trees) {
            assert!(model::tree(&fs, View::Dump(number)).await.unwrap() == *tree, "{number}");
        }
    });
}

#[test]
fn server_recovers_an_older_dump_and_keeps_the_later_ones() {
    let cache = Disk::new("cache", 40 << 20, 70);
    let legs = [Disk::new("near", 60 << 20, 71)];
    let device = cache.clone();
    roomy(&World::new(74), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "f").await;
        let (mut trees, mut newest) = (Vec::new(), ino);
        for byte in 1..=3_u8 {
            let seg = block(&o, byte);
            fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await.unwrap();
            newest = file(&fs, &format!("f{byte}")).await;
            trees.push(model::tree(&fs, View::Live).await.unwrap());
            fs.volume().dump(20_261_120 + u32::from(byte)).await.unwrap();
        }
        all_have(&fs, &o.reactor).await;
        fs.volume().close().await.unwrap();
        device.wipe();
        let all = volume::dumps_on_worm(&o).await.unwrap();
        assert_eq!(
            all.iter().map(|d| d.date).collect::<Vec<_>>(),
            [20_261_121, 20_261_122, 20_261_123]
        );
        volume::recover(&o, Some(&all[0])).await.unwrap();
        let fs = mounted(&o).await;
        assert!(model::tree(&fs, View::Live).await.unwrap() == trees[0]);
        // A new file has a number that no file of a later dump has.
        let new = file(&fs, "g").await;
        assert!(new > newest, "{new} {newest}");
        trees.push(model::tree(&fs, View::Live).await.unwrap());
        fs.volume().dump(20_261_124).await.unwrap();
        all_have(&fs, &o.reactor).await;
        fs.volume().close().await.unwrap();
        device.wipe();
        assert_eq!(volume::recover(&o, None).await.unwrap().number, 4);
        let fs = mounted(&o).await;
        for (number, tree) in (1..).zip(&trees) {
            assert!(model::tree(&fs, View::Dump(number)).await.unwrap() == *tree, "{number}");
            is_sound(&fs, View::Dump(number)).await;
        }
    });
}

fn slow_worm_device(near: &Disk) {
    near.slow_ns.set(20_000_000);
}

#[test]
fn temporary_files_are_listed_and_removed_on_request() {
    let cache = Disk::new("cache", 40 << 20, 70);
    let legs = [Disk::new("leg", 60 << 20, 71)];
    roomy(&World::new(71), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let new = |kind, flags| New { kind, flags, mode: 0o644, ..New::default() };
        fs.run(|f| {
            let dir = f.create(ROOT, b"d", &new(Kind::Dir, Flags(0)))?;
            f.create(dir, b"kept", &new(Kind::File, Flags(0)))?;
            f.create(dir, b"gone", &new(Kind::File, Flags::TMP))?;
            f.create(ROOT, b"gone too", &new(Kind::File, Flags::TMP.with(Flags::APPEND)))
        })
        .await
        .unwrap();
        let names = async |dirs: bool| {
            let wanted = move |i: &Inode| (i.kind == Kind::Dir) == dirs;
            let mut all = Served::from(fs.clone()).paths_of(View::Live, wanted, 100).await.unwrap();
            all.sort();
            all
        };
        assert_eq!(names(true).await, ["/", "/d"]);
        assert_eq!(names(false).await, ["/d/gone", "/d/kept", "/gone too"]);
        let view = View::Dump(fs.volume().dump(20_261_121).await.unwrap().number);
        let all = Served::from(fs.clone()).paths_of(view, |_: &Inode| true, 100).await.unwrap();
        assert_eq!(all, ["/", "/d", "/d/kept"], "those that a dump shows");
        let mut gone = Served::from(fs.clone()).remove_temporary(0).await.unwrap();
        gone.sort();
        assert_eq!(gone, ["/d/gone", "/gone too"]);
        assert_eq!(names(false).await, ["/d/kept"]);
        assert_eq!(
            Served::from(fs.clone()).remove_temporary(0).await.unwrap(),
            Vec::<String>::new()
        );
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.highest > 0, "{found:?}");
    });
}
