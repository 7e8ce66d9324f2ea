//! Messages to the geom from its layers and tasks.

use std::sync::atomic::Ordering::Relaxed;

use geom::{GeomId, Topology};

use super::{Doing, Job, MirrorGeom, bit};
use crate::members::GateWord;
use crate::mirror::level::Stage;
use crate::mirror::shared::{Failed, Halt, Told};
use crate::mirror::state::Fault;
use crate::mirror::tasks;

impl MirrorGeom {
    fn idle(&mut self, t: &mut Topology, me: GeomId) {
        self.watching = false;
        if !self.mirror.dirty {
            return;
        }
        let writes = self.shared.writes();
        if std::mem::replace(&mut self.written, writes) == writes {
            return self.push(t, me, Job::Clean);
        }
        let media_bytes = self.mirror.media_bytes;
        if self.mirror.bitmap.as_ref().is_some_and(|image| image.is_crowded(media_bytes)) {
            self.push(t, me, Job::Sweep);
        }
        self.watching = true;
        tasks::after(&self.shared, self.shared.tunables.idle_ns, Told::Idle);
    }

    fn failed(&mut self, t: &mut Topology, me: GeomId, failed: Failed) {
        let fault = if failed.gone { Fault::Absent } else { Fault::Broken };
        if self.suspect(failed.slot, fault)
            && let Some(job) = self.queue.pop_front()
        {
            self.urgent(t, me, job);
        }
    }

    /// A member is to go: its job is first in the queue. False when the member is already leaving.
    pub(super) fn suspect(&mut self, slot: usize, fault: Fault) -> bool {
        if self.mirror.member(slot).is_none() || self.suspects & bit(slot) != 0 {
            return false;
        }
        self.suspects |= bit(slot);
        self.queue.push_front(Job::Out { slot, fault, gone: false });
        true
    }

    pub(super) fn told_word(&mut self, t: &mut Topology, me: GeomId, told: Told) {
        match told {
            Told::Gate(GateWord::Knock) => {
                self.knocked = true;
                self.go_on(t, me);
            }
            Told::Gate(GateWord::Drained) => {
                self.drained = true;
                if let Some(Doing::Draining(job)) = self.doing {
                    self.doing = None;
                    self.carry_out(t, me, job);
                }
                self.go_on(t, me);
            }
            Told::Failed(failed) => self.failed(t, me, failed),
            Told::Mark => {
                self.queue_mark();
                self.go_on(t, me);
            }
            Told::Judge(number) => {
                self.shared.heard(number);
                self.shared.verdict(self.suspects);
            }
            Told::Idle => self.idle(t, me),
            Told::Due => self.due(t, me),
            Told::Launch => self.launch(t, me),
            Told::Well => {
                self.shared.sick.store(false, Relaxed);
                if self.unrecorded != 0 {
                    self.urgent(t, me, Job::Rewrite);
                }
                let growth = *self.shared.growth();
                if growth.stage == Stage::Recording {
                    self.push(t, me, Job::Grow(growth.round));
                }
            }
            Told::Known(slot) => self.push(t, me, Job::In(slot)),
            Told::Copied(slot) => {
                self.push(t, me, Job::Rewrite);
                self.push(t, me, Job::Synced(slot));
            }
            Told::Verified(round) => self.verified(t, round),
            Told::Levelled(round) => self.levelled(t, me, round),
            Told::Written(failed) => self.written(t, me, failed),
            Told::Progress { slot, offset, round } => {
                if self.shared.is_wanted(slot, round) {
                    self.push(t, me, Job::Progress { slot, offset, round });
                }
            }
            Told::Rebuilt { slot, round, result } => {
                if !self.shared.is_wanted(slot, round) {
                    return;
                }
                self.shared.want(slot, None);
                match result {
                    Ok(()) => self.push(t, me, Job::Synced(slot)),
                    Err(Halt::Target(failed)) => self.failed(t, me, failed),
                    Err(Halt::Source) => {
                        self.shunned.extend(self.mirror.member(slot).map(|m| m.record.disk));
                        self.failed(t, me, Failed { slot, gone: true });
                    }
                }
            }
        }
    }
}
