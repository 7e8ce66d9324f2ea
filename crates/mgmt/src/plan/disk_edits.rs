//! Edits of a disk's section that are carried out under the users of the disk: its configured
//! identity, the size of an image file, and keys that an open disk of its kind takes over.
//!
//! A new identity concerns the LUNs on the disk and on its partitions. They are withdrawn before,
//! and exported again as other disks for hosts. Other geoms above the disk would keep its former
//! serial number until the next start, so the disk is removed and made anew below them.
//!
//! A disk that is awaited has no users. It is removed and made anew with each edit of its section,
//! and is awaited still while there is no medium at its path.

use super::action::Action;
use super::depend::{DependencyGraph, name_depends_on};
use super::diff::{changes, disks_by_name};
use super::identity::{UnitIds, disk_ids, unit_ids};
use super::sizes::size_edit;
use crate::api::{GeomState, SystemState};
use crate::config::{Catalog, Config, DiskConfig};
use std::collections::{BTreeMap, BTreeSet};

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

/// A section with the values that another section gives these keys.
fn with_keys(disk: &DiskConfig, of: &DiskConfig, keys: &[&str]) -> DiskConfig {
    let mut disk = disk.clone();
    for key in keys {
        match of.params.get(*key) {
            Some(value) => drop(disk.params.insert((*key).to_owned(), value.clone())),
            None => drop(disk.params.remove(*key)),
        }
    }
    disk
}

/// Key whose presence decides whether the connections of a disk use TLS.
pub(super) const TLS_SWITCH: &str = "tls_ca";

/// A section with the values of another one that the open disk takes over. A disk is removed and
/// added instead if TLS is switched on or off: its present connections would not follow, and the
/// opening shows whether the server agrees. A disk that is awaited is not open.
fn with_live_keys(
    disk: &DiskConfig,
    of: &DiskConfig,
    (state, catalog): (&SystemState, &Catalog),
) -> DiskConfig {
    let has_tls = |disk: &DiskConfig| disk.params.contains_key(TLS_SWITCH);
    if has_tls(disk) != has_tls(of) || is_awaited(state, &disk.name) {
        return disk.clone();
    }
    with_keys(disk, of, catalog.live_disk_keys(&disk.kind))
}

/// The steps for the disks that stay, apart from their sizes, each with its reason. `gone`: the
/// removed ones.
pub(super) fn edits_in_place(
    running: &Config,
    desired: &Config,
    gone: &BTreeMap<String, String>,
    known: (&SystemState, &Catalog),
) -> Vec<(Action, String)> {
    let wanted = disks_by_name(desired);
    let mut edits = Vec::new();
    for from in running.disk.iter().filter(|disk| !gone.contains_key(&disk.name)) {
        let Some(to) = wanted.get(from.name.as_str()) else { continue };
        let named = with_keys(from, to, &ID_KEYS);
        if named != *from {
            let why = changes(from, &named);
            let action = Action::IdentifyDisk { from: from.clone(), to: named.clone() };
            edits.push((action, why));
        }
        let edited = with_live_keys(&named, to, known);
        if edited != named {
            let why = changes(&named, &edited);
            edits.push((Action::ModifyDisk { from: named, to: edited }, why));
        }
    }
    edits
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
    let named = with_live_keys(&with_keys(from, to, &ID_KEYS), to, (state, catalog));
    if named != *to && size_edit(&named, to, (state, catalog)).is_none() {
        return false;
    }
    // A disk that has no configured serial number any more reports its own when it is opened.
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

/// Whether all geoms above a disk read its serial number.
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
    let wanted = disks_by_name(desired);
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::DiskState;
    use crate::fake;
    use crate::plan::{PredictedSerials, plan};

    fn config(params: &Value) -> Config {
        let params = params.as_object().cloned().unwrap_or_default();
        let disk = DiskConfig { name: "d".into(), kind: "null".into(), params };
        Config { disk: vec![disk], ..Config::default() }
    }

    fn planned(state: &SystemState, from: &Value, to: &Value) -> Vec<String> {
        let mut catalog = fake::catalog();
        catalog.disks.iter_mut().for_each(|entry| entry.live_keys = &["retries", "tls_ca"]);
        let known = (state, &PredictedSerials::new());
        let steps = plan(&config(from), &config(to), known, &catalog);
        let one = |step: crate::plan::Step| format!("{}: {}", step.what, step.why);
        steps.into_iter().map(one).collect()
    }

    #[test]
    fn live_keys_change_under_users_but_tls_is_not_switched() {
        let state = SystemState::default();
        let anew = |why: &str| {
            ["remove", "create"].map(|what| format!("{what} disk d (null): {why}")).to_vec()
        };
        let (one, two) = (json!({ "retries": 1 }), json!({ "retries": 2 }));
        let edits = planned(&state, &one, &two);
        assert_eq!(edits, ["change disk d (null): retries 1 -> 2"]);
        let edits = planned(&state, &json!({ "tls_ca": "/a" }), &json!({ "tls_ca": "/b" }));
        assert_eq!(edits, [r#"change disk d (null): tls_ca "/a" -> "/b""#]);
        let edits = planned(&state, &json!({ "tls_ca": 1 }), &json!({ "retries": 1 }));
        assert!(edits.len() == 2 && edits[0].starts_with("remove disk d"), "{edits:?}");
        let edits = planned(&state, &json!({ "size": 1 }), &json!({ "size": 2 }));
        assert_eq!(edits, anew("size 1 -> 2"));
        let disks = vec![DiskState { name: "d".into(), ..DiskState::default() }];
        let awaited = SystemState { disks, ..SystemState::default() };
        assert_eq!(planned(&awaited, &one, &two), anew("retries 1 -> 2"));
    }
}
