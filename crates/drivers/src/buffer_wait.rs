//! A connection that waits for buffer memory before it receives the data of a request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use engine::{Eater, Engine};

/// The session of a connection that can wait for memory.
pub(crate) trait BufferWaiter: 'static {
    /// Polls its task again.
    fn wake(&self);
    /// An empty list of segments.
    fn segs(&self) -> Segs;
    /// It holds more than its share: other sessions are served first.
    fn is_over(&self) -> bool;
}

struct Wait<S> {
    session: Rc<S>,
    engine: Rc<Engine>,
    bytes: usize,
    got: RefCell<Option<Segs>>,
    over: Cell<bool>,
}

impl<S: BufferWaiter> Eater for Wait<S> {
    fn feed(&self, _: u64) -> bool {
        if self.over.get() {
            return true;
        }
        let mut data = self.session.segs();
        if !self.engine.room_for_data(&mut data, self.bytes, true) {
            return false;
        }
        *self.got.borrow_mut() = Some(data);
        self.session.wake();
        true
    }

    fn starved(&self, _: u64) {
        self.over.set(true);
        self.session.wake();
    }

    fn is_over(&self) -> bool {
        // A wait that is over is granted, and so leaves the queue.
        !self.over.get() && self.session.is_over()
    }
}

/// Leaves the queue when the wait is dropped.
struct Leave<S>(Rc<Wait<S>>);

impl<S> Drop for Leave<S> {
    fn drop(&mut self) {
        self.0.over.set(true);
        self.0.got.take();
    }
}

/// Waits in the engine's queue for `bytes` of memory, at most `patience_ns`. None if there is none
/// in time, or when `gives_up` says that it must not wait any longer.
pub(crate) async fn wait_for_buffers<S: BufferWaiter>(
    session: &Rc<S>,
    engine: &Rc<Engine>,
    bytes: usize,
    patience_ns: u64,
    gives_up: impl Fn() -> bool,
) -> Option<Segs> {
    let queued = Rc::new(Wait {
        session: session.clone(),
        engine: engine.clone(),
        bytes,
        got: RefCell::default(),
        over: Cell::new(false),
    });
    let leave = Leave(queued.clone());
    engine.starve(queued.clone(), 0);
    let wait = poll_fn(|_| match queued.got.take() {
        Some(segs) => Poll::Ready(Some(segs)),
        None if queued.over.get() || gives_up() => Poll::Ready(None),
        None => Poll::Pending,
    });
    let got = geom::deadline(engine.core(), patience_ns, wait).await.flatten();
    drop(leave);
    got
}
