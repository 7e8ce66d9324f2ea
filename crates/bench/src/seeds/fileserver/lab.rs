//! A file server's volume on the paper's devices, and the operations on it.

use std::cell::RefCell;
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg};
use fileserver::Fault;
use fileserver::files::{FileSystem, New, ROOT, Reader};
use fileserver::medium::Medium;
use fileserver::volume::{self, Options, ReadAhead, View};
use reactor::sim::{Actor, Limits, World};
use reactor::{Reactor, SeededRandom};

use super::device::{Device, Plugged, TURN_NS};
use crate::bed::failed;
use crate::error::Error;

/// The paper's block.
pub const BLOCK: u64 = 8192;
/// Written at a time while a file is made.
const PIECE: u64 = 64 << 10;

/// A world with one reactor.
pub struct Lab {
    pub world: World,
    pub reactor: Reactor,
    pool: Pool,
}

impl Lab {
    pub fn new(seed: u64) -> Lab {
        let world = World::new(seed);
        let reactor = Reactor::simulated(&world, "server");
        Lab { world, reactor, pool: Pool::new(PoolConfig { limit_bytes: 256 << 20 }) }
    }

    pub fn options(&self, cache: &Rc<Device>, legs: &[Rc<Device>], memory: u64) -> Options {
        let plug = |d: &Rc<Device>| -> Rc<dyn Medium> { Rc::new(Plugged(d.clone())) };
        let clock = self.reactor.clone();
        Options {
            reactor: self.reactor.clone(),
            pool: self.pool.clone(),
            cache: plug(cache),
            members: legs.iter().map(plug).collect(),
            memory: memory as usize,
            block: BLOCK as u32,
            owner: [7; 16],
            name: "bench".into(),
            clock: Rc::new(move || 1_790_000_000_000_000_000 + clock.now()),
            fastworm: false,
            ahead: ReadAhead { workers: 0, bytes: 0 },
            commit_ns: 5_000_000_000,
        }
    }

    /// Does something to its end.
    pub fn run<T: 'static>(
        &self,
        task: impl Future<Output = Result<T, Fault>> + 'static,
    ) -> Result<T, Error> {
        let out: Rc<RefCell<Option<Result<T, Fault>>>> = Rc::default();
        let to = out.clone();
        let run = self.reactor.spawn("bench", async move {
            let done = task.await;
            *to.borrow_mut() = Some(done);
        });
        let mut actors = [Actor::of_tasks(&self.reactor)];
        let limits = Limits { ns: 100_000_000_000_000, steps: 200_000_000 };
        let ended = self.world.run(&mut actors, limits, &mut || out.borrow().is_some());
        drop(run);
        match out.take() {
            Some(done) => done.map_err(|fault| failed(fault.to_string())),
            None => Err(failed(format!("the volume makes no progress: {ended:?}"))),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.reactor.shutdown();
    }
}

pub async fn open(o: &Options) -> Result<FileSystem, Fault> {
    FileSystem::mount(volume::open(o).await?, 0, 0).await
}

/// A new volume.
pub async fn ream(o: &Options) -> Result<FileSystem, Fault> {
    volume::ream(o).await?;
    open(o).await
}

pub async fn file(fs: &FileSystem, name: &str) -> Result<u64, Fault> {
    let new = New { mode: 0o644, ..New::default() };
    fs.run(|f| f.create(ROOT, name.as_bytes(), &new)).await
}

pub async fn lookup(fs: &FileSystem, name: &str) -> Result<u64, Fault> {
    fs.run(|f| f.lookup(View::Live, ROOT, name.as_bytes())).await?.ok_or(Fault::NotFound)
}

pub fn memory(o: &Options, len: u64, byte: u8) -> Result<Seg, Fault> {
    let seg = o.pool.get(len as usize).and_then(|b| b.seg(0, len as usize));
    let seg = seg.ok_or(Fault::NoSpace("buffers of the bench"))?;
    seg.with_mut(|b| b.fill(byte));
    Ok(seg)
}

/// Writes `bytes` of a file from its beginning.
pub async fn fill(
    o: &Options,
    fs: &FileSystem,
    ino: u64,
    bytes: u64,
    byte: u8,
) -> Result<(), Fault> {
    let seg = memory(o, PIECE, byte)?;
    let mut at = 0;
    while at < bytes {
        let n = PIECE.min(bytes - at);
        let some = seg.slice(0, n as usize).ok_or(Fault::Invalid("a piece"))?;
        fs.run(|f| f.write(ino, at, std::slice::from_ref(&some), 0)).await?;
        at += n;
    }
    Ok(())
}

/// Reads a file block by block in order, with so long between two, ns. How long it took, ns.
pub async fn read_in_order(
    clock: &Reactor,
    fs: &FileSystem,
    ino: u64,
    bytes: u64,
    between_ns: u64,
) -> Result<u64, Fault> {
    let (mut reader, mut segs, began) = (Reader::default(), Vec::new(), clock.now());
    for at in (0..bytes).step_by(BLOCK as usize) {
        fs.run(|f| {
            segs.clear();
            f.read_on(View::Live, ino, (at, BLOCK as usize), &mut reader, &mut segs)
        })
        .await?;
        clock.sleep(between_ns.saturating_sub(TURN_NS)).await;
    }
    Ok(clock.now() - began)
}

/// Reads and writes single blocks anywhere in a file, until `until`; how long each took, ns.
pub async fn use_at_random(
    o: Options,
    fs: FileSystem,
    (ino, bytes, seed): (u64, u64, u64),
    until: u64,
) -> Result<Vec<u64>, Fault> {
    let (mut random, mut took) = (SeededRandom::new(seed), Vec::new());
    let clock = o.reactor.clone();
    let seg = memory(&o, BLOCK, 9)?;
    let mut segs = Vec::new();
    while clock.now() < until {
        let at = random.below(bytes / BLOCK) * BLOCK;
        let (writes, began) = (random.chance(200), clock.now());
        fs.run(|f| {
            if writes {
                return f.write(ino, at, std::slice::from_ref(&seg), 0).map(drop);
            }
            segs.clear();
            f.read(View::Live, ino, at, BLOCK as usize, &mut segs).map(drop)
        })
        .await?;
        took.push(clock.now() - began);
        clock.sleep(200_000 + random.below(100_000)).await;
    }
    Ok(took)
}

/// The quantile: so many of a thousand took at most this long.
pub fn quantile(took: &mut [u64], of_thousand: usize) -> u64 {
    took.sort_unstable();
    let at = (took.len() * of_thousand / 1000).min(took.len().saturating_sub(1));
    took.get(at).copied().unwrap_or(0)
}
