//! The verbs of label, through a real core.

use bio::Errno;
use classes::label::generic;
use geom::{Access, Error};
use serde_json::{Value, json};

use crate::world::World;

const SIZES: [u32; 2] = [512, 4096];
const MIB: usize = 1 << 20;

fn label(w: &mut World, verb: &str, on: &str, params: Value) -> Result<String, Error> {
    let answer = w.verb("label", verb, on, params)?;
    Ok(answer["message"].as_str().expect("a message").to_owned())
}

fn kind(result: Result<String, Error>) -> Errno {
    result.expect_err("refused").kind
}

#[test]
fn a_label_can_be_written_found_and_cleared() {
    for size in SIZES {
        let (mut w, disk) = World::with("da0", vec![0; MIB], size);
        let answer = label(&mut w, "label", "da0", json!({ "name": "usb" })).expect("label");
        assert_eq!(answer, "da0 labelled label/usb");
        assert_eq!(w.names(), ["da0", "label/usb"]);
        assert_eq!(w.size("label/usb"), MIB as u64 - u64::from(size));
        let (at, sector) = generic::label("usb", size, MIB as u64).expect("a sector");
        assert!(disk.bytes()[at as usize..] == sector[..]);
        // Another name for the same; a wrong one.
        label(&mut w, "label", "da0", json!({ "name": "stick" })).expect("label again");
        assert_eq!(w.names(), ["da0", "label/stick"]);
        for name in ["", "0123456789abcdef", "../x"] {
            assert_eq!(kind(label(&mut w, "label", "da0", json!({ "name": name }))), Errno::Inval);
        }
        // An open label is kept.
        let open = w.open("label/stick", Access::WRITE);
        w.write(&open, 0, &vec![7; size as usize]).expect("write");
        assert_eq!(disk.bytes()[0], 7);
        assert_eq!(kind(label(&mut w, "clear", "da0", json!({}))), Errno::Perm);
        assert_eq!(kind(label(&mut w, "destroy", "label/stick", json!({}))), Errno::Busy);
        assert!(!open.orphaned());
        w.close(open);
        label(&mut w, "clear", "da0", json!({})).expect("clear");
        assert_eq!(w.names(), ["da0"]);
        assert!(disk.bytes()[at as usize..].iter().all(|b| *b == 0));
        assert_eq!(kind(label(&mut w, "clear", "da0", json!({}))), Errno::NoEnt);
    }
}

#[test]
fn a_refused_label_changes_nothing_and_does_not_disturb_users() {
    let (mut w, disk) = World::with("da0", vec![0; 16 * MIB], 512);
    w.part("create", "da0", json!({ "scheme": "gpt" }));
    w.part("add", "da0", json!({ "kind": "linux-data" }));
    let user = w.watch("da0p1");
    let before = disk.bytes();
    let refused = label(&mut w, "label", "da0", json!({ "name": "usb" })).expect_err("a GPT");
    assert!(refused.kind == Errno::Exist && refused.destroys == ["da0"], "{refused}");
    assert_eq!(kind(label(&mut w, "clear", "da0", json!({}))), Errno::NoEnt);
    assert!(!user.orphaned() && disk.bytes() == before);
    assert_eq!(kind(label(&mut w, "label", "nix", json!({ "name": "x" }))), Errno::NoEnt);
    assert_eq!(kind(label(&mut w, "label", "da0", json!({ "nme": "x" }))), Errno::Inval);
    assert_eq!(kind(label(&mut w, "paint", "da0", json!({}))), Errno::NotSup);
    assert_eq!(kind(label(&mut w, "destroy", "label/x", json!({}))), Errno::NoEnt);
    label(&mut w, "label", "da0p1", json!({ "name": "x" })).expect("a partition's last sector");
    assert!(w.has("label/x"));
    assert_eq!(kind(label(&mut w, "label", "label/x", json!({ "name": "y" }))), Errno::Inval);
    w.disk("da1", vec![0; MIB], 512);
    assert_eq!(kind(label(&mut w, "label", "da1", json!({ "name": "x" }))), Errno::Exist);
    w.close(user);
}

#[test]
fn a_manual_label_writes_nothing_and_can_be_stopped() {
    let (mut w, disk) = World::with("da0", vec![0; MIB], 512);
    let answer = label(&mut w, "create", "da0", json!({ "name": "usb" })).expect("create");
    assert_eq!(answer, "label/usb created");
    assert_eq!(w.size("label/usb"), MIB as u64, "by hand it is the whole");
    assert!(disk.bytes().iter().all(|b| *b == 0));
    assert_eq!(kind(label(&mut w, "create", "da0", json!({ "name": "usb" }))), Errno::Exist);
    let open = w.open("label/usb", Access::READ);
    assert_eq!(kind(label(&mut w, "stop", "label/usb", json!({}))), Errno::Busy);
    label(&mut w, "stop", "label/usb", json!({ "force": true })).expect("stop");
    assert!(!w.has("label/usb") && open.orphaned());
    w.close(open);
    // A refresh finds the label that was written behind our back.
    let (at, sector) = generic::label("later", 512, MIB as u64).expect("a sector");
    disk.put(at as usize, &sector);
    assert!(!w.has("label/later"));
    label(&mut w, "refresh", "da0", json!({})).expect("refresh");
    assert!(w.has("label/later"));
    // A table may be on a label's provider; its partitions have names of their own.
    w.part("create", "label/later", json!({ "scheme": "gpt" }));
    w.part("add", "label/later", json!({ "kind": "linux-data", "label": "in" }));
    assert!(w.has("label/laterp1") && w.has("gpt/in"), "{:?}", w.names());
}
