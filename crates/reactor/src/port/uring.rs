//! The io_uring port.
//!
//! Invariants
//!  U1  At most one `io_uring_enter` a turn (one more each time the submission queue fills up).
//!  U2  It never waits with a zero timeout, and gives a timeout only when there is a deadline:
//!      a look costs 0.2 us, a zero wait 18 us.
//!  U3  Every pointer in a submission lies in a started slot, which outlives it (O1, O2).
//!  U4  The ring is dropped only after everything in flight was cancelled and reaped; what would
//!      not end in time is leaked, never freed under the kernel.
//!  U5  A wait expects the sends that it submits to end at once, as they do while the peer reads,
//!      and asks for one completion more for each: an answer and the next request are one call.
//!      One that does not end keeps the others waiting for [`SENDS_PATIENCE_NS`] once, and then
//!      sends are not trusted for [`DOUBT_WAITS`] waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring, Probe, opcode, types};

use crate::port::{Reaped, Wait};
use crate::remote::Remote;
use crate::slots::{IoVec, On, Op, Slot, SlotId, Slots};

/// Entries of the submission queue; when they are taken, the queue is submitted at once, and what
/// the kernel does not take then waits in a list of ours.
const SUBMISSIONS: u32 = 512;

/// Entries of the completion queue; the kernel keeps what does not fit until there is room.
const COMPLETIONS: u32 = 4096;

/// Kernel threads for operations that block, [on files, on others]; more wait in line.
const WORKERS: [u32; 2] = [4, 4];

/// How long dropping the ring waits for cancelled operations before it leaks their memory.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Longest wait that counts on its sends, ns (U5).
const SENDS_PATIENCE_NS: u64 = 2_000_000;

/// Waits without trust after a send that did not end at once (U5).
const DOUBT_WAITS: u32 = 256;

const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

const MSG_WAITALL: u32 = 0x100;
const MSG_NOSIGNAL: u32 = 0x4000;
const RWF_DSYNC: i32 = 0x2;
const POLL_FIRST: u16 = 1;
const POLLIN: u32 = 0x1;
const POLLOUT: u32 = 0x4;

enum Waiting {
    Start(SlotId),
    Cancel(SlotId),
}

pub(crate) struct Uring {
    ring: IoUring,
    remote: Arc<Remote>,
    bell_word: Box<u64>,
    bell_armed: bool,
    no_iowait: bool,
    taskrun_flag: bool,
    in_flight: usize,
    /// Sends queued since the last gathering, all that are under way, and waits left that do not
    /// count on them (U5).
    sends: u32,
    sends_out: u32,
    doubt: u32,
    /// What the submission queue had no room for, in order.
    backlog: VecDeque<Waiting>,
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
        let port = Uring {
            ring,
            remote: remote.clone(),
            bell_word: Box::new(0),
            bell_armed: false,
            no_iowait,
            taskrun_flag,
            in_flight: 0,
            sends: 0,
            sends_out: 0,
            doubt: 0,
            backlog: VecDeque::new(),
        };
        Ok((port, how))
    }

    /// Lets the kernel's workers run on `cpus` although this thread is pinned to one.
    pub(crate) fn free_workers(&self, cpus: &rustix::thread::CpuSet) {
        // SAFETY: an all-zero cpu set is an empty one: a plain array of words.
        let mut set = unsafe { std::mem::zeroed() };
        fill_cpus(&mut set, cpus);
        let _ = self.ring.submitter().register_iowq_aff(&set);
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, id: SlotId) {
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
                let sends = matches!(slot.op, Op::Send);
                let entry = entry(slot).user_data(id.to_word());
                let placed = self.push(entry);
                self.sends += u32::from(placed && sends);
                self.sends_out += u32::from(placed && sends);
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

    fn arm_bell(&mut self) {
        let Some(fd) = self.remote.bell().map(|b| b.as_raw_fd()) else {
            return;
        };
        let word: *mut u64 = &mut *self.bell_word;
        let entry = opcode::Read::new(types::Fd(fd), word.cast(), 8).build();
        self.bell_armed = self.push(entry.user_data(BELL));
    }

    /// Submits what is queued; waits for `want` completions at most `limit`.
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
        // Whatever the error (EINTR, ETIME, EBUSY, EAGAIN): entries not taken are still queued and
        // completions still come out of the queue, so the next turn tries again.
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

    /// True when an enter may bring something: to submit, or announced by the kernel.
    fn worth_entering(&mut self) -> bool {
        if self.in_flight == 0 && self.ring.submission().is_empty() {
            return false;
        }
        let queue = self.ring.submission();
        !self.taskrun_flag || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    pub(crate) fn gather(&mut self, slots: &mut Slots, wait: Wait, out: &mut Reaped) {
        self.flush_backlog(slots);
        match wait {
            Wait::Peek => {
                if self.worth_entering() {
                    self.enter(0, None);
                }
            }
            Wait::Park(limit) => {
                if !self.bell_armed {
                    self.arm_bell();
                }
                self.park(limit);
            }
        }
        self.reap(slots, out);
        if std::mem::take(&mut self.sends) > 0 && self.sends_out > 0 {
            self.doubt = DOUBT_WAITS;
        }
    }

    /// Submits and sleeps (U5).
    fn park(&mut self, limit: Option<u64>) {
        let sends = self.sends;
        let trusted = self.doubt == 0 && sends > 0 && (sends as usize) < self.in_flight;
        if !trusted {
            self.doubt = self.doubt.saturating_sub(1);
            return self.enter(1, limit);
        }
        let want = sends.saturating_add(1);
        let most = limit.unwrap_or(SENDS_PATIENCE_NS).min(SENDS_PATIENCE_NS);
        self.enter(want, Some(most));
    }

    fn reap(&mut self, slots: &mut Slots, out: &mut Reaped) {
        for entry in self.ring.completion() {
            match entry.user_data() {
                BELL => self.bell_armed = false,
                CANCEL => {}
                word => {
                    let id = SlotId::from_word(word);
                    self.in_flight -= 1;
                    match slots.get(id).map(|slot| (slot.op, &slot.on)) {
                        Some((Op::Recv { .. }, On::Socket(socket))) => {
                            let more = io_uring::cqueue::sock_nonempty(entry.flags());
                            socket.set_drained(!more);
                        }
                        Some((Op::Send, _)) => self.sends_out = self.sends_out.saturating_sub(1),
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
        let mut out = Reaped::new();
        while self.in_flight > 0 && Instant::now() < deadline {
            self.flush_backlog(slots);
            self.enter(1, Some(10_000_000));
            self.reap(slots, &mut out);
            out.drain(..).for_each(|(id, _)| slots.free(id));
        }
        self.in_flight == 0
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The bell's read may still be armed: its word stays with the kernel.
        if self.bell_armed {
            std::mem::forget(std::mem::take(&mut self.bell_word));
        }
    }
}

/// Fills a zeroed kernel cpu set: bit `n` of the byte array is cpu `n` (little endian).
fn fill_cpus<T>(set: &mut T, cpus: &rustix::thread::CpuSet) {
    let size = std::mem::size_of::<T>();
    let bytes: *mut u8 = std::ptr::from_mut(set).cast();
    for cpu in (0..size * 8).filter(|&c| c < rustix::thread::CpuSet::MAX_CPU && cpus.is_set(c)) {
        // SAFETY: `cpu / 8 < size`, and `T` is a plain array of words.
        unsafe { *bytes.add(cpu / 8) |= 1 << (cpu % 8) };
    }
}

fn fd_of(slot: &Slot) -> RawFd {
    match &slot.on {
        On::File(file) => file.raw_fd(),
        On::Socket(socket) => socket.raw_fd(),
        On::Nothing => -1,
    }
}

/// Describes the slot's next call to the kernel.
fn entry(slot: &mut Slot) -> Entry {
    let fd = types::Fd(fd_of(slot));
    let offset = slot.offset_now();
    let (vecs, count): (*mut IoVec, u32) = (slot.iov.as_mut_ptr(), slot.iov.len() as u32);
    let one = match slot.iov[..] {
        [one] => Some((one.base, one.len as u32)),
        _ => None,
    };
    match slot.op {
        Op::Nothing => opcode::Nop::new().build(),
        Op::Read { .. } => match one {
            Some((base, len)) => opcode::Read::new(fd, base, len).offset(offset).build(),
            None => opcode::Readv::new(fd, vecs.cast(), count).offset(offset).build(),
        },
        Op::Write { durable, .. } => {
            let flags = if durable { RWF_DSYNC } else { 0 };
            match one {
                Some((base, len)) => {
                    opcode::Write::new(fd, base, len).offset(offset).rw_flags(flags).build()
                }
                None => opcode::Writev::new(fd, vecs.cast(), count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Op::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Op::Allocate { mode, offset, len } => {
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode as i32).build()
        }
        Op::Ready { out } => opcode::PollAdd::new(fd, if out { POLLOUT } else { POLLIN }).build(),
        Op::Recv { all } => recv(slot, fd, all, one),
        Op::Send => {
            slot.header.iov = vecs;
            slot.header.iov_len = count as usize;
            let header: *const crate::port::MsgHeader = &slot.header;
            opcode::SendMsg::new(fd, header.cast()).flags(MSG_WAITALL | MSG_NOSIGNAL).build()
        }
    }
}

fn recv(slot: &mut Slot, fd: types::Fd, all: bool, one: Option<(*mut u8, u32)>) -> Entry {
    // After a read that emptied the socket the next one would only find it empty again.
    let first = match &slot.on {
        On::Socket(socket) if socket.is_drained() => POLL_FIRST,
        _ => 0,
    };
    let flags = if all { MSG_WAITALL } else { 0 };
    match one {
        Some((base, len)) => {
            opcode::Recv::new(fd, base, len).ioprio(first).flags(flags as i32).build()
        }
        None => {
            slot.header.iov = slot.iov.as_mut_ptr();
            slot.header.iov_len = slot.iov.len();
            let header: *mut crate::port::MsgHeader = &mut slot.header;
            opcode::RecvMsg::new(fd, header.cast()).ioprio(first).flags(flags).build()
        }
    }
}
