//! Faults at any moment: links are cut or become silent, disks hang, the daemon dies.

use std::rc::Rc;

use reactor::{Reactor, SeededRandom};

use crate::world::shared::SimContext;
use crate::world::sim::{DISKS, MS};
use crate::world::stack::Outside;

/// Starts it on a reactor of its own.
pub fn start(outside: &Outside, shared: &Rc<SimContext>, seed: u64) {
    let reactor = Reactor::simulated(&outside.world, "gremlin");
    outside.reactors.borrow_mut().push(reactor.clone());
    let (own, outside, shared) = (reactor.clone(), outside.clone(), shared.clone());
    let mut random = SeededRandom::new(seed);
    // Some seeds are rougher than others.
    let pause_ms = [20, 100, 400, 2_000][random.below(4) as usize];
    let deadly = [0, 2, 8][random.below(3) as usize];
    drop(reactor.spawn("gremlin", async move {
        while !shared.draining.get() {
            own.sleep((1 + random.below(pause_ms)) * MS).await;
            if shared.draining.get() {
                return;
            }
            match random.below(100) {
                n if n < deadly => outside.crash.set(true),
                10..40 => cut(&outside, &shared, &mut random, false),
                40..50 => cut(&outside, &shared, &mut random, true),
                50..75 => {
                    let name = DISKS[random.below(DISKS.len() as u64) as usize];
                    let longest = [10, 500, 3_000, 9_000][random.below(4) as usize];
                    let ns = random.below(longest * MS);
                    shared.log(|| format!("{name} hangs for {} ms", ns / MS));
                    shared.mark("hangs");
                    outside.world.hang(name, true);
                    own.sleep(ns).await;
                    outside.world.hang(name, false);
                    shared.log(|| format!("{name} goes on"));
                }
                _ => {}
            }
        }
    }));
}

fn cut(outside: &Outside, shared: &SimContext, random: &mut SeededRandom, silent: bool) {
    let links = outside.world.links();
    let Some((link, client, _)) = links.get(random.below(links.len() as u64) as usize) else {
        return;
    };
    shared.log(|| format!("link of {client} {}", if silent { "goes silent" } else { "is cut" }));
    if silent {
        shared.mark("silences");
        outside.world.half_open(*link);
    } else {
        shared.mark("cuts");
        outside.world.cut(*link);
    }
}
