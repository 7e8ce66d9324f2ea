//! The socket's place in the file system: one daemon each, a stale one is taken over.
//!
//! ```text
//! lock PATH.lock --held by another--> AlreadyRunning
//!     |
//! PATH exists? --a daemon answers--> AlreadyRunning      (one that holds no lock)
//!     |no, or no answer: removed
//! bind, mode 0600
//! ```
//! The lock file is never removed: its lock, not its existence, says that a daemon runs.

use crate::api::{Error, Kind, Result};
use crate::client::check_folder;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A bound socket that disappears with this value.
pub struct BoundSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
    _lock: fs::File,
}

impl BoundSocket {
    /// Takes the place.
    ///
    /// # Errors
    /// [`Kind::AlreadyRunning`], [`Kind::System`].
    pub fn at(path: &Path) -> Result<BoundSocket> {
        let name = path.display().to_string();
        let fail = |op: &'static str| {
            let name = name.clone();
            move |e: std::io::Error| Error::new(Kind::System, op, e).at(name)
        };
        let taken = |why: &str| Err(Error::new(Kind::AlreadyRunning, "serve", why).at(&name));
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.exists()) {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(folder).map_err(fail("make the socket's folder"))?;
        }
        check_folder(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(PathBuf::from(lock_path)).map_err(fail("lock the socket"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return taken("another daemon holds its lock");
        }
        if let Ok(about) = fs::symlink_metadata(path) {
            if !about.file_type().is_socket() {
                let why = "the path exists and is not a socket";
                return Err(Error::new(Kind::System, "serve", why).at(&name));
            }
            if matches!(reactor::has_unix_listener(path), Ok(true)) {
                return taken("another daemon answers there");
            }
            fs::remove_file(path).map_err(fail("remove the stale socket"))?;
        }
        let listener = UnixListener::bind(path).map_err(fail("bind the socket"))?;
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, mode).map_err(fail("protect the socket"))?;
        listener.set_nonblocking(true).map_err(fail("prepare the socket"))?;
        Ok(BoundSocket { path: path.to_owned(), listener: Some(listener), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener; once.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // It may have been removed by hand; then there is nothing left to do.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ashlar-{name}-{}/a.sock", std::process::id()))
    }

    #[test]
    fn second_daemon_on_one_socket_is_refused() {
        let path = scratch("one");
        let first = BoundSocket::at(&path).expect("free");
        let mode = fs::metadata(&path).expect("bound").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = BoundSocket::at(&path).err().expect("taken");
        assert_eq!(second.kind, Kind::AlreadyRunning);
        drop(first);
        assert!(!path.exists(), "it goes away with the daemon");
        drop(BoundSocket::at(&path).expect("free again"));
        fs::remove_dir_all(path.parent().expect("a folder")).expect("scratch");
    }

    #[test]
    fn stale_socket_is_replaced_but_a_live_one_is_not() {
        let path = scratch("stale");
        fs::create_dir_all(path.parent().expect("a folder")).expect("scratch");
        let live = UnixListener::bind(&path).expect("bound");
        let refused = BoundSocket::at(&path).err().expect("it answers");
        assert_eq!(refused.kind, Kind::AlreadyRunning);
        drop(live);
        assert!(path.exists(), "what a killed daemon leaves");
        drop(BoundSocket::at(&path).expect("stale"));
        fs::write(&path, "x").expect("a file");
        let refused = BoundSocket::at(&path).err().expect("a file is not removed");
        assert_eq!(refused.kind, Kind::System);
        assert!(path.exists());
        fs::remove_dir_all(path.parent().expect("a folder")).expect("scratch");
    }
}
