//! Common parts of the tests in simulated worlds.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use bio::{Errno, Pool, PoolConfig, Seg, Segs};
pub use reactor::clock::MS;
use reactor::sim::{Actor, Ended, Limits, World};
use reactor::{Reactor, Token, WaitFor};

pub fn pool() -> Pool {
    Pool::new(PoolConfig::default())
}

pub fn seg(pool: &Pool, bytes: &[u8]) -> Seg {
    let seg = pool.get(bytes.len()).unwrap().seg(0, bytes.len()).unwrap();
    seg.copy_from(0, bytes);
    seg
}

pub fn filled(pool: &Pool, bytes: &[u8]) -> Segs {
    let segs = Segs::alloc(pool, bytes.len()).unwrap();
    segs.copy_from(0, bytes);
    segs
}

pub fn token(word: u64) -> Token {
    Token { kind: 1, user_data: word }
}

type Completions = Vec<(Token, Result<u64, Errno>)>;

/// Runs one reactor until no event is left; returns its completions.
pub fn quiet(world: &World, r: &Reactor) -> Completions {
    let completions = RefCell::new(Completions::new());
    let turn = || {
        r.turn(WaitFor::Forever, &mut |t, e| completions.borrow_mut().push((t, e)));
    };
    let ended = world.run(&mut [Actor::new(r, turn)], Limits::default(), &mut || false);
    assert_eq!(ended, Ended::Quiet, "seed {}", world.seed());
    completions.into_inner()
}

/// Runs `work` on the first of the reactors, and the tasks of the others, until it is done.
pub fn run<T: 'static>(
    world: &World,
    reactors: &[&Reactor],
    work: impl Future<Output = T> + 'static,
) -> T {
    let result = Rc::new(Cell::new(None));
    let put = result.clone();
    let task = reactors[0].spawn("test", async move { put.set(Some(work.await)) });
    let mut actors: Vec<Actor> = reactors.iter().map(|r| Actor::of_tasks(r)).collect();
    let ended = world.run(&mut actors, Limits::default(), &mut || task.is_finished());
    assert_eq!(ended, Ended::Stopped, "seed {}", world.seed());
    result.take().unwrap()
}
