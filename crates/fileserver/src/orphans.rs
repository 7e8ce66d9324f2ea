//! Keepers of files that have lost their names, and the files that are to be given back.
//!
//! Invariants
//!  K1  A file with a keeper is not given back.
//!  K2  When the last keeper of a file is dropped, the task that gives files back is notified.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::files::Ino;
use crate::notify::Notify;

#[derive(Default)]
struct Inner {
    /// Files that are kept, with the number of their keepers.
    held: RefCell<HashMap<Ino, u32>>,
    /// Files to be looked at.
    released: RefCell<Vec<Ino>>,
    /// Files whose contents have to be moved.
    unsettled: RefCell<Vec<Ino>>,
    notify: Notify,
    closed: Cell<bool>,
}

/// See the module. Clones share it; it never leaves its core.
#[derive(Clone, Default)]
pub struct InodeRefs(Rc<Inner>);

impl InodeRefs {
    /// While the guard lives, a file that loses its name keeps its contents.
    pub fn hold(&self, ino: Ino) -> InodeRef {
        *self.0.held.borrow_mut().entry(ino).or_default() += 1;
        InodeRef { refs: self.clone(), ino }
    }

    /// True while the file has a keeper.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.held.borrow().contains_key(&ino)
    }

    /// Queues a file for the task that waits in [`InodeRefs::released`].
    pub fn release(&self, ino: Ino) {
        self.0.released.borrow_mut().push(ino);
        self.0.notify.notify_all();
    }

    /// Files that were released since the last call; waits for one. None once it is closed.
    pub async fn released(&self) -> Vec<Ino> {
        loop {
            let seen = self.0.notify.count();
            let released = self.0.released.take();
            if !released.is_empty() || self.0.closed.get() {
                return released;
            }
            self.0.notify.after(seen).await;
        }
    }

    /// A file's contents have to be moved.
    pub fn unsettle(&self, ino: Ino) {
        self.0.unsettled.borrow_mut().push(ino);
    }

    /// Takes one of those files; the caller settles it.
    pub fn unsettled(&self) -> Option<Ino> {
        self.0.unsettled.borrow_mut().pop()
    }

    /// Drops all keepers that remain.
    pub fn dismiss(&self) {
        self.0.held.borrow_mut().clear();
    }

    /// Ends all waits.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.0.notify.notify_all();
    }
}

/// See `InodeRefs::hold`.
pub struct InodeRef {
    refs: InodeRefs,
    ino: Ino,
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        let mut held = self.refs.0.held.borrow_mut();
        let Some(n) = held.get_mut(&self.ino) else { return };
        *n -= 1;
        if *n == 0 {
            held.remove(&self.ino);
            drop(held);
            self.refs.release(self.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k2_file_is_released_when_its_last_keeper_is_dropped() {
        let refs = InodeRefs::default();
        let (one, other) = (refs.hold(7), refs.hold(7));
        drop(one);
        assert!(refs.has(7) && refs.0.released.borrow().is_empty());
        drop(other);
        assert_eq!((refs.has(7), refs.0.released.take()), (false, vec![7]));
    }
}
