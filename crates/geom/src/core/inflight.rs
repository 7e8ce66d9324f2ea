//! Accounting of requests inside a layer and of requests that ended there.
//!
//! ```text
//!   walk: down --> down --> ends at once --> up, up             passed: not counted in
//!   walk: down --> down --> has to wait: counted in, put away
//!                    walk: continues --> up, up                 counted out, stayed
//! ```
//!
//! Most requests to fast disks complete in the walk that took them down. This core does not look
//! into the queues during a walk (drains are checked between two walks), and its clock does not
//! advance. So these requests are not counted in and out.
//!
//! Invariants
//!  A1  A Bio that no walk holds is counted in at every layer that holds it. It is counted in
//!      before it is put away, whether in the slab, at a gate or behind another.
//!  A2  A Bio that is counted in is counted out once, when its frame is removed (F1 of
//!      `bio::Frames`).

use bio::Bio;

use super::Core;
use super::SPLIT_NODE;
use super::table::{EdgeSlot, Table};
use crate::layer::Edge;

impl Core {
    /// A1: a Bio is about to be put away.
    pub(super) fn count_in(&self, table: &Table, bio: &mut Bio) {
        let now = self.now();
        for frame in bio.frames.count_in() {
            frame.start_ns = now;
            if frame.node != SPLIT_NODE
                && let Some(e) = table.inside(frame.edge)
            {
                e.meter.enter(now, &e.node.queue);
            }
        }
    }

    /// A layer has ended a Bio, whose frame there has been removed; `since_ns`: it was counted in
    /// then.
    #[inline(always)]
    pub(super) fn account(&self, e: &EdgeSlot, since_ns: Option<u64>, bio: &Bio) {
        match since_ns {
            Some(since_ns) => self.count_out(e, since_ns, bio),
            None => passed(e, bio),
        }
    }

    /// A2
    #[inline(never)]
    fn count_out(&self, e: &EdgeSlot, since_ns: u64, bio: &Bio) {
        let now = self.now();
        e.meter.leave(now, &e.node.queue);
        e.meter.record_queued(
            now.wrapping_sub(since_ns),
            bio.op,
            bio.completed,
            bio.status.is_ok(),
        );
        if self.recorder.is_on() {
            self.recorder.record(bio, e.edge, false, (since_ns, now));
        }
    }

    /// The pieces of a Bio have ended, and its frame for them has been removed; `since_ns`: it was
    /// counted in then.
    pub(super) fn pieces_ended(&self, edge: Edge, since_ns: Option<u64>, bio: &Bio) {
        if let Some(since_ns) = since_ns.filter(|_| self.recorder.is_on()) {
            self.recorder.record(bio, edge, true, (since_ns, self.now()));
        }
    }
}

/// A layer has ended a Bio that was not counted in there.
#[inline(always)]
pub(super) fn passed(e: &EdgeSlot, bio: &Bio) {
    e.meter.record_unqueued(bio.op, bio.completed, bio.status.is_ok());
}
