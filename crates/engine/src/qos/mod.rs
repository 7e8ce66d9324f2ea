//! Admission of requests to a unit under load. A limit holds for all requests together
//! (`load/concurrency_limit.rs`). The rest wait in a queue in which nexuses take turns by the cost
//! of their requests (`load/cost.rs`).
//!
//! ```text
//!   enter() --no limit, or free and none waits, or behind and below its share-------+
//!      |                                                                            v
//!      +--- else --> waits in its nexus's seat --- next(), the seat furthest --> BELOW
//!                       |                          behind                           |
//!                       +--- not wanted any more: forget()                          +-- leave()
//! ```
//! A plain read or write is one request and waits as a command (`command/admission.rs`). A task
//! waits before each of its requests. It may wait for memory or for blocks that others have, and a
//! task that waits for something else must not keep others from the medium.
//!
//! Turns are by virtual time. Every seat has a time that grows by the cost of its requests. The
//! clock of the queue is the time of the seat that sent last. A seat that was idle begins at the
//! clock. It saves up no turns by being idle, by waiting for an order or behind an ACA.
//!
//! Invariants
//!  L1  While something waits here, something of this core is below: its end gives the next turn.
//!  L2  Of two seats that always have something waiting, neither gets ahead of the other by more
//!      than the cost of its largest request. Sizes, depths and kinds of commands do not matter.
//!  L3  A seat that is not ahead of the clock and has less below than its share never waits. A
//!      nexus with few requests waits only for the requests below, not for the queue.
//!  L4  While something waits, the limit is used up. The requests of one seat keep their order, but
//!      HEAD OF QUEUE precedes the rest for a while (`qos/nexus_queue.rs`).
//!  L5  A command of the ACA attribute does not wait (a nexus has one). A waiting request has all
//!      the memory that it needs, and holds nothing that a request below could wait for.
//!  L6  Without a limit a command costs two counters and a comparison; nothing is shared with other
//!      cores but once in [`REPORT_INTERVAL_NS`].

pub(crate) mod nexus_queue;
pub(crate) mod waiter;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::load::CoreReport;
use crate::load::concurrency_limit::UNLIMITED;
use crate::load::cost::{UNIT, cost};
use crate::qos::nexus_queue::Queue;
use crate::qos::waiter::Waiter;
use crate::unit::Device;

/// Interval at which a core reports its measurements to the others, ns.
const REPORT_INTERVAL_NS: u64 = 4_000_000;

/// Weight of one request in a seat's mean cost: one part in so many.
const MEAN_WEIGHT: i64 = 8;

/// Who uses a unit: a nexus, or a copy to a unit which its nexus has not used.
pub(crate) struct QosClient {
    flow: Rc<Flow>,
    /// Costs of its requests below.
    below: Cell<u32>,
    /// Its virtual time: the start of its next request.
    virtual_time: Cell<u64>,
    /// Mean cost of its requests, lately.
    mean_cost: Cell<u32>,
    queue: RefCell<Queue<Waiter>>,
    /// Its place in the line, while something waits.
    queue_key: Cell<(u64, u64)>,
}

impl QosClient {
    pub fn new(flow: Rc<Flow>) -> Rc<QosClient> {
        Rc::new(QosClient {
            flow,
            below: Cell::default(),
            virtual_time: Cell::default(),
            mean_cost: Cell::new(UNIT),
            queue: RefCell::default(),
            queue_key: Cell::default(),
        })
    }

    pub fn flow(&self) -> &Rc<Flow> {
        &self.flow
    }

    fn is_idle(&self) -> bool {
        let waits = || self.flow.waiting.get() > 0 && !self.queue.borrow().is_empty();
        self.below.get() == 0 && !waits()
    }

    fn charge(&self, cost: u32) {
        let (mean, cost) = (i64::from(self.mean_cost.get()), i64::from(cost));
        let mean = mean + (cost - mean) / MEAN_WEIGHT;
        self.mean_cost.set(u32::try_from(mean).unwrap_or(UNIT).max(UNIT));
    }
}

/// How a request ended below.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub ns: u64,
    pub bytes: u64,
}

/// The flow of requests from one core to one unit.
pub(crate) struct Flow {
    device: Arc<Device>,
    /// Largest cost of this core below at once; [`UNLIMITED`] without a limit.
    limit: Cell<u32>,
    /// Price of bytes.
    power: Cell<u32>,
    below: Cell<u32>,
    waiting: Cell<u32>,
    /// Seats with requests here.
    active: Cell<u32>,
    done: Cell<u64>,
    bytes: Cell<u64>,
    sum_ns: Cell<u64>,
    waited: Cell<bool>,
    next_report_ns: Cell<u64>,
    /// Values that this core has reported last: seats, costs below.
    reported: Cell<(u32, u32)>,
    clock: Cell<u64>,
    /// Seats with requests that wait, by their virtual times; those of one time as they arrived.
    waiting_clients: RefCell<BTreeMap<(u64, u64), Rc<QosClient>>>,
    arrivals: Cell<u64>,
    pub pumping: Cell<bool>,
}

impl Flow {
    pub fn new(device: &Arc<Device>) -> Flow {
        Flow {
            device: device.clone(),
            limit: Cell::new(UNLIMITED),
            power: Cell::default(),
            below: Cell::default(),
            waiting: Cell::default(),
            active: Cell::default(),
            done: Cell::default(),
            bytes: Cell::default(),
            sum_ns: Cell::default(),
            waited: Cell::default(),
            next_report_ns: Cell::default(),
            reported: Cell::default(),
            clock: Cell::default(),
            waiting_clients: RefCell::default(),
            arrivals: Cell::default(),
            pumping: Cell::default(),
        }
    }

    /// The unit.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Lets a request pass and answers its cost until [`Flow::leave`]. `None`: it has to wait.
    #[inline]
    pub fn enter(&self, seat: &QosClient, urgent: bool, bytes: u64) -> Option<u32> {
        if self.limit.get() == UNLIMITED {
            self.count_below(seat, UNIT);
            return Some(UNIT);
        }
        self.enter_limited(seat, urgent, bytes)
    }

    #[cold]
    fn enter_limited(&self, seat: &QosClient, urgent: bool, bytes: u64) -> Option<u32> {
        let cost = cost(bytes, self.power.get());
        if !urgent && !self.may_enter(seat, cost) {
            return None;
        }
        self.count_below(seat, cost);
        self.send(seat, cost);
        Some(cost)
    }

    #[inline]
    fn count_below(&self, seat: &QosClient, cost: u32) {
        if seat.below.get() == 0 && seat.is_idle() {
            self.active.set(self.active.get() + 1);
        }
        seat.below.set(seat.below.get().saturating_add(cost));
        self.below.set(self.below.get().saturating_add(cost));
    }

    /// Moves the seat's time on, and the clock to when the request began.
    fn send(&self, seat: &QosClient, cost: u32) {
        let begins = seat.virtual_time.get().max(self.clock.get());
        seat.virtual_time.set(begins.saturating_add(u64::from(cost)));
        self.clock.set(begins);
        seat.charge(cost);
    }

    /// The limit is not used up. The last request exceeds it by at most half of its cost. So
    /// the cost below averages the limit, on one core or on several. One request always fits.
    fn fits(&self, cost: u32) -> bool {
        let below = self.below.get();
        below == 0 || below.saturating_add(cost / 2) < self.limit.get()
    }

    /// L3, L4.
    fn may_enter(&self, seat: &QosClient, cost: u32) -> bool {
        if !seat.queue.borrow().is_empty() {
            return false;
        }
        if self.waiting.get() == 0 && self.fits(cost) {
            return true;
        }
        let active = self.active.get() + u32::from(seat.is_idle());
        let share = self.limit.get() / active.max(1);
        seat.below.get() < share && seat.virtual_time.get() <= self.clock.get()
    }

    /// A request is below no more; its result when it has ended there. True when others wait.
    #[inline]
    pub fn leave(
        &self,
        seat: &QosClient,
        cost: u32,
        landing: Option<Completion>,
        now: u64,
    ) -> bool {
        seat.below.set(seat.below.get().saturating_sub(cost));
        self.below.set(self.below.get().saturating_sub(cost));
        if let Some(Completion { ns, bytes }) = landing {
            self.done.set(self.done.get() + 1);
            self.bytes.set(self.bytes.get().wrapping_add(bytes));
            self.sum_ns.set(self.sum_ns.get().saturating_add(ns));
        }
        if seat.below.get() == 0 {
            self.note_client_idle(seat);
        }
        if now >= self.next_report_ns.get() {
            self.report(now);
        }
        self.waiting.get() > 0
    }

    #[inline]
    fn note_client_idle(&self, seat: &QosClient) {
        if seat.is_idle() {
            self.active.set(self.active.get().saturating_sub(1));
            if self.active.get() == 0 && self.reported.get() != (0, 0) {
                self.publish(0, 0);
            }
        }
    }

    /// Reports to the other cores, and reads their reports (L6).
    #[cold]
    fn report(&self, now: u64) {
        self.next_report_ns.set(now + REPORT_INTERVAL_NS);
        let load = self.device.traffic();
        let core_report = CoreReport {
            done: self.done.take(),
            bytes: self.bytes.take(),
            sum_ns: self.sum_ns.take(),
            waited: self.waited.replace(self.waiting.get() > 0),
        };
        load.add_report(&core_report, now);
        let (all, power) = load.limit();
        self.power.set(power);
        if all == UNLIMITED {
            self.publish(0, 0);
            return self.limit.set(UNLIMITED);
        }
        // While requests wait, the request that has just left is about to be replaced.
        let next = if self.waiting.get() > 0 { UNIT } else { 0 };
        self.publish(self.active.get(), self.below.get().saturating_add(next));
        let (active, reported_below) = self.reported.get();
        let others = load.below.load(Relaxed).saturating_sub(reported_below);
        let total = load.active.load(Relaxed).max(active).max(1);
        let fair = u64::from(all) * u64::from(active) / u64::from(total);
        let fair = u32::try_from(fair).unwrap_or(all);
        self.limit.set(fair.max(all.saturating_sub(others)).max(1));
    }

    fn publish(&self, active: u32, below: u32) {
        let (was_active, was_below) = self.reported.replace((active, below));
        let load = self.device.traffic();
        load.active.fetch_add(active.wrapping_sub(was_active), Relaxed);
        load.below.fetch_add(below.wrapping_sub(was_below), Relaxed);
    }

    /// Has a request wait in its seat; with `head` as HEAD OF QUEUE does.
    pub fn queue(&self, seat: &Rc<QosClient>, waiter: Waiter, bytes: u64, head: bool) {
        if seat.is_idle() {
            self.active.set(self.active.get() + 1);
        }
        let first = seat.queue.borrow().is_empty();
        let cost = cost(bytes, self.power.get());
        seat.queue.borrow_mut().push(waiter, cost, head);
        if first {
            self.enqueue_client(seat);
        }
        self.waiting.set(self.waiting.get() + 1);
        self.waited.set(true);
    }

    fn enqueue_client(&self, seat: &Rc<QosClient>) {
        let came = self.arrivals.get();
        self.arrivals.set(came.wrapping_add(1));
        let place = (seat.virtual_time.get().max(self.clock.get()), came);
        seat.queue_key.set(place);
        self.waiting_clients.borrow_mut().insert(place, seat.clone());
    }

    /// Takes a request out that is not wanted any more; true when it waited.
    pub fn forget(&self, seat: &QosClient, is_it: impl Fn(&Waiter) -> bool) -> bool {
        let left = {
            let mut queue = seat.queue.borrow_mut();
            if !queue.forget(is_it) {
                return false;
            }
            queue.len()
        };
        self.waiting.set(self.waiting.get().saturating_sub(1));
        if left == 0 {
            let gone = self.waiting_clients.borrow_mut().remove(&seat.queue_key.get());
            self.note_client_idle(seat);
            drop(gone);
        }
        true
    }

    /// The request whose turn it is (L2), counted as being below, with its cost.
    pub fn next(&self) -> Option<(Rc<QosClient>, Waiter, u32)> {
        if self.waiting.get() == 0 {
            return None;
        }
        let seat = {
            let mut line = self.waiting_clients.borrow_mut();
            let first = line.first_entry()?;
            let cost = first.get().queue.borrow().next_cost().unwrap_or(UNIT);
            if !self.fits(cost) {
                return None;
            }
            first.remove()
        };
        let (waiter, cost, more) = {
            let mut queue = seat.queue.borrow_mut();
            let (waiter, cost) = queue.pop()?;
            (waiter, cost, !queue.is_empty())
        };
        seat.below.set(seat.below.get().saturating_add(cost));
        self.below.set(self.below.get().saturating_add(cost));
        self.waiting.set(self.waiting.get().saturating_sub(1));
        self.send(&seat, cost);
        if more {
            self.enqueue_client(&seat);
        }
        Some((seat, waiter, cost))
    }

    /// Commands that a nexus may have below just now, as large as its last ones; [`UNLIMITED`]
    /// without a limit.
    pub fn share(&self, seat: &QosClient) -> u32 {
        let limit = self.limit.get();
        if limit == UNLIMITED {
            return UNLIMITED;
        }
        let active = self.active.get() + u32::from(seat.is_idle());
        let others = self.below.get().saturating_sub(seat.below.get());
        let share = (limit / active.max(1)).max(limit.saturating_sub(others));
        share.div_ceil(seat.mean_cost.get()).max(1)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.publish(0, 0);
    }
}

#[cfg(test)]
mod tests;
