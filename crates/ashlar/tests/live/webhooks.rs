//! Webhooks: a server of the test receives events, refuses one attempt, and OpenSSL verifies the
//! signatures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rig::proc;
use serde_json::Value;

use crate::fixture::{Fixture, array, text};

const LIMIT: Duration = Duration::from_secs(60);

/// Exit code of a status with a degraded part, and of a command that is refused.
const DEGRADED: i32 = 3;
const FAILED: i32 = 1;

const KEY: &str = "0123456789abcdef";

/// A received request: the values of the `webhook-` fields by their names, and the body.
struct Request {
    fields: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn read(stream: &TcpStream) -> Request {
        let mut reader = BufReader::new(stream);
        let (mut fields, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.trim_end().is_empty() {
                    break;
                }
                continue;
            };
            let (name, value) = (name.to_lowercase(), value.to_owned());
            if name == "content-length" {
                length = value.parse().unwrap();
            }
            fields.push((name, value));
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        Request { fields, body: String::from_utf8(body).unwrap() }
    }

    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no field {name}: {:?}", self.fields)).1
    }

    fn event(&self) -> Value {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        body["data"].clone()
    }

    /// The signature of the request by OpenSSL.
    fn signature(&self) -> String {
        let (id, timestamp) = (self.field("webhook-id"), self.field("webhook-timestamp"));
        let script = format!("openssl dgst -sha256 -hmac {KEY} -binary | openssl base64 -A");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let signed = format!("{id}.{timestamp}.{}", self.body);
        child.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        format!("v1,{}", String::from_utf8(output.stdout).unwrap())
    }
}

/// A server that answers the first request with 503 and others with 204. It ends with the process.
fn server() -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let mut status = "503 Service Unavailable";
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = Request::read(&stream);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            status = "204 No Content";
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (port, received)
}

#[test]
fn webhook_delivers_signed_events_and_repeats_failed_attempts() {
    let mut fixture = Fixture::new("webhooks");
    fixture.secret("key", KEY);
    let (port, received) = server();
    let disk =
        |name: &str| format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\nsize = \"4MiB\"\n");
    let hook = format!(
        "[[webhook]]\nname = \"pager\"\nurl = \"http://127.0.0.1:{port}/hook\"\n\
         level = \"info\"\nevents = [\"extra\"]\nsecret = \"file:key\"\n"
    );
    fixture.configure(&disk("d0"), "0 = \"d0\"");
    fixture.start();
    fixture.configure(&format!("{}{hook}", disk("d0")), "0 = \"d0\"");
    fixture.ashlar(&["plan"]).prints(&["change webhooks", "safe"]);
    fixture.ok(&["apply"]);
    fixture.ok(&["export"]);
    let hooks = || array(&fixture.state()["webhooks"]).to_vec();
    fixture.until("the webhook is there", LIMIT, || !hooks().is_empty());

    fixture.configure(&format!("{}{}{hook}", disk("d0"), disk("extra")), "0 = \"d0\"");
    fixture.ok(&["apply"]);
    let first = received.recv_timeout(LIMIT).unwrap();
    let second = received.recv_timeout(LIMIT).unwrap();
    assert_eq!(first.field("webhook-id"), second.field("webhook-id"), "the same event");
    for request in [&first, &second] {
        assert_eq!(request.field("webhook-signature"), request.signature());
        assert_eq!(text(&request.event()["about"]), "extra", "{}", request.body);
    }
    fixture.until("the delivery is counted", LIMIT, || {
        hooks().iter().any(|hook| hook["delivered"].as_u64() >= Some(1) && hook["failure"] == "")
    });

    // A replaced secret is a step of the plan.
    fixture.secret("key", "another secret of the webhook");
    fixture.ashlar(&["plan"]).prints(&["read files of webhook pager anew", "safe"]);
    fixture.ok(&["apply"]);
    fixture.ashlar(&["plan"]).prints(&["no changes"]);

    // An unreachable server: the failure is reported, and the daemon continues.
    let free = proc::free_port().unwrap();
    let lost = hook.replace(&format!(":{port}/"), &format!(":{free}/"));
    fixture.configure(&format!("{}{}{lost}", disk("d0"), disk("extra")), "0 = \"d0\"");
    fixture.ok(&["apply"]);
    let server = format!("http://127.0.0.1:{free}");
    fixture.until("the address is used", LIMIT, || hooks().iter().any(|h| h["server"] == server));
    fixture.configure(&format!("{}{lost}", disk("d0")), "0 = \"d0\"");
    fixture.ok(&["apply", "--yes-destroy", "extra"]);
    let reports = || fixture.ashlar(&["status"]);
    fixture.until("the failure is reported", LIMIT, || reports().out.contains("webhook pager"));
    reports().ends(DEGRADED).prints(&["webhook pager", &server]);

    // A secret that cannot be read is refused before the first step.
    std::fs::remove_file(fixture.path("key")).unwrap();
    fixture.configure(&format!("{}{hook}", disk("d0")), "0 = \"d0\"");
    fixture.ashlar(&["plan"]).ends(FAILED).prints(&["change webhooks", "key"]);
    fixture.ashlar(&["doctor", "secrets"]).prints(&["webhook pager delivers no events"]);
    fixture.assert_alive();
    fixture.stop();
}
