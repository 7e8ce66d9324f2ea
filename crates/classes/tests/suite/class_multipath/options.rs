//! Extensions to FreeBSD's multipath: the checker, failback, requests that wait for a path.

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;
use std::time::Duration;

use super::fixture::*;
use crate::world::{Disk, World};

#[test]
fn checker_restores_paths_that_answer_again() {
    let (mut world, _, ways) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "checker": 1 })).expect("configured");
    ways[0].fails(Some(Errno::Io));
    write(&mut world, 0, 1).expect("by the other");
    world.control.wait_until(Duration::from_millis(1500), |_| false);
    assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"], "it was looked at, and did not answer");
    assert!(ways[0].seen(Op::Read) >= 1);
    ways[0].fails(None);
    world.control.wait_until(Duration::from_millis(1500), |_| false);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
}

#[test]
fn failback_is_immediate_delayed_or_off() {
    let (mut world, _, _) = labelled(2, json!({}));
    let fail_and_restore = |world: &mut World| {
        ask(world, "fail", "d0").expect("failed");
        ask(world, "restore", "d0").expect("restored");
        states(world)
    };
    assert_eq!(fail_and_restore(&mut world), ["d0 PASSIVE", "d1 ACTIVE"]);
    ask(&mut world, "prefer", "d0").expect("preferred");
    world.verb("multipath", "configure", "m", json!({ "failback": 0 })).expect("configured");
    assert_eq!(fail_and_restore(&mut world), ["d0 ACTIVE", "d1 PASSIVE"]);
    world.verb("multipath", "configure", "m", json!({ "failback": 1 })).expect("configured");
    assert_eq!(fail_and_restore(&mut world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    // Once more: it must have been good for the whole time.
    fail_and_restore(&mut world);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
}

/// T2 of multipath/shared.rs.
#[test]
fn requests_without_a_path_wait_until_one_arrives() {
    let (mut world, disk, _) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 60 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    world.lose("d0");
    world.lose("d1");
    let all: Vec<Outcome> = (0..4).map(|i| begin_write(&world, &open, i * 512, 6)).collect();
    assert!(!wait(&mut world, 100, || all.iter().any(|o| result_of(o).is_some())));
    assert_eq!(world.show("multipath", "m", "Waiting"), ["4"]);
    assert!(!open.orphaned());
    way(&mut world, "d7", &disk);
    assert!(wait(&mut world, 2000, || all.iter().all(|o| result_of(o) == Some(Ok(())))));
    assert!(disk.bytes()[..2048].iter().all(|b| *b == 6));
    world.close(open);
}

#[test]
fn null_gives_an_option_its_default_and_others_stay() {
    let (mut world, _, _) = labelled(2, json!({}));
    let both = json!({ "queue": 60, "checker": 5, "mode": "read" });
    world.verb("multipath", "configure", "m", both).expect("configured");
    assert_eq!(world.show("multipath", "m", "Queue"), ["60 s"]);
    world.verb("multipath", "configure", "m", json!({ "queue": null })).expect("configured");
    assert!(world.show("multipath", "m", "Queue").is_empty());
    assert_eq!(world.show("multipath", "m", "Checker"), ["5 s"]);
    let wrong = world.verb("multipath", "configure", "m", json!({ "mode": "fast" }));
    assert!(wrong.expect_err("no such").message.contains("no mode fast"));
}

#[test]
fn requests_wait_for_a_path_no_longer_than_the_limit() {
    let (mut world, _, ways) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 1 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    // Paths that are there and answer nothing.
    ways.iter().for_each(|w| w.fails(Some(Errno::NxIo)));
    let first = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 300, || result_of(&first).is_some()), "it waits");
    assert!(wait(&mut world, 3000, || result_of(&first) == Some(Err(Errno::NxIo))));
    // No request waits again until there was a path.
    let late = begin_write(&world, &open, 0, 6);
    assert!(wait(&mut world, 300, || result_of(&late) == Some(Err(Errno::NxIo))));
    ways[1].fails(None);
    world.write(&open, 0, &[8; 512]).expect("a path is back");
    settle(&mut world);
    ways[1].fails(Some(Errno::NxIo));
    let again = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 300, || result_of(&again).is_some()), "it waits again");
    // Without any path the device ends when the time is up.
    world.lose("d0");
    world.lose("d1");
    assert!(wait(&mut world, 3000, || result_of(&again) == Some(Err(Errno::NxIo))));
    world.close(open);
    settle(&mut world);
    assert!(!world.has("multipath/m"));
}

#[test]
fn waiting_requests_end_when_the_device_is_stopped() {
    let (mut world, _, _) = labelled(1, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 60 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    world.lose("d0");
    let outcome = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 50, || result_of(&outcome).is_some()));
    world.verb("multipath", "stop", "m", json!({ "force": true })).expect("stopped");
    assert!(wait(&mut world, 2000, || result_of(&outcome) == Some(Err(Errno::NxIo))));
    world.close(open);
}

#[test]
fn a_medium_error_ends_the_request_although_requests_may_wait() {
    let (mut world, _, ways) = labelled(2, json!({}));
    let params = json!({ "queue": 60, "checker": 1 });
    world.verb("multipath", "configure", "m", params).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    // Writes fail by every path, and the checker's reads do not.
    ways[0].disk.0.lock().expect("media").cut_at = Some(0);
    let outcome = begin_write(&world, &open, 0, 6);
    assert!(wait(&mut world, 5000, || result_of(&outcome) == Some(Err(Errno::Io))));
    world.close(open);
}

/// The options are stored behind the record, where FreeBSD has zeroes.
#[test]
fn options_survive_a_restart_and_leave_the_freebsd_record_unchanged() {
    let (mut world, disk, _) = labelled(2, json!({}));
    let sector = |disk: &Disk| disk.bytes()[MIB - 512..].to_vec();
    let plain = sector(&disk);
    let params = json!({ "checker": 7, "failback": 3, "queue": 30 });
    world.verb("multipath", "configure", "m", params).expect("configured");
    let on = sector(&disk);
    assert!(on[..256] == plain[..256] && on != plain);
    // Another daemon.
    let mut world = World::new();
    let _ways = [way(&mut world, "p0", &disk), way(&mut world, "p1", &disk)];
    settle(&mut world);
    for (key, value) in [("Checker", "7 s"), ("Failback", "3 s"), ("Queue", "30 s")] {
        assert_eq!(world.show("multipath", "m", key), [value], "{key}");
    }
    let dump = world.verb("multipath", "dump", "", json!({ "members": ["p0"] })).expect("read");
    assert_eq!(dump["records"][0]["options"]["queue"], json!("30 s"));
    // Off again, it is FreeBSD's to the byte.
    let params = json!({ "checker": 0, "no_failback": true, "queue": 0 });
    world.verb("multipath", "configure", "m", params).expect("configured");
    assert!(sector(&disk) == plain);
}
