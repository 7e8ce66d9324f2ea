//! Replacement of lost devices: one by a new one, and all of them.

use std::sync::{Arc, Mutex};

use fileserver::{NoHistory, VolumeHistory};
use serde_json::{Value, json};

use super::plant::Plant;

const DISKS: [(&str, usize); 3] = [("cache", 32), ("near", 64), ("far", 64)];

#[test]
fn lost_device_is_replaced_by_a_blank_one_while_clients_are_served() {
    let mut plant = Plant::on(61, false, &DISKS, Arc::new(NoHistory));
    plant.verb("dump", Value::Null).unwrap();
    plant.wait(5);
    plant.lose("far");
    plant.wait(1);
    let e = plant.verb("replace", json!({ "device": "far" })).unwrap_err();
    assert!(e.message.contains("give a blank disk that name"), "{e}");
    plant.blank("far", 64);
    let done = plant.verb("replace", json!({ "device": "far" })).unwrap();
    assert_eq!(done["dumps"], json!(1));
    let legs = plant.verb("statw", Value::Null).unwrap()["legs"].clone();
    assert_eq!((&legs[1]["name"], &legs[1]["behind"]), (&json!("far"), &json!(0)), "{legs}");
    assert_eq!(legs[1]["fault"], Value::Null);
    // It is a device like the other: without that one, a new dump reaches it.
    plant.lose("near");
    plant.verb("newuser", json!({ "user": "ann" })).unwrap();
    plant.verb("dump", Value::Null).unwrap();
    plant.wait(5);
    let legs = plant.verb("statw", Value::Null).unwrap()["legs"].clone();
    assert_eq!(legs[1]["behind"], json!(0), "{legs}");
}

#[test]
fn replace_refuses_an_unknown_device_and_an_image() {
    let mut plant = Plant::on(62, false, &DISKS, Arc::new(NoHistory));
    let e = plant.verb("replace", json!({ "device": "other" })).unwrap_err();
    assert!(e.message.contains("near, far"), "{e}");
    let e = Plant::new(63, true).verb("replace", json!({ "device": "worm" })).unwrap_err();
    assert!(e.message.contains("image"), "{e}");
}

/// The last served state, as the state folder stores it.
#[derive(Default)]
struct Past(Mutex<Option<u64>>);

impl VolumeHistory for Past {
    fn last_volume(&self, name: &str) -> Option<u64> {
        assert_eq!(name, "main");
        *self.0.lock().unwrap()
    }

    fn record_served(&self, _: &str, volume: u64) {
        *self.0.lock().unwrap() = Some(volume);
    }
}

/// F3 of service/mod.rs.
#[test]
fn blank_devices_are_not_reamed_where_a_file_system_was_served() {
    let past = Arc::new(Past::default());
    let mut first = Plant::on(64, false, &DISKS, past.clone());
    first.verb("sync", Value::Null).unwrap();
    let volume = past.last_volume("main").expect("that it is served is noted");
    // Another daemon, where the disks are empty.
    let mut plant = Plant::on(65, false, &DISKS, past.clone());
    let e = plant.verb("sync", Value::Null).unwrap_err();
    assert!(e.message.contains("was served here before"), "{e}");
    assert!(
        e.message.contains(&format!("{volume:016x}")) && e.message.contains("fs ream main"),
        "{e}"
    );
    plant.verb("ream", Value::Null).unwrap();
    plant.verb("sync", Value::Null).unwrap();
    assert_ne!(past.last_volume("main"), Some(volume), "the new one is noted");
}

#[test]
fn blank_devices_are_not_reamed_where_an_image_was_served() {
    let past = Arc::new(Past::default());
    let disks = [("cache", 32), ("worm", 64)];
    let mut first = Plant::on(66, true, &disks, past.clone());
    first.verb("sync", Value::Null).unwrap();
    assert!(past.last_volume("main").is_some(), "that it is served is noted");
    let mut plant = Plant::on(67, true, &disks, past);
    let e = plant.verb("sync", Value::Null).unwrap_err();
    assert!(e.message.contains("was served here before"), "{e}");
    assert!(e.message.contains("fs ream main"), "{e}");
}
