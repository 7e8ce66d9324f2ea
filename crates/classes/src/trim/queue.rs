//! Shared access of all cores to the delete queue of a device.
//!
//! The queue is protected by a lock, which deletes take. Writes first read one word: the medium is
//! divided into regions, and a bit is set if the queue has an entry in a region. If it has none,
//! a write passes without the lock.
//!
//! ```text
//!   write: bit clear ----------------------------------------------> down
//!          bit set ---> lock: not in flight, taken out of the queue -> down
//!                       lock: in flight ---> waits --command ended---> again
//!   delete: lock: queued, bits set ---> acknowledged
//!   issuer (one task, core 0): lock: take ---> DELETE below ---> lock: ended, waiters run
//! ```
//!
//! Invariants
//!  E1  A write that begins after a delete of the same bytes was acknowledged sees the bit. The bit
//!      is set before the acknowledgement, and cleared only when the queue has no entry there.
//!  E2  A write is sent down only when, at some moment after it began, no command in flight covered
//!      a byte of it. From then on no queued or stale entry covers one either, except deletes that
//!      began after it. A write and a delete of the same bytes that are in flight together have no
//!      order.
//!  E3  A waiting write is restarted when the command in flight has ended, and checks again.
//!  E4  While the delete queue is shut nothing is queued and nothing is sent: deletes are sent down
//!      by themselves. A command in flight at the time of the shut is waited for.
//!  E5  The issuer never sleeps beyond the moment at which the queue has something for it.

use std::ops::Range;

use bio::Ticket;
use extents::trim::{
    Command, Limits, Load, Outcome, Pacer, Pacing, Policy, Queue, Totals, WriteCheck,
};

use super::sync::{AtomicU32, Mutex, MutexGuard, SeqCst};

/// Regions of a medium; a power of two.
const REGIONS: u64 = 2048;
const BITS: u64 = 32;
const WORDS: usize = (REGIONS / BITS) as usize;

/// The answer to a write that arrives at the delete queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Continue.
    Pass,
    /// Answer `Flow::Wait`: the ticket is used when the command in flight has ended. Then check
    /// again.
    Wait,
}

/// What becomes of a delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeleteDecision {
    /// The delete is acknowledged to its sender.
    Queued,
    /// The queue takes none: the delete is sent down by itself, as a write does.
    Pass,
}

/// The next action of the issuer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Send this, then report the result.
    Send(Command),
    /// Check again at that time, or when the bell rings.
    Until(u64),
    /// Check again when the bell rings.
    Rest,
    /// End.
    Stop,
}

/// How full the queue is: ranges and bytes each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillLevel {
    pub(crate) queued: (usize, u64),
    pub(crate) stale: (usize, u64),
    pub(crate) in_flight: (usize, u64),
    /// Duration of the last command, ns.
    pub(crate) last_ns: Option<u64>,
    /// The device's time spent on commands, ns.
    pub(crate) spent_ns: u64,
    pub(crate) off: bool,
    /// Everything is being sent on request.
    pub(crate) sending_all: bool,
    /// All deletes of the last request have been sent to the device.
    pub(crate) all_sent: bool,
    /// Then: bytes of it that are done, and of all of it.
    pub(crate) done: (u64, u64),
    pub(crate) in_doubt: bool,
}

struct QueueState {
    queue: Queue,
    pacer: Pacer,
    /// The words as they were set last.
    words: [u32; WORDS],
    waiting: Vec<(usize, Ticket)>,
    open: bool,
    stop: bool,
    /// Bytes to be sent when all were requested, or the present number of bytes.
    wanted: u64,
    /// A caller waits until nothing is in flight.
    closing: bool,
    /// Until when the issuer sleeps. Zero while it is awake, or sleeps to spare other requests:
    /// then no new delete wakes it earlier.
    sleeps_until: u64,
}

/// Rings the issuer's bell.
type WakeIssuer = Box<dyn Fn() + Send + Sync>;
/// Wakes a Bio on its core.
type Restart = Box<dyn Fn(usize, Ticket) + Send + Sync>;

/// See the module.
pub(crate) struct DeleteQueue {
    words: Box<[AtomicU32]>,
    shift: u32,
    state: Mutex<QueueState>,
    wake_issuer: WakeIssuer,
    restart: Restart,
}

impl DeleteQueue {
    /// For a medium of so many bytes. Neither `ring` nor `restart` may call back.
    pub(crate) fn new(
        media: u64,
        queue: Queue,
        pacing: Pacing,
        ring: WakeIssuer,
        restart: Restart,
    ) -> DeleteQueue {
        let shift = media.div_ceil(REGIONS).checked_next_power_of_two().unwrap_or(1 << 63);
        DeleteQueue {
            words: (0..WORDS).map(|_| AtomicU32::new(0)).collect(),
            shift: shift.trailing_zeros(),
            state: Mutex::new(QueueState {
                queue,
                pacer: Pacer::new(pacing),
                words: [0; WORDS],
                waiting: Vec::new(),
                open: false,
                stop: false,
                wanted: 0,
                closing: false,
                sleeps_until: 0,
            }),
            wake_issuer: ring,
            restart,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// The regions of a range; bytes behind the last region belong to it.
    fn regions(&self, range: &Range<u64>) -> std::ops::RangeInclusive<u64> {
        let last = range.end.saturating_sub(1).max(range.start);
        (range.start >> self.shift).min(REGIONS - 1)..=(last >> self.shift).min(REGIONS - 1)
    }

    fn region(&self, number: u64) -> Range<u64> {
        let end = if number == REGIONS - 1 { u64::MAX } else { (number + 1) << self.shift };
        number << self.shift..end
    }

    /// Whether the queue may have an entry in the range (E1): the first check of a write.
    #[inline]
    pub(crate) fn near(&self, range: &Range<u64>) -> bool {
        let mut regions = self.regions(range);
        regions.any(|r| {
            let word = self.words.get((r / BITS) as usize);
            word.is_none_or(|w| w.load(SeqCst) >> (r % BITS) & 1 == 1)
        })
    }

    fn put_bit(&self, inside: &mut QueueState, region: u64, set: bool) {
        let (at, bit) = ((region / BITS) as usize, 1u32 << (region % BITS));
        let (Some(own), Some(word)) = (inside.words.get_mut(at), self.words.get(at)) else {
            return;
        };
        let new = if set { *own | bit } else { *own & !bit };
        if new != *own {
            *own = new;
            word.store(new, SeqCst);
        }
    }

    /// Clears the bits of regions in which the queue has no entry.
    fn clear(&self, inside: &mut QueueState, regions: impl Iterator<Item = u64>) {
        for region in regions {
            let own = inside.words.get((region / BITS) as usize).copied().unwrap_or(0);
            if own >> (region % BITS) & 1 == 1 && !inside.queue.tracks(&self.region(region)) {
                self.put_bit(inside, region, false);
            }
        }
    }

    fn clear_all(&self, inside: &mut QueueState) {
        let set =
            |inside: &QueueState, w: &u64| inside.words.get(*w as usize).is_some_and(|w| *w != 0);
        let words: Vec<u64> = (0..WORDS as u64).filter(|w| set(inside, w)).collect();
        let bits = words.into_iter().flat_map(|w| w * BITS..(w + 1) * BITS);
        self.clear(inside, bits);
    }

    /// Enters a write for which [`DeleteQueue::near`] answered true; `ticket` is created only if it
    /// has to wait.
    pub(crate) fn write(
        &self,
        range: &Range<u64>,
        core: usize,
        ticket: impl FnOnce() -> Ticket,
    ) -> Entry {
        let mut inside = self.state();
        let write_check = inside.queue.before_write(range);
        self.clear(&mut inside, self.regions(range));
        if write_check == WriteCheck::Clear {
            return Entry::Pass;
        }
        inside.waiting.push((core, ticket()));
        Entry::Wait
    }

    /// Queues these ranges for deletion: all of them, or none.
    pub(crate) fn delete(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
        now: u64,
    ) -> DeleteDecision {
        let rings = {
            let mut inside = self.state();
            if !inside.open || inside.queue.is_unsupported() {
                return DeleteDecision::Pass;
            }
            for range in ranges {
                inside.queue.free(range.clone(), now);
                for region in self.regions(&range) {
                    self.put_bit(&mut inside, region, true);
                }
            }
            inside.press();
            inside.is_late(now)
        };
        if rings {
            (self.wake_issuer)();
        }
        DeleteDecision::Queued
    }

    /// The issuer's next action.
    pub(crate) fn step(&self, now: u64, load: Load) -> Step {
        let (step, freed) = {
            let mut inside = self.state();
            inside.sleeps_until = 0;
            inside.queue.expire(now);
            let freed = inside.released();
            if !freed.is_empty() {
                self.clear_all(&mut inside);
            }
            (inside.step(now, load), freed)
        };
        self.restart_writes(freed);
        step
    }

    /// A command of [`DeleteQueue::step`] has ended.
    pub(crate) fn ended(&self, number: u64, outcome: Outcome, now: u64, load: Load) {
        let freed = {
            let mut inside = self.state();
            let units = inside.queue.in_flight().1;
            inside.pacer.end(now, load, units);
            inside.queue.ended(number, outcome, now);
            if inside.queue.is_unsupported() {
                // The entries will never be used again.
                inside.queue.forget();
            }
            let max = inside.queue.limits().command_max;
            let size = inside.pacer.size(inside.queue.command_max()).min(max);
            inside.queue.set_command_max(size);
            inside.press();
            self.clear_all(&mut inside);
            inside.released()
        };
        self.restart_writes(freed);
    }

    fn restart_writes(&self, freed: Vec<(usize, Ticket)>) {
        for (core, ticket) in freed {
            (self.restart)(core, ticket);
        }
    }

    /// Opens it (E4), or shuts it and drops all waiting deletes. True when a command is in flight:
    /// [`DeleteQueue::drained`] reports its end.
    pub(crate) fn set_open(&self, open: bool) -> bool {
        let mut inside = self.state();
        inside.open = open;
        if open {
            inside.closing = false;
            return false;
        }
        inside.queue.forget();
        self.clear_all(&mut inside);
        inside.closing = inside.queue.in_flight().0 > 0;
        inside.closing
    }

    /// True once after it was shut, when nothing is in flight any more.
    pub(crate) fn drained(&self) -> bool {
        let mut inside = self.state();
        let now = inside.closing && inside.queue.in_flight().0 == 0;
        inside.closing &= !now;
        now
    }

    /// The issuer ends.
    pub(crate) fn stop(&self) {
        self.state().stop = true;
        (self.wake_issuer)();
    }

    /// Sends everything, including stale and short ranges.
    pub(crate) fn send_all(&self, now: u64) {
        {
            let mut inside = self.state();
            inside.queue.start_full_trim(now);
            inside.wanted = inside.queue.full_trim_left();
        }
        (self.wake_issuer)();
    }

    /// Ends the request to send everything: the remaining entries wait as before. True when there
    /// was one.
    pub(crate) fn end_send_all(&self) -> bool {
        let mut inside = self.state();
        let was = inside.queue.is_full_trim_active();
        if was {
            inside.queue.end_full_trim();
        }
        was
    }

    /// Sets new limits for the commands that the provider below takes.
    pub(crate) fn set_limits(&self, limits: Limits) {
        {
            let mut inside = self.state();
            if inside.queue.limits() == limits.sane() && !inside.queue.is_unsupported() {
                return;
            }
            inside.queue.set_limits(limits);
            self.clear_all(&mut inside);
        }
        (self.wake_issuer)();
    }

    /// Another policy and share.
    pub(crate) fn configure(&self, policy: Policy, pacing: Pacing) {
        {
            let mut inside = self.state();
            inside.queue.set_policy(policy);
            inside.pacer.set(pacing);
            self.clear_all(&mut inside);
        }
        (self.wake_issuer)();
    }

    /// The medium ends there from now on.
    pub(crate) fn cut_off(&self, size: u64) {
        let mut inside = self.state();
        inside.queue.cut_off(size);
        self.clear_all(&mut inside);
    }

    /// What one command may hold.
    pub(crate) fn limits(&self) -> Limits {
        self.state().queue.limits()
    }

    pub(crate) fn fill(&self) -> FillLevel {
        let inside = self.state();
        let (q, pacer) = (&inside.queue, &inside.pacer);
        let wanted = inside.wanted.max(q.full_trim_left());
        FillLevel {
            queued: q.queued(),
            stale: q.stale(),
            in_flight: q.in_flight(),
            last_ns: pacer.last_ns(),
            spent_ns: pacer.spent_ns(),
            off: q.is_unsupported(),
            sending_all: q.is_full_trim_active(),
            all_sent: q.is_fully_trimmed(),
            done: (wanted - q.full_trim_left(), wanted),
            in_doubt: q.in_doubt(),
        }
    }

    /// The totals; with `reset` they restart from zero.
    pub(crate) fn totals(&self, reset: bool) -> Totals {
        let mut inside = self.state();
        let totals = inside.queue.totals();
        if reset {
            inside.queue.reset_totals();
        }
        totals
    }
}

impl QueueState {
    /// The queue is nearly full: all eligible deletes are sent.
    fn press(&mut self) {
        let max = self.queue.policy().queued_max;
        self.queue.set_pressure(self.queue.queued().0 > max / 4 * 3);
    }

    /// The issuer sleeps longer than it should (E5).
    fn is_late(&self, now: u64) -> bool {
        self.queue.next_at(now).is_some_and(|at| at < self.sleeps_until)
    }

    /// Takes out the waiting writes when nothing is in flight (E3).
    fn released(&mut self) -> Vec<(usize, Ticket)> {
        match self.queue.in_flight().0 {
            0 => std::mem::take(&mut self.waiting),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, now: u64, load: Load) -> Step {
        if self.stop && self.queue.in_flight().0 == 0 {
            return Step::Stop;
        }
        let mut at = self.queue.next_at(now);
        if self.open && self.queue.wants(now) {
            match self.pacer.may_send(now, load) {
                Ok(()) => {
                    if let Some(command) = self.queue.take(now) {
                        self.pacer.begin(now, load);
                        return Step::Send(command);
                    }
                    at = self.queue.next_at(now);
                }
                Err(later) => return Step::Until(later.max(now.saturating_add(1))),
            }
        } else if !self.open && !self.queue.in_doubt() {
            at = None;
        }
        self.sleeps_until = at.map_or(u64::MAX, |at| at.max(now.saturating_add(1)));
        match self.sleeps_until {
            u64::MAX => Step::Rest,
            at => Step::Until(at),
        }
    }
}
