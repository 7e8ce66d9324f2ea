//! Request queue of a disk: implements [`Flags::ORDERED`] for every kind of disk.
//!
//! Invariants
//!  O1  Of the requests of one core to one disk, one with ORDERED is handed to the disk when all
//!      requests before it have ended. Requests after it are handed over when it has ended. All
//!      others, FLUSH too, are handed over at once and may pass each other. GETATTR is not queued.
//!  O2  Between cores order is by completion only. A request that was acknowledged, on any core,
//!      before an ORDERED request was sent is before it, and a request that is sent after its
//!      acknowledgement is after it. Of two requests of different cores that are under way
//!      together, none is first.
//!  O3  A queue belongs to one core. While nothing in it is ordered a request costs two loads and
//!      two stores there; its lock is taken otherwise, and never by another core.
//!  O4  A request waits only while another one is inside the disk, or while a waiting one has been
//!      called. Each end, good or bad, calls the next one, and a called one calls the one behind.
//!  O5  A request that the disk has no memory for keeps its place: it counts as inside and is
//!      tried again from here.
//!
//! ```text
//!   start --nothing ordered--------------------------------> disk --ended--> the next is called
//!     \--ORDERED and requests inside, or others wait--> waiting --called--^
//! ```
//!
//! Requests that are larger than the disk takes arrive in pieces, one behind the other with no
//! other request between them (geom's dispatcher sees to that). Each piece of an ORDERED one is
//! ordered, so they run one after the other, and together they are one barrier.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::sync::{Mutex, MutexGuard};
use bio::{Bio, BioId, Errno, Flags, Op, ResolvedArc, Ticket};
use geom::{Core, Flow, Layer};

use crate::failures::Failures;

/// Wait before a request that the disk had no memory for is tried again, ns.
const NOMEM_RETRY_NS: u64 = 1_000_000;

/// Set in a queue's word while its line has to be checked; the other bits count the requests
/// inside.
const QUEUED: u64 = 1 << 63;

/// A disk with its queue.
pub(crate) struct Ordered {
    disk: ResolvedArc<dyn Layer>,
    core_queues: Box<[CoreQueue]>,
    failures: Arc<Failures>,
}

/// One core's share, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct CoreQueue {
    /// Requests inside the disk, and [`QUEUED`]. O3: an atomic only because layers are shared.
    inflight: AtomicU64,
    wait_queue: Mutex<WaitQueue>,
}

#[derive(Default)]
struct WaitQueue {
    waiting: VecDeque<Waiter>,
    /// The request inside the disk is ordered, and alone.
    barrier: bool,
    /// The first that waits has been called and has not run yet.
    restarted: bool,
    /// O5.
    out_of_memory: Vec<BioId>,
}

struct Waiter {
    ticket: Ticket,
    ordered: bool,
}

enum RestartReason {
    Dequeued,
    TriedAgain,
    Ready,
}

impl Ordered {
    /// The queue of `disk` for requests of `cores` cores. The disk answers `Wait` or `Done`, and
    /// requests of it end by [`Layer::ready`]. Requests of other cores are handed on unordered.
    /// Failed requests are recorded in `failures`.
    pub(crate) fn new(disk: Arc<dyn Layer>, cores: usize, failures: Arc<Failures>) -> Ordered {
        let core_queues = (0..cores.max(1)).map(|_| CoreQueue::default()).collect();
        Ordered { disk: ResolvedArc::new(disk), core_queues, failures }
    }

    #[inline]
    fn core_queue(&self, core: &Core) -> Option<&CoreQueue> {
        self.core_queues.get(core.id() as usize)
    }

    #[cold]
    #[inline(never)]
    fn start_queued(&self, queue: &CoreQueue, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op == Op::GetAttr {
            return self.disk.start(bio, core);
        }
        let ordered = bio.flags.has(Flags::ORDERED);
        let mut line = queue.wait_queue();
        if line.barrier || !line.waiting.is_empty() || (ordered && queue.inflight_count() != 0) {
            line.waiting.push_back(Waiter { ticket: bio.ticket(), ordered });
            queue.set_queued(true);
            return Flow::Wait;
        }
        line.barrier = ordered;
        drop(line);
        let flow = self.disk.start(bio, core);
        self.answered(queue, bio, core, flow, false)
    }

    #[cold]
    #[inline(never)]
    fn ready_queued(
        &self,
        queue: &CoreQueue,
        bio: &mut Bio,
        result: Result<u64, Errno>,
        core: &Core,
    ) -> Flow {
        let why = queue.wait_queue().restart_reason(bio.id());
        match why {
            RestartReason::Dequeued => {
                let flow = self.disk.start(bio, core);
                self.answered(queue, bio, core, flow, false)
            }
            RestartReason::TriedAgain => {
                let flow = self.disk.start(bio, core);
                self.answered(queue, bio, core, flow, true)
            }
            RestartReason::Ready => {
                let flow = self.disk.ready(bio, result, core);
                self.answered(queue, bio, core, flow, true)
            }
        }
    }

    /// Counts the disk's answer to a request, and calls the next request.
    #[cold]
    #[inline(never)]
    fn answered(
        &self,
        queue: &CoreQueue,
        bio: &Bio,
        core: &Core,
        flow: Flow,
        was_inside: bool,
    ) -> Flow {
        let flow = match flow {
            Flow::Done(Err(Errno::NoMem)) => {
                queue.wait_queue().out_of_memory.push(bio.id());
                core.wake(bio.ticket(), NOMEM_RETRY_NS);
                Flow::Wait
            }
            Flow::Done(Err(error)) => {
                self.failures.record(bio, error, core.now());
                flow
            }
            other => other,
        };
        match (flow, was_inside) {
            (Flow::Done(_), true) => queue.left(),
            (Flow::Done(_), false) | (_, true) => {}
            (_, false) => queue.entered(),
        }
        while let Some(ticket) = queue.next() {
            if core.restart(ticket) {
                break;
            }
            // Ended elsewhere; then the turn of the next one has started.
            queue.wait_queue().forget_restarted();
        }
        flow
    }
}

impl CoreQueue {
    #[inline]
    fn is_free(&self) -> bool {
        self.inflight.load(Relaxed) & QUEUED == 0
    }

    #[inline]
    fn inflight_count(&self) -> u64 {
        self.inflight.load(Relaxed) & !QUEUED
    }

    #[inline]
    fn entered(&self) {
        self.inflight.store(self.inflight.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    fn left(&self) {
        let word = self.inflight.load(Relaxed);
        debug_assert!(word & !QUEUED != 0, "who leaves was inside");
        self.inflight.store(word - 1, Relaxed);
    }

    fn set_queued(&self, on: bool) {
        self.inflight.store(self.inflight_count() | if on { QUEUED } else { 0 }, Relaxed);
    }

    fn wait_queue(&self) -> MutexGuard<'_, WaitQueue> {
        self.wait_queue.lock()
    }

    /// Calls the first that waits if it is its turn.
    fn next(&self) -> Option<Ticket> {
        let mut line = self.wait_queue();
        let empty = self.inflight_count() == 0;
        line.barrier &= !empty;
        let free = !line.barrier && !line.restarted;
        let first = line.waiting.front().filter(|w| free && (empty || !w.ordered));
        let ticket = first.map(|w| w.ticket);
        line.restarted |= ticket.is_some();
        self.set_queued(line.barrier || !line.waiting.is_empty() || !line.out_of_memory.is_empty());
        ticket
    }
}

impl WaitQueue {
    fn restart_reason(&mut self, bio: BioId) -> RestartReason {
        if let Some(first) = self.waiting.front()
            && first.ticket.id() == bio
        {
            self.barrier = first.ordered;
            self.forget_restarted();
            return RestartReason::Dequeued;
        }
        match self.out_of_memory.iter().position(|id| *id == bio) {
            Some(at) => {
                self.out_of_memory.swap_remove(at);
                RestartReason::TriedAgain
            }
            None => RestartReason::Ready,
        }
    }

    fn forget_restarted(&mut self) {
        self.waiting.pop_front();
        self.restarted = false;
    }
}

impl Layer for Ordered {
    fn delete_ranges(&self) -> u32 {
        self.disk.delete_ranges()
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let Some(queue) = self.core_queue(core) else { return self.disk.start(bio, core) };
        if !queue.is_free() || bio.flags.has(Flags::ORDERED) {
            return self.start_queued(queue, bio, core);
        }
        // The answers of every day are made anew: copying one that was just written in parts costs
        // more than all the rest of this.
        match self.disk.start(bio, core) {
            Flow::Done(Ok(())) => Flow::Done(Ok(())),
            Flow::Wait => {
                queue.entered();
                Flow::Wait
            }
            other => self.answered(queue, bio, core, other, false),
        }
    }

    fn ready(&self, bio: &mut Bio, result: Result<u64, Errno>, core: &Core) -> Flow {
        let Some(queue) = self.core_queue(core) else { return self.disk.ready(bio, result, core) };
        if !queue.is_free() {
            return self.ready_queued(queue, bio, result, core);
        }
        match self.disk.ready(bio, result, core) {
            Flow::Done(Ok(())) => {
                queue.left();
                Flow::Done(Ok(()))
            }
            other => self.answered(queue, bio, core, other, true),
        }
    }
}
