//! Edits of the section of a file server, under a client that stays connected.

use bio::Errno;
use serde_json::{Value, json};

use super::plant::{AT, Plant};

/// A second address, and a third, which another file server has.
const NEXT: &str = "10.0.0.2:564";
const TAKEN: &str = "10.0.0.3:564";

/// The section of the plant with other keys; null removes one.
fn section(is_image: bool, keys: &[(&str, Value)]) -> Value {
    let mut params = Plant::params(is_image, AT);
    keys.iter().for_each(|(key, value)| params[*key] = value.clone());
    if let Some(params) = params.as_object_mut() {
        params.retain(|_, value| !value.is_null());
    }
    params
}

fn one(key: &'static str, value: Value) -> [(&'static str, Value); 1] {
    [(key, value)]
}

#[test]
fn l1_sessions_go_on_while_listeners_are_added_closed_and_moved() {
    for is_image in [false, true] {
        let mut plant = Plant::new(91, is_image);
        let client = plant.enter(AT);
        let edits = [
            (vec![("plan9", json!([AT, NEXT]))], true, true),
            (vec![("plan9", json!([NEXT]))], false, true),
            (vec![("plan9", json!([NEXT])), ("linux", json!([AT]))], true, true),
            (vec![("plan9", json!([AT])), ("linux", json!([NEXT]))], true, true),
            (vec![("plan9", json!([])), ("linux", json!([]))], false, false),
            (vec![], true, false),
        ];
        for (keys, first, next) in edits {
            plant.edit(&section(is_image, &keys)).unwrap();
            assert!(plant.answers(&client), "{keys:?}");
            let reached = [AT, NEXT].map(|at| plant.is_reached(at));
            assert_eq!(reached, [first, next], "{keys:?}");
        }
        assert_eq!(plant.shown("listens").as_deref(), Some(AT));
    }
}

#[test]
fn e1_edit_with_an_address_of_another_server_changes_nothing() {
    let mut plant = Plant::new(92, false);
    plant.add_server("other", false, TAKEN, &[("cache2", 32), ("worm2", 64)]);
    let client = plant.enter(AT);
    let before = plant.settings();
    // `0.0.0.0` overlaps the address of `main`, which is closed first and opened again.
    for plan9 in [json!([NEXT, TAKEN]), json!(["0.0.0.0:564", TAKEN])] {
        let keys = [("plan9", plan9), ("nodump", json!(true)), ("everybody", json!("glenda"))];
        let refused = plant.edit(&section(false, &keys)).unwrap_err();
        assert!(refused.kind == Errno::Busy && refused.message.contains(TAKEN), "{refused}");
        assert!(plant.answers(&client) && plant.is_reached(AT) && !plant.is_reached(NEXT));
        assert_eq!(plant.settings(), before);
        assert_eq!(plant.verb("dumpctl", json!({})).unwrap()["on"], true);
    }
}

#[test]
fn l2_address_that_a_failed_edit_has_lost_is_opened_again() {
    let mut plant = Plant::new(99, false);
    plant.add_server("other", false, TAKEN, &[("cache2", 32), ("worm2", 64)]);
    plant.edit(&section(false, &one("plan9", json!([AT, NEXT])))).unwrap();
    let client = plant.enter(AT);
    let taken = plant.take_when_free(AT);
    let lost = |plant: &Plant| plant.troubles().iter().any(|why| why.contains(AT));
    let refused = plant.edit(&section(false, &one("plan9", json!(["0.0.0.0:564", TAKEN]))));
    assert_eq!(refused.unwrap_err().kind, Errno::Busy);
    assert!(taken.borrow().is_some() && lost(&plant));
    assert!(plant.answers(&client) && plant.is_reached(NEXT));
    drop(taken.take());
    plant.wait(5);
    let listens = plant.shown("listens").unwrap();
    assert!(listens.contains(AT) && listens.contains(NEXT) && !lost(&plant), "{listens}");
}

#[test]
fn e2_setting_of_a_verb_stays_until_its_key_is_edited() {
    let mut plant = Plant::new(93, false);
    let is_on = |plant: &mut Plant| plant.verb("dumpctl", json!({})).unwrap()["on"] == true;
    plant.verb("dumpctl", json!({ "what": "off" })).unwrap();
    plant.edit(&section(false, &one("login_timeout", json!(20)))).unwrap();
    assert!(!is_on(&mut plant));
    plant.edit(&section(false, &one("nodump", json!(true)))).unwrap();
    assert!(!is_on(&mut plant));
    plant.edit(&section(false, &[])).unwrap();
    assert!(is_on(&mut plant));
}

#[test]
fn e3_edit_whose_caller_has_given_up_is_dropped() {
    let mut plant = Plant::new(97, false);
    let before = plant.settings();
    plant.hold(true);
    // The users file with a new user is made durable before the listeners change.
    let edited = section(false, &[("plan9", json!([NEXT])), ("everybody", json!("glenda"))]);
    let refused = plant.edit(&edited).unwrap_err();
    assert!(refused.kind == Errno::TimedOut && plant.holds_some(), "{refused}");
    plant.hold(false);
    plant.wait(1);
    assert_eq!(plant.settings(), before);
    assert!(plant.is_reached(AT) && !plant.is_reached(NEXT));
    plant.edit(&edited).unwrap();
    assert!(!plant.is_reached(AT) && plant.is_reached(NEXT));
}

#[test]
fn time_of_the_daily_dump_changes_at_once() {
    for is_image in [false, true] {
        let mut plant = Plant::new(94, is_image);
        assert_eq!(plant.shown("next"), None, "dump_at is never");
        let mut dump_at = |at: &str| {
            plant.edit(&section(is_image, &one("dump_at", json!(at)))).unwrap();
            // Below the minute after which the clock looks at the time by itself.
            plant.wait(1);
            plant.shown("next")
        };
        let at = |next: Option<String>| next.map(|next| next[11..].to_owned());
        assert_eq!(at(dump_at("05:00")).as_deref(), Some("05:00:00"));
        assert_eq!(at(dump_at("06:30")).as_deref(), Some("06:30:00"));
        assert_eq!(dump_at("never"), None);
    }
}

/// F5 of volume/frames.rs.
#[test]
fn block_cache_is_resized_while_a_client_works() {
    for is_image in [false, true] {
        let mut plant = Plant::new(96, is_image);
        let client = plant.enter(AT);
        for (mib, blocks) in [(16, "1024 blocks"), (8, "512 blocks"), (64, "4096 blocks")] {
            plant.edit(&section(is_image, &one("memory", json!(mib << 20)))).unwrap();
            let shown = plant.shown("memory").unwrap();
            assert!(shown.starts_with(blocks) && plant.answers(&client), "{shown}");
        }
        assert_eq!(plant.settings()["memory"], 64 << 20);
        // A file server that is opened again has the size of the edit.
        plant.verb("halt", Value::Null).unwrap();
        plant.verb("start", Value::Null).unwrap();
        let shown = plant.shown("memory").unwrap();
        assert!(shown.starts_with("4096 blocks"), "{shown}");
        let small = plant.edit(&section(is_image, &one("memory", json!(1 << 20))));
        assert!(small.unwrap_err().message.contains("at least 8 MiB"));
    }
}

#[test]
fn switches_and_users_change_for_later_attaches() {
    let mut plant = Plant::new(95, false);
    let client = plant.enter(AT);
    plant.edit(&section(false, &one("noattach", json!(true)))).unwrap();
    assert!(plant.visit("ann").is_err() && plant.answers(&client));
    plant.edit(&section(false, &[])).unwrap();
    assert_eq!(plant.visit("ann"), Ok(()));
    let keys = [("linux", json!([NEXT])), ("everybody", json!("glenda"))];
    plant.edit(&section(false, &keys)).unwrap();
    let users = plant.verb("users", json!({})).unwrap();
    assert!(users["text"].as_str().is_some_and(|text| text.contains("glenda")), "{users}");
    let ahead = [("ahead", json!(7)), ("fastworm", json!(true))];
    plant.edit(&section(false, &ahead)).unwrap();
    assert_eq!(plant.verb("ahead", json!({})).unwrap()["workers"], 7);
    assert!(plant.transients().is_empty(), "the section says the same");
    assert!(plant.answers(&client));
}

#[test]
fn clients_are_listed_with_key_and_portal_until_they_leave() {
    let mut plant = Plant::new(96, false);
    let client = plant.enter(AT);
    let listed = |plant: &Plant| -> Vec<(&'static str, String)> {
        plant.clients().into_iter().map(|client| (client.key, client.portal)).collect()
    };
    assert_eq!(listed(&plant), [("plan9", AT.to_owned())]);
    plant.edit(&section(false, &one("plan9", json!([NEXT])))).unwrap();
    assert_eq!(listed(&plant), [("plan9", AT.to_owned())], "its listener is closed");
    drop(client);
    plant.wait(1);
    assert_eq!(listed(&plant), []);
}
