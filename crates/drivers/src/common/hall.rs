//! The connections and portals of one core.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use bio::{PAGE_BYTES, Pool, PoolConfig};
use engine::registry::Doors;
use geom::Core;
use reactor::{Address, Stream, TaskHandle};

use super::cause::Cause;
use super::journal::{About, Journal, Say};
use super::pump::Ending;

/// Connections of one core; a further one is closed at once and said in the journal.
pub const CONNECTIONS_MAX: usize = 16 * 1024;

/// Connections of one core that have not said yet who they are. A further one waits for a place; if
/// the oldest of them has had `ENTRY_GRACE_NS`, it is closed and does not keep others waiting.
pub const ENTRIES_MAX: usize = 1024;

/// What a connection has to say who it is, however many wait behind it, ns. After a restart
/// thousands come at once, and each of them is quick; one that is not makes room.
const ENTRY_GRACE_NS: u64 = 500_000_000;

/// How often a connection that waits for a place looks again, ns.
const PLACE_PAUSE_NS: u64 = 5_000_000;

/// Bytes for receive buffers beyond a page each, and for headers of what is being sent.
const SPARE_BYTES: usize = 64 << 20;

/// How often connections are looked at: peers that do not read or send, entries that take long.
pub(crate) const WATCH_NS: u64 = 1_000_000_000;

/// A connection.
pub(crate) trait Guest: 'static {
    /// Its number in this daemon.
    fn number(&self) -> u64;
    /// It has not said yet who it is.
    fn is_entering(&self) -> bool;
    /// Ends it.
    fn end(&self, cause: Cause);
    /// Once a watch period.
    fn look(&self, now: u64, scarce: bool);
    /// Drops what holds it in turn: the core ends.
    fn let_go(&self);
}

struct Portal {
    local: Address,
    task: TaskHandle,
}

/// The connections and portals of one core.
pub(crate) struct Hall<G> {
    core: Rc<Core>,
    max: usize,
    /// For receive buffers and headers: apart from the data, so that a pool full of data does not
    /// stop answers.
    pub memory: Pool,
    pub journal: Journal,
    portals: RefCell<BTreeMap<Address, Portal>>,
    guests: RefCell<BTreeMap<u64, Rc<G>>>,
    /// Oldest first, each with the time of its accept.
    entering: RefCell<VecDeque<(u64, Weak<G>)>>,
}

impl<G: Guest> Hall<G> {
    /// For `max` connections at most.
    pub fn new(core: &Rc<Core>, max: usize, (warn, tell): (Say, Say)) -> Hall<G> {
        let limit_bytes = max * 2 * PAGE_BYTES + SPARE_BYTES;
        Hall {
            core: core.clone(),
            max,
            memory: Pool::new(PoolConfig { limit_bytes }),
            journal: Journal::new(warn, tell),
            portals: RefCell::default(),
            guests: RefCell::default(),
            entering: RefCell::default(),
        }
    }

    /// The address of a portal that is open.
    pub fn portal(&self, at: &Address) -> Option<Address> {
        self.portals.borrow().get(at).map(|p| p.local.clone())
    }

    /// Notes an open portal and the task that accepts there.
    pub fn add_portal(&self, at: Address, local: Address, task: TaskHandle) {
        self.portals.borrow_mut().insert(at, Portal { local, task });
    }

    /// Stops listening; connections stay. False when nobody listened.
    pub fn close_portal(&self, at: &Address) -> bool {
        let portal = self.portals.borrow_mut().remove(at);
        portal.is_some_and(|portal| {
            portal.task.abort();
            true
        })
    }

    /// True when there is room for another connection; else it is reset.
    pub fn admits(&self, stream: &Stream, peer: &Address) -> bool {
        let most = self.max;
        if self.guests.borrow().len() < most {
            return true;
        }
        let what = format_args!("refused, this core has {most} connections already");
        self.journal.trouble(About { peer, name: "" }, what);
        stream.reset();
        false
    }

    /// Waits until one more connection may enter: until the doors are open (D1), and for a place.
    /// The oldest goes when it has had its time.
    pub async fn place(&self, doors: &Doors) {
        while doors.are_waited_at() {
            self.core.reactor().sleep(PLACE_PAUSE_NS).await;
        }
        loop {
            let oldest = {
                let mut all = self.entering.borrow_mut();
                all.retain(|(_, l)| l.upgrade().is_some_and(|c| c.is_entering()));
                let oldest = all.front().filter(|_| all.len() >= ENTRIES_MAX);
                oldest.and_then(|(since, l)| Some((*since, l.upgrade()?)))
            };
            let Some((since, oldest)) = oldest else { return };
            if self.core.now().saturating_sub(since) > ENTRY_GRACE_NS {
                return oldest.end(Cause::MadeRoom);
            }
            self.core.reactor().sleep(PLACE_PAUSE_NS).await;
        }
    }

    /// A connection was accepted and has its place.
    pub fn add(&self, guest: &Rc<G>) {
        self.guests.borrow_mut().insert(guest.number(), guest.clone());
        self.entering.borrow_mut().push_back((self.core.now(), Rc::downgrade(guest)));
    }

    /// A connection.
    pub fn get(&self, number: u64) -> Option<Rc<G>> {
        self.guests.borrow().get(&number).cloned()
    }

    /// A connection has ended.
    pub fn remove(&self, number: u64) {
        self.guests.borrow_mut().remove(&number);
    }

    fn look(&self) {
        self.journal.turn();
        self.memory.cool();
        let now = self.core.now();
        let usage = self.core.pool().usage();
        let scarce = usage.used_bytes > usage.limit_bytes / 8 * 7;
        let all: Vec<Rc<G>> = self.guests.borrow().values().cloned().collect();
        for guest in all {
            guest.look(now, scarce);
        }
    }
}

/// Lets go of all connections when the core ends and drops its tasks: they and the hall hold each
/// other.
struct Leave<G: Guest>(Rc<Hall<G>>);

impl<G: Guest> Drop for Leave<G> {
    fn drop(&mut self) {
        let all = self.0.guests.take();
        all.values().for_each(|guest| guest.let_go());
    }
}

/// Looks at the connections of a core for as long as it lives, and keeps `owner` that long.
pub(crate) async fn watch<G: Guest, O>(hall: Rc<Hall<G>>, owner: Rc<O>) {
    let _owner = owner;
    let leave = Leave(hall);
    let hall = &leave.0;
    loop {
        hall.core.reactor().sleep(WATCH_NS).await;
        hall.look();
    }
}

/// The last line about a connection.
pub(crate) fn farewell<G, E: Ending>(hall: &Hall<G>, about: About<'_>, ending: &E) {
    match ending.is_trouble() {
        true => hall.journal.trouble(about, format_args!("{ending}")),
        false => hall.journal.tell(about, format_args!("{ending}")),
    }
}
