//! Disks, geoms and LUNs that appear or vanish by themselves, while the daemon serves or after its
//! start. `reattach` and `exports` decide which may appear.

use std::collections::BTreeMap;

use disks::Medium;
use mgmt::api::Level;
use mgmt::config::GeomConfig;
use mgmt::plan::Action;

use super::ControlLoop;
use crate::buses;
use crate::exports::RETRY_WAIT;
use crate::path_watch::Finding;

impl ControlLoop {
    /// Keeps the names of disks that were added, if they have one.
    pub(super) fn update_names(&mut self) {
        if self.names.graph_changed(self.control.topology.generation()) {
            self.store_names();
        }
    }

    /// Keeps the names that the configuration calls now.
    pub(super) fn store_names(&mut self) {
        let published = self.published.lock();
        let is_other = self.names.update(&published.config, self.exports.is_starting());
        drop(published);
        if is_other {
            self.names.store();
        }
    }

    /// Reports the loss of the medium of each disk once.
    pub(super) fn report_losses(&mut self) {
        let now = self.control.now_ns();
        let published = self.published.lock();
        let lost = self.reattach.losses(&self.control.topology, &published.config, now);
        drop(published);
        if self.reattach.has_unexplained() {
            self.path_checks.hasten();
        }
        for (name, why) in lost {
            self.note(Level::Error, &name, why);
        }
    }

    /// Reports the findings at the paths of disks without a medium.
    pub(crate) fn report_findings(&mut self, findings: BTreeMap<String, Finding>) {
        let published = self.published.lock();
        let reports = self.reattach.record_findings(&published.config, findings);
        drop(published);
        for (name, level, why) in reports {
            self.note(level, &name, why);
        }
        self.published.lock().refused_disks = self.reattach.refused_disks();
    }

    /// Opens disks whose medium is back, then the geoms above them, then units.
    pub(super) fn reopen_returned(&mut self) {
        let has_ended = self.end_attempts();
        let now = self.control.now_ns();
        let is_due = self.reattach.is_due(now);
        let has_arrived = self.reattach.is_any_missing(&self.openings.arrivals().take());
        let is_looking = || self.reattach.has_missing() || self.exports.has_lost();
        if !(has_ended || has_arrived || is_due && is_looking()) {
            return;
        }
        let config = self.config();
        // One that was abandoned and hangs is opened again when it has ended.
        let is_opening = |disk: &str| self.openings.has(disk);
        let arrivals = self.openings.arrivals();
        for disk in self.reattach.returned_disks(&config, now, is_opening, arrivals) {
            self.begin_attempt(&disk);
        }
        self.published.lock().refused_disks = self.reattach.refused_disks();
        for geom in self.reattach.geoms(&self.control.topology, &config) {
            let made = Action::CreateGeom { geom: geom.clone() };
            let _working = self.own_work.begin(made.summary());
            let files = self.exports.files.read_ahead(&made, None, RETRY_WAIT);
            match files.and_then(|files| files.replay(|| self.create_geom(&geom))) {
                Ok(()) => {
                    self.reattach.clear_report(&geom.name);
                    self.note(Level::Info, &geom.name, "providers available again".to_owned());
                }
                Err(e) => {
                    let report = self.reattach.new_report(&geom.name, &e.source);
                    report.into_iter().for_each(|why| self.note(Level::Warn, &geom.name, why));
                }
            }
        }
        self.retry_pending();
        self.reopen_units();
    }

    /// The file or device of each open disk, by the disk's name.
    pub(super) fn open_media(&mut self) -> Vec<(String, Medium)> {
        let published = self.published.lock();
        let with_path = published.config.disk.iter().filter(|disk| disk.image().is_some());
        let names: Vec<String> = with_path.map(|disk| disk.name.clone()).collect();
        drop(published);
        let topology = &mut self.control.topology;
        let media = names.into_iter().filter_map(|name| {
            topology.find(&name)?;
            let medium = disks::open_medium(topology, &name)?;
            Some((name, medium))
        });
        media.collect()
    }

    /// A part of the configuration that could not be carried out is wanted all the same.
    pub(super) fn retry_later(&mut self, action: &Action) {
        let mut published = self.published.lock();
        if !action.is_in(&published.config) {
            published.record(action);
        }
        drop(published);
        if let Action::CreateDisk { disk } = action {
            self.reattach.expect_serial(disk);
        }
        self.reattach.retry_later(action, self.control.now_ns());
        if let Action::CreateDisk { disk } = action
            && self.openings.is_wanted(&disk.name)
        {
            // The step has not waited for its end.
            self.reattach.begin_attempt(&disk.name);
        }
    }

    /// Tries again what could not be carried out. A target gets its groups before a host is
    /// answered: between the two it would be refused for good (D1 of `login_gate.rs`).
    fn retry_pending(&mut self) {
        for action in self.reattach.take_due(self.control.now_ns()) {
            let Action::CreateTarget { target } = &action else {
                if self.reattach.is_pending(&action) {
                    self.retry_one(&action);
                }
                continue;
            };
            self.exports.pause();
            if self.retry_one(&action) {
                let groups = self.reattach.groups_of(&target.name);
                for group in &groups {
                    self.retry_one(group);
                }
            }
            self.exports.resume();
        }
    }

    fn retry_one(&mut self, action: &Action) -> bool {
        let _working = self.own_work.begin(action.summary());
        self.exports.is_retrying = true;
        let files = self.exports.files.read_ahead(action, None, RETRY_WAIT);
        let done = files.and_then(|files| files.replay(|| self.step(action)));
        self.exports.is_retrying = false;
        match done {
            Ok(_) => {
                self.note(Level::Info, &action.name(), action.summary());
                true
            }
            Err(e) => {
                let report = self.reattach.new_report(&action.name(), &e.source);
                report.into_iter().for_each(|why| self.note(Level::Warn, &action.name(), why));
                false
            }
        }
    }

    /// Units whose provider is back are there again.
    pub(super) fn reopen_units(&mut self) {
        if !self.exports.has_lost() {
            return;
        }
        let config = self.config();
        for (name, done) in self.exports.reopen_lost(&mut self.control, &config) {
            match done {
                Ok(()) => {
                    self.reattach.clear_report(&name);
                    self.note(Level::Info, &name, "available again; its LUNs answer".to_owned());
                }
                Err(e) => {
                    let report = self.reattach.new_report(&name, &e.source);
                    report.into_iter().for_each(|why| self.note(Level::Error, &name, why));
                }
            }
        }
        for (target, names, done) in self.exports.export_pending(&mut self.control, &config) {
            match done {
                Ok(()) => {
                    self.reattach.clear_report(&target.name);
                    self.note(Level::Info, &names, "arrived; its LUNs are exported".to_owned());
                    buses::rescan_target(self, &target);
                }
                Err(e) => {
                    let report =
                        self.reattach.new_report(&target.name, &format!("{names}: {}", e.source));
                    report.into_iter().for_each(|why| self.note(Level::Error, &target.name, why));
                }
            }
        }
        let refused = self.exports.refused_luns();
        self.published.lock().refused = refused;
    }

    /// Has the geom made when the provider that it needs has appeared.
    pub(super) fn wait_for_provider(&mut self, geom: &GeomConfig, on: &str) {
        let text = format!("waits for {on}, which is missing");
        self.note(Level::Warn, &geom.name, text);
        self.reattach.expect(&geom.name);
    }
}
