//! The whole daemon in one value: disks, geoms, targets, health first.

use super::files::{CertificateState, ChangedFilesState};
use super::listener::ListenerState;
use super::stats::Stats;
use super::target::{Denied, PortGroupState, RivalsState, TargetState};
use super::webhook::WebhookState;
use crate::config::units::short_seconds;
use crate::text::shell_word;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the JSON forms of this API. Grows when a field changes its meaning or disappears.
pub const SCHEMA_VERSION: u32 = 1;

/// Health of an object, ordered from best to worst.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Works as configured.
    #[default]
    Ok,
    /// Serves requests, but not as configured.
    Degraded,
    /// Serves no requests, or loses written data at the next stop.
    Failed,
}

impl Health {
    /// The word printed in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
        }
    }
}

/// Snapshot of the daemon's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SystemState {
    /// [`SCHEMA_VERSION`] of the daemon that wrote the snapshot.
    pub schema_version: u32,
    /// Worst health of all objects in the snapshot.
    pub health: Health,
    /// Generation of the topology, which increases with each change.
    pub generation: u64,
    /// The daemon process.
    pub daemon: Daemon,
    /// Buses, by number, with their devices.
    pub buses: Vec<BusState>,
    /// Bottom providers, in configured order.
    pub disks: Vec<DiskState>,
    /// All geoms, lowest rank first, including the geoms of disks (rank 1).
    pub geoms: Vec<GeomState>,
    /// Target ports with their access groups and sessions.
    pub targets: Vec<TargetState>,
    /// Connections of each driver that has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<super::target::ConnectionsState>,
    /// Listeners of the API over TCP and of metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerState>,
    /// Target port groups, by identifier.
    pub port_groups: Vec<PortGroupState>,
    /// LUNs that are, or will be, attached as block devices of this machine.
    pub attached: Vec<super::target::AttachedState>,
    /// Refused logins, newest last; the daemon limits their number.
    pub denied: Vec<Denied>,
    /// Number of logins that were refused since the start of the daemon.
    pub denied_total: u64,
    /// Hosts that took a session from each other in the last ten minutes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<RivalsState>,
    /// Certificate files in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateState>,
    /// Files in use whose contents have changed since they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<ChangedFilesState>,
    /// Webhooks with their deliveries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookState>,
    /// Names of units from before their disk was renamed; NBD clients can still use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<FormerNameState>,
    /// Geoms that a verb stopped and whose members are present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<StoppedState>,
}

/// A geom that a verb stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoppedState {
    /// Class of the geom.
    pub class: String,
    /// Name of the geom, without the class.
    pub name: String,
}

/// A former name of a unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FormerNameState {
    /// The former name.
    pub name: String,
    /// Current name of the unit's provider.
    pub provider: String,
}

impl SystemState {
    /// Disks that buses found, each with its bus.
    pub fn bus_disks(&self) -> impl Iterator<Item = (&BusState, &DeviceState)> {
        let all = self.buses.iter().flat_map(|bus| bus.devices.iter().map(move |d| (bus, d)));
        all.filter(|(_, device)| !device.name.is_empty())
    }

    /// The provider of that name and the geom it belongs to.
    pub fn provider(&self, name: &str) -> Option<(&GeomState, &ProviderState)> {
        self.geoms.iter().find_map(|geom| {
            geom.providers.iter().find(|p| p.name == name).map(|provider| (geom, provider))
        })
    }

    /// All sessions of all targets.
    pub fn sessions(&self) -> impl Iterator<Item = (&TargetState, &super::target::SessionState)> {
        self.targets.iter().flat_map(|t| t.sessions.iter().map(move |s| (t, s)))
    }

    /// The worst health of any part.
    pub fn worst(&self) -> Health {
        let disks = self.disks.iter().map(|d| d.health);
        let buses = self.buses.iter().map(|b| b.health);
        let geoms = self.geoms.iter().map(|g| g.health);
        let targets = self.targets.iter().map(|t| t.health);
        disks.chain(buses).chain(geoms).chain(targets).max().unwrap_or_default()
    }
}

/// A bus and the devices on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BusState {
    /// Name of the bus.
    pub name: String,
    /// Number of the bus: the N of scbusN.
    pub number: u64,
    /// The bus is in the configuration and will exist after the next start.
    pub configured: bool,
    /// The bus is being scanned for devices; more devices may be found.
    pub asking: bool,
    /// Health of the bus.
    pub health: Health,
    /// Problems of the bus, for example unreachable devices, each with the action to take.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
    /// Devices, by address.
    pub devices: Vec<DeviceState>,
}

/// A device of a bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceState {
    /// Target of the device on its bus.
    pub target: u64,
    /// Logical unit of the target.
    pub lun: u64,
    /// Name of the provider; empty if there is none.
    pub name: String,
    /// Place of the device for the driver of its bus, such as target, portal and logical unit.
    pub location: String,
    /// Identification that the device reports: `<VENDOR PRODUCT REVISION>`.
    pub device: String,
    /// The device was removed, but a consumer of its provider still has it open.
    pub lost: bool,
    /// The name is kept for this device over restarts because the configuration refers to it.
    pub kept: bool,
    /// The last failed request to the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<DeviceErrorState>,
}

/// A failed request to a device or disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceErrorState {
    /// The request and the reason for its failure.
    pub what: String,
    /// Time since the failure, in nanoseconds.
    pub age_ns: u64,
    /// Number of failed requests so far.
    pub count: u64,
}

/// The daemon process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Daemon {
    /// Version of the binary.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Time since the start of the daemon, in nanoseconds of the monotonic clock.
    pub uptime_ns: u64,
    /// Reactors, one per core.
    pub cores: Vec<CoreState>,
    /// Memory of the data path and of the whole process.
    pub memory: Memory,
    /// Address at which metrics are served over TCP; absent: only the control socket serves them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<String>,
    /// Folders of the configuration in which the sandbox permits changes, or reading if that is
    /// restricted; empty without a sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<SandboxFolder>,
    /// Why the configured sandbox is not enforced, or only in part; absent: it is, or none is
    /// configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_problem: Option<String>,
}

/// A folder of the sandbox, as the daemon found it at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxFolder {
    /// Path of the folder, without symbolic links.
    pub path: String,
    /// Device number of its file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// One reactor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreState {
    /// How the reactor waits for events: `uring` or `poll`.
    pub port_kind: String,
    /// Reason for this choice.
    pub why: String,
    /// CPU time of the reactor's thread, in nanoseconds, as counted by the kernel.
    pub busy_ns: u64,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// Size of the buffer pools.
    pub pool_bytes: u64,
    /// Resident set size of the process.
    pub resident_bytes: u64,
}

/// Use of the page cache by a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskMode {
    /// Bypasses the page cache (O_DIRECT).
    Direct,
    /// Uses the page cache.
    Buffered,
    /// Has no file (memory, null, model).
    #[default]
    None,
}

/// One bottom provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskState {
    /// Configured name of the disk and of its provider.
    pub name: String,
    /// Kind of the disk: `file`, `blockdev`, `memory`, `null`, `model`.
    pub kind: String,
    /// Path of the file or device; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Size of a logical sector, in bytes.
    pub sector_bytes: u32,
    /// Serial number. The unit of the whole disk has the same number, or one that an earlier
    /// version derived from it; `list luns` shows the number of the unit.
    pub serial: String,
    /// Storage location of an image file's identity; absent for other disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Whether the medium rotates; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Whether DELETE frees space.
    pub discard: bool,
    /// Allocated bytes of a thin disk; absent for other disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Bytes that the thin disk can still allocate; other disks may share them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Use of the page cache.
    pub mode: DiskMode,
    /// Reason for the mode.
    pub mode_why: String,
    /// Health of the disk.
    pub health: Health,
    /// Reason if the health is not ok; otherwise empty.
    pub health_why: String,
    /// The error with which all requests fail (name of an errno); absent if the disk works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last failed request to the disk since it was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<DeviceErrorState>,
    /// Problems of the disk while its requests succeed. A problem without an action means that the
    /// disk needs more space.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
}

impl DiskState {
    /// Whether requests fail. A disk is failed, too, by a trouble that loses its data later.
    pub fn is_gone(&self) -> bool {
        let is_failed = self.health == Health::Failed;
        is_failed && (self.error.is_some() || self.losses().next().is_none())
    }

    /// Troubles that lose data later.
    pub fn losses(&self) -> impl Iterator<Item = &TroubleState> {
        self.troubles.iter().filter(|trouble| trouble.health == Health::Failed)
    }

    /// Used part of its space, percent; absent if it is not reported.
    pub fn percent_full(&self) -> Option<u64> {
        let (used, free) = (u128::from(self.used_bytes?), u128::from(self.free_bytes?));
        u64::try_from((used * 100).checked_div(used + free).unwrap_or(0)).ok()
    }
}

/// One geom: an instance of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeomState {
    /// Class of the geom, in lower case.
    pub class: String,
    /// Name of the geom.
    pub name: String,
    /// One more than the highest rank of the geoms below; a disk has rank 1.
    pub rank: u32,
    /// Reason for its existence: "configured", "tasted from ada0".
    pub why: String,
    /// The geom is configured in `ashlar.toml`; otherwise tasting created it.
    pub configured: bool,
    /// State of the geom in the terms of its class; empty if the class has none.
    pub state: String,
    /// Health of the geom.
    pub health: Health,
    /// Reason if the health is not ok; otherwise empty.
    pub health_why: String,
    /// Problems of the geom, each with the action to take.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
    /// The geom is withering: it is removed when its last user has released it.
    pub withering: bool,
    /// Properties of the geom that its class reports, as `list` prints them.
    pub config: Map<String, Value>,
    /// Current settings that can change while the geom is in use, by the keys of its section; null:
    /// the section does not need the key.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// Changes that verbs made until the next start, besides the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transients: Vec<TransientState>,
    /// Rebuilds, resyncs, and copies of dumps to a WORM, which run or are paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rebuilds: Vec<RebuildState>,
    /// Space of a file server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<SpaceState>,
    /// Whether a file server serves clients; absent for other geoms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_serving: Option<bool>,
    /// Time of the newest dump of a file server, in seconds since 1970; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_dump_at: Option<u64>,
    /// Clients that the geom serves itself: those of a file server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ServedClientState>,
    /// Consumers of the geom.
    pub consumers: Vec<ConsumerState>,
    /// Providers of the geom.
    pub providers: Vec<ProviderState>,
}

/// A client that a geom serves itself, once for each of our addresses that it is connected to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServedClientState {
    /// Address of the client without a port, or its user at a Unix socket.
    pub name: String,
    /// Key of the section that lists the listener: `plan9`.
    pub key: String,
    /// Our address of its connections.
    pub portal: String,
}

/// A rebuild, a resync or a copy of dumps to a device of a WORM, which runs or is paused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RebuildState {
    /// The member or volume that is updated.
    pub part: String,
    /// Providers that it reads.
    pub sources: Vec<String>,
    /// Bytes of the part that are up to date.
    pub done_bytes: u64,
    /// Size of the part, in bytes; of a rebuild by bitmaps, the bytes that it copies.
    pub size_bytes: u64,
    /// Whole percents that are up to date; 100 only at the end.
    pub percent: u64,
    /// Rate over the last seconds, in bytes per second; absent while it is not known, and during a
    /// pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
    /// Time until the end at that rate, in seconds; absent if the rate is unknown or zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
    /// `pause` has stopped it.
    pub paused: bool,
    /// Highest rate that `configure` allows, in bytes per second; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Verb of the class that switches it by `what`: `off` or `on`; absent: the verbs are `pause`
    /// and `resume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
}

impl RebuildState {
    /// Progress, rate and time left: `37%, 120M/s, 3m04s left`.
    pub fn words(&self) -> String {
        let mut words = vec![format!("{}%", self.percent)];
        words.extend(self.pace());
        words.join(", ")
    }

    /// Rate and time left, each if it is known, or `paused`.
    pub fn pace(&self) -> Vec<String> {
        geom::pace(self.paused, self.rate_bytes, self.left_seconds)
    }

    /// The verb that pauses it, or resumes a paused one, and the value of its parameter `what`.
    pub fn switching(&self) -> (&str, Option<&'static str>) {
        match (self.switch.as_deref(), self.paused) {
            (Some(verb), true) => (verb, Some("on")),
            (Some(verb), false) => (verb, Some("off")),
            (None, true) => ("resume", None),
            (None, false) => ("pause", None),
        }
    }

    /// The command line of [`RebuildState::switching`] for the geom that makes it.
    pub fn switch_command(&self, class: &str, geom: &str) -> String {
        let (verb, what) = self.switching();
        let what = what.map(|what| format!(" {what}")).unwrap_or_default();
        format!("ashlar {class} {verb} {}{what}", shell_word(geom))
    }

    /// Time left in a few characters: `3m04s`.
    pub fn left_text(&self) -> Option<String> {
        self.left_seconds.map(short_seconds)
    }
}

/// Space of a file server that is used up by and by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SpaceState {
    /// `cache`: the cache device, which takes changes until the next dump; `worm`: the WORM.
    pub part: String,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Size, in bytes.
    pub size_bytes: u64,
}

/// A change by a verb that lasts until the daemon stops and that no section can express.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TransientState {
    /// The changed condition.
    pub what: String,
    /// The command that reverts the change.
    pub undo: String,
}

/// A problem of a geom, disk or bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TroubleState {
    /// Health that results from the problem.
    pub health: Health,
    /// Description of the problem.
    pub why: String,
    /// The action to take.
    pub action: String,
}

/// A consumer of a geom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConsumerState {
    /// Name of the attached provider; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Number of opens for reading.
    pub r: u32,
    /// Number of opens for writing.
    pub w: u32,
    /// Number of exclusive opens.
    pub e: u32,
    /// State of the member (`ACTIVE`, `STALE`); empty if the class has none.
    pub state: String,
    /// Counters of the consumer.
    pub stats: Stats,
}

/// Reason why a class did not claim a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TasteRejection {
    /// Name of the class.
    pub class: String,
    /// The reason, in one sentence.
    pub why: String,
}

/// A provider of a geom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProviderState {
    /// Unique name of the provider.
    pub name: String,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Size of a logical sector, in bytes.
    pub sector_bytes: u32,
    /// Size of a stripe or physical sector, in bytes; 0 if unknown.
    pub stripe_bytes: u64,
    /// Number of opens for reading.
    pub r: u32,
    /// Number of opens for writing.
    pub w: u32,
    /// Number of exclusive opens.
    pub e: u32,
    /// The error with which all requests fail (name of an errno); absent if the provider works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Properties of the provider that the class reports.
    pub config: Map<String, Value>,
    /// Counters of the provider.
    pub stats: Stats,
    /// Classes that tasted the provider but did not claim it, with their reasons.
    pub why_not: Vec<TasteRejection>,
}

impl ProviderState {
    /// The access counts in GEOM's notation: `r1w1e0`.
    pub fn access_counts(&self) -> String {
        format!("r{}w{}e{}", self.r, self.w, self.e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_rebuild_have_only_known_numbers() {
        let copy = RebuildState { percent: 37, ..RebuildState::default() };
        assert_eq!(copy.words(), "37%");
        let rate = RebuildState { rate_bytes: Some(120 << 20), ..copy.clone() };
        assert_eq!(rate.words(), "37%, 120M/s");
        let left = RebuildState { left_seconds: Some(184), ..rate };
        assert_eq!(left.words(), "37%, 120M/s, 3m04s left");
        assert_eq!(RebuildState { paused: true, ..copy }.words(), "37%, paused");
    }

    #[test]
    fn command_that_pauses_or_resumes_a_copy_is_that_of_its_class() {
        let copy = |paused: bool, switch: Option<&str>| RebuildState {
            paused,
            switch: switch.map(str::to_owned),
            ..RebuildState::default()
        };
        for (paused, switch, expected) in [
            (false, None, "ashlar fs pause main"),
            (true, None, "ashlar fs resume main"),
            (false, Some("copying"), "ashlar fs copying main off"),
            (true, Some("copying"), "ashlar fs copying main on"),
        ] {
            assert_eq!(copy(paused, switch).switch_command("fs", "main"), expected);
        }
    }
}
