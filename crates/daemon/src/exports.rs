//! Targets, portals and access groups: from the configuration to the registry and the drivers.
//!
//! Invariants
//!  E1  A provider is open for initiators exactly while some group maps it.
//!  E2  A portal listens on every core, or on none.
//!  E3  What fails leaves groups, devices and portals as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::api::{Error, Kind, Result};
use control::config::{AccessConfig, Chap, DigestPolicy, LunMode, TargetConfig, secret};
use drivers::{Account, Driver, TargetSpec};
use geom::{Control, Local, Message};
use reactor::Address;
use target::lun::{OpenSpec, close_device, open_device};
use target::{Engine, GroupSpec, LunSpec, Registry};

use crate::errors::from_geom;
use crate::identity;

/// How often an address that is in use is tried again; then the portal is refused.
const PORT_TRIES_MAX: u32 = 50;

/// Time between two tries.
const PORT_PAUSE: Duration = Duration::from_millis(20);

/// Longest wait for a core to open a portal.
const PORTAL_DEADLINE: Duration = Duration::from_secs(10);

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
    ENGINE.with(|e| *e.borrow_mut() = Some(engine));
}

struct Portal {
    bound: Address,
    driver: String,
    users: BTreeSet<String>,
}

/// Everything that initiators can reach.
pub struct Exports {
    registry: Arc<Registry>,
    drivers: Vec<Arc<dyn Driver>>,
    portals: BTreeMap<Address, Portal>,
}

impl Exports {
    /// Nothing exported yet.
    pub fn new(registry: Arc<Registry>, drivers: Vec<Arc<dyn Driver>>) -> Exports {
        Exports { registry, drivers, portals: BTreeMap::new() }
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

    /// Makes a target and opens its portals.
    pub fn create_target(&mut self, control: &mut Control, config: &TargetConfig) -> Result<()> {
        let op = "create target";
        let driver = self.driver(&config.driver)?;
        let spec = target_spec(config)?;
        let listen = spec.listen.clone();
        driver.set_target(spec).map_err(|e| from_geom(op, &config.name, e))?;
        let made = self.registry.set_target(&config.driver, &config.name);
        let opened = made.map_err(|e| from_geom(op, &config.name, e)).and_then(|_| {
            listen.iter().try_for_each(|at| self.open(control, &driver, at, &config.name))
        });
        if opened.is_err() {
            self.remove_target(control, config)?;
        }
        opened
    }

    /// Changes a target: new logins see it; portals no longer listed close.
    pub fn modify_target(
        &mut self,
        control: &mut Control,
        from: &TargetConfig,
        to: &TargetConfig,
    ) -> Result<()> {
        let driver = self.driver(&to.driver)?;
        let (old, new) = (target_spec(from)?, target_spec(to)?);
        for at in new.listen.iter().filter(|a| !old.listen.contains(a)) {
            if let Err(e) = self.open(control, &driver, at, &to.name) {
                for undo in new.listen.iter().filter(|a| !old.listen.contains(a)) {
                    self.close(control, undo, &to.name);
                }
                return Err(e);
            }
        }
        let gone: Vec<_> = old.listen.iter().filter(|a| !new.listen.contains(a)).cloned().collect();
        driver.set_target(new).map_err(|e| from_geom("change target", &to.name, e))?;
        for at in gone {
            self.close(control, &at, &to.name);
        }
        Ok(())
    }

    /// Closes a target's portals and sessions.
    pub fn remove_target(&mut self, control: &mut Control, config: &TargetConfig) -> Result<()> {
        let driver = self.driver(&config.driver)?;
        for at in self.portals.keys().cloned().collect::<Vec<_>>() {
            self.close(control, &at, &config.name);
        }
        driver.remove_target(&config.name);
        match self.registry.remove_target(&config.driver, &config.name) {
            Ok(()) => Ok(()),
            Err(e) if e.kind == bio::Errno::NoEnt => Ok(()),
            Err(e) => Err(from_geom("remove target", &config.name, e)),
        }
    }

    fn open(
        &mut self,
        control: &mut Control,
        driver: &Arc<dyn Driver>,
        at: &Address,
        user: &str,
    ) -> Result<()> {
        if let Some(portal) = self.portals.get_mut(at) {
            if portal.driver != driver.name() {
                let why = format!("{at} belongs to driver {}", portal.driver);
                return Err(Error::new(Kind::Busy, "open portal", why).at(user));
            }
            portal.users.insert(user.to_owned());
            return Ok(());
        }
        if let Err(e) = nobody_listens(control, at) {
            let error = Error::new(Kind::System, "open portal", e).at(at.to_string());
            return Err(error.next(next_for(at)));
        }
        let mut bound = at.clone();
        for core in 0..control.cores().len() {
            let (opener, ask) = (driver.clone(), bound.clone());
            let opened = on_core(control, core, move |e| opener.open_portal(e, ask));
            match opened {
                Some(Ok(b)) => bound = b,
                other => {
                    self.close_on(control, driver.clone(), bound, core);
                    let why = match other {
                        Some(Err(e)) => e.to_string(),
                        _ => "a core does not answer".to_owned(),
                    };
                    let error = Error::new(Kind::System, "open portal", why).at(at.to_string());
                    return Err(error.next(next_for(at)));
                }
            }
        }
        let users = BTreeSet::from([user.to_owned()]);
        self.portals.insert(at.clone(), Portal { bound, driver: driver.name().to_owned(), users });
        Ok(())
    }

    fn close(&mut self, control: &mut Control, at: &Address, user: &str) {
        let Some(portal) = self.portals.get_mut(at) else { return };
        if !portal.users.remove(user) || !portal.users.is_empty() {
            return;
        }
        if let Some(portal) = self.portals.remove(at)
            && let Ok(driver) = self.driver(&portal.driver)
        {
            self.close_on(control, driver, portal.bound, control.cores().len());
        }
    }

    fn close_on(&self, control: &mut Control, driver: Arc<dyn Driver>, at: Address, n: usize) {
        for core in 0..n {
            let (driver, at) = (driver.clone(), at.clone());
            on_core(control, core, move |e| Box::pin(async move { driver.close_portal(&e, at) }));
        }
    }

    /// Makes `config` the groups of its target, opening and closing providers as needed.
    /// `all` are the groups that the target shall have.
    pub fn set_groups(
        &mut self,
        control: &mut Control,
        target: &TargetConfig,
        all: &[&AccessConfig],
        everywhere: &[&AccessConfig],
    ) -> Result<()> {
        let wanted = luns_of(all);
        let mut opened = Vec::new();
        let result = self.open_devices(control, &wanted, &mut opened).and_then(|()| {
            let specs: Vec<GroupSpec> = all.iter().map(|a| group_spec(a)).collect();
            let set = self.registry.set_groups(&target.driver, &target.name, &specs);
            set.map_err(|e| from_geom("set access group", &target.name, e))
        });
        if result.is_err() {
            for name in &opened {
                self.close_device(control, name)?;
            }
            return result;
        }
        let used = luns_of(everywhere);
        for device in self.registry.view().devices {
            if !used.contains_key(&device.name) {
                self.close_device(control, &device.name)?;
            }
        }
        Ok(())
    }

    /// Opens anew what was lost and has come back: answers the names, or why one stays lost.
    pub fn revive(&self, control: &mut Control, all: &[AccessConfig]) -> Vec<(String, Result<()>)> {
        let lost = |name: &String| self.registry.device(name).is_some_and(|d| d.lost().is_some());
        let mut wanted = luns_of(&all.iter().collect::<Vec<_>>());
        wanted.retain(|name, _| lost(name) && control.topology.find(name).is_some());
        let one = |(name, serial): (String, Option<String>)| {
            let only = BTreeMap::from([(name.clone(), serial)]);
            let done = self.open_devices(control, &only, &mut Vec::new());
            (name, done)
        };
        wanted.into_iter().map(one).collect()
    }

    fn open_devices(
        &self,
        control: &mut Control,
        wanted: &BTreeMap<String, Option<String>>,
        opened: &mut Vec<String>,
    ) -> Result<()> {
        for (name, serial) in wanted {
            if self.registry.device(name).is_some_and(|d| d.lost().is_none()) {
                continue;
            }
            let op = "export";
            let Some(provider) = control.topology.find(name) else {
                let error = Error::new(Kind::NotFound, op, "no such provider").at(name);
                return Err(error.next("Run `ashlar list` to see the providers and why."));
            };
            let derived = || identity::serial_of(&control.topology, provider);
            let serial = serial.clone().unwrap_or_else(derived);
            let spec = OpenSpec { serial: Some(serial), ..OpenSpec::default() };
            open_device(control, &self.registry, name, &spec)
                .map_err(|e| from_geom(op, name, e))?;
            opened.push(name.clone());
        }
        Ok(())
    }

    fn close_device(&self, control: &mut Control, name: &str) -> Result<()> {
        close_device(control, &self.registry, name).map_err(|e| from_geom("close device", name, e))
    }
}

/// The cores share a port, and with them would any other daemon of the same user: each connection
/// would come to one of the two. So somebody who does not share asks first, and asks again for a
/// while: the kernel closes the sockets of a process that was killed a moment after its end.
/// Unix sockets are not shared with other processes: the driver finds out itself.
fn nobody_listens(control: &mut Control, at: &Address) -> std::io::Result<()> {
    let Some(at) = at.inet() else { return Ok(()) };
    if at.port() == 0 {
        return Ok(());
    }
    let mut tries = 0;
    loop {
        match std::net::TcpListener::bind(at) {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && tries < PORT_TRIES_MAX => {
                tries += 1;
                control.wait_until(PORT_PAUSE, |_| false);
            }
            other => return other.map(drop),
        }
    }
}

/// What to look at when an address cannot be listened on.
fn next_for(at: &Address) -> String {
    let Some(port) = at.inet().map(|at| at.port()) else {
        return format!("Is the folder of {at} there and writable, and nobody listening at it?");
    };
    format!(
        "Is the address this machine's (`ip address`), the port free (`ss -ltnp 'sport = :{port}'`)\
         {}?",
        if port < 1024 { ", and the daemon root's, as ports below 1024 need" } else { "" }
    )
}

/// Provider and configured serial number of every LUN.
fn luns_of(groups: &[&AccessConfig]) -> BTreeMap<String, Option<String>> {
    let mut out: BTreeMap<String, Option<String>> = BTreeMap::new();
    for lun in groups.iter().flat_map(|g| g.luns.values()) {
        let serial = out.entry(lun.provider.clone()).or_default();
        if serial.is_none() {
            serial.clone_from(&lun.serial);
        }
    }
    out
}

fn group_spec(access: &AccessConfig) -> GroupSpec {
    let lun = |(number, lun): (&u64, &control::config::LunConfig)| LunSpec {
        lun: *number,
        device: lun.provider.clone(),
        read_only: lun.mode == LunMode::Ro,
    };
    GroupSpec {
        name: access.group.clone(),
        initiators: access.initiators.clone(),
        luns: access.luns.iter().map(lun).collect(),
        ..GroupSpec::default()
    }
}

fn target_spec(config: &TargetConfig) -> Result<TargetSpec> {
    let mut listen = Vec::new();
    for text in &config.listen {
        let bad = |why: String| {
            let error = Error::new(Kind::ConfigValue, "create target", why).at(&config.name);
            error.next("Write `listen = [\"ADDRESS:PORT\"]`, for instance \"0.0.0.0:3260\".")
        };
        if let Some(unix) = Address::parse_unix(text) {
            listen.push(unix);
            continue;
        }
        let found = text.to_socket_addrs().map_err(|e| bad(format!("listen {text:?}: {e}")))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(bad(format!("listen {text:?}: no such address")));
        }
        listen.extend(found.into_iter().take(1).map(Address::Inet));
    }
    let policy = |p: DigestPolicy| match p {
        DigestPolicy::Off => drivers::DigestPolicy::Off,
        DigestPolicy::Allow => drivers::DigestPolicy::Allow,
        DigestPolicy::Require => drivers::DigestPolicy::Require,
    };
    Ok(TargetSpec {
        name: config.name.clone(),
        listen,
        chap: account(&config.chap)?,
        mutual_chap: account(&config.mutual_chap)?,
        discovery_chap: account(&config.discovery_chap)?,
        header_digest: policy(config.header_digest),
        data_digest: policy(config.data_digest),
        params: serde_json::Value::Object(config.params.clone()),
    })
}

fn account(chap: &Option<Chap>) -> Result<Option<Account>> {
    let Some(chap) = chap else { return Ok(None) };
    let secret = secret::resolve(&chap.secret)?;
    Ok(Some(Account { user: chap.user.clone(), secret }))
}

/// Runs a conversation on one core; `None` when it does not answer in time.
fn on_core<R: Send + 'static>(
    control: &mut Control,
    core: usize,
    job: impl FnOnce(Rc<Engine>) -> Local<'static, R> + Send + 'static,
) -> Option<R> {
    let place: Arc<Mutex<Option<R>>> = Arc::default();
    let (answer, inbox) = (place.clone(), control.inbox().clone());
    control.send(
        core,
        Message::Call(Box::new(move |core| {
            let Some(engine) = ENGINE.with(|e| e.borrow().clone()) else { return };
            core.reactor().spawn("portal", async move {
                let out = job(engine).await;
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(out);
                inbox.nudge();
            });
        })),
    );
    let full =
        |p: &Arc<Mutex<Option<R>>>| p.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    control.wait_until(PORTAL_DEADLINE, |_| full(&place));
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}
