//! SCSI devices of this machine, by Linux' generic driver (`/dev/sgN`).
//!
//! ```text
//!   CCB --> Sg (any core) --> line: this core's node of the device, and its commands
//!                               node: the kernel's interface to send and receive
//!           machine: which device is which node, whether it is there, who holds it
//! ```
//! A device that is named is a target of the bus, with one unit. The transport to it (SAS, SATA
//! behind a SAT layer, USB, a RAID controller) is the kernel's matter.
//!
//! Invariants
//!  S1  A device is taken for ourselves as long as the bus has it. A device that the machine uses
//!      (a mounted file system, an array, swap) is not taken.
//!  S2  A command ends when the kernel reports its end. The kernel itself aborts and resets late
//!      commands, and no WRITE that ended is done later. A command that CAM has given up keeps its
//!      place until then.
//!  S3  Data that are read arrive in memory of our own first: no late answer reaches memory that
//!      CAM has given back.
//!  S4  A device that returns may be another one: its unit is in doubt (D11) before a command of a
//!      user is sent to it.
//!  S5  A device that the configuration no longer names takes no new command. It is given back, and
//!      its disk is lost, when the kernel has ended its commands. Other devices keep their numbers
//!      and disks, and a device that returns gets its former number.

mod core_device;
mod kind;
mod machine;
mod outcome;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bio::Segs;
use bio::sync::Mutex;
use geom::{Core, Error, Local, Notifier, Trouble};
use serde_json::Value;

use crate::address::Path;
use crate::bus::Rescan;
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Outcome, Priority};
use crate::sim::{Begun, Sim, SimFacts};
use crate::unit::Unit;

pub use self::kind::SgKind;
pub use self::machine::{DeviceCallback, FoundDevice, Machine, Node};

/// Largest READ or WRITE, bytes, for which the generic driver finds memory on a busy machine.
const IO_MAX_BYTES: u32 = 256 << 10;
/// How long a scan waits for devices that were not looked at yet, and how often it looks, ns.
const WAIT_NS: u64 = 3_000_000_000;
const LOOK_NS: u64 = 5_000_000;

/// State that all cores need.
struct Inner {
    /// Of this process's buses: for the lines.
    number: u64,
    name: String,
    machine: Arc<dyn Machine>,
    /// Units by place: the newest last.
    units: Mutex<BTreeMap<Path, Vec<Weak<Unit>>>>,
    /// Which device was at a target when a command was sent there last (S4).
    generations: Mutex<BTreeMap<u64, u64>>,
    rescan: OnceLock<Rescan>,
}

impl Inner {
    /// S4: whether another device is at a target than the last command found there.
    fn is_replaced(&self, target: u64, generation: u64) -> bool {
        let mut generations = self.generations.lock();
        *generations.entry(target).or_insert(generation) != generation
    }

    /// Has a target scanned.
    fn request_scan(&self, target: u64) {
        if let Some(rescan) = self.rescan.get() {
            rescan.request_target_scan(target);
        }
    }

    /// S5: a removed device has no command any more, on any core.
    fn end_retirement(&self, target: u64) {
        self.machine.release(target);
        self.request_scan(target);
    }

    fn handle(&self, unit: &Unit) -> Weak<Unit> {
        let units = self.units.lock();
        let all = units.get(&unit.path()).into_iter().flatten();
        all.rev().find(|u| std::ptr::eq(u.as_ptr(), unit)).cloned().unwrap_or_default()
    }
}

/// See the module.
pub struct Sg {
    inner: Arc<Inner>,
    notifier: Notifier,
    cores: usize,
}

impl Sg {
    /// A bus of the devices of a machine.
    pub fn new(name: &str, machine: Arc<dyn Machine>, site: (Notifier, usize)) -> Sg {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let inner = Inner {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            machine,
            units: Mutex::default(),
            generations: Mutex::default(),
            rescan: OnceLock::new(),
        };
        Sg { inner: Arc::new(inner), notifier: site.0, cores: site.1 }
    }

    /// S5
    fn retire(&self, target: u64) {
        let leaving = Arc::new(AtomicUsize::new(self.cores));
        for core in 0..self.cores {
            let (inner, leaving) = (self.inner.clone(), leaving.clone());
            let retire = move |core: &Rc<Core>| core_device::retire(&inner, target, &leaving, core);
            self.notifier.call(core, Box::new(retire));
        }
    }

    /// S4
    fn returned(&self, unit: &Unit, core: &Core) -> bool {
        let target = unit.path().target;
        let Ok(found) = self.inner.machine.find_device(target) else { return false };
        let other = self.inner.is_replaced(target, found.generation);
        if other {
            // In this order: another core that finds the device known finds it in doubt.
            unit.doubt(core);
            self.inner.generations.lock().insert(target, found.generation);
        }
        other
    }

    /// Resets a device, for a CCB or without one. Its commands end by the kernel's answers.
    fn reset_device(&self, unit: &Unit, id: Option<CcbId>, core: &Core) {
        let (handle, notifier) = (self.inner.handle(unit), self.notifier.clone());
        let number = core.id() as usize;
        let done = move |worked: bool| {
            let status = if worked { CamStatus::Complete } else { CamStatus::CannotProvide };
            let finish = move |core: &Rc<Core>| {
                let Some(unit) = handle.upgrade() else { return };
                // The 29/00 that follows reports this reset.
                if worked {
                    unit.kept_power();
                }
                id.map(|id| unit.done(id, Outcome::of(status), core));
            };
            notifier.call(number, Box::new(finish));
        };
        self.inner.machine.reset(unit.path().target, Box::new(done));
    }
}

impl Sim for Sg {
    fn facts(&self) -> SimFacts {
        let (name, targets) = (self.inner.name.clone(), self.inner.machine.devices());
        let most =
            |at| self.inner.machine.find_device(at).map_or(IO_MAX_BYTES, |found| found.most_bytes);
        let io_max_bytes = (0..targets).map(most).fold(IO_MAX_BYTES, u32::min);
        SimFacts { name, targets, io_max_bytes, whole_max_bytes: io_max_bytes, is_ata: false }
    }

    /// As the kernel counts: host, channel, target, LUN.
    fn location(&self, path: Path) -> String {
        self.inner
            .machine
            .find_device(path.target)
            .map_or_else(|_| path.to_string(), |found| found.location)
    }

    fn begin(&self, rescan: Rescan) {
        let _first = self.inner.rescan.set(rescan);
        let inner = Arc::downgrade(&self.inner);
        let news = move |target: u64| {
            if let Some(inner) = inner.upgrade() {
                inner.request_scan(target);
            }
        };
        self.inner.machine.clone().begin(Arc::new(news));
    }

    fn ready<'a>(&'a self, core: &'a Rc<Core>) -> Local<'a, ()> {
        Box::pin(async move {
            let end = core.now() + WAIT_NS;
            while core.now() < end && !self.inner.machine.is_scanned() {
                core.reactor().sleep(LOOK_NS).await;
            }
        })
    }

    fn targets(&self) -> Vec<u64> {
        let machine = &self.inner.machine;
        (0..machine.devices()).filter(|at| machine.find_device(*at).is_ok()).collect()
    }

    fn window(&self, _: Path) -> Option<u32> {
        Some(reactor::SCSI_NODE_COMMANDS_MAX)
    }

    /// Nothing of it is a fault: a device is added when it is plugged in and free.
    fn troubles(&self) -> Vec<Trouble> {
        let machine = &self.inner.machine;
        let action = "The device is examined again automatically, and added as soon as possible.";
        let why = |at| machine.find_device(at).err();
        machine.named().into_iter().filter_map(why).map(|why| Trouble::noted(why, action)).collect()
    }

    fn update_params(&self, params: &Value) -> Result<(), Error> {
        let name = &self.inner.name;
        let changed = self.inner.machine.set_devices(&kind::devices(name, params)?);
        let [removed, added] = changed.map_err(|e| Error::inval(format!("bus {name}: {e}")))?;
        removed.into_iter().for_each(|target| self.retire(target));
        // One that was not given back yet is there already.
        added.into_iter().for_each(|target| self.inner.request_scan(target));
        Ok(())
    }

    fn close(&self) {
        self.inner.machine.close();
        let bus = self.inner.number;
        for core in 0..self.cores {
            self.notifier
                .call(core, Box::new(move |core: &Rc<Core>| core_device::close(bus, core)));
        }
    }

    fn attach(&self, unit: &Arc<Unit>) {
        let mut units = self.inner.units.lock();
        let all = units.entry(unit.path()).or_default();
        all.retain(|u| u.strong_count() > 0);
        all.push(Arc::downgrade(unit));
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        // A node is one unit, although REPORT LUNS of its device may list more.
        if unit.path().lun != 0 {
            return Begun::Ended(Outcome::of(CamStatus::LunInvalid));
        }
        match ccb.command {
            Command::Scsi { .. }
                if self.returned(unit, core) && ccb.priority >= Priority::Normal =>
            {
                Begun::Ended(Outcome::of(CamStatus::Requeue))
            }
            Command::Scsi { .. } => match core_device::find(&self.inner, unit, core) {
                Ok(line) => line.begin(&self.inner, unit, id, ccb, data),
                Err(status) => Begun::Ended(Outcome::of(status)),
            },
            Command::Reset => {
                self.reset_device(unit, Some(id), core);
                Begun::Pending
            }
            _ => Begun::Ended(Outcome::of(CamStatus::CannotProvide)),
        }
    }

    fn finish(&self, _: &Unit, _: CcbId, _: &Segs, _: &Core) -> Begun {
        Begun::Pending
    }

    /// S2: its data are not handed over any more, and that is all that can be done.
    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        if core_device::abort(&self.inner, unit, id, core) {
            return;
        }
        // It is with another core.
        for other in (0..self.cores).filter(|other| *other != core.id() as usize) {
            let (inner, handle) = (self.inner.clone(), self.inner.handle(unit));
            let abort = move |core: &Rc<Core>| {
                if let Some(unit) = handle.upgrade() {
                    core_device::abort(&inner, &unit, id, core);
                }
            };
            self.notifier.call(other, Box::new(abort));
        }
    }

    fn reset(&self, unit: &Unit, core: &Core) {
        self.reset_device(unit, None, core);
    }
}
