//! Cores, the control side and a target of one driver with one slow disk, in a simulated world.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use drivers::{Driver, TargetSpec};
use geom::{Control, Core, Inbox};
use reactor::sim::World;
use reactor::{Address, Patience, Reactor};
use target::lun::{OpenSpec, open_device};
use target::{Engine, GroupSpec, LunSpec, Registry};

use crate::slow_disk;

/// See the module.
pub struct Plant {
    pub cores: Vec<Rc<Core>>,
    pub engines: Vec<Rc<Engine>>,
    pub registry: Arc<Registry>,
    pub control: Control,
}

/// A target called `name` at `listen`, where everybody finds a disk of `disk_bytes` at LUN 0.
pub fn plant(
    world: &World,
    driver: &dyn Fn(&Arc<Registry>) -> Arc<dyn Driver>,
    (name, params): (&str, serde_json::Value),
    listen: &[Address],
    disk_bytes: usize,
) -> Plant {
    let inbox = Arc::new(Inbox::default());
    let (mut cores, mut mailers) = (Vec::new(), Vec::new());
    for id in 0..2 {
        let reactor = Reactor::simulated(world, &format!("core{id}"));
        let pool = Pool::new(PoolConfig { limit_bytes: 4 << 20 });
        let (core, mailer) = Core::new(id, reactor, pool, inbox.report());
        cores.push(core);
        mailers.push(mailer);
    }
    let (turning, clock) = (cores.clone(), world.clone());
    let mut control = Control::new(
        mailers,
        inbox,
        Box::new(move |_, _| turning.iter().for_each(|c| c.turn(Patience::Peek))),
        Box::new(move || clock.now()),
    );
    let registry = Registry::new();
    let engines: Vec<Rc<Engine>> =
        cores.iter().map(|c| Engine::new(c.clone(), registry.clone())).collect();
    slow_disk::add(&mut control, disk_bytes);
    open_device(&mut control, &registry, "slow", &OpenSpec::default()).unwrap();
    let driver = driver(&registry);
    let (kind, listen) = (driver.name(), listen.to_vec());
    let spec =
        TargetSpec { name: name.into(), listen: listen.clone(), params, ..TargetSpec::default() };
    driver.set_target(spec).unwrap();
    registry.set_target(kind, name).unwrap();
    let group = GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        luns: vec![LunSpec { lun: 0, device: "slow".into(), read_only: false }],
        ..GroupSpec::default()
    };
    registry.set_groups(kind, name, &[group]).unwrap();
    for engine in &engines {
        driver.clone().install(engine);
        for at in &listen {
            let opening = driver.clone().open_portal(engine.clone(), at.clone());
            drop(engine.core().reactor().spawn("open", async move {
                opening.await.unwrap();
            }));
        }
    }
    Plant { cores, engines, registry, control }
}
