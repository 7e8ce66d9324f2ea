//! Events of disks that are not in the graph: the server of one answers, so that a new disk is
//! connected and a lost one is back. The events of disks in the graph are those of
//! [`crate::Watch`].

use std::sync::Arc;

use bio::sync::Mutex;
use geom::Inbox;

/// See the module. Any thread posts; the control thread takes.
#[derive(Default)]
pub struct Arrivals {
    inbox: Arc<Inbox>,
    names: Mutex<Vec<String>>,
}

impl Arrivals {
    /// Of disks that the control thread of `inbox` opens.
    pub fn new(inbox: Arc<Inbox>) -> Arrivals {
        Arrivals { inbox, names: Mutex::default() }
    }

    /// The server of a disk answers. Wakes the control thread.
    pub fn post(&self, disk: &str) {
        self.names.lock().push(disk.to_owned());
        self.inbox.wake();
    }

    /// The disks whose servers have answered since this was last called.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.names.lock())
    }
}
