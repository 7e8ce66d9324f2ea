//! Disc drives (`cd`): read-only discs that are loaded and ejected.

use bio::{Attr, Errno};
use cam::sims::hba::{DiskSpec, Role, Transport, VirtualHba};
use geom::{Access, Class, Geom};
use serde_json::json;

use crate::world::World;

fn drive() -> (World, std::sync::Arc<VirtualHba>) {
    let mut spec = DiskSpec { role: Role::Cdrom, ..DiskSpec::default() };
    (spec.shape.size, spec.shape.sector, spec.shape.discards) = (1 << 20, 2048, false);
    let hba = VirtualHba::new("mps0", Transport::Sas, 1);
    hba.plug(0, spec, 1).unwrap();
    (World::new(1, std::slice::from_ref(&hba)), hba)
}

/// A geom on the contents of a disc.
struct DiscUser;

impl Geom for DiscUser {
    fn spoils(&self) -> bool {
        true
    }
}

fn attach_user(w: &mut World) {
    let guest = w.control.call(|t| {
        let p = t.find("cd0").expect("the drive");
        let g = t.new_geom("user", "guest", "test", Box::new(DiscUser))?;
        t.attach_new(g, p).map_err(|e| geom::Error::of(e, "attach"))
    });
    guest.unwrap();
}

fn has_user(w: &World) -> bool {
    w.control.topology.find_geom("user", "guest").is_some()
}

fn settle(w: &mut World) {
    (0..50).for_each(|_| w.turn(10_000_000));
}

#[test]
fn a_disc_is_read_only() {
    let (mut w, _) = drive();
    assert_eq!(w.scan(0), ["cd0"]);
    let p = w.control.topology.find("cd0").unwrap();
    let limits = w.control.topology.limits(p).unwrap();
    assert_eq!((limits.media_bytes, limits.sector_bytes), (1 << 20, 2048));
    assert_eq!(w.control.topology.attr(p, "GEOM::candelete"), Some(Attr::Int(0)));
    assert_eq!(w.buses[0].devlist(false, 0).matches("(pass0,cd0)").count(), 1);
    let cam::Facts::Scsi(facts) = w.buses[0].devices()[0].1.clone() else { panic!("SCSI") };
    assert_eq!(facts.tracks, 1, "READ TOC");
    let edge = w.open_as("cd0", Access::READ).unwrap();
    assert_eq!(w.read(edge, 2048, 4096), Ok(vec![0; 4096]));
    assert_eq!(w.open_as("cd0", Access::WRITE).unwrap_err(), Errno::RoFs);
}

#[test]
fn exchanged_discs_are_detected() {
    let (mut w, hba) = drive();
    hba.change_medium(0, None);
    assert_eq!(w.scan(0), [""; 0], "a drive without a disc has no provider");
    assert!(w.buses[0].devlist(false, 0).contains("(pass0)"));
    hba.change_medium(0, Some(1 << 21));
    assert_eq!(w.scan(0), ["cd0"]);
    let edge = w.open_as("cd0", Access::READ).unwrap();
    assert!(w.read(edge, 0, 2048).is_ok());
    attach_user(&mut w);
    hba.change_medium(0, None);
    assert_eq!(w.read(edge, 0, 2048), Err(Errno::NxIo));
    settle(&mut w);
    assert!(!has_user(&w), "it is told");
    hba.change_medium(0, Some(1 << 20));
    let edge = w.open_as("cd0", Access::READ).unwrap();
    drop(w.read(edge, 0, 2048));
    settle(&mut w);
    assert!(w.read(edge, 0, 2048).is_ok());
    let p = w.control.topology.find("cd0").unwrap();
    assert_eq!(w.control.topology.limits(p).map(|l| l.media_bytes), Some(1 << 20));
    let cam = w.cam.clone();
    let toc = json!({ "cdb": "43 0 0 0 0 0 0 3 24 0", "receive": 804 });
    assert_eq!(cam.verb(&mut w.control, "cmd", "cd0", &toc).unwrap()["moved"], 20);
}

#[test]
fn an_exchanged_disc_spoils_the_consumers_of_the_old_one() {
    let (mut w, hba) = drive();
    w.scan(0);
    let edge = w.open_as("cd0", Access::READ).unwrap();
    attach_user(&mut w);
    assert!(w.read(edge, 0, 2048).is_ok());
    settle(&mut w);
    assert!(has_user(&w));
    hba.change_medium(0, Some(1 << 20));
    drop(w.read(edge, 0, 2048));
    settle(&mut w);
    assert!(!has_user(&w), "as large as the one before, and not that one");
}
