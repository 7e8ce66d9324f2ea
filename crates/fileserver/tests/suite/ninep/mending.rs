//! An interactive repair shuts all clients out, from before its first look until its end.

use serde_json::{Value, json};

use super::plant::{Plant, VerbResult};

const OUT: &str = "system maintenance";

/// Who may attach at other times.
const ALL: [&str; 2] = ["none", "ann"];

/// A server with something for each option of a repair to do, and without clients.
fn spoilt(seed: u64, is_image: bool) -> Plant {
    let mut plant = Plant::new(seed, is_image);
    plant.verb("newuser", json!({ "user": "ann" })).unwrap();
    let create = |path: &str, letters: &str| {
        json!({
            "path": path, "user": "ann", "group": "ann", "perm": "775", "letters": [letters],
        })
    };
    let all = [("/d", "d"), ("/d/x", ""), ("/t", "t"), ("/s", "d"), ("/s/t", "t")];
    for (path, letters) in all {
        plant.verb("create", create(path, letters)).unwrap();
    }
    plant.verb("clri", json!({ "paths": ["/d"] })).unwrap();
    // The blocks that it checks must be read from the disks.
    for verb in ["halt", "start"] {
        plant.verb(verb, Value::Null).unwrap();
    }
    check_all_admitted(&mut plant, "before it");
    // They leave.
    while plant.verb("who", Value::Null).unwrap()["text"] != "no clients\n" {}
    plant
}

/// Name of a check whose repair is over.
const BEHIND: &str = "check of the live tree";

/// Continues with a repair until it waits at a disk. False: it is over, well or not, with any
/// result of the check behind it.
fn waits(plant: &mut Plant, mend: &mut VerbResult) -> bool {
    let is_over = |answer: &Value| answer["unfinished"]["what"] == BEHIND;
    plant.go_on("check", mend, |plant, answer| plant.holds_some() || is_over(answer));
    mend.as_ref().is_ok_and(|answer| answer.get("unfinished").is_some() && !is_over(answer))
}

/// Begins a repair with all its options while requests are kept waiting.
fn begin(plant: &mut Plant) -> VerbResult {
    plant.hold(true);
    plant.begin("check", json!({ "fix": true, "rtmp": true, "rdall": true }))
}

fn check_all_refused(plant: &mut Plant, when: &str) {
    for user in ALL {
        assert_eq!(plant.visit(user), Err(OUT.into()), "{user} {when}");
    }
}

fn check_all_admitted(plant: &mut Plant, when: &str) {
    for user in ALL {
        assert_eq!(plant.visit(user), Ok(()), "{user} {when}");
    }
}

#[test]
fn attach_is_refused_at_every_step_of_a_repair_and_allowed_after_it() {
    for is_image in [false, true] {
        let mut plant = spoilt(1, is_image);
        let mut mend = begin(&mut plant);
        let mut requests = 0;
        while waits(&mut plant, &mut mend) {
            requests += 1;
            let when = format!("at request {requests}, image: {is_image}");
            check_all_refused(&mut plant, &when);
            // A refused second repair does not admit clients.
            let other = plant.verb("check", json!({ "fix": true })).unwrap_err();
            assert!(other.message.contains("another check is running"), "{}", other.message);
            check_all_refused(&mut plant, &when);
            plant.let_go();
        }
        assert!(requests > 1, "{requests} requests, image: {is_image}");
        check_all_admitted(&mut plant, "behind it");
        plant.hold(false);
        let done = plant.end("check", mend).unwrap();
        let mended = done["mended"].to_string();
        assert!(mended.contains("/s/t is removed") && done["faults"] == 0, "{done}");
        check_all_admitted(&mut plant, "in the end");
    }
}

#[test]
fn attach_is_allowed_after_a_repair_that_failed_at_any_step() {
    for is_image in [false, true] {
        let mut fails = 0;
        loop {
            let mut plant = spoilt(2, is_image);
            let mut mend = begin(&mut plant);
            let mut is_there = waits(&mut plant, &mut mend);
            for _ in 0..fails {
                plant.let_go();
                is_there = waits(&mut plant, &mut mend);
            }
            if !is_there {
                break;
            }
            let when = format!("request {fails} fails, image: {is_image}");
            check_all_refused(&mut plant, &when);
            plant.fail(true);
            plant.hold(false);
            let why = plant.end("check", mend).unwrap_err();
            assert!(why.message.contains("check --"), "{when}: {}", why.message);
            plant.fail(false);
            check_all_admitted(&mut plant, &when);
            fails += 1;
        }
        assert!(fails > 1, "{fails} requests, image: {is_image}");
    }
}
