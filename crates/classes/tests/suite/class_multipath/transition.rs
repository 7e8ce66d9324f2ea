//! Paths in transition, which would delay requests while another path is good.

use bio::{Errno, Op};
use geom::{Access, GraphControl};
use serde_json::json;
use std::time::Duration;

use super::fixture::*;

/// Whether every path of the device is of use.
fn is_optimal(control: &GraphControl) -> bool {
    let view = control.topology.view(0);
    let device = view.iter().find(|g| g.class == "multipath" && g.name == "m" && !g.withering);
    device.is_some_and(|g| g.show.iter().any(|(key, value)| *key == "State" && value == "OPTIMAL"))
}

const MODES: [&str; 3] = ["passive", "active", "read"];

#[test]
fn requests_use_another_path_and_the_path_in_transition_is_not_failed() {
    // All of them wait for the second look at the same time.
    let mut left = Vec::new();
    for mode in MODES {
        let (mut world, disk, ways) = labelled(3, json!({}));
        world.verb("multipath", "configure", "m", json!({ mode: true })).expect("configured");
        ways[0].in_transition(true);
        let open = world.open("multipath/m", Access::WRITE);
        let all: Vec<_> = (0..6).map(|i| begin_write(&world, &open, i * 512, 8)).collect();
        assert!(wait(&mut world, 2000, || all.iter().all(|o| result_of(o).is_some())), "{mode}");
        assert!(all.iter().all(|o| result_of(o) == Some(Ok(()))), "{mode}");
        settle(&mut world);
        assert!(disk.bytes()[..6 * 512].iter().all(|b| *b == 8));
        assert_eq!(states(&world)[0], "d0 TRANSITION", "{mode}");
        assert_eq!((state(&world).as_str(), ways[0].held()), ("DEGRADED", 0));
        // The path is not tried again.
        ways[0].seen(Op::Write);
        for _ in 0..6 {
            world.write(&open, 0, &[9; 512]).expect("by another");
        }
        assert_eq!(ways[0].seen(Op::Write), 0, "{mode}");
        // Status reports the transition and requests no action.
        let view = world.control.topology.view(0);
        let m = view.iter().find(|g| g.name == "m" && !g.withering).expect("it is there");
        let reasons: Vec<&str> = m.troubles.iter().map(|t| t.why.as_str()).collect();
        assert_eq!(reasons, ["path d0 is in transition: requests sent over it would wait"]);
        ways[0].in_transition(false);
        left.push((world, open));
    }
    // It is not for ever, whether there is a checker or not.
    for (mut world, open) in left {
        assert!(
            world.control.wait_until(Duration::from_secs(20), is_optimal),
            "{:?}",
            states(&world)
        );
        assert!(!states(&world)[0].ends_with("TRANSITION"), "{:?}", states(&world));
        world.close(open);
    }
}

#[test]
fn a_path_in_transition_is_probed_again_by_one_request() {
    let (mut world, _, ways) = labelled(2, json!({}));
    ways[0].in_transition(true);
    write(&mut world, 0, 1).expect("by the other");
    world.control.wait_until(Duration::from_millis(5500), |_| false);
    assert_eq!(ways[0].held(), 1, "a look has no other way: it waits");
    assert_eq!(states(&world), ["d0 TRANSITION", "d1 ACTIVE"]);
    ways[0].release(&world);
    settle(&mut world);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
}

#[test]
fn a_request_waits_on_the_last_good_path_in_transition() {
    for mode in MODES {
        let (mut world, _, ways) = labelled(3, json!({}));
        world.verb("multipath", "configure", "m", json!({ mode: true })).expect("configured");
        let open = world.open("multipath/m", Access::WRITE);
        ways.iter().for_each(|way| way.in_transition(true));
        let one = begin_write(&world, &open, 0, 7);
        assert!(wait(&mut world, 2000, || ways.iter().any(|way| way.held() > 0)), "{mode}");
        settle(&mut world);
        assert_eq!((result_of(&one), ways.iter().map(Way::held).sum::<usize>()), (None, 1));
        let words = states(&world).join(" ");
        assert_eq!(words.matches("TRANSITION").count(), 2, "{mode}: {words}");
        ways.iter().for_each(|way| way.release(&world));
        assert!(wait(&mut world, 2000, || result_of(&one) == Some(Ok(()))), "{mode}");
        world.close(open);
    }
}

#[test]
fn requests_return_without_fail_fast_when_the_other_paths_fail() {
    for (mode, queue) in MODES.into_iter().flat_map(|mode| [(mode, 0), (mode, 60)]) {
        let (mut world, disk, ways) = labelled(2, json!({}));
        let params = json!({ mode: true, "queue": queue, "checker": queue / 30 });
        world.verb("multipath", "configure", "m", params).expect("configured");
        let open = world.open("multipath/m", Access::WRITE);
        ways[0].in_transition(true);
        world.verb("multipath", "prefer", "m", json!({ "member": "d0" })).expect("preferred");
        ways[1].fails(Some(Errno::NxIo));
        let all: Vec<_> = (0..4).map(|i| begin_write(&world, &open, i * 512, 4)).collect();
        assert!(wait(&mut world, 2000, || ways[0].held() >= 4), "{mode} {}", ways[0].held());
        settle(&mut world);
        assert_eq!(states(&world), ["d0 ACTIVE", "d1 FAIL"], "{mode}");
        ways[0].release(&world);
        assert!(
            wait(&mut world, 2000, || all.iter().all(|o| result_of(o) == Some(Ok(())))),
            "{mode}"
        );
        assert!(disk.bytes()[..4 * 512].iter().all(|b| *b == 4));
        world.close(open);
    }
}

/// L3 of multipath/layer.rs.
#[test]
fn a_request_that_fails_on_every_path_ends() {
    for queue in [0, 60] {
        let (mut world, _, ways) = labelled(2, json!({}));
        world.verb("multipath", "configure", "m", json!({ "queue": queue })).expect("configured");
        let open = world.open("multipath/m", Access::WRITE);
        // It reports that to every request, and the other one has a medium error.
        ways[0].in_transition(true);
        ways[1].fails(Some(Errno::Io));
        let one = begin_write(&world, &open, 0, 4);
        assert!(wait(&mut world, 2000, || ways[0].held() == 1));
        ways[0].fails(Some(Errno::Io));
        ways[0].release(&world);
        assert!(
            wait(&mut world, 2000, || result_of(&one) == Some(Err(Errno::Io))),
            "{:?}",
            result_of(&one)
        );
        world.close(open);
    }
}

/// Without another path no request is marked fail-fast, and EAGAIN would be the request's own
/// error.
#[test]
fn fail_fast_is_set_only_while_another_path_is_good() {
    let (mut world, _, ways) = labelled(2, json!({}));
    ask(&mut world, "fail", "d1").expect("failed");
    let open = world.open("multipath/m", Access::WRITE);
    ways[0].in_transition(true);
    let one = begin_write(&world, &open, 0, 4);
    assert!(wait(&mut world, 2000, || ways[0].held() == 1));
    ways[0].release(&world);
    assert!(wait(&mut world, 2000, || result_of(&one) == Some(Ok(()))));
    world.close(open);
    ways[0].fails(Some(Errno::Again));
    assert_eq!(write(&mut world, 0, 1), Err(Errno::Again));
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 FAIL"]);
}

#[test]
fn a_path_in_transition_can_be_restored_or_failed_by_hand() {
    let (mut world, _, ways) = labelled(2, json!({}));
    ways[0].in_transition(true);
    write(&mut world, 0, 1).expect("by the other");
    assert!(ask(&mut world, "prefer", "d0").is_err(), "it is not good");
    ask(&mut world, "restore", "d0").expect("restored");
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
    ask(&mut world, "prefer", "d0").expect("preferred");
    write(&mut world, 0, 1).expect("by the other");
    assert_eq!(states(&world), ["d0 TRANSITION", "d1 ACTIVE"]);
    ask(&mut world, "fail", "d0").expect("failed");
    assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"]);
}
