//! Registry of request origins: the names for the numbers that requests carry.
//!
//! A request identifies its originator only by a number of four bytes ([`bio::Origin`]), so that
//! the distinction of clients costs the request path nothing. An originator registers once, when
//! its path is made. The target registers for each path of a session to a unit, a local file system
//! for each process, a core for each task that awaits its own requests. A layer looks a number up
//! when it sees the number for the first time.
//!
//! Invariants
//!  N1  A number has one owner as long as its [`Entry`] is kept, and is reused only after all
//!      others have been given out.
//!  N2  There are at most [`ORIGINS_MAX`] entries; a further originator gets number 0, that of the
//!      daemon, as do all that have no name.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::Origin;
use bio::sync::{Mutex, MutexGuard};

/// Origins entered at once; further ones count as the daemon's own.
pub const ORIGINS_MAX: usize = 1 << 24;

/// On whose behalf.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Originator {
    /// The initiator's name; empty for requests that the daemon makes by itself.
    pub initiator: String,
    /// The number of its session in this daemon.
    pub session: Option<u64>,
    /// The number under which it sees the unit.
    pub lun: Option<u64>,
    /// The requesting process of this machine.
    pub process: Option<u32>,
    /// A background task of the daemon, such as `mirror rebuild gm0`; else empty.
    pub task: String,
}

impl Originator {
    /// A pass in the background.
    pub fn task(name: impl Into<String>) -> Originator {
        Originator { task: name.into(), ..Originator::default() }
    }
}

#[derive(Default)]
struct OriginTable {
    all: BTreeMap<u32, Arc<Originator>>,
    newest: u32,
}

/// See the module. One a daemon, shared by all threads.
#[derive(Default)]
pub struct Origins(Mutex<OriginTable>);

impl Origins {
    fn lock(&self) -> MutexGuard<'_, OriginTable> {
        self.0.lock()
    }

    /// Registers an originator.
    pub fn enter(self: &Arc<Self>, who: Originator) -> Entry {
        let mut book = self.lock();
        if book.all.len() >= ORIGINS_MAX {
            return Entry::default();
        }
        loop {
            book.newest = book.newest.wrapping_add(1);
            let number = book.newest;
            if number != 0 && !book.all.contains_key(&number) {
                book.all.insert(number, Arc::new(who));
                return Entry { origin: Origin(number), of: Some(self.clone()) };
            }
        }
    }

    /// The originator with that number; `None` for the daemon and for one whose entry was removed.
    pub fn originator(&self, origin: Origin) -> Option<Arc<Originator>> {
        self.lock().all.get(&origin.0).cloned()
    }
}

/// A number, kept as long as this is.
#[derive(Default)]
pub struct Entry {
    origin: Origin,
    of: Option<Arc<Origins>>,
}

impl Entry {
    /// What requests carry.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.lock().all.remove(&self.origin.0);
        }
    }
}

/// The numbers of one core's tasks, by kind.
#[derive(Default)]
pub(crate) struct TaskOrigins {
    origins: Option<Arc<Origins>>,
    known: Vec<(&'static str, Entry)>,
}

impl TaskOrigins {
    pub(crate) fn new(origins: Arc<Origins>) -> TaskOrigins {
        TaskOrigins { origins: Some(origins), known: Vec::new() }
    }

    /// Enters one task among several of its kind; the daemon's number without a table.
    pub(crate) fn enter(&self, name: String) -> Entry {
        self.origins.as_ref().map(|o| o.enter(Originator::task(name))).unwrap_or_default()
    }

    /// The number of a kind of task; the daemon's without a name or a table. There are as many as
    /// kinds in the program.
    pub(crate) fn of(&mut self, task: &'static str) -> Origin {
        let Some(origins) = self.origins.as_ref().filter(|_| !task.is_empty()) else {
            return Origin::default();
        };
        if let Some((_, entry)) = self.known.iter().find(|(name, _)| *name == task) {
            return entry.origin();
        }
        let entry = origins.enter(Originator::task(task));
        let origin = entry.origin();
        self.known.push((task, entry));
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_number_has_one_owner_and_is_reused_last() {
        let all = Arc::new(Origins::default());
        let who = |n: u64| Originator {
            initiator: "iqn.a".into(),
            session: Some(n),
            ..Originator::default()
        };
        let first = all.enter(who(1));
        let second = all.enter(Originator::task("mirror rebuild"));
        assert_eq!(all.originator(first.origin()).as_deref(), Some(&who(1)));
        assert_eq!(
            all.originator(second.origin()).map(|w| w.task.clone()).as_deref(),
            Some("mirror rebuild")
        );
        let gone = first.origin();
        drop(first);
        assert_eq!((all.originator(gone), all.originator(Origin(0))), (None, None));
        assert!(all.enter(who(2)).origin() != gone);
        // All the way round: numbers in use are skipped, and so is zero.
        let held = second.origin().0;
        all.lock().newest = u32::MAX;
        let taken: Vec<Entry> = (0..3).map(|n| all.enter(who(n))).collect();
        assert!(taken.iter().all(|e| e.origin().0 != held && e.origin().0 != 0));
    }
}
