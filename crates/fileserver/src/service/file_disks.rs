//! The host's files that are disks: making them, watching their files, and removing them.
//!
//! Invariants
//!  D1  A disk of the configuration whose file is not there does not stop the others. Its file is
//!       looked for each second, and the disk is made when the file is there.
//!  D2  A disk keeps its file when the file's name is removed or given to another file. That is
//!       reported: data written from then on is lost when the disk is opened again.

use std::collections::BTreeMap;
use std::rc::Rc;

use bio::Errno;
use geom::{Error, Trouble};

use super::disks::{self, FileDisk};
use super::host::Host;
use super::shared::{Phase, Status};
use crate::console;
use crate::files::Ino;
use crate::volume::View;

/// A disk that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFault {
    /// The problem, with the name of the disk.
    pub reason: String,
    /// The action to take.
    pub action: String,
}

/// The faults for `status`. A disk that is missing, or whose data is lost later, has failed, as a
/// disk of any other kind has.
pub(super) fn troubles(status: &Status) -> impl Iterator<Item = Trouble> {
    let all = status.disk_faults.iter().filter(move |_| status.phase == Phase::Serving);
    all.map(|fault| Trouble::failed(&fault.reason, &fault.action))
}

impl Host {
    /// Makes the disks of the configuration (D1).
    pub(super) async fn add_disks(self: &Rc<Self>) {
        self.awaited.replace(self.shared.status().wanted_disks.into_iter().collect());
        self.look_at_disks().await;
    }

    /// Makes and removes disks so that they are those of a changed configuration (D1).
    pub(super) async fn set_disks(
        self: &Rc<Self>,
        disks: BTreeMap<String, String>,
    ) -> Result<(), Error> {
        self.files()?;
        let before = self.shared.status().wanted_disks;
        // An edit of other keys does not wait for files.
        if before == disks {
            return Ok(());
        }
        let stays = |(name, path): &(&String, &String)| disks.get(*name) == Some(*path);
        for (name, _) in before.iter().filter(|disk| !stays(disk)) {
            self.remove_disk(name)?;
        }
        let is_new = |(name, path): &(String, String)| before.get(name) != Some(path);
        let new: Vec<(String, String)> = disks.clone().into_iter().filter(is_new).collect();
        self.awaited.borrow_mut().extend(new);
        self.shared.update_status(|s| s.wanted_disks = disks);
        self.look_at_disks().await;
        Ok(())
    }

    /// Makes awaited disks whose file is there now, and reports the others (D1, D2).
    pub(super) async fn look_at_disks(self: &Rc<Self>) {
        let of = self.shared.name.clone();
        let mut faults = Vec::new();
        let awaited = self.awaited.borrow().clone();
        for (name, path) in awaited {
            let result = self.make_disk(&name, &path).await;
            if self.shared.status().wanted_disks.get(&name) != Some(&path) {
                // It was removed while its file was looked for.
                if result.is_ok() {
                    let _ = self.remove_disk(&name);
                }
                continue;
            }
            let Err(e) = result.or_else(|e| self.disk(&name).map(drop).ok_or(e)) else {
                self.awaited.borrow_mut().retain(|(awaited, _)| *awaited != name);
                continue;
            };
            let action = match e.kind {
                Errno::Busy => "name another file in `disks`, then `ashlar apply`".to_owned(),
                _ => format!("make it: `ashlar fs disk {of} {path} --as {name} --size SIZE`"),
            };
            faults.push(DiskFault {
                reason: format!("disk {name} is missing: {}", e.message),
                action,
            });
        }
        for disk in self.shared.status().disks.iter().filter(|disk| !disk.read_only) {
            if let Some(what) = self.moved(disk).await {
                let FileDisk { name, path, .. } = disk;
                let why = format!("disk {name}: {path} {what}; its data is lost at the next start");
                let action =
                    format!("copy {name} from a host, then `ashlar fs undisk {of} {name}`");
                faults.push(DiskFault { reason: why, action });
            }
        }
        self.shared.update_status(|s| s.disk_faults = faults);
    }

    /// What became of the name of a disk's file (D2).
    async fn moved(&self, disk: &FileDisk) -> Option<&'static str> {
        let fs = self.files().ok()?;
        match console::find_file(self, &fs, &disk.path).await {
            Ok(found) if self.ident(found.view, found.ino) == disk.ident => None,
            Ok(_) => Some("is another file now"),
            Err(e) if e.kind == Errno::NoEnt => Some("was removed while it is used"),
            Err(_) => None,
        }
    }

    fn disk(&self, name: &str) -> Option<FileDisk> {
        self.shared.status().disks.into_iter().find(|disk| disk.name == name)
    }

    /// The disk that a file of the live tree is.
    pub(crate) fn disk_of(&self, ino: Ino) -> Option<String> {
        let ident = self.ident(View::Live, ino);
        let mut disks = self.shared.status().disks.into_iter();
        disks.find(|disk| disk.ident == ident).map(|disk| disk.name)
    }

    fn ident(&self, view: View, ino: Ino) -> String {
        let volume = self.options.cache.name();
        match view {
            View::Live => format!("fs-{volume}-{ino}"),
            View::Dump(n) => format!("fs-{volume}-{ino}-{n}"),
        }
    }

    /// Makes a file a disk, which is wanted from now on. Its provider is there when the graph has
    /// been notified.
    pub(crate) async fn add_disk(self: &Rc<Self>, name: &str, path: &str) -> Result<(), Error> {
        self.make_disk(name, path).await?;
        self.shared.update_status(|s| {
            s.wanted_disks.insert(name.to_owned(), path.to_owned());
        });
        Ok(())
    }

    async fn make_disk(self: &Rc<Self>, name: &str, path: &str) -> Result<(), Error> {
        let fs = self.files()?;
        let found = console::find_file(self, &fs, path).await?;
        // After the wait: another task may have made it meanwhile.
        if self.disk(name).is_some() {
            return Err(Error::new(Errno::Exist, format!("{name}: there is a disk of that name")));
        }
        let (view, ino, inode) = (found.view, found.ino, found.inode);
        // The users of two disks would overwrite each other's data. Files of dumps are read-only.
        if view == View::Live
            && let Some(other) = self.disk_of(ino)
        {
            let what = format!(
                "{path}: the file is the disk {other}; `ashlar fs undisk {} {other}` ends that",
                self.shared.name
            );
            return Err(Error::new(Errno::Busy, what));
        }
        let disk = FileDisk {
            name: name.to_owned(),
            path: path.to_owned(),
            bytes: inode.size,
            read_only: view != View::Live,
            key: disks::open(self, &fs, view, ino),
            ident: self.ident(view, ino),
            block: fs.facts().block,
        };
        self.shared.update_status(|s| s.disks.push(disk));
        self.shared.notify_geom();
        Ok(())
    }

    /// It is a disk no longer.
    pub(crate) fn remove_disk(&self, name: &str) -> Result<(), Error> {
        let before = self.awaited.borrow().len();
        self.awaited.borrow_mut().retain(|(awaited, _)| awaited != name);
        self.shared.update_status(|s| drop(s.wanted_disks.remove(name)));
        if self.awaited.borrow().len() < before {
            return Ok(());
        }
        let gone = self.disk(name).ok_or_else(|| {
            Error::new(Errno::NoEnt, format!("no file is a disk called {name}: `fs disks`"))
        })?;
        disks::close(gone.key);
        self.shared.update_status(|s| s.disks.retain(|d| d.name != name));
        self.shared.notify_geom();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geom::Severity;

    #[test]
    fn fault_of_a_file_disk_is_a_failure_while_files_are_served() {
        let (reason, action) = ("disk vm0: /vm0 was removed".into(), "copy vm0".into());
        let disk_faults = vec![DiskFault { reason, action }];
        let mut status = Status { phase: Phase::Serving, disk_faults, ..Status::default() };
        let all: Vec<Severity> = troubles(&status).map(|t| t.severity).collect();
        assert_eq!(all, [Severity::Failed]);
        status.phase = Phase::Halted;
        assert_eq!(troubles(&status).count(), 0);
    }
}
