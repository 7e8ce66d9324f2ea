//! A simulated world: one virtual clock, seeded chance, links and disks that fail on request.
//!
//! ```text
//!   World::run:   deliver events that are due -> choose one ready reactor -> its turn -> again
//!                 no reactor ready: the clock jumps to the next event or timer
//!                 nothing left: Ended::Quiet
//! ```
//!
//! Invariants
//!  V1  Everything depends on the seed and on the calls made, in their order: no thread, no real
//!      clock, no order of a hash table. The same seed gives the same `World::trace`.
//!  V2  Time advances in `run` only: a little for each turn, otherwise to the next event or timer.
//!  V3  A reactor's operations are carried out in its own turns; the world decides which are due.
//!  V4  With [`Orders`] in it the orders, and not the world's chance, decide whose turn it is.

mod channels;
mod disks;
mod ether;
mod links;
mod net;
mod orders;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::file::File;
use crate::model::{DiskModel, DiskShape};
use crate::ops::SlotId;
use crate::random::SeededRandom;
use crate::reactor::Reactor;

pub(crate) use channels::SimChannel;
pub use channels::{ChannelEnd, Kernel, channel};
pub use ether::{Segment, SegmentShape};
pub use links::{LinkId, NetShape};
pub use orders::{DelayedThread, Orders};

pub(crate) use disks::SimDisk;
pub(crate) use net::{SimSocket, SocketKey};

/// Virtual cost of one turn, in ns: at least, and how much more at most.
const TURN_NS: (u64, u64) = (300, 3_000);

/// A future event.
pub(crate) enum Event {
    /// An operation of a reactor ends.
    Op { port: usize, id: SlotId },
    /// Bytes or an end sent by `side` arrive at the other end.
    Arrive { link: u32, side: usize },
    /// A connection attempt reaches its listener.
    Connect { link: u32 },
    /// A reset reaches `side`.
    Reset { link: u32, side: usize },
    /// A frame arrives at a station.
    Frame { station: u32, frame: Rc<[u8]> },
}

pub(crate) struct WorldState {
    pub(crate) now: u64,
    pub(crate) random: SeededRandom,
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    /// For each reactor: operations to look at in its next turn.
    ready: Vec<VecDeque<SlotId>>,
    pub(crate) net: links::Net,
    pub(crate) ether: ether::Ether,
    disks: BTreeMap<String, Arc<SimDisk>>,
    trace: u64,
    orders: Option<Orders>,
    /// The actor whose turn it was.
    last: usize,
}

impl WorldState {
    pub(crate) fn at(&mut self, due: u64, event: Event) {
        self.order += 1;
        self.events.insert((due.max(self.now), self.order), event);
    }

    pub(crate) fn make_ready(&mut self, port: usize, id: SlotId) {
        if let Some(queue) = self.ready.get_mut(port) {
            queue.push_back(id);
        }
    }

    /// One of the ready actors, chosen at random or by the orders. The first choice of the orders
    /// is the actor that had the last turn.
    fn choose_actor(&mut self, ready: &[usize]) -> usize {
        let at = match &mut self.orders {
            None => self.random.below(ready.len() as u64) as usize,
            Some(orders) => {
                let goes_on = ready.iter().position(|i| *i == self.last);
                match (orders.choose(ready.len(), goes_on.is_none()), goes_on) {
                    (0, Some(at)) => at,
                    (n, Some(at)) if n <= at => n - 1,
                    (n, _) => n,
                }
            }
        };
        self.last = ready[at];
        self.last
    }

    fn note(&mut self, word: u64) {
        // FNV-1a over words, and the clock with each.
        for w in [word, self.now] {
            self.trace = (self.trace ^ w).wrapping_mul(0x0000_0100_0000_01b3);
            self.trace ^= self.trace >> 29;
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let event = entry.remove();
            match event {
                Event::Op { port, id } => {
                    self.note(1 ^ (id.to_word() << 3));
                    self.make_ready(port, id);
                }
                Event::Arrive { link, side } => {
                    self.note(2 ^ (u64::from(link) << 3));
                    self.arrive(link, side);
                }
                Event::Connect { link } => {
                    self.note(3 ^ (u64::from(link) << 3));
                    self.connect_arrives(link);
                }
                Event::Reset { link, side } => {
                    self.note(4 ^ (u64::from(link) << 3));
                    self.reset_arrives(link, side);
                }
                Event::Frame { station, frame } => {
                    self.note(9 ^ (u64::from(station) << 3));
                    self.frame_arrives(station, &frame);
                }
            }
        }
    }
}

/// A handle on a simulated world. Clones share it; it stays on its thread.
#[derive(Clone)]
pub struct World {
    pub(crate) state: Rc<RefCell<WorldState>>,
    seed: u64,
    clock: Rc<Cell<u64>>,
}

/// One reactor and the work of its turn.
pub struct Actor<'a> {
    reactor: Reactor,
    turn: Box<dyn FnMut() + 'a>,
}

impl<'a> Actor<'a> {
    /// `turn` takes one turn of `reactor` (its timeout does not matter) and all other work of this
    /// core for each turn.
    pub fn new(reactor: &Reactor, turn: impl FnMut() + 'a) -> Actor<'a> {
        Actor { reactor: reactor.clone(), turn: Box::new(turn) }
    }

    /// A reactor that runs tasks only.
    pub fn of_tasks(reactor: &Reactor) -> Actor<'static> {
        let own = reactor.clone();
        Actor {
            reactor: reactor.clone(),
            turn: Box::new(move || {
                own.turn(crate::turn::WaitFor::Peek, &mut |_, _| ());
            }),
        }
    }
}

/// When `World::run` gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Virtual ns from the start of the run.
    pub ns: u64,
    /// Turns.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { ns: 3600 * 1_000_000_000, steps: 5_000_000 }
    }
}

/// Why `World::run` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A stop was requested.
    Stopped,
    /// No actor has work, and no event or timer is pending.
    Quiet,
    TimeUp,
    StepsUp,
}

impl World {
    /// A world in which nothing exists yet. Its clock starts at one second.
    pub fn new(seed: u64) -> World {
        let now = 1_000_000_000;
        World {
            state: Rc::new(RefCell::new(WorldState {
                now,
                random: SeededRandom::new(seed),
                events: BTreeMap::new(),
                order: 0,
                ready: Vec::new(),
                net: links::Net::default(),
                ether: ether::Ether::default(),
                disks: BTreeMap::new(),
                trace: 0xcbf2_9ce4_8422_2325,
                orders: None,
                last: 0,
            })),
            seed,
            clock: Rc::new(Cell::new(now)),
        }
    }

    /// The seed: all that is needed to see the same again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The virtual clock, in ns.
    pub fn now(&self) -> u64 {
        self.clock.get()
    }

    /// A number that depends on everything that happened so far.
    pub fn trace(&self) -> u64 {
        self.state.borrow().trace
    }

    /// Makes `word` part of the trace.
    pub fn note(&self, word: u64) {
        self.state.borrow_mut().note(word ^ (5 << 60));
    }

    /// Chance of the test's own, from the world's seed.
    pub fn random(&self) -> u64 {
        self.state.borrow_mut().random.next_u64()
    }

    pub(crate) fn enroll(&self) -> (usize, SeededRandom) {
        let mut state = self.state.borrow_mut();
        state.ready.push(VecDeque::new());
        let seed = state.random.next_u64();
        (state.ready.len() - 1, SeededRandom::new(seed))
    }

    pub(crate) fn has_ready(&self, port: usize) -> bool {
        let state = self.state.borrow();
        state.ready.get(port).is_some_and(|q| !q.is_empty())
    }

    pub(crate) fn take_ready(&self, port: usize) -> Option<SlotId> {
        self.state.borrow_mut().ready.get_mut(port)?.pop_front()
    }

    fn set_now(&self, now: u64) {
        let mut state = self.state.borrow_mut();
        state.now = state.now.max(now);
        self.clock.set(state.now);
        state.deliver();
    }

    /// Lets the actors run, each time one that the seed chooses among those with something to do.
    /// Ends when `stop` returns true (called before each turn), nothing is left to happen, or at a
    /// limit.
    pub fn run(
        &self,
        actors: &mut [Actor<'_>],
        limits: Limits,
        stop: &mut dyn FnMut() -> bool,
    ) -> Ended {
        let end = self.now().saturating_add(limits.ns);
        let mut ready = Vec::with_capacity(actors.len());
        for _ in 0..limits.steps {
            if stop() {
                return Ended::Stopped;
            }
            if self.now() >= end {
                return Ended::TimeUp;
            }
            self.set_now(self.now());
            ready.clear();
            ready.extend((0..actors.len()).filter(|&i| actors[i].reactor.is_ready()));
            if ready.is_empty() {
                match self.next_moment(actors) {
                    Some(t) => self.set_now(t.min(end)),
                    None => return Ended::Quiet,
                }
                continue;
            }
            let chosen = {
                let mut state = self.state.borrow_mut();
                let chosen = state.choose_actor(&ready);
                state.note(6 ^ ((chosen as u64) << 3));
                let cost = TURN_NS.0 + state.random.below(TURN_NS.1);
                state.now = state.now.saturating_add(cost);
                self.clock.set(state.now);
                chosen
            };
            (actors[chosen].turn)();
        }
        Ended::StepsUp
    }

    /// From now on `orders` decides the next actor and the answers of [`World::choose`] (V4).
    pub fn explore(&self, orders: Orders) {
        self.state.borrow_mut().orders = Some(orders);
    }

    /// Takes the orders out again: chance decides from now on.
    pub fn explored(&self) -> Option<Orders> {
        self.state.borrow_mut().orders.take()
    }

    /// True if orders make the choices, not chance.
    pub fn is_explored(&self) -> bool {
        self.state.borrow().orders.is_some()
    }

    /// A choice of the test's own, see [`Orders::choose`]; without orders the first option.
    pub fn choose(&self, options: usize, free: bool) -> usize {
        let mut state = self.state.borrow_mut();
        state.orders.as_mut().map_or(0, |o| o.choose(options, free))
    }

    fn next_moment(&self, actors: &[Actor<'_>]) -> Option<u64> {
        let event = self.state.borrow().events.keys().next().map(|k| k.0);
        let timers = actors.iter().filter_map(|a| a.reactor.next_timer());
        event.into_iter().chain(timers).min()
    }

    /// The disk `name`, made of zeros with this shape when there is none yet: a file that every
    /// reactor of the world can use. `InvalidInput` when the shape makes no sense.
    pub fn file(&self, name: &str, shape: DiskShape) -> io::Result<File> {
        let mut state = self.state.borrow_mut();
        if let Some(disk) = state.disks.get(name) {
            return Ok(File::simulated(disk.clone(), name));
        }
        let seed = state.random.next_u64();
        let model = DiskModel::new(shape, seed)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let disk = Arc::new(SimDisk::new(model));
        state.disks.insert(name.to_string(), disk.clone());
        Ok(File::simulated(disk, name))
    }

    fn disk(&self, name: &str) -> Option<Arc<SimDisk>> {
        self.state.borrow().disks.get(name).cloned()
    }

    /// Looks at or changes the model behind the disk `name`: faults, false replies, contents. None
    /// when there is no such disk.
    pub fn with_disk<R>(&self, name: &str, f: impl FnOnce(&mut DiskModel) -> R) -> Option<R> {
        Some(self.disk(name)?.with(f))
    }

    /// The disk loses power and gets it back: operations under way end with `Io`, and any subset of
    /// the unflushed data is lost. False when there is no such disk.
    pub fn power_cut(&self, name: &str) -> bool {
        let Some(disk) = self.disk(name) else {
            return false;
        };
        let now_over = disk.power_cut();
        let mut state = self.state.borrow_mut();
        state.note(7);
        for (port, id) in now_over {
            let now = state.now;
            state.at(now, Event::Op { port, id });
        }
        true
    }

    /// From now on no request of the disk ends (or it all ends: `hang` false). False when
    /// there is no such disk.
    pub fn hang(&self, name: &str, hang: bool) -> bool {
        let Some(disk) = self.disk(name) else {
            return false;
        };
        let released = disk.hang(hang);
        let mut state = self.state.borrow_mut();
        for (port, id) in released {
            let delay = state.random.below(100_000);
            let due = state.now + delay;
            state.at(due, Event::Op { port, id });
        }
        true
    }

    /// Changes how links behave from now on.
    pub fn set_net(&self, shape: NetShape) {
        self.state.borrow_mut().net.shape = shape;
    }

    /// The connections that exist, oldest first: name, client's and server's address.
    pub fn links(&self) -> Vec<(LinkId, SocketAddr, SocketAddr)> {
        self.state.borrow().net.alive()
    }

    /// Cuts a connection: both ends see a reset at once, and data in transit is lost.
    pub fn cut(&self, link: LinkId) {
        let mut state = self.state.borrow_mut();
        state.note(8);
        state.cut(link);
    }

    /// From now on nothing arrives on this connection, and neither end is notified.
    pub fn half_open(&self, link: LinkId) {
        self.state.borrow_mut().net.silence(link);
    }
}
