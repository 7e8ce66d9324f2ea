//! Targets, access groups, logical units, sessions: one value for the daemon.
//!
//! The control thread writes, cores read. The lock is taken at logins, at changes and for lists,
//! never for a command: a session keeps an immutable map and compares one number a command to see
//! whether the groups have changed.
//!
//! Invariants
//!  R1  A map in use is never changed; a change makes a new one and raises the target's generation.
//!  R2  Nobody sees a unit that no group of the target grants: the default is to deny.
//!  R3  A change that cannot be carried out wholly changes nothing.

mod facts;
mod groups;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::Errno;
use geom::Error;
use reactor::{Address, Mailer};

use crate::access::{Decision, decide};
use crate::commands;
use crate::device::{Device, DeviceSpec, SERIAL_MAX};
use crate::engine::Message;
use crate::handlers;
use crate::transport::CloseReason;
use crate::vault::{NoVault, Vault};

pub use facts::{CommandView, Counters, DEPTH_MAX, SessionFacts};
pub(crate) use facts::{Tally, add};
pub use groups::{
    GROUPS_MAX, Group, GroupSpec, Groups, LUN_MAX, LunEntry, LunMap, LunSpec, PATTERNS_MAX,
};
pub use view::{DeviceView, GroupView, RegistryView, TargetView};
pub use wire::pattern::{PATTERN_MAX, Pattern};

/// Refused logins remembered for lists; older ones go.
pub const DENIED_MAX: usize = 256;
/// Targets of one daemon, so that each has a relative port identifier; a further one is refused.
pub const TARGETS_MAX: usize = 65_000;

/// A target port.
pub struct TargetPort {
    /// Name of its driver.
    pub driver: String,
    /// Its name, as initiators log in to it.
    pub name: String,
    /// Relative target port identifier, from 1.
    pub port: u16,
    generation: AtomicU64,
    removed: AtomicBool,
    groups: Mutex<Arc<Groups>>,
}

impl TargetPort {
    /// The groups now.
    pub fn groups(&self) -> Arc<Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Grows with every change of the groups.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What an initiator may see here.
    pub fn decide(&self, initiator: &str) -> Decision {
        decide(&self.name, &self.groups(), initiator)
    }

    /// True when the target was taken away; its sessions are closing.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

/// A login that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// When, ns of the cores' clock.
    pub at_ns: u64,
    /// Name of the driver.
    pub driver: String,
    /// The target asked for.
    pub target: String,
    /// The name given.
    pub initiator: String,
    /// From where; `None` when the transport does not know.
    pub from: Option<Address>,
    /// Why, and what to type.
    pub text: String,
}

#[derive(Default)]
struct State {
    targets: BTreeMap<(String, String), Arc<TargetPort>>,
    devices: BTreeMap<String, Arc<Device>>,
    engines: Vec<(u32, Mailer<Message>)>,
    sessions: BTreeMap<u64, Arc<SessionFacts>>,
    denied: VecDeque<Denied>,
    devices_made: u32,
    sessions_made: u64,
}

/// All of the target side that is not bound to a core.
#[derive(Default)]
pub struct Registry {
    state: Mutex<State>,
    vault: Mutex<Option<Arc<dyn Vault>>>,
    denied_total: AtomicU64,
    /// Largest transfer that the cores' pools let through, bytes; zero before there is a core.
    transfer_max: Arc<AtomicU32>,
}

impl Registry {
    /// Without targets, groups or devices.
    pub fn new() -> Arc<Registry> {
        Arc::default()
    }

    /// What units keep over a restart is kept there from now on.
    pub fn set_vault(&self, vault: Arc<dyn Vault>) {
        *self.vault.lock().unwrap_or_else(PoisonError::into_inner) = Some(vault);
    }

    /// Where units keep what outlives a restart; one that keeps nothing when none was given.
    pub fn vault(&self) -> Arc<dyn Vault> {
        let vault = self.vault.lock().unwrap_or_else(PoisonError::into_inner);
        vault.clone().unwrap_or_else(|| Arc::new(NoVault))
    }

    /// The pool of a core lets transfers of so many bytes through.
    pub(crate) fn note_pool(&self, transfer_max: u32) {
        let smaller = |old: u32| Some(if old == 0 { transfer_max } else { old.min(transfer_max) });
        let _ = self.transfer_max.fetch_update(Ordering::AcqRel, Ordering::Acquire, smaller);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a logical unit. The name must be free; the serial number must not be that of another
    /// unit, or initiators would take the two for one.
    pub fn add_device(&self, handler: &str, spec: DeviceSpec) -> Result<Arc<Device>, Error> {
        let Some(handler) = handlers::find(handler) else {
            return Err(Error::new(Errno::NoEnt, format!("no device handler {handler}")));
        };
        if spec.sector_bytes == 0 {
            let what = format!("{}: sector size is zero", spec.name);
            return Err(Error::new(Errno::Inval, what));
        }
        if spec.serial.is_empty() || spec.serial.len() > SERIAL_MAX || !spec.serial.is_ascii() {
            let what = format!("{}: a serial number is 1 to {SERIAL_MAX} ASCII letters", spec.name);
            return Err(Error::new(Errno::Inval, what));
        }
        let mut state = self.state();
        if state.devices.contains_key(&spec.name) {
            let what = format!("device {} is exported already", spec.name);
            return Err(Error::new(Errno::Exist, what));
        }
        if let Some(other) = state.devices.values().find(|d| d.spec().serial == spec.serial) {
            let what = format!(
                "{}: serial number {} is that of {}; initiators would take the two for one disk",
                spec.name,
                spec.serial,
                other.spec().name
            );
            return Err(Error::new(Errno::Exist, what));
        }
        state.devices_made += 1;
        let device =
            Arc::new(Device::new(state.devices_made, spec, handler, self.transfer_max.clone()));
        commands::device_made(&device, &*self.vault())?;
        state.devices.insert(device.spec().name.clone(), device.clone());
        Ok(device)
    }

    /// A device by name.
    pub fn device(&self, name: &str) -> Option<Arc<Device>> {
        self.state().devices.get(name).cloned()
    }

    /// Forgets a device; refused while a group maps it.
    pub fn remove_device(&self, name: &str) -> Result<Arc<Device>, Error> {
        let mut state = self.state();
        for target in state.targets.values() {
            let groups = target.groups();
            let user = groups
                .groups()
                .iter()
                .find(|g| g.luns.entries().iter().any(|e| e.device.spec().name == name));
            if let Some(group) = user {
                let what = format!(
                    "{name} is mapped by group {} of {}; take the LUN out first",
                    group.name, target.name
                );
                return Err(Error::new(Errno::Busy, what));
            }
        }
        let Some(device) = state.devices.remove(name) else {
            return Err(Error::new(Errno::NoEnt, format!("no device {name}")));
        };
        // Commands that wait for data or memory still have it; they come to the medium no more.
        device.lose(Errno::NxIo);
        Ok(device)
    }

    /// Makes a target without groups: nobody may log in yet. Exists already: that one.
    pub fn set_target(&self, driver: &str, name: &str) -> Result<Arc<TargetPort>, Error> {
        let mut state = self.state();
        let key = (driver.to_string(), name.to_string());
        if let Some(target) = state.targets.get(&key) {
            return Ok(target.clone());
        }
        if state.targets.len() >= TARGETS_MAX {
            return Err(Error::new(Errno::NoSpc, "too many targets"));
        }
        let free = |p: &u16| !state.targets.values().any(|t| t.port == *p);
        let Some(port) = (1..=u16::MAX).find(free) else {
            return Err(Error::new(Errno::NoSpc, "too many targets"));
        };
        let target = Arc::new(TargetPort {
            driver: driver.into(),
            name: name.into(),
            port,
            generation: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            groups: Mutex::default(),
        });
        state.targets.insert(key, target.clone());
        Ok(target)
    }

    /// Takes a target away and closes its sessions; returns before they have ended.
    pub fn remove_target(&self, driver: &str, name: &str) -> Result<(), Error> {
        let mut state = self.state();
        let key = (driver.to_string(), name.to_string());
        let Some(target) = state.targets.remove(&key) else {
            return Err(Error::new(Errno::NoEnt, format!("no {driver} target {name}")));
        };
        target.removed.store(true, Ordering::Release);
        replace(&target, Groups::default());
        let of_it: Vec<Arc<SessionFacts>> = state
            .sessions
            .values()
            .filter(|s| s.driver == driver && s.target == name)
            .cloned()
            .collect();
        for session in of_it {
            send_close(&state, &session, CloseReason::TargetRemoved);
        }
        Ok(())
    }

    /// Replaces all groups of a target at once. Sessions get their new map with their next
    /// command, and REPORTED LUNS DATA HAS CHANGED; commands in flight finish on the old one.
    pub fn set_groups(&self, driver: &str, name: &str, specs: &[GroupSpec]) -> Result<(), Error> {
        let state = self.state();
        let key = (driver.to_string(), name.to_string());
        let Some(target) = state.targets.get(&key) else {
            return Err(Error::new(Errno::NoEnt, format!("no {driver} target {name}")));
        };
        let groups = Groups::build(name, specs, |d| state.devices.get(d).cloned())?;
        replace(target, groups);
        for (_, engine) in &state.engines {
            // A full or closed mailbox loses nothing: sessions look for themselves as well.
            let _ = engine.send(Message::Refresh);
        }
        Ok(())
    }

    /// A target by driver and name.
    pub fn target(&self, driver: &str, name: &str) -> Option<Arc<TargetPort>> {
        self.state().targets.get(&(driver.to_string(), name.to_string())).cloned()
    }

    /// Targets of a driver that grant an initiator at least one unit, by name.
    pub fn visible_targets(&self, driver: &str, initiator: &str) -> Vec<Arc<TargetPort>> {
        let all: Vec<Arc<TargetPort>> =
            self.state().targets.values().filter(|t| t.driver == driver).cloned().collect();
        all.into_iter().filter(|t| t.decide(initiator).grants()).collect()
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
        let ports = state.targets.values().filter(|t| t.driver == driver && !t.is_removed());
        let mut ports: Vec<u16> = ports.map(|t| t.port).collect();
        ports.sort_unstable();
        ports
    }

    /// The engines of all cores but one.
    pub(crate) fn engines_but(&self, core: u32) -> Vec<Mailer<Message>> {
        self.state().engines.iter().filter(|(c, _)| *c != core).map(|(_, m)| m.clone()).collect()
    }

    pub(crate) fn next_session(&self) -> u64 {
        let mut state = self.state();
        state.sessions_made += 1;
        state.sessions_made
    }

    pub(crate) fn session_began(&self, facts: &Arc<SessionFacts>) {
        self.state().sessions.insert(facts.number, facts.clone());
    }

    pub(crate) fn session_ended(&self, number: u64) {
        self.state().sessions.remove(&number);
    }

    /// Closes every session of a target (cold reset).
    pub(crate) fn close_all(&self, target: &TargetPort, why: CloseReason) {
        let state = self.state();
        for s in state.sessions.values() {
            if s.driver == target.driver && s.target == target.name {
                send_close(&state, s, why);
            }
        }
    }
}

/// R1.
fn replace(target: &TargetPort, groups: Groups) {
    let mut place = target.groups.lock().unwrap_or_else(PoisonError::into_inner);
    *place = Arc::new(groups);
    target.generation.fetch_add(1, Ordering::AcqRel);
}

fn send_close(state: &State, session: &SessionFacts, why: CloseReason) -> bool {
    let message =
        |m: &Mailer<Message>| m.send(Message::Close { session: session.number, why }).is_ok();
    state.engines.iter().filter(|(c, _)| *c == session.core).any(|(_, m)| message(m))
}

#[cfg(test)]
mod tests;
