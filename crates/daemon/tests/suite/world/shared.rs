//! Shared state of the parts of the test: the model, the units, their visibility, and the events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use engine::Registry;
use reactor::sim::World;
use testkit::clock::MS;

use crate::world::access::States;
use crate::world::agent::Agent;
use crate::world::model::{BlockRange, Model, OPEN};
use crate::world::nbd::Client;
use crate::world::rights::ReservationModel;
use crate::world::slow_store::SlowStore;
use crate::world::unit_attentions::Source;

/// Lines shown of a seed that fails.
const LINES_MAX: usize = 120;

/// Pause of initiators and clients that wait for the rest of their answers and start nothing more.
pub const DRAIN_PAUSE_NS: u64 = 100 * MS;

/// Access groups of the target.
pub const GROUPS: usize = 2;

/// Access to a unit that a group grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rights {
    #[default]
    None,
    Read,
    Write,
}

/// Granted access, now and after a change in progress.
#[derive(Clone, Copy, Default, Debug)]
pub struct Grant {
    pub now: Rights,
    pub next: Option<Rights>,
}

impl Grant {
    pub fn may_be(self, rights: Rights) -> bool {
        self.now == rights || self.next == Some(rights)
    }
}

/// A logical unit: a provider under a LUN number that no other ever gets.
pub struct Unit {
    pub lun: usize,
    pub provider: String,
    pub place: Cell<BlockRange>,
    /// Blocks of the model in one of the unit.
    pub per: usize,
    pub grants: Cell<[Grant; GROUPS]>,
    pub exported: Cell<bool>,
    /// When the groups' rights to it changed last.
    pub changed: Cell<[u64; GROUPS]>,
    /// Its size changed, or its place: refusals by address are no mistakes.
    pub resized: Cell<bool>,
    /// The cache is off, and no change of that is in progress.
    pub cache_off: Cell<bool>,
    pub mode_changes: Cell<u32>,
    /// Grows with every beginning and end of a change of the mode.
    pub mode_epoch: Cell<u64>,
    /// When something set out that ends the commands of others.
    pub resets: RefCell<Vec<u64>>,
    /// Its reservations.
    pub book: RefCell<ReservationModel>,
}

impl Unit {
    pub fn serial(&self) -> String {
        format!("WORLD{:04}", self.lun)
    }

    pub fn grant(&self, group: usize) -> Grant {
        self.grants.get()[group]
    }

    /// The mode is changed, or at its defaults again.
    pub fn mode_moved(&self, off: bool) {
        self.mode_epoch.set(self.mode_epoch.get() + 1);
        self.cache_off.set(off);
    }
}

/// What happened, so that a run in which nothing happens is no success.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Marks(pub std::collections::BTreeMap<&'static str, u64>);

/// Everything that is known to all.
pub struct SimContext {
    pub world: World,
    pub model: RefCell<Model>,
    pub units: RefCell<Vec<Rc<Unit>>>,
    pub agents: RefCell<Vec<Rc<Agent>>>,
    /// NBD clients.
    pub clients: RefCell<Vec<Rc<Client>>>,
    /// All agents rely on FUA and flush next to nothing: a flush would hide an ineffective FUA.
    /// Disks lose power more often.
    pub forcing: Cell<bool>,
    /// Most blocks in an NBD client's request: less where links cut everything small.
    pub longest: Cell<u64>,
    /// Most blocks of the model in any command.
    pub command_blocks: Cell<u64>,
    /// The daemon's lists, while there is a daemon.
    pub registry: RefCell<Option<Arc<Registry>>>,
    /// Since when the groups are in effect for all agents; `OPEN` while they are not.
    pub open: Cell<u64>,
    /// Nothing new is started any more.
    pub draining: Cell<bool>,
    /// Sessions are to log out.
    pub leaving: Cell<bool>,
    /// Disks of which something failed: errors are no mistakes.
    pub failing: RefCell<Vec<bool>>,
    pub marks: RefCell<Marks>,
    /// Sources of unit attentions that have begun.
    pub sources: RefCell<Vec<Source>>,
    pub store: Arc<SlowStore>,
    /// Commands about reservations, of a thousand.
    pub reserving: Cell<u64>,
    /// REGISTER AND MOVE is among them.
    pub moving: Cell<bool>,
    /// Commands with a task attribute, of a thousand.
    pub ordering: Cell<u32>,
    /// Commands at counters, of a thousand.
    pub counting: Cell<u64>,
    /// Asymmetric access.
    pub states: RefCell<States>,
    lines: RefCell<VecDeque<String>>,
    /// Events are noted: those of a seed that has failed before. Their texts take time.
    recording: Cell<bool>,
    echo: bool,
}

impl SimContext {
    pub fn new(world: &World, disks: &[usize]) -> Rc<SimContext> {
        let echo = std::env::var_os("ASHLAR_TRACE").is_some();
        Rc::new(SimContext {
            world: world.clone(),
            model: RefCell::new(Model::new(disks)),
            units: RefCell::default(),
            agents: RefCell::default(),
            clients: RefCell::default(),
            forcing: Cell::new(false),
            longest: Cell::new(160),
            command_blocks: Cell::new(u64::MAX),
            registry: RefCell::default(),
            open: Cell::new(OPEN),
            draining: Cell::new(false),
            leaving: Cell::new(false),
            failing: RefCell::new(vec![false; disks.len()]),
            marks: RefCell::default(),
            sources: RefCell::default(),
            store: Arc::default(),
            reserving: Cell::new(0),
            moving: Cell::new(false),
            ordering: Cell::new(0),
            counting: Cell::new(0),
            states: RefCell::default(),
            lines: RefCell::default(),
            recording: Cell::new(echo),
            echo,
        })
    }

    /// From now on events are noted.
    pub fn record(&self) {
        self.recording.set(true);
    }

    /// Notes a line of a run that is recorded; the last ones are shown when the seed fails.
    pub fn log(&self, line: impl FnOnce() -> String) {
        if !self.recording.get() {
            return;
        }
        let line = format!("{:>12} {}", self.world.now() / 1000, line());
        if self.echo {
            eprintln!("{line}");
        }
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub fn last_lines(&self) -> Vec<String> {
        self.lines.try_borrow().map(|l| l.iter().cloned().collect()).unwrap_or_default()
    }

    pub fn mark(&self, what: &'static str) {
        *self.marks.borrow_mut().0.entry(what).or_default() += 1;
    }

    pub fn unit(&self, lun: usize) -> Option<Rc<Unit>> {
        self.units.borrow().iter().find(|u| u.lun == lun).cloned()
    }

    /// Most blocks of a unit in a command that may have `most` otherwise; at least one.
    pub fn bound_blocks(&self, most: u64, per: usize) -> u64 {
        most.min((self.command_blocks.get() / per as u64).max(1))
    }

    /// When the oldest read under way began.
    pub fn oldest_read(&self) -> u64 {
        let clients = self.clients.borrow().iter().map(|c| c.oldest_read()).min();
        let agents = self.agents.borrow().iter().map(|a| a.oldest_read()).min();
        agents.unwrap_or(OPEN).min(clients.unwrap_or(OPEN))
    }

    /// When the oldest command under way was sent.
    pub fn oldest_command(&self) -> u64 {
        let of = |a: &Rc<Agent>| a.tasks.borrow().values().map(|t| t.issue).min();
        let agents = self.agents.borrow().iter().filter_map(of).min().unwrap_or(OPEN);
        let clients = self.clients.borrow().iter().map(|c| c.oldest_request()).min();
        agents.min(clients.unwrap_or(OPEN))
    }

    /// The target has been open, with its groups, since that moment.
    pub fn open_since(&self, asked: u64) -> bool {
        self.open.get() < asked
    }

    /// A disk had something done to it that may end in errors.
    pub fn may_fail(&self, disk: usize) {
        self.failing.borrow_mut()[disk] = true;
    }

    pub fn fails(&self, disk: usize) -> bool {
        self.failing.borrow()[disk]
    }
}
