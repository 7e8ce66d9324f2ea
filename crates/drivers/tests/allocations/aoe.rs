//! Allocations of a READ or WRITE over AoE, from a real interface to the medium and back: none. A
//! cable (veth) has the target at one end and the test at the other. Needs root.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bio::Segs;
use drivers::aoe::Aoe;
use drivers::{Driver, TargetSpec};
use engine::lun::{OpenSpec, open_device};
use engine::{Engine, GroupSpec, LunSpec, Registry};
use geom::{GraphControl, Runtime, RuntimeConfig};
use reactor::{Address, Config, Link, LinkMode, PortChoice, Reactor};
use serde_json::json;
use testkit::cable::Cable;
use wire::aoe::{self, Ata, ETHERTYPE, Header, Mac, command};
use wire::ata::command as op;
use wire::ata::status;

use crate::allocations;

/// Commands of a turn.
const COMMANDS: u32 = 3000;

/// Allocations of a turn, at most: a hundredth of one a command, for what happens once a second.
const FEW: u64 = COMMANDS as u64 / 100;

/// Commands that are under way at once.
const DEPTH: u32 = 8;

const SLOT: aoe::Address = aoe::Address { shelf: 7, slot: 0 };

/// The client's own: the cable carries frames to any address.
const ME: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// A target with one core, whose allocations are counted, over a disk in memory.
struct Server {
    control: GraphControl,
    runtime: Runtime,
    _driver: Arc<dyn Driver>,
}

impl Server {
    fn start(interface: &str) -> Server {
        let registry = Registry::new();
        let driver: Arc<dyn Driver> = Arc::new(Aoe::new(registry.clone()));
        let config =
            RuntimeConfig { cores: 1, port: PortChoice::Auto, spin_ns: 0, pool_bytes: 64 << 20 };
        let (tell, opened) = mpsc::channel();
        let at: Address = format!("ether:{interface}").parse().unwrap();
        let (its, portal, engines) = (driver.clone(), at.clone(), registry.clone());
        let mut runtime = Runtime::start(config, move |core| {
            let engine = Engine::new(core.clone(), engines.clone());
            its.clone().install(&engine);
            let opening = its.clone().open_portal(engine.clone(), portal.clone());
            let tell = tell.clone();
            drop(core.reactor().spawn("open", async move {
                tell.send(opening.await).unwrap();
                let _engine = engine;
                std::future::pending::<()>().await;
            }));
        })
        .unwrap();
        let mut control = runtime.take_control().unwrap();
        opened.recv().unwrap().unwrap();
        let class = Arc::new(disks::DiskClass::new(control.inbox().clone(), 1));
        control.topology.load(class.clone()).unwrap();
        let params = json!({ "size": 64 << 20, "serial": "MEM1" });
        control.call(|t| class.add(t, "memory", "memory", &params)).unwrap();
        open_device(&mut control, &registry, "memory", &OpenSpec::default()).unwrap();
        let params = json!({ "shelf": SLOT.shelf, "announce": false });
        let spec = TargetSpec { name: "e7".into(), listen: vec![at], params, ..Default::default() };
        driver.set_target(spec).unwrap();
        registry.set_target("aoe", "e7").unwrap();
        let lun = LunSpec { lun: 0, device: "memory".into(), read_only: false };
        let initiators = vec!["mac:*".to_owned()];
        let group =
            GroupSpec { name: "all".into(), initiators, luns: vec![lun], ..Default::default() };
        registry.set_groups("aoe", "e7", &[group]).unwrap();
        control.pump();
        Server { control, runtime, _driver: driver }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.pump();
        self.runtime.stop();
    }
}

struct Client {
    link: Link,
    reactor: Reactor,
    to: Mac,
    tag: u32,
    data: Segs,
}

impl Client {
    fn new(near: &str, far: &str) -> Client {
        let (name, port) = ("client".into(), PortChoice::Poll);
        let reactor = Reactor::start(Config { name, port, spin_ns: 0, cpu: None }).unwrap();
        let link = reactor.link(near, ETHERTYPE).unwrap();
        let target = reactor.link_by(far, ETHERTYPE, LinkMode::Calls).unwrap();
        let to = Mac(target.facts().unwrap().mac);
        let pool = bio::Pool::new(bio::PoolConfig { limit_bytes: 1 << 20 });
        let data = Segs::alloc(&pool, 8704).unwrap();
        data.fill(0, 8704, 0x5A);
        Client { link, reactor, to, tag: 0, data }
    }

    /// Sends a command and the data that it writes.
    fn send(&mut self, ata: Ata, bytes: usize) {
        self.tag += 1;
        let head = Header::request(self.to, ME, SLOT, command::ATA, self.tag);
        let mut data = Segs::new();
        assert!(self.data.slice_into(0, bytes, &mut data));
        self.link.send(&[&head.encode()[..], &ata.encode()].concat(), &data).unwrap();
    }

    /// Waits for so many answers, all good, with so many bytes.
    fn receive_answers(&mut self, mut answers: u32, bytes: usize) {
        while self.link.queued() > 0 {
            self.link.flush().unwrap();
        }
        let end = Instant::now() + Duration::from_secs(20);
        while answers > 0 {
            assert!(Instant::now() < end, "{answers} answers are missing");
            let mut take = |frame: &[u8]| {
                let (header, body) = Header::decode(frame).unwrap();
                if header.response {
                    let (ata, data) = Ata::decode(body).unwrap();
                    assert_eq!((header.error, ata.command & status::FAILED), (None, 0));
                    assert!(data.len() >= bytes, "{} bytes", data.len());
                    answers -= 1;
                }
            };
            self.link.receive(64, &mut take).unwrap();
        }
    }
}

#[test]
fn reads_and_writes_over_aoe_allocate_nothing() {
    let cable = Cable::create("9000");
    let [near, far] = &cable.ends;
    let server = Server::start(far);
    let mut c = Client::new(near, far);
    let ata =
        |command, write, sectors| Ata { extended: true, write, sectors, command, ..Ata::default() };
    c.send(ata(op::IDENTIFY, false, 1), 0);
    c.receive_answers(1, 512);
    assert!(allocations(&server.control) > 0, "allocations are not counted");
    for (name, ata, out, back) in [
        ("read of 4 KiB", ata(op::READ_EXT, false, 8), 0, 4096),
        ("read of a whole frame", ata(op::READ_EXT, false, 17), 0, 8704),
        ("write of 4 KiB", ata(op::WRITE_EXT, true, 8), 4096, 0),
        ("write of a whole frame", ata(op::WRITE_EXT, true, 17), 8704, 0),
    ] {
        let mut turn = |commands: u32| {
            let before = allocations(&server.control);
            for n in 0..commands / DEPTH {
                // The same few blocks: the disk allocates when one is written first.
                for k in 0..DEPTH {
                    let registers = u64::from((n * DEPTH + k) % 64) * 17;
                    c.send(Ata { registers, ..ata }, out);
                }
                c.receive_answers(DEPTH, back);
            }
            allocations(&server.control) - before
        };
        turn(COMMANDS);
        let made = turn(COMMANDS);
        assert!(made <= FEW, "{name}: {made} allocations in {COMMANDS} commands");
    }
    c.reactor.shutdown();
}
