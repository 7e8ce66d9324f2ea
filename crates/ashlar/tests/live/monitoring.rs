//! Metrics over TCP, and the alert rules of `contrib/monitoring`, under promtool and the Prometheus
//! server of Debian.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig::proc::Proc;
use serde_json::Value;

use crate::fixture::{Fixture, array, file_disk};
use crate::network_api::{install, papers};
use crate::reservations::{login, out};

/// The package of Prometheus and promtool.
const PACKAGES: &str = include_str!("../../../../ci/packages/monitoring.txt");

const TOKEN: &str = "0123456789abcdef";

/// Longest wait for Prometheus to start, and for an alert to change its state.
const LIMIT: Duration = Duration::from_secs(120);

fn program(name: &str) -> Command {
    let root = rig::packages::ensure_unpacked("monitoring", PACKAGES).unwrap();
    Command::new(root.join("usr/bin").join(name))
}

/// Runs promtool, which must succeed.
#[track_caller]
fn promtool(words: &[&str], folder: &Path, input: &str) -> String {
    let mut command = program("promtool");
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

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/monitoring")
}

/// The status line and the body of the answer to a request with this head.
fn answer(at: &str, head: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(format!("{head}\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
    Ok((head.lines().next().unwrap_or("").to_owned(), body.to_owned()))
}

/// The status line and the body of a scrape.
fn scrape(at: &str, token: &str) -> (String, String) {
    let head = "GET /metrics HTTP/1.1\r\nHost: ashlar\r\nConnection: close\r\n";
    answer(at, &format!("{head}Authorization: Bearer {token}")).unwrap()
}

/// The data of a request to the API of Prometheus; null until it answers.
fn prometheus(at: &str, path: &str) -> Value {
    // HTTP/1.0: a body without chunks.
    let found = answer(at, &format!("GET /api/v1/{path} HTTP/1.0\r\nHost: {at}"));
    let body = found.map_or(String::new(), |(_, body)| body);
    let mut answer: Value = serde_json::from_str(&body).unwrap_or_default();
    answer["data"].take()
}

/// The state of an alert: `pending` or `firing`; `None` if its expression does not hold.
fn alert(at: &str, name: &str) -> Option<String> {
    let data = prometheus(at, "alerts");
    let mut alerts = array(&data["alerts"]).iter();
    let found = alerts.find(|alert| alert["labels"]["alertname"] == name)?;
    found["state"].as_str().map(str::to_owned)
}

/// The value of a query with one series.
fn query(at: &str, text: &str) -> Option<f64> {
    let data = prometheus(at, &format!("query?query={}", percent_encoded(text)));
    let [series] = data["result"].as_array()?.as_slice() else { return None };
    series["value"][1].as_str()?.parse().ok()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn rules_text() -> String {
    std::fs::read_to_string(rules().join("ashlar.rules.yml")).unwrap()
}

/// Starts Prometheus with alert rules, without their delays, and a scrape of `metrics` each second.
fn start_prometheus(
    fixture: &Fixture,
    (at, options): (&str, &[&str]),
    metrics: &str,
    text: &str,
) -> Proc {
    let without_delay = |line: &str| match line.split_once("for: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 1s\n"),
        _ => format!("{line}\n"),
    };
    fixture.write("rules.yml", &text.lines().map(without_delay).collect::<String>());
    let settings = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n\
         - job_name: ashlar\n\
         \x20 authorization: {{ credentials_file: token }}\n\
         \x20 static_configs: [{{ targets: ['{metrics}'] }}]\n"
    );
    let settings = fixture.write("prometheus.yml", &settings);
    let mut command = program("prometheus");
    command.arg(format!("--config.file={}", settings.display()));
    command.arg(format!("--storage.tsdb.path={}", fixture.path("prometheus").display()));
    command.arg(format!("--web.listen-address={at}")).args(options);
    let mut server =
        Proc::start("prometheus", &mut command, &fixture.path("prometheus.log")).unwrap();
    let is_scraped = || {
        let data = prometheus(at, "query?query=up");
        data["result"][0]["value"][1] == "1"
    };
    server.wait_ready(LIMIT, is_scraped).unwrap();
    server
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

/// Families of samples that an idle disk does not have.
const FAMILIES: [&str; 14] = [
    "ashlar_connections_accepted_total",
    "ashlar_fs_free_bytes",
    "ashlar_fs_last_dump_timestamp_seconds",
    "ashlar_fs_up",
    "ashlar_geom_rebuild_done_bytes",
    "ashlar_geom_rebuild_rate_bytes",
    "ashlar_listener_up",
    "ashlar_lun_registrants",
    "ashlar_lun_request_latency_seconds_bucket",
    "ashlar_lun_reserved",
    "ashlar_session_latency_seconds_bucket",
    "ashlar_session_requests_total",
    "ashlar_tls_certificate_expiry_timestamp_seconds",
    "ashlar_webhook_up",
];

/// Sections with a mirror, a file server, the API over TLS and a webhook that reaches no server.
fn sections_of_all_kinds(fixture: &Fixture, metrics: &str) -> String {
    let (api, hook) = (rig::proc::free_port().unwrap(), rig::proc::free_port().unwrap());
    install(fixture, &papers("metrics-papers"));
    let sizes = [("d0", 4), ("d1", 4), ("ssd", 48), ("near", 128), ("far", 128)];
    let disks = sizes.map(|(name, mib)| {
        let file = format!("{name}.img");
        fixture.image(&file, mib << 20);
        file_disk(name, &file)
    });
    format!(
        "[daemon]\nmetrics_listen = \"{metrics}\"\n\
         [api]\nlisten = [\"127.0.0.1:{api}\"]\ntls_certificate = \"api.pem\"\n\
         tls_key = \"api.key\"\n\
         [[webhook]]\nname = \"pager\"\nurl = \"http://127.0.0.1:{hook}/\"\n{}\
         [[geom]]\nclass = \"mirror\"\nname = \"data\"\nmembers = [\"d0\", \"d1\"]\n\
         [[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"near\", \"far\"]\n\
         create = true\nlinux = [\"127.0.0.1:0\"]\ndump_at = \"never\"\n",
        disks.concat()
    )
}

#[test]
fn metrics_of_objects_of_all_kinds_pass_promtool() {
    let mut fixture = Fixture::new("metrics-all");
    let at = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let sections = sections_of_all_kinds(&fixture, &at);
    fixture.configure(&sections, "0 = \"mirror/data\"");
    fixture.start_whole();
    fixture.ok(&["fs", "dump", "main", "--wait"]);
    // The host registers (6) and reserves (1): exclusive access for registrants.
    let mut host = login(&fixture, "iqn.2024-01.test:metrics");
    assert_eq!(out(&mut host, 6, 0, 0, 1).status, 0);
    assert_eq!(out(&mut host, 1, 6, 1, 0).status, 0);
    let read = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    assert_eq!(host.scsi(&read, 512, &[]).unwrap().status, 0);
    // So slow that it runs until the end.
    fixture.ok(&["mirror", "configure", "data", "--sync-rate", "4KiB"]);
    fixture.ok(&["mirror", "rebuild", "data", "d1"]);
    let mut body = String::new();
    fixture.until("samples of all kinds", LIMIT, || {
        body = scrape(&at, "").1;
        let has = |name: &str| body.lines().any(|line| line.starts_with(&format!("{name}{{")));
        let missing: Vec<&str> = FAMILIES.into_iter().filter(|name| !has(name)).collect();
        println!("without {missing:?}");
        missing.is_empty()
    });
    promtool(&["check", "metrics"], Path::new("/"), &body);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn alert_rules_pass_promtool_and_each_alert_fires_in_its_test() {
    let text = promtool(&["check", "rules", "ashlar.rules.yml"], &rules(), "");
    assert!(text.contains("SUCCESS"), "{text}");
    promtool(&["test", "rules", "ashlar.test.yml"], &rules(), "");
}

/// A daemon that serves a mirror; the address of its metrics.
fn start_mirror(name: &str) -> (Fixture, String) {
    let mut fixture = Fixture::new(name);
    let metrics = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    fixture.secret("token", TOKEN);
    for file in ["d0.img", "d1.img"] {
        fixture.image(file, 4 << 20);
    }
    let daemon = format!(
        "[daemon]\nmetrics_listen = \"{metrics}\"\nmetrics_token = \"file:{{here}}/token\"\n"
    );
    let disks = [file_disk("d0", "d0.img"), file_disk("d1", "d1.img")].concat();
    let mirror = "[[geom]]\nclass = \"mirror\"\nname = \"data\"\nmembers = [\"d0\", \"d1\"]\n";
    fixture.configure(&format!("{daemon}{disks}{mirror}"), "0 = \"mirror/data\"");
    fixture.start_whole();
    (fixture, metrics)
}

#[test]
fn alerts_fire_when_a_mirror_breaks_and_resolve_when_it_is_complete() {
    const ALERTS: [&str; 2] = ["AshlarRedundancyLost", "AshlarDegraded"];
    let (mut fixture, metrics) = start_mirror("alerts");
    let at = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let _server = start_prometheus(&fixture, (&at, &[]), &metrics, &rules_text());
    // With an answer, so that a server that has ended does not count as quiet.
    let is_quiet =
        |name: &str| prometheus(&at, "alerts")["alerts"].is_array() && alert(&at, name).is_none();
    fixture.until("no alert of the mirror", LIMIT, || ALERTS.iter().all(|name| is_quiet(name)));
    fixture.ok(&["mirror", "deactivate", "data", "d1"]);
    for name in ALERTS {
        let what = format!("{name} fires");
        fixture.until(&what, LIMIT, || alert(&at, name).as_deref() == Some("firing"));
    }
    // The link of the alert leads to its steps, without a token.
    let data = prometheus(&at, "alerts");
    let is_lost = |alert: &&Value| alert["labels"]["alertname"] == ALERTS[0];
    let lost = array(&data["alerts"]).iter().find(is_lost).expect("it fires");
    let link = format!("http://{metrics}/runbook#ashlarredundancylost");
    assert_eq!(lost["annotations"]["runbook_url"], link, "{lost:#}");
    let (status, body) = answer(&metrics, "GET /runbook HTTP/1.0\r\nHost: ashlar").unwrap();
    assert!(status.contains("200") && body.contains("id=\"ashlarredundancylost\""), "{body}");
    fixture.ok(&["mirror", "activate", "data", "d1"]);
    for name in ALERTS {
        fixture.until(&format!("{name} is resolved"), LIMIT, || is_quiet(name));
    }
    fixture.stop();
}

#[test]
fn prometheus_reads_native_histograms_and_alerts_with_them() {
    let (mut fixture, metrics) = start_mirror("native");
    let at = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    // With this feature Prometheus requests protobuf.
    let native = ["--enable-feature=native-histograms"];
    // Each read is slow, so that the alert needs no slow disk. promtool of Debian 12 has no native
    // histograms for unit tests of rules.
    let rules = rules_text().replace("[5m]))) > 0.5", "[5m]))) > 0");
    let _server = start_prometheus(&fixture, (&at, &native), &metrics, &rules);
    // The mirror writes its records to the other member.
    fixture.ok(&["mirror", "deactivate", "data", "d1"]);
    let of_writes = "ashlar_provider_latency_seconds{provider=\"d0\",op=\"write\"}";
    let count = format!("histogram_count({of_writes})");
    fixture.until("native histograms", LIMIT, || query(&at, &count).is_some_and(|n| n > 0.0));
    let median = query(&at, &format!("histogram_quantile(0.5, {of_writes})"));
    let mean = query(&at, &format!("histogram_sum({of_writes}) / {count}"));
    for seconds in [median, mean] {
        // In another unit it would be below or above.
        assert!(seconds.is_some_and(|s| (1e-7..60.0).contains(&s)), "{median:?} {mean:?}");
    }
    let lost = "ashlar_geom_health{class=\"mirror\",state=\"degraded\"}";
    fixture.until("the degraded mirror", LIMIT, || query(&at, lost) == Some(1.0));
    let name = "AshlarRedundancyLost";
    fixture.until(name, LIMIT, || alert(&at, name).as_deref() == Some("firing"));
    // Without classic buckets, the second part of its expression holds.
    let classic = "count(ashlar_provider_latency_seconds_bucket)";
    assert_eq!(query(&at, classic), None);
    fixture.until("AshlarDiskSlow", LIMIT, || {
        rig::peer::qemu_io(&fixture.url(0), &["read 0 64k"]).unwrap();
        alert(&at, "AshlarDiskSlow").as_deref() == Some("firing")
    });
    fixture.stop();
}

#[test]
fn json_log_has_the_fields_of_events_and_peers() {
    let mut fixture = Fixture::new("log-fields");
    let daemon = "[daemon]\nlog_format = \"json\"\n";
    let disk = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"4MiB\"\n";
    fixture.configure(&format!("{daemon}{disk}"), "0 = \"d0\"");
    fixture.start();
    // No PDU of iSCSI has this opcode.
    let mut pdu = [0; 48];
    pdu[0] = 0x3f;
    let mut stream = TcpStream::connect(fixture.target(0).portal).unwrap();
    stream.write_all(&pdu).unwrap();
    let is_logged = |is: &dyn Fn(&Value) -> bool| {
        let log = fixture.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.any(|line: Value| is(&line))
    };
    fixture.until("a line about the peer", LIMIT, || {
        is_logged(&|line| {
            line["kind"] == "peer" && line["peer"] == "127.0.0.1" && line["target"] == "iscsi"
        })
    });
    fixture.until("a line about an event", LIMIT, || {
        is_logged(&|line| {
            line["kind"] == "event" && line["event"].is_u64() && line["object"].is_string()
        })
    });
    fixture.stop();
}
