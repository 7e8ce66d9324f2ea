//! The bus: its units, and the watch for added and removed LUNs.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bio::Segs;
use bio::sync::{Mutex, MutexGuard};
use cam::{Begun, CamStatus, Ccb, CcbId, Command, Outcome, Rescan, Sim, SimFacts, Unit};
use engine::Registry;
use engine::registry::LunMap;
use geom::{Core, Notifier};
use wire::scsi::TransportId;

use super::kind::BusNexusId;
use super::nexus::{self, BusNexus};

/// Largest READ or WRITE, bytes; units whose limit is smaller report it themselves.
const IO_MAX_BYTES: u32 = 1 << 20;

/// How often the bus looks whether it sees other LUNs than before, ns.
const WATCH_NS: u64 = 500_000_000;

/// State that the cores of a bus share.
pub(super) struct BusState {
    /// Its number among all buses of this kind that ever were.
    pub number: usize,
    pub name: String,
    pub nexus_id: BusNexusId,
    pub id: TransportId,
    pub registry: Arc<Registry>,
    pub closed: AtomicBool,
    /// The bus no longer watches for LUNs that appear or vanish.
    watch_stopped: AtomicBool,
    /// Units by LUN: the newest last. One is looked for once by each core.
    units: Mutex<BTreeMap<u64, Vec<Weak<Unit>>>>,
}

impl BusState {
    fn units(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Weak<Unit>>>> {
        self.units.lock()
    }

    pub fn handle(&self, unit: &Unit) -> Weak<Unit> {
        let units = self.units();
        let all = units.get(&unit.path().lun).into_iter().flatten();
        all.rev().find(|u| std::ptr::eq(u.as_ptr(), unit)).cloned().unwrap_or_default()
    }

    /// The LUNs that the bus sees now; `None` without the target.
    fn visible_luns(&self) -> Option<Arc<LunMap>> {
        let port = self.registry.target(&self.nexus_id.driver, &self.nexus_id.target)?;
        Some(port.decide(&self.nexus_id.initiator, &crate::local::local_address()).luns)
    }
}

/// See the module.
pub(super) struct LocalBus {
    inner: Arc<BusState>,
    notifier: Notifier,
    cores: usize,
}

impl LocalBus {
    pub fn new(
        name: &str,
        faces: BusNexusId,
        id: TransportId,
        registry: Arc<Registry>,
        (notifier, cores): (Notifier, usize),
    ) -> Arc<LocalBus> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let inner = BusState {
            number,
            name: name.into(),
            nexus_id: faces,
            id,
            registry,
            closed: AtomicBool::new(false),
            watch_stopped: AtomicBool::new(false),
            units: Mutex::default(),
        };
        Arc::new(LocalBus { inner: Arc::new(inner), notifier, cores })
    }

    /// Stops the watch for LUNs that appear or vanish.
    pub fn stop_watching(&self) {
        self.inner.watch_stopped.store(true, Ordering::Release);
    }

    pub fn nexus_id(&self) -> &BusNexusId {
        &self.inner.nexus_id
    }
}

impl Sim for LocalBus {
    fn facts(&self) -> SimFacts {
        SimFacts {
            name: self.inner.name.clone(),
            targets: 1,
            io_max_bytes: IO_MAX_BYTES,
            whole_max_bytes: IO_MAX_BYTES,
            is_ata: false,
        }
    }

    fn begin(&self, rescan: Rescan) {
        let inner = Arc::downgrade(&self.inner);
        let watch = move |core: &Rc<Core>| {
            let reactor = core.reactor().clone();
            drop(core.reactor().spawn("local bus", async move {
                let mut seen: Option<Arc<LunMap>> = None;
                loop {
                    let Some(bus) = inner.upgrade() else { return };
                    let ends = [&bus.closed, &bus.watch_stopped];
                    if ends.iter().any(|flag| flag.load(Ordering::Acquire)) {
                        return;
                    }
                    let sees = bus.visible_luns();
                    let same = match (&seen, &sees) {
                        (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                        (was, is) => was.is_none() && is.is_none(),
                    };
                    drop(bus);
                    if !same {
                        seen = sees;
                        rescan.request_scan();
                    }
                    reactor.sleep(WATCH_NS).await;
                }
            }));
        };
        self.notifier.call(0, Box::new(watch));
    }

    fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        let number = self.inner.number;
        for core in 0..self.cores {
            let leave = move |core: &Rc<Core>| {
                nexus::find(number, core).into_iter().for_each(|nexus| nexus.log_out());
            };
            self.notifier.call(core, Box::new(leave));
        }
    }

    fn attach(&self, unit: &Arc<Unit>) {
        let mut units = self.inner.units();
        let all = units.entry(unit.path().lun).or_default();
        all.retain(|u| u.strong_count() > 0);
        all.push(Arc::downgrade(unit));
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        match ccb.command {
            Command::Scsi { .. } | Command::Reset => {}
            _ => return Begun::Ended(Outcome::of(CamStatus::CannotProvide)),
        }
        match BusNexus::get_or_login(&self.inner, core) {
            Ok(nexus) => nexus.begin(unit, id, ccb, data),
            Err(status) => Begun::Ended(Outcome::of(status)),
        }
    }

    fn finish(&self, _: &Unit, _: CcbId, _: &Segs, _: &Core) -> Begun {
        Begun::Pending
    }

    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        let number = self.inner.number;
        if nexus::find(number, core).is_some_and(|nexus| nexus.abort(unit, id)) {
            return;
        }
        // It is with another core.
        let handle = self.inner.handle(unit);
        for other in (0..self.cores).filter(|other| *other != core.id() as usize) {
            let handle = handle.clone();
            let abort = move |core: &Rc<Core>| {
                let unit = handle.upgrade();
                if let (Some(nexus), Some(unit)) = (nexus::find(number, core), unit) {
                    nexus.abort(&unit, id);
                }
            };
            self.notifier.call(other, Box::new(abort));
        }
    }

    fn reset(&self, unit: &Unit, core: &Core) {
        // The engine resets the unit for all cores, and for all other nexuses.
        if let Ok(nexus) = BusNexus::get_or_login(&self.inner, core) {
            nexus.reset(unit, None);
        }
    }
}
