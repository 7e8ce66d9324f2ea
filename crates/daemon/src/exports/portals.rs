//! Portals: addresses at which drivers listen on every core, and how a target moves between them.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::sync::Mutex;
use drivers::{Driver, TargetSpec};
use engine::Engine;
use geom::{GraphControl, Local, Message};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::TargetConfig;
use reactor::Address;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use wire::portal::listeners_overlap;

use super::specs::target_spec;
use super::{ENGINE, Exports, Files};
use crate::errors::from_geom;

/// How often an address that is in use is tried again; then the portal is refused.
const PORT_TRIES_MAX: u32 = 50;

/// Time between two tries.
const PORT_PAUSE: Duration = Duration::from_millis(20);

/// Longest wait for a core to open a portal.
const PORTAL_DEADLINE: Duration = Duration::from_secs(10);

/// An address at which a driver listens for targets.
pub(super) struct Portal {
    pub(super) bound: Address,
    pub(super) driver: String,
    pub(super) users: BTreeSet<String>,
}

impl Exports {
    /// Changes a target: new logins see it; portals no longer listed close. Sessions continue, also
    /// those that logged in through a portal that closes.
    pub fn modify_target(
        &mut self,
        control: &mut GraphControl,
        from: &TargetConfig,
        to: &TargetConfig,
    ) -> Result<()> {
        let driver = self.driver(&to.driver)?;
        let files = Files::of_target(to);
        let (old, new) = (target_spec(from)?, target_spec(to)?);
        let lacks = |a: &TargetSpec, b: &TargetSpec| -> Vec<Address> {
            a.listen.iter().filter(|at| !b.listen.contains(at)).cloned().collect()
        };
        let (added, gone) = (lacks(&new, &old), lacks(&old, &new));
        if !added.is_empty() {
            // A login through a new portal finds the target at once. Refused where another target
            // shares an old address and disagrees: such a login fails until the end of the step.
            let listen = [&old.listen[..], &added].concat();
            let _ = driver.set_target(TargetSpec { listen, ..old.clone() });
        }
        let opened = added.iter().try_for_each(|at| self.open(control, &driver, at, &to.name));
        let set = opened.and_then(|()| {
            let set = driver.set_target(new).and_then(|()| {
                let made = self.registry.set_target_at(&to.driver, &to.name, to.port_id);
                made.and_then(|_| self.set_port_group(to))
            });
            set.map_err(|e| from_geom("change target", &to.name, e))
        });
        if let Err(e) = set {
            for at in &added {
                self.close(control, at, &to.name);
            }
            return Err(self.undo_change(driver.as_ref(), from, old, e));
        }
        self.files.set_target(&to.name, files);
        for at in gone {
            self.close(control, &at, &to.name);
        }
        self.attachments.check_now();
        Ok(())
    }

    /// Gives a target its former settings after a change that ended for `cause`. The error reports
    /// whether it has them.
    fn undo_change(
        &self,
        driver: &dyn Driver,
        from: &TargetConfig,
        old: TargetSpec,
        cause: Error,
    ) -> Error {
        match driver.set_target(old).and_then(|()| self.set_port_group(from)) {
            Ok(()) => cause,
            Err(second) => {
                let (first, second) = (&cause.source, second.message);
                let why = format!("{first}; then restoring its former settings failed: {second}");
                let next = "Correct the section of the target, then `ashlar apply` again.";
                Error { source: why, ..cause }.next(next)
            }
        }
    }

    /// Portals that can receive connections to an address, which is not one of them.
    fn overlapping(&self, at: &Address) -> impl Iterator<Item = &Portal> {
        let at = at.inet();
        let overlaps = move |portal: &&Portal| {
            at.zip(portal.bound.inet()).is_some_and(|(a, b)| listeners_overlap(a, b))
        };
        self.portals.values().filter(overlaps)
    }

    pub(super) fn open(
        &mut self,
        control: &mut GraphControl,
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
        let here: Vec<SocketAddr> = self.overlapping(at).filter_map(|p| p.bound.inet()).collect();
        let other = self.overlapping(at).find(|p| p.driver != driver.name());
        if let Some(portal) = other {
            let (bound, owner) = (&portal.bound, &portal.driver);
            let why = format!("{at} overlaps {bound} of driver {owner}");
            return Err(Error::new(Kind::Busy, "open portal", why).at(user));
        }
        let pause = || {
            control.wait_until(PORT_PAUSE, |_| false);
        };
        check_unused(at, &here, true, pause).map_err(|e| cannot_open(at, e))?;
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
                    return Err(cannot_open(at, why));
                }
            }
        }
        let users = BTreeSet::from([user.to_owned()]);
        self.portals.insert(at.clone(), Portal { bound, driver: driver.name().to_owned(), users });
        Ok(())
    }

    pub(super) fn close(&mut self, control: &mut GraphControl, at: &Address, user: &str) {
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

    pub(super) fn close_on(
        &self,
        control: &mut GraphControl,
        driver: Arc<dyn Driver>,
        at: Address,
        n: usize,
    ) {
        for core in 0..n {
            let (driver, at) = (driver.clone(), at.clone());
            on_core(control, core, move |e| Box::pin(async move { driver.close_portal(&e, at) }));
        }
    }
}

/// Refuses a target with a portal that another process has, or at an interface that is missing.
/// `held` are addresses of open portals of this daemon, which are not touched. `may_be_freed`: an
/// earlier step may free addresses, so that only interfaces are checked. Nothing listens, and no
/// file is made. Waits as the opening of a portal does, so not for the control thread.
pub fn check_portals(
    target: &TargetConfig,
    held: &BTreeSet<String>,
    may_be_freed: bool,
) -> Result<()> {
    let held: Vec<Address> = held.iter().filter_map(|at| at.parse().ok()).collect();
    let free = |at: &&Address| !held.contains(at);
    for at in target_spec(target)?.listen.iter().filter(free) {
        let shares = |other: &SocketAddr| at.inet().is_some_and(|at| listeners_overlap(at, *other));
        let here: Vec<SocketAddr> = held.iter().filter_map(Address::inet).filter(shares).collect();
        let pause = || std::thread::sleep(PORT_PAUSE);
        let checked = match (at.ether(), at.unix()) {
            (Some(interface), _) => reactor::check_interface(interface, wire::aoe::ETHERTYPE),
            _ if may_be_freed => Ok(()),
            (_, Some(path)) => reactor::check_unix_path(path),
            _ => check_unused(at, &here, false, pause),
        };
        checked.map_err(|e| cannot_open(at, e))?;
    }
    Ok(())
}

/// Refuses an address that another process has, as [`check_portals`] does. Nothing listens.
pub fn check_address(at: SocketAddr) -> io::Result<()> {
    check_unused(&Address::Inet(at), &[], false, || std::thread::sleep(PORT_PAUSE))
}

/// The same for several addresses.
pub fn check_addresses(all: &[SocketAddr]) -> Result<()> {
    let check =
        |at: &SocketAddr| check_address(*at).map_err(|e| cannot_open(&Address::Inet(*at), e));
    all.iter().try_for_each(check)
}

/// The error of a portal.
fn cannot_open(at: &Address, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::System, "open portal", why).at(at.to_string()).next(next_for(at))
}

/// The cores share a port (SO_REUSEPORT), and another daemon of the same user could share it, too.
/// Each connection would be accepted by one of the two. So a socket that does not share tries the
/// address first, for a while. The kernel closes the sockets of a killed process a moment after its
/// end. `here` are portals of this daemon that overlap the address. They share it: the kernel gives
/// a connection to the most specific listener, and of `0.0.0.0` and `[::]` one over IPv4 to the
/// former. A part of the address that none of them occupies is tried without sharing, else all of
/// it with them. Then only a process that shares the port, too, is not noticed. Unix sockets are
/// not shared with other processes: the driver finds out itself. `listens`: the address is not only
/// bound, but listened at for a moment.
fn check_unused(
    at: &Address,
    here: &[SocketAddr],
    listens: bool,
    mut pause: impl FnMut(),
) -> io::Result<()> {
    let Some(at) = at.inet().filter(|at| at.port() != 0) else { return Ok(()) };
    let is_v6_free = at.is_ipv6() && here.iter().all(SocketAddr::is_ipv4);
    let way = match (here.is_empty(), is_v6_free) {
        (true, _) => Trial { only_v6: false, listens, shares: false },
        (false, true) => Trial { only_v6: true, listens, shares: false },
        // A listener that shares would be given connections.
        (false, false) => Trial { only_v6: false, listens: false, shares: true },
    };
    let mut tries = 0;
    loop {
        match try_address(at, way) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < PORT_TRIES_MAX => {
                tries += 1;
                pause();
            }
            other => return other,
        }
    }
}

/// How an address is tried.
#[derive(Clone, Copy)]
struct Trial {
    only_v6: bool,
    listens: bool,
    /// The port is shared with listeners of this daemon (SO_REUSEPORT).
    shares: bool,
}

/// Binds an address for a moment, and listens there if wanted.
fn try_address(at: SocketAddr, Trial { only_v6, listens, shares }: Trial) -> io::Result<()> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shares {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if only_v6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // The address may appear later, as it does for the listeners themselves.
    let _ = sockopt::set_ip_freebind(&socket, true);
    net::bind(&socket, &at)?;
    if listens {
        net::listen(&socket, 1)?;
    }
    Ok(())
}

/// Advice when an address cannot be listened on.
fn next_for(at: &Address) -> String {
    if let Some(interface) = at.ether() {
        return format!(
            "Is the interface there (`ip link show {interface}`), and has the daemon CAP_NET_RAW?"
        );
    }
    let Some(port) = at.inet().map(|at| at.port()) else {
        return format!(
            "Check that the folder of {at} exists and is writable, and that no process listens at \
             it; move a file that is not a socket away."
        );
    };
    format!(
        "Is the address this machine's (`ip address`), the port free (`ss -ltnp 'sport = :{port}'`)\
         {}?",
        if port < 1024 { ", and the daemon root's, as ports below 1024 need" } else { "" }
    )
}

/// Runs a conversation on one core; `None` when it does not answer in time.
fn on_core<R: Send + 'static>(
    control: &mut GraphControl,
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
                *answer.lock() = Some(out);
                inbox.wake();
            });
        })),
    );
    let full = |p: &Arc<Mutex<Option<R>>>| p.lock().is_some();
    control.wait_until(PORTAL_DEADLINE, |_| full(&place));
    place.lock().take()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use mgmt::Plant;
    use mgmt::config::{DaemonConfig, Port};
    use mgmt::plan::Action;

    use super::*;
    use crate::plant::Daemon;

    /// E3 of daemon/src/exports.rs.
    /// P4 of mgmt/src/plant.rs.
    #[test]
    fn failed_change_of_a_target_closes_its_added_portals() {
        let settings = DaemonConfig { cores: Some(1), port: Port::Poll, ..DaemonConfig::default() };
        let daemon = Daemon::start(&settings).expect("a daemon");
        let carry_out = |action: Action| daemon.carry_out(&action, &mut |_| {});
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [first, second] = free.map(|taken| taken.local_addr().expect("bound"));
        let target = |listen: &[SocketAddr], port_id: u16| -> TargetConfig {
            let name = "iqn.2026-11.org.example:t";
            let section = serde_json::json!({
                "driver": "iscsi", "name": name, "listen": listen, "port_id": port_id,
            });
            serde_json::from_value(section).expect("a target")
        };
        let (from, to) = (target(&[first], 1), target(&[first, second], 2));
        carry_out(Action::CreateTarget { target: from.clone() }).expect("made");
        let change = Action::ModifyTarget { from: Box::new(from), to: Box::new(to) };
        let refused = carry_out(change).expect_err("its port has another number");
        assert!(refused.source.contains("remove the target first"), "{refused}");
        assert!(TcpStream::connect(first).is_ok());
        assert!(TcpStream::connect(second).is_err(), "{second} is still open");
        daemon.stop();
    }

    #[test]
    fn address_of_another_process_is_refused_without_listening() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Address::Inet(taken.local_addr().unwrap());
        let mut tries = 0;
        let refused = check_unused(&at, &[], false, || tries += 1).unwrap_err();
        assert_eq!((refused.kind(), tries), (io::ErrorKind::AddrInUse, PORT_TRIES_MAX));
        let here = [taken.local_addr().unwrap()];
        assert!(check_unused(&at, &here, false, || ()).is_err(), "it does not share its port");
        drop(taken);
        assert!(check_unused(&at, &[], false, || ()).is_ok());
        let own = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&own, true).unwrap();
        net::bind(&own, &here[0]).unwrap();
        net::listen(&own, 1).unwrap();
        assert!(check_unused(&at, &here, false, || ()).is_ok(), "the daemon has it itself");
        // RFC 5737: no machine has it yet.
        let later = "192.0.2.77:3260".parse().unwrap();
        assert!(check_unused(&later, &[], false, || ()).is_ok());
    }
}
