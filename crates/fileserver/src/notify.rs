//! Condition variable for the tasks of one core.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use reactor::Reactor;

/// See the module.
#[derive(Default)]
pub struct Notify {
    count: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Number of notifications; to be read before the condition is tested.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Wakes all waiting tasks.
    pub fn notify_all(&self) {
        self.count.set(self.count.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Until it has notified more than `seen` times.
    pub async fn after(&self, seen: u64) {
        poll_fn(|cx| {
            if self.count.get() > seen {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// The same, for at most `ns`.
    pub async fn after_or(&self, reactor: &Reactor, seen: u64, ns: Option<u64>) {
        let mut notified = pin!(self.after(seen));
        let Some(ns) = ns else { return notified.await };
        let mut slept = pin!(reactor.sleep(ns));
        poll_fn(|cx| match notified.as_mut().poll(cx) {
            Poll::Pending => slept.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }
}
