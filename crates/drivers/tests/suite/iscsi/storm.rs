//! A storm of logins, as after a restart of the daemon, seen from the daemon.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use drivers::iscsi::LOGINS_MAX;
use reactor::sim::{Ended, World};
use reactor::{Reactor, SeededRandom};
use testkit::Seeds;

use crate::iscsi::simulated::{Client, offer, plant};

const CORES: usize = 2;
/// Initiators beyond the logins that the cores take at once.
const MORE: usize = 300;

/// More initiators connect in one moment than may log in at once. The excess ones wait, and no
/// initiator that logs in as quickly as it can is rejected.
#[test]
fn excess_concurrent_logins_wait_and_are_not_rejected() {
    for seed in Seeds::of(1) {
        let world = World::new(seed);
        let mut random = SeededRandom::new(seed ^ 0x5707);
        let at: SocketAddr = "10.0.0.1:3260".parse().unwrap();
        let plant = plant(&world, at, &mut random);
        let outside = Reactor::simulated(&world, "clients");
        let pool = Pool::new(PoolConfig { limit_bytes: 1 << 30 });
        let count = CORES * LOGINS_MAX + MORE;
        let (inside, lost) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for number in 0..count as u64 {
            let mut client = Client::new(number, seed, &outside, &pool, at, offer(&mut random));
            let (inside, lost) = (inside.clone(), lost.clone());
            drop(outside.spawn("client", async move {
                let Ok(wire) = client.login().await else { return lost.set(lost.get() + 1) };
                inside.set(inside.get() + 1);
                std::future::pending::<()>().await;
                drop(wire);
            }));
        }
        let ended = plant.run(&world, &outside, &mut || inside.get() + lost.get() == count);
        assert_eq!(ended, Ended::Stopped, "{} are in, {} were lost", inside.get(), lost.get());
        assert_eq!(lost.get(), 0, "of {count}");
        assert_eq!(plant.registry.sessions().len(), count);
        plant.end(&outside);
    }
}
