//! Growth of a mirror: the added space is made equal on all members before it is used.
//!
//! ```text
//!   verb --> Job::Level: slab after slab beyond the end, read from all members; data that differs
//!        from the best is overwritten --> all flushed --> Message::Levelled --> Job::Grow: the
//!        syncid grows, records are written --> all durable? --> consumers learn the new size
//! ```
//!
//! Invariants
//!  G1  No consumer reads or writes beyond the old end before the records of all members have the
//!      new size. A power cut before the first of these records leaves the old size. After it, the
//!      member with that record is the newest, and the others are rebuilt (M1).
//!  G2  A member that arrives while the space is made equal restarts that work. A member that is
//!      absent when the mirror grows has missed the growth as it would have missed a write (M3,
//!      M5).
//!  G4  A mirror shrinks only while it is not open, all members are equal and no comparison runs.
//!      It is not opened for writing before the records have the new size. A reader meanwhile has
//!      all of the old size: an arriving member is made equal up to there. A power cut has the same
//!      effect as in G1.
//!  G3  While a growth is in progress no bitmap is placed where the space will be.
//!  G5  The recorded size is the size up to which members were made equal. A new request to grow,
//!      to another size, starts again even if the first was about to be recorded.
//!  G6  The old place of a member's record is cleared before it is made equal, or never. A record
//!      whose move fails is moved later, when the mirror may have grown.

use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Edge};

use super::shared::{MemberFailure, Message, MirrorShared};
use crate::members::{differences, wait_for_rate};

/// What becomes of a growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// There was none, or it is done.
    #[default]
    Done,
    /// Members are made the same.
    Levelling,
    /// Records are being written, or were not written to all yet.
    Recording,
    /// The reason why it did not complete.
    Failed(&'static str),
}

/// The growth that is in progress, or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Growth {
    /// Its number; each restart gets another one.
    pub(super) round: u64,
    pub(super) stage: Stage,
    /// The same on all members up to here, bytes of the mirror.
    pub(super) at: u64,
    /// The mirror's size before and after, bytes.
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Growth {
    /// Whether it is in progress.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Levelling | Stage::Recording)
    }

    /// Whether records with a smaller size are being written (G4).
    pub(super) fn shrinks(&self) -> bool {
        self.stage == Stage::Recording && self.to < self.from
    }

    /// One line for lists, if there is something to report.
    pub(super) fn line(&self) -> Option<String> {
        let total = u128::from(self.to.saturating_sub(self.from)).max(1);
        let percent = u128::from(self.at.saturating_sub(self.from)) * 100 / total;
        match self.stage {
            Stage::Done => None,
            Stage::Levelling => Some(format!("{percent}%, to {} bytes", self.to)),
            Stage::Recording => Some(format!("to {} bytes: records are written", self.to)),
            Stage::Failed(why) => Some(format!("ended at {percent}%: {why}")),
        }
    }
}

/// Makes the members equal beyond the end of the mirror, for the growth of this number.
pub(super) fn begin(shared: &Arc<MirrorShared>, round: u64) {
    let (shared, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("mirror growth", &name, async move {
                if (LevelRun { core: &core, shared: &shared, round }).all().await {
                    shared.post(Message::Levelled(round));
                }
            });
        }),
    );
}

struct LevelRun<'a> {
    core: &'a Rc<Core>,
    shared: &'a Arc<MirrorShared>,
    round: u64,
}

/// One member that takes part: slot, whether it is complete, the edge to it.
type Participant = (usize, bool, Edge);

impl LevelRun<'_> {
    /// The growth as it is, while it is this one's.
    fn wanted(&self) -> Option<Growth> {
        let growth = *self.shared.growth();
        let own = growth.round == self.round && growth.stage == Stage::Levelling;
        own.then_some(growth)
    }

    fn update_growth(&self, f: impl FnOnce(&mut Growth)) {
        let mut growth = self.shared.growth();
        if growth.round == self.round && growth.stage == Stage::Levelling {
            f(&mut growth);
        }
    }

    /// Complete members first, ordered by descending priority.
    fn members(&self) -> Vec<Participant> {
        let core_state = self.shared.core_state(self.core.id() as usize);
        let mut all: Vec<_> = core_state.table.all().map(|(slot, path)| (slot, *path)).collect();
        all.sort_by_key(|(_, path)| (!path.active, u8::MAX - path.priority));
        all.into_iter().map(|(slot, path)| (slot, path.active, path.edge)).collect()
    }

    /// True when all of it is the same, and durable.
    async fn all(&self) -> bool {
        let mut paid = self.core.reactor().fresh_now();
        while let Some(growth) = self.wanted() {
            if growth.at >= growth.to {
                self.flush().await;
                return true;
            }
            let len = self.shared.tunables.slab_bytes.min(growth.to - growth.at);
            if !self.slab(growth.at, len as usize).await {
                let why = "no complete member can be read there";
                self.update_growth(|growth| growth.stage = Stage::Failed(why));
                return false;
            }
            self.update_growth(|growth| growth.at += len);
            let rate = || self.wanted().map(|_| self.shared.throttle.rate());
            paid = wait_for_rate(self.core, rate, paid, len).await;
        }
        false
    }

    /// False when the content of the slab is unknown.
    async fn slab(&self, at: u64, len: usize) -> bool {
        let mut good: Option<Vec<u8>> = None;
        for (slot, active, edge) in self.members() {
            let read = match self.core.read(edge, at, len).await {
                Ok(bytes) if bytes.len() == len => bytes,
                Ok(_) => continue,
                Err(e) => {
                    self.report_failure(slot, e);
                    continue;
                }
            };
            match &good {
                Some(good) => self.copy_differences((slot, edge), at, good, &read).await,
                None if active => good = Some(read),
                None => return false,
            }
        }
        good.is_some()
    }

    async fn copy_differences(
        &self,
        (slot, edge): (usize, Edge),
        at: u64,
        good: &[u8],
        other: &[u8],
    ) {
        let sector = self.shared.core_state(self.core.id() as usize).table.sector;
        for range in differences(good, other, sector as usize) {
            let from = at + range.start as u64;
            let Some(bytes) = good.get(range) else { continue };
            if let Err(e) = self.core.write(edge, from, bytes).await {
                return self.report_failure(slot, e);
            }
        }
    }

    async fn flush(&self) {
        for (slot, _, edge) in self.members() {
            match self.core.flush(edge).await {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) => self.report_failure(slot, e),
            }
        }
    }

    fn report_failure(&self, slot: usize, error: Errno) {
        self.shared.post(Message::Failed(MemberFailure { slot, gone: error == Errno::NxIo }));
    }
}
