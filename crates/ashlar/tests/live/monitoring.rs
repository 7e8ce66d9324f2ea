//! Metrics over TCP, and the alert rules of `contrib/monitoring`, under promtool of Debian.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fixture::Fixture;

/// The package of promtool.
const PACKAGES: &str = include_str!("../../../../ci/packages/monitoring.txt");

const TOKEN: &str = "0123456789abcdef";

/// Runs promtool, which must succeed.
#[track_caller]
fn promtool(words: &[&str], folder: &Path, input: &str) -> String {
    let root = rig::packages::ensure_unpacked("monitoring", PACKAGES).unwrap();
    let mut command = Command::new(root.join("usr/bin/promtool"));
    command.args(words).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success(), "promtool {words:?}: {}\n{text}", done.status);
    text
}

/// The folder of the alert rules.
fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/monitoring")
}

/// The status line and the body of a scrape.
fn scrape(at: &str, token: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    let head = "GET /metrics HTTP/1.1\r\nHost: ashlar\r\nConnection: close\r\n";
    write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap_or("").to_owned(), body.to_owned())
}

#[test]
fn metrics_over_tcp_need_the_token_and_pass_promtool() {
    let mut fixture = Fixture::new("metrics");
    let at = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    fixture.secret("token", TOKEN);
    let daemon = format!("[daemon]\nmetrics_listen = \"{at}\"\n");
    let disk = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"4MiB\"\n";
    let token = "metrics_token = \"file:{here}/token\"\n";
    fixture.configure(&format!("{daemon}{token}\n{disk}"), "0 = \"d0\"");
    fixture.start();
    let (status, body) = scrape(&at, "wrong");
    assert!(status.starts_with("HTTP/1.1 401") && !body.contains("ashlar_"), "{status} {body}");
    let (status, body) = scrape(&at, TOKEN);
    assert!(status.starts_with("HTTP/1.1 200"), "{status} {body}");
    assert!(body.contains("ashlar_disk_size_bytes{disk=\"d0\",kind=\"memory\"} 4194304"), "{body}");
    promtool(&["check", "metrics"], Path::new("/"), &body);
    // Live: another address, without a token.
    let other = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let moved = daemon.replace(&at, &other);
    fixture.configure(&format!("{moved}\n{disk}"), "0 = \"d0\"");
    fixture.ashlar(&["apply"]).ends(0).lacks(&["next start"]);
    assert!(TcpStream::connect(&at).is_err(), "the former listener is closed");
    assert!(scrape(&other, "").0.starts_with("HTTP/1.1 200"));
    fixture.stop();
}

#[test]
fn alert_rules_pass_promtool_and_each_alert_fires_in_its_test() {
    let text = promtool(&["check", "rules", "ashlar.rules.yml"], &rules(), "");
    assert!(text.contains("SUCCESS"), "{text}");
    promtool(&["test", "rules", "ashlar.test.yml"], &rules(), "");
}
