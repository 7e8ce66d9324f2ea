//! Messages between the engines of all cores. They name units, and a unit holds the mailers of its
//! waiting commands ([`Owner`](crate::unit::owner::Owner)), so they are part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use reactor::Mailer;

use crate::close_reason::CloseReason;
use crate::reservations::Identity;
use crate::unit::Device;
use crate::unit::alua::Transition;

/// Messages from engines and the control thread to an engine.
pub enum Message {
    /// Groups have changed: look at all sessions.
    Refresh,
    /// Report when the commands have ended that a change of access states waits for.
    Drain(Arc<Transition>),
    /// End a session.
    Close {
        /// Its number.
        session: u64,
        why: CloseReason,
    },
    /// Abort commands for another core's task management, and report when it is done.
    Abort(AbortOrder),
    /// An operation requested from another core is complete.
    Aborted {
        /// The asker's number for it.
        ticket: u32,
    },
    /// The commands of a unit run in order from now on: count those out that run already.
    Gather {
        /// The unit.
        device: Arc<Device>,
        /// Numbers in its order below this one are of an earlier time.
        floor: u64,
    },
    /// It is the turn of a command.
    Start {
        session: u64,
        /// Its place and generation.
        word: u64,
    },
}

/// Request to another core to abort commands.
pub struct AbortOrder {
    pub(crate) device: Arc<Device>,
    pub(crate) scope: AbortScope,
    pub(crate) reply: Mailer<Message>,
    pub(crate) ticket: u32,
}

/// Reason and extent of an abort of a unit's commands.
#[derive(Clone)]
pub(crate) struct AbortScope {
    /// Only the commands of these nexuses; None is all nexuses.
    pub(crate) nexuses: Option<Arc<BTreeSet<Identity>>>,
    /// The requesting session.
    pub(crate) by: u64,
    /// The unit is reset: all nexuses are notified. Otherwise nexuses that lost commands receive
    /// COMMANDS CLEARED, unless TAS reports the abort in another way.
    pub(crate) reset: bool,
    /// TAS as it was when the function arrived: a reset changes it.
    pub(crate) tas: bool,
}
