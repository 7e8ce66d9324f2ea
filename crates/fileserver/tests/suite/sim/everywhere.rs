//! Power failure of all devices after each single operation of the cache device, while clients
//! write, sync and take a dump. Synced data are present, later data are present up to some moment,
//! and a reported dump equals the tree of its time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume::{Options, View};
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model;
use super::server::{filled, life, mounted, new_file_system, run, server};

/// Steps of the script, and after which of them everything is synced and a dump is taken.
const STEPS: u32 = 14;
const SYNCS: [u32; 3] = [3, 9, 12];
const DUMP: u32 = 6;
const LEN: usize = 10_000;

fn byte(step: u32) -> u8 {
    step as u8 + 1
}

/// A step: every third moves a file onto another, the others write one.
fn moves(step: u32) -> Option<(String, String)> {
    (step % 3 == 2).then(|| (format!("f{}", step % 4), format!("f{}", (step + 1) % 4)))
}

/// Names and contents after so many steps.
fn after(steps: u32) -> BTreeMap<String, u8> {
    let mut out = BTreeMap::new();
    for step in 0..steps {
        match moves(step) {
            None => drop(out.insert(format!("/f{}", step % 4), byte(step))),
            Some((from, to)) => {
                if let Some(held) = out.remove(&format!("/{from}")) {
                    out.insert(format!("/{to}"), held);
                }
            }
        }
    }
    out
}

async fn play(fs: &FileSystem, o: &Options, step: u32) {
    let seg = filled(o, LEN, byte(step));
    let name = format!("f{}", step % 4);
    fs.run(|f| {
        if let Some((from, to)) = moves(step) {
            return match f.lookup(View::Live, ROOT, from.as_bytes())? {
                Some(_) => f.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), true, 0),
                None => Ok(()),
            };
        }
        let ino = match f.lookup(View::Live, ROOT, name.as_bytes())? {
            Some(ino) => ino,
            None => f.create(ROOT, name.as_bytes(), &New { mode: 0o644, ..New::default() })?,
        };
        f.write(ino, 0, std::slice::from_ref(&seg), 0).map(drop)
    })
    .await
    .unwrap();
}

async fn tree(fs: &FileSystem, view: View) -> BTreeMap<String, u8> {
    let tree = model::tree(fs, view).await.unwrap();
    let one = |(path, held): (&String, &Option<Rc<Vec<u8>>>)| {
        let held = held.as_ref().unwrap();
        assert!(held.len() == LEN && held.iter().all(|b| *b == held[0]), "{path} is torn");
        (path.clone(), held[0])
    };
    tree.iter().map(one).collect()
}

/// Operations that had ended when the power failed.
#[derive(Default)]
struct Done {
    steps: Cell<u32>,
    synced: Cell<u32>,
    dumped: Cell<bool>,
}

/// False: everything had ended before.
fn cut_after(operations: i64) -> bool {
    let world = World::new(operations.cast_unsigned());
    let cache = Disk::new("cache", 6 << 20, 3);
    let legs = [Disk::new("leg", 30 << 20, 4)];
    let s = server(&world, "main", 1, &cache, &legs);
    let o = s.options.clone();
    let fs = run(&world, &s.reactor, async move { new_file_system(&o).await }).unwrap();
    let fuse = Rc::new(Cell::new(operations));
    *cache.fuse.borrow_mut() = Some(fuse.clone());
    let done: Rc<Done> = Rc::default();
    let (f, o, d) = (fs.clone(), s.options.clone(), done.clone());
    s.reactor.spawn("client", async move {
        for step in 0..STEPS {
            play(&f, &o, step).await;
            d.steps.set(step + 1);
            if SYNCS.contains(&step) {
                f.sync().await.unwrap();
                d.synced.set(step + 1);
            }
            if step == DUMP {
                f.volume().dump(20_261_121).await.unwrap();
                d.dumped.set(true);
                d.synced.set(step + 1);
            }
        }
        f.volume().close().await.unwrap();
        d.synced.set(STEPS);
    });
    let limits = Limits { ns: 400_000_000, steps: 1_000_000 };
    world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || false);
    drop(fs);
    s.reactor.shutdown();
    let burnt = fuse.get() <= 0;
    *cache.fuse.borrow_mut() = None;
    cache.power_cut();
    legs[0].power_cut();
    life(&world, &cache, &legs, |o| async move {
        let fs = mounted(&o).await;
        let now = tree(&fs, View::Live).await;
        let (least, most) = (done.synced.get(), done.steps.get());
        // A step may have been made durable before its client got the answer.
        let fits = (least..=(most + 1).min(STEPS)).any(|n| after(n) == now);
        assert!(fits, "after {operations} operations, {least} to {most} steps: {now:?}");
        let dumps = fs.volume().dumps();
        assert!(dumps.len() == 1 || !done.dumped.get(), "the dump is lost");
        for dump in &dumps {
            assert_eq!(tree(&fs, View::Dump(dump.number)).await, after(DUMP + 1));
            fs.volume().copied(dump).await.unwrap();
        }
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{operations}: {found:?}");
    });
    burnt
}

/// V2, J1.
#[test]
fn synced_data_survives_a_power_cut_after_any_cache_operation() {
    let mut operations = 1;
    while cut_after(operations) {
        operations += 1;
        assert!(operations < 1000, "it never ends");
    }
    assert!(operations > 20, "{operations} operations");
}
