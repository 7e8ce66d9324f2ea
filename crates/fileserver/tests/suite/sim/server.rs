//! A server of files in a simulated world.

use std::cell::RefCell;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use fileserver::volume::{self, Options};
use reactor::Reactor;
use reactor::sim::{Actor, Ended, Limits, World};

use super::disk::{Disk, Plugged};

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
