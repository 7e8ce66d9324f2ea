//! Disks behind faulty paths: too narrow for a request, in transition to another access state, or
//! with a wrong capacity; alone, and as paths of one multipath device.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bio::{Flags, Segs};
use cam::sims::hba::{DiskSpec, Transport, VirtualHba};
use cam::{Begun, Ccb, CcbId, Outcome, Sim, SimFacts, Unit};
use classes::multipath::MultipathClass;
use geom::{Class, Core, Edge};
use serde_json::{Value, json};
use wire::scsi::{Asc, Key, Sense, Status};

use crate::world::{self, World};

const MIB: usize = 1 << 20;
const READ_CAPACITY16: u8 = 0x9e;

/// A virtual HBA with one disk, and what happens on the way to it.
struct Way {
    hba: Arc<VirtualHba>,
    io_max_bytes: u32,
    /// The answer of the port to medium commands, in place of the disk's.
    outcome: Mutex<Option<Outcome>>,
    /// READ CAPACITY(16) ends so.
    sizes: Mutex<Option<Outcome>>,
    /// Commands about the medium that arrived, and the longest of their transfers.
    command_count: AtomicU32,
    longest: AtomicU32,
}

impl Way {
    fn new(name: &str, transport: Transport, io_max_bytes: u32) -> Arc<Way> {
        let hba = VirtualHba::new(name, transport, 1);
        let mut spec = DiskSpec { serial: "one".into(), ..DiskSpec::default() };
        spec.shape.size = MIB as u64;
        hba.plug(0, spec, 1).unwrap();
        let (came, longest) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Way {
            hba,
            io_max_bytes,
            outcome: Mutex::default(),
            sizes: Mutex::default(),
            command_count: came,
            longest,
        })
    }

    fn set_outcome(&self, outcome: Option<Outcome>) {
        *self.outcome.lock().unwrap() = outcome;
        self.command_count.store(0, Relaxed);
    }

    /// Answers READ CAPACITY(16) with so many blocks of 512 bytes.
    fn report_capacity(&self, blocks: u64) {
        let capacity = wire::scsi::Capacity { blocks, block_len: 512, ..Default::default() };
        self.forges(&wire::scsi::read_capacity16(&capacity));
    }

    fn forges(&self, bytes: &[u8]) {
        self.hba.forge(0, READ_CAPACITY16, None, bytes);
    }
}

impl Sim for Way {
    fn facts(&self) -> SimFacts {
        SimFacts { io_max_bytes: self.io_max_bytes, ..self.hba.facts() }
    }

    fn attach(&self, unit: &Arc<Unit>) {
        self.hba.attach(unit);
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        let cdb = ccb.command.cdb();
        let op = cdb.first().copied().unwrap_or(0);
        if let (READ_CAPACITY16, Some(outcome)) = (op, *self.sizes.lock().unwrap()) {
            return Begun::Ended(outcome);
        }
        // TEST UNIT READY, READ, WRITE; ATA commands have no CDB.
        if matches!(op, 0x00 | 0x28 | 0x2a | 0x88 | 0x8a) && (!cdb.is_empty() || ccb.length > 512) {
            self.command_count.fetch_add(1, Relaxed);
            self.longest.fetch_max(ccb.length, Relaxed);
            if let Some(outcome) = *self.outcome.lock().unwrap() {
                return Begun::Ended(outcome);
            }
        }
        self.hba.action(unit, id, ccb, data, core)
    }

    fn finish(&self, unit: &Unit, id: CcbId, data: &Segs, core: &Core) -> Begun {
        self.hba.finish(unit, id, data, core)
    }

    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        self.hba.abort(unit, id, core);
    }

    fn reset(&self, unit: &Unit, core: &Core) {
        self.hba.reset(unit, core);
    }
}

/// Blocks of page B0h with a MAXIMUM TRANSFER LENGTH.
fn block_limits(transfer_max: u32) -> Vec<u8> {
    let mut page = vec![0; 64];
    (page[1], page[3]) = (0xb0, 60);
    page[8..12].copy_from_slice(&transfer_max.to_be_bytes());
    page
}

#[test]
fn requests_are_split_at_the_limits_of_the_disk_and_its_bus() {
    for (transport, sim_max, disk_max, want) in [
        (Transport::Sas, 1 << 20, 16, 16 * 512),
        (Transport::Sas, 1 << 20, 0, 1 << 20),
        (Transport::Sas, 8 << 10, 0, 8 << 10),
        (Transport::Sas, 8 << 10, 3, 3 * 512),
        // No whole number of blocks.
        (Transport::Sas, 5000, 0, 9 * 512),
        (Transport::Sata, 8 << 10, 0, 8 << 10),
        (Transport::Sata, 5000, 0, 9 * 512),
    ] {
        let way = Way::new("mps0", transport, sim_max);
        if disk_max > 0 {
            way.hba.forge(0, 0x12, Some(0xb0), &block_limits(disk_max));
        }
        let mut w = World::with(1, &[way.clone() as Arc<dyn Sim>]);
        let name = w.scan(0).remove(0);
        let edge = w.open(&name).1;
        way.longest.store(0, Relaxed);
        let bytes: Vec<u8> = (0..MIB).map(|i| (i / 512) as u8 ^ i as u8).collect();
        w.write(edge, 0, &bytes, Flags::NONE).unwrap();
        assert_eq!(w.read(edge, 0, MIB).unwrap(), bytes, "{transport:?} {sim_max} {disk_max}");
        let longest = way.longest.load(Relaxed);
        assert_eq!(longest, want, "{transport:?} {sim_max} {disk_max}");
    }
}

/// Two paths to apparently one disk; commands that arrive on each are recorded separately.
fn two_ways(params: Value) -> (World, [Arc<Way>; 2], Edge) {
    let ways = ["near0", "far0"].map(|name| Way::new(name, Transport::Sas, 1 << 20));
    let mut w = World::with(1, &[ways[0].clone(), ways[1].clone()]);
    assert_eq!([w.scan(0), w.scan(1)].concat(), ["da0", "da1"]);
    let class = Arc::new(MultipathClass::default());
    w.control.topology.load(class.clone()).unwrap();
    class.verb(&mut w.control, "create", "m", &json!({ "members": ["da0", "da1"] })).unwrap();
    if !params.is_null() {
        class.verb(&mut w.control, "configure", "m", &params).unwrap();
    }
    w.turn(100_000_000);
    let edge = w.open("multipath/m").1;
    (w, ways, edge)
}

fn size(w: &World, name: &str) -> u64 {
    let found = w.control.topology.find(name).expect("it is there");
    w.control.topology.limits(found).expect("it is live").media_bytes
}

#[test]
fn requests_avoid_a_path_in_transition() {
    let busy = Outcome::scsi(Status::Busy);
    let not_ready = |ascq| Outcome::check(Sense::new(Asc::new(Key::NotReady, 0x04, ascq)));
    let full = Outcome::scsi(Status::TaskSetFull);
    for outcome in [busy, full, not_ready(0x0a), not_ready(0x0b), not_ready(0x0c)] {
        let (mut w, [near, far], edge) = two_ways(Value::Null);
        w.write(edge, 0, &[1; 512], Flags::NONE).unwrap();
        assert_eq!(
            (near.command_count.load(Relaxed) > 0, far.outcome.lock().unwrap().is_some()),
            (true, false)
        );
        near.set_outcome(Some(outcome));
        far.set_outcome(None);
        let start = w.now();
        assert_eq!(w.write(edge, 512, &[2; 512], Flags::NONE), Ok(()), "{outcome:?}");
        assert!(w.now() - start < 50_000_000, "{outcome:?}: it waited {} ns", w.now() - start);
        assert_eq!(far.command_count.load(Relaxed), 1, "by the other way");
        // The next one does not even try.
        near.set_outcome(Some(outcome));
        assert_eq!(w.write(edge, 1024, &[3; 512], Flags::NONE), Ok(()));
        assert_eq!((near.command_count.load(Relaxed), far.command_count.load(Relaxed)), (0, 2));
        assert_eq!(words(&w), ["da0 TRANSITION", "da1 ACTIVE"], "{outcome:?}");
        // While it lasts; then it is as it was, without a hand.
        (0..20).for_each(|_| w.turn(1_000_000_000));
        assert_eq!(words(&w), ["da0 TRANSITION", "da1 ACTIVE"], "{outcome:?}");
        near.set_outcome(None);
        (0..90).for_each(|_| w.turn(1_000_000_000));
        assert_eq!(words(&w), ["da0 PASSIVE", "da1 ACTIVE"], "{outcome:?}");
    }
}

/// Paths of the multipath device, and how they are.
fn words(w: &World) -> Vec<String> {
    let view = w.control.topology.view(0);
    let all = view.iter().filter(|g| g.class == "multipath").flat_map(|g| &g.consumers);
    let state = |show: &[(&str, String)]| {
        show.iter().find(|(k, _)| *k == "State").map(|(_, v)| v.clone()).unwrap_or_default()
    };
    let line = |c: &geom::ConsumerView| {
        format!("{} {}", c.provider.as_deref().unwrap_or_default(), state(&c.show))
    };
    let mut words: Vec<String> = all.map(line).collect();
    words.sort();
    words
}

#[test]
fn a_request_moves_when_its_path_closes_while_becoming_ready() {
    let (mut w, [near, far], edge) = two_ways(Value::Null);
    let not_ready = |ascq| Outcome::check(Sense::new(Asc::new(Key::NotReady, 0x04, ascq)));
    near.set_outcome(Some(not_ready(0x01)));
    let data = w.buffer(512);
    w.start(edge, 1, |bio| world::range(bio, bio::Op::Write, 0, data));
    w.turn(3_000_000_000);
    assert!(w.ended().is_empty(), "it is waited for");
    near.set_outcome(Some(not_ready(0x0b)));
    far.set_outcome(None);
    w.turn(3_000_000_000);
    let ended = w.ended();
    assert_eq!(ended.iter().map(|e| e.status).collect::<Vec<_>>(), [Ok(())]);
    assert_eq!(far.command_count.load(Relaxed), 1);
}

#[test]
fn requests_wait_when_all_paths_are_in_transition() {
    for queue in [false, true] {
        let params = if queue { json!({ "queue": 300, "checker": 1 }) } else { Value::Null };
        let (mut w, ways, edge) = two_ways(params);
        let busy = Outcome::scsi(Status::Busy);
        ways.iter().for_each(|way| way.set_outcome(Some(busy)));
        let data = w.buffer(512);
        w.start(edge, 1, |bio| world::range(bio, bio::Op::Write, 0, data));
        (0..30).for_each(|_| w.turn(1_000_000_000));
        ways.iter().for_each(|way| way.set_outcome(None));
        (0..30).for_each(|_| w.turn(1_000_000_000));
        let ended: Vec<_> = w.ended().iter().map(|e| e.status).collect();
        assert_eq!(ended, [Ok(())], "queue: {queue}");
    }
}

#[test]
fn a_missing_or_malformed_capacity_keeps_the_known_one() {
    let way = Way::new("mps0", Transport::Sas, 1 << 20);
    let mut w = World::with(1, &[way.clone() as Arc<dyn Sim>]);
    assert_eq!(w.scan(0), ["da0"]);
    let edge = w.open("da0").1;
    for forged in [vec![0; 32], vec![0; 7], wire::scsi::no_lun_inquiry()] {
        way.forges(&forged);
        assert_eq!(w.scan(0), [""; 0]);
        w.turn(1_000_000_000);
        assert_eq!(size(&w, "da0"), MIB as u64, "{forged:?}");
        assert!(w.read(edge, 0, 512).is_ok());
        way.hba.clear_injected_faults(0);
    }
    // A failed READ CAPACITY does not hide a later change of the size.
    let failure = Sense::new(Asc::new(Key::HardwareError, 0x44, 0));
    *way.sizes.lock().unwrap() = Some(Outcome::check(failure));
    assert_eq!(w.scan(0), [""; 0]);
    *way.sizes.lock().unwrap() = None;
    way.hba.resize(0, 2 * MIB as u64);
    w.scan(0);
    w.turn(1_000_000_000);
    assert_eq!(size(&w, "da0"), 2 * MIB as u64);
    // A disk that was never known is not added with such a capacity.
    let other = Way::new("mps1", Transport::Sas, 1 << 20);
    other.forges(&[0; 32]);
    let n = w.add(other);
    assert_eq!(w.scan(n), [""; 0]);
}

#[test]
fn a_changed_block_length_makes_a_different_disk() {
    let way = Way::new("mps0", Transport::Sas, 1 << 20);
    let mut w = World::with(1, &[way.clone() as Arc<dyn Sim>]);
    assert_eq!(w.scan(0), ["da0"]);
    let edge = w.open("da0").1;
    w.write(edge, 512, &[7; 512], Flags::NONE).unwrap();
    let capacity = wire::scsi::Capacity { blocks: 256, block_len: 4096, ..Default::default() };
    way.forges(&wire::scsi::read_capacity16(&capacity));
    // For any trigger: a scan, or a unit attention.
    way.hba.resize(0, MIB as u64);
    drop(w.read(edge, 0, 512));
    (0..100).for_each(|_| w.turn(100_000_000));
    assert!(w.write(edge, 512, &[8; 512], Flags::NONE).is_err(), "its blocks are elsewhere now");
    let mut medium = [0; 512];
    way.hba.read_medium(0, 512, &mut medium).unwrap();
    assert_eq!(medium, [7; 512]);
}

#[test]
fn a_wrong_capacity_of_one_path_does_not_resize_the_multipath_device() {
    for shrunk in [512, 1024, 4096] {
        let (mut w, [near, far], edge) = two_ways(Value::Null);
        near.report_capacity(shrunk);
        near.hba.resize(0, MIB as u64);
        w.write(edge, 0, &[1; 512], Flags::NONE).unwrap();
        (0..20).for_each(|_| w.turn(100_000_000));
        assert_eq!(size(&w, "da0"), shrunk * 512, "its way believes it");
        assert_eq!(size(&w, "multipath/m"), MIB as u64);
        far.set_outcome(None);
        assert_eq!(w.write(edge, MIB as u64 - 512, &[2; 512], Flags::NONE), Ok(()));
        assert_eq!(far.command_count.load(Relaxed), 1, "by the way that is right");
        // Both report it: it is true.
        far.report_capacity(shrunk);
        far.hba.resize(0, shrunk * 512);
        w.write(edge, 0, &[1; 512], Flags::NONE).unwrap();
        (0..20).for_each(|_| w.turn(100_000_000));
        assert_eq!(size(&w, "multipath/m"), shrunk * 512);
    }
}
