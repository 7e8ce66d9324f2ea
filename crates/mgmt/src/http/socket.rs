//! The socket's place in the file system: one daemon each, a stale one is taken over.
//!
//! ```text
//! lock PATH.lock --held by another--> AlreadyRunning
//!     |
//! PATH exists? --a daemon answers--> AlreadyRunning      (one that holds no lock)
//!     |no, or no answer: removed
//! bind, mode 0600                 or: take the socket that the service manager bound to PATH
//! ```
//! The lock file is never removed: its lock, not its existence, proves that a daemon runs. A passed
//! socket is not removed either: the service manager starts the daemon at the next connection.

use crate::api::{Error, Kind, Result};
use crate::client::check_folder;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A bound socket. Its path is removed with this value, unless it was passed.
pub struct BoundSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
    is_passed: bool,
    _lock: fs::File,
}

impl BoundSocket {
    /// Takes the place.
    ///
    /// # Errors
    /// [`Kind::AlreadyRunning`], [`Kind::System`].
    pub fn at(path: &Path) -> Result<BoundSocket> {
        let name = path.display().to_string();
        let fail = |op: &'static str| system(path, op);
        let taken = |why: &str| Err(Error::new(Kind::AlreadyRunning, "serve", why).at(&name));
        let lock = lock(path)?;
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
        let path = path.to_owned();
        Ok(BoundSocket { path, listener: Some(listener), is_passed: false, _lock: lock })
    }

    /// Takes a listener that the service manager bound to the path.
    ///
    /// # Errors
    /// [`Kind::AlreadyRunning`]; [`Kind::System`], also if the listener has another path.
    pub fn passed(path: &Path, listener: UnixListener) -> Result<BoundSocket> {
        let address = listener.local_addr().map_err(system(path, "take the passed socket"))?;
        let bound = address.as_pathname().map(Path::to_owned).unwrap_or_default();
        let resolved = fs::canonicalize(&bound).ok();
        let is_same = resolved.is_some() && resolved == fs::canonicalize(path).ok();
        if bound != path && !is_same {
            let why = format!(
                "the service manager passed the socket {}, but the daemon is to serve {}",
                bound.display(),
                path.display()
            );
            let error = Error::new(Kind::System, "take the passed socket", why);
            let next = "Give `ListenStream=` of the socket unit and `socket` of [daemon] one path.";
            return Err(error.at(path.display().to_string()).next(next));
        }
        let lock = lock(path)?;
        listener.set_nonblocking(true).map_err(system(path, "prepare the socket"))?;
        let path = path.to_owned();
        Ok(BoundSocket { path, listener: Some(listener), is_passed: true, _lock: lock })
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
        if !self.is_passed {
            // It may have been removed by hand; then there is nothing left to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An error of the operating system for the socket at a path.
fn system(path: &Path, op: &'static str) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let name = path.display().to_string();
    move |e| Error::new(Kind::System, op, e).at(name)
}

/// Takes the lock of a socket; makes its folder.
fn lock(path: &Path) -> Result<fs::File> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.exists()) {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(system(path, "make the socket's folder"))?;
    }
    check_folder(path)?;
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let lock = options.open(PathBuf::from(lock_path)).map_err(system(path, "lock the socket"))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let why = "another daemon holds its lock";
        let name = path.display().to_string();
        return Err(Error::new(Kind::AlreadyRunning, "serve", why).at(name));
    }
    Ok(lock)
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
    #[test]
    fn passed_socket_is_served_and_outlives_the_daemon() {
        let path = scratch("passed");
        fs::create_dir_all(path.parent().expect("a folder")).expect("scratch");
        let bound = UnixListener::bind(&path).expect("bound by the service manager");
        let pass = || bound.try_clone().expect("a descriptor");
        let mut first = BoundSocket::passed(&path, pass()).expect("free");
        assert!(first.take().is_some());
        let second = BoundSocket::passed(&path, pass()).err().expect("the lock is taken");
        assert_eq!(second.kind, Kind::AlreadyRunning);
        drop(first);
        assert!(path.exists(), "the service manager listens there");
        let other = path.with_file_name("b.sock");
        let refused = BoundSocket::passed(&other, pass()).err().expect("another path");
        assert!(refused.to_string().contains("b.sock"), "{refused}");
        assert!(refused.advice().contains("ListenStream="), "{refused}");
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(path.parent().expect("a folder"), &link).expect("scratch");
        drop(BoundSocket::passed(&link.join("a.sock"), pass()).expect("another name of the path"));
        fs::remove_dir_all(path.parent().expect("a folder")).expect("scratch");
    }
}
