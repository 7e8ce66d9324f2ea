//! Connections that are cut at any point.

use reactor::sim::World;

/// How often, spread over the rounds of a play.
pub struct ConnectionCuts {
    most: u32,
    /// Rounds of the whole play.
    rounds: u32,
    done: u32,
}

impl ConnectionCuts {
    pub fn new(most: u32, rounds: u32) -> ConnectionCuts {
        ConnectionCuts { most, rounds, done: 0 }
    }

    /// Cuts one when it is time, `round` rounds into the play.
    pub fn look(&mut self, world: &World, round: u32) {
        if self.done >= self.most || round <= (self.done + 1) * self.rounds / (self.most + 1) {
            return;
        }
        self.done += 1;
        let links = world.links();
        if !links.is_empty() {
            let chosen = links[world.random() as usize % links.len()].0;
            world.cut(chosen);
        }
    }
}
