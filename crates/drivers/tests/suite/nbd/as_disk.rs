//! Our own target as an NBD disk of another daemon: users on two cores, one connection or two.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use bio::{Op, Segs};
use geom::{Access, Core, Edge, Runtime, RuntimeConfig};
use reactor::{PortChoice, SeededRandom};
use serde_json::json;

use crate::nbd::server::{MEMORY_BYTES, Server, Shape};

const CORES: usize = 2;
const ROUNDS: u64 = 150;

/// Writes, reads and checks its own half of the disk.
async fn work(core: std::rc::Rc<Core>, edge: Edge) -> Result<(), String> {
    let half = MEMORY_BYTES / 2;
    let (base, mut random) = (u64::from(core.id()) * half, SeededRandom::new(core.id().into()));
    for round in 0..ROUNDS {
        let at = base + random.below(half / 512 - 1024) * 512;
        let len = (1 + random.below(1024)) as usize * 512;
        let bytes: Vec<u8> = (0..len).map(|i| (round as usize + i / 512) as u8 | 1).collect();
        core.write(edge, at, &bytes).await.map_err(|e| format!("write: {e}"))?;
        let back = core.read(edge, at, len).await.map_err(|e| format!("read: {e}"))?;
        if back != bytes {
            return Err(format!("wrong data at {at}"));
        }
        if round % 50 == 0 {
            core.flush(edge).await.map_err(|e| format!("flush: {e}"))?;
            let zero = core.io(edge, |bio| {
                (bio.op, bio.offset, bio.length) = (Op::WriteZeroes, at, len as u64);
                bio.data = Segs::new();
            });
            zero.await.status.map_err(|e| format!("zeroes: {e}"))?;
            let back = core.read(edge, at, len).await.map_err(|e| format!("read: {e}"))?;
            if back.iter().any(|b| *b != 0) {
                return Err(format!("not zero at {at}"));
            }
        }
    }
    Ok(())
}

fn serves(connections: u32) {
    let server = Server::start(Shape::default());
    let config =
        RuntimeConfig { cores: CORES, port: PortChoice::Auto, spin_ns: 0, pool_bytes: 32 << 20 };
    let mut runtime = Runtime::start(config, |_| {}).unwrap();
    let mut control = runtime.take_control().unwrap();
    let class = Arc::new(disks::DiskClass::new(control.inbox().clone(), CORES));
    control.topology.load(class.clone()).unwrap();
    let params = json!({ "uri": server.url("memory"), "connections": connections });
    control.call(|t| class.add(t, "nbd", "n0", &params)).unwrap();
    let (_, edge) = testkit::user::open(&mut control, "n0", Access::WRITE).unwrap();
    let (tell, opened) = mpsc::channel();
    for core in 0..CORES {
        let tell = Mutex::new(tell.clone());
        let call = move |core: &std::rc::Rc<Core>| {
            let (own, tell) = (core.clone(), tell.lock().unwrap().clone());
            drop(core.reactor().spawn("user", async move {
                tell.send(work(own, edge).await).unwrap();
            }));
        };
        control.topology.notifier().call(core, Box::new(call));
    }
    let mut ended = Vec::new();
    while ended.len() < CORES {
        control.wait_until(std::time::Duration::from_millis(20), |_| false);
        ended.extend(opened.try_iter());
    }
    assert_eq!(ended, vec![Ok(()); CORES]);
    let sessions = server.registry.sessions().len();
    assert_eq!(sessions, connections as usize);
    drop(control);
    runtime.stop();
}

#[test]
fn each_core_has_a_connection() {
    serves(2);
}

#[test]
fn one_connection_serves_all_cores() {
    serves(1);
}
