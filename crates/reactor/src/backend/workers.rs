//! A few threads that do blocking calls on files: all of them for the poll port, for the io_uring
//! port those that this kernel's ring does not know.
//!
//! Invariant B1: a job's pointers lie in a started slot, which waits for the job's result (O1), and
//! is forgotten, not freed, when that never arrives (`Reactor::shutdown`).

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use bio::sync::{Condvar, Mutex};
use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;

use crate::backend::Reaped;
use crate::backend::link::check;
use crate::file::{Run, map};
use crate::ops::{IoVec, On, Op, Slot, SlotId, raw};
use crate::wakeup::Remote;

/// Threads for blocking file calls; more calls wait in line.
const WORKERS_MAX: usize = 4;

/// Bytes of a call on a file in memory that is made in line; a longer copy is worth a thread.
const QUEUED_BYTES_MAX: usize = 128 << 10;

/// One call on a file.
pub(super) struct Job {
    pub(super) id: SlotId,
    pub(super) fd: RawFd,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) iov: *mut IoVec,
    pub(super) count: usize,
}

impl Job {
    /// The next call of an operation on a file.
    pub(super) fn of(slot: &mut Slot, id: SlotId) -> Job {
        Job {
            id,
            fd: slot.fd(),
            op: slot.op,
            offset: slot.offset_now(),
            iov: slot.iov.as_mut_ptr(),
            count: slot.iov.len(),
        }
    }
}

// SAFETY: B1; the slot is not touched by anyone else until the result is back.
unsafe impl Send for Job {}

#[derive(Default)]
struct WorkQueue {
    jobs: VecDeque<Job>,
    closing: bool,
}

#[derive(Default)]
struct WorkersShared {
    queue: Mutex<WorkQueue>,
    more: Condvar,
    done: Mutex<Reaped>,
}

pub(super) struct Workers {
    shared: Arc<WorkersShared>,
    remote: Arc<Remote>,
    threads: Vec<JoinHandle<()>>,
    unfinished: usize,
}

impl Workers {
    pub(super) fn new(remote: Arc<Remote>) -> Workers {
        Workers { shared: Arc::default(), remote, threads: Vec::new(), unfinished: 0 }
    }

    /// True while results are to be expected.
    pub(super) fn is_busy(&self) -> bool {
        self.unfinished > 0
    }

    /// Puts a job in line, starting a thread when all are taken and there may be more. Returns
    /// the job's result at once when there is no thread to be had at all.
    pub(super) fn put(&mut self, job: Job) -> Option<i64> {
        if self.threads.len() < WORKERS_MAX && self.unfinished >= self.threads.len() {
            let (shared, remote) = (self.shared.clone(), self.remote.clone());
            let thread = std::thread::Builder::new().name("file-worker".to_string());
            if let Ok(t) = thread.spawn(move || work(&shared, &remote)) {
                self.threads.push(t);
            }
        }
        if self.threads.is_empty() {
            return Some(call(&job, ReadWriteFlags::empty()));
        }
        self.unfinished += 1;
        self.shared.queue.lock().jobs.push_back(job);
        self.shared.more.notify_one();
        None
    }

    pub(super) fn take_results(&mut self, out: &mut Reaped) {
        if self.unfinished > 0 {
            let mut done = self.shared.done.lock();
            self.unfinished -= done.len();
            out.append(&mut done);
        }
    }

    /// Whether threads have begun all jobs.
    #[cfg(test)]
    pub(super) fn have_begun(&self) -> bool {
        self.shared.queue.lock().jobs.is_empty()
    }

    /// Begins no more jobs and waits for none. A thread whose call does not return stays behind
    /// with that call; its slot must never be freed (B1).
    pub(super) fn abandon(&mut self) {
        let mut line = self.shared.queue.lock();
        line.closing = true;
        line.jobs.clear();
        drop(line);
        self.shared.more.notify_all();
        self.threads.clear();
        self.unfinished = 0;
    }

    /// Takes a job back that no thread has begun.
    pub(super) fn take_back(&mut self, id: SlotId) -> bool {
        let mut line = self.shared.queue.lock();
        let before = line.jobs.len();
        line.jobs.retain(|j| j.id != id);
        let taken = before - line.jobs.len();
        self.unfinished -= taken;
        taken > 0
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn work(shared: &WorkersShared, remote: &Remote) {
    let mut line = shared.queue.lock();
    loop {
        let Some(job) = line.jobs.pop_front() else {
            if line.closing {
                return;
            }
            line = shared.more.wait(line);
            continue;
        };
        drop(line);
        let result = call(&job, ReadWriteFlags::empty());
        shared.done.lock().push((job.id, result));
        remote.notify();
        line = shared.queue.lock();
    }
}

/// The result of a short call on a file in memory, made in line. Otherwise a thread is woken for a
/// copy. io_uring wakes one too, because those file systems do not declare that they never wait.
pub(crate) fn run_inline(slot: &mut Slot, id: SlotId) -> Option<i64> {
    let On::File(file) = &slot.on else { return None };
    if !file.facts().is_in_memory {
        return None;
    }
    let short = match slot.op {
        Op::Read { .. } | Op::Write { .. } => {
            slot.iov.iter().map(|v| v.len).sum::<usize>() <= QUEUED_BYTES_MAX
        }
        Op::Sync | Op::Map { .. } => true,
        _ => false,
    };
    short.then(|| call(&Job::of(slot, id), ReadWriteFlags::empty()))
}

pub(super) fn raw_result<T: TryInto<i64>>(result: rustix::io::Result<T>) -> i64 {
    match result {
        Ok(n) => n.try_into().unwrap_or(i64::MAX),
        Err(e) => -i64::from(e.raw_os_error()),
    }
}

/// Makes the call on this thread.
pub(super) fn call(job: &Job, extra: ReadWriteFlags) -> i64 {
    // SAFETY: the slot holds the file, and with it the descriptor, open (B1).
    let fd = unsafe { BorrowedFd::borrow_raw(job.fd) };
    match job.op {
        Op::Read { .. } => {
            // SAFETY: B1; `IoSliceMut` has the layout of `struct iovec` on Unix, as `IoVec` has.
            let vecs = unsafe {
                std::slice::from_raw_parts_mut(job.iov.cast::<IoSliceMut<'_>>(), job.count)
            };
            raw_result(rustix::io::preadv2(fd, vecs, job.offset, extra))
        }
        Op::Write { durable, .. } => {
            // SAFETY: as for reads.
            let vecs =
                unsafe { std::slice::from_raw_parts(job.iov.cast::<IoSlice<'_>>(), job.count) };
            let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            raw_result(rustix::io::pwritev2(fd, vecs, job.offset, flags | extra))
        }
        Op::Sync => raw_result(rustix::fs::fdatasync(fd).map(|()| 0i64)),
        Op::Allocate { mode, offset, len } => {
            let mode = FallocateFlags::from_bits_retain(mode);
            raw_result(rustix::fs::fallocate(fd, mode, offset, len).map(|()| 0i64))
        }
        Op::Discard { offset, len } => discard(fd, [offset, len]),
        Op::Map { offset } => raw_result(map(fd, offset).map(Run::to_result)),
        _ => -raw::EINVAL,
    }
}

/// BLKDISCARD of <linux/fs.h>: `[offset, length]` in bytes.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// A file has no such call: the error is that of a device without it.
fn discard(fd: BorrowedFd<'_>, range: [u64; 2]) -> i64 {
    // SAFETY: the call reads two words of 64 bits, and `range` outlives it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match check(result) {
        Ok(_) => 0,
        Err(e) => match e.raw_os_error().map_or(raw::EINVAL, i64::from) {
            raw::ENOTTY => -raw::EOPNOTSUPP,
            other => -other,
        },
    }
}
