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

#[test]
fn top_prints_tables_of_a_tab_and_lines_of_json() {
    let daemon = Daemon::start();
    busy(&daemon);
    let text = daemon.expect_exit("top -b -n 2 --interval 1ms --tab initiators", Exit::Done);
    assert_eq!(text.matches("dT: ").count(), 2, "{text}");
    assert_eq!(text.matches("iqn.h:one 10.0.0.1 iqn.a:t").count(), 2, "{text}");
    let line = "top --json-lines -n 2 --interval 1ms --tab disks --sort name --reverse";
    let text = daemon.expect_exit(line, Exit::Done);
    let tables: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(tables.len(), 2, "{text}");
    for table in tables {
        let rows = table["rates"].as_array().expect("rows");
        let names: Vec<_> = rows.iter().map(|row| row["name"].as_str()).collect();
        assert_eq!(names, [Some("m0"), Some("d0")]);
    }
    let error = daemon.expect_exit("top --json-lines --csv", Exit::Usage);
    assert!(error.contains("exclude each other") && error.contains("next:"), "{error}");
}
