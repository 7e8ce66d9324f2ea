//! Timers of a session.

use super::{Engine, Fault, Kind, Stage, Wire};
use reactor::clock::MS;

/// How long after a failure a connection is tried again: from there, doubled, up to there, ns.
pub(super) const BACKOFF_MIN_NS: u64 = 100 * MS;
pub(super) const BACKOFF_MAX_NS: u64 = 3_000 * MS;
/// How long the target has for an answer to a logout, ns.
const LOGOUT_NS: u64 = 500 * MS;

impl Engine {
    /// When a connection is to be tried.
    pub(in crate::sims::iscsi) fn try_ns(&self) -> u64 {
        self.wait_ns
    }

    /// How long a connection may take to be established, ns.
    pub(in crate::sims::iscsi) fn connect_deadline_ns(&self) -> u64 {
        self.rules.terms.deadline_ns() / 4
    }

    /// When something is to be done at the latest, ns.
    pub(in crate::sims::iscsi) fn due(&self) -> u64 {
        let quarter = self.rules.terms.deadline_ns() / 4;
        let ping = self.last_receive_ns + if self.pinged { 2 * quarter } else { quarter };
        let lost = if self.lost { u64::MAX } else { self.down_ns + self.rules.terms.deadline_ns() };
        match self.stage {
            Stage::Down => lost,
            Stage::Login(_) => lost.min(self.stage_due_ns),
            Stage::Up | Stage::LoggingOut(_) => ping.min(self.stage_due_ns).min(self.task_due()),
        }
    }

    fn task_due(&self) -> u64 {
        // There is none nearly always, and this is called with every answer.
        if self.tasks == 0 {
            return u64::MAX;
        }
        let tasks = self.ops.iter().filter(|op| op.busy && op.sent && op.kind != Kind::Command);
        tasks.map(|op| op.due_ns).min().unwrap_or(u64::MAX)
    }

    /// Does all due work, and sends the PDUs that may be sent.
    ///
    /// # Errors
    /// The connection is to be dropped.
    pub(in crate::sims::iscsi) fn pump(
        &mut self,
        wire: &mut dyn Wire,
        now: u64,
    ) -> Result<(), Fault> {
        self.watch(wire, now)?;
        self.send(wire, now);
        Ok(())
    }

    fn watch(&mut self, wire: &mut dyn Wire, now: u64) -> Result<(), Fault> {
        let quarter = self.rules.terms.deadline_ns() / 4;
        if matches!(self.stage, Stage::Down | Stage::Login(_)) {
            // I5
            if !self.lost && now >= self.down_ns + self.rules.terms.deadline_ns() {
                // Units without commands under way are notified too.
                (self.lost, self.found, self.luns_changed) = (true, true, true);
                self.counts.lost += 1;
                self.fail_waiting();
            }
            if matches!(self.stage, Stage::Login(_)) && now >= self.stage_due_ns {
                return Err(Fault::Protocol("the login is not answered"));
            }
            return Ok(());
        }
        if now >= self.stage_due_ns {
            match self.stage {
                Stage::LoggingOut(false) => {
                    self.logout(wire);
                    self.stage_due_ns = now + LOGOUT_NS;
                }
                _ => return Err(Fault::Protocol("the session has to be ended")),
            }
        }
        if now >= self.task_due() {
            return Err(Fault::Protocol("task management is not answered"));
        }
        if now >= self.last_receive_ns + 2 * quarter {
            return Err(Fault::Protocol("the target is silent"));
        }
        if now >= self.last_receive_ns + quarter && !self.pinged {
            self.pinged = true;
            self.ping(wire);
        }
        Ok(())
    }

    /// The session is to end within this time: no more commands are sent, and those under way have
    /// half of the time.
    pub(in crate::sims::iscsi) fn begin_logout(&mut self, within_ns: u64, now: u64) {
        if self.is_up() {
            self.stage = Stage::LoggingOut(false);
            self.stage_due_ns = now + within_ns / 2;
            self.logout_when_idle(now);
        }
    }

    /// Nothing is under way any more: it may end at once.
    pub(super) fn logout_when_idle(&mut self, now: u64) {
        let leaves = matches!(self.stage, Stage::LoggingOut(false));
        if leaves && !self.ops.iter().any(|op| op.busy && op.sent) {
            self.stage_due_ns = now;
        }
    }
}
