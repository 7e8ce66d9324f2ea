//! Interface between the engine and a target driver.

use std::sync::Arc;

use bio::Segs;
use reactor::Address;

use crate::registry::{CloseReason, TargetPort};
use crate::task::TaskAttribute;

/// A command as the transport hands it in.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The transport's tag, unique among the session's outstanding commands.
    pub tag: u32,
    /// LUN field.
    pub lun: [u8; 8],
    pub cdb: &'a [u8],
    pub attribute: TaskAttribute,
    /// Bytes that the initiator is ready to receive.
    pub expect_in: u32,
    /// Bytes that the initiator is ready to send.
    pub expect_out: u32,
}

/// Next step of the transport for a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Fetch this many bytes of write data, then call `data`. Never zero.
    Data {
        /// Bytes.
        wanted: u32,
    },
    /// Nothing: it runs, or was answered already (from inside the call).
    Started,
}

/// Expected against real transfer length (SAM-5 5.4.4), in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Residual {
    /// They agree.
    #[default]
    None,
    /// Fewer bytes moved than the initiator expected.
    Under(u32),
    /// The command would have moved more than the initiator expected.
    Over(u32),
}

impl Residual {
    /// `needed` bytes by the command, `expected` by the initiator.
    pub fn of(needed: u64, expected: u32) -> Residual {
        let want = u64::from(expected);
        if needed < want {
            Residual::Under(u32::try_from(want - needed).unwrap_or(u32::MAX))
        } else if needed > want {
            Residual::Over(u32::try_from(needed - want).unwrap_or(u32::MAX))
        } else {
            Residual::None
        }
    }
}

/// The end of a command.
pub struct Response<'a> {
    /// SCSI status.
    pub status: u8,
    /// Sense data; empty unless the status is CHECK CONDITION.
    pub sense: &'a [u8],
    /// Data for the initiator, already cut to the expected length. The transport clones segments
    /// out of it or swaps the whole list; the remaining segments return to the pool.
    pub data: &'a mut Segs,
    pub residual: Residual,
}

/// The answer of a task management function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TmOutcome {
    /// Done; for queries: nothing found.
    Complete,
    /// A query found the task.
    Found,
    NoTask,
    NoLun,
    NotSupported,
}

/// A task management function (SAM-5 section 7; RFC 7144 for the last ones).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TmFunction {
    /// One command of this nexus.
    AbortTask,
    /// All commands of this nexus at a unit.
    AbortTaskSet,
    /// Ends the auto contingent allegiance of this nexus at a unit.
    ClearAca,
    /// All commands of all nexuses at a unit.
    ClearTaskSet,
    /// The same, and the unit as at power on.
    LunReset,
    /// LUN RESET of every unit that this initiator sees.
    TargetWarmReset,
    /// The same, and every session of the target ends.
    TargetColdReset,
    /// Is the task there?
    QueryTask,
    /// Is there any task of this nexus at the unit?
    QueryTaskSet,
    /// This nexus as if it had been lost.
    NexusReset,
    /// Is a unit attention waiting?
    QueryAsyncEvent,
}

/// Why write data did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataError {
    /// A digest did not match.
    Digest,
    /// Unsolicited data that had not been agreed on.
    Unexpected,
    /// Less unsolicited data than was announced.
    TooLittle,
    /// Any other error in the sequence.
    Sequence,
    /// No buffers for it in time: the command ends BUSY.
    NoMemory,
}

/// A session's transport. Every method may be called from inside [`crate::ItNexus::command`] or
/// [`crate::ItNexus::data`], and may call the session again.
pub trait Transport {
    /// The end of a command: exactly once for every accepted command that is not discarded.
    fn respond(&self, tag: u32, response: Response<'_>);
    /// The command was aborted without a status: drop the resources held for the tag.
    fn discard(&self, tag: u32);
    /// Bytes that it still holds: of answers that its peer has not taken yet, and of memory for
    /// write data that has not all arrived.
    fn unsent(&self) -> usize {
        0
    }
    /// The answer of a task management function, by its tag.
    fn task_management_done(&self, tag: u32, outcome: TmOutcome);
    /// The session is to end: send a logout and call [`crate::ItNexus::close`].
    fn close(&self, reason: CloseReason);
    /// The last command of a closed session can no longer touch the medium; nothing is called
    /// after this. A session that takes this one's place starts now.
    fn ended(&self);
}

/// An initiator that logs in.
#[derive(Clone)]
pub struct Login {
    /// The target that it requests.
    pub target: Arc<TargetPort>,
    /// Its name, normalised and authenticated.
    pub initiator: String,
    /// Its port as the transport names it (iSCSI: ISID).
    pub port_id: Vec<u8>,
    /// Its port as a SCSI TransportID (SPC-4 7.6.4); empty when the transport has none.
    pub transport_id: Vec<u8>,
    /// Our address.
    pub portal: Address,
    pub from: Address,
    /// It takes the place of an older session: its units report I_T NEXUS LOSS.
    pub reinstates: bool,
    /// For lists: digests, authentication.
    pub labels: Vec<(&'static str, String)>,
}

/// Why a login is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// No group names the initiator, or its group has no LUN.
    NoAccess,
    /// The target is being taken away.
    TargetGone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// For control flow.
    pub why: RefusalReason,
    /// For people: the identity expected, and what to type.
    pub text: String,
}
