//! The end of the daemon.

use std::time::Duration;

use fileserver::FsClass;
use geom::GraphControl;
use mgmt::api::Level;
use mgmt::config::TargetConfig;

use super::ControlLoop;
use crate::exports::{ATTACH_DEADLINE, SESSIONS_DEADLINE};

/// After this time, people are informed what is waited for.
const NOTICE_DELAY: Duration = Duration::from_millis(500);

/// Waits until something is done. `report` receives the time after [`NOTICE_DELAY`], if it is not
/// done by then.
fn wait_reporting(
    control: &mut GraphControl,
    most: Duration,
    is_done: impl Fn() -> bool,
    report: impl FnOnce(u64),
) -> bool {
    let soon = most.min(NOTICE_DELAY);
    if control.wait_until(soon, |_| is_done()) {
        return true;
    }
    report(control.now_ns());
    control.wait_until(most.saturating_sub(soon), |_| is_done())
}

/// Waits for the sessions of targets that were removed, within one deadline for all targets.
struct SessionDrain {
    /// Time of the cores' clock.
    end_ns: u64,
}

impl SessionDrain {
    fn begin(control: &GraphControl) -> SessionDrain {
        SessionDrain { end_ns: control.now_ns() + SESSIONS_DEADLINE.as_nanos() as u64 }
    }

    /// What is left of the deadline.
    fn rest(&self, control: &GraphControl) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(control.now_ns()))
    }

    /// Waits for the sessions of one target. `left` counts those that have not ended, `report`
    /// receives the texts about them.
    fn wait(
        &self,
        control: &mut GraphControl,
        left: impl Fn() -> usize,
        mut report: impl FnMut(u64, Level, String),
    ) {
        let soon = self.rest(control).min(NOTICE_DELAY);
        if control.wait_until(soon, |_| left() == 0) {
            return;
        }
        let rest = self.rest(control);
        if !rest.is_zero() {
            let (left, most) = (left(), SESSIONS_DEADLINE.as_secs());
            let text =
                format!("stopping: waiting for {left} sessions, at most {most} s for all targets");
            report(control.now_ns(), Level::Info, text);
        }
        if !control.wait_until(rest, |_| left() == 0) {
            let text = format!("{} sessions have commands at a disk that does not answer", left());
            report(control.now_ns(), Level::Warn, text);
        }
    }
}

impl ControlLoop {
    /// No new logins, sessions closed, disks flushed. Sessions of all targets end together, within
    /// one deadline. But a target that shows its LUNs to this machine by a local bus stops after
    /// those that may have disks of that bus (D2).
    pub(super) fn stop(&mut self) {
        let config = self.config();
        self.hand_over();
        self.exports.stop_serving(&mut self.control);
        let all = SessionDrain::begin(&self.control);
        // The last one first: it may depend on a local bus of a target before it.
        let (plain, shown): (Vec<&TargetConfig>, Vec<&TargetConfig>) = config
            .target
            .iter()
            .rev()
            .partition(|target| self.exports.local_buses(target).is_empty());
        plain.iter().for_each(|target| self.remove_or_note(target));
        plain.iter().for_each(|target| self.drain(target, &all));
        for target in shown {
            self.remove_or_note(target);
            self.drain(target, &all);
        }
        FsClass::halt_all(&mut self.control);
        self.clean_records(|_, _| true);
        self.control.topology.shut_down();
        self.control.pump();
        self.cam.shut_down();
    }

    /// Hands the devices of attached LUNs over to the next daemon.
    fn hand_over(&mut self) {
        let ticket = self.exports.hand_over();
        let (journal, started_ns) = (&self.journal, self.started_ns);
        let report = |now_ns: u64| {
            let most = ATTACH_DEADLINE.as_secs();
            let text = format!("stopping: waiting for devices of attached LUNs, at most {most} s");
            journal.note(now_ns.saturating_sub(started_ns), Level::Info, "local", text);
        };
        let is_done = || ticket.result().is_some();
        wait_reporting(&mut self.control, ATTACH_DEADLINE, is_done, report);
    }

    fn remove_or_note(&mut self, target: &TargetConfig) {
        if let Err(e) = self.exports.remove_target(&mut self.control, target) {
            self.note(Level::Warn, &target.name, e.source);
        }
    }

    /// Waits for the sessions of a target, and reports them.
    fn drain(&mut self, target: &TargetConfig, all: &SessionDrain) {
        let (exports, journal, started_ns) = (&self.exports, &self.journal, self.started_ns);
        let report = |now_ns: u64, level, text: String| {
            journal.note(now_ns.saturating_sub(started_ns), level, &target.name, text);
        };
        all.wait(&mut self.control, || exports.sessions_left(target), report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geom::Inbox;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    /// A graph without cores, whose clock moves only while a call waits.
    fn graph() -> (GraphControl, Rc<Cell<u64>>) {
        let clock = Rc::new(Cell::new(0));
        let (waited, read) = (clock.clone(), clock.clone());
        let wait = move |_: &Inbox, most: Duration| {
            waited.set(waited.get() + most.as_nanos() as u64);
        };
        let inbox = Arc::new(Inbox::default());
        let control =
            GraphControl::new(Vec::new(), inbox, Box::new(wait), Box::new(move || read.get()));
        (control, clock)
    }

    #[test]
    fn wait_is_reported_once_unless_it_ends_soon() {
        let (mut control, clock) = graph();
        let reports = Cell::new(0);
        let report = |_: u64| reports.set(reports.get() + 1);
        let is_done = || clock.get() >= NOTICE_DELAY.as_nanos() as u64 / 2;
        assert!(wait_reporting(&mut control, ATTACH_DEADLINE, is_done, report));
        assert_eq!(reports.get(), 0, "it ends soon");
        let begun = clock.get();
        assert!(!wait_reporting(&mut control, ATTACH_DEADLINE, || false, report));
        assert_eq!(reports.get(), 1);
        assert_eq!(Duration::from_nanos(clock.get() - begun), ATTACH_DEADLINE);
    }

    #[test]
    fn one_deadline_covers_all_targets_whose_clients_do_not_react() {
        let (mut control, clock) = graph();
        let all = SessionDrain::begin(&control);
        let mut texts = Vec::new();
        for _ in 0..100 {
            all.wait(&mut control, || 3, |_, level, text| texts.push((level, text)));
        }
        assert_eq!(Duration::from_nanos(clock.get()), SESSIONS_DEADLINE, "of all 100 targets");
        let of = |wanted: Level| texts.iter().filter(|(level, _)| *level == wanted).count();
        assert_eq!((of(Level::Info), of(Level::Warn)), (1, 100), "nothing is waited for after it");
        assert!(texts.iter().all(|(_, text)| text.contains("3 sessions")), "{texts:?}");
    }

    #[test]
    fn sessions_that_end_are_neither_waited_for_nor_reported() {
        let (mut control, clock) = graph();
        let all = SessionDrain::begin(&control);
        let end_ns = NOTICE_DELAY.as_nanos() as u64 / 2;
        for _ in 0..100 {
            let left = || usize::from(clock.get() < end_ns);
            all.wait(&mut control, left, |_, _, text| panic!("{text}"));
        }
        assert!((end_ns..end_ns * 2).contains(&clock.get()), "{}", clock.get());
    }
}
