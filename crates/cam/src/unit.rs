//! A device that several cores use: its [`Device`] behind a lock of its own, held for one step at a
//! time.
//!
//! Invariants
//!  U1  No lock is held while a SIM, a core or a listener is called.
//!  U2  A CCB's data never leave the core that sent it: that core hands the CCB to the SIM, and
//!      takes its result. Any other source of news about the CCB calls that core.
//!  U3  The clock sleeps no longer than until the device's first due time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use bio::sync::{Mutex, MutexGuard};
use bio::{Bio, Segs};
use geom::{Core, Notifier, deadline};
use wire::scsi::AccessState;

use crate::address::Path;
use crate::ccb::{Ccb, CcbId, Ended, Outcome, Owner};
use crate::device::{Device, Effect, ResetId, Shape};
use crate::events::Event;
use crate::sim::{Begun, Sim};

/// Receives a unit's events; the flag means the whole target. Called on any core.
pub type Listener = Arc<dyn Fn(&Unit, Event, bool) + Send + Sync>;

/// See the module.
pub struct Unit {
    path: Path,
    sim: Arc<dyn Sim>,
    notifier: Notifier,
    listener: Listener,
    access: Mutex<Option<AccessState>>,
    physpath: Mutex<Option<String>>,
    /// Number of requested questions for the access state; the first requester sends it.
    access_requests: AtomicU32,
    state: Mutex<UnitState>,
}

struct UnitState {
    device: Device,
    tasks: Vec<WaitingTask>,
    free: Vec<u32>,
    clock: Option<Waker>,
    /// The clock sleeps until then.
    armed_ns: u64,
    closed: bool,
}

/// A task that waits for a CCB.
#[derive(Default)]
struct WaitingTask {
    waker: Option<Waker>,
    called: bool,
    /// The task has ended; its CCB is being aborted.
    abandoned: bool,
}

/// Next step for a CCB's owner.
enum NextStep {
    Ended(Ended),
    Begin(Ccb),
    /// It is with the SIM.
    WithSim,
    Waiting,
}

impl Unit {
    /// A device that was found, in no hurry yet: one CCB at a time until it is reshaped.
    pub fn new(
        path: Path,
        sim: Arc<dyn Sim>,
        shape: Shape,
        notifier: Notifier,
        listener: Listener,
    ) -> Arc<Unit> {
        let state = UnitState {
            device: Device::new(shape),
            tasks: Vec::new(),
            free: Vec::new(),
            clock: None,
            armed_ns: u64::MAX,
            closed: false,
        };
        let unit = Arc::new(Unit {
            path,
            sim: sim.clone(),
            notifier,
            listener,
            access: Mutex::default(),
            physpath: Mutex::default(),
            access_requests: AtomicU32::new(0),
            state: Mutex::new(state),
        });
        sim.attach(&unit);
        unit
    }

    /// Where it is.
    pub fn path(&self) -> Path {
        self.path
    }

    /// The driver of its bus.
    pub fn sim(&self) -> &Arc<dyn Sim> {
        &self.sim
    }

    fn state(&self) -> MutexGuard<'_, UnitState> {
        self.state.lock()
    }

    /// The access state that the unit reported last on this path.
    pub fn access(&self) -> Option<AccessState> {
        *self.access.lock()
    }

    /// Records the reported access state; true when it differs from the state before.
    pub(crate) fn set_access(&self, access: Option<AccessState>) -> bool {
        let mut now = self.access.lock();
        std::mem::replace(&mut *now, access) != access
    }

    /// The physical path that its enclosure reported last.
    pub fn physpath(&self) -> Option<String> {
        self.physpath.lock().clone()
    }

    /// Records the physical path that an enclosure reports; true when it has changed.
    pub(crate) fn set_physpath(&self, place: Option<String>) -> bool {
        let mut now = self.physpath.lock();
        let is_new = *now != place;
        *now = place;
        is_new
    }

    /// Requests a question for its access state: true if the caller has to send it.
    pub(crate) fn request_access_query(&self) -> bool {
        self.access_requests.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Wishes so far.
    pub(crate) fn access_requests(&self) -> u32 {
        self.access_requests.load(Ordering::Acquire)
    }

    /// So many wishes are done with; false: there are more.
    pub(crate) fn access_requests_done(&self, wishes: u32) -> bool {
        let done = Ordering::AcqRel;
        self.access_requests.compare_exchange(wishes, 0, done, Ordering::Acquire).is_ok()
    }

    /// The SIM has noticed that the device lost its power, and has it again.
    pub fn lost_power(&self) {
        self.state().device.lost_power();
    }

    /// The SIM knows that the next 29/00 reports a login or a reset: no cache contents were lost.
    pub fn kept_power(&self) {
        self.state().device.kept_power();
    }

    /// The SIM has a new way to the device, or the device answers again. Another medium may be
    /// there, and no command of a user is sent to it before it was probed (D11). To be called
    /// before any that the SIM has continues or returns.
    pub fn doubt(&self, core: &Core) {
        self.with(core, Device::doubt);
    }

    /// Gives the device's queue another shape. Before anything is sent to it.
    pub fn reshape(&self, shape: Shape) {
        self.state().device.reshape(shape);
    }

    /// Changes how many CCBs the device gets at a time, while it is in use.
    pub fn limit(&self, shape: Shape) {
        self.state().device.limit(shape);
    }

    /// Looks at the device.
    pub fn inspect<R>(&self, f: impl FnOnce(&Device) -> R) -> R {
        f(&self.state().device)
    }

    /// Makes one step of the device, and carries out its effects.
    pub fn with<R>(&self, core: &Core, f: impl FnOnce(&mut Device) -> R) -> R {
        let out = f(&mut self.state().device);
        self.apply_effects(core);
        out
    }

    /// The SIM has ended a CCB; false when it was not with it.
    pub fn done(&self, id: CcbId, outcome: Outcome, core: &Core) -> bool {
        let now = core.now();
        self.with(core, |device| device.done(id, outcome, now))
    }

    /// U1
    fn apply_effects(&self, core: &Core) {
        while let Some(effect) = self.next_effect() {
            match effect {
                Effect::Start(_, owner) => self.wake_owner(owner, core),
                Effect::Ended(id, Owner::Task(n)) if self.is_abandoned(n) => {
                    let mut state = self.state();
                    let _nobody_wants_it = state.device.end(id);
                    state.leave(n);
                }
                Effect::Ended(_, owner) => self.wake_owner(owner, core),
                Effect::Abort(id) => self.sim.abort(self, id, core),
                Effect::Reset => self.sim.reset(self, core),
                Effect::Event(event, target_wide) => {
                    if event == Event::Doubted {
                        self.sim.requeue_unsent(self, core);
                    }
                    (self.listener)(self, event, target_wide);
                }
            }
        }
    }

    fn next_effect(&self) -> Option<Effect> {
        let mut state = self.state();
        let effect = state.device.take();
        if effect.is_none() {
            wake_clock(state);
        }
        effect
    }

    /// A reset beside the queue is over. Callable on any thread: the clock does the rest.
    pub(crate) fn reset_ends(&self, reset: ResetId, settle_ns: u64) {
        let mut state = self.state();
        state.device.reset_ends(reset, settle_ns);
        wake_clock(state);
    }

    fn is_abandoned(&self, task: u32) -> bool {
        self.state().tasks.get(task as usize).is_some_and(|t| t.abandoned)
    }

    /// U2
    fn wake_owner(&self, owner: Owner, core: &Core) {
        match owner {
            Owner::Bio { core: number, ticket } if number == core.id() as usize => {
                core.restart(ticket);
            }
            Owner::Bio { core: number, ticket } => self.notifier.restart(number, ticket),
            Owner::Task(n) => {
                let mut state = self.state();
                let Some(task) = state.tasks.get_mut(n as usize) else { return };
                task.called = true;
                let waker = task.waker.take();
                drop(state);
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }

    fn next_step(&self, id: CcbId, owner: Owner, core: &Core) -> NextStep {
        let now = core.now();
        let mut state = self.state();
        if let Some(ended) = state.device.end(id) {
            return NextStep::Ended(ended);
        }
        let turn = match state.device.begin(id, owner, now) {
            Some(ccb) => NextStep::Begin(ccb),
            None if state.device.is_held(id) => NextStep::WithSim,
            // It may have been refused at its turn.
            None => state.device.end(id).map_or(NextStep::Waiting, NextStep::Ended),
        };
        drop(state);
        // The deadline of a CCB that begins may be the first one, and a CCB that did not begin
        // makes space for others.
        self.apply_effects(core);
        turn
    }

    /// Continues with a request's CCB; `None`: the request waits.
    pub fn drive(&self, bio: &Bio, id: CcbId, core: &Core) -> Option<Ended> {
        let mut begun = None;
        loop {
            let ticket = bio.ticket();
            let owner = Owner::Bio { core: core.id() as usize, ticket };
            let next = match self.next_step(id, owner, core) {
                NextStep::Ended(ended) => return Some(ended),
                NextStep::Waiting => return None,
                // The flush behind a write has the write's data, which is none of its own.
                NextStep::Begin(ccb) if !ccb.moves_data() => {
                    self.sim.action(self, id, &ccb, &Segs::new(), core)
                }
                NextStep::Begin(ccb) => self.sim.action(self, id, &ccb, &bio.data, core),
                NextStep::WithSim => match begun {
                    None => self.sim.finish(self, id, &bio.data, core),
                    Some(Begun::Later(ns)) => {
                        core.wake(ticket, ns);
                        return None;
                    }
                    Some(_) => return None,
                },
            };
            begun = Some(next);
            if let Begun::Ended(outcome) = next {
                self.done(id, outcome, core);
                begun = None;
            }
        }
    }

    /// Carries a CCB out for a conversation: probing, a verb, pass-through.
    pub async fn execute(self: &Arc<Unit>, core: &Rc<Core>, ccb: Ccb, data: &Segs) -> Ended {
        let task = self.state().enter();
        let owner = Owner::Task(task);
        let id = self.with(core, |device| device.submit(Ccb { owner, ..ccb }));
        let mut guard = Guard { unit: self.clone(), core: core.clone(), task, id: Some(id) };
        let mut begun = None;
        loop {
            let next = match self.next_step(id, owner, core) {
                NextStep::Ended(ended) => {
                    guard.id = None;
                    self.state().leave(task);
                    return ended;
                }
                NextStep::Begin(ccb) => self.sim.action(self, id, &ccb, data, core),
                NextStep::WithSim if begun.is_none() => self.sim.finish(self, id, data, core),
                NextStep::WithSim | NextStep::Waiting => {
                    let called = poll_fn(|cx| self.is_called(task, cx));
                    match begun.take() {
                        Some(Begun::Later(ns)) => drop(deadline(core, ns, called).await),
                        _ => called.await,
                    }
                    continue;
                }
            };
            begun = Some(next);
            if let Begun::Ended(outcome) = next {
                self.done(id, outcome, core);
                begun = None;
            }
        }
    }

    fn is_called(&self, task: u32, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let Some(task) = state.tasks.get_mut(task as usize) else { return Poll::Ready(()) };
        if std::mem::take(&mut task.called) {
            return Poll::Ready(());
        }
        task.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Starts the device's clock on a core: its home. It stops with [`Unit::close`].
    pub fn run_clock(self: &Arc<Unit>, core: &Rc<Core>) {
        let clock = Clock { unit: self.clone(), core: core.clone(), sleep: None };
        core.reactor().spawn("cam", clock);
    }

    /// No more CCBs will be sent to it: the clock stops when all have ended.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waker = state.clock.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// U3
fn wake_clock(mut state: MutexGuard<'_, UnitState>) {
    if state.device.due().is_some_and(|due| due < state.armed_ns) {
        let waker = state.clock.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl UnitState {
    fn enter(&mut self) -> u32 {
        match self.free.pop() {
            Some(n) => n,
            None => {
                self.tasks.push(WaitingTask::default());
                self.tasks.len() as u32 - 1
            }
        }
    }

    fn leave(&mut self, task: u32) {
        if let Some(place) = self.tasks.get_mut(task as usize) {
            *place = WaitingTask::default();
            self.free.push(task);
        }
    }
}

/// A task that ends early gives its CCB up.
struct Guard {
    unit: Arc<Unit>,
    core: Rc<Core>,
    task: u32,
    id: Option<CcbId>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        if let Some(task) = self.unit.state().tasks.get_mut(self.task as usize) {
            task.abandoned = true;
        }
        let now = self.core.now();
        self.unit.with(&self.core, |device| device.abort(id, now));
    }
}

/// When it wakes, and its sleep.
type Sleep = (u64, Pin<Box<dyn Future<Output = ()>>>);

struct Clock {
    unit: Arc<Unit>,
    core: Rc<Core>,
    sleep: Option<Sleep>,
}

impl Future for Clock {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let due = {
                let mut state = self.unit.state();
                if state.closed && state.device.live() == 0 {
                    return Poll::Ready(());
                }
                let due = state.device.due();
                state.clock = Some(cx.waker().clone());
                state.armed_ns = due.unwrap_or(u64::MAX);
                due
            };
            let Some(due) = due else {
                self.sleep = None;
                return Poll::Pending;
            };
            let now = self.core.now();
            if due <= now {
                self.unit.with(&self.core, |device| device.expire(now));
                continue;
            }
            if self.sleep.as_ref().is_none_or(|(until, _)| *until != due) {
                let reactor = self.core.reactor().clone();
                let sleep = Box::pin(async move { reactor.sleep(due - now).await });
                self.sleep = Some((due, sleep));
            }
            let Some((_, sleep)) = &mut self.sleep else { return Poll::Pending };
            match sleep.as_mut().poll(cx) {
                Poll::Ready(()) => self.sleep = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
