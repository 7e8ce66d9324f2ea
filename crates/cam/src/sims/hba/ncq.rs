//! Native command queuing of a virtual SATA disk, at both ends of its link.
//!
//! A disk stops at the first queued command that fails: it drops its whole queue and reports no
//! more than that there was an error. The port, which is the HBA's driver, reads in log 10h which
//! command it was. That one has the error, all others are sent again and lose no retry.

use std::collections::BTreeMap;

use wire::ata::{NcqError, TRIM_BLOCK};

use super::target::Target;
use crate::ccb::{CamStatus, CcbId, Outcome};

/// Most tags of a port.
const TAGS_MAX: u8 = 32;

/// The commands in a disk's queue, and the contents of its log.
#[derive(Default)]
pub(super) struct Queue {
    tags: BTreeMap<CcbId, u8>,
    failed: NcqError,
}

impl Queue {
    /// A tag for a command; false when none is free.
    pub(super) fn enter(&mut self, id: CcbId) -> bool {
        let free = (0..TAGS_MAX).find(|tag| self.tags.values().all(|taken| taken != tag));
        free.is_some_and(|tag| self.tags.insert(id, tag).is_none())
    }

    /// It has ended.
    pub(super) fn leave(&mut self, id: CcbId) {
        self.tags.remove(&id);
    }

    /// It is in the queue.
    pub(super) fn has(&self, id: CcbId) -> bool {
        self.tags.contains_key(&id)
    }

    pub(super) fn clear(&mut self) {
        self.tags.clear();
    }

    /// The page of log 10h.
    pub(super) fn log(&self) -> [u8; TRIM_BLOCK] {
        self.failed.encode()
    }
}

impl Target {
    /// A command has failed: returns the outcome for its sender, once the port has looked into it.
    pub(super) fn record_failure(&mut self, id: CcbId, outcome: Outcome) -> Outcome {
        let Some(tag) = self.queue.tags.get(&id).copied() else { return outcome };
        if outcome.status != CamStatus::AtaError {
            // The link's fault, not the disk's: its queue continues.
            self.queue.leave(id);
            return outcome;
        }
        self.halts += 1;
        let (status, error) = outcome.ata;
        self.queue.failed = NcqError { tag: Some(tag), status, error, ..NcqError::default() };
        // From here on the port's.
        let mute = self.chance(self.faults.mute);
        let ncq_error = if mute { None } else { NcqError::decode(&self.queue.log()).ok() };
        let mut own = Outcome::of(CamStatus::Requeue);
        for (each, tag) in std::mem::take(&mut self.queue.tags) {
            self.drop_op(each);
            let outcome = match ncq_error {
                Some(ncq_error) if ncq_error.tag == Some(tag) => {
                    let ata = (ncq_error.status, ncq_error.error);
                    Outcome { ata, ..Outcome::of(CamStatus::AtaError) }
                }
                _ => Outcome::of(CamStatus::Requeue),
            };
            if each == id {
                own = outcome;
            } else {
                self.victims.push((each, outcome));
            }
        }
        own
    }
}
