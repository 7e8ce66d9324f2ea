//! Target ports, access groups, LUNs and live sessions.

use super::state::Health;
use super::stats::Stats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a target port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetHealth {
    /// Accepts logins.
    #[default]
    Listening,
    /// Accepts no logins because a portal could not be opened.
    Down,
}

/// How a session of a target is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// By `sessions end`.
    #[default]
    Command,
    /// By an edit of its access group: there are no logins, and each request of a host begins its
    /// session anew.
    AccessGroup,
    /// By `detach`: it belongs to a block device of this machine.
    Detach,
}

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetState {
    /// Driver of the target: `iscsi`.
    pub driver: String,
    /// Name of the target in its protocol.
    pub name: String,
    /// Addresses on which the target listens.
    pub portals: Vec<String>,
    /// Target port group of the target.
    pub port_group: String,
    /// Relative target port identifier.
    pub relative_port: u16,
    /// Whether the target accepts logins.
    pub state: TargetHealth,
    /// Health of the target.
    pub health: Health,
    /// Reason if the health is not ok; otherwise empty.
    pub health_why: String,
    /// Access groups.
    pub groups: Vec<GroupState>,
    /// Connected sessions.
    pub sessions: Vec<SessionState>,
    /// How its sessions are ended.
    pub session_end: SessionEnd,
}

/// Connections of a driver, of all its targets and portals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionsState {
    /// Name of the driver.
    pub driver: String,
    /// Open connections, with those that have no session yet.
    pub open: u64,
    /// Accepted connections that wait for their handshake.
    pub waiting: u64,
    /// Connections accepted since the daemon's start.
    pub accepted: u64,
    /// Connections that were reset because their core or their peer had as many as it may have.
    pub refused: u64,
    /// Closed connections whose reason was logged as a warning.
    pub warned: u64,
    /// Closed connections by reason; `protocol` is any reason that only the driver's protocol has.
    pub closed: BTreeMap<String, u64>,
}

/// A target port group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortGroupState {
    /// Name of the group.
    pub name: String,
    /// Target port group identifier that initiators see.
    pub id: u16,
    /// Access state: `optimized`, `non-optimized`, `standby`, `unavailable`, `offline`,
    /// `transitioning`.
    pub state: String,
    /// The group is reported to initiators as preferred.
    pub preferred: bool,
    /// Initiators may change the state.
    pub explicit: bool,
    /// Targets of the group.
    pub targets: Vec<String>,
}

/// A LUN that is, or will be, attached as a block device of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachedState {
    /// Name of the target.
    pub target: String,
    /// Number of the LUN.
    pub lun: u64,
    /// Unit of the LUN.
    pub unit: String,
    /// Path of the block device: `/dev/nbd0`, `/dev/loop0`; empty while there is none.
    pub device: String,
    /// Method of attachment: `nbd` or `fuse`; empty while there is no block device.
    pub by: String,
    /// Backing file of a loop device.
    pub file: String,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Users of the block device: mounts, swap, devices above it.
    pub users: Vec<String>,
    /// Reason why there is no block device, or another problem with it.
    pub why: String,
}

/// One access group of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupState {
    /// Name of the group.
    pub name: String,
    /// Patterns of initiator names.
    pub initiators: Vec<String>,
    /// Portals at which the group is valid; empty: any portal.
    pub portals: Vec<String>,
    /// Addressing method of LUN numbers: `peripheral`, `flat`, `extended`.
    pub addressing: String,
    /// LUNs of the group.
    pub luns: Vec<LunState>,
    /// LUNs whose provider is not present yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<PendingLunState>,
}

/// A LUN whose provider was not present when the daemon started and is not present yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingLunState {
    /// Number of the LUN.
    pub lun: u64,
    /// Name of the missing provider.
    pub provider: String,
}

/// One LUN of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LunState {
    /// Number of the LUN.
    pub lun: u64,
    /// The provider of the LUN.
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
    /// Recent latency of a read or write at the provider, in nanoseconds; 0 before the first.
    pub latency_ns: u64,
    /// Maximum number of concurrent reads and writes at the provider; absent while a higher number
    /// does not slow them down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Reservation and registrants of the unit; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationState>,
    /// `tray eject` ejects the medium of the unit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removable: bool,
    /// The medium of the unit is out; `tray load` loads one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ejected: bool,
    /// Counters of all sessions since the LUN was mapped, of ended ones too; absent before the
    /// first command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<LunCounters>,
}

/// Reservation and registrants of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationState {
    /// Type of the persistent reservation, or `reserve` for a reservation by RESERVE; absent when
    /// the unit is not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// PRgeneration, which increases with each change of registrations.
    pub generation: u32,
    /// Registrations survive a restart (APTPL).
    pub persistent: bool,
    /// Registrants, or the holder of a reservation by RESERVE.
    pub registrants: Vec<RegistrantState>,
}

/// A registrant of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistrantState {
    /// Initiator port, as SCSI names it.
    pub port: String,
    /// Relative identifier of the target port.
    pub target_port: u16,
    /// Reservation key, hexadecimal; empty for a RESERVE.
    pub key: String,
    /// The registrant holds the reservation.
    pub holds: bool,
    /// The initiator port is logged in.
    pub connected: bool,
}

/// Digests that a session negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Digests {
    /// CRC32C of headers.
    pub header: bool,
    /// CRC32C of data.
    pub data: bool,
}

/// Most LUNs whose counters a session has.
pub const LUN_COUNTERS_MAX: usize = 1024;

/// Counters of one LUN: of a session since it has used the LUN, or of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LunCounters {
    /// Number of the LUN.
    pub lun: u64,
    /// Commands that read the medium.
    pub reads: u64,
    /// Commands that wrote the medium.
    pub writes: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub write_bytes: u64,
    /// Commands that failed because of the medium.
    pub errors: u64,
}

/// One live session (I_T nexus).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionState {
    /// Identifier of the session, for `sessions end`; no other session has it until the daemon
    /// restarts.
    pub id: u64,
    /// Name of the initiator.
    pub initiator: String,
    /// Addresses of the initiator, one per connection.
    pub address: String,
    /// Portal to which the initiator connected.
    #[serde(default)]
    pub portal: String,
    /// Access group of the session; absent for discovery sessions and if no group matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Initiator session ID (iSCSI), hexadecimal; empty for other drivers.
    pub isid: String,
    /// Host identifier (NVMe), which distinguishes hosts of one host NQN; absent for other drivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Target session identifying handle (iSCSI).
    pub tsih: u32,
    /// Time of the login, in nanoseconds since the start of the daemon.
    pub since_ns: u64,
    /// LUNs that the session may use; only the first LUNs of a long list.
    pub luns: Vec<u64>,
    /// Number of LUNs that the session may use.
    pub luns_total: u64,
    /// Counters of the LUNs that the session has used, in the order of their numbers: of those in
    /// `luns`, and of further ones that had reads or writes, 1,024 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lun_counters: Vec<LunCounters>,
    /// The one unit that the session uses (NBD); absent for initiators that address LUNs
    /// themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Encryption of the connection (NBD), for instance `TLS 1.3`; absent without encryption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Digests in use.
    pub digests: Digests,
    /// Authentication of the session: `none`, `chap`, `mutual chap`.
    pub auth: String,
    /// Commands received and not yet answered.
    pub commands_outstanding: u64,
    /// Age of the oldest outstanding command, in nanoseconds; 0 when there is none.
    pub oldest_command_ns: u64,
    /// Maximum number of outstanding commands; lower when the unit is slow and other sessions
    /// compete for it.
    pub window: u32,
    /// Maximum number of commands of the session at its unit; absent while the unit has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Commands that wait in the daemon, and requests of tasks among them. The other outstanding
    /// commands are in flight.
    #[serde(default)]
    pub waiting: u64,
    /// Reason why commands of the session wait in the daemon; absent when none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// Counters.
    pub stats: Stats,
}

impl SessionState {
    /// The portal, after the address of the initiator: ` by 10.0.0.9:3260`; empty if it is unknown.
    pub fn by_portal(&self) -> String {
        match self.portal.is_empty() {
            true => String::new(),
            false => format!(" by {}", self.portal),
        }
    }
}

/// A session that several hosts with the same initiator name repeatedly take from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RivalsState {
    /// Name of the target.
    pub target: String,
    /// Initiator name that the hosts have in common.
    pub initiator: String,
    /// Addresses of the hosts.
    pub addresses: Vec<String>,
    /// How often the session moved from one host to another.
    pub moves: u64,
    /// Time of the last move, in nanoseconds since the start of the daemon.
    pub at_ns: u64,
}

/// A refused login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Denied {
    /// Time of the refusal, in nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// The requested target; empty if the login named none.
    pub target: String,
    /// Initiator name in the login.
    pub initiator: String,
    /// Address of the initiator.
    pub address: String,
    /// Reason for the refusal.
    pub why: String,
    /// The expected value (a pattern, a user name); empty if no value would have been accepted.
    pub expected: String,
    /// Number of refusals of this initiator for the same target and address.
    pub times: u64,
}
