//! One core: its Bios, its view of the graph, its reactor.
//!
//! Everything here runs on one thread. Methods take `&self`; no borrow is held across a call into
//! another module, except that of the table, which changes only between dispatches.

mod completions;
mod dispatch;
mod gates;
mod inflight;
mod message;
mod split;
mod table;
mod trace;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bio::{Bio, BioId, End, Errno, Flags, Op, Origin, Pool, Segs, Slab, Ticket};
use reactor::{File, Mailbox, Mailer, Reactor, TaskHandle, Token, WaitFor};

use crate::layer::{Edge, Flow, Sink};
use crate::origins::{Origins, TaskOrigins};
use crate::snapshot::Changes;
pub use message::{Call, CoreNotice, Message, Report};
use table::Table;
pub use waiting::Finished;
use waiting::Waiting;

/// Tokens of operations and timers that wake a Bio: its id, and above this kind its ticket's
/// serial number.
const TOKEN_BIO: u32 = 1;
/// Tokens of timers that carry a slot of `delayed`.
const TOKEN_DELAY: u32 = 2;
/// Bits of a token's kind that are the kind.
const TOKEN_KIND_BITS: u32 = 8;

/// How long a layer that had no memory waits before it is called again, ns.
const NOMEM_RETRY_NS: u64 = 1_000_000;

/// Children of one split in flight at once; more wait for these. Bounds the slab.
const SPLIT_WAVE: u64 = 64;

/// Frame marker of a request that the dispatcher itself cut into pieces.
const SPLIT_NODE: u32 = u32::MAX;

enum Go {
    Enter(Edge),
    Act(Flow),
    /// Its layer's `ready` is called.
    Resume,
}

struct Work {
    bio: Box<Bio>,
    go: Go,
}

struct Delay {
    ticket: Ticket,
    flow: Flow,
    /// Set when the Bio is to enter its edge again rather than act.
    again: bool,
}

pub struct Core {
    id: u32,
    weak_self: Weak<Core>,
    reactor: Reactor,
    pool: Pool,
    slab: RefCell<Slab>,
    table: RefCell<Table>,
    ready: RefCell<VecDeque<Work>>,
    running: Cell<bool>,
    sinks: RefCell<completions::Sinks>,
    waiting: RefCell<Waiting>,
    delayed: RefCell<Vec<Option<Delay>>>,
    delayed_free: RefCell<Vec<u32>>,
    parked: RefCell<BTreeMap<u32, VecDeque<Box<Bio>>>>,
    drains: RefCell<Vec<gates::Drain>>,
    splitting: Cell<bool>,
    splits: RefCell<split::Splits>,
    inbox: RefCell<Mailbox<Message>>,
    tasks: RefCell<TaskOrigins>,
    recorder: trace::Recorder,
    report: Report,
}

impl Core {
    /// A core around a reactor, on the reactor's thread. The mailer is how the topology reaches
    /// it; `report` is how it answers.
    pub fn new(
        id: u32,
        reactor: Reactor,
        pool: Pool,
        report: Report,
    ) -> (Rc<Core>, Mailer<Message>) {
        let (mailer, inbox) = reactor.mailbox();
        let core = Rc::new_cyclic(|me| Core {
            id,
            weak_self: me.clone(),
            reactor,
            pool,
            slab: RefCell::new(Slab::new()),
            table: RefCell::new(Table::default()),
            ready: RefCell::new(VecDeque::new()),
            running: Cell::new(false),
            sinks: RefCell::default(),
            waiting: RefCell::new(Waiting::default()),
            delayed: RefCell::new(Vec::new()),
            delayed_free: RefCell::new(Vec::new()),
            parked: RefCell::new(BTreeMap::new()),
            drains: RefCell::new(Vec::new()),
            splitting: Cell::new(false),
            splits: RefCell::default(),
            inbox: RefCell::new(inbox),
            tasks: RefCell::default(),
            recorder: trace::Recorder::default(),
            report,
        });
        (core, mailer)
    }

    /// Requests that tasks of this core await are entered there, by the tasks' names.
    pub fn set_origins(&self, origins: Arc<Origins>) {
        *self.tasks.borrow_mut() = TaskOrigins::new(origins);
    }

    /// Number of the core, from zero.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// A handle on it, for a task that a layer starts; `None` at the end of the core.
    pub fn handle(&self) -> Option<Rc<Core>> {
        self.weak_self.upgrade()
    }

    /// Its reactor: time, tasks, sockets.
    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Its memory.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Nanoseconds of a monotonic clock, read once a turn.
    #[inline]
    pub fn now(&self) -> u64 {
        self.reactor.now()
    }

    /// Bios of this core that have not ended.
    pub fn live(&self) -> usize {
        self.slab.borrow().live()
    }

    /// One turn of the loop: completions, timers, tasks, messages, dispatch.
    pub fn turn(self: &Rc<Self>, wait_for: WaitFor) {
        let report =
            self.reactor.turn(wait_for, &mut |token, result| self.completed(token, result));
        if report.notified || self.reactor.is_notified() {
            self.receive_messages();
        }
        self.run();
        self.check_drains();
    }

    /// Receives the messages that wait now. Messages that arrive meanwhile request the next turn by
    /// themselves, as each has done: turns that nothing has requested do not lock the inbox.
    fn receive_messages(self: &Rc<Self>) {
        let waiting = self.inbox.borrow().len();
        for _ in 0..waiting {
            let message = self.inbox.borrow_mut().try_recv();
            match message {
                Some(m) => self.receive(m),
                None => break,
            }
        }
    }

    /// Sends a new request down an edge. `fill` sets the operation; `end` is the receiver of its
    /// result.
    pub fn submit(&self, edge: Edge, end: End, fill: impl FnOnce(&mut Bio)) -> BioId {
        let mut bio = self.slab.borrow_mut().alloc();
        fill(&mut bio);
        bio.end = end;
        let id = bio.id();
        let go = Go::Enter(edge);
        // The queue is empty: the request need not wait in it.
        if self.ready.borrow().is_empty() {
            self.run_one(bio, go);
        } else {
            self.ready.borrow_mut().push_back(Work { bio, go });
            self.run();
        }
        id
    }

    /// A child of `parent` for the layer that holds it; runs after the layer has answered
    /// [`Flow::Fork`]. Inherits operation, flags (but [`Flags::FAIL_FAST`]) and origin.
    pub fn fork(&self, parent: &mut Bio, edge: Edge, fill: impl FnOnce(&mut Bio)) {
        self.fork_with(parent, edge, |_, child| fill(child));
    }

    /// The same; `fill(parent, child)` appends the child's part of the parent's data to the child's
    /// list. This allocates nothing: Bios keep their lists when they end.
    pub fn fork_with(&self, parent: &mut Bio, edge: Edge, fill: impl FnOnce(&Bio, &mut Bio)) {
        let mut bio = self.slab.borrow_mut().alloc();
        bio.op = parent.op;
        bio.flags = parent.flags.without(Flags::FAIL_FAST);
        bio.origin = parent.origin;
        bio.attr = parent.attr;
        fill(parent, &mut bio);
        bio.end = End::Parent(parent.id());
        parent.open_children += 1;
        self.ready.borrow_mut().push_back(Work { bio, go: Go::Enter(edge) });
    }

    /// Continues with a Bio for which a layer answered [`Flow::Wait`], as if the layer had answered
    /// `flow`. False when the ticket is not good: used, not the newest, or the Bio has ended.
    pub fn resume(&self, ticket: Ticket, flow: Flow) -> bool {
        let Some(bio) = self.slab.borrow_mut().wake(ticket) else {
            return false;
        };
        self.ready.borrow_mut().push_back(Work { bio, go: Go::Act(flow) });
        self.run();
        true
    }

    /// Has [`crate::Layer::ready`] called with `Ok(0)` for a Bio whose layer answered
    /// [`Flow::Wait`], after all Bios that are ready now: [`Core::wake`] without a timer. False
    /// when the ticket is not good.
    pub fn restart(&self, ticket: Ticket) -> bool {
        let Some(bio) = self.slab.borrow_mut().wake(ticket) else {
            return false;
        };
        self.ready.borrow_mut().push_back(Work { bio, go: Go::Resume });
        self.run();
        true
    }

    /// [`Core::resume`] after `ns` nanoseconds.
    pub fn after(&self, ns: u64, ticket: Ticket, flow: Flow) {
        self.delay(ns, Delay { ticket, flow, again: false });
    }

    fn delay(&self, ns: u64, delay: Delay) {
        let mut delayed = self.delayed.borrow_mut();
        let slot = match self.delayed_free.borrow_mut().pop() {
            Some(s) => s,
            None => {
                delayed.push(None);
                delayed.len() as u32 - 1
            }
        };
        delayed[slot as usize] = Some(delay);
        self.reactor.after(ns, Token { kind: TOKEN_DELAY, user_data: u64::from(slot) });
    }

    /// Registers a receiver; its number is stored in [`bio::End::Sink`] and is not given to another
    /// soon.
    pub fn add_sink(&self, sink: Rc<dyn Sink>) -> u32 {
        self.sinks.borrow_mut().add(sink)
    }

    /// Forgets a receiver. Its Bios still in flight end unheard.
    pub fn remove_sink(&self, number: u32) {
        self.sinks.borrow_mut().remove(number);
    }

    /// Reads from a file into the Bio's data; [`crate::Layer::ready`] gets the result.
    pub fn file_read(&self, bio: &Bio, file: &File, offset: u64) -> Flow {
        self.reactor.read(token_of(bio), file, offset, &bio.data);
        Flow::Wait
    }

    /// Writes the Bio's data to a file; `durable` requests stable storage.
    pub fn file_write(&self, bio: &Bio, file: &File, offset: u64, durable: bool) -> Flow {
        self.reactor.write(token_of(bio), file, offset, &bio.data, durable);
        Flow::Wait
    }

    /// Reads as [`Core::file_read`] does, but before it returns, if the file is in memory
    /// ([`Reactor::read_now`]). False: it has to be read by `file_read`.
    pub fn file_read_now(&self, bio: &Bio, file: &File, offset: u64) -> bool {
        self.reactor.read_now(file, offset, &bio.data)
    }

    /// As [`Core::file_read_now`], for [`Core::file_write`].
    pub fn file_write_now(&self, bio: &Bio, file: &File, offset: u64, durable: bool) -> bool {
        self.reactor.write_now(file, offset, &bio.data, durable)
    }

    /// As [`Core::file_read`], into buffers that are not the Bio's: aligned ones, for example.
    pub fn file_read_into(&self, bio: &Bio, file: &File, offset: u64, into: &Segs) -> Flow {
        self.reactor.read(token_of(bio), file, offset, into);
        Flow::Wait
    }

    /// As [`Core::file_write`], from buffers that are not the Bio's.
    pub fn file_write_from(
        &self,
        bio: &Bio,
        file: &File,
        offset: u64,
        from: &Segs,
        durable: bool,
    ) -> Flow {
        self.reactor.write(token_of(bio), file, offset, from, durable);
        Flow::Wait
    }

    /// Calls [`crate::Layer::ready`] with `Ok(0)` in `ns` nanoseconds, for a Bio whose layer
    /// answered [`Flow::Wait`].
    pub fn wake(&self, ticket: Ticket, ns: u64) {
        self.reactor.after(ns, token(ticket));
    }

    /// Makes everything written to a file durable.
    pub fn file_sync(&self, bio: &Bio, file: &File) -> Flow {
        self.reactor.sync(token_of(bio), file);
        Flow::Wait
    }

    /// Checks whether the request's first byte of a file is stored ([`Reactor::map`]).
    pub fn file_map(&self, bio: &Bio, file: &File) -> Flow {
        self.reactor.map(token_of(bio), file, bio.offset);
        Flow::Wait
    }

    /// Deallocates the request's range of a file.
    pub fn file_punch(&self, bio: &Bio, file: &File) -> Flow {
        self.reactor.punch(token_of(bio), file, bio.offset, bio.length);
        Flow::Wait
    }

    /// Discards the request's range of a block device ([`Reactor::discard`]).
    pub fn file_discard(&self, bio: &Bio, file: &File) -> Flow {
        self.reactor.discard(token_of(bio), file, bio.offset, bio.length);
        Flow::Wait
    }

    /// Zeroes a range of a file; `keep_allocated` forbids holes.
    pub fn file_zero(&self, bio: &Bio, file: &File, at: u64, len: u64, keep: bool) -> Flow {
        self.reactor.zero(token_of(bio), file, at, len, keep);
        Flow::Wait
    }

    /// Runs a background task, `what` (`mirror rebuild`) of `whose` (`gm0`). Its requests have an
    /// origin of their own.
    pub fn spawn_for(
        &self,
        what: &'static str,
        whose: &str,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskHandle {
        let entry = self.tasks.borrow().enter(format!("{what} {whose}"));
        self.reactor.spawn_marked(what, entry.origin().0, async move {
            let _kept = entry;
            task.await;
        })
    }

    /// The number of the task that runs. One without a name of its own gets its kind's when it
    /// first needs one, and keeps it.
    fn task_origin(&self) -> Origin {
        match self.reactor.mark() {
            0 => {
                let origin = self.tasks.borrow_mut().of(self.reactor.task());
                self.reactor.set_mark(origin.0);
                origin
            }
            mark => Origin(mark),
        }
    }

    /// A request awaited by a task of this core. Its origin is the task if `fill` sets no other. A
    /// rebuild, a look at a label and a queue of deletes are clients like initiators.
    pub async fn io(self: &Rc<Self>, edge: Edge, fill: impl FnOnce(&mut Bio)) -> Finished {
        let fill = |bio: &mut Bio| {
            fill(bio);
            if bio.origin == Origin::default() {
                bio.origin = self.task_origin();
            }
        };
        waiting::Io::start(self.clone(), edge, fill).await
    }

    /// Waits until this core knows that the provider below an edge has `end` bytes, for 2 s at
    /// most. A geom learns of a larger size before the cores do. Without the wait, metadata at the
    /// new end could be beyond the medium that this core knows.
    pub async fn wait_for_size(self: &Rc<Self>, edge: Edge, end: u64) {
        const STEP_NS: u64 = 1_000_000;
        for _ in 0..2_000 {
            let bytes = self.table.borrow().edge(edge.0).map(|e| e.node.limits.media_bytes);
            if bytes.is_none_or(|bytes| bytes >= end) {
                return;
            }
            self.reactor.sleep(STEP_NS).await;
        }
    }

    /// Reads `len` bytes at `offset` for a conversation: tasting, tables, tests.
    pub async fn read(
        self: &Rc<Self>,
        edge: Edge,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let data = self.buffers(len).await?;
        let done = self
            .io(edge, |bio| {
                bio.op = Op::Read;
                bio.offset = offset;
                bio.length = len as u64;
                bio.data = data;
            })
            .await;
        done.status?;
        let mut bytes = done.data.to_vec();
        bytes.truncate(done.completed as usize);
        Ok(bytes)
    }

    /// Writes `bytes` at `offset` for a conversation.
    pub async fn write(
        self: &Rc<Self>,
        edge: Edge,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let data = self.buffers(bytes.len()).await?;
        data.copy_from(0, bytes);
        let done = self
            .io(edge, |bio| {
                bio.op = Op::Write;
                bio.offset = offset;
                bio.length = bytes.len() as u64;
                bio.data = data;
            })
            .await;
        done.status?;
        if done.completed == bytes.len() as u64 { Ok(()) } else { Err(Errno::Io) }
    }

    /// Flushes for a conversation.
    pub async fn flush(self: &Rc<Self>, edge: Edge) -> Result<(), Errno> {
        self.io(edge, |bio| bio.op = Op::Flush).await.status
    }

    /// Buffers for a conversation; waits while the pool is exhausted.
    pub async fn buffers(&self, len: usize) -> Result<Segs, Errno> {
        if len > self.pool.usage().limit_bytes {
            return Err(Errno::NoMem);
        }
        std::future::poll_fn(|cx| match Segs::alloc(&self.pool, len) {
            Some(segs) => std::task::Poll::Ready(Ok(segs)),
            None => {
                self.wake_on_free(cx.waker());
                std::task::Poll::Pending
            }
        })
        .await
    }

    /// Wakes `waker` when a buffer returns, for tasks that found the pool exhausted.
    pub fn wake_on_free(&self, waker: &std::task::Waker) {
        self.pool.wake_on_free(waker);
        self.reactor.flush_lazy_sends();
    }

    fn completed(&self, token: Token, result: Result<u64, Errno>) {
        match token.kind & ((1 << TOKEN_KIND_BITS) - 1) {
            TOKEN_BIO => {
                let serial = token.kind >> TOKEN_KIND_BITS;
                self.operation_ended(Ticket::from_words(serial, token.user_data), result);
            }
            TOKEN_DELAY => {
                let slot = token.user_data as usize;
                let delay = self.delayed.borrow_mut().get_mut(slot).and_then(Option::take);
                let Some(delay) = delay else { return };
                self.delayed_free.borrow_mut().push(slot as u32);
                if delay.again {
                    self.enter_again(delay.ticket);
                } else {
                    self.resume(delay.ticket, delay.flow);
                }
            }
            _ => {}
        }
    }

    fn enter_again(&self, ticket: Ticket) {
        let Some(bio) = self.slab.borrow_mut().wake(ticket) else {
            return;
        };
        let edge = Edge(bio.edge);
        self.ready.borrow_mut().push_back(Work { bio, go: Go::Enter(edge) });
        self.run();
    }

    fn receive(self: &Rc<Self>, message: Message) {
        match message {
            Message::Publish(changes) => self.publish(&changes),
            Message::GateClose { node, ticket } => self.close_gate(node, ticket),
            Message::GateOpen { node, changes } => self.open_gate(node, changes),
            Message::Drain { edge, ticket } => self.drain(gates::Subject::Edge(edge), ticket),
            Message::Call(call) => call(self),
        }
    }

    fn publish(&self, changes: &Changes) {
        self.table.borrow_mut().refresh(changes, self.id as usize);
        self.post_notice(CoreNotice::Published { core: self.id, generation: changes.generation });
    }

    fn post_notice(&self, notice: CoreNotice) {
        (self.report)(notice);
    }
}

fn token_of(bio: &Bio) -> Token {
    token(bio.ticket())
}

fn token(ticket: Ticket) -> Token {
    let (serial, word) = ticket.to_words();
    Token { kind: TOKEN_BIO | serial << TOKEN_KIND_BITS, user_data: word }
}

/// Shares a closure as a [`Report`].
pub fn report(f: impl Fn(CoreNotice) + Send + Sync + 'static) -> Report {
    Arc::new(f)
}
