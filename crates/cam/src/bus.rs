//! A bus: its devices, found by scanning and lost by events.
//!
//! Nothing here is on the way of a CCB: a periph holds its unit.

mod bounds;
mod identity;
mod missing;
mod places;
mod refused;
mod scan;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bio::Errno;
use bio::sync::Mutex;
use geom::{Core, Error, Event as GeomEvent, Inbox, Notifier, ProviderId, Trouble};
use wire::scsi::AccessState;

use crate::address::{ANY, Path};
use crate::device::{Queueing, Shape};
use crate::events::Event;
use crate::periph::Facts;
use crate::probe::Refusal;
use crate::recovery::Policy;
use crate::reset::UnitReset;
use crate::sim::Sim;
use crate::unit::{Listener, Unit};
use crate::wired_names::WiredNames;

pub(crate) use bounds::AtomicBounds as SharedBounds;
pub use bounds::{Bounds, LastError};
pub use places::PHYSPATH;
pub(crate) use scan::join_all;

/// Events that a bus remembers; older ones are forgotten.
pub const EVENTS_MAX: usize = 256;

/// The attribute of a disk's provider with the access state of this path, where paths may
/// differ: the words of [`AccessState::name`].
pub const ACCESS: &str = "CAM::access";

/// How often the access state of a unit in transition is requested, and how many times.
const ACCESS_LOOK_NS: u64 = 1_000_000_000;
const ACCESS_LOOKS_MAX: u32 = 120;
/// And how many times for one that does not report it.
const ACCESS_SILENT_MAX: u32 = 5;

/// While a device is probed: one question at a time.
const PROBING: Shape = Shape {
    queueing: Queueing::Untagged,
    openings_min: 1,
    openings_max: 1,
    policy: Policy { retry_selection: false, ..Policy::DISK },
};

/// A change that a scan found.
#[derive(Clone)]
pub enum Change {
    /// A device that was not there.
    Found(Arc<Unit>, Facts),
    /// One that is not there any more.
    Lost(Path),
    /// The same, with other reported facts.
    Changed(Path, Facts),
}

/// See the module.
pub struct Bus {
    number: u64,
    sim: Arc<dyn Sim>,
    names: Mutex<Names>,
    wired_names: Arc<WiredNames>,
    bounds: Arc<bounds::AtomicBounds>,
    notifier: Notifier,
    inbox: Arc<Inbox>,
    weak_self: Weak<Bus>,
    known: Mutex<BTreeMap<Path, KnownDevice>>,
    events: Mutex<VecDeque<(Path, Event)>>,
    /// A scan runs: one at a time.
    scan_running: AtomicBool,
    /// Targets that are to be scanned without a waiting caller; [`ANY`]: all.
    scan_requests: Mutex<BTreeSet<u64>>,
    /// Targets whose answers did not end in the last scan.
    silent: Mutex<BTreeSet<u64>>,
    /// Results of scans that are not in the graph yet.
    pending_changes: Mutex<Vec<Change>>,
    /// Identity checks that run, and why the last try of each had no result.
    checks: Mutex<BTreeMap<Path, Option<String>>>,
    /// Devices that are there and cannot be used.
    refused: Mutex<BTreeMap<Path, Refusal>>,
    /// Disks that were exchanged for others, until the administrator requests a scan of them.
    exchanged: Mutex<BTreeMap<Path, identity::Exchanged>>,
    /// Disks that the configuration names and that were taken away at their targets.
    missing: Mutex<BTreeMap<Path, missing::Missing>>,
    /// Error of the last update of the graph, for the caller that requested the scan.
    failure: Mutex<Option<Error>>,
    /// It was removed: later results of scans are discarded.
    removed: AtomicBool,
}

/// Names that disks of a bus have by the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// By name: `TARGET:LUN`, or the disk's own identification (serial number, NAA name).
    pub by_name: BTreeMap<String, String>,
}

impl Names {
    /// The name of a disk at a place, by the identity that it reports.
    fn of(&self, path: Path, names: &[&str]) -> Option<&str> {
        let place = format!("{}:{}", path.target, path.lun);
        let fits = |wanted: &String| {
            *wanted == place || names.iter().any(|reported| reported.eq_ignore_ascii_case(wanted))
        };
        self.by_name.iter().find(|(_, wanted)| fits(wanted)).map(|(name, _)| name.as_str())
    }
}

/// How a SIM has its bus scanned. Cheap to keep; of no effect once the bus is closed.
#[derive(Clone)]
pub struct Rescan(Weak<Bus>);

impl Rescan {
    /// A device was added or removed. May be called on any thread, as often as one likes.
    pub fn request_scan(&self) {
        if let Some(bus) = self.0.upgrade() {
            bus.request_scan(ANY);
        }
    }

    /// The answer of [`Sim::troubles`] has changed: notifies the control thread.
    pub fn notify_troubles(&self) {
        if let Some(bus) = self.0.upgrade() {
            bus.inbox.wake();
        }
    }

    /// A target answers again that did not: a disk of it that is missing or was exchanged may be
    /// back. False: it lacks none.
    pub fn rescan_if_missing(&self, target: u64) -> bool {
        let bus = self.0.upgrade().filter(|bus| bus.has_missing_disk(target));
        bus.is_some_and(|bus| {
            bus.request_scan(target);
            true
        })
    }

    /// A device was added or removed at one target, or behind it.
    pub fn request_target_scan(&self, target: u64) {
        if let Some(bus) = self.0.upgrade() {
            bus.request_scan(target);
        }
    }
}

struct KnownDevice {
    unit: Arc<Unit>,
    facts: Facts,
    provider: Option<(ProviderId, String)>,
    /// Periphs besides the disk: pass, and the periph of its device type.
    other_periphs: Vec<String>,
    /// Why its last answers cannot be true.
    doubt: Option<Refusal>,
    /// [`Sim::mark`], as far as it is known.
    mark: Option<String>,
}

impl KnownDevice {
    /// Name of its disk, or of its last other periph.
    fn name(&self) -> String {
        let disk = self.provider.as_ref().map(|(_, name)| name.clone());
        disk.or_else(|| self.other_periphs.last().cloned()).unwrap_or_default()
    }

    /// All of its periphs, in the order in which CAM attaches them.
    fn periphs(&self) -> Vec<String> {
        let disk = self.provider.iter().map(|(_, name)| name.clone());
        let others = self.other_periphs.iter().cloned();
        match self.facts {
            Facts::Ata(_) => disk.chain(others).collect(),
            _ => others.chain(disk).collect(),
        }
    }
}

/// A target with more logical units than are looked at.
fn excess_luns_trouble(path: Path, facts: &Facts, most: u32) -> Option<Trouble> {
    let Facts::Scsi(facts) = facts else { return None };
    let count = facts.luns_beyond;
    let why = format!(
        "{path}: the target has {count} logical units, but at most {most} are \
                       scanned"
    );
    let action = "Raise `luns_max` of the bus, or map fewer units to this initiator; disks that \
                  the bus has already stay until it is opened again.";
    (count > 0).then(|| Trouble::degraded(why, action))
}

impl Bus {
    /// Creates the bus scbusN of a driver. Events of its disks are posted to `inbox`.
    pub(crate) fn new(
        number: u64,
        sim: Arc<dyn Sim>,
        (names, kept): (Names, Arc<WiredNames>),
        notifier: Notifier,
        inbox: Arc<Inbox>,
    ) -> Arc<Bus> {
        let bus = Arc::new_cyclic(|me| Bus {
            number,
            sim,
            names: Mutex::new(names),
            wired_names: kept,
            bounds: Arc::default(),
            notifier,
            inbox,
            weak_self: me.clone(),
            known: Mutex::default(),
            events: Mutex::default(),
            scan_running: AtomicBool::default(),
            scan_requests: Mutex::default(),
            silent: Mutex::default(),
            pending_changes: Mutex::default(),
            checks: Mutex::default(),
            refused: Mutex::default(),
            exchanged: Mutex::default(),
            missing: Mutex::default(),
            failure: Mutex::default(),
            removed: AtomicBool::default(),
        });
        bus.sim.begin(bus.rescan());
        bus
    }

    /// Scans it without a waiting caller.
    pub fn rescan(&self) -> Rescan {
        Rescan(self.weak_self.clone())
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A device of it.
    pub fn unit(&self, path: Path) -> Option<Arc<Unit>> {
        self.known.lock().get(&path).map(|known| known.unit.clone())
    }

    /// How long requests to its disks may take, as they read it.
    pub(crate) fn shared_bounds(&self) -> Arc<SharedBounds> {
        self.bounds.clone()
    }

    /// Facts that a device reported.
    pub fn facts(&self, path: Path) -> Option<Facts> {
        self.known.lock().get(&path).map(|known| known.facts.clone())
    }

    /// Past events, oldest first.
    pub fn events(&self) -> Vec<(Path, Event)> {
        self.events.lock().iter().copied().collect()
    }

    /// Begins a reset beside the queues of all devices that `meant` covers.
    pub(crate) fn reset_begins(&self, meant: Path, most_ns: u64, core: &Core) -> Vec<UnitReset> {
        let known =
            |(at, known): (&Path, &KnownDevice)| at.meets(meant).then(|| known.unit.clone());
        let units: Vec<Arc<Unit>> = self.known.lock().iter().filter_map(known).collect();
        units.iter().map(|unit| UnitReset::begin(unit, most_ns, core)).collect()
    }

    /// The driver.
    pub fn sim(&self) -> &Arc<dyn Sim> {
        &self.sim
    }

    /// Its devices, with their facts and the names of their disks (empty without a disk).
    pub fn devices(&self) -> Vec<(Arc<Unit>, Facts, String)> {
        let name =
            |k: &KnownDevice| k.provider.as_ref().map_or(String::new(), |(_, name)| name.clone());
        self.known.lock().values().map(|k| (k.unit.clone(), k.facts.clone(), name(k))).collect()
    }

    /// All names of periphs of a device: `pass0`, `da0`.
    pub fn periphs(&self, path: Path) -> Vec<String> {
        self.known.lock().get(&path).map_or(Vec::new(), KnownDevice::periphs)
    }

    /// Whether a device has its disk in the graph.
    pub(crate) fn has_disk(&self, path: Path) -> bool {
        self.known.lock().get(&path).is_some_and(|known| known.provider.is_some())
    }

    /// Gives a device that was found its periphs besides the disk; `free` answers the first name of
    /// a prefix that is free.
    pub(crate) fn attach_periphs(&self, path: Path, free: impl Fn(&str) -> String) {
        let role = self.facts(path).and_then(|facts| facts.role());
        let names: Vec<String> = ["pass"].into_iter().chain(role).map(free).collect();
        if let Some(known) = self.known.lock().get_mut(&path) {
            known.other_periphs = names;
        }
    }

    /// As `camcontrol devlist` has it; `verbose` as with -v, and with the last error of each device
    /// before `now`.
    pub fn devlist(&self, verbose: bool, now: u64) -> String {
        let n = self.number;
        let mut out = String::new();
        if verbose {
            out = format!("scbus{n} on {} bus 0:\n", self.sim.facts().name);
        }
        for (path, known) in &*self.known.lock() {
            let (label, periphs) = (known.facts.label(), known.periphs().join(","));
            out.push_str(&format!("{label:<33}  at {path} ({periphs})\n"));
            if let Some(error) = LastError::of(&known.unit, now).filter(|_| verbose) {
                out.push_str(&format!("    {error}\n"));
            }
        }
        if verbose {
            out.push_str(&format!("{:<33}  at {} ()\n", "<>", Path::bus(n)));
        }
        out
    }

    /// Reasons why something that it should reach is missing or differs, the place first.
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut out = self.sim.troubles();
        out.extend(self.identity_troubles());
        out.extend(self.refusals());
        for (path, known) in &*self.known.lock() {
            out.extend(excess_luns_trouble(*path, &known.facts, self.sim.luns_max()));
            out.extend(self.is_sizeless(*path, &known.facts));
            let name = known.name();
            out.extend(self.silence_trouble(*path, &name, &known.unit));
            let Some(doubt) = &known.doubt else { continue };
            let why = format!("{name} at {path}: {doubt}; the device is kept unchanged");
            let action = format!("`ashlar cam rescan {}` probes the device again.", self.number);
            out.push(Trouble::degraded(why, action));
        }
        out
    }

    /// Records why a device's last answers cannot be true; None: they are correct again.
    fn doubt(&self, path: Path, why: Option<Refusal>) {
        if let Some(known) = self.known.lock().get_mut(&path) {
            known.doubt = why;
        }
    }

    /// Targets whose answers have not ended: their scan is under way.
    pub fn silent(&self) -> Vec<u64> {
        self.silent.lock().iter().copied().collect()
    }

    /// Whether a scan runs or is requested, or its results are not in the graph yet.
    pub fn is_scanning(&self) -> bool {
        let scans = self.scan_running.load(Ordering::Acquire);
        scans || !self.scan_requests.lock().is_empty() || !self.pending_changes.lock().is_empty()
    }

    /// The name that a disk has by the configuration.
    pub(crate) fn name_of(&self, path: Path, facts: &Facts) -> Option<String> {
        let names = facts.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.names.lock().of(path, &names).map(str::to_owned)
    }

    /// The configuration gives the disks these names from now on. A disk that gets another name
    /// than it has is removed and added by a scan (C8 of bus/scan.rs).
    pub fn set_names(&self, names: Names) {
        if std::mem::replace(&mut *self.names.lock(), names.clone()) != names {
            self.rescan().request_scan();
        }
    }

    /// Whether a device has a disk with another name than the configuration gives it. Of several
    /// paths to one disk, the first gets its name.
    fn is_misnamed(&self, path: Path, facts: &Facts) -> bool {
        let known = self.known.lock();
        let disk = known.get(&path).and_then(|known| known.provider.as_ref());
        let (Some((_, name)), Some(own)) = (disk, self.name_of(path, facts)) else { return false };
        let has_name = |(at, other): (&Path, &KnownDevice)| {
            self.name_of(*at, &other.facts).as_ref() == Some(&own)
        };
        own != *name && !known.range(..path).any(has_name)
    }

    /// Whether a name is kept for a disk of this bus.
    pub(crate) fn reserves_name(&self, name: &str) -> bool {
        self.names.lock().by_name.contains_key(name)
    }

    /// Stores the results of a scan; the control thread puts them into the graph.
    pub(crate) fn store_changes(&self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.pending_changes.lock().extend(changes);
            self.inbox.wake();
        }
    }

    /// Records that the graph could not be updated.
    pub(crate) fn record_failure(&self, why: &Error) {
        *self.failure.lock() = Some(why.clone());
    }

    /// Returns and clears the recorded error.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// It is about to be taken out: from now on no device is added.
    pub(crate) fn begin_removal(&self) {
        let _known = self.known.lock();
        self.removed.store(true, Ordering::Release);
    }

    /// It was taken out.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Takes the results of scans that are not in the graph yet.
    pub(crate) fn take_pending_changes(&self) -> Vec<Change> {
        std::mem::take(&mut *self.pending_changes.lock())
    }

    fn create_unit(self: &Arc<Bus>, path: Path, core: &Rc<Core>) -> Arc<Unit> {
        let bus = self.weak_self.clone();
        let listener: Listener = Arc::new(move |unit, event, target_wide| {
            if let Some(bus) = bus.upgrade() {
                bus.handle_event(unit, event, target_wide);
            }
        });
        let (sim, notifier) = (self.sim.clone(), self.notifier.clone());
        let unit = Unit::new(path, sim, PROBING, notifier, listener);
        unit.run_clock(core);
        unit
    }

    fn remove_device(&self, path: Path, core: &Core) -> Vec<Change> {
        let Some(known) = self.known.lock().remove(&path) else { return Vec::new() };
        self.remember_missing(path, &known);
        let now = core.now();
        known.unit.with(core, |device| device.lose(now));
        known.unit.close();
        self.log_event(path, Event::LostDevice);
        if let Some((provider, _)) = known.provider {
            self.inbox.post(GeomEvent::Lost(provider, Errno::NxIo));
        }
        vec![Change::Lost(path)]
    }

    /// Reports the loss of all of its devices to their users.
    pub(crate) fn report_loss(&self) {
        for (_, known) in std::mem::take(&mut *self.known.lock()) {
            if let Some((provider, _)) = known.provider {
                self.inbox.post(GeomEvent::Lost(provider, Errno::NxIo));
            }
            let end = move |core: &Rc<Core>| {
                let now = core.now();
                known.unit.with(core, |device| device.lose(now));
                known.unit.close();
            };
            self.notifier.call(0, Box::new(end));
        }
    }

    /// A disk has a provider now.
    pub(crate) fn provider_attached(&self, path: Path, provider: ProviderId, name: &str) {
        if let Some(known) = self.known.lock().get_mut(&path) {
            known.provider = Some((provider, name.to_string()));
        }
    }

    /// A disk could not be put into the graph.
    pub(crate) fn attach_failed(&self, path: Path) {
        if let Some(known) = self.known.lock().remove(&path) {
            known.unit.close();
        }
    }

    fn log_event(&self, path: Path, event: Event) {
        let mut events = self.events.lock();
        if events.len() >= EVENTS_MAX {
            events.pop_front();
        }
        events.push_back((path, event));
    }

    fn handle_event(&self, unit: &Unit, event: Event, target_wide: bool) {
        let path = unit.path();
        match event {
            Event::Doubted => return self.check(path),
            Event::Silence => return self.inbox.wake(),
            _ => {}
        }
        self.log_event(path, event);
        let meant = if target_wide { Path::target(path.bus, path.target) } else { path };
        match event {
            Event::LostDevice => {
                for (at, known) in &*self.known.lock() {
                    if let (true, Some((provider, _))) = (at.meets(meant), &known.provider) {
                        self.inbox.post(GeomEvent::Lost(*provider, Errno::NxIo));
                    }
                }
            }
            Event::DeviceChanged | Event::InquiryChanged => self.refresh_size(path),
            Event::AdvInfoChanged => self.poll_access_state(path),
            Event::Contract => {
                if let Some(bus) = self.weak_self.upgrade() {
                    bus.request_scan(path.target);
                }
            }
            _ => {}
        }
    }

    /// Requests the access state of a disk until that is no longer in transition, and notifies the
    /// layers above of changes.
    fn poll_access_state(&self, path: Path) {
        let Some(unit) = self.unit(path).filter(|unit| unit.request_access_query()) else { return };
        let bus = self.weak_self.clone();
        let job = move |core: &Rc<Core>| {
            let core = core.clone();
            core.reactor().clone().spawn("cam access", async move {
                for look in 1..=ACCESS_LOOKS_MAX {
                    let wishes = unit.access_requests();
                    let reported = scan::query_access_state(&unit, &core, &bus).await;
                    let Some(bus) = bus.upgrade() else { return };
                    if let Some(access) = reported {
                        bus.access_reported(&unit, access);
                    }
                    let is_moving = match reported {
                        Some(access) => access == AccessState::Transitioning,
                        None => look < ACCESS_SILENT_MAX,
                    };
                    if (look == ACCESS_LOOKS_MAX || !is_moving) && unit.access_requests_done(wishes)
                    {
                        return;
                    }
                    if is_moving {
                        core.reactor().sleep(ACCESS_LOOK_NS).await;
                    }
                }
                unit.access_requests_done(unit.access_requests());
            });
        };
        self.notifier.call(0, Box::new(job));
    }

    /// A disk has reported its access state.
    fn access_reported(&self, unit: &Unit, access: AccessState) {
        if !unit.set_access(Some(access)) {
            return;
        }
        let mut known = self.known.lock();
        let Some(known) = known.get_mut(&unit.path()) else { return };
        if let Facts::Scsi(facts) = &mut known.facts {
            facts.access = Some(access);
        }
        if let Some((provider, _)) = &known.provider {
            self.inbox.post(GeomEvent::Attr(*provider, ACCESS));
        }
    }

    /// Notifies the layers above of a changed size of a disk: not every disk reports it itself.
    fn notify_resize(&self, known: &KnownDevice, before: &Facts) {
        let size = |facts: &Facts| facts.media_bytes(&self.sim.facts());
        if let (Some((provider, _)), Some(is), Some(was)) =
            (&known.provider, size(&known.facts), size(before))
            && is != was
        {
            self.inbox.post(GeomEvent::Resize(*provider, is));
        }
    }

    /// Reads the size of a disk again, and notifies the layers above if the size changed.
    fn refresh_size(&self, path: Path) {
        let Some(unit) = self.unit(path) else { return };
        let bus = self.weak_self.clone();
        let job = move |core: &Rc<Core>| {
            let core = core.clone();
            core.reactor().clone().spawn("cam", async move {
                let Some(before) = bus.upgrade().and_then(|bus| bus.facts(path)) else { return };
                let began = Cell::new(0);
                let probed = scan::probe(&unit, Some(before.clone()), &core, &|_| {}, &began).await;
                let Some(bus) = bus.upgrade() else { return };
                let facts = match probed.0 {
                    Ok(facts) => facts,
                    Err(why) if why.is_nonsense() => return bus.doubt(path, Some(why)),
                    Err(_) => return,
                };
                if !facts.is_same(&before) {
                    // Another one in its place, or formatted anew: a check finds out.
                    return unit.doubt(&core);
                }
                if identity::is_for_check(&unit, &before, &facts) {
                    return;
                }
                let size = facts.media_bytes(&bus.sim.facts());
                let mut known = bus.known.lock();
                let Some(known) = known.get_mut(&path) else { return };
                let removable = facts.is_removable();
                let access = match &facts {
                    Facts::Scsi(facts) => facts.access,
                    _ => None,
                };
                (known.facts, known.doubt) = (facts, None);
                let Some((provider, _)) = &known.provider else { return };
                if access.is_some() && unit.set_access(access) {
                    bus.inbox.post(GeomEvent::Attr(*provider, ACCESS));
                }
                match size {
                    Some(size) => {
                        bus.inbox.post(GeomEvent::Resize(*provider, size));
                        if removable {
                            bus.inbox.post(GeomEvent::MediaChanged(*provider));
                        }
                    }
                    None if removable => bus.inbox.post(GeomEvent::MediaGone(*provider)),
                    None => {}
                }
            });
        };
        self.notifier.call(0, Box::new(job));
    }
}
