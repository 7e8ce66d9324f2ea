//! A connection that waits for buffer memory before it receives the data of a request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use engine::{Engine, MemoryWaiter};

/// The session of a connection that can wait for memory.
pub(crate) trait BufferWaiter: 'static {
    /// Polls its task again.
    fn wake(&self);
    /// An empty list of segments.
    fn segs(&self) -> Segs;
    /// It holds more than its share: other sessions are served first.
    fn is_over_share(&self) -> bool;
}

struct QueuedWait<S> {
    session: Rc<S>,
    engine: Rc<Engine>,
    bytes: usize,
    granted: RefCell<Option<Segs>>,
    finished: Cell<bool>,
}

impl<S: BufferWaiter> MemoryWaiter for QueuedWait<S> {
    fn grant(&self, _: u64) -> bool {
        if self.finished.get() {
            return true;
        }
        let mut data = self.session.segs();
        if !self.engine.alloc_write_data(&mut data, self.bytes, true) {
            return false;
        }
        *self.granted.borrow_mut() = Some(data);
        self.session.wake();
        true
    }

    fn wait_expired(&self, _: u64) {
        self.finished.set(true);
        self.session.wake();
    }

    fn is_over_share(&self) -> bool {
        // A wait that is over is granted, and so leaves the queue.
        !self.finished.get() && self.session.is_over_share()
    }
}

/// Leaves the queue when the wait is dropped.
struct DequeueGuard<S>(Rc<QueuedWait<S>>);

impl<S> Drop for DequeueGuard<S> {
    fn drop(&mut self) {
        self.0.finished.set(true);
        self.0.granted.take();
    }
}

/// Waits in the engine's queue for `bytes` of memory, at most `patience_ns`. None if there is none
/// in time, or when `gives_up` returns that it must not wait any longer.
pub(crate) async fn wait_for_buffers<S: BufferWaiter>(
    session: &Rc<S>,
    engine: &Rc<Engine>,
    bytes: usize,
    patience_ns: u64,
    gives_up: impl Fn() -> bool,
) -> Option<Segs> {
    let queued = Rc::new(QueuedWait {
        session: session.clone(),
        engine: engine.clone(),
        bytes,
        granted: RefCell::default(),
        finished: Cell::new(false),
    });
    let leave = DequeueGuard(queued.clone());
    engine.enqueue_memory_waiter(queued.clone(), 0);
    let wait = poll_fn(|_| match queued.granted.take() {
        Some(segs) => Poll::Ready(Some(segs)),
        None if queued.finished.get() || gives_up() => Poll::Ready(None),
        None => Poll::Pending,
    });
    let got = geom::deadline(engine.core(), patience_ns, wait).await.flatten();
    drop(leave);
    got
}
