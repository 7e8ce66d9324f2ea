//! Targets that do not answer, as the bus reports them.

use bio::Op;
use cam::sims::aoe::AoeKind;
use cam::{Open, SimKind, Site};
use reactor::sim::SegmentShape;
use serde_json::json;

use crate::aoe::scenes::calm;
use crate::aoe::{MS, S, SECTOR, SECTORS, network};
use crate::world::{World, range};
use testkit::aoe::{Shelf, Ways};

/// Lets time pass, and takes in the disks that the bus finds or loses by itself.
fn pass(w: &mut World, ns: u64) {
    w.turn(ns);
    let cam = w.cam.clone();
    cam.take_update_results(&mut w.control).into_iter().for_each(|(_, done)| drop(done.unwrap()));
}

/// What the bus reports about the target.
fn whys(w: &World, bus: usize) -> Vec<String> {
    let all = w.buses[bus].troubles().into_iter().map(|trouble| trouble.why);
    all.filter(|why| why.starts_with("e565.1 ")).collect()
}

/// M2 of bus/missing.rs.
#[test]
fn a_lost_target_is_reported_until_it_answers_or_a_rescan_dismisses_it() {
    for is_dismissed in [false, true] {
        let mut s = calm();
        assert_eq!(whys(&s.w, s.bus), [""; 0]);
        s.net.segments[0].set_up("eth0", false);
        let data = s.w.buffer(SECTOR as usize);
        s.w.start(s.edge, 0, |bio| range(bio, Op::Read, 0, data));
        let begun = s.w.now();
        while s.w.control.topology.find("ada0").is_some() {
            assert!(s.w.now() < begun + 60 * S, "the disk is not lost");
            pass(&mut s.w, 100 * MS);
        }
        (0..100).for_each(|_| pass(&mut s.w, 100 * MS));
        let left = whys(&s.w, s.bus);
        let why = "e565.1 does not answer by eth0";
        assert!(left.len() == 1 && left[0].starts_with(why), "{left:?}");
        if is_dismissed {
            let done = s.w.verb("rescan", "", &json!({})).unwrap();
            let line = "e565.1 does not answer and is not reported until it does";
            assert!(done["message"].as_str().unwrap().contains(line), "{done}");
            assert_eq!(whys(&s.w, s.bus), [""; 0]);
        }
        s.net.segments[0].set_up("eth0", true);
        let begun = s.w.now();
        while s.w.control.topology.find("ada0").is_none() || !whys(&s.w, s.bus).is_empty() {
            assert!(s.w.now() < begun + 60 * S, "it is not found again");
            pass(&mut s.w, 100 * MS);
        }
    }
}

#[test]
fn a_configured_target_that_never_answered_is_reported() {
    let mut w = World::with(1, &[]);
    let net = network(&w, &[(SegmentShape::default(), 9000)]);
    let params = json!({ "interfaces": ["eth0"], "targets": ["565.1"], "ask_s": 2 });
    let site = Site { notifier: w.control.topology.notifier(), cores: 1 };
    let sim = AoeKind.open(&Open { name: "aoe0", params: &params, site: &site }).unwrap();
    let bus = w.add(sim);
    assert_eq!(whys(&w, bus), [""; 0], "it was not asked yet");
    let begun = w.now();
    while whys(&w, bus).is_empty() {
        assert!(w.now() < begun + 10 * S, "it is not reported");
        pass(&mut w, 100 * MS);
    }
    let why = "e565.1 is configured and has not answered yet on eth0";
    assert_eq!(whys(&w, bus), [why]);
    let _shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, Ways::default());
    let begun = w.now();
    while w.control.topology.find("ada0").is_none() || !whys(&w, bus).is_empty() {
        assert!(w.now() < begun + 20 * S, "it is not found");
        pass(&mut w, 100 * MS);
    }
    drop(net);
}
