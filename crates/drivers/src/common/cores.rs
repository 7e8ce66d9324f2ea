//! A driver on several cores: its value on each, and what they tell each other.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bio::sync::Mutex;
use reactor::Mailer;

/// A driver's value on each core of a thread: a simulation has several cores there.
pub(crate) struct Cores<H>(RefCell<Vec<(usize, u32, Weak<H>)>>);

impl<H> Cores<H> {
    /// None.
    pub const fn new() -> Cores<H> {
        Cores(RefCell::new(Vec::new()))
    }

    /// Notes the value that the driver at `place` has on a core.
    pub fn add(&self, place: usize, core: u32, here: &Rc<H>) {
        let mut all = self.0.borrow_mut();
        all.retain(|(_, _, h)| h.strong_count() > 0);
        all.push((place, core, Rc::downgrade(here)));
    }

    /// The value that the driver at `place` has on a core.
    pub fn find(&self, place: usize, core: u32) -> Option<Rc<H>> {
        let all = self.0.borrow();
        let found = all.iter().rev().find(|(p, c, _)| *p == place && *c == core);
        found.and_then(|(_, _, here)| here.upgrade())
    }
}

/// The place in [`Cores`] of a driver whose cores share `shared`.
pub(crate) fn place_of<S>(shared: &Arc<S>) -> usize {
    Arc::as_ptr(shared).addr()
}

/// The mailboxes of a driver's cores.
pub(crate) struct Post<O>(Mutex<Vec<(u32, Mailer<O>)>>);

impl<O> Default for Post<O> {
    fn default() -> Post<O> {
        Post(Mutex::default())
    }
}

impl<O: Send + 'static> Post<O> {
    /// A core has come.
    pub fn add(&self, core: u32, mailer: Mailer<O>) {
        let mut all = self.0.lock();
        all.retain(|(c, _)| *c != core);
        all.push((core, mailer));
    }

    /// Tells a core something; false when its mailbox is full or it does not listen any more.
    pub fn tell(&self, core: u32, order: O) -> bool {
        let all = self.0.lock();
        let mailer = all.iter().find(|(c, _)| *c == core).map(|(_, m)| m.clone());
        drop(all);
        mailer.is_some_and(|m| m.send(order).is_ok())
    }
}
