//! iSCSI initiator: disks of a remote target, by TCP/IP (RFC 7143).
//!
//! ```text
//!   CCB --> Iscsi (any core) --> port: this core's session at the portal, its connection and tasks
//!                                  engine: PDUs, numbers, recovery
//! ```
//! A portal is a target of the bus. Several portals are several paths to the same disks, which are
//! recognized by their own identification. Each core that sends has a session of its own at each
//! portal, because a command's data never leave its core. Its ISID is made of the names of bus and
//! initiator and of the numbers of portal and core. So the ISID is the same when the session, or
//! this process, begins anew.
//!
//! Invariants
//!  N1  A unit's 29/00 reports our own login, or a reset. A cache is taken to have lost its power
//!      when the target reports that (29/01), and not because a connection failed.
//!  N2  A command is sent again by CAM, on its own core: so by the same ISID as before (engine I2).
//!  N3  A lost session is a reset of its units, until there is another one, or the path is lost.
//!      Its commands return as victims, which lose no retry, and are sent again first. A command
//!      that ended the session is no victim (engine I7). All cores wait for the core whose session
//!      is lost, though their own sessions live. A unit has one queue, and earlier commands keep
//!      their place there (D3, D5). So no command of another core may pass those of the lost
//!      session. The cores wait no longer than until the path is lost; mostly all sessions of a
//!      portal fail together.
//!  N4  A new session may lead to other disks. All units of its portal are in doubt (D11) before a
//!      command of a user is sent by it. Commands that waited for the session return to CAM.
//!  N5  A removed portal takes no new command. Its sessions log out when their commands have ended,
//!      and then its disks are lost. Commands that have not ended within the deadline of a silent
//!      path end by a new session (engine I2): only then are they sent by another path. Portals
//!      that stay keep their numbers, sessions and disks, and a portal that returns gets its former
//!      number. A closed bus removes all of its portals.
//!  N6  A session whose login would end one of a closed bus (same ISID, initiator and target) waits
//!      until that has ended. Two buses never end each other's sessions in turn.
//!
//! Commands that a lost path returns may be sent by another path (class multipath) while the old
//! target still has them. Commands that had not left were discarded with the connection, at least
//! half a deadline earlier. But a target that reads nothing from one connection for longer than
//! that, and answers over another, can carry out an old WRITE late. The initiator cannot prevent
//! that.

pub(crate) mod discover;
mod engine;
mod kind;
mod port;
mod secret;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bio::Segs;
use bio::sync::Mutex;
use geom::{Core, Error, Local, Notifier, Severity, Trouble};
use serde_json::Value;
use wire::iscsi::Attribute;
use wire::scsi::Lun;

use self::engine::{Counts, Rules, Task};
use self::port::PortalSession;
use super::numbers::Numbers;
use crate::address::Path;
use crate::bus::Rescan;
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Flags, Outcome, Priority, Tag};
use crate::sim::{Begun, Sim, SimFacts};
use crate::unit::Unit;

pub use self::kind::IscsiKind;

/// Largest READ or WRITE, bytes; units whose limit is smaller report it themselves.
const IO_MAX_BYTES: u32 = 1 << 20;
/// How long a scan waits for portals that were not tried yet, and how often it looks, ns.
const WAIT_NS: u64 = 3_000_000_000;
const LOOK_NS: u64 = 5_000_000;
/// Most portals that a bus has had since it was opened: their numbers are in a byte of the ISID.
const NUMBERS_MAX: usize = 256;

/// State that all cores need.
struct Inner {
    /// Of this process's buses: for the sessions.
    number: u64,
    name: String,
    /// Those that were removed keep their numbers (N5).
    portals: Mutex<Numbers<SocketAddr>>,
    /// Portals at which there was a session of core 0 once.
    seen: Mutex<BTreeSet<usize>>,
    rules: Rules,
    /// Most logical units that are looked at.
    luns_max: AtomicU32,
    /// Units by place: the newest last.
    units: Mutex<BTreeMap<Path, Vec<Weak<Unit>>>>,
    /// Counters of sessions, by core and portal.
    counts: Mutex<BTreeMap<(u32, usize), Counts>>,
    /// Why the last connection of those that have none failed, likewise.
    troubles: Mutex<BTreeMap<(u32, usize), String>>,
    rescan: OnceLock<Rescan>,
}

impl Inner {
    /// The portal of a number, unless it was removed.
    fn portal(&self, number: usize) -> Option<SocketAddr> {
        let portals = self.portals.lock();
        portals.get(number).filter(|_| portals.is_named(number)).copied()
    }

    /// The portals that the configuration names, by number.
    fn named_portals(&self) -> Vec<(usize, SocketAddr)> {
        let portals = self.portals.lock();
        portals.named().map(|(number, portal)| (number, *portal)).collect()
    }

    /// N5: the configuration names these portals from now on. Returns the numbers of the removed
    /// ones and of the new ones.
    fn set_portals(&self, wanted: &[SocketAddr]) -> Result<[Vec<usize>; 2], String> {
        let changed = self.portals.lock().set(("portals", NUMBERS_MAX), wanted)?;
        self.seen.lock().retain(|number| !changed.iter().flatten().any(|other| other == number));
        Ok(changed)
    }

    /// There is a session of core 0 at a portal, if `is_up`.
    fn note_session(&self, portal: usize, is_up: bool) {
        if is_up {
            self.seen.lock().insert(portal);
        }
    }

    /// Its troubles have become others.
    fn notify_troubles(&self) {
        if let Some(rescan) = self.rescan.get() {
            rescan.notify_troubles();
        }
    }

    fn handle(&self, unit: &Unit) -> Weak<Unit> {
        let units = self.units.lock();
        let all = units.get(&unit.path()).into_iter().flatten();
        all.rev().find(|u| std::ptr::eq(u.as_ptr(), unit)).cloned().unwrap_or_default()
    }

    /// All units behind a portal.
    fn units_of(&self, portal: usize) -> Vec<Arc<Unit>> {
        let units = self.units.lock();
        let behind = units.iter().filter(|(path, _)| path.target == portal as u64);
        behind.flat_map(|(_, units)| units.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Rules of a session.
    fn rules(&self, core: u32, portal: usize) -> Rules {
        let names = [self.name.as_bytes(), b"\0", self.rules.initiator.as_bytes()].concat();
        let [_, a, b, c] = wire::iscsi::crc32c(&names).to_be_bytes();
        // 80h: a range that no authority assigns (RFC 7143 section 11.12.5).
        Rules { isid: [0x80, a, b, c, core as u8, portal as u8], ..self.rules.clone() }
    }
}

/// See the module.
pub struct Iscsi {
    inner: Arc<Inner>,
    notifier: Notifier,
    cores: usize,
}

impl Iscsi {
    fn new(
        name: &str,
        portals: Vec<SocketAddr>,
        rules: Rules,
        (notifier, cores): (Notifier, usize),
    ) -> Iscsi {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let inner = Inner {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            portals: Mutex::new(Numbers::new(portals)),
            seen: Mutex::default(),
            luns_max: AtomicU32::new(rules.luns_max),
            rules,
            units: Mutex::default(),
            counts: Mutex::default(),
            troubles: Mutex::default(),
            rescan: OnceLock::new(),
        };
        Iscsi { inner: Arc::new(inner), notifier, cores }
    }

    /// The session for a unit on this core; one that is not there yet begins.
    fn session(&self, unit: &Unit, core: &Core) -> Option<Rc<PortalSession>> {
        let portal = usize::try_from(unit.path().target).ok()?;
        port::find(&self.inner, portal, core)
            .or_else(|| port::open(&self.inner, portal, &core.handle()?))
    }

    /// Opens the sessions of core 0 at portals.
    fn open_sessions(&self, portals: Vec<usize>) {
        let inner = self.inner.clone();
        let open = move |core: &Rc<Core>| {
            for portal in portals {
                // A session that is still ending opens the next one when it has ended.
                if port::find(&inner, portal, core).is_none() {
                    let _session = port::open(&inner, portal, core);
                }
            }
        };
        self.notifier.call(0, Box::new(open));
    }

    /// N5
    fn retire_sessions(&self, portal: usize) {
        let leaving = Arc::new(AtomicUsize::new(self.cores));
        for core in 0..self.cores {
            let (inner, leaving) = (self.inner.clone(), leaving.clone());
            let retire = move |core: &Rc<Core>| port::retire(&inner, portal, &leaving, core);
            self.notifier.call(core, Box::new(retire));
        }
    }

    /// Has something done on all cores but this one.
    fn on_other_cores(&self, from: &Core, f: impl Fn(&Rc<Core>) + Clone + Send + 'static) {
        for core in (0..self.cores).filter(|core| *core != from.id() as usize) {
            let f = f.clone();
            self.notifier.call(core, Box::new(move |core: &Rc<Core>| f(core)));
        }
    }
}

/// The LUN of a unit as PDUs encode it.
fn lun_of(unit: &Unit) -> Option<[u8; 8]> {
    let number = u32::try_from(unit.path().lun).ok()?;
    Lun::new(number).map(Lun::encode)
}

fn task_of(lun: [u8; 8], id: CcbId, ccb: &Ccb, tag: Tag) -> Task {
    let mut cdb = [0; 16];
    cdb.iter_mut().zip(ccb.command.cdb()).for_each(|(to, from)| *to = *from);
    let attribute = match tag {
        Tag::None => Attribute::Untagged,
        Tag::Simple => Attribute::Simple,
        Tag::Ordered => Attribute::Ordered,
    };
    let (read, write) = (ccb.flags.has(Flags::IN), ccb.flags.has(Flags::OUT));
    let length = if read || write { ccb.length } else { 0 };
    let (read, write, serial) = (read && length > 0, write && length > 0, id.to_word());
    let is_probe = ccb.priority < Priority::Normal;
    Task { lun, cdb, attribute, read, write, length, serial, allowed_in_doubt: is_probe }
}

impl Sim for Iscsi {
    fn facts(&self) -> SimFacts {
        let targets = self.inner.portals.lock().count() as u64;
        let name = self.inner.name.clone();
        SimFacts {
            name,
            targets,
            io_max_bytes: IO_MAX_BYTES,
            whole_max_bytes: IO_MAX_BYTES,
            is_ata: false,
        }
    }

    /// The value of FreeBSD's initiator, for any network.
    fn transfer_kb(&self) -> u32 {
        150_000
    }

    fn location(&self, path: Path) -> String {
        let target = &self.inner.rules.target;
        let portal = usize::try_from(path.target).ok();
        let portal = portal.and_then(|at| self.inner.portals.lock().get(at).copied());
        match portal {
            Some(portal) => format!("{target},{portal},{}", path.lun),
            None => path.to_string(),
        }
    }

    fn begin(&self, rescan: Rescan) {
        let _first = self.inner.rescan.set(rescan);
        let portals = self.inner.named_portals();
        self.open_sessions(portals.into_iter().map(|(number, _)| number).collect());
    }

    fn ready<'a>(&'a self, core: &'a Rc<Core>) -> Local<'a, ()> {
        Box::pin(async move {
            let end = core.now() + WAIT_NS;
            let tried = |(portal, _): &(usize, _)| {
                port::find(&self.inner, *portal, core).is_none_or(|s| s.is_tried())
            };
            while core.now() < end && !self.inner.named_portals().iter().all(tried) {
                core.reactor().sleep(LOOK_NS).await;
            }
        })
    }

    fn targets(&self) -> Vec<u64> {
        let (portals, seen) = (self.inner.named_portals(), self.inner.seen.lock());
        portals.iter().filter(|(at, _)| seen.contains(at)).map(|(at, _)| *at as u64).collect()
    }

    fn luns_max(&self) -> u32 {
        self.inner.luns_max.load(Ordering::Relaxed)
    }

    fn set_luns_max(&self, luns: u32) {
        self.inner.luns_max.store(luns, Ordering::Relaxed);
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut sum = Counts::default();
        for counts in self.inner.counts.lock().values() {
            sum.logins += counts.logins;
            sum.drops += counts.drops;
            sum.stray += counts.stray;
            sum.stranded += counts.stranded;
            sum.length_mismatches += counts.length_mismatches;
            sum.pings += counts.pings;
            sum.lost += counts.lost;
            sum.poisoned_sessions += counts.poisoned_sessions;
        }
        vec![
            ("logins", sum.logins),
            ("sessions-dropped", sum.drops),
            ("commands-stranded", sum.stranded),
            ("answers-unasked", sum.stray),
            ("answers-of-other-lengths", sum.length_mismatches),
            ("pings", sum.pings),
            ("paths-lost", sum.lost),
            ("sessions-ended-by-a-command", sum.poisoned_sessions),
        ]
    }

    /// A portal is reported once, whichever core it was that could not get there.
    fn troubles(&self) -> Vec<Trouble> {
        let by_core = self.inner.troubles.lock();
        let by_portal: BTreeMap<usize, &str> =
            by_core.iter().rev().map(|((_, portal), why)| (*portal, why.as_str())).collect();
        let portals = self.inner.named_portals();
        let seen = self.inner.seen.lock();
        let why = |(at, portal): &(usize, SocketAddr)| {
            // One that was never reached, and of which nothing is known yet.
            let unseen = !seen.contains(at);
            let why = by_portal.get(at).copied().or(unseen.then_some("no answer yet"))?;
            Some((*portal, format!("{} at {portal}: {why}", self.inner.rules.target)))
        };
        let whys: Vec<_> = portals.iter().filter_map(why).collect();
        let some_are_up = whys.len() < portals.len();
        let severity = if some_are_up { Severity::Degraded } else { Severity::Failed };
        let trouble = |(at, why)| {
            let action = format!(
                "The connection is retried automatically; `ashlar cam discover {at}` tests \
                         the portal."
            );
            Trouble { severity, why, action }
        };
        whys.into_iter().map(trouble).collect()
    }

    fn update_params(&self, params: &Value) -> Result<(), Error> {
        let name = &self.inner.name;
        let (portals, terms) = kind::live_params(name, params)?;
        let changed = self.inner.set_portals(&portals);
        let [removed, added] = changed.map_err(|e| Error::inval(format!("bus {name}: {e}")))?;
        self.inner.rules.terms.set(terms);
        removed.into_iter().for_each(|portal| self.retire_sessions(portal));
        if !added.is_empty() {
            self.open_sessions(added);
        }
        Ok(())
    }

    fn close(&self) {
        if let Ok([removed, _]) = self.inner.set_portals(&[]) {
            removed.into_iter().for_each(|portal| self.retire_sessions(portal));
        }
    }

    fn attach(&self, unit: &Arc<Unit>) {
        let mut units = self.inner.units.lock();
        let all = units.entry(unit.path()).or_default();
        all.retain(|u| u.strong_count() > 0);
        all.push(Arc::downgrade(unit));
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        let Some(lun) = lun_of(unit) else {
            return Begun::Ended(Outcome::of(CamStatus::LunInvalid));
        };
        let Some(session) = self.session(unit, core) else {
            return Begun::Ended(Outcome::of(CamStatus::NoHba));
        };
        let refused = match ccb.command {
            Command::Scsi { tag, .. } => session.begin(unit, id, &task_of(lun, id, ccb, tag), data),
            Command::Reset => session.reset(unit, Some(id), lun),
            _ => return Begun::Ended(Outcome::of(CamStatus::CannotProvide)),
        };
        refused.map_or(Begun::Pending, Begun::Ended)
    }

    fn finish(&self, _: &Unit, _: CcbId, _: &Segs, _: &Core) -> Begun {
        Begun::Pending
    }

    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        if self.session(unit, core).is_some_and(|session| session.abort(unit, id)) {
            return;
        }
        // It is with another core.
        let (inner, handle) = (self.inner.clone(), self.inner.handle(unit));
        self.on_other_cores(core, move |core| {
            let Some(unit) = handle.upgrade() else { return };
            if let Some(session) = port::find_for(&inner, &unit, core) {
                session.abort(&unit, id);
            }
        });
    }

    fn requeue_unsent(&self, unit: &Unit, core: &Core) {
        let Some(lun) = lun_of(unit) else { return };
        if let Some(session) = port::find_for(&self.inner, unit, core) {
            session.requeue_unsent(lun);
        }
        let (inner, handle) = (self.inner.clone(), self.inner.handle(unit));
        self.on_other_cores(core, move |core| {
            let Some(unit) = handle.upgrade() else { return };
            if let Some(session) = port::find_for(&inner, &unit, core) {
                session.requeue_unsent(lun);
            }
        });
    }

    /// The target ends a unit's commands of all nexuses, but notifies only the requesting nexus. So
    /// each session with commands sends a request of its own.
    fn reset(&self, unit: &Unit, core: &Core) {
        let Some(lun) = lun_of(unit) else { return };
        if let Some(session) = self.session(unit, core) {
            let _refused = session.reset(unit, None, lun);
        }
        let (inner, handle) = (self.inner.clone(), self.inner.handle(unit));
        self.on_other_cores(core, move |core| {
            let Some(unit) = handle.upgrade() else { return };
            let session = port::find_for(&inner, &unit, core).filter(|s| s.has(lun));
            let _refused = session.map(|session| session.reset(&unit, None, lun));
        });
    }
}
