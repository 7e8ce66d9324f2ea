//! stopped: what was taken apart by hand and shall not be put together again by the tasting that
//! follows. `start` forgets; so does a new daemon.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of a class's geoms that were stopped.
#[derive(Default)]
pub(crate) struct Stopped(Mutex<BTreeSet<String>>);

impl Stopped {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was stopped.
    pub(crate) fn stop(&self, name: &str) {
        self.names().insert(name.to_owned());
    }

    /// It may be put together again; false when it was not stopped.
    pub(crate) fn start(&self, name: &str) -> bool {
        self.names().remove(name)
    }

    /// The verdict about a member of it, if it was stopped.
    pub(crate) fn verdict(&self, class: &str, name: &str) -> Option<String> {
        let stopped = self.names().contains(name);
        stopped.then(|| {
            format!("{class} {name} was stopped by hand: `ashlar {class} start {name}` starts it")
        })
    }
}
