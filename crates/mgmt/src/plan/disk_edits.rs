//! Edits of a disk's section that are carried out under the users of the disk: its configured
//! identity, and the size of an image file.
//!
//! A new identity concerns the LUNs on the disk and on its partitions. They are withdrawn before,
//! and exported again as other disks for hosts. Other geoms above the disk would keep its former
//! serial number until the next start, so the disk is removed and made anew below them.
//!
//! A disk that is awaited has no users. It is removed and made anew with each edit of its section,
//! and is awaited still while there is no medium at its path.

use super::action::Action;
use super::depend::{DependencyGraph, name_depends_on};
use super::identity::{UnitIds, disk_ids, unit_ids};
use super::sizes::size_edit;
use crate::api::{GeomState, SystemState};
use crate::config::{Catalog, Config, DiskConfig};
use std::collections::{BTreeSet, HashMap};

/// Whether a disk is listed, but not open.
pub(super) fn is_awaited(state: &SystemState, disk: &str) -> bool {
    let mut providers = state.geoms.iter().flat_map(|g| &g.providers);
    state.disks.iter().any(|d| d.name == disk) && !providers.any(|p| p.name == disk)
}

/// Whether an action makes a disk at the path of one that is awaited; under another name only if
/// no LUN and no geom names it. `running`: the configuration that was carried out last.
pub fn stays_awaited(
    action: &Action,
    (running, desired): (&Config, &Config),
    state: &SystemState,
) -> bool {
    let Action::CreateDisk { disk } = action else { return false };
    let Some(path) = disk.image() else { return false };
    let is_its = |name: &str| name_depends_on(name, &disk.name);
    // At a start no disk runs, and there may be many thousand LUNs.
    let is_free = || !desired.used_names().any(is_its);
    running.disk.iter().any(|was| {
        let is_one = was.kind == disk.kind && was.image() == Some(path);
        is_one && (was.name == disk.name || is_free()) && is_awaited(state, &was.name)
    })
}

/// Keys of a section that give a disk its identity.
pub(super) const ID_KEYS: [&str; 4] = ["serial", "naa", "uuid", "eui64"];

/// A section with the identity that another section gives.
pub(super) fn with_ids(disk: &DiskConfig, of: &DiskConfig) -> DiskConfig {
    let mut disk = disk.clone();
    for key in ID_KEYS {
        match of.params.get(key) {
            Some(id) => drop(disk.params.insert(key.to_owned(), id.clone())),
            None => drop(disk.params.remove(key)),
        }
    }
    disk
}

/// The serial number that a section gives.
pub(super) fn given_serial(disk: &DiskConfig) -> Option<&str> {
    let [serial, ..] = disk_ids(disk);
    serial
}

/// Whether a disk becomes that of another section under its users.
pub(super) fn changes_in_place(
    from: &DiskConfig,
    to: &DiskConfig,
    (state, catalog): (&SystemState, &Catalog),
    ground: &DependencyGraph,
) -> bool {
    let named = with_ids(from, to);
    if named != *to && size_edit(&named, to, state).is_none() {
        return false;
    }
    // A disk that has no configured serial number any more is asked for its own when it is opened.
    let takes_serial =
        || given_serial(to).is_some() && passes_serial(&from.name, (state, catalog), ground);
    keeps_serial(from, to, state) || takes_serial()
}

/// Whether a disk has the same serial number by both sections, as far as that is known.
fn keeps_serial(from: &DiskConfig, to: &DiskConfig, state: &SystemState) -> bool {
    let serial = given_serial(to);
    let has = || state.disks.iter().find(|d| d.name == from.name).map(|d| d.serial.as_str());
    serial == given_serial(from) || serial.is_some() && serial == has()
}

/// Whether all geoms above a disk ask it for its serial number.
fn passes_serial(
    disk: &str,
    (state, catalog): (&SystemState, &Catalog),
    ground: &DependencyGraph,
) -> bool {
    let is_above = |geom: &&GeomState| {
        let mut below = geom.consumers.iter().filter_map(|c| c.provider.as_deref());
        below.any(|provider| ground.depends_on(provider, disk))
    };
    let mut above = state.geoms.iter().filter(is_above);
    above.all(|geom| catalog.facts(&geom.class).passes_serial)
}

/// Disks of both configurations that are given another serial number.
pub(super) fn renumbered_disks<'c>(
    running: &'c Config,
    desired: &Config,
    state: &SystemState,
) -> Vec<&'c str> {
    let wanted: HashMap<&str, &DiskConfig> =
        desired.disk.iter().map(|d| (d.name.as_str(), d)).collect();
    let differs = |disk: &&DiskConfig| {
        let to = wanted.get(disk.name.as_str());
        to.is_some_and(|to| !keeps_serial(disk, to, state))
    };
    running.disk.iter().filter(differs).map(|d| d.name.as_str()).collect()
}

/// Providers of LUNs whose serial number is made from that of a disk that is given another one.
pub(super) fn renumbered_units<'c>(
    running: &'c Config,
    desired: &Config,
    state: &SystemState,
    ground: &DependencyGraph,
) -> BTreeSet<&'c str> {
    let disks = renumbered_disks(running, desired, state);
    if disks.is_empty() {
        return BTreeSet::new();
    }
    let given = unit_ids(desired);
    let has_own = |name: &str| given.get(name).is_some_and(|[serial, ..]| serial.is_some());
    let luns = running.access.iter().flat_map(|a| a.luns.values()).map(|l| l.provider.as_str());
    let derived = luns.filter(|name| !has_own(name));
    derived.filter(|name| disks.iter().any(|disk| ground.depends_on(name, disk))).collect()
}

/// Disks of both configurations with the identities that are configured for them.
pub(super) fn ids_of_kept_disks<'c>(
    config: &'c Config,
    other: &Config,
) -> Vec<(&'c str, UnitIds<'c>)> {
    let others: BTreeSet<&str> = other.disk.iter().map(|d| d.name.as_str()).collect();
    let kept = config.disk.iter().filter(|disk| others.contains(disk.name.as_str()));
    let ids = kept.map(|disk| (disk.name.as_str(), disk_ids(disk)));
    ids.filter(|(_, ids)| ids.iter().any(Option::is_some)).collect()
}
