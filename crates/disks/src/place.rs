//! Check that the path of an open disk still names the file that was opened.
//!
//! I/O does not show that: a file that was removed or replaced takes writes until it is closed, and
//! then they are lost. No disk is detached; the operator gets the command that saves the data. Each
//! look starts anew, so a problem is over as soon as the path is right again.

use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use geom::Trouble;
use reactor::File;
use rustix::fs::{AtFlags, CWD, FileType, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags};

/// Problems of the path of a regular file; none for simulated files. `refuses`: the file system
/// answered that it is read-only when it was last written. Requests no attributes from the server
/// of a network file system that this machine knows.
pub(crate) fn file_troubles(file: &File, refuses: bool) -> Vec<Trouble> {
    let Some(fd) = file.as_fd() else { return Vec::new() };
    let Ok(open) = look(fd, Path::new(""), AtFlags::EMPTY_PATH) else { return Vec::new() };
    let named = look(CWD, file.path(), AtFlags::empty());
    let moved = file_trouble(file, &open, &named);
    let unwritable =
        if file.facts().is_read_only { None } else { unwritable(file, &open, refuses) };
    moved.into_iter().chain(unwritable).collect()
}

fn look(at: impl AsFd, path: &Path, flags: AtFlags) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK;
    rustix::fs::statx(at, path, flags | AtFlags::STATX_DONT_SYNC, wanted)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    let key = |s: &Statx| (s.stx_dev_major, s.stx_dev_minor, s.stx_ino);
    key(one) == key(other)
}

fn file_trouble(file: &File, open: &Statx, named: &rustix::io::Result<Statx>) -> Option<Trouble> {
    let path = file.path().display();
    let exists = match named {
        Ok(named) if is_same(open, named) => return None,
        Ok(_) => true,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => false,
        Err(e) => return Some(unreachable_path(&path, e)),
    };
    let now = name_now(file, open);
    if open.stx_nlink == 0 || now.as_deref().is_some_and(is_kept_by_nfs) {
        return Some(unlinked(file, exists));
    }
    let other = if exists { "; another file has its path now" } else { "" };
    let lost = if exists {
        "the next start opens the other file"
    } else {
        "the next start does not find it"
    };
    Some(match now {
        Some(now) => {
            let (from, to) = (shell_word(&now), shell_word(file.path()));
            let now = now.display();
            let aside = if exists { format!("mv {to} {to}.other; ") } else { String::new() };
            Trouble::degraded(
                format!(
                    "{path} was renamed to {now} while it is in use{other}: writes go to {now}, \
                     and {lost}"
                ),
                format!("Rename it back: `{aside}mv {from} {to}`."),
            )
        }
        None => Trouble::degraded(
            format!(
                "{path} does not name the file that is in use{other}: its folder was moved, \
                 unmounted or mounted over, or only another hard link is left; writes go to the \
                 file in use, and {lost}"
            ),
            format!(
                "Restore the folder: `ls -l {}` and `findmnt` show what is open and what is \
                 mounted. To copy the data instead, stop its users and type `cp --sparse=always \
                 {} NEW_FILE`.",
                descriptor(file),
                descriptor(file)
            ),
        ),
    })
}

/// No name is left: the last close frees the data. That is a failure, though requests succeed.
fn unlinked(file: &File, exists: bool) -> Trouble {
    let (path, to, from) = (file.path().display(), shell_word(file.path()), descriptor(file));
    let lost = "writes go to a file without a name and are lost when the daemon stops";
    match exists {
        false => Trouble::failed(
            format!("{path} was removed while it is in use: {lost}"),
            format!(
                "Stop its users, save it with `cp --sparse=always {from} {to}`, then restart \
                 the daemon."
            ),
        ),
        true => Trouble::failed(
            format!("{path} was replaced by another file while it is in use: {lost}"),
            format!(
                "Stop its users and save it with `cp --sparse=always {from} {to}.saved`; if \
                 that is the one to be used, type `mv {to}.saved {to}`. Then restart the \
                 daemon."
            ),
        ),
    }
}

fn unreachable_path(path: &impl Display, e: &rustix::io::Errno) -> Trouble {
    let e = std::io::Error::from(*e);
    Trouble::degraded(
        format!(
            "{path} cannot be examined while it is in use: {e}; the next start may not open it"
        ),
        format!("See its folders: `namei -l {path}`."),
    )
}

pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The descriptor as other processes can open it.
fn descriptor(file: &File) -> String {
    let fd = file.as_fd().map_or(-1, |fd| fd.as_raw_fd());
    format!("/proc/{}/fd/{fd}", std::process::id())
}

/// The present path of an open file, if the kernel knows one and it names that file.
fn name_now(file: &File, open: &Statx) -> Option<PathBuf> {
    let now = std::fs::read_link(descriptor(file)).ok()?;
    let named = look(CWD, &now, AtFlags::empty()).ok()?;
    is_same(open, &named).then_some(now)
}

/// A client of NFS keeps a file that was removed while open under such a name, until it is closed.
fn is_kept_by_nfs(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".nfs"))
}

/// The problem of the node of a block device that was opened with these numbers. It is looked at
/// for the device that it names, not for itself: udev makes it anew.
pub(crate) fn node_trouble(path: &Path, (own_major, own_minor): (u32, u32)) -> Option<Trouble> {
    let named = look(CWD, path, AtFlags::empty());
    let path = path.display();
    let goes = format!("requests go to the device {own_major}:{own_minor} that was opened");
    let see = "`lsblk -o NAME,MAJ:MIN,SERIAL` lists the devices";
    match named {
        Ok(s) if FileType::from_raw_mode(s.stx_mode.into()) != FileType::BlockDevice => {
            Some(Trouble::degraded(
                format!("{path} is not a block device any more; {goes}"),
                format!("Restore the node (`udevadm trigger`); {see}."),
            ))
        }
        Ok(s) if (s.stx_rdev_major, s.stx_rdev_minor) == (own_major, own_minor) => None,
        Ok(s) => Some(Trouble::degraded(
            format!(
                "{path} names another device now, {}:{}; {goes}, and the next start opens the \
                 other one",
                s.stx_rdev_major, s.stx_rdev_minor
            ),
            format!("Name the disk by /dev/disk/by-id in ashlar.toml; {see}."),
        )),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Some(Trouble::degraded(
            format!("{path} is gone: the device was unplugged or its node was removed; {goes}"),
            format!("Plug it in again, or restore the node (`udevadm trigger`); {see}."),
        )),
        Err(e) => Some(unreachable_path(&path, &e)),
    }
}

/// The reason why writes fail though the file was opened for writing.
fn unwritable(file: &File, open: &Statx, refuses: bool) -> Option<Trouble> {
    let (path, quoted) = (file.path().display(), shell_word(file.path()));
    let fd = file.as_fd()?;
    let flags = rustix::fs::fstatvfs(fd).ok()?.f_flag;
    // ext4 does not set the flag after an error (Linux 6.12 and later).
    if refuses || flags.contains(StatVfsMountFlags::RDONLY) {
        let target = format!("\"$(findmnt -n -o TARGET -T {quoted})\"");
        return Some(Trouble::degraded(
            format!("the file system of {path} became read-only while it is in use: writes fail"),
            format!(
                "`dmesg` says why. After a remount: `mount -o remount,rw {target}`. After an error \
                 of the file system: stop the daemon, `umount {target}`, check it with `fsck`, \
                 mount it and start the daemon."
            ),
        ));
    }
    if open.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        return Some(Trouble::degraded(
            format!("{path} was made immutable while it is in use: writes fail"),
            format!("`chattr -i {quoted}` makes it writable."),
        ));
    }
    None
}
