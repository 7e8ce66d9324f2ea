//! Removal of a member by a verb: its record is cleared, or marked.
//!
//! ```text
//!   let_go --> Job::Out --> the others' records are written --> last_word --> verb writes --> done
//! ```
//!
//! Invariants
//!  P1  A member's record is touched only when it is no longer a member and a record of those that
//!      stay contains that. A power cut or a failure of the others before that leaves it unchanged.
//!  P2  Until the verb has written the last record the provider stays open exclusively, so that no
//!      class takes it for its former role.

use bio::Errno;
use geom::{ConsumerId, Edge, Error, GeomId, Topology};

use super::{Job, MirrorGeom, bit};
use crate::members::frame;
use crate::mirror::metadata::Metadata;
use crate::mirror::state::Fault;

/// How a member is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::mirror) enum Removal {
    /// For good: it is no longer counted.
    Removed,
    /// For a while: it is still counted.
    Deactivated,
}

/// A member that is out, and whose last record is to be written.
pub(super) struct RemovedMember {
    pub(super) consumer: ConsumerId,
    record: Metadata,
    /// Where its record is, bytes.
    at: u64,
    sector_bytes: u32,
}

/// The data for the last record of a removed member.
pub(in crate::mirror) struct FinalRecord {
    /// Made by hand: it has no record.
    pub(in crate::mirror) manual: bool,
    pub(in crate::mirror) edge: Edge,
    /// Where its record is, bytes.
    pub(in crate::mirror) at: u64,
    pub(in crate::mirror) sector_bytes: u32,
    pub(in crate::mirror) record: Metadata,
}

impl MirrorGeom {
    /// A member is to be removed.
    pub(in crate::mirror) fn begin_removal(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        slot: usize,
        how: Removal,
    ) {
        self.removing.insert(slot, how);
        self.push(t, me, Self::removal_job(slot));
    }

    fn removal_job(slot: usize) -> Job {
        Job::Out { slot, fault: Fault::Absent, gone: false }
    }

    /// The last record of a member that leaves, if a verb removes it.
    pub(super) fn last_record(&self, slot: usize) -> Option<Metadata> {
        self.removing.get(&slot)?;
        let found = || Some(self.mirror.member(slot)?.record.clone());
        self.mirror.record(slot).or_else(found)
    }

    /// A member is out; `last` when its device is present and a verb waits for it (P2).
    pub(super) fn detach_member(
        &mut self,
        t: &mut Topology,
        slot: usize,
        consumer: ConsumerId,
        last: Option<Metadata>,
    ) {
        let how = self.removing.remove(&slot);
        if how == Some(Removal::Removed) {
            self.mirror.count_only(self.mirror.all.saturating_sub(1));
        }
        let limits = t.below(consumer).and_then(|p| t.limits(p));
        let place = limits.and_then(|l| {
            Some((frame::last_sector(l.sector_bytes, l.media_bytes)?, l.sector_bytes))
        });
        match (last, place) {
            (Some(record), Some((at, sector_bytes))) => {
                self.removed.insert(slot, RemovedMember { consumer, record, at, sector_bytes });
            }
            _ => t.abandon(consumer),
        }
    }

    /// The work left to do on the member that was in this slot, or the reason why it was not
    /// removed (P1).
    pub(in crate::mirror) fn final_record(
        &self,
        t: &Topology,
        slot: usize,
        name: &str,
    ) -> Result<FinalRecord, Error> {
        let Some(parted) = self.removed.get(&slot) else {
            return Err(match self.mirror.member(slot) {
                Some(_) => {
                    let what = format!("{name} stays: it became the last complete member");
                    Error::new(Errno::Busy, what)
                }
                None => Error::new(Errno::NxIo, format!("{name} was removed, with its record")),
            });
        };
        if self.unrecorded & bit(slot) != 0 {
            let what = format!("{name} stays: no other member's record can be written");
            return Err(Error::new(Errno::Io, what));
        }
        Ok(FinalRecord {
            manual: self.mirror.manual,
            edge: t.edge(parted.consumer),
            at: parted.at,
            sector_bytes: parted.sector_bytes,
            record: parted.record.clone(),
        })
    }

    /// The verb is done with the member, or gives up: it is looked at as any other provider.
    pub(in crate::mirror) fn finish_removal(&mut self, t: &mut Topology, slot: usize) {
        // A fault of the member in the meantime stays in effect.
        if self.removing.remove(&slot).is_some() && self.suspects & bit(slot) == 0 {
            self.queue.retain(|j| *j != Self::removal_job(slot));
        }
        if let Some(parted) = self.removed.remove(&slot) {
            t.leave(parted.consumer);
        }
    }
}
