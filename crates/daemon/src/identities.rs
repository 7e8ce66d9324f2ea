//! Identities of disks as the state folder keeps them: one record, by kind, place and name. Images
//! store their own (`disks::Lasting`). The folder has those of disks without an image, and
//! restores one that a copy of the image has lost.
//!
//! ```text
//!   hardware's serial number        --> that; the name that it was served by first is kept
//!   image made just now             --> a new one, at random
//!   stored with the image           --> that
//!   kept for the place              --> that; it is stored with the image again
//!   none, known before (I5)         --> the one that versions before this derived
//!   none                            --> a new one, at random
//! ```
//!
//! Invariants
//!  I1  An identity is kept before a unit on its disk is opened, and never changes afterwards.
//!  I2  An identity that is not its hardware's has one place: the newest. A copy does not take it
//!      from a place that still has it. A record under a name that the configuration no longer has
//!      applies to any disk at its place. Disks of one image, which can only be read, have an
//!      identity each.
//!  I3  The record of a place counts only while no other place has that identity.
//!  I4  The record is written at the first start. So a folder with other records and without this
//!      one was used by a version that derived identities from the machine's id.
//!  I5  A disk was known before when the configuration of the first start on such a folder names
//!      it. It was also known when initiators know a unit by the serial number that was derived for
//!      it. This is decided once, for the result is kept. A disk that was made just now was not
//!      known.
//!  I6  A record that cannot be read is not written over, and every disk that has no identity with
//!      its image then has the derived one. Hosts may know it.
//!  I7  No path is examined under the lock, which the control thread takes: a path may hang.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use disks::{IdentityRequest, PathKind, PersistentIdentity, path_kind, stored_at};
use engine::state_store::{self, SaveFuture, StateStore, save_channel};
use geom::GraphControl;
use mgmt::config::{Config, DiskConfig};
use mgmt::plan::PredictedSerials;
use rustix::rand::GetRandomFlags;
use serde_json::{Value, json};

use crate::identity;
use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "disks";

/// Form of the record.
const LAYOUT: u64 = 1;

/// Time between two saves while nothing is exported, ns.
const PAUSE_NS: u64 = 1_000_000_000;

/// Identities that are kept; of further disks only the images have theirs.
const KEPT_MAX: usize = 65_536;

/// Kind, place and name.
type DiskLocation = (String, String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct IdentityRecord {
    lasting: PersistentIdentity,
    /// It is the hardware's: another place may have it, too.
    is_hardware: bool,
}

#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Record {
    /// I5: disks of the configuration that was there before identities were kept.
    before: BTreeSet<String>,
    all: BTreeMap<DiskLocation, IdentityRecord>,
}

#[derive(Default)]
struct IdentityState {
    record: Record,
    /// I2: places by identity.
    places: BTreeMap<PersistentIdentity, DiskLocation>,
    /// I2: disks of the configuration.
    configured: BTreeSet<String>,
    /// I5: the next configuration names the disks known before.
    inherits: bool,
    /// Names of disks that have the identity of another place (I2).
    copies: BTreeSet<String>,
    /// I6
    is_lost: bool,
    changed: bool,
    failed: bool,
    /// When it is saved at the earliest while nothing is exported, ns of the cores' clock.
    next_ns: u64,
}

/// The identity of a disk before it is made.
enum Prediction {
    Known(PersistentIdentity),
    New,
    Unknown,
}

/// See the module.
pub struct IdentityKeeper {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    /// I5: serial numbers of units that initiators knew when the daemon started.
    known: BTreeSet<String>,
    state: Mutex<IdentityState>,
}

impl IdentityKeeper {
    /// Loads the stored identities. `known`: serial numbers of units that initiators know.
    pub fn load(
        store: Arc<dyn StateStore>,
        tell: Arc<ReportFn>,
        known: BTreeSet<String>,
    ) -> IdentityKeeper {
        let mut state = IdentityState::default();
        match read(&*store, SERIAL, state_store::RecordKind::DiskIdentities, |bytes| {
            decode(bytes).map(Some)
        }) {
            Ok(Some(record)) => state.record = record,
            Ok(None) => {
                state.inherits = store.was_used();
                state.changed = !state.inherits; // I4
            }
            Err(why) => {
                let text = format!(
                    "recorded disk identities: cannot be read ({why}); a disk whose image has none \
                     gets the identity that older versions gave. Repair or remove {SERIAL}.{} in \
                     the state folder: `state` in [daemon] names it",
                    state_store::RecordKind::DiskIdentities.name()
                );
                tell("daemon", text);
                state.is_lost = true;
            }
        }
        let own = state.record.all.iter().filter(|(_, kept)| !kept.is_hardware);
        let places = own.map(|(place, kept)| (kept.lasting.clone(), place.clone()));
        state.places = places.collect();
        let keeper = IdentityKeeper { store, report: tell, known, state: Mutex::new(state) };
        keeper.store();
        keeper
    }

    fn state(&self) -> MutexGuard<'_, IdentityState> {
        self.state.lock()
    }

    /// I5: the daemon is to have this configuration.
    pub fn set_desired(&self, config: &Config) {
        let mut state = self.state();
        state.configured = config.disk.iter().map(|d| d.name.clone()).collect();
        if std::mem::take(&mut state.inherits) {
            state.record.before = state.configured.clone();
            state.changed = true;
        }
    }

    /// Whether changes are left to store.
    pub fn is_unsaved(&self) -> bool {
        let state = self.state();
        state.changed && !state.is_lost && self.store.is_persistent()
    }

    /// Stores the changes, at most once a second: many disks may be made one by one. True: it has
    /// waited for the disk, and requests may have arrived meanwhile.
    pub fn store_if_due(&self, control: &mut GraphControl) -> bool {
        let now_ns = control.now_ns();
        let is_due = self.is_unsaved() && now_ns >= self.state().next_ns;
        if is_due {
            self.state().next_ns = now_ns.saturating_add(PAUSE_NS);
            self.store_in_turns(control);
        }
        is_due
    }

    /// Stores the changes (I1); waits for the disk.
    pub fn store(&self) {
        if let Some(saved) = self.begin_store() {
            self.end_store(saved.wait());
        }
    }

    /// The same, and the control thread answers questions meanwhile: the record of many thousand
    /// disks takes a while.
    pub fn store_in_turns(&self, control: &mut GraphControl) {
        if let Some(saved) = self.begin_store() {
            self.end_store(control.wait_for(saved));
        }
    }

    /// Begins to store the changes, if there are any. Changes made later are left to store.
    fn begin_store(&self) -> Option<SaveFuture> {
        let mut state = self.state();
        if !state.changed || state.is_lost || !self.store.is_persistent() {
            return None;
        }
        state.changed = false;
        let (done, saved) = save_channel();
        self.store.save(
            SERIAL,
            state_store::RecordKind::DiskIdentities,
            encode(&state.record),
            done,
        );
        Some(saved)
    }

    /// Records the end of a save. One that failed is repeated, and reported once.
    fn end_store(&self, end: Result<(), Errno>) {
        let mut state = self.state();
        state.changed |= end.is_err();
        match end {
            Ok(()) => state.failed = false,
            Err(e) if !std::mem::replace(&mut state.failed, true) => {
                let text = format!(
                    "disk identities: not saved ({e}); a disk without an image file may be another \
                     disk for its hosts after a restart. Repair the state folder: `state` in \
                     [daemon] names it"
                );
                (self.report)("daemon", text);
            }
            Err(_) => {}
        }
    }

    /// Serial numbers of units on disks that are made as configured; see `Plant::predict_serials`.
    pub fn predict_serials(
        &self,
        disks: &[DiskConfig],
        gone: &BTreeSet<String>,
    ) -> PredictedSerials {
        let serial =
            |disk: &DiskConfig| Some((disk.name.clone(), self.predict_serial(disk, gone)?));
        disks.iter().filter_map(serial).collect()
    }

    fn predict_serial(&self, disk: &DiskConfig, gone: &BTreeSet<String>) -> Option<String> {
        match self.predict(disk, gone) {
            Prediction::Known(lasting) => Some(identity::serial_of_disk(&lasting)),
            Prediction::New => Some(String::new()),
            Prediction::Unknown => None,
        }
    }

    /// Serial number of a disk that is made as configured when the disks called `gone` are not
    /// there any more. Of one that gets a new identity, words that equal no serial number. Empty:
    /// unknown.
    pub fn predict_ident(&self, disk: &DiskConfig, gone: &BTreeSet<String>) -> String {
        match self.predict(disk, gone) {
            Prediction::Known(lasting) => lasting.geom_ident(),
            Prediction::New => "not assigned yet".to_owned(),
            Prediction::Unknown => String::new(),
        }
    }

    fn predict(&self, disk: &DiskConfig, gone: &BTreeSet<String>) -> Prediction {
        let params = Value::Object(disk.params.clone());
        if let Some(lasting) = disks::expected_identity(&disk.kind, &params) {
            return Prediction::Known(lasting);
        }
        let path = params.get("path").and_then(Value::as_str);
        let kind = path_kind(&disk.kind);
        let place = match (kind, path) {
            (PathKind::File, Some(path)) => match std::fs::canonicalize(path) {
                Ok(path) => path.display().to_string(),
                Err(_) => return Prediction::New,
            },
            (PathKind::Device, Some(path)) => path.to_owned(),
            _ => disk.name.clone(),
        };
        let state = self.state();
        let place = (disk.kind.clone(), place, disk.name.clone());
        match state.record_of(&place, |name| gone.contains(name)) {
            Some(kept) => Prediction::Known(kept.lasting.clone()),
            // The hardware may report an identity.
            None if kind == PathKind::Device => Prediction::Unknown,
            None => Prediction::New,
        }
    }

    /// Whether a disk with this file was opened before, under any name. Blocks if its path hangs.
    pub fn has_record_of(&self, disk: &DiskConfig) -> bool {
        let Some(path) = disk.image().and_then(disks::canonical_path) else { return false };
        let place = (disk.kind.clone(), path.display().to_string(), String::new());
        let state = self.state();
        let first = state.record.all.range(place.clone()..).next();
        first.is_some_and(|(other, _)| same_location(other, &place))
    }

    /// Disks whose image is a copy of another one that is there.
    pub fn copies(&self) -> BTreeSet<String> {
        self.state().copies.clone()
    }

    /// I5
    fn was_known(&self, state: &IdentityState, ask: &IdentityRequest<'_>) -> bool {
        let old =
            PersistentIdentity { ident: ask.derived.clone(), unit_name: Some(ask.name.into()) };
        let is_free = !state.places.contains_key(&old);
        let named = state.record.before.contains(ask.name);
        let unit = || identity::digest(&[&ask.derived, ask.name]);
        is_free && (named || state.is_lost || self.known.contains(&unit()))
    }
}

impl disks::Identities for IdentityKeeper {
    fn identity_of(&self, ask: &IdentityRequest<'_>) -> PersistentIdentity {
        let place = (ask.kind.to_owned(), ask.location.to_owned(), ask.name.to_owned());
        let mut examined: Option<(DiskLocation, bool)> = None;
        loop {
            let mut state = self.state();
            let other = ask.found.as_ref().and_then(|found| state.other_image(found, &place));
            let current = examined.as_ref().filter(|(at, _)| Some(at) == other.as_ref());
            match (current.map(|(_, has_it)| *has_it), other) {
                (None, Some(other)) => {
                    // I7: the control thread waits for the lock, and the other path may hang.
                    drop(state);
                    let has_it = stored_at(Path::new(&other.1)) == ask.found;
                    examined = Some((other, has_it));
                }
                (has_it, _) => {
                    return self.assign(&mut state, ask, place, has_it.unwrap_or(false));
                }
            }
        }
    }

    fn forget(&self, kind: &str, location: &str, name: &str) {
        let place = (kind.to_owned(), location.to_owned(), name.to_owned());
        let mut state = self.state();
        let Some(kept) = state.record.all.remove(&place) else { return };
        if state.places.get(&kept.lasting) == Some(&place) {
            state.places.remove(&kept.lasting);
        }
        state.changed = true;
    }
}

impl IdentityKeeper {
    /// Chooses and keeps the identity of a disk. `is_stored`: the image of another disk has the
    /// same one stored.
    fn assign(
        &self,
        state: &mut IdentityState,
        ask: &IdentityRequest<'_>,
        place: DiskLocation,
        is_stored: bool,
    ) -> PersistentIdentity {
        let kept = state.record_of(&place, |_| false).cloned();
        state.copies.remove(ask.name);
        if let Some(own) = ask.own {
            let kept = kept.filter(|k| k.is_hardware && k.lasting.ident == own);
            let named =
                || PersistentIdentity { ident: own.into(), unit_name: Some(ask.name.into()) };
            let lasting = kept.map_or_else(named, |k| k.lasting);
            state.keep(place, IdentityRecord { lasting: lasting.clone(), is_hardware: true });
            return lasting;
        }
        let lasting = match (&ask.found, kept.filter(|k| !k.is_hardware)) {
            (None, _) if ask.is_new => random(),
            (Some(found), _) if state.is_copy(found, &place, is_stored) => {
                state.copies.insert(ask.name.to_owned());
                return found.clone();
            }
            (Some(found), _) => found.clone(),
            (None, Some(kept)) => kept.lasting, // I3 by `keep`
            (None, None) if self.was_known(state, ask) => {
                PersistentIdentity { ident: ask.derived.clone(), unit_name: Some(ask.name.into()) }
            }
            (None, None) => random(),
        };
        state.keep(place, IdentityRecord { lasting: lasting.clone(), is_hardware: false });
        lasting
    }
}

impl IdentityState {
    /// The record of a place, or that of a disk there that had another name (I2). `goes`: names
    /// that the configuration will have no longer.
    fn record_of(
        &self,
        place: &DiskLocation,
        goes: impl Fn(&str) -> bool,
    ) -> Option<&IdentityRecord> {
        let (kind, path, _) = place;
        let here = (kind.clone(), path.clone(), String::new());
        let mut others = self.record.all.range(here..);
        let others = std::iter::from_fn(|| others.next().filter(|(o, _)| same_location(o, place)));
        let free = |(other, _): &(&DiskLocation, &IdentityRecord)| {
            !self.configured.contains(&other.2) || goes(&other.2)
        };
        self.record.all.get(place).or_else(|| others.filter(free).map(|(_, kept)| kept).next())
    }

    /// I2: another place has it. `is_stored`: the image there has it still.
    fn is_copy(&self, found: &PersistentIdentity, place: &DiskLocation, is_stored: bool) -> bool {
        let other = self.places.get(found).filter(|other| *other != place);
        other.is_some_and(|other| match same_location(other, place) {
            true => self.configured.contains(&other.2),
            false => is_stored,
        })
    }

    /// I2: the image at another place to which an identity was given.
    fn other_image(
        &self,
        found: &PersistentIdentity,
        place: &DiskLocation,
    ) -> Option<DiskLocation> {
        let other = self.places.get(found).filter(|other| !same_location(other, place))?;
        (path_kind(&other.0) == PathKind::File).then(|| other.clone())
    }

    /// I2, I3.
    fn keep(&mut self, place: DiskLocation, kept: IdentityRecord) {
        let was = self.record.all.get(&place);
        if was == Some(&kept) || was.is_none() && self.record.all.len() >= KEPT_MAX {
            return;
        }
        if let Some(was) = was.filter(|was| !was.is_hardware) {
            self.places.remove(&was.lasting);
        }
        if !kept.is_hardware {
            let before = self.places.insert(kept.lasting.clone(), place.clone());
            before.filter(|before| *before != place).map(|p| self.record.all.remove(&p));
        }
        self.record.all.insert(place, kept);
        self.changed = true;
    }
}

/// Whether two disks have one place.
fn same_location(one: &DiskLocation, other: &DiskLocation) -> bool {
    (&one.0, &one.1) == (&other.0, &other.1)
}

/// A new identity.
fn random() -> PersistentIdentity {
    let mut bytes = [0; 8];
    // So few bytes are never cut short; the call waits for the kernel's pool, and can be repeated.
    while rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
    PersistentIdentity::new(&bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
}

fn encode(record: &Record) -> Vec<u8> {
    let one = |((kind, place, name), kept): (&DiskLocation, &IdentityRecord)| {
        json!({
            "kind": kind, "place": place, "name": name, "ident": kept.lasting.ident,
            "called": kept.lasting.unit_name, "own": kept.is_hardware,
        })
    };
    let disks: Vec<Value> = record.all.iter().map(one).collect();
    json!({ "layout": LAYOUT, "before": record.before, "disks": disks }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Record> {
    let all = document(bytes, LAYOUT)?;
    let one = |disk: &Value| {
        let text = |key| disk.get(key)?.as_str().map(str::to_owned);
        let called = disk.get("called").and_then(Value::as_str).map(str::to_owned);
        let lasting = PersistentIdentity { ident: text("ident")?, unit_name: called };
        let is_own = disk.get("own")?.as_bool()?;
        Some((
            (text("kind")?, text("place")?, text("name")?),
            IdentityRecord { lasting, is_hardware: is_own },
        ))
    };
    let name = |name: &Value| name.as_str().map(str::to_owned);
    Some(Record {
        before: all.get("before")?.as_array()?.iter().map(name).collect::<Option<_>>()?,
        all: all.get("disks")?.as_array()?.iter().map(one).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
#[path = "identities_tests.rs"]
mod tests;
