//! One seed: lives of a server between power cuts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg};
use fileserver::files::{Change, FileSystem, Kind, New, ROOT};
use fileserver::volume::{self, Options, View};
use fileserver::{Fault, Stop};
use reactor::sim::{Actor, Ended, Limits, World};
use reactor::{Reactor, SeededRandom};

use super::disk::{Disk, Plugged};
use super::model::{self, History, Tree};

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub struct Tally {
    pub cuts: u64,
    pub closed: u64,
    pub dumps: u64,
    pub synced: u64,
    pub recovered: u64,
    pub operations: u64,
    pub lost: u64,
    pub full: u64,
}

impl Tally {
    pub fn add(&mut self, o: &Tally) {
        self.cuts += o.cuts;
        self.closed += o.closed;
        self.dumps += o.dumps;
        self.synced += o.synced;
        self.recovered += o.recovered;
        self.operations += o.operations;
        self.lost += o.lost;
        self.full += o.full;
    }
}

/// A dump as the model knows it.
struct Known {
    number: u32,
    /// States of the history that it may be: one, once it was looked at.
    from: usize,
    to: usize,
    tree: Option<Rc<Tree>>,
    copied: bool,
}

struct Shared {
    history: RefCell<History>,
    synced: Cell<usize>,
    known: RefCell<Vec<Known>>,
    /// A dump was asked for at this state and has not been reported.
    asked: Cell<Option<usize>>,
    tally: RefCell<Tally>,
    random: RefCell<SeededRandom>,
}

impl Shared {
    fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }

    fn chance(&self, per_mille: u32) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }
}

pub struct Server {
    pub reactor: Reactor,
    pub options: Options,
}

pub fn server(world: &World, name: &str, who: u8, cache: &Rc<Disk>, legs: &[Rc<Disk>]) -> Server {
    let reactor = Reactor::simulated(world, name);
    let plug = |d: &Rc<Disk>| -> Rc<dyn fileserver::medium::Medium> {
        Rc::new(Plugged(d.clone(), reactor.clone()))
    };
    let clock = reactor.clone();
    let options = Options {
        reactor: reactor.clone(),
        pool: Pool::new(PoolConfig { limit_bytes: 64 << 20 }),
        cache: plug(cache),
        legs: legs.iter().map(plug).collect(),
        memory: 160 * 4096,
        block: 4096,
        owner: [who; 16],
        name: name.into(),
        clock: Rc::new(move || 1_790_000_000_000_000_000 + clock.now()),
        fastworm: false,
        ahead: volume::ReadAhead::default(),
        commit_ns: 300_000_000,
    };
    Server { reactor, options }
}

/// Runs a task to its end; none: nothing happens any more.
pub fn run<T: 'static>(
    world: &World,
    reactor: &Reactor,
    task: impl Future<Output = T> + 'static,
) -> Option<T> {
    let out: Rc<RefCell<Option<T>>> = Rc::default();
    let to = out.clone();
    reactor.spawn("test", async move {
        let done = task.await;
        *to.borrow_mut() = Some(done);
    });
    let mut actors = [Actor::of_tasks(reactor)];
    let there = out.clone();
    let limits = Limits { ns: 2_000_000_000_000, steps: 20_000_000 };
    let ended = world.run(&mut actors, limits, &mut || there.borrow().is_some());
    assert!(ended == Ended::Stopped, "it does not end: {ended:?} {:?}", reactor.tasks());
    out.take()
}

fn name(shared: &Shared) -> String {
    format!("n{}", shared.below(12))
}

fn bytes(shared: &Shared, len: usize) -> Vec<u8> {
    let first = shared.below(251) as u8;
    (0..len).map(|i| first.wrapping_add((i / 7) as u8) | 1).collect()
}

fn segs(pool: &Pool, bytes: &[u8]) -> Vec<Seg> {
    bytes
        .chunks(5000)
        .map(|some| {
            let seg = pool.get(some.len()).unwrap().seg(0, some.len()).unwrap();
            seg.copy_from(0, some);
            seg
        })
        .collect()
}

/// A path to a directory that exists in the model, and its parts.
fn directory(shared: &Shared) -> String {
    let history = shared.history.borrow();
    let dirs: Vec<String> =
        history.now().iter().filter(|(_, c)| c.is_none()).map(|(p, _)| p.clone()).collect();
    let at = shared.below(dirs.len() as u64 + 2) as usize;
    dirs.get(at).cloned().unwrap_or_default()
}

fn walk(f: &mut fileserver::files::Files<'_, '_>, path: &str) -> Result<u64, Stop> {
    let mut at = ROOT;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at = f.lookup(View::Live, at, part.as_bytes())?.ok_or(Stop::Fail(Fault::NotFound))?;
    }
    Ok(at)
}

fn has_below(tree: &Tree, path: &str) -> bool {
    let below = format!("{path}/");
    tree.keys().any(|p| p.starts_with(&below))
}

/// What a client does once. The model changes in the same poll in which the operation ends.
async fn operation(shared: &Rc<Shared>, fs: &FileSystem, pool: &Pool) -> Result<(), Fault> {
    let dir = directory(shared);
    let leaf = name(shared);
    let path = format!("{dir}/{leaf}");
    let (d, l) = (dir.clone(), leaf.clone().into_bytes());
    match shared.below(100) {
        0..15 => {
            let kind = if shared.chance(350) { Kind::Dir } else { Kind::File };
            let new = New { kind, mode: 0o644, uid: 7, gid: 8, ..New::default() };
            let done = fs
                .run(|f| {
                    let at = walk(f, &d)?;
                    f.create(at, &l, &new)
                })
                .await;
            let mut history = shared.history.borrow_mut();
            let there = history.now().contains_key(&path);
            match done {
                Ok(_) => {
                    assert!(!there, "{path} was made twice");
                    let made = (kind == Kind::File).then(Rc::default);
                    history.change(|t| drop(t.insert(path, made)));
                }
                Err(Fault::Exists) => assert!(there, "{path} exists"),
                Err(Fault::NotFound) => {
                    assert!(!dir.is_empty() && history.now().get(&dir) != Some(&None));
                }
                Err(fault) => return Err(fault),
            }
        }
        15..55 => write(shared, fs, pool, &path).await?,
        55..70 => {
            let done = fs
                .run(|f| {
                    let at = walk(f, &d)?;
                    f.remove(at, &l, 3)
                })
                .await;
            let mut history = shared.history.borrow_mut();
            let there = history.now().contains_key(&path);
            match done {
                Ok(_) => {
                    assert!(there && !has_below(history.now(), &path), "{path} was removed");
                    history.change(|t| drop(t.remove(&path)));
                }
                Err(Fault::NotFound) => assert!(!there, "{path} is not found"),
                Err(Fault::NotEmpty) => assert!(has_below(history.now(), &path)),
                Err(fault) => return Err(fault),
            }
        }
        70..80 => rename(shared, fs, &dir, &leaf).await?,
        80..92 => {
            let done = fs
                .run(|f| {
                    let at = walk(f, &d)?;
                    let Some(ino) = f.lookup(View::Live, at, &l)? else { return Ok(None) };
                    if f.inode(View::Live, ino)?.kind == Kind::Dir {
                        return Ok(None);
                    }
                    model::read_all(f, View::Live, ino).map(Some)
                })
                .await;
            let history = shared.history.borrow();
            match done {
                Ok(found) => {
                    let wanted = history.now().get(&path).cloned().flatten();
                    let same = found.as_ref() == wanted.as_deref();
                    assert!(same, "{path}: {:?} for {:?}", found.map(|b| b.len()), wanted);
                }
                Err(Fault::NotFound) => {}
                Err(fault) => return Err(fault),
            }
        }
        _ => {
            let at = shared.history.borrow().len();
            fs.sync().await?;
            shared.synced.set(shared.synced.get().max(at));
            shared.tally.borrow_mut().synced += 1;
        }
    }
    Ok(())
}

async fn write(shared: &Rc<Shared>, fs: &FileSystem, pool: &Pool, path: &str) -> Result<(), Fault> {
    let size = shared.history.borrow().now().get(path).cloned().flatten().map_or(0, |c| c.len());
    let offset = shared.below(size as u64 * 5 / 4 + 2) as usize;
    let longest = if shared.chance(100) { 60_000 } else { 9_000 };
    let len = shared.below(longest) as usize + 1;
    let cut = shared.chance(200);
    let data = bytes(shared, len);
    let lent = segs(pool, &data);
    let done = fs
        .run(|f| {
            let ino = walk(f, path)?;
            if cut {
                let change = Change { size: Some(offset as u64), by: 1, ..Change::default() };
                return f.set(ino, &change).map(|()| 0);
            }
            f.write(ino, offset as u64, &lent, 1)
        })
        .await;
    let mut history = shared.history.borrow_mut();
    let had = history.now().get(path).cloned().flatten();
    match (done, had) {
        (Ok(_), Some(had)) => {
            let mut next = (*had).clone();
            if cut {
                next.resize(offset, 0);
            } else {
                next.resize(next.len().max(offset + len), 0);
                next[offset..offset + len].copy_from_slice(&data);
            }
            history.change(|t| drop(t.insert(path.into(), Some(Rc::new(next)))));
        }
        (Err(Fault::NotFound), None) | (Err(Fault::IsDir), None) => {}
        // A directory is cut to nothing without any effect.
        (Ok(0), None) if cut => {}
        (Err(fault), _) => return Err(fault),
        (done, had) => panic!("{path}: {done:?} for {had:?}"),
    }
    Ok(())
}

async fn rename(shared: &Rc<Shared>, fs: &FileSystem, dir: &str, leaf: &str) -> Result<(), Fault> {
    let (to, new) = (directory(shared), name(shared));
    let replace = shared.chance(500);
    let (from_path, to_path) = (format!("{dir}/{leaf}"), format!("{to}/{new}"));
    let done = fs
        .run(|f| {
            let (a, b) = (walk(f, dir)?, walk(f, &to)?);
            f.rename(a, leaf.as_bytes(), b, new.as_bytes(), replace, 2)
        })
        .await;
    let mut history = shared.history.borrow_mut();
    match done {
        Ok(()) => history.change(|t| {
            if from_path == to_path {
                return;
            }
            let moved: Vec<String> = t
                .keys()
                .filter(|p| **p == from_path || p.starts_with(&format!("{from_path}/")))
                .cloned()
                .collect();
            assert!(!moved.is_empty(), "{from_path} was moved");
            t.remove(&to_path);
            for p in moved {
                let contents = t.remove(&p).unwrap();
                t.insert(format!("{to_path}{}", &p[from_path.len()..]), contents);
            }
        }),
        Err(Fault::NotFound) => {}
        Err(Fault::Exists) => assert!(!replace && history.now().contains_key(&to_path)),
        Err(Fault::NotEmpty) => assert!(has_below(history.now(), &to_path)),
        Err(Fault::IsDir | Fault::NotDir) => assert!(replace),
        Err(Fault::Invalid(_)) => assert!(to.starts_with(&from_path)),
        Err(fault) => return Err(fault),
    }
    Ok(())
}

/// Clients stop at a fault that a full or failing device explains.
async fn client(shared: Rc<Shared>, fs: FileSystem, reactor: Reactor, pool: Pool) {
    loop {
        let done = operation(&shared, &fs, &pool).await;
        shared.tally.borrow_mut().operations += 1;
        match done {
            Ok(()) => {}
            Err(Fault::NoSpace(_)) => {
                shared.tally.borrow_mut().full += 1;
                reactor.sleep(50_000_000).await;
            }
            Err(Fault::Closed) => return,
            Err(fault) => panic!("{fault}"),
        }
        let pause = shared.below(400_000);
        reactor.sleep(pause).await;
    }
}

async fn dumper(shared: Rc<Shared>, fs: FileSystem, reactor: Reactor) {
    loop {
        let pause = 5_000_000 + shared.below(60_000_000);
        reactor.sleep(pause).await;
        let from = shared.history.borrow().len() - 1;
        shared.asked.set(Some(from));
        match fs.volume().dump(20_261_121).await {
            Ok(dump) => {
                shared.asked.set(None);
                shared.tally.borrow_mut().dumps += 1;
                let to = shared.history.borrow().len();
                let known = Known { number: dump.number, from, to, tree: None, copied: false };
                shared.known.borrow_mut().push(known);
                shared.synced.set(shared.synced.get().max(from + 1));
                let (shared, fs) = (shared.clone(), fs.clone());
                reactor.spawn("copied", async move {
                    if fs.volume().copied(&dump).await.is_ok() {
                        let mut known = shared.known.borrow_mut();
                        for k in known.iter_mut().filter(|k| k.number == dump.number) {
                            k.copied = true;
                        }
                    }
                });
            }
            Err(Fault::NoSpace(_)) => {
                shared.asked.set(None);
                shared.tally.borrow_mut().full += 1;
            }
            Err(Fault::Closed) => return,
            Err(fault) => panic!("{fault}"),
        }
    }
}

async fn saboteur(shared: Rc<Shared>, legs: Vec<Rc<Disk>>, reactor: Reactor) {
    loop {
        let pause = shared.below(80_000_000);
        reactor.sleep(pause).await;
        for leg in &legs {
            leg.hangs.set(false);
            leg.failing.set(0);
            leg.slow_ns.set(0);
        }
        // One leg at a time, if there are two: somebody has to answer for the fence.
        if legs.len() > 1 {
            let leg = &legs[shared.below(legs.len() as u64) as usize];
            match shared.below(4) {
                0 => leg.hangs.set(true),
                1 => leg.failing.set(300),
                2 => leg.slow_ns.set(20_000_000),
                _ => {}
            }
        } else if shared.chance(300) {
            legs[0].slow_ns.set(5_000_000);
        }
    }
}

/// All dumps are what they were; those that nobody looked at before become known.
async fn verify_dumps(shared: Rc<Shared>, fs: FileSystem, least: u32) {
    let dumps = fs.volume().dumps();
    let numbers: Vec<u32> = dumps.iter().map(|d| d.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    let newest = numbers.len() as u32;
    assert!(newest >= least, "dump {least} was reported, {newest} is the newest");
    for number in numbers {
        let found = model::tree(&fs, View::Dump(number)).await.expect("a dump reads");
        let mut known = shared.known.borrow_mut();
        if !known.iter().any(|k| k.number == number) {
            let asked = shared.asked.get().expect("a dump that nobody asked for");
            let to = shared.history.borrow().len();
            known.push(Known { number, from: asked, to, tree: None, copied: false });
        }
        let k = known.iter_mut().find(|k| k.number == number).unwrap();
        match &k.tree {
            Some(tree) => assert!(**tree == found, "dump {number} has changed"),
            None => {
                let history = shared.history.borrow();
                let states = &history.states[k.from..k.to];
                let is = states.iter().find(|s| ***s == found);
                assert!(is.is_some(), "dump {number} is no state of {}..{}", k.from, k.to);
                k.tree = is.cloned();
            }
        }
    }
    shared.asked.set(None);
    shared.known.borrow_mut().retain(|k| k.number <= newest);
}

/// Nothing of the trees is wrong, and no block is lost.
async fn verify_check(fs: FileSystem, reactor: Reactor) {
    // Until what was left to be given back is given back.
    for _ in 0..1000 {
        let found = fs.check(View::Live, true).await.expect("the check ends");
        assert_eq!((&found.faults[..], found.more), (&[][..], 0));
        if found.orphans == 0 {
            assert_eq!(found.leaked, 0, "{found:?}");
            break;
        }
        reactor.sleep(1_000_000).await;
    }
    for d in fs.volume().dumps() {
        let found = fs.check(View::Dump(d.number), false).await.expect("the check ends");
        assert_eq!(found.faults, Vec::<String>::new());
    }
}

/// What is found is a state not older than what was synced.
async fn verify_live(shared: Rc<Shared>, fs: FileSystem) {
    let found = model::tree(&fs, View::Live).await.expect("the files read");
    let mut history = shared.history.borrow_mut();
    let last = history.len();
    let least = shared.synced.get().saturating_sub(1);
    let at = (least..last).rev().find(|i| *history.states[*i] == found);
    let Some(at) = at else {
        let earlier = (0..least).rev().find(|i| *history.states[*i] == found);
        panic!("what is found is none of states {least}..{last}, but {earlier:?}");
    };
    shared.tally.borrow_mut().lost += (last - 1 - at) as u64;
    // Dumps that were not looked at keep their states' numbers: nothing is taken away, the state is
    // only the last one again.
    let state = history.states[at].clone();
    history.states.push(state);
    shared.synced.set(history.len());
}

pub fn play(seed: u64) -> Tally {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed);
    // In a small one slots are used again at once.
    let room = if random.chance(350) { 1_500_000 } else { 6 << 20 };
    let cache = Disk::new("cache", room, seed ^ 1);
    let two = random.chance(600);
    let worm = if random.chance(150) { 3 << 20 } else { 40 << 20 };
    let legs: Vec<Rc<Disk>> = (0..if two { 2 } else { 1 })
        .map(|i| Disk::new(&format!("leg{i}"), worm, seed ^ (2 + i)))
        .collect();
    let shared = Rc::new(Shared {
        history: RefCell::new(History::new()),
        synced: Cell::new(0),
        known: RefCell::default(),
        asked: Cell::new(None),
        tally: RefCell::default(),
        random: RefCell::new(random),
    });
    let first = server(&world, "main", 1, &cache, &legs);
    let o = first.options.clone();
    run(&world, &first.reactor, async move { volume::ream(&o).await }).unwrap().expect("reams");
    first.reactor.shutdown();
    for life in 0..1 + shared.below(4) {
        live(&world, &shared, &cache, &legs, life);
    }
    // The cache device is lost.
    let copied = shared.known.borrow().iter().filter(|k| k.copied).map(|k| k.number).max();
    if let Some(least) = copied {
        legs.iter().for_each(|leg| leg.failing.set(0));
        cache.wipe();
        let s = server(&world, "main", 1, &cache, &legs);
        let (o, sh) = (s.options.clone(), shared.clone());
        run(&world, &s.reactor, async move {
            let all = volume::dumps_on_worm(&o).await.expect("its dumps are listed");
            let last = all.last().expect("at least one").number;
            assert!(last >= least, "dump {least} was copied, {last} is found");
            let numbers: Vec<u32> = all.iter().map(|d| d.number).collect();
            assert!(numbers.iter().copied().eq(1..=last), "{numbers:?}");
            // The newest, or any.
            let from = sh.chance(400).then(|| all[sh.below(all.len() as u64) as usize]);
            let asked = from.map_or(last, |d| d.number);
            let found = volume::recover(&o, from.as_ref()).await.expect("recovers");
            assert_eq!(found.number, asked);
            let v = volume::open(&o).await.expect("opens");
            let fs = FileSystem::mount(v, 0, 0).await.expect("mounts");
            verify_dumps(sh.clone(), fs.clone(), least).await;
            let live = model::tree(&fs, View::Live).await.unwrap();
            let dump = model::tree(&fs, View::Dump(asked)).await.unwrap();
            assert!(live == dump, "after a recovery the files are those of the dump");
            assert_eq!(fs.volume().dumps().len(), all.len(), "none is given up");
            // It goes on from there; a full WORM may say so.
            if let Ok(next) = fs.volume().dump(20_270_101).await {
                assert_eq!(next.number, last + 1);
                let dump = model::tree(&fs, View::Dump(next.number)).await.unwrap();
                assert!(live == dump, "the next dump is behind the newest");
            }
        });
        s.reactor.shutdown();
        shared.tally.borrow_mut().recovered += 1;
    }
    shared.tally.take()
}

fn live(world: &World, shared: &Rc<Shared>, cache: &Rc<Disk>, legs: &[Rc<Disk>], life: u64) {
    for leg in legs {
        leg.hangs.set(false);
        leg.failing.set(0);
    }
    let s = server(world, "main", 1, cache, legs);
    let least = shared.known.borrow().iter().map(|k| k.number).max().unwrap_or(0);
    let (o, sh, clock) = (s.options.clone(), shared.clone(), s.reactor.clone());
    let fs = run(world, &s.reactor, async move {
        let v = volume::open(&o).await.unwrap_or_else(|e| panic!("life {life}: {e}"));
        let fs = FileSystem::mount(v, 0, 0).await.expect("mounts");
        verify_dumps(sh.clone(), fs.clone(), least).await;
        verify_live(sh, fs.clone()).await;
        verify_check(fs.clone(), clock).await;
        fs
    });
    let fs = fs.unwrap();
    let (r, pool) = (&s.reactor, &s.options.pool);
    for _ in 0..1 + shared.below(3) {
        r.spawn("client", client(shared.clone(), fs.clone(), r.clone(), pool.clone()));
    }
    if shared.chance(900) {
        r.spawn("dumper", dumper(shared.clone(), fs.clone(), r.clone()));
    }
    r.spawn("saboteur", saboteur(shared.clone(), legs.to_vec(), r.clone()));
    let limits = Limits { ns: 10_000_000 + shared.below(600_000_000), steps: 20_000_000 };
    let mut actors = [Actor::of_tasks(r)];
    world.run(&mut actors, limits, &mut || false);
    if shared.chance(250) {
        for leg in legs {
            leg.hangs.set(false);
            leg.failing.set(0);
        }
        let sh = shared.clone();
        let closed = fs.clone();
        run(world, r, async move {
            closed.volume().close().await.expect("closes");
            let _ = sh;
        });
        // What ended before it was closed is there: nobody was told of more.
        let mut tally = shared.tally.borrow_mut();
        tally.closed += 1;
    } else {
        shared.tally.borrow_mut().cuts += 1;
    }
    drop(fs);
    r.shutdown();
    for disk in legs.iter().chain([cache]) {
        disk.power_cut();
    }
}
