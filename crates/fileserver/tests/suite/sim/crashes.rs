//! Power failure after each single operation of the cache device, during operations whose first
//! results clients have seen already: removing an open file, giving numbers, growing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bio::Seg;
use fileserver::Fault;
use fileserver::files::{Change, FileSystem, New, ROOT};
use fileserver::volume::{self, Options, View};
use reactor::Reactor;
use reactor::sim::{Actor, Limits, World};
use testkit::Seeds;

use super::disk::Disk;
use super::model;
use super::server::{filled, is_sound, run, server};

const KIB: usize = 1024;
const BLOCK: usize = 4096;

/// Where files live that a power cut leaves.
pub struct TestDevices {
    pub cache: Rc<Disk>,
    pub worm_devices: [Rc<Disk>; 1],
    seed: u64,
}

/// A life between two power cuts.
pub struct Life {
    pub fs: FileSystem,
    options: Options,
    pub reactor: Reactor,
    /// Blocks that the next dump would hold and scratch, as the life before left them.
    pub found: (u64, u64),
}

impl TestDevices {
    pub fn new(seed: u64, cache_mib: u64) -> TestDevices {
        let cache = Disk::new("cache", cache_mib << 20, seed);
        TestDevices { cache, worm_devices: [Disk::new("leg", 60 << 20, seed ^ 1)], seed }
    }

    /// Lives until `what` has ended or the cache device has done so many operations, then the power
    /// fails. None: it failed before the end.
    pub fn live<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        operations: Option<i64>,
        what: impl FnOnce(Rc<Life>) -> F,
    ) -> Option<T> {
        let world = World::new(self.seed);
        let s = server(&world, "main", 1, &self.cache, &self.worm_devices);
        let o = s.options.clone();
        let life = run(&world, &s.reactor, async move {
            if !volume::is_formatted(&o).await {
                volume::ream(&o).await.unwrap();
            }
            let volume = volume::open(&o).await.unwrap();
            let found = volume.used_by_live();
            let fs = FileSystem::mount(volume, 0, 0).await.unwrap();
            Rc::new(Life { fs, reactor: o.reactor.clone(), options: o, found })
        });
        let out: Rc<RefCell<Option<T>>> = Rc::default();
        let (to, task) = (out.clone(), what(life.unwrap()));
        let fuse = operations.map(|n| Rc::new(Cell::new(n)));
        self.cache.fuse.borrow_mut().clone_from(&fuse);
        s.reactor.spawn("life", async move {
            let done = task.await;
            *to.borrow_mut() = Some(done);
        });
        let is_over = || out.borrow().is_some() || fuse.as_ref().is_some_and(|f| f.get() <= 0);
        let limits = Limits { ns: 1_000_000_000_000, steps: 10_000_000 };
        world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || is_over());
        assert!(is_over(), "it does not end: {:?}", s.reactor.tasks());
        s.reactor.shutdown();
        *self.cache.fuse.borrow_mut() = None;
        self.cache.power_cut();
        self.worm_devices[0].power_cut();
        out.take()
    }
}

impl Life {
    fn seg(&self, len: usize, byte: u8) -> Seg {
        filled(&self.options, len, byte)
    }

    pub async fn create(&self, name: &str) -> Result<u64, Fault> {
        let new = New { mode: 0o644, ..New::default() };
        self.fs.run(|f| f.create(ROOT, name.as_bytes(), &new)).await
    }

    pub async fn fill(&self, ino: u64, at: usize, len: usize, byte: u8) {
        let some = self.seg(10 * KIB, byte);
        for at in (at..at + len).step_by(10 * KIB) {
            assert_eq!(self.write(ino, at, &some).await.unwrap(), 10 * KIB);
        }
    }

    async fn write(&self, ino: u64, at: usize, seg: &Seg) -> Result<usize, Fault> {
        self.fs.run(|f| f.write(ino, at as u64, std::slice::from_ref(seg), 0)).await
    }

    pub async fn bytes(&self, ino: u64) -> Vec<u8> {
        self.fs.run(|f| model::read_all(f, View::Live, ino)).await.unwrap()
    }

    pub async fn lookup(&self, name: &str) -> Option<u64> {
        self.fs.run(|f| f.lookup(View::Live, ROOT, name.as_bytes())).await.unwrap()
    }

    fn used(&self) -> u64 {
        let (tree, scratch) = self.fs.volume().used_by_live();
        tree + scratch
    }

    pub async fn is_whole(&self) {
        is_sound(&self.fs, View::Live).await;
    }
}

/// Blocks in use before the file, and after its removal while it was open.
async fn removed_while_open(life: Rc<Life>) -> u64 {
    let ino = life.lookup("open").await.unwrap();
    let held = life.fs.hold(ino);
    life.fs.run(|f| f.remove(ROOT, b"open", 0)).await.unwrap();
    life.fill(ino, 200 * KIB, 100 * KIB, 2).await;
    life.fs.sync().await.unwrap();
    let bytes = life.bytes(ino).await;
    assert!(bytes[..200 * KIB].iter().all(|b| *b == 1) && bytes[200 * KIB..] == [2; 100 * KIB]);
    drop(held);
    while life.fs.run(|f| f.inode(View::Live, ino)).await.is_ok() {
        life.reactor.sleep(1_000_000).await;
    }
    life.fs.sync().await.unwrap();
    life.used()
}

/// I3 of files/mod.rs.
#[test]
fn exposing_2_space_of_a_removed_open_file_is_free_after_a_crash() {
    let (mut operations, mut gone, mut there) = (1, 0, 0);
    loop {
        let devices = TestDevices::new(operations as u64, 20);
        let before = devices.live(None, |life| async move {
            let other = life.create("other").await.unwrap();
            life.fill(other, 0, 50 * KIB, 9).await;
            life.fs.sync().await.unwrap();
            let before = life.used();
            let ino = life.create("open").await.unwrap();
            life.fill(ino, 0, 200 * KIB, 1).await;
            life.fs.sync().await.unwrap();
            assert!(life.used() >= before + 50, "it takes room");
            before
        });
        let before = before.unwrap();
        if let Some(after) = devices.live(Some(operations), removed_while_open) {
            assert_eq!(after, before, "without a crash");
            break;
        }
        let is_there = devices.live(None, move |life| async move {
            let Some(ino) = life.lookup("open").await else {
                // All of its rest is given back by itself.
                let mut waits = 0;
                while life.used() != before {
                    life.reactor.sleep(10_000_000).await;
                    waits += 1;
                    assert!(waits < 1000, "{} blocks where {before} were", life.used());
                }
                life.is_whole().await;
                return false;
            };
            life.is_whole().await;
            assert!(life.bytes(ino).await[..200 * KIB].iter().all(|b| *b == 1));
            true
        });
        match is_there.unwrap() {
            true => there += 1,
            false => gone += 1,
        }
        operations += 1;
    }
    assert!(gone > 2 && there > 2, "{gone} without the name, {there} with it");
}

/// Contents by path and version, as reported to clients.
type ReportedContents = Rc<RefCell<HashMap<(u64, u64), u32>>>;

/// Makes, writes and removes files until the power fails; each round has contents of its own.
async fn give_numbers(life: Rc<Life>, reported: ReportedContents, round: Rc<Cell<u32>>) {
    let ino = match life.lookup("stays").await {
        Some(ino) => ino,
        None => life.create("stays").await.unwrap(),
    };
    loop {
        round.set(round.get() + 1);
        let n = round.get();
        let name = format!("f{n}");
        let created = life.create(&name).await.unwrap();
        for ino in [created, ino] {
            let version = async |contents: u32| {
                let inode = life.fs.run(|f| f.inode(View::Live, ino)).await.unwrap();
                let before = reported.borrow_mut().insert((ino, inode.version), contents);
                assert!(before.is_none_or(|b| b == contents), "{ino} {} twice", inode.version);
            };
            if ino == created {
                let is_new = reported.borrow().keys().all(|(path, _)| *path != created);
                assert!(is_new, "{created} is another file's");
                version(0).await;
            }
            let seg = life.seg(BLOCK, n as u8);
            life.write(ino, 0, &seg).await.unwrap();
            version(n).await;
        }
        if n.is_multiple_of(3) {
            life.fs.sync().await.unwrap();
        }
        life.fs.run(|f| f.remove(ROOT, name.as_bytes(), 0)).await.unwrap();
    }
}

/// I1 of files/mod.rs.
#[test]
fn exposing_14_qid_paths_and_versions_are_not_reused_after_a_crash() {
    for seed in Seeds::of(12) {
        let devices = TestDevices::new(seed, 6);
        let (reported, round) = (ReportedContents::default(), Rc::new(Cell::new(0)));
        for operations in 1..25_i64 {
            let (reported, round) = (reported.clone(), round.clone());
            let cut = operations * (1 + seed as i64 % 3);
            devices.live(Some(cut), |life| give_numbers(life, reported, round));
        }
        let paths = reported.borrow().len();
        assert!(paths > 40, "{paths} told");
    }
}

/// A write of five blocks where `free` are free: its result, and the contents.
async fn grow(life: Rc<Life>, free: usize) -> (usize, bool) {
    let small = life.create("small").await.unwrap();
    if free > 0 {
        life.write(small, 0, &life.seg(free * BLOCK, 3)).await.unwrap();
    }
    let grows = life.create("grows").await.unwrap();
    let filler = life.create("filler").await.unwrap();
    let (one, mut at) = (life.seg(BLOCK, 9), 0);
    loop {
        match life.write(filler, at, &one).await {
            Ok(n) => at += n,
            Err(Fault::NoSpace(_)) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    // Space for so many, if the removed blocks are available before the next commit.
    let empty = Change { size: Some(0), ..Change::default() };
    life.fs.run(|f| f.set(small, &empty)).await.unwrap();
    let five = life.seg(5 * BLOCK, 7);
    let (wrote, whole) = match life.write(grows, 0, &five).await {
        Ok(n) => (n, n == 5 * BLOCK),
        Err(Fault::NoSpace(_)) => (0, false),
        Err(fault) => panic!("{fault}"),
    };
    assert_eq!(life.bytes(grows).await, vec![7; wrote], "{free} free");
    (wrote, whole)
}

#[test]
fn exposing_10_file_on_a_full_device_is_as_long_as_its_written_data() {
    let mut short = 0;
    for free in 0..8 {
        let devices = TestDevices::new(free as u64, 6);
        let (wrote, whole) = devices.live(None, |life| grow(life, free)).unwrap();
        short += usize::from(!whole);
        devices.live(None, move |life| async move {
            // Unsynced data may be lost; existing data are whole.
            if let Some(ino) = life.lookup("grows").await {
                let bytes = life.bytes(ino).await;
                assert!(bytes.len() <= wrote && bytes.iter().all(|b| *b == 7), "{free} free");
            }
            life.is_whole().await;
        });
    }
    assert!(short > 0, "five blocks fitted every time");
}
