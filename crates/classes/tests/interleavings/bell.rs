//! A place where one thread waits until another rings.

use std::sync::{Mutex, PoisonError};

use shuttle::sync::mpsc::{Receiver, Sender, channel};

/// See the module. The locks here are no steps: nobody waits while he holds one.
pub struct Bell {
    rings: Mutex<Sender<()>>,
    hears: Mutex<Option<Receiver<()>>>,
}

impl Default for Bell {
    fn default() -> Bell {
        let (rings, hears) = channel();
        Bell { rings: Mutex::new(rings), hears: Mutex::new(Some(hears)) }
    }
}

impl Bell {
    /// A ring before anybody waits is kept.
    pub fn ring(&self) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Whoever would hear it may have gone.
        let _ = rings.send(());
    }

    /// Until the next ring that nobody has heard yet; one thread at a time.
    pub fn wait(&self) {
        let lock = || self.hears.lock().unwrap_or_else(PoisonError::into_inner);
        let hears = lock().take().expect("one waits at a time");
        hears.recv().expect("the bell has its own end");
        *lock() = Some(hears);
    }
}
