//! Locks that keep a second writer away from an image file or a device node.
//!
//! Two kinds are held together while a file is open, because programs ask for one or the other:
//!  * flock(2) on the whole file: other disks of Ashlar, and tools such as `flock`.
//!  * QEMU's: shared locks of the open file on single bytes, one for each permission in use
//!    ([`USED_BASE`] + permission) and one for each that others must not use ([`REFUSED_BASE`] +
//!    permission); see block/file-posix.c of QEMU. No byte is ever locked exclusively.

use std::time::Duration;

use reactor::File;
use rustix::fs::FlockOperation;

/// First byte of the permissions in use.
const USED_BASE: u64 = 100;
/// First byte of the permissions that others must not use.
const REFUSED_BASE: u64 = 200;

/// QEMU's numbers of permissions, as far as they matter here.
const CONSISTENT_READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// How often a locked file is looked at again before it is refused, and the pause before each. The
/// kernel releases the files of a daemon that was killed under load only when its last requests
/// have ended. An immediate restart should not fail for that reason.
const RETRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(25);

/// Why a file cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// By a disk or a program that uses flock(2).
    Flock,
    /// By a program that locks as QEMU does.
    Qemu,
}

impl LockHolder {
    /// For people, behind the name of the file.
    pub(crate) fn text(self, read_only: bool) -> &'static str {
        match (self, read_only) {
            (LockHolder::Flock, _) => {
                "is locked: another disk or process uses it; stop that first (`fuser` names it)"
            }
            (LockHolder::Qemu, false) => {
                "another program (QEMU, or one that locks as it does) has it open; stop that \
                 first (`fuser -v` names it)"
            }
            (LockHolder::Qemu, true) => {
                "another program (QEMU, or one that locks as it does) has it open for writing; \
                 stop that first (`fuser -v` names it)"
            }
        }
    }
}

/// One writer, or any number of readers. Runs on the control thread, which may wait.
pub(crate) fn take(file: &File, read_only: bool) -> Result<(), LockHolder> {
    retry(|| flock(file, read_only))?;
    retry(|| qemu(file, read_only))
}

/// QEMU's locks alone: for device nodes, whose flock(2) belongs to udev.
pub(crate) fn take_of_node(file: &File, read_only: bool) -> Result<(), LockHolder> {
    retry(|| qemu(file, read_only))
}

fn retry(mut once: impl FnMut() -> Result<(), LockHolder>) -> Result<(), LockHolder> {
    let mut done = once();
    for _ in 0..RETRIES {
        if done.is_ok() {
            break;
        }
        std::thread::park_timeout(PAUSE);
        done = once();
    }
    done
}

fn flock(file: &File, read_only: bool) -> Result<(), LockHolder> {
    let Some(fd) = file.as_fd() else { return Ok(()) };
    let how = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(fd, how) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LockHolder::Flock),
        // File systems without locks (some network ones): nothing to be had.
        _ => Ok(()),
    }
}

/// First takes the own locks, then looks at those of others: of two programs that do so at once, at
/// least one sees the other. If this program does, it releases its locks again, so that both do not
/// go on refusing each other.
fn qemu(file: &File, read_only: bool) -> Result<(), LockHolder> {
    let used: &[u64] =
        if read_only { &[CONSISTENT_READ] } else { &[CONSISTENT_READ, WRITE, RESIZE] };
    let refused = [WRITE, RESIZE];
    let own = || {
        let used = used.iter().map(|p| USED_BASE + p);
        used.chain(refused.iter().map(|p| REFUSED_BASE + p))
    };
    let others = || {
        let used = used.iter().map(|p| REFUSED_BASE + p);
        used.chain(refused.iter().map(|p| USED_BASE + p))
    };
    let taken = own().all(|at| !is_conflict(file.share_byte(at)));
    // A file system without such locks has no holders of them either.
    if taken && !others().any(|at| file.is_byte_held(at).unwrap_or(false)) {
        return Ok(());
    }
    own().for_each(|at| drop(file.release_byte(at)));
    Err(LockHolder::Qemu)
}

/// Errors other than these mean that the file system has no such locks.
fn is_conflict(done: std::io::Result<()>) -> bool {
    use std::io::ErrorKind::{PermissionDenied, WouldBlock};
    done.is_err_and(|e| [WouldBlock, PermissionDenied].contains(&e.kind()))
}
