//! Tests of the metrics page.

use super::*;
use crate::api::{
    Bucket, CertificateState, GroupState, Histogram, LunCounters, OpStats, RebuildState,
    RegistrantState, ReservationState, SessionState, SpaceState,
};
use crate::fake::geom_state;
use std::path::Path;

/// A limit that leaves out nothing.
const ALL: u32 = u32::MAX;

fn text_page(state: &SystemState, series_max: u32) -> String {
    String::from_utf8(render(state, series_max, Format::Text)).expect("text")
}

/// The lines that are series.
fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// X1 of metrics/page.rs.
#[test]
fn metrics_page_matches_the_expected_text() {
    let mut state = SystemState::default();
    let mut geom = geom_state("part", "d\"0", 2, &[], "d0p1");
    let read = &mut geom.providers[0].stats.read;
    read.ops = 3;
    read.latency = Histogram {
        buckets: vec![
            Bucket { upper_ns: 1_000, count: 2 },
            Bucket { upper_ns: 1_500_000_000, count: 1 },
        ],
        sum_ns: 1_200_000_000,
    };
    state.geoms.push(geom);
    state.certificates.push(CertificateState {
        at: "target t".into(),
        key: "tls_certificate".into(),
        path: "/x".into(),
        expires_s: -5,
        expires_at: 1_800_000_000,
    });
    let closed = [("peer_closed", 4_u64), ("tls", 0)].map(|(why, n)| (why.to_owned(), n));
    state.connections.push(ConnectionsState {
        driver: "nbd".into(),
        open: 2,
        accepted: 6,
        closed: closed.into(),
        ..ConnectionsState::default()
    });
    let text = text_page(&state, ALL);
    for line in [
        "ashlar_connections_open{driver=\"nbd\"} 2",
        "ashlar_connections_accepted_total{driver=\"nbd\"} 6",
        "ashlar_connections_closed_total{driver=\"nbd\",reason=\"peer_closed\"} 4",
        "ashlar_connections_closed_total{driver=\"nbd\",reason=\"tls\"} 0",
        "ashlar_tls_certificate_expiry_timestamp_seconds{kind=\"target\",name=\"t\",\
         key=\"tls_certificate\",path=\"/x\"} 1800000000",
        "# TYPE ashlar_provider_latency_seconds histogram",
        "ashlar_provider_latency_seconds_bucket{provider=\"d0p1\",class=\"part\",op=\"read\",\
         le=\"0.000001024\"} 2",
        "ashlar_provider_latency_seconds_bucket{provider=\"d0p1\",class=\"part\",op=\"read\",\
         le=\"+Inf\"} 3",
        "ashlar_provider_latency_seconds_sum{provider=\"d0p1\",class=\"part\",op=\"read\"} 1.2",
        "ashlar_geom_health{geom=\"d\\\"0\",class=\"part\",state=\"ok\"} 1",
        "ashlar_provider_requests_total{provider=\"d0p1\",class=\"part\",op=\"read\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let mut seen = Vec::new();
    for line in text.lines().filter(|l| l.starts_with("# TYPE")) {
        let name = line.split(' ').nth(2).expect("a name").to_owned();
        assert!(!seen.contains(&name), "{name} stands twice");
        seen.push(name);
    }
}

#[test]
fn x3_all_series_of_a_histogram_have_the_same_buckets() {
    let mut state = SystemState::default();
    for (name, upper_ns) in [("d0", 900), ("d1", 3_000_000), ("d2", u64::MAX)] {
        let mut geom = geom_state("disk", name, 0, &[], name);
        let write = &mut geom.providers[0].stats.write;
        write.ops = 5;
        write.latency =
            Histogram { buckets: vec![Bucket { upper_ns, count: 5 }], sum_ns: upper_ns };
        state.geoms.push(geom);
    }
    let text = text_page(&state, ALL);
    let mut all: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for line in text.lines().filter(|l| l.contains("_bucket{")) {
        let (series, rest) = line.split_once(",le=\"").expect("a bound");
        let (bound, count) = rest.split_once("\"} ").expect("a count");
        let count = count.parse().expect("a number");
        all.entry(series.to_owned()).or_default().push((bound.to_owned(), count));
    }
    let bounds = |s: &[(String, u64)]| s.iter().map(|(b, _)| b.clone()).collect::<Vec<_>>();
    let series: Vec<_> = all.into_values().collect();
    assert_eq!(series.len(), 3);
    for one in &series {
        assert_eq!(bounds(one), bounds(&series[0]));
        assert!(one.windows(2).all(|w| w[0].1 <= w[1].1), "{one:?}");
        assert_eq!(one.last().map(|(b, n)| (b.as_str(), *n)), Some(("+Inf", 5)));
    }
}

/// A name is an interface, and its end is its unit.
#[test]
fn names_follow_the_rules() {
    const UNITS: [&str; 2] = ["_seconds", "_bytes"];
    for f in METRICS {
        assert!(f.name.starts_with("ashlar_") && !f.help.is_empty(), "{}", f.name);
        assert_eq!(f.name.ends_with("_total"), f.kind == "counter", "{}", f.name);
        for odd in ["_ns", "_ms", "_kib", "_mib", "_percent", "_count", "_sum", "_bucket"] {
            assert!(!f.name.contains(odd), "{}", f.name);
        }
        let bare = f.name.trim_end_matches("_total");
        for unit in UNITS {
            assert!(!bare.contains(unit) || bare.ends_with(unit), "{}", f.name);
        }
        assert!(!f.labels.contains(&"le"), "{}", f.name);
        let same = METRICS.iter().filter(|other| other.name == f.name).count();
        assert_eq!(same, 1, "{}", f.name);
    }
}

#[test]
fn every_listed_name_is_found_at_its_place() {
    for (place, f) in METRICS.iter().enumerate() {
        let found = Metric::named(f.name);
        assert_eq!((found.place(), found.family().name), (place, f.name));
    }
}

/// An LUN that no host uses costs the series of its disk, its geoms and their providers alone.
#[test]
fn idle_providers_have_few_series() {
    let page = |used: u64| {
        let mut state = SystemState::default();
        for n in 0..100 {
            let mut geom = geom_state("disk", &format!("d{n}"), 1, &[], &format!("d{n}"));
            geom.providers[0].stats.read.ops = used;
            state.geoms.push(geom);
        }
        series(&text_page(&state, ALL)).len()
    };
    let none = series(&text_page(&SystemState::default(), ALL)).len();
    assert_eq!(page(0) - none, 5 * 100, "health, size, errors");
    assert!(page(1) - none > 15 * 100);
}

#[test]
fn x2_series_above_the_limit_are_left_out_and_counted() {
    let mut state = SystemState::default();
    for n in 0..100 {
        let mut geom = geom_state("disk", &format!("d{n}"), 1, &[], &format!("d{n}"));
        let read = &mut geom.providers[0].stats.read;
        read.ops = 1;
        read.latency = Histogram { buckets: vec![Bucket { upper_ns: 1, count: 1 }], sum_ns: 1 };
        state.geoms.push(geom);
    }
    let all = text_page(&state, ALL);
    let wanted = series(&all).len();
    let least: usize = 1000;
    let text = text_page(&state, 1000);
    let shown = series(&text);
    assert!(shown.len() <= least + 2, "{}", shown.len());
    let dropped = shown.iter().find_map(|l| l.strip_prefix("ashlar_metrics_series_dropped "));
    let dropped: usize = dropped.and_then(|n| n.parse().ok()).expect("a number");
    assert_eq!(shown.len() + dropped, wanted, "each is shown or counted");
    // The important ones are there, and no part of a histogram.
    let health = shown.iter().filter(|l| l.starts_with("ashlar_geom_health{")).count();
    assert_eq!(health, 300);
    assert!(!text.contains("ashlar_provider_latency_seconds"), "{text}");
    assert!(all.contains("ashlar_metrics_series_dropped 0"));
    let dropped = format!("ashlar_metrics_series_dropped {}", wanted - 2);
    assert_eq!(series(&text_page(&state, 0)), ["ashlar_metrics_series 0", dropped.as_str()]);
}

#[test]
fn sessions_of_a_host_have_one_histogram_for_each_kind_that_they_used() {
    let session = |count: u64| {
        let mut session = SessionState {
            initiator: "iqn.a:h".into(),
            address: format!("10.0.0.1:{count}"),
            ..SessionState::default()
        };
        let buckets = vec![Bucket { upper_ns: 3071, count }];
        session.stats.read.ops = count;
        session.stats.read.latency = Histogram { buckets, sum_ns: count * 3000 };
        session
    };
    let target = TargetState {
        name: "t".into(),
        driver: "iscsi".into(),
        sessions: vec![session(2), session(5)],
        ..TargetState::default()
    };
    let text = text_page(&SystemState { targets: vec![target], ..SystemState::default() }, ALL);
    let who = "target=\"t\",driver=\"iscsi\",initiator=\"iqn.a:h\",address=\"10.0.0.1\"";
    for line in [
        format!("ashlar_session_latency_seconds_bucket{{{who},op=\"read\",le=\"0.000002048\"}} 0"),
        format!("ashlar_session_latency_seconds_bucket{{{who},op=\"read\",le=\"0.000004096\"}} 7"),
        format!("ashlar_session_latency_seconds_sum{{{who},op=\"read\"}} 0.000021"),
        format!("ashlar_session_latency_seconds_count{{{who},op=\"read\"}} 7"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    let writes = "ashlar_session_latency_seconds_count{";
    assert_eq!(text.lines().filter(|line| line.starts_with(writes)).count(), 1, "no writes");
}

#[test]
fn reconnections_of_a_host_add_no_series() {
    let session = |address: &str| SessionState {
        initiator: "iqn.a:h".into(),
        address: address.into(),
        commands_outstanding: 1,
        ..SessionState::default()
    };
    let sessions = ["10.0.0.1:40001", "10.0.0.1:40002", "[fd00::1]:5", "unix:/run/a.sock"];
    let target = TargetState {
        name: "t".into(),
        driver: "iscsi".into(),
        sessions: sessions.map(session).into(),
        ..TargetState::default()
    };
    let state = SystemState { targets: vec![target], ..SystemState::default() };
    let text = text_page(&state, ALL);
    let head = "ashlar_session_in_flight{target=\"t\",driver=\"iscsi\",initiator=\"iqn.a:h\",";
    let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(head)).collect();
    let expected =
        ["address=\"10.0.0.1\"} 2", "address=\"fd00::1\"} 1", "address=\"unix:/run/a.sock\"} 1"];
    assert_eq!(found, expected);
}

#[test]
fn rebuilds_space_dumps_reservations_and_refused_logins_have_series() {
    let mut mirror = geom_state("mirror", "m", 2, &[], "mirror/m");
    let copy = RebuildState { done_bytes: 5, size_bytes: 9, ..RebuildState::default() };
    let running = RebuildState { rate_bytes: Some(2), left_seconds: Some(2), ..copy.clone() };
    mirror.rebuilds = vec![
        RebuildState { part: "d1".into(), ..running },
        RebuildState { part: "d2".into(), paused: true, ..copy },
    ];
    let mut fs = geom_state("fs", "main", 2, &[], "main");
    fs.spaces = vec![SpaceState { part: "worm".into(), free_bytes: 3, size_bytes: 4 }];
    fs.last_dump_at = Some(1_700_000_000);
    fs.is_serving = Some(false);
    let held = ReservationState {
        kind: Some("write exclusive".into()),
        registrants: vec![RegistrantState::default(); 2],
        ..ReservationState::default()
    };
    let lun = |lun, provider: &str, reservation| LunState {
        lun,
        provider: provider.into(),
        reservation,
        ..LunState::default()
    };
    let luns = vec![lun(0, "d0", Some(held)), lun(1, "d1", None)];
    let target = TargetState {
        name: "t".into(),
        groups: vec![GroupState { luns, ..GroupState::default() }],
        ..TargetState::default()
    };
    let state = SystemState {
        geoms: vec![mirror, fs],
        targets: vec![target],
        denied_total: 7,
        ..SystemState::default()
    };
    let text = text_page(&state, ALL);
    for line in [
        "ashlar_geom_rebuild_done_bytes{geom=\"m\",class=\"mirror\",part=\"d1\"} 5",
        "ashlar_geom_rebuild_size_bytes{geom=\"m\",class=\"mirror\",part=\"d1\"} 9",
        "ashlar_geom_rebuild_rate_bytes{geom=\"m\",class=\"mirror\",part=\"d1\"} 2",
        "ashlar_geom_rebuild_left_seconds{geom=\"m\",class=\"mirror\",part=\"d1\"} 2",
        "ashlar_geom_rebuild_paused{geom=\"m\",class=\"mirror\",part=\"d1\"} 0",
        "ashlar_geom_rebuild_paused{geom=\"m\",class=\"mirror\",part=\"d2\"} 1",
        "ashlar_geom_rebuild_rate_bytes{geom=\"m\",class=\"mirror\",part=\"d2\"} 0",
        "ashlar_fs_free_bytes{fs=\"main\",part=\"worm\"} 3",
        "ashlar_fs_size_bytes{fs=\"main\",part=\"worm\"} 4",
        "ashlar_fs_last_dump_timestamp_seconds{fs=\"main\"} 1700000000",
        "ashlar_fs_up{fs=\"main\"} 0",
        "ashlar_lun_reserved{target=\"t\",provider=\"d0\"} 1",
        "ashlar_lun_registrants{target=\"t\",provider=\"d0\"} 2",
        "ashlar_logins_refused_total 7",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let left = text.lines().filter(|l| l.starts_with("ashlar_geom_rebuild_left_seconds{"));
    assert_eq!(left.count(), 1, "a paused rebuild has no time left");
    let reserved = text.lines().filter(|line| line.starts_with("ashlar_lun_reserved{"));
    assert_eq!(reserved.count(), 1, "units without registrants have no series");
}

/// Counters with one read and one write, each of this latency.
fn counted(upper_ns: u64) -> Stats {
    let buckets = vec![Bucket { upper_ns, count: 1 }];
    let op =
        OpStats { ops: 1, latency: Histogram { buckets, sum_ns: upper_ns }, ..OpStats::default() };
    Stats { read: op.clone(), write: op, ..Stats::default() }
}

#[test]
fn initiators_and_luns_have_histograms() {
    let session = |address: &str, ns| SessionState {
        initiator: "iqn.a:h".into(),
        address: address.into(),
        stats: counted(ns),
        ..SessionState::default()
    };
    let target = TargetState {
        name: "t".into(),
        driver: "iscsi".into(),
        sessions: vec![session("10.0.0.1:4", 2_000), session("10.0.0.1:5", 3_000_000)],
        ..TargetState::default()
    };
    let mut unit = geom_state("lun", "d0", 3, &["d0"], "");
    unit.providers.clear();
    unit.consumers[0].stats = counted(2_000);
    let state = SystemState { targets: vec![target], geoms: vec![unit], ..SystemState::default() };
    let text = text_page(&state, ALL);
    let of_session = |suffix: &str, last: &str| {
        let labels = "target=\"t\",driver=\"iscsi\",initiator=\"iqn.a:h\",address=\"10.0.0.1\"";
        format!("ashlar_session_latency_seconds_{suffix}{{{labels},{last}")
    };
    for line in [
        of_session("bucket", "op=\"read\",le=\"0.000002048\"} 1"),
        of_session("count", "op=\"read\"} 2"),
        of_session("sum", "op=\"write\"} 0.003002"),
        "ashlar_lun_request_latency_seconds_count{provider=\"d0\",op=\"write\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[test]
fn each_used_lun_of_a_group_has_counters() {
    let lun = |lun, reads| LunState {
        lun,
        provider: "d0".into(),
        counters: Some(LunCounters { lun, reads, read_bytes: 512 * reads, ..Default::default() }),
        ..LunState::default()
    };
    let group = |name: &str, luns| GroupState { name: name.into(), luns, ..GroupState::default() };
    let target = TargetState {
        name: "t".into(),
        driver: "iscsi".into(),
        groups: vec![group("a", vec![lun(0, 3), lun(7, 0)]), group("b", vec![lun(0, 5)])],
        ..TargetState::default()
    };
    let text = text_page(&SystemState { targets: vec![target], ..SystemState::default() }, ALL);
    let with = |group: &str, op: &str| {
        let target = "target=\"t\",driver=\"iscsi\"";
        format!("{{{target},group=\"{group}\",lun=\"0\",provider=\"d0\",op=\"{op}\"}}")
    };
    for line in [
        format!("ashlar_lun_requests_total{} 3", with("a", "read")),
        format!("ashlar_lun_bytes_total{} 1536", with("a", "read")),
        format!("ashlar_lun_requests_total{} 0", with("a", "write")),
        format!("ashlar_lun_requests_total{} 5", with("b", "read")),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    assert!(!text.contains("lun=\"7\""), "an idle LUN has no series\n{text}");
}

#[test]
fn listeners_and_webhooks_have_series() {
    let listener = |address: &str, open| ListenerState {
        name: "api".into(),
        address: address.into(),
        open,
        ..ListenerState::default()
    };
    let hook = WebhookState {
        name: "pager".into(),
        delivered: 5,
        failures: 4,
        waiting: 3,
        dropped: 2,
        failure: "HTTP status 503".into(),
        ..WebhookState::default()
    };
    let good = WebhookState { name: "chat".into(), ..WebhookState::default() };
    let state = SystemState {
        listeners: ["[::]:1", "[::]:2", "[::]:1"].map(|at| listener(at, at != "[::]:2")).into(),
        webhooks: vec![hook, good],
        ..SystemState::default()
    };
    let text = text_page(&state, ALL);
    for line in [
        "ashlar_listener_up{listener=\"api\",address=\"[::]:1\"} 1",
        "ashlar_listener_up{listener=\"api\",address=\"[::]:2\"} 0",
        "ashlar_webhook_up{webhook=\"pager\"} 0",
        "ashlar_webhook_up{webhook=\"chat\"} 1",
        "ashlar_webhook_waiting{webhook=\"pager\"} 3",
        "ashlar_webhook_deliveries_total{webhook=\"pager\"} 5",
        "ashlar_webhook_failures_total{webhook=\"pager\"} 4",
        "ashlar_webhook_drops_total{webhook=\"pager\"} 2",
    ] {
        assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}\n{text}");
    }
}

/// What Prometheus and Grafana are given. Each name is in the list, and each alert has a test that
/// sees it fire and a runbook in the manual.
#[test]
fn alert_rules_and_dashboard_use_listed_metrics_and_link_to_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is in the tree");
    let rules = read("contrib/monitoring/ashlar.rules.yml");
    let tests = read("contrib/monitoring/ashlar.test.yml");
    let dashboard = read("contrib/monitoring/ashlar.dashboard.json");
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    for text in [&rules, &tests, &dashboard] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("ashlar_")) {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            assert!(METRICS.iter().any(|f| f.name == name), "{word}");
        }
    }
    // Latency in both forms of a histogram.
    for shown in [
        "ashlar_provider_latency_seconds{",
        "ashlar_provider_latency_seconds_bucket{",
        "ashlar_lun_request_latency_seconds{",
        "ashlar_lun_request_latency_seconds_bucket{",
        "ashlar_session_latency_seconds{",
        "ashlar_session_latency_seconds_bucket{",
        "ashlar_geom_rebuild_rate_bytes{",
        "ashlar_geom_rebuild_left_seconds{",
        "ashlar_logins_refused_total{",
        "ashlar_tls_certificate_expiry_timestamp_seconds{",
        "ashlar_fs_last_dump_timestamp_seconds{",
        "ashlar_webhook_failures_total{",
    ] {
        assert!(dashboard.contains(shown), "no panel has {shown}");
    }
    let manual = read("docs/monitoring.md");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    let runbook = crate::page::runbook();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(manual.contains(&format!("\n### {alert}\n")), "{alert} has no runbook");
        let anchor = alert.to_lowercase();
        // A daemon that is silent does not serve its runbook.
        let page = match alert {
            "AshlarSilent" => "file:///usr/share/doc/ashlar/docs/monitoring.md",
            _ => "http://{{ $labels.instance }}/runbook",
        };
        let link = format!("runbook_url: \"{page}#{anchor}\"\n");
        assert!(rules.contains(&link), "{alert} has no link");
        assert!(runbook.contains(&format!("<section id=\"{anchor}\">")), "{alert}");
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&fires), "{alert} has no test");
    }
}
