//! The configuration as values. What each section's kind, class or driver adds to it stays a JSON
//! object, already checked against that entry's schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The whole of `ashlar.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// The daemon itself.
    pub daemon: DaemonConfig,
    /// Buses whose disks are found, not listed.
    pub bus: Vec<BusConfig>,
    /// Bottom providers.
    pub disk: Vec<DiskConfig>,
    /// Layers that are not found by tasting.
    pub geom: Vec<GeomConfig>,
    /// How units are shown to initiators, where the defaults are not wanted.
    pub unit: Vec<UnitConfig>,
    /// Groups of target ports with a common access state.
    pub alua: Vec<AluaConfig>,
    /// Target ports.
    pub target: Vec<TargetConfig>,
    /// Which initiator sees what. Nobody sees anything that is not written here.
    pub access: Vec<AccessConfig>,
}

/// How a reactor waits for its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// io_uring where the kernel allows it, epoll otherwise.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Poll,
}

/// `[daemon]`: takes effect when the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DaemonConfig {
    /// Path of the control socket, as all paths below the folder of this file unless absolute;
    /// absent: /run/ashlar/ashlar.sock for root, the user's runtime folder otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Number of reactors, one thread each; absent: one for every core the process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub cores: Option<u32>,
    /// How the reactors wait.
    pub port: Port,
    /// Bytes of data buffers, for all cores together; absent: the daemon's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_048_576))]
    pub memory: Option<u64>,
    /// Microseconds that a core looks for work before it sleeps: less latency for a lone request,
    /// more CPU for a busy one. 0 sleeps at once; absent: the daemon's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub spin_us: Option<u32>,
    /// What goes to the log: `info`, or a list such as `info,geom=debug`.
    pub log: String,
    /// Folder of what logical units keep over a restart: persistent reservations, saved mode pages,
    /// identities of disks.
    /// Absent: `units` beside the socket; for a socket below /run, which a restart of the machine
    /// empties, /var/lib/ashlar/units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Folder of the archived configurations; absent: `history` beside the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// How many archived configurations are kept.
    #[schemars(range(min = 1, max = 1000))]
    pub history_kept: u32,
}

impl Default for DaemonConfig {
    fn default() -> DaemonConfig {
        DaemonConfig {
            socket: None,
            cores: None,
            port: Port::Auto,
            memory: None,
            spin_us: None,
            log: "info".to_owned(),
            state: None,
            history: None,
            history_kept: 32,
        }
    }
}

/// `[[bus]]`: what disks are reached through by commands. Its disks are providers as they are
/// found: `da0`, `ada0`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusConfig {
    /// Its name.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Which kind; `ashlar schema` lists them.
    pub kind: String,
    /// Names of disks that shall not depend on the order in which disks are found, by name:
    /// `TARGET:LUN`, or what the disk says it is: its serial number or its NAA name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// Seconds that a READ or WRITE may take once it was sent; then it is aborted and tried again.
    /// Commands that flush, or give back blocks, may take twice as long. [default: 30]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_s: Option<u32>,
    /// How often a command is tried again that failed or was not answered in time. [default: 4]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub retries: Option<u8>,
    /// Seconds after which a request to a disk fails, all waiting and all tries included; what the
    /// disk still has then is aborted. [default: 60]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub request_deadline_s: Option<u32>,
    /// What that kind wants to know.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// Most logical units of a target that a bus looks at when its section does not say it.
const LUNS_MAX: u64 = 16_384;

/// Keys of a kind's own that a running bus takes over: by kind.
const LIVE_KEYS: &[(&str, &[&str])] = &[
    (
        "iscsi",
        &[
            "luns_max",
            "deadline_s",
            "header_digest",
            "data_digest",
            "chap",
            "mutual",
            "chap_algorithms",
        ],
    ),
    ("aoe", &["window", "deadline_s", "frame_life_ms", "ask_s"]),
];

impl BusConfig {
    /// Whether a running bus becomes another one without letting go of its disks: what differs are
    /// keys that it takes over while it runs.
    pub fn becomes(&self, to: &BusConfig) -> bool {
        let bare = |bus: &BusConfig| {
            let mut bare = bus.clone();
            (bare.timeout_s, bare.retries, bare.request_deadline_s) = (None, None, None);
            let live = LIVE_KEYS.iter().filter(|(kind, _)| *kind == bus.kind);
            live.flat_map(|(_, keys)| *keys).for_each(|key| drop(bare.params.remove(*key)));
            bare
        };
        bare(self) == bare(to)
    }

    /// Most logical units of a target that are looked at.
    pub fn luns_max(&self) -> u64 {
        self.params.get("luns_max").and_then(Value::as_u64).unwrap_or(LUNS_MAX)
    }
}

/// `[[disk]]`: a bottom provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskConfig {
    /// Its name, and the name of its provider.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Which kind; `ashlar schema` lists them.
    pub kind: String,
    /// What that kind wants to know.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// `[[geom]]`: a layer. It has either one `provider` or several `members`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeomConfig {
    /// Its class.
    pub class: String,
    /// Its name.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The provider it stands on, for classes with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The providers it stands on, for classes with several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// What that class wants to know.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

impl GeomConfig {
    /// All providers that it uses.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        self.provider.iter().chain(&self.members).map(String::as_str)
    }
}

/// A user name and where its secret is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chap {
    /// The name sent in CHAP_N.
    #[schemars(length(min = 1, max = 255))]
    pub user: String,
    /// `file:PATH`, `credential:NAME` (systemd), or the secret itself (discouraged).
    #[schemars(length(min = 1))]
    pub secret: String,
}

/// How initiators of a group prove who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitiatorChap {
    /// The name sent in CHAP_N.
    #[schemars(length(min = 1, max = 255))]
    pub user: String,
    /// `file:PATH`, `credential:NAME` (systemd), or the secret itself (discouraged).
    #[schemars(length(min = 1))]
    pub secret: String,
    /// The target proves itself with this to initiators that ask; absent: with the target's
    /// `mutual_chap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Chap>,
}

/// What a target says to a digest that an initiator offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DigestPolicy {
    /// Never.
    Off,
    /// When the initiator wants it.
    #[default]
    Allow,
    /// No login without it.
    Require,
}

/// `[[target]]`: a target port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetConfig {
    /// Which driver; `ashlar schema` lists them.
    pub driver: String,
    /// Its name on the wire (iSCSI: `iqn.`, `eui.` or `naa.`; NVMe: `nqn.`).
    #[schemars(length(min = 1, max = 223))]
    pub name: String,
    /// Addresses with ports, `unix:PATH` (NBD) or `ether:INTERFACE` (AoE); a `local` target has
    /// none.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Initiators must know this secret, unless their group has accounts of its own; absent: no
    /// proof is asked for. Who knows it can log in under the name of any other initiator: where
    /// groups see different LUNs, give each group its own in `[[access]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
    /// The target proves itself with this secret to initiators that ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<Chap>,
    /// Discovery sessions must know this secret; absent: anyone may ask, and is told of a target
    /// only when a group of it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_chap: Option<Chap>,
    /// CRC32C over headers.
    #[serde(default)]
    pub header_digest: DigestPolicy,
    /// CRC32C over data.
    #[serde(default)]
    pub data_digest: DigestPolicy,
    /// The `[[alua]]` group that its port belongs to; absent: the group `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub port_group: Option<String>,
    /// Relative identifier of its port, by which persistent reservations know it; absent: a free
    /// one, which stays the target's own over restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port_id: Option<u16>,
    /// What that driver wants to know.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// How initiators can access units through the ports of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AluaState {
    /// Everything works, and here it works best.
    #[default]
    Optimized,
    /// Everything works; another group is better.
    NonOptimized,
    /// Ready to take over; media are not accessed.
    Standby,
    /// Only who and where is told.
    Unavailable,
    /// As unavailable, and initiators cannot change it.
    Offline,
}

/// `[[alua]]`: a group of target ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AluaConfig {
    /// Its name; `default` is the group of targets that name none.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Its identifier for initiators, unique.
    #[schemars(range(min = 1, max = 65_535))]
    pub id: u16,
    /// The state when the daemon starts, and when this line changes.
    #[serde(default)]
    pub state: AluaState,
    /// Initiators should prefer it.
    #[serde(default)]
    pub preferred: bool,
    /// Initiators may change its state by SET TARGET PORT GROUPS.
    #[serde(default)]
    pub explicit: bool,
}

/// What executes the commands of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnitHandler {
    /// A disk.
    #[default]
    Disk,
    /// A CD or DVD.
    Cdrom,
    /// A disk that keeps nothing.
    Null,
}

impl UnitHandler {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            UnitHandler::Disk => "disk",
            UnitHandler::Cdrom => "cdrom",
            UnitHandler::Null => "null",
        }
    }
}

/// Protection information of a unit, SCSI's DIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnitProtection {
    /// There is no room for it.
    #[default]
    None,
    /// There is room; an initiator's FORMAT UNIT chooses the type.
    Unformatted,
    /// Type 1 until FORMAT UNIT chooses another.
    Type1,
    /// Type 2 likewise.
    Type2,
    /// Type 3 likewise.
    Type3,
}

impl UnitProtection {
    /// There is no room for it.
    pub fn is_none(&self) -> bool {
        *self == UnitProtection::None
    }
}

/// `[[unit]]`: how a provider is shown to initiators as a logical unit, on all its LUNs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitConfig {
    /// The provider.
    #[schemars(length(min = 1, max = 255))]
    pub provider: String,
    /// What executes its commands.
    #[serde(default)]
    pub handler: UnitHandler,
    /// Unit serial number, shown as it is written; absent: that of a LUN, or of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub serial: Option<String>,
    /// NAA name: 16 hexadecimal digits that begin with 3 or 5, or 32 that begin with 6; absent:
    /// made from the serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 32))]
    pub naa: Option<String>,
    /// UUID, which hosts of NVMe know the namespace by; absent: made from the NAA name, and not
    /// shown to hosts of SCSI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 36, max = 36))]
    pub uuid: Option<String>,
    /// EUI-64: 16 hexadecimal digits; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 16))]
    pub eui64: Option<String>,
    /// Nobody may write, whatever a LUN says.
    #[serde(default)]
    pub read_only: bool,
    /// The medium can be taken out.
    #[serde(default)]
    pub removable: bool,
    /// SANITIZE is served: initiators may destroy everything for good.
    #[serde(default)]
    pub sanitize: bool,
    /// WRITE SAME of no blocks goes to the end of the medium; else it is refused (WSNZ).
    #[serde(default)]
    pub write_same_to_end: bool,
    /// Percentages of its room, at most two, at which initiators and `status` are told that the
    /// disk fills up: for one that takes room as it is written, and has not enough for all of it.
    /// None in the list: nobody is told. Absent: 80 and 90. Image files and memory disks say how
    /// full they are; of others, block devices among them, a list is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2), inner(range(min = 1, max = 99)))]
    pub thresholds: Option<Vec<u8>>,
    /// Room for protection information, taken off the provider's end: what stands there is lost
    /// when the unit is opened so for the first time.
    #[serde(default, skip_serializing_if = "UnitProtection::is_none")]
    pub protection: UnitProtection,
    /// Whether writes may be answered before they are durable, at first; absent: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// T10 vendor identification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub vendor: Option<String>,
    /// Product identification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub product: Option<String>,
    /// Product revision level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4))]
    pub revision: Option<String>,
}

/// How REPORT LUNS writes numbers; what does not fit is written by the next method. Every method
/// is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LunAddressing {
    /// Up to 255, then flat.
    #[default]
    Peripheral,
    /// Up to 16,383, then extended.
    Flat,
    /// Every number.
    Extended,
}

impl LunAddressing {
    /// True for what need not be said.
    pub fn is_usual(&self) -> bool {
        *self == LunAddressing::default()
    }
}

/// Whether a LUN can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LunMode {
    /// Read and write.
    #[default]
    Rw,
    /// Read only.
    Ro,
}

/// One LUN of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "LunForm")]
#[schemars(with = "LunForm")]
pub struct LunConfig {
    /// The provider behind it.
    pub provider: String,
    /// Read-only or not.
    pub mode: LunMode,
    /// Unit serial number; absent: made from the provider's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// The two ways to write a LUN.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum LunForm {
    /// The provider alone.
    Provider(String),
    /// With what else is to be said.
    Full(LunFull),
}

/// A LUN in full.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LunFull {
    /// The provider behind it.
    provider: String,
    /// `rw` or `ro`.
    #[serde(default)]
    mode: LunMode,
    /// Unit serial number; absent: made from the provider's identity.
    #[serde(default)]
    #[schemars(length(min = 1, max = 252))]
    serial: Option<String>,
}

impl From<LunForm> for LunConfig {
    fn from(form: LunForm) -> LunConfig {
        match form {
            LunForm::Provider(provider) => LunConfig { provider, mode: LunMode::Rw, serial: None },
            LunForm::Full(LunFull { provider, mode, serial }) => {
                LunConfig { provider, mode, serial }
            }
        }
    }
}

/// `[[access]]`: a group of initiators of one target, and what its members see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessConfig {
    /// The target it belongs to.
    pub target: String,
    /// Its name; unique within the target.
    #[schemars(length(min = 1, max = 64))]
    pub group: String,
    /// Patterns of initiator names with `*` and `?`.
    #[schemars(length(min = 1))]
    pub initiators: Vec<String>,
    /// Only those who come to these addresses of ours: `ADDRESS`, `ADDRESS:PORT`, `*:PORT`,
    /// `unix:PATH` or `ether:INTERFACE`; absent: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<String>,
    /// The members must know this secret (iSCSI); absent: what the target asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<InitiatorChap>,
    /// Accounts of single initiators, by name (iSCSI). Such an initiator logs in with its own
    /// account only; one without an account in a group that has no `chap` is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initiator_chap: BTreeMap<String, InitiatorChap>,
    /// Members with LUNs of mode `ro` may reserve the units and change their mode pages, which
    /// others notice. Otherwise they may only register.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only_reserves: bool,
    /// How the numbers of LUNs are written.
    #[serde(default, skip_serializing_if = "LunAddressing::is_usual")]
    pub addressing: LunAddressing,
    /// LUN number to provider.
    #[serde(default, deserialize_with = "luns")]
    pub luns: BTreeMap<u64, LunConfig>,
}

/// JSON's keys are texts. serde turns them into numbers only where it knows the wanted type
/// beforehand, which it does not inside a tagged enumeration; so it is done here.
fn luns<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<u64, LunConfig>, D::Error> {
    let texts = BTreeMap::<String, LunConfig>::deserialize(from)?;
    let number = |(key, lun): (String, LunConfig)| {
        let odd = || serde::de::Error::custom(format!("`{key}` is not the number of a LUN"));
        Ok((key.parse().map_err(|_| odd())?, lun))
    };
    texts.into_iter().map(number).collect()
}

impl Config {
    /// The bus of that name.
    pub fn bus(&self, name: &str) -> Option<&BusConfig> {
        self.bus.iter().find(|b| b.name == name)
    }

    /// The disk of that name.
    pub fn disk(&self, name: &str) -> Option<&DiskConfig> {
        self.disk.iter().find(|d| d.name == name)
    }

    /// The geom of that name.
    pub fn geom(&self, name: &str) -> Option<&GeomConfig> {
        self.geom.iter().find(|g| g.name == name)
    }

    /// Names of providers that LUNs and geoms use; a provider with several users occurs several
    /// times.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        let luns = self.access.iter().flat_map(|a| a.luns.values());
        let geoms = self.geom.iter().flat_map(GeomConfig::below);
        luns.map(|lun| lun.provider.as_str()).chain(geoms)
    }

    /// The settings of a provider's unit.
    pub fn unit(&self, provider: &str) -> Option<&UnitConfig> {
        self.unit.iter().find(|u| u.provider == provider)
    }

    /// The target of that name.
    pub fn target(&self, name: &str) -> Option<&TargetConfig> {
        self.target.iter().find(|t| t.name == name)
    }

    /// The group of that name of that target.
    pub fn access(&self, target: &str, group: &str) -> Option<&AccessConfig> {
        self.access.iter().find(|a| a.target == target && a.group == group)
    }

    /// Whether both describe the same system. The order of sections carries no meaning.
    pub fn same(&self, other: &Config) -> bool {
        // The same order is the usual case; sections in another order are searched for.
        fn all<T: PartialEq>(a: &[T], b: &[T]) -> bool {
            a == b || a.len() == b.len() && a.iter().all(|x| b.contains(x))
        }
        self.daemon == other.daemon
            && all(&self.bus, &other.bus)
            && all(&self.disk, &other.disk)
            && all(&self.geom, &other.geom)
            && all(&self.unit, &other.unit)
            && all(&self.alua, &other.alua)
            && all(&self.target, &other.target)
            && all(&self.access, &other.access)
    }
}

impl AccessConfig {
    /// Whether both are the group of the same name of the same target.
    pub fn same_group(&self, other: &AccessConfig) -> bool {
        self.target == other.target && self.group == other.group
    }

    /// Whether nothing but LUNs is different.
    pub fn differs_in_luns_only(&self, other: &AccessConfig) -> bool {
        self.same_group(other)
            && self.initiators == other.initiators
            && self.portals == other.portals
            && self.chap == other.chap
            && self.initiator_chap == other.initiator_chap
            && self.addressing == other.addressing
            && self.read_only_reserves == other.read_only_reserves
    }

    /// Its accounts, with the initiator that each is of; `None`: of the whole group.
    pub fn accounts(&self) -> impl Iterator<Item = (Option<&str>, &InitiatorChap)> {
        let single = self.initiator_chap.iter().map(|(name, chap)| (Some(name.as_str()), chap));
        self.chap.iter().map(|chap| (None, chap)).chain(single)
    }

    /// The LUN numbers that have another meaning in `to`, and that meaning.
    pub fn lun_changes(&self, to: &AccessConfig) -> impl Iterator<Item = (u64, Option<LunConfig>)> {
        let set = to.luns.iter().filter(|(lun, is)| self.luns.get(lun) != Some(is));
        let set = set.map(|(lun, is)| (*lun, Some(is.clone())));
        let gone = self.luns.keys().filter(|lun| !to.luns.contains_key(lun));
        set.chain(gone.map(|lun| (*lun, None)))
    }
}
