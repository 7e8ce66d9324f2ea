//! State shared by the cores, the issuer and the geom of one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

use bio::Ticket;
use bio::sync::Mutex;
use extents::trim::{Load, Pacing, Queue};
use geom::{Edge, GeomId, Notifier};

use super::queue::DeleteQueue;

/// Requests of one core that were sent down here; only that core writes it.
#[repr(align(128))]
#[derive(Default)]
struct CoreSlot {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A wakeup flag that is consumed once, also if it was set before a waiter registered.
#[derive(Default)]
struct WakeFlag {
    rung: bool,
    waker: Option<Waker>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The queue was shut and nothing is in flight any more.
    Drained,
}

/// See the module.
pub(super) struct TrimShared {
    /// The queue's name, which distinguishes its sender from others.
    pub(super) name: String,
    pub(super) delete_queue: DeleteQueue,
    /// Deletes are queued here; otherwise they are sent down as they arrive.
    pub(super) defers: bool,
    pub(super) below: Edge,
    pub(super) geom: GeomId,
    pub(super) notifier: Notifier,
    core_slots: Box<[CoreSlot]>,
    wake_flag: Arc<Mutex<WakeFlag>>,
}

fn wake(bell: &Mutex<WakeFlag>) {
    let waker = {
        let mut bell = bell.lock();
        bell.rung = true;
        bell.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl TrimShared {
    pub(super) fn new(
        name: &str,
        (notifier, geom, below): (Notifier, GeomId, Edge),
        media: u64,
        queue: Queue,
        pacing: Pacing,
        defers: bool,
    ) -> Arc<TrimShared> {
        let bell = Arc::<Mutex<WakeFlag>>::default();
        let (rings, wakes) = (bell.clone(), notifier.clone());
        let restart = move |core: usize, ticket: Ticket| wakes.restart(core, ticket);
        let ring = Box::new(move || wake(&rings));
        let core_slots = (0..notifier.cores().max(1)).map(|_| CoreSlot::default()).collect();
        let delete_queue = DeleteQueue::new(media, queue, pacing, ring, Box::new(restart));
        Arc::new(TrimShared {
            name: name.to_owned(),
            delete_queue,
            defers,
            below,
            geom,
            notifier,
            core_slots,
            wake_flag: bell,
        })
    }

    fn core_slot(&self, core: usize) -> &CoreSlot {
        &self.core_slots[core % self.core_slots.len()]
    }

    /// A request is sent down on this core.
    #[inline]
    pub(super) fn begins(&self, core: usize) {
        let begun = &self.core_slot(core).begun;
        begun.store(begun.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// It returned.
    #[inline]
    pub(super) fn ends(&self, core: usize) {
        let ended = &self.core_slot(core).ended;
        ended.store(ended.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Requests of others so far.
    pub(super) fn load(&self) -> Load {
        let sum = |f: fn(&CoreSlot) -> &AtomicU64| {
            self.core_slots.iter().map(|l| f(l).load(Relaxed)).sum()
        };
        // Ended first, so that none seems to have ended before it began.
        let ended = sum(|l| &l.ended);
        Load { begun: sum(|l| &l.begun), ended }
    }

    /// Until the bell rings.
    pub(super) async fn wait_for_wakeup(&self) {
        std::future::poll_fn(|cx| {
            let mut bell = self.wake_flag.lock();
            if std::mem::take(&mut bell.rung) {
                return Poll::Ready(());
            }
            bell.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
