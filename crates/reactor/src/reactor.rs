//! The handle on a core's reactor, and the data path.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bio::{Direction, Errno, Loan, Segs};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::backend::{Port, PortChoice, PortKind, PortReport, Reaped, SimPort, run_inline};
use crate::file::{File, Run};
use crate::ops::{End, On, Op, OpState, SlotId, Slots, Token};
use crate::prepare::Prepared;
use crate::random::Random;
use crate::sim::World;
use crate::tasks::{TaskHandle, Tasks};
use crate::timers::{Alarm, TimerId, Timers};
use crate::wakeup::Remote;

/// fallocate(2): FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE.
const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;
const ZERO_RANGE: u32 = 0x10;

/// How a reactor shall run.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Its name, for logs and threads.
    pub name: String,
    /// The way to the kernel.
    pub port: PortChoice,
    /// How long to look for work before sleep, in ns; 0 sleeps at once. With 50 us the latency of a
    /// lone request halves, and a busy core pays nothing.
    pub spin_ns: u64,
    /// The cpu to stay on; None leaves it to the kernel.
    pub cpu: Option<usize>,
}

/// Operations handed to the kernel, and their completions.
pub(crate) struct Kernel {
    pub(crate) slots: Slots,
    pub(crate) port: Port,
    pub(crate) reaped: Reaped,
}

pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) spin_ns: u64,
    pub(crate) report: PortReport,
    /// None on a real kernel.
    pub(crate) world: Option<World>,
    pub(crate) now: Cell<u64>,
    pub(crate) kernel: RefCell<Kernel>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) random: RefCell<Random>,
    /// Operations that ended without the kernel; the next turn reports them.
    pub(crate) instant: RefCell<VecDeque<(Token, Result<u64, Errno>)>>,
    pub(crate) scratch: RefCell<crate::turn::Scratch>,
    /// Work before the next call to the kernel.
    pub(crate) prepared: Prepared,
}

/// A handle on the reactor of this thread. Clones share it; it never leaves its thread.
#[derive(Clone)]
pub struct Reactor {
    pub(crate) inner: Rc<Inner>,
}

impl Reactor {
    /// Starts a reactor on the thread that will run it, pinned first if `Config` names a cpu.
    /// Fails when the requested port is not available, or the cpu does not exist.
    pub fn start(config: Config) -> io::Result<Reactor> {
        Reactor::start_refusing(config, None)
    }

    /// As `start`, as if io_uring_setup had failed with `refuse_uring`.
    pub(crate) fn start_refusing(
        config: Config,
        refuse_uring: Option<io::Error>,
    ) -> io::Result<Reactor> {
        let cpus = sched_getaffinity(None)?;
        if let Some(cpu) = config.cpu {
            pin(cpu)?;
        }
        let remote = Remote::new(Some(eventfd(0, EventfdFlags::CLOEXEC)?));
        let (port, report) = Port::open(config.port, &remote, refuse_uring)?;
        if config.cpu.is_some()
            && let Port::Uring(ring) = &port
        {
            ring.free_workers(&cpus);
        }
        let kernel = (port, report);
        Ok(Reactor::assemble(config, kernel, remote, Random::kernel(), None))
    }

    /// A reactor of a simulated world. It takes its turns in [`World::run`]; those never wait.
    pub fn simulated(world: &World, name: &str) -> Reactor {
        let (port, seeded) = world.enroll();
        let report = PortReport {
            kind: PortKind::Simulated,
            why: format!("simulated, seed {}", world.seed()),
        };
        let config = Config { name: name.to_string(), ..Config::default() };
        let kernel = (Port::Sim(Box::new(SimPort::new(world, port))), report);
        let random = Random::Seeded(seeded);
        Reactor::assemble(config, kernel, Remote::new(None), random, Some(world.clone()))
    }

    fn assemble(
        config: Config,
        (port, report): (Port, PortReport),
        remote: Arc<Remote>,
        random: Random,
        world: Option<World>,
    ) -> Reactor {
        let now = world.as_ref().map_or_else(clock, World::now);
        Reactor {
            inner: Rc::new(Inner {
                name: config.name,
                spin_ns: config.spin_ns,
                report,
                world,
                now: Cell::new(now),
                kernel: RefCell::new(Kernel {
                    slots: Slots::default(),
                    port,
                    reaped: Reaped::new(),
                }),
                timers: RefCell::default(),
                tasks: Rc::new(Tasks::new(remote.clone())),
                remote,
                random: RefCell::new(random),
                instant: RefCell::default(),
                scratch: RefCell::default(),
                prepared: Prepared::default(),
            }),
        }
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Which way to the kernel is used, and why.
    pub fn port(&self) -> PortReport {
        self.inner.report.clone()
    }

    /// The clock as the present turn read it: ns, monotonic.
    #[inline]
    pub fn now(&self) -> u64 {
        self.inner.now.get()
    }

    /// The clock read again: ns, monotonic.
    pub fn fresh_now(&self) -> u64 {
        match &self.inner.world {
            Some(world) => world.now(),
            None => clock(),
        }
    }

    /// An unpredictable number (the kernel's generator); seeded in simulation.
    pub fn random(&self) -> u64 {
        let mut word = [0; 8];
        self.fill_random(&mut word);
        u64::from_le_bytes(word)
    }

    /// Unpredictable bytes (the kernel's generator); seeded in simulation.
    pub fn fill_random(&self, out: &mut [u8]) {
        self.inner.random.borrow_mut().fill(out);
    }

    /// Reads `into.len()` bytes from `offset`. The result is the number of bytes read, which is
    /// smaller at the end of the file.
    pub fn read(&self, token: Token, file: &File, offset: u64, into: &Segs) {
        let op = Op::Read { offset };
        if self.needs_kernel(token, offset, into) {
            self.submit(token, op, file, |loans| {
                loans.extend(into.iter().map(|s| s.lend(Direction::In)));
            });
        }
    }

    /// Reads as [`Reactor::read`] does, but before it returns, where the call only copies: a short
    /// one on a file in memory. True: all bytes were read. False: call `read`.
    pub fn read_now(&self, file: &File, offset: u64, into: &Segs) -> bool {
        self.call_now(Op::Read { offset }, file, into.len(), |loans| {
            loans.extend(into.iter().map(|s| s.lend(Direction::In)));
        })
    }

    /// Writes as [`Reactor::write`] does, but before it returns, where the call only copies. True:
    /// all bytes were written. False: some may have been; call `write`.
    pub fn write_now(&self, file: &File, offset: u64, from: &Segs, durable: bool) -> bool {
        self.call_now(Op::Write { offset, durable }, file, from.len(), |loans| {
            loans.extend(from.iter().map(|s| s.lend(Direction::Out)));
        })
    }

    /// Whether a call was made that has moved all bytes.
    fn call_now(
        &self,
        op: Op,
        file: &File,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<Loan>),
    ) -> bool {
        if !file.facts().is_in_memory || bytes == 0 {
            return false;
        }
        let slots = &mut self.inner.kernel.borrow_mut().slots;
        let Ok(id) = slots.take(op, On::File(file.clone()), End::NoReceiver) else { return false };
        let result = slots.get(id).and_then(|slot| {
            fill(&mut slot.loans);
            slot.filled();
            run_inline(slot, id)
        });
        slots.free(id);
        result.is_some_and(|moved| usize::try_from(moved) == Ok(bytes))
    }

    /// Finds out from the file system whether the byte at `offset` is stored: see [`Run`]. It may
    /// have to read its map, so a thread of the port calls it. The result is [`Run::of_result`]'s.
    pub fn map(&self, token: Token, file: &File, offset: u64) {
        match file.sim_disk() {
            Some(disk) => {
                let len = disk.with(|d| d.size()).saturating_sub(offset);
                self.complete_later(token, Ok(Run { is_data: true, len }.to_result()));
            }
            None => self.submit(token, Op::Map { offset }, file, |_| ()),
        }
    }

    /// Writes `from` at `offset`, all of it or an error; `durable` (RWF_DSYNC) ends only when it
    /// is on stable storage.
    pub fn write(&self, token: Token, file: &File, offset: u64, from: &Segs, durable: bool) {
        let op = Op::Write { offset, durable };
        if self.needs_kernel(token, offset, from) {
            self.submit(token, op, file, |loans| {
                loans.extend(from.iter().map(|s| s.lend(Direction::Out)));
            });
        }
    }

    /// Puts everything written before on stable storage (fdatasync).
    pub fn sync(&self, token: Token, file: &File) {
        self.submit(token, Op::Sync, file, |_| ());
    }

    /// Gives the range back to the file system or disk; it reads as zeros. `NotSup` when it
    /// cannot.
    pub fn punch(&self, token: Token, file: &File, offset: u64, len: u64) {
        self.allocate(token, file, PUNCH_HOLE | KEEP_SIZE, offset, len);
    }

    /// Discards a range of a block device (BLKDISCARD). Later reads of the range return any content
    /// that the device chooses, and it may leave parts of the range unchanged. Ends with `NotSup`
    /// for files and for devices without support.
    pub fn discard(&self, token: Token, file: &File, offset: u64, len: u64) {
        self.on_range(token, file, Op::Discard { offset, len }, offset, len);
    }

    /// Zeroes the range, keeping its blocks (`keep_allocated`) or giving them back. `NotSup` when
    /// the file system or disk has no such command: write zeros then.
    pub fn zero(&self, token: Token, file: &File, offset: u64, len: u64, keep_allocated: bool) {
        let how = if keep_allocated { ZERO_RANGE } else { PUNCH_HOLE };
        self.allocate(token, file, how | KEEP_SIZE, offset, len);
    }

    fn allocate(&self, token: Token, file: &File, mode: u32, offset: u64, len: u64) {
        self.on_range(token, file, Op::Allocate { mode, offset, len }, offset, len);
    }

    fn on_range(&self, token: Token, file: &File, op: Op, offset: u64, len: u64) {
        match offset.checked_add(len).map(i64::try_from) {
            Some(Ok(_)) if len == 0 => self.complete_later(token, Ok(0)),
            Some(Ok(_)) => self.submit(token, op, file, |_| ()),
            _ => self.complete_later(token, Err(Errno::Inval)),
        }
    }

    fn needs_kernel(&self, token: Token, offset: u64, data: &Segs) -> bool {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|e| i64::try_from(e).is_err()) {
            self.complete_later(token, Err(Errno::Inval));
        } else if data.is_empty() {
            self.complete_later(token, Ok(0));
        } else {
            return true;
        }
        false
    }

    fn submit(&self, token: Token, op: Op, file: &File, fill: impl FnOnce(&mut Vec<Loan>)) {
        let on = On::File(file.clone());
        if let Err(e) = self.begin(op, on, End::Token(token), fill) {
            self.complete_later(token, Err(e));
        }
    }

    fn complete_later(&self, token: Token, result: Result<u64, Errno>) {
        self.inner.instant.borrow_mut().push_back((token, result));
    }

    pub(crate) fn begin(
        &self,
        op: Op,
        on: On,
        end: End,
        fill: impl FnOnce(&mut Vec<Loan>),
    ) -> Result<SlotId, Errno> {
        let mut kernel = self.inner.kernel.borrow_mut();
        let Kernel { slots, port, .. } = &mut *kernel;
        let id = slots.take(op, on, end)?;
        if let Some(slot) = slots.get(id) {
            fill(&mut slot.loans);
            slot.filled();
        }
        port.start(slots, id);
        Ok(id)
    }

    /// Requests wait for buffer memory: the next turn does not sleep on sends that
    /// [`crate::Stream::send_lazily`] began since the last one, but frees their memory.
    pub fn flush_lazy_sends(&self) {
        self.inner.kernel.borrow_mut().port.flush_lazy_sends();
    }

    /// Cancels an operation without a waiter; its slot is freed when its completion is reaped.
    pub(crate) fn abandon(&self, id: SlotId) {
        let mut kernel = self.inner.kernel.borrow_mut();
        let Kernel { slots, port, .. } = &mut *kernel;
        let Some(slot) = slots.get(id) else { return };
        let waker = std::mem::replace(&mut slot.end, End::NoReceiver);
        if slot.state == OpState::Started {
            slot.cancelled = true;
            port.cancel(slots, id);
        } else {
            slots.free(id);
        }
        drop(kernel);
        drop(waker);
    }

    pub fn after(&self, ns: u64, token: Token) -> TimerId {
        let due = self.now().saturating_add(ns);
        self.inner.timers.borrow_mut().set(due, Alarm::Token(token))
    }

    /// Takes a timer back; harmless when it has fired.
    pub fn cancel(&self, timer: TimerId) {
        let alarm = self.inner.timers.borrow_mut().cancel(timer);
        drop(alarm);
    }

    /// Runs `task` on this reactor, a part at each turn in which it can continue.
    pub fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskHandle {
        self.spawn_marked(name, 0, task)
    }

    /// The same with a number that belongs to the task ([`Reactor::mark`]).
    pub fn spawn_marked(
        &self,
        name: &'static str,
        mark: u32,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskHandle {
        let key = self.inner.tasks.spawn(name, mark, Box::pin(task));
        TaskHandle::new(self.inner.tasks.clone(), key)
    }

    /// The name of the task that runs; empty outside of tasks.
    pub fn task(&self) -> &'static str {
        self.inner.tasks.running()
    }

    /// The number that the task that runs was marked with; zero: none, or outside of tasks.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.inner.tasks.mark()
    }

    /// Marks the task that runs; nothing outside of tasks.
    pub fn set_mark(&self, mark: u32) {
        self.inner.tasks.set_mark(mark);
    }

    /// Names of the tasks that have not ended.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.inner.tasks.names()
    }

    /// Operations in the kernel's hands or waiting for it.
    pub fn in_flight(&self) -> usize {
        self.inner.kernel.borrow().slots.busy()
    }

    /// Waits `ns` nanoseconds, by the reactor's clock.
    pub async fn sleep(&self, ns: u64) {
        let mut sleep = Sleep { reactor: self, due: self.now().saturating_add(ns), timer: None };
        poll_fn(|cx| sleep.poll(cx.waker())).await;
    }

    /// Lets every other ready task and completion precede this one.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// True when the next turn was requested by a message or from another thread.
    pub fn is_notified(&self) -> bool {
        self.inner.remote.is_notified()
    }

    /// True when a turn would find something to do; for simulated worlds.
    pub(crate) fn is_ready(&self) -> bool {
        // A world looks at every reactor before each turn: cheap and frequent causes are first.
        let inner = &*self.inner;
        !inner.tasks.is_idle()
            || inner.remote.is_notified()
            || self.next_timer().is_some_and(|due| due <= self.fresh_now())
            || !inner.instant.borrow().is_empty()
            || !inner.prepared.is_empty()
            || matches!(&inner.kernel.borrow().port, Port::Sim(port) if port.has_news())
    }

    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.inner.timers.borrow().next_due()
    }

    /// Drops all tasks and prepared work, cancels every operation in the kernel and waits for their
    /// ends. Tasks hold handles on the reactor they run on: without this they keep each other
    /// alive.
    ///
    /// Returns a text for the log for each operation that the kernel did not give back within
    /// seconds (a file system that hangs). The memory and the descriptors of these operations are
    /// never freed.
    pub fn shutdown(&self) -> Vec<String> {
        self.inner.tasks.abort_all();
        self.inner.prepared.clear();
        let alarms = self.inner.timers.borrow_mut().clear();
        drop(alarms);
        self.inner.close()
    }
}

struct Sleep<'a> {
    reactor: &'a Reactor,
    due: u64,
    timer: Option<TimerId>,
}

impl Sleep<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        if self.reactor.now() >= self.due {
            return Poll::Ready(());
        }
        let mut timers = self.reactor.inner.timers.borrow_mut();
        if !self.timer.is_some_and(|t| timers.rewake(t, waker)) {
            self.timer = Some(timers.set(self.due, Alarm::Wake(waker.clone())));
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.reactor.cancel(timer);
        }
    }
}

impl Inner {
    fn close(&self) -> Vec<String> {
        let mut kernel = self.kernel.borrow_mut();
        let Kernel { slots, port, .. } = &mut *kernel;
        if port.close(slots) {
            return Vec::new();
        }
        // Something never returned: its memory is lost, not freed under the kernel.
        let left = slots.started().into_iter().filter_map(|id| Some(slots.get(id)?.describe()));
        let left = left.collect();
        std::mem::forget(std::mem::take(slots));
        left
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.close();
    }
}

pub fn clock() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let sec = u64::try_from(t.tv_sec).unwrap_or(0);
    sec.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
}

fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::WaitFor;

    #[test]
    fn hung_call_is_abandoned_and_named() {
        let (reading, writing) = io::pipe().unwrap();
        let r = Reactor::start(Config { port: PortChoice::Poll, ..Config::default() }).unwrap();
        let file = File::of(reading.into(), "a pipe");
        let pool = bio::Pool::new(bio::PoolConfig::default());
        let into = Segs::alloc(&pool, 512).unwrap();
        // From wherever the pipe is: a position of its own it does not have.
        r.submit(Token::default(), Op::Read { offset: u64::MAX }, &file, |loans| {
            loans.extend(into.iter().map(|s| s.lend(Direction::In)));
        });
        drop(into);
        let has_begun = || match &r.inner.kernel.borrow().port {
            Port::Poll(port) => port.calls_have_begun(),
            _ => unreachable!("it is the poll port"),
        };
        while !has_begun() {
            r.turn(WaitFor::Peek, &mut |_, _| panic!("nothing was written"));
        }
        let left = r.shutdown();
        assert!(matches!(left.as_slice(), [one] if one.contains("a pipe")), "{left:?}");
        assert_eq!(r.shutdown(), Vec::<String>::new(), "it is not waited for twice");
        drop(r);
        assert!(pool.usage().used_bytes > 0, "its memory may still be written");
        drop(writing);
    }

    #[test]
    fn auto_port_falls_back_with_a_reason_if_io_uring_is_forbidden() {
        let refuse = || Some(io::Error::from_raw_os_error(1));
        let r = Reactor::start_refusing(Config::default(), refuse()).unwrap();
        assert_eq!(r.port().kind, PortKind::Poll);
        assert!(r.port().why.contains("not permitted"), "{}", r.port());
        r.after(0, Token::default());
        let mut seen = 0;
        r.turn(WaitFor::Forever, &mut |_, _| seen += 1);
        assert_eq!(seen, 1, "and it works");

        let must = Config { port: PortChoice::Uring, ..Config::default() };
        let e = Reactor::start_refusing(must, refuse()).err().unwrap();
        assert_eq!(e.raw_os_error(), Some(1));
    }
}
