//! SCSI devices of the machine: their nodes, their presence, and their other users.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::Segs;
use bio::sync::{Condvar, Mutex};
use geom::{Core, Local};
use reactor::{BlockingScsiNode, ScsiAnswer, ScsiNode, ScsiRequest};

use super::super::numbers::Numbers;
use super::IO_MAX_BYTES;

/// Most devices that a bus has had since it was opened.
const NUMBERS_MAX: usize = 1024;
/// Time between two looks at the devices.
const LOOK: Duration = Duration::from_secs(2);

/// A device that is there and ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDevice {
    /// Where it is, as the kernel counts: host, channel, target, LUN.
    pub location: String,
    /// Bytes that one command may move.
    pub most_bytes: u32,
    /// Another one with each device that is found.
    pub generation: u64,
}

/// Commands to one device, from one core.
pub trait Node {
    /// Begins a command, see [`ScsiNode::send`].
    ///
    /// # Errors
    /// The kernel's, with the data.
    fn send(&self, request: &ScsiRequest<'_>, data: Segs) -> Result<(), (io::Error, Segs)>;

    /// The next command that has ended, see [`ScsiNode::receive`].
    ///
    /// # Errors
    /// The device was removed.
    fn receive(&self) -> io::Result<Option<ScsiAnswer>>;

    /// Waits until one may have ended.
    fn ready(&self) -> Local<'_, io::Result<()>>;
}

impl Node for ScsiNode {
    fn send(&self, request: &ScsiRequest<'_>, data: Segs) -> Result<(), (io::Error, Segs)> {
        ScsiNode::send(self, request, data)
    }

    fn receive(&self) -> io::Result<Option<ScsiAnswer>> {
        ScsiNode::receive(self)
    }

    fn ready(&self) -> Local<'_, io::Result<()>> {
        Box::pin(ScsiNode::ready(self))
    }
}

/// Callback for a device, by number, that appeared or disappeared.
pub type DeviceCallback = Arc<dyn Fn(u64) + Send + Sync>;

/// Interface of a machine to a bus. Devices are identified by their number in the configuration.
pub trait Machine: Send + Sync {
    /// Numbers of all devices are below it, also of removed ones.
    fn devices(&self) -> u64;

    /// Numbers of the devices that the configuration names.
    fn named(&self) -> Vec<u64>;

    /// The configuration names these devices from now on. Returns the numbers of the removed ones
    /// and of the added ones. A removed one is kept for this bus until [`Machine::release`].
    ///
    /// # Errors
    /// There were too many since the bus was opened. Nothing has changed then.
    fn set_devices(&self, devices: &[PathBuf]) -> Result<[Vec<u64>; 2], String>;

    /// A device has no command of this bus any more: it is given back, unless it is named again.
    fn release(&self, at: u64);

    /// A device that is named, or the reason why it is not available.
    ///
    /// # Errors
    /// That sentence, the device first.
    fn find_device(&self, at: u64) -> Result<FoundDevice, String>;

    /// Watches the devices from now on, and reports those that appear and disappear.
    fn begin(self: Arc<Self>, news: DeviceCallback);

    /// Each device was looked at once.
    fn is_scanned(&self) -> bool;

    /// The devices are given back.
    fn close(&self);

    /// A core's own node of a device.
    ///
    /// # Errors
    /// The kernel's.
    fn open(&self, at: u64, core: &Rc<Core>) -> io::Result<Rc<dyn Node>>;

    /// Resets a device without blocking, and reports whether the reset succeeded.
    fn reset(&self, at: u64, done: Box<dyn FnOnce(bool) + Send>);
}

/// A device that is had.
struct OpenDevice {
    found: FoundDevice,
    node: PathBuf,
    /// Its block device, taken for ourselves (S1); a device that is no disk has none.
    _taken: Option<OwnedFd>,
}

struct DeviceTable {
    devices: Numbers<PathBuf>,
    open_devices: BTreeMap<u64, OpenDevice>,
    failures: BTreeMap<u64, String>,
    generation: u64,
    is_scanned: bool,
    closed: bool,
}

impl DeviceTable {
    fn is_named(&self, at: u64) -> bool {
        usize::try_from(at).is_ok_and(|at| self.devices.is_named(at))
    }

    fn named(&self) -> impl Iterator<Item = (u64, &PathBuf)> {
        self.devices.named().map(|(at, device)| (at as u64, device))
    }
}

/// This machine.
pub(super) struct Linux {
    state: Mutex<DeviceTable>,
    stop: Condvar,
}

impl Linux {
    pub(super) fn new(devices: Vec<PathBuf>) -> Linux {
        let state = DeviceTable {
            devices: Numbers::new(devices),
            open_devices: BTreeMap::new(),
            failures: BTreeMap::new(),
            generation: 0,
            is_scanned: false,
            closed: false,
        };
        Linux { state: Mutex::new(state), stop: Condvar::new() }
    }

    /// Examines one device; true: it was added, removed or exchanged.
    fn check_device(&self, at: u64, device: &Path) -> bool {
        let had = self
            .state
            .lock()
            .open_devices
            .get(&at)
            .map(|had| (had.node.clone(), had.found.clone()));
        let now = identify(device);
        if let (Some((node, found)), Ok((now_node, place))) = (&had, &now)
            && node == now_node
            && found.location == *place
        {
            return false;
        }
        // The old device is given back before the same device is taken again.
        drop(self.state.lock().open_devices.remove(&at));
        let taken = now.and_then(|(node, place)| take(node, place));
        let mut state = self.state.lock();
        match taken.map_err(|why| format!("{}: {why}", device.display())) {
            // It was removed meanwhile.
            _ if !state.is_named(at) => had.is_some(),
            Ok((node, mut found, taken)) => {
                state.generation += 1;
                found.generation = state.generation;
                state.failures.remove(&at);
                state.open_devices.insert(at, OpenDevice { found, node, _taken: taken });
                true
            }
            Err(why) => {
                state.failures.insert(at, why);
                had.is_some()
            }
        }
    }

    fn watch(&self, news: &DeviceCallback) {
        loop {
            let named: Vec<(u64, PathBuf)> =
                self.state.lock().named().map(|(at, device)| (at, device.clone())).collect();
            for (at, device) in named {
                if self.check_device(at, &device) {
                    news(at);
                }
            }
            let mut state = self.state.lock();
            state.is_scanned = true;
            if !state.closed {
                state = self.stop.wait_timeout(state, LOOK);
            }
            if state.closed {
                state.open_devices.clear();
                return;
            }
        }
    }
}

/// The folder of the kernel's list of generic nodes, and of block devices.
const NODES: &str = "/sys/class/scsi_generic";
const BLOCKS: &str = "/sys/class/block";

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The only entry of a folder.
fn entry(folder: &Path) -> Option<String> {
    let entry = fs::read_dir(folder).ok()?.next()?.ok()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// The node of a device, whichever of its names was given, and where it is.
fn identify(device: &Path) -> Result<(PathBuf, String), String> {
    let real = fs::canonicalize(device).map_err(|e| e.to_string())?;
    let name = name_of(&real);
    let block = Path::new(BLOCKS).join(&name);
    let node = if Path::new(NODES).join(&name).exists() {
        name
    } else if block.join("partition").exists() {
        return Err("a partition is not accepted; name the whole disk".into());
    } else {
        entry(&block.join("device/scsi_generic")).ok_or(
            "not a SCSI device of this machine, or the kernel module `sg` is not loaded; `lsscsi \
             -g` lists SCSI devices",
        )?
    };
    let place = fs::canonicalize(Path::new(NODES).join(&node).join("device"));
    let place = place.map_err(|e| format!("{node}: {e}"))?;
    Ok((Path::new("/dev").join(node), name_of(&place)))
}

/// S1
fn take(node: PathBuf, place: String) -> Result<(PathBuf, FoundDevice, Option<OwnedFd>), String> {
    let block = entry(&Path::new(NODES).join(name_of(&node)).join("device/block"));
    let open = |name: String| reactor::take_block_device(&Path::new("/dev").join(name));
    let taken = match block.map(open) {
        Some(Err(e)) if e.kind() == io::ErrorKind::ResourceBusy => {
            let why = "in use by this machine (a mounted file system, LVM, md, swap, or another \
                       bus); stop that use first";
            return Err(why.into());
        }
        Some(Err(e)) => return Err(format!("its block device: {e}")),
        Some(Ok(taken)) => Some(taken),
        None => None,
    };
    let name = node.display().to_string();
    let opened = BlockingScsiNode::open(&node).map_err(|e| format!("{name}: {e}"))?;
    let most = opened.most_bytes().map_err(|e| format!("{name}: {e}"))?;
    let most_bytes = most.clamp(4096, IO_MAX_BYTES);
    Ok((node, FoundDevice { location: place, most_bytes, generation: 0 }, taken))
}

impl Machine for Linux {
    fn devices(&self) -> u64 {
        self.state.lock().devices.count() as u64
    }

    fn named(&self) -> Vec<u64> {
        self.state.lock().named().map(|(at, _)| at).collect()
    }

    fn set_devices(&self, devices: &[PathBuf]) -> Result<[Vec<u64>; 2], String> {
        let changed = self.state.lock().devices.set(("devices", NUMBERS_MAX), devices)?;
        // The watcher looks at added devices at once.
        self.stop.notify_all();
        Ok(changed.map(|numbers| numbers.into_iter().map(|at| at as u64).collect()))
    }

    fn release(&self, at: u64) {
        let mut state = self.state.lock();
        if !state.is_named(at) {
            state.open_devices.remove(&at);
            state.failures.remove(&at);
        }
    }

    fn find_device(&self, at: u64) -> Result<FoundDevice, String> {
        let state = self.state.lock();
        let is_named = state.is_named(at);
        match state.open_devices.get(&at).filter(|_| is_named) {
            Some(had) => Ok(had.found.clone()),
            None => Err(state.failures.get(&at).cloned().unwrap_or_else(|| {
                let device = usize::try_from(at).ok().and_then(|at| state.devices.get(at));
                let name = device.map(|d| d.display().to_string()).unwrap_or_default();
                let why = if is_named { "not examined yet" } else { "not in the configuration" };
                format!("{name}: {why}")
            })),
        }
    }

    fn begin(self: Arc<Self>, news: DeviceCallback) {
        let watcher = self.clone();
        let thread = std::thread::Builder::new().name("ashlar-sg".into());
        if let Err(e) = thread.spawn(move || watcher.watch(&news)) {
            let mut state = self.state.lock();
            state.is_scanned = true;
            let why = |device: &Path| {
                format!("{}: cannot start a thread to examine the device: {e}", device.display())
            };
            let failures: BTreeMap<u64, String> =
                state.named().map(|(at, device)| (at, why(device))).collect();
            state.failures = failures;
        }
    }

    fn is_scanned(&self) -> bool {
        self.state.lock().is_scanned
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.open_devices.clear();
        self.stop.notify_all();
    }

    fn open(&self, at: u64, core: &Rc<Core>) -> io::Result<Rc<dyn Node>> {
        let node = self.state.lock().open_devices.get(&at).map(|had| had.node.clone());
        let node = BlockingScsiNode::open(&node.ok_or(io::ErrorKind::NotFound)?)?;
        Ok(Rc::new(core.reactor().scsi(node)?))
    }

    /// The kernel resets while the caller waits, so a thread of its own does.
    fn reset(&self, at: u64, done: Box<dyn FnOnce(bool) + Send>) {
        let node = self.state.lock().open_devices.get(&at).map(|had| had.node.clone());
        let Some(node) = node else { return done(false) };
        let thread = std::thread::Builder::new().name("ashlar-sg-reset".into());
        let done = Arc::new(Mutex::new(Some(done)));
        let finish = {
            let done = done.clone();
            move |worked| {
                if let Some(done) = done.lock().take() {
                    done(worked);
                }
            }
        };
        let work = {
            let finish = finish.clone();
            move || finish(BlockingScsiNode::open(&node).and_then(|node| node.reset()).is_ok())
        };
        if thread.spawn(work).is_err() {
            finish(false);
        }
    }
}
