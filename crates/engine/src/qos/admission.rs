//! Turns of commands and tasks in the flow of their unit's requests (`qos/mod.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::command::execute::Launch;
use crate::command::{CommandState, Slot, TaskAttribute, word_of};
use crate::engine::Engine;
use crate::handlers::{Run, Tie};
use crate::nexus::{Path, Session};
use crate::qos::concurrency_limit::NONE;
use crate::qos::{Flow, Landing, Seat};
use crate::registry::DEPTH_MAX;
use crate::unit::Device;

/// Commands that a nexus may have here beyond its share: the next ones, when its turn comes.
const AHEAD: u32 = 4;

/// Smallest window of a session.
pub const WINDOW_MIN: u32 = 4;

/// How long a session keeps the whole window after it has used another unit, ns: one window cannot
/// distinguish units.
const MIXED_NS: u64 = 1_000_000_000;

/// A command or request that waits for its turn.
pub(crate) enum Waiter {
    /// A plain read or write: session, and place and generation there.
    Command(u64, u64),
    /// A request of a task.
    Request(Rc<Turn>),
}

/// A command that is to wait for its turn: place and generation, its bytes, and whether it goes
/// before others.
pub(crate) struct Queue {
    path: Rc<Path>,
    word: u64,
    bytes: u64,
    first: bool,
}

/// The turn of one request of a task.
#[derive(Default)]
pub(crate) struct Turn {
    /// Its cost, set when its turn has come.
    cost: Cell<Option<u32>>,
    waker: RefCell<Option<Waker>>,
}

impl Turn {
    fn come(&self, cost: u32) {
        self.cost.set(Some(cost));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A request of a task that waits for its turn, or is below.
pub(crate) struct Pass {
    engine: Rc<Engine>,
    seat: Rc<Seat>,
    turn: Rc<Turn>,
    since_ns: Cell<u64>,
    landing: Cell<Option<Landing>>,
}

impl Pass {
    /// Asks for a turn and waits for it; `None` when the command was aborted first.
    pub async fn wait(engine: &Rc<Engine>, seat: &Rc<Seat>, bytes: u64, tie: &Tie) -> Option<Pass> {
        let (turn, flow) = (Rc::new(Turn::default()), seat.flow());
        let entered = flow.enter(seat, false, bytes);
        turn.cost.set(entered);
        let pass = Pass {
            engine: engine.clone(),
            seat: seat.clone(),
            turn: turn.clone(),
            since_ns: Cell::default(),
            landing: Cell::default(),
        };
        if entered.is_none() {
            flow.queue(seat, Waiter::Request(turn.clone()), bytes, false);
            let session = tie.session.upgrade();
            if let Some(session) = &session {
                session.facts.note_queued(flow.device().number());
            }
            let come = std::future::poll_fn(|cx| {
                if turn.cost.get().is_some() || tie.stop.get() {
                    return Poll::Ready(());
                }
                turn.waker.replace(Some(cx.waker().clone()));
                tie.patience.replace(Some(cx.waker().clone()));
                Poll::Pending
            });
            let _counted = Counted(session);
            come.await;
        }
        pass.since_ns.set(engine.core().now());
        (!tie.stop.get()).then_some(pass)
    }

    /// It has ended below: bytes that it moved.
    pub fn landed(self, bytes: u64) {
        let ns = self.engine.core().now().saturating_sub(self.since_ns.get());
        self.landing.set(Some(Landing { ns, bytes }));
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let (flow, now) = (self.seat.flow(), self.engine.core().now());
        match self.turn.cost.get() {
            Some(cost) => {
                if flow.leave(&self.seat, cost, self.landing.take(), now) {
                    self.engine.pump(flow);
                }
            }
            None => {
                let it = |w: &Waiter| matches!(w, Waiter::Request(t) if Rc::ptr_eq(t, &self.turn));
                flow.forget(&self.seat, it);
            }
        }
    }
}

/// Removes a request from the waiting ones that lists show, however the waiting ends.
struct Counted(Option<Rc<Session>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.facts.note_unqueued();
        }
    }
}

impl Engine {
    /// The flow of this core's requests to a unit.
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

    /// Sends below the requests that may go now, one after another from the outermost call.
    fn pump(&self, flow: &Flow) {
        if flow.pumping.replace(true) {
            return;
        }
        while let Some((seat, waiter, cost)) = flow.next() {
            let goes = match waiter {
                Waiter::Command(session, word) => {
                    self.session(session).is_some_and(|s| s.fly(word, cost))
                }
                Waiter::Request(turn) => {
                    turn.come(cost);
                    true
                }
            };
            if !goes {
                flow.leave(&seat, cost, None, self.core().now());
            }
        }
        flow.pumping.set(false);
    }
}

impl Session {
    /// A plain read or write has all that it needs: it goes below, or is to be queued for its turn.
    pub(crate) fn take_off(&self, place: u32, slot: &mut Slot) -> Option<Queue> {
        let path = slot.path.as_ref()?;
        let urgent = slot.attribute == TaskAttribute::Aca;
        let bytes = u64::from(slot.plan.reply.max(slot.plan.out));
        if let Some(cost) = path.seat().flow().enter(path.seat(), urgent, bytes) {
            (slot.flying, slot.began_ns) = (Some(cost), self.engine().core().now());
            return None;
        }
        slot.queued = true;
        slot.state = Some(CommandState::Queued);
        self.note(place, slot);
        let (path, first) = (path.clone(), slot.attribute == TaskAttribute::HeadOfQueue);
        Some(Queue { path, word: word_of(place, slot.generation), bytes, first })
    }

    /// Queues a command that [`Session::take_off`] did not let go.
    #[cold]
    pub(crate) fn queue(&self, queue: Queue) {
        let Queue { path, word, bytes, first } = queue;
        let waiter = Waiter::Command(self.number(), word);
        path.seat().flow().queue(path.seat(), waiter, bytes, first);
        self.facts.note_queued(path.device().number());
        self.note_share(&path);
    }

    /// The turn of a command that waited has come; it is counted as being below. False when it is
    /// not there any more.
    fn fly(&self, word: u64, cost: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some((place, slot)) = slots.by_word(word) else { return false };
        let Run::Blocks(blocks) = slot.plan.run else { return false };
        slot.queued = false;
        (slot.flying, slot.began_ns) = (Some(cost), self.engine().core().now());
        self.facts.note_unqueued();
        if slot.abort.is_some() {
            // Doomed: it ends in a moment, and leaves then.
            return true;
        }
        slot.state = Some(CommandState::Executing);
        self.note(place, slot);
        let launch = Launch::of(place, slot, blocks);
        drop(slots);
        self.launch(place, launch);
        true
    }

    /// Removes a command without an answer from below: one that was below, with its cost in
    /// `flying`, or one that waited here.
    #[cold]
    pub(crate) fn call_off(&self, path: &Path, word: u64, flying: Option<u32>) {
        let (seat, flow) = (path.seat(), path.seat().flow());
        if let Some(cost) = flying {
            if flow.leave(seat, cost, None, self.engine().core().now()) {
                self.engine().pump(flow);
            }
            return;
        }
        let me = self.number();
        flow.forget(seat, |w| matches!(w, Waiter::Command(s, w) if (*s, *w) == (me, word)));
        self.facts.note_unqueued();
    }

    /// Others may go below: a command has ended there.
    #[cold]
    pub(crate) fn give_turn(&self, path: &Path) {
        self.engine().pump(path.seat().flow());
    }

    /// Where its requests to a unit wait: as those of the nexus that has used the unit, or by
    /// themselves.
    pub(crate) fn seat_at(&self, device: &Arc<Device>) -> Rc<Seat> {
        let paths = self.paths.borrow();
        match paths.values().find(|p| Arc::ptr_eq(p.device(), device)) {
            Some(path) => path.seat().clone(),
            None => Seat::new(self.engine().flow(device)),
        }
    }

    fn note_share(&self, path: &Path) {
        self.facts.note_share(path.seat().flow().share(path.seat()));
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
        let share = path.map_or(NONE, |p| p.seat().flow().share(p.seat()));
        self.facts.note_share(share);
        let window = share.saturating_add(AHEAD).clamp(WINDOW_MIN, DEPTH_MAX);
        self.facts.note_window(window);
        window
    }
}

/// A plain read or write has ended below; true when others wait for their turn.
#[inline]
pub(crate) fn landed(path: &Path, cost: u32, landing: Landing, now: u64) -> bool {
    path.seat().flow().leave(path.seat(), cost, Some(landing), now)
}
