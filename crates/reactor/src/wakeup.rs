//! Wakeup of a reactor from another thread.
//!
//! ```text
//!            park (reactor)                     reactor back from the kernel
//!  RUNNING ----------------> PARKED ---+        +--------------------> RUNNING
//!     |                                | notify | (writes the eventfd)
//!     +---- notify -------> NOTIFIED <-+--------+
//! ```
//!
//! Invariants
//!  W1  The eventfd is written only for a parked reactor: a busy one costs its callers no call.
//!  W2  An entry put on a list before `notify` is seen by the turn that consumes the notification.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Wake;

use bio::sync::Mutex;

const RUNNING: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// A task as wakers and queues name it: index and generation.
pub(crate) type TaskKey = (u32, u32);

/// Tasks that may run, in order. Shared by the executor and the wakers of its own thread.
pub(crate) type RunQueue = Rc<RefCell<VecDeque<TaskKey>>>;

thread_local! {
    /// The run queues of the reactors that live on this thread, by the place in `Remote`.
    static LOCAL: RefCell<Vec<(u64, RunQueue)>> = const { RefCell::new(Vec::new()) };
}

/// The part of a reactor that other threads may touch.
pub(crate) struct Remote {
    id: u64,
    state: AtomicU8,
    woken: Mutex<Vec<TaskKey>>,
    /// None in simulation, where no thread sleeps.
    eventfd: Option<OwnedFd>,
}

impl Remote {
    pub(crate) fn new(bell: Option<OwnedFd>) -> Arc<Remote> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Remote {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: AtomicU8::new(RUNNING),
            woken: Mutex::new(Vec::new()),
            eventfd: bell,
        })
    }

    pub(crate) fn eventfd(&self) -> Option<&OwnedFd> {
        self.eventfd.as_ref()
    }

    /// Makes this thread's wakers put tasks straight on `queue`.
    pub(crate) fn register_thread(&self, queue: RunQueue) {
        LOCAL.with(|h| h.borrow_mut().push((self.id, queue)));
    }

    pub(crate) fn leave(&self) {
        // The thread may be ending and its table dropped already.
        let _ = LOCAL.try_with(|h| h.borrow_mut().retain(|(id, _)| *id != self.id));
    }

    /// Requests a turn.
    pub(crate) fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == PARKED
            && let Some(bell) = &self.eventfd
        {
            // Fails only when the counter is full, and then the sleeper wakes anyway.
            let _ = rustix::io::write(bell.as_fd(), &1u64.to_ne_bytes());
        }
    }

    /// True if a turn was requested and has not been taken yet.
    pub(crate) fn is_notified(&self) -> bool {
        self.state.load(Ordering::SeqCst) == NOTIFIED
    }

    /// Announces sleep; false if a turn was requested first.
    pub(crate) fn park(&self) -> bool {
        self.state.compare_exchange(RUNNING, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Consumes the notification, if any, and the tasks woken from afar.
    pub(crate) fn collect(&self, queue: &RunQueue) -> bool {
        // Nothing is to be consumed in most turns: a read is cheaper than an exchange.
        if self.state.load(Ordering::SeqCst) == RUNNING
            || self.state.swap(RUNNING, Ordering::SeqCst) != NOTIFIED
        {
            return false;
        }
        queue.borrow_mut().extend(self.woken.lock().drain(..));
        true
    }

    fn wake(&self, task: TaskKey) {
        let local = LOCAL
            .try_with(|queues| {
                let queues = queues.borrow();
                match queues.iter().find(|(id, _)| *id == self.id) {
                    Some((_, queue)) => {
                        queue.borrow_mut().push_back(task);
                        true
                    }
                    None => false,
                }
            })
            .unwrap_or(false);
        if !local {
            self.woken.lock().push(task);
            self.notify();
        }
    }
}

/// The data behind a task's `Waker`: one for a task's whole life.
pub(crate) struct TaskWaker {
    remote: Arc<Remote>,
    task: TaskKey,
    queued: AtomicBool,
}

impl TaskWaker {
    pub(crate) fn new(remote: Arc<Remote>, task: TaskKey) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { remote, task, queued: AtomicBool::new(true) })
    }

    /// To be called before the task is polled: a wake from now on queues it again.
    pub(crate) fn rearm(&self) {
        self.queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            self.remote.wake(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    #[cfg(not(miri))]
    fn w1_eventfd_is_written_only_for_a_parked_reactor() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let remote = Remote::new(Some(bell));
        let is_written = || rustix::io::read(remote.eventfd().unwrap(), &mut [0u8; 8]).is_ok();
        remote.notify();
        assert!(!is_written(), "it is busy");
        assert!(!remote.park(), "a turn was requested");
        assert!(remote.collect(&RunQueue::default()) && remote.park());
        remote.notify();
        remote.notify();
        assert!(is_written() && !is_written(), "one write for both");
    }
}
