//! A target in a world, and a story that hosts of our own play there.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use drivers::nvme_tcp::NvmeTcp;
use drivers::{Driver, TargetSpec};
use engine::Registry;
use reactor::sim::{Ended, NetShape, World};
use reactor::{Address, Reactor};
use testkit::disk::Disk;
use wire::nvme::Configuration;

use crate::common::plant::Plant;
use crate::nvme_tcp::host::{Broken, Host, SUBSYSTEM};

pub const SECTORS: u64 = 4096;

/// Where the target listens.
pub fn portal() -> Address {
    "10.0.0.1:4420".parse().unwrap()
}

/// A target with one disk in a world.
pub fn build(world: &World, sectors: u64) -> Plant {
    let plant = Plant::new(world, sectors as usize * 512, Disk::slow(sectors * 512));
    furnish(plant, serde_json::Value::Null)
}

/// Adds the target to a plant that has a disk.
fn furnish(plant: Plant, params: serde_json::Value) -> Plant {
    let driver: Arc<dyn Driver> = Arc::new(NvmeTcp::new(plant.registry.clone()));
    let listen = vec![portal()];
    let spec = TargetSpec { name: SUBSYSTEM.into(), listen, params, ..TargetSpec::default() };
    plant.add_target(&driver, spec, "*");
    plant.open(&driver, &[portal()]);
    plant
}

/// The parts that a test story uses.
#[derive(Clone)]
pub struct Stage {
    pub reactor: Reactor,
    pub pool: Pool,
    pub registry: Arc<Registry>,
}

impl Stage {
    pub async fn dial(&self) -> Host {
        Host::dial(&self.reactor, &self.pool, &portal()).await.unwrap()
    }

    /// An admin queue that is enabled.
    pub async fn admin(&self, digests: (bool, bool), keep_alive_ms: u32) -> Host {
        admin(self.dial().await, digests, keep_alive_ms).await.unwrap()
    }

    /// An I/O queue of that one's association.
    pub async fn queue(&self, of: &Host, number: u16) -> Host {
        let mut host = self.dial().await;
        host.initialize(of.digests).await.unwrap();
        host.controller = of.controller;
        let end = host.connect(SUBSYSTEM, number, 0).await.unwrap();
        assert!(end.status.is_good(), "{end:x?}");
        host
    }

    pub async fn both(&self, digests: (bool, bool)) -> (Host, Host) {
        let admin = self.admin(digests, 0).await;
        let queue = self.queue(&admin, 1).await;
        (admin, queue)
    }

    pub async fn seconds(&self, seconds: u64) {
        self.reactor.sleep(seconds * 1_000_000_000).await;
    }
}

/// Makes a connection an enabled admin queue.
pub async fn admin(
    mut host: Host,
    digests: (bool, bool),
    keep_alive_ms: u32,
) -> Result<Host, Broken> {
    host.initialize(digests).await?;
    let end = host.connect(SUBSYSTEM, 0, keep_alive_ms).await?;
    assert!(end.status.is_good(), "{end:x?}");
    let end = host.configure(Configuration::ENABLED).await?;
    assert!(end.status.is_good(), "{end:x?}");
    Ok(host)
}

fn one_disk(world: &World) -> Plant {
    Plant::new(world, SECTORS as usize * 512, Disk::slow(SECTORS * 512))
}

/// Plays a story to its end.
pub fn play<F: Future<Output = ()> + 'static>(story: impl FnOnce(Stage) -> F) {
    play_over(one_disk, story);
}

/// The same at a target with these parameters.
pub fn play_with<F: Future<Output = ()> + 'static>(
    params: serde_json::Value,
    story: impl FnOnce(Stage) -> F,
) {
    play_at(one_disk, params, story);
}

/// The same over a disk of the test's own.
pub fn play_over<F: Future<Output = ()> + 'static>(
    disk: impl FnOnce(&World) -> Plant,
    story: impl FnOnce(Stage) -> F,
) {
    play_at(disk, serde_json::Value::Null, story);
}

fn play_at<F: Future<Output = ()> + 'static>(
    disk: impl FnOnce(&World) -> Plant,
    params: serde_json::Value,
    story: impl FnOnce(Stage) -> F,
) {
    let world = World::new(5);
    world.set_net(NetShape { segment_max: 1460, ..NetShape::default() });
    let plant = furnish(disk(&world), params);
    let outside = Reactor::simulated(&world, "hosts");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let registry = plant.registry.clone();
    let story_end = story(Stage { reactor: outside.clone(), pool, registry });
    let done = Rc::new(Cell::new(false));
    let end = done.clone();
    drop(outside.spawn("story", async move {
        story_end.await;
        end.set(true);
    }));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "the story does not end");
    plant.end(&outside);
}
