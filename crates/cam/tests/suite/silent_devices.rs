//! Buses with devices that do not answer: a scan delays only the client that requested it.

use std::sync::Arc;

use bio::Errno;
use cam::CamClass;
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use geom::{Class, Error};
use reactor::model::Timing;
use serde_json::{Value, json};

use crate::world::{World, small_disks};

/// One look of the control thread, and the simulated time that it takes.
const LOOK_NS: u64 = 50_000_000;

/// So many disks, those from the second on deaf or not.
fn hba(disks: u64, hangs: u8) -> Arc<VirtualHba> {
    let hba = small_disks("mps0", Transport::Sas, disks);
    (1..disks).for_each(|bay| hba.set_faults(bay, Faults { hangs, ..Faults::default() }));
    hba
}

/// Runs a verb once and returns its immediate result.
fn ask(w: &mut World, verb: &str, on: &str, params: &Value) -> Result<Value, Error> {
    let (class, start) = (w.cam.clone(), w.now());
    let answer = CamClass::verb(&class, &mut w.control, verb, on, params);
    let took = w.now() - start;
    assert!(took <= LOOK_NS, "{verb}: the control thread waited {took} ns");
    answer
}

fn again(answer: &Value) -> Value {
    let again = &answer["unfinished"]["again"];
    assert!(again.is_object(), "it is not over: {answer}");
    again.clone()
}

/// Polls until the end.
fn follow(w: &mut World, verb: &str, on: &str, mut answer: Value) -> Result<Value, Error> {
    let end = w.now() + 120_000_000_000;
    while answer.get("unfinished").is_some() {
        assert!(w.now() < end, "{verb} does not end");
        w.turn(100_000_000);
        look(w);
        answer = ask(w, verb, on, &again(&answer))?;
    }
    Ok(answer)
}

/// As the daemon does between two questions.
fn look(w: &mut World) {
    w.cam.clone().take_update_results(&mut w.control);
}

/// C1 of bus/scan.rs.
#[test]
fn other_verbs_are_answered_during_a_scan() {
    let hba = hba(2, 100);
    let mut w = World::new(1, std::slice::from_ref(&hba));
    let answer = ask(&mut w, "rescan", "", &json!({})).unwrap();
    assert!(answer["unfinished"]["what"].as_str().unwrap().contains("rescan"), "{answer}");
    for verb in ["devlist", "devlist"] {
        let list = ask(&mut w, verb, "", &json!({})).unwrap();
        assert_eq!(list["buses"].as_array().unwrap().len(), 1);
    }
    // A second one takes its turn.
    let other = ask(&mut w, "rescan", "", &json!({ "buses": ["0"] })).unwrap();
    let done = follow(&mut w, "rescan", "", answer).unwrap();
    assert_eq!(done["found"], json!(["da0"]));
    assert!(done["message"].as_str().unwrap().starts_with("found da0"), "{done}");
    let done = follow(&mut w, "rescan", "", other).unwrap();
    assert_eq!(done["found"], json!(["da0"]), "new since that was asked, too");
    let answer = ask(&mut w, "rescan", "", &json!({})).unwrap();
    assert_eq!(follow(&mut w, "rescan", "", answer).unwrap()["found"], json!([]));
}

#[test]
fn disks_found_by_a_scan_are_attached_even_if_its_answer_is_not_fetched() {
    let hba = hba(2, 100);
    let mut w = World::new(2, std::slice::from_ref(&hba));
    again(&ask(&mut w, "rescan", "", &json!({})).unwrap());
    let end = w.now() + 120_000_000_000;
    while w.control.topology.find("da0").is_none() {
        assert!(w.now() < end, "da0 does not come");
        w.turn(100_000_000);
        look(&mut w);
    }
}

#[test]
fn a_bus_is_detached_at_once_during_its_scan() {
    let mut w = World::new(3, &[]);
    let params = json!({ "kind": "virtual", "params": { "disks": 2, "size": 1 << 20 } });
    let done = w.verb("attach", "mps0", &params).unwrap();
    assert_eq!(done["message"], "scbus0: da0, da1");
    w.verb("fault", "da1", &json!({ "hangs": 100 })).unwrap();
    let answer = ask(&mut w, "rescan", "", &json!({})).unwrap();
    again(&answer);
    let done = ask(&mut w, "detach", "mps0", &json!({})).unwrap();
    assert_eq!(done["message"], "mps0 is gone");
    assert!(w.control.topology.find("da1").is_none());
    let done = follow(&mut w, "rescan", "", answer).unwrap();
    assert_eq!(done["message"], "bus 0 was detached meanwhile");
    let list = ask(&mut w, "devlist", "", &json!({})).unwrap();
    assert_eq!(list["buses"], json!([]));
    // The name and the number are free again, and the disks of the new one are its own.
    let done = w.verb("attach", "mps0", &params).unwrap();
    assert_eq!(done["message"], "scbus0: da0, da1");
}

#[test]
fn disks_found_on_a_bus_detached_meanwhile_are_discarded() {
    let hba = VirtualHba::new("mps0", Transport::Sas, 1);
    let mut spec = DiskSpec::default();
    spec.shape.timing = Timing::Between { min_ns: 200_000_000, max_ns: 300_000_000 };
    hba.plug(0, spec, 1).unwrap();
    let mut w = World::new(5, std::slice::from_ref(&hba));
    let answer = ask(&mut w, "rescan", "", &json!({})).unwrap();
    ask(&mut w, "detach", "mps0", &json!({})).unwrap();
    assert_eq!(
        follow(&mut w, "rescan", "", answer).unwrap()["message"],
        "bus 0 was detached meanwhile"
    );
    assert!(w.buses[0].devices().is_empty());
}

#[test]
fn an_attach_fails_as_a_whole_when_a_disk_name_is_taken() {
    let mut w = World::new(4, &[]);
    let bus = |name: &str, disks: u64| {
        let names = json!({ name: "0:0" });
        let params = json!({ "disks": disks, "size": 1 << 20 });
        json!({ "kind": "virtual", "params": params, "names": names })
    };
    w.verb("attach", "mps0", &bus("root", 1)).unwrap();
    for attempt in 0..2 {
        let answer = ask(&mut w, "attach", "mps1", &bus("root", 2));
        let refused =
            answer.and_then(|answer| follow(&mut w, "attach", "mps1", answer)).unwrap_err();
        assert_eq!(refused.kind, Errno::Exist, "{attempt}: {}", refused.message);
        assert!(refused.message.contains("root"), "{}", refused.message);
        let list = ask(&mut w, "devlist", "", &json!({})).unwrap();
        assert_eq!(list["buses"].as_array().unwrap().len(), 1, "it was given up as a whole");
    }
    assert_eq!(w.verb("attach", "mps1", &bus("home", 1)).unwrap()["found"], json!(["home"]));
}
