//! Growth and shrinking of a mirror (see [`level`](crate::mirror::level)).

use geom::{Error, Event, GeomId, Topology};

use super::{Job, MirrorGeom, RECORD_RETRY_NS};
use crate::mirror::level::{self, Stage};
use crate::mirror::shared::Message;

impl MirrorGeom {
    /// The mirror is to have so many bytes. One that was being made larger is made so large
    /// instead; as large as now: no larger.
    pub(in crate::mirror) fn size_to(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        bytes: u64,
    ) -> Result<(), Error> {
        let round = {
            let mut growth = self.shared.growth();
            if growth.stage == Stage::Recording {
                let what = format!("{} is being resized: records are written", self.mirror.name);
                return Err(Error::new(bio::Errno::Busy, what));
            }
            growth.round += 1;
            growth.from = self.mirror.media_bytes;
            growth.to = bytes;
            growth.stage = Stage::Done;
            growth.round
        };
        if bytes > self.mirror.media_bytes {
            self.shared.growth().stage = Stage::Levelling;
            self.push(t, me, Job::Level(round));
        }
        if bytes < self.mirror.media_bytes {
            // G4
            self.shared.growth().stage = Stage::Recording;
            self.push(t, me, Job::Grow(round));
        }
        Ok(())
    }

    /// Members are made the same from the end on.
    pub(super) fn level(&mut self, round: u64) {
        {
            let mut growth = self.shared.growth();
            if growth.round != round || growth.stage != Stage::Levelling {
                return;
            }
            if growth.to > self.mirror.most() {
                growth.stage = Stage::Failed("a member is too small for that");
                return;
            }
            growth.at = growth.from;
        }
        level::begin(&self.shared, round);
    }

    /// G2: a member arrived, whose content beyond the end is unknown.
    pub(super) fn restart_levelling(&mut self) {
        let mut growth = self.shared.growth();
        if growth.stage == Stage::Levelling {
            growth.round += 1;
            self.queue.retain(|job| !matches!(job, Job::Grow(_) | Job::Level(_)));
            self.queue.push_back(Job::Level(growth.round));
        }
    }

    /// Members are the same up to the new end, and that is durable.
    pub(super) fn levelled(&mut self, t: &mut Topology, me: GeomId, round: u64) {
        let growth = *self.shared.growth();
        if growth.round == round && growth.stage == Stage::Levelling {
            self.push(t, me, Job::Grow(round));
        }
    }

    /// Has the new size written to the records. False when there is nothing to write.
    pub(super) fn grow(&mut self, round: u64) -> bool {
        let mut growth = self.shared.growth();
        if growth.round != round || !growth.is_live() {
            return false;
        }
        growth.stage = Stage::Recording;
        self.mirror.size_to(growth.to);
        true
    }

    /// The records were written (all of them if `complete`): consumers are notified of the new size
    /// (G1).
    pub(super) fn grown(&mut self, t: &mut Topology, me: GeomId, round: u64, complete: bool) {
        if !complete {
            return match self.suspects {
                // The last one's was not: it stays.
                0 => self.shared.post_after(RECORD_RETRY_NS, Message::RetryRecords),
                // Those whose records were not written are removed first.
                _ => self.queue.push_back(Job::Grow(round)),
            };
        }
        self.shared.growth().stage = Stage::Done;
        self.mirror.offered_bytes = 0;
        if let Some(provider) = t.providers_of(me).first() {
            t.post(Event::Resize(*provider, self.mirror.media_bytes));
        }
    }
}
