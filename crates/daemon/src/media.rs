//! Checks of the files and devices of disks that a plan makes, before the disks are opened.
//!
//! They run on threads that may block and never on the control thread: a path may hang. Only
//! [`check_medium`] and [`is_configured`] run there, which look at no path.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bio::Errno;
use disks::{Medium, PathKind, path_kind};
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
/// absent is no reason: it may appear later.
pub fn check_section(disk: &DiskConfig) -> Result<()> {
    let Some(kind) = disks::kind(&disk.kind) else { return Ok(()) };
    let checked = kind.check(&disk.name, &Value::Object(disk.params.clone()));
    checked.map_err(|e| refusal(disk, e))
}

/// The same, of a disk whose medium must be there.
pub fn check(disk: &DiskConfig) -> Result<()> {
    check_section(disk)?;
    let Some(path) = disk.image() else { return Ok(()) };
    if creates(disk) || path.exists() {
        return Ok(());
    }
    let why = format!("{}: no such file", path.display());
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

/// The medium at the path of a disk. `None`: the disk has no medium of its own, or there is nothing
/// at its path.
pub fn medium(disk: &DiskConfig) -> Option<Medium> {
    disks::kind(&disk.kind)?.medium(&Value::Object(disk.params.clone()))
}

/// Refuses a disk whose medium is locked.
pub fn check_lock(disk: &DiskConfig) -> Result<()> {
    let Some(kind) = disks::kind(&disk.kind) else { return Ok(()) };
    let checked = kind.check_lock(&disk.name, &Value::Object(disk.params.clone()));
    checked.map_err(|e| refusal(disk, e))
}

/// Whether the opening of a disk would make its file.
fn would_make(disk: &DiskConfig) -> bool {
    creates(disk) && Path::new(path_of(disk)).try_exists().is_ok_and(|exists| !exists)
}

/// Refuses to make the file of a disk anew that was opened before. A disk whose file system is not
/// mounted would return without its data.
pub fn check_existed(disk: &DiskConfig, identities: &IdentityKeeper) -> Result<()> {
    match would_make(disk) && identities.has_record_of(disk) {
        true => Err(vanished(disk)),
        false => Ok(()),
    }
}

/// Refuses the return of a disk that a plan has removed, if its file is absent. It may have been
/// moved to the path of another section.
pub fn check_removed(disk: &DiskConfig) -> Result<()> {
    match would_make(disk) {
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
        let is_file = path_kind(&disk.kind) == PathKind::File;
        if is_file && self != FileChange::Make {
            section.params.remove("create");
        }
        if is_file && self == FileChange::Nothing {
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
    let together = refused(&[], requested.iter(), &NoneOpen).into_iter().map(|(_, error)| error);
    alone.chain(together).collect()
}

/// Media of disks and their locks. An error means that the path of a disk does not answer.
pub trait Media {
    /// See [`medium`]; of each of these disks, in their order.
    fn media(&self, all: &[&DiskConfig]) -> Vec<Result<Option<Medium>>>;

    /// See [`check_lock`]; of each of these disks, in their order.
    fn check_locks(&self, all: &[&DiskConfig]) -> Vec<Result<()>>;

    /// The media of the open disks of the daemon, by their names.
    fn open(&self) -> Result<Vec<(String, Medium)>>;
}

/// Media of a daemon that has no disk open. Each check may block.
struct NoneOpen;

impl Media for NoneOpen {
    fn media(&self, all: &[&DiskConfig]) -> Vec<Result<Option<Medium>>> {
        all.iter().map(|disk| Ok(medium(disk))).collect()
    }

    fn check_locks(&self, all: &[&DiskConfig]) -> Vec<Result<()>> {
        all.iter().map(|disk| check_lock(disk)).collect()
    }

    fn open(&self) -> Result<Vec<(String, Medium)>> {
        Ok(Vec::new())
    }
}

/// A disk that a step makes, and its medium.
struct Wanted<'a> {
    step: usize,
    disk: &'a DiskConfig,
    medium: Medium,
}

impl Wanted<'_> {
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

    /// Removes a disk, and returns its medium.
    fn remove(&mut self, name: &str) -> Option<Medium> {
        let medium = self.media.remove(name)?;
        if let Some(users) = self.users.get_mut(&medium.storage()) {
            users.retain(|(user, _)| user.name != name);
        }
        Some(medium)
    }

    /// The users before the first step; `found`: the media of the running disks, and of others. An
    /// open disk whose path does not answer has the medium that it was opened with.
    fn of(
        running: &'a [DiskConfig],
        found: &mut impl Iterator<Item = Result<Option<Medium>>>,
        media: &dyn Media,
    ) -> MediumUsers<'a> {
        let (mut users, mut silent) = (MediumUsers::default(), Vec::new());
        for (disk, medium) in running.iter().zip(found) {
            match medium {
                Ok(Some(medium)) => {
                    users.add(disk, &medium);
                }
                Ok(None) => {}
                Err(_) => silent.push(disk),
            }
        }
        let open = if silent.is_empty() { Vec::new() } else { media.open().unwrap_or_default() };
        for disk in silent {
            if let Some((_, medium)) = open.iter().find(|(name, _)| *name == disk.name) {
                users.add(disk, medium);
            }
        }
        users
    }
}

/// Steps that make a disk of a medium that another disk has then, that a program has locked, or
/// that does not answer. `running`: the disks before the steps.
pub fn refused<'a>(
    running: &'a [DiskConfig],
    actions: impl Iterator<Item = &'a Action> + Clone,
    media: &dyn Media,
) -> Vec<(usize, Error)> {
    let needs_medium = |action: &Action| match action {
        Action::CreateDisk { disk } => disk.params.contains_key("path"),
        _ => false,
    };
    // Another plan looks at no path of a running disk.
    if !actions.clone().any(needs_medium) {
        return Vec::new();
    }
    let made = actions.clone().filter_map(Action::created_disk);
    let examined: Vec<&DiskConfig> = running.iter().chain(made).collect();
    let mut found = media.media(&examined).into_iter();
    let mut users = MediumUsers::of(running, &mut found, media);
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
                if let Some(medium) = users.remove(&from.name) {
                    users.add(to, &medium);
                }
            }
            Action::CreateDisk { disk } => {
                let medium = match found.next() {
                    Some(Ok(Some(medium))) => medium,
                    Some(Ok(None)) | None => continue,
                    Some(Err(late)) => {
                        refused.push((i, late));
                        continue;
                    }
                };
                match users.add(disk, &medium) {
                    Some(other) => refused.push((i, shared(disk, other))),
                    None if ours.contains(&medium.storage()) => {}
                    None => locked.push(Wanted { step: i, disk, medium }),
                }
            }
            _ => {}
        }
    }
    refused.extend(refused_by_locks(locked, &removed, media));
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
    let Some(medium) = medium(disk) else { return Ok(()) };
    check_medium(disk, &medium, all, open)
}

/// The same for a disk that has been opened: other disks may have been opened meanwhile.
pub fn check_medium(
    disk: &DiskConfig,
    medium: &Medium,
    all: &[DiskConfig],
    open: &[(String, Medium)],
) -> Result<()> {
    // A start checks this for each of its disks: no section is looked up for another medium.
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
    media: &dyn Media,
) -> Vec<(usize, Error)> {
    let examined: Vec<&DiskConfig> = wanted.iter().map(|one| one.disk).collect();
    let mut checked = media.check_locks(&examined).into_iter();
    wanted.retain(|_| checked.next().is_some_and(|checked| checked.is_err()));
    if wanted.is_empty() {
        return Vec::new();
    }
    // Without an answer, own locks and those of other programs look alike.
    let Ok(open) = media.open() else { return Vec::new() };
    wanted.retain(|one| !one.is_own(&open, removed));
    let check =
        |one: &Wanted<'_>| -> Result<()> { media.check_locks(&[one.disk]).into_iter().collect() };
    let refused = disks::still_refused(wanted, check);
    refused.into_iter().map(|(one, e)| (one.step, e)).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::symlink;

    use super::*;
    use testkit::Folder;

    /// T4 of reattach.rs.
    #[test]
    fn returned_disk_is_refused_while_another_disk_has_its_medium_open() {
        let folder = Folder::new("returned");
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
    }

    /// Paths in folders called `silent` do not answer.
    struct SilentMedia {
        open: Vec<(String, Medium)>,
        /// The disks of each call of `media`.
        examined: RefCell<Vec<Vec<String>>>,
    }

    impl SilentMedia {
        fn answers(disk: &DiskConfig) -> Result<()> {
            match path_of(disk).contains("/silent/") {
                true => Err(Error::new(Kind::Timeout, OP, "does not answer").at(&disk.name)),
                false => Ok(()),
            }
        }
    }

    impl Media for SilentMedia {
        fn media(&self, all: &[&DiskConfig]) -> Vec<Result<Option<Medium>>> {
            let names = all.iter().map(|disk| disk.name.clone()).collect();
            self.examined.borrow_mut().push(names);
            all.iter().map(|disk| SilentMedia::answers(disk).map(|()| medium(disk))).collect()
        }

        fn check_locks(&self, all: &[&DiskConfig]) -> Vec<Result<()>> {
            let check =
                |disk: &&DiskConfig| SilentMedia::answers(disk).and_then(|()| check_lock(disk));
            all.iter().map(check).collect()
        }

        fn open(&self) -> Result<Vec<(String, Medium)>> {
            Ok(self.open.clone())
        }
    }

    #[test]
    fn disk_whose_medium_does_not_answer_is_refused_and_others_are_checked() {
        let folder = Folder::new("silent");
        let disk = |name: &str, file: &str| {
            let section =
                serde_json::json!({ "name": name, "kind": "file", "path": folder.join(file) });
            serde_json::from_value::<DiskConfig>(section).unwrap()
        };
        for file in ["a.img", "c.img"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        // The path of the running disk hangs now; it was that of a.img.
        let running = [disk("a", "silent/a.img")];
        let open = vec![("a".to_owned(), Medium::of(&folder.join("a.img")).unwrap())];
        let made = [disk("b", "silent/b.img"), disk("c", "c.img"), disk("d", "a.img")];
        let actions = made.map(|disk| Action::CreateDisk { disk });
        let media = SilentMedia { open, examined: RefCell::default() };
        let refused = refused(&running, actions.iter(), &media);
        let found: Vec<_> =
            refused.iter().map(|(step, e)| (*step, e.kind, e.at.as_str())).collect();
        assert_eq!(found, [(0, Kind::Timeout, "b"), (2, Kind::Busy, "d")]);
        // Side by side: paths that hang together take the time of one.
        assert_eq!(*media.examined.borrow(), [["a", "b", "c", "d"]]);
    }
}
