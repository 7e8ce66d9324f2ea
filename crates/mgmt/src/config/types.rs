//! The configuration as values. What each section's kind, class or driver adds to it stays a JSON
//! object, already checked against that entry's schema.

use super::api::{ApiClientConfig, ApiConfig};
use super::daemon::DaemonConfig;
use super::webhook::WebhookConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The names that distinguish a section from others of its kind: the target and name of a group;
/// an empty text and the name of another section.
pub(crate) type SectionKey<T> = fn(&T) -> (&str, &str);

/// The configuration file `ashlar.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Settings of the daemon.
    pub daemon: DaemonConfig,
    /// Buses, whose disks are discovered instead of listed.
    pub bus: Vec<BusConfig>,
    /// Disks: the bottom providers.
    pub disk: Vec<DiskConfig>,
    /// Geoms that are not found by tasting.
    pub geom: Vec<GeomConfig>,
    /// Settings of logical units, where they differ from the defaults.
    pub unit: Vec<UnitConfig>,
    /// Target port groups, each with a common access state.
    pub alua: Vec<AluaConfig>,
    /// Target ports.
    pub target: Vec<TargetConfig>,
    /// Access groups. An initiator can access only the LUNs that its group lists.
    pub access: Vec<AccessConfig>,
    /// Listeners of the API over TCP.
    pub api: ApiConfig,
    /// Clients of the API by their TLS certificates.
    pub api_client: Vec<ApiClientConfig>,
    /// Servers that receive events.
    pub webhook: Vec<WebhookConfig>,
}

/// `[[bus]]`: a bus whose disks are accessed by commands. Each disk that is found becomes a
/// provider: `da0`, `ada0`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusConfig {
    /// Name of the bus.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Kind of the bus; `ashlar schema` lists the kinds.
    pub kind: String,
    /// Fixed names of disks, independent of the order in which disks are found. The value of each
    /// name is `TARGET:LUN`, or the serial number or NAA name that the disk reports. A disk that
    /// gets another name by an edit is removed and added; one that is no longer listed keeps its
    /// name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// Seconds that a READ or WRITE may take after it was sent; it is then aborted and retried.
    /// Commands that flush data or deallocate blocks may take twice as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600), extend("default" = 30))]
    pub timeout_s: Option<u32>,
    /// Number of retries of a command that failed or timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 4))]
    pub retries: Option<u8>,
    /// Seconds after which a request to a disk fails, including waiting time and all retries; its
    /// outstanding commands are then aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 60))]
    pub request_deadline_s: Option<u32>,
    /// Parameters of this kind of bus.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// Most logical units of a target that a bus looks at when its section does not set it.
const LUNS_MAX: u64 = 16_384;

impl BusConfig {
    /// Whether a running bus becomes another one without a release of its disks: what differs are
    /// keys that it takes over while it runs. `live_keys`: those of its kind.
    pub fn can_become(&self, to: &BusConfig, live_keys: &[&str]) -> bool {
        let bare = |bus: &BusConfig| {
            let mut bare = bus.clone();
            (bare.timeout_s, bare.retries, bare.request_deadline_s) = (None, None, None);
            bare.names.clear();
            bare.params.retain(|key, _| !live_keys.contains(&key.as_str()));
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
    /// Name of the disk and of its provider.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Kind of the disk; `ashlar schema` lists the kinds.
    pub kind: String,
    /// Parameters of this kind of disk.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

impl DiskConfig {
    /// The image file or device that is the disk; `None` for a kind without one. No kind uses the
    /// key `path` for anything else.
    pub fn image(&self) -> Option<&Path> {
        self.params.get("path").and_then(Value::as_str).map(Path::new)
    }

    /// Whether its section refuses write access.
    pub fn is_read_only(&self) -> bool {
        self.params.get("read_only") == Some(&Value::Bool(true))
    }

    /// Whether one of two disks of the same file or device could write beside the other.
    pub fn conflicts_with(&self, other: &DiskConfig) -> bool {
        self.name != other.name && !(self.is_read_only() && other.is_read_only())
    }
}

/// `[[geom]]`: a geom. It has either one `provider` or several `members`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeomConfig {
    /// Class of the geom.
    pub class: String,
    /// Name of the geom.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The provider that the geom uses, for classes with one provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The providers that the geom uses, for classes with several providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Parameters of the class.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

impl GeomConfig {
    /// All providers that it uses.
    pub fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.provider.iter().chain(&self.members).map(String::as_str)
    }

    /// Disks with names of their own, and the file of each: those of a file server.
    pub fn disks(&self) -> impl Iterator<Item = (&str, &str)> {
        let disks = self.params.get("disks").and_then(serde_json::Value::as_object);
        let disks = disks.into_iter().flatten();
        disks.filter_map(|(name, path)| Some((name.as_str(), path.as_str()?)))
    }

    /// Disks with names of their own that another section does not have, or has with other files.
    pub fn dropped_disks<'g>(&'g self, to: &'g GeomConfig) -> impl Iterator<Item = &'g str> {
        let stays = |disk: &(&str, &str)| to.disks().any(|other| other == *disk);
        self.disks().filter(move |disk| !stays(disk)).map(|(name, _)| name)
    }
}

/// A CHAP user name and its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chap {
    /// The name sent in CHAP_N.
    #[schemars(length(min = 1, max = 255))]
    pub user: String,
    /// `file:PATH`, `credential:NAME` (systemd), or the secret itself (discouraged).
    #[schemars(length(min = 1))]
    pub secret: String,
}

/// CHAP account by which initiators authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitiatorChap {
    /// The name sent in CHAP_N.
    #[schemars(length(min = 1, max = 255))]
    pub user: String,
    /// `file:PATH`, `credential:NAME` (systemd), or the secret itself (discouraged).
    #[schemars(length(min = 1))]
    pub secret: String,
    /// CHAP account by which the target authenticates itself to initiators that request it; absent:
    /// the target's `mutual_chap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Chap>,
}

/// Answer of a target to a digest that an initiator offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DigestPolicy {
    /// The digest is never used.
    Off,
    /// The digest is used if the initiator prefers it.
    #[default]
    Allow,
    /// Logins without the digest are refused.
    Require,
}

/// `[[target]]`: a target port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetConfig {
    /// Driver of the target; `ashlar schema` lists the drivers.
    pub driver: String,
    /// Name of the target in its protocol (iSCSI: `iqn.`, `eui.` or `naa.`; NVMe: `nqn.`).
    #[schemars(length(min = 1, max = 223))]
    pub name: String,
    /// Portals: addresses with ports, `unix:PATH` (NBD) or `ether:INTERFACE` (AoE); a `local`
    /// target has none.
    #[serde(default)]
    pub listen: Vec<String>,
    /// CHAP account by which initiators authenticate, unless their group has its own accounts;
    /// absent: no authentication is required. An initiator that knows the secret can log in under
    /// the name of any other initiator. If groups have different LUNs, give each group its own
    /// `chap` in `[[access]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
    /// CHAP account by which the target authenticates itself to initiators that request it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<Chap>,
    /// CHAP account for discovery sessions; absent: any initiator may discover targets, but is
    /// shown a target only if one of its groups matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_chap: Option<Chap>,
    /// CRC32C of headers.
    #[serde(default)]
    pub header_digest: DigestPolicy,
    /// CRC32C of data.
    #[serde(default)]
    pub data_digest: DigestPolicy,
    /// The `[[alua]]` group of the target port; absent: the group `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub port_group: Option<String>,
    /// Relative target port identifier, to which persistent reservations refer; absent: a free
    /// identifier, which the target keeps over restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port_id: Option<u16>,
    /// Parameters of the driver.
    #[serde(flatten)]
    pub params: Map<String, Value>,
}

/// Access state of units through the ports of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AluaState {
    /// All commands are executed, with the best performance.
    #[default]
    Optimized,
    /// All commands are executed; another group performs better.
    NonOptimized,
    /// Ready to take over; the medium is not accessed.
    Standby,
    /// Only INQUIRY, REPORT LUNS, REQUEST SENSE and commands for port groups and buffers are
    /// executed.
    Unavailable,
    /// Like unavailable, but initiators cannot change the state.
    Offline,
}

/// `[[alua]]`: a target port group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AluaConfig {
    /// Name of the group; targets without a `port_group` belong to `default`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Target port group identifier that initiators see; unique.
    #[schemars(range(min = 1, max = 65_535))]
    pub id: u16,
    /// Access state when the daemon starts and when this line changes.
    #[serde(default)]
    pub state: AluaState,
    /// The group is reported to initiators as preferred.
    #[serde(default)]
    pub preferred: bool,
    /// Initiators may change the state with SET TARGET PORT GROUPS.
    #[serde(default)]
    pub explicit: bool,
}

/// Handler that executes the commands of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnitHandler {
    /// A disk.
    #[default]
    Disk,
    /// A CD or DVD.
    Cdrom,
    /// A disk that stores no data.
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

/// Protection information of a unit (SCSI DIF).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnitProtection {
    /// No space for protection information.
    #[default]
    None,
    /// Space for protection information; an initiator selects the type with FORMAT UNIT.
    Unformatted,
    /// Type 1, until FORMAT UNIT selects another type.
    Type1,
    /// Type 2, until FORMAT UNIT selects another type.
    Type2,
    /// Type 3, until FORMAT UNIT selects another type.
    Type3,
}

impl UnitProtection {
    /// There is no space for it.
    pub fn is_none(&self) -> bool {
        *self == UnitProtection::None
    }
}

/// `[[unit]]`: properties of a provider's logical unit, the same on all its LUNs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitConfig {
    /// Name of the provider.
    #[schemars(length(min = 1, max = 255))]
    pub provider: String,
    /// Handler that executes the commands of the unit.
    #[serde(default)]
    pub handler: UnitHandler,
    /// Unit serial number, reported as it is written; absent: the serial number of a LUN, or of the
    /// disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub serial: Option<String>,
    /// NAA name: 16 hexadecimal digits that begin with 3 or 5, or 32 that begin with 6; absent:
    /// derived from the serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 32))]
    pub naa: Option<String>,
    /// UUID, by which NVMe hosts identify the namespace; absent: derived from the NAA name, and not
    /// reported to SCSI hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 36, max = 36))]
    pub uuid: Option<String>,
    /// EUI-64: 16 hexadecimal digits; absent: no EUI-64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 16))]
    pub eui64: Option<String>,
    /// Writes are refused in any mode of a LUN.
    #[serde(default)]
    pub read_only: bool,
    /// The medium is removable.
    #[serde(default)]
    pub removable: bool,
    /// SANITIZE is supported: initiators may destroy all data irrecoverably.
    #[serde(default)]
    pub sanitize: bool,
    /// WRITE SAME of zero blocks writes to the end of the medium; otherwise it is refused (WSNZ).
    #[serde(default)]
    pub write_same_to_end: bool,
    /// Percentages of used space, at most two, at which initiators are notified and `status` warns.
    /// They apply to thin disks whose free space is too small for their full size. An empty list:
    /// no warnings; absent: 80 and 90. Image files and memory disks report their used space; for
    /// other providers, for example block devices, a list of percentages is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2), inner(range(min = 1, max = 99)))]
    pub thresholds: Option<Vec<u8>>,
    /// Space for protection information, taken from the end of the provider. Data there is lost
    /// when the unit is first opened with this setting.
    #[serde(default, skip_serializing_if = "UnitProtection::is_none")]
    pub protection: UnitProtection,
    /// Initial state of the write cache: whether writes may be completed before they are durable;
    /// absent: yes.
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

/// Addressing method of LUN numbers in REPORT LUNS. A number that does not fit uses the next
/// method. Initiators may use every method.
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
    /// True for the default, which is not written.
    pub fn is_usual(&self) -> bool {
        *self == LunAddressing::default()
    }
}

/// Access mode of a LUN.
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
    /// The provider of the LUN.
    pub provider: String,
    /// Access mode of the LUN.
    pub mode: LunMode,
    /// Unit serial number; absent: derived from the identity of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// The two forms of a LUN.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum LunForm {
    /// The name of the provider alone.
    Provider(String),
    /// A table with the provider and further properties.
    Full(LunFull),
}

/// A LUN with its properties.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LunFull {
    /// The provider of the LUN.
    provider: String,
    /// Access mode: `rw` or `ro`.
    #[serde(default)]
    mode: LunMode,
    /// Unit serial number; absent: derived from the identity of the provider.
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

/// `[[access]]`: a group of initiators of one target, and their LUNs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessConfig {
    /// Name of the target.
    pub target: String,
    /// Name of the group, unique within the target.
    #[schemars(length(min = 1, max = 64))]
    pub group: String,
    /// Patterns of initiator names, with `*` and `?`.
    #[schemars(length(min = 1))]
    pub initiators: Vec<String>,
    /// Only initiators that connect to these addresses of the target: `ADDRESS`, `ADDRESS:PORT`,
    /// `*:PORT`, `unix:PATH` or `ether:INTERFACE`; absent: any address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<String>,
    /// CHAP account by which the initiators of the group authenticate (iSCSI); absent: the `chap`
    /// of the target, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<InitiatorChap>,
    /// CHAP accounts of single initiators, by initiator name (iSCSI). Such an initiator can log in
    /// only with its own account; an initiator without an account in a group without `chap` is
    /// refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initiator_chap: BTreeMap<String, InitiatorChap>,
    /// Initiators may reserve units whose LUN has the mode `ro` and change their mode pages, which
    /// affects other initiators. Otherwise they may only register.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only_reserves: bool,
    /// TARGET COLD RESET by an initiator resets all units of the target and ends the sessions of
    /// all initiators (iSCSI). Otherwise it resets the units that the initiator sees and ends its
    /// own sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold_resets_target: bool,
    /// Addressing method of LUN numbers.
    #[serde(default, skip_serializing_if = "LunAddressing::is_usual")]
    pub addressing: LunAddressing,
    /// LUN numbers, each with its provider.
    #[serde(default, deserialize_with = "luns")]
    pub luns: BTreeMap<u64, LunConfig>,
}

/// JSON's keys are texts. serde turns them into numbers only where it knows the wanted type
/// beforehand. Inside a tagged enumeration it does not, so it is done here.
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
    pub fn used_names(&self) -> impl Iterator<Item = &str> {
        let luns = self.access.iter().flat_map(|a| a.luns.values());
        let geoms = self.geom.iter().flat_map(GeomConfig::provider_names);
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
    pub fn is_equivalent(&self, other: &Config) -> bool {
        // The same order is the usual case; sections in another order are found by their names.
        fn all<T: PartialEq>(a: &[T], b: &[T], key: SectionKey<T>) -> bool {
            if a == b || a.len() != b.len() {
                return a == b;
            }
            let by_key: HashMap<_, &T> = b.iter().map(|y| (key(y), y)).collect();
            a.iter().all(|x| by_key.get(&key(x)).is_some_and(|y| *y == x))
        }
        self.daemon == other.daemon
            && all(&self.bus, &other.bus, |bus| ("", bus.name.as_str()))
            && all(&self.disk, &other.disk, |disk| ("", disk.name.as_str()))
            && all(&self.geom, &other.geom, |geom| ("", geom.name.as_str()))
            && all(&self.unit, &other.unit, |unit| ("", unit.provider.as_str()))
            && all(&self.alua, &other.alua, |group| ("", group.name.as_str()))
            && all(&self.target, &other.target, |target| ("", target.name.as_str()))
            && all(&self.access, &other.access, AccessConfig::key)
            && self.api == other.api
            && all(&self.api_client, &other.api_client, |client| ("", client.subject.as_str()))
            && all(&self.webhook, &other.webhook, |hook| ("", hook.name.as_str()))
    }
}

impl AccessConfig {
    /// Its target and name, which no other group has.
    pub fn key(&self) -> (&str, &str) {
        (&self.target, &self.group)
    }

    /// Whether both are the group of the same name of the same target.
    pub fn same_group(&self, other: &AccessConfig) -> bool {
        self.key() == other.key()
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
            && self.cold_resets_target == other.cold_resets_target
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_sections_does_not_distinguish_configurations() {
        let disk = |name: &str, kind: &str| DiskConfig {
            name: name.to_owned(),
            kind: kind.to_owned(),
            params: Map::new(),
        };
        let of = |disk: &[DiskConfig]| Config { disk: disk.to_vec(), ..Config::default() };
        let (a, b) = (disk("a", "null"), disk("b", "null"));
        let both = of(&[a.clone(), b.clone()]);
        assert!(both.is_equivalent(&of(&[b.clone(), a.clone()])));
        for other in [disk("a", "memory"), disk("c", "null"), b.clone()] {
            assert!(!both.is_equivalent(&of(&[b.clone(), other])));
        }
        assert!(!both.is_equivalent(&of(&[a])));
    }
}
