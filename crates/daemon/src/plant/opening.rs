//! Steps that make a disk: the caller of the step waits for its server and its medium, so that the
//! control thread does not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bio::Errno;
use disks::Medium;
use engine::registry::LoginGate;
use mgmt::api::{Error, Kind, ProgressLine, Result};
use mgmt::config::{Config, DiskConfig, GeomConfig};
use mgmt::plan::{Action, Step, name_depends_on};
use mgmt::{Plant, Progress};
use serde_json::Value;

use super::Daemon;
use crate::errors::{DISK_REMEDY, from_geom};
use crate::exports::has_tls_files;
use crate::images::{self, Images};
use crate::mailbox::{Change, Mailbox, Query};
use crate::media::{self, Media};
use crate::openings::{Begun, opening_text};
use crate::reattach::remote;
use crate::within::{CHECKS_LIMIT, Subject, side_by_side, within};

/// How long a change waits for the server or the medium of a disk: longer than a server of ours
/// takes to start, or a disk to spin up.
const REACH: Duration = Duration::from_secs(15);

/// The same for a server at a start, where the others are to be served and the disk is taken when
/// it answers. Also for a disk that is being opened already.
const REACH_AT_START: Duration = Duration::from_secs(2);

/// The same for the medium of a disk at a start.
const OPEN_AT_START: Duration = Duration::from_secs(5);

/// How long a start waits for a disk before it opens those of later steps beside it.
const AHEAD_AFTER: Duration = Duration::from_millis(500);

/// How long a step waits for the server of a disk.
fn reach_deadline(gate: &LoginGate) -> Duration {
    if gate.is_shut() { REACH_AT_START } else { REACH }
}

/// How long a step waits for the medium of a disk: first for its check, then for its opening.
pub(super) fn open_deadline(gate: &LoginGate) -> Duration {
    if gate.is_shut() { OPEN_AT_START } else { REACH }
}

/// Whether the check of a disk looks at paths, which may hang.
pub(super) fn may_hang(disk: &DiskConfig) -> bool {
    disk.image().is_some() || has_tls_files(&disk.params)
}

/// The result of a check of a disk on a thread of its own, or the error for a late one.
fn checked<T: Send + 'static>(
    limit: Duration,
    disk: &DiskConfig,
    check: impl FnOnce(&DiskConfig) -> Result<T> + Send + 'static,
) -> Result<T> {
    let own = disk.clone();
    let checked = within(limit, &Subject::disk(disk), move || check(&own));
    checked.unwrap_or_else(|| Err(late(disk, limit)))
}

/// The error for a disk whose medium does not answer.
fn late(disk: &DiskConfig, limit: Duration) -> Error {
    let path = disk.params.get("path").and_then(Value::as_str);
    let place = remote(disk).and_then(|(_, kind, params)| kind.location(&params));
    let place = place.or(path.map(str::to_owned)).unwrap_or_else(|| "medium".to_owned());
    let why = format!("{place} does not answer ({} s, the limit)", limit.as_secs());
    let next = "Check the file system, the device or its server: `findmnt` lists file systems, \
                `dmesg` shows errors. Then run `ashlar apply`.";
    Error::new(Kind::Timeout, "create disk", why).at(&disk.name).next(next)
}

impl Daemon {
    /// Probes the servers of all disks that are not there, side by side, before the steps that need
    /// them.
    pub(super) fn ask_servers(&self, config: &Config) {
        let remote: Vec<_> = config.disk.iter().filter_map(remote).collect();
        if remote.is_empty() {
            return;
        }
        // Without a state, no step follows either.
        let Ok(here) = self.state() else { return };
        for (disk, kind, params) in remote {
            if here.provider(&disk.name).is_none() {
                kind.is_reachable(&disk.name, &params, self.openings.arrivals());
            }
        }
    }

    /// Why a disk could not be opened, as far as its section and its medium show that in time.
    pub(super) fn check_disk(
        &self,
        disk: &DiskConfig,
        check: fn(&DiskConfig) -> Result<()>,
    ) -> Result<()> {
        match may_hang(disk) {
            true => checked(open_deadline(self.registry.login_gate()), disk, check),
            false => check(disk),
        }
    }

    /// The checks of the disks with a path that these steps make, by the places of the steps.
    pub(super) fn check_side_by_side(&self, steps: &[Step]) -> HashMap<usize, Result<()>> {
        let waits = |(_, step): &(usize, &Step)| step.action.created_disk().is_some_and(may_hang);
        let waiting: Vec<(usize, &Step)> = steps.iter().enumerate().filter(waits).collect();
        let results = side_by_side(&waiting, |(_, step)| self.check(step, &[]));
        waiting.into_iter().map(|(at, _)| at).zip(results).collect()
    }

    /// Refuses a disk whose file would be made anew: that of a disk that is configured already, or
    /// that a start makes, and that was opened before.
    pub(super) fn check_existed(&self, disk: &DiskConfig) -> Result<()> {
        if !media::creates(disk) {
            return Ok(());
        }
        let (gate, identities) = (self.registry.login_gate(), self.identities.clone());
        let check = move |disk: &DiskConfig| media::check_existed(disk, &identities);
        let Err(e) = checked(open_deadline(gate), disk, check) else { return Ok(()) };
        if e.kind == Kind::NotFound && !gate.is_shut() {
            let running = self.mailbox.query(Query::Config)?;
            if !media::is_configured(disk, &running.disk) {
                return Ok(());
            }
        }
        Err(e)
    }

    /// The images of the members of a geom that the steps before it make, if all of them answer in
    /// time. Without them the data is found when the geom is made.
    pub(super) fn images_below(&self, geom: &GeomConfig, before: &[Step]) -> Images {
        let makes = |step: &Step| match &step.action {
            Action::CreateDisk { disk } => {
                geom.provider_names().any(|name| name_depends_on(name, &disk.name))
            }
            _ => false,
        };
        if !before.iter().any(makes) {
            return Images::new();
        }
        let removes = |step: &Step| matches!(step.action, Action::RemoveDisk { .. });
        let steps: Vec<Step> =
            before.iter().filter(|&step| makes(step) || removes(step)).cloned().collect();
        let subject = Subject::objects("read images", geom.provider_names());
        let (geom, identities) = (geom.clone(), self.identities.clone());
        let read = move || images::images_below(&geom, &steps, &identities);
        within(CHECKS_LIMIT, &subject, read).unwrap_or_default()
    }

    /// Media of disks, each examined within a limit of time.
    pub(super) fn media(&self) -> TimedMedia<'_> {
        TimedMedia { mailbox: &self.mailbox, limit: open_deadline(self.registry.login_gate()) }
    }

    /// Opens a disk for the step that adds it to the graph. Answers why it does not answer, if it
    /// is awaited: its server is absent, or its opening was under way and is continued.
    pub(super) fn open_disk(
        &self,
        disk: &DiskConfig,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Error>> {
        let ahead = self.start_waits.begin_step(disk);
        if let Some(away) = self.reach(disk)? {
            return Ok(Some(away));
        }
        let section = Box::new(disk.clone());
        let begun = self.mailbox.submit(|to| Change::OpenDisk(section, to))??;
        let whole = open_deadline(self.registry.login_gate());
        let limit = match (begun, ahead) {
            (Begun::Present, _) => return Ok(None),
            (Begun::Now, _) => whole,
            (Begun::Before, Some(waited)) => whole.saturating_sub(waited),
            (Begun::Before, None) => REACH_AT_START,
        };
        let report = |seconds| {
            let what = format!("disk {} {}", disk.name, opening_text(seconds, Some(limit)));
            progress(ProgressLine { what, ..ProgressLine::default() });
        };
        let soon = limit.min(AHEAD_AFTER);
        if self.openings.wait(&disk.name, soon, |_| {}) {
            return Ok(None);
        }
        self.open_ahead();
        if self.openings.wait(&disk.name, limit.saturating_sub(soon), report) {
            return Ok(None);
        }
        if begun == Begun::Before && ahead.is_none() {
            return Ok(Some(late(disk, limit)));
        }
        self.openings.abandon(&disk.name);
        Err(late(disk, whole))
    }

    /// The next steps make these disks, in this order. Only a start opens some of them ahead.
    pub(super) fn expect_at_start(&self, disks: &[&DiskConfig]) {
        let starts = self.registry.login_gate().is_shut();
        let ahead = disks.iter().filter(|disk| starts && disk.image().is_some());
        self.start_waits.expect(ahead.map(|disk| (*disk).clone()).collect());
    }

    /// Begins to open disks of later steps of a start, because an earlier one is slow.
    fn open_ahead(&self) {
        for disk in self.start_waits.next_ahead() {
            let section = Box::new(disk.clone());
            match self.mailbox.submit(|to| Change::OpenDisk(section, to)) {
                Ok(Ok(Begun::Now)) => self.start_waits.record_begun(disk),
                Ok(Ok(_)) => {}
                // Its own step tries again and reports the error.
                _ => return,
            }
        }
    }

    /// Waits for the server of a disk. Answers why a server is absent that may appear later.
    fn reach(&self, disk: &DiskConfig) -> Result<Option<Error>> {
        let Some((_, kind, params)) = remote(disk) else { return Ok(None) };
        let (gate, began) = (self.registry.login_gate(), Instant::now());
        let most = match gate.is_shut() {
            true => self.start_waits.left_for_servers(reach_deadline(gate)),
            false => reach_deadline(gate),
        };
        let reached = kind.reach(&disk.name, &params, most);
        if gate.is_shut() {
            self.start_waits.record_server_wait(began.elapsed());
        }
        let Err(e) = reached else { return Ok(None) };
        let is_away = e.kind == Errno::NxIo;
        let error = from_geom("create disk", &disk.name, e).next(DISK_REMEDY);
        if is_away { Ok(Some(error)) } else { Err(error) }
    }
}

/// See [`Daemon::media`].
pub(super) struct TimedMedia<'a> {
    mailbox: &'a Mailbox,
    limit: Duration,
}

impl Media for TimedMedia<'_> {
    fn media(&self, all: &[&DiskConfig]) -> Vec<Result<Option<Medium>>> {
        side_by_side(all, |disk| match disk.image() {
            Some(_) => checked(self.limit, disk, |disk| Ok(media::medium(disk))),
            None => Ok(media::medium(disk)),
        })
    }

    fn check_locks(&self, all: &[&DiskConfig]) -> Vec<Result<()>> {
        side_by_side(all, |disk| checked(self.limit, disk, media::check_lock))
    }

    fn open(&self) -> Result<Vec<(String, Medium)>> {
        self.mailbox.submit(Change::OpenMedia)
    }
}

#[cfg(test)]
mod tests {
    use engine::Registry;

    use super::*;

    #[test]
    fn only_a_start_waits_briefly_for_the_server_of_a_disk() {
        let registry = Registry::new();
        let gate = registry.login_gate();
        gate.shut();
        assert_eq!(reach_deadline(gate), REACH_AT_START, "the configuration is carried out");
        gate.open();
        assert_eq!(reach_deadline(gate), REACH, "a change of a daemon that serves");
        gate.pause();
        assert_eq!(reach_deadline(gate), REACH, "a target is made");
    }

    #[test]
    fn disk_whose_check_hangs_is_refused_with_its_path_and_the_limit() {
        let disk = serde_json::json!({ "name": "a", "kind": "file", "path": "/images/a.img" });
        let disk: DiskConfig = serde_json::from_value(disk).expect("a disk");
        let (release, released) = std::sync::mpsc::channel::<()>();
        let hangs = move |_: &DiskConfig| {
            let _ = released.recv();
            Ok(())
        };
        let refused = checked(Duration::ZERO, &disk, hangs).expect_err("it hangs");
        drop(release);
        let text = refused.to_string();
        assert!(text.contains("a: /images/a.img does not answer (0 s, the limit)"), "{text}");
        assert!(refused.kind == Kind::Timeout && text.contains("`findmnt`"), "{text}");
        assert!(checked(REACH, &disk, |_| Ok(())).is_ok());
    }
}
