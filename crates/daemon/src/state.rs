//! The state of everything, as the API shows it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bio::{Attr, Op};
use disks::DISK_CLASS;
use drivers::Driver;
use engine::CommandState;
use engine::lun::space_usage_of;
use engine::registry::{
    CommandView, DeviceView, GroupView, PortGroupView, RegistryView, SessionFacts, TargetView,
};
use engine::reservations::Reservations;
use engine::space::{FULL_PERCENTS, SpaceUsage};
use geom::{Class, GeomView, ProviderView, Reading, Severity, Topology, Trouble, bucket_top_ns};
use mgmt::api::{
    Bucket, BusState, ConnectionsState, ConsumerState, Daemon, Denied, DeviceErrorState,
    DeviceState, Digests, DiskMode, DiskState, FormerNameState, GeomState, GroupState, Health,
    Histogram, LunState, Memory, OpStats, PendingLunState, PortGroupState, ProviderState,
    RegistrantState, ReservationState, RivalsState, SCHEMA_VERSION, SessionState, Stats,
    StoppedState, SystemState, TargetHealth, TargetState, TasteRejection, TransientState,
    TroubleState,
};
use mgmt::config::units::short;
use mgmt::config::{AccessConfig, Config};
use serde_json::{Map, Value};
use wire::scsi::{TransportId, hex, show_naa, show_uuid};

use crate::exports::FilesInUse;

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

impl Sources<'_> {
    /// A time of the cores' clock as time since the daemon's start, ns.
    fn since_start_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.now_ns.saturating_sub(self.daemon.uptime_ns))
    }
}

/// The whole state.
pub fn state(from: &Sources<'_>) -> SystemState {
    let geoms = from.topology.view(from.now_ns);
    let disk_geoms: HashMap<&str, &GeomView> = geoms
        .iter()
        .filter(|g| g.class == DISK_CLASS && !g.withering)
        .map(|g| (g.name.as_str(), g))
        .collect();
    let disks = from.config.disk.iter().map(|d| (DISK_CLASS, d.name.as_str()));
    let layers = from.config.geom.iter().map(|g| (g.class.as_str(), g.name.as_str()));
    let configured: HashSet<(&str, &str)> = disks.chain(layers).collect();
    let mut state = SystemState {
        schema_version: SCHEMA_VERSION,
        generation: from.topology.generation(),
        daemon: from.daemon.clone(),
        buses: from.cam.buses().iter().map(|b| bus(from, b)).collect(),
        disks: from.config.disk.iter().map(|d| disk(from, &disk_geoms, &d.name, &d.kind)).collect(),
        geoms: geoms.iter().map(|g| geom_state(&configured, g)).collect(),
        targets: from
            .config
            .target
            .iter()
            .map(|t| target_state(from, &t.driver, &t.name))
            .collect(),
        connections: from.drivers.iter().filter_map(connections).collect(),
        port_groups: port_groups(from.registry),
        attached: from.attached.clone(),
        denied: denied(from),
        rivals: rivals(from),
        certificates: from.files.certificates(),
        changed_files: from.files.changed(),
        former_names: former_names(from),
        stopped: stopped(from.topology, &geoms),
        ..SystemState::default()
    };
    state.health = state.worst();
    state
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

fn provider(p: &ProviderView) -> ProviderState {
    ProviderState {
        name: p.name.clone(),
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
            .iter()
            .map(|(class, why)| TasteRejection { class: (*class).into(), why: why.clone() })
            .collect(),
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

fn geom_state(configured: &HashSet<(&str, &str)>, g: &GeomView) -> GeomState {
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
    GeomState {
        class: g.class.into(),
        name: g.name.clone(),
        rank: g.rank,
        why: if configured { "configured".into() } else { g.why.clone() },
        configured,
        state: entry("state").or_else(|| entry("State")).unwrap_or_else(|| match health {
            Health::Ok => "ACTIVE".into(),
            Health::Degraded => "DEGRADED".into(),
            Health::Failed => "FAILED".into(),
        }),
        health,
        health_why,
        troubles,
        withering: g.withering,
        config: g.show.iter().map(|(k, v)| ((*k).into(), Value::String(v.clone()))).collect(),
        settings: g.settings.clone(),
        transients: g
            .transients
            .iter()
            .map(|t| TransientState { what: t.setting.clone(), undo: t.undo.clone() })
            .collect(),
        consumers: g
            .consumers
            .iter()
            .map(|c| ConsumerState {
                provider: c.provider.clone(),
                r: count(c.counts.r),
                w: count(c.counts.w),
                e: count(c.counts.e),
                state: c
                    .show
                    .iter()
                    .find(|(k, _)| *k == "State")
                    .map_or_else(String::new, |(_, v)| v.clone()),
                stats: stats(&c.stats),
            })
            .collect(),
        providers: g.providers.iter().map(provider).collect(),
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

fn disk(from: &Sources<'_>, geoms: &HashMap<&str, &GeomView>, name: &str, kind: &str) -> DiskState {
    let refused = from.refused_disks.get(name).cloned();
    let Some(geom) = geoms.get(name) else {
        return DiskState {
            name: name.into(),
            kind: kind.into(),
            health: Health::Failed,
            health_why: refused.unwrap_or_else(|| "the disk is gone; see `ashlar journal`".into()),
            ..DiskState::default()
        };
    };
    let entry = |key: &str| geom.show.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
    let id = from.topology.find(name);
    let number = |attr: &str| match id.and_then(|p| from.topology.attr(p, attr)) {
        Some(Attr::Int(n)) => Some(n),
        _ => None,
    };
    let p = geom.providers.first();
    let error = p.and_then(|p| p.error);
    let space = id.and_then(|p| space_usage_of(from.topology, p));
    let size_bytes = p.map_or(0, |p| p.limits.media_bytes);
    let full = space.and_then(|space| full_reason(from.config, name, &space, size_bytes));
    let mut troubles: Vec<TroubleState> = geom.troubles.iter().map(trouble).collect();
    troubles.extend(full.map(|why| TroubleState {
        health: Health::Degraded,
        why,
        ..TroubleState::default()
    }));
    DiskState {
        name: name.into(),
        kind: kind.into(),
        used_bytes: space.map(|space| space.used),
        free_bytes: space.map(|space| space.free),
        path: entry("path"),
        size_bytes,
        sector_bytes: p.map_or(0, |p| p.limits.sector_bytes),
        serial: entry("serial").or_else(|| entry("ident")).unwrap_or_default(),
        identity: entry("identity"),
        rotational: number("GEOM::rotation_rate").filter(|r| *r != 0).map(|r| r != 1),
        discard: number("GEOM::candelete") == Some(1),
        mode: match entry("mode").as_deref().map(|m| m.split(' ').next().unwrap_or("")) {
            Some("direct") => DiskMode::Direct,
            Some("buffered") => DiskMode::Buffered,
            _ => DiskMode::None,
        },
        mode_why: entry("mode-why").or_else(|| entry("why")).unwrap_or_default(),
        health: match p.is_none() || error.is_some() {
            true => Health::Failed,
            false => troubles.iter().map(|t| t.health).max().unwrap_or_default(),
        },
        health_why: match (p, error) {
            (None, _) => {
                refused.unwrap_or_else(|| "medium lost: removed, or smaller than before".into())
            }
            (_, Some(e)) => format!("answers {e}"),
            _ => {
                let whys: Vec<&str> = troubles.iter().map(|t| t.why.as_str()).collect();
                whys.join("; ")
            }
        },
        error: error.map(|e| e.to_string()),
        last_error: disk_error(from, name),
        troubles,
    }
}

/// The last failed request of a disk.
fn disk_error(from: &Sources<'_>, disk: &str) -> Option<DeviceErrorState> {
    let last = disks::LastError::of(from.topology, from.topology.find(disk)?)?;
    let age_ns = from.now_ns.saturating_sub(last.at_ns);
    Some(DeviceErrorState { what: last.description, age_ns, count: last.count })
}

/// Why a disk that takes room as it is written is too full; None while it is not.
fn full_reason(config: &Config, name: &str, space: &SpaceUsage, size_bytes: u64) -> Option<String> {
    let unit = config.unit.iter().find(|u| u.provider == name);
    let percents = unit.and_then(|u| u.thresholds.as_deref()).unwrap_or(&FULL_PERCENTS);
    let percent = space.percent_full();
    let reached = percents.iter().filter(|p| **p <= percent).max()?;
    if space.is_enough(size_bytes) {
        return None;
    }
    let left = short(space.free);
    let whose = if space.is_shared { " for all disks there" } else { "" };
    Some(format!(
        "{percent} % of its space is used (threshold {reached} %), {left} free{whose}; writes fail \
         when none is left"
    ))
}

fn target_state(from: &Sources<'_>, driver: &str, name: &str) -> TargetState {
    let view = from.registry.targets.iter().find(|t| t.driver == driver && t.name == name);
    let portals = from.portals.get(name).cloned().unwrap_or_default();
    let sessions = from.registry.sessions.iter().filter(|s| s.driver == driver && s.target == name);
    // A local target listens nowhere, and is there all the same.
    let listens = from.config.target(name).is_none_or(|t| !t.listen.is_empty());
    let listening = view.is_some() && (!listens || !portals.is_empty());
    let lost = view.into_iter().flat_map(|v| &v.groups).flat_map(|g| &g.luns).find_map(|l| {
        let d = device(from.registry, &l.1)?;
        d.lost.map(|e| format!("LUN {} ({}) is lost: {e}", l.0, l.1))
    });
    let groups = view.map(|v| groups(from, v)).unwrap_or_default();
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

/// A device by name, by which they are sorted.
fn device<'r>(registry: &'r RegistryView, name: &str) -> Option<&'r DeviceView> {
    let at = registry.devices.binary_search_by(|d| d.name.as_str().cmp(name)).ok()?;
    registry.devices.get(at)
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

fn groups(from: &Sources<'_>, view: &TargetView) -> Vec<GroupState> {
    let lun = |l: &(u64, String, bool)| {
        let device = device(from.registry, &l.1);
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
            reservation: device.and_then(|d| reservation(from, &d.reservations)),
        }
    };
    let awaited = |g: &GroupView| {
        let own = |a: &&AccessConfig| a.target == view.name && a.group == g.name;
        let all = from.config.access.iter().find(own).map(|a| &a.luns);
        // Nearly always they are as many.
        let all = all.filter(|all| all.len() != g.luns.len()).into_iter().flatten();
        let none = all.filter(|(_, lun)| device(from.registry, &lun.provider).is_none());
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

/// Most LUNs listed of a session; of further ones only the number is reported.
const LUNS_SHOWN_MAX: usize = 64;

/// The registrants of a unit and the holder of its reservation, by name; None when there are none.
fn reservation(from: &Sources<'_>, r: &Reservations) -> Option<ReservationState> {
    if r.is_empty() {
        return None;
    }
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
    Some(ReservationState {
        kind: kind.or(legacy.map(|_| "reserve")).map(str::to_owned),
        generation: r.generation(),
        persistent: r.is_aptpl(),
        registrants,
    })
}

/// How long write data may be on its way before lists mention it, ns.
const DATA_SLOW_NS: u64 = 1_000_000_000;

/// How many commands of a session wait here: for their turn at the unit, for buffers, in the order.
/// Tasks wait for a turn while they execute.
fn waiting_commands(s: &SessionFacts, all: &[CommandView]) -> u64 {
    let others = [CommandState::MemoryWait, CommandState::Dormant];
    let others = all.iter().filter(|c| others.contains(&c.state)).count();
    u64::from(s.held_back().queued).saturating_add(others as u64)
}

/// Why commands of a session wait here: what most of them wait for.
fn wait_reason(from: &Sources<'_>, s: &SessionFacts, all: &[CommandView]) -> Option<String> {
    let waits = |c: &CommandView, state| {
        c.state == state && (state != CommandState::DataWait || c.age_ns > DATA_SLOW_NS)
    };
    let held = s.held_back();
    let count = |state: CommandState| match state {
        // Requests of tasks among them, which execute meanwhile.
        CommandState::Queued => held.queued as usize,
        _ => all.iter().filter(|c| waits(c, state)).count(),
    };
    let states = [
        CommandState::Queued,
        CommandState::MemoryWait,
        CommandState::Dormant,
        CommandState::DataWait,
    ];
    let most = states.into_iter().rev().max_by_key(|state| count(*state))?;
    let n = count(most);
    if n == 0 {
        return None;
    }
    Some(match most {
        CommandState::Queued => {
            let device = from.registry.devices.iter().find(|d| Some(d.number) == held.device);
            let name = device.map_or("its unit", |d| d.name.as_str());
            let share = held.share.map_or(String::new(), |n| format!(", its share is {n}"));
            match device
                .and_then(|d| d.flow.limit.map(|l| (l, d.flow.latency_ns, d.flow.par_bytes)))
            {
                Some((limit, ns, par)) => format!(
                    "{n} wait for {name}, which is no faster with more than {limit} ({} us \
                     each, and {} KiB count as one more){share}",
                    ns / 1000,
                    par / 1024
                ),
                None => format!("{n} wait for {name}{share}"),
            }
        }
        CommandState::MemoryWait => format!("{n} wait for buffers"),
        CommandState::Dormant => format!("{n} wait for their turn in the order of the unit"),
        _ => format!("{n} wait for the initiator's data"),
    })
}

fn session(from: &Sources<'_>, s: &SessionFacts) -> SessionState {
    let label = |key: &str| s.labels.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str());
    let counters = s.counters();
    let group = s.group();
    let groups = from
        .registry
        .targets
        .iter()
        .filter(|t| t.driver == s.driver && t.name == s.target)
        .flat_map(|t| t.groups.iter().filter(|g| g.name == group));
    let all = groups.map(|g| &g.luns).next();
    // A client that has entered one unit sees no other.
    let only: Option<u64> = label("lun").and_then(|l| l.parse().ok());
    let (luns, luns_total) = match only {
        Some(lun) => (vec![lun], 1),
        None => (
            all.into_iter().flatten().take(LUNS_SHOWN_MAX).map(|l| l.0).collect(),
            all.map_or(0, |l| l.len() as u64),
        ),
    };
    let isid: String = s.port_id.iter().map(|b| format!("{b:02x}")).collect();
    let waiting = s.commands(from.now_ns);
    let mut stats = Stats { in_flight: waiting.len() as u64, ..Stats::default() };
    stats.read.ops = counters.reads;
    stats.read.bytes = counters.read_bytes;
    stats.write.ops = counters.writes;
    stats.write.bytes = counters.written_bytes;
    stats.other.ops = counters.commands.saturating_sub(counters.reads + counters.writes);
    stats.other.errors = counters.errors;
    SessionState {
        initiator: s.initiator.clone(),
        address: s.from.to_string(),
        portal: s.portal.to_string(),
        group: (!group.is_empty()).then_some(group),
        isid: if s.driver == "iscsi" { isid } else { String::new() },
        tsih: label("tsih").and_then(|t| t.parse().ok()).unwrap_or(0),
        since_ns: from.since_start_ns(s.since_ns),
        luns,
        luns_total,
        unit: label("export").map(str::to_owned),
        tls: label("tls").filter(|t| *t != "none").map(str::to_owned),
        digests: Digests {
            header: label("header-digest").is_some_and(|d| d != "none"),
            data: label("data-digest").is_some_and(|d| d != "none"),
        },
        auth: label("auth").unwrap_or("none").to_owned(),
        commands_outstanding: stats.in_flight,
        oldest_command_ns: waiting.first().map_or(0, |c| c.age_ns),
        window: s.held_back().window,
        share: s.held_back().share,
        waiting: waiting_commands(s, &waiting),
        held_back: wait_reason(from, s, &waiting),
        stats,
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
