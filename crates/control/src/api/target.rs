//! Target ports, access groups, LUNs and live sessions.

use super::state::Health;
use super::stats::Stats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a target port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetHealth {
    /// Accepts logins.
    #[default]
    Listening,
    /// Accepts no logins: a portal could not be opened.
    Down,
}

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetState {
    /// Which driver serves it: `iscsi`.
    pub driver: String,
    /// Its name on the wire.
    pub name: String,
    /// Addresses it listens on.
    pub portals: Vec<String>,
    /// The group of target ports that it belongs to.
    pub port_group: String,
    /// Relative identifier of its port.
    pub relative_port: u16,
    /// Whether logins can come.
    pub state: TargetHealth,
    /// How it is.
    pub health: Health,
    /// Why it is not ok; empty when it is.
    pub health_why: String,
    /// Who sees what.
    pub groups: Vec<GroupState>,
    /// Who is connected.
    pub sessions: Vec<SessionState>,
}

/// A group of target ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortGroupState {
    /// Its name.
    pub name: String,
    /// Its identifier for initiators.
    pub id: u16,
    /// `optimized`, `non-optimized`, `standby`, `unavailable`, `offline`, `transitioning`.
    pub state: String,
    /// Initiators should prefer it.
    pub preferred: bool,
    /// Initiators may change its state.
    pub explicit: bool,
    /// Targets that belong to it.
    pub targets: Vec<String>,
}

/// A LUN that is a block device of this machine, or shall be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachedState {
    /// The target.
    pub target: String,
    /// The LUN.
    pub lun: u64,
    /// Its unit.
    pub unit: String,
    /// The block device: `/dev/nbd0`, `/dev/loop0`; empty while there is none.
    pub device: String,
    /// By what it is one: `nbd` or `fuse`; empty while there is none.
    pub by: String,
    /// The file behind a loop device.
    pub file: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Who uses the device: mounts, swap, devices above it.
    pub users: Vec<String>,
    /// Why it is not there, or what is the matter.
    pub why: String,
}

/// One access group of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupState {
    /// Its name.
    pub name: String,
    /// Patterns of initiator names.
    pub initiators: Vec<String>,
    /// Rules for portals; empty means any.
    pub portals: Vec<String>,
    /// How the numbers of LUNs are written: `peripheral`, `flat`, `extended`.
    pub addressing: String,
    /// What its members see.
    pub luns: Vec<LunState>,
    /// What they will see when it is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<AwaitedState>,
}

/// A LUN whose provider was not there when the daemon started, and is not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwaitedState {
    /// Its number.
    pub lun: u64,
    /// The provider that it waits for.
    pub provider: String,
}

/// One logical unit of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LunState {
    /// Its number.
    pub lun: u64,
    /// The provider behind it.
    pub provider: String,
    /// Writes are refused.
    pub read_only: bool,
    /// Unit serial number (VPD page 0x80).
    pub serial: String,
    /// NAA identifier (VPD page 0x83), hexadecimal.
    pub naa: String,
    /// UUID (NVMe; VPD page 0x83 when it is configured).
    pub uuid: String,
    /// EUI-64, hexadecimal; absent when none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<String>,
    /// How long a read or write takes at the provider, lately, in nanoseconds; 0 before the first.
    pub latency_ns: u64,
    /// Most reads and writes that are sent to the provider at once; absent when more are no slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Who has reserved it; absent when nobody has and nobody is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationState>,
}

/// Reservations of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationState {
    /// Type of the persistent reservation, or `reserve` for one by RESERVE; absent when the unit is
    /// not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// PRgeneration: grows with every change of registrations.
    pub generation: u32,
    /// Survives a restart (APTPL).
    pub persistent: bool,
    /// Who is registered, or holds it by RESERVE.
    pub registrants: Vec<RegistrantState>,
}

/// Who is registered with a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistrantState {
    /// Its initiator port, as SCSI names it.
    pub port: String,
    /// Relative identifier of the target port.
    pub target_port: u16,
    /// Its key, hexadecimal; empty for a RESERVE.
    pub key: String,
    /// It holds the reservation.
    pub holds: bool,
    /// It is logged in.
    pub connected: bool,
}

/// Which digests a session negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Digests {
    /// CRC32C over headers.
    pub header: bool,
    /// CRC32C over data.
    pub data: bool,
}

/// One live session (I_T nexus).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionState {
    /// Name of the initiator.
    pub initiator: String,
    /// Its addresses, one a connection.
    pub address: String,
    /// Our address that it came to.
    #[serde(default)]
    pub portal: String,
    /// The access group it fell into; absent for discovery and when none matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Initiator session id (iSCSI), hexadecimal; empty for other drivers.
    pub isid: String,
    /// Target session identifying handle (iSCSI).
    pub tsih: u32,
    /// When it logged in, in nanoseconds since the daemon's start.
    pub since_ns: u64,
    /// LUNs it may use, the first of them.
    pub luns: Vec<u64>,
    /// How many LUNs it may use.
    pub luns_total: u64,
    /// The one unit it has entered (NBD); absent for initiators that address their LUNs themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How the connection is encrypted (NBD), for instance `TLS 1.3`; absent in the clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Digests in use.
    pub digests: Digests,
    /// How it proved who it is: `none`, `chap`, `mutual chap`.
    pub auth: String,
    /// Commands received and not yet answered.
    pub commands_outstanding: u64,
    /// How long the oldest of them waits, in nanoseconds; 0 when there is none.
    pub oldest_command_ns: u64,
    /// Commands that it is let have open: fewer when its unit is slow and others want it too.
    pub window: u32,
    /// Commands that it may have at its unit; absent while the unit has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Commands of it, and requests of tasks among them, that wait here; the rest of those
    /// outstanding is in flight.
    #[serde(default)]
    pub waiting: u64,
    /// Why commands of it wait here, in words; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// Counters.
    pub stats: Stats,
}

/// A session that hosts of one name take from each other again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RivalsState {
    /// The target.
    pub target: String,
    /// The name that they all give.
    pub initiator: String,
    /// Their addresses.
    pub addresses: Vec<String>,
    /// How often it has gone from one of them to another.
    pub moves: u64,
    /// When it did last, since the daemon's start, in nanoseconds.
    pub at_ns: u64,
}

/// A refused login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Denied {
    /// Since the daemon's start, in nanoseconds.
    pub at_ns: u64,
    /// The target it wanted; empty when it named none.
    pub target: String,
    /// Who it said it was.
    pub initiator: String,
    /// From where.
    pub address: String,
    /// Why it was refused.
    pub why: String,
    /// What was expected of it (a pattern, a user name); empty when nothing would have done.
    pub expected: String,
    /// How many times in a row.
    pub times: u64,
}
