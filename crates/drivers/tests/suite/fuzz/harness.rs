//! Whole connections made of given bytes, into a driver in a simulated world: one peer sends them,
//! reads the answers and closes. A client after it is served as if nothing had happened. For AoE,
//! frames instead of connections.
//!
//! ```text
//!   byte 0: how the network cuts, and how far in the connection begins
//!   the rest: the peer's bytes; of frames, each with two bytes of its length before it
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig, Segs};
use drivers::aoe::Aoe;
use drivers::nbd::Nbd;
use drivers::nvme_tcp::NvmeTcp;
use drivers::{Driver, TargetSpec};
use engine::Registry;
use reactor::sim::{Ended, NetShape, SegmentShape, World};
use reactor::{Address, Reactor, Stream};
use testkit::disk::Disk;
use wire::aoe::{BROADCAST, Config, ETHERTYPE, Header, Mac, command, directive};
use wire::iscsi::{LoginRequest, Pdu};
use wire::nbd::codes::option;
use wire::nbd::dial;
use wire::nvme::codes::{admin, fabrics, property};
use wire::nvme::{self, Configuration, Connect, ConnectData, Initialize, Property, Sgl};

use super::plant::{Plant, plant};

const NAME: &str = "iqn.2026-11.test.ashlar:fuzz";

const SUBSYSTEM: &str = "nqn.2026-11.test.ashlar:fuzz";

const DISK_BYTES: usize = 64 * 512;

/// Longest input that is sent.
const INPUT_MAX: usize = 64 * 1024;

/// How long the peer waits before it closes, ns: longer than the disk takes.
const WAIT_NS: u64 = 50_000_000;

/// A driver to be tried.
#[derive(Clone, Copy)]
struct Tried {
    make: fn(&Arc<Registry>) -> Arc<dyn Driver>,
    name: &'static str,
    /// Bytes that a good peer sends first on another connection, which stays open.
    beside: fn(u8) -> Vec<u8>,
    /// Bytes that a good peer sends first, by how far in the connection is to begin.
    opening: fn(u8) -> Vec<u8>,
    /// How far in a good peer is served, and bytes of the answer that show it.
    good: (u8, usize),
}

fn send(pool: &Pool, bytes: &[u8]) -> Vec<bio::Seg> {
    let segs = Segs::alloc(pool, bytes.len()).expect("a large pool");
    segs.copy_from(0, bytes);
    segs.as_slice().to_vec()
}

async fn drain(stream: Stream, pool: Pool, received: Rc<Cell<usize>>) {
    let Some(seg) = pool.get(65_536).and_then(|b| b.seg(0, 65_536)) else { return };
    while let Ok(n @ 1..) = stream.recv(&seg).await {
        received.set(received.get() + n);
    }
}

/// Sends bytes on a connection that stays, and waits for answers.
async fn sit(outside: &Reactor, pool: &Pool, at: &Address, bytes: &[u8]) -> Option<Stream> {
    let stream = outside.connect(at.inet()?).await.ok()?;
    drop(outside.spawn("drain", drain(stream.clone(), pool.clone(), Rc::default())));
    stream.send(&mut send(pool, bytes)).await.ok()?;
    outside.sleep(WAIT_NS).await;
    Some(stream)
}

/// Sends bytes; answers how many returned before it closed.
async fn visit(outside: &Reactor, pool: &Pool, at: &Address, bytes: &[u8]) -> usize {
    let Some(Ok(stream)) = (match at.inet() {
        Some(at) => Some(outside.connect(at).await),
        None => None,
    }) else {
        return 0;
    };
    let received = Rc::new(Cell::new(0));
    drop(outside.spawn("drain", drain(stream.clone(), pool.clone(), received.clone())));
    // The driver may have closed it.
    let _ = stream.send(&mut send(pool, bytes)).await;
    outside.sleep(WAIT_NS).await;
    stream.close();
    outside.sleep(WAIT_NS).await;
    received.get()
}

fn try_one(tried: Tried, data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let rest = rest.get(..INPUT_MAX).unwrap_or(rest);
    let world = World::new(u64::from(how));
    let segment_max = [5, 100, 1460, 16 * 1024][usize::from(how & 3)];
    world.set_net(NetShape { segment_max, ..NetShape::default() });
    let portals: [Address; 1] = ["10.0.0.1:3260".parse().expect("an address")];
    let params = serde_json::Value::Null;
    let plant = plant(&world, &tried.make, (tried.name, params), &portals, DISK_BYTES);
    let outside = Reactor::simulated(&world, "outside");
    let pool = Pool::new(PoolConfig { limit_bytes: 16 << 20 });
    let done = Rc::new(Cell::new(false));
    let mut bytes = (tried.opening)(how >> 2);
    bytes.extend(rest);
    let (peer, at, end, pool2) = (outside.clone(), portals[0].clone(), done.clone(), pool.clone());
    let beside = (tried.beside)(how >> 2);
    drop(outside.spawn("peer", async move {
        let _sits = match beside.is_empty() {
            true => None,
            false => sit(&peer, &pool2, &at, &beside).await,
        };
        visit(&peer, &pool2, &at, &bytes).await;
        let (far, enough) = tried.good;
        let received = visit(&peer, &pool2, &at, &(tried.opening)(far)).await;
        assert!(received >= enough, "who comes after it is not served: {received} bytes");
        end.set(true);
        std::future::pending::<()>().await;
    }));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "nothing ends any more");
    plant.end(&outside);
}

/// How far in: 0 nothing was sent; else the login is behind it.
fn iscsi_opening(far: u8) -> Vec<u8> {
    if far & 1 == 0 {
        return Vec::new();
    }
    let text = format!(
        "InitiatorName=iqn.2026-11.test.ashlar:peer\0TargetName={NAME}\0SessionType=Normal\0"
    );
    let mut bhs = [0; 48];
    LoginRequest {
        transit: true,
        stage: 1,
        next_stage: 3,
        isid: [0x80, 0, 0, 0, 0, 1],
        cmd_sn: 1,
        data_len: u32::try_from(text.len()).unwrap_or(0),
        ..LoginRequest::default()
    }
    .encode(&mut bhs);
    let mut out = bhs.to_vec();
    out.extend(text.as_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// How far in: 0 nothing was sent; 1 the greeting is answered; 2, 3 and 4 transmission with simple
/// replies, structured ones, extended headers.
fn nbd_opening(far: u8) -> Vec<u8> {
    let mut out = Vec::new();
    if !far.is_multiple_of(5) {
        out.extend(dial::flags());
    }
    match far % 5 {
        3 => out.extend(dial::option(option::STRUCTURED_REPLY, &[])),
        4 => out.extend(dial::option(option::EXTENDED_HEADERS, &[])),
        _ => {}
    }
    if far % 5 > 1 {
        out.extend(dial::option(option::GO, &dial::info("", &[])));
    }
    out
}

/// Any bytes of an iSCSI initiator.
pub fn iscsi_connection(data: &[u8]) {
    let make = |registry: &Arc<Registry>| drivers::all(registry).remove(0);
    // The response to a login.
    let beside = |_| Vec::new();
    try_one(Tried { make, name: NAME, beside, opening: iscsi_opening, good: (1, 48) }, data);
}

pub fn nbd_connection(data: &[u8]) {
    let make =
        |registry: &Arc<Registry>| -> Arc<dyn Driver> { Arc::new(Nbd::new(registry.clone())) };
    // The greeting, an INFO and an ACK.
    let (name, beside) = (NAME, |_| Vec::new());
    let good = (2, 18 + 20 + 12 + 20);
    try_one(Tried { make, name, beside, opening: nbd_opening, good }, data);
}

/// How far in: 0 nothing was sent; 1 the beginning is behind it; 2 it is an admin queue, 3 an
/// enabled one; 4 an I/O queue of the association of another connection, the first in its world.
fn nvme_opening(far: u8) -> Vec<u8> {
    let far = far % 5;
    let capsule = |kind: u8, dwords, data: &[u8]| {
        let kind_of = if data.is_empty() { Sgl::TRANSPORT } else { Sgl::IN_CAPSULE };
        let len = u32::try_from(data.len()).unwrap_or(0);
        let sgl = Sgl { address: 0, len, kind: kind_of };
        let (opcode, nsid) = (admin::FABRICS, u32::from(kind));
        let command = nvme::Command { opcode, flags: 0x40, id: 9, nsid, sgl, dwords };
        [nvme::command_capsule(&command, 0, len), data.to_vec()].concat()
    };
    let mut out = Vec::new();
    if far > 0 {
        out.extend(Initialize::default().encode());
    }
    if far > 1 {
        let queue = u16::from(far == 4);
        let controller = if far == 4 { 1 } else { nvme::DYNAMIC_CONTROLLER };
        let data = ConnectData {
            host_id: [7; 16],
            controller,
            subsystem: SUBSYSTEM.into(),
            host: "nqn.2026-11.test.ashlar:peer".into(),
        };
        let wish = Connect { queue, size: 31, ..Connect::default() };
        out.extend(capsule(fabrics::CONNECT, wish.dwords(), &data.encode()));
    }
    if far == 3 {
        let value = Configuration::ENABLED.0.into();
        let wish = Property { long: false, at: property::CONFIGURATION, value };
        out.extend(capsule(fabrics::PROPERTY_SET, wish.dwords(), &[]));
    }
    out
}

/// Any bytes of a host of NVMe over TCP.
pub fn nvme_connection(data: &[u8]) {
    let make =
        |registry: &Arc<Registry>| -> Arc<dyn Driver> { Arc::new(NvmeTcp::new(registry.clone())) };
    let beside = |far: u8| if far % 5 == 4 { nvme_opening(3) } else { Vec::new() };
    // ICResp and two completions.
    let good = (3, 128 + 24 + 24);
    try_one(Tried { make, name: SUBSYSTEM, beside, opening: nvme_opening, good }, data);
}

const SHELF_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Frames of the input. Of the first byte: 1 gives each a right Ethernet header, 2 a right one of
/// AoE too, up to its tag.
fn frames(how: u8, mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(([a, b], more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([*a, *b])).min(more.len());
        let (body, more) = more.split_at(len);
        rest = more;
        let slot = wire::aoe::Address { shelf: 0, slot: 0 };
        let command = body.first().map_or(0, |b| b % 5);
        let head = Header::request(SHELF_MAC, PEER_MAC, slot, command, 7).encode();
        let head = match how & 3 {
            0 => &[][..],
            1 => &head[..14],
            _ => &head[..],
        };
        out.push([head, body].concat());
    }
    out
}

/// Any frames of AoE initiators.
pub fn aoe_frames(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let world = World::new(u64::from(how));
    let segment = world.segment(SegmentShape::default());
    segment.plug("shelf", SHELF_MAC.0, 9000);
    segment.plug("peer", PEER_MAC.0, 9000);
    let plant = Plant::new(&world, DISK_BYTES, Disk::slow(DISK_BYTES as u64));
    let driver: Arc<dyn Driver> = Arc::new(Aoe::new(plant.registry.clone()));
    plant.registry.set_state_store(engine::state_store::MemoryStore::new());
    let at: Address = "ether:shelf".parse().expect("an address");
    let listen = vec![at.clone()];
    plant.add_target(
        &driver,
        TargetSpec { name: "e0".into(), listen, ..TargetSpec::default() },
        "*",
    );
    plant.open(&driver, &[at]);
    let outside = Reactor::simulated(&world, "outside");
    let link = outside.link("peer", ETHERTYPE).expect("it was plugged");
    let (done, peer) = (Rc::new(Cell::new(false)), outside.clone());
    let (end, all) = (done.clone(), frames(how, rest.get(..INPUT_MAX).unwrap_or(rest)));
    drop(outside.spawn("peer", async move {
        peer.sleep(WAIT_NS).await;
        for some in all.chunks(64) {
            // A frame that is too long is dropped.
            some.iter().for_each(|frame| drop(link.send(frame, &Segs::new())));
            drop(link.flush());
            peer.sleep(WAIT_NS).await;
        }
        drop(link.receive(usize::MAX, &mut |_| ()));
        let slots = wire::aoe::Address::ALL;
        let ask = Header::request(BROADCAST, PEER_MAC, slots, command::CONFIG, 9);
        let question = Config::request(directive::READ, &[]).encode();
        drop(link.send(&[&ask.encode()[..], &question].concat(), &Segs::new()));
        drop(link.flush());
        peer.sleep(WAIT_NS).await;
        let mut received = 0;
        drop(link.receive(usize::MAX, &mut |_| received += 1));
        assert!(received > 0 || masks(&all), "who comes after it is not served");
        end.set(true);
        std::future::pending::<()>().await;
    }));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "nothing ends any more");
    plant.end(&outside);
}

/// Whether a frame may have put a list in force that its sender is not in.
fn masks(frames: &[Vec<u8>]) -> bool {
    frames.iter().any(|f| f.get(19) == Some(&command::MASKS) && f.get(25) == Some(&1))
}
