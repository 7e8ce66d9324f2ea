//! Temporary files beside others: written, marked and unmarked, while dumps are taken and the power
//! fails. Every written word is unique, so that the words on the WORM are known for sure.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bio::{Pool, Seg};
use fileserver::Fault;
use fileserver::files::{Change, FileSystem, Flags, New, ROOT, Served};
use fileserver::volume::{self, View};
use reactor::sim::Actor;
use reactor::sim::{Limits, World};
use reactor::{Reactor, SeededRandom};

use super::disk::Disk;
use super::exposing::all_have;
use super::model;
use super::server::{Server, lend, life, mounted, run, server};

/// Upper half of every word that is written.
const MAGIC: u64 = 0x7e3a_51c0;
const NAMES: u64 = 8;

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub struct Totals {
    pub toggles: u64,
    pub dumps: u64,
    pub power_cuts: u64,
    pub amid: u64,
    pub recovered: u64,
    /// Words that the WORM has, and those that it must not have.
    pub there: u64,
    pub kept: u64,
}

struct File {
    ino: u64,
    /// None: a change of it is in progress.
    temporary: Option<bool>,
    /// So many are.
    changing: u32,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Beside {
    files: RefCell<BTreeMap<String, File>>,
    /// Words that a dump may have.
    may: RefCell<BTreeSet<u32>>,
    written: Cell<u32>,
    dumping: Cell<u32>,
    totals: RefCell<Totals>,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let all = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
    all.filter(|w| w >> 32 == MAGIC).map(|w| w as u32)
}

impl Beside {
    /// Files that are not known to be temporary may be in a dump that is taken now.
    fn allow(&self) {
        let files = self.files.borrow();
        let visible = files.values().filter(|f| f.temporary != Some(true));
        self.may.borrow_mut().extend(visible.flat_map(|f| words(&f.bytes)));
    }

    fn changed(&self) {
        if self.dumping.get() > 0 {
            self.allow();
        }
    }

    fn visible_tree(&self) -> model::Tree {
        let files = self.files.borrow();
        let visible = files.iter().filter(|(_, f)| f.temporary == Some(false));
        visible.map(|(n, f)| (format!("/{n}"), Some(Rc::new(f.bytes.clone())))).collect()
    }

    fn all(&self) -> model::Tree {
        let files = self.files.borrow();
        files.iter().map(|(n, f)| (format!("/{n}"), Some(Rc::new(f.bytes.clone())))).collect()
    }

    fn lend(&self, pool: &Pool, len: usize) -> (Vec<u8>, Vec<Seg>) {
        let first = self.written.get();
        self.written.set(first + (len / 8) as u32);
        let word = |i: usize| (MAGIC << 32 | u64::from(first + i as u32)).to_le_bytes();
        let bytes: Vec<u8> = (0..len / 8).flat_map(word).collect();
        let lent = lend(pool, &bytes, 40_000);
        (bytes, lent)
    }

    /// Sets or clears the bit, perhaps during another change. The value is known when no change is
    /// in progress any more.
    async fn toggle(&self, fs: &FileSystem, name: &str, set: bool) {
        let Some(ino) = self.files.borrow_mut().get_mut(name).map(|f| {
            (f.temporary, f.changing) = (None, f.changing + 1);
            f.ino
        }) else {
            return;
        };
        self.changed();
        let flags = if set { Flags::TMP } else { Flags(0) };
        let change = Change { flags: Some(flags), ..Change::default() };
        match fs.run(|f| f.set(ino, &change)).await {
            Ok(()) | Err(Fault::NotFound | Fault::Closed) => {}
            Err(fault) => panic!("{fault}"),
        }
        let is = fs.run(|f| f.inode(View::Live, ino)).await.map(|i| i.flags.has(Flags::TMP));
        let mut files = self.files.borrow_mut();
        if let Some(f) = files.get_mut(name).filter(|f| f.ino == ino) {
            f.changing -= 1;
            f.temporary = is.ok().filter(|_| f.changing == 0);
        }
        self.totals.borrow_mut().toggles += 1;
        drop(files);
        self.changed();
    }

    async fn write(&self, fs: &FileSystem, pool: &Pool, name: &str, at: usize, len: usize) {
        let Some(ino) = self.files.borrow().get(name).map(|f| f.ino) else { return };
        let (bytes, lent) = self.lend(pool, len);
        let done = fs.run(|f| f.write(ino, at as u64, &lent, 0)).await;
        let mut files = self.files.borrow_mut();
        match (done, files.get_mut(name).filter(|f| f.ino == ino)) {
            (Ok(_), Some(f)) => {
                f.bytes.resize(f.bytes.len().max(at + len), 0);
                f.bytes[at..at + len].copy_from_slice(&bytes);
            }
            (Ok(_) | Err(Fault::NotFound), None) => {}
            (done, _) => panic!("{name}: {done:?}"),
        }
        drop(files);
        self.changed();
    }

    async fn cut(&self, fs: &FileSystem, name: &str, size: usize) {
        let Some(ino) = self.files.borrow().get(name).map(|f| f.ino) else { return };
        let change = Change { size: Some(size as u64), ..Change::default() };
        let done = fs.run(|f| f.set(ino, &change)).await;
        let mut files = self.files.borrow_mut();
        match (done, files.get_mut(name).filter(|f| f.ino == ino)) {
            (Ok(()), Some(f)) => f.bytes.resize(size, 0),
            (Ok(()) | Err(Fault::NotFound), None) => {}
            (done, _) => panic!("{name}: {done:?}"),
        }
    }

    async fn create(&self, fs: &FileSystem, name: &str, temporary: bool) {
        let flags = if temporary { Flags::TMP } else { Flags(0) };
        let new = New { flags, mode: 0o644, ..New::default() };
        let result = fs.run(|f| f.create(ROOT, name.as_bytes(), &new)).await;
        let Ok(ino) = result else { return };
        let file = File { ino, temporary: Some(temporary), changing: 0, bytes: Vec::new() };
        self.files.borrow_mut().insert(name.into(), file);
    }

    /// Perhaps while a client has it open.
    async fn remove(&self, fs: &FileSystem, name: &str, held: bool) {
        let ino = self.files.borrow().get(name).map(|f| f.ino);
        let _held = ino.filter(|_| held).map(|ino| Served::from(fs.clone()).hold(ino));
        if fs.run(|f| f.remove(ROOT, name.as_bytes(), 0)).await.is_ok() {
            self.files.borrow_mut().remove(name);
        }
    }

    async fn dump(&self, fs: &FileSystem) -> u32 {
        self.dumping.set(self.dumping.get() + 1);
        self.allow();
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        self.allow();
        self.dumping.set(self.dumping.get() - 1);
        self.totals.borrow_mut().dumps += 1;
        dump.number
    }

    /// Nothing reached a device of the WORM that no dump may have.
    fn look_at_worm(&self, legs: &[Rc<Disk>]) {
        let may = self.may.borrow();
        for leg in legs {
            let bytes = leg.with(|m| {
                let mut all = vec![0; m.size() as usize];
                m.read(0, &mut all).unwrap();
                all
            });
            for word in words(&bytes) {
                assert!(may.contains(&word), "word {word} of a temporary file is on the WORM");
                self.totals.borrow_mut().there += 1;
            }
        }
        self.totals.borrow_mut().kept += u64::from(self.written.get()) - may.len() as u64;
    }
}

async fn client(b: Rc<Beside>, fs: FileSystem, pool: Pool, reactor: Reactor, mut r: SeededRandom) {
    for _ in 0..30 {
        let name = format!("t{}", r.below(NAMES));
        let size = b.files.borrow().get(&name).map_or(0, |f| f.bytes.len()) as u64;
        // Data that are read in one step have to fit the block cache (50005).
        let size = size.min(100_000);
        let longest = if r.chance(200) { 40_000 } else { 3000 };
        match r.below(100) {
            0..15 => b.create(&fs, &name, r.chance(500)).await,
            15..55 => {
                let (at, len) = (r.below(size / 8 + 200) * 8, (1 + r.below(longest)) * 8);
                b.write(&fs, &pool, &name, at as usize, len as usize).await;
            }
            55..75 => b.toggle(&fs, &name, r.chance(500)).await,
            75..82 => b.cut(&fs, &name, r.below(size / 8 + 100) as usize * 8).await,
            82..87 => b.remove(&fs, &name, r.chance(500)).await,
            87..95 => drop(b.dump(&fs).await),
            _ => fs.sync().await.unwrap(),
        }
        reactor.sleep(r.below(3_000_000)).await;
    }
}

/// Several at a time set and clear the bit of each file.
async fn fight(
    b: &Rc<Beside>,
    fs: &FileSystem,
    reactor: &Reactor,
    random: &Rc<RefCell<SeededRandom>>,
) {
    let names: Vec<String> = b.files.borrow().keys().cloned().collect();
    let left = Rc::new(Cell::new(0));
    for (name, _) in names.iter().flat_map(|n| (0..4).map(move |i| (n, i))) {
        let (set, pause) = {
            let mut random = random.borrow_mut();
            (random.chance(500), random.below(4_000_000))
        };
        let (b, fs, r, left) = (b.clone(), fs.clone(), reactor.clone(), left.clone());
        let name = name.clone();
        left.set(left.get() + 1);
        reactor.spawn("fighter", async move {
            r.sleep(pause).await;
            b.toggle(&fs, &name, set).await;
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        reactor.sleep(1_000_000).await;
    }
}

async fn opened(s: &Server, b: &Beside, dumps: &[(u32, model::Tree)]) -> FileSystem {
    let fs = mounted(&s.options).await;
    let found = model::tree(&fs, View::Live).await.unwrap();
    assert_eq!(model::differ(&b.all(), &found), None);
    for (number, tree) in dumps {
        let found = model::tree(&fs, View::Dump(*number)).await.unwrap();
        assert_eq!(model::differ(tree, &found), None, "dump {number}");
        let found = fs.check(View::Dump(*number), true).await.unwrap();
        assert_eq!(found.faults, Vec::<String>::new(), "dump {number}");
    }
    let found = fs.check(View::Live, true).await.unwrap();
    assert_eq!(found.faults, Vec::<String>::new());
    assert!(found.orphans > 0 || found.leaked == 0, "{found:?}");
    fs
}

/// One seed: lives of a server that end in order, amid a change of the bit, or with the cache
/// device.
pub fn play(seed: u64) -> Totals {
    let world = World::new(seed);
    let random = Rc::new(RefCell::new(SeededRandom::new(seed ^ 0x7e3a)));
    let cache = Disk::new("cache", 24 << 20, seed ^ 1);
    let legs = [Disk::new("near", 48 << 20, seed ^ 2)];
    let b: Rc<Beside> = Rc::default();
    life(&world, &cache, &legs, |o| async move { volume::ream(&o).await.unwrap() });
    let mut dumps: Vec<(u32, model::Tree)> = Vec::new();
    for _ in 0..4 {
        let s = Rc::new(server(&world, "main", 1, &cache, &legs));
        let (s2, b2, r2) = (s.clone(), b.clone(), random.clone());
        let (known, disks) = (dumps.clone(), legs.to_vec());
        let lived = run(&world, &s.reactor, async move {
            let fs = opened(&s2, &b2, &known).await;
            let (r, pool) = (s2.reactor.clone(), s2.options.pool.clone());
            let ended = Rc::new(Cell::new(0));
            for _ in 0..2 {
                let random = SeededRandom::new(r2.borrow_mut().below(u64::MAX));
                let one = client(b2.clone(), fs.clone(), pool.clone(), r.clone(), random);
                let ended = ended.clone();
                r.spawn("client", async move {
                    one.await;
                    ended.set(ended.get() + 1);
                });
            }
            while ended.get() < 2 {
                r.sleep(1_000_000).await;
            }
            fight(&b2, &fs, &r, &r2).await;
            let (tree, number) = (b2.visible_tree(), b2.dump(&fs).await);
            all_have(&fs, &r).await;
            b2.look_at_worm(&disks);
            let found = model::tree(&fs, View::Dump(number)).await.unwrap();
            assert_eq!(model::differ(&tree, &found), None, "dump {number}");
            let found = fs.check(View::Live, false).await.unwrap();
            assert_eq!(found.faults, Vec::<String>::new());
            let names: Vec<String> = b2.files.borrow().keys().cloned().collect();
            (fs, number, tree, names)
        });
        let (fs, number, tree, names) = lived.unwrap();
        dumps.push((number, tree.clone()));
        let end = random.borrow_mut().below(3);
        if end == 0 {
            // Amid a change of the bit of all that are there.
            let fs2 = fs.clone();
            run(&world, &s.reactor, async move { fs2.sync().await }).unwrap().unwrap();
            for name in names {
                let (b, fs) = (b.clone(), fs.clone());
                let is = b.files.borrow()[&name].temporary == Some(true);
                s.reactor.spawn("toggle", async move { b.toggle(&fs, &name, !is).await });
            }
            let (fs2, r) = (fs.clone(), s.reactor.clone());
            s.reactor.spawn("sync", async move {
                while fs2.sync().await.is_ok() {
                    r.sleep(100_000).await;
                }
            });
            let ns = random.borrow_mut().below(2_500_000);
            let limits = Limits { ns, steps: 20_000_000 };
            world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || false);
            b.totals.borrow_mut().power_cuts += 1;
        } else {
            let fs = fs.clone();
            run(&world, &s.reactor, async move { fs.volume().close().await }).unwrap().unwrap();
        }
        drop(fs);
        s.reactor.shutdown();
        legs.iter().chain([&cache]).for_each(|d| d.power_cut());
        if end == 2 {
            cache.wipe();
            let found = life(&world, &cache, &legs, |o| async move {
                volume::recover(&o, None).await.unwrap().number
            });
            assert_eq!(found, number);
            b.files.borrow_mut().retain(|_, f| f.temporary == Some(false));
            b.totals.borrow_mut().recovered += 1;
        }
        read_pending_flags(&world, &b, &cache, &legs);
    }
    b.totals.take()
}

/// Reads the flags whose change was in progress, and not acknowledged, when the power failed.
fn read_pending_flags(world: &World, b: &Rc<Beside>, cache: &Rc<Disk>, legs: &[Rc<Disk>]) {
    let b = b.clone();
    life(world, cache, legs, |o| async move {
        let fs = mounted(&o).await;
        let inos: Vec<(String, u64)> =
            b.files.borrow().iter().map(|(n, f)| (n.clone(), f.ino)).collect();
        for (name, ino) in inos {
            let flags = fs.run(|f| f.inode(View::Live, ino)).await.unwrap().flags;
            let is = flags.has(Flags::TMP);
            if let Some(f) = b.files.borrow_mut().get_mut(&name) {
                b.totals.borrow_mut().amid += u64::from(f.temporary.is_none());
                (f.temporary, f.changing) = (Some(is), 0);
            }
        }
        fs.volume().close().await.unwrap();
    });
}
