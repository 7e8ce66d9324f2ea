//! The rules of the graph on real threads and real ports, without simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bio::Errno;
use geom::{Access, Create, GraphControl, Message, ProviderId, Runtime, RuntimeConfig};
use reactor::PortChoice;

use crate::common::{BLOCK, Leaf, Load, Manner, Mode, User, classes, log};

const CORES: usize = 2;
const BLOCKS: u64 = 4;

fn start(port: PortChoice) -> (Runtime, GraphControl) {
    let config = RuntimeConfig { cores: CORES, port, spin_ns: 0, pool_bytes: 8 << 20 };
    let mut runtime = Runtime::start(config, |_| ()).expect("the cores start");
    let mut control = runtime.take_control().expect("taken once");
    classes(&mut control.topology);
    (runtime, control)
}

fn writer(control: &mut GraphControl, disk: ProviderId) -> geom::ConsumerId {
    let made = control.call(|t| User::create(t, "u", disk, Manner::default(), log()));
    let c = made.expect("attached");
    control.topology.access(c, Access::WRITE).expect("opened");
    control.settle().expect("idle");
    c
}

fn under_load(port: PortChoice, mode: Mode, rounds: usize) {
    let (mut runtime, mut control) = start(port);
    let leaf = Leaf::new(CORES as u64 * BLOCKS * BLOCK);
    let made = leaf.clone();
    let disk = control.call(|t| made.create(t, "d0")).expect("a disk");
    let c = writer(&mut control, disk);
    leaf.set(mode);
    let (load, edge) = (Arc::new(Load::default()), control.topology.edge(c));
    let started = Arc::new(AtomicUsize::new(0));
    for i in 0..CORES {
        let (load, started, first) = (load.clone(), started.clone(), i as u64 * BLOCKS);
        control.send(
            i,
            Message::Call(Box::new(move |core| {
                load.start(core, edge, first..first + BLOCKS);
                started.fetch_add(1, Relaxed);
            })),
        );
    }
    let second = Duration::from_secs(20);
    assert!(control.wait_until(second, |_| started.load(Relaxed) == CORES && load.rounds() > 0));
    let params = serde_json::Value::Null;
    for i in 0..rounds {
        let name = format!("s{i}");
        let request = Create { name: &name, members: &[], params: &params };
        let geom = control.insert("shim", disk, &request).expect("slipped in");
        control.remove(geom).expect("taken out");
        control.topology.check();
    }
    load.stop();
    assert!(control.wait_until(second, |_| load.is_over()), "a request never ended");
    assert!(load.rounds() > rounds as u64 / 4, "{} rounds of load", load.rounds());
    assert_eq!(control.topology.view(0).len(), 2);
    for i in 0..CORES {
        let empty = Arc::new(AtomicUsize::new(usize::MAX));
        let e = empty.clone();
        control.send(
            i,
            Message::Call(Box::new(move |core| {
                e.store(core.live() + core.pool().usage().used_bytes, Relaxed);
            })),
        );
        assert!(control.wait_until(second, |_| empty.load(Relaxed) != usize::MAX));
        assert_eq!(empty.load(Relaxed), 0, "core {i} holds something");
    }
    runtime.stop();
}

#[test]
fn layer_is_inserted_and_removed_1000_times_under_load_on_two_threads() {
    under_load(PortChoice::Auto, Mode::After(20_000), 1000);
}

#[test]
fn layer_is_inserted_and_removed_on_the_poll_port_over_an_instant_disk() {
    under_load(PortChoice::Poll, Mode::Now, 200);
}

#[test]
fn job_on_a_core_returns_its_result_or_times_out() {
    let (mut runtime, mut control) = start(PortChoice::Auto);
    let leaf = Leaf::new(1 << 20);
    leaf.put(512, &[77]);
    let made = leaf.clone();
    let disk = control.call(|t| made.create(t, "d0")).expect("a disk");
    let c = writer(&mut control, disk);
    let edge = control.topology.edge(c);
    let read = control
        .run_on_core("reads", move |core| Box::pin(async move { core.read(edge, 512, 512).await }));
    assert_eq!(read.unwrap().unwrap()[0], 77);
    leaf.set(Mode::Hold);
    control.deadlines.job_ns = 50_000_000;
    let late = control
        .run_on_core("hangs", move |core| Box::pin(async move { core.read(edge, 0, 512).await }));
    assert_eq!(late.map(|_| ()).unwrap_err().kind, Errno::TimedOut);
    runtime.stop();
    runtime.stop();
}

#[test]
fn dropped_runtime_is_stopped_and_an_invalid_one_does_not_start() {
    let here = Arc::new(AtomicUsize::new(0));
    let counted = here.clone();
    let config =
        RuntimeConfig { cores: 3, port: PortChoice::Auto, spin_ns: 0, pool_bytes: 1 << 20 };
    let runtime = Runtime::start(config, move |core| {
        counted.fetch_add(1 + core.id() as usize, Relaxed);
    });
    assert_eq!(runtime.as_ref().map(|r| r.reports().len()).ok(), Some(3));
    drop(runtime);
    assert_eq!(here.load(Relaxed), 6, "on every core, before it is used");
    assert_eq!(Arc::strong_count(&here), 1, "the threads have ended");
}
