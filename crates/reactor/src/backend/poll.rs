//! The poll port: readiness for sockets, a few threads for files.
//!
//! Invariants
//!  R1  An operation on a socket is tried before it waits, and tried again for each event: edge
//!      triggered readiness is never lost.
//!  R2  A watch belongs to one socket: descriptors are used again, serial numbers are not.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::ReadWriteFlags;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::backend::workers::{Job, Workers, call, raw_result, run_inline};
use crate::backend::{LAST_WAIT, Reaped, Wait};
use crate::ops::{On, Op, Slot, SlotId, Slots, raw};
use crate::socket::Socket;
use crate::wakeup::Remote;

/// Events taken from the kernel in one call; more are taken with the next turn.
const EVENTS_PER_TURN: usize = 256;

/// How often a port that is closed looks whether calls have returned.
const CLOSE_LOOK: Duration = Duration::from_millis(1);

const EVENTFD: u64 = u64::MAX;
const EAGAIN: i64 = 11;

#[derive(Default)]
struct Watch {
    serial: u32,
    waiting: Vec<SlotId>,
}

pub(crate) struct Poll {
    epoll: OwnedFd,
    workers: Workers,
    /// By descriptor.
    watches: Vec<Watch>,
    serial: u32,
    /// Ended, to be reported by the next `gather`.
    ready: Reaped,
    events: Vec<epoll::Event>,
    scratch: Vec<SlotId>,
    waiting: usize,
}

impl Poll {
    pub(crate) fn open(remote: &Arc<Remote>) -> io::Result<Poll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(bell) = remote.eventfd() {
            // Edge triggered: each write is an event, and the counter need not be read.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, bell, epoll::EventData::new_u64(EVENTFD), flags)?;
        }
        Ok(Poll {
            epoll,
            workers: Workers::new(remote.clone()),
            watches: Vec::new(),
            serial: 0,
            ready: Reaped::new(),
            events: Vec::with_capacity(EVENTS_PER_TURN),
            scratch: Vec::new(),
            waiting: 0,
        })
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, id: SlotId) {
        let Some(slot) = slots.get(id) else { return };
        match &slot.on {
            On::Nothing => self.ready.push((id, 0)),
            On::File(_) => self.start_file(slot, id),
            On::Socket(_) => {
                let result = attempt(slot);
                if result == -EAGAIN {
                    self.wait_for(slot, id);
                } else {
                    self.ready.push((id, result));
                }
            }
        }
    }

    fn start_file(&mut self, slot: &mut Slot, id: SlotId) {
        if let Some(result) = run_inline(slot, id) {
            self.ready.push((id, result));
            return;
        }
        let On::File(file) = &slot.on else { return };
        let policy = file.inline();
        let job = Job::of(slot, id);
        let inline = match job.op {
            Op::Read { .. } if policy.reads => call(&job, ReadWriteFlags::NOWAIT),
            Op::Write { .. } if policy.writes => call(&job, ReadWriteFlags::empty()),
            _ => -1,
        };
        if inline >= 0 {
            self.ready.push((id, inline));
        } else if let Some(result) = self.workers.put(job) {
            self.ready.push((id, result));
        }
    }

    fn wait_for(&mut self, slot: &Slot, id: SlotId) {
        let On::Socket(socket) = &slot.on else { return };
        let fd = socket.raw_fd();
        let Ok(place) = usize::try_from(fd) else {
            self.ready.push((id, -9));
            return;
        };
        if !socket.is_watched() {
            if self.watches.len() <= place {
                self.watches.resize_with(place + 1, Watch::default);
            }
            self.serial = self.serial.wrapping_add(1);
            self.watches[place] = Watch {
                serial: self.serial,
                waiting: std::mem::take(&mut self.watches[place].waiting),
            };
            let data = epoll::EventData::new_u64((u64::from(self.serial) << 32) | fd as u64);
            use epoll::EventFlags as E;
            let flags = E::IN | E::OUT | E::RDHUP | E::ET;
            if let Err(e) = epoll::add(&self.epoll, borrow(fd), data, flags) {
                self.ready.push((id, -i64::from(e.raw_os_error())));
                return;
            }
            socket.set_watched(true);
        }
        self.watches[place].waiting.push(id);
        self.waiting += 1;
    }

    /// Retries the operations that wait for the descriptor (R1).
    fn on_event(&mut self, slots: &mut Slots, data: u64) {
        let (serial, fd) = ((data >> 32) as u32, data as u32);
        let Some(watch) = self.watches.get_mut(fd as usize) else {
            return;
        };
        if watch.serial != serial {
            return;
        }
        let mut tried = std::mem::replace(&mut watch.waiting, std::mem::take(&mut self.scratch));
        for id in tried.drain(..) {
            let result = slots.get(id).map_or(-raw::ECANCELED, attempt);
            if result == -EAGAIN {
                self.watches[fd as usize].waiting.push(id);
            } else {
                self.waiting -= 1;
                self.ready.push((id, result));
            }
        }
        self.scratch = tried;
    }

    pub(crate) fn cancel(&mut self, slots: &mut Slots, id: SlotId) {
        let Some(slot) = slots.get(id) else { return };
        let gone = match &slot.on {
            On::Socket(socket) => {
                let watch =
                    usize::try_from(socket.raw_fd()).ok().and_then(|fd| self.watches.get_mut(fd));
                watch.is_some_and(|w| {
                    let before = w.waiting.len();
                    w.waiting.retain(|w| *w != id);
                    self.waiting -= before - w.waiting.len();
                    before != w.waiting.len()
                })
            }
            On::File(_) => self.workers.take_back(id),
            On::Nothing => false,
        };
        if gone {
            self.ready.push((id, -raw::ECANCELED));
        }
    }

    pub(crate) fn forget(&mut self, socket: &Socket) {
        if socket.is_watched() {
            let _ = epoll::delete(&self.epoll, borrow(socket.raw_fd()));
            socket.set_watched(false);
        }
    }

    pub(crate) fn gather(&mut self, slots: &mut Slots, wait: Wait, out: &mut Reaped) {
        let time = match wait {
            Wait::Park(limit) if self.ready.is_empty() => limit.map(timespec),
            _ => Some(timespec(0)),
        };
        let parks = matches!(wait, Wait::Park(_));
        if self.waiting > 0 || parks {
            self.events.clear();
            let spare = spare_capacity(&mut self.events);
            // EINTR and the like: nothing arrived, the next turn looks again.
            let _ = epoll::wait(&self.epoll, spare, time.as_ref());
            for at in 0..self.events.len() {
                let data = self.events[at].data.u64();
                if data != EVENTFD {
                    self.on_event(slots, data);
                }
            }
        }
        self.workers.take_results(out);
        out.append(&mut self.ready);
    }

    #[cfg(test)]
    pub(crate) fn calls_have_begun(&self) -> bool {
        self.workers.have_begun()
    }

    /// Ends everything: waiting sockets at once, calls on files when they return, for as long as
    /// [`LAST_WAIT`]. True: nothing of ours is in anyone's hands afterwards.
    pub(crate) fn close(&mut self, slots: &mut Slots) -> bool {
        for id in slots.started() {
            self.cancel(slots, id);
        }
        let deadline = Instant::now() + LAST_WAIT;
        let mut out = Reaped::new();
        self.workers.take_results(&mut out);
        while self.workers.is_busy() && Instant::now() < deadline {
            std::thread::sleep(CLOSE_LOOK);
            self.workers.take_results(&mut out);
        }
        out.append(&mut self.ready);
        out.drain(..).for_each(|(id, _)| slots.free(id));
        let left = self.workers.is_busy();
        self.workers.abandon();
        !left
    }
}

/// Whole milliseconds, rounded up: the resolution of epoll_wait on every kernel.
fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: called with the descriptor of a socket that a slot or the caller holds open, for
    // the length of one call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// One try without waiting.
fn attempt(slot: &mut Slot) -> i64 {
    let On::Socket(socket) = &slot.on else {
        return -raw::EINVAL;
    };
    let fd = borrow(socket.raw_fd());
    let (vecs, count) = (slot.iov.as_mut_ptr(), slot.iov.len());
    match slot.op {
        Op::Ready { out } => {
            let wanted = if out { PollFlags::OUT } else { PollFlags::IN };
            let mut polled = [PollFd::from_borrowed_fd(fd.as_fd(), wanted)];
            match rustix::event::poll(&mut polled, Some(&timespec(0))) {
                Ok(0) => -EAGAIN,
                other => raw_result(other),
            }
        }
        Op::Recv { .. } => {
            // SAFETY: O1, O2; `IoSliceMut` has the layout of `struct iovec` on Unix.
            let vecs =
                unsafe { std::slice::from_raw_parts_mut(vecs.cast::<IoSliceMut<'_>>(), count) };
            let mut none = RecvAncillaryBuffer::default();
            let got = rustix::net::recvmsg(fd, vecs, &mut none, RecvFlags::DONTWAIT);
            raw_result(got.map(|r| r.bytes))
        }
        Op::Send { .. } => {
            // SAFETY: as for receiving.
            let vecs = unsafe { std::slice::from_raw_parts(vecs.cast::<IoSlice<'_>>(), count) };
            let mut space: [MaybeUninit<u8>; 0] = [];
            let mut none = SendAncillaryBuffer::new(&mut space);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            raw_result(rustix::net::sendmsg(fd, vecs, &mut none, flags))
        }
        _ => -raw::EINVAL,
    }
}
