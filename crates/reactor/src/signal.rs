//! A wakeup signal between tasks of one reactor, and futures with a deadline.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::reactor::Reactor;

/// Wakes a task of the same thread (one waits, any may ring). Clones share it. One ring without a
/// waiter is remembered, so a writer that finds its queue empty and then waits misses nothing.
#[derive(Clone, Default)]
pub struct Signal(Rc<SignalInner>);

#[derive(Default)]
struct SignalInner {
    is_set: Cell<bool>,
    waiters: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Without a waiter and without a remembered ring.
    pub fn new() -> Signal {
        Signal::default()
    }

    /// Wakes the waiters, of whom the first takes the ring; with none, the next wait ends at once.
    pub fn notify(&self) {
        self.0.is_set.set(true);
        let waiters = self.0.waiters.take();
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Waits for a ring since the last wait that ended.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.0.is_set.replace(false) {
                return Poll::Ready(());
            }
            let mut waiters = self.0.waiters.borrow_mut();
            if !waiters.iter().any(|w| w.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Reactor {
    /// `work`, unless it takes longer than `ns`: None then, and it is dropped where it was.
    pub async fn within<T>(&self, ns: u64, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut deadline = pin!(self.sleep(ns));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            deadline.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}
