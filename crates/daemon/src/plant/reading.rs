//! State and figures of the daemon, for callers that may wait.

use std::time::Duration;

use mgmt::api::{Result, SystemState};

use super::Daemon;
use crate::mailbox::{Mailbox, Query};
use crate::path_watch::PathWatch;
use crate::state::Detail;

/// How long a question for the state waits for the paths of disks.
const REFRESH_LIMIT: Duration = Duration::from_millis(500);

/// The state as the control thread knows it.
pub(super) fn current_state(
    mailbox: &Mailbox,
    paths: &PathWatch,
    detail: Detail,
) -> Result<SystemState> {
    // On this thread: a path may hang.
    paths.refresh(REFRESH_LIMIT);
    mailbox.query(|to| Query::State(detail, to))
}

impl Daemon {
    /// The same, with the address of the listener of metrics.
    pub(super) fn read(&self, detail: Detail) -> Result<SystemState> {
        let mut state = current_state(&self.mailbox, &self.paths, detail)?;
        state.daemon.metrics_listen = self.metrics.address();
        Ok(state)
    }
}
