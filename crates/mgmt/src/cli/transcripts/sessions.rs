//! The end of sessions on the command line.

use super::busy;
use super::daemon::Daemon;
use crate::api::{Exit, SessionEnd, SessionState, TargetState};
use crate::auth::{Call, changes};
use crate::verbs;
use serde_json::{Value, json};

#[test]
fn session_is_ended_only_with_consent() {
    let daemon = Daemon::start();
    busy(&daemon);
    assert_eq!(
        daemon.expect_exit("sessions end 7", Exit::Usage),
        "error[ASH-0001]: sessions end: session 7 of iqn.a:t: disruptive: iqn.h:one at \
         10.0.0.1:4000 uses LUN 0 (d0), 1 (m0); 0 commands run\n  next: Repeat the command with \
         --yes: ashlar sessions end 7 --yes.\n  more: ashlar explain ASH-0001\n"
    );
    let listed = daemon.expect_exit("sessions", Exit::Done);
    assert!(listed.contains("iqn.h:one") && listed.trim_end().ends_with("  7"), "{listed}");
    assert_eq!(
        daemon.expect_exit("sessions end 7 --yes", Exit::Done),
        "session 7 of iqn.h:one (10.0.0.1:4000) at iqn.a:t has ended; the host may log in again\n"
    );
    assert_eq!(daemon.expect_exit("sessions", Exit::Done), "no sessions\n");
    for id in ["7", "x"] {
        let error = daemon.expect_exit(&format!("sessions end {id}"), Exit::Failed);
        assert!(error.contains("ASH-0020") && error.contains(id), "{id}: {error}");
    }
    let audited = daemon.expect_exit("audit", Exit::Done);
    assert!(audited.contains("sessions.end") && audited.contains("done"), "{audited}");
}

#[test]
fn option_of_the_list_before_the_verb_is_refused() {
    let daemon = Daemon::start();
    busy(&daemon);
    daemon.expect_exit("sessions --denied end 7 --yes", Exit::Usage);
    daemon.expect_exit("sessions --target iqn.a:t", Exit::Done);
}

#[test]
fn session_that_has_no_login_cannot_be_ended() {
    let daemon = Daemon::start();
    let targets = [
        ("aoe", 8, SessionEnd::AccessGroup, "access group"),
        ("local", 9, SessionEnd::Detach, "ashlar detach"),
    ];
    let mut state = daemon.plant.extra_state();
    state.targets = targets
        .map(|(driver, id, session_end, _)| TargetState {
            driver: driver.to_owned(),
            name: format!("iqn.a:{driver}"),
            sessions: vec![SessionState { id, luns: vec![0], ..SessionState::default() }],
            session_end,
            ..TargetState::default()
        })
        .into();
    let text = "[[target]]\ndriver = 'iscsi'\nname = 'iqn.a:aoe'\nlisten = ['127.0.0.1:1']\n\
                [[target]]\ndriver = 'iscsi'\nname = 'iqn.a:local'\nlisten = ['127.0.0.1:2']\n";
    daemon.write("a.toml", text);
    daemon.expect_exit("apply @a.toml", Exit::Done);
    daemon.plant.set_extra(state);
    for (driver, id, _, words) in targets {
        let error = daemon.expect_exit(&format!("sessions end {id} --yes"), Exit::Failed);
        assert!(error.contains("ASH-0023") && error.contains(words), "{driver}: {error}");
    }
}

#[test]
fn end_of_a_session_answers_json_and_is_a_change() {
    let daemon = Daemon::start();
    busy(&daemon);
    let answer = daemon.expect_exit("sessions end 7 --yes --json", Exit::Done);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["id"], &answer["ended"]), (&json!(7), &json!(true)));
    assert_eq!(answer["risk"], "disruptive: iqn.h:one");
    let schema = (verbs::find("sessions.end").expect("a verb").answer)();
    for key in answer.as_object().expect("an object").keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
    assert!(changes(Call::Verb("sessions.end", &json!({ "id": "7" }))));
    assert!(!changes(Call::Verb("sessions", &Value::Null)));
}
