//! A target with real cores, real sockets and disks in memory, in this process.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use drivers::nbd::Nbd;
use drivers::{Driver, TargetSpec};
use engine::lun::{OpenSpec, open_device};
use engine::{Engine, GroupSpec, LunSpec, Registry};
use geom::{Runtime, RuntimeConfig};
use reactor::{Address, PortChoice};
use serde_json::json;

/// Name of the target of [`Server::start`].
pub const TARGET: &str = "test";

/// Bytes of the disk in memory at LUN 0.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// How a server is made.
pub struct Shape {
    pub cores: usize,
    /// The way to the kernel.
    pub port: PortChoice,
    pub pool_bytes: usize,
    /// Parameters of the target.
    pub params: serde_json::Value,
    /// A Unix socket to listen at besides TCP.
    pub unix: Option<String>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            cores: 2,
            port: PortChoice::Auto,
            pool_bytes: 64 << 20,
            params: serde_json::Value::Null,
            unix: None,
        }
    }
}

/// A running target.
pub struct Server {
    pub registry: Arc<Registry>,
    pub driver: Arc<dyn Driver>,
    pub portal: SocketAddr,
    listen: Vec<Address>,
    pub control: geom::GraphControl,
    runtime: Runtime,
}

impl Server {
    /// With the disks `memory` at LUN 0, `null` at LUN 1, `big` at LUN 2 (4096-byte sectors) and
    /// `memory` read-only at LUN 3, for all clients.
    pub fn start(shape: Shape) -> Server {
        let registry = Registry::new();
        let driver: Arc<dyn Driver> = Arc::new(Nbd::new(registry.clone()));
        let config = RuntimeConfig {
            cores: shape.cores,
            port: shape.port,
            spin_ns: 0,
            pool_bytes: shape.pool_bytes,
        };
        let any: Address = "127.0.0.1:0".parse().unwrap();
        let mut listen = vec![any];
        listen.extend(shape.unix.map(|path| Address::Unix(path.into())));
        // Before the portals open, as the daemon does.
        set_target(&driver, &listen, shape.params.clone());
        let (tell, portal_rx) = mpsc::channel();
        let tell = Mutex::new(tell);
        let (shared, opened) = (Mutex::new(registry.clone()), driver.clone());
        let portals = Mutex::new(listen.clone());
        let mut runtime = Runtime::start(config, move |core| {
            let engine = Engine::new(core.clone(), shared.lock().unwrap().clone());
            opened.clone().install(&engine);
            let portals = portals.lock().unwrap().clone();
            let (driver, tell) = (opened.clone(), tell.lock().unwrap().clone());
            // The portals open in the first turn; the task keeps the engine for the core's life.
            drop(core.reactor().spawn("open", async move {
                for at in portals {
                    let local = driver.clone().open_portal(engine.clone(), at).await;
                    tell.send(local).unwrap();
                }
                let _engine = engine;
                std::future::pending::<()>().await;
            }));
        })
        .unwrap();
        let mut control = runtime.take_control().unwrap();
        let mut tcp = Vec::new();
        for _ in 0..shape.cores * listen.len() {
            tcp.extend(portal_rx.recv().unwrap().unwrap().inet());
        }
        add_disks(&mut control, shape.cores, &registry);
        let server = Server { registry, driver, portal: tcp[0], listen, control, runtime };
        server.registry.set_target("nbd", TARGET).unwrap();
        server.allow(&["*"]);
        server
    }

    /// Replaces the target's parameters.
    pub fn set(&self, params: serde_json::Value) {
        set_target(&self.driver, &self.listen, params);
    }

    /// Grants all units to the initiators that fit.
    pub fn allow(&self, initiators: &[&str]) {
        let lun = |lun, device: &str| LunSpec { lun, device: device.into(), read_only: false };
        let read_only = LunSpec { lun: 3, device: "memory".into(), read_only: true };
        let group = GroupSpec {
            name: "all".into(),
            initiators: initiators.iter().map(|i| i.to_string()).collect(),
            luns: vec![lun(0, "memory"), lun(1, "null"), lun(2, "big"), read_only],
            ..GroupSpec::default()
        };
        self.registry.set_groups("nbd", TARGET, &[group]).unwrap();
    }

    /// `nbd://` address of an export.
    pub fn url(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.portal)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.pump();
        self.runtime.stop();
    }
}

fn set_target(driver: &Arc<dyn Driver>, listen: &[Address], params: serde_json::Value) {
    let listen = listen.to_vec();
    let spec = TargetSpec { name: TARGET.into(), listen, params, ..TargetSpec::default() };
    driver.set_target(spec).unwrap();
}

fn add_disks(control: &mut geom::GraphControl, cores: usize, registry: &Arc<Registry>) {
    let class = Arc::new(disks::DiskClass::new(control.inbox().clone(), cores));
    control.topology.load(class.clone()).unwrap();
    let kinds = [
        ("memory", "memory", json!({ "size": MEMORY_BYTES, "serial": "MEM1" })),
        ("null", "null", json!({ "size": 1u64 << 40, "serial": "NULL1", "fill": "leave" })),
        ("big", "memory", json!({ "size": 1u64 << 30, "sector_size": 4096, "serial": "MEM2" })),
    ];
    for (name, kind, params) in kinds {
        control.call(|t| class.add(t, kind, name, &params)).unwrap();
        open_device(control, registry, name, &OpenSpec::default()).unwrap();
    }
}
