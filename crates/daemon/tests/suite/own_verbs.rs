//! Verbs of the daemon itself: their parameters are read like those of the verbs of classes.

use mgmt::api::Kind;
use serde_json::{Value, json};

use crate::by_hand::Site;

#[test]
fn verb_of_the_daemon_refuses_a_wrong_parameter_by_its_name() {
    let site = Site::launched("own-verbs");
    let error = |class: &str, verb: &str, params: &Value| {
        let done = site.control.change(|plant| plant.verb(class, verb, params, &mut |_| {}));
        done.expect_err("it is refused")
    };
    for (class, verb, params, word) in [
        ("lun", "eject", json!({ "name": "d0", "force": true }), "no `force`; it takes name"),
        ("lun", "forget-name", json!({}), "`name`"),
        ("lun", "clear-reservations", json!({ "unit": "d0" }), "no `unit`"),
        ("alua", "set", json!({ "group": "default", "state": "asleep" }), "`state`"),
        ("local", "attach", json!({ "lun": "0", "by": "usb" }), "`by`"),
        ("cam", "attach", json!({ "name": "v", "kind": "virtual" }), "no `kind`"),
    ] {
        let refused = error(class, verb, &params);
        assert_eq!(refused.kind, Kind::Usage, "{class} {verb}: {refused}");
        assert!(refused.source.contains(word), "{class} {verb}: {refused}");
    }
}

#[test]
fn unknown_verb_of_the_daemon_is_refused_with_the_known_ones() {
    let site = Site::launched("own-verbs-unknown");
    for (class, known) in [("alua", "set"), ("local", "attach, detach"), ("lun", "eject")] {
        let done = site.control.change(|plant| plant.verb(class, "go", &json!({}), &mut |_| {}));
        let refused = done.expect_err("there is no such verb");
        assert_eq!((refused.kind, refused.at.as_str()), (Kind::UnknownVerb, "go"), "{refused}");
        assert!(refused.to_string().contains(known), "{refused}");
    }
}
