//! A SATA port multiplier. Its ports are switched on before their disks are probed, it reports
//! disks that arrive and leave behind them, and one port can be reset alone.

use std::sync::Arc;

use bio::{Errno, Flags, Op};
use cam::sims::hba::{DiskSpec, Faults, Role, Transport, VirtualHba};
use cam::{Event, Path};
use serde_json::json;
use wire::ata::{READ_PORT_MULTIPLIER, WRITE_PORT_MULTIPLIER, pscr};

use crate::world::{self, World};

/// Target of the multiplier.
const CONTROL: u64 = 15;
/// Time between two looks, and longest wait for an unsolicited change, ns.
const SOON: (u64, u64) = (10_000_000, 10_000_000_000);

fn disk(number: u64) -> DiskSpec {
    let mut spec =
        DiskSpec { serial: format!("S{number}"), wwn: number + 1, ..DiskSpec::default() };
    (spec.shape.size, spec.shape.volatile_cache) = (1 << 20, true);
    spec
}

/// Four ports, and disks behind the first three.
fn stage() -> (World, Arc<VirtualHba>) {
    let hba = VirtualHba::new("ahcich0", Transport::Sata, 16);
    for bay in 0..3 {
        hba.plug(bay, disk(bay), bay).unwrap();
    }
    let mut spec = DiskSpec { role: Role::Multiplier(4), ..DiskSpec::default() };
    spec.shape.size = 4096;
    hba.plug(CONTROL, spec, CONTROL).unwrap();
    let mut w = World::new(1, std::slice::from_ref(&hba));
    assert_eq!(w.scan(0), ["ada0", "ada1", "ada2"], "C4: it switches its ports on first");
    (w, hba)
}

/// The ports that it reported last.
fn ports(w: &mut World) -> Vec<String> {
    let answer = w.verb("inquiry", "pmp0", &json!({})).unwrap();
    let all = answer["ports"].as_array().unwrap();
    all.iter().map(|port| port["is"].as_str().unwrap().to_owned()).collect()
}

/// Reads a register of a port, as camcontrol would.
fn register(w: &mut World, port: u8, which: u16) -> String {
    let ata = format!("{READ_PORT_MULTIPLIER:x} {which:x} 0 0 0 {port:x} 0 0 0 0 0 0");
    let answer = w.verb("cmd", "pmp0", &json!({ "ata": ata }));
    answer.map_or_else(|e| e.message, |answer| answer.to_string())
}

#[test]
fn a_multiplier_is_listed_with_its_ports() {
    let (mut w, _hba) = stage();
    let text = w.verb("inquiry", "pmp0", &json!({})).unwrap()["text"].as_str().unwrap().to_owned();
    let want = "\
pmp0: <Port Multiplier 37261095 1706> Port Multiplier SATA device
pmp0: 300.000MB/s transfers
pmp0: 4 fan-out ports
pmp0: port 0: 3.0 Gb/s
pmp0: port 1: 3.0 Gb/s
pmp0: port 2: 3.0 Gb/s
pmp0: port 3: empty
";
    assert_eq!(text, want);
    assert!(register(&mut w, 4, pscr::STATUS).contains("ATA status"), "there is no port 4");
    let list = w.verb("devlist", "", &json!({ "verbose": true })).unwrap();
    let line = "<Port Multiplier 37261095 1706>    at scbus0 target 15 lun 0 (pass3,pmp0)";
    assert!(list["text"].as_str().unwrap().contains(line), "{list}");
}

#[test]
fn disk_changes_reported_by_a_multiplier_are_applied() {
    let (mut w, hba) = stage();
    hba.set_present(1, false);
    hba.link_changed(1);
    w.until(SOON, "ada1 goes", |w| !w.has("ada1"));
    assert!(w.buses[0].events().contains(&(Path::new(0, 1, 0), Event::LostDevice)));
    assert_eq!(ports(&mut w)[1], "empty");
    hba.plug(3, disk(3), 3).unwrap();
    hba.link_changed(3);
    hba.set_present(1, true);
    hba.link_changed(1);
    w.until(SOON, "both come", |w| w.has("ada1") && w.has("ada3"));
    assert_eq!(ports(&mut w), ["3.0 Gb/s"; 4]);
    // Another disk in the place of one, between two looks.
    hba.plug(0, disk(9), 9).unwrap();
    hba.link_changed(0);
    let is_new = |w: &World| {
        w.buses[0].devices()[0].1.label().contains("virtual")
            && w.buses[0].events().contains(&(Path::new(0, 0, 0), Event::LostDevice))
    };
    w.until(SOON, "the new one is found", is_new);
    let edge = w.open("ada2").1;
    assert!(w.read(edge, 0, 512).is_ok(), "the others are not touched");
    let lost = |path: Path| w.buses[0].events().contains(&(path, Event::LostDevice));
    assert!(!lost(Path::new(0, CONTROL, 0)), "nor is the multiplier another one");
}

/// C4 of bus/scan.rs.
#[test]
fn disk_changes_that_are_not_reported_are_found_by_a_scan() {
    let (mut w, hba) = stage();
    hba.set_faults(CONTROL, Faults { quiet: 100, ..Faults::default() });
    hba.set_present(2, false);
    hba.link_changed(2);
    w.turn(SOON.1);
    assert!(w.has("ada2") && ports(&mut w)[2] == "3.0 Gb/s", "no event has reported it");
    w.scan(0);
    w.until(SOON, "ada2 goes", |w| !w.has("ada2"));
    assert_eq!(ports(&mut w)[2], "empty");
}

#[test]
fn a_flush_fails_after_a_loss_of_power_seen_only_by_the_port() {
    let (mut w, hba) = stage();
    let edge = w.open("ada0").1;
    assert_eq!(w.write(edge, 0, &[7; 512], Flags::NONE), Ok(()));
    hba.power_cut(0);
    let mut back = [0; 512];
    hba.read_medium(0, 0, &mut back).unwrap();
    assert_eq!(
        w.plain(edge, Op::Flush, 0, 0),
        Err(Errno::Io),
        "what was in the cache is gone: {:?}",
        &back[..1]
    );
    assert_eq!(w.write(edge, 0, &[8; 512], Flags::NONE), Ok(()));
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
    assert!(w.has("ada0"), "it was not lost");
}

#[test]
fn a_port_reset_affects_only_its_port_and_loses_no_request() {
    let (mut w, hba) = stage();
    let (one, other) = (w.open("ada1").1, w.open("ada2").1);
    assert_eq!(w.write(one, 512, &[5; 512], Flags::NONE), Ok(()));
    hba.set_faults(1, Faults { hangs: 100, ..Faults::default() });
    hba.set_faults(2, Faults { hangs: 100, ..Faults::default() });
    for (tag, edge) in [(1, one), (2, other)] {
        let data = w.buffer(512);
        w.start(edge, tag, |bio| world::range(bio, Op::Read, 512, data));
    }
    w.turn(1_000_000);
    hba.set_faults(1, Faults::default());
    let answer = w.verb("reset", "pmp0", &json!({ "port": 1 })).unwrap();
    assert_eq!(answer["message"], "port 1 of pmp0 was reset");
    w.turn(5_000_000_000);
    let ended = w.ended();
    assert!(ended.len() == 1 && ended[0].tag == 1, "the other port was not touched");
    assert_eq!((ended[0].status, &ended[0].bytes), (Ok(()), &vec![5; 512]));
    assert_eq!(w.plain(one, Op::Flush, 0, 0), Ok(()), "a reset takes nobody's power");
    for (on, port, word) in [("pmp0", 4, "4 ports"), ("ada0", 0, "not a port multiplier")] {
        let e = w.verb("reset", on, &json!({ "port": port })).unwrap_err();
        assert!(e.message.contains(word), "{on}: {e}");
    }
    assert_eq!(
        w.verb("reset", "pmp0", &json!({ "port": 3 })).unwrap()["message"],
        "port 3 of pmp0 was reset; it is empty"
    );
}

#[test]
fn a_link_that_stays_down_is_reported_and_can_be_reset_again() {
    let (mut w, hba) = stage();
    hba.set_faults(1, Faults { dark: 100, ..Faults::default() });
    let e = w.verb("reset", "pmp0", &json!({ "port": 1 })).unwrap_err();
    assert!(e.kind == Errno::Io && e.message.contains("-p 1"), "{e}");
    w.scan(0);
    w.until(SOON, "ada1 goes", |w| !w.has("ada1"));
    assert_eq!(ports(&mut w)[1], "no link to its device");
    hba.set_faults(1, Faults::default());
    w.verb("reset", "pmp0", &json!({ "port": 1 })).unwrap();
    w.scan(0);
    assert_eq!(ports(&mut w)[1], "3.0 Gb/s");
    assert!(w.buses[0].unit(Path::new(0, 1, 0)).is_some(), "it is found again");
}

#[test]
fn all_disks_are_lost_with_the_multiplier_and_found_again_with_it() {
    let (mut w, hba) = stage();
    hba.set_present(CONTROL, false);
    hba.link_changed(CONTROL);
    w.until(SOON, "the disks go", |w| (0..3).all(|n| !w.has(&format!("ada{n}"))));
    assert!(w.buses[0].devices().is_empty());
    hba.set_present(CONTROL, true);
    hba.link_changed(CONTROL);
    w.until(SOON, "the disks come", |w| (0..3).all(|n| w.has(&format!("ada{n}"))));
}

#[test]
fn a_faulty_or_hanging_multiplier_does_not_affect_its_disks() {
    // SError of a port reads as 0 and writes to it have no effect; then all registers read as 0.
    for (command, register) in [
        (READ_PORT_MULTIPLIER, Some(pscr::ERROR as u8)),
        (WRITE_PORT_MULTIPLIER, None),
        (READ_PORT_MULTIPLIER, None),
    ] {
        let (mut w, hba) = stage();
        hba.forge(CONTROL, command, register, &[]);
        w.scan(0);
        assert!(w.buses[0].unit(Path::new(0, CONTROL, 0)).is_some(), "{command:x}");
        assert_eq!(w.buses[0].devices().len(), 4, "{command:x}: its disks are asked themselves");
    }
    // One that hangs is waited for, and its disks continue.
    let (mut w, hba) = stage();
    hba.set_faults(CONTROL, Faults { hangs: 100, ..Faults::default() });
    w.scan(0);
    let edge = w.open("ada0").1;
    assert!(w.read(edge, 0, 512).is_ok());
}
