//! The state of everything, as the API shows it.

mod disk_state;
mod session_state;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bio::Op;
use disks::DISK_CLASS;
use drivers::Driver;
use engine::registry::{
    DeviceView, GroupView, LunView, PortGroupView, RegistryView, SessionFacts, TargetView,
};
use engine::reservations::Reservations;
use geom::{
    Class, ConsumerRef, GeomRef, Measure, Progress, ProviderRef, Reading, ServedClient, Severity,
    Topology, Transient, Trouble, bucket_top_ns,
};
use mgmt::TimeSlices;
use mgmt::api::{
    Bucket, BusState, ConnectionsState, ConsumerState, Daemon, Denied, DeviceErrorState,
    DeviceState, DiskState, FormerNameState, GeomState, GroupState, Health, Histogram, LunState,
    Memory, OpStats, PendingLunState, PortGroupState, ProviderState, RebuildState, RegistrantState,
    ReservationState, RivalsState, SCHEMA_VERSION, ServedClientState, SessionEnd, SpaceState,
    Stats, StoppedState, SystemState, TargetHealth, TargetState, TasteRejection, TransientState,
    TroubleState,
};
use mgmt::config::{AccessConfig, Config, DiskConfig, TargetConfig};
use serde_json::{Map, Value};
use wire::scsi::{TransportId, hex, show_naa, show_uuid};

use crate::exports::FilesInUse;
use disk_state::disk;
use session_state::session;

/// Details of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// All of them.
    All,
    /// Those of [`mgmt::Plant::figures`]: without the lines and settings of classes, and without
    /// names that only people and hosts see.
    Figures,
}

/// Sources of the state report.
pub struct Sources<'a> {
    /// The requested details.
    pub detail: Detail,
    /// Slices of the work: a core may share the processor.
    pub slices: RefCell<TimeSlices>,
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

/// Objects that are looked up for each target, LUN or session.
struct Index<'a> {
    /// Units of the registry, by name.
    units: HashMap<&'a str, &'a DeviceView>,
    /// One of them is lost.
    has_lost: bool,
    /// Sessions, by driver and name of the target.
    sessions: HashMap<(&'a str, &'a str), Vec<&'a SessionFacts>>,
    /// Access sections, by target and group.
    access: HashMap<(&'a str, &'a str), &'a AccessConfig>,
}

impl<'a> Index<'a> {
    fn of(from: &Sources<'a>) -> Index<'a> {
        let units = from.registry.devices.iter().inspect(|_| from.pause());
        let mut sessions: HashMap<_, Vec<&'a SessionFacts>> = HashMap::new();
        for s in &from.registry.sessions {
            sessions.entry((s.driver.as_str(), s.target.as_str())).or_default().push(s);
        }
        let access = from.config.access.iter();
        Index {
            units: units.map(|d| (d.label.name.as_str(), d)).collect(),
            has_lost: from.registry.devices.iter().any(|d| d.lost.is_some()),
            sessions,
            access: access.map(|a| ((a.target.as_str(), a.group.as_str()), a)).collect(),
        }
    }
}

impl Sources<'_> {
    /// A part of the work is done.
    fn pause(&self) {
        self.slices.borrow_mut().spend(1);
    }

    /// A time of the cores' clock as time since the daemon's start, ns.
    fn since_start_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.now_ns.saturating_sub(self.daemon.uptime_ns))
    }
}

/// The state with the requested details.
pub fn state(from: &Sources<'_>) -> SystemState {
    let (geoms, index) = (geoms(from), Index::of(from));
    let targets = from.config.target.iter();
    let mut state = SystemState {
        schema_version: SCHEMA_VERSION,
        generation: from.topology.generation(),
        daemon: from.daemon.clone(),
        buses: from.cam.buses().iter().map(|b| bus(from, b)).collect(),
        disks: disks(from, &geoms),
        geoms,
        targets: targets.map(|target| target_state(from, &index, target)).collect(),
        connections: from.drivers.iter().filter_map(connections).collect(),
        denied: denied(from),
        certificates: from.files.certificates(),
        ..SystemState::default()
    };
    if from.detail == Detail::All {
        state.port_groups = port_groups(from.registry);
        state.attached.clone_from(&from.attached);
        state.rivals = rivals(from);
        state.changed_files = from.files.changed();
        state.former_names = former_names(from);
        state.stopped = stopped(from.topology, &state.geoms);
    }
    state.health = state.worst();
    state
}

/// All geoms, disks first.
fn geoms(from: &Sources<'_>) -> Vec<GeomState> {
    let disks = from.config.disk.iter().map(|d| (DISK_CLASS, d.name.as_str()));
    let layers = from.config.geom.iter().map(|g| (g.class.as_str(), g.name.as_str()));
    let configured: HashSet<(&str, &str)> = match from.detail {
        Detail::All => disks.chain(layers).collect(),
        Detail::Figures => HashSet::new(),
    };
    // One for all geoms: it is larger than the counters of most of them.
    let mut reading = Reading::default();
    let one = |geom: &GeomRef<'_>| {
        from.pause();
        let figures = geom_figures(from, geom, &mut reading);
        match from.detail {
            Detail::All => with_details(&configured, geom, figures),
            Detail::Figures => figures,
        }
    };
    from.topology.in_order(&mut || from.pause()).iter().map(one).collect()
}

/// Disks of the configuration.
fn disks(from: &Sources<'_>, geoms: &[GeomState]) -> Vec<DiskState> {
    let open = geoms.iter().filter(|g| g.class == DISK_CLASS && !g.withering);
    let open = open.inspect(|_| from.pause());
    let by_name: HashMap<&str, &GeomState> = open.map(|g| (g.name.as_str(), g)).collect();
    let one = |d: &DiskConfig| {
        from.pause();
        disk(from, &by_name, &d.name, &d.kind)
    };
    from.config.disk.iter().map(one).collect()
}

/// Geoms that a verb stopped: those that a provider is known as a member of.
fn stopped(topology: &Topology, geoms: &[GeomState]) -> Vec<StoppedState> {
    let verdicts = || geoms.iter().flat_map(|g| &g.providers).flat_map(|p| &p.why_not);
    let of = |class: &Arc<dyn Class>| {
        let all = class.stopped_geoms().into_iter();
        let seen = all.filter(|(_, why)| verdicts().any(|outcome| outcome.why.contains(why)));
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

fn provider(from: &Sources<'_>, p: &ProviderRef<'_>, reading: &mut Reading) -> ProviderState {
    p.read(from.now_ns, reading);
    let (limits, counts) = (p.limits(), p.counts());
    let rejections: &[(&str, String)] = match from.detail {
        Detail::All => p.taste_outcomes(),
        Detail::Figures => &[],
    };
    let rejection = |(class, why): &(&str, String)| TasteRejection {
        class: (*class).to_owned(),
        why: why.clone(),
    };
    ProviderState {
        name: p.name().into(),
        size_bytes: limits.media_bytes,
        sector_bytes: limits.sector_bytes,
        stripe_bytes: p.stripe().0,
        r: count(counts.r),
        w: count(counts.w),
        e: count(counts.e),
        error: p.error().map(|e| e.to_string()),
        config: Map::new(),
        stats: stats(reading),
        why_not: rejections.iter().map(rejection).collect(),
    }
}

fn consumer(from: &Sources<'_>, c: &ConsumerRef<'_>, reading: &mut Reading) -> ConsumerState {
    c.read(from.now_ns, reading);
    let counts = c.counts();
    let shown = match from.detail {
        Detail::All => c.show(),
        Detail::Figures => Vec::new(),
    };
    ConsumerState {
        provider: c.provider().map(str::to_owned),
        r: count(counts.r),
        w: count(counts.w),
        e: count(counts.e),
        state: shown.into_iter().find(|(k, _)| *k == "State").map(|(_, v)| v).unwrap_or_default(),
        stats: stats(reading),
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

/// A geom without the details of [`Detail::All`].
fn geom_figures(from: &Sources<'_>, g: &GeomRef<'_>, reading: &mut Reading) -> GeomState {
    let consumers = g.consumers();
    let consumers = consumers.iter().map(|c| consumer(from, c, reading)).collect();
    let providers = g.providers();
    let providers: Vec<_> = providers.iter().map(|p| provider(from, p, reading)).collect();
    let failed = providers.iter().find_map(|p| Some((p, p.error.as_ref()?)));
    let troubles: Vec<TroubleState> = g.troubles().iter().map(trouble).collect();
    let worst = troubles.iter().map(|t| t.health).max().unwrap_or_default();
    let whys: Vec<&str> = troubles.iter().map(|t| t.why.as_str()).collect();
    let (health, health_why) = match (failed, whys.is_empty()) {
        (_, false) => (worst, whys.join("; ")),
        (Some((p, e)), true) => (Health::Failed, format!("{} ended with {e}", p.name)),
        (None, true) => (Health::Ok, String::new()),
    };
    GeomState {
        class: g.class().into(),
        name: g.name().into(),
        rank: g.rank(),
        health,
        health_why,
        troubles,
        withering: g.is_withering(),
        consumers,
        providers,
        ..measured(&g.measures(from.now_ns))
    }
}

/// The geom with all details.
fn with_details(
    configured: &HashSet<(&str, &str)>,
    g: &GeomRef<'_>,
    figures: GeomState,
) -> GeomState {
    let show = g.show();
    let entry = |key: &str| show.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
    let state = entry("state").or_else(|| entry("State")).unwrap_or_else(|| match figures.health {
        Health::Ok => "ACTIVE".into(),
        Health::Degraded => "DEGRADED".into(),
        Health::Failed => "FAILED".into(),
    });
    let configured = configured.contains(&(g.class(), g.name()));
    let transient = |t: Transient| TransientState { what: t.setting, undo: t.undo };
    GeomState {
        why: if configured { "configured" } else { g.why() }.to_owned(),
        configured,
        state,
        config: show.into_iter().map(|(k, v)| (k.into(), Value::String(v))).collect(),
        settings: g.settings(),
        transients: g.transients().into_iter().map(transient).collect(),
        clients: g.clients().into_iter().map(served_client).collect(),
        ..figures
    }
}

fn bus(from: &Sources<'_>, bus: &cam::Bus) -> BusState {
    let name = bus.sim().facts().name;
    let device =
        |(unit, facts, name): (std::sync::Arc<cam::Unit>, cam::Facts, String)| DeviceState {
            target: unit.path().target,
            lun: unit.path().lun,
            location: bus.sim().location(unit.path()),
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

fn target_state(from: &Sources<'_>, index: &Index<'_>, target: &TargetConfig) -> TargetState {
    let (driver, name) = (target.driver.as_str(), target.name.as_str());
    let view = from.registry.target(driver, name);
    let portals = from.portals.get(name).cloned().unwrap_or_default();
    let sessions = index.sessions.get(&(driver, name)).into_iter().flatten();
    // A local target listens nowhere, and is there all the same.
    let listening = view.is_some() && (target.listen.is_empty() || !portals.is_empty());
    let examined = view.filter(|_| index.has_lost).into_iter();
    let luns = examined.flat_map(|v| &v.groups).flat_map(|g| &g.luns);
    let lost = luns.inspect(|_| from.pause()).find_map(|l| {
        let d = index.units.get(l.label.name.as_str())?;
        d.lost.map(|e| format!("LUN {} ({}) is lost: {e}", l.lun, l.label.name))
    });
    let groups = view.map(|v| groups(from, index, v)).unwrap_or_default();
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
        session_end: session_end(from.drivers, driver),
    }
}

/// How sessions of the driver of that name are ended.
fn session_end(drivers: &[Arc<dyn Driver>], name: &str) -> SessionEnd {
    let driver = drivers.iter().find(|driver| driver.name() == name);
    match driver.map(|driver| (driver.clone().local().is_some(), driver.has_logins())) {
        Some((true, _)) => SessionEnd::Detach,
        Some((false, false)) => SessionEnd::AccessGroup,
        Some((false, true)) | None => SessionEnd::Command,
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

fn groups(from: &Sources<'_>, index: &Index<'_>, view: &TargetView) -> Vec<GroupState> {
    let lun = |l: &LunView| {
        from.pause();
        let device = index.units.get(l.label.name.as_str()).copied();
        let ids = device.and_then(|d| d.ids.as_ref());
        let reserved = device.and_then(|d| d.reservations.as_ref());
        LunState {
            lun: l.lun,
            provider: l.label.name.clone(),
            read_only: l.read_only || device.is_some_and(|d| d.write_protected),
            serial: ids.map(|ids| ids.serial.clone()).unwrap_or_default(),
            naa: ids.map(|ids| show_naa(&ids.naa)).unwrap_or_default(),
            uuid: ids.map(|ids| show_uuid(&ids.uuid)).unwrap_or_default(),
            eui64: ids.and_then(|ids| ids.eui64).map(|eui64| hex(&eui64)),
            latency_ns: device.map_or(0, |d| d.flow.latency_ns),
            limit: device.and_then(|d| d.flow.limit),
            reservation: reserved.map(|reservations| reservation(from, reservations)),
            removable: device.is_some_and(|d| d.removable),
            ejected: device.is_some_and(|d| d.ejected),
            counters: l.counts.as_ref().map(session_state::counters),
        }
    };
    let awaited = |g: &GroupView| {
        let all = index.access.get(&(view.name.as_str(), g.name.as_str())).map(|a| &a.luns);
        // Nearly always they are as many.
        let all = all.filter(|all| all.len() != g.luns.len()).into_iter().flatten();
        let none = all.filter(|(_, lun)| !index.units.contains_key(lun.provider.as_str()));
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
            connected: from.detail == Detail::All && connected(&id.port),
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
