//! A request in the queue of its nexus.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// A command or request that waits for its turn.
pub(crate) enum Waiter {
    /// A plain read or write: session, and place and generation there.
    Command(u64, u64),
    /// A request of a task.
    Request(Rc<AdmissionGrant>),
}

/// The turn of one request of a task.
#[derive(Default)]
pub(crate) struct AdmissionGrant {
    /// Its cost, set at its turn.
    pub cost: Cell<Option<u32>>,
    /// Wakes the task.
    pub waker: RefCell<Option<Waker>>,
}

impl AdmissionGrant {
    /// It is its turn.
    pub fn grant(&self, cost: u32) {
        self.cost.set(Some(cost));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
