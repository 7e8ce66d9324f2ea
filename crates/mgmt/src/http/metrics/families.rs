//! List of the metrics. Names, types, units and labels are an interface:
//! `docs/reference/metrics.md` is made from this list, and a test compares it.

/// A metric.
pub struct Family {
    /// Name, with the unit as suffix.
    pub name: &'static str,
    /// Type: `gauge`, `counter` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Description in one line.
    pub help: &'static str,
}

type Labels = &'static [&'static str];

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "gauge", labels, help }
}

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "counter", labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "histogram", labels, help }
}

/// Every metric, in the order of the page.
pub const METRICS: &[Family] = &[
    gauge("ashlar_build_info", &["version"], "Version of the daemon; always 1"),
    gauge("ashlar_uptime_seconds", &[], "Time since the start of the daemon"),
    gauge("ashlar_health", &["state"], "1 for the present health of the daemon, 0 for the others"),
    gauge("ashlar_topology_generation", &[], "Grows with every change of the topology"),
    counter("ashlar_core_busy_seconds_total", &["core", "port"], "CPU time of a core"),
    gauge("ashlar_memory_bytes", &["kind"], "Size of the buffer pools, resident memory"),
    gauge(
        "ashlar_disk_health",
        &["disk", "kind", "state"],
        "1 for the present health of a disk, 0 for the others",
    ),
    gauge("ashlar_disk_size_bytes", &["disk", "kind"], "Size of a disk"),
    gauge("ashlar_disk_used_bytes", &["disk", "kind"], "Allocated bytes of a thin disk"),
    gauge(
        "ashlar_disk_free_bytes",
        &["disk", "kind"],
        "Bytes that a thin disk can still allocate; other disks may share them",
    ),
    gauge(
        "ashlar_geom_health",
        &["geom", "class", "state"],
        "1 for the present health of a geom, 0 for the others",
    ),
    gauge(
        "ashlar_geom_rebuild_done_bytes",
        &["geom", "class", "part"],
        "Bytes that a rebuild, resync or copy of dumps to a WORM has processed",
    ),
    gauge(
        "ashlar_geom_rebuild_size_bytes",
        &["geom", "class", "part"],
        "Bytes that a rebuild, resync or copy of dumps to a WORM processes in all",
    ),
    gauge(
        "ashlar_geom_rebuild_paused",
        &["geom", "class", "part"],
        "1 if a rebuild or resync is paused, else 0",
    ),
    gauge(
        "ashlar_geom_rebuild_rate_bytes",
        &["geom", "class", "part"],
        "Bytes per second of a rebuild or resync over the last seconds; 0 while it is paused",
    ),
    gauge(
        "ashlar_geom_rebuild_left_seconds",
        &["geom", "class", "part"],
        "Time until the end of a rebuild or resync at its present rate; absent without a rate",
    ),
    gauge("ashlar_fs_up", &["fs"], "Whether a file server serves clients"),
    gauge(
        "ashlar_fs_size_bytes",
        &["fs", "part"],
        "Size of the cache device or the WORM of a file server",
    ),
    gauge(
        "ashlar_fs_free_bytes",
        &["fs", "part"],
        "Free space of a file server: cache for changes until the next dump, WORM",
    ),
    gauge(
        "ashlar_fs_last_dump_timestamp_seconds",
        &["fs"],
        "Time of the newest dump of a file server, seconds since 1970",
    ),
    gauge("ashlar_provider_size_bytes", &["provider", "class"], "Size of a provider"),
    gauge(
        "ashlar_provider_opens",
        &["provider", "class", "mode"],
        "Access counts of a provider (r, w, e) that are not 0",
    ),
    counter(
        "ashlar_provider_requests_total",
        &["provider", "class", "op"],
        "Requests completed by a provider",
    ),
    counter(
        "ashlar_provider_bytes_total",
        &["provider", "class", "op"],
        "Bytes of requests completed by a provider",
    ),
    counter(
        "ashlar_provider_errors_total",
        &["provider", "class", "op"],
        "Requests of a provider that failed",
    ),
    gauge(
        "ashlar_provider_in_flight",
        &["provider", "class"],
        "Requests a provider has not completed yet",
    ),
    counter(
        "ashlar_provider_busy_seconds_total",
        &["provider", "class"],
        "Time with requests in flight",
    ),
    histogram(
        "ashlar_provider_latency_seconds",
        &["provider", "class", "op"],
        "From start to completion; write includes deletes and flushes",
    ),
    gauge("ashlar_target_up", &["target", "driver"], "1 when a target accepts logins"),
    gauge("ashlar_target_sessions", &["target", "driver"], "Live sessions of a target"),
    gauge("ashlar_connections_open", &["driver"], "Open connections of a driver"),
    gauge(
        "ashlar_connections_waiting",
        &["driver"],
        "Accepted connections that wait for their handshake",
    ),
    counter("ashlar_connections_accepted_total", &["driver"], "Connections accepted by a driver"),
    counter(
        "ashlar_connections_refused_total",
        &["driver"],
        "Connections reset at the limit of a core or a peer",
    ),
    counter(
        "ashlar_connections_warned_total",
        &["driver"],
        "Connections closed with a warning in the log",
    ),
    counter(
        "ashlar_connections_closed_total",
        &["driver", "reason"],
        "Connections closed, by reason",
    ),
    gauge(
        "ashlar_tls_certificate_expiry_timestamp_seconds",
        &["kind", "name", "key", "path"],
        "When the first certificate of a file expires, seconds since 1970",
    ),
    gauge(
        "ashlar_listener_up",
        &["listener", "address"],
        "1 while a listener of the API or of metrics is open, else 0",
    ),
    gauge(
        "ashlar_webhook_up",
        &["webhook"],
        "0 while the last attempt to deliver an event has failed, else 1",
    ),
    gauge("ashlar_webhook_waiting", &["webhook"], "Events that wait for their delivery"),
    counter("ashlar_webhook_deliveries_total", &["webhook"], "Events delivered to a webhook"),
    counter("ashlar_webhook_failures_total", &["webhook"], "Failed attempts to deliver an event"),
    counter(
        "ashlar_webhook_drops_total",
        &["webhook"],
        "Events that were dropped: too many waited, or the server did not accept them",
    ),
    counter(
        "ashlar_session_requests_total",
        &["target", "driver", "initiator", "address", "op"],
        "Requests completed for a session",
    ),
    counter(
        "ashlar_session_bytes_total",
        &["target", "driver", "initiator", "address", "op"],
        "Bytes of requests completed for a session",
    ),
    histogram(
        "ashlar_session_latency_seconds",
        &["target", "driver", "initiator", "address", "op"],
        "Reads and writes of a session, from the arrival of a command to its answer",
    ),
    gauge(
        "ashlar_session_in_flight",
        &["target", "driver", "initiator", "address"],
        "Commands of a session not answered yet",
    ),
    gauge(
        "ashlar_session_window",
        &["target", "driver", "initiator", "address"],
        "Commands that a session may have outstanding",
    ),
    gauge(
        "ashlar_session_share",
        &["target", "driver", "initiator", "address"],
        "Commands that a session may have at a slow unit",
    ),
    histogram(
        "ashlar_lun_request_latency_seconds",
        &["provider", "op"],
        "Requests of LUNs at their provider, of all targets together; write as for providers",
    ),
    counter(
        "ashlar_lun_requests_total",
        &["target", "driver", "group", "lun", "provider", "op"],
        "Reads and writes of a LUN of a group by all sessions, since it was mapped to its provider",
    ),
    counter(
        "ashlar_lun_bytes_total",
        &["target", "driver", "group", "lun", "provider", "op"],
        "Bytes of reads and writes of a LUN of a group",
    ),
    gauge(
        "ashlar_lun_reserved",
        &["target", "provider"],
        "1 while a unit with registrants or a reservation is reserved, else 0",
    ),
    gauge(
        "ashlar_lun_registrants",
        &["target", "provider"],
        "Registrants of a unit, or the holder of a reservation by RESERVE",
    ),
    gauge(
        "ashlar_lun_latency_seconds",
        &["target", "provider"],
        "Recent latency of a read or write at a unit",
    ),
    gauge(
        "ashlar_lun_limit",
        &["target", "provider"],
        "Most reads and writes sent to a slow unit at once",
    ),
    gauge("ashlar_logins_denied", &[], "Refused logins remembered, 256 at most"),
    counter("ashlar_logins_refused_total", &[], "Refused logins since the start of the daemon"),
    gauge("ashlar_metrics_series", &[], "Series of this scrape, these two not counted"),
    gauge(
        "ashlar_metrics_series_dropped",
        &[],
        "Series that this scrape leaves out because of `metrics_series_max`",
    ),
];

/// A metric of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric(usize);

impl Metric {
    /// The metric of this name. In a constant, a name that is not listed fails the build.
    pub(super) const fn named(name: &str) -> Metric {
        let mut place = 0;
        while place < METRICS.len() {
            if is_same(METRICS[place].name.as_bytes(), name.as_bytes()) {
                return Metric(place);
            }
            place += 1;
        }
        panic!("the list of metrics has no such name")
    }

    /// Its place in the list.
    pub(super) const fn place(self) -> usize {
        self.0
    }

    /// Its entry of the list.
    pub(super) const fn family(self) -> &'static Family {
        &METRICS[self.0]
    }
}

/// `==` cannot be used in constants.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The [`Metric`] of a name, which is looked up when the program is built.
macro_rules! metric {
    ($name:literal) => {
        const { $crate::http::metrics::families::Metric::named($name) }
    };
}
pub(super) use metric;
