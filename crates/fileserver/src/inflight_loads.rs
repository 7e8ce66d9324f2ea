//! Blocks on their way into memory: one task loads a block, the others that need it wait for that.
//!
//! A load begins with the waits for memory that its operation has behind it. So the bound of such
//! waits holds for the operation and not for each of its blocks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::fault::Addr;
use crate::notify::Notify;
use crate::volume::AddrMap;

/// See the module.
#[derive(Default)]
pub(crate) struct Loads(RefCell<AddrMap<Rc<Load>>>);

/// A load that is under way.
#[derive(Default)]
struct Load {
    ended: Notify,
    /// Waits for lent memory, with those before it.
    waits: Cell<usize>,
}

/// The right to load a block; ends with this on each end of the task.
pub(crate) struct Loading<'a> {
    loads: &'a Loads,
    at: Addr,
}

impl Loading<'_> {
    /// Waits for memory until now, with those before the load.
    pub fn waits(&self) -> usize {
        self.loads.waits(self.at)
    }
}

impl Loads {
    /// Whether a load is under way.
    pub fn has(&self, at: Addr) -> bool {
        self.0.borrow().contains_key(&at)
    }

    /// The caller is to load it, after so many waits for memory; `None` if another load was under
    /// way and has ended, whose waits are added then.
    pub async fn begin(&self, at: Addr, waits: &mut usize) -> Option<Loading<'_>> {
        let already = self.0.borrow().get(&at).cloned();
        if let Some(load) = already {
            let before = load.waits.get();
            load.ended.after(load.ended.count()).await;
            *waits += load.waits.get().saturating_sub(before);
            return None;
        }
        let load = Load { waits: Cell::new(*waits), ..Load::default() };
        self.0.borrow_mut().insert(at, Rc::new(load));
        Some(Loading { loads: self, at })
    }

    /// Waits for memory of a load that is under way.
    pub fn waits(&self, at: Addr) -> usize {
        self.0.borrow().get(&at).map_or(0, |load| load.waits.get())
    }

    /// Sets the waits for memory of a load that is under way.
    pub fn set_waits(&self, at: Addr, waits: usize) {
        if let Some(load) = self.0.borrow().get(&at) {
            load.waits.set(waits);
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let load = self.loads.0.borrow_mut().remove(&self.at);
        if let Some(load) = load {
            load.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn waits_count_for_the_operation_and_for_those_that_join() {
        let loads = Loads::default();
        let mut cx = Context::from_waker(Waker::noop());
        let (mut own, mut other) = (3, 1);
        let loading = match pin!(loads.begin(7, &mut own)).poll(&mut cx) {
            Poll::Ready(Some(loading)) => loading,
            _ => panic!("no other load is under way"),
        };
        assert_eq!(loading.waits(), 3, "those before it");
        {
            let mut joined = pin!(loads.begin(7, &mut other));
            assert!(joined.as_mut().poll(&mut cx).is_pending());
            loads.set_waits(7, 8);
            assert_eq!(loading.waits(), 8);
            drop(loading);
            assert!(matches!(joined.as_mut().poll(&mut cx), Poll::Ready(None)));
        }
        assert_eq!(other, 6, "those since it joined");
        assert!(!loads.has(7) && loads.waits(7) == 0);
    }
}
