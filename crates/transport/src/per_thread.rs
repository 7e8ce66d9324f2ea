//! Values of a thread's cores, and mailboxes between cores.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bio::sync::Mutex;
use reactor::Mailer;

/// The values that drivers have on each core of a thread; a simulation has several cores there.
pub struct Cores<H: ?Sized>(RefCell<Vec<(usize, u32, Weak<H>)>>);

impl<H: ?Sized> Cores<H> {
    /// Empty.
    pub const fn new() -> Cores<H> {
        Cores(RefCell::new(Vec::new()))
    }

    /// Adds the value that the driver `key` has on a core.
    pub fn add(&self, key: usize, core: u32, value: &Rc<H>) {
        let mut all = self.0.borrow_mut();
        all.retain(|(_, _, v)| v.strong_count() > 0);
        all.push((key, core, Rc::downgrade(value)));
    }

    /// The value that the driver `key` has on a core.
    pub fn find(&self, key: usize, core: u32) -> Option<Rc<H>> {
        let all = self.0.borrow();
        let found = all.iter().rev().find(|(k, c, _)| *k == key && *c == core);
        found.and_then(|(_, _, value)| value.upgrade())
    }
}

impl<H: ?Sized> Default for Cores<H> {
    fn default() -> Cores<H> {
        Cores::new()
    }
}

/// The key in [`Cores`] of a driver whose cores share `shared`.
pub fn key_of<S>(shared: &Arc<S>) -> usize {
    Arc::as_ptr(shared).addr()
}

/// Mailboxes of a driver's cores.
pub struct Mailboxes<O>(Mutex<Vec<(u32, Mailer<O>)>>);

impl<O> Default for Mailboxes<O> {
    fn default() -> Mailboxes<O> {
        Mailboxes(Mutex::default())
    }
}

impl<O: Send + 'static> Mailboxes<O> {
    /// Adds a core.
    pub fn add(&self, core: u32, mailer: Mailer<O>) {
        let mut all = self.0.lock();
        all.retain(|(c, _)| *c != core);
        all.push((core, mailer));
    }

    /// Sends an order to a core; false when its mailbox is full or closed.
    pub fn send(&self, core: u32, order: O) -> bool {
        let all = self.0.lock();
        let mailer = all.iter().find(|(c, _)| *c == core).map(|(_, m)| m.clone());
        drop(all);
        mailer.is_some_and(|m| m.send(order).is_ok())
    }
}
