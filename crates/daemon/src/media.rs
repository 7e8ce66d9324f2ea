//! Checks of the files and devices of disks that a plan makes, before the disks are opened.
//!
//! They run on threads that may block and never on the control thread: a path may hang. Only
//! [`check_medium`] and [`is_configured`] run there, which look at no path.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bio::Errno;
use disks::{Kind as DiskKind, Medium};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::DiskConfig;
use mgmt::plan::Action;
use serde_json::Value;

use crate::errors::{DISK_REMEDY, from_geom};
use crate::identities::IdentityKeeper;

/// The operation of all refusals here.
const OP: &str = "create disk";

fn path_of(disk: &DiskConfig) -> &str {
    disk.params.get("path").and_then(Value::as_str).unwrap_or_default()
}

fn refusal(disk: &DiskConfig, error: geom::Error) -> Error {
    from_geom(OP, &disk.name, error).next(DISK_REMEDY)
}

/// Why a disk could not be opened, as far as its section and its medium show that. A medium that is
/// absent is no reason: it may come.
pub fn check_section(disk: &DiskConfig) -> Result<()> {
    let Some(kind) = disks::kind(&disk.kind) else { return Ok(()) };
    let checked = kind.check(&disk.name, &Value::Object(disk.params.clone()));
    checked.map_err(|e| refusal(disk, e))
}

/// The same, of a disk whose medium must be there.
pub fn check(disk: &DiskConfig) -> Result<()> {
    check_section(disk)?;
    if disk.kind != "file" && disk.kind != "blockdev" {
        return Ok(());
    }
    let path = path_of(disk);
    if creates(disk) || Path::new(path).exists() {
        return Ok(());
    }
    let why = format!("{path}: no such file");
    let next = "Create it, or give `create = true` and `size` to have it made.";
    Err(Error::new(Kind::NotFound, OP, why).at(&disk.name).next(next))
}

/// Whether a section has a missing file made.
pub fn creates(disk: &DiskConfig) -> bool {
    disk.params.get("create") == Some(&Value::Bool(true))
}

/// Whether one of these disks has the kind and the path of a disk: `create` made its file already.
pub fn is_configured(disk: &DiskConfig, all: &[DiskConfig]) -> bool {
    disk.image().is_some()
        && all.iter().any(|was| was.kind == disk.kind && was.image() == disk.image())
}

/// Refuses to make the file of a disk anew that was opened before. A disk whose file system is not
/// mounted would return without its data.
pub fn check_existed(disk: &DiskConfig, identities: &IdentityKeeper) -> Result<()> {
    let is_absent = || Path::new(path_of(disk)).try_exists().is_ok_and(|exists| !exists);
    match creates(disk) && is_absent() && identities.has_record_of(disk) {
        true => Err(vanished(disk)),
        false => Ok(()),
    }
}

/// The refusal of a disk whose file existed before and is absent.
fn vanished(disk: &DiskConfig) -> Error {
    let path = path_of(disk);
    let why = format!("{path} existed before and is absent now; `create` makes new files only");
    let next = format!(
        "Restore {path} or mount its file system: `findmnt` lists file systems. To have a blank \
         file made, remove the [[disk]] from ashlar.toml, run `ashlar apply`, and add it again."
    );
    Error::new(Kind::NotFound, OP, why).at(&disk.name).next(next)
}

/// Changes to the file of a disk that its opening may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It is made if it is absent, and extended.
    Make,
    /// It is extended.
    Extend,
    /// None.
    Nothing,
}

impl FileChange {
    /// The section with which a disk is opened.
    pub fn section(self, disk: &DiskConfig) -> DiskConfig {
        let mut section = disk.clone();
        if disk.kind == "file" && self != FileChange::Make {
            section.params.remove("create");
        }
        if disk.kind == "file" && self == FileChange::Nothing {
            section.params.remove("size");
        }
        section
    }

    /// The refusal of a disk that could not be opened.
    pub fn refusal(self, disk: &DiskConfig, error: geom::Error) -> Error {
        match self != FileChange::Make && creates(disk) && error.kind == Errno::NoEnt {
            true => vanished(disk),
            false => refusal(disk, error),
        }
    }
}

/// Why disks of a configuration could not be opened, by a daemon that has none open.
pub fn check_all(disks: &[DiskConfig]) -> Vec<Error> {
    let requested: Vec<Action> =
        disks.iter().map(|disk| Action::CreateDisk { disk: disk.clone() }).collect();
    let alone = disks.iter().filter_map(|disk| check_section(disk).err());
    let none_open = || Ok(Vec::new());
    let together = refused(&[], requested.iter(), none_open).into_iter().map(|(_, error)| error);
    alone.chain(together).collect()
}

/// A disk that a step makes, and its medium.
struct Wanted<'a> {
    step: usize,
    disk: &'a DiskConfig,
    kind: &'static dyn DiskKind,
    params: Value,
    medium: Medium,
}

impl<'a> Wanted<'a> {
    /// `None`: the disk has no medium of its own, or there is nothing at its path.
    fn new(step: usize, disk: &'a DiskConfig) -> Option<Wanted<'a>> {
        let kind = disks::kind(&disk.kind)?;
        let params = Value::Object(disk.params.clone());
        let medium = kind.medium(&params)?;
        Some(Wanted { step, disk, kind, params, medium })
    }

    fn check_lock(&self) -> std::result::Result<(), geom::Error> {
        self.kind.check_lock(&self.disk.name, &self.params)
    }

    /// Whether this daemon has the medium open for the same disk, as that of a lost disk is, or for
    /// one that the plan removes. The path of an open disk may name another file by now.
    fn is_own(&self, open: &[(String, Medium)], removed: &HashSet<&str>) -> bool {
        let ends = |name: &str| name == self.disk.name || removed.contains(name);
        open.iter().any(|(name, medium)| medium.is_same(&self.medium) && ends(name))
    }
}

/// The disks of each medium while the steps of a plan are followed.
#[derive(Default)]
struct MediumUsers<'a> {
    /// By what holds the bytes.
    users: HashMap<Medium, Vec<(&'a DiskConfig, Medium)>>,
    media: HashMap<&'a str, Medium>,
}

impl<'a> MediumUsers<'a> {
    /// Adds a disk, unless its medium has a user beside which it must not be: that one is returned.
    fn add(&mut self, disk: &'a DiskConfig, medium: &Medium) -> Option<&'a DiskConfig> {
        let users = self.users.entry(medium.storage()).or_default();
        let conflicts =
            |(user, its): &&(&DiskConfig, Medium)| its.is_same(medium) && user.conflicts_with(disk);
        let other = users.iter().find(conflicts).map(|(user, _)| *user);
        if other.is_none() {
            users.push((disk, medium.clone()));
            self.media.insert(&disk.name, medium.clone());
        }
        other
    }

    fn remove(&mut self, name: &str) {
        let Some(medium) = self.media.remove(name) else { return };
        if let Some(users) = self.users.get_mut(&medium.storage()) {
            users.retain(|(user, _)| user.name != name);
        }
    }
}

/// Steps that make a disk of a medium that another disk has then, or that a program has locked.
/// `running`: the disks before the steps. `open`: the media of the open disks of
/// the daemon.
pub fn refused<'a>(
    running: &'a [DiskConfig],
    actions: impl Iterator<Item = &'a Action> + Clone,
    open: impl FnOnce() -> Result<Vec<(String, Medium)>>,
) -> Vec<(usize, Error)> {
    let needs_medium = |action: &Action| match action {
        Action::CreateDisk { disk } => disk.params.contains_key("path"),
        _ => false,
    };
    // Another plan looks at no path of a running disk.
    if !actions.clone().any(needs_medium) {
        return Vec::new();
    }
    let mut users = MediumUsers::default();
    for wanted in running.iter().filter_map(|disk| Wanted::new(0, disk)) {
        users.add(wanted.disk, &wanted.medium);
    }
    // A lock of ours ends with the disk that has the medium now.
    let ours: HashSet<Medium> = users.users.keys().cloned().collect();
    let (mut refused, mut locked, mut removed) = (Vec::new(), Vec::new(), HashSet::new());
    for (i, action) in actions.enumerate() {
        match action {
            Action::RemoveDisk { disk } => {
                users.remove(&disk.name);
                removed.insert(disk.name.as_str());
            }
            Action::RenameDisk { from, to } => {
                users.remove(&from.name);
                if let Some(wanted) = Wanted::new(i, to) {
                    users.add(wanted.disk, &wanted.medium);
                }
            }
            Action::CreateDisk { disk } => {
                let Some(wanted) = Wanted::new(i, disk) else { continue };
                match users.add(disk, &wanted.medium) {
                    Some(other) => refused.push((i, shared(disk, other))),
                    None if ours.contains(&wanted.medium.storage()) => {}
                    None => locked.push(wanted),
                }
            }
            _ => {}
        }
    }
    refused.extend(refused_by_locks(locked, &removed, open));
    refused
}

/// Refuses a disk that returns by itself while one of `all` has its medium open and one of the two
/// may write. `open`: the media of the open disks. [`refused`] is the same rule for plans, but a
/// path may name another medium later.
pub fn check_returned(
    disk: &DiskConfig,
    all: &[DiskConfig],
    open: &[(String, Medium)],
) -> Result<()> {
    let Some(wanted) = Wanted::new(0, disk) else { return Ok(()) };
    check_medium(disk, &wanted.medium, all, open)
}

/// The same for a disk that has been opened: other disks may have been opened meanwhile.
pub fn check_medium(
    disk: &DiskConfig,
    medium: &Medium,
    all: &[DiskConfig],
    open: &[(String, Medium)],
) -> Result<()> {
    // A start asks this for each of its disks: no section is looked up for another medium.
    let holders = open.iter().filter(|(_, its)| its.is_same(medium));
    let mut others = holders.filter_map(|(name, _)| all.iter().find(|one| one.name == *name));
    let Some(other) = others.find(|other| other.conflicts_with(disk)) else { return Ok(()) };
    let why = format!(
        "`{}` is the open file or device of disk {}, and one of the two disks may write; name \
         another file in `path` of disk {}, then `ashlar apply`",
        path_of(disk),
        other.name,
        disk.name
    );
    Err(Error::new(Kind::Busy, OP, why).at(&disk.name))
}

/// Two disks of one medium.
fn shared(disk: &DiskConfig, other: &DiskConfig) -> Error {
    let (own, first) = (path_of(disk), path_of(other));
    let why = format!(
        "`{own}` and `{first}` of disk {} are one file or device, and one of the two disks may \
         write",
        other.name
    );
    let next = format!(
        "Name another file in `path` of disk {}, or give both disks `read_only = true`; \
         `ls -liL {own} {first}` shows the inode of each path.",
        disk.name
    );
    Error::new(Kind::Busy, OP, why).at(&disk.name).next(next)
}

/// Those whose medium stays locked.
fn refused_by_locks(
    mut wanted: Vec<Wanted<'_>>,
    removed: &HashSet<&str>,
    open: impl FnOnce() -> Result<Vec<(String, Medium)>>,
) -> Vec<(usize, Error)> {
    wanted.retain(|one| one.check_lock().is_err());
    if wanted.is_empty() {
        return Vec::new();
    }
    // Without an answer, own locks and those of other programs look alike.
    let Ok(open) = open() else { return Vec::new() };
    wanted.retain(|one| !one.is_own(&open, removed));
    let refused = disks::still_refused(wanted, |one| one.check_lock());
    refused.into_iter().map(|(one, e)| (one.step, refusal(one.disk, e))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn returned_disk_is_refused_while_another_disk_has_its_medium_open() {
        let folder = std::env::temp_dir().join(format!("ashlar-returned-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("a.img"), "").unwrap();
        symlink("a.img", at("b.img")).unwrap();
        let disk = |name: &str, read_only: bool| {
            let path = at(&format!("{name}.img"));
            let section = serde_json::json!({
                "name": name, "kind": "file", "path": path, "read_only": read_only,
            });
            serde_json::from_value::<DiskConfig>(section).unwrap()
        };
        let open = &[("a".to_owned(), Medium::of(&at("a.img")).unwrap())];
        let all = |read_only: bool| [disk("a", read_only), disk("b", read_only)];
        let e = check_returned(&disk("b", false), &all(false), open).unwrap_err();
        assert!(e.kind == Kind::Busy && e.at == "b" && e.source.contains("of disk a"), "{e}");
        check_returned(&disk("b", true), &all(true), open).unwrap();
        check_returned(&disk("b", false), &all(false), &[]).unwrap();
        // A disk does not exclude itself.
        check_returned(&disk("a", false), &all(false), open).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
