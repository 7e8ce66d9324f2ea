//! Background comparison of the members with each other.
//!
//! ```text
//!   verb --> Job::Verify (gate drained: from here on writes mind ranges) --> slab after slab, each
//!        under a range lock: read every ACTIVE member, compare, perhaps write
//!        --> Message::Verified
//! ```
//!
//! Invariants
//!  V1  Nothing is written between the reads that are compared: a write that is on some members and
//!      not yet on others is no difference.
//!  V2  Only with `repair` is anything written, and only the content of the chosen member, read
//!      under the same lock.
//!  V3  Repairs are flushed before they are counted.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Edge};

use super::shared::{MemberFailure, Message, MirrorShared};
use crate::members::{Mismatch, MismatchKind, VerifyReport, differences, wait_for_rate};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct VerifyOptions {
    /// Differences are overwritten.
    pub(super) repair: bool,
    /// The slot of the member that is right.
    pub(super) reference_slot: usize,
    /// Bytes a second; zero: no limit.
    pub(super) rate: u64,
}

/// Compares everything, as [`Report`] of the shared state was set up to.
pub(super) fn begin(shared: &Arc<MirrorShared>, options: VerifyOptions, sector: u64) {
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    let (round, media_bytes) = {
        let report = shared.verified();
        (report.round, report.media_bytes)
    };
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("mirror verify", &name, async move {
                let run = VerifyRun { core: &core, shared: &shared, options, sector, round };
                run.all(media_bytes).await;
                shared.post(Message::Verified(round));
            });
        }),
    );
}

struct VerifyRun<'a> {
    core: &'a Rc<Core>,
    shared: &'a Arc<MirrorShared>,
    options: VerifyOptions,
    sector: u64,
    round: u64,
}

impl VerifyRun<'_> {
    fn update_report(&self, f: impl FnOnce(&mut VerifyReport)) -> bool {
        self.shared.verified().update(self.round, f)
    }

    async fn all(&self, media_bytes: u64) {
        let mut at = 0;
        let mut paid = self.core.reactor().fresh_now();
        while at < media_bytes {
            let len = self.shared.tunables.slab_bytes.min(media_bytes - at);
            let held = self.shared.ranges.lock_task(at..at + len, true).await;
            // The last word of the run before is not this one's.
            let wanted = self.update_report(|_| ());
            let done = if wanted { self.slab(at, len).await } else { Ok(()) };
            self.shared.ranges.unlock(held);
            if let Err(why) = done {
                self.update_report(|report| report.fault = Some(why));
                return;
            }
            at += len;
            if !self.update_report(|report| report.at = at) {
                return;
            }
            let rate = || self.update_report(|_| ()).then_some(self.options.rate);
            paid = wait_for_rate(self.core, rate, paid, len).await;
        }
    }

    async fn slab(&self, at: u64, len: u64) -> Result<(), &'static str> {
        let members: Vec<(usize, Edge)> = {
            let core_state = self.shared.core_state(self.core.id() as usize);
            core_state.table.active().map(|(slot, path)| (slot, path.edge)).collect()
        };
        let Some((right, _)) =
            members.iter().find(|(slot, _)| *slot == self.options.reference_slot).copied()
        else {
            return Err("the member to compare with is no longer there");
        };
        let mut contents = Vec::new();
        for (slot, edge) in members {
            contents.push((slot, edge, self.read(slot, edge, at, len).await));
        }
        let Some((_, _, Ok(good))) = contents.iter().find(|(slot, ..)| *slot == right) else {
            // The right content is unknown; the others are not compared with each other.
            self.note(right, at..at + len, true);
            return Ok(());
        };
        for (slot, edge, bytes) in contents.iter().filter(|(slot, ..)| *slot != right) {
            let wrong = match bytes {
                Ok(bytes) => differences(good, bytes, self.sector as usize),
                Err(_) => std::iter::once(0..good.len()).collect(),
            };
            for range in &wrong {
                let place = at + range.start as u64..at + range.end as u64;
                self.note(*slot, place, bytes.is_err());
            }
            if self.options.repair && !wrong.is_empty() {
                self.repair((*slot, *edge), at, good, &wrong).await;
            }
        }
        Ok(())
    }

    fn note(&self, slot: usize, range: Range<u64>, unreadable: bool) {
        let ill = if unreadable { MismatchKind::Unreadable } else { MismatchKind::Differs };
        self.update_report(|report| {
            report.add_mismatch(Mismatch { slot, range, kind: ill }, self.sector)
        });
    }

    async fn read(&self, slot: usize, edge: Edge, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let read = self.core.read(edge, at, len as usize).await;
        let read = read.and_then(|b| if b.len() as u64 == len { Ok(b) } else { Err(Errno::Io) });
        if read == Err(Errno::NxIo) {
            self.shared.post(Message::Failed(MemberFailure { slot, gone: true }));
        }
        read
    }

    /// V2, V3
    async fn repair(&self, to: (usize, Edge), at: u64, good: &[u8], wrong: &[Range<usize>]) {
        let (slot, edge) = to;
        let mut sectors = 0;
        for range in wrong {
            let Some(bytes) = good.get(range.clone()) else { continue };
            if let Err(e) = self.core.write(edge, at + range.start as u64, bytes).await {
                return self
                    .shared
                    .post(Message::Failed(MemberFailure { slot, gone: e == Errno::NxIo }));
            }
            sectors += bytes.len() as u64 / self.sector.max(1);
        }
        match self.core.flush(edge).await {
            Ok(()) | Err(Errno::NotSup) => {
                self.update_report(|report| report.repaired += sectors);
            }
            Err(e) => {
                self.shared.post(Message::Failed(MemberFailure { slot, gone: e == Errno::NxIo }))
            }
        }
    }
}
