//! Metrics of the state for Prometheus: prefix `ashlar_`, base units (seconds, bytes), `_total` for
//! what only grows.
//!
//! Series are added from the most to the least important. A limit leaves out those of sessions and
//! histograms first, and of these the histograms of layers. An object without requests has no
//! series of them, and no label has a port of a client, so that idle LUNs and reconnections do not
//! multiply series.

mod answer;
mod buckets;
mod families;
mod format;
mod number;
mod page;
mod protobuf;
mod sessions;
mod text;

pub(super) use answer::answer;
pub use families::{Family, METRICS};
pub use format::{Format, TEXT_TYPE};

use crate::api::{
    ConnectionsState, DiskState, GeomState, ListenerState, LunState, ProviderState, Stats,
    SystemState, TargetHealth, TargetState, WebhookState,
};
use crate::object_id::LUN_CLASS;
use families::{Metric, metric};
use number::seconds;
use page::{Label, Page};
use sessions::SessionSums;
use std::collections::BTreeMap;

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
    let mut used = UsedObjects::default();
    for g in &state.geoms {
        geom(g, &mut page);
        used.note(g);
    }
    state.targets.iter().for_each(|t| units(t, &mut page));
    used.providers.iter().for_each(|(g, p)| provider_counters(&g.class, p, &mut page));
    let sessions: Vec<SessionSums<'_>> = state.targets.iter().map(SessionSums::of).collect();
    sessions.iter().for_each(|sums| sums.counters(&mut page));
    state.targets.iter().for_each(|t| lun_counters(t, &mut page));
    let is_disk = |g: &GeomState| g.class == "disk";
    let of_disks = |which: bool| used.providers.iter().filter(move |(g, _)| is_disk(g) == which);
    of_disks(true).for_each(|(g, p)| provider_latency(&g.class, p, &mut page));
    sessions.iter().for_each(|sums| sums.latency(&mut page));
    used.units.iter().for_each(|(provider, stats)| unit_latency(provider, stats, &mut page));
    of_disks(false).for_each(|(g, p)| provider_latency(&g.class, p, &mut page));
    page.render()
}

/// Objects that have had requests. Most objects of a large daemon have not, and are read once.
#[derive(Default)]
struct UsedObjects<'a> {
    providers: Vec<(&'a GeomState, &'a ProviderState)>,
    /// Requests of units at their providers, each unit once.
    units: BTreeMap<&'a str, &'a Stats>,
}

impl<'a> UsedObjects<'a> {
    fn note(&mut self, geom: &'a GeomState) {
        let has_series = |p: &&ProviderState| is_used(&p.stats) || has_latency(&p.stats);
        self.providers.extend(geom.providers.iter().filter(has_series).map(|p| (geom, p)));
        if geom.class == LUN_CLASS {
            let used = geom.consumers.iter().filter(|c| has_latency(&c.stats));
            self.units.extend(used.filter_map(|c| Some((c.provider.as_deref()?, &c.stats))));
        }
    }
}

fn daemon(state: &SystemState, page: &mut Page) {
    let d = &state.daemon;
    page.object(&[("version", &d.version)]).add(metric!("ashlar_build_info"), true);
    let mut whole = page.object(&[]);
    whole.add(metric!("ashlar_uptime_seconds"), seconds(d.uptime_ns));
    whole.health(metric!("ashlar_health"), state.health);
    whole.add(metric!("ashlar_topology_generation"), state.generation);
    for (i, core) in d.cores.iter().enumerate() {
        let i = i.to_string();
        let mut of = page.object(&[("core", &i), ("port", core.port_kind.as_str())]);
        of.add(metric!("ashlar_core_busy_seconds_total"), seconds(core.busy_ns));
    }
    let mut whole = page.object(&[]);
    for (kind, bytes) in [("pool", d.memory.pool_bytes), ("resident", d.memory.resident_bytes)] {
        whole.add_with(metric!("ashlar_memory_bytes"), ("kind", kind), bytes);
    }
    whole.add(metric!("ashlar_logins_denied"), state.denied.len());
    whole.add(metric!("ashlar_logins_refused_total"), state.denied_total);
}

fn target(target: &TargetState, page: &mut Page) {
    let mut of = page.object(&[("target", &target.name), ("driver", &target.driver)]);
    of.add(metric!("ashlar_target_up"), target.state == TargetHealth::Listening);
    of.add(metric!("ashlar_target_sessions"), target.sessions.len());
}

/// Connections of a driver.
fn connections(c: &ConnectionsState, page: &mut Page) {
    let mut driver = page.object(&[("driver", &c.driver)]);
    for (metric, value) in [
        (metric!("ashlar_connections_open"), c.open),
        (metric!("ashlar_connections_waiting"), c.waiting),
        (metric!("ashlar_connections_accepted_total"), c.accepted),
        (metric!("ashlar_connections_refused_total"), c.refused),
        (metric!("ashlar_connections_warned_total"), c.warned),
    ] {
        driver.add(metric, value);
    }
    for (reason, number) in &c.closed {
        let reason = ("reason", reason.as_str());
        driver.add_with(metric!("ashlar_connections_closed_total"), reason, *number);
    }
}

fn certificates(state: &SystemState, page: &mut Page) {
    const EXPIRY: Metric = metric!("ashlar_tls_certificate_expiry_timestamp_seconds");
    for file in &state.certificates {
        let (kind, name) = file.at.split_once(' ').unwrap_or(("", &file.at));
        let labels = [("kind", kind), ("name", name), ("key", &file.key), ("path", &file.path)];
        page.object(&labels).add(EXPIRY, file.expires_at);
    }
}

/// Listeners, each once: several sections may have one address.
fn listeners(state: &SystemState, page: &mut Page) {
    let name = |l: &ListenerState| (l.name.clone(), l.address.clone());
    let all: BTreeMap<_, _> = state.listeners.iter().map(|l| (name(l), l.open)).collect();
    for ((name, address), open) in &all {
        let mut listener = page.object(&[("listener", name), ("address", address)]);
        listener.add(metric!("ashlar_listener_up"), *open);
    }
}

fn webhook(webhook: &WebhookState, page: &mut Page) {
    let mut of = page.object(&[("webhook", &webhook.name)]);
    of.add(metric!("ashlar_webhook_up"), webhook.failure.is_empty());
    for (metric, value) in [
        (metric!("ashlar_webhook_waiting"), webhook.waiting),
        (metric!("ashlar_webhook_deliveries_total"), webhook.delivered),
        (metric!("ashlar_webhook_failures_total"), webhook.failures),
        (metric!("ashlar_webhook_drops_total"), webhook.dropped),
    ] {
        of.add(metric, value);
    }
}

fn disk(disk: &DiskState, page: &mut Page) {
    let mut of = page.object(&[("disk", &disk.name), ("kind", &disk.kind)]);
    of.health(metric!("ashlar_disk_health"), disk.health);
    of.add(metric!("ashlar_disk_size_bytes"), disk.size_bytes);
    if let (Some(used), Some(free)) = (disk.used_bytes, disk.free_bytes) {
        of.add(metric!("ashlar_disk_used_bytes"), used);
        of.add(metric!("ashlar_disk_free_bytes"), free);
    }
}

fn geom(geom: &GeomState, page: &mut Page) {
    let mut of = page.object(&[("geom", &geom.name), ("class", &geom.class)]);
    of.health(metric!("ashlar_geom_health"), geom.health);
    for rebuild in &geom.rebuilds {
        let part = ("part", rebuild.part.as_str());
        let rate = rebuild.rate_bytes.unwrap_or(0);
        of.add_with(metric!("ashlar_geom_rebuild_done_bytes"), part, rebuild.done_bytes);
        of.add_with(metric!("ashlar_geom_rebuild_size_bytes"), part, rebuild.size_bytes);
        of.add_with(metric!("ashlar_geom_rebuild_paused"), part, rebuild.paused);
        of.add_with(metric!("ashlar_geom_rebuild_rate_bytes"), part, rate);
        if let Some(seconds) = rebuild.left_seconds {
            of.add_with(metric!("ashlar_geom_rebuild_left_seconds"), part, seconds);
        }
    }
    let fs: [Label<'_>; 1] = [("fs", &geom.name)];
    for space in &geom.spaces {
        let part = ("part", space.part.as_str());
        let mut of = page.object(&fs);
        of.add_with(metric!("ashlar_fs_size_bytes"), part, space.size_bytes);
        of.add_with(metric!("ashlar_fs_free_bytes"), part, space.free_bytes);
    }
    if let Some(is_serving) = geom.is_serving {
        page.object(&fs).add(metric!("ashlar_fs_up"), is_serving);
    }
    if let Some(at) = geom.last_dump_at {
        page.object(&fs).add(metric!("ashlar_fs_last_dump_timestamp_seconds"), at);
    }
    for p in &geom.providers {
        let mut of = page.object(&[("provider", &p.name), ("class", &geom.class)]);
        of.add(metric!("ashlar_provider_size_bytes"), p.size_bytes);
        for (mode, n) in [("r", p.r), ("w", p.w), ("e", p.e)].into_iter().filter(|(_, n)| *n > 0) {
            of.add_with(metric!("ashlar_provider_opens"), ("mode", mode), n);
        }
        // From the start: the increase of a counter that begins with 1 is not seen.
        let errors = p.stats.other.errors;
        of.add_with(metric!("ashlar_provider_errors_total"), ("op", "other"), errors);
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
        let mut unit = page.object(&[("target", &target.name), ("provider", provider)]);
        if let Some(reservation) = &lun.reservation {
            unit.add(metric!("ashlar_lun_reserved"), reservation.kind.is_some());
            unit.add(metric!("ashlar_lun_registrants"), reservation.registrants.len());
        }
        if lun.latency_ns > 0 {
            unit.add(metric!("ashlar_lun_latency_seconds"), seconds(lun.latency_ns));
        }
        if let Some(limit) = lun.limit {
            unit.add(metric!("ashlar_lun_limit"), limit);
        }
    }
}

/// Requests of the LUNs of a target's groups that have been used.
fn lun_counters(target: &TargetState, page: &mut Page) {
    let luns = target.groups.iter().flat_map(|g| g.luns.iter().map(move |lun| (g, lun)));
    for (group, lun) in luns {
        let Some(c) = lun.counters.filter(|c| c.reads > 0 || c.writes > 0) else { continue };
        let number = lun.lun.to_string();
        let mut of = page.object(&[
            ("target", &target.name),
            ("driver", &target.driver),
            ("group", &group.name),
            ("lun", &number),
            ("provider", &lun.provider),
        ]);
        for (op, requests, bytes) in
            [("read", c.reads, c.read_bytes), ("write", c.writes, c.write_bytes)]
        {
            of.add_with(metric!("ashlar_lun_requests_total"), ("op", op), requests);
            of.add_with(metric!("ashlar_lun_bytes_total"), ("op", op), bytes);
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
    let mut of = page.object(&[("provider", &provider.name), ("class", class)]);
    for (kind, s) in stats.kinds() {
        let op = ("op", kind);
        of.add_with(metric!("ashlar_provider_requests_total"), op, s.ops);
        of.add_with(metric!("ashlar_provider_bytes_total"), op, s.bytes);
        if kind != "other" {
            of.add_with(metric!("ashlar_provider_errors_total"), op, s.errors);
        }
    }
    of.add(metric!("ashlar_provider_in_flight"), stats.in_flight);
    of.add(metric!("ashlar_provider_busy_seconds_total"), seconds(stats.busy_ns));
}

fn provider_latency(class: &str, provider: &ProviderState, page: &mut Page) {
    let mut of = page.object(&[("provider", &provider.name), ("class", class)]);
    of.latency(metric!("ashlar_provider_latency_seconds"), &provider.stats);
}

fn unit_latency(provider: &str, stats: &Stats, page: &mut Page) {
    let mut unit = page.object(&[("provider", provider)]);
    unit.latency(metric!("ashlar_lun_request_latency_seconds"), stats);
}

#[cfg(test)]
mod tests;
