//! Cores, the control side and a target of one driver with one slow disk, in a simulated world.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use drivers::{Driver, TargetSpec};
use engine::ids::ConfiguredIds;
use engine::lun::{OpenSpec, open_device};
use engine::{Engine, GroupSpec, LunSpec, Registry};
use geom::{Core, GraphControl};
use reactor::sim::{Actor, Ended, Limits, World};
use reactor::{Address, Reactor, WaitFor};
use testkit::cores;
use testkit::disk::Disk;

use super::disk;

/// UUID of the disk.
pub const UUID: [u8; 16] = *b"sixteen bytes id";

/// Its EUI-64.
pub const EUI64: [u8; 8] = *b"an eui64";

/// See the module.
pub struct Plant {
    cores: Vec<Rc<Core>>,
    engines: Vec<Rc<Engine>>,
    pub registry: Arc<Registry>,
    // Ends behind what uses it.
    control: GraphControl,
}

impl Plant {
    /// Without a target: two cores and the unit `slow` on this disk of so many bytes.
    pub fn new(world: &World, bytes: usize, slow: Arc<Disk>) -> Plant {
        Plant::over(world, |control| disk::add(control, "slow", bytes as u64, slow))
    }

    /// The same over another disk that is called `slow`.
    pub fn over(world: &World, add_disk: impl FnOnce(&mut GraphControl)) -> Plant {
        let (cores, mailers, inbox) = cores::start(world, 2, 4 << 20);
        let (turning, clock) = (cores.clone(), world.clone());
        let mut control = GraphControl::new(
            mailers,
            inbox,
            Box::new(move |_, _| turning.iter().for_each(|c| c.turn(WaitFor::Peek))),
            Box::new(move || clock.now()),
        );
        let registry = Registry::new();
        let engines = cores.iter().map(|c| Engine::new(c.clone(), registry.clone())).collect();
        add_disk(&mut control);
        let given =
            ConfiguredIds { uuid: Some(UUID), eui64: Some(EUI64), ..ConfiguredIds::default() };
        let spec = OpenSpec { configured_ids: given, ..OpenSpec::default() };
        open_device(&mut control, &registry, "slow", &spec).unwrap();
        Plant { cores, engines, registry, control }
    }

    /// Adds another unit, over a disk that is added now.
    pub fn add_unit(&mut self, name: &str, add_disk: impl FnOnce(&mut GraphControl)) {
        add_disk(&mut self.control);
        open_device(&mut self.control, &self.registry, name, &OpenSpec::default()).unwrap();
    }

    /// A target, at which `initiators` find the disk at LUN 0.
    pub fn add_target(&self, driver: &Arc<dyn Driver>, spec: TargetSpec, initiators: &str) {
        let (kind, name) = (driver.name(), spec.name.clone());
        driver.set_target(spec).unwrap();
        self.registry.set_target(kind, &name).unwrap();
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec![initiators.into()],
            luns: vec![LunSpec { lun: 0, device: "slow".into(), read_only: false }],
            ..GroupSpec::default()
        };
        self.registry.set_groups(kind, &name, &[group]).unwrap();
        self.engines.iter().for_each(|engine| driver.clone().install(engine));
    }

    /// Opens portals on every core, in their first turns.
    pub fn open(&self, driver: &Arc<dyn Driver>, listen: &[Address]) {
        for engine in &self.engines {
            for at in listen {
                let opening = driver.clone().open_portal(engine.clone(), at.clone());
                drop(engine.core().reactor().spawn("open", async move {
                    opening.await.unwrap();
                }));
            }
        }
    }

    /// Turns the cores and the tasks of `outside` until `over`.
    pub fn run(&self, world: &World, outside: &Reactor, over: &mut dyn FnMut() -> bool) -> Ended {
        let mut actors = cores::actors(&self.cores);
        actors.push(Actor::of_tasks(outside));
        world.run(&mut actors, Limits::default(), over)
    }

    /// Ends the cores, and then who uses them. Nothing keeps a core: thousands of worlds fit into
    /// one process.
    pub fn end(self, outside: &Reactor) {
        let cores: Vec<Weak<Core>> = self.cores.iter().map(Rc::downgrade).collect();
        self.cores.iter().for_each(|core| drop(core.reactor().shutdown()));
        outside.shutdown();
        drop(self);
        let kept = cores.iter().filter(|core| core.strong_count() > 0).count();
        assert_eq!(kept, 0, "cores that something keeps");
    }
}

/// A target called `name` at `listen`, with a disk of `disk_bytes` at LUN 0 for all initiators.
#[allow(dead_code, reason = "not everybody has portals")]
pub fn plant(
    world: &World,
    driver: &dyn Fn(&Arc<Registry>) -> Arc<dyn Driver>,
    (name, params): (&str, serde_json::Value),
    listen: &[Address],
    disk_bytes: usize,
) -> Plant {
    let plant = Plant::new(world, disk_bytes, Disk::slow(disk_bytes as u64));
    let driver = driver(&plant.registry);
    let (name, listen) = (name.into(), listen.to_vec());
    let spec = TargetSpec { name, listen: listen.clone(), params, ..TargetSpec::default() };
    plant.add_target(&driver, spec, "*");
    plant.open(&driver, &listen);
    plant
}
