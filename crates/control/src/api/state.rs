//! The whole daemon in one value: disks, geoms, targets, health first.

use super::files::{CertificateState, ChangedFilesState};
use super::stats::Stats;
use super::target::{Denied, PortGroupState, RivalsState, TargetState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the JSON forms of this API. Grows when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// How well something is. Ordered: the greater is the worse.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Works as configured.
    #[default]
    Ok,
    /// Serves, but not as configured.
    Degraded,
    /// Serves nothing.
    Failed,
}

impl Health {
    /// The word printed in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
        }
    }
}

/// One snapshot of everything the daemon knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct State {
    /// [`SCHEMA_VERSION`] of the daemon that wrote it.
    pub schema_version: u32,
    /// The worst health of anything below.
    pub health: Health,
    /// Grows with every change of the topology.
    pub generation: u64,
    /// The process itself.
    pub daemon: Daemon,
    /// Buses, by number, with the devices on them.
    pub buses: Vec<BusState>,
    /// Bottom providers, in configured order.
    pub disks: Vec<DiskState>,
    /// Every geom, lowest rank first. A disk's own geom (rank 1) is here too.
    pub geoms: Vec<GeomState>,
    /// Target ports and what they export.
    pub targets: Vec<TargetState>,
    /// Groups of target ports, by identifier.
    pub port_groups: Vec<PortGroupState>,
    /// LUNs that are block devices of this machine, or shall be.
    pub attached: Vec<super::target::AttachedState>,
    /// Refused logins, newest last; bounded by the daemon.
    pub denied: Vec<Denied>,
    /// Hosts that take a session from each other; those of the last ten minutes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<RivalsState>,
    /// Certificates, as they are in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateState>,
    /// Files that are in use and have other contents now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<ChangedFilesState>,
    /// Names that units had before their disk was renamed, and are served under to NBD clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<FormerNameState>,
    /// Geoms that a verb stopped, whose members are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<StoppedState>,
}

/// A geom that a verb stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoppedState {
    /// Its class.
    pub class: String,
    /// Its name, without the class.
    pub name: String,
}

/// A name that a unit had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FormerNameState {
    /// The name.
    pub name: String,
    /// The provider that the unit is over, as it is called now.
    pub provider: String,
}

impl State {
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
    /// Its name.
    pub name: String,
    /// The N of scbusN.
    pub number: u64,
    /// It stands in the configuration, and will be there at the next start.
    pub configured: bool,
    /// It is being asked for its devices: more may come.
    pub asking: bool,
    /// How it is.
    pub health: Health,
    /// What it cannot reach, one by one, with what to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
    /// Devices, by address.
    pub devices: Vec<DeviceState>,
}

/// A device of a bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceState {
    /// Target on its bus.
    pub target: u64,
    /// Logical unit of the target.
    pub lun: u64,
    /// Its provider's name; empty when it has none.
    pub name: String,
    /// What it says it is: `<VENDOR PRODUCT REVISION>`.
    pub device: String,
    /// It is gone, and somebody above has not let go of it yet.
    pub lost: bool,
    /// Its name is kept for it over restarts, as the configuration calls it so.
    pub kept: bool,
    /// The last request to it that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<DeviceErrorState>,
}

/// A request to a device that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceErrorState {
    /// What was asked, and why it failed.
    pub what: String,
    /// How long ago that was, in nanoseconds.
    pub age_ns: u64,
    /// How many requests have failed so far.
    pub count: u64,
}

/// The process itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Daemon {
    /// Version of the binary.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Since the daemon's start, in nanoseconds of the monotonic clock.
    pub uptime_ns: u64,
    /// One reactor a core.
    pub cores: Vec<CoreState>,
    /// Memory on the data path and in whole.
    pub memory: Memory,
}

/// One reactor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreState {
    /// Which port drives it: `uring` or `poll`.
    pub port_kind: String,
    /// Why that port was chosen.
    pub why: String,
    /// Time its thread spent on a processor, in nanoseconds, as the kernel counts it.
    pub busy_ns: u64,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// Size of the buffer pools.
    pub pool_bytes: u64,
    /// Resident set of the process.
    pub resident_bytes: u64,
}

/// How a disk is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskMode {
    /// Past the page cache (O_DIRECT).
    Direct,
    /// Through the page cache.
    Buffered,
    /// No file behind it (memory, null, model).
    #[default]
    None,
}

/// One bottom provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskState {
    /// Name as configured; also the name of its provider.
    pub name: String,
    /// `file`, `blockdev`, `memory`, `null`, `model`.
    pub kind: String,
    /// The file or device behind it; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Logical sector, in bytes.
    pub sector_bytes: u32,
    /// Serial number. A unit on the whole disk has the same, or one that was made from it by an
    /// earlier version; `list luns` has that.
    pub serial: String,
    /// Where the identity of an image is stored; absent for other disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Whether it spins; absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Whether DELETE gives space back.
    pub discard: bool,
    /// Bytes that it takes, when it takes room as it is written; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Bytes that it could take besides; others may take them, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Direct or buffered.
    pub mode: DiskMode,
    /// Why that mode.
    pub mode_why: String,
    /// How it is.
    pub health: Health,
    /// Why it is not ok; empty when it is.
    pub health_why: String,
    /// What is not ok though its requests succeed, one by one; no action: it needs room.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
}

impl DiskState {
    /// How much of its room it takes, percent; absent when it does not say.
    pub fn percent_full(&self) -> Option<u64> {
        let (used, free) = (u128::from(self.used_bytes?), u128::from(self.free_bytes?));
        u64::try_from((used * 100).checked_div(used + free).unwrap_or(0)).ok()
    }
}

/// One geom: an instance of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeomState {
    /// Its class, in lower case.
    pub class: String,
    /// Its name.
    pub name: String,
    /// One more than the highest rank below; a disk has 1.
    pub rank: u32,
    /// Why it exists: "configured", "tasted from ada0".
    pub why: String,
    /// Whether `ashlar.toml` made it (otherwise tasting did).
    pub configured: bool,
    /// The class's own word for its state; empty when it has none.
    pub state: String,
    /// How it is.
    pub health: Health,
    /// Why it is not ok; empty when it is.
    pub health_why: String,
    /// What is not ok, one by one, with what to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<TroubleState>,
    /// On its way out: it waits for its last user.
    pub withering: bool,
    /// The class's own facts, as `list` prints them.
    pub config: Map<String, Value>,
    /// The settings that it works with and that can change while it is used, by the keys of its
    /// section; null: the section needs no such key.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// What verbs changed until the next start, beside the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transients: Vec<TransientState>,
    /// What it stands on.
    pub consumers: Vec<ConsumerState>,
    /// What it offers.
    pub providers: Vec<ProviderState>,
}

/// A change by a verb that ends with the daemon and that no section can say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TransientState {
    /// What is so now.
    pub what: String,
    /// The command that takes it back.
    pub undo: String,
}

/// Something of a geom or a bus that is not ok.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TroubleState {
    /// How bad it is.
    pub health: Health,
    /// What is wrong.
    pub why: String,
    /// What to do about it.
    pub action: String,
}

/// A geom's hold on a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConsumerState {
    /// Name of the provider it is attached to; absent when attached to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Opens for reading.
    pub r: u32,
    /// Opens for writing.
    pub w: u32,
    /// Exclusive opens.
    pub e: u32,
    /// State of this member (`ACTIVE`, `STALE`); empty when the class has none.
    pub state: String,
    /// Counters of this edge.
    pub stats: Stats,
}

/// Why a class left a provider alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyNot {
    /// The class.
    pub class: String,
    /// Its reason, one sentence.
    pub why: String,
}

/// What a geom offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProviderState {
    /// Unique name.
    pub name: String,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Logical sector, in bytes.
    pub sector_bytes: u32,
    /// Stripe or physical sector, in bytes; 0 when unknown.
    pub stripe_bytes: u64,
    /// Opens for reading.
    pub r: u32,
    /// Opens for writing.
    pub w: u32,
    /// Exclusive opens.
    pub e: u32,
    /// The error that every request gets (an errno's name); absent when it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The class's own facts about this provider.
    pub config: Map<String, Value>,
    /// Counters.
    pub stats: Stats,
    /// Which classes tasted it and did not claim it.
    pub why_not: Vec<WhyNot>,
}

impl ProviderState {
    /// The access counts in GEOM's notation: `r1w1e0`.
    pub fn mode(&self) -> String {
        format!("r{}w{}e{}", self.r, self.w, self.e)
    }
}
