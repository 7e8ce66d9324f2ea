//! Checks of the paths of disks: which ones are examined, and the journal of disks whose path no
//! longer names the open file, though their requests succeed. `path_watch` examines the paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use geom::Trouble;
use mgmt::api::{Health, SystemState};
use mgmt::config::DiskConfig;

use crate::buses::{NotedTroubles, note_changes};
use crate::control_loop::{CHECK_INTERVAL, CHECK_SHARE, ControlLoop};
use crate::path_watch::{Finding, WatchedPath};
use crate::reattach::silence;
use crate::state::trouble;

/// The noted problems, and when the next check is due.
#[derive(Default)]
pub struct PathChecks {
    noted_troubles: NotedTroubles,
    next_ns: u64,
    /// Not before this time, though there are new results.
    earliest_ns: u64,
    is_watching: bool,
}

impl PathChecks {
    /// Whether there is a disk with a path.
    pub fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Has the next check made at once.
    pub fn hasten(&mut self) {
        self.next_ns = self.next_ns.min(self.earliest_ns);
    }
}

/// Once a second and when there are new results. Less often with so many disks that it takes more
/// than a part in [`CHECK_SHARE`] of the control thread's time.
pub fn check_paths(control_loop: &mut ControlLoop) {
    let began = control_loop.control.now_ns();
    let checks = &control_loop.path_checks;
    let has_news = began >= checks.earliest_ns && control_loop.path_watch.has_news();
    if began < checks.next_ns && !has_news {
        return;
    }
    control_loop.path_watch.take_news();
    let published = control_loop.published.lock();
    let image = |d: &DiskConfig| Some((d.name.clone(), d.image()?.to_owned()));
    let images: BTreeMap<String, PathBuf> =
        published.config.disk.iter().filter_map(image).collect();
    drop(published);
    let watched = |(name, path): (&String, &PathBuf)| {
        Some((name.clone(), watched_path(control_loop, name, path)?))
    };
    let wanted: BTreeMap<String, WatchedPath> = images.iter().filter_map(watched).collect();
    control_loop.path_watch.watch(wanted);
    let findings = control_loop.path_watch.findings();
    let (mut now, mut silent) = (NotedTroubles::new(), BTreeMap::new());
    for (disk, path) in &images {
        // Requests of a lost disk are not known to have ended.
        if control_loop.control.topology.find(disk).is_none() {
            continue;
        }
        let mut troubles = disks::troubles(&mut control_loop.control.topology, disk);
        if let Some(Finding::Silent(has_begun)) = findings.get(disk) {
            let trouble = silent_path(path, *has_begun);
            silent.insert(disk.clone(), trouble.clone());
            troubles.push(trouble);
        }
        let whys: BTreeMap<_, _> =
            troubles.into_iter().map(|t| (t.why, (t.severity, t.action))).collect();
        now.insert(disk.clone(), whys);
    }
    note_changes(control_loop, &control_loop.path_checks.noted_troubles, &now);
    control_loop.published.lock().silent_paths = silent;
    control_loop.report_findings(findings);
    let took = control_loop.control.now_ns().saturating_sub(began);
    let look = u64::try_from(CHECK_INTERVAL.as_nanos()).unwrap_or(0);
    let earliest_ns = began + took.saturating_mul(CHECK_SHARE);
    control_loop.path_checks = PathChecks {
        noted_troubles: now,
        next_ns: earliest_ns.max(began + look),
        earliest_ns,
        is_watching: !images.is_empty(),
    };
}

/// The path of a disk, open or missing. `None`: another kind of provider has its name.
fn watched_path(control_loop: &mut ControlLoop, name: &str, path: &Path) -> Option<WatchedPath> {
    let topology = &mut control_loop.control.topology;
    let is_missing = topology.find(name).is_none();
    let open = if is_missing { None } else { Some(disks::path_state(topology, name)?) };
    Some(WatchedPath { path: path.to_owned(), open })
}

/// Has the path of a disk examined that was opened now.
pub fn watch_disk(control_loop: &mut ControlLoop, disk: &DiskConfig) {
    let Some(path) = disk.image() else { return };
    if let Some(watched) = watched_path(control_loop, &disk.name, path) {
        control_loop.path_watch.add(&disk.name, watched);
        // The first disk: the control thread would sleep until something else wakes it.
        control_loop.path_checks.is_watching = true;
    }
}

fn silent_path(path: &Path, has_begun: bool) -> Trouble {
    let (path, why) = (path.display(), silence(has_begun));
    Trouble::degraded(
        format!("{path}: {why}; requests of the disk may hang, too"),
        "Check the file system or its server: `findmnt` lists both, `dmesg` shows the errors.",
    )
}

/// Adds open disks whose path does not answer to the state.
pub fn show_silent(state: &mut SystemState, silent: &BTreeMap<String, Trouble>) {
    for disk in &mut state.disks {
        let Some(silent) = silent.get(&disk.name).map(trouble) else { continue };
        if disk.health != Health::Failed {
            disk.health = disk.health.max(silent.health);
            let before = std::mem::take(&mut disk.health_why);
            let whys = [before, silent.why.clone()].into_iter().filter(|why| !why.is_empty());
            disk.health_why = whys.collect::<Vec<_>>().join("; ");
        }
        disk.troubles.push(silent);
    }
}

#[cfg(test)]
mod tests {
    use mgmt::api::DiskState;

    use super::*;

    #[test]
    fn status_names_the_disk_whose_path_does_not_answer() {
        let disk = |name: &str, health, why: &str| DiskState {
            name: name.into(),
            health,
            health_why: why.into(),
            ..DiskState::default()
        };
        let disks = vec![
            disk("a", Health::Ok, ""),
            disk("b", Health::Failed, "answers EIO"),
            disk("c", Health::Ok, ""),
        ];
        let mut state = SystemState { disks, ..SystemState::default() };
        let path = Path::new("/images/a.img");
        let silent = ["a", "b"].map(|name| (name.to_owned(), silent_path(path, true)));
        show_silent(&mut state, &BTreeMap::from(silent));
        let health_of = |i: usize| (state.disks[i].health, state.disks[i].health_why.as_str());
        let (health, why) = health_of(0);
        assert_eq!(health, Health::Degraded);
        assert!(why.starts_with("/images/a.img: path does not answer"), "{why}");
        assert_eq!(health_of(1), (Health::Failed, "answers EIO"));
        assert_eq!(health_of(2), (Health::Ok, ""));
        assert_eq!(state.disks[1].troubles.len(), 1);
    }
}
