//! The state as Prometheus text: prefix `ashlar_`, base units (seconds, bytes), `_total` for what
//! only grows.

use crate::api::{
    ConnectionsState, Health, Histogram, LunState, Stats, SystemState, TargetHealth, TargetState,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Every metric: name, type, help. The order is that of the page.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("ashlar_build_info", "gauge", "Version of the daemon; always 1"),
    ("ashlar_uptime_seconds", "gauge", "Since the daemon's start"),
    ("ashlar_health", "gauge", "1 for the present health of the whole, 0 for the others"),
    ("ashlar_topology_generation", "gauge", "Grows with every change of the topology"),
    ("ashlar_core_busy_seconds_total", "counter", "Time a reactor worked"),
    ("ashlar_memory_bytes", "gauge", "Memory: size of the buffer pools, resident set"),
    ("ashlar_disk_health", "gauge", "1 for the present health of a disk, 0 for the others"),
    ("ashlar_disk_size_bytes", "gauge", "Size of a disk"),
    ("ashlar_disk_used_bytes", "gauge", "Room that a disk takes, which takes it as it is written"),
    ("ashlar_disk_free_bytes", "gauge", "Room that such a disk could take besides"),
    ("ashlar_geom_health", "gauge", "1 for the present health of a geom, 0 for the others"),
    ("ashlar_provider_size_bytes", "gauge", "Size of a provider"),
    ("ashlar_provider_opens", "gauge", "Access counts of a provider: r, w, e"),
    ("ashlar_provider_requests_total", "counter", "Requests completed by a provider"),
    ("ashlar_provider_bytes_total", "counter", "Bytes of requests completed by a provider"),
    ("ashlar_provider_errors_total", "counter", "Requests of a provider that failed"),
    ("ashlar_provider_in_flight", "gauge", "Requests a provider has not completed yet"),
    ("ashlar_provider_busy_seconds_total", "counter", "Time with requests in flight"),
    (
        "ashlar_provider_latency_seconds",
        "histogram",
        "From start to completion; write includes deletes and flushes",
    ),
    ("ashlar_target_up", "gauge", "1 when a target accepts logins"),
    ("ashlar_target_sessions", "gauge", "Live sessions of a target"),
    ("ashlar_connections_open", "gauge", "Open connections of a driver"),
    ("ashlar_connections_waiting", "gauge", "Accepted connections that wait for their handshake"),
    ("ashlar_connections_accepted_total", "counter", "Connections accepted by a driver"),
    (
        "ashlar_connections_refused_total",
        "counter",
        "Connections reset at the limit of a core or a peer",
    ),
    ("ashlar_connections_warned_total", "counter", "Connections closed with a warning in the log"),
    ("ashlar_connections_closed_total", "counter", "Connections closed, by reason"),
    (
        "ashlar_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the first certificate of a file expires, seconds since 1970",
    ),
    ("ashlar_session_requests_total", "counter", "Requests completed for a session"),
    ("ashlar_session_bytes_total", "counter", "Bytes of requests completed for a session"),
    ("ashlar_session_in_flight", "gauge", "Commands of a session not answered yet"),
    ("ashlar_session_window", "gauge", "Commands that a session is let have open"),
    ("ashlar_session_share", "gauge", "Commands that a session may have at a slow unit"),
    ("ashlar_lun_latency_seconds", "gauge", "How long a read or write takes at a unit, lately"),
    ("ashlar_lun_limit", "gauge", "Most reads and writes sent to a slow unit at once"),
    ("ashlar_logins_denied", "gauge", "Refused logins remembered"),
];

/// A label's value, quoted.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Bounds of the buckets of every histogram, as powers of two of nanoseconds: from 1 us to 34 s.
/// All series have the same ones, whatever they counted: otherwise a sum over series by `le` would
/// not be monotone, and percentiles of it false.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=35;

fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Samples of all metrics, by metric: the samples of one must be together on the page.
#[derive(Default)]
struct Page {
    samples: Vec<(&'static str, String)>,
}

impl Page {
    fn add(&mut self, name: &'static str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.suffixed(name, "", labels, value);
    }

    fn suffixed(
        &mut self,
        name: &'static str,
        suffix: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        let pairs: Vec<String> =
            labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let braces =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        self.samples.push((name, format!("{name}{suffix}{braces} {value}")));
    }

    /// The units of a target that have been used, each once.
    fn units(&mut self, target: &TargetState) {
        let all = target.groups.iter().flat_map(|g| &g.luns).filter(|l| l.latency_ns > 0);
        let units: BTreeMap<&str, &LunState> = all.map(|l| (l.provider.as_str(), l)).collect();
        for (provider, lun) in units {
            let labels = [("target", target.name.as_str()), ("provider", provider)];
            self.add("ashlar_lun_latency_seconds", &labels, seconds(lun.latency_ns));
            if let Some(limit) = lun.limit {
                self.add("ashlar_lun_limit", &labels, limit);
            }
        }
    }

    fn health(&mut self, name: &'static str, labels: &[(&str, &str)], health: Health) {
        for state in [Health::Ok, Health::Degraded, Health::Failed] {
            let mut labels = labels.to_vec();
            labels.push(("state", state.label()));
            self.add(name, &labels, u8::from(health == state));
        }
    }

    fn histogram(&mut self, name: &'static str, labels: &[(&str, &str)], h: &Histogram) {
        let sum: u64 = h.buckets.iter().map(|b| b.count).sum();
        for power in BOUNDS {
            let bound_ns = 1u64 << power;
            let below = h.buckets.iter().filter(|b| b.upper_ns <= bound_ns);
            let bound = seconds(bound_ns);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.suffixed(name, "_bucket", &labels, below.map(|b| b.count).sum::<u64>());
        }
        let mut all = labels.to_vec();
        all.push(("le", "+Inf"));
        self.suffixed(name, "_bucket", &all, sum);
        self.suffixed(name, "_sum", labels, seconds(h.sum_ns));
        self.suffixed(name, "_count", labels, sum);
    }

    fn provider(&mut self, class: &str, name: &str, stats: &Stats) {
        let labels = [("provider", name), ("class", class)];
        for (op, s) in stats.kinds() {
            let labels = [labels[0], labels[1], ("op", op)];
            self.add("ashlar_provider_requests_total", &labels, s.ops);
            self.add("ashlar_provider_bytes_total", &labels, s.bytes);
            self.add("ashlar_provider_errors_total", &labels, s.errors);
            // Two histograms are kept: of reads, and of everything else as "write".
            if matches!(op, "read" | "write") && !s.latency.buckets.is_empty() {
                self.histogram("ashlar_provider_latency_seconds", &labels, &s.latency);
            }
        }
        self.add("ashlar_provider_in_flight", &labels, stats.in_flight);
        self.add("ashlar_provider_busy_seconds_total", &labels, seconds(stats.busy_ns));
    }

    fn render(&self) -> String {
        let mut out = String::new();
        for (name, kind, help) in METRICS {
            let mut samples = self.samples.iter().filter(|(n, _)| n == name).peekable();
            if samples.peek().is_none() {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            samples.for_each(|(_, line)| {
                let _ = writeln!(out, "{line}");
            });
        }
        out
    }
}

fn daemon(state: &SystemState, page: &mut Page) {
    let d = &state.daemon;
    page.add("ashlar_build_info", &[("version", &d.version)], 1);
    page.add("ashlar_uptime_seconds", &[], seconds(d.uptime_ns));
    page.health("ashlar_health", &[], state.health);
    page.add("ashlar_topology_generation", &[], state.generation);
    for (i, core) in d.cores.iter().enumerate() {
        let i = i.to_string();
        let labels = [("core", i.as_str()), ("port", core.port_kind.as_str())];
        page.add("ashlar_core_busy_seconds_total", &labels, seconds(core.busy_ns));
    }
    for (kind, bytes) in [("pool", d.memory.pool_bytes), ("resident", d.memory.resident_bytes)] {
        page.add("ashlar_memory_bytes", &[("kind", kind)], bytes);
    }
}

/// Commands not answered, and of each kind of operation its requests and bytes.
type SessionSum<'a> = (u64, [(&'a str, u64, u64); 5]);

/// Sessions of a target. Sessions with the same initiator and address are counted as one: clients
/// of a Unix socket have no address of their own, and a sample may occur only once.
fn sessions(target: &TargetState, page: &mut Page) {
    let mut all: BTreeMap<(&str, &str), SessionSum<'_>> = BTreeMap::new();
    let mut windows: BTreeMap<(&str, &str), (u64, Option<u64>)> = BTreeMap::new();
    for s in &target.sessions {
        let kinds = s.stats.kinds().map(|(op, stats)| (op, stats.ops, stats.bytes));
        let who = (s.initiator.as_str(), s.address.as_str());
        let window = windows.entry(who).or_default();
        window.0 = window.0.saturating_add(u64::from(s.window));
        if let Some(share) = s.share {
            window.1 = Some(window.1.unwrap_or(0).saturating_add(u64::from(share)));
        }
        let sum = all.entry(who).or_insert_with(|| (0, kinds.map(|(op, ..)| (op, 0, 0))));
        sum.0 = sum.0.saturating_add(s.commands_outstanding);
        for (sum, one) in sum.1.iter_mut().zip(kinds) {
            sum.1 = sum.1.saturating_add(one.1);
            sum.2 = sum.2.saturating_add(one.2);
        }
    }
    for ((initiator, address), (outstanding, kinds)) in all {
        let target = [("target", target.name.as_str()), ("driver", target.driver.as_str())];
        let who = [target[0], target[1], ("initiator", initiator), ("address", address)];
        page.add("ashlar_session_in_flight", &who, outstanding);
        let (window, share) = windows.get(&(initiator, address)).copied().unwrap_or_default();
        page.add("ashlar_session_window", &who, window);
        if let Some(share) = share {
            page.add("ashlar_session_share", &who, share);
        }
        for (op, requests, bytes) in kinds {
            let labels = [who[0], who[1], who[2], who[3], ("op", op)];
            page.add("ashlar_session_requests_total", &labels, requests);
            page.add("ashlar_session_bytes_total", &labels, bytes);
        }
    }
}

/// Connections of a driver.
fn connections(c: &ConnectionsState, page: &mut Page) {
    let driver = ("driver", c.driver.as_str());
    for (name, value) in [
        ("ashlar_connections_open", c.open),
        ("ashlar_connections_waiting", c.waiting),
        ("ashlar_connections_accepted_total", c.accepted),
        ("ashlar_connections_refused_total", c.refused),
        ("ashlar_connections_warned_total", c.warned),
    ] {
        page.add(name, &[driver], value);
    }
    for (reason, number) in &c.closed {
        page.add("ashlar_connections_closed_total", &[driver, ("reason", reason)], number);
    }
}

/// The page.
pub fn render(state: &SystemState) -> String {
    let mut page = Page::default();
    daemon(state, &mut page);
    for disk in &state.disks {
        let labels = [("disk", disk.name.as_str()), ("kind", disk.kind.as_str())];
        page.health("ashlar_disk_health", &labels, disk.health);
        page.add("ashlar_disk_size_bytes", &labels, disk.size_bytes);
        if let (Some(used), Some(free)) = (disk.used_bytes, disk.free_bytes) {
            page.add("ashlar_disk_used_bytes", &labels, used);
            page.add("ashlar_disk_free_bytes", &labels, free);
        }
    }
    for geom in &state.geoms {
        let labels = [("geom", geom.name.as_str()), ("class", geom.class.as_str())];
        page.health("ashlar_geom_health", &labels, geom.health);
        for p in &geom.providers {
            let labels = [("provider", p.name.as_str()), ("class", geom.class.as_str())];
            page.add("ashlar_provider_size_bytes", &labels, p.size_bytes);
            for (mode, n) in [("r", p.r), ("w", p.w), ("e", p.e)] {
                let labels = [labels[0], labels[1], ("mode", mode)];
                page.add("ashlar_provider_opens", &labels, n);
            }
            page.provider(&geom.class, &p.name, &p.stats);
        }
    }
    for target in &state.targets {
        let labels = [("target", target.name.as_str()), ("driver", target.driver.as_str())];
        let up = target.state == TargetHealth::Listening;
        page.add("ashlar_target_up", &labels, u8::from(up));
        page.add("ashlar_target_sessions", &labels, target.sessions.len());
        page.units(target);
        sessions(target, &mut page);
    }
    state.connections.iter().for_each(|c| connections(c, &mut page));
    for file in &state.certificates {
        let (kind, name) = file.at.split_once(' ').unwrap_or(("", &file.at));
        let labels = [("kind", kind), ("name", name), ("key", &file.key), ("path", &file.path)];
        page.add("ashlar_tls_certificate_expiry_timestamp_seconds", &labels, file.expires_at);
    }
    page.add("ashlar_logins_denied", &[], state.denied.len());
    page.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Bucket, CertificateState};
    use crate::fake::geom_state;

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
        let text = render(&state);
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
    fn all_series_of_a_histogram_have_the_same_buckets() {
        let mut state = SystemState::default();
        for (name, upper_ns) in [("d0", 900), ("d1", 3_000_000), ("d2", u64::MAX)] {
            let mut geom = geom_state("disk", name, 0, &[], name);
            let write = &mut geom.providers[0].stats.write;
            write.ops = 5;
            write.latency =
                Histogram { buckets: vec![Bucket { upper_ns, count: 5 }], sum_ns: upper_ns };
            state.geoms.push(geom);
        }
        let text = render(&state);
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

    #[test]
    fn names_follow_the_rules() {
        for (name, kind, help) in METRICS {
            assert!(name.starts_with("ashlar_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
            assert!(!help.is_empty() && !name.contains("_ns") && !name.contains("_ms"), "{name}");
        }
    }
}
