//! Journal of disks whose path no longer names the open file, though their requests succeed.
//!
//! `status` does its own check when it runs; this check is for the journal, which is read later.

use std::collections::BTreeMap;

use control::config::DiskConfig;

use crate::buses::{Said, note_news};
use crate::control_loop::{ControlLoop, LOOK, LOOK_SHARE};

/// The noted problems, and when the next check is due.
#[derive(Default)]
pub struct Places {
    said: Said,
    next_ns: u64,
    is_watching: bool,
}

impl Places {
    /// Whether there is a disk with a path.
    pub fn is_watching(&self) -> bool {
        self.is_watching
    }
}

/// Once a second, more seldom with so many disks or so slow a file system that looking takes more
/// than a part in [`LOOK_SHARE`] of the control thread's time.
pub fn see(control_loop: &mut ControlLoop) {
    let began = control_loop.control.now_ns();
    if began < control_loop.places.next_ns {
        return;
    }
    let shown = control_loop.shown.lock();
    let named = shown.config.disk.iter().filter(|d| has_path(d)).map(|d| d.name.clone());
    let named: Vec<String> = named.collect();
    drop(shown);
    let mut now = Said::new();
    for disk in &named {
        let troubles = disks::troubles(&mut control_loop.control.topology, disk);
        let whys: BTreeMap<_, _> =
            troubles.into_iter().map(|t| (t.why, (t.grade, t.action))).collect();
        // Of a disk that is gone, nothing is known to be over.
        if control_loop.control.topology.find(disk).is_some() {
            now.insert(disk.clone(), whys);
        }
    }
    note_news(control_loop, &control_loop.places.said, &now);
    let took = control_loop.control.now_ns().saturating_sub(began);
    let look = u64::try_from(LOOK.as_nanos()).unwrap_or(0);
    let next_ns = began + look.max(took.saturating_mul(LOOK_SHARE));
    control_loop.places = Places { said: now, next_ns, is_watching: !named.is_empty() };
}

fn has_path(disk: &DiskConfig) -> bool {
    ["file", "blockdev"].contains(&disk.kind.as_str())
}
