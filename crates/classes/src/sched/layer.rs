//! The data path: requests enter the hub, and are sent down when the algorithm names them.
//!
//! A request that waits is parked with a ticket. Its core restarts it, and it is sent down from
//! [`Layer::ready`], so that the hub knows in which order that happens. On every core a task of the
//! layer's sleeps. Another core rings it when it has named one of this core's requests, and it
//! keeps the time of a wait (Q5). It ends with the layer, which is dropped when no core has
//! anything in it any more.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::task::Poll;

use bio::sync::{Mutex, MutexGuard};
use bio::{Bio, Errno, Flags, Op, Origin};
use geom::{Back, Core, Edge, Flow, Layer, Notifier};

use super::clients::Service;
use super::queue::{Arrival, DiskQueue, Dispatch};

/// The word of a request that the hub does not know.
const PASS: u64 = u64::MAX;

/// A request without data, other than zeroes that have to be written, costs the disk as much as
/// so many bytes.
const SMALL: u64 = 4096;

/// Places in which a core counts requests that bypass the hub, by the number of their origin. If
/// two origins share a place, their counts are passed to the hub at each alternation.
const ORIGIN_SLOTS: usize = 64;
/// The number of no origin.
const NO_ORIGIN: u32 = u32::MAX;

/// Requests of one origin that bypassed the hub on one core (Q9). Only that core counts and checks
/// the origin. The origin and the counts already passed to the hub change under the hub's lock.
struct OriginCounts {
    origin: AtomicU32,
    /// Requests, bytes read, bytes written.
    counts: [AtomicU64; 3],
    reported: [AtomicU64; 3],
}

impl Default for OriginCounts {
    fn default() -> OriginCounts {
        OriginCounts {
            origin: AtomicU32::new(NO_ORIGIN),
            counts: Default::default(),
            reported: Default::default(),
        }
    }
}

impl OriginCounts {
    #[inline]
    fn count(&self, bio: &Bio) {
        let [requests, read, written] = &self.counts;
        let add = |n: &AtomicU64, by| n.store(n.load(Relaxed) + by, Relaxed);
        add(requests, 1);
        match bio.op {
            Op::Read => add(read, bio.length),
            Op::Write | Op::WriteZeroes => add(written, bio.length),
            _ => {}
        }
    }

    fn report_counts(&self, hub: &mut DiskQueue) {
        let new = |at: usize| match (self.counts.get(at), self.reported.get(at)) {
            (Some(count), Some(last)) => {
                let is = count.load(Relaxed);
                is.wrapping_sub(last.swap(is, Relaxed))
            }
            _ => 0,
        };
        let [requests, read_bytes, written_bytes] = [new(0), new(1), new(2)];
        if requests != 0 {
            let got = Service { requests, read_bytes, written_bytes, ..Service::default() };
            hub.add_bypassed(Origin(self.origin.load(Relaxed)), &got);
        }
    }
}

/// The lots of one core.
#[repr(align(128))]
struct CoreBypass([OriginCounts; ORIGIN_SLOTS]);

/// What all cores and the control thread share.
pub(super) struct SchedShared {
    queue: Mutex<DiskQueue>,
    /// Q9. Changed under the hub's lock.
    bypass: AtomicBool,
    bypassed: Box<[CoreBypass]>,
}

impl SchedShared {
    pub(super) fn new(hub: DiskQueue, cores: usize) -> SchedShared {
        let by = AtomicBool::new(hub.may_bypass());
        let lots = |_| CoreBypass(std::array::from_fn(|_| OriginCounts::default()));
        let passed = (0..cores.max(1)).map(lots).collect();
        SchedShared { queue: Mutex::new(hub), bypass: by, bypassed: passed }
    }

    fn lock(&self) -> MutexGuard<'_, DiskQueue> {
        self.queue.lock()
    }

    /// The hub, which knows of all that passed by.
    fn lock_updated(&self) -> MutexGuard<'_, DiskQueue> {
        let mut hub = self.lock();
        self.bypassed.iter().flat_map(|p| &p.0).for_each(|lot| lot.report_counts(&mut hub));
        hub
    }

    /// Looks, without changing the requests that may start.
    pub(super) fn with_queue<R>(&self, f: impl FnOnce(&mut DiskQueue) -> R) -> R {
        f(&mut self.lock_updated())
    }

    /// Q9: one passes by, on this core.
    #[inline]
    fn count_bypass(&self, bio: &Bio, core: &Core) {
        let Some(passed) = self.bypassed.get(core.id() as usize) else { return };
        let origin = bio.origin;
        let Some(lot) = passed.0.get(origin.0 as usize % ORIGIN_SLOTS) else { return };
        if lot.origin.load(Relaxed) != origin.0 {
            self.assign_origin(lot, origin);
        }
        lot.count(bio);
    }

    #[cold]
    fn assign_origin(&self, lot: &OriginCounts, origin: Origin) {
        let mut hub = self.lock();
        lot.report_counts(&mut hub);
        // The origin is resolved now, because it may be removed when the counts are passed to the
        // hub.
        hub.add_bypassed(origin, &Service::default());
        lot.origin.store(origin.0, Relaxed);
    }

    /// Changes something from the control thread.
    pub(super) fn update<R>(&self, f: impl FnOnce(&mut DiskQueue) -> R) -> R {
        let mut hub = self.lock_updated();
        self.bypass.store(false, Release);
        let done = f(&mut hub);
        self.update_bypass(&hub);
        drop(hub);
        self.wake_cores();
        done
    }

    pub(super) fn reset(&self) {
        self.with_queue(|hub| hub.clients.reset());
    }

    fn update_bypass(&self, hub: &DiskQueue) {
        if hub.may_bypass() {
            self.bypass.store(true, Release);
        }
    }

    fn wake_cores(&self) {
        loop {
            let Some(waker) = self.lock().next_waker() else { return };
            waker.wake();
        }
    }

    /// Calls those of this core that may start, and rings for the others.
    fn restart_called(&self, core: &Core) {
        let me = core.id() as usize;
        loop {
            let Some((id, ticket)) = self.lock().call(me) else { break };
            if !core.restart(ticket) {
                self.lock().lost(id, me, core.now());
            }
        }
        self.wake_cores();
    }

    /// Ends a look at the hub: whether there is anything to do outside the lock.
    fn unlock(&self, hub: MutexGuard<'_, DiskQueue>, core: &Core) {
        let more = hub.has_calls(core.id() as usize) || hub.has_pending_wakers();
        self.update_bypass(&hub);
        drop(hub);
        if more {
            self.restart_called(core);
        }
    }
}

pub(super) fn start_tasks(shared: &Arc<SchedShared>, notifier: &Notifier) {
    for core in 0..notifier.cores() {
        let shared = shared.clone();
        let start = move |core: &Rc<Core>| {
            core.reactor().spawn("sched", core_task(shared, core.clone()));
        };
        notifier.call(core, Box::new(start));
    }
}

async fn core_task(shared: Arc<SchedShared>, core: Rc<Core>) {
    let me = core.id() as usize;
    loop {
        let due = {
            let mut hub = shared.lock();
            if hub.closed {
                return;
            }
            let due = hub.poll_core(me, core.now());
            shared.unlock(hub, &core);
            due
        };
        let time = async {
            match due {
                Some(due) => core.reactor().sleep(due.saturating_sub(core.now())).await,
                None => pending().await,
            }
        };
        let mut time = pin!(time);
        poll_fn(|cx| {
            let is_signalled = shared.lock().poll_signal(me, cx.waker());
            if is_signalled { Poll::Ready(()) } else { time.as_mut().poll(cx) }
        })
        .await;
    }
}

/// See the module.
pub(super) struct SchedLayer {
    pub(super) shared: Arc<SchedShared>,
    pub(super) below: Edge,
}

impl Drop for SchedLayer {
    fn drop(&mut self) {
        self.shared.with_queue(DiskQueue::close);
        self.shared.wake_cores();
    }
}

/// What becomes of a request; `None`: it is none that keeps a disk busy.
fn dispatch(bio: &Bio) -> Option<Dispatch> {
    match bio.op {
        Op::GetAttr => None,
        _ if bio.flags.has(Flags::ORDERED) => Some(Dispatch::Fence),
        Op::Read | Op::Write | Op::WriteZeroes | Op::Delete => Some(Dispatch::Queue),
        Op::Flush | Op::Map => Some(Dispatch::Direct),
    }
}

impl SchedLayer {
    #[inline(never)]
    fn queue(&self, bio: &mut Bio, core: &Core) -> Flow {
        let pass = Flow::Down(self.below, PASS);
        let Some(manner) = dispatch(bio) else { return pass };
        let (me, now) = (core.id() as usize, core.now());
        let mut hub = self.shared.lock();
        if manner == Dispatch::Direct && hub.is_unfenced() {
            return pass;
        }
        let arrival = Arrival {
            core: me,
            ticket: bio.ticket(),
            dispatch: manner,
            origin: bio.origin,
            write: bio.op.needs_write(),
            offset: bio.offset,
            length: bio.length,
            cost: if bio.op == Op::Delete { SMALL } else { bio.length },
        };
        let Some((id, goes)) = hub.arrive(arrival, now) else { return pass };
        self.shared.unlock(hub, core);
        match goes {
            true => Flow::Down(self.below, u64::from(id)),
            false => Flow::Wait,
        }
    }

    #[inline(never)]
    fn completed(&self, bio: &Bio, word: u64, core: &Core) {
        let Ok(id) = u32::try_from(word) else { return };
        let moved = match bio.op {
            Op::Read => (bio.completed, 0),
            Op::Write | Op::WriteZeroes => (0, bio.completed),
            _ => (0, 0),
        };
        let mut hub = self.shared.lock();
        hub.ended(id, moved, core.id() as usize, core.now());
        self.shared.unlock(hub, core);
    }
}

impl Layer for SchedLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if !self.shared.bypass.load(Acquire) {
            return self.queue(bio, core);
        }
        self.shared.count_bypass(bio, core);
        Flow::Down(self.below, PASS)
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let mut hub = self.shared.lock();
        let id = hub.take_called(bio.id(), core.id() as usize, core.now());
        self.shared.unlock(hub, core);
        Flow::Down(self.below, id.map_or(PASS, u64::from))
    }

    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        if word != PASS {
            self.completed(bio, word, core);
        }
        Back::Up
    }
}
