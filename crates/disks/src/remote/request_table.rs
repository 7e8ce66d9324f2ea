//! Requests of one connection, from their beginning to the server's answer.
//!
//! ```text
//!   begin --> waiting --next--> sending --sent--> sent --answer--> ended --take--> gone
//!               ^                  |               |
//!               +----- dropped ----+---------------+
//! ```
//!
//! Invariants
//!  R1  A request ends once. It ends well only by an answer of the server to that request.
//!  R2  The memory of a request that is being sent, or that waits for its answer, is in use. Such a
//!      request ends by its answer, or once its connection is lost.
//!  R3  When a connection is lost, the requests without an answer are sent again over the next one,
//!      in the order in which they began and before all others.
//!  R4  A request with another way to the medium (`FAIL_FAST`) does not wait for a connection.
//!  R5  A request that was sent over [`ALONE_AFTER`] connections that were lost is sent alone: one
//!      that ends its connection each time fails alone.
//!
//! An old connection that the server still reads can carry out a write late, after a newer one to
//! the same place that was sent over the new connection. Nothing in NBD prevents that: a client
//! closes its end first, and sends again over a new connection.

use std::collections::VecDeque;

use bio::Errno;

use super::{Bounds, Outcome};

/// R5
pub(crate) const ALONE_AFTER: u8 = 2;

/// Most requests of one connection; a further one is tried again later.
pub(crate) const REQUESTS_MAX: usize = 1 << 16;

const INDEX_BITS: u32 = 16;

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Not tried yet, since then.
    Fresh(u64),
    /// There is one.
    Up,
    /// None since then, ns.
    Down(u64),
    /// None for longer than the deadline: nothing is waited for any more.
    Lost,
}

enum RequestState {
    Waiting,
    Sending(Option<Outcome>),
    Sent,
    Ended(Outcome),
}

struct Slot<J> {
    serial: u64,
    job: J,
    state: RequestState,
    fail_fast: bool,
    tries: u8,
    sent_ns: u64,
    end_ns: u64,
}

/// See the module. `J` is the protocol's own data of a request.
pub(crate) struct RequestTable<J> {
    bounds: Bounds,
    link: Link,
    slots: Vec<Option<Slot<J>>>,
    free: Vec<u16>,
    /// Cookies of those that wait, in the order in which they are sent.
    waiting: VecDeque<u64>,
    /// Requests that are being sent or wait for their answer.
    in_flight: usize,
    /// R5: one of them is alone.
    is_alone: bool,
    serial: u64,
}

impl<J> RequestTable<J> {
    pub(crate) fn new(bounds: Bounds, now: u64) -> RequestTable<J> {
        RequestTable {
            bounds,
            link: Link::Fresh(now),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            in_flight: 0,
            is_alone: false,
            serial: 0,
        }
    }

    /// Sets the bounds. A request that has begun keeps the end of its time.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Whether every request has ended and was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn link(&self) -> Link {
        self.link
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn slot(&mut self, cookie: u64) -> Option<&mut Slot<J>> {
        let slot = self.slots.get_mut((cookie & ((1 << INDEX_BITS) - 1)) as usize)?;
        slot.as_mut().filter(|slot| slot.serial == cookie >> INDEX_BITS)
    }

    /// Takes a request. `Again`, `NxIo`: it may not wait; `NoMem`: there are too many.
    pub(crate) fn begin(&mut self, job: J, fail_fast: bool, now: u64) -> Result<u64, Errno> {
        match self.link {
            Link::Lost => return Err(Errno::NxIo),
            Link::Down(_) if fail_fast => return Err(Errno::Again), // R4
            _ => {}
        }
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.slots.len() < REQUESTS_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return Err(Errno::NoMem),
        };
        self.serial += 1;
        let serial = self.serial;
        let end_ns = now.saturating_add(self.bounds.request_deadline_ns);
        let state = RequestState::Waiting;
        self.slots[index] =
            Some(Slot { serial, job, state, fail_fast, tries: 0, sent_ns: 0, end_ns });
        let cookie = serial << INDEX_BITS | index as u64;
        self.waiting.push_back(cookie);
        Ok(cookie)
    }

    /// The protocol's own data of a request that has not been taken.
    pub(crate) fn job(&mut self, cookie: u64) -> Option<&mut J> {
        self.slot(cookie).map(|slot| &mut slot.job)
    }

    pub(crate) fn next(&mut self, now: u64) -> Option<u64> {
        if self.link != Link::Up {
            return None;
        }
        let cookie = *self.waiting.front()?;
        let (is_busy, is_alone) = (self.in_flight > 0, self.is_alone);
        let slot = self.slot(cookie)?;
        // R5: the front waits until it is alone, and those behind it wait for its end.
        let wants_alone = slot.tries >= ALONE_AFTER;
        if is_busy && (wants_alone || is_alone) {
            return None;
        }
        (slot.state, slot.sent_ns) = (RequestState::Sending(None), now);
        slot.tries = slot.tries.saturating_add(1);
        self.waiting.pop_front();
        self.is_alone = wants_alone;
        self.in_flight += 1;
        Some(cookie)
    }

    /// Its bytes have left. True: it had been answered meanwhile, and has ended.
    pub(crate) fn sent(&mut self, cookie: u64) -> bool {
        let Some(slot) = self.slot(cookie) else { return false };
        let RequestState::Sending(answer) = slot.state else { return false };
        match answer {
            Some(outcome) => {
                slot.state = RequestState::Ended(outcome);
                self.in_flight -= 1;
                true
            }
            None => {
                slot.state = RequestState::Sent;
                false
            }
        }
    }

    /// True: the server may answer this one.
    pub(crate) fn is_sent(&mut self, cookie: u64) -> bool {
        let state = self.slot(cookie).map(|slot| &slot.state);
        matches!(state, Some(RequestState::Sent | RequestState::Sending(None)))
    }

    /// The server has answered. `Ok(true)`: the request has ended; an error: it was not requested.
    pub(crate) fn answer(&mut self, cookie: u64, outcome: Outcome) -> Result<bool, ()> {
        let slot = self.slot(cookie).ok_or(())?;
        match slot.state {
            RequestState::Sent => {
                slot.state = RequestState::Ended(outcome);
                self.in_flight -= 1;
                Ok(true)
            }
            RequestState::Sending(None) => {
                slot.state = RequestState::Sending(Some(outcome));
                Ok(false)
            }
            _ => Err(()),
        }
    }

    /// Takes the result of a request; its place is free then.
    pub(crate) fn take(&mut self, cookie: u64) -> Option<(J, Outcome)> {
        let slot = self.slot(cookie)?;
        let RequestState::Ended(outcome) = slot.state else { return None };
        let index = (cookie & ((1 << INDEX_BITS) - 1)) as usize;
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index as u16);
        Some((slot.job, outcome))
    }

    /// There is a connection.
    pub(crate) fn connected(&mut self) {
        if self.link != Link::Lost {
            self.link = Link::Up;
        }
    }

    /// There is no connection, and nothing of it is under way any more. Returns the cookies of
    /// requests that end by this.
    pub(crate) fn dropped(&mut self, now: u64) -> Vec<u64> {
        self.link = match self.link {
            Link::Up => Link::Down(now),
            Link::Fresh(since) => Link::Down(since),
            other => other,
        };
        let (retries, mut back, mut ended) = (self.bounds.retries, Vec::new(), Vec::new());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            let cookie = slot.serial << INDEX_BITS | index as u64;
            match slot.state {
                // Its answer had arrived before the end of its send was known.
                RequestState::Sending(Some(outcome)) => {
                    slot.state = RequestState::Ended(outcome);
                    ended.push(cookie);
                }
                RequestState::Sending(None) | RequestState::Sent if slot.tries > retries => {
                    slot.state = RequestState::Ended(Outcome::failed(Errno::RemoteIo));
                    ended.push(cookie);
                }
                RequestState::Sending(None) | RequestState::Sent => {
                    slot.state = RequestState::Waiting;
                    back.push(cookie);
                }
                RequestState::Waiting | RequestState::Ended(_) => {}
            }
        }
        self.in_flight = 0;
        // R3: serial numbers are the upper bits.
        back.sort_unstable_by(|a, b| b.cmp(a));
        back.into_iter().for_each(|cookie| self.waiting.push_front(cookie));
        ended.extend(self.expire(now));
        ended
    }

    /// Ends waiting requests whose time is up, all of them when the disk is lost, and those that
    /// may not wait (R4).
    pub(crate) fn expire(&mut self, now: u64) -> Vec<u64> {
        let since = match self.link {
            Link::Down(since) | Link::Fresh(since) => Some(since),
            Link::Up | Link::Lost => None,
        };
        if since.is_some_and(|since| now >= since.saturating_add(self.bounds.deadline_ns)) {
            self.link = Link::Lost;
        }
        let link = self.link;
        let mut ended = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|cookie| {
            let Some(slot) = self.slot(*cookie) else { return false };
            let error = match link {
                Link::Lost => Errno::NxIo,
                Link::Down(_) if slot.fail_fast => Errno::Again,
                _ if now >= slot.end_ns => Errno::TimedOut,
                _ => return true,
            };
            slot.state = RequestState::Ended(Outcome::failed(error));
            ended.push(*cookie);
            false
        });
        self.waiting = waiting;
        ended
    }

    /// No connection is expected any more: the next [`RequestTable::expire`] ends waiting requests.
    pub(crate) fn lose(&mut self) {
        self.link = Link::Lost;
    }

    /// True: the connection has to be closed, because a request takes too long.
    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        let late = |slot: &Slot<J>| {
            now >= slot.sent_ns.saturating_add(self.bounds.timeout_ns) || now >= slot.end_ns
        };
        let mut all = self.slots.iter().flatten();
        self.in_flight > 0
            && all.any(|s| {
                matches!(s.state, RequestState::Sending(_) | RequestState::Sent) && late(s)
            })
    }
}
