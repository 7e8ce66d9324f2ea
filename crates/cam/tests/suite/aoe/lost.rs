//! Targets that do not answer, as the bus reports them.

use bio::Op;
use cam::sims::aoe::AoeKind;
use reactor::sim::SegmentShape;
use serde_json::json;

use crate::aoe::scenes::calm;
use crate::aoe::{MS, S, SECTOR, SECTORS, network};
use crate::world::{World, range};
use testkit::aoe::{Shelf, Ways};

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
        s.w.until((100 * MS, 60 * S), "the disk is not lost", |w| !w.has("ada0"));
        (0..100).for_each(|_| {
            s.w.turn(100 * MS);
            s.w.found();
        });
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
        let is_back = |w: &World| w.has("ada0") && whys(w, s.bus).is_empty();
        s.w.until((100 * MS, 60 * S), "it is not found again", is_back);
    }
}

#[test]
fn a_configured_target_that_never_answered_is_reported() {
    let mut w = World::with(1, &[]);
    let net = network(&w, &[(SegmentShape::default(), 9000)]);
    let params = json!({ "interfaces": ["eth0"], "targets": ["565.1"], "ask_s": 2 });
    let bus = w.add_kind(&AoeKind, "aoe0", &params);
    assert_eq!(whys(&w, bus), [""; 0], "it was not asked yet");
    w.until((100 * MS, 10 * S), "it is not reported", |w| !whys(w, bus).is_empty());
    let why = "e565.1 is configured and has not answered yet on eth0";
    assert_eq!(whys(&w, bus), [why]);
    let _shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, Ways::default());
    let is_there = |w: &World| w.has("ada0") && whys(w, bus).is_empty();
    w.until((100 * MS, 20 * S), "it is not found", is_there);
    drop(net);
}
