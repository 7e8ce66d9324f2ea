//! Samples of the last hour over the command line and the API.

use super::busy;
use super::daemon::Daemon;
use crate::api::Exit;
use serde_json::{Value, json};

#[test]
fn rates_of_an_object_are_shown_and_an_unknown_one_is_refused() {
    let daemon = Daemon::start();
    busy(&daemon);
    let text = daemon.expect_exit("rates d0", Exit::Done);
    assert!(text.starts_with("disk:d0: ") && text.contains("\nread "), "{text}");
    let json = daemon.expect_exit("rates lun:iqn.a:t/hosts/9 --json", Exit::Failed);
    let value: Value = serde_json::from_str(&json).expect("JSON also when it fails");
    assert_eq!(value["error"]["kind"], "not_found");
    let next = value["error"]["next"].as_str().expect("a next command");
    assert!(next.contains("ashlar tree"), "{next}");
    let params = json!({ "object": "part:d0" });
    let answer = daemon.client().verb("rates", &params, &mut |_| {});
    assert_eq!(answer.expect("an answer")["rates"]["object"], "part:d0");
}
