//! The driver of a topology: carries its actions to the cores and their answers back.
//!
//! It runs on one control thread. Calls are straight-line code: where a core has to do something,
//! the call pumps events until the core has done it. The driver's user defines how it waits: the
//! daemon sleeps on a condition, a simulation runs its world.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bio::Errno;
use bio::sync::{Condvar, Mutex, MutexGuard};
use reactor::{Mailer, SendError};

use crate::class::{Create, Local, TasteOutcome, Taster};
use crate::core::{Core, CoreNotice, Message, Report};
use crate::error::Error;
use crate::notify::{Notice, Notifier, Unanswered};
use crate::topology::{
    Action, Barrier, Conversation, Event, GeomId, ProviderId, TasteClass, TasteJob, Tasted,
    Topology,
};

/// Longest tasting of one provider, ns; then every class without an answer reports that.
pub const TASTE_DEADLINE_NS: u64 = 5_000_000_000;
/// Longest wait for a node to empty before a splice is rolled back.
pub const GATE_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for a control call to settle; activity that remains then is reported.
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// How long the idle barrier waits for requests to disks that were removed or were abandoned. After
/// that it returns without them; their resources are freed when they end.
pub const ORPHAN_DEADLINE: Duration = Duration::from_secs(2);
/// Longest conversation of a verb with its disks, ns.
pub const JOB_DEADLINE_NS: u64 = 60_000_000_000;
/// How long [`GraphControl`] and tasting wait; the defaults are the constants of this module.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// [`TASTE_DEADLINE_NS`].
    pub taste_ns: u64,
    /// [`GATE_DEADLINE`].
    pub gate: Duration,
    /// [`SETTLE_DEADLINE`].
    pub settle: Duration,
    /// [`ORPHAN_DEADLINE`].
    pub orphans: Duration,
    /// [`JOB_DEADLINE_NS`].
    pub job_ns: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            taste_ns: TASTE_DEADLINE_NS,
            gate: GATE_DEADLINE,
            settle: SETTLE_DEADLINE,
            orphans: ORPHAN_DEADLINE,
            job_ns: JOB_DEADLINE_NS,
        }
    }
}

/// An item that cores or other threads post to the control thread.
enum Incoming {
    Event(Event),
    /// A message that a core's mailbox could not take.
    Forward(usize, Message),
    /// No item: only wakes the control thread.
    Wake,
}

/// Queue of events for the control thread from cores and other threads.
#[derive(Default)]
pub struct Inbox {
    queue: Mutex<VecDeque<Incoming>>,
    filled: Condvar,
}

impl Inbox {
    fn put(&self, what: Incoming) {
        self.queue.lock().push_back(what);
        self.filled.notify_all();
    }

    fn take(&self) -> Option<Incoming> {
        self.queue.lock().pop_front()
    }

    /// Leaves an event; callable from any thread.
    pub fn post(&self, event: Event) {
        self.put(Incoming::Event(event));
    }

    /// Leaves a message for a core, to be sent in its line.
    pub(crate) fn forward(&self, core: usize, message: Message) {
        self.put(Incoming::Forward(core, message));
    }

    /// Wakes the control thread for a reason outside this inbox.
    pub fn wake(&self) {
        self.put(Incoming::Wake);
    }

    /// A [`Report`] for a core that leaves its notices here.
    pub fn report(self: &Arc<Self>) -> Report {
        let inbox = self.clone();
        Arc::new(move |n| inbox.put(Incoming::Event(Event::CoreNotice(n))))
    }

    /// True when nothing waits to be looked at.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Sleeps until something is there or `most` has passed.
    pub fn sleep(&self, most: Duration) {
        let queue = self.queue.lock();
        if queue.is_empty() {
            drop(self.filled.wait_timeout(queue, most));
        }
    }
}

/// The control thread's way to wait: returns after something may have happened, at latest after the
/// given time (of the world's clock).
pub type Waiter = Box<dyn FnMut(&Inbox, Duration)>;

/// Looks at the graph between events, also while a call waits: answers questions.
pub type Watch = Box<dyn FnMut(&Topology, u64)>;

/// A conversation that [`GraphControl::begin_on_core`] began; the control thread is nudged at its
/// end.
pub struct Running<R>(Arc<Mutex<Option<R>>>);

impl<R> Running<R> {
    fn result(&self) -> MutexGuard<'_, Option<R>> {
        self.0.lock()
    }

    /// True when there is something to [`Running::take`].
    pub fn is_ended(&self) -> bool {
        self.result().is_some()
    }

    /// Takes the result, once; `None` before the end.
    pub fn take(&self) -> Option<R> {
        self.result().take()
    }
}

/// The control thread's own.
pub struct GraphControl {
    /// The graph.
    pub topology: Topology,
    /// The time limits of its waits.
    pub deadlines: Deadlines,
    inbox: Arc<Inbox>,
    cores: Vec<Mailer<Message>>,
    /// Messages that a core's mailbox could not take, in order.
    backlog: Vec<VecDeque<Message>>,
    acked: Vec<u64>,
    wait: Waiter,
    event_hook: Option<Watch>,
    interlude: Option<Box<dyn FnMut()>>,
    gates: u64,
    /// Cores that reported the gate that was closed last as empty.
    gate_drained: usize,
    clock: Box<dyn Fn() -> u64>,
}

impl GraphControl {
    /// Around cores that exist. `clock` reads the cores' clock, ns.
    pub fn new(
        cores: Vec<Mailer<Message>>,
        inbox: Arc<Inbox>,
        wait: Waiter,
        clock: Box<dyn Fn() -> u64>,
    ) -> GraphControl {
        let mut topology = Topology::new(cores.len());
        topology.connect(Notifier::new(inbox.clone(), cores.clone()));
        GraphControl {
            topology,
            deadlines: Deadlines::default(),
            inbox,
            acked: vec![0; cores.len()],
            backlog: cores.iter().map(|_| VecDeque::new()).collect(),
            cores,
            wait,
            event_hook: None,
            interlude: None,
            gates: 0,
            gate_drained: 0,
            clock,
        }
    }

    /// From now on `watch` is called with the graph and the time, ns, whenever a call waits.
    pub fn set_watch(&mut self, watch: Watch) {
        self.event_hook = Some(watch);
    }

    /// For simulations: from now on `interlude` runs after each event, before the graph that the
    /// event has changed is published. Cores that have threads of their own may run then, too.
    pub fn set_event_hook(&mut self, interlude: Box<dyn FnMut()>) {
        self.interlude = Some(interlude);
    }

    /// Lets the watch look now.
    pub fn run_watch(&mut self) {
        let now = self.now_ns();
        if let Some(watch) = &mut self.event_hook {
            watch(&self.topology, now);
        }
    }

    /// The queue of events from other threads.
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// The way to core `i`.
    pub fn core(&self, i: usize) -> Option<&Mailer<Message>> {
        self.cores.get(i)
    }

    /// The ways to all cores.
    pub fn cores(&self) -> &[Mailer<Message>] {
        &self.cores
    }

    /// Nanoseconds of the cores' clock.
    pub fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    /// Sends to one core, in order, even if its mailbox is full. A core that has ended takes
    /// nothing.
    pub fn send(&mut self, core: usize, message: Message) {
        if let Some(line) = self.backlog.get_mut(core) {
            line.push_back(message);
            self.flush_backlog(core);
        }
    }

    fn send_all(&mut self, message: impl Fn() -> Message) {
        for core in 0..self.cores.len() {
            self.send(core, message());
        }
    }

    fn flush_backlog(&mut self, core: usize) {
        let (Some(mailer), Some(line)) = (self.cores.get(core), self.backlog.get_mut(core)) else {
            return;
        };
        while let Some(message) = line.pop_front() {
            match mailer.send(message) {
                Ok(()) | Err(SendError::Closed(_)) => {}
                Err(SendError::Full(message)) => return line.push_front(message),
            }
        }
    }

    /// Processes all that has arrived; true when there was something.
    pub fn pump(&mut self) -> bool {
        let mut worked = false;
        (0..self.cores.len()).for_each(|core| self.flush_backlog(core));
        loop {
            let mut progress = false;
            while let Some(incoming) = self.inbox.take() {
                progress = true;
                self.receive(incoming);
            }
            while self.topology.step() {
                progress = true;
                if let Some(interlude) = &mut self.interlude {
                    interlude();
                }
            }
            for action in self.topology.take_actions() {
                progress = true;
                self.act(action);
            }
            if !progress {
                return worked;
            }
            worked = true;
        }
    }

    fn receive(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Wake => {}
            Incoming::Forward(core, message) => self.send(core, message),
            Incoming::Event(Event::CoreNotice(CoreNotice::Published { core, generation })) => {
                if let Some(a) = self.acked.get_mut(core as usize) {
                    *a = generation.max(*a);
                }
            }
            Incoming::Event(Event::CoreNotice(CoreNotice::GateDrained { ticket, .. })) => {
                self.gate_drained += usize::from(ticket == self.gates);
            }
            Incoming::Event(event) => self.topology.post(event),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Publish(changes) => {
                self.send_all(|| Message::Publish(changes.clone()));
            }
            Action::Drain { edge, ticket } => {
                self.send_all(|| Message::Drain { edge, ticket });
            }
            Action::Taste(job) => self.send_taste(job),
            Action::Converse(job) => self.send_conversation(job),
            Action::Barrier(Barrier { geom, notice, number }) => {
                // The last core to drop its share has all earlier messages behind it.
                let inbox = self.inbox.clone();
                let share = PendingConversation { inbox, geom, number, notice: Some(notice) };
                let share = Arc::new(Mutex::new(share));
                self.send_all(|| {
                    let share = share.clone();
                    Message::Call(Box::new(move |_| drop(share)))
                });
            }
        }
    }

    fn send_conversation(&mut self, job: Conversation) {
        let Conversation { geom, name, purpose: what, task, number } = job;
        let most_ns = self.deadlines.job_ns;
        let reply = PendingConversation { inbox: self.inbox.clone(), geom, number, notice: None };
        self.send(
            0,
            Message::Call(Box::new(move |core: &Rc<Core>| {
                let own = core.clone();
                core.spawn_for(what, &name, async move {
                    let mut reply = reply;
                    reply.notice = deadline(&own, most_ns, task(&own)).await;
                });
            })),
        );
    }

    fn send_taste(&mut self, job: TasteJob) {
        let taste = PendingTaste { inbox: self.inbox.clone(), job: Some(job) };
        let most_ns = self.deadlines.taste_ns;
        self.send(
            0,
            Message::Call(Box::new(move |core: &Rc<Core>| {
                let core = core.clone();
                core.reactor().clone().spawn("taste", taste.run(core, most_ns));
            })),
        );
    }

    /// True when nothing is going on: no event, no tasting, every core on the newest graph.
    pub fn is_idle(&self) -> bool {
        let newest = self.topology.generation();
        self.topology.is_idle() && self.acked.iter().all(|a| *a == newest)
    }

    /// Pumps until `done`; false when `deadline` passed first.
    pub fn wait_until(
        &mut self,
        deadline: Duration,
        mut done: impl FnMut(&GraphControl) -> bool,
    ) -> bool {
        let end = self.now_ns().saturating_add(deadline.as_nanos() as u64);
        loop {
            self.pump();
            if done(self) {
                return true;
            }
            self.run_watch();
            let now = self.now_ns();
            if now >= end {
                return false;
            }
            (self.wait)(&self.inbox, Duration::from_nanos((end - now).min(100_000_000)));
        }
    }

    /// The idle barrier: returns when all effects of a control call are done
    /// (docs/reference/geom.md 1.3).
    pub fn settle(&mut self) -> Result<(), Error> {
        let Deadlines { settle, orphans, .. } = self.deadlines;
        if self.wait_until(orphans, GraphControl::is_idle) {
            return Ok(());
        }
        self.topology.stop_waiting(true);
        if self.wait_until(settle.saturating_sub(orphans), GraphControl::is_idle) {
            return Ok(());
        }
        let what = format!(
            "the graph did not settle in {} s: waiting for {}",
            settle.as_secs(),
            self.topology.waits_for()
        );
        self.topology.stop_waiting(false);
        Err(Error::new(Errno::TimedOut, what))
    }

    /// Runs `f` on the topology and waits for the barrier.
    pub fn call<R>(
        &mut self,
        f: impl FnOnce(&mut Topology) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let out = f(&mut self.topology);
        let settled = self.settle();
        let out = out?;
        settled.map(|()| out)
    }

    /// Runs a conversation on core 0 and waits for its end, pumping events meanwhile.
    pub fn run_on_core<R: Send + 'static>(
        &mut self,
        what: &'static str,
        job: impl for<'a> FnOnce(&'a Rc<Core>) -> Local<'a, R> + Send + 'static,
    ) -> Result<R, Error> {
        let most_ns = self.deadlines.job_ns;
        let running = self.begin_on_core(what, move |core| {
            Box::pin(async move { deadline(core, most_ns, job(core)).await })
        })?;
        let most = Duration::from_nanos(most_ns) + self.deadlines.gate;
        self.wait_until(most, |_| running.is_ended());
        match running.take().flatten() {
            Some(out) => Ok(out),
            None => Err(Error::new(Errno::TimedOut, format!("{what}: a disk does not answer"))),
        }
    }

    /// Begins a conversation on core 0 and does not wait. It is for work that ends by a deadline of
    /// its own, and may take so long that other calls have to be served meanwhile.
    pub fn begin_on_core<R: Send + 'static>(
        &mut self,
        what: &'static str,
        job: impl for<'a> FnOnce(&'a Rc<Core>) -> Local<'a, R> + Send + 'static,
    ) -> Result<Running<R>, Error> {
        if self.cores.is_empty() {
            return Err(Error::new(Errno::NoDev, "no core runs"));
        }
        let (running, inbox) = (Running(Arc::default()), self.inbox.clone());
        let result = running.0.clone();
        self.send(
            0,
            Message::Call(Box::new(move |core: &Rc<Core>| {
                let core = core.clone();
                core.reactor().clone().spawn(what, async move {
                    let out = job(&core).await;
                    *result.lock() = Some(out);
                    inbox.wake();
                });
            })),
        );
        Ok(running)
    }

    /// Closes a provider to new requests and waits until none is inside.
    pub fn close_gate(&mut self, provider: ProviderId) -> Result<u32, Error> {
        // The cores must know the node before they receive the message that closes it.
        self.pump();
        let Some(node) = self.topology.node(provider) else {
            return Err(Error::new(Errno::NoEnt, "no such provider"));
        };
        self.gates += 1;
        self.gate_drained = 0;
        let ticket = self.gates;
        self.send_all(|| Message::GateClose { node, ticket });
        let wanted = self.cores.len();
        if self.wait_until(self.deadlines.gate, |c| c.gate_drained >= wanted) {
            return Ok(node);
        }
        self.open_gate(node);
        let seconds = self.deadlines.gate.as_secs();
        let what = format!("requests did not end in {seconds} s; nothing was changed");
        Err(Error::new(Errno::TimedOut, what))
    }

    /// Reopens a gate; parked requests continue in order, through the present graph.
    pub fn open_gate(&mut self, node: u32) {
        self.gates += 1;
        let mut actions = self.topology.take_actions();
        let newest = match actions.first() {
            Some(Action::Publish(changes)) => Some(changes.clone()),
            _ => None,
        };
        if newest.is_some() {
            actions.remove(0);
        }
        self.send_all(|| Message::GateOpen { node, changes: newest.clone() });
        actions.into_iter().for_each(|a| self.act(a));
    }

    /// Inserts a new geom of `class` under all users of `below` without disturbing them.
    pub fn insert(
        &mut self,
        class: &str,
        below: ProviderId,
        request: &Create<'_>,
    ) -> Result<GeomId, Error> {
        let Some(class) = self.topology.class(class) else {
            return Err(Error::new(Errno::NoEnt, format!("no class {class}")));
        };
        let own = class.verbs().iter().any(|v| v.name == "insert");
        let verb = format!("{}{} insert", if own { "" } else { "geom " }, class.name());
        let why = format!("inserted over {} by `{verb}`", self.topology.provider_name(below));
        let request = Create { members: &[below], ..*request };
        let geom = match class.create(&mut self.topology, &request) {
            Ok(geom) => geom,
            Err(e) => return self.settle().and(Err(e)),
        };
        // No class claims the content of the new provider: the geoms that have claimed it are
        // attached to the provider below, and are moved.
        let untasted = self.topology.hold_tasting(geom);
        if let Err(e) = self.splice(geom, below) {
            return Err(self.wither_failed(geom, e));
        }
        self.topology.set_why(geom, why);
        untasted.into_iter().for_each(|p| self.topology.retaste(p));
        self.settle()?;
        Ok(geom)
    }

    fn splice(&mut self, geom: GeomId, below: ProviderId) -> Result<(), Error> {
        let node = self.close_gate(below)?;
        let spliced = self.topology.splice_in(geom, below);
        self.open_gate(node);
        spliced
    }

    fn wither_failed(&mut self, geom: GeomId, error: Error) -> Error {
        self.topology.wither_geom(geom, Errno::NxIo);
        self.settle().err().unwrap_or(error)
    }

    /// Removes a transparent geom from under its users without disturbing them. The geom hurries
    /// meanwhile; if requests do not end in time, it stays and works as before.
    pub fn remove(&mut self, geom: GeomId) -> Result<(), Error> {
        let (_, above) = self.topology.sole_consumer_provider(geom)?;
        let hurry =
            |c: &mut GraphControl, on| c.topology.with_geom(geom, |g, _| g.set_draining(on));
        hurry(self, true);
        let spliced = self.close_gate(above).and_then(|node| {
            let spliced = self.topology.splice_out(geom);
            self.open_gate(node);
            spliced
        });
        if spliced.is_ok() {
            self.topology.wither_geom(geom, Errno::NxIo);
        } else {
            hurry(self, false);
        }
        self.settle()?;
        spliced
    }
}

/// Runs `f` for at most `ns`; `None` when the time is up. What `f` had in flight continues unheard.
pub async fn deadline<T>(core: &Rc<Core>, ns: u64, f: impl Future<Output = T>) -> Option<T> {
    let mut f = pin!(f);
    let mut sleep = pin!(core.reactor().sleep(ns));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(out) = f.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// A conversation that the topology waits for: its geom receives the result when this is dropped,
/// for any reason.
struct PendingConversation {
    inbox: Arc<Inbox>,
    geom: GeomId,
    number: u64,
    notice: Option<Notice>,
}

impl Drop for PendingConversation {
    fn drop(&mut self) {
        let notice = self.notice.take().unwrap_or_else(|| Box::new(Unanswered));
        self.inbox.post(Event::Conversed { geom: self.geom, number: self.number, notice });
    }
}

/// A tasting that the topology waits for: answered even when its core never gets to it.
struct PendingTaste {
    inbox: Arc<Inbox>,
    job: Option<TasteJob>,
}

impl PendingTaste {
    async fn run(mut self, core: Rc<Core>, most_ns: u64) {
        let Some(job) = &mut self.job else {
            return;
        };
        let tasted = taste(core, job, most_ns).await;
        self.job = None;
        self.inbox.post(Event::Tasted(Box::new(tasted)));
    }
}

impl Drop for PendingTaste {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let tasted = job.without_answer("the core stopped before it was tasted");
            self.inbox.post(Event::Tasted(Box::new(tasted)));
        }
    }
}

async fn taste(core: Rc<Core>, job: &mut TasteJob, most_ns: u64) -> Tasted {
    let (mut verdicts, mut late) = (Vec::new(), false);
    let mut taster = Taster {
        core: core.clone(),
        edge: job.edge,
        name: std::mem::take(&mut job.name),
        media_bytes: job.media_bytes,
        sector_bytes: job.sector_bytes,
        attrs: std::mem::take(&mut job.attrs),
        former_sizes: Vec::new(),
    };
    let until = core.reactor().fresh_now().saturating_add(most_ns);
    for TasteClass { index, class, former_sizes: ended } in &mut job.classes {
        taster.former_sizes = std::mem::take(ended);
        let left = until.saturating_sub(core.reactor().fresh_now());
        let verdict = match left {
            0 => None,
            ns => deadline(&core, ns, class.taste(&taster)).await,
        };
        late |= verdict.is_none();
        verdicts.push((*index, verdict.unwrap_or_else(|| taste_timed_out(most_ns))));
    }
    let TasteJob { provider, serial, media_bytes, consumer, content, .. } = *job;
    Tasted { provider, serial, media_bytes, outcomes: verdicts, consumer, content, late }
}

fn taste_timed_out(most_ns: u64) -> TasteOutcome {
    let s = most_ns as f64 / 1e9;
    TasteOutcome::No(format!("the disk did not answer in {s} s; retaste when it does"))
}
