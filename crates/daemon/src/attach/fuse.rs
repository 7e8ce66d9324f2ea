//! Attachment by FUSE: a mount with one file, and a loop device on it.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use drivers::local::{GrantedLun, Local, ServingState, request_max};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::LunKey;
use super::host::{
    CORE_LIMIT, Device, ErrorText, FOLDER, TOOL_LIMIT, describe_error, mounts, own_source,
    run_tool, start_ticks, wait,
};
use super::openers::Openers;

/// Type of the mounts, after which they are known.
const FILE_SYSTEM: &str = "fuse.ashlar";

/// A LUN that is a loop device.
pub struct LoopDevice {
    /// The device.
    pub device: Device,
    folder: PathBuf,
    file: PathBuf,
    life: Arc<ServingState>,
}

impl LoopDevice {
    /// Mounts, has a core serve the mount, and makes the loop device.
    pub fn make(local: &Local, key: &LunKey, grant: &GrantedLun) -> Result<LoopDevice, ErrorText> {
        let folder = PathBuf::from(FOLDER).join(format!("{}.{}", key.target, key.lun));
        let channel = open_fuse()?;
        mount_at(&folder, &channel, request_max(&grant.entry.device))?;
        let made = LoopDevice::serve(local, grant, channel, &folder);
        if made.is_err() {
            unmount_at(&folder, true)?;
        }
        made
    }

    fn serve(
        local: &Local,
        grant: &GrantedLun,
        channel: OwnedFd,
        folder: &Path,
    ) -> Result<LoopDevice, ErrorText> {
        let life = Arc::<ServingState>::default();
        let (done, came) = sync_channel(1);
        local.serve(channel, grant.clone(), life.clone(), done);
        let answer = came.recv_timeout(CORE_LIMIT);
        answer.map_err(|_| "its core does not answer".to_owned())?.map_err(|e| e.message)?;
        let unit = &grant.entry.device;
        let file = folder.join(unit.name().replace('/', "-"));
        let device = make_loop(&file, unit.block_bytes(), grant.read_only)?;
        Ok(LoopDevice { device, folder: folder.to_owned(), file, life })
    }

    /// The file behind the device.
    pub fn file(&self) -> String {
        self.file.display().to_string()
    }

    /// Its session has ended.
    pub fn is_over(&self) -> bool {
        self.life.has_ended()
    }

    /// Makes the kernel read the size again.
    pub fn update_size(&self) -> Result<(), ErrorText> {
        // Older kernels use their cached attributes of the file: so these are read first.
        fs::metadata(&self.file).map_err(|e| e.to_string())?;
        run_tool("losetup", &["--set-capacity", &self.device.path()]).map(drop)
    }

    /// Removes it; `force`: hides it now, and removes it after its last user.
    pub fn end(&self, force: bool, used: bool) -> Result<(), ErrorText> {
        let cleared = clear(&self.device);
        if !force {
            cleared?;
        }
        unmount_at(&self.folder, force)?;
        if !used {
            wait(CORE_LIMIT, || self.life.has_ended());
        }
        Ok(())
    }
}

/// Opens the device through which the kernel sends requests.
fn open_fuse() -> Result<OwnedFd, ErrorText> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let next = "load the kernel's module `fuse`";
    opened.map(OwnedFd::from).map_err(|e| format!("{}; or {next}", describe_error("/dev/fuse", &e)))
}

/// Makes the folder and mounts a file system whose requests `channel` receives.
fn mount_at(folder: &Path, channel: &OwnedFd, request_max: u32) -> Result<(), ErrorText> {
    fs::create_dir_all(folder).map_err(|e| describe_error(&folder.display().to_string(), &e))?;
    let at = folder.to_string_lossy();
    if let Some(there) = mounts().into_iter().find(|m| m.at == at) {
        return Err(format!("{at} is taken: {} is mounted there", there.source));
    }
    let fd = channel.as_fd().as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,max_read={request_max}");
    let data = CString::new(data).map_err(|e| e.to_string())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(own_source(), folder, FILE_SYSTEM, flags, data.as_c_str())
        .map_err(|e| describe_error(&format!("mount {at}"), &e.into()))
}

/// Unmounts a file system; `lazily`: hides it now, and unmounts it after its last user.
fn unmount_at(folder: &Path, lazily: bool) -> Result<(), ErrorText> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let flags = flags | UnmountFlags::NOFOLLOW;
    if let Err(e) = unmount(folder, flags)
        && e != rustix::io::Errno::INVAL
    {
        return Err(format!("unmount {}: {e}", folder.display()));
    }
    // The folder may hold something else, or may be missing: both are left alone.
    let _ = fs::remove_dir(folder);
    Ok(())
}

/// Makes one of a file. The kernel passes requests on without a cache of its own, or there is none.
/// Two caches of one disk hold twice the memory, and the second may wait for the first.
fn make_loop(file: &Path, block_bytes: u32, read_only: bool) -> Result<Device, ErrorText> {
    let (file, unit) = (file.to_string_lossy(), block_bytes.to_string());
    let mut words = vec!["--find", "--show", "--direct-io=on", "--partscan"];
    words.extend(["--sector-size", &unit]);
    if read_only {
        words.push("--read-only");
    }
    words.push(&file);
    let path = run_tool("losetup", &words)
        .map_err(|e| format!("{e}: is the kernel's module `loop` there?"))?;
    let name = path.strip_prefix("/dev/").unwrap_or(&path).to_owned();
    let made = Device { name };
    if made.sysfs_attr("loop/dio").as_deref() != Some("1") {
        let _ = run_tool("losetup", &["--detach", &made.path()]);
        return Err(format!("{path}: the kernel refuses direct I/O on it"));
    }
    Ok(made)
}

/// The loop devices of files in a folder.
fn loops_in(folder: &Path) -> Vec<Device> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = all.filter_map(|e| e.file_name().into_string().ok());
    let loops = names.filter(|n| n.starts_with("loop")).map(|name| Device { name });
    loops.filter(|l| backing_file(l).is_some_and(|f| Path::new(&f).starts_with(folder))).collect()
}

/// The file behind it; `None` when there is none any more.
fn backing_file(device: &Device) -> Option<String> {
    device.sysfs_attr("loop/backing_file")
}

/// Releases the file; an error when a process has the device open.
fn clear(device: &Device) -> Result<(), ErrorText> {
    if backing_file(device).is_none() {
        return Ok(());
    }
    run_tool("losetup", &["--detach", &device.path()])?;
    match wait(TOOL_LIMIT / 5, || backing_file(device).is_none()) {
        true => Ok(()),
        false => Err(format!("{} is open; its last close removes it", device.path())),
    }
}

/// Removes the loop devices and mounts that a killed daemon left. Answers a line for people about
/// each.
pub fn clean_up() -> Vec<String> {
    let (mut lines, mut openers) = (Vec::new(), None);
    for mount in mounts().into_iter().filter(|m| m.kind == FILE_SYSTEM) {
        let owner = mount.source.strip_prefix("ashlar:").and_then(|s| s.split_once('.'));
        let Some((pid, began)) = owner else { continue };
        if start_ticks(pid).is_some_and(|at| at.to_string() == began) {
            continue;
        }
        let folder = PathBuf::from(&mount.at);
        for device in loops_in(&folder) {
            let users = device.users(openers.get_or_insert_with(Openers::scan));
            match clear(&device) {
                Ok(()) => lines.push(format!("{} of process {pid} taken away", device.path())),
                Err(e) => lines.push(format!(
                    "{} of process {pid}: {e}; {}: unmount it",
                    device.path(),
                    users.join(", ")
                )),
            }
        }
        match unmount_at(&folder, true) {
            Ok(()) => lines.push(format!("{} of process {pid} unmounted", mount.at)),
            Err(e) => lines.push(e),
        }
    }
    lines
}
