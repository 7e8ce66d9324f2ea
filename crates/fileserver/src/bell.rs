//! Waiting for something to happen on this core.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use reactor::Reactor;

/// Rings for everybody who waits.
#[derive(Default)]
pub struct Bell {
    count: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Bell {
    /// How often it rang; to be read before looking at what is waited for.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Wakes everybody.
    pub fn ring(&self) {
        self.count.set(self.count.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Until it has rung more than `seen` times.
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

    /// The same, or until so many ns have passed.
    pub async fn after_or(&self, reactor: &Reactor, seen: u64, ns: Option<u64>) {
        let mut rung = pin!(self.after(seen));
        let Some(ns) = ns else { return rung.await };
        let mut slept = pin!(reactor.sleep(ns));
        poll_fn(|cx| match rung.as_mut().poll(cx) {
            Poll::Pending => slept.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }
}
