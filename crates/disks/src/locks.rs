//! Locks that keep a second writer away from an image file or a device node.
//!
//! Two kinds are held together while a file is open, because programs request one or the other:
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

/// Permissions that a disk leaves to no other program.
const REFUSED: [u64; 2] = [WRITE, RESIZE];

/// Permissions that a disk uses.
fn used(read_only: bool) -> &'static [u64] {
    if read_only { &[CONSISTENT_READ] } else { &[CONSISTENT_READ, WRITE, RESIZE] }
}

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

/// One writer, or any number of readers. Runs on a thread that may wait.
pub(crate) fn take(file: &File, read_only: bool) -> Result<(), LockHolder> {
    retry(|| flock(file, read_only))?;
    retry(|| qemu(file, read_only))
}

/// QEMU's locks alone: for device nodes, whose flock(2) belongs to udev.
pub(crate) fn take_of_node(file: &File, read_only: bool) -> Result<(), LockHolder> {
    retry(|| qemu(file, read_only))
}

/// Refuses a file that [`take`] would refuse. The caller closes `file`, which ends its flock(2):
/// that lock can only be tried.
pub(crate) fn check(file: &File, read_only: bool) -> Result<(), LockHolder> {
    flock(file, read_only)?;
    check_of_node(file, read_only)
}

/// Refuses a device node that [`take_of_node`] would refuse. Takes no lock.
pub(crate) fn check_of_node(file: &File, read_only: bool) -> Result<(), LockHolder> {
    if is_refused(file, read_only) { Err(LockHolder::Qemu) } else { Ok(()) }
}

fn retry(mut once: impl FnMut() -> Result<(), LockHolder>) -> Result<(), LockHolder> {
    let refused = still_refused(vec![()], |_| once());
    refused.first().map_or(Ok(()), |(_, holder)| Err(*holder))
}

/// Those of `wanted` that `once` refuses at every look, each with why. All are looked at together:
/// the caller waits as long for many as for one, at most 1.5 s.
pub fn still_refused<T, E>(
    wanted: Vec<T>,
    mut once: impl FnMut(&T) -> Result<(), E>,
) -> Vec<(T, E)> {
    let mut look = |wanted: Vec<T>| -> Vec<(T, E)> {
        let refused = wanted.into_iter().filter_map(|one| once(&one).err().map(|e| (one, e)));
        refused.collect()
    };
    let mut refused = look(wanted);
    for _ in 0..RETRIES {
        if refused.is_empty() {
            break;
        }
        std::thread::park_timeout(PAUSE);
        refused = look(refused.into_iter().map(|(one, _)| one).collect());
    }
    refused
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
/// continue to refuse each other.
fn qemu(file: &File, read_only: bool) -> Result<(), LockHolder> {
    let own = || {
        let used = used(read_only).iter().map(|p| USED_BASE + p);
        used.chain(REFUSED.iter().map(|p| REFUSED_BASE + p))
    };
    let taken = own().all(|at| !is_conflict(file.share_byte(at)));
    // A file system without such locks has no holders of them either.
    if taken && !is_refused(file, read_only) {
        return Ok(());
    }
    own().for_each(|at| drop(file.release_byte(at)));
    Err(LockHolder::Qemu)
}

/// Whether another holder uses a permission that a disk refuses, or refuses one that it uses.
fn is_refused(file: &File, read_only: bool) -> bool {
    let used = used(read_only).iter().map(|p| REFUSED_BASE + p);
    let mut others = used.chain(REFUSED.iter().map(|p| USED_BASE + p));
    others.any(|at| file.is_byte_held(at).unwrap_or(false))
}

/// Errors other than these mean that the file system has no such locks.
fn is_conflict(done: std::io::Result<()>) -> bool {
    use std::io::ErrorKind::{PermissionDenied, WouldBlock};
    done.is_err_and(|e| [WouldBlock, PermissionDenied].contains(&e.kind()))
}
