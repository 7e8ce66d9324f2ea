//! A place where one thread waits until another rings.

use std::sync::{Mutex, PoisonError};

use shuttle::sync::mpsc::{Receiver, Sender, channel};

/// See the module. Taking these locks is not a step: a thread never waits while it holds one.
pub struct Wakeup {
    sender: Mutex<Sender<()>>,
    receiver: Mutex<Option<Receiver<()>>>,
}

impl Default for Wakeup {
    fn default() -> Wakeup {
        let (rings, hears) = channel();
        Wakeup { sender: Mutex::new(rings), receiver: Mutex::new(Some(hears)) }
    }
}

impl Wakeup {
    /// A ring before the wait is kept.
    pub fn ring(&self) {
        let rings = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The receiver may have been dropped.
        let _ = rings.send(());
    }

    /// Waits for the next ring that has not been received; one thread at a time.
    pub fn wait(&self) {
        let lock = || self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let hears = lock().take().expect("one waits at a time");
        hears.recv().expect("the bell has its own end");
        *lock() = Some(hears);
    }
}
