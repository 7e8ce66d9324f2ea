//! Simulation of one seed: lives of a server between power cuts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Pool;
use fileserver::Fault;
use fileserver::files::{FileSystem, Served};
use fileserver::volume::{self, View};
use reactor::sim::{Actor, Limits, World};
use reactor::{Reactor, SeededRandom};

use super::client::{Beside, Habits};
use super::disk::Disk;
use super::model::{self, Tree};
use super::server::{life, mounted, run, server};

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub struct Totals {
    pub power_cuts: u64,
    pub closed: u64,
    pub dumps: u64,
    pub synced: u64,
    pub recovered: u64,
    pub operations: u64,
    pub lost: u64,
    pub full: u64,
}

impl Totals {
    pub fn add(&mut self, o: &Totals) {
        self.power_cuts += o.power_cuts;
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
    tree: Option<Tree>,
    copied: bool,
}

struct ClientContext {
    beside: Beside,
    known: RefCell<Vec<Known>>,
    /// A dump was requested at this state and has not been reported.
    dump_from: Cell<Option<usize>>,
    totals: RefCell<Totals>,
}

/// Clients stop at a fault that a full or failing device explains.
async fn client(shared: Rc<ClientContext>, fs: FileSystem, reactor: Reactor, pool: Pool) {
    let served = Served::from(fs);
    loop {
        let done = shared.beside.operation(&served, &pool).await;
        shared.totals.borrow_mut().operations += 1;
        match done {
            Ok(()) => {}
            Err(Fault::NoSpace(_)) => {
                shared.totals.borrow_mut().full += 1;
                reactor.sleep(50_000_000).await;
            }
            Err(Fault::Closed) => return,
            Err(fault) => panic!("{fault}"),
        }
        let pause = shared.beside.below(400_000);
        reactor.sleep(pause).await;
    }
}

async fn dumper(shared: Rc<ClientContext>, fs: FileSystem, reactor: Reactor) {
    loop {
        let pause = 5_000_000 + shared.beside.below(60_000_000);
        reactor.sleep(pause).await;
        let from = shared.beside.history.borrow().len() - 1;
        shared.dump_from.set(Some(from));
        match fs.volume().dump(20_261_121).await {
            Ok(dump) => {
                shared.dump_from.set(None);
                shared.totals.borrow_mut().dumps += 1;
                let to = shared.beside.history.borrow().len();
                let known = Known { number: dump.number, from, to, tree: None, copied: false };
                shared.known.borrow_mut().push(known);
                shared.beside.is_synced(from + 1);
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
                shared.dump_from.set(None);
                shared.totals.borrow_mut().full += 1;
            }
            Err(Fault::Closed) => return,
            Err(fault) => panic!("{fault}"),
        }
    }
}

async fn saboteur(shared: Rc<ClientContext>, legs: Vec<Rc<Disk>>, reactor: Reactor) {
    loop {
        let pause = shared.beside.below(80_000_000);
        reactor.sleep(pause).await;
        for leg in &legs {
            leg.hangs.set(false);
            leg.failing.set(0);
            leg.slow_ns.set(0);
        }
        // One leg at a time, if there are two, because one must answer for the fence.
        if legs.len() > 1 {
            let leg = &legs[shared.beside.below(legs.len() as u64) as usize];
            match shared.beside.below(4) {
                0 => leg.hangs.set(true),
                1 => leg.failing.set(300),
                2 => leg.slow_ns.set(20_000_000),
                _ => {}
            }
        } else if shared.beside.chance(300) {
            legs[0].slow_ns.set(5_000_000);
        }
    }
}

/// All dumps are unchanged; the contents of unchecked ones become known.
async fn verify_dumps(shared: Rc<ClientContext>, fs: FileSystem, least: u32) {
    let dumps = fs.volume().dumps();
    let numbers: Vec<u32> = dumps.iter().map(|d| d.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    let newest = numbers.len() as u32;
    assert!(newest >= least, "dump {least} was reported, {newest} is the newest");
    for number in numbers {
        let found = model::tree(&fs, View::Dump(number)).await.expect("a dump reads");
        let mut known = shared.known.borrow_mut();
        if !known.iter().any(|k| k.number == number) {
            let dump_from = shared.dump_from.get().expect("a dump that nobody asked for");
            let to = shared.beside.history.borrow().len();
            known.push(Known { number, from: dump_from, to, tree: None, copied: false });
        }
        let k = known.iter_mut().find(|k| k.number == number).unwrap();
        match &k.tree {
            Some(tree) => assert!(*tree == found, "dump {number} has changed"),
            None => {
                let is = shared.beside.history.borrow().find(k.from..k.to, &found);
                assert!(is.is_some(), "dump {number} is no state of {}..{}", k.from, k.to);
                k.tree = Some(found);
            }
        }
    }
    shared.dump_from.set(None);
    shared.known.borrow_mut().retain(|k| k.number <= newest);
}

/// Nothing of the trees is wrong, and no block is lost.
async fn verify_check(fs: FileSystem, reactor: Reactor) {
    // Repeats until all blocks of removed files are freed.
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

pub fn play(seed: u64) -> Totals {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed);
    // In a small one slots are used again at once.
    let capacity = if random.chance(350) { 1_500_000 } else { 6 << 20 };
    let cache = Disk::new("cache", capacity, seed ^ 1);
    let two = random.chance(600);
    let worm = if random.chance(150) { 3 << 20 } else { 40 << 20 };
    let legs: Vec<Rc<Disk>> = (0..if two { 2 } else { 1 })
        .map(|i| Disk::new(&format!("leg{i}"), worm, seed ^ (2 + i)))
        .collect();
    let habits = Habits { names: 12, longest: (9_000, 60_000), part: 5000 };
    let shared = Rc::new(ClientContext {
        beside: Beside::new(habits, random),
        known: RefCell::default(),
        dump_from: Cell::new(None),
        totals: RefCell::default(),
    });
    life(&world, &cache, &legs, |o| async move { volume::ream(&o).await.expect("reams") });
    for life in 0..1 + shared.beside.below(4) {
        live(&world, &shared, &cache, &legs, life);
    }
    // The cache device is lost.
    let copied = shared.known.borrow().iter().filter(|k| k.copied).map(|k| k.number).max();
    if let Some(least) = copied {
        legs.iter().for_each(|leg| leg.failing.set(0));
        cache.wipe();
        let sh = shared.clone();
        life(&world, &cache, &legs, |o| async move {
            let all = volume::dumps_on_worm(&o).await.expect("its dumps are listed");
            let last = all.last().expect("at least one").number;
            assert!(last >= least, "dump {least} was copied, {last} is found");
            let numbers: Vec<u32> = all.iter().map(|d| d.number).collect();
            assert!(numbers.iter().copied().eq(1..=last), "{numbers:?}");
            // The newest, or any.
            let from =
                sh.beside.chance(400).then(|| all[sh.beside.below(all.len() as u64) as usize]);
            let wanted = from.map_or(last, |d| d.number);
            let found = volume::recover(&o, from.as_ref()).await.expect("recovers");
            assert_eq!(found.number, wanted);
            let fs = mounted(&o).await;
            verify_dumps(sh.clone(), fs.clone(), least).await;
            let live = model::tree(&fs, View::Live).await.unwrap();
            let dump = model::tree(&fs, View::Dump(wanted)).await.unwrap();
            assert!(live == dump, "after a recovery the files are those of the dump");
            assert_eq!(fs.volume().dumps().len(), all.len(), "none is given up");
            // It continues from there; a full WORM may report it.
            if let Ok(next) = fs.volume().dump(20_270_101).await {
                assert_eq!(next.number, last + 1);
                let dump = model::tree(&fs, View::Dump(next.number)).await.unwrap();
                assert!(live == dump, "the next dump is behind the newest");
            }
        });
        shared.totals.borrow_mut().recovered += 1;
    }
    let synced = shared.beside.syncs.get();
    Totals { synced, ..shared.totals.take() }
}

fn live(world: &World, shared: &Rc<ClientContext>, cache: &Rc<Disk>, legs: &[Rc<Disk>], life: u64) {
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
        let found = model::tree(&fs, View::Live).await.expect("the files read");
        sh.totals.borrow_mut().lost += sh.beside.found(&found);
        verify_check(fs.clone(), clock).await;
        fs
    });
    let fs = fs.unwrap();
    let (r, pool) = (&s.reactor, &s.options.pool);
    for _ in 0..1 + shared.beside.below(3) {
        r.spawn("client", client(shared.clone(), fs.clone(), r.clone(), pool.clone()));
    }
    if shared.beside.chance(900) {
        r.spawn("dumper", dumper(shared.clone(), fs.clone(), r.clone()));
    }
    r.spawn("saboteur", saboteur(shared.clone(), legs.to_vec(), r.clone()));
    let limits = Limits { ns: 10_000_000 + shared.beside.below(600_000_000), steps: 20_000_000 };
    let mut actors = [Actor::of_tasks(r)];
    world.run(&mut actors, limits, &mut || false);
    if shared.beside.chance(250) {
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
        // All changes that ended before the close are present, and no others were acknowledged.
        let mut tally = shared.totals.borrow_mut();
        tally.closed += 1;
    } else {
        shared.totals.borrow_mut().power_cuts += 1;
    }
    drop(fs);
    r.shutdown();
    for disk in legs.iter().chain([cache]) {
        disk.power_cut();
    }
}
