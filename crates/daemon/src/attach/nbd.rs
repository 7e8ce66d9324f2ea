//! Attachment by the kernel's network block device: sockets between it and the cores, one a core.
//!
//! ```text
//!   LEFT BY A DAEMON --taken over: new sockets--+
//!                                               v
//!   nothing --connect--> SERVED --a socket ended--> SERVED BY FEWER --new socket--> SERVED
//!                          |  detach                                   | no right any more
//!                          v                                           v
//!                        gone            in use at the end of the daemon: LEFT, its users wait
//! ```
//! The kernel sends a request again when its socket ended, once `resend` seconds have passed since
//! it was first sent. There is no way to hurry it. The deadline belongs to the request, and a new
//! socket does not see the pending requests of the old one. A daemon that ends in order leaves no
//! such request: it answers all requests that it has read.
//!
//! Invariants
//!  N1  A device is served by the daemon that holds the lock of its LUN; a lock ends with its
//!      process.
//!  N2  A device that was left is taken over only for the same unit, with the same blocks and
//!      rights: its kernel name identifies it.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use drivers::local::{GrantedLun, Local, ServingState};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::LunKey;
use super::host::{CORE_LIMIT, Device, ErrorText, FOLDER, TOOL_LIMIT, describe_error, wait};
use super::netlink::{DeviceRequest, Netlink};
use super::openers::Openers;

/// How long the kernel waits, seconds.
#[derive(Clone, Copy, Debug)]
pub struct NbdTimeouts {
    /// For a daemon, while there is none.
    pub reconnect: u32,
    /// For an answer; then it gives the socket up and sends the request by another.
    pub resend: u32,
}

/// Most sockets of one device; more cores share them.
const SOCKETS_MAX: usize = 16;

/// Longest request, KiB; the kernel's own limit is a quarter of it.
const REQUEST_KIB: &str = "512";

/// Blocks of the kernel's device, bytes.
const BLOCKS: std::ops::RangeInclusive<u32> = 512..=4096;

/// Longest wait for the device's node.
const NODE_LIMIT: Duration = Duration::from_secs(2);

/// A socket of a device.
struct Socket {
    core: usize,
    life: Arc<ServingState>,
}

/// A LUN that is a network block device.
pub struct Nbd {
    /// The device.
    pub device: Device,
    index: u32,
    backend: String,
    waits: NbdTimeouts,
    sockets: Vec<Socket>,
    _lock: File,
}

/// The words by which the kernel knows a device of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Backend {
    target: String,
    lun: u64,
    sockets: usize,
    read_only: bool,
    block: u32,
    /// Serial number of the unit.
    serial: String,
}

impl Backend {
    fn of(key: &LunKey, grant: &GrantedLun, sockets: usize) -> Backend {
        let device = &grant.entry.device;
        Backend {
            target: key.target.clone(),
            lun: key.lun,
            sockets,
            read_only: grant.read_only,
            block: device.block_bytes(),
            serial: device.spec().serial.clone(),
        }
    }

    fn text(&self) -> String {
        let mode = if self.read_only { "ro" } else { "rw" };
        let Backend { target, lun, sockets, block, serial, .. } = self;
        format!("ashlar {target} {lun} {sockets} {mode} {block} {serial}")
    }

    fn parse(text: &str) -> Option<Backend> {
        let mut words = text.splitn(7, ' ');
        if words.next()? != "ashlar" {
            return None;
        }
        Some(Backend {
            target: words.next()?.to_owned(),
            lun: words.next()?.parse().ok()?,
            sockets: words.next()?.parse().ok().filter(|n| (1..=SOCKETS_MAX).contains(n))?,
            read_only: words.next()? == "ro",
            block: words.next()?.parse().ok()?,
            serial: words.next()?.to_owned(),
        })
    }
}

/// A device of ours that the kernel has, whichever process serves it.
pub struct KernelDevice {
    /// The device.
    pub device: Device,
    index: u32,
    backend: Backend,
}

impl KernelDevice {
    /// The LUN that it was made of.
    pub fn key(&self) -> LunKey {
        LunKey { target: self.backend.target.clone(), lun: self.backend.lun }
    }
}

/// Devices of ours that the kernel has.
pub fn kernel_devices() -> Vec<KernelDevice> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = all.filter_map(|e| e.file_name().into_string().ok());
    let one = |name: String| {
        let index = name.strip_prefix("nbd")?.parse().ok()?;
        let device = Device { name };
        let backend = Backend::parse(&device.sysfs_attr("backend")?)?;
        Some(KernelDevice { device, index, backend })
    };
    let mut found: Vec<KernelDevice> = names.filter_map(one).collect();
    found.sort_by_key(|k| k.index);
    found
}

/// Takes the lock of a LUN (N1); an error when another process has it.
fn lock(key: &LunKey) -> Result<File, ErrorText> {
    fs::create_dir_all(FOLDER).map_err(|e| describe_error(FOLDER, &e))?;
    let path = Path::new(FOLDER).join(format!("{}.{}.lock", key.target, key.lun));
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|e| describe_error(&path.display().to_string(), &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(format!("another daemon has attached {key}")),
    }
}

/// Ends left devices of our targets that are not wanted and not in use. Answers the devices in use,
/// and a line for people about each ended one.
pub fn clean_up(
    ours: impl Fn(&LunKey) -> bool,
    wanted: impl Fn(&LunKey) -> bool,
) -> (Vec<LunKey>, Vec<String>) {
    let (mut used, mut lines, mut openers) = (Vec::new(), Vec::new(), None);
    for known in kernel_devices().into_iter().filter(|k| ours(&k.key())) {
        let key = known.key();
        let Ok(_lock) = lock(&key) else { continue };
        let openers = openers.get_or_insert_with(Openers::scan);
        if !known.device.users(openers).is_empty() {
            used.push(key);
        } else if !wanted(&key) {
            let ended = Netlink::open().and_then(|mut n| {
                n.disconnect(known.index).map_err(|e| format!("{}: {e}", known.device.path()))
            });
            lines.push(match ended {
                Ok(()) => format!("{} of a daemon before taken away", known.device.path()),
                Err(e) => e,
            });
        }
    }
    (used, lines)
}

impl Nbd {
    /// Whether the kernel has network block devices, and such as this unit needs.
    pub fn check_support(grant: &GrantedLun) -> Result<Netlink, ErrorText> {
        let block = grant.entry.device.block_bytes();
        if !BLOCKS.contains(&block) {
            return Err(format!("a network block device has no blocks of {block} bytes"));
        }
        Netlink::open()
    }

    /// Takes over the device of this LUN that a daemon left, or makes one.
    pub fn make(
        local: &Local,
        key: &LunKey,
        grant: &GrantedLun,
        waits: NbdTimeouts,
        mut netlink: Netlink,
    ) -> Result<Nbd, ErrorText> {
        let lock = lock(key)?;
        for known in kernel_devices().into_iter().filter(|k| k.key() == *key) {
            let now = Backend::of(key, grant, known.backend.sockets);
            if now == known.backend {
                return Nbd::take_over(local, grant, waits, netlink, known, lock);
            }
            let users = known.device.users(&Openers::scan());
            if !users.is_empty() {
                let (path, users) = (known.device.path(), users.join(", "));
                return Err(format!("{path} is another unit's, or had other rights: {users}"));
            }
            netlink.disconnect(known.index).map_err(|e| format!("netlink: {e}"))?;
        }
        let count = local.cores().clamp(1, SOCKETS_MAX);
        let backend = Backend::of(key, grant, count).text();
        let mut nbd = Nbd {
            device: Device { name: String::new() },
            index: 0,
            backend,
            waits,
            sockets: Vec::new(),
            _lock: lock,
        };
        let ends = (0..count).map(|core| nbd.open(local, grant, core));
        let ends = ends.collect::<Result<Vec<OwnedFd>, ErrorText>>()?;
        nbd.index = netlink
            .connect(&nbd.device_request(grant, &ends))
            .map_err(|e| describe_error("the kernel makes no network block device", &e))?;
        nbd.device.name = format!("nbd{}", nbd.index);
        wait(NODE_LIMIT, || Path::new(&nbd.device.path()).exists());
        // Shorter requests are slower, and as good.
        let limit = format!("/sys/block/{}/queue/max_sectors_kb", nbd.device.name);
        let _ = fs::write(limit, REQUEST_KIB);
        Ok(nbd)
    }

    fn take_over(
        local: &Local,
        grant: &GrantedLun,
        waits: NbdTimeouts,
        mut netlink: Netlink,
        known: KernelDevice,
        lock: File,
    ) -> Result<Nbd, ErrorText> {
        let mut nbd = Nbd {
            device: known.device,
            index: known.index,
            backend: known.backend.text(),
            waits,
            sockets: Vec::new(),
            _lock: lock,
        };
        let ends = (0..known.backend.sockets).map(|core| nbd.open(local, grant, core));
        let ends = ends.collect::<Result<Vec<OwnedFd>, ErrorText>>()?;
        let taken = netlink.reconfigure(nbd.index, &nbd.device_request(grant, &ends));
        taken.map_err(|e| describe_error(&format!("take {} over", nbd.device.path()), &e))?;
        Ok(nbd)
    }

    /// Has a core serve a new socket; answers the kernel's end of it.
    fn open(
        &mut self,
        local: &Local,
        grant: &GrantedLun,
        core: usize,
    ) -> Result<OwnedFd, ErrorText> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (ours, kernels) = pair.map_err(|e| format!("socketpair: {e}"))?;
        let life = Arc::<ServingState>::default();
        let (done, came) = sync_channel(1);
        local.serve_socket(core, ours, grant.clone(), life.clone(), done);
        let answer = came.recv_timeout(CORE_LIMIT);
        answer.map_err(|_| "a core does not answer".to_owned())?.map_err(|e| e.message)?;
        self.sockets.push(Socket { core, life });
        Ok(kernels)
    }

    fn device_request<'a>(
        &'a self,
        grant: &GrantedLun,
        sockets: &'a [OwnedFd],
    ) -> DeviceRequest<'a> {
        DeviceRequest {
            size: grant.bytes(),
            block: u64::from(grant.entry.device.block_bytes()),
            timeout: u64::from(self.waits.resend),
            dead_timeout: u64::from(self.waits.reconnect),
            flags: u64::from(grant.flags()),
            sockets,
            backend: &self.backend,
        }
    }

    /// The kernel has it no longer: another process ended it.
    pub fn is_gone(&self) -> bool {
        match self.device.sysfs_attr("backend") {
            Some(text) => text != self.backend.trim(),
            // Before Linux 5.14 the kernel does not report it.
            None => self.device.sysfs_attr("pid").is_none(),
        }
    }

    /// The kernel has it, and some socket has ended.
    pub fn is_broken(&self) -> bool {
        self.sockets.iter().any(|s| s.life.has_ended()) && !self.is_gone()
    }

    /// Opens sockets anew that have ended; answers how many.
    pub fn reopen_sockets(
        &mut self,
        local: &Local,
        grant: &GrantedLun,
    ) -> Result<usize, ErrorText> {
        let over: Vec<usize> =
            self.sockets.iter().filter(|s| s.life.has_ended()).map(|s| s.core).collect();
        if over.is_empty() {
            return Ok(0);
        }
        self.sockets.retain(|s| !s.life.has_ended());
        let count = over.len();
        let opened = over.iter().map(|core| self.open(local, grant, *core));
        let ends = opened.collect::<Result<Vec<OwnedFd>, ErrorText>>()?;
        let mut netlink = Netlink::open()?;
        let done = netlink.reconfigure(self.index, &self.device_request(grant, &ends));
        done.map_err(|e| describe_error(&self.device.path(), &e))?;
        Ok(count)
    }

    /// Passes the size to the kernel.
    pub fn update_size(&self, grant: &GrantedLun) -> Result<(), ErrorText> {
        let done = Netlink::open()?.reconfigure(self.index, &self.device_request(grant, &[]));
        done.map_err(|e| describe_error(&self.device.path(), &e))
    }

    /// Takes it away.
    pub fn end(&self, used: bool) -> Result<(), ErrorText> {
        if !self.is_gone() {
            let ended = Netlink::open()?.disconnect(self.index);
            ended.map_err(|e| describe_error(&self.device.path(), &e))?;
        }
        if !used {
            wait(CORE_LIMIT, || self.sockets.iter().all(|s| s.life.has_ended()));
        }
        Ok(())
    }

    /// Leaves it to the next daemon: requests that were read are answered, its users wait.
    pub fn release(&self, local: &Local) {
        self.sockets.iter().for_each(|s| local.retire(&s.life));
        wait(TOOL_LIMIT, || self.sockets.iter().all(|s| s.life.has_ended()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_backend_identifier_survives_formatting_and_parsing() {
        let backend = Backend {
            target: "here".into(),
            lun: 7,
            sockets: 2,
            read_only: true,
            block: 4096,
            serial: "a b c".into(),
        };
        assert_eq!(backend.text(), "ashlar here 7 2 ro 4096 a b c");
        assert_eq!(Backend::parse(&backend.text()), Some(backend));
        for other in ["", "ashlar", "ashlar a b", "nbdkit here 7 2 ro 4096 s"] {
            assert_eq!(Backend::parse(other), None, "{other}");
        }
        assert_eq!(Backend::parse("ashlar here 7 99 rw 512 s"), None, "too many sockets");
    }
}
