//! Check that the files and devices behind the disks exist and fit.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::DiskState;
use crate::config::{Catalog, DiskConfig};
use rustix::fs::{FsWord, statfs};
use serde_json::Value;
use std::fs::{Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// `f_type` of tmpfs and ramfs (statfs(2)).
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// `f_type` of file systems known to punch holes: ext2 to 4, XFS, Btrfs, tmpfs, overlayfs (as its
/// upper layer does), ZFS, F2FS.
const PUNCH_HOLES: [FsWord; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010];

/// Least size of a disk, in bytes: one sector.
const SECTOR_BYTES_MIN: u64 = 512;

/// See the module.
pub const CHECK: Check =
    Check { id: "backing", doc: "whether files and devices of disks exist and fit", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return ok("no configuration to look at") };
    let mounts = std::fs::read_to_string(facts.proc.join("mounts")).unwrap_or_default();
    let mut out = Vec::new();
    let mut seen = 0;
    for disk in &config.disk {
        if let Some(path) = disk.params.get("path").and_then(|p| p.as_str()) {
            seen += 1;
            let path = Path::new(path);
            let disks = facts.daemon.as_ref().map_or(&[][..], |state| &state.disks);
            let is_open = |d: &DiskState| !d.is_gone() || d.losses().next().is_some();
            let served = disks.iter().find(|d| d.name == disk.name && is_open(d));
            match served.filter(|_| !path.exists()) {
                Some(served) => out.push(removed(served, path)),
                None => out.extend(check_file(disk, path, &mounts, &facts.catalog)),
            }
        }
    }
    if out.is_empty() { ok(format!("{seen} looked at, all fit")) } else { out }
}

/// The file is missing while the daemon has the disk: `create = true` would make an empty one.
fn removed(disk: &DiskState, path: &Path) -> CheckFinding {
    let trouble = disk.losses().next().or(disk.troubles.first());
    let action = trouble.map(|trouble| trouble.action.clone());
    bad(
        Severity::Fail,
        format!("disk {}: there is no {}, though the daemon serves it", disk.name, path.display()),
        "its data is lost when the daemon stops",
        action.unwrap_or_else(|| "ashlar status".to_owned()),
    )
}

fn check_file(
    disk: &DiskConfig,
    path: &Path,
    mounts: &str,
    catalog: &Catalog,
) -> Vec<CheckFinding> {
    let (name, display) = (&disk.name, path.display());
    let Ok(about) = std::fs::metadata(path) else {
        // A file that is to be made with a size needs only its folder.
        let has_size = disk.params.keys().any(|k| k.contains("size"));
        let folder = path.parent().unwrap_or(Path::new("/"));
        if has_size && folder.is_dir() {
            return check_file_system(disk, folder);
        }
        let fix = if has_size {
            format!("mkdir -p {}", folder.display())
        } else if catalog.disk(&disk.kind).is_device {
            format!("lsblk -p shows the devices there are; correct `path` ({display})")
        } else {
            format!("truncate -s SIZE {display}, or correct `path`")
        };
        let finding = format!("disk {name}: there is no {display}");
        return vec![bad(Severity::Fail, finding, "the disk cannot be created", fix)];
    };
    let device = about.file_type().is_block_device();
    let used = mounts.lines().any(|l| l.split(' ').next() == path.to_str());
    if device && used {
        return vec![bad(
            Severity::Fail,
            format!("disk {name}: {display} is mounted here"),
            "its file system would be damaged by writes from two sides",
            format!("umount {display}"),
        )];
    }
    if !device && !about.is_file() {
        // Opening a FIFO would wait for its writer.
        return vec![bad(
            Severity::Fail,
            format!("disk {name}: {display} is neither a file nor a block device"),
            "the disk cannot be created",
            format!("ls -l {display} shows it; correct `path`"),
        )];
    }
    let writes = disk.params.get("read_only") != Some(&Value::Bool(true)) && !is_read_only(&about);
    if let Err(e) = OpenOptions::new().read(true).write(writes).open(path) {
        let access = if writes { "writing" } else { "reading" };
        return vec![bad(
            Severity::Fail,
            format!("disk {name}: {display} cannot be opened for {access}: {e}"),
            "the disk cannot be created",
            format!("chown USER {display}, with the user that runs the daemon"),
        )];
    }
    let has_size = disk.params.contains_key("size");
    if !device && about.len() < SECTOR_BYTES_MIN && !has_size {
        return vec![bad(
            Severity::Fail,
            format!("disk {name}: {display} has {} bytes, less than a sector", about.len()),
            "the disk cannot be created",
            format!("truncate -s SIZE {display}, or set `size`"),
        )];
    }
    if device { Vec::new() } else { check_file_system(disk, path) }
}

/// Whether it is a block device that the kernel refuses to write: a disk on it is read-only.
fn is_read_only(about: &Metadata) -> bool {
    let (major, minor) = (rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev()));
    let flag = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    about.file_type().is_block_device() && flag.is_ok_and(|flag| flag.trim() == "1")
}

/// Findings about the file system under a disk's file.
fn check_file_system(disk: &DiskConfig, path: &Path) -> Vec<CheckFinding> {
    let Ok(about) = statfs(path) else { return Vec::new() };
    let (name, display) = (&disk.name, path.display());
    if IN_MEMORY.contains(&about.f_type) {
        return vec![bad(
            Severity::Warn,
            format!("disk {name}: {display} is in memory (tmpfs)"),
            "its contents are lost when this machine restarts",
            "mv it to a real file system and change `path`",
        )];
    }
    if !PUNCH_HOLES.contains(&about.f_type) {
        return vec![bad(
            Severity::Warn,
            format!("disk {name}: the file system of {display} may not support punching holes"),
            "space that initiators discard may not be freed",
            "mv it to ext4, XFS or Btrfs and change `path`",
        )];
    }
    Vec::new()
}
