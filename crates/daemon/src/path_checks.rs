//! Journal of disks whose path no longer names the open file, though their requests succeed.
//!
//! `status` does its own check when it runs; this check is for the journal, which is read later.

use std::collections::BTreeMap;

use mgmt::config::DiskConfig;

use crate::buses::{NotedTroubles, note_changes};
use crate::control_loop::{CHECK_INTERVAL, CHECK_SHARE, ControlLoop};

/// The noted problems, and when the next check is due.
#[derive(Default)]
pub struct PathChecks {
    noted_troubles: NotedTroubles,
    next_ns: u64,
    is_watching: bool,
}

impl PathChecks {
    /// Whether there is a disk with a path.
    pub fn is_watching(&self) -> bool {
        self.is_watching
    }
}

/// Once a second, more seldom with so many disks or so slow a file system that looking takes more
/// than a part in [`CHECK_SHARE`] of the control thread's time.
pub fn check_paths(control_loop: &mut ControlLoop) {
    let began = control_loop.control.now_ns();
    if began < control_loop.path_checks.next_ns {
        return;
    }
    let shown = control_loop.published.lock();
    let named = shown.config.disk.iter().filter(|d| has_path(d)).map(|d| d.name.clone());
    let named: Vec<String> = named.collect();
    drop(shown);
    let mut now = NotedTroubles::new();
    for disk in &named {
        let troubles = disks::troubles(&mut control_loop.control.topology, disk);
        let whys: BTreeMap<_, _> =
            troubles.into_iter().map(|t| (t.why, (t.severity, t.action))).collect();
        // Of a disk that is gone, nothing is known to be over.
        if control_loop.control.topology.find(disk).is_some() {
            now.insert(disk.clone(), whys);
        }
    }
    note_changes(control_loop, &control_loop.path_checks.noted_troubles, &now);
    let took = control_loop.control.now_ns().saturating_sub(began);
    let look = u64::try_from(CHECK_INTERVAL.as_nanos()).unwrap_or(0);
    let next_ns = began + look.max(took.saturating_mul(CHECK_SHARE));
    control_loop.path_checks =
        PathChecks { noted_troubles: now, next_ns, is_watching: !named.is_empty() };
}

fn has_path(disk: &DiskConfig) -> bool {
    ["file", "blockdev"].contains(&disk.kind.as_str())
}
