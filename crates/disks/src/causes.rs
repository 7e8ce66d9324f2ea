//! Causes of failed calls on image files, with the command that shows or ends each.

use std::io::Error;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::place::word;

/// Why a call on the file at `path`, to be `bytes` large, failed with `e`; None where the text of
/// `e` says it all.
pub(crate) fn of(path: &Path, e: &Error, bytes: u64) -> Option<String> {
    let errno = Errno::from_io_error(e)?;
    let quoted = word(path);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let within = word(folder);
    Some(match errno {
        Errno::FBIG => format!(
            "a file of {bytes} bytes is larger than its file system allows, or than the daemon \
             may write (`ulimit -f`, LimitFSIZE of the service): {e}"
        ),
        Errno::NOSPC => format!(
            "its file system is full: {e}; `df -h {within}` shows its space, `df -i {within}` its \
             inodes"
        ),
        Errno::DQUOT => format!("the quota of its owner is used up: {e}; `repquota -a` shows it"),
        Errno::ROFS => format!("its file system is read-only: {e}; `findmnt -T {within}` shows it"),
        Errno::PERM | Errno::ACCESS => {
            let (what, flag, on) = marked(path, &quoted).or_else(|| marked(folder, &within))?;
            format!("{on} is {what}: {e}; `chattr -{flag} {on}` ends that")
        }
        _ => return None,
    })
}

/// The attribute that forbids writing, and the flag of chattr(1).
fn marked<'a>(path: &Path, quoted: &'a str) -> Option<(&'static str, char, &'a str)> {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE).ok()?;
    let has = |attribute| found.stx_attributes.contains(attribute);
    match (has(StatxAttributes::IMMUTABLE), has(StatxAttributes::APPEND)) {
        (true, _) => Some(("immutable", 'i', quoted)),
        (_, true) => Some(("append-only", 'a', quoted)),
        _ => None,
    }
}
