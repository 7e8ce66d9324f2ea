//! Enclosures, an expander and a port multiplier that hold disks: reported data, locate requests,
//! and malformed answers.

use std::sync::Arc;

use cam::sims::hba::{DiskSpec, Faults, Role, Transport, VirtualHba};
use serde_json::{Value, json};
use wire::scsi::{SesConfig, SesStatus, SesType};

use crate::world::World;

fn verb(w: &mut World, verb: &str, on: &str, params: Value) -> Result<Value, geom::Error> {
    w.verb(verb, on, &params)
}

fn text(w: &mut World, name: &str, on: &str) -> String {
    verb(w, name, on, json!({})).unwrap()["text"].as_str().unwrap().to_string()
}

fn refused(w: &mut World, name: &str, on: &str, params: Value) -> String {
    verb(w, name, on, params).unwrap_err().message
}

/// The two buses of the listing "unified diversity".
fn diversity() -> World {
    let mut w = World::new(1, &[]);
    let sas = json!({
        "transport": "sas", "disks": 4, "size": 1 << 20, "vendor": "ATA",
        "model": "INTEL SSDSC2CW12", "revision": "400i", "enclosure": 21,
    });
    let sata = json!({
        "transport": "sata", "disks": 4, "size": 1 << 20, "model": "INTEL SSDSC2CW120A3",
        "revision": "400i", "enclosure": 5, "multiplier": true,
    });
    for (name, params) in [("mps0", sas), ("ahcich0", sata)] {
        let request = json!({ "kind": "virtual", "params": params });
        verb(&mut w, "attach", name, request).unwrap();
    }
    w
}

#[test]
fn devlist_of_the_example_system_matches_the_reference() {
    let mut w = diversity();
    let list = verb(&mut w, "devlist", "", json!({ "verbose": true })).unwrap();
    let want = include_str!("../../../../examples/unified-diversity.txt");
    assert_eq!(list["text"], want);
    assert_eq!(list["buses"][1]["devices"][5]["periphs"], json!(["pass10", "pmp0"]));
    // The listing of the seed has `target 0 lun -1` in the line of the first bus, because a scan of
    // that target was in progress. At rest a bus has the wildcard that is above all targets.
    //
    // The next scan finds no changed device.
    assert_eq!(verb(&mut w, "rescan", "", json!({})).unwrap()["found"], json!([]));
    assert_eq!(verb(&mut w, "devlist", "", json!({ "verbose": true })).unwrap()["text"], want);
}

#[test]
fn enclosures_list_their_disks_and_locate_lights_one_element() {
    let mut w = diversity();
    let map = text(&mut w, "enclosure", "ses0");
    let begins = "\
ses0:
\tEnclosure Name: LSILOGIC SASX28 A.0 9
\tEnclosure ID: 500304800000003f
\tElement 0, Type: Array Device Slot
\t\tStatus: OK (0x01 0x00 0x00 0x00)
\t\tDescription: Slot 01
\t\tDevice Names: pass0,da0
\tElement 1, Type: Array Device Slot
";
    assert!(map.starts_with(begins), "{map}");
    assert!(map.contains("\tElement 4, Type: Temperature Sensors\n"), "{map}");
    let done = verb(&mut w, "locate", "da2", json!({})).unwrap();
    assert_eq!(done["message"], "da2: the light of element 2 of ses0 is on");
    let lit = |w: &mut World, shelf: &str| -> Vec<usize> {
        let answer = verb(w, "enclosure", shelf, json!({})).unwrap();
        let all = answer["elements"].as_array().unwrap().clone();
        (0..all.len()).filter(|n| all[*n]["locate"] == true).collect()
    };
    assert_eq!(lit(&mut w, "ses0"), [2], "E2: and no other");
    verb(&mut w, "locate", "pass1", json!({ "state": "on" })).unwrap();
    assert_eq!(lit(&mut w, "ses0"), [1, 2]);
    verb(&mut w, "locate", "da2", json!({ "state": "off" })).unwrap();
    assert_eq!(lit(&mut w, "ses0"), [1]);
    // The mapping of slots to disks is unknown behind a bridge, so slots are chosen by number.
    let what = refused(&mut w, "locate", "ada1", json!({}));
    assert!(what.contains("ses1 does not list the disk") && what.contains("-e"), "{what}");
    assert!(refused(&mut w, "locate", "ses1", json!({})).contains("one of 0, 1, 2, 3"));
    assert!(refused(&mut w, "locate", "ses1", json!({ "element": 4 })).contains("one of"));
    verb(&mut w, "locate", "ses1", json!({ "element": 3 })).unwrap();
    assert_eq!(lit(&mut w, "ses1"), [3]);
    assert!(refused(&mut w, "enclosure", "da0", json!({})).contains("no enclosure"));
}

#[test]
fn phys_are_listed_as_by_camcontrol() {
    let mut w = diversity();
    let list = text(&mut w, "smpphylist", "ses0");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[..2], ["6 PHYs:", "PHY  Attached SAS Address"]);
    assert!(lines[2].starts_with("  0  0x5") && lines[2].ends_with("(pass0,da0)"), "{list}");
    assert!(
        lines[7].contains("0x500304800000003f   <LSILOGIC SASX28 A.0 9> (pass4,ses0)"),
        "{list}"
    );
    assert_eq!(text(&mut w, "smpphylist", "da3"), list, "its expander is the same");
    let known = verb(&mut w, "smpphylist", "ses0", json!({ "quiet": true })).unwrap();
    let known = known["text"].as_str().unwrap();
    assert!(known.lines().skip(2).all(|line| line.ends_with(')')), "{known}");
    assert_eq!(known.lines().count(), lines.len() - 1);
    assert!(refused(&mut w, "smpphylist", "ada0", json!({})).contains("not behind a SAS expander"));
}

fn shelf() -> (World, Arc<VirtualHba>) {
    let hba = VirtualHba::new("mps0", Transport::Sas, 3);
    for bay in 0..2 {
        let mut spec = DiskSpec { wwn: 0x5000_c500 + bay, ..DiskSpec::default() };
        (spec.shape.size, spec.serial) = (1 << 20, format!("S{bay}"));
        hba.plug(bay, spec, bay).unwrap();
    }
    let mut spec = DiskSpec { role: Role::Enclosure(2), wwn: 0x99, ..DiskSpec::default() };
    spec.shape.size = 4096;
    hba.plug(2, spec, 2).unwrap();
    let mut w = World::new(2, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["da0", "da1"]);
    (w, hba)
}

#[test]
fn a_slot_whose_disk_was_pulled_is_empty() {
    let (mut w, hba) = shelf();
    hba.set_present(1, false);
    let map = text(&mut w, "enclosure", "ses0");
    let second = map.split("Element 1").nth(1).unwrap();
    assert!(second.contains("Status: Not Installed"), "{map}");
    assert!(!map.contains("da1") && map.contains("da0"), "{map}");
    assert!(text(&mut w, "smpphylist", "ses0").contains("  1  0x0000000000000000\n"));
}

/// E1 of periph/ses.rs.
#[test]
fn malformed_enclosure_pages_are_reported() {
    const RECEIVE: u8 = 0x1c;
    for (page, bytes, word) in [
        (1, vec![], "SECONDARY ENCLOSURES"),
        (1, vec![1, 200, 0, 4, 0, 0, 0, 1], "enclosure descriptor"),
        (1, vec![9, 0, 0, 4, 0, 0, 0, 1], "PAGE CODE"),
        (2, vec![2, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0], "status element"),
        (7, vec![7, 0, 0, 8, 0, 0, 0, 1, 0, 0, 255, 255], "DESCRIPTOR"),
        (10, vec![10, 0, 0, 6, 0, 0, 0, 1, 0x16, 255], "descriptor"),
    ] {
        let (mut w, hba) = shelf();
        hba.forge(2, RECEIVE, Some(page), &bytes);
        let what = refused(&mut w, "enclosure", "ses0", json!({}));
        assert!(what.contains(word) && what.contains("ses0"), "page {page}: {what}");
        let what = refused(&mut w, "locate", "da0", json!({}));
        assert!(what.contains(word), "page {page}: {what}");
        let edge = w.open("da0").1;
        assert!(w.read(edge, 0, 512).is_ok(), "disks are not touched");
    }
    // Elements that appear and disappear all the time.
    let (mut w, hba) = shelf();
    let other = SesConfig {
        generation: 77,
        types: vec![SesType { kind: 0x17, count: 2, text: String::new() }],
        ..SesConfig::default()
    };
    hba.forge(2, RECEIVE, Some(2), &other.encode_status(&[SesStatus([1, 0, 0, 0]); 2]));
    assert!(refused(&mut w, "enclosure", "ses0", json!({})).contains("keeps changing"), "E1");
    // A light that does not turn on.
    let (mut w, hba) = shelf();
    hba.forge(2, 0x1d, None, &[]);
    let what = refused(&mut w, "locate", "da0", json!({}));
    assert!(what.contains("did not change"), "{what}");
    // One that hangs is waited for, and no longer.
    let (mut w, hba) = shelf();
    hba.set_faults(2, Faults { hangs: 100, ..Faults::default() });
    assert!(refused(&mut w, "enclosure", "ses0", json!({})).contains("ses0"));
}

#[test]
fn malformed_smp_responses_are_reported() {
    for (function, bytes, word) in [
        (0x00, vec![], "FRAME TYPE"),
        (0x00, vec![0x41, 0, 0, 6, 0], "EXPANDER CHANGE COUNT"),
        (0x00, vec![0x41, 0, 1, 0], "function result 01"),
        (0x10, vec![0x41, 0x10, 0, 12, 0, 0], "DISCOVER"),
        (0x10, vec![0x41, 0x11, 0, 0], "FUNCTION"),
    ] {
        let (mut w, hba) = shelf();
        hba.forge(0, function, Some(0x41), &bytes);
        let what = refused(&mut w, "smpphylist", "da0", json!({}));
        assert!(what.contains(word), "{what}");
    }
    // 255 phys, all of them vacant.
    let (mut w, hba) = shelf();
    hba.forge(0, 0x10, Some(0x41), &[0x41, 0x10, 0x16, 0]);
    let general = [&[0x41, 0, 0, 6, 0, 0, 0, 0, 0, 255, 0, 0][..], &[0; 16]].concat();
    hba.forge(0, 0, Some(0x41), &general);
    assert_eq!(text(&mut w, "smpphylist", "da0"), "255 PHYs:\nPHY  Attached SAS Address\n");
}
