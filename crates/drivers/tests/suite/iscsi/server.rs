//! A target with real cores, real sockets and disks in memory, in this process.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use drivers::iscsi::Iscsi;
use drivers::{Driver, TargetSpec};
use engine::lun::{OpenSpec, open_device};
use engine::{Engine, GroupSpec, LunSpec, Registry};
use geom::{Runtime, RuntimeConfig};
use reactor::PortChoice;
use serde_json::json;
use testkit::disk::{self, Disk, Provider};
pub use testkit::iscsi::initiator::IQN;

/// Bytes of the disk in memory at LUN 0.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// Bytes of the disk `stuck` at LUN 2.
pub const STUCK_BYTES: u64 = 16 << 20;

/// How a server is made.
pub struct Shape {
    pub cores: usize,
    /// The way to the kernel.
    pub port: PortChoice,
    /// How long a core spins, ns.
    pub spin_ns: u64,
    pub pool_bytes: usize,
    /// The target; name and portals are filled in.
    pub spec: TargetSpec,
    /// Connections of a core; `None` is the driver's own limit.
    pub connections: Option<usize>,
    /// StatSN of the first answer on each connection; `None` is the driver's own.
    pub first_stat_sn: Option<u32>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            cores: 1,
            port: PortChoice::Auto,
            spin_ns: 0,
            pool_bytes: 64 << 20,
            spec: TargetSpec::default(),
            connections: None,
            first_stat_sn: None,
        }
    }
}

/// A running target.
pub struct Server {
    pub registry: Arc<Registry>,
    pub driver: Arc<dyn Driver>,
    pub portal: SocketAddr,
    /// While it is set nothing ends at LUN 2.
    pub stuck: Arc<Disk>,
    pub control: geom::GraphControl,
    runtime: Runtime,
}

impl Server {
    /// With the disks `memory` at LUN 0, `null` at LUN 1 and `stuck` at LUN 2 for all initiators.
    pub fn start(shape: Shape) -> Server {
        let registry = Registry::new();
        let driver: Arc<dyn Driver> = match (shape.connections, shape.first_stat_sn) {
            (Some(most), _) => Arc::new(Iscsi::with_connections_max(registry.clone(), most)),
            (None, Some(sn)) => Arc::new(Iscsi::with_first_stat_sn(registry.clone(), sn)),
            (None, None) => drivers::all(&registry).remove(0),
        };
        let config = RuntimeConfig {
            cores: shape.cores,
            port: shape.port,
            spin_ns: shape.spin_ns,
            pool_bytes: shape.pool_bytes,
        };
        let (engines, opened) = (Arc::new(Mutex::new(registry.clone())), driver.clone());
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (tell, portal_rx) = mpsc::channel();
        let tell = Mutex::new(tell);
        let first = Mutex::new(any);
        let mut runtime = Runtime::start(config, move |core| {
            let registry = engines.lock().unwrap().clone();
            let engine = Engine::new(core.clone(), registry);
            opened.clone().install(&engine);
            let at = *first.lock().unwrap();
            let opening = opened.clone().open_portal(engine.clone(), at.into());
            let tell = tell.lock().unwrap().clone();
            // The portal opens in the first turn; the task keeps the engine for the core's life.
            drop(core.reactor().spawn("open", async move {
                let local = opening.await;
                tell.send(local).unwrap();
                let _engine = engine;
                std::future::pending::<()>().await;
            }));
        })
        .unwrap();
        let mut control = runtime.take_control().unwrap();
        let portal = portal_rx.recv().unwrap().unwrap().inet().unwrap();
        add_disks(&mut control, shape.cores, &registry);
        let stuck = Disk::new(STUCK_BYTES);
        disk::add(&mut control, Provider::new("stuck", STUCK_BYTES), stuck.clone());
        open_device(&mut control, &registry, "stuck", &OpenSpec::default()).unwrap();
        let spec = TargetSpec { name: IQN.into(), listen: vec![any.into()], ..shape.spec };
        driver.set_target(spec).unwrap();
        registry.set_target("iscsi", IQN).unwrap();
        let server = Server { registry, driver, portal, stuck, control, runtime };
        server.allow(&["*"]);
        server
    }

    /// Grants all units to the initiators that fit.
    pub fn allow(&self, initiators: &[&str]) {
        let lun = |lun, device: &str| LunSpec { lun, device: device.into(), read_only: false };
        let group = GroupSpec {
            name: "all".into(),
            initiators: initiators.iter().map(|i| i.to_string()).collect(),
            luns: vec![lun(0, "memory"), lun(1, "null"), lun(2, "stuck")],
            ..Default::default()
        };
        self.registry.set_groups("iscsi", IQN, &[group]).unwrap();
    }

    /// Replaces the target.
    pub fn set(&self, spec: TargetSpec) {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        self.driver.set_target(TargetSpec { name: IQN.into(), listen, ..spec }).unwrap();
    }

    /// `iscsi://` address of a unit.
    pub fn url(&self, lun: u64) -> String {
        format!("iscsi://{}/{IQN}/{lun}", self.portal)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.pump();
        self.runtime.stop();
    }
}

fn add_disks(control: &mut geom::GraphControl, cores: usize, registry: &Arc<Registry>) {
    let class = Arc::new(disks::DiskClass::new(control.inbox().clone(), cores));
    control.topology.load(class.clone()).unwrap();
    let kinds = [
        ("memory", json!({ "size": MEMORY_BYTES, "serial": "MEM1" })),
        ("null", json!({ "size": 1u64 << 40, "serial": "NULL1", "fill": "leave" })),
    ];
    for (kind, params) in kinds {
        control.call(|t| class.add(t, kind, kind, &params)).unwrap();
        open_device(control, registry, kind, &OpenSpec::default()).unwrap();
    }
}
