//! Geoms that were stopped by a verb and must not be started again by the tasting that follows.
//! `start` clears the entry; so does a restart of the daemon.

use std::collections::BTreeSet;

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::Error;

/// Names of a class's geoms that were stopped.
#[derive(Default)]
pub(crate) struct Stopped(Mutex<BTreeSet<String>>);

impl Stopped {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock()
    }

    pub(crate) fn stop(&self, name: &str) {
        self.names().insert(name.to_owned());
    }

    /// It may be put together again; false when it was not stopped.
    pub(crate) fn start(&self, name: &str) -> bool {
        self.names().remove(name)
    }

    /// Why a member of a geom is not used that was stopped.
    pub(crate) fn refusal_text(class: &str, name: &str) -> String {
        format!("{class} {name} was stopped by hand: `ashlar {class} start {name}` starts it")
    }

    /// Why a member of it is not used, if it was stopped.
    pub(crate) fn refusal(&self, class: &str, name: &str) -> Option<String> {
        self.names().contains(name).then(|| Stopped::refusal_text(class, name))
    }

    /// All of them; see [`geom::Class::stopped_geoms`].
    pub(crate) fn all(&self, class: &str) -> Vec<(String, String)> {
        self.names().iter().map(|name| (name.clone(), Stopped::refusal_text(class, name))).collect()
    }

    /// The same for classes whose members look like the whole. As the refusal of a claim, it hides
    /// other content of the member ([`geom::Class::hides_what_it_refuses`]).
    pub(crate) fn refuse(&self, class: &str, name: &str) -> Result<(), Error> {
        self.refusal(class, name).map_or(Ok(()), |why| Err(Error::new(Errno::Busy, why)))
    }
}
