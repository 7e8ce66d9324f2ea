//! Operations in flight, with the memory they use.
//!
//! ```text
//!          take                 Port::start            settle: all done, or an error
//!   FREE --------> (filled in) -------------> STARTED -------------------------> DONE -> FREE
//!                                              ^    |  settle: a part only          (reported or
//!                                              +----+  (started again)               abandoned)
//! ```
//!
//! Invariants
//!  O1  A slot owns its loans, its iovecs and its file or socket from `take` until its completion
//!      was reaped, even if the requester has ended. Nothing is ever borrowed.
//!  O2  A started slot is boxed and is not touched but by its port: the kernel holds addresses.
//!  O3  An id of an earlier use of a slot finds nothing: generations differ.

use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::Waker;

use bio::{Errno, Loan};

use crate::file::File;
use crate::socket::Socket;

/// Operations in flight at once; a further one ends at once with `NoMem`.
pub const OPS_MAX: usize = 1 << 20;

/// Ranges handed to the kernel in one call (its own UIO_MAXIOV); longer lists take several calls.
pub const IOVECS_MAX: usize = 1024;

/// Bytes moved in one call: below the 2 GiB at which Linux cuts every transfer short.
const CALL_BYTES_MAX: usize = 1 << 30;

/// The caller's name for an operation; the reactor returns it and never reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token {
    /// Which kind of receiver, as the caller counts them.
    pub kind: u32,
    /// The receiver's word.
    pub user_data: u64,
}

/// The errno values that the state machine itself knows.
pub(crate) mod raw {
    pub(crate) const EINTR: i64 = 4;
    pub(crate) const EAGAIN: i64 = 11;
    pub(crate) const EINVAL: i64 = 22;
    pub(crate) const ENOTTY: i64 = 25;
    pub(crate) const EPIPE: i64 = 32;
    pub(crate) const EOPNOTSUPP: i64 = 95;
    pub(crate) const ECANCELED: i64 = 125;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SlotId {
    pub(crate) fn to_word(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    pub(crate) fn from_word(word: u64) -> SlotId {
        SlotId { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// `struct iovec` of the kernel's interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IoVec {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Nothing,
    Read {
        offset: u64,
    },
    Write {
        offset: u64,
        durable: bool,
    },
    Sync,
    Allocate {
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// A block device's own discard: later reads of the range are unspecified.
    Discard {
        offset: u64,
        len: u64,
    },
    /// Whether the byte at `offset` is stored, and how far that holds: see [`crate::Run`].
    Map {
        offset: u64,
    },
    /// `all`: until the list is full; else the first ones.
    Recv {
        all: bool,
    },
    /// `lazily`: no other work waits for its end, which is reported together with the next event.
    Send {
        lazily: bool,
    },
    /// Until the descriptor can be read (or, `out`, written).
    Ready {
        out: bool,
    },
}

pub(crate) enum On {
    Nothing,
    File(File),
    Socket(Rc<Socket>),
}

pub(crate) enum End {
    NoReceiver,
    Token(Token),
    /// A future looks for the result. The waker is there once it was polled.
    Future(Option<Waker>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpState {
    Free,
    Started,
    /// The result as the kernel puts it: bytes, or a negative errno.
    Done(i64),
}

pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) state: OpState,
    pub(crate) op: Op,
    pub(crate) on: On,
    pub(crate) end: End,
    pub(crate) loans: Vec<Loan>,
    /// The ranges of the next call: a window on the remaining part of `loans`.
    pub(crate) iov: Vec<IoVec>,
    pub(crate) header: crate::backend::MsgHeader,
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) cancelled: bool,
    next_loan: usize,
    next_byte: usize,
}

/// The outcome of a completion.
pub(crate) enum Settled {
    Again,
    Ended,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            generation: 0,
            state: OpState::Free,
            op: Op::Nothing,
            on: On::Nothing,
            end: End::NoReceiver,
            loans: Vec::new(),
            iov: Vec::new(),
            header: crate::backend::MsgHeader::default(),
            done: 0,
            total: 0,
            cancelled: false,
            next_loan: 0,
            next_byte: 0,
        }
    }

    /// To be called once the loans are in: counts them and makes the first window.
    pub(crate) fn filled(&mut self) {
        self.total = self.loans.iter().map(|l| l.len() as u64).sum();
        self.window();
    }

    fn window(&mut self) {
        self.iov.clear();
        let (mut skip, mut bytes) = (self.next_byte, 0);
        for loan in self.loans.iter().skip(self.next_loan) {
            if self.iov.len() == IOVECS_MAX || bytes >= CALL_BYTES_MAX {
                break;
            }
            let len = (loan.len() - skip).min(CALL_BYTES_MAX - bytes);
            let base = loan.as_ptr().wrapping_add(skip);
            self.iov.push(IoVec { base, len });
            bytes += len;
            skip = 0;
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        self.done += bytes as u64;
        if self.done >= self.total {
            // No further call needs a window.
            return;
        }
        while let Some(loan) = self.loans.get(self.next_loan) {
            let left = loan.len() - self.next_byte;
            if bytes < left {
                self.next_byte += bytes;
                break;
            }
            bytes -= left;
            self.next_loan += 1;
            self.next_byte = 0;
        }
    }

    /// The descriptor of the operation's object; -1 if it has none.
    pub(crate) fn fd(&self) -> RawFd {
        match &self.on {
            On::File(file) => file.raw_fd(),
            On::Socket(socket) => socket.raw_fd(),
            On::Nothing => -1,
        }
    }

    /// The operation and its object as text for a log.
    pub(crate) fn describe(&self) -> String {
        let what = match self.op {
            Op::Read { offset } => format!("read at {offset}"),
            Op::Write { offset, .. } => format!("write at {offset}"),
            Op::Sync => "flush".to_owned(),
            Op::Map { offset } => format!("map at {offset}"),
            Op::Allocate { offset, len, .. } => format!("allocation of {len} bytes at {offset}"),
            Op::Discard { offset, len } => format!("discard of {len} bytes at {offset}"),
            _ => "operation".to_owned(),
        };
        match &self.on {
            On::File(file) => format!("{what} of {}", file.path().display()),
            On::Socket(socket) => format!("{what} of socket {}", socket.raw_fd()),
            On::Nothing => what,
        }
    }

    /// Where the next call of a read or write begins.
    pub(crate) fn offset_now(&self) -> u64 {
        match self.op {
            Op::Read { offset } | Op::Write { offset, .. } => offset.saturating_add(self.done),
            _ => 0,
        }
    }

    /// Takes one call's result into account.
    pub(crate) fn settle(&mut self, result: i64) -> Settled {
        let (result, again) = self.classify(result);
        if again {
            if let Op::Send { lazily } = &mut self.op {
                // It was not sent at once: the rest is sent as any other.
                *lazily = false;
            }
            self.window();
            return Settled::Again;
        }
        self.state = OpState::Done(result);
        Settled::Ended
    }

    fn classify(&mut self, result: i64) -> (i64, bool) {
        let full = result == -raw::EAGAIN && self.op == Op::Send { lazily: true };
        if (result == -raw::EINTR || full) && !self.cancelled {
            return (0, true);
        }
        let moves = matches!(
            self.op,
            Op::Read { .. } | Op::Write { .. } | Op::Recv { .. } | Op::Send { .. }
        );
        if !moves {
            return (result, false);
        }
        if result < 0 {
            // A direct read whose first part ended at an odd end of the file.
            let tail = matches!(self.op, Op::Read { .. }) && self.done > 0;
            let ended = tail && result == -raw::EINVAL;
            return (if ended { self.done as i64 } else { result }, false);
        }
        self.advance(usize::try_from(result).unwrap_or(usize::MAX));
        let done = i64::try_from(self.done).unwrap_or(i64::MAX);
        let complete = self.done >= self.total || self.op == Op::Recv { all: false };
        match (complete, result, self.op) {
            (true, _, _) => (done, false),
            (false, 0, Op::Write { .. } | Op::Send { .. }) => (-raw::EPIPE, false),
            (false, 0, _) => (done, false),
            _ if self.cancelled => (-raw::ECANCELED, false),
            _ => (0, true),
        }
    }
}

#[derive(Default)]
pub(crate) struct Slots {
    // Boxed: the kernel holds addresses inside (O2) while the vector grows.
    #[allow(clippy::vec_box)]
    places: Vec<Box<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn take(&mut self, op: Op, on: On, end: End) -> Result<SlotId, Errno> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < OPS_MAX => {
                self.places.push(Box::new(Slot::new()));
                (self.places.len() - 1) as u32
            }
            None => return Err(Errno::NoMem),
        };
        let slot = &mut self.places[index as usize];
        slot.state = OpState::Started;
        (slot.op, slot.on, slot.end) = (op, on, end);
        Ok(SlotId { index, generation: slot.generation })
    }

    pub(crate) fn get(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.places
            .get_mut(id.index as usize)
            .map(|s| &mut **s)
            .filter(|s| s.generation == id.generation && s.state != OpState::Free)
    }

    /// Gives the slot back; only after its completion was reaped (O1).
    pub(crate) fn free(&mut self, id: SlotId) {
        let Some(slot) = self.get(id) else { return };
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = OpState::Free;
        slot.op = Op::Nothing;
        slot.on = On::Nothing;
        slot.end = End::NoReceiver;
        slot.loans.clear();
        slot.iov.clear();
        (slot.done, slot.total, slot.next_loan, slot.next_byte) = (0, 0, 0, 0);
        slot.cancelled = false;
        self.free.push(id.index);
    }

    /// Slots taken and not given back.
    pub(crate) fn busy(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn started(&self) -> Vec<SlotId> {
        (0u32..)
            .zip(&self.places)
            .filter(|(_, s)| s.state == OpState::Started)
            .map(|(index, s)| SlotId { index, generation: s.generation })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_id_of_an_earlier_use_of_a_slot_finds_nothing() {
        let mut slots = Slots::default();
        let former = slots.take(Op::Sync, On::Nothing, End::NoReceiver).unwrap();
        assert!(slots.get(former).is_some());
        slots.free(former);
        assert!(slots.get(former).is_none());
        let present = slots.take(Op::Sync, On::Nothing, End::NoReceiver).unwrap();
        assert_eq!(present.index, former.index);
        assert!(slots.get(present).is_some() && slots.get(former).is_none());
        slots.free(former);
        assert_eq!(slots.started(), [present], "a former id frees nothing");
    }
}
