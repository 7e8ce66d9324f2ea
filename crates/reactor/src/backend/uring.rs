//! The io_uring port.
//!
//! Invariants
//!  U1  At most one `io_uring_enter` a turn (one more each time the submission queue fills up).
//!  U2  It never waits with a zero timeout, and gives a timeout only when there is a deadline. A
//!      look costs 0.2 us, a zero wait 18 us.
//!  U3  Every pointer in a submission points into a started slot, which outlives it (O1, O2).
//!  U4  The ring is dropped only after everything in flight was cancelled and reaped. Operations
//!      that do not end in time are leaked and never freed under the kernel.
//!  U5  A lazy send completes within the call that submits it and posts no completion. Or it
//!      reports at once that it did not, and is continued like any other send. One call sends a
//!      reply and waits for the next request, and no timer guards it.
//!  U6  An operation with a waiter, such as any send that is not lazy, ends the wait. A turn in
//!      which requests wait for memory (`heed`) does not sleep on lazy sends, whose memory it
//!      frees.
//!  U7  A discard that this kernel's ring refuses is repeated as a system call of a worker thread.
//!      The result of that call is reported: the ring does not distinguish its own refusal from the
//!      device's.
//!  U8  A short call on a file in memory never enters the ring, which would hand it to a thread. It
//!      is made at once; the next `gather` reports it and does not wait. That `gather` does not
//!      enter the kernel only to submit something, but never twice in a row.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring, Probe, opcode, types};

use crate::backend::LAST_WAIT;
use crate::backend::entry::entry;
use crate::backend::workers::{Job, Workers, run_inline};
use crate::backend::{Reaped, Wait};
use crate::ops::{On, Op, SlotId, Slots, raw};
use crate::wakeup::Remote;

/// Entries of the submission queue. When it is full, it is submitted at once, and entries that the
/// kernel does not accept then wait in `backlog`.
const SUBMISSIONS: u32 = 512;

/// Entries of the completion queue; the kernel keeps further completions until there is space.
const COMPLETIONS: u32 = 4096;

/// Kernel threads for operations that block, [on files, on others]; more wait in line.
const WORKERS: [u32; 2] = [4, 4];

const EVENTFD: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

enum Waiting {
    Start(SlotId),
    Cancel(SlotId),
}

pub(crate) struct Uring {
    ring: IoUring,
    remote: Arc<Remote>,
    eventfd_value: Box<u64>,
    eventfd_armed: bool,
    no_iowait: bool,
    taskrun_flag: bool,
    in_flight: usize,
    /// Lazy sends that were queued and have no completion yet (U5).
    quiet: Vec<SlotId>,
    /// The kernel can omit the completions of successful operations.
    skips: bool,
    /// The next wait does not sleep on lazy sends (U6).
    flush_lazy: bool,
    /// Operations for which the submission queue had no space, in order.
    backlog: VecDeque<Waiting>,
    /// Operations that the ring does not support (U7).
    calls: Workers,
    /// Ended, to be reported by the next `gather` (U8).
    ready: Reaped,
    /// The last `gather` had results of its own and did not enter the kernel (U8).
    deferred_enter: bool,
}

/// Builds the ring with the best set of flags that the kernel knows.
fn build() -> io::Result<(IoUring, &'static str, bool)> {
    let mut last = io::Error::from_raw_os_error(22);
    for level in 0..3 {
        let mut b = IoUring::builder();
        b.setup_cqsize(COMPLETIONS).setup_clamp();
        let (how, taskrun) = match level {
            0 => {
                b.setup_single_issuer().setup_defer_taskrun();
                b.setup_taskrun_flag().setup_submit_all();
                ("deferred task work", true)
            }
            1 => {
                b.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
                ("cooperative task work: kernel before 6.1", true)
            }
            _ => ("plain: kernel before 5.19", false),
        };
        match b.build(SUBMISSIONS) {
            Ok(ring) => return Ok((ring, how, taskrun)),
            Err(e) if e.raw_os_error() == Some(22) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

fn check(ring: &IoUring) -> io::Result<()> {
    let p = ring.params();
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let codes = [
        opcode::Readv::CODE,
        opcode::Read::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::Recv::CODE,
        opcode::RecvMsg::CODE,
        opcode::SendMsg::CODE,
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let known = codes.iter().all(|&c| probe.is_supported(c));
    if known && p.is_feature_ext_arg() && p.is_feature_nodrop() && p.is_feature_fast_poll() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this kernel's io_uring is too old (5.11 is needed)",
    ))
}

impl Uring {
    /// A ring that belongs to this thread, and how it was set up.
    pub(crate) fn open(remote: &Arc<Remote>) -> io::Result<(Uring, &'static str)> {
        let (ring, how, taskrun_flag) = build()?;
        check(&ring)?;
        // Best effort: kernels before 5.15 keep their own bound.
        let _ = ring.submitter().register_iowq_max_workers(&mut WORKERS.clone());
        let no_iowait = ring.params().is_feature_no_iowait();
        let skips = ring.params().is_feature_skip_cqe_on_success();
        let port = Uring {
            ring,
            remote: remote.clone(),
            eventfd_value: Box::new(0),
            eventfd_armed: false,
            no_iowait,
            taskrun_flag,
            in_flight: 0,
            quiet: Vec::new(),
            skips,
            flush_lazy: false,
            backlog: VecDeque::new(),
            calls: Workers::new(remote.clone()),
            ready: Reaped::new(),
            deferred_enter: false,
        };
        Ok((port, how))
    }

    /// Lets the kernel's workers run on `cpus` although this thread is pinned to one.
    pub(crate) fn free_workers(&self, cpus: &rustix::thread::CpuSet) {
        let _ = self.ring.submitter().register_iowq_aff(&kernel_set(cpus));
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, id: SlotId) {
        if let Some(result) = slots.get(id).and_then(|slot| run_inline(slot, id)) {
            self.ready.push((id, result));
            return;
        }
        // The ring knows no lseek.
        if let Some(slot) = slots.get(id).filter(|slot| matches!(slot.op, Op::Map { .. })) {
            let call = self.calls.put(Job::of(slot, id));
            self.ready.extend(call.map(|call| (id, call)));
            return;
        }
        self.in_flight += 1;
        if !self.backlog.is_empty() || !self.place(slots, id) {
            self.backlog.push_back(Waiting::Start(id));
        }
    }

    pub(crate) fn cancel(&mut self, id: SlotId) {
        if !self.backlog.is_empty() || !self.place_cancel(id) {
            self.backlog.push_back(Waiting::Cancel(id));
        }
    }

    fn place_cancel(&mut self, id: SlotId) -> bool {
        let entry = opcode::AsyncCancel::new(id.to_word()).build();
        self.push(entry.user_data(CANCEL))
    }

    fn place(&mut self, slots: &mut Slots, id: SlotId) -> bool {
        match slots.get(id) {
            Some(slot) => {
                if !self.skips && matches!(slot.op, Op::Send { lazily: true }) {
                    slot.op = Op::Send { lazily: false };
                }
                let lazily = slot.op == Op::Send { lazily: true };
                let entry = entry(slot).user_data(id.to_word());
                let placed = self.push(entry);
                if placed && lazily {
                    self.quiet.push(id);
                }
                placed
            }
            None => true,
        }
    }

    fn push(&mut self, entry: Entry) -> bool {
        if self.ring.submission().is_full() {
            self.enter(0, None);
        }
        // SAFETY: U3 for slots; the bell's word is boxed and lives as long as the ring.
        unsafe { self.ring.submission().push(&entry).is_ok() }
    }

    fn arm_eventfd(&mut self) {
        let Some(fd) = self.remote.eventfd().map(|b| b.as_raw_fd()) else {
            return;
        };
        let word: *mut u64 = &mut *self.eventfd_value;
        let entry = opcode::Read::new(types::Fd(fd), word.cast(), 8).build();
        self.eventfd_armed = self.push(entry.user_data(EVENTFD));
    }

    /// Submits the queued entries; waits for `want` completions at most `limit`.
    fn enter(&mut self, want: u32, limit: Option<u64>) {
        let queued = self.ring.submission().len() as u32;
        let mut flags = EnterFlags::GETEVENTS;
        if self.no_iowait && want > 0 {
            flags |= EnterFlags::NO_IOWAIT;
        }
        let submitter = self.ring.submitter();
        let result = match limit {
            Some(ns) => {
                let time = types::Timespec::from(Duration::from_nanos(ns));
                let args = types::SubmitArgs::new().timespec(&time);
                let flags = flags | EnterFlags::EXT_ARG;
                // SAFETY: `args` and `time` outlive the call; entries obey U3.
                unsafe { submitter.enter(queued, want, flags.bits(), Some(&args)) }
            }
            // SAFETY: as above, without an argument.
            None => unsafe { submitter.enter::<u8>(queued, want, flags.bits(), None) },
        };
        // For any error (EINTR, ETIME, EBUSY, EAGAIN): entries not taken are still queued and
        // completions still leave the queue, so the next turn tries again.
        let _ = result;
    }

    fn flush_backlog(&mut self, slots: &mut Slots) {
        while let Some(next) = self.backlog.front() {
            let placed = match *next {
                Waiting::Start(id) => self.place(slots, id),
                Waiting::Cancel(id) => self.place_cancel(id),
            };
            if !placed {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// True when an enter has an effect: to submit, or announced by the kernel.
    fn needs_enter(&mut self) -> bool {
        if self.in_flight == 0 && self.ring.submission().is_empty() {
            return false;
        }
        let queue = self.ring.submission();
        !self.taskrun_flag || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    pub(crate) fn gather(&mut self, slots: &mut Slots, wait: Wait, out: &mut Reaped) {
        self.flush_backlog(slots);
        let has_results = !self.ready.is_empty();
        let wait = if has_results { Wait::Peek } else { wait };
        // U8
        self.deferred_enter = has_results && !self.deferred_enter;
        match wait {
            Wait::Peek if self.deferred_enter => {}
            Wait::Peek => {
                if self.needs_enter() {
                    self.enter(0, None);
                }
            }
            Wait::Park(limit) => {
                if !self.eventfd_armed {
                    self.arm_eventfd();
                }
                self.park(limit);
            }
        }
        // Operations that were not submitted have freed no memory yet.
        self.flush_lazy &= self.deferred_enter;
        out.append(&mut self.ready);
        self.calls.take_results(out);
        self.reap(slots, out);
        self.reap_quiet(slots, out);
    }

    /// The next wait does not sleep on lazy sends (U6).
    pub(crate) fn flush_lazy_sends(&mut self) {
        self.flush_lazy = true;
    }

    /// Submits and sleeps (U6).
    fn park(&mut self, limit: Option<u64>) {
        match self.flush_lazy && !self.quiet.is_empty() {
            true => self.enter(0, None),
            false => self.enter(1, limit),
        }
    }

    /// Lazy sends that the kernel took without a completion have succeeded (U5).
    fn reap_quiet(&mut self, slots: &mut Slots, out: &mut Reaped) {
        if self.quiet.is_empty() {
            return;
        }
        let queue = self.ring.submission();
        let taken = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        if !taken || !self.ring.completion().is_empty() {
            // Their completions may be among those that were not read yet.
            return;
        }
        for id in self.quiet.drain(..) {
            self.in_flight -= 1;
            let sent = slots.get(id).map_or(0, |slot| slot.iov.iter().map(|v| v.len as i64).sum());
            out.push((id, sent));
        }
    }

    fn reap(&mut self, slots: &mut Slots, out: &mut Reaped) {
        for entry in self.ring.completion() {
            match entry.user_data() {
                EVENTFD => self.eventfd_armed = false,
                CANCEL => {}
                word => {
                    let id = SlotId::from_word(word);
                    self.in_flight -= 1;
                    let slot = slots.get(id);
                    match slot.as_ref().map(|slot| (slot.op, &slot.on)) {
                        Some((Op::Discard { .. }, _)) if is_unknown(entry.result()) => {
                            let Some(slot) = slot else { continue };
                            out.extend(self.calls.put(Job::of(slot, id)).map(|call| (id, call)));
                            continue;
                        }
                        Some((Op::Recv { .. }, On::Socket(socket))) => {
                            let more = io_uring::cqueue::sock_nonempty(entry.flags());
                            socket.set_drained(!more);
                        }
                        Some((Op::Send { lazily: true }, _)) => self.quiet.retain(|q| *q != id),
                        _ => {}
                    }
                    out.push((id, i64::from(entry.result())));
                }
            }
        }
    }

    /// Cancels all and waits for it (U4). True when nothing is left in the kernel's hands.
    pub(crate) fn close(&mut self, slots: &mut Slots) -> bool {
        for id in slots.started() {
            self.cancel(id);
        }
        let deadline = Instant::now() + LAST_WAIT;
        let mut out = std::mem::take(&mut self.ready);
        out.drain(..).for_each(|(id, _)| slots.free(id));
        let busy = |port: &Uring| port.in_flight > 0 || port.calls.is_busy();
        while busy(self) && Instant::now() < deadline {
            self.flush_backlog(slots);
            self.enter(1, Some(10_000_000));
            self.calls.take_results(&mut out);
            self.reap(slots, &mut out);
            self.reap_quiet(slots, &mut out);
            out.drain(..).for_each(|(id, _)| slots.free(id));
        }
        let left = busy(self);
        // Nothing more is waited for.
        self.in_flight = 0;
        self.calls.abandon();
        !left
    }
}

/// A kernel before 5.19 does not know commands, one before 6.12 no discard, and a device may not.
fn is_unknown(result: i32) -> bool {
    matches!(-i64::from(result), raw::EINVAL | raw::ENOTTY | raw::EOPNOTSUPP)
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The bell's read may still be armed: its word stays with the kernel.
        if self.eventfd_armed {
            std::mem::forget(std::mem::take(&mut self.eventfd_value));
        }
    }
}

/// The same cpus as `struct cpu_set_t` of libc, which the ring wants.
fn kernel_set(cpus: &rustix::thread::CpuSet) -> libc::cpu_set_t {
    // SAFETY: a set of zeroes is an empty one: a plain array of words.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let is_usable = |&cpu: &usize| cpu < rustix::thread::CpuSet::MAX_CPU && cpus.is_set(cpu);
    for cpu in (0..size_of::<libc::cpu_set_t>() * 8).filter(is_usable) {
        // SAFETY: `cpu` is below the bits of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use bio::{Pool, PoolConfig, Seg};

    use crate::backend::PortChoice;
    use crate::{Config, Reactor, Stream, WaitFor};

    /// A bound that no test may reach.
    const LIMIT: Duration = Duration::from_secs(30);

    fn page(pool: &Pool) -> Seg {
        pool.get(4096).unwrap().seg(0, 4096).unwrap()
    }

    /// A ring with an accept under way that nothing will end, and both ends of a connection.
    fn ring() -> (Reactor, Stream, Stream) {
        let config = Config { port: PortChoice::Uring, ..Config::default() };
        let r = Reactor::start(config).expect("io_uring works on the machine of the tests");
        let pair: Rc<Cell<Option<(Stream, Stream)>>> = Rc::default();
        let (r2, put) = (r.clone(), pair.clone());
        drop(r.spawn("pair", async move {
            let listener = r2.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let a = r2.connect(listener.local_addr()).await.unwrap();
            let (b, _) = listener.accept().await.unwrap();
            put.set(Some((a, b)));
            let _ = listener.accept().await;
        }));
        loop {
            r.turn(WaitFor::Forever, &mut |_, _| ());
            if let Some((a, b)) = pair.take() {
                return (r, a, b);
            }
        }
    }

    /// Turns until `done`; a turn that waits in vain ends by its deadline.
    fn run(r: &Reactor, done: &Cell<bool>) {
        let start = Instant::now();
        while !done.get() {
            let until = r.fresh_now() + LIMIT.as_nanos() as u64;
            r.turn(WaitFor::Until(until), &mut |_, _| ());
        }
        assert!(start.elapsed() < LIMIT, "a turn waited in vain");
        r.shutdown();
        assert_eq!(r.in_flight(), 0);
    }

    #[test]
    fn u6_completion_of_an_awaited_send_ends_the_wait() {
        let (r, a, _b) = ring();
        let (pool, done) = (Pool::new(PoolConfig::default()), Rc::new(Cell::new(false)));
        let seen = done.clone();
        drop(r.spawn("sender", async move {
            for _ in 0..8 {
                a.send(&mut vec![page(&pool)]).await.unwrap();
            }
            seen.set(true);
        }));
        run(&r, &done);
    }

    #[test]
    fn u6_lazy_send_whose_memory_is_awaited_ends_the_wait() {
        let (r, a, _b) = ring();
        let (pool, done) = (Pool::new(PoolConfig { limit_bytes: 4096 }), Rc::new(Cell::new(false)));
        let (only, wants, seen, r2) = (page(&pool), pool.clone(), done.clone(), r.clone());
        assert!(pool.get(4096).is_none());
        drop(r.spawn("sender", async move {
            a.send_lazily(&mut vec![only]).await.unwrap();
        }));
        drop(r.spawn("waiter", async move {
            std::future::poll_fn(|cx| match wants.get(4096) {
                Some(_) => std::task::Poll::Ready(()),
                None => {
                    wants.wake_on_free(cx.waker());
                    r2.flush_lazy_sends();
                    std::task::Poll::Pending
                }
            })
            .await;
            seen.set(true);
        }));
        run(&r, &done);
    }

    #[test]
    fn u5_lazy_send_completes_with_the_next_event() {
        let (r, a, b) = ring();
        let (pool, done) = (Pool::new(PoolConfig::default()), Rc::new(Cell::new(false)));
        let (seen, sent, fd) = (done.clone(), Rc::new(Cell::new(0)), b.into_fd().unwrap());
        let (count, r2) = (sent.clone(), r.clone());
        let mut peer = std::net::TcpStream::from(fd);
        drop(r.spawn("sender", async move {
            for _ in 0..4 {
                a.send_lazily(&mut vec![page(&pool)]).await.unwrap();
                count.set(count.get() + 1);
            }
            seen.set(true);
        }));
        let start = Instant::now();
        while !done.get() {
            // Only the deadline ends a wait here.
            r2.turn(WaitFor::Until(r2.fresh_now() + 1_000_000), &mut |_, _| ());
        }
        assert!(start.elapsed() >= Duration::from_millis(4), "a wait ended before its deadline");
        assert_eq!(sent.get(), 4);
        run(&r, &done);
        let mut all = vec![0; 4 * 4096];
        peer.set_nonblocking(false).unwrap();
        peer.read_exact(&mut all).unwrap();
    }

    #[test]
    fn u5_lazy_send_to_a_full_socket_is_continued() {
        let (r, a, b) = ring();
        let (pool, done) = (Pool::new(PoolConfig::default()), Rc::new(Cell::new(false)));
        const PAGES: usize = 8192;
        let mut peer = std::net::TcpStream::from(b.into_fd().unwrap());
        peer.set_nonblocking(false).unwrap();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let (mut got, mut into) = (0, vec![0; 65_536]);
            while got < PAGES * 4096 {
                let n = peer.read(&mut into).unwrap();
                assert!(n > 0 && into[..n].iter().all(|b| *b == 7));
                got += n;
            }
        });
        let seen = done.clone();
        drop(r.spawn("sender", async move {
            let page = page(&pool);
            page.with_mut(|b| b.fill(7));
            for _ in 0..PAGES / 64 {
                let mut out = vec![page.clone(); 64];
                a.send_lazily(&mut out).await.unwrap();
            }
            seen.set(true);
        }));
        while !done.get() {
            // Nothing else ends the waits: a lazy send needs a deadline, or something that happens.
            r.turn(WaitFor::Until(r.fresh_now() + 100_000), &mut |_, _| ());
        }
        reader.join().unwrap();
        run(&r, &done);
    }
}
