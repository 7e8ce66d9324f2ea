//! State and figures of the daemon, for callers that may wait.

use std::time::Duration;

use engine::registry::LoginGate;
use mgmt::api::{Result, SystemState};

use super::Daemon;
use crate::mailbox::{Mailbox, Query};
use crate::path_watch::PathWatch;
use crate::state::Detail;

/// How long a question for the state waits for the paths of disks.
const REFRESH_LIMIT: Duration = Duration::from_millis(500);

/// The same at a start, during which `status` answers within 100 ms although paths hang.
const REFRESH_AT_START: Duration = Duration::from_millis(50);

fn refresh_limit(gate: &LoginGate) -> Duration {
    if gate.is_shut() { REFRESH_AT_START } else { REFRESH_LIMIT }
}

/// The state as the control thread knows it.
pub(super) fn current_state(
    mailbox: &Mailbox,
    (paths, gate): (&PathWatch, &LoginGate),
    detail: Detail,
) -> Result<SystemState> {
    // On this thread: a path may hang.
    paths.refresh(refresh_limit(gate));
    mailbox.query(|to| Query::State(detail, to))
}

impl Daemon {
    /// The same, with the address of the listener of metrics.
    pub(super) fn read(&self, detail: Detail) -> Result<SystemState> {
        let paths = (&self.paths, self.registry.login_gate());
        let mut state = current_state(&self.mailbox, paths, detail)?;
        state.daemon.metrics_listen = self.metrics.address();
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use engine::Registry;

    use super::*;

    #[test]
    fn state_waits_briefly_for_hanging_paths_while_the_daemon_starts() {
        let registry = Registry::new();
        let gate = registry.login_gate();
        gate.shut();
        assert_eq!(refresh_limit(gate), REFRESH_AT_START, "the configuration is carried out");
        gate.open();
        assert_eq!(refresh_limit(gate), REFRESH_LIMIT, "it serves");
    }
}
