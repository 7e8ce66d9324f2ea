//! Clients of one play in a simulated world, whose connections are slow, cut and reset.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::sim::{Ended, NetShape, World};
use reactor::{Reactor, SeededRandom};

use super::connection_cuts::ConnectionCuts;
use super::plant::Plant;

/// A random network, whose segments have one of these sizes in bytes.
pub fn net_shape(random: &mut SeededRandom, segments: &[usize]) -> NetShape {
    let segment_max = segments[random.below(segments.len() as u64) as usize];
    // Counted by segment: with small ones no connection would live long enough to do anything.
    let resets = if segment_max > 1000 { 500 } else { 0 };
    NetShape {
        segment_max,
        resets_per_million: [0, 0, resets][random.below(3) as usize],
        buffer_bytes: [4096, 65_536, 262_144][random.below(3) as usize],
        ..NetShape::default()
    }
}

/// The resources of all clients, and their progress.
pub struct Players {
    pub reactor: Reactor,
    pub pool: Pool,
    /// Rounds of all clients together.
    pub rounds: Rc<Cell<u32>>,
    /// Logins of each client that has ended.
    pub logins: Rc<RefCell<Vec<u32>>>,
}

impl Players {
    pub fn new(world: &World) -> Players {
        Players {
            reactor: Reactor::simulated(world, "clients"),
            pool: Pool::new(PoolConfig { limit_bytes: 64 << 20 }),
            rounds: Rc::default(),
            logins: Rc::default(),
        }
    }

    /// Runs until `clients` have ended; answers the world's trace and the sum of their logins.
    pub fn run(
        self,
        world: &World,
        plant: Plant,
        clients: u64,
        mut cuts: ConnectionCuts,
    ) -> (u64, u32) {
        let ended = plant.run(world, &self.reactor, &mut || {
            cuts.look(world, self.rounds.get());
            self.logins.borrow().len() as u64 == clients
        });
        assert_eq!(ended, Ended::Stopped, "{:?} rounds, logins {:?}", self.rounds, self.logins);
        let logins = self.logins.borrow().iter().sum();
        plant.end(&self.reactor);
        (world.trace(), logins)
    }
}
