//! The driver on one core: its portals, its connections, its watch.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bio::{PAGE_BYTES, Pool, PoolConfig, Segs};
use geom::Core;
use reactor::{Address, Reactor, TaskHandle};
use target::Engine;

use super::connection::Connection;
use super::ending::Ending;
use super::shared::Shared;

/// Connections of one core; a further one is closed at once and said in the log.
pub const CONNECTIONS_MAX: usize = 16 * 1024;

/// Handshakes under way on one core; a further one closes the oldest of them.
pub const HANDSHAKES_MAX: usize = 512;

/// Bytes for receive buffers beyond a page each, and for headers of what is being sent.
const SPARE_BYTES: usize = 64 << 20;

/// How often connections are looked at: peers that do not read, handshakes that take long.
const WATCH_NS: u64 = 1_000_000_000;

/// Lines of the log about peers' misbehaviour in one watch period; further ones are counted.
const LINES_MAX: u32 = 20;

/// Empty lists kept for the next requests; further ones are given back.
const SPARES_MAX: usize = 256;

struct Portal {
    local: Address,
    task: TaskHandle,
}

/// The driver on one core.
pub(crate) struct Here {
    pub shared: Arc<Shared>,
    pub engine: Rc<Engine>,
    pub core: Rc<Core>,
    /// For receive buffers and headers: apart from the data, so that a pool full of data does not
    /// stop answers.
    pub memory: Pool,
    spares: RefCell<Vec<Segs>>,
    portals: RefCell<BTreeMap<Address, Portal>>,
    connections: RefCell<BTreeMap<u64, Rc<Connection>>>,
    handshakes: RefCell<VecDeque<Weak<Connection>>>,
    lines: Cell<u32>,
    unsaid: Cell<u64>,
}

thread_local! {
    /// The cores of this thread: a simulation has several.
    static CORES: RefCell<Vec<(usize, u32, Weak<Here>)>> = const { RefCell::new(Vec::new()) };
}

fn place_of(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared).addr()
}

impl Here {
    /// Settles on a core.
    pub fn install(shared: &Arc<Shared>, engine: &Rc<Engine>) {
        let core = engine.core().clone();
        let limit_bytes = shared.connections_max * 2 * PAGE_BYTES + SPARE_BYTES;
        let here = Rc::new(Here {
            shared: shared.clone(),
            engine: engine.clone(),
            memory: Pool::new(PoolConfig { limit_bytes }),
            spares: RefCell::default(),
            portals: RefCell::default(),
            connections: RefCell::default(),
            handshakes: RefCell::default(),
            lines: Cell::new(0),
            unsaid: Cell::new(0),
            core: core.clone(),
        });
        let entry = (place_of(shared), core.id(), Rc::downgrade(&here));
        CORES.with_borrow_mut(|all| {
            all.retain(|(_, _, h)| h.strong_count() > 0);
            all.push(entry);
        });
        drop(core.reactor().spawn("nbd watch", watch(here)));
    }

    /// The driver on the core of an engine.
    pub fn find(shared: &Arc<Shared>, engine: &Rc<Engine>) -> Option<Rc<Here>> {
        let (place, core) = (place_of(shared), engine.core().id());
        CORES.with_borrow(|all| {
            let found = all.iter().rev().find(|(p, c, _)| *p == place && *c == core);
            found.and_then(|(_, _, here)| here.upgrade())
        })
    }

    /// The core's reactor.
    pub fn reactor(&self) -> &Reactor {
        self.core.reactor()
    }

    /// A list of segments, empty.
    pub fn segs(&self) -> Segs {
        self.spares.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes one back.
    pub fn put_segs(&self, mut segs: Segs) {
        segs.clear();
        let mut spares = self.spares.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(segs);
        }
    }

    /// The address of a portal that is open.
    pub fn portal(&self, at: &Address) -> Option<Address> {
        self.portals.borrow().get(at).map(|p| p.local.clone())
    }

    /// Notes an open portal.
    pub fn add_portal(&self, at: Address, local: Address, task: TaskHandle) {
        self.portals.borrow_mut().insert(at, Portal { local, task });
    }

    /// Stops listening; connections stay. A Unix socket's path goes with the last core.
    pub fn close_portal(&self, at: &Address) {
        let Some(portal) = self.portals.borrow_mut().remove(at) else { return };
        portal.task.abort();
        if let Some(path) = at.unix()
            && self.shared.leave_door(path)
        {
            // Gone already: somebody else has taken it away.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    /// A connection was accepted. The oldest handshake goes when there are too many.
    pub fn add_connection(&self, connection: &Rc<Connection>) {
        self.connections.borrow_mut().insert(connection.number, connection.clone());
        let mut all = self.handshakes.borrow_mut();
        all.retain(|l| l.upgrade().is_some_and(|c| c.is_handshake()));
        let oldest = if all.len() >= HANDSHAKES_MAX { all.pop_front() } else { None };
        all.push_back(Rc::downgrade(connection));
        drop(all);
        if let Some(oldest) = oldest.and_then(|l| l.upgrade()) {
            oldest.end(Ending::MadeRoom);
        }
    }

    /// A connection has ended.
    pub fn remove_connection(&self, number: u64) {
        self.connections.borrow_mut().remove(&number);
    }

    /// True when a line about misbehaviour may be written; bounded, so that a flood of bad requests
    /// is not a flood of lines.
    pub fn may_log(&self) -> bool {
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines >= LINES_MAX {
            self.unsaid.set(self.unsaid.get() + 1);
        }
        lines < LINES_MAX
    }

    fn look(&self) {
        self.lines.set(0);
        let unsaid = self.unsaid.take();
        if unsaid > 0 {
            tracing::warn!(target: "nbd", "{unsaid} more lines about bad connections left out");
        }
        let now = self.core.now();
        let usage = self.core.pool().usage();
        let scarce = usage.used_bytes > usage.limit_bytes / 8 * 7;
        let all: Vec<Rc<Connection>> = self.connections.borrow().values().cloned().collect();
        for connection in all {
            connection.look(now, scarce);
        }
    }
}

/// Lets go of all connections when the core ends and drops its tasks: they and this value hold
/// each other.
struct Leave(Rc<Here>);

impl Drop for Leave {
    fn drop(&mut self) {
        let all = self.0.connections.take();
        all.values().for_each(|c| drop(c.session.take()));
    }
}

async fn watch(here: Rc<Here>) {
    let leave = Leave(here);
    let here = &leave.0;
    loop {
        here.reactor().sleep(WATCH_NS).await;
        here.look();
    }
}
