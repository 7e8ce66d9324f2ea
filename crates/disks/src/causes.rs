//! Causes of failed calls on image files, with the command that shows or ends each.

use std::io::Error;
use std::path::Path;

use geom::Trouble;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::place::shell_word;

/// The reason why a call on the file at `path`, to be `bytes` large, failed with `e`; None where
/// the text of `e` is enough.
pub(crate) fn of(path: &Path, e: &Error, bytes: u64) -> Option<String> {
    let errno = Errno::from_io_error(e)?;
    let quoted = shell_word(path);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let within = shell_word(folder);
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

/// Below so many free bytes a file system counts as full: the disk reports that by its space.
const FULL_BYTES: u64 = 16 << 20;

/// The reason why writes to `path` fail for lack of space though its file system has `free` bytes
/// left; None where it has not.
pub(crate) fn of_short_writes(path: &Path, free: u64) -> Option<Trouble> {
    let quoted = shell_word(path);
    (free >= FULL_BYTES).then(|| {
        Trouble::degraded(
            format!(
                "writes to {} failed for lack of room in the last 5 minutes, and its file system \
                 has room now: it was full then, a quota is used up, or the file is as large as \
                 it may be",
                path.display()
            ),
            format!(
                "Nothing, if the file system was full. Else raise the limit: `repquota -a` shows \
                 quotas, `prlimit --fsize --pid {}` the limit of the daemon (LimitFSIZE), \
                 `ls -ls {quoted}` the file.",
                std::process::id()
            ),
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_name_the_path_the_limit_and_the_command() {
        let path = Path::new("/nowhere/a b.img");
        let text = |errno: Errno| of(path, &Error::from(errno), 4096);
        assert!(text(Errno::FBIG).unwrap().contains("4096 bytes"));
        assert!(text(Errno::NOSPC).unwrap().contains("`df -h /nowhere`"));
        assert!(text(Errno::DQUOT).unwrap().contains("quota"));
        assert!(text(Errno::ROFS).unwrap().contains("`findmnt -T /nowhere`"));
        assert_eq!(text(Errno::PERM), None, "no attribute forbids it");
        assert_eq!(text(Errno::IO), None);
    }

    #[test]
    fn short_writes_are_explained_where_the_file_system_is_not_full() {
        let path = Path::new("/srv/a b.img");
        assert_eq!(of_short_writes(path, FULL_BYTES - 1), None);
        let finding = of_short_writes(path, FULL_BYTES).unwrap();
        assert!(finding.why.contains("writes to /srv/a b.img failed"), "{}", finding.why);
        assert!(finding.action.contains("`ls -ls '/srv/a b.img'`"), "{}", finding.action);
    }
}
