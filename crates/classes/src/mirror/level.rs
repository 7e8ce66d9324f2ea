//! The space by which a mirror grows: it is made the same on all members before anybody can use it.
//!
//! ```text
//!   verb --> Job::Level: slab after slab beyond the end, read from all members; what differs from
//!        the best is overwritten --> all flushed --> Told::Levelled --> Job::Grow: the syncid
//!        grows, records are written --> all durable? --> those above are told
//! ```
//!
//! Invariants
//!  G1  Nobody reads or writes beyond the old end before the records of all members say the new
//!      size. A power cut before the first of them finds the old size; after it the member it is on
//!      is the newest, and the others are rebuilt (M1).
//!  G2  A member that comes while the space is made the same has it begun anew; one that is away
//!      when the mirror grows has missed that as it would have missed a write (M3, M5).
//!  G4  It becomes smaller only while nobody has it open, all members are the same and none is
//!      compared; nobody opens it for writing before the records say the new size. Who reads
//!      meanwhile has all of the old size: a member that comes is made the same up to there. What
//!      a power cut leaves is as with G1.
//!  G3  While a growth is under way no bitmap is laid where the space will be.
//!  G5  What is recorded is the size up to which members were made the same: a growth that is asked
//!      for again, to another size, begins anew, though the first was about to be recorded.
//!  G6  Where a member's record was before its provider grew is cleared before it is made the same,
//!      or never: a record that fails to be moved is moved later, when the mirror may have grown.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bio::Errno;
use geom::{Core, Edge};

use super::shared::{Failed, Shared, Told};
use crate::members::{differences, pay};

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
    /// It came to no end, and why.
    Failed(&'static str),
}

/// The growth that is under way, or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Growth {
    /// Its number, another one each time that it begins anew.
    pub(super) round: u64,
    pub(super) stage: Stage,
    /// The same on all members up to here, bytes of the mirror.
    pub(super) at: u64,
    /// The mirror's size before and after, bytes.
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Growth {
    /// It goes on.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Levelling | Stage::Recording)
    }

    /// Records are being written that say fewer bytes (G4).
    pub(super) fn shrinks(&self) -> bool {
        self.stage == Stage::Recording && self.to < self.from
    }

    /// In one line, unless there is nothing to say.
    pub(super) fn line(&self) -> Option<String> {
        let whole = u128::from(self.to.saturating_sub(self.from)).max(1);
        let percent = u128::from(self.at.saturating_sub(self.from)) * 100 / whole;
        match self.stage {
            Stage::Done => None,
            Stage::Levelling => Some(format!("{percent}%, to {} bytes", self.to)),
            Stage::Recording => Some(format!("to {} bytes: records are written", self.to)),
            Stage::Failed(why) => Some(format!("ended at {percent}%: {why}")),
        }
    }
}

/// Makes the members the same from the end of the mirror on, as the growth of this number says.
pub(super) fn begin(shared: &Arc<Shared>, round: u64) {
    let (shared, board) = (shared.clone(), shared.board.clone());
    board.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = shared.name.clone();
            on.spawn_for("mirror growth", &name, async move {
                if (Run { core: &core, shared: &shared, round }).all().await {
                    shared.tell(Told::Levelled(round));
                }
            });
        }),
    );
}

struct Run<'a> {
    core: &'a Rc<Core>,
    shared: &'a Arc<Shared>,
    round: u64,
}

/// One member that takes part: slot, whether it has everything, the way to it.
type Party = (usize, bool, Edge);

impl Run<'_> {
    /// The growth as it is, while it is this one's.
    fn wanted(&self) -> Option<Growth> {
        let growth = *self.shared.growth();
        let own = growth.round == self.round && growth.stage == Stage::Levelling;
        own.then_some(growth)
    }

    fn say(&self, f: impl FnOnce(&mut Growth)) {
        let mut growth = self.shared.growth();
        if growth.round == self.round && growth.stage == Stage::Levelling {
            f(&mut growth);
        }
    }

    /// Those who have everything first, of them those of the highest priority.
    fn members(&self) -> Vec<Party> {
        let lane = self.shared.lane(self.core.id() as usize);
        let mut all: Vec<_> = lane.table.all().map(|(slot, path)| (slot, *path)).collect();
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
                let why = "no member that has everything can be read there";
                self.say(|growth| growth.stage = Stage::Failed(why));
                return false;
            }
            self.say(|growth| growth.at += len);
            paid = pay(self.core, self.shared.sync_rate.load(Relaxed), paid, len).await;
        }
        false
    }

    /// False when nobody knows what it holds.
    async fn slab(&self, at: u64, len: usize) -> bool {
        let mut good: Option<Vec<u8>> = None;
        for (slot, active, edge) in self.members() {
            let read = match self.core.read(edge, at, len).await {
                Ok(bytes) if bytes.len() == len => bytes,
                Ok(_) => continue,
                Err(e) => {
                    self.accuse(slot, e);
                    continue;
                }
            };
            match &good {
                Some(good) => self.mend((slot, edge), at, good, &read).await,
                None if active => good = Some(read),
                None => return false,
            }
        }
        good.is_some()
    }

    async fn mend(&self, (slot, edge): (usize, Edge), at: u64, good: &[u8], other: &[u8]) {
        let sector = self.shared.lane(self.core.id() as usize).table.sector;
        for range in differences(good, other, sector as usize) {
            let from = at + range.start as u64;
            let Some(bytes) = good.get(range) else { continue };
            if let Err(e) = self.core.write(edge, from, bytes).await {
                return self.accuse(slot, e);
            }
        }
    }

    async fn flush(&self) {
        for (slot, _, edge) in self.members() {
            match self.core.flush(edge).await {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) => self.accuse(slot, e),
            }
        }
    }

    fn accuse(&self, slot: usize, error: Errno) {
        self.shared.tell(Told::Failed(Failed { slot, gone: error == Errno::NxIo }));
    }
}
