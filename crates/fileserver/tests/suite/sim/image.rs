//! Images of cwfs64x: files, dumps, power cuts, a lost cache device. Contents and all dumps are
//! compared with a model, and the image is in order by the check's rules after each start.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::Served;
use fileserver::image::format::{BLOCK, BlockState, Bucket, Entry, FIRST, Header, Layout};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};
use reactor::sim::{Actor, Limits, World};
use reactor::{Reactor, SeededRandom};

use super::client::{Beside, Habits};
use super::disk::Disk;
use super::model::{Tree, differ, fnv, tree};
use super::server::{self, run};

/// What happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub struct Totals {
    pub operations: u64,
    pub power_cuts: u64,
    pub dumps: u64,
    pub recovered: u64,
    pub full: u64,
    /// Operations that ended while a dump was taken, and while one was copied.
    pub amid_dumps: u64,
    pub amid_copies: u64,
    /// Checks of the live tree beside clients, and operations that ended meanwhile.
    pub checks: u64,
    pub amid_checks: u64,
    /// Blocks of dumps that were durable when they were written to the WORM.
    pub watched: u64,
    /// WORMs that grew.
    pub grown: u64,
    /// Images that were repaired, and blocks that belonged to no file.
    pub repaired: u64,
    pub leaked: u64,
}

impl Totals {
    pub fn add(&mut self, o: &Totals) {
        self.operations += o.operations;
        self.power_cuts += o.power_cuts;
        self.dumps += o.dumps;
        self.recovered += o.recovered;
        self.full += o.full;
        self.amid_dumps += o.amid_dumps;
        self.amid_copies += o.amid_copies;
        self.checks += o.checks;
        self.amid_checks += o.amid_checks;
        self.watched += o.watched;
        self.grown += o.grown;
        self.repaired += o.repaired;
        self.leaked += o.leaked;
    }
}

/// A dump as the model knows it.
struct Known {
    /// States of the history that it may be.
    from: usize,
    to: usize,
    /// Since it was looked at.
    tree: Option<Tree>,
}

struct ClientContext {
    beside: Beside,
    /// Dumps by date and serial, with their contents.
    dumps: RefCell<BTreeMap<(u32, u32), Known>>,
    /// One was requested at this state and has not been reported.
    dump_from: Cell<Option<usize>>,
    /// The power has failed since the cache device was made: addresses may be lost.
    was_cut: Cell<bool>,
    /// A check of the live tree runs.
    checked: Cell<bool>,
    totals: RefCell<Totals>,
}

/// Checks that the image is in order and every dump is unchanged; returns the live tree.
#[expect(clippy::await_holding_refcell_ref, reason = "no other task of the story looks at dumps")]
async fn look(w: &ClientContext, fs: &Served, dumps_lost: bool) -> Tree {
    let found = fs.check(View::Live, true).await.unwrap();
    assert_eq!(found.faults, Vec::<String>::new());
    assert!(found.leaked == 0 || w.was_cut.get(), "{} blocks are nobody's", found.leaked);
    let all = fs.dumps();
    let mut known = w.dumps.borrow_mut();
    for d in &all {
        let t = tree(fs, View::Dump(d.number)).await.unwrap();
        let checked = fs.check(View::Dump(d.number), true).await.unwrap();
        assert_eq!(checked.faults, Vec::<String>::new(), "{:?}", d.path());
        let k = known.entry((d.date, d.serial)).or_insert_with(|| {
            // The power was cut before it was reported.
            let from = w.dump_from.take().expect("a dump that nobody asked for");
            Known { from, to: w.beside.history.borrow().len(), tree: None }
        });
        match &k.tree {
            Some(tree) => assert_eq!(differ(tree, &t), None, "dump {:?}", d.path()),
            None => {
                let is = w.beside.history.borrow().find(k.from..k.to, &t);
                assert!(is.is_some(), "dump {:?} is no state of {}..{}", d.path(), k.from, k.to);
                k.tree = Some(t);
            }
        }
    }
    let there = |k: &(u32, u32)| all.iter().any(|d| (d.date, d.serial) == *k);
    if dumps_lost {
        known.retain(|k, _| there(k));
    }
    assert!(known.keys().all(there), "a dump is missing: {:?}", known.keys());
    w.dump_from.set(None);
    drop(known);
    tree(fs, View::Live).await.unwrap()
}

/// Addresses that a power cut lost are found again, and nothing else is found to be repaired.
async fn repair(w: &ClientContext, fs: &Served) {
    let leaked = fs.check(View::Live, false).await.unwrap().leaked;
    let would = fs.repair(false, true).await.unwrap();
    assert_eq!(would.len(), usize::from(leaked > 0), "{would:?}");
    assert_eq!(fs.repair(false, false).await.unwrap(), would);
    let found = fs.check(View::Live, true).await.unwrap();
    assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
    w.was_cut.set(false);
    w.totals.borrow_mut().repaired += 1;
    w.totals.borrow_mut().leaked += leaked;
}

/// With `ASHLAR_IMAGES=FOLDER` every image that was closed in order is stored there, with a listing
/// of its contents, for other programs.
fn leave(w: &ClientContext, name: &str, disks: [&Rc<Disk>; 2], how: &str) {
    let Some(folder) = std::env::var_os("ASHLAR_IMAGES") else { return };
    let at = std::path::PathBuf::from(folder);
    for (disk, part) in disks.iter().zip(["cache", "worm"]) {
        let mut bytes = vec![0; disk.with(|m| m.size()) as usize];
        disk.with(|m| m.read(0, &mut bytes)).unwrap();
        std::fs::write(at.join(format!("{name}.{part}")), bytes).unwrap();
    }
    let mut text = String::new();
    for (path, contents) in w.beside.history.borrow().now().iter() {
        text += &match contents {
            None => format!("D {path} 755 3 4\n"),
            Some(c) => format!("F {path} 755 3 4 {} {:x}\n", c.len(), fnv(c)),
        };
    }
    let mut dumps = String::new();
    for ((date, serial), known) in w.dumps.borrow().iter() {
        // Dumps of this life may be in one of several states.
        let Some(tree) = &known.tree else { continue };
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

/// A client does so much.
async fn client(w: Rc<ClientContext>, fs: Served, o: Options, many: u64, busy: Rc<Cell<u32>>) {
    for _ in 0..many {
        let pause = w.beside.below(400_000);
        o.reactor.sleep(pause).await;
        w.totals.borrow_mut().operations += 1;
        match w.beside.operation(&fs, &o.pool).await {
            Ok(()) => {}
            Err(Fault::NoSpace(_)) => w.totals.borrow_mut().full += 1,
            Err(fault) => panic!("{fault:?}"),
        }
        let mut tally = w.totals.borrow_mut();
        tally.amid_dumps += u64::from(w.dump_from.get().is_some());
        tally.amid_checks += u64::from(w.checked.get());
        tally.amid_copies += u64::from(fs.members()[0].behind > 0);
    }
    busy.set(busy.get() - 1);
}

/// Checks the live tree as long as there are clients: it is in order at every moment.
async fn checker(w: Rc<ClientContext>, fs: Served, reactor: Reactor, busy: Rc<Cell<u32>>) {
    while busy.get() > 1 {
        reactor.sleep(w.beside.below(30_000_000)).await;
        w.checked.set(true);
        let found = match fs.check(View::Live, w.beside.below(2) == 0).await {
            Ok(found) => found,
            Err(Fault::Closed) => return,
            Err(fault) => panic!("{fault:?}"),
        };
        w.checked.set(false);
        assert_eq!(found.faults, Vec::<String>::new(), "amid changes");
        assert!(found.leaked == 0 || w.was_cut.get(), "{} blocks are nobody's", found.leaked);
        w.totals.borrow_mut().checks += 1;
    }
}

/// Dumps as long as there are clients.
async fn dumper(w: Rc<ClientContext>, fs: Served, reactor: Reactor, busy: Rc<Cell<u32>>) {
    loop {
        let pause = w.beside.below(12_000_000);
        reactor.sleep(pause).await;
        if busy.get() == 1 {
            break;
        }
        let date = 20_261_121 + w.beside.below(2) as u32;
        let from = w.beside.history.borrow().len() - 1;
        w.dump_from.set(Some(from));
        match fs.dump(date).await {
            Ok(d) => {
                let to = w.beside.history.borrow().len();
                w.dumps.borrow_mut().insert((d.date, d.serial), Known { from, to, tree: None });
                w.beside.is_synced(from + 1);
                w.totals.borrow_mut().dumps += 1;
            }
            Err(Fault::NoSpace(_)) => w.totals.borrow_mut().full += 1,
            Err(fault) => panic!("{fault:?}"),
        }
        w.dump_from.set(None);
    }
    busy.set(0);
}

/// The contents after the open are the expected ones.
fn settle(w: &ClientContext, there: &Tree, recovered: bool) {
    if !recovered {
        w.beside.found(there);
        return;
    }
    w.totals.borrow_mut().recovered += 1;
    // Dumps of an earlier day may be younger; any of them will do.
    let dumps = w.dumps.borrow();
    let any = dumps.values().filter_map(|k| k.tree.as_ref()).any(|t| differ(t, there).is_none());
    assert!(any || dumps.is_empty() && there.is_empty(), "recovered something else");
    w.beside.continue_from(there);
}

/// Each block that is written to the WORM is durable on the cache device as a dump's. An address is
/// written once, so it must not be another block's after a loss of power. `saw`: called for each.
pub fn watch(
    cache: &Rc<Disk>,
    worm: &Rc<Disk>,
    (once, layout): (bool, Layout),
    saw: impl Fn() + 'static,
) {
    let cache = cache.clone();
    cache.remember();
    *worm.seen.borrow_mut() = Some(Box::new(move |at, data| {
        let (h, addr) = (Header::read(&cache.durable(FIRST)), at / BLOCK as u64);
        // Bits of a fake WORM are behind the size in its header, those of a larger one too.
        if once && addr >= h.wsize {
            return;
        }
        let row = addr % h.msize;
        let bucket = cache.durable(h.bucket_at(row));
        let entry = Bucket::of(&bucket, row).find(addr);
        let is_dump = |(_, e): &(usize, Entry)| e.state == BlockState::Dump;
        let (column, _) = entry.filter(is_dump).unwrap_or_else(|| panic!("{addr}: {entry:?}"));
        assert!(cache.durable(h.cached(layout, row, column)) == data, "{addr} is something else");
        saw();
    }));
}

/// The WORM grows while it is used.
async fn grower(w: Rc<ClientContext>, fs: Served, reactor: Reactor, worm: Rc<Disk>) {
    reactor.sleep(w.beside.below(60_000_000)).await;
    let more = w.beside.below(700) * BLOCK as u64;
    worm.shows.set(worm.shows.get() + more);
    match fs.grow().await {
        Ok(n) => w.totals.borrow_mut().grown += u64::from(n > 0),
        Err(Fault::Closed) => {}
        Err(fault) => panic!("{fault:?}"),
    }
}

/// One life after the other. `more`: with checks beside clients, repairs, and a WORM that grows.
pub fn play(seed: u64, more: bool) -> Totals {
    let habits = Habits { names: 9, longest: (30_000, 220_000), part: 30_000 };
    let w = Rc::new(ClientContext {
        beside: Beside::new(habits, SeededRandom::new(seed)),
        dumps: RefCell::default(),
        dump_from: Cell::new(None),
        was_cut: Cell::new(false),
        checked: Cell::new(false),
        totals: RefCell::default(),
    });
    let below = |n| w.beside.below(n);
    let blocks = |n: u64| n * BLOCK as u64;
    let cache = Disk::new("cache", blocks(1100 + below(600)), seed ^ 1);
    let worm = Disk::new("worm", blocks(2000 + below(3000)), seed ^ 2);
    // So that dumps are still being copied when the next one is taken.
    worm.slow_ns.set([0, 300_000, 3_000_000][below(3) as usize]);
    if more {
        worm.shows.set(blocks(2000));
    }
    let once = below(2) == 0;
    let made = if below(2) == 0 { Layout::Rows } else { Layout::Columns };
    let fast = below(2) == 0;
    let ream = Setup { once, layout: Some(made), read_only: false };
    // Later it is found out.
    let found = Setup { layout: if below(2) == 0 { None } else { Some(made) }, ..ream };
    let mut is_new = true;
    for life in 0..5 + below(4) {
        let world = World::new(seed ^ life << 32);
        let name = format!("s{life}");
        let mut s = server::server(&world, &name, 1, &cache, std::slice::from_ref(&worm));
        s.options.memory = 220 * BLOCK;
        s.options.fastworm = fast;
        let (o, v, wiped) = (s.options.clone(), w.clone(), !is_new && below(6) == 0);
        w.was_cut.set(w.was_cut.get() && !wiped);
        let fs = run(&world, &s.reactor, async move {
            if is_new {
                image::ream(&o, ream).await.unwrap();
            }
            let setup = if is_new || wiped { ream } else { found };
            if wiped {
                image::recover(&o, setup).await.unwrap();
            }
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            let there = look(&v, &fs, wiped).await;
            settle(&v, &there, wiped);
            if more && v.was_cut.get() && v.beside.below(2) == 0 {
                repair(&v, &fs).await;
            }
            fs
        })
        .unwrap();
        is_new = false;
        let fuse = (below(4) > 0).then(|| Rc::new(Cell::new(10 + below(250) as i64)));
        for disk in [&cache, &worm] {
            *disk.fuse.borrow_mut() = fuse.clone();
        }
        let done = Rc::new(Cell::new(false));
        w.checked.set(false);
        let clients = 1 + below(3);
        let busy = Rc::new(Cell::new(1 + clients as u32));
        for _ in 0..clients {
            let (o, many) = (s.options.clone(), (30 + below(90)) / clients);
            let one = client(w.clone(), fs.clone(), o, many, busy.clone());
            s.reactor.spawn("client", one);
        }
        let one = dumper(w.clone(), fs.clone(), s.reactor.clone(), busy.clone());
        s.reactor.spawn("dumper", one);
        if more {
            let saw = w.clone();
            watch(&cache, &worm, (once, made), move || saw.totals.borrow_mut().watched += 1);
        }
        if more && below(4) == 0 {
            let one = grower(w.clone(), fs.clone(), s.reactor.clone(), worm.clone());
            s.reactor.spawn("grower", one);
        }
        if more && below(2) == 0 {
            let one = checker(w.clone(), fs.clone(), s.reactor.clone(), busy.clone());
            s.reactor.spawn("checker", one);
        }
        let (v, end, f, clock) = (w.clone(), done.clone(), fs.clone(), s.reactor.clone());
        s.reactor.spawn("closer", async move {
            while busy.get() > 0 {
                clock.sleep(100_000).await;
            }
            f.close().await.unwrap();
            v.beside.is_synced(v.beside.history.borrow().len());
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
        *worm.seen.borrow_mut() = None;
        w.totals.borrow_mut().power_cuts += u64::from(!done.get());
        w.was_cut.set(w.was_cut.get() || !done.get());
        if done.get() {
            let how = format!("{} {}\n", u8::from(once), u8::from(made == Layout::Columns));
            leave(&w, &format!("{seed}-{life}"), [&cache, &worm], &how);
        }
    }
    w.totals.take()
}
