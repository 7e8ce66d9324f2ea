//! Metrics of the state for Prometheus: prefix `ashlar_`, base units (seconds, bytes), `_total` for
//! what only grows.
//!
//! Series are added from the most to the least important: a limit leaves out those of sessions and
//! histograms first, and of these the histograms of layers. An object without requests has no
//! series of them, and no label has a port of a client, so that idle LUNs and reconnections do not
//! multiply series.

mod buckets;
mod families;
mod format;
mod page;
mod protobuf;
mod sessions;
mod text;

pub use families::{Family, METRICS};
pub use format::{Format, TEXT_TYPE};

use crate::api::{
    ConnectionsState, DiskState, GeomState, ListenerState, LunState, ProviderState, Stats,
    SystemState, TargetHealth, TargetState, WebhookState,
};
use crate::object_id::LUN_CLASS;
use crate::time_slices::drop_state;
use page::Page;
use sessions::SessionSums;
use std::collections::BTreeMap;
use text::seconds;

/// The page of a state that was read for it, and is dropped.
pub fn scrape(state: SystemState, series_max: u32, format: Format) -> Vec<u8> {
    let page = render(&state, series_max, format);
    drop_state(state);
    page
}

/// The page in a format, with at most `series_max` series.
pub fn render(state: &SystemState, series_max: u32, format: Format) -> Vec<u8> {
    let mut page = Page::new(format, series_max);
    daemon(state, &mut page);
    state.targets.iter().for_each(|t| target(t, &mut page));
    state.connections.iter().for_each(|c| connections(c, &mut page));
    certificates(state, &mut page);
    listeners(state, &mut page);
    state.webhooks.iter().for_each(|w| webhook(w, &mut page));
    state.disks.iter().for_each(|d| disk(d, &mut page));
    state.geoms.iter().for_each(|g| geom(g, &mut page));
    state.targets.iter().for_each(|t| units(t, &mut page));
    let providers = state.geoms.iter().flat_map(|g| g.providers.iter().map(move |p| (g, p)));
    let has_series = |p: &ProviderState| is_used(&p.stats) || has_latency(&p.stats);
    let providers = providers.inspect(|_| page.pause());
    let used: Vec<_> = providers.filter(|(_, p)| has_series(p)).collect();
    used.iter().for_each(|(g, p)| provider_counters(&g.class, p, &mut page));
    let sessions: Vec<SessionSums<'_>> = state.targets.iter().map(SessionSums::of).collect();
    sessions.iter().for_each(|sums| sums.counters(&mut page));
    let is_disk = |g: &GeomState| g.class == "disk";
    let of_disks = |which: bool| used.iter().filter(move |(g, _)| is_disk(g) == which);
    of_disks(true).for_each(|(g, p)| provider_latency(&g.class, p, &mut page));
    sessions.iter().for_each(|sums| sums.latency(&mut page));
    unit_latency(state, &mut page);
    of_disks(false).for_each(|(g, p)| provider_latency(&g.class, p, &mut page));
    page.render()
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
    page.add("ashlar_logins_denied", &[], state.denied.len());
    page.add("ashlar_logins_refused_total", &[], state.denied_total);
}

fn target(target: &TargetState, page: &mut Page) {
    let labels = [("target", target.name.as_str()), ("driver", target.driver.as_str())];
    let up = target.state == TargetHealth::Listening;
    page.add("ashlar_target_up", &labels, u8::from(up));
    page.add("ashlar_target_sessions", &labels, target.sessions.len());
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

fn certificates(state: &SystemState, page: &mut Page) {
    for file in &state.certificates {
        let (kind, name) = file.at.split_once(' ').unwrap_or(("", &file.at));
        let labels = [("kind", kind), ("name", name), ("key", &file.key), ("path", &file.path)];
        page.add("ashlar_tls_certificate_expiry_timestamp_seconds", &labels, file.expires_at);
    }
}

/// Listeners, each once: several sections may have one address.
fn listeners(state: &SystemState, page: &mut Page) {
    let name = |l: &ListenerState| (l.name.clone(), l.address.clone());
    let all: BTreeMap<_, _> = state.listeners.iter().map(|l| (name(l), l.open)).collect();
    for ((name, address), open) in &all {
        let labels = [("listener", name.as_str()), ("address", address.as_str())];
        page.add("ashlar_listener_up", &labels, u8::from(*open));
    }
}

fn webhook(webhook: &WebhookState, page: &mut Page) {
    let labels = [("webhook", webhook.name.as_str())];
    page.add("ashlar_webhook_up", &labels, u8::from(webhook.failure.is_empty()));
    for (name, value) in [
        ("ashlar_webhook_waiting", webhook.waiting),
        ("ashlar_webhook_deliveries_total", webhook.delivered),
        ("ashlar_webhook_failures_total", webhook.failures),
        ("ashlar_webhook_drops_total", webhook.dropped),
    ] {
        page.add(name, &labels, value);
    }
}

fn disk(disk: &DiskState, page: &mut Page) {
    let labels = [("disk", disk.name.as_str()), ("kind", disk.kind.as_str())];
    page.health("ashlar_disk_health", &labels, disk.health);
    page.add("ashlar_disk_size_bytes", &labels, disk.size_bytes);
    if let (Some(used), Some(free)) = (disk.used_bytes, disk.free_bytes) {
        page.add("ashlar_disk_used_bytes", &labels, used);
        page.add("ashlar_disk_free_bytes", &labels, free);
    }
}

fn geom(geom: &GeomState, page: &mut Page) {
    let labels = [("geom", geom.name.as_str()), ("class", geom.class.as_str())];
    page.health("ashlar_geom_health", &labels, geom.health);
    for rebuild in &geom.rebuilds {
        let labels = [labels[0], labels[1], ("part", rebuild.part.as_str())];
        page.add("ashlar_geom_rebuild_done_bytes", &labels, rebuild.done_bytes);
        page.add("ashlar_geom_rebuild_size_bytes", &labels, rebuild.size_bytes);
        page.add("ashlar_geom_rebuild_paused", &labels, u8::from(rebuild.paused));
        page.add("ashlar_geom_rebuild_rate_bytes", &labels, rebuild.rate_bytes.unwrap_or(0));
        if let Some(seconds) = rebuild.left_seconds {
            page.add("ashlar_geom_rebuild_left_seconds", &labels, seconds);
        }
    }
    let fs = ("fs", geom.name.as_str());
    for space in &geom.spaces {
        let labels = [fs, ("part", space.part.as_str())];
        page.add("ashlar_fs_size_bytes", &labels, space.size_bytes);
        page.add("ashlar_fs_free_bytes", &labels, space.free_bytes);
    }
    if let Some(is_serving) = geom.is_serving {
        page.add("ashlar_fs_up", &[fs], u8::from(is_serving));
    }
    if let Some(at) = geom.last_dump_at {
        page.add("ashlar_fs_last_dump_timestamp_seconds", &[fs], at);
    }
    for p in &geom.providers {
        let labels = [("provider", p.name.as_str()), ("class", geom.class.as_str())];
        page.add("ashlar_provider_size_bytes", &labels, p.size_bytes);
        for (mode, n) in [("r", p.r), ("w", p.w), ("e", p.e)].into_iter().filter(|(_, n)| *n > 0) {
            let labels = [labels[0], labels[1], ("mode", mode)];
            page.add("ashlar_provider_opens", &labels, n);
        }
        // From the start: the increase of a counter that begins with 1 is not seen.
        let labels = [labels[0], labels[1], ("op", "other")];
        page.add("ashlar_provider_errors_total", &labels, p.stats.other.errors);
    }
}

/// The units of a target that are reserved or have been used, each once.
fn units(target: &TargetState, page: &mut Page) {
    // Most units of a large daemon have no series: they are not sorted.
    let has_series =
        |l: &&LunState| l.reservation.is_some() || l.latency_ns > 0 || l.limit.is_some();
    let all = target.groups.iter().flat_map(|g| &g.luns).filter(has_series);
    let units: BTreeMap<&str, &LunState> = all.map(|l| (l.provider.as_str(), l)).collect();
    for (provider, lun) in units {
        let labels = [("target", target.name.as_str()), ("provider", provider)];
        if let Some(reservation) = &lun.reservation {
            page.add("ashlar_lun_reserved", &labels, u8::from(reservation.kind.is_some()));
            page.add("ashlar_lun_registrants", &labels, reservation.registrants.len());
        }
        if lun.latency_ns > 0 {
            page.add("ashlar_lun_latency_seconds", &labels, seconds(lun.latency_ns));
        }
        if let Some(limit) = lun.limit {
            page.add("ashlar_lun_limit", &labels, limit);
        }
    }
}

/// Whether there has been a request.
fn is_used(stats: &Stats) -> bool {
    stats.ops() > 0 || stats.in_flight > 0
}

/// Whether there is a histogram.
fn has_latency(stats: &Stats) -> bool {
    !stats.read.latency.buckets.is_empty() || !stats.write.latency.buckets.is_empty()
}

fn provider_counters(class: &str, provider: &ProviderState, page: &mut Page) {
    let stats = &provider.stats;
    if !is_used(stats) {
        return;
    }
    let labels = [("provider", provider.name.as_str()), ("class", class)];
    for (op, s) in stats.kinds() {
        let labels = [labels[0], labels[1], ("op", op)];
        page.add("ashlar_provider_requests_total", &labels, s.ops);
        page.add("ashlar_provider_bytes_total", &labels, s.bytes);
        if op != "other" {
            page.add("ashlar_provider_errors_total", &labels, s.errors);
        }
    }
    page.add("ashlar_provider_in_flight", &labels, stats.in_flight);
    page.add("ashlar_provider_busy_seconds_total", &labels, seconds(stats.busy_ns));
}

fn provider_latency(class: &str, provider: &ProviderState, page: &mut Page) {
    let labels = [("provider", provider.name.as_str()), ("class", class)];
    page.latency("ashlar_provider_latency_seconds", &labels, &provider.stats);
}

/// Requests of units at their providers, each unit once.
fn unit_latency(state: &SystemState, page: &mut Page) {
    let units = state.geoms.iter().filter(|geom| geom.class == LUN_CLASS);
    let consumers = units.flat_map(|geom| &geom.consumers).inspect(|_| page.pause());
    let consumers = consumers.filter(|c| has_latency(&c.stats));
    let all: BTreeMap<&str, &Stats> =
        consumers.filter_map(|c| Some((c.provider.as_deref()?, &c.stats))).collect();
    for (provider, stats) in all {
        page.latency("ashlar_lun_request_latency_seconds", &[("provider", provider)], stats);
    }
}

#[cfg(test)]
mod tests;
