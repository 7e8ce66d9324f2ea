//! Identity of the file or device that a path names, behind all links and spellings of the path.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

/// A file or block device of this machine. Two paths of one medium have equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// A file: major and minor number of its file system's device, and its inode.
    File(u32, u32, u64),
    /// A block device: its major and minor number.
    Device(u32, u32),
    /// A loop device that shows a whole file: its minor number, and the file as in
    /// [`Medium::File`].
    Loop(u32, (u32, u32, u64)),
    /// A file that does not exist: its folder as in [`Medium::File`], and its name there.
    Absent(u32, u32, u64, OsString),
}

impl Medium {
    /// The medium at `path`; `None`: not even its folder exists, or it cannot be examined. Blocks
    /// if the path hangs; requests no attributes from the server of a network file system that this
    /// machine knows.
    pub fn of(path: &Path) -> Option<Medium> {
        if let Ok(found) = look(path) {
            return Some(Medium::from_statx(&found));
        }
        let path = followed(path);
        let found = look(folder_of(&path)).ok()?;
        let name = path.file_name()?.to_owned();
        Some(Medium::Absent(found.stx_dev_major, found.stx_dev_minor, found.stx_ino, name))
    }

    /// The medium of an open file or device. Its path may name another medium now. Blocks if the
    /// path of a loop device's file hangs.
    pub(crate) fn of_open(fd: impl AsFd) -> Option<Medium> {
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(fd, "", how, StatxFlags::TYPE | StatxFlags::INO).ok()?;
        Some(Medium::from_statx(&found))
    }

    /// What holds the bytes: the file of a loop device.
    #[must_use]
    pub fn storage(&self) -> Medium {
        match *self {
            Medium::Loop(_, (major, minor, inode)) => Medium::File(major, minor, inode),
            _ => self.clone(),
        }
    }

    /// Whether two disks, one of each, would be one disk. Two loop devices of one file are two
    /// disks: paths to one medium, as two SCSI devices of one LUN are.
    #[must_use]
    pub fn is_same(&self, other: &Medium) -> bool {
        match (self, other) {
            (Medium::Loop(..), Medium::Loop(..)) => self == other,
            _ => self.storage() == other.storage(),
        }
    }

    fn from_statx(found: &Statx) -> Medium {
        let file = |found: &Statx| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => {
                let (major, minor) = (found.stx_rdev_major, found.stx_rdev_minor);
                let backing = backing_file(major, minor).and_then(|path| look(&path).ok());
                backing.map_or(Medium::Device(major, minor), |f| Medium::Loop(minor, file(&f)))
            }
            _ => {
                let (major, minor, inode) = file(found);
                Medium::File(major, minor, inode)
            }
        }
    }
}

/// The file that a loop device shows as a whole.
fn backing_file(major: u32, minor: u32) -> Option<PathBuf> {
    /// Loop devices (`Documentation/admin-guide/devices.txt` of Linux).
    const LOOP: u32 = 7;
    if major != LOOP {
        return None;
    }
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/loop"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let is_zero = |name: &str| read(name).is_some_and(|text| text.trim() == "0");
    let path = read("backing_file").filter(|_| is_zero("offset") && is_zero("sizelimit"))?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

fn look(path: &Path) -> rustix::io::Result<Statx> {
    rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO)
}

/// The folder of a file; that of a bare name is the current one.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The canonical path of a file, also of one that does not exist. `None`: not even its folder
/// exists, or it cannot be examined. Blocks if the path hangs.
pub fn canonical_path(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = std::fs::canonicalize(path) {
        return Some(found);
    }
    let path = followed(path);
    let folder = std::fs::canonicalize(folder_of(&path)).ok()?;
    Some(folder.join(path.file_name()?))
}

/// Where a path leads whose last part may be a symbolic link, also to a file that does not exist.
pub(crate) fn followed(path: &Path) -> PathBuf {
    /// As many as Linux follows (path_resolution(7)).
    const LINKS_MAX: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(to) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| to.clone(), |folder| folder.join(&to));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_spellings_of_a_path_name_one_medium() {
        use std::os::unix::fs::symlink;
        let folder = std::env::temp_dir().join(format!("ashlar-medium-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("a"), "").unwrap();
        std::fs::write(at("other"), "").unwrap();
        symlink("a", at("soft")).unwrap();
        std::fs::hard_link(at("a"), at("hard")).unwrap();
        symlink(&folder, at("again")).unwrap();
        symlink("absent", at("to-absent")).unwrap();
        let of = |name: &str| Medium::of(&at(name));
        let file = of("a");
        assert!(matches!(file, Some(Medium::File(..))), "{file:?}");
        for name in ["soft", "hard", "again/a", "sub/../a"] {
            assert_eq!(of(name), file, "{name}");
        }
        assert_ne!(of("other"), file);
        let absent = of("absent");
        assert!(matches!(absent, Some(Medium::Absent(..))), "{absent:?}");
        for name in ["to-absent", "again/absent", "sub/../absent"] {
            assert_eq!(of(name), absent, "{name}");
        }
        assert_ne!(of("absent2"), absent);
        assert_eq!(of("nowhere/absent"), None);
        let real = std::fs::canonicalize(&folder).unwrap();
        for name in ["absent", "to-absent", "again/absent"] {
            assert_eq!(canonical_path(&at(name)), Some(real.join("absent")), "{name}");
        }
        assert_eq!(canonical_path(&at("soft")), Some(real.join("a")));
        assert_eq!(canonical_path(&at("nowhere/absent")), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
