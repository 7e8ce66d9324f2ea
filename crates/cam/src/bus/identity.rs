//! Identity checks: whether a device that is in doubt is still the one that it was (D11).
//!
//! ```text
//!   in doubt --asked--> the same          --> its commands continue
//!              |        another identity  --> lost: its commands fail, nothing of them reaches it
//!              |        no target or unit --> retried;     lost after [`GONE_TRIES`]
//!              +-again-- no answer        --> its commands wait, up to their deadlines
//! ```
//! A disk that was lost so is not taken in under its old name. `status` names both identities until
//! the administrator requests a scan of the bus.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use bio::Errno;
use geom::{Core, Event as GeomEvent, Severity, Trouble};

use super::missing::Missing;
use super::{Bus, KnownDevice, scan};
use crate::address::Path;
use crate::events::Event;
use crate::periph::Facts;
use crate::probe::{Refusal, ScsiFacts};
use crate::unit::Unit;

/// Time between two checks that were not answered: from there, doubled, up to there, ns.
const PAUSE_MIN_NS: u64 = 50_000_000;
const PAUSE_MAX_NS: u64 = 1_000_000_000;
/// How often it is probed again where nothing is there, and how long after each time, ns.
const GONE_TRIES: u32 = 4;
const GONE_PAUSE_NS: u64 = 1_000_000_000;

/// A disk that is another one than before.
pub(super) struct Exchanged {
    /// The disk that was there.
    pub(super) previous: Missing,
    /// The disk that is there instead, for people.
    pub(super) current: String,
}

/// Result of a check.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Same,
    /// The same disk with blocks of another length: nothing is where it was.
    Formatted,
    Different,
    /// It did not report enough.
    Unsure,
}

pub(super) fn compare(was: &Facts, is: &Facts) -> Comparison {
    match (was, is) {
        (Facts::Scsi(was), Facts::Scsi(is)) => compare_scsi(was, is),
        (Facts::Ata(a), Facts::Ata(b)) if a.identify.serial.is_empty() => {
            let same = a.is_same(b) && a.identify.sectors == b.identify.sectors;
            if same { Comparison::Same } else { Comparison::Different }
        }
        _ if is.is_same(was) => Comparison::Same,
        _ => Comparison::Different,
    }
}

fn compare_scsi(was: &ScsiFacts, is: &ScsiFacts) -> Comparison {
    if is.inquiry.kind != was.inquiry.kind || !is.has_names_of(was) {
        return Comparison::Different;
    }
    if !is.is_same(was) {
        return Comparison::Formatted;
    }
    // A disk without a name differs from others of its kind only by its capacity.
    match (was.is_named() || was.inquiry.removable, was.capacity, is.capacity) {
        (true, ..) => Comparison::Same,
        (false, was, is) if was == is => Comparison::Same,
        (false, Some(_), None) => Comparison::Unsure,
        _ => Comparison::Different,
    }
}

/// Whether a device in doubt does not report the same identity: the check decides about it.
pub(super) fn is_for_check(unit: &Unit, was: &Facts, is: &Facts) -> bool {
    unit.inspect(|device| device.is_in_doubt()) && compare(was, is) != Comparison::Same
}

/// Identification of a disk, for people.
fn description(facts: &Facts) -> String {
    let (serial, id) = match facts {
        Facts::Scsi(f) => (f.serial.clone(), f.names.id.clone()),
        Facts::Ata(f) => {
            let wwn = f.identify.wwn;
            let id = if wwn == 0 { String::new() } else { format!("{wwn:016x}") };
            (f.identify.serial.clone(), id)
        }
        Facts::Multiplier(_) | Facts::Bridge(_) => Default::default(),
    };
    let size = match facts {
        Facts::Scsi(f) => f.capacity.map(|c| c.blocks.saturating_mul(u64::from(c.block_len))),
        Facts::Ata(f) => {
            let sector = u64::from(f.identify.sector_bytes);
            Some(f.identify.sectors.saturating_mul(sector))
        }
        Facts::Multiplier(_) | Facts::Bridge(_) => None,
    };
    let mut words = facts.label();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            words.push_str(&format!(" {name} {value}"));
        }
    };
    add("serial", serial);
    add("id", id);
    add("bytes", size.map(|size| size.to_string()).unwrap_or_default());
    words
}

/// Identification of a disk, with the mark on the path to it.
pub(super) fn description_with_mark(facts: &Facts, mark: Option<&str>) -> String {
    let words = description(facts);
    mark.filter(|mark| !mark.is_empty())
        .map_or(words.clone(), |mark| format!("{words} config string {mark:?}"))
}

/// Others have marked it otherwise meanwhile; one without a mark may have lost it.
pub(super) fn is_mark_changed(was: Option<&str>, is: Option<&str>) -> bool {
    was.zip(is).is_some_and(|(was, is)| !was.is_empty() && !is.is_empty() && was != is)
}

impl Bus {
    /// A scan that the bus started found a device at a place. True when it is not taken in, as it
    /// is not the one that was there (C6 of [`super::scan`]).
    pub(super) fn is_held_back(
        &self,
        unit: &Arc<Unit>,
        known: Option<&(Arc<Unit>, Facts)>,
        (is, mark): (&Facts, Option<&str>),
        core: &Core,
    ) -> bool {
        let path = unit.path();
        let Some((_, was)) = known else {
            let mut exchanged = self.exchanged.lock();
            if exchanged.get(&path).is_some_and(|old| old.previous.is_same_as((is, mark))) {
                exchanged.remove(&path);
            }
            let is_held = exchanged.contains_key(&path);
            drop(exchanged);
            return is_held || self.is_in_place_of_missing(path, (is, mark));
        };
        if !was.is_disk() {
            return false;
        }
        match compare(was, is) {
            Comparison::Same | Comparison::Formatted => false,
            // It is the same by name: a check finds out.
            _ if is.is_same(was) => {
                unit.doubt(core);
                true
            }
            found => {
                self.identity_changed(unit, (is, None), &found, core);
                true
            }
        }
    }

    /// The mark of a device was changed by us.
    pub(crate) fn mark_changed(&self, path: Path, mark: &str) {
        if let Some(known) = self.known.lock().get_mut(&path) {
            known.mark = Some(mark.to_owned());
        }
    }

    /// Requests the identity of a device in doubt, until that is known.
    pub(super) fn check(&self, path: Path) {
        if self.checks.lock().contains_key(&path) {
            // It sees that there is another round.
            return;
        }
        let Some(unit) = self.unit(path) else { return };
        self.checks.lock().insert(path, None);
        let bus = self.weak_self.clone();
        let check = move |core: &Rc<Core>| {
            let core = core.clone();
            core.reactor().clone().spawn("cam check", async move {
                check(&bus, &unit, &core).await;
                let Some(bus) = bus.upgrade() else { return };
                let reason = bus.checks.lock().remove(&path).flatten();
                if reason.is_some() {
                    bus.inbox.wake();
                }
                // A doubt that arose while this ended, or another device at the same place.
                let doubted = |unit: &Arc<Unit>| unit.inspect(|device| device.is_in_doubt());
                if bus.unit(path).as_ref().is_some_and(doubted) {
                    bus.check(path);
                }
            });
        };
        self.notifier.call(0, Box::new(check));
    }

    /// Why a device is still in doubt.
    fn doubt_remains(&self, path: Path, why: String) {
        let before = match self.checks.lock().get_mut(&path) {
            Some(reason) => reason.replace(why.clone()),
            None => return,
        };
        if before.as_deref() != Some(&why) {
            self.inbox.wake();
        }
    }

    /// A device is the one that it was. False: there is another round by now.
    fn identity_confirmed(
        &self,
        unit: &Arc<Unit>,
        was: &Facts,
        is: &Facts,
        round: u64,
        core: &Core,
    ) -> bool {
        let path = unit.path();
        let shrunk = blocks_of(is).zip(blocks_of(was)).filter(|(is, was)| is < was);
        let trusted = unit.with(core, |device| {
            if let Some((blocks, _)) = shrunk {
                device.shrink(blocks);
            }
            device.trust(round)
        });
        if trusted {
            self.sim.identity_confirmed(unit, core);
        }
        let mut known = self.known.lock();
        let own = known.get_mut(&path).filter(|known| Arc::ptr_eq(&known.unit, unit));
        let Some(known) = own.filter(|_| trusted) else { return trusted };
        // A brief check reads nothing else that could have changed.
        match (&mut known.facts, is) {
            (Facts::Scsi(facts), Facts::Scsi(is)) if is.capacity.is_some() => {
                facts.capacity = is.capacity;
            }
            (Facts::Ata(facts), Facts::Ata(is)) => facts.clone_from(is),
            _ => {}
        }
        self.notify_resize(known, was);
        true
    }

    /// A device is another one than it was: it is lost, with all that was meant for it.
    fn identity_changed(
        &self,
        unit: &Arc<Unit>,
        (is, mark): (&Facts, Option<&str>),
        found: &Comparison,
        core: &Core,
    ) {
        let path = unit.path();
        let exchanged = match self.known.lock().get(&path).filter(|k| Arc::ptr_eq(&k.unit, unit)) {
            Some(known) => {
                Exchanged { previous: Missing::of(known), current: description_with_mark(is, mark) }
            }
            None => return,
        };
        self.remove_device(path, core);
        self.forget_missing(path);
        self.sim.identity_changed(unit, core);
        match found {
            Comparison::Formatted => {
                if let Some(bus) = self.weak_self.upgrade() {
                    bus.request_scan(path.target);
                }
            }
            _ => {
                self.log_event(path, Event::InquiryChanged);
                self.exchanged.lock().insert(path, exchanged);
                self.inbox.wake();
            }
        }
    }

    /// Results of checks that the administrator has to know.
    pub(super) fn identity_troubles(&self) -> Vec<Trouble> {
        let mut out = Vec::new();
        let number = self.number;
        for (path, Exchanged { previous: own, current: is }) in &*self.exchanged.lock() {
            let (name, was, place) = (&own.name, own.description(), self.sim.location(*path));
            let why = format!(
                "{name} at {path} ({place}): a different disk answers (was {was}, now {is}); \
                 requests to {name} fail, and none was sent to the new disk"
            );
            let action = format!(
                "Put the right disk back, or type `ashlar cam rescan {number}` to add the new disk."
            );
            out.push(Trouble { severity: Severity::Failed, why, action });
        }
        let known = self.known.lock();
        for (path, why) in &*self.checks.lock() {
            let (Some(why), Some(known)) = (why, known.get(path)) else { continue };
            let name = known.name();
            let why = format!(
                "{name} at {path}: identity not confirmed, perhaps a different disk ({why}); its \
                 requests wait"
            );
            let action = "The check is repeated automatically; look at the target meanwhile.";
            out.push(Trouble::degraded(why, action));
        }
        out
    }

    /// Whether a disk of a target is missing or was exchanged, and that is not acknowledged.
    pub(super) fn has_missing_disk(&self, target: u64) -> bool {
        let is_its = |path: &Path| path.target == target;
        self.exchanged.lock().keys().any(is_its) || self.missing.lock().keys().any(is_its)
    }

    /// The administrator has places scanned: exchanges that were found there are acknowledged.
    pub(super) fn acknowledge(&self, target: Option<u64>) {
        let meant = |path: &Path| target.is_none_or(|target| target == path.target);
        self.exchanged.lock().retain(|path, _| !meant(path));
        self.missing.lock().retain(|path, _| !meant(path));
    }
}

fn blocks_of(facts: &Facts) -> Option<u64> {
    match facts {
        Facts::Scsi(f) => f.capacity.map(|c| c.blocks),
        Facts::Ata(f) => Some(f.identify.sectors),
        Facts::Multiplier(_) | Facts::Bridge(_) => None,
    }
}

async fn check(bus: &Weak<Bus>, unit: &Arc<Unit>, core: &Rc<Core>) {
    let path = unit.path();
    let (mut pause_ns, mut gone) = (PAUSE_MIN_NS, 0);
    loop {
        if !unit.inspect(|device| device.is_in_doubt()) {
            return;
        }
        let Some(was) = bus.upgrade().and_then(|bus| bus.facts_of(unit)) else { return };
        let Some(sim) = bus.upgrade().map(|bus| bus.sim.clone()) else { return };
        let (probed, round) = scan::identity(unit, was.clone(), core).await;
        let mark = sim.mark(path, core).await;
        let Some(bus) = bus.upgrade() else { return };
        let marked = is_mark_changed(bus.mark_of(path).as_deref(), mark.as_deref());
        let why = match probed {
            Ok(is) => match if marked { Comparison::Different } else { compare(&was, &is) } {
                Comparison::Same if bus.identity_confirmed(unit, &was, &is, round, core) => return,
                // Another round of doubt: the answer is about the previous medium.
                Comparison::Same => continue,
                found @ (Comparison::Different | Comparison::Formatted) => {
                    if unit.inspect(|device| device.doubt_round()) != round {
                        continue;
                    }
                    return bus.identity_changed(unit, (&is, mark.as_deref()), &found, core);
                }
                Comparison::Unsure => "the capacity is not reported".to_owned(),
            },
            Err(why @ (Refusal::NoDevice | Refusal::NoUnit)) => {
                gone += 1;
                if gone > GONE_TRIES {
                    unit.with(core, |device| device.lose(core.now()));
                    bus.lost_by_check(unit);
                    return;
                }
                pause_ns = GONE_PAUSE_NS;
                why.to_string()
            }
            Err(why) => why.to_string(),
        };
        bus.doubt_remains(path, why);
        drop(bus);
        unit.with(core, crate::device::Device::doubt_lasts);
        core.reactor().sleep(pause_ns).await;
        pause_ns = (pause_ns * 2).min(PAUSE_MAX_NS);
    }
}

impl Bus {
    fn mark_of(&self, path: Path) -> Option<String> {
        self.known.lock().get(&path).and_then(|known| known.mark.clone())
    }

    /// Facts of a unit, while it is the one at its place.
    fn facts_of(&self, unit: &Arc<Unit>) -> Option<Facts> {
        let known = self.known.lock();
        let known = known.get(&unit.path()).filter(|k| Arc::ptr_eq(&k.unit, unit))?;
        Some(known.facts.clone())
    }

    /// Nothing is where a unit was: as if one of its commands had found that out.
    fn lost_by_check(self: &Arc<Bus>, unit: &Arc<Unit>) {
        let path = unit.path();
        self.log_event(path, Event::LostDevice);
        let provider = |known: &KnownDevice| known.provider.as_ref().map(|(provider, _)| *provider);
        let lost = self.known.lock().get(&path).and_then(provider);
        if let Some(provider) = lost {
            self.inbox.post(GeomEvent::Lost(provider, Errno::NxIo));
        }
        self.request_scan(path.target);
    }
}
