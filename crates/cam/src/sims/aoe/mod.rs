//! ATA over Ethernet: disks on the same network, without IP (AoEr11).
//!
//! ```text
//!   CCB --> Aoe (any core) --> port: this core's sockets, tasks --> engine: frames, answers, time
//!                                                                     flight: tags   path: ways
//!   shared by the cores: which targets there are, which sectors are being written (ranges), how
//!   many frames wait at each (pool)
//! ```
//! A target is `shelf * 256 + slot`. Several interfaces, and several addresses behind them, are
//! ways to one target. Frames use all that are up, and one that dies is left out at once.
//!
//! Invariants
//!  A1  An edit of targets and interfaces concerns only the disks of removed targets, and disks
//!      that no other interface leads to than removed ones. Frames that are out by a removed
//!      interface are sent again by another path. An interface that returns gets its former number.

mod engine;
mod inflight;
mod kind;
mod path;
mod pool;
mod port;
mod ranges;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bio::Segs;
use bio::sync::{Mutex, MutexGuard};
use geom::{Core, Error, Local, Notifier, Severity, Trouble};
use serde_json::Value;
use wire::aoe::Address;

use self::engine::{Engine, Rules, UnusablePath};
use self::inflight::CORES_MAX;
use self::shared::KnownTargets;
use super::numbers::Numbers;
use crate::address::{ANY, Path};
use crate::bus::Rescan;
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Outcome, Priority};
use crate::sim::{Begun, Sim, SimFacts};
use crate::unit::Unit;

pub use self::kind::AoeKind;

/// Data of a frame of the smallest Ethernet: two sectors, bytes. Every path to a target carries it.
const FRAME_DATA_LEAST: u32 = 1024;

/// Most interfaces that a bus has had since it was opened.
const INTERFACES_MAX: usize = 64;

/// Commands that a device gets at a time: each is cut into frames, and the window is by frame.
const DEPTH: u32 = 64;

/// State that all cores need.
struct Inner {
    /// Of this process's buses: for the ports.
    number: u64,
    name: String,
    /// Those that were removed keep their numbers (A1).
    interfaces: Mutex<Numbers<String>>,
    rules: Mutex<Rules>,
    /// How long answers are waited for before a scan, and how often targets are discovered, ns.
    wait_ns: u64,
    discovery_ns: AtomicU64,
    /// How often targets or interfaces were edited: discovery begins anew then.
    edits: AtomicU64,
    shared: Arc<KnownTargets>,
    units: Mutex<BTreeMap<u64, Weak<Unit>>>,
    /// Lost targets whose loss is not reported any more, until they answer.
    dismissed: Mutex<BTreeSet<Address>>,
    rescan: OnceLock<Rescan>,
}

impl Inner {
    fn units(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Unit>>> {
        self.units.lock()
    }

    fn unit(&self, address: Address) -> Option<Arc<Unit>> {
        self.units().get(&number_of(address))?.upgrade()
    }

    fn rescan(&self) {
        if let Some(rescan) = self.rescan.get() {
            rescan.request_scan();
        }
    }

    /// As in the present section.
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock()
    }

    /// Its troubles have become others.
    fn notify_troubles(&self) {
        if let Some(rescan) = self.rescan.get() {
            rescan.notify_troubles();
        }
    }

    fn rescan_if_missing(&self, address: Address) -> bool {
        self.rescan.get().is_some_and(|rescan| rescan.rescan_if_missing(number_of(address)))
    }

    fn rescan_target(&self, address: Address) {
        if let Some(rescan) = self.rescan.get() {
            rescan.request_target_scan(number_of(address));
        }
    }
}

/// See the module.
pub struct Aoe {
    inner: Arc<Inner>,
    notifier: Notifier,
    cores: usize,
}

/// The number that a target has on the bus.
fn number_of(address: Address) -> u64 {
    u64::from(address.shelf) << 8 | u64::from(address.slot)
}

/// Its name in config strings.
fn target_name(Address { shelf, slot }: Address) -> String {
    format!("e{shelf}.{slot}")
}

/// The inverse of [`number_of`].
fn address_of(number: u64) -> Address {
    let shelf = u16::try_from(number >> 8).unwrap_or(u16::MAX);
    Address { shelf, slot: (number & 0xff) as u8 }
}

impl Aoe {
    fn new(
        name: &str,
        interfaces: Vec<String>,
        rules: Rules,
        (wait_ns, discovery_ns): (u64, u64),
        (notifier, cores): (Notifier, usize),
    ) -> Aoe {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let inner = Inner {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            interfaces: Mutex::new(Numbers::new(interfaces)),
            rules: Mutex::new(rules),
            wait_ns,
            discovery_ns: AtomicU64::new(discovery_ns),
            edits: AtomicU64::default(),
            shared: Arc::default(),
            units: Mutex::default(),
            dismissed: Mutex::default(),
            rescan: OnceLock::new(),
        };
        Aoe { inner: Arc::new(inner), notifier, cores: cores.min(CORES_MAX) }
    }
}

impl Sim for Aoe {
    fn facts(&self) -> SimFacts {
        SimFacts {
            name: self.inner.name.clone(),
            targets: 0,
            io_max_bytes: 1 << 20,
            whole_max_bytes: FRAME_DATA_LEAST,
            is_ata: true,
        }
    }

    fn aoe(&self) -> Option<&Aoe> {
        Some(self)
    }

    /// As config strings of the file server have it: `e565.1`.
    fn location(&self, path: Path) -> String {
        target_name(address_of(path.target))
    }

    fn begin(&self, rescan: Rescan) {
        let _first = self.inner.rescan.set(rescan);
        for core in 0..self.cores {
            let inner = self.inner.clone();
            self.notifier.call(core, Box::new(move |core: &Rc<Core>| port::open(&inner, core)));
        }
    }

    fn mark<'a>(&'a self, path: Path, core: &'a Rc<Core>) -> Local<'a, Option<String>> {
        Box::pin(self.query_mark(path.target, core))
    }

    fn ready<'a>(&'a self, core: &'a Rc<Core>) -> Local<'a, ()> {
        Box::pin(self.discover(core))
    }

    fn targets(&self) -> Vec<u64> {
        let rules = self.inner.rules();
        let known = self.inner.shared.targets().into_iter();
        known.filter(|address| rules.uses(*address)).map(number_of).collect()
    }

    fn window(&self, _: Path) -> Option<u32> {
        Some(DEPTH)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.inner.shared.counts();
        vec![
            ("frames-sent", counts.sent),
            ("frames-sent-again", counts.resent),
            ("answers-late", counts.late),
            ("answers-unasked", counts.unasked),
            ("answers-foreign", counts.foreign),
            ("frames-malformed", counts.malformed),
            ("answers-failed", counts.failed),
            ("other-disk-behind-path", counts.strangers),
        ]
    }

    /// A target that was found stays in them without its disk, until it answers or
    /// [`Sim::dismiss_lost`].
    fn troubles(&self) -> Vec<Trouble> {
        let ill = self.inner.shared.unusable_paths();
        let interfaces = self.inner.interfaces.lock();
        let mut dismissed = self.inner.dismissed.lock();
        dismissed.retain(|address| ill.iter().any(|ill| ill.address == *address && ill.is_last));
        let is_reported = |ill: &UnusablePath| !dismissed.contains(&ill.address);
        let trouble = |ill: UnusablePath| {
            let interface = interfaces.get(ill.link).map_or("", String::as_str);
            let (place, mac) = (target_name(ill.address), ill.mac);
            let why = format!("{place} does not answer by {interface} at {mac}");
            let removed = match self.is_configured(ill.address) {
                true => "",
                false => " If the target was removed, `ashlar cam rescan` ends this report.",
            };
            let action = format!(
                "The target is asked again automatically; `ip link show {interface}` shows whether \
                 the interface is up.{removed}"
            );
            let severity = if ill.is_last { Severity::Failed } else { Severity::Degraded };
            Trouble { severity, why, action }
        };
        let lost = ill.into_iter().filter(is_reported).map(trouble);
        let used: Vec<&str> = interfaces.named().map(|(_, name)| name.as_str()).collect();
        let used = used.join(", ");
        let never = |address: Address| {
            let place = target_name(address);
            let why = format!("{place} is configured and has not answered yet on {used}");
            let action = format!(
                "The target is asked again automatically; check that {place} runs, and that its \
                 config string and mask admit this machine."
            );
            Trouble::failed(why, action)
        };
        lost.chain(self.inner.shared.absent().into_iter().map(never)).collect()
    }

    fn dismiss_lost(&self, at: Path, has_device: &dyn Fn(u64) -> bool) -> Vec<String> {
        let is_lost = |ill: &UnusablePath| {
            let number = number_of(ill.address);
            let is_meant = at.target == ANY || at.target == number;
            is_meant && ill.is_last && !has_device(number) && !self.is_configured(ill.address)
        };
        let lost = self.inner.shared.unusable_paths().into_iter().filter(is_lost);
        let lost: BTreeSet<Address> = lost.map(|ill| ill.address).collect();
        self.inner.dismissed.lock().extend(lost.iter().copied());
        self.inner.notify_troubles();
        lost.into_iter().map(target_name).collect()
    }

    fn update_params(&self, params: &Value) -> Result<(), Error> {
        let (inner, name) = (&self.inner, &self.inner.name);
        let params = kind::checked(name, params)?;
        let (rules, discovery_ns) = params.terms(name, self.cores)?;
        let key = ("interfaces", INTERFACES_MAX);
        let changed = inner.interfaces.lock().set(key, params.interfaces());
        let changed = changed.map_err(|e| Error::inval(format!("bus {name}: {e}")))?;
        inner.discovery_ns.store(discovery_ns, Ordering::Relaxed);
        let before = std::mem::replace(&mut *inner.rules(), rules.clone());
        let is_of_places = before.targets != rules.targets || !changed.concat().is_empty();
        if is_of_places {
            inner.shared.set_absent(&[]);
            inner.edits.fetch_add(1, Ordering::AcqRel);
            inner.shared.begin_leaving(self.cores);
        }
        for core in 0..self.cores {
            let (inner, rules) = (self.inner.clone(), rules.clone());
            let change = move |core: &Rc<Core>| port::change(&inner, rules, is_of_places, core);
            self.notifier.call(core, Box::new(change));
        }
        Ok(())
    }

    fn close(&self) {
        let bus = self.inner.number;
        for core in 0..self.cores {
            self.notifier.call(core, Box::new(move |core: &Rc<Core>| port::close(bus, core)));
        }
    }

    fn attach(&self, unit: &Arc<Unit>) {
        self.inner.units().insert(unit.path().target, Arc::downgrade(unit));
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        let path = unit.path();
        let registers = match ccb.command {
            Command::Ata(registers) if path.lun == 0 => registers,
            Command::Reset => {
                self.reset(unit, core);
                return Begun::Ended(Outcome::good(0));
            }
            _ if path.lun != 0 => return Begun::Ended(Outcome::of(CamStatus::LunInvalid)),
            _ => return Begun::Ended(Outcome::of(CamStatus::CannotProvide)),
        };
        let Some(port) = port::port(self.inner.number, core) else {
            return Begun::Ended(Outcome::of(CamStatus::Busy));
        };
        let to = (id, address_of(path.target));
        let now = core.now();
        let how = (ccb.flags, ccb.priority < Priority::Normal);
        let refused = port.with(|engine, _| engine.begin(to, &registers, how, data, now));
        refused.map_or(Begun::Pending, Begun::Ended)
    }

    fn finish(&self, _: &Unit, _: CcbId, _: &Segs, _: &Core) -> Begun {
        Begun::Pending
    }

    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        let port = port::port(self.inner.number, core);
        let address = address_of(unit.path().target);
        if port.is_some_and(|port| port.with(|engine, _| engine.abort((id, address)))) {
            unit.done(id, Outcome::of(CamStatus::Aborted), core);
            return;
        }
        // It is with another core.
        self.on_other_cores(core, move |inner, core| {
            let port = port::port(inner.number, core);
            if port.is_some_and(|port| port.with(|engine, _| engine.abort((id, address))))
                && let Some(unit) = inner.unit(address)
            {
                unit.done(id, Outcome::of(CamStatus::Aborted), core);
            }
        });
    }

    fn requeue_unsent(&self, unit: &Unit, core: &Core) {
        let address = address_of(unit.path().target);
        self.on_all_cores(core, move |engine, _| engine.doubt(address));
    }

    fn identity_confirmed(&self, _: &Unit, core: &Core) {
        // Each port looks which of its targets are trusted.
        self.on_all_cores(core, |_, _| {});
    }

    fn identity_changed(&self, unit: &Unit, core: &Core) {
        let address = address_of(unit.path().target);
        self.on_all_cores(core, move |engine, now| engine.accept_replacement(address, now));
    }

    fn reset(&self, unit: &Unit, core: &Core) {
        let address = address_of(unit.path().target);
        let reset = move |inner: &Inner, core: &Rc<Core>| {
            if let Some(port) = port::port(inner.number, core) {
                let outcome = Outcome::of(CamStatus::ResetSent);
                port.with(|engine, _| engine.reset(address, outcome));
            }
        };
        if let Some(own) = core.handle() {
            reset(&self.inner, &own);
        }
        self.on_other_cores(core, reset);
    }
}

impl Aoe {
    /// Whether the section names a target: its loss is reported for as long.
    fn is_configured(&self, address: Address) -> bool {
        self.inner.rules().targets.contains(&address)
    }

    /// Has something done to the protocol of each core.
    fn on_all_cores(&self, from: &Core, f: impl Fn(&mut Engine, u64) + Clone + Send + 'static) {
        let (number, own) = (self.inner.number, f.clone());
        if let Some(port) = port::port(number, from) {
            port.with(|engine, _| own(engine, from.now()));
        }
        self.on_other_cores(from, move |inner, core| {
            if let Some(port) = port::port(inner.number, core) {
                port.with(|engine, _| f(engine, core.now()));
            }
        });
    }

    /// Has something done on all cores but this one.
    fn on_other_cores(&self, from: &Core, f: impl Fn(&Inner, &Rc<Core>) + Clone + Send + 'static) {
        for core in (0..self.cores).filter(|core| *core != from.id() as usize) {
            let (inner, f) = (self.inner.clone(), f.clone());
            self.notifier.call(core, Box::new(move |core: &Rc<Core>| f(&inner, core)));
        }
    }
}
