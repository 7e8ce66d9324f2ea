//! Targets, portals and access groups: from the configuration to the registry and the drivers.
//!
//! Invariants
//!  E1  A provider is open for initiators exactly while some group maps it.
//!  E2  A portal listens on every core, or on none.
//!  E3  What fails leaves groups, devices and portals as they were.
//!  E4  Settings that the operator made by hand are restored before an initiator sees the object.

pub mod clashes;
mod files;
mod former;
mod pending_luns;
mod portals;
mod protecting;
mod specs;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drivers::Driver;
use engine::alua::{DEFAULT_GROUP, PortGroupSpec, Stage, StateCause, TRANSITION_S_MAX};
use engine::ids::Ids;
use engine::lun::{
    OpenSpec, clear_reservations, close_device, eject_medium, load_medium, open_device,
    poll_space_usage,
};
use engine::registry::{LunChange, SessionFacts};
use engine::{Engine, GroupSpec, Label, Registry};
use geom::{GraphControl, Topology};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{
    AccessConfig, AluaConfig, AluaState, Config, LunConfig, TargetConfig, UnitConfig,
};
use mgmt::plan::{Deferred, FileSection};
use reactor::Address;

use crate::attach::{Attachments, Ticket};
use crate::cycle_check::CycleCheck;
use crate::errors::{find_persistent, from_geom};
use crate::identities::IdentityKeeper;
use crate::identity;
use crate::overrides::{Overrides, Tray};
use crate::startup_wait::{self, WaitLimit};
pub use files::{Files, FilesInUse, RETRY_WAIT, has_sources, has_tls_files};
use pending_luns::PendingLuns;
pub use pending_luns::{ProviderSources, disk_may_provide};
use portals::Portal;
pub use portals::{check_address, check_addresses, check_portals};
pub use protecting::lost_to_protection;
use specs::{access_state, port_group, target_spec};
pub use specs::{judge_group, lent, units_of};

/// Longest wait for a LUN to be attached or detached: its tools wait for its disk.
pub const ATTACH_DEADLINE: Duration = Duration::from_secs(30);

/// Longest wait for sessions to end when the daemon does: commands at a disk have to return.
pub const SESSIONS_DEADLINE: Duration = Duration::from_secs(5);

thread_local! {
    /// The engine of this core's thread.
    static ENGINE: std::cell::RefCell<Option<Rc<Engine>>> = const { std::cell::RefCell::new(None) };
}

/// Puts the engine and the drivers on a core; called on the core's thread.
pub fn install(core: &Rc<geom::Core>, registry: &Arc<Registry>, drivers: &[Arc<dyn Driver>]) {
    let engine = Engine::new(core.clone(), registry.clone());
    for driver in drivers {
        driver.clone().install(&engine);
    }
    drivers::bus::install(&engine);
    ENGINE.with(|e| *e.borrow_mut() = Some(engine));
}

/// Whether the driver of a target would take it: its name, its parameters, the files that it names.
///
/// # Errors
/// Errors that [`Exports::create_target`] would return.
pub fn check_target(config: &TargetConfig) -> Result<()> {
    let op = "create target";
    let drivers = drivers::all(&Registry::new());
    let Some(driver) = drivers.iter().find(|d| d.name() == config.driver) else {
        return Err(Error::new(Kind::NotFound, op, "no such driver").at(&config.driver));
    };
    let checked = driver.check_target(target_spec(config)?);
    checked.map_err(|e| {
        let next = format!(
            "Correct the target in ashlar.toml; `ashlar schema target {}` shows its keys and \
             limits.",
            config.driver
        );
        from_geom(op, &config.name, e).next(next)
    })
}

/// Everything that initiators can reach.
pub struct Exports {
    registry: Arc<Registry>,
    drivers: Vec<Arc<dyn Driver>>,
    portals: BTreeMap<Address, Portal>,
    attachments: Attachments,
    overrides: Overrides,
    /// Identities of disks.
    pub identities: Arc<IdentityKeeper>,
    cycle_check: CycleCheck,
    pending_luns: PendingLuns,
    /// Files of secrets, certificates and keys.
    pub files: FilesInUse,
    /// Those of the configuration that is to be reached.
    pub sources: ProviderSources,
    /// Names given last as consent to lose their data.
    pub consent: Vec<String>,
    /// Parts that a start left out are tried again: a LUN that fails does not delay the others
    /// (W1).
    pub is_retrying: bool,
    /// How long a start waits for providers that may still appear, ns of the cores' clock.
    start_ends_ns: u64,
}

impl Exports {
    /// Nothing exported yet.
    pub fn new(
        (registry, drivers): (Arc<Registry>, Vec<Arc<dyn Driver>>),
        attachments: Attachments,
        (by_hand, identities): (Overrides, Arc<IdentityKeeper>),
        loops: CycleCheck,
        files: FilesInUse,
        started_ns: u64,
    ) -> Exports {
        let max_wait_ns =
            u64::try_from(startup_wait::START_WAIT_MAX.as_nanos()).unwrap_or(u64::MAX);
        registry.set_former(by_hand.names().clone());
        Exports {
            registry,
            drivers,
            portals: BTreeMap::new(),
            attachments,
            overrides: by_hand,
            identities,
            cycle_check: loops,
            pending_luns: PendingLuns::default(),
            files,
            sources: ProviderSources::default(),
            consent: Vec::new(),
            is_retrying: false,
            start_ends_ns: started_ns.saturating_add(max_wait_ns),
        }
    }

    /// Restores the state of the default port group that was set by hand.
    pub fn remember(&mut self) {
        let state = self.override_or(DEFAULT_GROUP, AluaState::default());
        let group = PortGroupSpec { state: access_state(state), ..PortGroupSpec::default_group() };
        if let Err(e) = self.registry.set_port_groups(&[group]) {
            self.overrides.report(DEFAULT_GROUP, e.message);
        }
    }

    /// The state of a new group; a state that was set by hand is reported.
    fn override_or(&self, group: &str, configured: AluaState) -> AluaState {
        let state = self.overrides.state(group, configured);
        if state != configured {
            let word = serde_json::to_value(state).unwrap_or_default();
            let word = word.as_str().unwrap_or_default();
            let text = format!("port group {group} is {word}, as set by hand");
            self.overrides.report(group, text);
        }
        state
    }

    /// LUNs that are block devices of this machine.
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Detaches LUNs; those in use may wait for the next daemon.
    pub fn hand_over(&mut self) -> Ticket {
        self.cycle_check.shut_down();
        self.attachments.shut_down()
    }

    /// Stops serving: no target accepts logins any more.
    pub fn stop_serving(&mut self, control: &mut GraphControl) {
        for (_, portal) in std::mem::take(&mut self.portals) {
            if let Ok(driver) = self.driver(&portal.driver) {
                self.close_on(control, driver, portal.bound, control.cores().len());
            }
        }
        self.registry.login_gate().close();
        self.registry.save_known();
    }

    /// A session by its number.
    pub fn session(&self, number: u64) -> Option<Arc<SessionFacts>> {
        self.registry.sessions().into_iter().find(|s| s.number == number)
    }

    /// Requests the end of a session; false when no session has that number.
    pub fn end_session(&self, number: u64) -> bool {
        self.registry.kick(number)
    }

    /// Sessions of a target that was removed which have not ended.
    pub fn sessions_left(&self, of: &TargetConfig) -> usize {
        let all = self.registry.sessions();
        all.iter().filter(|s| s.driver == of.driver && s.target == of.name).count()
    }

    /// Detaches all LUNs of a target, even those in use.
    fn detach_all(&self, control: &mut GraphControl, target: &str) {
        if self.attachments.has_target(target) {
            let ticket = self.attachments.drop_target(target);
            control.wait_until(ATTACH_DEADLINE, |_| ticket.result().is_some());
        }
    }

    /// Numbers of the local buses that show the LUNs of a target.
    pub fn local_buses(&self, target: &TargetConfig) -> Vec<u64> {
        self.cycle_check.buses_at(&target.driver, &target.name)
    }

    fn driver(&self, name: &str) -> Result<Arc<dyn Driver>> {
        let found = self.drivers.iter().find(|d| d.name() == name).cloned();
        found.ok_or_else(|| Error::new(Kind::NotFound, "create target", "no such driver").at(name))
    }

    /// Addresses that listen, by target.
    pub fn portals(&self) -> BTreeMap<String, Vec<String>> {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for portal in self.portals.values() {
            for user in &portal.users {
                out.entry(user.clone()).or_default().push(portal.bound.to_string());
            }
        }
        out
    }

    /// New connections wait until [`Exports::resume`].
    pub fn pause(&self) {
        self.registry.login_gate().pause();
    }

    /// They are answered again.
    pub fn resume(&self) {
        self.registry.login_gate().resume();
    }

    /// Makes a target and opens its portals.
    pub fn create_target(
        &mut self,
        control: &mut GraphControl,
        config: &TargetConfig,
    ) -> Result<()> {
        let op = "create target";
        let driver = self.driver(&config.driver)?;
        let files = Files::of_target(config);
        let spec = target_spec(config)?;
        let listen = spec.listen.clone();
        driver.set_target(spec).map_err(|e| from_geom(op, &config.name, e))?;
        let created = self.registry.set_target_at(&config.driver, &config.name, config.port_id);
        let joined = created.and_then(|_| self.set_port_group(config));
        let opened = joined.map_err(|e| from_geom(op, &config.name, e)).and_then(|_| {
            listen.iter().try_for_each(|at| self.open(control, &driver, at, &config.name))
        });
        match opened {
            Ok(()) => self.files.set_target(&config.name, files),
            Err(_) => self.remove_target(control, config)?,
        }
        opened
    }

    /// Puts a target's port into its group.
    fn set_port_group(&self, config: &TargetConfig) -> std::result::Result<(), geom::Error> {
        let group = config.port_group.as_deref().unwrap_or(DEFAULT_GROUP);
        self.registry.set_port_group(&config.driver, &config.name, group)
    }

    /// Reads the files of a target and of its groups again. Sessions continue; new logins use the
    /// new content.
    pub fn renew(&mut self, target: &TargetConfig, config: &Config) -> Result<()> {
        let (op, name) = ("read files anew", &target.name);
        let driver = self.driver(&target.driver)?;
        let groups: Vec<&AccessConfig> =
            config.access.iter().filter(|a| a.target == *name).collect();
        let own = Files::of_target(target);
        let theirs = Files::of_groups(groups.iter().copied());
        let specs =
            groups.iter().map(|a| self.visible_spec(a)).collect::<Result<Vec<GroupSpec>>>()?;
        driver.set_target(target_spec(target)?).map_err(|e| from_geom(op, name, e))?;
        self.files.set_target(name, own);
        let set = self.registry.set_groups(&target.driver, name, &specs);
        set.map_err(|e| from_geom(op, name, e))?;
        self.files.set_groups(name, theirs);
        Ok(())
    }

    /// Closes a target's portals and sessions.
    pub fn remove_target(
        &mut self,
        control: &mut GraphControl,
        config: &TargetConfig,
    ) -> Result<()> {
        let driver = self.driver(&config.driver)?;
        for at in self.portals.keys().cloned().collect::<Vec<_>>() {
            self.close(control, &at, &config.name);
        }
        driver.remove_target(&config.name);
        self.pending_luns.set(&config.name, BTreeSet::new());
        self.files.forget(FileSection::Target(config.name.clone()));
        self.detach_all(control, &config.name);
        match self.registry.remove_target(&config.driver, &config.name) {
            Ok(()) => Ok(()),
            Err(e) if e.kind == bio::Errno::NoEnt => Ok(()),
            Err(e) => Err(from_geom("remove target", &config.name, e)),
        }
    }

    /// Whether a group could not be made before and still cannot, for example because its secret is
    /// missing. It does not stop the groups `made` now.
    fn is_deferred(&self, driver: &str, access: &AccessConfig, created: &[AccessConfig]) -> bool {
        if created.iter().any(|group| group.same_group(access)) {
            return false;
        }
        let target = self.registry.target(driver, &access.target);
        let is_there = target.is_some_and(|t| t.groups().group(&access.group).is_some());
        !is_there && self.visible_spec(access).is_err()
    }

    /// Makes `config` the groups of its target, opening and closing providers as needed. `made`:
    /// the groups for which it is done.
    pub fn set_groups(
        &mut self,
        control: &mut GraphControl,
        target: &TargetConfig,
        config: &Config,
        created: &[AccessConfig],
    ) -> Result<Vec<Deferred>> {
        let all: Vec<&AccessConfig> = config
            .access
            .iter()
            .filter(|a| a.target == target.name)
            .filter(|a| !self.is_deferred(&target.driver, a, created))
            .collect();
        let wanted = units_of(all.iter().copied(), (&config.unit, &config.disk), None);
        let files = Files::of_groups(all.iter().copied());
        let mut opened = Vec::new();
        let opens = self.open_devices(control, &wanted, &[target], &mut opened);
        let result = opens.and_then(|left| {
            let specs =
                all.iter().map(|a| self.visible_spec(a)).collect::<Result<Vec<GroupSpec>>>()?;
            let set = self.registry.set_groups(&target.driver, &target.name, &specs);
            set.map_err(|e| from_geom("set access group", &target.name, e))?;
            Ok(left)
        });
        let Ok(left) = result else {
            for name in &opened {
                self.close_device(control, name)?;
            }
            return result;
        };
        self.files.set_groups(&target.name, files);
        self.pending_luns.set(&target.name, self.without_unit(wanted.keys()));
        self.attachments.check_now();
        for name in self.registry.unmapped() {
            self.close_device(control, &name)?;
        }
        self.pending_luns.failed(&left, control.topology.generation());
        Ok(left)
    }

    /// Changes some LUNs of a group, which is as `to` afterwards; the others are not looked at.
    pub fn change_luns(
        &mut self,
        control: &mut GraphControl,
        target: &TargetConfig,
        to: &AccessConfig,
        changes: &[(u64, Option<LunConfig>)],
        wanted: &BTreeMap<String, OpenSpec>,
    ) -> Result<Vec<Deferred>> {
        let (driver, name) = (&target.driver, &target.name);
        let was = self.registry.target(driver, name);
        let was = was.and_then(|t| t.groups().group(&to.group).map(engine::registry::Group::luns));
        let mut opened = Vec::new();
        let opens = self.open_devices(control, wanted, &[target], &mut opened);
        let result = opens.and_then(|left| {
            let change = |(lun, to): &(u64, Option<LunConfig>)| self.visible_change(*lun, to);
            let all: Vec<LunChange> = changes.iter().map(change).collect();
            let set = self.registry.change_luns(driver, name, &to.group, &all);
            set.map_err(|e| from_geom("set access group", name, e))?;
            Ok(left)
        });
        let Ok(left) = result else {
            for name in &opened {
                self.close_device(control, name)?;
            }
            return result;
        };
        self.pending_luns.add(name, self.without_unit(wanted.keys()));
        self.attachments.check_now();
        let before = changes.iter().filter_map(|(lun, _)| was.as_ref()?.get(*lun).cloned());
        let free = before.map(|e| e.device.clone()).filter(|d| d.ports().is_empty());
        let free: BTreeSet<String> = free.map(|d| d.name()).collect();
        for name in free {
            self.close_device(control, &name)?;
        }
        self.pending_luns.failed(&left, control.topology.generation());
        Ok(left)
    }

    /// Reads the fill level of the disks of thin units and notifies initiators. Also saves the
    /// state of units that initiators know.
    pub fn check_space(&self, topology: &Topology) {
        poll_space_usage(topology, &self.registry);
        self.registry.save_known();
    }

    /// Whether initiators can log in.
    pub fn is_serving(&self) -> bool {
        !self.portals.is_empty()
    }

    /// Whether some unit's disk reports its used space.
    pub fn has_thin(&self) -> bool {
        self.registry.has_thin()
    }

    /// Sets the thresholds of open units to those of `to`. Other settings of a unit take effect
    /// when it is opened the next time.
    pub fn set_thresholds(&self, from: &[UnitConfig], to: &[UnitConfig]) -> Result<()> {
        let thresholds = |all: &[UnitConfig], name: &str| {
            all.iter().find(|u| u.provider == name).and_then(|u| u.thresholds.clone())
        };
        let names: BTreeSet<&str> = from.iter().chain(to).map(|u| u.provider.as_str()).collect();
        for name in names {
            let (was, is) = (thresholds(from, name), thresholds(to, name));
            let Some(device) = self.registry.device(name).filter(|_| was != is) else { continue };
            let knows = device.configure_thresholds(is.as_deref());
            if !knows && is.is_some_and(|all| !all.is_empty()) {
                let why = "the disk does not report its used space";
                let error = Error::new(Kind::ConfigValue, "change thresholds", why).at(name);
                return Err(error.next("Leave `thresholds` out of this unit."));
            }
        }
        Ok(())
    }

    /// Units get the names of a configuration, under their LUNs.
    pub fn set_labels(&self, config: &Config) {
        let units = units_of(config.access.iter(), (&config.unit, &config.disk), None);
        for (name, unit) in units {
            let label = unit.label(&name);
            if self.registry.device(&name).is_some_and(|device| *device.label() != label) {
                self.registry.relabel(&name, label);
            }
        }
    }

    /// Providers have other names, and so have their units.
    pub fn rename(&mut self, names: &[(String, String)]) {
        let left = self.dropped_names(names);
        self.files.rename_disks(names);
        for (from, to) in names {
            if let Some(device) = self.registry.device(from) {
                let label = Label { name: to.clone(), ..(*device.label()).clone() };
                self.registry.relabel(from, label);
            }
        }
        self.pending_luns.rename(names);
        self.overrides.rename(names, left);
        self.serve_former();
        self.attachments.check_now();
    }

    /// Makes these the groups of target ports, and moves those whose first state changes to it.
    pub fn set_port_groups(
        &mut self,
        control: &mut GraphControl,
        from: &[AluaConfig],
        to: &[AluaConfig],
    ) -> Result<()> {
        let was = |g: &AluaConfig| from.iter().find(|f| f.name == g.name).map(|f| f.state);
        let news = |g: &&AluaConfig| was(g).is_none_or(|w| w != g.state);
        let state = |g: &AluaConfig| (g.name.clone(), self.override_or(&g.name, g.state));
        let news: BTreeMap<String, AluaState> = to.iter().filter(news).map(state).collect();
        let spec = |g: &AluaConfig| port_group(g, news.get(&g.name).copied().unwrap_or(g.state));
        let specs: Vec<PortGroupSpec> = to.iter().map(spec).collect();
        let set = self.registry.set_port_groups(&specs);
        set.map_err(|e| from_geom("set port groups", "alua", e))?;
        for (group, state) in &news {
            change_state(&self.registry, control, group, *state)?;
        }
        let mut all: BTreeMap<&str, AluaState> =
            to.iter().map(|g| (g.name.as_str(), g.state)).collect();
        all.entry(DEFAULT_GROUP).or_default();
        self.overrides.configured(&all)
    }

    /// The operator changes the state of a group of target ports, which the configuration gives
    /// `configured`; waits for the commands that it ends.
    pub fn set_access_state(
        &mut self,
        control: &mut GraphControl,
        group: &str,
        configured: AluaState,
        state: AluaState,
    ) -> Result<()> {
        let registry = &self.registry;
        let act = || change_state(registry, control, group, state);
        self.overrides.set_state(group, (configured, state), act)
    }

    /// Ends the reservations of a unit.
    pub fn clear_reservations(&self, name: &str) -> Result<()> {
        let done = clear_reservations(&self.registry, name);
        done.map_err(|e| from_geom("clear reservations", name, e))
    }

    /// The operator takes the medium of a unit out.
    pub fn eject(&mut self, unit: &str) -> Result<()> {
        let tray = Tray { is_out: true, ..self.overrides.tray(unit) };
        let registry = &self.registry;
        let act = || eject_medium(registry, unit).map_err(|e| from_geom("tray eject", unit, e));
        self.overrides.set_tray(unit, tray, act)
    }

    /// The operator puts a medium in: the one that was there, or that of another provider.
    pub fn load(
        &mut self,
        control: &mut GraphControl,
        unit: &str,
        provider: Option<&str>,
    ) -> Result<()> {
        let in_it = match provider {
            Some(other) => Some(other.to_owned()).filter(|p| p != unit),
            None => self.overrides.tray(unit).provider,
        };
        if let Some(name) = provider {
            find_persistent(&control.topology, "tray load", name)?;
        }
        let registry = &self.registry;
        let act = || {
            let done = load_medium(control, registry, unit, provider);
            done.map_err(|e| from_geom("tray load", unit, e))
        };
        self.overrides.set_tray(unit, Tray { provider: in_it, is_out: false }, act)
    }

    /// Restores the tray of a unit that has just been opened and that no initiator sees yet. If the
    /// medium is missing, the tray stays out: no medium is better than a wrong one.
    fn restore_tray(&self, control: &mut GraphControl, unit: &str) {
        let tray = self.overrides.tray(unit);
        if tray == Tray::default() {
            return;
        }
        let done = eject_medium(&self.registry, unit).and_then(|()| match &tray.provider {
            None => Ok(()),
            other => load_medium(control, &self.registry, unit, other.as_deref()),
        });
        let done = done.and_then(|()| match tray.is_out {
            true => eject_medium(&self.registry, unit),
            false => Ok(()),
        });
        let what = tray.provider.as_deref().unwrap_or("medium");
        let text = match (done, tray.is_out) {
            (Err(e), _) => format!("{what}, loaded by hand, is missing: {}", e.message),
            (Ok(()), true) => format!("{what} ejected, as set by hand"),
            (Ok(()), false) => format!("{what} loaded, as set by hand"),
        };
        self.overrides.report(unit, text);
    }

    /// Opens the wanted units that are not open. Answers the optional ones that cannot be opened.
    fn open_devices(
        &self,
        control: &mut GraphControl,
        wanted: &BTreeMap<String, OpenSpec>,
        at: &[&TargetConfig],
        opened: &mut Vec<String>,
    ) -> Result<Vec<Deferred>> {
        self.identities.store_in_turns(control);
        let mut left = Vec::new();
        // A copy of an image does not take the identity from the one that had it.
        let copies = self.identities.copies();
        let (later, first): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(name, _)| copies.contains(*name));
        for (name, unit) in first.into_iter().chain(later) {
            match self.open_unit(control, (name, unit), at) {
                Ok(true) => opened.push(name.clone()),
                Ok(false) => {}
                Err(e) if self.may_fail(name) => left.push(Deferred::export(name, e)),
                Err(e) => return Err(e),
            }
        }
        Ok(left)
    }

    /// Opens one of them; false when it is open, or not there yet.
    fn open_unit(
        &self,
        control: &mut GraphControl,
        (name, unit): (&str, &OpenSpec),
        at: &[&TargetConfig],
    ) -> Result<bool> {
        let is_open = self.registry.device(name).is_some_and(|d| d.lost().is_none());
        if !is_open {
            startup_wait::find_provider(control, self.cycle_check.cam(), name, self.wait_limit());
        }
        for target in at {
            self.cycle_check.refuse(&control.topology, name, &target.driver, &target.name)?;
        }
        let is_away = control.topology.find(name).is_none();
        if is_open || is_away && self.may_wait(&control.topology, name) {
            return Ok(false);
        }
        let op = "export";
        let provider = find_persistent(&control.topology, op, name)?;
        let is_known = |serial: &str| self.registry.is_known_serial(serial);
        let derived = || identity::serial_of(&control.topology, provider, is_known);
        let serial = unit.serial.clone().unwrap_or_else(derived);
        let ids = Ids::new(&serial, unit.configured_ids);
        clashes::clash(&ids.all(), name, |id| self.registry.unit_by_id(id))?;
        self.may_protect(control, name, (&serial, unit.protection))?;
        let spec = OpenSpec { serial: Some(serial), ..unit.clone() };
        let is_new = self.registry.device(name).is_none();
        open_device(control, &self.registry, name, &spec).map_err(|e| from_geom(op, name, e))?;
        if is_new {
            self.restore_tray(control, name);
        }
        Ok(true)
    }

    /// How long providers that may still appear are waited for.
    pub fn wait_limit(&self) -> WaitLimit {
        WaitLimit { start_ends_ns: self.is_starting().then_some(self.start_ends_ns) }
    }

    /// LUNs that are configured and whose provider cannot be opened, with why.
    pub fn refused_luns(&self) -> BTreeMap<String, String> {
        self.pending_luns.refused()
    }

    fn close_device(&self, control: &mut GraphControl, name: &str) -> Result<()> {
        close_device(control, &self.registry, name).map_err(|e| from_geom("close device", name, e))
    }
}

/// Changes the state of a group of target ports; waits for the commands that it ends.
fn change_state(
    registry: &Registry,
    control: &mut GraphControl,
    group: &str,
    state: AluaState,
) -> Result<()> {
    let op = "set access state";
    let found = registry.port_groups().into_iter().find(|g| g.name() == group);
    let Some(found) = found else {
        return Err(Error::new(Kind::NotFound, op, "no such port group").at(group));
    };
    let wanted = [(found.id(), access_state(state))];
    let change = registry.set_access_states(&wanted, StateCause::Implicit, None);
    let change = change.map_err(|e| from_geom(op, group, e))?;
    let max_wait = Duration::from_secs(u64::from(TRANSITION_S_MAX));
    control.wait_until(max_wait, |_| change.stage() != Stage::Draining);
    match registry.give_up(&change) {
        Stage::Done => Ok(()),
        _ => {
            let why = "commands at the media did not end in time; the state is unchanged";
            let error = Error::new(Kind::Busy, op, why).at(group);
            Err(error.next("`ashlar sessions` shows how long the oldest command waits."))
        }
    }
}
