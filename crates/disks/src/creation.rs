//! Check in advance that an image file can be created, and that its file system holds its size.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FsWord, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::medium::{folder_of, followed};

/// `f_type` of FAT (statfs(2)), and the size of the largest file there, bytes.
const FAT: FsWord = 0x4d44;
const FAT_BYTES_MAX: u64 = (1 << 32) - 1;

/// Other file systems hold files of so many bytes; whether they hold larger ones is tried.
const HELD_BYTES: u64 = 2 << 40;

/// Refuses a file that cannot be created at `path` with so many bytes. Leaves nothing behind.
pub(crate) fn check(path: &Path, bytes: u64) -> io::Result<()> {
    let path = followed(path);
    let folder = folder_of(&path);
    rustix::fs::accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    check_size(folder, bytes)
}

/// Refuses a size beyond the limit of the daemon, or of the file system of `folder`. Above
/// [`HELD_BYTES`] a file without a name is given that size: no data is written, and the file is
/// removed when it is closed.
pub(crate) fn check_size(folder: &Path, bytes: u64) -> io::Result<()> {
    let too_large = || Err(io::Error::from(Errno::FBIG));
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| bytes > limit) {
        return too_large();
    }
    if bytes > FAT_BYTES_MAX && rustix::fs::statfs(folder)?.f_type == FAT {
        return too_large();
    }
    if bytes <= HELD_BYTES {
        return Ok(());
    }
    let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // Some file systems have no files without a name: then only the creation shows it.
    let Ok(unnamed) = rustix::fs::open(folder, how, Mode::from_raw_mode(0o600)) else {
        return Ok(());
    };
    match rustix::fs::ftruncate(&unnamed, bytes) {
        Err(Errno::FBIG) => too_large(),
        _ => Ok(()),
    }
}
