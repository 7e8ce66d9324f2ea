//! Scans of a bus: the devices of many targets are requested at a time.
//!
//! Invariants
//!  C1  One scan of a bus runs at a time. Requests that arrive meanwhile are carried out after it.
//!  C2  A scan ends. Targets that have not answered by its deadline stay as they were; the
//!      questions to them continue, but no caller waits for them.
//!  C3  Changes are reported in the order of targets, not of answers: names of disks do not depend
//!      on how fast the disks are.
//!  C4  A port multiplier is probed before its ports are: it switches them on, and reports which of
//!      them have other devices than before. Those ports are probed in the same scan.
//!  C5  A device that answers with nonsense is present. A known device stays as it was, with the
//!      devices behind it, and the bus reports the fault.
//!  C6  A scan that the bus starts itself accepts no disk in place of another. The replaced disk is
//!      lost, as by an identity check, until the administrator has the bus scanned, or it is back.
//!  C7  A lowered limit of logical units removes no device that the bus has.
//!  C8  A disk to which the configuration has given another name is removed and added. A disk that
//!      it no longer names keeps its name.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use bio::Segs;
use geom::{Core, deadline};
use wire::scsi::{AccessState, Lun};

use super::identity::is_for_check;
use super::{Bus, Change, KnownDevice};
use crate::address::{ANY, Path};
use crate::ccb::Owner;
use crate::events::Event;
use crate::periph::Facts;
use crate::probe::{
    AtaProbe, MultiplierFacts, MultiplierProbe, ProbeCommand, Refusal, ScsiProbe, access_answer,
    access_query, bridge_answer, bridge_probe_command,
};
use crate::sim::Signature;
use crate::unit::Unit;

/// Targets that are probed at a time.
const AT_A_TIME: usize = 32;
/// Deadline of a scan with a waiting caller, ns: shorter than the time limit of a verb.
pub const SCAN_DEADLINE_NS: u64 = 40_000_000_000;
/// How long a scan with a waiting caller waits for the end of another scan, ns.
const SCAN_LOCK_WAIT_NS: u64 = 10_000_000_000;
/// Deadline of a scan without a waiting caller, ns; disks that still spin up then are left out.
pub const BACKGROUND_SCAN_DEADLINE_NS: u64 = 600_000_000_000;
/// How often a scan looks whether the one before it has ended.
const NEXT_SCAN_NS: u64 = 1_000_000;
/// How often a device is probed as a whole when it changes in between.
const WHOLE_TRIES: u32 = 3;
/// How long a question waits for a buffer.
const NO_MEMORY_NS: u64 = 1_000_000;

/// C1
struct ScanLock<'a>(&'a AtomicBool);

impl Drop for ScanLock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A unit that is being probed: closed in the end unless it belongs to the bus by then.
struct ProbedUnit<'a> {
    bus: &'a Bus,
    unit: Arc<Unit>,
}

impl Drop for ProbedUnit<'_> {
    fn drop(&mut self) {
        let known = self.bus.known.lock();
        let kept = known.get(&self.unit.path()).is_some_and(|k| Arc::ptr_eq(&k.unit, &self.unit));
        drop(known);
        if !kept {
            self.unit.close();
        }
    }
}

/// Work and results of a scan.
struct ScanRound {
    /// C6: the administrator has requested it.
    by_administrator: bool,
    wanted: RefCell<BTreeSet<u64>>,
    left: RefCell<VecDeque<u64>>,
    changes: RefCell<BTreeMap<u64, Vec<Change>>>,
    ended: RefCell<BTreeSet<u64>>,
}

impl Bus {
    /// Requests a scan of a target, or of all targets ([`ANY`]), without waiting for it. The
    /// control thread is notified of changes.
    pub(super) fn request_scan(self: &Arc<Bus>, target: u64) {
        let mut wished = self.scan_requests.lock();
        let first = wished.is_empty();
        wished.insert(target);
        drop(wished);
        if !first {
            return;
        }
        let bus = Arc::downgrade(self);
        let job = move |core: &Rc<Core>| {
            let core = core.clone();
            core.reactor().clone().spawn("cam scan", async move {
                let Some(bus) = bus.upgrade() else { return };
                let changes = bus.scan_requested(&core).await;
                bus.store_changes(changes);
            });
        };
        self.notifier.call(0, Box::new(job));
    }

    /// Scans all targets, and returns the changes.
    pub async fn scan(self: &Arc<Bus>, core: &Rc<Core>) -> Vec<Change> {
        let Some(_turn) = deadline(core, SCAN_LOCK_WAIT_NS, self.lock_scan(core)).await else {
            // The scan without a waiting caller probes all targets anyway: [`Bus::silent`] lists
            // them.
            self.request_scan(ANY);
            return Vec::new();
        };
        self.acknowledge(None);
        // This scan may miss requests that arrive from now on.
        let wished = std::mem::take(&mut *self.scan_requests.lock());
        self.sim.ready(core).await;
        let targets = self.all_targets();
        let (changes, silent) = self.probe_targets(targets, (SCAN_DEADLINE_NS, true), core).await;
        self.read_enclosures(core).await;
        drop(wished);
        self.silent.lock().clone_from(&silent);
        silent.into_iter().for_each(|target| self.request_scan(target));
        changes
    }

    /// Probes one target alone.
    pub async fn scan_target(self: &Arc<Bus>, target: u64, core: &Rc<Core>) -> Vec<Change> {
        let Some(_turn) = deadline(core, SCAN_LOCK_WAIT_NS, self.lock_scan(core)).await else {
            self.request_scan(target);
            return Vec::new();
        };
        self.acknowledge(Some(target));
        self.sim.ready(core).await;
        let only = BTreeSet::from([target]);
        let (changes, silent) = self.probe_targets(only, (SCAN_DEADLINE_NS, true), core).await;
        self.read_enclosures(core).await;
        self.silent.lock().retain(|other| *other != target);
        self.silent.lock().extend(&silent);
        silent.into_iter().for_each(|target| self.request_scan(target));
        changes
    }

    async fn scan_requested(self: &Arc<Bus>, core: &Rc<Core>) -> Vec<Change> {
        let _turn = self.lock_scan(core).await;
        let wished = std::mem::take(&mut *self.scan_requests.lock());
        if wished.is_empty() {
            // Another scan saw to it.
            return Vec::new();
        }
        let targets = match wished.contains(&ANY) {
            true => {
                self.sim.ready(core).await;
                self.all_targets()
            }
            false => wished,
        };
        self.silent.lock().extend(&targets);
        let (changes, silent) =
            self.probe_targets(targets.clone(), (BACKGROUND_SCAN_DEADLINE_NS, false), core).await;
        self.read_enclosures(core).await;
        let mut known = self.silent.lock();
        known.retain(|target| !targets.contains(target));
        known.extend(silent);
        changes
    }

    /// C1
    async fn lock_scan(&self, core: &Rc<Core>) -> ScanLock<'_> {
        while self.scan_running.swap(true, Ordering::AcqRel) {
            core.reactor().sleep(NEXT_SCAN_NS).await;
        }
        ScanLock(&self.scan_running)
    }

    fn all_targets(&self) -> BTreeSet<u64> {
        let known = self.known.lock();
        self.sim.targets().into_iter().chain(known.keys().map(|path| path.target)).collect()
    }

    /// Returns the changes, and the targets that have not answered (C2).
    async fn probe_targets(
        self: &Arc<Bus>,
        targets: BTreeSet<u64>,
        (most_ns, by_hand): (u64, bool),
        core: &Rc<Core>,
    ) -> (Vec<Change>, BTreeSet<u64>) {
        let is_multiplier = |target: &u64| self.sim.signature(*target) == Signature::Multiplier;
        let round = ScanRound {
            by_administrator: by_hand,
            left: RefCell::new(targets.iter().copied().filter(is_multiplier).collect()),
            wanted: RefCell::new(targets),
            changes: RefCell::default(),
            ended: RefCell::default(),
        };
        let work = async {
            // C4
            self.probe_some(&round, core).await;
            let wanted = round.wanted.borrow().clone();
            round.left.replace(wanted.iter().copied().filter(|t| !is_multiplier(t)).collect());
            let asker = |_| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                Box::pin(self.probe_some(&round, core))
            };
            join_all((0..wanted.len().min(AT_A_TIME)).map(asker).collect()).await;
        };
        let _in_time = deadline(core, most_ns, work).await;
        let (wanted, ended) = (round.wanted.into_inner(), round.ended.into_inner());
        let silent = wanted.difference(&ended).copied().collect();
        // C3
        (round.changes.into_inner().into_values().flatten().collect(), silent)
    }

    async fn probe_some(self: &Arc<Bus>, round: &ScanRound, core: &Rc<Core>) {
        loop {
            let target = round.left.borrow_mut().pop_front();
            let Some(target) = target.filter(|_| !self.is_removed()) else { return };
            self.probe_target(target, round, core).await;
            round.ended.borrow_mut().insert(target);
        }
    }

    async fn probe_target(self: &Arc<Bus>, target: u64, round: &ScanRound, core: &Rc<Core>) {
        // Recorded at once: a future that is dropped midway has recorded its changes.
        let record = |changes: Vec<Change>| {
            round.changes.borrow_mut().entry(target).or_default().extend(changes);
        };
        let first = Path::new(self.number, target, 0);
        let before = self.multiplier(first);
        let luns = self.probe_lun(first, round.by_administrator, core, &record).await;
        // C4: behind a multiplier that was removed, devices may be unreachable.
        let now = self.multiplier(first);
        let gone = || before.as_ref().map_or(Vec::new(), |f| (0..f.ports.len() as u64).collect());
        round.wanted.borrow_mut().extend(now.map_or_else(gone, |f| f.changed(before.as_ref())));
        let known: Vec<Path> = self
            .known
            .lock()
            .keys()
            .copied()
            .filter(|path| path.target == target && path.lun != 0)
            .collect();
        let Some(luns) = luns else {
            // Each known unit is probed itself.
            for path in known {
                self.probe_lun(path, round.by_administrator, core, &record).await;
            }
            return;
        };
        for lun in &luns {
            let path = Path::new(self.number, target, u64::from(lun.number()));
            if path != first {
                self.probe_lun(path, round.by_administrator, core, &record).await;
            }
        }
        let has = |lun| lun == 0 || luns.iter().any(|own| u64::from(own.number()) == lun);
        self.retain_refusals(target, has);
        let is_cut = luns.len() >= self.sim.luns_max() as usize;
        for path in known {
            match luns.iter().any(|lun| u64::from(lun.number()) == path.lun) {
                true => {}
                // C7
                false if is_cut => {
                    drop(self.probe_lun(path, round.by_administrator, core, &record).await)
                }
                false => record(self.remove_device(path, core)),
            }
        }
    }

    /// False when the bus was taken out meanwhile.
    fn add(&self, path: Path, device: KnownDevice) -> bool {
        let mut known = self.known.lock();
        let is_attached = !self.is_removed();
        if is_attached {
            known.insert(path, device);
        }
        is_attached
    }

    fn multiplier(&self, path: Path) -> Option<MultiplierFacts> {
        match self.facts(path) {
            Some(Facts::Multiplier(facts)) => Some(*facts),
            _ => None,
        }
    }

    /// Probes one logical unit; returns the logical units of its target, if reported.
    async fn probe_lun(
        self: &Arc<Bus>,
        path: Path,
        by_hand: bool,
        core: &Rc<Core>,
        record: &dyn Fn(Vec<Change>),
    ) -> Option<Vec<Lun>> {
        let old = self.known.lock().get(&path).map(|k| (k.unit.clone(), k.facts.clone()));
        let lost = old.as_ref().is_some_and(|(unit, _)| unit.inspect(|device| device.is_lost()));
        if let Some(known) = self.known.lock().get(&path).filter(|_| lost) {
            self.remember_missing(path, known);
        }
        let unit = match &old {
            Some((unit, _)) if !lost => unit.clone(),
            _ => self.create_unit(path, core),
        };
        let probed_unit = ProbedUnit { bus: self, unit: unit.clone() };
        let before = old.as_ref().filter(|_| !lost).map(|(_, facts)| facts.clone());
        let exchanged = |port| {
            if let Some(unit) = self.unit(Path::new(self.number, port, 0)) {
                unit.lost_power();
            }
        };
        let (probed, luns, round) = probe_all(&unit, before, core, &exchanged).await;
        let luns = match (&probed, &old) {
            // C5
            (Err(why), Some((_, Facts::Scsi(facts)))) if why.is_nonsense() => facts.luns.clone(),
            _ => luns,
        };
        let known = old.as_ref().filter(|_| !lost);
        let is_known = |facts: &Facts, before: &Facts| {
            // C8
            facts.is_same(before) && !self.is_misnamed(path, facts)
        };
        let mark = match (&probed, known) {
            (Ok(facts), Some((_, before))) if is_known(facts, before) => None,
            (Ok(_), _) => self.sim.mark(path, core).await,
            (Err(_), _) => None,
        };
        if let Ok(facts) = &probed
            && !by_hand
            && self.is_held_back(&unit, known, (facts, mark.as_deref()), core)
        {
            if lost {
                // The disk in its place was noted.
                record(self.remove_device(path, core));
                self.forget_missing(path);
            }
            return luns;
        }
        self.set_refusal(path, probed.as_ref().err().copied().filter(|_| known.is_none()));
        match (probed, old) {
            (Ok(facts), Some((_, before))) if !lost && is_for_check(&unit, &before, &facts) => {}
            (Ok(facts), Some((_, before))) if !lost && is_known(&facts, &before) => {
                self.doubt(path, None);
                if facts != before {
                    if let Facts::Scsi(facts) = &facts
                        && let Some(access) = facts.access
                    {
                        self.access_reported(&unit, access);
                    }
                    if let Some(known) = self.known.lock().get_mut(&path) {
                        known.facts = facts.clone();
                        self.notify_resize(known, &before);
                    }
                    record(vec![Change::Changed(path, facts)]);
                }
            }
            (Ok(facts), before) => {
                record(self.remove_device(path, core));
                // Another device in its place: nothing of the old one may reach it, and a unit that
                // is made for it was not probed itself.
                let (unit, round) = match before.is_some() && !lost {
                    true => (self.create_unit(path, core), 0),
                    false => (unit, round),
                };
                record(self.accept_device(&unit, facts, mark, round, core));
            }
            // C5
            (Err(why), Some(_)) if !lost && why.is_nonsense() => self.doubt(path, Some(why)),
            (Err(_), Some(_)) => record(self.remove_device(path, core)),
            (Err(_), None) => {}
        }
        drop(probed_unit);
        luns
    }

    /// A device that is new at its place, by its answers in a round of doubt.
    fn accept_device(
        &self,
        unit: &Arc<Unit>,
        facts: Facts,
        mark: Option<String>,
        round: u64,
        core: &Rc<Core>,
    ) -> Vec<Change> {
        let path = unit.path();
        if let Facts::Scsi(facts) = &facts {
            unit.set_access(facts.access);
        }
        let known = KnownDevice {
            unit: unit.clone(),
            facts: facts.clone(),
            provider: None,
            other_periphs: Vec::new(),
            doubt: None,
            mark,
        };
        if !self.add(path, known) {
            unit.close();
            return Vec::new();
        }
        self.recheck_former_path(path, &facts);
        unit.with(core, |device| device.identify(round));
        self.log_event(path, Event::FoundDevice);
        vec![Change::Found(unit.clone(), facts)]
    }
}

/// All of them at a time, to their end.
pub(crate) async fn join_all(mut list: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    poll_fn(|cx| {
        list.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if list.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// As [`probe`], repeated until no cause of doubt occurs meanwhile: answers from before and after
/// such a cause may be of two devices. The last result is the round of doubt of the questions.
async fn probe_all(
    unit: &Arc<Unit>,
    before: Option<Facts>,
    core: &Rc<Core>,
    exchanged: &dyn Fn(u64),
) -> (Result<Facts, Refusal>, Option<Vec<Lun>>, u64) {
    let mut tries = WHOLE_TRIES;
    loop {
        let began = Cell::new(0);
        let probed = probe(unit, before.clone(), core, exchanged, &began).await;
        tries -= 1;
        if tries == 0 || unit.inspect(|device| device.doubt_round()) == began.get() {
            return (probed.0, probed.1, began.get());
        }
    }
}

/// Finds out whether a device, which reported `was`, is the same one, and in which round of doubt.
pub(super) async fn identity(
    unit: &Arc<Unit>,
    was: Facts,
    core: &Rc<Core>,
) -> (Result<Facts, Refusal>, u64) {
    let began = Cell::new(0);
    let Facts::Scsi(facts) = was else {
        let (probed, _) = probe(unit, Some(was), core, &|_| {}, &began).await;
        return (probed, began.get());
    };
    let mut probe = ScsiProbe::identity(*facts);
    run_probe(unit, &mut probe, core, &began).await;
    (probe.finish().map(|facts| Facts::Scsi(Box::new(facts))), began.get())
}

/// Sends all questions of a probe; `began` is the round of doubt after those that report changes.
async fn run_probe(unit: &Arc<Unit>, probe: &mut ScsiProbe, core: &Rc<Core>, began: &Cell<u64>) {
    began.set(unit.inspect(|device| device.doubt_round()));
    while let Some(query) = probe.next_command() {
        let first = !probe.has_begun();
        let (ended, data) = send_probe_command(unit, core, &query).await;
        probe.handle_answer(&ended, &data);
        if first {
            began.set(unit.inspect(|device| device.doubt_round()));
        }
    }
}

/// Reads the facts of a device; `before` are its earlier facts, if known. `exchanged` is called
/// with the ports of a multiplier whose devices may have lost the contents of their caches, before
/// these devices are reached again. The second result lists the units of the target, if it was
/// sent and answered. `began`: see [`ask_all`].
pub(super) async fn probe(
    unit: &Arc<Unit>,
    before: Option<Facts>,
    core: &Rc<Core>,
    exchanged: &dyn Fn(u64),
    began: &Cell<u64>,
) -> (Result<Facts, Refusal>, Option<Vec<Lun>>) {
    // A device that speaks ATA is alone behind its target.
    let alone = |probed| (probed, Some(Vec::new()));
    began.set(unit.inspect(|device| device.doubt_round()));
    let signature = unit.sim().signature(unit.path().target);
    if signature == Signature::Bridge {
        let (ended, data) = send_probe_command(unit, core, &bridge_probe_command()).await;
        return alone(bridge_answer(&ended, &data).map(|facts| Facts::Bridge(Box::new(facts))));
    }
    if signature == Signature::Multiplier {
        let mut probe = MultiplierProbe::default();
        while let Some((rest_ns, query)) = probe.next_command() {
            if rest_ns > 0 {
                core.reactor().sleep(rest_ns).await;
            }
            probe
                .handle_answer(&send_probe_command(unit, core, &query).await.0)
                .into_iter()
                .for_each(exchanged);
        }
        return alone(probe.finish().map(|facts| Facts::Multiplier(Box::new(facts))));
    }
    if signature == Signature::Ata {
        let before = match &before {
            Some(Facts::Ata(facts)) => Some(&**facts),
            _ => None,
        };
        let mut probe = AtaProbe::new(None, before);
        while let Some(query) = probe.next_command() {
            let (ended, data) = send_probe_command(unit, core, &query).await;
            probe.handle_answer(&ended, &data);
        }
        return alone(probe.finish().map(|facts| Facts::Ata(Box::new(facts))));
    }
    let before = match before {
        Some(Facts::Scsi(facts)) => Some(*facts),
        _ => None,
    };
    let luns_max = unit.sim().luns_max();
    let mut probe = ScsiProbe::new(unit.path().lun == 0, before).with_luns_max(luns_max);
    run_probe(unit, &mut probe, core, began).await;
    let luns = probe.luns();
    (probe.finish().map(|facts| Facts::Scsi(Box::new(facts))), luns)
}

/// Reads how a disk can be accessed this way; none when it reports nothing.
pub(super) async fn query_access_state(
    unit: &Arc<Unit>,
    core: &Rc<Core>,
    bus: &Weak<Bus>,
) -> Option<AccessState> {
    let Some(Facts::Scsi(facts)) = bus.upgrade()?.facts(unit.path()) else { return None };
    if !facts.is_asymmetric() {
        return None;
    }
    let (ended, data) = send_probe_command(unit, core, &access_query()).await;
    ended.result.ok().and_then(|moved| access_answer(&facts.names, data.get(..moved as usize)?))
}

/// Sends one question; returns its result and the data.
async fn send_probe_command(
    unit: &Arc<Unit>,
    core: &Rc<Core>,
    query: &ProbeCommand,
) -> (crate::ccb::Ended, Vec<u8>) {
    loop {
        if let Some(data) = Segs::alloc(core.pool(), query.length as usize) {
            let ended = unit.execute(core, query.ccb(Owner::Task(0)), &data).await;
            return (ended, data.to_vec());
        }
        core.reactor().sleep(NO_MEMORY_NS).await;
    }
}
