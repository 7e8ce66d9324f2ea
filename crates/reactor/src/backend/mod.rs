//! The interface to a kernel, with three implementations.
//!
//! A port starts the slots that it receives and reports raw results: bytes or a negative errno,
//! once for each start. The reactor continues partial operations, reports results and frees slots.

pub(crate) mod channel;
mod entry;
pub(crate) mod link;
pub(crate) mod locks;
mod poll;
mod ring;
pub(crate) mod sg;
mod sim;
mod uring;
mod workers;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::ops::{IoVec, SlotId, Slots};
use crate::socket::Socket;
use crate::wakeup::Remote;

pub(crate) use poll::Poll;
pub(crate) use sim::SimPort;
pub(crate) use uring::Uring;
pub(crate) use workers::run_inline;

/// How long a port that is closed waits for operations in the kernel. A file system that hangs
/// never completes its operations. Unit tests, which make one hang, wait for less.
const LAST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 5000 });

/// Which port a reactor shall use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortChoice {
    /// io_uring when the kernel lets us, else poll.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Readiness for sockets, a few threads for files.
    Poll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortKind {
    Uring,
    /// epoll and worker threads.
    Poll,
    Simulated,
}

/// Which port a reactor uses, and why: for the log.
#[derive(Clone, Debug)]
pub struct PortReport {
    pub kind: PortKind,
    /// One line for people.
    pub why: String,
}

impl fmt::Display for PortReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// `struct msghdr` of the kernel's interface (64-bit Linux).
#[repr(C)]
pub(crate) struct MsgHeader {
    name: *mut u8,
    name_len: u32,
    pub(crate) iov: *mut IoVec,
    pub(crate) iov_len: usize,
    control: *mut u8,
    control_len: usize,
    flags: u32,
}

impl Default for MsgHeader {
    fn default() -> Self {
        MsgHeader {
            name: std::ptr::null_mut(),
            name_len: 0,
            iov: std::ptr::null_mut(),
            iov_len: 0,
            control: std::ptr::null_mut(),
            control_len: 0,
            flags: 0,
        }
    }
}

/// How long to look for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    Peek,
    /// Until one arrives, or the bell rings, or so many ns are over.
    Park(Option<u64>),
}

/// Raw results: the slot, and bytes or a negative errno.
pub(crate) type Reaped = Vec<(SlotId, i64)>;

pub(crate) enum Port {
    Uring(Box<Uring>),
    Poll(Box<Poll>),
    Sim(Box<SimPort>),
}

impl Port {
    /// Opens the requested port and describes the decision.
    pub(crate) fn open(
        choice: PortChoice,
        remote: &Arc<Remote>,
        refuse_uring: Option<io::Error>,
    ) -> io::Result<(Port, PortReport)> {
        let poll = |why: String| {
            let port = Port::Poll(Box::new(Poll::open(remote)?));
            let kind = PortKind::Poll;
            Ok((port, PortReport { kind, why }))
        };
        if choice == PortChoice::Poll {
            return poll("poll, as configured".to_string());
        }
        let uring = match refuse_uring {
            Some(e) => Err(e),
            None => Uring::open(remote),
        };
        match uring {
            Ok((ring, how)) => {
                let kind = PortKind::Uring;
                let why = format!("io_uring ({how})");
                Ok((Port::Uring(Box::new(ring)), PortReport { kind, why }))
            }
            Err(e) if choice == PortChoice::Auto => {
                poll(format!("poll, because io_uring was refused: {e}"))
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, id: SlotId) {
        match self {
            Port::Uring(p) => p.start(slots, id),
            Port::Poll(p) => p.start(slots, id),
            Port::Sim(p) => p.start(slots, id),
        }
    }

    pub(crate) fn cancel(&mut self, slots: &mut Slots, id: SlotId) {
        match self {
            Port::Uring(p) => p.cancel(id),
            Port::Poll(p) => p.cancel(slots, id),
            Port::Sim(p) => p.cancel(slots, id),
        }
    }

    pub(crate) fn gather(&mut self, slots: &mut Slots, wait: Wait, out: &mut Reaped) {
        match self {
            Port::Uring(p) => p.gather(slots, wait, out),
            Port::Poll(p) => p.gather(slots, wait, out),
            Port::Sim(p) => p.gather(slots, out),
        }
    }

    /// The next wait does not sleep on lazy sends.
    pub(crate) fn flush_lazy_sends(&mut self) {
        if let Port::Uring(p) = self {
            p.flush_lazy_sends();
        }
    }

    /// Ends everything; true when nothing is left in anyone's hands.
    pub(crate) fn close(&mut self, slots: &mut Slots) -> bool {
        match self {
            Port::Uring(p) => p.close(slots),
            Port::Poll(p) => p.close(slots),
            Port::Sim(p) => p.close(slots),
        }
    }

    /// Forgets a socket that moves to another owner while its descriptor stays open.
    pub(crate) fn forget(&mut self, socket: &Socket) {
        if let Port::Poll(p) = self {
            p.forget(socket);
        }
    }
}
