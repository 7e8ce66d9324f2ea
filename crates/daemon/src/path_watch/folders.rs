//! Notification of names that change in folders, by inotify(7). Paths are examined from time to
//! time as well, because network file systems notify of no change that another machine makes.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Longest wait for a change; then the caller checks whether it is to stop.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Bytes of notifications that are read at once.
const BUFFER_BYTES: usize = 4096;

/// Number of a watched folder.
pub type FolderId = i32;

/// A changed name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderChange {
    /// The folder; `None`: any, because notifications were dropped.
    pub folder: Option<FolderId>,
    /// The name; `None`: the folder itself.
    pub name: Option<OsString>,
    /// The folder is not watched any more, or its path may name another one.
    pub is_last: bool,
}

/// The watched folders.
pub struct Folders(OwnedFd);

impl Folders {
    /// `None`: the system has no more instances of inotify.
    pub fn new() -> Option<Folders> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Folders)
    }

    /// Watches the folder of a path. Blocks while the path hangs. `None`: it cannot be watched.
    pub fn add(&self, path: &Path) -> Option<FolderId> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        let own = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.0, folder.unwrap_or(Path::new(".")), names | own).ok()
    }

    /// Watches a folder no more.
    pub fn remove(&self, folder: FolderId) {
        // One that was deleted is not watched already.
        let _ = inotify::remove_watch(&self.0, folder);
    }

    /// Waits for changes, for a second at most.
    pub fn wait(&self) -> Vec<FolderChange> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if !poll(&mut fds, Some(&WAIT)).is_ok_and(|ready| ready > 0) {
            return Vec::new();
        }
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut changes = Vec::new();
        while let Ok(event) = reader.next() {
            let flags = event.events();
            let name = event.file_name().map(|name| name.to_bytes());
            changes.push(FolderChange {
                folder: (!flags.contains(ReadFlags::QUEUE_OVERFLOW)).then_some(event.wd()),
                name: name.map(|name| std::ffi::OsStr::from_bytes(name).to_owned()),
                is_last: flags.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF),
            });
            if reader.is_buffer_empty() {
                break;
            }
        }
        changes
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn names_that_appear_and_vanish_in_a_folder_are_reported() {
        let at = std::env::temp_dir().join(format!("ashlar-folders-{}", std::process::id()));
        std::fs::create_dir_all(&at).unwrap();
        let Some(folders) = Folders::new() else {
            eprintln!("not tested: the system has no more instances of inotify");
            return;
        };
        assert_eq!(folders.add(&at.join("absent/a.img")), None);
        let folder = folders.add(&at.join("a.img"));
        assert!(folder.is_some());
        std::fs::write(at.join("a.img"), "").unwrap();
        let change = FolderChange { folder, name: Some("a.img".into()), is_last: false };
        assert_eq!(folders.wait(), std::slice::from_ref(&change));
        std::fs::remove_file(at.join("a.img")).unwrap();
        assert_eq!(folders.wait(), [change]);
        let moved = at.with_extension("moved");
        std::fs::rename(&at, &moved).unwrap();
        assert!(folders.wait().iter().any(|change| change.is_last && change.folder == folder));
        std::fs::remove_dir(&moved).unwrap();
        assert!(folders.wait().iter().any(|change| change.is_last));
    }
}
