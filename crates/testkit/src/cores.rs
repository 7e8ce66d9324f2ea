//! Cores of a simulated world, and their turns.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use geom::{Core, Inbox, Message};
use reactor::sim::{Actor, World};
use reactor::{Mailer, Reactor, WaitFor};

/// Cores, the ways of the control thread to them, and its inbox.
pub type Cores = (Vec<Rc<Core>>, Vec<Mailer<Message>>, Arc<Inbox>);

/// Starts so many cores, each with a pool of `pool_bytes`.
pub fn start(world: &World, count: usize, pool_bytes: usize) -> Cores {
    let inbox = Arc::new(Inbox::default());
    let core = |id: usize| {
        let reactor = Reactor::simulated(world, &format!("core{id}"));
        let pool = Pool::new(PoolConfig { limit_bytes: pool_bytes });
        Core::new(id as u32, reactor, pool, inbox.report())
    };
    let (cores, mailers) = (0..count).map(core).unzip();
    (cores, mailers, inbox)
}

/// The turns of cores, for [`World::run`].
pub fn actors(cores: &[Rc<Core>]) -> Vec<Actor<'static>> {
    let actor = |core: &Rc<Core>| {
        let own = core.clone();
        Actor::new(core.reactor(), move || own.turn(WaitFor::Peek))
    };
    cores.iter().map(actor).collect()
}
