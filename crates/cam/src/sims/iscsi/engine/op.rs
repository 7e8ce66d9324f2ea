//! Commands of a session.

use bio::Segs;
use wire::iscsi::Attribute;

/// Bits of a tag with its place; the others how often the place was used. Places stay below
/// the last ones, so that no tag is the reserved one or one of [`PING`] and [`LOGOUT`].
const SLOT_BITS: u32 = 12;

/// Tags of requests that are no commands.
pub(super) const PING: u32 = (1 << SLOT_BITS) - 1;
pub(super) const LOGOUT: u32 = (1 << SLOT_BITS) - 2;

pub(super) fn tag_of(place: usize, uses: u32) -> u32 {
    uses << SLOT_BITS | u32::try_from(place).unwrap_or(PING)
}

pub(in crate::sims::iscsi) fn slot_of(tag: u32) -> usize {
    (tag & ((1 << SLOT_BITS) - 1)) as usize
}

/// A request to a logical unit.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sims::iscsi) struct Task {
    pub lun: [u8; 8],
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    pub read: bool,
    pub write: bool,
    /// Bytes.
    pub length: u32,
    /// The number that CAM knows it by, the same when it is sent again.
    pub serial: u64,
    /// It reads the unit's identity, or cures it: it is sent while the unit is in doubt (D11).
    pub allowed_in_doubt: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Command,
    /// ABORT TASK, of that one.
    Abort { tag: u32, cmd_sn: u32 },
    /// LOGICAL UNIT RESET.
    Reset,
}

/// Data that the target is waiting for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub target_tag: u32,
    pub next: u32,
    pub end: u32,
    pub data_sn: u32,
}

#[derive(Default)]
pub(super) struct Op {
    pub busy: bool,
    /// How often its place was used before.
    pub uses: u32,
    pub kind: Kind,
    pub task: Task,
    pub data: Segs,
    pub sent: bool,
    pub aborting: bool,
    /// I7: sessions that ended with it under way, and whether it ended the last one.
    pub session_losses: u8,
    pub ended_last_session: bool,
    pub cmd_sn: u32,
    /// When task management has to be answered, ns.
    pub due_ns: u64,
    /// Received bytes, and the number of the next PDU with some, or of the next R2T.
    pub bytes_received: u32,
    pub next_sn: u32,
    /// Bytes of a WRITE that were requested or sent unsolicited, from the start on.
    pub granted: u32,
    /// Sent bytes.
    pub bytes_sent: u32,
    /// The burst that is being sent, and the next one.
    pub burst: Option<Burst>,
    pub next_burst: Option<Burst>,
}
