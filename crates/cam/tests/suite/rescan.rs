//! Scans of buses: many targets at a time, an end in any case, and scans without a request after a
//! change.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bio::{Errno, Segs};
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use cam::{Begun, CamStatus, Ccb, CcbId, Names, Outcome, Path, Sim, SimFacts, Unit};
use geom::Core;
use serde_json::json;
use wire::ata::Identify;
use wire::scsi::{
    Capacity, Command, Identity, Lun, Sense, asc, inquiry_data, no_lun_inquiry, read_capacity10,
    read_capacity16, report_luns,
};

use crate::world::{World, small_disks};

fn hba(disks: u64) -> Arc<VirtualHba> {
    small_disks("mps0", Transport::Sas, disks)
}

fn hang(hba: &VirtualHba, bays: std::ops::Range<u64>) {
    bays.for_each(|bay| hba.set_faults(bay, Faults { hangs: 100, ..Faults::default() }));
}

/// Where a disk is.
fn place(w: &World, name: &str) -> Option<Path> {
    let devices = w.buses[0].devices();
    devices.iter().find(|(.., n)| n == name).map(|(unit, ..)| unit.path())
}

/// Lets the daemon take in what buses find, as it does, until there is that disk.
fn wait_for(w: &mut World, name: &str) {
    w.until((100_000_000, 300_000_000_000), name, |w| w.has(name));
}

/// C8 of bus/scan.rs.
#[test]
fn only_a_disk_that_gets_another_name_is_removed_and_added() {
    let mut w = World::new(1, &[hba(2)]);
    assert_eq!(w.scan(0), ["da0", "da1"]);
    let (_, other) = w.open("da1");
    let bus = w.buses[0].clone();
    let name = |names: &[(&str, &str)]| {
        let names = names.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned()));
        bus.set_names(Names { by_name: names.collect() });
    };
    name(&[("root", "0:0"), ("da1", "S1")]);
    wait_for(&mut w, "root");
    assert!(!w.has("da0"));
    name(&[("boot", "S0")]);
    wait_for(&mut w, "boot");
    assert!(!w.has("root"));
    name(&[]);
    w.scan(0);
    assert!(w.has("boot"), "it is not named any more, and keeps its name");
    assert_eq!(w.read(other, 0, 512), Ok(vec![0; 512]), "the other disk stays in use");
    assert_eq!(place(&w, "da1").map(|path| path.target), Some(1));
}

#[test]
fn hanging_targets_are_awaited_in_parallel() {
    let hba = hba(32);
    hang(&hba, 0..30);
    let mut w = World::new(1, std::slice::from_ref(&hba));
    let start = w.now();
    assert_eq!(w.scan(0), ["da0", "da1"]);
    let took = (w.now() - start) / 1_000_000_000;
    assert!((20..30).contains(&took), "{took} s of the simulated clock; one by one it takes 600");
    assert!(w.buses[0].silent().is_empty());
}

/// C2 of bus/scan.rs.
#[test]
fn a_scan_ends_and_targets_without_an_answer_are_probed_later() {
    let hba = hba(101);
    hang(&hba, 1..100);
    let mut w = World::new(2, std::slice::from_ref(&hba));
    let start = w.now();
    assert_eq!(w.scan(0), ["da0"]);
    let took = (w.now() - start) / 1_000_000_000;
    assert!((40..45).contains(&took), "{took} s: C2");
    assert!(w.buses[0].silent().contains(&100));
    wait_for(&mut w, "da1");
    assert_eq!(place(&w, "da1"), Some(Path::new(0, 100, 0)));
    // One that is in the graph, and is not reached in time, is not taken for lost.
    let edge = w.open("da1").1;
    assert_eq!(w.scan(0), [""; 0]);
    assert!(w.buses[0].silent().contains(&100));
    assert!(w.read(edge, 0, 512).is_ok(), "C2");
}

#[test]
fn a_scan_of_one_address_probes_no_other_target() {
    let hba = hba(3);
    (1..3).for_each(|bay| hba.set_present(bay, false));
    let mut w = World::new(5, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["da0"]);
    (1..3).for_each(|bay| hba.set_present(bay, true));
    hang(&hba, 0..1);
    let start = w.now();
    let done = w.verb("rescan", "", &json!({ "buses": ["0:2:0"] })).unwrap();
    assert_eq!(done["message"], "Re-scan of 0:2:0 was successful\nfound da1");
    assert!(w.now() - start < 1_000_000_000, "target 0 hangs, and nobody asked for it");
    assert_eq!(place(&w, "da1"), Some(Path::new(0, 2, 0)), "and target 1 was not looked at");
}

/// C3 of bus/scan.rs.
#[test]
fn names_do_not_depend_on_the_order_of_answers() {
    let hba = hba(3);
    hba.stop(0);
    let mut w = World::new(3, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["da0", "da1", "da2"]);
    assert_eq!(place(&w, "da0"), Some(Path::new(0, 0, 0)), "C3: it had to be started first");
}

#[test]
fn link_changes_attach_and_remove_disks_without_a_scan() {
    let hba = hba(2);
    hba.set_present(1, false);
    let mut w = World::new(4, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["da0"]);
    hba.set_present(1, true);
    hba.link_changed(1);
    wait_for(&mut w, "da1");
    hba.set_present(0, false);
    hba.link_changed(0);
    let end = w.now() + 10_000_000_000;
    while w.control.topology.find("da0").is_some() {
        assert!(w.now() < end, "da0 does not go");
        w.turn(100_000_000);
    }
    assert!(w.control.topology.find("da1").is_some(), "the other is not touched");
}

/// One target with some logical units.
struct Shelf {
    /// A bit each.
    luns: AtomicU32,
    /// REPORT LUNS fails.
    mute: AtomicBool,
    changed: AtomicBool,
    probed_luns: Mutex<Vec<u64>>,
}

impl Shelf {
    fn answer(&self, lun: u64, cdb: &[u8]) -> Result<Vec<u8>, Sense> {
        let luns = self.luns.load(Ordering::Relaxed);
        let identity = Identity { serial: format!("L{lun}"), ..Identity::default() };
        let capacity = Capacity { blocks: 2048, block_len: 512, ..Capacity::default() };
        match Command::parse(cdb).map_err(|e| e.sense())? {
            Command::Inquiry { page: None, .. } if luns >> lun & 1 == 0 => Ok(no_lun_inquiry()),
            Command::Inquiry { page: None, .. } => {
                self.probed_luns.lock().unwrap().push(lun);
                Ok(inquiry_data(&identity))
            }
            Command::ReportLuns { .. } if self.mute.load(Ordering::Relaxed) => {
                Err(Sense::new(asc::INTERNAL_FAILURE))
            }
            Command::ReportLuns { .. } => {
                let there = (0..32).filter(|n| luns >> n & 1 == 1);
                let list: Vec<u8> =
                    there.flat_map(|n| report_luns(Lun::new(n)).split_off(8)).collect();
                let len = (list.len() as u32).to_be_bytes();
                Ok([&len[..], &[0; 4], &list].concat())
            }
            _ if self.changed.swap(false, Ordering::Relaxed) => Err(Sense::new(asc::LUNS_CHANGED)),
            Command::ReadCapacity10 => Ok(read_capacity10(&capacity).to_vec()),
            Command::ReadCapacity16 { .. } => Ok(read_capacity16(&capacity).to_vec()),
            Command::TestUnitReady => Ok(Vec::new()),
            Command::Read(extent) => Ok(vec![lun as u8; extent.blocks as usize * 512]),
            _ => Err(Sense::new(asc::INVALID_OPCODE)),
        }
    }
}

impl Sim for Shelf {
    fn facts(&self) -> SimFacts {
        SimFacts {
            name: "shelf0".into(),
            targets: 1,
            io_max_bytes: 1 << 16,
            whole_max_bytes: 1 << 16,
            is_ata: false,
        }
    }

    fn attach(&self, _: &Arc<Unit>) {}

    fn action(&self, unit: &Unit, _: CcbId, ccb: &Ccb, data: &Segs, _: &Core) -> Begun {
        Begun::Ended(match self.answer(unit.path().lun, ccb.command.cdb()) {
            Ok(bytes) => Outcome::good(data.copy_from(0, &bytes) as u32),
            Err(sense) => Outcome::check(sense),
        })
    }

    fn finish(&self, _: &Unit, _: CcbId, _: &Segs, _: &Core) -> Begun {
        Begun::Ended(Outcome::of(CamStatus::HbaError))
    }

    fn abort(&self, _: &Unit, _: CcbId, _: &Core) {}

    fn reset(&self, _: &Unit, _: &Core) {}
}

fn shelf(luns: u32) -> Arc<Shelf> {
    Arc::new(Shelf {
        luns: AtomicU32::new(luns),
        mute: AtomicBool::new(false),
        changed: AtomicBool::new(false),
        probed_luns: Mutex::default(),
    })
}

#[test]
fn a_target_need_not_have_a_unit_0() {
    let shelf = shelf(0b1010);
    let mut w = World::with(6, &[shelf.clone() as Arc<dyn Sim>]);
    assert_eq!(w.scan(0), ["da0", "da1"]);
    assert_eq!(place(&w, "da0"), Some(Path::new(0, 0, 1)));
    let edge = w.open("da1").1;
    assert_eq!(w.read(edge, 0, 512), Ok(vec![3; 512]));
    // A missing list of LUNs removes no unit, whether the unit exists or not.
    for luns in [0b1010, 0b1011] {
        shelf.luns.store(luns, Ordering::Relaxed);
        shelf.mute.store(true, Ordering::Relaxed);
        w.scan(0);
        assert_eq!(w.read(edge, 0, 512), Ok(vec![3; 512]), "{luns:b}");
    }
    assert_eq!(place(&w, "da2"), Some(Path::new(0, 0, 0)));
    // A removed unit reports its removal itself.
    shelf.luns.store(0b0001, Ordering::Relaxed);
    w.scan(0);
    assert!(w.read(edge, 0, 512).is_err());
    assert_eq!((place(&w, "da0"), place(&w, "da2")), (None, Some(Path::new(0, 0, 0))));
}

#[test]
fn a_target_that_reports_changed_luns_is_scanned_again() {
    let shelf = shelf(0b1);
    let mut w = World::with(5, &[shelf.clone() as Arc<dyn Sim>]);
    assert_eq!(w.scan(0), ["da0"]);
    let edge = w.open("da0").1;
    shelf.luns.store(0b111, Ordering::Relaxed);
    assert!(w.read(edge, 0, 512).is_ok());
    w.turn(1_000_000_000);
    assert!(w.control.topology.find("da1").is_none(), "nobody has said anything");
    shelf.changed.store(true, Ordering::Relaxed);
    assert!(w.read(edge, 0, 512).is_ok(), "3F/0E costs the request nothing but a try");
    wait_for(&mut w, "da2");
    assert_eq!(place(&w, "da2"), Some(Path::new(0, 0, 2)));
    let third = w.open("da2").1;
    assert_eq!(w.read(third, 0, 512), Ok(vec![2; 512]));
    // Fewer of them: the disk is removed, its neighbours are not.
    shelf.luns.store(0b11, Ordering::Relaxed);
    shelf.changed.store(true, Ordering::Relaxed);
    assert!(w.read(edge, 0, 512).is_ok());
    let end = w.now() + 10_000_000_000;
    while w.control.topology.find("da2").is_some() {
        assert!(w.now() < end, "da2 does not go");
        w.turn(100_000_000);
    }
    assert!(w.read(third, 0, 512).is_err() && w.read(edge, 0, 512).is_ok());
}

/// IDENTIFY DEVICE data of the disk in bay 0, or nearly.
fn identify(f: impl FnOnce(&mut Identify)) -> Vec<u8> {
    let spec = DiskSpec::default();
    let mut data = Identify {
        model: spec.model,
        serial: "S0".into(),
        firmware: spec.revision,
        sectors: 2048,
        sector_bytes: 512,
        extended: true,
        flush_ext: true,
        wwn: spec.wwn,
        queue_depth: 32,
        ..Identify::default()
    };
    f(&mut data);
    data.encode().to_vec()
}

/// Two ATA disks.
fn two() -> (World, Arc<VirtualHba>) {
    let hba = small_disks("ahcich0", Transport::Sata, 2);
    let mut w = World::new(9, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["ada0", "ada1"]);
    (w, hba)
}

const IDENTIFY: u8 = 0xec;

/// C5 of bus/scan.rs.
#[test]
fn an_ata_disk_with_malformed_identify_data_stays_and_is_reported() {
    let (mut w, hba) = two();
    let edges = ["ada0", "ada1"].map(|name| w.open(name).1);
    w.write(edges[0], 0, &[7; 512], bio::Flags::NONE).unwrap();
    let mut spoiled = identify(|_| ());
    spoiled[20] ^= 1;
    for (forged, word) in [
        (identify(|_| ())[..300].to_vec(), "IDENTIFY DEVICE"),
        (Vec::new(), "IDENTIFY DEVICE"),
        (vec![0xff; 512], "general configuration"),
        (vec![0; 512], "no blocks"),
        (spoiled, "IDENTIFY DEVICE data"),
        (identify(|i| i.sectors = 0), "no blocks"),
        (identify(|i| i.sector_bytes = 514), "power of two"),
        (identify(|i| (i.model, i.serial) = Default::default()), "neither model nor serial"),
    ] {
        hba.forge(0, IDENTIFY, None, &forged);
        assert_eq!(w.scan(0), [""; 0], "{word}");
        w.turn(1_000_000_000);
        let troubles = w.buses[0].troubles();
        assert!(troubles.len() == 1 && troubles[0].why.contains(word), "{word}: {troubles:?}");
        assert!(troubles[0].why.contains("at scbus0 target 0 lun 0: "), "{troubles:?}");
        assert!(troubles[0].action.contains("`ashlar cam rescan 0`"), "{troubles:?}");
        assert_eq!(w.read(edges[0], 0, 512).unwrap(), [7; 512], "{word}");
        assert!(w.read(edges[1], 0, 512).is_ok());
        hba.clear_injected_faults(0);
        assert_eq!(w.scan(0), [""; 0]);
        assert_eq!(w.buses[0].troubles(), []);
    }
    // One that was never known is not added by such an answer.
    hba.forge(1, IDENTIFY, None, &[0; 512]);
    hba.set_present(0, false);
    w.scan(0);
    let names: Vec<String> = w.buses[0].devices().into_iter().map(|(.., name)| name).collect();
    assert_eq!(names, ["ada1"], "who is not there is gone, who talks nonsense is not");
}

#[test]
fn a_changed_ata_sector_count_resizes_but_a_sector_size_replaces() {
    let (mut w, hba) = two();
    let size = |w: &World| {
        let found = w.control.topology.find("ada0")?;
        w.control.topology.limits(found).map(|limits| limits.media_bytes)
    };
    let edge = w.open("ada0").1;
    w.write(edge, 512, &[7; 512], bio::Flags::NONE).unwrap();
    for sectors in [1024, 2048] {
        hba.forge(0, IDENTIFY, None, &identify(|i| i.sectors = sectors));
        assert_eq!(w.scan(0), [""; 0]);
        w.turn(10_000_000);
        assert_eq!(size(&w), Some(sectors * 512));
        assert_eq!(w.read(edge, 512, 512).unwrap(), [7; 512]);
    }
    let wide = |i: &mut Identify| (i.sectors, i.sector_bytes) = (256, 4096);
    hba.forge(0, IDENTIFY, None, &identify(wide));
    assert_eq!(w.scan(0).len(), 1);
    assert_eq!(w.write(edge, 512, &[8; 512], bio::Flags::NONE), Err(Errno::NxIo));
    let mut medium = [0; 512];
    hba.read_medium(0, 512, &mut medium).unwrap();
    assert_eq!(medium, [7; 512], "its sectors are elsewhere now");
    assert!(w.control.topology.find("ada1").is_some());
}
