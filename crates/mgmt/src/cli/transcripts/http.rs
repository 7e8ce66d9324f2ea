//! Routes of the API: answers, refusals, and events that are resumed.

use super::*;

#[test]
fn http_routes_answer_or_report_not_found() {
    let daemon = Daemon::start();
    busy(&daemon);
    let client = daemon.client();
    assert_eq!(client.get("/v1/state").expect("a state")["schema_version"], 1);
    let document = client.get("/openapi.json").expect("a document");
    assert_eq!(document["openapi"], "3.1.0");
    let printed: Value = serde_json::from_str(&daemon.run_line("openapi").out).expect("JSON");
    assert_eq!(printed, document);
    let answer = |verb: &str| {
        let responses = &document["paths"][format!("/v1/verbs/toy.{verb}")]["post"]["responses"];
        responses["200"]["content"]["application/json"]["schema"]["$ref"].clone()
    };
    assert_eq!(answer("label"), "#/components/schemas/MessageAnswer");
    assert_eq!(answer("status"), "#/components/schemas/GeomListing");
    let any = &document["components"]["schemas"]["GeomAnswer"]["properties"]["answer"];
    assert_eq!(any["$ref"], "#/components/schemas/ClassVerbAnswer");
    let metrics = String::from_utf8(client.text("/metrics").expect("a page")).expect("text");
    assert!(metrics.contains("ashlar_target_sessions{target=\"iqn.a:t\",driver=\"iscsi\"} 1"));
    assert_eq!(client.get("/nowhere").expect_err("404").kind, Kind::NotFound);
    let lost = client.verb("nowhere", &json!({}), &mut |_| {}).expect_err("404");
    assert_eq!(lost.kind, Kind::UnknownVerb);
    let local = client.verb("doctor", &json!({}), &mut |_| {}).expect_err("not the daemon's");
    assert_eq!(local.kind, Kind::UnknownVerb);
    let wrong = client.verb("plan", &json!({ "file": 3 }), &mut |_| {}).expect_err("a number");
    assert_eq!(wrong.kind, Kind::Usage);
    let mut lines = Vec::new();
    // Another disk behind a LUN that a host uses.
    let more = FIRST.replace("\"d0\"", "\"d1\"").replace("/srv/d0", "/srv/d1");
    let params = json!({ "document": more });
    let refused = client.verb("apply", &params, &mut |_| {}).expect_err("a swap");
    assert_eq!(refused.kind, Kind::WouldDestroy);
    let params = json!({ "document": more, "yes_destroy": ["iqn.a:t/hosts"] });
    client.verb("apply", &params, &mut |line| lines.push(line)).expect("applied");
    assert!(lines.iter().any(|l| l.total > 0 && l.done == l.total), "{lines:?}");
    let done: Vec<u64> = lines.iter().filter(|l| l.total > 0).map(|l| l.done).collect();
    assert!(done.is_sorted(), "{done:?}");
}

/// A15.
#[test]
fn class_verb_by_its_own_path_is_the_call_of_geom() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let params = json!({ "name": "data", "providers": ["d0", "d1"] });
    let own = client.verb("toy.label", &params, &mut |_| {}).expect("an answer");
    assert_eq!(own, json!({ "class": "toy", "verb": "label", "params": params }));
    let call = json!({ "class": "toy", "verb": "label", "value": params });
    let general = client.verb("geom", &call, &mut |_| {}).expect("an answer");
    assert_eq!(general["answer"], own);
    // Without progress the answer is the body.
    let body = "{\"names\":[\"d0\"]}";
    let request = format!(
        "POST /v1/verbs/toy.list HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = raw(&daemon, request.as_bytes());
    assert!(text.contains("\r\n\r\n{\"class\":\"toy\","), "{text}");
    let audit = client.verb("audit", &json!({}), &mut |_| {}).expect("the log").to_string();
    assert!(audit.contains("\"what\":\"geom\"") && !audit.contains("toy.label"), "{audit}");
    let list = client.verb("toy.label", &json!(["data"]), &mut |_| {}).expect_err("a list");
    assert_eq!(list.kind, Kind::Usage);
    let none = client.verb("toy.forget", &json!({}), &mut |_| {}).expect_err("no such verb");
    assert_eq!(none.kind, Kind::UnknownVerb);
}

/// Sends raw bytes to the socket; returns the answer within the daemon's patience.
pub(super) fn raw(daemon: &Daemon, bytes: &[u8]) -> String {
    use std::io::Read;
    let path = daemon.folder.join("a.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(path).expect("connected");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("a timeout");
    stream.write_all(bytes).expect("sent");
    let mut out = vec![0; 64 * 1024];
    let mut have = 0;
    while let Ok(n) = stream.read(&mut out[have..]) {
        have += n;
        let text = String::from_utf8_lossy(&out[..have]);
        if n == 0 || text.contains("\"id\":3") || text.contains("error") {
            break;
        }
    }
    String::from_utf8_lossy(&out[..have]).into_owned()
}

#[test]
fn event_stream_resumes_after_an_event_id() {
    let daemon = Daemon::start();
    let text = raw(&daemon, b"GET /v1/events?after=1 HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(text.contains("text/event-stream"), "{text}");
    assert!(text.contains("id: 2\n") && text.contains("id: 3\n"), "{text}");
    assert!(!text.contains("id: 1\n"), "{text}");
}

#[test]
fn event_stream_after_a_restart_begins_with_the_first_event() {
    let daemon = Daemon::start();
    let request = b"GET /v1/events HTTP/1.1\r\nhost: a\r\nlast-event-id: 900\r\n\r\n";
    let text = raw(&daemon, request);
    assert!(text.contains("id: 1\n") && text.contains("id: 3\n"), "{text}");
}

#[test]
fn wrong_method_of_a_route_is_answered_with_the_right_one() {
    let daemon = Daemon::start();
    for (method, path, allowed) in [
        ("POST", "/v1/state", "GET"),
        ("PUT", "/metrics", "GET"),
        ("DELETE", "/v1/events", "GET"),
        ("GET", "/v1/verbs/status", "POST"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let text = raw(&daemon, request.as_bytes());
        assert!(text.starts_with("HTTP/1.1 405 "), "{method} {path}: {text}");
        assert!(text.contains(&format!("\r\nallow: {allowed}\r\n")), "{method} {path}: {text}");
        assert!(text.contains("\"kind\":\"wrong_method\""), "{method} {path}: {text}");
    }
    let text = raw(&daemon, b"POST /nowhere HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 404 ") && text.contains("not_found"), "{text}");
}

#[test]
fn bad_requests_do_not_disturb_other_clients() {
    let daemon = Daemon::start();
    assert!(raw(&daemon, b"\x00\x01garbage\r\n\r\n").contains("400"));
    let bad = b"POST /v1/verbs/plan HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 5\r\n\r\n{{{{{";
    let text = raw(&daemon, bad);
    assert!(text.contains("400 Bad Request") && text.contains("\"kind\":\"usage\""), "{text}");
    let huge = b"POST /v1/verbs/plan HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n";
    let text = raw(&daemon, huge);
    assert!(text.contains("429") && text.contains("\"kind\":\"limit\""), "{text}");
    let large = b"POST /v1/verbs/geom HTTP/1.1\r\nhost: a\r\ncontent-length: 262145\r\n\r\n";
    let text = raw(&daemon, large);
    assert!(text.contains("429") && text.contains("at most 262144"), "{text}");
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(100_000));
    assert!(raw(&daemon, long.as_bytes()).contains("414"));
    assert_eq!(daemon.run_line("status").exit, Exit::Done);
}
