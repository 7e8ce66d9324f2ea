//! Locks on single bytes of a file that belong to the open file (F_OFD_SETLK, fcntl(2)).
//!
//! rustix offers only the locks of a process, which end with any close of the file.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

fn shape(kind: libc::c_int, at: u64) -> io::Result<libc::flock> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::try_from(at).map_err(too_far)?,
        l_len: 1,
        l_pid: 0, // the kernel demands it
    })
}

fn call(fd: BorrowedFd<'_>, what: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: these commands read and write one `flock`, which is ours.
    match unsafe { libc::fcntl(fd.as_raw_fd(), what, ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Takes a shared lock on the byte at `at`. Does not wait.
pub(crate) fn share(fd: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    call(fd, libc::F_OFD_SETLK, &mut shape(libc::F_RDLCK, at)?)
}

/// Gives up the lock on the byte at `at`.
pub(crate) fn release(fd: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    call(fd, libc::F_OFD_SETLK, &mut shape(libc::F_UNLCK, at)?)
}

/// True when another open file or process has a lock of any kind on the byte at `at`.
pub(crate) fn is_held(fd: BorrowedFd<'_>, at: u64) -> io::Result<bool> {
    let mut lock = shape(libc::F_WRLCK, at)?;
    call(fd, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}
