//! The one queue of a disk: its requests, their states, and the choice of the next. It implements
//! Q1 to Q9 of the module.
//!
//! It has no core and no clock: the holder of the lock passes both the core and the time. Work for
//! a core is left in the slot of that core: requests to be called ([`DiskQueue::call`]) and a bell
//! to be rung ([`DiskQueue::bell`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bio::{BioId, Origin, Ticket};
use geom::Origins;

use super::algorithms::{self, Algorithm, Request, Step};
use super::clients::{Classify, Clients, Service};
use super::region_counts::RegionCounts;

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// What becomes of a kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dispatch {
    /// The algorithm decides when it starts.
    Queue,
    /// Q2.
    Fence,
    /// It starts at once, but never past a fence.
    Direct,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestState {
    Free,
    /// With the algorithm.
    Queued,
    /// Q4: behind another one.
    Held,
    /// Q2: a fence, or behind one.
    Fenced,
    /// In its core's slot, to be called.
    Decided,
    /// Called; it has not arrived yet.
    Called,
    /// Below.
    Started,
}

/// One that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) core: usize,
    pub(super) ticket: Ticket,
    pub(super) dispatch: Dispatch,
    pub(super) origin: Origin,
    pub(super) write: bool,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// For how many bytes it keeps the disk busy.
    pub(super) cost: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    state: RequestState,
    dispatch: Dispatch,
    core: usize,
    ticket: Ticket,
    request: Request,
    length: u64,
    /// Those that wait for it (Q4), the first of a chain, and the next in the chain it is in.
    followers: u32,
    next: u32,
}

impl Slot {
    fn place(&self) -> (u64, u64, bool) {
        (self.request.offset, self.length, self.request.write)
    }
}

/// One core's share.
#[derive(Default)]
struct CoreSlot {
    decided: VecDeque<u32>,
    called: VecDeque<u32>,
    waker: Option<Waker>,
    /// Its task has something to do.
    signalled: bool,
    /// And was not woken for it yet.
    to_wake: bool,
}

/// Number of requests by state, for lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueCounts {
    pub(super) waiting: u32,
    pub(super) in_flight: u32,
    pub(super) fenced: usize,
}

/// See the module.
pub(super) struct DiskQueue {
    algorithm: Box<dyn Algorithm>,
    /// The last answer of the algorithm's `is_transparent`, read when it was configured.
    is_transparent: bool,
    pub(super) algorithm_name: &'static str,
    pub(super) clients: Clients,
    pub(super) classify: Classify,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// A fence and the requests that arrived behind it, in order.
    fences: VecDeque<u32>,
    /// The first of them has been decided, and has not been sent down.
    fence_out: bool,
    core_slots: Box<[CoreSlot]>,
    region_counts: RegionCounts,
    /// Queued or Held.
    queued: u32,
    /// Of the algorithm's: decided, called or below.
    in_flight: u32,
    /// Decided or called.
    pending: u32,
    serial: u64,
    draining: bool,
    /// Q5: the time of the next call of the algorithm, and the core that calls it.
    due: Option<(u64, usize)>,
    /// Bells that have not been rung.
    wakers_pending: bool,
    pub(super) closed: bool,
}

impl DiskQueue {
    pub(super) fn new(
        (name, algorithm): (&'static str, Box<dyn Algorithm>),
        classify: Classify,
        (cores, origins): (usize, Arc<Origins>),
    ) -> DiskQueue {
        DiskQueue {
            is_transparent: algorithm.is_transparent(),
            algorithm,
            algorithm_name: name,
            clients: Clients::new(origins),
            classify,
            slots: Vec::new(),
            free: Vec::new(),
            fences: VecDeque::new(),
            fence_out: false,
            core_slots: (0..cores.max(1)).map(|_| CoreSlot::default()).collect(),
            region_counts: RegionCounts::new(),
            queued: 0,
            in_flight: 0,
            pending: 0,
            serial: 0,
            draining: false,
            due: None,
            wakers_pending: false,
            closed: false,
        }
    }

    pub(super) fn algorithm(&self) -> &dyn Algorithm {
        &*self.algorithm
    }

    pub(super) fn counts(&self) -> QueueCounts {
        let fenced = self.fences.len();
        QueueCounts { waiting: self.queued, in_flight: self.in_flight, fenced }
    }

    /// True when requests that are not queued may start at once.
    pub(super) fn is_unfenced(&self) -> bool {
        self.fences.is_empty()
    }

    /// Q9: nothing is inside that a request which passes by could pass.
    pub(super) fn may_bypass(&self) -> bool {
        self.is_transparent && !self.is_busy()
    }

    /// Q9: counts requests of one origin that bypassed the hub.
    pub(super) fn add_bypassed(&mut self, origin: Origin, got: &Service) {
        self.clients.add_bypassed((origin, self.classify), got, &mut *self.algorithm);
    }

    /// Takes one in; whether it starts at once. `None` when the core is none of ours, and it has to
    /// be sent down without the queue.
    pub(super) fn arrive(&mut self, a: Arrival, now: u64) -> Option<(u32, bool)> {
        let is_alone = a.dispatch == Dispatch::Queue && !self.is_busy();
        let id = self.place(&a, now)?;
        if is_alone {
            return Some((id, self.start_alone(id, a.core, now)));
        }
        if a.dispatch == Dispatch::Fence || !self.fences.is_empty() {
            self.fences.push_back(id);
        } else {
            self.admit(id, now);
        }
        self.step(a.core, now);
        Some((id, self.take_decided(id, a.core, now)))
    }

    /// A request waits, or was named and has not been sent down.
    fn is_busy(&self) -> bool {
        self.queued != 0 || self.pending != 0 || !self.fences.is_empty()
    }

    /// A request that arrived while none waited. It cannot pass or overlap another one, and if the
    /// algorithm names a request it is this one.
    fn start_alone(&mut self, id: u32, me: usize, now: u64) -> bool {
        let Some(slot) = self.slots.get_mut(id as usize) else { return false };
        slot.state = RequestState::Queued;
        let slot = *slot;
        self.algorithm.arrived(slot.request, now);
        let step = self.algorithm.next(now, self.draining);
        if step == Step::Start(id) {
            self.in_flight += 1;
            self.set_state(id, RequestState::Started);
            self.clients.started(slot.request.client, 0);
            return true;
        }
        self.queued += 1;
        self.region_counts.change(slot.place(), true);
        self.waits_until(step, me);
        false
    }

    /// A place for one that arrives.
    fn place(&mut self, a: &Arrival, now: u64) -> Option<u32> {
        self.core_slots.get(a.core)?;
        let client = self.clients.enter((a.origin, self.classify), now, &mut *self.algorithm);
        let id = match self.free.pop() {
            Some(id) => id,
            None => u32::try_from(self.slots.len()).ok()?,
        };
        self.serial += 1;
        let (serial, bytes, came_ns) = (self.serial, a.cost, now);
        let request = Request {
            id,
            serial,
            client,
            write: a.write,
            offset: a.offset,
            bytes,
            arrived_ns: came_ns,
        };
        let slot = Slot {
            state: RequestState::Fenced,
            dispatch: a.dispatch,
            core: a.core,
            ticket: a.ticket,
            request,
            length: a.length,
            followers: NONE,
            next: NONE,
        };
        match self.slots.get_mut(id as usize) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        Some(id)
    }

    fn slot(&self, id: u32) -> Option<&Slot> {
        self.slots.get(id as usize)
    }

    fn set_state(&mut self, id: u32, state: RequestState) {
        if let Some(slot) = self.slots.get_mut(id as usize) {
            slot.state = state;
        }
    }

    /// One that no fence keeps: to the algorithm, behind one it overlaps, or straight on.
    fn admit(&mut self, id: u32, now: u64) {
        let Some(slot) = self.slot(id).copied() else { return };
        if slot.dispatch != Dispatch::Queue {
            return self.decide(id);
        }
        self.queued += 1;
        let before = if self.region_counts.may_overlap(slot.place()) {
            self.overlapped(&slot)
        } else {
            None
        };
        self.region_counts.change(slot.place(), true);
        match before {
            Some(before) => self.queue_behind(before, id),
            None => {
                self.set_state(id, RequestState::Queued);
                self.algorithm.arrived(slot.request, now);
            }
        }
    }

    /// Of those before it that it overlaps, and one of which writes, the newest.
    fn overlapped(&self, new: &Slot) -> Option<u32> {
        let (start, end) = (new.request.offset, new.request.offset.saturating_add(new.length));
        let waits = |s: &&Slot| {
            let waits = matches!(
                s.state,
                RequestState::Queued
                    | RequestState::Held
                    | RequestState::Decided
                    | RequestState::Called
            );
            waits
                && s.dispatch == Dispatch::Queue
                && s.request.serial < new.request.serial
                && (s.request.write || new.request.write)
                && s.request.offset < end
                && start < s.request.offset.saturating_add(s.length)
        };
        self.slots.iter().filter(waits).max_by_key(|s| s.request.serial).map(|s| s.request.id)
    }

    fn queue_behind(&mut self, before: u32, id: u32) {
        let Some(first) = self.slots.get_mut(before as usize) else { return };
        let next = std::mem::replace(&mut first.followers, id);
        if let Some(slot) = self.slots.get_mut(id as usize) {
            (slot.state, slot.next) = (RequestState::Held, next);
        }
    }

    /// It is sent down as soon as its core gets to it.
    fn decide(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        slot.state = RequestState::Decided;
        let core = slot.core;
        self.pending += 1;
        if let Some(core_slot) = self.core_slots.get_mut(core) {
            core_slot.decided.push_back(id);
        }
    }

    /// Takes the next request from the algorithm for core `me`, until no further one may start.
    pub(super) fn step(&mut self, me: usize, now: u64) {
        let decided = self.pending;
        while !self.fence_out && (self.poll_algorithm(me, now) || self.pass_fence(now)) {}
        if self.pending != decided {
            self.signal_others(me);
        }
    }

    /// Lets the algorithm name one.
    fn poll_algorithm(&mut self, me: usize, now: u64) -> bool {
        if self.queued == 0 {
            return false;
        }
        let hurry = self.draining || !self.fences.is_empty();
        let step = self.algorithm.next(now, hurry);
        if let Step::Start(id) = step {
            self.queued = self.queued.saturating_sub(1);
            self.in_flight += 1;
            self.decide(id);
            return true;
        }
        self.waits_until(step, me);
        false
    }

    /// Q5: core `me` calls the algorithm again.
    fn waits_until(&mut self, step: Step, me: usize) {
        if let Step::Until(at) = step
            && self.due.is_none_or(|(due, _)| at < due)
        {
            self.due = Some((at, me));
            self.signal(me);
        }
    }

    /// Q2: the first behind the fence, or the fence itself if it is its turn.
    fn pass_fence(&mut self, now: u64) -> bool {
        let Some(slot) = self.fences.front().and_then(|id| self.slot(*id)).copied() else {
            return false;
        };
        let id = slot.request.id;
        if slot.dispatch != Dispatch::Fence {
            self.fences.pop_front();
            self.admit(id, now);
            return true;
        }
        let core_slot = self.core_slots.get(slot.core);
        let gone = core_slot.is_none_or(|l| l.decided.is_empty() && l.called.is_empty());
        if self.queued == 0 && gone {
            self.fence_out = true;
            self.decide(id);
        }
        false
    }

    /// It is sent down now.
    fn pass(&mut self, id: u32, now: u64) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        slot.state = RequestState::Started;
        let mut follower = std::mem::replace(&mut slot.followers, NONE);
        let slot = *slot;
        self.pending = self.pending.saturating_sub(1);
        self.clients.started(slot.request.client, now.saturating_sub(slot.request.arrived_ns));
        match slot.dispatch {
            Dispatch::Fence => {
                self.fences.pop_front();
                self.fence_out = false;
            }
            Dispatch::Queue => self.region_counts.change(slot.place(), false),
            Dispatch::Direct => {}
        }
        while let Some(next) = self.slot(follower).copied() {
            // It is counted and found again.
            self.queued = self.queued.saturating_sub(1);
            self.region_counts.change(next.place(), false);
            if let Some(slot) = self.slots.get_mut(follower as usize) {
                slot.next = NONE;
                slot.state = RequestState::Fenced;
            }
            self.admit(follower, now);
            follower = next.next;
        }
    }

    /// Whether one of core `me`, which arrived a moment ago, is sent down at once.
    fn take_decided(&mut self, id: u32, me: usize, now: u64) -> bool {
        if self.slot(id).is_none_or(|s| s.state != RequestState::Decided) {
            return false;
        }
        if let Some(core_slot) = self.core_slots.get_mut(me)
            && let Some(at) = core_slot.decided.iter().rposition(|d| *d == id)
        {
            core_slot.decided.remove(at);
        }
        self.pass(id, now);
        self.step(me, now);
        true
    }

    /// The next one that core `me` has to call, if it is there to be called.
    pub(super) fn call(&mut self, me: usize) -> Option<(u32, Ticket)> {
        let core_slot = self.core_slots.get_mut(me)?;
        let id = core_slot.decided.pop_front()?;
        core_slot.called.push_back(id);
        self.set_state(id, RequestState::Called);
        self.slot(id).map(|slot| (id, slot.ticket))
    }

    /// Whether core `me` has a request to call.
    pub(super) fn has_calls(&self, me: usize) -> bool {
        self.core_slots.get(me).is_some_and(|l| !l.decided.is_empty())
    }

    /// One that was called has reached core `me`; it is sent down.
    pub(super) fn take_called(&mut self, bio: BioId, me: usize, now: u64) -> Option<u32> {
        let core_slot = self.core_slots.get_mut(me)?;
        let slots = &self.slots;
        let is = |id: &u32| slots.get(*id as usize).is_some_and(|s| s.ticket.id() == bio);
        let at = core_slot.called.iter().position(is)?;
        let id = core_slot.called.remove(at)?;
        self.pass(id, now);
        self.step(me, now);
        Some(id)
    }

    /// A called request no longer exists: it was ended elsewhere.
    pub(super) fn lost(&mut self, id: u32, me: usize, now: u64) {
        let Some(core_slot) = self.core_slots.get_mut(me) else { return };
        let Some(at) = core_slot.called.iter().position(|c| *c == id) else { return };
        core_slot.called.remove(at);
        self.pass(id, now);
        self.ended(id, (0, 0), me, now);
    }

    /// One has returned from below.
    pub(super) fn ended(&mut self, id: u32, (read, written): (u64, u64), me: usize, now: u64) {
        let Some(slot) = self.slot(id).copied().filter(|s| s.state == RequestState::Started) else {
            return;
        };
        self.clients.leave(slot.request.client, read, written);
        if slot.dispatch == Dispatch::Queue {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.algorithm.ended(&slot.request, now);
        }
        self.set_state(id, RequestState::Free);
        self.free.push(id);
        self.step(me, now);
    }

    /// Q7. The waiting requests are passed to the new algorithm in their order of arrival.
    pub(super) fn change(&mut self, (name, mut new): (&'static str, Box<dyn Algorithm>), now: u64) {
        self.clients.pass_shares(&mut *new, true);
        new.adopt(self.in_flight);
        let queued = self.slots.iter().filter(|s| s.state == RequestState::Queued);
        let mut queued: Vec<Request> = queued.map(|s| s.request).collect();
        queued.sort_unstable_by_key(|r| r.serial);
        queued.into_iter().for_each(|r| new.arrived(r, now));
        self.is_transparent = new.is_transparent();
        self.algorithm = new;
        self.algorithm_name = name;
        self.signal(0);
    }

    /// Sets knobs and shares; the algorithm is then called again.
    pub(super) fn configure<R>(
        &mut self,
        change: impl FnOnce(&mut dyn Algorithm, &mut Clients) -> R,
    ) -> R {
        let done = change(&mut *self.algorithm, &mut self.clients);
        self.is_transparent = self.algorithm.is_transparent();
        self.signal(0);
        done
    }

    /// Changes the attribute that distinguishes clients.
    pub(super) fn set_classify(&mut self, classify: Classify) {
        if self.classify != classify {
            self.classify = classify;
            self.clients.forget();
        }
    }

    /// Q6.
    pub(super) fn set_draining(&mut self, hurry: bool) {
        self.draining = hurry;
        self.signal(0);
    }

    fn signal(&mut self, core: usize) {
        if let Some(core_slot) = self.core_slots.get_mut(core) {
            (core_slot.signalled, core_slot.to_wake, self.wakers_pending) = (true, true, true);
        }
    }

    fn signal_others(&mut self, me: usize) {
        for (core, core_slot) in self.core_slots.iter_mut().enumerate() {
            if core != me && !core_slot.decided.is_empty() && !core_slot.signalled {
                (core_slot.signalled, core_slot.to_wake, self.wakers_pending) = (true, true, true);
            }
        }
    }

    /// The end: the task of every core checks.
    pub(super) fn close(&mut self) {
        self.closed = true;
        (0..self.core_slots.len()).for_each(|core| self.signal(core));
    }

    /// Whether there are bells to be rung.
    pub(super) fn has_pending_wakers(&self) -> bool {
        self.wakers_pending
    }

    /// A bell to be rung, when the lock is free again.
    pub(super) fn next_waker(&mut self) -> Option<Waker> {
        if !self.wakers_pending {
            return None;
        }
        for core_slot in &mut self.core_slots {
            if core_slot.to_wake {
                core_slot.to_wake = false;
                if core_slot.waker.is_some() {
                    return core_slot.waker.clone();
                }
            }
        }
        self.wakers_pending = false;
        None
    }

    /// The task of core `me` looks, and calls the algorithm if this is due. Returns the time of
    /// the next look, ns.
    pub(super) fn poll_core(&mut self, me: usize, now: u64) -> Option<u64> {
        if let Some(core_slot) = self.core_slots.get_mut(me) {
            (core_slot.signalled, core_slot.to_wake) = (false, false);
        }
        if self.due.is_some_and(|(due, core)| core == me && due <= now) {
            self.due = None;
        }
        self.step(me, now);
        if let Some(core_slot) = self.core_slots.get_mut(me) {
            // This call processes all bells rung for this core so far.
            (core_slot.signalled, core_slot.to_wake) = (false, false);
        }
        self.due.filter(|(_, core)| *core == me).map(|(due, _)| due)
    }

    /// Whether the task of core `me` has to look; otherwise stores its waker.
    pub(super) fn poll_signal(&mut self, me: usize, waker: &Waker) -> bool {
        let Some(core_slot) = self.core_slots.get_mut(me) else { return true };
        if !core_slot.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            core_slot.waker = Some(waker.clone());
        }
        core_slot.signalled || self.closed || !core_slot.decided.is_empty()
    }

    /// Q1: every place is in one state, and counted right. For tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let count = |state: RequestState| self.slots.iter().filter(|s| s.state == state).count();
        let total = |f: fn(&CoreSlot) -> usize| self.core_slots.iter().map(f).sum::<usize>();
        assert_eq!(count(RequestState::Free), self.free.len());
        assert_eq!(count(RequestState::Queued) + count(RequestState::Held), self.queued as usize);
        assert_eq!(count(RequestState::Decided), total(|l| l.decided.len()));
        assert_eq!(count(RequestState::Called), total(|l| l.called.len()));
        assert_eq!(total(|l| l.called.len() + l.decided.len()), self.pending as usize);
        let out = usize::from(self.fence_out);
        assert_eq!(count(RequestState::Fenced) + out, self.fences.len());
    }
}

/// An algorithm by name, with options set.
pub(super) fn algorithm(
    name: &str,
    options: &[(String, u64)],
) -> Result<(&'static str, Box<dyn Algorithm>), geom::Error> {
    let (name, mut algorithm) = algorithms::make(name)?;
    for (key, value) in options {
        let set = algorithm.knobs_mut().set(key, *value);
        set.map_err(|why| geom::Error::new(bio::Errno::Inval, format!("{name}: {why}")))?;
    }
    Ok((name, algorithm))
}
