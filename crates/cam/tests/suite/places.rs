//! Locations of disks: slot data of an enclosure reach the disks' providers, and their users are
//! notified of changes.

use std::sync::Arc;

use bio::Attr;
use cam::sims::hba::{DiskSpec, Faults, Role, Transport, VirtualHba};
use cam::{Event, PHYSPATH};
use geom::Class;
use serde_json::json;
use wire::scsi::{AdditionalElement, SesConfig, SesType};

use crate::world::World;

const RECEIVE: u8 = 0x1c;
const SHELF: u64 = 4;
const SAS: u64 = 0x5000_c500_0000_0100;

fn disk(n: u64) -> DiskSpec {
    let mut spec = DiskSpec { wwn: SAS + n, serial: format!("S{n}"), ..DiskSpec::default() };
    spec.shape.size = 1 << 20;
    spec
}

fn enclosure() -> DiskSpec {
    let wwn = 0x5003_0480_0000_003f;
    let mut spec = DiskSpec { role: Role::Enclosure(3), wwn, ..DiskSpec::default() };
    spec.shape.size = 4096;
    spec
}

/// Disks 0 and 1 in the first two of three slots, one in no slot, and the enclosure.
fn shelf() -> (World, Arc<VirtualHba>) {
    let hba = VirtualHba::new("mps0", Transport::Sas, 5);
    for bay in [0, 1, 3] {
        hba.plug(bay, disk(bay), bay).unwrap();
    }
    hba.plug(SHELF, enclosure(), SHELF).unwrap();
    let mut w = World::new(2, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["da0", "da1", "da2"]);
    (w, hba)
}

fn place(w: &World, name: &str) -> String {
    let provider = w.control.topology.find(name).expect("a disk");
    match w.control.topology.attr(provider, PHYSPATH) {
        Some(Attr::Text(place)) => place,
        other => panic!("{other:?}"),
    }
}

fn slot(n: u64) -> String {
    format!("id1,enc@n500304800000003f/type@0/slot@{n}/elmdesc@Slot_0{n}")
}

/// Page 0Ah by which disks are in these slots.
fn slot_page(slots: &[(u16, u64)]) -> Vec<u8> {
    let config = SesConfig {
        generation: 1,
        types: vec![SesType { kind: 0x17, count: 3, text: String::new() }],
        ..SesConfig::default()
    };
    let place =
        |(element, n): &(u16, u64)| AdditionalElement { element: *element, slot: 0, sas: SAS + n };
    config.encode_additional_elements(&slots.iter().map(place).collect::<Vec<_>>(), 9)
}

#[test]
fn the_physical_path_of_a_disk_names_its_slot() {
    let (mut w, _) = shelf();
    assert_eq!(place(&w, "da0"), slot(1));
    assert_eq!(place(&w, "da1"), slot(2));
    // In no slot: where its bus leads to it.
    let elsewhere = place(&w, "da2");
    assert!(elsewhere.starts_with("mps0@"), "{elsewhere}");
    let shown = w.control.topology.view(0);
    let of = |name: &str| {
        let geom = shown.iter().find(|g| g.name == name).unwrap();
        geom.show.iter().find(|(key, _)| *key == "physpath").map(|(_, at)| at.clone())
    };
    assert_eq!((of("da1"), of("da2")), (Some(slot(2)), None));
    let cam = w.cam.clone();
    let list = cam.verb(&mut w.control, "devlist", "", &json!({ "verbose": true })).unwrap();
    assert_eq!(list["buses"][0]["devices"][1]["physpath"], slot(2));
}

#[test]
fn a_moved_disk_has_the_physical_path_of_its_new_slot() {
    let (mut w, hba) = shelf();
    hba.set_present(1, false);
    hba.plug(2, disk(1), 1).unwrap();
    assert_eq!(w.scan(0).len(), 1, "what was found at the other bay");
    w.turn(1_000_000);
    let name = w.buses[0].devices().iter().find(|(u, ..)| u.path().target == 2).unwrap().2.clone();
    assert_eq!(place(&w, &name), slot(3));
    assert_eq!(place(&w, "da0"), slot(1));
}

/// W2 of bus/places.rs.
#[test]
fn consumers_of_a_disk_are_notified_when_it_moves() {
    let (mut w, hba) = shelf();
    let _used = ["da0", "da1", "da2"].map(|name| w.open(name));
    let moved = |w: &World| {
        let advinfo = |(_, e): &(cam::Path, Event)| *e == Event::AdvInfoChanged;
        w.buses[0].events().into_iter().filter(|e| advinfo(e)).count()
    };
    let before = moved(&w);
    w.scan(0);
    w.turn(1_000_000);
    assert_eq!((w.changed_attrs().len(), moved(&w)), (0, before), "W2: nothing moved");
    // The HBA knows targets by their names: the disk of slot 2 was put into slot 3.
    hba.forge(SHELF, RECEIVE, Some(10), &slot_page(&[(0, 0), (2, 1)]));
    w.scan(0);
    w.turn(1_000_000);
    assert_eq!((place(&w, "da0"), place(&w, "da1")), (slot(1), slot(3)));
    assert_eq!((w.changed_attrs(), moved(&w)), (vec![PHYSPATH.to_owned()], before + 1));
}

/// W1 of bus/places.rs.
#[test]
fn an_unreadable_enclosure_leaves_known_slots_unchanged() {
    let (mut w, hba) = shelf();
    hba.forge(SHELF, RECEIVE, Some(10), &[10, 0, 0, 6, 0, 0, 0, 1, 0x16, 255]);
    w.scan(0);
    assert_eq!((place(&w, "da0"), place(&w, "da1")), (slot(1), slot(2)), "W1");
    // One that hangs neither: scans end, and disks are used.
    hba.set_faults(SHELF, Faults { hangs: 100, ..Faults::default() });
    w.scan(0);
    let edge = w.open("da0").1;
    assert!(w.read(edge, 0, 512).is_ok());
}

/// W1 of bus/places.rs.
#[test]
fn a_disk_has_no_slot_while_its_enclosure_is_missing() {
    let (mut w, hba) = shelf();
    let _used = w.open("da1");
    hba.set_present(SHELF, false);
    w.scan(0);
    w.turn(1_000_000);
    assert!(place(&w, "da1").starts_with("mps0@"), "W1");
    assert_eq!(w.changed_attrs(), [PHYSPATH]);
    hba.set_present(SHELF, true);
    w.scan(0);
    w.turn(1_000_000);
    assert_eq!((place(&w, "da1"), w.changed_attrs().len()), (slot(2), 1));
}

#[test]
fn element_names_become_parts_of_physical_paths() {
    let hba = VirtualHba::new("mps0", Transport::Sas, 5);
    hba.plug(0, disk(0), 0).unwrap();
    hba.plug(SHELF, enclosure(), SHELF).unwrap();
    let config = SesConfig {
        generation: 1,
        types: vec![
            SesType { kind: 0x17, count: 3, text: "A".into() },
            SesType { kind: 0x04, count: 1, text: "T".into() },
        ],
        ..SesConfig::default()
    };
    let names = ["Bay 1/left \u{7f}", "", "", ""].map(String::from);
    hba.forge(SHELF, RECEIVE, Some(7), &config.encode_names(&names));
    let mut w = World::new(2, std::slice::from_ref(&hba));
    w.scan(0);
    let answer = place(&w, "da0");
    let end = answer.split("/slot@1").nth(1).unwrap_or(&answer);
    assert!(end.starts_with("/elmdesc@Bay_1_left"), "{answer}");
    assert_eq!(end.matches('/').count(), 1, "{answer}");
}
