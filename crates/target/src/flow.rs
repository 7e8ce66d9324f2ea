//! Who may send commands to a unit that has enough of them: a limit for all together (`knee.rs`),
//! shares for the nexuses, a fair line for what is over them.
//!
//! ```text
//!   begin() --no limit, or below its share, or room and nobody waits--> below --leave()--> gone
//!      |                                                                  ^
//!      +--- else --> QUEUED in its nexus's lane --- next(), in turn ------+
//!                       |
//!                       +--- aborted: forget()
//! ```
//! Plain reads and writes only: a task that talks to the medium for a while has a few requests
//! below at a time whatever happens, and may wait for memory or for blocks that others have.
//!
//! Invariants
//!  L1  While something waits here, something of this core is below: its end gives the next turn.
//! L2  A nexus with fewer commands below than its share never waits for others; the share of all is
//!      the same, and what one does not use is there for the others.
//!  L3  Commands that wait take turns by nexus, one each; those of one nexus keep their order.
//!  L4  HEAD OF QUEUE and ACA do not wait here. What waits here has all the memory that it needs,
//!      and holds nothing that a command below could wait for but its blocks.
//!  L5  Without a limit a command costs two counters and a comparison; nothing is shared with other
//!      cores but once in [`TELL_NS`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::command::{CommandState, TaskAttribute, word_of};
use crate::device::Device;
use crate::engine::Engine;
use crate::handlers::Run;
use crate::knee::{Knee, NONE, Sample};
use crate::registry::DEPTH_MAX;
use crate::session::{Path, Session};

/// How often a core tells the others what it has measured, ns.
const TELL_NS: u64 = 4_000_000;

/// Shortest and longest time between two looks at the limit, ns.
const LOOK_NS: (u64, u64) = (40_000_000, 1_000_000_000);

/// A look needs as many commands even after the longest time.
const LOOK_DONE: u64 = 16;

/// Commands that a nexus may have here beyond its share: the next ones, when its turn comes.
const AHEAD: u32 = 4;

/// Smallest window of a session.
pub const WINDOW_MIN: u32 = 4;

/// How long a session keeps the whole window after it has used another unit, ns: one window cannot
/// tell units apart.
const MIXED_NS: u64 = 1_000_000_000;

/// What all cores know about the flow of a unit's commands.
#[derive(Default)]
pub(crate) struct Load {
    /// Zero: none. Otherwise the limit.
    limit: AtomicU32,
    latency_ns: AtomicU64,
    rate: AtomicU64,
    /// Nexuses with commands here, and commands below, of cores that told it.
    active: AtomicU32,
    below: AtomicU32,
    /// Since the last look.
    done: AtomicU64,
    sum_ns: AtomicU64,
    waited: AtomicBool,
    look: Mutex<Look>,
}

#[derive(Default)]
struct Look {
    knee: Knee,
    at_ns: u64,
}

/// What lists show of the flow of a unit's commands.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowView {
    /// How long a read or write takes below, lately, ns.
    pub latency_ns: u64,
    /// How many end in a second, lately.
    pub rate: u64,
    /// Most of them below at once; `None` when there is no limit.
    pub limit: Option<u32>,
}

impl Load {
    fn limit(&self) -> u32 {
        match self.limit.load(Relaxed) {
            0 => NONE,
            n => n,
        }
    }

    pub fn view(&self) -> FlowView {
        let limit = self.limit();
        FlowView {
            latency_ns: self.latency_ns.load(Relaxed),
            rate: self.rate.load(Relaxed),
            limit: (limit != NONE).then_some(limit),
        }
    }

    /// Looks at the limit when it is time to; one core at a time.
    fn look(&self, now: u64) {
        let Ok(mut look) = self.look.try_lock() else { return };
        if look.at_ns == 0 {
            look.at_ns = now;
            return;
        }
        let elapsed_ns = now.saturating_sub(look.at_ns);
        let (done, sum_ns) = (self.done.load(Relaxed), self.sum_ns.load(Relaxed));
        let enough = Knee::enough(sum_ns / elapsed_ns.max(1));
        let due = elapsed_ns >= LOOK_NS.0 && done >= enough
            || elapsed_ns >= LOOK_NS.1 && done >= LOOK_DONE;
        if !due {
            if elapsed_ns > 10 * LOOK_NS.1 {
                // Nearly nothing was done: what there was is no sample.
                self.take();
                look.at_ns = now;
            }
            return;
        }
        let (done, sum_ns, waited) = self.take();
        look.at_ns = now;
        let sample = Sample { done, sum_ns, elapsed_ns, waited };
        let limit = look.knee.look(&sample);
        self.limit.store(if limit == NONE { 0 } else { limit }, Relaxed);
        let smooth = |old: u64, new: u64| if old == 0 { new } else { (old * 3 + new) / 4 };
        self.latency_ns.store(smooth(self.latency_ns.load(Relaxed), sample.latency_ns()), Relaxed);
        self.rate.store(smooth(self.rate.load(Relaxed), sample.rate() / 1000), Relaxed);
    }

    fn take(&self) -> (u64, u64, bool) {
        (self.done.swap(0, Relaxed), self.sum_ns.swap(0, Relaxed), self.waited.swap(false, Relaxed))
    }
}

/// The commands of one nexus.
#[derive(Default)]
pub(crate) struct Lane {
    below: Cell<u32>,
    queue: RefCell<VecDeque<u64>>,
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.below.get() == 0 && self.queue.borrow().is_empty()
    }
}

/// The flow of commands from one core to one unit.
pub(crate) struct Flow {
    device: Arc<Device>,
    /// Most commands of this core below at once; [`NONE`] without a limit.
    limit: Cell<u32>,
    below: Cell<u32>,
    waiting: Cell<u32>,
    /// Nexuses with commands here.
    active: Cell<u32>,
    done: Cell<u64>,
    sum_ns: Cell<u64>,
    waited: Cell<bool>,
    tell_ns: Cell<u64>,
    /// What this core has told last: nexuses, commands below.
    told: Cell<(u32, u32)>,
    /// Sessions and paths with commands that wait, in the order of their turns.
    ring: RefCell<VecDeque<(u64, Rc<Path>)>>,
    pumping: Cell<bool>,
}

impl Flow {
    pub fn new(device: &Arc<Device>) -> Flow {
        Flow {
            device: device.clone(),
            limit: Cell::new(NONE),
            below: Cell::default(),
            waiting: Cell::default(),
            active: Cell::default(),
            done: Cell::default(),
            sum_ns: Cell::default(),
            waited: Cell::default(),
            tell_ns: Cell::default(),
            told: Cell::default(),
            ring: RefCell::default(),
            pumping: Cell::default(),
        }
    }

    /// Lets a command go below, or not.
    #[inline]
    fn enter(&self, lane: &Lane, urgent: bool) -> bool {
        if self.limit.get() == NONE || urgent || self.has_room(lane) {
            self.count_in(lane);
            return true;
        }
        false
    }

    #[inline]
    fn count_in(&self, lane: &Lane) {
        if lane.below.get() == 0 && lane.is_idle() {
            self.active.set(self.active.get() + 1);
        }
        lane.below.set(lane.below.get() + 1);
        self.below.set(self.below.get() + 1);
    }

    /// L2.
    #[cold]
    fn has_room(&self, lane: &Lane) -> bool {
        if !lane.queue.borrow().is_empty() {
            return false;
        }
        let active = self.active.get() + u32::from(lane.is_idle());
        let share = self.limit.get() / active.max(1);
        lane.below.get() < share || self.waiting.get() == 0 && self.below.get() < self.limit.get()
    }

    /// A command is below no more; `ns` when it has ended there. True when others wait.
    #[inline]
    fn leave(&self, lane: &Lane, ns: Option<u64>, now: u64) -> bool {
        lane.below.set(lane.below.get().saturating_sub(1));
        self.below.set(self.below.get().saturating_sub(1));
        if let Some(ns) = ns {
            self.done.set(self.done.get() + 1);
            self.sum_ns.set(self.sum_ns.get().saturating_add(ns));
        }
        if lane.below.get() == 0 {
            self.lane_rests(lane);
        }
        if now >= self.tell_ns.get() {
            self.tell(now);
        }
        self.waiting.get() > 0
    }

    #[inline]
    fn lane_rests(&self, lane: &Lane) {
        if lane.is_idle() {
            self.active.set(self.active.get().saturating_sub(1));
            if self.active.get() == 0 && self.told.get() != (0, 0) {
                self.publish(0, 0);
            }
        }
    }

    /// Tells the other cores, and hears from them (L5).
    #[cold]
    fn tell(&self, now: u64) {
        self.tell_ns.set(now + TELL_NS);
        let load = self.device.traffic();
        load.done.fetch_add(self.done.take(), Relaxed);
        load.sum_ns.fetch_add(self.sum_ns.take(), Relaxed);
        if self.waited.replace(self.waiting.get() > 0) {
            load.waited.store(true, Relaxed);
        }
        load.look(now);
        let all = load.limit();
        if all == NONE {
            self.publish(0, 0);
            return self.limit.set(NONE);
        }
        // The one that has just left is about to be replaced when somebody waits.
        let below = self.below.get() + u32::from(self.waiting.get() > 0);
        self.publish(self.active.get(), below);
        let (active, told) = self.told.get();
        let others = load.below.load(Relaxed).saturating_sub(told);
        let total = load.active.load(Relaxed).max(active).max(1);
        let fair = u64::from(all) * u64::from(active) / u64::from(total);
        let fair = u32::try_from(fair).unwrap_or(all);
        self.limit.set(fair.max(all.saturating_sub(others)).max(1));
    }

    fn publish(&self, active: u32, below: u32) {
        let (was_active, was_below) = self.told.replace((active, below));
        let load = self.device.traffic();
        load.active.fetch_add(active.wrapping_sub(was_active), Relaxed);
        load.below.fetch_add(below.wrapping_sub(was_below), Relaxed);
    }

    /// Puts a command at the end of its lane.
    fn queue(&self, session: u64, path: &Rc<Path>, word: u64) {
        let lane = path.lane();
        if lane.is_idle() {
            self.active.set(self.active.get() + 1);
        }
        let first = lane.queue.borrow().is_empty();
        lane.queue.borrow_mut().push_back(word);
        if first {
            self.ring.borrow_mut().push_back((session, path.clone()));
        }
        self.waiting.set(self.waiting.get() + 1);
        self.waited.set(true);
    }

    /// Takes a command out of its lane that is not wanted any more.
    fn forget(&self, path: &Rc<Path>, word: u64) {
        let lane = path.lane();
        let (before, left) = {
            let mut queue = lane.queue.borrow_mut();
            let before = queue.len();
            queue.retain(|w| *w != word);
            (before, queue.len())
        };
        if left == before {
            return;
        }
        self.waiting.set(self.waiting.get().saturating_sub(1));
        if left == 0 {
            self.ring.borrow_mut().retain(|(_, p)| !Rc::ptr_eq(p, path));
            self.lane_rests(lane);
        }
    }

    /// The command whose turn it is (L3), counted as being below.
    fn next(&self) -> Option<(u64, Rc<Path>, u64)> {
        if self.waiting.get() == 0 || self.below.get() >= self.limit.get() {
            return None;
        }
        let mut ring = self.ring.borrow_mut();
        let (session, path) = ring.pop_front()?;
        let lane = path.lane();
        let (word, more) = {
            let mut queue = lane.queue.borrow_mut();
            (queue.pop_front()?, !queue.is_empty())
        };
        lane.below.set(lane.below.get() + 1);
        self.below.set(self.below.get() + 1);
        self.waiting.set(self.waiting.get().saturating_sub(1));
        if more {
            ring.push_back((session, path.clone()));
        }
        Some((session, path, word))
    }

    /// Commands that a nexus may have below just now (L2); [`NONE`] without a limit.
    fn share(&self, lane: &Lane) -> u32 {
        let limit = self.limit.get();
        if limit == NONE {
            return NONE;
        }
        let active = self.active.get() + u32::from(lane.is_idle());
        let others = self.below.get().saturating_sub(lane.below.get());
        (limit / active.max(1)).max(limit.saturating_sub(others)).max(1)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.publish(0, 0);
    }
}

impl Engine {
    /// The flow of this core's commands to a unit.
    pub(crate) fn flow(&self, device: &Arc<Device>) -> Rc<Flow> {
        let mut flows = self.flows.borrow_mut();
        if let Some(flow) = flows.get(&device.number()).and_then(std::rc::Weak::upgrade) {
            return flow;
        }
        if flows.len().is_power_of_two() {
            flows.retain(|_, f| f.strong_count() > 0);
        }
        let flow = Rc::new(Flow::new(device));
        flows.insert(device.number(), Rc::downgrade(&flow));
        flow
    }

    /// Sends below what may go now, one after another from the outermost call.
    fn pump(&self, flow: &Flow) {
        if flow.pumping.replace(true) {
            return;
        }
        while let Some((session, path, word)) = flow.next() {
            let flies = self.session(session).is_some_and(|s| s.fly(word));
            if !flies {
                flow.leave(path.lane(), None, self.core().now());
            }
        }
        flow.pumping.set(false);
    }
}

impl Session {
    /// A plain read or write has all that it needs: it goes below, or waits for its turn.
    pub(crate) fn take_off(&self, place: u32) -> bool {
        let now = self.engine().core().now();
        let (word, path) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(place) else { return false };
            let Some(path) = &slot.path else { return true };
            let urgent = matches!(slot.attribute, TaskAttribute::HeadOfQueue | TaskAttribute::Aca);
            if path.flow().enter(path.lane(), urgent) {
                (slot.flying, slot.began_ns) = (true, now);
                return true;
            }
            slot.queued = true;
            slot.state = Some(CommandState::Queued);
            (word_of(place, slot.generation), path.clone())
        };
        path.flow().queue(self.number(), &path, word);
        self.facts.note_queued(path.device().number());
        self.note_share(&path);
        self.note_state(place);
        false
    }

    /// The turn of a command that waited has come; it is counted as being below. False when it is
    /// not there any more.
    fn fly(&self, word: u64) -> bool {
        let now = self.engine().core().now();
        let (place, blocks) = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_word(word) else { return false };
            let Run::Blocks(blocks) = slot.plan.run else { return false };
            slot.queued = false;
            (slot.flying, slot.began_ns) = (true, now);
            self.facts.note_unqueued();
            if slot.abort.is_some() {
                // Doomed: it ends in a moment, and leaves then.
                return true;
            }
            (place, blocks)
        };
        self.set_state(place, CommandState::Executing);
        self.begin_blocks(place, blocks);
        true
    }

    /// A command that was below or waited here is gone without an answer from below.
    #[cold]
    pub(crate) fn call_off(&self, path: &Rc<Path>, word: u64, flying: bool) {
        let flow = path.flow();
        if flying {
            if flow.leave(path.lane(), None, self.engine().core().now()) {
                self.engine().pump(flow);
            }
        } else {
            flow.forget(path, word);
            self.facts.note_unqueued();
        }
    }

    /// Others may go below: a command has ended there.
    #[cold]
    pub(crate) fn give_turn(&self, path: &Path) {
        self.engine().pump(path.flow());
    }

    fn note_share(&self, path: &Path) {
        self.facts.note_share(path.flow().share(path.lane()));
    }

    /// A command comes by a path: sessions that use several units keep their window.
    #[inline]
    pub(crate) fn note_path(&self, path: &Rc<Path>) {
        let mut last = self.last_path.borrow_mut();
        if last.as_ptr() == Rc::as_ptr(path) {
            return;
        }
        let old = std::mem::replace(&mut *last, Rc::downgrade(path));
        if old.strong_count() > 0 {
            self.mixed_until.set(self.engine().core().now() + MIXED_NS);
        }
    }

    /// Commands that the session takes at once, for the transport's window: its share of a unit
    /// that is limited, and a few ahead.
    pub(crate) fn window(&self) -> u32 {
        let mixed = self.engine().core().now() < self.mixed_until.get();
        let path = if mixed { None } else { self.last_path.borrow().upgrade() };
        let share = path.map_or(NONE, |p| p.flow().share(p.lane()));
        self.facts.note_share(share);
        let window = share.saturating_add(AHEAD).clamp(WINDOW_MIN, DEPTH_MAX);
        self.facts.note_window(window);
        window
    }
}

/// A command has ended below; true when others wait for their turn.
#[inline]
pub(crate) fn landed(path: &Path, began_ns: u64, now: u64) -> bool {
    path.flow().leave(path.lane(), Some(now.saturating_sub(began_ns)), now)
}
