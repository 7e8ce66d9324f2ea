//! A shelf on simulated segments, and the frames of initiators.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bio::Segs;
use drivers::aoe::Aoe;
use drivers::{Driver, TargetSpec};
use engine::state_store::MemoryStore;
use engine::{GroupSpec, LunSpec};
use reactor::sim::{Ended, Segment, SegmentShape, World};
use reactor::{Address, Link, Reactor};
use serde_json::json;
use wire::aoe::{self, Ata, BROADCAST, Config, ETHERTYPE, Header, Mac, command, directive};

use crate::aoe::volatile::Volatile;
use crate::common::plant::Plant;

pub const SHELF: u16 = 565;
pub const NAME: &str = "e565";
/// Where the disk is.
pub const SLOT: aoe::Address = aoe::Address { shelf: SHELF, slot: 0 };
pub const DISK_BYTES: usize = 512 * 512;

/// Address of the target's interface on a segment, and of a station there.
pub fn target_mac(segment: u8) -> Mac {
    Mac([2, 0, 0, 1, segment, 1])
}

pub fn mac(segment: u8, station: u8) -> Mac {
    Mac([2, 0, 0, 2, segment, station])
}

pub fn portal(segment: u8) -> Address {
    format!("ether:t{segment}").parse().unwrap()
}

pub fn params() -> serde_json::Value {
    json!({ "shelf": SHELF, "buffers": 16, "announce": false })
}

/// A pattern of initiators, and their slots; true: read only.
pub type Grant<'a> = (&'a str, &'a [(u64, bool)]);

/// A world with a shelf on some segments.
pub struct Stage {
    pub world: World,
    pub plant: Plant,
    pub driver: Arc<dyn Driver>,
    pub disk: Arc<Volatile>,
    pub store: Arc<MemoryStore>,
    pub segments: Vec<Segment>,
    pub outside: Reactor,
}

/// Fast, and every frame arrives.
pub fn calm() -> SegmentShape {
    SegmentShape { delay_ns_min: 1_000, delay_ns_max: 10_000, ..SegmentShape::default() }
}

impl Stage {
    pub fn new(seed: u64, shapes: &[SegmentShape], mtu: u32, params: serde_json::Value) -> Stage {
        Stage::with_store(seed, shapes, mtu, params, MemoryStore::new())
    }

    pub fn with_store(
        seed: u64,
        shapes: &[SegmentShape],
        mtu: u32,
        params: serde_json::Value,
        store: Arc<MemoryStore>,
    ) -> Stage {
        let world = World::new(seed);
        let mut disk = None;
        let plant = Plant::over(&world, |c| disk = Some(Volatile::add(c, DISK_BYTES)));
        plant.registry.set_state_store(store.clone());
        let driver: Arc<dyn Driver> = Arc::new(Aoe::new(plant.registry.clone()));
        let mut segments = Vec::new();
        let mut listen = Vec::new();
        for (number, shape) in (0u8..).zip(shapes) {
            let segment = world.segment(*shape);
            segment.plug(&format!("t{number}"), target_mac(number).0, mtu);
            segments.push(segment);
            listen.push(portal(number));
        }
        let name = NAME.into();
        let spec = TargetSpec { name, listen: listen.clone(), params, ..TargetSpec::default() };
        plant.add_target(&driver, spec, "mac:02:00:00:02:*");
        plant.open(&driver, &listen);
        let outside = Reactor::simulated(&world, "outside");
        Stage { world, plant, driver, disk: disk.unwrap(), store, segments, outside }
    }

    /// Who sees what.
    pub fn allow(&self, groups: &[Grant<'_>]) {
        self.allow_of("slow", groups);
    }

    /// The same of another disk.
    pub fn allow_of(&self, disk: &str, groups: &[Grant<'_>]) {
        let group = |(n, (who, luns)): (usize, &Grant<'_>)| GroupSpec {
            name: format!("g{n}"),
            initiators: vec![who.to_string()],
            luns: luns
                .iter()
                .map(|(lun, read_only)| LunSpec {
                    lun: *lun,
                    device: disk.into(),
                    read_only: *read_only,
                })
                .collect(),
            ..GroupSpec::default()
        };
        let groups: Vec<GroupSpec> = groups.iter().enumerate().map(group).collect();
        self.plant.registry.set_groups("aoe", NAME, &groups).unwrap();
    }

    pub fn plug(&self, segment: u8, station: u8) -> Link {
        let name = format!("s{segment}.{station}");
        let mtu = 9000;
        self.segments[usize::from(segment)].plug(&name, mac(segment, station).0, mtu);
        self.outside.link(&name, ETHERTYPE).unwrap()
    }

    /// Runs the world for a while.
    pub fn pass(&self, ns: u64) {
        let end = self.world.now() + ns;
        let world = self.world.clone();
        let outside = self.outside.clone();
        // A task sleeps until then, so that virtual time advances.
        drop(self.outside.spawn("clock", async move { outside.sleep(ns).await }));
        let ended = self.plant.run(&self.world, &self.outside, &mut || world.now() >= end);
        assert_eq!(ended, Ended::Stopped);
    }

    /// Sends frames, waits a while, and returns the received frames.
    pub fn ask(&self, link: &Link, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let came: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        link.receive(1000, &mut |_| ()).unwrap();
        for frame in frames {
            link.send(frame, &Segs::new()).unwrap();
        }
        link.flush().unwrap();
        self.pass(20_000_000);
        link.receive(1000, &mut |frame| came.borrow_mut().push(frame.to_vec())).unwrap();
        came.take()
    }

    pub fn end(self) {
        self.plant.end(&self.outside);
    }
}

/// A frame's header from a station to the target, of the first segment.
pub fn header(station: u8, to: aoe::Address, command: u8, tag: u32) -> Header {
    let all = to.shelf == u16::MAX || to.slot == u8::MAX;
    let at = if all { BROADCAST } else { target_mac(0) };
    Header::request(at, mac(0, station), to, command, tag)
}

pub fn config(station: u8, to: aoe::Address, how: u8, string: &[u8]) -> Vec<u8> {
    let head = header(station, to, command::CONFIG, 7);
    [&head.encode()[..], &Config::request(how, string).encode(), string].concat()
}

pub fn discovery_query(station: u8) -> Vec<u8> {
    config(station, aoe::Address::ALL, directive::READ, &[])
}

/// An ATA command.
pub fn ata(station: u8, tag: u32, ata: Ata, data: &[u8]) -> Vec<u8> {
    let head = header(station, SLOT, command::ATA, tag);
    [&head.encode()[..], &ata.encode(), data].concat()
}

/// A command of 48 bits.
pub fn long(command: u8, lba: u64, sectors: u8) -> Ata {
    let (extended, registers) = (true, lba);
    Ata { extended, command, sectors, registers, ..Ata::default() }
}

/// An answer: its header, registers and data.
pub fn decode_answer(frame: &[u8]) -> (Header, Ata, Vec<u8>) {
    let (header, body) = Header::decode(frame).unwrap();
    assert!(header.response, "answers are answers");
    let (ata, data) = Ata::decode(body).unwrap();
    (header, ata, data.to_vec())
}

/// The error of the only answer.
pub fn error(frames: &[Vec<u8>]) -> u8 {
    assert_eq!(frames.len(), 1);
    Header::decode(&frames[0]).unwrap().0.error.expect("an error")
}
