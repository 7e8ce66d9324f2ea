//! A server of files in a simulated world.

use std::cell::RefCell;
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg};
use fileserver::files::{FileSystem, Served};
use fileserver::image::format::BLOCK;
use fileserver::volume::{self, Options, View};
use reactor::Reactor;
use reactor::sim::{Actor, Ended, Limits, World};

use super::disk::{Disk, Plugged};

/// Bytes of the block cache of a server, unless a test needs another one.
const MEMORY: usize = 160 * 4096;

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
        members: legs.iter().map(plug).collect(),
        memory: MEMORY,
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

/// A server's life on the devices as they are, with a block cache of so many bytes. Returns the
/// result of its task.
pub fn life_with<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    memory: usize,
    (cache, legs): (&Rc<Disk>, &[Rc<Disk>]),
    task: impl FnOnce(Options) -> F,
) -> T {
    let s = server(world, "main", 1, cache, legs);
    let options = Options { memory, ..s.options };
    let done = run(world, &s.reactor, task(options)).unwrap();
    s.reactor.shutdown();
    done
}

/// A life with the block cache of `server`.
pub fn life<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    cache: &Rc<Disk>,
    legs: &[Rc<Disk>],
    task: impl FnOnce(Options) -> F,
) -> T {
    life_with(world, MEMORY, (cache, legs), task)
}

/// A cache device and a WORM of so many blocks of an image.
pub fn image_disks(cache: u64, worm: u64) -> [Rc<Disk>; 2] {
    let size = |blocks: u64| blocks * BLOCK as u64;
    [Disk::new("cache", size(cache), 1), Disk::new("worm", size(worm), 2)]
}

/// A life with an image, with a block cache of so many of its blocks.
pub fn on<T: 'static, F: Future<Output = T> + 'static>(
    (seed, blocks): (u64, usize),
    disks: &[Rc<Disk>; 2],
    task: impl FnOnce(Options) -> F,
) -> T {
    life_with(&World::new(seed), blocks * BLOCK, (&disks[0], &disks[1..]), task)
}

/// Opens a volume.
pub async fn mounted(o: &Options) -> FileSystem {
    FileSystem::mount(volume::open(o).await.unwrap(), 0, 0).await.unwrap()
}

/// Creates a volume on the devices, and opens it.
pub async fn new_file_system(o: &Options) -> FileSystem {
    volume::ream(o).await.unwrap();
    mounted(o).await
}

/// Memory of so many bytes that have one value.
pub fn filled(o: &Options, len: usize, byte: u8) -> Seg {
    let seg = o.pool.get(len).unwrap().seg(0, len).unwrap();
    seg.with_mut(|b| b.fill(byte));
    seg
}

/// Bytes in memory of the pool, in parts of at most so many.
pub fn lend(pool: &Pool, bytes: &[u8], part: usize) -> Vec<Seg> {
    let one = |some: &[u8]| {
        let seg = pool.get(some.len()).unwrap().seg(0, some.len()).unwrap();
        seg.copy_from(0, some);
        seg
    };
    bytes.chunks(part).map(one).collect()
}

/// A check finds no fault in a view.
pub async fn is_sound(fs: &(impl Clone + Into<Served>), view: View) {
    let fs: Served = fs.clone().into();
    let found = fs.check(view, true).await.unwrap();
    assert!(found.faults.is_empty(), "{view:?}: {found:?}");
}
