//! Targets, access groups, logical units, sessions: one value for the daemon.
//!
//! The control thread writes, cores read. The lock is taken at logins, at changes and for lists,
//! never for a command. A session keeps an immutable map and compares one number a command to see
//! whether the groups have changed.
//!
//! Invariants
//!  R1  A map in use is never changed. A change makes a new one, which shares the unchanged parts,
//!      and raises the generation of the group's view.
//!  R2  A unit is visible only through a group of the target that grants it: the default is to
//!      deny.
//!  R3  A change that cannot be carried out wholly changes nothing.
//!  R4  A device counts its entries in maps by port: `recount` follows every change of a map.

pub mod access;
mod conditions;
mod facts;
mod former;
mod groups;
mod known;
mod label;
mod latency;
mod login_gate;
mod map;
mod name_conflicts;
mod numbers;
mod ports;
mod proof;
mod view;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::{Error, Origins};
use reactor::{Address, Mailer};

use crate::registry::access::{Decision, decide};
use crate::state_store::{NullStore, StateStore};
use crate::unit::Device;
use crate::unit::alua::{DEFAULT_GROUP, PortGroup, PortGroupSpec};
use crate::unit::copies::Tokens;
use crate::unit::ids::Id;
use crate::unit::kind::UnitKind;
use crate::unit::loss::Common;
use crate::unit::message::Message;
use crate::unit::spec::DeviceSpec;
use known::KnownUnits;
use numbers::Numbers;
use wire::scsi::SERIAL_MAX;

pub use crate::close_reason::CloseReason;
pub use crate::unit::counters::NexusCounts;
pub use facts::{CommandView, Counters, HeldBack, SessionFacts};
pub(crate) use facts::{FlowNotes, SessionCounters};
pub use former::Former;
pub(crate) use groups::LunMapView;
pub use groups::{GROUPS_MAX, Group, GroupSpec, Groups, LunSpec, PATTERNS_MAX, PORTALS_MAX};
pub use latency::LatencyReading;
pub use login_gate::LoginGate;
pub use map::{DiffVisitor, LUN_MAX, LunEntry, LunMap};
pub use name_conflicts::NameConflict;
pub use proof::{Account, ChapAccounts, GroupAuth, RequiredAuth};
pub use view::{DeviceView, GroupView, LunView, PortGroupView, RegistryView, TargetView};
pub use wire::pattern::{PATTERN_MAX, Pattern};
pub use wire::scsi::Addressing;

/// Refused logins remembered for lists; older ones are dropped.
pub const DENIED_MAX: usize = 256;
/// Targets of one daemon, so that each has a relative port identifier; a further one is refused.
pub const TARGETS_MAX: usize = 65_000;

pub struct TargetPort {
    pub driver: String,
    /// Its name, as initiators log in to it.
    pub name: String,
    /// Relative target port identifier, from 1.
    pub port: u16,
    /// Why it is not there any more.
    gone: OnceLock<CloseReason>,
    groups: Mutex<Arc<Groups>>,
    port_group: Mutex<Arc<PortGroup>>,
}

impl TargetPort {
    pub fn groups(&self) -> Arc<Groups> {
        self.groups.lock().clone()
    }

    pub fn port_group(&self) -> Arc<PortGroup> {
        self.port_group.lock().clone()
    }

    /// Moves to a group; its sessions look at the new one's state.
    fn join(&self, group: Arc<PortGroup>) {
        *self.port_group.lock() = group;
        self.groups().touch(false);
    }

    /// Units that an initiator at one of our addresses may see here.
    pub fn decide(&self, initiator: &str, portal: &Address) -> Decision {
        decide(&self.name, &self.groups(), initiator, portal)
    }

    /// Why the target was taken away, if it was; its sessions are closing.
    pub fn gone(&self) -> Option<CloseReason> {
        self.gone.get().copied()
    }
}

/// A login that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// When, ns of the cores' clock.
    pub at_ns: u64,
    pub driver: String,
    pub target: String,
    /// The name given.
    pub initiator: String,
    /// From where; `None` when the transport does not know.
    pub from: Option<Address>,
    /// Why, and what to type.
    pub text: String,
}

#[derive(Default)]
struct RegistryState {
    targets: BTreeMap<(String, String), Arc<TargetPort>>,
    devices: BTreeMap<String, Arc<Device>>,
    /// How many of the devices have a disk that reports its space.
    thin: usize,
    engines: Vec<(u32, Mailer<Message>)>,
    sessions: BTreeMap<u64, Arc<SessionFacts>>,
    denied: VecDeque<Denied>,
    name_conflicts: name_conflicts::NameConflicts,
    /// Names of devices by what hosts know them by.
    ids: HashMap<Id, String>,
    /// By growing identifier.
    port_groups: Vec<Arc<PortGroup>>,
    /// Relative identifiers of all targets that ever were; read when the first one is made.
    numbers: Option<Numbers>,
    devices_made: u32,
    sessions_made: u64,
}

/// Receives a message for the operator about a unit: its name, and a sentence.
pub type OperatorNotifier = dyn Fn(&str, String) + Send + Sync;

/// All of the target side that is not bound to a core.
#[derive(Default)]
pub struct Registry {
    state: Mutex<RegistryState>,
    state_store: Mutex<Option<Arc<dyn StateStore>>>,
    operator_notifier: Mutex<Option<Arc<OperatorNotifier>>>,
    denied_total: AtomicU64,
    /// Grows with every reset of a unit, so that sessions know which followed their login.
    resets: AtomicU64,
    tokens: Tokens,
    known: KnownUnits,
    login_gate: LoginGate,
    /// Who sends requests.
    origins: Arc<Origins>,
    /// Former names of units.
    former: Mutex<BTreeMap<String, Former>>,
    common: Arc<Common>,
}

impl Registry {
    /// Without targets, groups or devices.
    pub fn new() -> Arc<Registry> {
        Arc::default()
    }

    /// What units and targets keep over a restart is kept there from now on. Before the first of
    /// them.
    pub fn set_state_store(&self, store: Arc<dyn StateStore>) {
        self.state().numbers = None;
        if let Err(e) = self.known.load(store.as_ref()) {
            self.notify_operator("", e.message);
        }
        *self.state_store.lock() = Some(store);
    }

    /// Which unit each initiator port knows behind its LUNs.
    pub(crate) fn known(&self) -> &KnownUnits {
        &self.known
    }

    /// Who sends requests, for layers below: `Topology::set_origins`.
    pub fn origins(&self) -> &Arc<Origins> {
        &self.origins
    }

    /// Sets the receiver of messages for the operator about a unit: its name, and a sentence.
    pub fn set_operator_notifier(&self, teller: Arc<OperatorNotifier>) {
        *self.operator_notifier.lock() = Some(teller);
    }

    /// Something that the operator should know of a unit.
    pub(crate) fn notify_operator(&self, unit: &str, text: String) {
        let teller = self.operator_notifier.lock().clone();
        if let Some(teller) = teller {
            teller(unit, text);
        }
    }

    /// Where units keep what outlives a restart; one that keeps nothing when none was given.
    pub fn state_store(&self) -> Arc<dyn StateStore> {
        let store = self.state_store.lock();
        store.clone().unwrap_or_else(|| Arc::new(NullStore))
    }

    /// ROD tokens.
    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The pool of a core lets transfers of so many bytes through.
    pub(crate) fn note_pool(&self, transfer_max: u32) {
        self.common.note_pool(transfer_max);
    }

    /// Resets of units until now.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// One more: answers its number.
    pub(crate) fn next_reset(&self) -> u64 {
        self.resets.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock()
    }

    /// Makes a logical unit, whose saved state `restore` reads before any nexus sees it; an error
    /// keeps the unit from being exported. The name must be free; the serial number must not be
    /// that of another unit, or initiators would take the two for one.
    pub(crate) fn insert_device(
        &self,
        handler: &str,
        spec: DeviceSpec,
        restore: fn(&Arc<Device>, &dyn StateStore) -> Result<(), Error>,
    ) -> Result<Arc<Device>, Error> {
        let Some(kind) = UnitKind::find(handler) else {
            return Err(Error::new(Errno::NoEnt, format!("no device handler {handler}")));
        };
        if spec.sector_bytes == 0 {
            let what = format!("{}: sector size is zero", spec.label.name);
            return Err(Error::inval(what));
        }
        if spec.serial.is_empty() || spec.serial.len() > SERIAL_MAX || !spec.serial.is_ascii() {
            let what =
                format!("{}: a serial number is 1 to {SERIAL_MAX} ASCII letters", spec.label.name);
            return Err(Error::inval(what));
        }
        let mut state = self.state();
        if state.devices.contains_key(&spec.label.name) {
            let what = format!("device {} is exported already", spec.label.name);
            return Err(Error::new(Errno::Exist, what));
        }
        let ids = spec.ids().all();
        if let Some((id, other)) = ids.iter().find_map(|id| Some((id, state.ids.get(id)?))) {
            let what = format!(
                "{}: {} {} is already used by {other}; initiators would treat the two as one disk",
                spec.label.name,
                id.kind_name(),
                id.value,
            );
            return Err(Error::new(Errno::Exist, what));
        }
        state.devices_made += 1;
        let device = Arc::new(Device::new(state.devices_made, spec, kind, self.common.clone()));
        restore(&device, &*self.state_store())?;
        let name = device.name();
        state.ids.extend(ids.into_iter().map(|id| (id, name.clone())));
        state.thin += usize::from(device.space().is_some());
        state.devices.insert(name, device.clone());
        device.set_listed(true);
        Ok(device)
    }

    pub fn device(&self, name: &str) -> Option<Arc<Device>> {
        self.state().devices.get(name).cloned()
    }

    /// Forgets a device; refused while a group maps it.
    pub fn remove_device(&self, name: &str) -> Result<Arc<Device>, Error> {
        let mut state = self.state();
        let used = state.devices.get(name).is_some_and(|d| !d.ports().is_empty());
        if let Some((target, group)) = used.then(|| user_of(&state, name)).flatten() {
            let what =
                format!("{name} is mapped by group {group} of {target}; take the LUN out first");
            return Err(Error::new(Errno::Busy, what));
        }
        let Some(device) = state.devices.remove(name) else {
            return Err(Error::new(Errno::NoEnt, format!("no device {name}")));
        };
        device.set_listed(false);
        state.thin -= usize::from(device.space().is_some());
        for id in device.spec().ids().all() {
            state.ids.remove(&id);
        }
        // Commands that wait for data or memory still have it; they no longer reach the medium.
        device.lose(Errno::NxIo);
        Ok(device)
    }

    /// Makes a target without groups: logins are refused until it has groups. If the target exists
    /// already, answers that one. It keeps its relative port identifier, also over a restart of the
    /// daemon.
    pub fn set_target(&self, driver: &str, name: &str) -> Result<Arc<TargetPort>, Error> {
        self.set_target_at(driver, name, None)
    }

    /// The same with a given relative port identifier. Refused when another target has it, and when
    /// the target exists with another one. Waits for stable storage: for the control thread.
    pub fn set_target_at(
        &self,
        driver: &str,
        name: &str,
        port: Option<u16>,
    ) -> Result<Arc<TargetPort>, Error> {
        let key = (driver.to_string(), name.to_string());
        if let Some(target) = self.state().targets.get(&key) {
            if port.is_some_and(|p| p != target.port) {
                let what = format!("{name} has port_id {}; remove the target first", target.port);
                return Err(Error::new(Errno::Busy, what));
            }
            return Ok(target.clone());
        }
        let port = self.number_of(&key, port)?;
        let mut state = self.state();
        if state.targets.len() >= TARGETS_MAX {
            return Err(Error::new(Errno::NoSpc, "too many targets"));
        }
        let target = Arc::new(TargetPort {
            driver: driver.into(),
            name: name.into(),
            port,
            gone: OnceLock::new(),
            groups: Mutex::default(),
            port_group: Mutex::new(state.default_group()),
        });
        state.targets.insert(key, target.clone());
        Ok(target)
    }

    /// The relative port identifier of a target that is made. The lock is not held while that is
    /// saved: cores use them at logins.
    fn number_of(&self, key: &numbers::Name, wanted: Option<u16>) -> Result<u16, Error> {
        let store = self.state_store();
        let known = self.state().numbers.clone();
        let known = match known {
            Some(known) => known,
            None => match Numbers::load(&*store) {
                Ok(known) => known,
                Err(e) => return self.number_unsaved(wanted, e),
            },
        };
        let mut new = known.clone();
        let port = new.assign(key, wanted, &|n| self.state().targets.contains_key(n))?;
        if new != known {
            new.save(&*store)?;
        }
        self.state().numbers = Some(new);
        Ok(port)
    }

    /// The same when the saved record cannot be read: a target whose number the configuration gives
    /// needs no record. Nothing is saved: the others would get new numbers at the next start.
    fn number_unsaved(&self, wanted: Option<u16>, why: Error) -> Result<u16, Error> {
        let Some(number) = wanted.filter(|n| *n != 0) else {
            let what = format!(
                "{}; set the former port_id of this target, or remove the record and its \
                 predecessor (`.old`) to assign new ones: reservations made through the former \
                 ones then belong to no port",
                why.message
            );
            return Err(Error::new(why.kind, what));
        };
        match self.state().targets.values().find(|t| t.port == number) {
            Some(other) => {
                let what = format!("port_id {number} is that of target {}", other.name);
                Err(Error::new(Errno::Exist, what))
            }
            None => Ok(number),
        }
    }

    /// Takes a target away and closes its sessions; returns before they have ended.
    pub fn remove_target(&self, driver: &str, name: &str) -> Result<(), Error> {
        let mut state = self.state();
        let key = (driver.to_string(), name.to_string());
        let Some(target) = state.targets.remove(&key) else {
            return Err(Error::new(Errno::NoEnt, format!("no {driver} target {name}")));
        };
        let why = match self.login_gate.is_closed() {
            true => CloseReason::Stopping,
            false => CloseReason::TargetRemoved,
        };
        retire_target(&state, &target, why);
        Ok(())
    }

    /// Whether initiators are admitted.
    pub fn login_gate(&self) -> &LoginGate {
        &self.login_gate
    }

    /// Replaces all groups of a target at once. Sessions get their new map with their next
    /// command, and REPORTED LUNS DATA HAS CHANGED; commands in flight finish on the old one.
    pub fn set_groups(&self, driver: &str, name: &str, specs: &[GroupSpec]) -> Result<(), Error> {
        let state = self.state();
        let target = state.target(driver, name)?;
        let old = target.groups();
        let new = Groups::build(name, specs, &old, |d| state.devices.get(d).cloned())?;
        if new.same_members(&old) {
            // Membership is unchanged: only the maps are replaced.
            for group in old.groups() {
                if let Some(to) = new.group(&group.name) {
                    recount(target, &group.luns(), &to.luns());
                    group.view.replace(to.luns());
                }
            }
        } else {
            replace(target, new);
        }
        drop(state);
        self.notify_engines();
        Ok(())
    }

    /// Changes some LUNs of a group, all of them or none; the cost does not grow with the number
    /// of LUNs that stay.
    pub fn change_luns(
        &self,
        driver: &str,
        name: &str,
        group: &str,
        changes: &[LunChange],
    ) -> Result<(), Error> {
        let state = self.state();
        let target = state.target(driver, name)?;
        let groups = target.groups();
        let at = format!("{name}, group {group}");
        let Some(found) = groups.group(group) else {
            return Err(Error::new(Errno::NoEnt, format!("{at}: no such group")));
        };
        let old = found.luns();
        let mut new = (*old).clone();
        for change in changes {
            match change {
                LunChange::Set(line) => {
                    let find = |d: &str| state.devices.get(d).cloned();
                    let mut entry = groups::resolve(&at, line, &find)?;
                    entry.succeed(new.get(line.lun));
                    new.set(line.lun, Some(Arc::new(entry)))
                }
                LunChange::Await(lun, unit) => new.set_waiting(*lun, unit),
                LunChange::Remove(lun) => new.set(*lun, None),
            };
        }
        recount(target, &old, &new);
        found.view.replace(Arc::new(new));
        drop(state);
        self.notify_engines();
        Ok(())
    }

    /// Sessions look for changes now and not only with their next command.
    pub(crate) fn notify_engines(&self) {
        for (_, engine) in &self.state().engines {
            // A full or closed mailbox loses nothing: sessions look for themselves as well.
            let _ = engine.send(Message::Refresh);
        }
    }

    pub fn target(&self, driver: &str, name: &str) -> Option<Arc<TargetPort>> {
        self.state().targets.get(&(driver.to_string(), name.to_string())).cloned()
    }

    /// The unit that hosts know by this.
    pub fn unit_by_id(&self, id: &Id) -> Option<String> {
        self.state().ids.get(id).cloned()
    }

    /// The target ports through which a unit is visible.
    pub fn ports_of(&self, device: &Device) -> Vec<Arc<TargetPort>> {
        let ports = device.ports();
        self.state().targets.values().filter(|t| ports.contains(&t.port)).cloned().collect()
    }

    /// Targets of a driver that grant an initiator, which connects to one of our addresses, at
    /// least one unit; by name.
    pub fn visible_targets(
        &self,
        driver: &str,
        initiator: &str,
        portal: &Address,
    ) -> Vec<Arc<TargetPort>> {
        let all: Vec<Arc<TargetPort>> =
            self.state().targets.values().filter(|t| t.driver == driver).cloned().collect();
        all.into_iter().filter(|t| t.decide(initiator, portal).grants()).collect()
    }

    /// Ends a session by its number; false when there is none.
    pub fn kick(&self, session: u64) -> bool {
        let state = self.state();
        match state.sessions.get(&session) {
            Some(s) => send_close(&state, s, CloseReason::Kicked),
            None => false,
        }
    }

    /// The sessions now, oldest first.
    pub fn sessions(&self) -> Vec<Arc<SessionFacts>> {
        self.state().sessions.values().cloned().collect()
    }

    /// Remembers a refused login.
    pub fn note_denied(&self, denied: Denied) {
        self.denied_total.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if state.denied.len() == DENIED_MAX {
            state.denied.pop_front();
        }
        state.denied.push_back(denied);
    }

    /// Refused logins, newest last.
    pub fn denied(&self) -> Vec<Denied> {
        self.state().denied.iter().cloned().collect()
    }

    pub(crate) fn add_engine(&self, core: u32, mailer: Mailer<Message>) {
        self.state().engines.push((core, mailer));
    }

    /// Relative identifiers of the target ports of a driver, by growing number.
    pub(crate) fn relative_ports(&self, driver: &str) -> Vec<u16> {
        let state = self.state();
        let ports = state.targets.values().filter(|t| t.driver == driver && t.gone().is_none());
        let mut ports: Vec<u16> = ports.map(|t| t.port).collect();
        ports.sort_unstable();
        ports
    }

    /// The engines of all cores but one.
    pub(crate) fn other_engines(&self, core: u32) -> Vec<Mailer<Message>> {
        self.state().engines.iter().filter(|(c, _)| *c != core).map(|(_, m)| m.clone()).collect()
    }

    pub(crate) fn next_session(&self) -> u64 {
        let mut state = self.state();
        state.sessions_made += 1;
        state.sessions_made
    }

    /// `reinstates`: it has taken the place of one of the same initiator port.
    pub(crate) fn session_began(&self, facts: &Arc<SessionFacts>, reinstates: bool) {
        let mut state = self.state();
        state.sessions.insert(facts.number, facts.clone());
        if reinstates {
            let (driver, target) = (facts.driver.clone(), facts.target.clone());
            let key = (driver, target, facts.initiator.clone(), facts.port_id.clone());
            state.name_conflicts.reinstated(key, facts.from.host(), facts.since_ns);
        }
    }

    pub(crate) fn session_ended(&self, number: u64) {
        self.state().sessions.remove(&number);
    }

    /// Closes the sessions of a target after TARGET COLD RESET: those of an initiator, or all.
    pub(crate) fn close_after_reset(&self, target: &TargetPort, initiator: Option<&str>) {
        let state = self.state();
        for s in state.sessions.values() {
            let is_there = s.driver == target.driver && s.target == target.name;
            if is_there && initiator.is_none_or(|name| s.initiator == name) {
                send_close(&state, s, CloseReason::ColdReset);
            }
        }
    }
}

impl RegistryState {
    fn target(&self, driver: &str, name: &str) -> Result<&Arc<TargetPort>, Error> {
        self.targets
            .get(&(driver.to_string(), name.to_string()))
            .ok_or_else(|| Error::new(Errno::NoEnt, format!("no {driver} target {name}")))
    }

    /// The group of ports that are in no other, made when it is first used.
    fn default_group(&mut self) -> Arc<PortGroup> {
        let found = self.port_groups.iter().find(|g| g.name() == DEFAULT_GROUP).cloned();
        found.unwrap_or_else(|| {
            let group = Arc::new(PortGroup::new(&PortGroupSpec::default_group()));
            self.port_groups.push(group.clone());
            group
        })
    }
}

/// One change of a group's LUNs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LunChange {
    /// The number is this unit's from now on.
    Set(LunSpec),
    /// The number is that of a unit that is not there yet.
    Await(u64, String),
    /// The number has no unit any more.
    Remove(u64),
}

/// Retires all views of a target and requests the end of its sessions. The reason is set first, so
/// that a session that sees the change knows it.
fn retire_target(state: &RegistryState, target: &TargetPort, why: CloseReason) {
    // A target is taken away once: it has left the table.
    let _ = target.gone.set(why);
    replace(target, Groups::default());
    let is_of_it = |s: &&Arc<SessionFacts>| s.driver == target.driver && s.target == target.name;
    for session in state.sessions.values().filter(is_of_it) {
        send_close(state, session, why);
    }
}

/// Sets new groups with new views; sessions of the old ones look up their group again.
fn replace(target: &TargetPort, groups: Groups) {
    let old = target.groups();
    for group in old.groups() {
        let to = groups.group(&group.name).map(Group::luns).unwrap_or_default();
        recount(target, &group.luns(), &to);
    }
    for group in groups.groups().iter().filter(|g| old.group(&g.name).is_none()) {
        recount(target, &LunMap::default(), &group.luns());
    }
    *target.groups.lock() = Arc::new(groups);
    old.touch(true);
}

/// R4.
fn recount(target: &TargetPort, old: &LunMap, new: &LunMap) {
    old.compare(new, &mut |was, is| {
        if let Some(entry) = is {
            entry.device.mapped(target.port, true);
        }
        if let Some(entry) = was {
            entry.device.mapped(target.port, false);
        }
    });
}

/// The target and the group that map a device.
fn user_of(state: &RegistryState, device: &str) -> Option<(String, String)> {
    state.targets.values().find_map(|t| {
        let groups = t.groups();
        let maps = |g: &&Group| g.luns().iter().any(|e| e.device.name() == device);
        groups.groups().iter().find(maps).map(|g| (t.name.clone(), g.name.clone()))
    })
}

fn send_close(state: &RegistryState, session: &SessionFacts, why: CloseReason) -> bool {
    let message =
        |m: &Mailer<Message>| m.send(Message::Close { session: session.number, why }).is_ok();
    state.engines.iter().filter(|(c, _)| *c == session.core).any(|(_, m)| message(m))
}

#[cfg(test)]
mod tests;
