//! The end of the daemon.

use std::time::{Duration, Instant};

use fileserver::FsClass;
use mgmt::api::Level;
use mgmt::config::TargetConfig;

use super::ControlLoop;
use crate::exports::SESSIONS_DEADLINE;

/// After this time, people are informed which sessions are waited for.
const NOTICE_DELAY: Duration = Duration::from_millis(500);

impl ControlLoop {
    /// No new logins, sessions closed, disks flushed. Sessions of all targets end together, within
    /// one deadline; but a target that shows its LUNs to this machine by a local bus goes after
    /// those that may have disks of that bus (D2).
    pub(super) fn stop(&mut self) {
        let config = self.config();
        self.exports.stop_serving(&mut self.control);
        let end = Instant::now() + SESSIONS_DEADLINE;
        // The last one first: it may depend on a local bus of a target before it.
        let (plain, shown): (Vec<&TargetConfig>, Vec<&TargetConfig>) = config
            .target
            .iter()
            .rev()
            .partition(|target| self.exports.local_buses(target).is_empty());
        plain.iter().for_each(|target| self.remove_or_note(target));
        plain.iter().for_each(|target| self.drain(target, end));
        for target in shown {
            self.remove_or_note(target);
            self.drain(target, end);
        }
        FsClass::halt_all(&mut self.control);
        self.clean_records(|_, _| true);
        self.control.topology.shut_down();
        self.control.pump();
        self.cam.shut_down();
    }

    fn remove_or_note(&mut self, target: &TargetConfig) {
        if let Err(e) = self.exports.remove_target(&mut self.control, target) {
            self.note(Level::Warn, &target.name, e.source);
        }
    }

    /// Waits for the sessions of a target, and reports them.
    fn drain(&mut self, target: &TargetConfig, end: Instant) {
        let soon = end.min(Instant::now() + NOTICE_DELAY);
        let left = self.exports.wait_for_sessions(&mut self.control, target, soon);
        if left == 0 {
            return;
        }
        let most = SESSIONS_DEADLINE.as_secs();
        let text =
            format!("stopping: waiting for {left} sessions, at most {most} s for all targets");
        self.note(Level::Info, &target.name, text);
        let hang = self.exports.wait_for_sessions(&mut self.control, target, end);
        if hang > 0 {
            let text = format!("{hang} sessions have commands at a disk that does not answer");
            self.note(Level::Warn, &target.name, text);
        }
    }
}
