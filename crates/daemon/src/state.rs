//! The state of everything, as the API shows it.

mod disk_state;
mod session_state;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bio::Op;
use disks::DISK_CLASS;
use drivers::Driver;
use engine::registry::{DeviceView, GroupView, PortGroupView, RegistryView, TargetView};
use engine::reservations::Reservations;
use geom::{
    Class, ConsumerView, GeomView, Measure, Progress, ProviderView, Reading, ServedClient,
    Severity, Topology, Transient, Trouble, bucket_top_ns,
};
use mgmt::api::{
    Bucket, BusState, ConnectionsState, ConsumerState, Daemon, Denied, DeviceErrorState,
    DeviceState, DiskState, FormerNameState, GeomState, GroupState, Health, Histogram, LunState,
    Memory, OpStats, PendingLunState, PortGroupState, ProviderState, RebuildState, RegistrantState,
    ReservationState, RivalsState, SCHEMA_VERSION, ServedClientState, SpaceState, Stats,
    StoppedState, SystemState, TargetHealth, TargetState, TasteRejection, TransientState,
    TroubleState,
};
use mgmt::config::{AccessConfig, Config};
use serde_json::{Map, Value};
use wire::scsi::{TransportId, hex, show_naa, show_uuid};

use crate::exports::FilesInUse;
use disk_state::disk;
use session_state::session;

/// Sources of the state report.
pub struct Sources<'a> {
    /// The graph.
    pub topology: &'a Topology,
    /// The buses.
    pub cam: &'a cam::CamClass,
    /// The exports.
    pub registry: &'a RegistryView,
    /// The drivers.
    pub drivers: &'a [Arc<dyn Driver>],
    /// The configuration that has been carried out.
    pub config: &'a Config,
    /// Portals that listen, by target.
    pub portals: &'a BTreeMap<String, Vec<String>>,
    /// Providers of LUNs that cannot be exported, with why.
    pub refused: &'a BTreeMap<String, String>,
    /// Disks whose medium could not be opened when it returned, with why.
    pub refused_disks: &'a BTreeMap<String, String>,
    /// Files of secrets, certificates and keys.
    pub files: &'a FilesInUse,
    /// LUNs attached to this machine.
    pub attached: Vec<mgmt::api::AttachedState>,
    /// The process.
    pub daemon: Daemon,
    /// Now, ns of the cores' clock.
    pub now_ns: u64,
}

/// Units of the registry, by name.
type Units<'a> = HashMap<&'a str, &'a DeviceView>;

impl Sources<'_> {
    /// A time of the cores' clock as time since the daemon's start, ns.
    fn since_start_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.now_ns.saturating_sub(self.daemon.uptime_ns))
    }
}

/// The whole state.
pub fn state(from: &Sources<'_>) -> SystemState {
    let geoms = from.topology.view(from.now_ns);
    let disks = disks(from, &geoms);
    let stopped = stopped(from.topology, &geoms);
    let disk_names = from.config.disk.iter().map(|d| (DISK_CLASS, d.name.as_str()));
    let layers = from.config.geom.iter().map(|g| (g.class.as_str(), g.name.as_str()));
    let configured: HashSet<(&str, &str)> = disk_names.chain(layers).collect();
    let units: Units<'_> = from.registry.devices.iter().map(|d| (d.name.as_str(), d)).collect();
    let mut state = SystemState {
        schema_version: SCHEMA_VERSION,
        generation: from.topology.generation(),
        daemon: from.daemon.clone(),
        buses: from.cam.buses().iter().map(|b| bus(from, b)).collect(),
        disks,
        geoms: geoms.into_iter().map(|g| geom_state(&configured, g)).collect(),
        targets: from
            .config
            .target
            .iter()
            .map(|t| target_state(from, &units, &t.driver, &t.name))
            .collect(),
        connections: from.drivers.iter().filter_map(connections).collect(),
        port_groups: port_groups(from.registry),
        attached: from.attached.clone(),
        denied: denied(from),
        rivals: rivals(from),
        certificates: from.files.certificates(),
        changed_files: from.files.changed(),
        former_names: former_names(from),
        stopped,
        ..SystemState::default()
    };
    state.health = state.worst();
    state
}

/// Disks of the configuration.
fn disks(from: &Sources<'_>, geoms: &[GeomView]) -> Vec<DiskState> {
    let open = geoms.iter().filter(|g| g.class == DISK_CLASS && !g.withering);
    let by_name: HashMap<&str, &GeomView> = open.map(|g| (g.name.as_str(), g)).collect();
    from.config.disk.iter().map(|d| disk(from, &by_name, &d.name, &d.kind)).collect()
}

/// Geoms that a verb stopped: those that a provider is known as a member of.
fn stopped(topology: &Topology, geoms: &[GeomView]) -> Vec<StoppedState> {
    let verdicts = || geoms.iter().flat_map(|g| &g.providers).flat_map(|p| &p.taste_outcomes);
    let of = |class: &Arc<dyn Class>| {
        let all = class.stopped_geoms().into_iter();
        let seen =
            all.filter(|(_, why)| verdicts().any(|(_, outcome)| outcome.contains(why.as_str())));
        let name = class.name();
        seen.map(|(geom, _)| StoppedState { class: name.into(), name: geom }).collect::<Vec<_>>()
    };
    topology.classes().iter().flat_map(of).collect()
}

fn former_names(from: &Sources<'_>) -> Vec<FormerNameState> {
    let one = |(name, unit): (&String, &engine::registry::Former)| FormerNameState {
        name: name.clone(),
        provider: unit.provider.clone(),
    };
    from.registry.former.iter().map(one).collect()
}

fn histogram(buckets: &[u64], sum_ns: u64) -> Histogram {
    let used = buckets.iter().enumerate().filter(|(_, n)| **n > 0);
    let buckets = used.map(|(i, n)| Bucket { upper_ns: bucket_top_ns(i), count: *n });
    Histogram { buckets: buckets.collect(), sum_ns }
}

fn stats(r: &Reading) -> Stats {
    if r.is_unused() {
        return Stats { in_flight: r.in_flight, busy_ns: r.busy_ns, ..Stats::default() };
    }
    let op = |op: Op| OpStats {
        ops: r.ops[op as usize],
        bytes: r.bytes[op as usize],
        ..OpStats::default()
    };
    let mut out = Stats {
        read: op(Op::Read),
        write: op(Op::Write),
        delete: op(Op::Delete),
        flush: op(Op::Flush),
        other: op(Op::GetAttr),
        in_flight: r.in_flight,
        busy_ns: r.busy_ns,
    };
    let zeroes = op(Op::WriteZeroes);
    out.write.ops += zeroes.ops;
    out.write.bytes += zeroes.bytes;
    out.read.latency = histogram(&r.read_latency, r.read_latency_ns);
    out.write.latency = histogram(&r.write_latency, r.write_latency_ns);
    out.other.errors = r.errors;
    out
}

fn count(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

fn provider(p: ProviderView) -> ProviderState {
    ProviderState {
        name: p.name,
        size_bytes: p.limits.media_bytes,
        sector_bytes: p.limits.sector_bytes,
        stripe_bytes: p.stripe_bytes,
        r: count(p.counts.r),
        w: count(p.counts.w),
        e: count(p.counts.e),
        error: p.error.map(|e| e.to_string()),
        config: Map::new(),
        stats: stats(&p.stats),
        why_not: p
            .taste_outcomes
            .into_iter()
            .map(|(class, why)| TasteRejection { class: class.into(), why })
            .collect(),
    }
}

fn consumer(c: ConsumerView) -> ConsumerState {
    ConsumerState {
        provider: c.provider,
        r: count(c.counts.r),
        w: count(c.counts.w),
        e: count(c.counts.e),
        state: c.show.into_iter().find(|(k, _)| *k == "State").map(|(_, v)| v).unwrap_or_default(),
        stats: stats(&c.stats),
    }
}

/// How a geom is, as a class grades it.
pub fn health(severity: Severity) -> Health {
    match severity {
        Severity::Good => Health::Ok,
        Severity::Degraded => Health::Degraded,
        Severity::Failed => Health::Failed,
    }
}

pub(crate) fn trouble(trouble: &Trouble) -> TroubleState {
    let (why, action) = (trouble.why.clone(), trouble.action.clone());
    TroubleState { health: health(trouble.severity), why, action }
}

/// The progress of a rebuild or resync.
pub(crate) fn rebuild(progress: &Progress) -> RebuildState {
    RebuildState {
        part: progress.part.clone(),
        sources: progress.sources.clone(),
        done_bytes: progress.done_bytes,
        size_bytes: progress.size_bytes,
        percent: progress.percent(),
        rate_bytes: progress.rate(),
        left_seconds: progress.left_seconds(),
        paused: progress.is_paused,
        limit_bytes: Some(progress.limit).filter(|limit| *limit > 0),
        switch: progress.switch.map(str::to_owned),
    }
}

/// A geom with its measures alone.
fn measured(all: &[Measure]) -> GeomState {
    let mut out = GeomState::default();
    for measure in all {
        match measure {
            Measure::Rebuild(progress) => out.rebuilds.push(rebuild(progress)),
            Measure::Space { part, free_bytes, size_bytes } => out.spaces.push(SpaceState {
                part: (*part).to_owned(),
                free_bytes: *free_bytes,
                size_bytes: *size_bytes,
            }),
            Measure::Serving(is_serving) => out.is_serving = Some(*is_serving),
            Measure::LastDump(at_s) => out.last_dump_at = Some(*at_s),
        }
    }
    out
}

fn served_client(client: ServedClient) -> ServedClientState {
    let ServedClient { name, key, portal } = client;
    ServedClientState { name, key: key.to_owned(), portal }
}

fn geom_state(configured: &HashSet<(&str, &str)>, g: GeomView) -> GeomState {
    let failed = g.providers.iter().find_map(|p| p.error.map(|e| (p, e)));
    let entry = |key: &str| g.show.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
    let troubles: Vec<TroubleState> = g.troubles.iter().map(trouble).collect();
    let worst = troubles.iter().map(|t| t.health).max().unwrap_or_default();
    let whys: Vec<&str> = troubles.iter().map(|t| t.why.as_str()).collect();
    let (health, health_why) = match (failed, whys.is_empty()) {
        (_, false) => (worst, whys.join("; ")),
        (Some((p, e)), true) => (Health::Failed, format!("{} ended with {e}", p.name)),
        (None, true) => (Health::Ok, String::new()),
    };
    let configured = configured.contains(&(g.class, g.name.as_str()));
    let measured = measured(&g.measures);
    let state = entry("state").or_else(|| entry("State")).unwrap_or_else(|| match health {
        Health::Ok => "ACTIVE".into(),
        Health::Degraded => "DEGRADED".into(),
        Health::Failed => "FAILED".into(),
    });
    let transient = |t: Transient| TransientState { what: t.setting, undo: t.undo };
    GeomState {
        class: g.class.into(),
        name: g.name,
        rank: g.rank,
        why: if configured { "configured".into() } else { g.why },
        configured,
        state,
        health,
        health_why,
        troubles,
        withering: g.withering,
        config: g.show.into_iter().map(|(k, v)| (k.into(), Value::String(v))).collect(),
        settings: g.settings,
        transients: g.transients.into_iter().map(transient).collect(),
        clients: g.clients.into_iter().map(served_client).collect(),
        consumers: g.consumers.into_iter().map(consumer).collect(),
        providers: g.providers.into_iter().map(provider).collect(),
        ..measured
    }
}

fn bus(from: &Sources<'_>, bus: &cam::Bus) -> BusState {
    let name = bus.sim().facts().name;
    let device =
        |(unit, facts, name): (std::sync::Arc<cam::Unit>, cam::Facts, String)| DeviceState {
            target: unit.path().target,
            lun: unit.path().lun,
            device: facts.label(),
            lost: unit.inspect(|device| device.is_lost()),
            kept: from.cam.wired_names().has(&name),
            last_error: cam::LastError::of(&unit, from.now_ns).map(|e| DeviceErrorState {
                what: e.description,
                age_ns: e.age_ns,
                count: e.count,
            }),
            name,
        };
    let troubles: Vec<TroubleState> = bus.troubles().iter().map(trouble).collect();
    BusState {
        number: bus.number(),
        health: troubles.iter().map(|t| t.health).max().unwrap_or_default(),
        troubles,
        configured: from.config.bus(&name).is_some(),
        asking: bus.is_scanning(),
        devices: bus.devices().into_iter().map(device).collect(),
        name,
    }
}

fn target_state(from: &Sources<'_>, units: &Units<'_>, driver: &str, name: &str) -> TargetState {
    let view = from.registry.targets.iter().find(|t| t.driver == driver && t.name == name);
    let portals = from.portals.get(name).cloned().unwrap_or_default();
    let sessions = from.registry.sessions.iter().filter(|s| s.driver == driver && s.target == name);
    // A local target listens nowhere, and is there all the same.
    let listens = from.config.target(name).is_none_or(|t| !t.listen.is_empty());
    let listening = view.is_some() && (!listens || !portals.is_empty());
    let lost = view.into_iter().flat_map(|v| &v.groups).flat_map(|g| &g.luns).find_map(|l| {
        let d = units.get(l.1.as_str())?;
        d.lost.map(|e| format!("LUN {} ({}) is lost: {e}", l.0, l.1))
    });
    let groups = view.map(|v| groups(from, units, v)).unwrap_or_default();
    let awaited = || {
        let mut awaited = groups.iter().flat_map(|g| &g.awaited);
        let PendingLunState { lun, provider } = awaited.next()?;
        let more = match awaited.count() {
            0 => String::new(),
            n => format!(" and {n} more are"),
        };
        if let Some(why) = from.refused.get(provider) {
            return Some(format!("LUN {lun} ({provider}) cannot be exported: {why}"));
        }
        let is = if more.is_empty() { " is" } else { &more };
        let who = from
            .cam
            .wired_names()
            .holder(provider)
            .map(|o| format!("; {provider} is reserved for {} on {}", o.identity, o.bus));
        let who = who.unwrap_or_default();
        Some(format!("LUN {lun} ({provider}){is} not there yet; exported on arrival{who}"))
    };
    let (health, health_why) = match (listening, lost.or_else(awaited)) {
        (false, _) => (Health::Failed, "no portal listens".to_owned()),
        (true, Some(why)) => (Health::Degraded, why),
        (true, None) => (Health::Ok, String::new()),
    };
    TargetState {
        driver: driver.into(),
        name: name.into(),
        portals,
        port_group: view.map(|v| v.port_group.clone()).unwrap_or_default(),
        relative_port: view.map_or(0, |v| v.port),
        state: if listening { TargetHealth::Listening } else { TargetHealth::Down },
        health,
        health_why,
        groups,
        sessions: sessions.map(|s| session(from, s)).collect(),
    }
}

/// Connections of a driver; `None` if it has none.
fn connections(driver: &Arc<dyn Driver>) -> Option<ConnectionsState> {
    let counts = driver.connections()?;
    Some(ConnectionsState {
        driver: driver.name().into(),
        open: counts.open(),
        waiting: counts.waiting,
        accepted: counts.accepted,
        refused: counts.refused,
        warned: counts.warned,
        closed: counts.closed().map(|(why, number)| (why.to_owned(), number)).collect(),
    })
}

fn port_groups(registry: &RegistryView) -> Vec<PortGroupState> {
    let one = |g: &PortGroupView| PortGroupState {
        name: g.name.clone(),
        id: g.id,
        state: g.state.name().into(),
        preferred: g.preferred,
        explicit: g.explicit,
        targets: registry
            .targets
            .iter()
            .filter(|t| t.port_group == g.name)
            .map(|t| t.name.clone())
            .collect(),
    };
    registry.port_groups.iter().map(one).collect()
}

fn groups(from: &Sources<'_>, units: &Units<'_>, view: &TargetView) -> Vec<GroupState> {
    let lun = |l: &(u64, String, bool)| {
        let device = units.get(l.1.as_str()).copied();
        let reserved = device.and_then(|d| d.reservations.as_ref());
        LunState {
            lun: l.0,
            provider: l.1.clone(),
            read_only: l.2 || device.is_some_and(|d| d.write_protected),
            serial: device.map(|d| d.ids.serial.clone()).unwrap_or_default(),
            naa: device.map(|d| show_naa(&d.ids.naa)).unwrap_or_default(),
            uuid: device.map(|d| show_uuid(&d.ids.uuid)).unwrap_or_default(),
            eui64: device.and_then(|d| d.ids.eui64).map(|eui64| hex(&eui64)),
            latency_ns: device.map_or(0, |d| d.flow.latency_ns),
            limit: device.and_then(|d| d.flow.limit),
            reservation: reserved.map(|reservations| reservation(from, reservations)),
            removable: device.is_some_and(|d| d.removable),
        }
    };
    let awaited = |g: &GroupView| {
        let own = |a: &&AccessConfig| a.target == view.name && a.group == g.name;
        let all = from.config.access.iter().find(own).map(|a| &a.luns);
        // Nearly always they are as many.
        let all = all.filter(|all| all.len() != g.luns.len()).into_iter().flatten();
        let none = all.filter(|(_, lun)| !units.contains_key(lun.provider.as_str()));
        none.map(|(n, lun)| PendingLunState { lun: *n, provider: lun.provider.clone() }).collect()
    };
    let group = |g: &GroupView| GroupState {
        name: g.name.clone(),
        initiators: g.initiators.clone(),
        portals: g.portals.clone(),
        addressing: g.addressing.name().into(),
        luns: g.luns.iter().map(lun).collect(),
        awaited: awaited(g),
    };
    view.groups.iter().map(group).collect()
}

/// The registrants of a unit and the holder of its reservation, by name.
fn reservation(from: &Sources<'_>, r: &Reservations) -> ReservationState {
    let sessions = &from.registry.sessions;
    let connected = |port: &TransportId| {
        sessions.iter().any(|s| {
            let isid = s.port_id.first_chunk::<6>();
            isid.and_then(|i| TransportId::iscsi_port(&s.initiator, *i)).as_ref() == Some(port)
        })
    };
    let mut registrants: Vec<RegistrantState> = r
        .registrations()
        .map(|(id, key)| RegistrantState {
            port: id.port.to_string(),
            target_port: id.target,
            key: format!("0x{key:016x}"),
            holds: r.is_holder(id),
            connected: connected(&id.port),
        })
        .collect();
    let legacy = r.legacy().map(|l| sessions.iter().find(|s| s.number == l.session));
    if let Some(holder) = legacy {
        registrants.push(RegistrantState {
            port: holder.map(|s| s.initiator.clone()).unwrap_or_default(),
            holds: true,
            connected: holder.is_some(),
            ..RegistrantState::default()
        });
    }
    let kind = r.held().map(|h| h.kind.name());
    ReservationState {
        kind: kind.or(legacy.map(|_| "reserve")).map(str::to_owned),
        generation: r.generation(),
        persistent: r.is_aptpl(),
        registrants,
    }
}

fn rivals(from: &Sources<'_>) -> Vec<RivalsState> {
    let all =
        from.registry.name_conflicts.iter().filter(|rivals| rivals.is_reportable(from.now_ns));
    let entry = |r: &engine::registry::NameConflict| RivalsState {
        target: r.target.clone(),
        initiator: r.initiator.clone(),
        addresses: r.hosts.clone(),
        moves: r.moves.into(),
        at_ns: from.since_start_ns(r.at_ns),
    };
    all.map(entry).collect()
}

/// The same refusal of the same initiator is one line.
fn denied(from: &Sources<'_>) -> Vec<Denied> {
    let mut out: Vec<Denied> = Vec::new();
    for d in &from.registry.denied {
        let address = d.from.as_ref().map(|a| a.host()).unwrap_or_default();
        let same = |o: &&mut Denied| {
            o.target == d.target && o.initiator == d.initiator && o.address == address
        };
        match out.iter_mut().find(same) {
            Some(o) => {
                o.times += 1;
                o.at_ns = from.since_start_ns(d.at_ns);
                o.why.clone_from(&d.text);
            }
            None => out.push(Denied {
                at_ns: from.since_start_ns(d.at_ns),
                target: d.target.clone(),
                initiator: d.initiator.clone(),
                address,
                why: d.text.clone(),
                expected: String::new(),
                times: 1,
            }),
        }
    }
    out
}

/// Memory of the process: pools as given, resident set from the kernel.
pub fn memory(pool_bytes: u64) -> Memory {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    Memory { pool_bytes, resident_bytes: pages * 4096 }
}

/// Time that the thread of that name was on a processor, ns (`schedstat` in proc(5)); zero where
/// the kernel does not report it.
pub fn busy_ns(thread: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == thread)
    };
    let found = tasks.map(|task| task.path()).find(named);
    let line = found.and_then(|path| std::fs::read_to_string(path.join("schedstat")).ok());
    line.and_then(|l| l.split(' ').next()?.parse().ok()).unwrap_or(0)
}
