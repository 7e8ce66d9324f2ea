//! What Linux keeps beside a volume against the write hole: a log of partial parity (PPL), a drive
//! with a journal, a write-intent bitmap. It is not written here, nor read.
//!
//! Linux believes it of a volume that it finds dirty: parity that the log says nothing of is taken
//! to be right, and parity is made from entries that are older than what was written since. So the
//! record of a volume that is written here says that there is none, for as long as it says dirty:
//! whoever finds it so makes all parity anew, or starts no array that lacks a disk. A clean volume
//! has its guard back; what is in the log is of no use to anybody then.

use super::record::{Record, VolumeRecord};

/// Where the policy stands in [`VolumeRecord::rest`]: byte 50 of the volume.
const POLICY: usize = 8;
/// There is none: as it was before there were any, and as it is switched off.
const OFF: [u8; 2] = [0, 5];

fn policy(rest: &[u8; 32]) -> u8 {
    rest.get(POLICY).copied().unwrap_or(0)
}

/// The same without a guard.
pub(super) fn off(mut rest: [u8; 32]) -> [u8; 32] {
    if let Some(policy) = rest.get_mut(POLICY).filter(|policy| !OFF.contains(policy)) {
        *policy = 0;
    }
    rest
}

impl VolumeRecord {
    /// The guard, by name; `None` when there is none.
    pub fn guard(&self) -> Option<&'static str> {
        match policy(&self.rest) {
            policy if OFF.contains(&policy) => None,
            1 | 3 => Some("partial parity log (PPL)"),
            2 | 4 => Some("journal"),
            6 => Some("write-intent bitmap"),
            _ => Some("write-hole policy"),
        }
    }
}

impl Record {
    /// The guard of the volume with this id.
    pub(crate) fn guard_of(&self, id: [u8; 24]) -> Option<&'static str> {
        let is_it = |v: &&VolumeRecord| id.starts_with(&v.number.to_le_bytes());
        self.volumes.iter().find(is_it).and_then(VolumeRecord::guard)
    }

    /// What is to be known of this record for the next one: with the guards that `before` had, and
    /// that are off now.
    pub(crate) fn guarded_as(mut self, before: &Record) -> Record {
        for volume in &mut self.volumes {
            let same = |v: &&VolumeRecord| v.number == volume.number && v.guard().is_some();
            if let Some(old) = before.volumes.iter().find(same).filter(|_| volume.guard().is_none())
            {
                volume.rest = old.rest;
            }
        }
        self
    }
}
