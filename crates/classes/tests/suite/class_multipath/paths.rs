//! Paths that fail, recover, are added and leave; how requests are spread over them.

use bio::{Errno, Op};
use geom::{Access, Redeclare};
use serde_json::{Value, json};

use super::fixture::*;
use crate::world::World;

#[test]
fn misc_add_a_path_by_hand() {
    let mut world = World::new();
    let one = disk(vec![0; MIB]);
    for name in ["d0", "d1", "d2"] {
        way(&mut world, name, &one);
    }
    world.verb("multipath", "create", "m", json!({ "members": ["d0"] })).expect("created");
    assert_eq!((states(&world), state(&world).as_str()), (vec!["d0 ACTIVE".into()], "DEGRADED"));
    ask(&mut world, "add", "d1").expect("added");
    ask(&mut world, "add", "d2").expect("added");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 PASSIVE"]);
    assert_eq!(state(&world), "OPTIMAL");
    assert_eq!(shown_values(&world, "PhysicalPath"), ["d0 bay/d0", "d1 bay/d1", "d2 bay/d2"]);
    assert_eq!(world.show("multipath", "m", "Type"), ["MANUAL"]);
    assert_eq!(world.size("multipath/m"), MIB as u64, "nothing is kept for a label");
    assert_eq!(ask(&mut world, "add", "d2").expect_err("twice").kind, Errno::Exist);
    assert!(one.bytes().iter().all(|b| *b == 0), "nothing was written");
}

#[test]
fn misc_create_in_every_mode() {
    for (flag, mode, words) in [
        ("passive", "Active/Passive", ["d0 ACTIVE", "d1 PASSIVE"]),
        ("active", "Active/Active", ["d0 ACTIVE", "d1 ACTIVE"]),
        ("read", "Active/Read", ["d0 ACTIVE", "d1 READ"]),
    ] {
        let mut world = World::new();
        let one = disk(vec![0; MIB]);
        way(&mut world, "d0", &one);
        way(&mut world, "d1", &one);
        let mut params = json!({ "members": ["d0", "d1"] });
        params[flag] = json!(true);
        let given = world.verb("multipath", "create", "m", params);
        given.expect("created");
        assert_eq!(world.show("multipath", "m", "Mode"), [mode]);
        assert_eq!(states(&world), words);
        assert_eq!(state(&world), "OPTIMAL");
    }
}

/// Without a label nothing else keeps two disks from being written as one.
#[test]
fn create_refuses_paths_that_lead_to_different_disks() {
    let filled = |first: u8, last: u8, len: usize| {
        let mut bytes = vec![0; len];
        (bytes[0], bytes[len - 1]) = (first, last);
        disk(bytes)
    };
    for (serial, other, says) in [
        ("serial-1", filled(1, 1, 2 * MIB), "bytes in sectors of 512"),
        ("serial-2", filled(1, 1, MIB), "serial number serial-2"),
        ("serial-1", filled(2, 1, MIB), "first sectors differ"),
        ("serial-1", filled(1, 2, MIB), "last sectors differ"),
    ] {
        let mut world = World::new();
        let one = filled(1, 1, MIB);
        way(&mut world, "d0", &one);
        way(&mut world, "d1", &one);
        world.attach_as("d2", serial, &other, 512, (0, 0));
        let create = json!({ "members": ["d0", "d1", "d2"] });
        let refused = world.verb("multipath", "create", "m", create).expect_err("another disk");
        assert_eq!(refused.kind, Errno::Inval, "{refused}");
        let message = &refused.message;
        assert!(message.contains("d2 leads to another disk than d0"), "{message}");
        assert!(message.contains(says), "{message}");
        assert!(!world.has("multipath/m"));
        world.verb("multipath", "create", "m", json!({ "members": ["d0", "d1"] })).expect("one");
    }
    // Disks without a serial number get one from their place, which differs from path to path.
    let mut world = World::new();
    let one = disk(vec![0; MIB]);
    for (name, serial) in [("d0", "0123456789abcdef"), ("d1", "fedcba9876543210")] {
        world.attach_as(name, serial, &one, 512, (0, 0));
    }
    world.verb("multipath", "create", "m", json!({ "members": ["d0", "d1"] })).expect("one disk");
}

#[test]
fn misc_a_path_departs_and_arrives() {
    let (mut world, disk, _) = labelled(2, json!({}));
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
    world.lose("d0");
    assert_eq!((states(&world), state(&world).as_str()), (vec!["d1 ACTIVE".into()], "DEGRADED"));
    write(&mut world, 0, 7).expect("by the other");
    way(&mut world, "d0", &disk);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.lose("d1");
    assert_eq!(read(&mut world, 0), Ok(vec![7; 512]));
    world.lose("d0");
    assert!(!world.has("multipath/m"), "gone with its last path");
    way(&mut world, "d5", &disk);
    assert_eq!(states(&world), ["d5 ACTIVE"], "and back with any");
}

#[test]
fn misc_fail_restore_prefer_rotate_getactive() {
    let (mut world, _, _) = labelled(3, json!({}));
    ask(&mut world, "fail", "d0").expect("failed");
    assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE", "d2 PASSIVE"]);
    assert_eq!(state(&world), "DEGRADED");
    ask(&mut world, "restore", "d0").expect("restored");
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE", "d2 PASSIVE"]);
    ask(&mut world, "prefer", "d0").expect("preferred");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 PASSIVE"]);
    for active in ["d1", "d2", "d0"] {
        world.verb("multipath", "rotate", "m", json!({})).expect("rotated");
        let answer = world.verb("multipath", "getactive", "m", json!({})).expect("active");
        assert_eq!(answer["active"], json!([active]));
    }
    ask(&mut world, "fail", "d1").expect("failed");
    let refused = ask(&mut world, "prefer", "d1").expect_err("not good");
    assert!(refused.message.contains("restore m d1"), "{refused}");
    for verb in ["fail", "restore", "prefer", "remove"] {
        assert_eq!(ask(&mut world, verb, "d9").expect_err("no path").kind, Errno::NoEnt);
    }
    let mut active = |mode: &str| {
        world.verb("multipath", "configure", "m", json!({ mode: true })).expect("configured");
        world.verb("multipath", "getactive", "m", json!({})).expect("active")
    };
    assert_eq!(active("active")["message"], "d0 d2", "all that requests go by");
    assert_eq!(active("read")["message"], "d0");
}

#[test]
fn misc_getactive_reports_none_while_requests_wait_for_a_path() {
    let (mut world, _, ways) = labelled(1, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 60 })).expect("configured");
    ways[0].fails(Some(Errno::NxIo));
    ask(&mut world, "fail", "d0").expect("failed");
    let answer = world.verb("multipath", "getactive", "m", json!({})).expect("an answer");
    assert_eq!((&answer["message"], &answer["active"]), (&json!("none"), &json!([])));
}

#[test]
fn misc_fail_on_error() {
    for (mode, error) in [("passive", Errno::Io), ("active", Errno::NxIo), ("read", Errno::Io)] {
        let (mut world, disk, ways) = labelled(2, json!({ mode: mode != "passive" }));
        ways[0].fails(Some(error));
        let _ = (ways[0].seen(Op::Write), ways[0].seen(Op::Read));
        for at in 0..4 {
            write(&mut world, at * 512, 9).expect("by the other");
            assert_eq!(read(&mut world, at * 512), Ok(vec![9; 512]));
        }
        assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"], "{mode}");
        assert_eq!(state(&world), "DEGRADED");
        assert_eq!(ways[0].seen(Op::Write) + ways[0].seen(Op::Read), 1, "asked once");
        assert!(disk.bytes()[..2048].iter().all(|b| *b == 9));
    }
}

#[test]
fn misc_restore_on_error_when_all_have_failed() {
    let (mut world, _, ways) = labelled(3, json!({}));
    ask(&mut world, "fail", "d0").expect("failed");
    ask(&mut world, "fail", "d1").expect("failed");
    ways[2].fails(Some(Errno::Io));
    write(&mut world, 0, 1).expect("by one that had failed before");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 FAIL"]);
    // By hand too: the last good one takes the others back.
    for name in ["d0", "d1"] {
        ask(&mut world, "fail", name).expect("failed");
    }
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 FAIL", "d2 PASSIVE"]);
}

#[test]
fn misc_physpath_and_other_properties_of_the_disk() {
    let (mut world, _, _) = labelled(2, json!({}));
    let text = |w: &World, name: &str| w.text("multipath/m", name).unwrap_or_default();
    assert_eq!(text(&world, "GEOM::physpath"), "bay/d0/mp");
    assert_eq!(text(&world, "GEOM::ident"), "serial-1");
    assert_eq!(text(&world, "GEOM::rotation_rate"), "7200");
    assert_eq!(text(&world, "GEOM::candelete"), "1");
    assert_eq!(text(&world, "GEOM::deletereadszero"), "1");
    assert_eq!(world.control.topology.stripe(world.find("multipath/m")), (4096, 512));
    world.lose("d0");
    assert_eq!(text(&world, "GEOM::physpath"), "bay/d1/mp", "the way that is left");
}

#[test]
fn failloop_a_persistent_error_ends_and_restores_no_failed_path() {
    for mode in ["passive", "active", "read"] {
        let (mut world, _, ways) = labelled(2, json!({ mode: mode != "passive" }));
        write(&mut world, 0, 5).expect("well");
        let reads = |ways: &[Way]| ways.iter().map(|w| w.seen(Op::Read)).collect::<Vec<_>>();
        reads(&ways);
        ways.iter().for_each(|w| w.fails(Some(Errno::Io)));
        assert_eq!(read(&mut world, 0), Err(Errno::Io));
        assert_eq!(reads(&ways), [1, 1], "{mode}: each once");
        assert_eq!(states(&world), ["d0 FAIL", "d1 FAIL"]);
        assert_eq!(state(&world), "BROKEN");
        for _ in 0..3 {
            assert_eq!(read(&mut world, 0), Err(Errno::Io));
            assert_eq!(reads(&ways), [1, 1], "{mode}: each once");
        }
        // Not for ever: a path that works again is used again, without an operator.
        ways[1].fails(None);
        assert_eq!(read(&mut world, 0), Ok(vec![5; 512]));
        assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"]);
    }
}

#[test]
fn a_single_path_is_tried_once_and_stays_active() {
    let (mut world, _, ways) = labelled(1, json!({}));
    ways[0].seen(Op::Read);
    ways[0].fails(Some(Errno::NxIo));
    assert_eq!(read(&mut world, 0), Err(Errno::NxIo));
    assert_eq!(ways[0].seen(Op::Read), 1);
    assert_eq!(states(&world), ["d0 ACTIVE"]);
}

#[test]
fn a_path_that_times_out_or_fails_itself_is_left_for_another() {
    for error in [Errno::TimedOut, Errno::RemoteIo] {
        let (mut world, _, ways) = labelled(2, json!({}));
        ways[0].fails(Some(error));
        ways[1].seen(Op::Write);
        assert_eq!(write(&mut world, 0, 1), Ok(()), "{error:?}");
        assert_eq!(ways[1].seen(Op::Write), 1, "{error:?}");
        assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"], "{error:?}");
    }
}

#[test]
fn other_errors_end_the_request_and_keep_the_path_active() {
    let (mut world, _, ways) = labelled(2, json!({}));
    for error in [Errno::NoSpc, Errno::Inval, Errno::NotSup, Errno::Conflict] {
        ways[0].fails(Some(error));
        ways[1].seen(Op::Write);
        assert_eq!(write(&mut world, 0, 1), Err(error));
        assert_eq!(ways[1].seen(Op::Write), 0);
        assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
    }
}

#[test]
fn requests_are_distributed_according_to_the_mode() {
    for (mode, reads, writes) in
        [("passive", [9, 0], [9, 0]), ("active", [5, 4], [5, 4]), ("read", [5, 4], [9, 0])]
    {
        let (mut world, _, ways) = labelled(2, json!({ mode: mode != "passive" }));
        let open = world.open("multipath/m", Access::WRITE);
        let counts = |op| {
            let mut counts = [ways[0].seen(op), ways[1].seen(op)];
            counts.sort_by(|a, b| b.cmp(a));
            counts
        };
        let _ = (counts(Op::Read), counts(Op::Write));
        for _ in 0..9 {
            world.read(&open, 0, 512).expect("read");
        }
        assert_eq!(counts(Op::Read), reads, "{mode}");
        for _ in 0..9 {
            world.write(&open, 0, &[1; 512]).expect("written");
        }
        assert_eq!(counts(Op::Write), writes, "{mode}");
        world.close(open);
    }
}

#[test]
fn the_path_with_the_fewest_requests_in_flight_is_used() {
    let (mut world, _, ways) = labelled(2, json!({ "active": true }));
    let open = world.open("multipath/m", Access::WRITE);
    ways[0].holds();
    let all: Vec<Outcome> = (0..8).map(|i| begin_write(&world, &open, i * 512, 1)).collect();
    assert!(wait(&mut world, 2000, || all.iter().filter(|o| result_of(o).is_some()).count() == 7));
    assert_eq!(ways[0].held(), 1, "one hangs there, and nobody queues behind it");
    ways[0].release(&world);
    assert!(wait(&mut world, 2000, || all.iter().all(|o| result_of(o) == Some(Ok(())))));
    world.close(open);
}

/// M2 of multipath/geom.rs.
#[test]
fn paths_removed_with_requests_in_flight_lose_no_request() {
    for by_hand in [true, false] {
        let (mut world, disk, ways) = labelled(2, json!({}));
        let open = world.open("multipath/m", Access::WRITE);
        ways[0].holds();
        let all: Vec<Outcome> = (0..8).map(|i| begin_write(&world, &open, i * 512, 3)).collect();
        assert!(wait(&mut world, 2000, || ways[0].held() == 8));
        // They end there, with an error, while the path is about to leave.
        let (late, notifier) = (ways[0].clone(), world.control.topology.notifier());
        notifier.call(
            0,
            Box::new(move |core| {
                let core = core.clone();
                core.reactor().clone().spawn("a test", async move {
                    core.reactor().sleep(100_000_000).await;
                    let held = {
                        let mut state = late.state.lock().expect("state");
                        (state.holds, state.error) = (false, Some(Errno::NxIo));
                        std::mem::take(&mut state.held)
                    };
                    for ticket in held {
                        core.restart(ticket);
                    }
                });
            }),
        );
        if by_hand {
            ask(&mut world, "remove", "d0").expect("removed");
        } else {
            world.lose("d0");
        }
        assert!(wait(&mut world, 2000, || all.iter().all(|o| result_of(o) == Some(Ok(())))));
        assert!(disk.bytes()[..4096].iter().all(|b| *b == 3));
        settle(&mut world);
        assert_eq!(states(&world), ["d1 ACTIVE"]);
        world.close(open);
        if by_hand {
            ways[0].fails(None);
            let on = world.find("d0");
            look_again(&mut world, on);
            assert!(world.taste_outcome("d0", "multipath").contains("removed by hand"));
            ask(&mut world, "add", "d0").expect("added");
            assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
            ask(&mut world, "remove", "d1").expect("removed");
            assert_eq!(ask(&mut world, "remove", "d0").expect_err("last").kind, Errno::Busy);
        }
    }
}

/// The second removal of the change fails: a device keeps its last path.
#[test]
fn failed_change_of_declared_paths_is_undone() {
    let mut world = World::new();
    let disk = disk(vec![0; MIB]);
    for name in ["d0", "d1"] {
        way(&mut world, name, &disk);
    }
    let create = json!({ "members": ["d0", "d1"] });
    world.verb("multipath", "create", "m", create).expect("made");
    let paths = |world: &World| -> Vec<String> {
        states(world).iter().filter_map(|path| Some(path.split_once(' ')?.0.to_owned())).collect()
    };
    let class = world.control.topology.class("multipath").expect("the class");
    let from = paths(&world);
    assert_eq!(from, ["d0", "d1"]);
    let request = Redeclare { name: "m", from: &from, to: &[], params: &json!({}) };
    let error = class.redeclare(&mut world.control, &request, &[]).expect_err("the last path");
    assert_eq!(error.kind, Errno::Busy, "{error}");
    assert!(!error.message.contains("in part"), "{error}");
    settle(&mut world);
    assert_eq!(paths(&world), ["d0", "d1"]);
}

/// Paths of a device that the configuration declares, changed while a consumer uses it.
#[test]
fn declared_paths_change_under_an_open_consumer() {
    let mut world = World::new();
    let disk = disk(vec![0; MIB]);
    for name in ["d0", "d1", "d2"] {
        way(&mut world, name, &disk);
    }
    world.disk("small", vec![0; MIB / 2], 512);
    let create = json!({ "members": ["d0", "d1"] });
    world.verb("multipath", "create", "m", create).expect("made");
    let open = world.open("multipath/m", Access::WRITE);
    world.write(&open, 0, &[1; 512]).expect("written");
    let class = world.control.topology.class("multipath").expect("the class");
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let redeclare = |world: &mut World, from: &[&str], to: &[&str], params: Value| {
        let (from, to) = (own(from), own(to));
        assert!(class.can_replace_members(&from, &to));
        let request = Redeclare { name: "m", from: &from, to: &to, params: &params };
        let foreseen = class.check_redeclare(&mut world.control, &request);
        let done = class.redeclare(&mut world.control, &request, &[]);
        assert_eq!(foreseen.is_ok(), done.is_ok(), "{foreseen:?} {done:?}");
        settle(world);
        done
    };
    let active = json!({ "mode": "active" });
    redeclare(&mut world, &["d0", "d1"], &["d1", "d2"], active).expect("changed");
    assert_eq!(states(&world), ["d1 ACTIVE", "d2 ACTIVE"]);
    world.write(&open, 0, &[2; 512]).expect("it is still open");
    assert_eq!(disk.bytes()[0], 2);
    let refused = redeclare(&mut world, &["d1", "d2"], &["d1", "small"], json!({}));
    assert!(refused.expect_err("another disk").message.contains("it is not the same disk"));
    assert_eq!(states(&world), ["d1 ACTIVE", "d2 ACTIVE"]);
    assert!(!class.can_replace_members(&own(&["d1"]), &own(&["d0"])), "no path would be left");
    world.close(open);
}
