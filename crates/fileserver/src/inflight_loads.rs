//! Blocks on their way into memory: one task loads a block, the others that need it wait for that.

use std::cell::RefCell;
use std::rc::Rc;

use crate::fault::Addr;
use crate::notify::Notify;
use crate::volume::AddrMap;

/// See the module.
#[derive(Default)]
pub(crate) struct Loads(RefCell<AddrMap<Rc<Notify>>>);

/// The right to load a block; ends with this, whatever happens to the task.
pub(crate) struct Loading<'a> {
    loads: &'a Loads,
    at: Addr,
}

impl Loads {
    /// Whether a load is under way.
    pub fn has(&self, at: Addr) -> bool {
        self.0.borrow().contains_key(&at)
    }

    /// The caller is to load it; `None`: another load was under way and has ended.
    pub async fn begin(&self, at: Addr) -> Option<Loading<'_>> {
        let already = self.0.borrow().get(&at).cloned();
        if let Some(notify) = already {
            notify.after(notify.count()).await;
            return None;
        }
        self.0.borrow_mut().insert(at, Rc::new(Notify::default()));
        Some(Loading { loads: self, at })
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let notify = self.loads.0.borrow_mut().remove(&self.at);
        if let Some(notify) = notify {
            notify.notify_all();
        }
    }
}
