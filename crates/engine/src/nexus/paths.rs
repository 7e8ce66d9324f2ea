//! The paths (I_T_L nexuses) of a session: made when a LUN is used first, changed as maps change.
//!
//! To SAM a nexus exists from the login on. Here it takes memory from the first command that is
//! addressed to its LUN: 4,096 sessions that each could use 16,384 units would have 67 million.
//!
//! ```text
//!   (in the map) --first command--> PATH --unit exchanged--> PATH to the new unit, which begins
//!        ^                           |                       with POWER ON, RESET (P4)
//!        '--- added to the map       '--taken out of the map, session ends--> nexus_lost()
//! ```
//!
//! Invariants
//!  P1  A session has at most one path for each LUN that its group grants now, and one for each
//!      that was used. A command keeps the path on which it arrived, regardless of later groups.
//!      One that waits for data, memory or its turn when its unit is taken out or made read-only
//!      ends with an error and does not touch the medium.
//!  P2  Before the first command for a LUN that nexus has reported nothing to its initiator that
//!      could be out of date. The nexus begins with a condition that covers all conditions raised
//!      meanwhile. POWER ON, RESET covers everything (SAM-5 5.14, precedence). After a session was
//!      reinstated it is I_T NEXUS LOSS, which covers everything but a reset. So a unit that was
//!      reset after the login begins with POWER ON, RESET all the same.
//!  P3  A condition of a session and not of one unit is a bit of the session's own word, which is
//!      read together with the nexus's. These conditions are the changed list of LUNs and the
//!      access state of the port's group. So it holds for nexuses that are made later. The first is
//!      delivered once, by any unit that has nothing else to report, or by REPORT LUNS.
//!  P4  A path may lead to another unit than the one that the initiator knows under that number. It
//!      does not reach the medium until the initiator has read its identity (`registry/known`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use wire::scsi::{Access, Asc, Lun, asc};

use crate::flags;
use crate::gate;
use crate::nexus::{ItNexus, Path};
use crate::qos::QosClient;
use crate::registry::{LunEntry, LunMap};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::events::{nexus_made, nexus_mapped};
use crate::unit::unit_attention::ItlNexus;

/// Spreads LUNs, which the operator chooses and no peer does.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// Paths by LUN.
pub(crate) type Paths = HashMap<u64, Rc<Path>, BuildHasherDefault<NumberHasher>>;

/// The path of the last command. Most commands of a session are for one unit, and the map of the
/// paths is not searched for them.
pub(crate) struct LastPath {
    /// LUN field of the command.
    pub field: [u8; 8],
    /// The path that its number has (P1).
    pub path: Rc<Path>,
}

/// Effect of a change of the map on an existing path.
enum PathChange {
    /// The unit is the same; its rule and the group that counts its commands may be others.
    Keep(Arc<LunEntry>),
    /// Another unit has its number.
    Exchange(Arc<LunEntry>),
    /// The number has no unit.
    Drop,
}

impl ItNexus {
    /// The paths that exist, by growing LUN.
    pub fn paths(&self) -> Vec<Rc<Path>> {
        let mut all: Vec<Rc<Path>> = self.paths.borrow().values().cloned().collect();
        all.sort_by_key(|p| p.lun());
        all
    }

    /// The path of a LUN field, in any legal form; it is made when the LUN is mapped.
    pub fn path_of(&self, lun: [u8; 8]) -> Option<Rc<Path>> {
        let number = u64::from(Lun::decode(lun).ok()?.number());
        if let Some(path) = self.paths.borrow().get(&number) {
            return Some(path.clone());
        }
        self.make_path(number)
    }

    /// The same, by the present groups.
    pub fn refreshed_path_of(&self, lun: [u8; 8]) -> Option<Rc<Path>> {
        self.refresh();
        self.path_of(lun)
    }

    /// How a command ends that has no path, as its number has no unit.
    pub(crate) fn missing_lun_sense(&self, lun: [u8; 8]) -> Asc {
        match Lun::decode(lun) {
            Ok(lun) => code_of(&self.map.borrow(), u64::from(lun.number())),
            Err(_) => asc::LUN_NOT_SUPPORTED,
        }
    }

    #[cold]
    fn make_path(&self, number: u64) -> Option<Rc<Path>> {
        if self.is_closing() {
            return None;
        }
        let entry = self.map.borrow().get(number).cloned()?;
        // P2.
        let first = match self.reinstates {
            true if entry.device.reset_number() <= self.began => asc::NEXUS_LOSS,
            _ => asc::POWER_ON_OR_RESET,
        };
        let path = Rc::new(self.path_to(&entry, first));
        self.paths.borrow_mut().insert(number, path.clone());
        Some(path)
    }

    /// The units that the initiator sees, each once, and whether it lacks write access there by
    /// every number.
    pub(crate) fn devices(&self) -> Vec<(Arc<Device>, bool)> {
        let map = self.map();
        let lacks = |e: &LunEntry| e.read_only && !map.read_only_reserves();
        let mut all: Vec<(Arc<Device>, bool)> =
            map.iter().map(|e| (e.device.clone(), lacks(e))).collect();
        // The first of a unit's entries stays: one with write access, if there is one.
        all.sort_by_key(|(device, lacks)| (device.number(), *lacks));
        all.dedup_by_key(|(device, _)| device.number());
        all
    }

    /// True when there is something new to look at: one load.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.view.borrow().generation() != self.seen.get()
    }

    /// Updates the session to the current groups.
    pub(crate) fn refresh(&self) {
        if !self.is_stale() || self.is_closing() {
            return;
        }
        if let Some(why) = self.target().gone() {
            // The whole target was removed, not its units one by one: no conditions are raised for
            // the missing units. The session's end is reported instead.
            self.request_close(why);
            return self.close();
        }
        // The generation is read before the map (G1), so no change is missed.
        let mut view = self.view.borrow().clone();
        let mut seen = view.generation();
        if view.is_retired() {
            let decision = self.target().decide(&self.facts.initiator, &self.facts.portal);
            let name = decision.group.unwrap_or_default();
            *self.facts.group.lock() = name;
            view = decision.view;
            seen = view.generation();
            *self.view.borrow_mut() = view.clone();
        }
        self.seen.set(seen);
        self.update_access_state();
        self.apply_lun_map(view.map());
    }

    /// P3.
    pub(crate) fn update_access_state(&self) {
        let state = self.target().port_group().state();
        let code = if state.is_active() { 0 } else { u32::from(state.code()) };
        self.bits.set(self.bits.get() & !flags::ALUA | code << flags::ALUA_SHIFT);
    }

    fn apply_lun_map(&self, new: Arc<LunMap>) {
        let old = self.map.replace(new.clone());
        if Arc::ptr_eq(&old, &new) {
            return;
        }
        let mut listed = old.addressing() != new.addressing();
        let mut fates: Vec<(Rc<Path>, PathChange)> = Vec::new();
        let paths = self.paths.borrow();
        old.compare(&new, &mut |was, is| {
            listed |= was.is_some() != is.is_some();
            let Some(path) = was.or(is).and_then(|e| paths.get(&e.lun)) else { return };
            let fate = match is {
                None => PathChange::Drop,
                Some(e) if Arc::ptr_eq(&e.device, path.device()) => PathChange::Keep(e.clone()),
                Some(e) => PathChange::Exchange(e.clone()),
            };
            fates.push((path.clone(), fate));
        });
        drop(paths);
        for (path, fate) in fates {
            match fate {
                PathChange::Keep(entry) => {
                    let read_only = entry.read_only;
                    if path.read_only.replace(read_only) != read_only {
                        let bits = if read_only { flags::PROTECTED } else { 0 };
                        path.nexus().put(flags::PROTECTED, bits);
                    }
                    nexus_mapped(path.device(), path.nexus(), entry.usage());
                }
                PathChange::Drop => {
                    self.forget_last_path(&path);
                    path.nexus().set(flags::GONE);
                    self.paths.borrow_mut().remove(&path.lun());
                    self.engine().end_nexus(&path);
                }
                PathChange::Exchange(entry) => {
                    let new = Rc::new(self.path_to(&entry, asc::POWER_ON_OR_RESET));
                    // The condition is not INQUIRY DATA HAS CHANGED: hosts then read the data by
                    // themselves, and processes that write there are not notified.
                    listed = true;
                    self.forget_last_path(&path);
                    self.paths.borrow_mut().insert(entry.lun, new);
                    path.nexus().set(flags::GONE);
                    self.engine().end_nexus(&path);
                }
            }
        }
        if listed {
            self.bits.set(self.bits.get() | flags::ATTENTION);
        }
    }

    /// The number of a path has another one, or none.
    fn forget_last_path(&self, path: &Rc<Path>) {
        self.last_path.borrow_mut().take_if(|last| Rc::ptr_eq(&last.path, path));
    }

    /// Bits that may keep a command on a path from running: those of its nexus and those of the
    /// session.
    #[inline]
    pub(crate) fn flags_of(&self, path: &Path) -> u32 {
        path.nexus().flags() | self.bits.get()
    }

    /// The unit attention that a command ends with.
    #[cold]
    pub(crate) fn attention(&self, path: &Path, opcode: u8) -> Option<Asc> {
        let mut attention = gate::attention(path.nexus(), opcode);
        while attention == Some(asc::THIN_SOFT_THRESHOLD)
            && !path.device().claim_threshold_attention()
        {
            attention = gate::attention(path.nexus(), opcode);
        }
        if attention.is_some() || gate::ignores_attentions(opcode) || !self.luns_changed() {
            return attention;
        }
        self.attention_reported(asc::LUNS_CHANGED);
        Some(asc::LUNS_CHANGED)
    }

    /// P3: the list of LUNs has changed, and the initiator does not know.
    fn luns_changed(&self) -> bool {
        self.bits.get() & flags::ATTENTION != 0
    }

    /// True when a unit attention waits for the next command of a path.
    pub(crate) fn is_pending(&self, path: &Path) -> bool {
        self.flags_of(path) & flags::ATTENTION != 0
    }

    /// REQUEST SENSE arrives on a path: a pending condition of the session moves to that nexus when
    /// the nexus has none itself.
    pub(crate) fn move_attention(&self, path: &Path) {
        if self.luns_changed() && !path.nexus().is_pending() {
            self.attention_reported(asc::LUNS_CHANGED);
            path.nexus().raise(asc::LUNS_CHANGED);
        }
    }

    /// The condition was reported; one of the session's is reported for all its units.
    pub(crate) fn attention_reported(&self, attention: Asc) {
        if attention == asc::LUNS_CHANGED {
            self.bits.set(self.bits.get() & !flags::ATTENTION);
        }
    }

    /// Raises a condition at the paths that `wanted` picks; at those that do not exist it is
    /// covered (P2).
    pub(crate) fn raise_at(&self, attention: Asc, wanted: impl Fn(&Rc<Path>) -> bool) {
        self.paths.borrow().values().filter(|p| wanted(p)).for_each(|p| p.nexus().raise(attention));
    }

    /// A command that arrived on a path to a strange unit (P4).
    #[cold]
    pub(crate) fn check_identity_known(
        &self,
        path: &Path,
        access: Access,
        cdb: &[u8],
    ) -> Result<(), Ending> {
        if gate::is_identity_query(cdb) {
            self.record_identity(path.lun());
            return Ok(());
        }
        // Another queue of the same host may have read it.
        let ids = &path.device().identity_text();
        if self.engine().registry().known().check_or_record(self.port(), path.lun(), ids) {
            path.nexus().clear(flags::IDENTITY_UNKNOWN);
            return Ok(());
        }
        match gate::needs_known_identity(access) {
            true => Err(Ending::check(asc::LUN_NOT_SUPPORTED)),
            false => Ok(()),
        }
    }

    /// The initiator has read the identity of the unit of a number, and receives it (P4).
    pub fn record_identity(&self, lun: u64) {
        let Some(entry) = self.map.borrow().get(lun).cloned() else { return };
        let ids = &entry.device.identity_text();
        self.engine().registry().known().record_identity(self.port(), lun, ids);
        if let Some(path) = self.paths.borrow().get(&lun)
            && Arc::ptr_eq(path.device(), &entry.device)
        {
            path.nexus().clear(flags::IDENTITY_UNKNOWN);
        }
    }

    /// The session is over: its nexuses are, too.
    pub(crate) fn drop_paths(&self) {
        for path in self.paths() {
            self.engine().end_nexus(&path);
        }
        self.last_path.take();
        self.paths.take();
    }

    /// A path with a new nexus, known to its unit.
    fn path_to(&self, entry: &LunEntry, first: Asc) -> Path {
        let nexus = Arc::new(ItlNexus::new(self.port().clone(), entry.lun, first));
        entry.device.enlist(&nexus);
        nexus_made(&entry.device, &nexus);
        nexus_mapped(&entry.device, &nexus, entry.usage());
        let seat = QosClient::new(self.engine().flow(&entry.device));
        let (registry, ids) = (self.engine().registry(), entry.device.identity_text());
        if !registry.known().check_or_record(self.port(), entry.lun, &ids) {
            nexus.set(flags::IDENTITY_UNKNOWN);
            self.bits.set(self.bits.get() | flags::ATTENTION);
        }
        let number = self.origin_entry_for(entry.lun, None);
        Path::new(entry.lun, entry.device.clone(), nexus, entry.read_only, (seat, number))
    }
}

/// How a command at a number without a unit ends.
fn code_of(luns: &LunMap, lun: u64) -> Asc {
    match luns.awaits(lun) {
        true => asc::BECOMING_READY,
        false => asc::LUN_NOT_SUPPORTED,
    }
}
