//! Journal facts of a multipath device, and its problems for `status`.

use geom::{GeomId, Severity, Topology, Trouble};

use super::NAME;
use super::geom::MultipathGeom;
use super::paths::{OTHER_SIZE, PathState};
use crate::members::ComponentState;

impl MultipathGeom {
    fn component_states(&self, name: &str) -> Vec<ComponentState> {
        let good = self.paths.good();
        let all = self.paths.all();
        let severity = match good {
            0 => Severity::Failed,
            n if n < all.len() || n == 1 => Severity::Degraded,
            _ => Severity::Good,
        };
        let mut words = format!("{} ({good} of {} paths)", self.paths.state(), all.len());
        if good == 0 {
            words += if self.queues() { ", requests wait" } else { ", requests fail" };
        }
        let mut facts =
            vec![ComponentState { subject: format!("{NAME}/{name}"), severity, state: words }];
        facts.extend(all.iter().filter(|one| one.state != PathState::New).map(|one| {
            ComponentState {
                subject: one.name.clone(),
                severity: if one.state == PathState::Good {
                    Severity::Good
                } else {
                    Severity::Degraded
                },
                state: self.paths.path_state_str(one.slot, self.identity.mode).to_owned(),
            }
        }));
        facts
    }

    /// Writes changes to the journal.
    pub(super) fn report(&mut self, t: &mut Topology, me: GeomId) {
        // Until the cores have the first path there is nothing to report.
        let new = self.paths.all().iter().all(|one| one.state == PathState::New);
        if !new || self.event_log.has_begun() {
            let facts = self.component_states(t.geom_name(me));
            self.event_log.report(t, me, &facts);
        }
    }

    /// The problems of the device.
    pub(super) fn health_findings(&self, t: &Topology, name: &str) -> Vec<Trouble> {
        let mut out = Vec::new();
        let good = self.paths.good();
        for one in self.paths.all().iter().filter(|one| one.state == PathState::Fail) {
            let path = &one.name;
            let action = match self.options.checker_ns {
                0 => format!("`ashlar {NAME} restore {name} {path}` uses it again once it works."),
                _ => "Repair the path: it is checked, and used again when it answers.".to_owned(),
            };
            out.push(Trouble::degraded(format!("path {path} has failed"), action));
        }
        for one in self.paths.all().iter().filter(|one| one.state == PathState::Transition) {
            out.push(Trouble::degraded(
                format!("path {} is in transition: requests sent over it would wait", one.name),
                "Nothing: requests use other paths, and this one is checked automatically."
                    .to_owned(),
            ));
        }
        let bytes = self.identity.provider_bytes;
        for one in self.paths.all().iter().filter(|one| one.rank == OTHER_SIZE) {
            let (path, seen) = (&one.name, self.bytes_by(t, one.slot).unwrap_or(0));
            out.push(Trouble::degraded(
                format!(
                    "path {path} reports another disk size ({seen} bytes, not {bytes}): it is used \
                     only if no other path works"
                ),
                format!(
                    "If the disk was resized, the new size is used when all paths report it; \
                     otherwise repair that path, or `ashlar {NAME} remove {name} {path}`."
                ),
            ));
        }
        let add = format!("Connect another path, or `ashlar {NAME} add {name} DISK`.");
        match good {
            0 => {
                let what = if self.queues() { "wait" } else { "fail" };
                let why = format!("no path works: requests {what}");
                out.insert(0, Trouble::failed(why, add));
            }
            1 if self.paths.all().len() == 1 => {
                out.push(Trouble::degraded("the device has one path only", add));
            }
            _ => {}
        }
        if let Some(fault) = &self.fault {
            let action = format!("`ashlar {NAME} relocate {name}` writes it again.");
            out.push(Trouble::degraded(fault.clone(), action));
        }
        out
    }
}
