//! Origins of a session's requests for the layers below. Each path has a number
//! ([`geom::Origins`]), and so has each process of this machine that a transport identifies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bio::Origin;
use geom::{Entry, Originator};

use crate::nexus::{ItNexus, Path};

/// Processes of one session that have numbers; of more, the one named longest ago loses its own,
/// and gets another one with its next request.
const PROCESSES_MAX: usize = 64;

/// Processes that send commands in a session.
#[derive(Default)]
pub(crate) struct LocalProcesses {
    /// Process that sends commands now; zero: none in particular.
    process: Cell<u32>,
    known: RefCell<VecDeque<((u32, u64), Entry)>>,
}

impl LocalProcesses {
    /// Removes all known processes.
    pub(crate) fn forget(&self) {
        self.known.borrow_mut().clear();
    }
}

impl ItNexus {
    /// Sets the local process that sends the commands from now on; zero: none in particular. For
    /// transports that know it.
    pub fn set_process(&self, process: u32) {
        self.local_processes.process.set(process);
    }

    pub(crate) fn origin_entry_for(&self, lun: u64, process: Option<u32>) -> Entry {
        let who = Originator {
            initiator: self.facts().initiator.clone(),
            session: Some(self.number()),
            lun: Some(lun),
            process,
            task: String::new(),
        };
        self.engine().registry().origins().enter(who)
    }

    /// Origin of the requests of a command that arrived on `path` now.
    #[inline]
    pub(crate) fn origin_of(&self, path: &Path) -> Origin {
        match self.local_processes.process.get() {
            0 => path.origin(),
            process => self.origin_of_process(process, path.lun()),
        }
    }

    #[cold]
    fn origin_of_process(&self, process: u32, lun: u64) -> Origin {
        let mut known = self.local_processes.known.borrow_mut();
        if let Some((_, entry)) = known.iter().find(|(key, _)| *key == (process, lun)) {
            return entry.origin();
        }
        if known.len() >= PROCESSES_MAX {
            known.pop_front();
        }
        let entry = self.origin_entry_for(lun, Some(process));
        let origin = entry.origin();
        known.push_back(((process, lun), entry));
        origin
    }
}
