//! A connection that stands before the data of a request: there is no memory for it yet.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use engine::{Eater, Engine};

/// Whose connection it is.
pub(crate) trait Stander: 'static {
    /// Something that its task waits for has changed.
    fn kick(&self);
    /// A list of segments, empty.
    fn segs(&self) -> Segs;
    /// It holds more than its share: others go first.
    fn is_over(&self) -> bool;
}

struct Stand<S> {
    who: Rc<S>,
    engine: Rc<Engine>,
    bytes: usize,
    got: RefCell<Option<Segs>>,
    over: Cell<bool>,
}

impl<S: Stander> Eater for Stand<S> {
    fn feed(&self, _: u64) -> bool {
        if self.over.get() {
            return true;
        }
        let mut data = self.who.segs();
        if !self.engine.room_for_data(&mut data, self.bytes, true) {
            return false;
        }
        *self.got.borrow_mut() = Some(data);
        self.who.kick();
        true
    }

    fn starved(&self, _: u64) {
        self.over.set(true);
        self.who.kick();
    }

    fn is_over(&self) -> bool {
        // Who has left is fed, and so leaves the line.
        !self.over.get() && self.who.is_over()
    }
}

/// Leaves the line, whatever happens to the connection.
struct Leave<S>(Rc<Stand<S>>);

impl<S> Drop for Leave<S> {
    fn drop(&mut self) {
        self.0.over.set(true);
        self.0.got.take();
    }
}

/// Stands in the line for `bytes` of memory, `patience_ns` at most. None when there is none in
/// time, or when `gives_up` says that it must not wait any longer.
pub(crate) async fn stand<S: Stander>(
    who: &Rc<S>,
    engine: &Rc<Engine>,
    bytes: usize,
    patience_ns: u64,
    gives_up: impl Fn() -> bool,
) -> Option<Segs> {
    let stand = Rc::new(Stand {
        who: who.clone(),
        engine: engine.clone(),
        bytes,
        got: RefCell::default(),
        over: Cell::new(false),
    });
    let leave = Leave(stand.clone());
    engine.starve(stand.clone(), 0);
    let wait = poll_fn(|_| match stand.got.take() {
        Some(segs) => Poll::Ready(Some(segs)),
        None if stand.over.get() || gives_up() => Poll::Ready(None),
        None => Poll::Pending,
    });
    let got = geom::deadline(engine.core(), patience_ns, wait).await.flatten();
    drop(leave);
    got
}
