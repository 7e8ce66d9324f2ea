//! Disks of the configuration: their openings begin here, and their results are added to the graph.

use bio::Errno;
use disks::{DISK_CLASS, DiskClass};
use mgmt::api::{Error, Kind, Level, Result};
use mgmt::config::DiskConfig;
use mgmt::plan::{Action, FileSection};

use super::ControlLoop;
use crate::errors::{DISK_REMEDY, from_geom};
use crate::media::FileChange;
use crate::openings::Begun;
use crate::{media, path_checks};

/// The operation of all errors here.
const OP: &str = "create disk";

impl ControlLoop {
    /// Whether a disk of the configuration is there already: it may have been added while its
    /// server was waited for.
    fn is_back(&self, disk: &DiskConfig) -> bool {
        let is_remote = crate::reattach::remote(disk).is_some();
        let topology = &self.control.topology;
        let Some(geom) = topology.find_geom(DISK_CLASS, &disk.name) else { return false };
        is_remote && self.config().disk.contains(disk) && !topology.providers_of(geom).is_empty()
    }

    /// Begins to open a disk for a step, which adds it to the graph.
    pub(super) fn open_disk(&mut self, disk: &DiskConfig) -> Result<Begun> {
        if self.is_back(disk) {
            return Ok(Begun::Present);
        }
        let may = self.file_change(disk);
        let begun = self.free_place(disk).and_then(|()| self.openings.begin(disk, may, || Ok(())));
        match &begun {
            // It is no search any more: the step accepts another disk.
            Ok(_) => self.reattach.end_attempt(&disk.name),
            Err(e) => self.note_failed(&Action::CreateDisk { disk: disk.clone() }, e),
        }
        begun
    }

    /// Changes to the file of a disk that a step may make: that of a lost disk is not made anew.
    fn file_change(&self, disk: &DiskConfig) -> FileChange {
        let is_lost = self.reattach.is_known(&disk.name);
        match is_lost && media::is_configured(disk, &self.config().disk) {
            true => FileChange::Extend,
            false => FileChange::Make,
        }
    }

    /// Removes the remains of a lost disk, which hold its file. Refuses the name of another
    /// provider.
    fn free_place(&mut self, disk: &DiskConfig) -> Result<()> {
        let free = disks::check_name(&self.control.topology, &disk.name);
        free.map_err(|e| from_geom(OP, &disk.name, e).next(DISK_REMEDY))?;
        self.destroy(DISK_CLASS, &disk.name)
    }

    /// Adds a disk to the graph that was opened. A disk that returns by itself is added only when
    /// it is the same as before.
    pub(super) fn create_disk(&mut self, disk: &DiskConfig, by_itself: bool) -> Result<()> {
        if !by_itself && self.is_back(disk) {
            return Ok(());
        }
        let Some(opened) = self.openings.take(disk) else {
            let why = "its opening was abandoned";
            return Err(Error::new(Kind::Timeout, OP, why).at(&disk.name).next(DISK_REMEDY));
        };
        let (opened, files) = opened?;
        // Its path may name another medium than when the plan was checked.
        if let Some(medium) = opened.medium() {
            let topology = &mut self.control.topology;
            let open = self.medium_index.users(&medium, |name| {
                topology.find(name)?;
                disks::open_medium(topology, name)
            });
            media::check_medium(disk, &medium, &self.published.lock().config.disk, &open)?;
            self.medium_index.add(&disk.name, &medium);
        }
        let returns = &self.reattach;
        let made = self.control.call(|t| {
            let geom = DiskClass::install(t, opened)?;
            let fits = if by_itself { returns.check_identity(t, geom, &disk.name) } else { Ok(()) };
            fits.inspect_err(|_| t.wither_geom(geom, Errno::NxIo))
        });
        made.map_err(|e| from_geom(OP, &disk.name, e).next(DISK_REMEDY))?;
        self.exports.files.set_own(FileSection::Disk(disk.name.clone()), files);
        self.reattach.record_identity(&self.control.topology, &disk.name);
        path_checks::watch_disk(self, disk);
        Ok(())
    }

    /// Begins to open a disk that returns by itself.
    pub(super) fn begin_attempt(&mut self, disk: &DiskConfig) {
        let begun = self.free_place(disk).and_then(|()| {
            let (open, all) = (self.open_media(), self.config().disk);
            let own = disk.clone();
            let check = move || media::check_returned(&own, &all, &open);
            self.openings.begin(disk, FileChange::Nothing, check)
        });
        match begun {
            Ok(_) => self.reattach.begin_attempt(&disk.name),
            Err(e) => self.end_attempt(disk, &Err(e)),
        }
    }

    /// Adds disks to the graph that return by themselves and are open now. True: an attempt has
    /// ended.
    pub(super) fn end_attempts(&mut self) -> bool {
        let names = self.reattach.attempts();
        if names.is_empty() {
            return false;
        }
        let (config, mut has_ended) = (self.config(), false);
        for name in names {
            let disk = config.disk.iter().find(|disk| disk.name == name);
            match disk.and_then(|disk| Some((disk, self.openings.has_ended(disk)?))) {
                Some((_, false)) => {}
                Some((disk, true)) => {
                    let done = self.create_disk(disk, true);
                    self.end_attempt(disk, &done);
                    has_ended = true;
                }
                // Another section has replaced its own.
                None => {
                    self.openings.abandon(&name);
                    self.reattach.end_attempt(&name);
                }
            }
        }
        has_ended
    }

    fn end_attempt(&mut self, disk: &DiskConfig, done: &Result<()>) {
        let report = self.reattach.record_attempt(&disk.name, done, self.control.now_ns());
        if done.is_ok() {
            self.note(Level::Info, &disk.name, "medium available again".to_owned());
        }
        report.into_iter().for_each(|why| self.note(Level::Warn, &disk.name, why));
    }

    /// Renames a disk and the providers named after it, without disturbing their users.
    pub(super) fn rename_disk(&mut self, from: &str, to: &str) -> Result<()> {
        let op = "rename disk";
        let names = self.control.call(|t| t.rename(DISK_CLASS, from, to));
        let names = names.map_err(|e| from_geom(op, from, e))?;
        self.exports.rename(&names);
        self.layouts.rename(&mut self.control, &names);
        self.medium_index.rename(from, to);
        self.reattach.forget(from);
        self.reattach.record_identity(&self.control.topology, to);
        Ok(())
    }
}
