//! Images of cwfs64x: files, dumps, power cuts, a lost cache device; contents and all dumps beside
//! a model, and the image in order by the check's rules after each start.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::Seg;
use fileserver::files::{Change, Files, Kind, New, ROOT, Served};
use fileserver::image::{self, Setup, format::BLOCK, format::Layout};
use fileserver::volume::{Options, View};
use fileserver::{Fault, Stop};
use reactor::SeededRandom;
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model::Tree;
use super::story;

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub struct Tally {
    pub operations: u64,
    pub cuts: u64,
    pub dumps: u64,
    pub recovered: u64,
    pub full: u64,
}

struct World1 {
    random: RefCell<SeededRandom>,
    /// Every state since the last start, and which of them was synced.
    states: RefCell<Vec<Rc<Tree>>>,
    synced: Cell<usize>,
    /// Dumps by date and serial, with what they hold.
    dumps: RefCell<BTreeMap<(u32, u32), Rc<Tree>>>,
    /// One was asked for and not reported: what it would hold.
    asked: RefCell<Option<Rc<Tree>>>,
    tally: RefCell<Tally>,
}

impl World1 {
    fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }

    fn now(&self) -> Rc<Tree> {
        self.states.borrow().last().cloned().unwrap_or_default()
    }

    fn change(&self, f: impl FnOnce(&mut Tree)) {
        let mut next = (*self.now()).clone();
        f(&mut next);
        self.states.borrow_mut().push(Rc::new(next));
    }

    /// A path that exists, or nearly.
    fn path(&self) -> (String, String) {
        let now = self.now();
        let dirs: Vec<&String> = now.iter().filter(|(_, c)| c.is_none()).map(|(p, _)| p).collect();
        let dir = dirs.get(self.below(dirs.len() as u64 + 2) as usize);
        let dir = dir.map_or(String::new(), |d| (*d).clone());
        let name = format!("n{}", self.below(9));
        (dir, name)
    }
}

fn walk(f: &mut Files<'_, '_>, path: &str) -> Result<u64, Stop> {
    let mut at = ROOT;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at = f.lookup(View::Live, at, part.as_bytes())?.ok_or(Stop::Fail(Fault::NotFound))?;
    }
    Ok(at)
}

fn lend(o: &Options, bytes: &[u8]) -> Vec<Seg> {
    let one = |some: &[u8]| {
        let seg = o.pool.get(some.len()).unwrap().seg(0, some.len()).unwrap();
        seg.copy_from(0, some);
        seg
    };
    bytes.chunks(30_000).map(one).collect()
}

async fn read_all(fs: &Served, view: View, ino: u64) -> Result<Vec<u8>, Fault> {
    fs.run(|f| {
        let size = f.inode(view, ino)?.size as usize;
        let mut out = Vec::new();
        let n = f.read(view, ino, 0, size, &mut out)?;
        assert_eq!(n, size);
        Ok(out.iter().flat_map(|s| s.with(<[u8]>::to_vec)).collect())
    })
    .await
}

/// All of a view.
pub async fn tree(fs: &Served, view: View) -> Result<Tree, Fault> {
    let mut out = Tree::new();
    let mut waiting = vec![(String::new(), ROOT)];
    while let Some((path, dir)) = waiting.pop() {
        let mut after = 0;
        loop {
            let some = fs.run(|f| f.entries(view, dir, after, 7)).await?;
            let Some(last) = some.last() else { break };
            after = last.cookie;
            for e in some {
                let name = format!("{path}/{}", String::from_utf8_lossy(&e.name));
                let inode = fs.run(|f| f.inode(view, e.ino)).await?;
                let found = fs.run(|f| f.lookup(view, dir, &e.name)).await?;
                assert_eq!(found, Some(e.ino), "{name} is found by its name");
                let contents = match inode.kind {
                    Kind::Dir => {
                        waiting.push((name.clone(), e.ino));
                        None
                    }
                    Kind::File => Some(Rc::new(read_all(fs, view, e.ino).await?)),
                };
                assert!(out.insert(name, contents).is_none());
            }
        }
    }
    Ok(out)
}

fn differ(a: &Tree, b: &Tree) -> Option<String> {
    let keys = a.keys().chain(b.keys());
    let k = keys.into_iter().find(|k| a.get(*k) != b.get(*k))?;
    let len = |t: &Tree| t.get(k).map(|c| c.as_ref().map(|c| c.len()));
    Some(format!("{k}: {:?} {:?}", len(a), len(b)))
}

/// One operation of a client.
async fn operation(w: &World1, o: &Options, fs: &Served) -> Result<(), Fault> {
    let (dir, name) = w.path();
    let path = format!("{dir}/{name}");
    let had = w.now().get(&path).cloned();
    match w.below(12) {
        0 | 1 => {
            let kind = if w.below(4) == 0 { Kind::Dir } else { Kind::File };
            let new = New { kind, mode: 0o755, uid: 3, gid: 4, ..New::default() };
            let made = fs
                .run(|f| {
                    let at = walk(f, &dir)?;
                    f.create(at, name.as_bytes(), &new)
                })
                .await;
            match made {
                Ok(_) => {
                    assert!(had.is_none(), "{path} was there");
                    let contents = (kind == Kind::File).then(Rc::default);
                    w.change(|t| drop(t.insert(path, contents)));
                }
                Err(Fault::Exists) => assert!(had.is_some(), "{path} was not there"),
                Err(fault) => return Err(fault),
            }
        }
        2 => {
            let gone = fs
                .run(|f| {
                    let at = walk(f, &dir)?;
                    f.remove(at, name.as_bytes(), 5)
                })
                .await;
            match gone {
                Ok(_) => w.change(|t| drop(t.remove(&path).expect("it was there"))),
                Err(Fault::NotFound) => assert!(had.is_none(), "{path} was there"),
                Err(Fault::NotEmpty) => {
                    let below = format!("{path}/");
                    assert!(w.now().keys().any(|k| k.starts_with(&below)), "{path} was empty");
                }
                Err(fault) => return Err(fault),
            }
        }
        3 => {
            let (to_dir, to_name) = w.path();
            let to = format!("{to_dir}/{to_name}");
            let moved = fs
                .run(|f| {
                    let (a, b) = (walk(f, &dir)?, walk(f, &to_dir)?);
                    f.rename(a, name.as_bytes(), b, to_name.as_bytes(), true, 6)
                })
                .await;
            match moved {
                Ok(()) if path == to => {}
                Ok(()) => w.change(|t| {
                    t.remove(&to);
                    let below = format!("{path}/");
                    let all: Vec<String> = t
                        .keys()
                        .filter(|k| **k == path || k.starts_with(&below))
                        .cloned()
                        .collect();
                    assert!(!all.is_empty());
                    for k in all {
                        let contents = t.remove(&k).unwrap();
                        t.insert(format!("{to}{}", &k[path.len()..]), contents);
                    }
                }),
                Err(Fault::NotFound) => assert!(had.is_none(), "{path} was there"),
                Err(Fault::NotEmpty | Fault::IsDir | Fault::NotDir | Fault::Invalid(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        4 => fs.sync().await.map(|()| w.synced.set(w.states.borrow().len() - 1))?,
        5 if w.below(4) == 0 => {
            let date = 20_261_121 + w.below(2) as u32;
            *w.asked.borrow_mut() = Some(w.now());
            let dump = fs.dump(date).await;
            match dump {
                Ok(d) => {
                    w.dumps.borrow_mut().insert((d.date, d.serial), w.now());
                    w.synced.set(w.states.borrow().len() - 1);
                    w.tally.borrow_mut().dumps += 1;
                }
                Err(fault) => return Err(fault),
            }
            *w.asked.borrow_mut() = None;
        }
        n => {
            let Some(Some(had)) = had else { return Ok(()) };
            let size = had.len() as u64;
            if n == 11 {
                let size = w.below(size * 5 / 4 + 2);
                let cut = Change { size: Some(size), by: 5, ..Change::default() };
                fs.run(|f| {
                    let ino = walk(f, &path)?;
                    f.set(ino, &cut)
                })
                .await?;
                let mut next = (*had).clone();
                next.resize(size as usize, 0);
                w.change(|t| drop(t.insert(path, Some(Rc::new(next)))));
                return Ok(());
            }
            let long = if w.below(6) == 0 { 220_000 } else { 30_000 };
            let (at, len) = (w.below(size * 5 / 4 + 1) as usize, w.below(long) as usize + 1);
            let first = w.below(251) as u8;
            let data: Vec<u8> = (0..len).map(|i| first.wrapping_add((i / 9) as u8)).collect();
            let lent = lend(o, &data);
            fs.run(|f| {
                let ino = walk(f, &path)?;
                f.write(ino, at as u64, &lent, 5)
            })
            .await?;
            let mut next = (*had).clone();
            next.resize(next.len().max(at + len), 0);
            next[at..at + len].copy_from_slice(&data);
            w.change(|t| drop(t.insert(path, Some(Rc::new(next)))));
        }
    }
    Ok(())
}

/// The image is in order, and every dump is what it was. What is found in the live tree.
async fn look(w: &World1, fs: &Served, dumps_lost: bool) -> Tree {
    let found = fs.check(View::Live, true).await.unwrap();
    assert_eq!(found.faults, Vec::<String>::new());
    let all = fs.dumps();
    let mut known = w.dumps.borrow_mut();
    for d in &all {
        let t = tree(fs, View::Dump(d.number)).await.unwrap();
        let checked = fs.check(View::Dump(d.number), true).await.unwrap();
        assert_eq!(checked.faults, Vec::<String>::new(), "{:?}", d.path());
        match known.get(&(d.date, d.serial)) {
            Some(k) => assert_eq!(differ(k, &t), None, "dump {:?}", d.path()),
            // The power went before it was reported.
            None => {
                let asked = w.asked.borrow_mut().take().expect("a dump that nobody asked for");
                assert_eq!(differ(&asked, &t), None, "dump {:?}", d.path());
                known.insert((d.date, d.serial), asked);
            }
        }
    }
    let there = |k: &(u32, u32)| all.iter().any(|d| (d.date, d.serial) == *k);
    if dumps_lost {
        known.retain(|k, _| there(k));
    }
    assert!(known.keys().all(there), "a dump is missing: {:?}", known.keys());
    *w.asked.borrow_mut() = None;
    drop(known);
    tree(fs, View::Live).await.unwrap()
}

/// FNV-1a, 64 bits: what the listings of images have of contents.
pub fn fnv(bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// With `ASHLAR_IMAGES=FOLDER` every image that was closed in order is left there, with what it
/// holds, for others to look at.
fn leave(w: &World1, name: &str, disks: [&Rc<Disk>; 2], how: &str) {
    let Some(folder) = std::env::var_os("ASHLAR_IMAGES") else { return };
    let at = std::path::PathBuf::from(folder);
    for (disk, part) in disks.iter().zip(["cache", "worm"]) {
        let mut bytes = vec![0; disk.with(|m| m.size()) as usize];
        disk.with(|m| m.read(0, &mut bytes)).unwrap();
        std::fs::write(at.join(format!("{name}.{part}")), bytes).unwrap();
    }
    let mut text = String::new();
    for (path, contents) in w.now().iter() {
        text += &match contents {
            None => format!("D {path} 755 3 4\n"),
            Some(c) => format!("F {path} 755 3 4 {} {:x}\n", c.len(), fnv(c)),
        };
    }
    let mut dumps = String::new();
    for ((date, serial), tree) in w.dumps.borrow().iter() {
        let serial = if *serial == 0 { String::new() } else { serial.to_string() };
        for (path, contents) in tree.iter() {
            let path = format!("/{}/{:04}{serial}{path}", date / 10_000, date % 10_000);
            dumps += &match contents {
                None => format!("D {path} 755 3 4\n"),
                Some(c) => format!("F {path} 755 3 4 {} {:x}\n", c.len(), fnv(c)),
            };
        }
    }
    std::fs::write(at.join(format!("{name}.tree")), text).unwrap();
    std::fs::write(at.join(format!("{name}.dumps")), dumps).unwrap();
    std::fs::write(at.join(format!("{name}.how")), how).unwrap();
}

fn server(world: &World, n: u64, cache: &Rc<Disk>, worm: &Rc<Disk>, fast: bool) -> story::Server {
    let mut s = story::server(world, &format!("s{n}"), 1, cache, &[worm.clone()]);
    s.options.memory = 220 * BLOCK;
    s.options.fastworm = fast;
    s
}

pub fn play(seed: u64) -> Tally {
    let w = Rc::new(World1 {
        random: RefCell::new(SeededRandom::new(seed)),
        states: RefCell::new(vec![Rc::default()]),
        synced: Cell::new(0),
        dumps: RefCell::default(),
        asked: RefCell::default(),
        tally: RefCell::default(),
    });
    let blocks = |n: u64| n * BLOCK as u64;
    let cache = Disk::new("cache", blocks(1100 + w.below(600)), seed ^ 1);
    let worm = Disk::new("worm", blocks(2000 + w.below(3000)), seed ^ 2);
    let once = w.below(2) == 0;
    let made = if w.below(2) == 0 { Layout::Rows } else { Layout::Columns };
    let fast = w.below(2) == 0;
    let ream = Setup { once, layout: Some(made), read_only: false };
    // Later it is found out.
    let found = Setup { layout: if w.below(2) == 0 { None } else { Some(made) }, ..ream };
    let mut is_new = true;
    for life in 0..5 + w.below(4) {
        let world = World::new(seed ^ life << 32);
        let s = server(&world, life, &cache, &worm, fast);
        let (o, v, wiped) = (s.options.clone(), w.clone(), !is_new && w.below(6) == 0);
        let fs = story::run(&world, &s.reactor, async move {
            if is_new {
                image::ream(&o, ream).await.unwrap();
            }
            let setup = if is_new || wiped { ream } else { found };
            if wiped {
                image::recover(&o, setup).await.unwrap();
            }
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            let there = look(&v, &fs, wiped).await;
            if wiped {
                v.tally.borrow_mut().recovered += 1;
                let last = v.dumps.borrow().last_key_value().map(|(_, t)| t.clone());
                // Dumps of an earlier day may be younger; any of them will do.
                let any = v.dumps.borrow().values().any(|t| differ(t, &there).is_none());
                assert!(any || last.is_none() && there.is_empty(), "recovered something else");
            } else {
                let states = v.states.borrow();
                let from = v.synced.get();
                let n = states[from..].iter().position(|t| differ(t, &there).is_none());
                let last = states.last().unwrap();
                assert!(n.is_some(), "none of {} states: {:?}", states.len(), differ(last, &there));
            }
            *v.states.borrow_mut() = vec![Rc::new(there)];
            v.synced.set(0);
            fs
        })
        .unwrap();
        is_new = false;
        let fuse = (w.below(4) > 0).then(|| Rc::new(Cell::new(10 + w.below(400) as i64)));
        for disk in [&cache, &worm] {
            *disk.fuse.borrow_mut() = fuse.clone();
        }
        let (v, o, done) = (w.clone(), s.options.clone(), Rc::new(Cell::new(false)));
        let (end, f, many) = (done.clone(), fs.clone(), 30 + w.below(90));
        s.reactor.spawn("client", async move {
            for _ in 0..many {
                v.tally.borrow_mut().operations += 1;
                match operation(&v, &o, &f).await {
                    Ok(()) | Err(Fault::NotFound | Fault::NotDir | Fault::IsDir) => {}
                    Err(Fault::NoSpace(_)) => v.tally.borrow_mut().full += 1,
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            f.close().await.unwrap();
            v.synced.set(v.states.borrow().len() - 1);
            end.set(true);
        });
        let limits = Limits { ns: 4_000_000_000_000, steps: 20_000_000 };
        let burnt = || fuse.as_ref().is_some_and(|f| f.get() <= 0);
        world.run(&mut [Actor::of_tasks(&s.reactor)], limits, &mut || done.get() || burnt());
        assert!(done.get() || burnt(), "nothing ends any more");
        drop(fs);
        s.reactor.shutdown();
        for disk in [&cache, &worm] {
            *disk.fuse.borrow_mut() = None;
            disk.power_cut();
        }
        w.tally.borrow_mut().cuts += u64::from(!done.get());
        if done.get() {
            let how = format!("{} {}\n", u8::from(once), u8::from(made == Layout::Columns));
            leave(&w, &format!("{seed}-{life}"), [&cache, &worm], &how);
        }
    }
    Rc::into_inner(w).unwrap().tally.into_inner()
}
